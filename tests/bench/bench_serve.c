/*
 * `once serve` beside libonce in the caller's own process, on the same kind of store: how long a pair of claim and complete takes
 * one at a time, and what CPU it takes, also with 32 at a time. Both run in turns, so that a busy machine is busy for both.
 *
 *     bench_serve ONCE     in memory, in a local store here, and in ONCE_REDIS_URL and ONCE_PG_URL if they are set
 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <once/once.h>

#include "asking.h"
#include "bench.h"
#include "local/cost.h"

#define ROUNDS    5
#define ONE       400  /* pairs of a round, one at a time */
#define MANY      4000 /* pairs of a round, IN_FLIGHT at a time */
#define IN_FLIGHT 32
#define BODY      400
#define REPLY_MAX 4096

static char body[BODY + 1];
static unsigned keys; /* made so far: no key is used twice */

typedef struct figures {
    double times[ROUNDS * ONE]; /* of single pairs */
    unsigned count;
    double one_cpu, many_cpu; /* seconds of all pairs */
    double many_seconds;
    double caller_cpu; /* of this process while the server works for it, one at a time */
} figures_t;

/* ---------------------------------------------------------------------------------------------------------- the server */

typedef struct server {
    pid_t pid;
    clockid_t cpu; /* of the process */
    char path[64];
} server_t;

static int start(server_t *server, const char *once, const char *url)
{
    char listen[80], line[200] = "";
    int out[2];

    (void)snprintf(server->path, sizeof(server->path), "bench_serve-%d.sock", (int)getpid());
    (void)snprintf(listen, sizeof(listen), "unix:%s", server->path);
    if (pipe(out) != 0) {
        return -1;
    }
    server->pid = fork();
    if (server->pid == 0) {
        (void)dup2(out[1], STDOUT_FILENO);
        (void)close(out[0]);
        (void)execl(once, once, "serve", url, "--listen", listen, (char *)NULL);
        _exit(127);
    }
    (void)close(out[1]);
    (void)(read(out[0], line, sizeof(line) - 1) > 0);
    (void)close(out[0]);
    return strstr(line, "listening") != NULL ? clock_getcpuclockid(server->pid, &server->cpu) : -1;
}

static void stop(const server_t *server)
{
    (void)kill(server->pid, SIGTERM);
    (void)waitpid(server->pid, NULL, 0);
}

/* ---------------------------------------------------------------------------------------------------------- a caller */

typedef struct caller {
    int fd;
    int completing; /* the claim is granted */
    char reply[REPLY_MAX];
    size_t len;
} caller_t;

static int dial(caller_t *caller, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    memset(caller, 0, sizeof(*caller));
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    caller->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return connect(caller->fd, (struct sockaddr *)&address, sizeof(address));
}

static int post(caller_t *caller, const char *operation, const char *json, int len)
{
    char request[1024 + 2 * BODY];
    int total = snprintf(request, sizeof(request),
                         "POST /v1/%s HTTP/1.1\r\nHost: once\r\nContent-Type: application/json\r\n"
                         "Content-Length: %d\r\n\r\n%s",
                         operation, len, json);

    caller->len = 0;
    return write(caller->fd, request, (size_t)total) == total ? 0 : -1;
}

static int send_claim(caller_t *caller)
{
    char json[512 + BODY];
    int len = snprintf(json, sizeof(json),
                       "{\"scope\":\"tenant-17\",\"key\":\"key-%08u-8e03978e\",\"method\":\"POST\","
                       "\"target\":\"/v1/payments\",\"recover\":\"retry\",\"body\":\"%s\"}",
                       keys++, body);

    caller->completing = 0;
    return post(caller, "claim", json, len);
}

static int send_complete(caller_t *caller)
{
    char json[512 + BODY];
    const char *claim = strstr(caller->reply, "\"claim\":\"");
    int len;

    if (claim == NULL) {
        return -1;
    }
    len =
        snprintf(json, sizeof(json),
                 "{\"claim\":\"%.*s\",\"response\":{\"status\":201,\"headers\":[[\"content-type\","
                 "\"application/json\"]],\"body\":\"%s\"}}",
                 ONCE_TOKEN_SIZE - 2, claim + 9, body);
    caller->completing = 1;
    return post(caller, "complete", json, len);
}

/* Reads what is there. 1: the reply is whole, 0: not yet, -1: it is not what it should be. */
static int receive(caller_t *caller)
{
    ssize_t got = read(caller->fd, caller->reply + caller->len, REPLY_MAX - 1 - caller->len);
    const char *end, *length;

    if (got <= 0) {
        return -1;
    }
    caller->len += (size_t)got;
    caller->reply[caller->len] = '\0';
    end = strstr(caller->reply, "\r\n\r\n");
    length = strstr(caller->reply, "Content-Length: ");
    if (end == NULL || length == NULL) {
        return 0;
    }
    if (caller->len < (size_t)(end + 4 - caller->reply) + strtoul(length + 16, NULL, 10)) {
        return 0;
    }
    return strncmp(caller->reply, "HTTP/1.1 200", 12) == 0 &&
                   (caller->completing == 0 || strstr(end, "\"done\"") != NULL)
               ? 1
               : -1;
}

static int wait_for(caller_t *caller)
{
    int whole = 0;

    while (whole == 0) {
        whole = receive(caller);
    }
    return whole == 1 ? 0 : -1;
}

/* ------------------------------------------------------------------------------------------------------------- served */

static int served_one(const server_t *server, figures_t *figures)
{
    caller_t caller;
    double cpu = bench_seconds(server->cpu), own = bench_seconds(CLOCK_PROCESS_CPUTIME_ID);
    int failed = dial(&caller, server->path);

    for (unsigned i = 0; !failed && i < ONE; i++) {
        double began = bench_wall();
        failed =
            send_claim(&caller) || wait_for(&caller) || send_complete(&caller) || wait_for(&caller);
        figures->times[figures->count++] = bench_wall() - began;
    }
    (void)close(caller.fd);
    figures->one_cpu += bench_seconds(server->cpu) - cpu;
    figures->caller_cpu += bench_seconds(CLOCK_PROCESS_CPUTIME_ID) - own;
    return failed;
}

static int served_many(const server_t *server, figures_t *figures)
{
    caller_t callers[IN_FLIGHT];
    struct pollfd polled[IN_FLIGHT];
    double cpu = bench_seconds(server->cpu), began = bench_wall();
    unsigned started = 0, finished = 0;
    int failed = 0;

    for (unsigned i = 0; i < IN_FLIGHT; i++, started++) {
        failed |= dial(&callers[i], server->path) || send_claim(&callers[i]);
        polled[i] = (struct pollfd){callers[i].fd, POLLIN, 0};
    }
    while (!failed && finished < MANY && poll(polled, IN_FLIGHT, 10000) > 0) {
        for (unsigned i = 0; !failed && i < IN_FLIGHT; i++) {
            int whole = polled[i].revents != 0 ? receive(&callers[i]) : 0;
            failed = whole < 0;
            if (whole == 1 && !callers[i].completing) {
                failed = send_complete(&callers[i]);
            } else if (whole == 1) {
                finished++;
                failed = started < MANY ? send_claim(&callers[i]) : 0;
                started++;
            }
        }
    }
    for (unsigned i = 0; i < IN_FLIGHT; i++) {
        (void)close(callers[i].fd);
    }
    figures->many_seconds += bench_wall() - began;
    figures->many_cpu += bench_seconds(server->cpu) - cpu;
    return failed || finished < MANY;
}

/* ------------------------------------------------------------------------------------------------------------- direct */

static int direct_one(asking_t *asking, figures_t *figures)
{
    double cpu = bench_seconds(CLOCK_PROCESS_CPUTIME_ID);

    for (unsigned i = 0; i < ONE; i++) {
        double began = bench_wall();
        asking->in_flight = asking->pairs = 1;
        asking_run(asking);
        figures->times[figures->count++] = bench_wall() - began;
    }
    figures->one_cpu += bench_seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    return asking->failed != 0;
}

static int direct_many(asking_t *asking, figures_t *figures)
{
    double cpu = bench_seconds(CLOCK_PROCESS_CPUTIME_ID), began = bench_wall();

    asking->in_flight = IN_FLIGHT;
    asking->pairs = MANY;
    asking_run(asking);
    figures->many_seconds += bench_wall() - began;
    figures->many_cpu += bench_seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    return asking->failed != 0;
}

/* -------------------------------------------------------------------------------------------------------------- a store */

static void report(const char *name, figures_t *direct, figures_t *served)
{
    double mine = median(direct->times, direct->count),
           theirs = median(served->times, served->count);

    printf("%-9s %7.0f %7.0f %+7.0f   %6.1f %6.1f (+%.1f)  %8.0f %8.0f   %6.1f %6.1f\n", name,
           mine * 1e6, theirs * 1e6, (theirs - mine) * 1e6, direct->one_cpu / ROUNDS / ONE * 1e6,
           served->one_cpu / ROUNDS / ONE * 1e6, served->caller_cpu / ROUNDS / ONE * 1e6,
           ROUNDS * MANY / direct->many_seconds, ROUNDS * MANY / served->many_seconds,
           direct->many_cpu / ROUNDS / MANY * 1e6, served->many_cpu / ROUNDS / MANY * 1e6);
}

/* Both use the same database or server, with other scopes and keys; a directory each. */
static int compare(const char *once, const char *name, const char *url, const char *other)
{
    static figures_t direct, served;
    asking_t asking = {.body = body, .response = ONCE_RESPONSE_INIT, .keys = 50000000};
    once_error_t err = {0};
    server_t server;
    int failed = start(&server, once, other);

    memset(&direct, 0, sizeof(direct));
    memset(&served, 0, sizeof(served));
    asking.response.status = 201;
    asking.response.body.data = body;
    asking.response.body.len = BODY;
    failed = failed || once_open(url, NULL, &asking.once, &err) != ONCE_OK;
    for (int round = 0; !failed && round < ROUNDS; round++) {
        failed = direct_one(&asking, &direct) || served_one(&server, &served) ||
                 direct_many(&asking, &direct) || served_many(&server, &served);
    }
    (void)once_close(asking.once, 1000);
    stop(&server);
    if (failed) {
        printf("%-9s failed %s\n", name, err.text);
        return 1;
    }
    report(name, &direct, &served);
    return 0;
}

static int compare_local(const char *once)
{
    int failed;

    remove_tree("bench_serve-1");
    remove_tree("bench_serve-2");
    failed = compare(once, "local", "local:bench_serve-1", "local:bench_serve-2");
    remove_tree("bench_serve-1");
    remove_tree("bench_serve-2");
    return failed;
}

int main(int argc, char **argv)
{
    const char *redis = getenv("ONCE_REDIS_URL"), *postgres = getenv("ONCE_PG_URL");
    int failed;

    if (argc < 2) {
        fprintf(stderr, "usage: bench_serve ONCE\n");
        return 2;
    }
    for (size_t i = 0; i < BODY; i++) {
        body[i] = "abcdefghijklmnopqrstuvwxyz0123456789"[i * 7919 % 36];
    }
    printf("\nonce serve beside libonce: claim and complete, %d bytes each way; the median of %d "
           "pairs one at a time,\n"
           "and %d at a time; CPU of the process that has the store open, and (+) of the caller "
           "beside the server\n"
           "          one at a time, us          CPU of a pair, us      %d at a time, pairs/s   "
           "CPU of a pair, us\n"
           "store      direct  served   added   direct served           direct   served   direct "
           "served\n",
           BODY, ROUNDS * ONE, IN_FLIGHT, IN_FLIGHT);
    failed = compare(argv[1], "memory", "memory:", "memory:") + compare_local(argv[1]);
    failed += redis != NULL ? compare(argv[1], "redis", redis, redis) : 0;
    failed += postgres != NULL ? compare(argv[1], "postgres", postgres, postgres) : 0;
    return failed != 0;
}
