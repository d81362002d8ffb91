#include "proxy.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define ENDS_MAX 4096

typedef struct end {
    proxy_t *proxy;
    int client, server;
    long cut_down, cut_up;
    pthread_t thread;
} end_t;

struct proxy {
    proxy_line_t *line;
    int fd;
    unsigned port, server;
    pthread_t listener;
    end_t *ends[ENDS_MAX];
    unsigned count;
};

static void die(const char *what)
{
    perror(what);
    abort();
}

/* Little room: what waits in the proxy is not on its way. */
static void set_up(int fd)
{
    int one = 1, room = 65536;

    (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

/* 0, or -1: it ended, or was cut. */
static int pass(const proxy_line_t *line, int from, int to, unsigned piece, long *cut)
{
    char data[16384];
    size_t room = piece > 0 && piece < sizeof(data) ? piece : sizeof(data);
    unsigned pause = atomic_load(&line->pause_us);
    ssize_t got;

    if (*cut == 0) {
        return -1;
    }
    if (*cut > 0 && room > (size_t)*cut) {
        room = (size_t)*cut;
    }
    got = recv(from, data, room, 0);
    if (got <= 0 || send(to, data, (size_t)got, MSG_NOSIGNAL) != got) {
        return -1;
    }
    if (*cut > 0) {
        *cut -= got;
    }
    if (pause > 0) {
        (void)usleep(pause);
    }
    return *cut == 0 ? -1 : 0;
}

static void *serve(void *data)
{
    end_t *end = data;
    proxy_line_t *line = end->proxy->line;
    struct pollfd fds[2] = {{.fd = end->client, .events = POLLIN},
                            {.fd = end->server, .events = POLLIN}};
    int code = 0;

    while (code == 0) {
        fds[1].events = atomic_load(&line->is_deaf) ? 0 : POLLIN;
        if (poll(fds, 2, 20) < 0) {
            break;
        }
        if (fds[1].revents != 0) {
            code = pass(line, end->server, end->client, atomic_load(&line->piece), &end->cut_down);
        } else if (fds[0].revents != 0) {
            code = pass(line, end->client, end->server, atomic_load(&line->up_piece), &end->cut_up);
        }
    }
    if (end->cut_down == 0 || end->cut_up == 0) {
        (void)atomic_fetch_add(&line->cuts, 1);
    }
    (void)shutdown(end->client, SHUT_RDWR);
    (void)shutdown(end->server, SHUT_RDWR);
    return NULL;
}

static int dial(unsigned port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((unsigned short)port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    set_up(fd);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
        die("the server behind the proxy");
    }
    return fd;
}

static void *listen_for(void *data)
{
    proxy_t *proxy = data;
    int fd;

    while ((fd = accept(proxy->fd, NULL, NULL)) >= 0) {
        end_t *end = calloc(1, sizeof(*end));
        if (end == NULL || proxy->count == ENDS_MAX) {
            die("too many connections");
        }
        *end = (end_t){.proxy = proxy, .client = fd, .server = dial(proxy->server)};
        end->cut_down = atomic_exchange(&proxy->line->cut_down, -1);
        end->cut_up = atomic_exchange(&proxy->line->cut_up, -1);
        (void)atomic_fetch_add(&proxy->line->accepted, 1);
        if (pthread_create(&end->thread, NULL, serve, end) != 0) {
            die("thread");
        }
        proxy->ends[proxy->count++] = end;
    }
    return NULL;
}

proxy_t *proxy_start(unsigned port, proxy_line_t *line)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t len = sizeof(address);
    proxy_t *proxy = calloc(1, sizeof(*proxy));

    if (proxy == NULL) {
        die("memory");
    }
    proxy->line = line;
    proxy->server = port;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    proxy->fd = socket(AF_INET, SOCK_STREAM, 0);
    set_up(proxy->fd); /* and so its connections */
    if (proxy->fd < 0 || bind(proxy->fd, (struct sockaddr *)&address, len) != 0 ||
        listen(proxy->fd, 64) != 0 ||
        getsockname(proxy->fd, (struct sockaddr *)&address, &len) != 0 ||
        pthread_create(&proxy->listener, NULL, listen_for, proxy) != 0) {
        die("proxy");
    }
    proxy->port = ntohs(address.sin_port);
    return proxy;
}

unsigned proxy_port(const proxy_t *proxy)
{
    return proxy->port;
}

void proxy_stop(proxy_t *proxy)
{
    (void)shutdown(proxy->fd, SHUT_RDWR);
    (void)pthread_join(proxy->listener, NULL);
    (void)close(proxy->fd);
    for (unsigned i = 0; i < proxy->count; i++) {
        end_t *end = proxy->ends[i];
        (void)shutdown(end->client, SHUT_RDWR);
        (void)shutdown(end->server, SHUT_RDWR);
        (void)pthread_join(end->thread, NULL);
        (void)close(end->client);
        (void)close(end->server);
        free(end);
    }
    free(proxy);
}
