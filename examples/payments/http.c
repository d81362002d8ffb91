#include "http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CONNECTIONS_MAX 256
#define REQUEST_MAX     65536

/* One client. A response that waits for its time keeps further requests of the connection waiting. */
typedef struct connection {
    int fd; /* -1: free */
    char in[REQUEST_MAX + 1];
    size_t in_len;
    char out[1024];
    size_t out_len, out_sent;
    uint64_t due_ms; /* when `out` may be sent; 0: nothing waits */
    int closing;     /* after `out` */
} connection_t;

static connection_t connections[CONNECTIONS_MAX];

static uint64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void hang_up(connection_t *c)
{
    close(c->fd);
    c->fd = -1;
}

static const char *reason(int status)
{
    return status == 201  ? "Created"
           : status < 300 ? "OK"
           : status < 400 ? "See Other"
           : status < 500 ? "Refused"
                          : "Failed";
}

static void answer(connection_t *c, const http_response_t *response)
{
    int len = snprintf(c->out, sizeof(c->out),
                       "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\n"
                       "Content-Length: %zu\r\n%s\r\n%s",
                       response->status, reason(response->status), strlen(response->body),
                       c->closing ? "Connection: close\r\n" : "", response->body);

    c->out_len = response->hang_up ? 0 : (size_t)len;
    c->out_sent = 0;
    c->closing |= response->hang_up;
    c->due_ms = now_ms() + response->delay_ms;
}

static void refuse(connection_t *c, int status, const char *why)
{
    http_response_t response = {.status = status};

    snprintf(response.body, sizeof(response.body), "{\"error\":\"%s\"}\n", why);
    c->closing = 1;
    c->in_len = 0;
    answer(c, &response);
}

/* The value of a header in a head whose lines have been terminated one by one; "" when it is not there. */
static const char *header(const char *head, const char *end, const char *name)
{
    size_t len = strlen(name);

    for (const char *line = head; line < end; line += strlen(line) + 2) {
        if (strncasecmp(line, name, len) == 0 && line[len] == ':') {
            return line + len + 1 + strspn(line + len + 1, " \t");
        }
    }
    return "";
}

/* Splits a whole request in place and hands it to the handler. */
static void handle(connection_t *c, char *head_end, size_t body_len, http_handler_t *handler)
{
    http_response_t response = {.status = 404};
    http_request_t request = {.method = c->in, .query = "", .body = head_end + 4};
    char *body_end = head_end + 4 + body_len;
    size_t rest = c->in_len - (size_t)(body_end - c->in);
    char saved = *body_end;
    char *path = strchr(c->in, ' ');
    char *query, *version;

    *body_end = '\0';
    version = path != NULL ? strchr(path + 1, ' ') : NULL;
    if (version == NULL) {
        refuse(c, 400, "not an HTTP request");
        return;
    }
    *path = *version = '\0';
    request.path = path + 1;
    query = strchr(path + 1, '?');
    if (query != NULL) {
        *query = '\0';
        request.query = query + 1;
    }
    request.key = header(version + 1, head_end, "Idempotency-Key");
    c->closing |= strcasecmp(header(version + 1, head_end, "Connection"), "close") == 0;
    handler(&request, &response);
    answer(c, &response);
    *body_end = saved;
    memmove(c->in, body_end, rest);
    c->in_len = rest;
}

/* Ends every line of the head with a NUL in place of its CR, so that headers are texts. */
static void split_lines(char *head, char *end)
{
    for (char *at = strstr(head, "\r\n"); at != NULL && at <= end; at = strstr(at + 2, "\r\n")) {
        *at = '\0';
    }
}

/* Is there a whole request? Handles it. */
static void look(connection_t *c, http_handler_t *handler)
{
    char *head_end, *line_end;
    const char *length, *encoding;
    size_t body_len, have;

    c->in[c->in_len] = '\0';
    head_end = strstr(c->in, "\r\n\r\n");
    if (head_end == NULL) {
        if (c->in_len == REQUEST_MAX) {
            refuse(c, 431, "the head is too large");
        }
        return;
    }
    /* The head is split only when the body is there: until then it is looked at again and again. */
    *head_end = '\0';
    length = strcasestr(c->in, "\r\nContent-Length:");
    encoding = strcasestr(c->in, "\r\nTransfer-Encoding:");
    *head_end = '\r';
    body_len = length != NULL ? strtoul(length + strlen("\r\nContent-Length:"), NULL, 10) : 0;
    have = c->in_len - (size_t)(head_end + 4 - c->in);
    if (encoding != NULL) {
        refuse(c, 411, "a Content-Length is needed");
    } else if (body_len > REQUEST_MAX - (size_t)(head_end + 4 - c->in)) {
        refuse(c, 413, "the request is too large");
    } else if (have >= body_len) {
        line_end = strstr(c->in, "\r\n");
        split_lines(line_end, head_end);
        handle(c, head_end, body_len, handler);
    }
}

static void receive(connection_t *c, http_handler_t *handler)
{
    ssize_t len = recv(c->fd, c->in + c->in_len, REQUEST_MAX - c->in_len, 0);

    if (len <= 0) {
        hang_up(c);
        return;
    }
    c->in_len += (size_t)len;
    look(c, handler);
}

static void send_answer(connection_t *c, http_handler_t *handler)
{
    ssize_t len = send(c->fd, c->out + c->out_sent, c->out_len - c->out_sent, MSG_NOSIGNAL);

    if (len < 0 && errno != EAGAIN) {
        hang_up(c);
        return;
    }
    c->out_sent += len > 0 ? (size_t)len : 0;
    if (c->out_sent < c->out_len) {
        return;
    }
    c->due_ms = 0;
    if (c->closing) {
        hang_up(c);
    } else if (c->in_len > 0) {
        look(c, handler); /* the next request came along with this one */
    }
}

static void welcome(int listener)
{
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

    for (size_t i = 0; fd >= 0 && i < CONNECTIONS_MAX; i++) {
        connection_t *c = &connections[i];
        if (c->fd < 0) {
            c->fd = fd;
            c->in_len = c->out_len = c->out_sent = 0;
            c->due_ms = 0;
            c->closing = 0;
            return;
        }
    }
    if (fd >= 0) {
        close(fd);
    }
}

/* What to wait for at a connection: its request, the time of its answer, or room to send it. */
static short wanted(const connection_t *c, uint64_t now, int *timeout)
{
    if (c->due_ms == 0) {
        return POLLIN;
    }
    if (c->due_ms <= now) {
        return POLLOUT;
    }
    if (*timeout < 0 || c->due_ms - now < (uint64_t)*timeout) {
        *timeout = (int)(c->due_ms - now);
    }
    return 0;
}

static void serve_turn(struct pollfd *polls, int listener, http_handler_t *handler)
{
    uint64_t now = now_ms();
    int timeout = -1;

    for (size_t i = 0; i < CONNECTIONS_MAX; i++) {
        polls[2 + i].fd = connections[i].fd;
        polls[2 + i].events = connections[i].fd >= 0 ? wanted(&connections[i], now, &timeout) : 0;
    }
    if (poll(polls, 2 + CONNECTIONS_MAX, timeout) <= 0) {
        return;
    }
    for (size_t i = 0; i < CONNECTIONS_MAX; i++) {
        short events = polls[2 + i].fd >= 0 ? polls[2 + i].revents : 0;
        if (events != 0 && connections[i].due_ms == 0) {
            receive(&connections[i], handler);
        } else if (events & POLLOUT) {
            send_answer(&connections[i], handler);
        } else if (events != 0) {
            hang_up(&connections[i]); /* gone while its answer waited; what was done is done */
        }
    }
    if (polls[1].revents != 0) {
        welcome(listener);
    }
}

static int listen_on(const char *address, struct sockaddr_in *bound)
{
    char host[64];
    const char *colon = strrchr(address, ':');
    socklen_t len = sizeof(*bound);
    int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    memset(bound, 0, sizeof(*bound));
    bound->sin_family = AF_INET;
    if (colon == NULL || (size_t)(colon - address) >= sizeof(host)) {
        fprintf(stderr, "payments: \"%s\" is not IP:PORT\n", address);
        return -1;
    }
    memcpy(host, address, (size_t)(colon - address));
    host[colon - address] = '\0';
    bound->sin_port = htons((uint16_t)strtoul(colon + 1, NULL, 10));
    if (inet_pton(AF_INET, host, &bound->sin_addr) != 1) {
        fprintf(stderr, "payments: \"%s\" is not IP:PORT\n", address);
        return -1;
    }
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (fd < 0 || bind(fd, (struct sockaddr *)bound, len) != 0 || listen(fd, 128) != 0 ||
        getsockname(fd, (struct sockaddr *)bound, &len) != 0) {
        fprintf(stderr, "payments: cannot listen on %s: %s\n", address, strerror(errno));
        return -1;
    }
    return fd;
}

int http_serve(const char *address, http_handler_t *handler, void (*ready)(const char *address))
{
    static struct pollfd polls[2 + CONNECTIONS_MAX];
    struct sockaddr_in bound;
    char host[INET_ADDRSTRLEN];
    char text[INET_ADDRSTRLEN + 8];
    sigset_t ends;
    int listener = listen_on(address, &bound);

    if (listener < 0) {
        return -1;
    }
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    sigprocmask(SIG_BLOCK, &ends, NULL);
    polls[0] = (struct pollfd){signalfd(-1, &ends, SFD_CLOEXEC), POLLIN, 0};
    polls[1] = (struct pollfd){listener, POLLIN, 0};
    for (size_t i = 0; i < CONNECTIONS_MAX; i++) {
        connections[i].fd = -1;
    }
    inet_ntop(AF_INET, &bound.sin_addr, host, sizeof(host));
    snprintf(text, sizeof(text), "%s:%d", host, ntohs(bound.sin_port));
    ready(text);
    while (polls[0].revents == 0) {
        serve_turn(polls, listener, handler);
    }
    return 0;
}
