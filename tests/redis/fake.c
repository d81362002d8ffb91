#include "fake.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECTIONS_MAX 256

struct fake {
    fake_answer_t answer;
    void *data;
    int fd;
    unsigned port;
    pthread_t listener;
    atomic_uint count;
    struct connection {
        fake_t *fake;
        int fd;
        pthread_t thread;
    } connections[CONNECTIONS_MAX];
};

const char fake_info[] =
    "redis_version:7.0.15\r\nloading:0\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n"
    "role:master\r\ncluster_enabled:0\r\n";

static void die(const char *what)
{
    perror(what);
    abort();
}

int fake_say_bytes(int fd, const void *data, size_t len)
{
    const char *from = data;

    while (len > 0) {
        ssize_t sent = send(fd, from, len, MSG_NOSIGNAL);
        if (sent <= 0) {
            return -1;
        }
        from += sent;
        len -= (size_t)sent;
    }
    return 0;
}

int fake_say(int fd, const char *text)
{
    return fake_say_bytes(fd, text, strlen(text));
}

int fake_say_string(int fd, const void *data, size_t len)
{
    char head[32];

    (void)snprintf(head, sizeof(head), "$%zu\r\n", len);
    return fake_say(fd, head) != 0 || fake_say_bytes(fd, data, len) != 0 ? -1
                                                                         : fake_say(fd, "\r\n");
}

static int is_command(const fake_command_t *command, const char *name)
{
    return strcasecmp(command->argv[0], name) == 0;
}

int fake_polite(int fd, const fake_command_t *command, const char *info)
{
    static _Thread_local char mark[16]; /* of the secrets that came over this connection */
    const char *key = command->argc > 3 ? command->argv[3] : "";

    if (is_command(command, "INFO")) {
        return fake_say_string(fd, info, strlen(info));
    }
    if (is_command(command, "CLIENT") || is_command(command, "AUTH") ||
        is_command(command, "SELECT")) {
        return fake_say(fd, "+OK\r\n");
    }
    if (is_command(command, "PING")) {
        return fake_say(fd, "+PONG\r\n");
    }
    /* The secrets: those that the caller brings. And what tells them from others. */
    if (is_command(command, "EVALSHA") && command->argc == 8 && strlen(key) >= 7 &&
        strcmp(key + strlen(key) - 7, "secrets") == 0 && command->lengths[7] == sizeof(mark)) {
        memcpy(mark, command->argv[7], sizeof(mark));
        return fake_say_string(fd, command->argv[6], command->lengths[6]);
    }
    if (is_command(command, "GET") && strstr(command->argv[1], "mark{") != NULL) {
        return fake_say_string(fd, mark, sizeof(mark));
    }
    return 1;
}

/* ------------------------------------------------------------------------------------------------------------ commands */

static long read_number(FILE *in, char mark)
{
    char line[64];

    if (fgets(line, sizeof(line), in) == NULL || line[0] != mark) {
        return -1;
    }
    return strtol(line + 1, NULL, 10);
}

static void free_command(fake_command_t *command)
{
    for (int i = 0; i < command->argc; i++) {
        free(command->argv[i]);
    }
    command->argc = 0;
}

static int read_command(FILE *in, fake_command_t *command)
{
    long count = read_number(in, '*');

    command->argc = 0;
    if (count <= 0 || count > FAKE_ARGS_MAX) {
        return -1;
    }
    while (command->argc < count) {
        long len = read_number(in, '$');
        char *text = len >= 0 ? malloc((size_t)len + 3) : NULL;
        if (text == NULL || fread(text, 1, (size_t)len + 2, in) != (size_t)len + 2) {
            free(text);
            free_command(command);
            return -1;
        }
        text[len] = '\0';
        command->lengths[command->argc] = (size_t)len;
        command->argv[command->argc++] = text;
    }
    command->number++;
    return 0;
}

static void *serve(void *data)
{
    struct connection *connection = data;
    FILE *in = fdopen(dup(connection->fd), "r");
    fake_command_t command = {0};
    int more = in != NULL;

    while (more && read_command(in, &command) == 0) {
        more = connection->fake->answer(connection->fd, &command, connection->fake->data) == 0;
        free_command(&command);
    }
    (void)shutdown(connection->fd, SHUT_RDWR);
    if (in != NULL) {
        (void)fclose(in);
    }
    return NULL;
}

static void *listen_for(void *data)
{
    fake_t *fake = data;
    int fd, one = 1;

    while ((fd = accept(fake->fd, NULL, NULL)) >= 0) {
        unsigned i = atomic_load(&fake->count);
        struct connection *connection = &fake->connections[i];
        if (i == CONNECTIONS_MAX) {
            (void)close(fd);
            continue;
        }
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        *connection = (struct connection){.fake = fake, .fd = fd};
        if (pthread_create(&connection->thread, NULL, serve, connection) != 0) {
            die("thread");
        }
        atomic_store(&fake->count, i + 1);
    }
    return NULL;
}

fake_t *fake_start(fake_answer_t answer, void *data)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t len = sizeof(address);
    fake_t *fake = calloc(1, sizeof(*fake));

    if (fake == NULL) {
        die("memory");
    }
    fake->answer = answer;
    fake->data = data;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    fake->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fake->fd < 0 || bind(fake->fd, (struct sockaddr *)&address, len) != 0 ||
        listen(fake->fd, 64) != 0 ||
        getsockname(fake->fd, (struct sockaddr *)&address, &len) != 0 ||
        pthread_create(&fake->listener, NULL, listen_for, fake) != 0) {
        die("fake server");
    }
    fake->port = ntohs(address.sin_port);
    return fake;
}

unsigned fake_port(const fake_t *fake)
{
    return fake->port;
}

unsigned fake_connections(const fake_t *fake)
{
    return atomic_load(&fake->count);
}

void fake_stop(fake_t *fake)
{
    (void)shutdown(fake->fd, SHUT_RDWR); /* accept ends with it */
    (void)pthread_join(fake->listener, NULL);
    (void)close(fake->fd);
    for (unsigned i = 0; i < atomic_load(&fake->count); i++) {
        (void)shutdown(fake->connections[i].fd, SHUT_RDWR);
        (void)pthread_join(fake->connections[i].thread, NULL);
        (void)close(fake->connections[i].fd);
    }
    free(fake);
}
