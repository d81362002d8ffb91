#include "client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../bench.h"
#include "wire.h"

#define EVENTS  64
#define SILENCE 20.0 /* seconds without an answer: something is broken */

typedef struct line {
    int fd;
    double sent; /* when */
    size_t len;
    char bytes[WIRE_ROOM];
} line_t;

struct client {
    int epoll;
    unsigned connections;
    size_t request_len, digits; /* where the number of the key is in it */
    char request[1024];
    const order_t *order; /* of the run */
    double began, heard;
    uint64_t answered;
    outcome_t outcome;
    line_t lines[];
};

static void make_request(client_t *client)
{
    static const char body[] = "{\"amount\":\"19.99\",\"currency\":\"EUR\",\"source\":\"tok_visa\","
                               "\"description\":\"order 4711, two of them\"}";
    static const char mark[] = "4000-8000-";
    int len = snprintf(client->request, sizeof(client->request),
                       "POST /payments HTTP/1.1\r\nHost: api.example.com\r\n"
                       "User-Agent: bench/1.0\r\nAccept: application/json\r\n"
                       "Authorization: Bearer 5Kq1b7Yw2Zr8Tn4Xc6Vm9Hd3\r\n"
                       "Idempotency-Key: 6f2d1c9e-77aa-%s000000000000\r\n"
                       "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                       mark, sizeof(body) - 1, body);

    client->request_len = (size_t)len;
    client->digits = (size_t)(strstr(client->request, mark) - client->request) + sizeof(mark) - 1;
}

static void write_number(char *digits, uint64_t number)
{
    for (int i = 11; i >= 0; i--, number >>= 4) {
        digits[i] = "0123456789abcdef"[number & 15];
    }
}

static int may_send(const client_t *client, double now)
{
    const order_t *order = client->order;

    return (order->requests == 0 || client->outcome.sent < order->requests) &&
           (order->seconds <= 0 || now - client->began < order->seconds);
}

static void send_next(client_t *client, line_t *line, double now)
{
    const order_t *order = client->order;
    uint64_t n = client->outcome.sent++;

    write_number(client->request + client->digits,
                 order->first + (order->keys == 0 ? n : n % order->keys));
    line->sent = now;
    line->len = 0;
    if (write(line->fd, client->request, client->request_len) != (ssize_t)client->request_len) {
        wire_die("client: write");
    }
}

static void judge(client_t *client, const line_t *line, size_t len)
{
    static const char good[] = "HTTP/1.1 201 ";
    static const char replayed[] = "\r\nIdempotent-Replayed: true\r\n";

    if (len < sizeof(good) || memcmp(line->bytes, good, sizeof(good) - 1) != 0) {
        if (client->outcome.wrong++ == 0) {
            (void)printf("answered otherwise: %.*s\n", (int)len, line->bytes);
        }
    }
    client->outcome.replayed += memmem(line->bytes, len, replayed, sizeof(replayed) - 1) != NULL;
}

static void receive(client_t *client, line_t *line)
{
    ssize_t n = read(line->fd, line->bytes + line->len, sizeof(line->bytes) - line->len);
    double now;

    if (n <= 0) {
        if (n < 0 && errno == EAGAIN) {
            return;
        }
        (void)fprintf(stderr, "bench_gateway: a connection was closed\n");
        exit(2);
    }
    line->len += (size_t)n;
    if (wire_message(line->bytes, line->len) == 0) {
        return;
    }
    now = bench_wall();
    judge(client, line, line->len);
    client->heard = now;
    client->answered++;
    if (client->order->times != NULL) {
        times_add(client->order->times, now - line->sent);
    }
    if (may_send(client, now)) {
        send_next(client, line, now);
    }
}

static void turn(client_t *client)
{
    struct epoll_event events[EVENTS];
    int n = epoll_wait(client->epoll, events, EVENTS, client->order->tick != NULL ? 1 : 1000);

    for (int i = 0; i < n; i++) {
        receive(client, events[i].data.ptr);
    }
    if (client->order->tick != NULL) {
        client->order->tick(client->order->ctx);
    }
    if (n <= 0 && bench_wall() - client->heard > SILENCE) {
        (void)fprintf(stderr, "bench_gateway: no answer for %.0f seconds\n", SILENCE);
        exit(2);
    }
}

outcome_t client_run(client_t *client, const order_t *order)
{
    client->order = order;
    client->answered = 0;
    client->outcome = (outcome_t){0};
    client->began = client->heard = bench_wall();
    for (unsigned i = 0; i < client->connections && may_send(client, client->began); i++) {
        send_next(client, &client->lines[i], bench_wall());
    }
    while (client->answered < client->outcome.sent) {
        turn(client);
    }
    client->outcome.seconds = bench_wall() - client->began;
    return client->outcome;
}

static int connect_to(unsigned port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) != 0) {
        wire_die("client: connect");
    }
    return fd;
}

client_t *client_open(unsigned port, unsigned connections)
{
    client_t *client = calloc(1, sizeof(*client) + connections * sizeof(line_t));

    if (client == NULL) {
        wire_die("client");
    }
    make_request(client);
    client->connections = connections;
    client->epoll = epoll_create1(EPOLL_CLOEXEC);
    for (unsigned i = 0; i < connections; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &client->lines[i]};
        client->lines[i].fd = connect_to(port);
        if (epoll_ctl(client->epoll, EPOLL_CTL_ADD, client->lines[i].fd, &event) != 0) {
            wire_die("client: epoll");
        }
    }
    return client;
}

void client_close(client_t *client)
{
    for (unsigned i = 0; i < client->connections; i++) {
        (void)close(client->lines[i].fd);
    }
    (void)close(client->epoll);
    free(client);
}
