#include "http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <microhttpd.h>

#include "routes.h"
#include "stops.h"

#define BODY_MAX        65536
#define TARGET_MAX      2048
#define TRACEPARENT_MAX 64
#define KEYS_MAX        8 /* header lines with a key that are looked at: two are an error already */
#define SILENCE_S       60 /* a connection on which nothing happens is closed */

struct http {
    bank_t *bank;
    struct MHD_Daemon *daemon;
    char address[INET_ADDRSTRLEN + 8];
    pthread_mutex_t lock;
    pthread_cond_t ended;
    unsigned active; /* requests */
};

/* One request on its way through. */
typedef struct exchange {
    char *target;
    int begun;
    int too_large;
    char *body;
    size_t body_len;
    once_key_t key;
} exchange_t;

/* Called before anything else of a request: the target as it was sent is not available later. */
static void *new_exchange(void *data, const char *uri, struct MHD_Connection *connection)
{
    http_t *http = data;
    exchange_t *exchange = calloc(1, sizeof(*exchange));

    if (exchange == NULL || (exchange->target = strdup(uri)) == NULL) {
        fputs("bank: out of memory\n", stderr);
        abort();
    }
    pthread_mutex_lock(&http->lock);
    http->active++;
    pthread_mutex_unlock(&http->lock);
    return exchange;
}

static void end_exchange(void *data, struct MHD_Connection *connection, void **state,
                         enum MHD_RequestTerminationCode code)
{
    http_t *http = data;
    exchange_t *exchange = *state;

    if (exchange == NULL) {
        return;
    }
    stop_at("after-response", exchange->key.text, 0);
    free(exchange->target);
    free(exchange->body);
    free(exchange);
    pthread_mutex_lock(&http->lock);
    http->active--;
    pthread_cond_signal(&http->ended);
    pthread_mutex_unlock(&http->lock);
}

static void receive(exchange_t *exchange, const char *bytes, size_t len)
{
    char *more;

    if (exchange->too_large || exchange->body_len + len > BODY_MAX) {
        exchange->too_large = 1;
        return;
    }
    more = realloc(exchange->body, exchange->body_len + len);
    if (more == NULL) {
        exchange->too_large = 1;
        return;
    }
    memcpy(more + exchange->body_len, bytes, len);
    exchange->body = more;
    exchange->body_len += len;
}

/* Header lines of which there must not be two. */
typedef struct lines {
    once_slice_t keys[KEYS_MAX];
    size_t key_count, customers, claims;
} lines_t;

static enum MHD_Result collect(void *data, enum MHD_ValueKind kind, const char *name,
                               const char *value)
{
    lines_t *lines = data;

    lines->customers += strcasecmp(name, "Bank-Customer") == 0;
    lines->claims += strcasecmp(name, "Once-Claim") == 0;
    if (strcasecmp(name, "Idempotency-Key") == 0 && lines->key_count < KEYS_MAX) {
        lines->keys[lines->key_count].data = value != NULL ? value : "";
        lines->keys[lines->key_count].len = value != NULL ? strlen(value) : 0;
        lines->key_count++;
    }
    return MHD_YES;
}

static const char *header(struct MHD_Connection *connection, const char *name)
{
    const char *value = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);

    return value != NULL ? value : "";
}

/* `direct`: what is for a gateway is not for clients. */
static enum MHD_Result send_answer(struct MHD_Connection *connection, answer_t *answer, int direct)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(answer->body_len, answer->body, MHD_RESPMEM_MUST_COPY);
    enum MHD_Result code = MHD_NO;

    if (response != NULL) {
        for (size_t i = 0; i < answer->header_count; i++) {
            const char *name = answer->headers[i].name;
            if (!direct || strncasecmp(name, "Once-", 5) != 0) {
                MHD_add_response_header(response, name, answer->headers[i].value);
            }
        }
        code = MHD_queue_response(connection, (unsigned)answer->status, response);
        MHD_destroy_response(response);
    }
    return code;
}

/* Visible ASCII, and not too much of it: what is left goes into the database as text. */
static int is_plain(const char *text, size_t max)
{
    size_t len = 0;

    while (text[len] > ' ' && text[len] <= '~' && len <= max) {
        len++;
    }
    return text[len] == '\0' && len <= max;
}

static void answer_request(http_t *http, struct MHD_Connection *connection, exchange_t *exchange,
                           const char *method, const char *path, answer_t *answer)
{
    uint8_t claim_id[ONCE_CLAIM_ID_SIZE];
    once_error_t error = {0};
    lines_t lines = {.key_count = 0};
    request_t request = {
        .method = method,
        .path = path,
        .target = exchange->target,
        .customer = header(connection, "Bank-Customer"),
        .claim = http->bank->direct ? "" : header(connection, "Once-Claim"),
        .claim_id = claim_id,
        .traceparent = header(connection, "traceparent"),
        .if_match = header(connection, "If-Match"),
        .if_none_match = header(connection, "If-None-Match"),
        .key = &exchange->key,
        .body = exchange->body != NULL ? exchange->body : "",
        .body_len = exchange->body_len,
    };

    if (getrandom(claim_id, sizeof(claim_id), 0) != sizeof(claim_id)) {
        fputs("bank: the system gives no randomness\n", stderr);
        abort();
    }
    MHD_get_connection_values(connection, MHD_HEADER_KIND, collect, &lines);
    if (once_key_parse(lines.keys, lines.key_count, 0, &exchange->key, &error) != ONCE_OK) {
        exchange->key.len = 0;
        request.key_error = error.text;
    }
    if (!is_plain(request.traceparent, TRACEPARENT_MAX)) {
        request.traceparent = ""; /* it is not worth an error */
    }
    if (exchange->too_large) {
        answer_problem(answer, 413, "too-large", "a request has at most 64 KiB");
    } else if (lines.customers > 1 || lines.claims > 1) {
        /* The service in front may mean the other one. */
        answer_problem(answer, 400, "bad-request", "Bank-Customer or Once-Claim was sent twice");
    } else if (!is_plain(request.customer, BANK_CUSTOMER_MAX) ||
               !is_plain(request.claim, BANK_CLAIM_MAX - 1) ||
               !is_plain(request.target, TARGET_MAX) || strstr(request.target, "%00") != NULL) {
        answer_problem(answer, 400, "bad-request",
                       "the target, Bank-Customer or Once-Claim is no plain text");
    } else {
        route(http->bank, &request, answer);
    }
}

static enum MHD_Result handle(void *data, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *upload,
                              size_t *upload_len, void **state)
{
    exchange_t *exchange = *state;
    answer_t answer = {0};
    enum MHD_Result code;

    if (!exchange->begun) {
        exchange->begun = 1;
        return MHD_YES;
    }
    if (*upload_len > 0) {
        receive(exchange, upload, *upload_len);
        *upload_len = 0;
        return MHD_YES;
    }
    answer_request(data, connection, exchange, method, url, &answer);
    code = send_answer(connection, &answer, ((http_t *)data)->bank->direct);
    answer_clear(&answer);
    return code;
}

static int read_address(const char *text, struct sockaddr_in *address)
{
    const char *colon = strrchr(text, ':');
    char host[INET_ADDRSTRLEN], *end;
    unsigned long port;

    memset(address, 0, sizeof(*address));
    address->sin_family = AF_INET;
    if (colon == NULL || (size_t)(colon - text) >= sizeof(host) || colon[1] == '\0') {
        return -1;
    }
    memcpy(host, text, (size_t)(colon - text));
    host[colon - text] = '\0';
    port = strtoul(colon + 1, &end, 10);
    address->sin_port = htons((uint16_t)port);
    return *end == '\0' && port <= 65535 && inet_pton(AF_INET, host, &address->sin_addr) == 1 ? 0
                                                                                              : -1;
}

static int listen_on(const char *text, struct sockaddr_in *address)
{
    socklen_t len = sizeof(*address);
    int on = 1, fd;

    if (read_address(text, address) != 0) {
        fprintf(stderr, "bank: --listen needs IP:PORT, not \"%s\"\n", text);
        return -1;
    }
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
        bind(fd, (struct sockaddr *)address, len) != 0 || listen(fd, 511) != 0 ||
        getsockname(fd, (struct sockaddr *)address, &len) != 0) {
        fprintf(stderr, "bank: cannot listen on %s: %s\n", text, strerror(errno));
        if (fd >= 0) {
            close(fd);
        }
        return -1;
    }
    return fd;
}

http_t *http_start(const char *address, unsigned connections, bank_t *bank)
{
    struct sockaddr_in bound;
    char host[INET_ADDRSTRLEN];
    int fd = listen_on(address, &bound);
    http_t *http = fd >= 0 ? calloc(1, sizeof(*http)) : NULL;

    if (http == NULL) {
        return NULL;
    }
    http->bank = bank;
    pthread_mutex_init(&http->lock, NULL);
    pthread_cond_init(&http->ended, NULL);
    inet_ntop(AF_INET, &bound.sin_addr, host, sizeof(host));
    snprintf(http->address, sizeof(http->address), "%s:%d", host, ntohs(bound.sin_port));
    http->daemon =
        MHD_start_daemon(MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD |
                             MHD_USE_POLL | MHD_USE_ITC,
                         0, NULL, NULL, handle, http, MHD_OPTION_LISTEN_SOCKET, fd,
                         MHD_OPTION_CONNECTION_LIMIT, connections, MHD_OPTION_CONNECTION_TIMEOUT,
                         (unsigned)SILENCE_S, MHD_OPTION_URI_LOG_CALLBACK, new_exchange, http,
                         MHD_OPTION_NOTIFY_COMPLETED, end_exchange, http, MHD_OPTION_END);
    if (http->daemon == NULL) {
        fputs("bank: the HTTP server does not start\n", stderr);
        close(fd);
        free(http);
        return NULL;
    }
    return http;
}

const char *http_address(const http_t *http)
{
    return http->address;
}

unsigned http_stop(http_t *http, unsigned timeout_s)
{
    int listener = MHD_quiesce_daemon(http->daemon);
    struct timespec end;
    unsigned left;
    int code = 0;

    shutdown(listener, SHUT_RDWR); /* new connections are refused instead of waiting */
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += timeout_s;
    pthread_mutex_lock(&http->lock);
    while (http->active > 0 && code != ETIMEDOUT) {
        code = pthread_cond_timedwait(&http->ended, &http->lock, &end);
    }
    left = http->active;
    pthread_mutex_unlock(&http->lock);
    MHD_stop_daemon(http->daemon);
    if (listener >= 0) {
        close(listener);
    }
    pthread_cond_destroy(&http->ended);
    pthread_mutex_destroy(&http->lock);
    free(http);
    return left;
}
