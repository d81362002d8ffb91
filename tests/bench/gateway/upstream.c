#include "upstream.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "wire.h"

#define EVENTS 64

typedef struct peer {
    int fd;
    unsigned waits;    /* its request is whole and not answered */
    struct peer *next; /* of those that wait */
    size_t len;
    char bytes[WIRE_ROOM];
} peer_t;

typedef struct server {
    upstream_board_t *board;
    int listener, epoll;
    peer_t *waiting;
    unsigned body; /* that `reply` was made for */
    size_t reply_len;
    char reply[WIRE_ROOM];
} server_t;

static void make_reply(server_t *server)
{
    unsigned body = atomic_load(&server->board->body);
    int head;

    if (body == server->body) {
        return;
    }
    head = snprintf(server->reply, sizeof(server->reply),
                    "HTTP/1.1 201 Created\r\nContent-Type: application/json\r\n"
                    "Location: /payments/pay_5f0c2b7e\r\nX-Request-Id: 7d2f4a90c1\r\n"
                    "Content-Length: %u\r\n\r\n",
                    body);
    server->reply_len = (size_t)head + body;
    if (server->reply_len > sizeof(server->reply)) {
        wire_die("upstream: body");
    }
    for (unsigned i = 0; i < body; i++) {
        server->reply[(size_t)head + i] = "{\"amount\":1999,\"id\":\"pay\"}"[i % 26];
    }
    server->body = body;
}

static void drop(peer_t *peer)
{
    (void)close(peer->fd);
    free(peer);
}

static void answer(server_t *server, const peer_t *peer)
{
    make_reply(server);
    /* A reply is smaller than a socket's buffer. */
    if (write(peer->fd, server->reply, server->reply_len) != (ssize_t)server->reply_len &&
        errno != EPIPE && errno != ECONNRESET) {
        wire_die("upstream: write");
    }
}

static void answer_waiting(server_t *server)
{
    while (server->waiting != NULL) {
        peer_t *peer = server->waiting;
        server->waiting = peer->next;
        peer->waits = 0;
        answer(server, peer);
        atomic_fetch_sub(&server->board->waiting, 1);
    }
}

static void receive(server_t *server, peer_t *peer)
{
    ssize_t n = read(peer->fd, peer->bytes + peer->len, sizeof(peer->bytes) - peer->len);

    if (n <= 0) {
        if (!peer->waits && !(n < 0 && errno == EAGAIN)) {
            drop(peer);
        }
        return;
    }
    peer->len += (size_t)n;
    if (wire_message(peer->bytes, peer->len) == 0) {
        return;
    }
    peer->len = 0;
    atomic_fetch_add(&server->board->executed, 1);
    if (!atomic_load(&server->board->hold)) {
        answer(server, peer);
        return;
    }
    peer->waits = 1;
    peer->next = server->waiting;
    server->waiting = peer;
    atomic_fetch_add(&server->board->waiting, 1);
}

static void take(server_t *server)
{
    int fd = accept4(server->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), one = 1;
    struct epoll_event event = {.events = EPOLLIN};
    peer_t *peer;

    if (fd < 0) {
        return;
    }
    peer = calloc(1, sizeof(*peer));
    if (peer == NULL) {
        wire_die("upstream");
    }
    peer->fd = fd;
    event.data.ptr = peer;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (epoll_ctl(server->epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
        wire_die("upstream: epoll");
    }
}

static void serve(server_t *server)
{
    struct epoll_event events[EVENTS], event = {.events = EPOLLIN};

    server->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (server->epoll < 0 ||
        epoll_ctl(server->epoll, EPOLL_CTL_ADD, server->listener, &event) != 0) {
        wire_die("upstream: epoll");
    }
    for (;;) {
        int n = epoll_wait(server->epoll, events, EVENTS, server->waiting != NULL ? 2 : -1);
        for (int i = 0; i < n; i++) {
            if (events[i].data.ptr == NULL) {
                take(server);
            } else {
                receive(server, events[i].data.ptr);
            }
        }
        if (server->waiting != NULL && !atomic_load(&server->board->hold)) {
            answer_waiting(server);
        }
    }
}

static int listen_somewhere(unsigned *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t len = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, len) != 0 || listen(fd, 4096) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &len) != 0) {
        wire_die("upstream: listen");
    }
    *port = ntohs(address.sin_port);
    return fd;
}

void upstream_start(upstream_t *upstream)
{
    server_t *server = calloc(1, sizeof(*server));

    upstream->board = mmap(NULL, sizeof(*upstream->board), PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (upstream->board == MAP_FAILED || server == NULL) {
        wire_die("upstream");
    }
    atomic_store(&upstream->board->body, 400);
    server->board = upstream->board;
    server->listener = listen_somewhere(&upstream->port);
    upstream->pid = fork();
    if (upstream->pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* never outlives the benchmark */
        (void)signal(SIGPIPE, SIG_IGN);
        serve(server);
    }
    (void)close(server->listener);
    free(server);
    if (upstream->pid < 0) {
        wire_die("fork");
    }
}

void upstream_stop(upstream_t *upstream)
{
    (void)kill(upstream->pid, SIGKILL);
    (void)waitpid(upstream->pid, NULL, 0);
    (void)munmap(upstream->board, sizeof(*upstream->board));
}
