#include "gateway.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATIENCE_MS 20000

void process_start(process_t *process, const char *const *arguments)
{
    char *copies[64] = {0};
    int ends[2];

    memset(process, 0, sizeof(*process));
    for (size_t i = 0; arguments[i] != NULL; i++) {
        assert_true(i + 1 < sizeof(copies) / sizeof(copies[0]));
        copies[i] = strdup(arguments[i]);
    }
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    fflush(stdout);
    process->pid = fork();
    assert_true(process->pid >= 0);
    if (process->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves nothing running */
        dup2(ends[1], STDOUT_FILENO);
        dup2(ends[1], STDERR_FILENO);
        execv(copies[0], copies);
        _exit(127);
    }
    close(ends[1]);
    process->output = ends[0];
    for (size_t i = 0; copies[i] != NULL; i++) {
        free(copies[i]);
    }
}

/* 0: the program has closed its output. */
static int read_more(process_t *process)
{
    struct pollfd poll_for = {process->output, POLLIN, 0};
    size_t room = sizeof(process->text) - 1 - process->len;
    ssize_t got;

    if (room == 0) {
        process->len = 0; /* only the newest matters */
        room = sizeof(process->text) - 1;
    }
    if (poll(&poll_for, 1, PATIENCE_MS) != 1) {
        fail_msg("nothing more comes after:\n%s", process->text);
    }
    got = read(process->output, process->text + process->len, room);
    assert_true(got >= 0);
    process->len += (size_t)got;
    process->text[process->len] = '\0';
    return got > 0;
}

void process_expect(process_t *process, const char *text)
{
    while (strstr(process->text, text) == NULL) {
        if (!read_more(process)) {
            fail_msg("\"%s\" did not come, only:\n%s", text, process->text);
        }
    }
}

int process_wait(process_t *process)
{
    int status;

    while (read_more(process)) {
    }
    close(process->output);
    assert_int_equal(waitpid(process->pid, &status, 0), process->pid);
    process->pid = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static struct sockaddr_in local_address(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

int free_port(void)
{
    struct sockaddr_in address = local_address(0);
    socklen_t len = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(bind(fd, (struct sockaddr *)&address, len), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &len), 0);
    close(fd);
    return ntohs(address.sin_port);
}

void gateway_make(gateway_t *gateway)
{
    static const char *const backend[] = {PAYMENTS, "--listen", "127.0.0.1:0", NULL};
    const char *address;

    memset(gateway, 0, sizeof(*gateway));
    place_make(&gateway->place, "");
    process_start(&gateway->backend, backend);
    process_expect(&gateway->backend, "\n");
    address = strstr(gateway->backend.text, "http://");
    assert_non_null(address);
    snprintf(gateway->upstream, sizeof(gateway->upstream), "%.*s", (int)strcspn(address, "\n"),
             address);
    gateway->port = free_port();
    snprintf(gateway->listen, sizeof(gateway->listen), "127.0.0.1:%d", gateway->port);
    snprintf(gateway->scratch, sizeof(gateway->scratch), "%s/tmp", gateway->place.top);
    assert_int_equal(mkdir(gateway->scratch, 0711), 0);
    assert_int_equal(chmod(gateway->place.top, 0711), 0); /* root's workers are another user's */
}

void gateway_start(gateway_t *gateway, const char *first, ...)
{
    const char *arguments[64] = {PROGRAM,    "gate",          "--upstream", gateway->upstream,
                                 "--listen", gateway->listen, "--store",    gateway->place.url,
                                 "--module", MODULE,          "--nginx",    NGINX};
    size_t count = 12;
    va_list rest;

    if (geteuid() == 0) {
        arguments[count++] = "--user";
        arguments[count++] = WORKERS;
    }
    va_start(rest, first);
    for (const char *at = first; at != NULL; at = va_arg(rest, const char *)) {
        assert_true(count < 63);
        arguments[count++] = at;
    }
    va_end(rest);
    if (!gateway->no_tmpdir) {
        setenv("TMPDIR", gateway->scratch, 1);
    }
    process_start(&gateway->gate, arguments);
    unsetenv("TMPDIR");
}

void gateway_stop(gateway_t *gateway, int signal_number, int code)
{
    int got;

    assert_int_equal(kill(gateway->gate.pid, signal_number), 0);
    got = process_wait(&gateway->gate);
    if (got != code) {
        print_error("%s\n", gateway->gate.text);
    }
    assert_int_equal(got, code);
    assert_int_equal(count_names(gateway->scratch), 0);
    if (signal_number !=
        SIGINT) { /* nginx is alarmed when it may not wait for requests after all */
        assert_lacks(gateway->gate.text, "[alert]");
    }
    assert_lacks(gateway->gate.text, "[emerg]");
    assert_lacks(gateway->gate.text, "Sanitizer");
    assert_lacks(gateway->gate.text, "runtime error");
}

void gateway_remove(gateway_t *gateway)
{
    if (gateway->backend.pid > 0) {
        kill(gateway->backend.pid, SIGTERM);
        assert_int_equal(process_wait(&gateway->backend), 0);
    }
    place_remove(&gateway->place);
}

int with_gateway(void **state)
{
    gateway_t *gateway = calloc(1, sizeof(*gateway));

    assert_non_null(gateway);
    gateway_make(gateway);
    *state = gateway;
    return 0;
}

int without_gateway(void **state)
{
    gateway_remove(*state);
    free(*state);
    return 0;
}

int raw_send(int port, const char *text)
{
    struct sockaddr_in address = local_address(port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
    return fd;
}

int request_send(int port, const char *target, const char *key, const char *body)
{
    char text[4096];
    int len =
        snprintf(text, sizeof(text),
                 "%s %s HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n"
                 "Authorization: Bearer alice\r\n%s%s%s"
                 "Content-Length: %zu\r\n\r\n%s",
                 body != NULL ? "POST" : "GET", target, key != NULL ? "Idempotency-Key: " : "",
                 key != NULL ? key : "", key != NULL ? "\r\n" : "", body != NULL ? strlen(body) : 0,
                 body != NULL ? body : "");

    assert_true(len < (int)sizeof(text));
    return raw_send(port, text);
}

reply_t request_receive(int fd)
{
    struct timeval patience = {PATIENCE_MS / 1000, 0};
    reply_t reply = {0};
    size_t len = 0;
    ssize_t got;

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    while ((got = recv(fd, reply.text + len, sizeof(reply.text) - 1 - len, 0)) > 0) {
        len += (size_t)got;
    }
    close(fd);
    reply.text[len] = '\0';
    if (sscanf(reply.text, "HTTP/1.1 %d", &reply.status) != 1) {
        reply.status = 0;
    }
    return reply;
}

reply_t request(int port, const char *target, const char *key, const char *body)
{
    return request_receive(request_send(port, target, key, body));
}

int is_answered(int port)
{
    struct sockaddr_in address = local_address(port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int answered = connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0;

    close(fd);
    return answered;
}

int executions(const gateway_t *gateway)
{
    int port = atoi(strrchr(gateway->upstream, ':') + 1);
    reply_t reply = request(port, "/executions", NULL, NULL);
    const char *number = strstr(reply.text, "\"executions\":");

    assert_non_null(number);
    return atoi(number + strlen("\"executions\":"));
}
