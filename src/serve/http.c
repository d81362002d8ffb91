/*
 * Connections and requests: which are heard, what they ask for, and how answers are sent.
 */
#include <assert.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "base/bytes.h"
#include "serve/internal.h"

#define HEADERS_MAX                                                                                \
    (16 * 1024)            /* bytes of the headers of a request, and of what is read at a time */
#define STRANGER_S   10    /* how long a connection may take to show that it may ask */
#define RECEIVING_MS 30000 /* how long a request may take to arrive */
#define REQUESTS_MAX 16    /* of the largest size, in memory at the same time */
#define SMALL_ANSWER 4096  /* bytes of an answer that there is always room for */

#define BODY (ONCE__SERVE_BODY | ONCE__SERVE_BODY_BASE64)

/* clang-format off */
const once__serve_operation_t once__serve_operations[] = {
    {"/v1/claim", ONCE__SERVE_SCOPE | ONCE__SERVE_KEY | ONCE__SERVE_METHOD | ONCE__SERVE_TARGET | BODY | ONCE__SERVE_RECOVER |
                  ONCE__SERVE_TTL | ONCE__SERVE_LEASE | ONCE__SERVE_DESCRIPTION | ONCE__SERVE_SUBJECT | ONCE__SERVE_CLAIM_ID |
                  ONCE__SERVE_RENEW | ONCE__SERVE_WAIT, ONCE__SERVE_KEY, once__serve_claim},
    {"/v1/finish", ONCE__SERVE_CLAIM | ONCE__SERVE_RESPONSE | ONCE__SERVE_VERDICT | ONCE__SERVE_RETAIN,
     ONCE__SERVE_CLAIM | ONCE__SERVE_RESPONSE, once__serve_finish},
    {"/v1/complete", ONCE__SERVE_CLAIM | ONCE__SERVE_RESPONSE | ONCE__SERVE_RETAIN, ONCE__SERVE_CLAIM | ONCE__SERVE_RESPONSE,
     once__serve_complete},
    {"/v1/release", ONCE__SERVE_CLAIM | ONCE__SERVE_STATUS | ONCE__SERVE_NOTE | ONCE__SERVE_EARLY, ONCE__SERVE_CLAIM,
     once__serve_release},
    {"/v1/doubt", ONCE__SERVE_CLAIM | ONCE__SERVE_CAUSE, ONCE__SERVE_CLAIM, once__serve_doubt},
    {"/v1/renew", ONCE__SERVE_CLAIMS | ONCE__SERVE_LEASE, ONCE__SERVE_CLAIMS, once__serve_renew},
    {"/v1/get", ONCE__SERVE_SCOPE | ONCE__SERVE_KEY | ONCE__SERVE_ID, 0, once__serve_get},
    {"/v1/recorded", ONCE__SERVE_CLAIM, ONCE__SERVE_CLAIM, once__serve_recorded},
    {"/v1/derive", ONCE__SERVE_CLAIM | ONCE__SERVE_SCOPE | ONCE__SERVE_KEY | ONCE__SERVE_STEP, ONCE__SERVE_STEP,
     once__serve_derive},
    {NULL, 0, 0, NULL},
};
/* clang-format on */

static uint64_t now_us(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static const char *header(struct MHD_Connection *connection, const char *name)
{
    return MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
}

/* ------------------------------------------------------------------------------------------------------------- requests */

void once__serve_request_ref(once__serve_request_t *request)
{
    request->refs++;
}

void once__serve_request_unref(once__serve_request_t *request)
{
    once__serve_t *serve = request->serve;

    assert(request->refs > 0);
    if (--request->refs > 0) {
        return;
    }
    assert(request->line == NULL && !request->is_waiting); /* invariant 1 of internal.h */
    assert(request->bytes <= serve->bytes);
    serve->bytes -= request->bytes;
    if (request->has_timer) {
        once__timers_release(serve->loop);
    }
    once__serve_input_free(&request->input);
    once__buf_free(&request->body);
    free(request->renewals);
    free(request->text);
    free(request);
}

static once__serve_request_t *new_request(once__serve_t *serve, once__serve_line_t *line)
{
    once__serve_request_t *request = calloc(1, sizeof(*request));

    if (request != NULL) {
        request->serve = serve;
        request->line = line;
        request->refs = 1;
        request->body.max = serve->settings->request_bytes;
        request->next = serve->requests;
        request->place = &serve->requests;
        if (request->next != NULL) {
            request->next->place = &request->next;
        }
        serve->requests = request;
    }
    return request;
}

/* Counts what a request needs beyond its struct. Returns whether there is room for it. */
static int has_room(once__serve_request_t *request, size_t more)
{
    once__serve_t *serve = request->serve;

    if (serve->bytes + more > REQUESTS_MAX * serve->settings->request_bytes) {
        return 0;
    }
    serve->bytes += more;
    request->bytes += more;
    return 1;
}

/* ---------------------------------------------------------------------------------------------------------- the answer */

static unsigned stranger_s(const once__serve_t *serve)
{
    uint64_t idle_s = serve->settings->idle_ms / 1000;

    return idle_s < STRANGER_S ? (unsigned)idle_s : STRANGER_S;
}

/* A connection with claims may be silent for as long as the work takes. */
static void set_timeout(once__serve_line_t *line)
{
    unsigned idle_s = (unsigned)(line->serve->settings->idle_ms / 1000);
    unsigned wanted = line->kept_count > 0 ? 0 : line->is_known ? idle_s : stranger_s(line->serve);

    if (wanted != line->timeout_s) {
        line->timeout_s = wanted;
        (void)MHD_set_connection_option(line->connection, MHD_CONNECTION_OPTION_TIMEOUT, wanted);
    }
}

static enum MHD_Result send_answer(once__serve_request_t *request)
{
    struct MHD_Connection *connection = request->line->connection;
    size_t len = request->text != NULL ? strlen(request->text) : 0;
    struct MHD_Response *response;
    enum MHD_Result result;
    char seconds[16];

    assert(request->status != 0 && request->refs > 0);
    /* A small one is never refused: it may tell of a claim, and nobody else would know that one. */
    if (len > SMALL_ANSWER && !request->is_problem && !has_room(request, len)) {
        free(request->text);
        request->text = NULL;
        request->status = 0;
        once__serve_fail(request, ONCE_E_NOMEM, "too many large answers are on their way");
        len = request->text != NULL ? strlen(request->text) : 0;
    }
    response = request->text != NULL
                   ? MHD_create_response_from_buffer(len, request->text, MHD_RESPMEM_MUST_FREE)
                   : NULL;
    if (response == NULL) {
        return MHD_NO;
    }
    request->text = NULL;
    (void)MHD_add_response_header(response, "Content-Type",
                                  request->is_problem     ? "application/problem+json"
                                  : request->type != NULL ? request->type
                                                          : "application/json");
    (void)MHD_add_response_header(response, "Cache-Control", "no-store");
    if (request->status == MHD_HTTP_UNAUTHORIZED) {
        (void)MHD_add_response_header(response, "WWW-Authenticate", "Bearer");
    }
    if (request->status == MHD_HTTP_METHOD_NOT_ALLOWED) {
        (void)MHD_add_response_header(response, "Allow",
                                      request->operation != NULL ? "POST" : "GET, HEAD");
    }
    if (request->retry_after_s != 0) {
        (void)snprintf(seconds, sizeof(seconds), "%u", request->retry_after_s);
        (void)MHD_add_response_header(response, "Retry-After", seconds);
    }
    if (request->serve->stopping) {
        (void)MHD_add_response_header(response, "Connection", "close");
    }
    set_timeout(request->line);
    result = MHD_queue_response(connection, request->status, response);
    MHD_destroy_response(response);
    return result;
}

/* ---------------------------------------------------------------------------------------------------------- operations */

/* Reads what was sent. Returns 0, or -1 after the refusal, which keeps nothing of it. */
static int read_input(once__serve_request_t *request)
{
    const once__serve_operation_t *operation = request->operation;
    const once__buf_t *body = &request->body;
    once__serve_wrong_t wrong = {0};
    int failed = once__serve_read(&request->input, body->data != NULL ? body->data : "", body->len,
                                  operation->allowed, operation->needed, &wrong);

    if (failed == 0 && request->serve->settings->needs_scope &&
        (request->input.given & ONCE__SERVE_KEY) && request->input.scope.len == 0) {
        wrong = (once__serve_wrong_t){
            ONCE_E_INVALID,
            "\"scope\" is missing or empty, and this server needs one (--scope-required)"};
        failed = -1;
    }
    once__buf_free(&request->body);
    if (failed != 0) {
        once__serve_input_free(&request->input);
        once__serve_fail(request, wrong.code, wrong.text);
    }
    return failed;
}

static void begin(once__serve_request_t *request)
{
    once__serve_t *serve = request->serve;

    request->is_begun = 1;
    request->line->arrive_by = 0;
    request->line->is_working = 1;
    request->began_us = now_us();
    once__service_metric_count(serve->counters.requests, 1);
    if (request->body.error != ONCE_OK) {
        once__serve_fail(request, request->body.error,
                         request->body.error == ONCE_E_TOO_BIG
                             ? "the request is bigger than this server accepts (--max-request)"
                             : "too many large requests are on their way");
        return;
    }
    if (serve->stopping) {
        once__serve_fail(request, ONCE_E_CLOSED, "the server is stopping");
        return;
    }
    if (read_input(request) == 0) {
        serve->has_asked = 1;
        request->operation->begin(request);
    }
}

static int is_get(const char *method)
{
    return strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
}

static void answer_text(once__serve_request_t *request, const char *type, char *text)
{
    if (text == NULL) {
        once__serve_fail(request, ONCE_E_NOMEM, NULL);
        return;
    }
    request->status = MHD_HTTP_OK;
    request->type = type;
    request->text = text;
}

/* Pages that need no store. Returns whether there is one of this path. */
static int answer_page(once__serve_request_t *request, const char *path)
{
    once__serve_t *serve = request->serve;

    if (strcmp(path, "/v1") == 0) {
        once__serve_answer(request,
                           json_pack("{s:s, s:s, s:i, s:s}", "server", "once serve", "version",
                                     once_version(), "api", 1, "store", serve->settings->store));
    } else if (strcmp(path, "/metrics") == 0) {
        answer_text(request, "text/plain; version=0.0.4; charset=utf-8",
                    once__service_metrics_text(serve->counters.metrics));
    } else if (strcmp(path, "/metrics.json") == 0) {
        answer_text(request, NULL, once__service_metrics_json(serve->counters.metrics));
    } else if (strcmp(path, "/health") == 0 || strcmp(path, "/ready") == 0) {
        int good = serve->store_error == ONCE_OK && !serve->stopping;
        answer_text(request, "text/plain; charset=utf-8", strdup(good ? "ok\n" : "not ready\n"));
        request->status = good ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE;
    } else {
        return 0;
    }
    return 1;
}

static const once__serve_operation_t *find_operation(const char *path)
{
    const once__serve_operation_t *operation = once__serve_operations;

    while (operation->path != NULL && strcmp(operation->path, path) != 0) {
        operation++;
    }
    return operation->path != NULL ? operation : NULL;
}

/* --------------------------------------------------------------------------------------------------------- who may ask */

/* Compared in a time that does not depend on where they differ. */
static int may_ask(const once__serve_t *serve, struct MHD_Connection *connection)
{
    const char *given = header(connection, "Authorization");
    size_t len = strlen(serve->token);

    if (len == 0) { /* a unix socket: its file has the permissions */
        return 1;
    }
    return given != NULL && strncasecmp(given, "Bearer ", 7) == 0 && strlen(given + 7) == len &&
           once__equal(given + 7, serve->token, len);
}

static int is_open_to_all(const char *path)
{
    return strcmp(path, "/health") == 0 || strcmp(path, "/ready") == 0;
}

static int is_json(const char *type)
{
    return type != NULL && strncasecmp(type, "application/json", 16) == 0 &&
           (type[16] == '\0' || type[16] == ';' || type[16] == ' ');
}

/* What is refused, or answered, before a body is read. */
static void hear(once__serve_request_t *request, const char *path, const char *method)
{
    struct MHD_Connection *connection = request->line->connection;
    const char *length = header(connection, "Content-Length");

    if (!may_ask(request->serve, connection) && !is_open_to_all(path)) {
        once__serve_problem(request, MHD_HTTP_UNAUTHORIZED, ONCE_E_CONFIG,
                            "send Authorization: Bearer with the token of the server's token "
                            "file");
        return;
    }
    request->line->is_known |= may_ask(request->serve, connection);
    request->operation = find_operation(path);
    if (request->operation == NULL) {
        if (is_get(method) && answer_page(request, path)) {
            return;
        }
        if (!is_get(method) && (strcmp(path, "/v1") == 0 || strcmp(path, "/metrics") == 0 ||
                                strcmp(path, "/metrics.json") == 0 || is_open_to_all(path))) {
            once__serve_problem(request, MHD_HTTP_METHOD_NOT_ALLOWED, ONCE_E_UNSUPPORTED,
                                "this path answers GET");
            return;
        }
        once__serve_problem(request, MHD_HTTP_NOT_FOUND, ONCE_E_NOT_FOUND,
                            "there is no such path; openapi/serve.yaml lists those there are");
    } else if (strcmp(method, "POST") != 0) {
        once__serve_problem(request, MHD_HTTP_METHOD_NOT_ALLOWED, ONCE_E_UNSUPPORTED,
                            "every operation is a POST");
    } else if (!is_json(header(connection, "Content-Type"))) {
        once__serve_problem(request, MHD_HTTP_BAD_REQUEST, ONCE_E_INVALID,
                            "send Content-Type: application/json");
    } else if (length != NULL && strtoull(length, NULL, 10) > request->body.max) {
        once__serve_problem(request, MHD_HTTP_CONTENT_TOO_LARGE, ONCE_E_TOO_BIG,
                            "the request is bigger than this server accepts (--max-request)");
    }
}

/* -------------------------------------------------------------------------------------------------------------- lines */

static once__serve_line_t *line_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

    return info != NULL ? info->socket_context : NULL;
}

int once__serve_line_is_gone(const once__serve_line_t *line)
{
    struct pollfd poll_fd = {.fd = line != NULL ? line->fd : -1, .events = POLLRDHUP};

    /* Not by reading: bytes that are not read yet would hide the end. */
    return poll_fd.fd < 0 || (poll(&poll_fd, 1, 0) > 0 && poll_fd.revents != 0);
}

static void *open_line(once__serve_t *serve, struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    once__serve_line_t *line = calloc(1, sizeof(*line));

    if (line == NULL) {
        return NULL; /* requests without a line are refused */
    }
    line->serve = serve;
    line->connection = connection;
    line->fd = info != NULL ? info->connect_fd : -1;
    line->timeout_s = stranger_s(serve);
    line->arrive_by = once__loop_now(serve->loop) + 1000ull * line->timeout_s;
    line->next = serve->lines;
    line->place = &serve->lines;
    if (line->next != NULL) {
        line->next->place = &line->next;
    }
    serve->lines = line;
    return line;
}

static void close_line(once__serve_line_t *line)
{
    once__serve_drop_kept(line);
    *line->place = line->next;
    if (line->next != NULL) {
        line->next->place = line->place;
    }
    free(line);
}

static void connected(void *data, struct MHD_Connection *connection, void **context,
                      enum MHD_ConnectionNotificationCode what)
{
    once__serve_t *serve = data;

    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        *context = open_line(serve, connection);
        serve->line_count += *context != NULL;
    } else if (*context != NULL) {
        close_line(*context);
        *context = NULL;
        serve->line_count--;
    }
    once__service_metric_set(serve->counters.connections, (int64_t)serve->line_count);
}

/* The first line of a request is there. */
static void *request_line(void *data, const char *uri, struct MHD_Connection *connection)
{
    once__serve_t *serve = data;
    once__serve_line_t *line = line_of(connection);

    (void)uri;
    if (line != NULL) {
        line->arrive_by = once__loop_now(serve->loop) + RECEIVING_MS;
    }
    return NULL;
}

static void completed(void *data, struct MHD_Connection *connection, void **state,
                      enum MHD_RequestTerminationCode why)
{
    once__serve_t *serve = data;
    once__serve_request_t *request = *state;
    once__serve_line_t *line = line_of(connection);

    (void)why;
    if (line != NULL) {
        line->arrive_by =
            line->is_known ? 0 : once__loop_now(serve->loop) + 1000ull * stranger_s(serve);
        line->is_working = 0;
    }
    if (request == NULL) {
        return;
    }
    if (request->began_us != 0) {
        once__service_metric_observe(serve->counters.duration,
                                     (int64_t)(now_us() - request->began_us));
    }
    *request->place = request->next;
    if (request->next != NULL) {
        request->next->place = request->place;
    }
    request->line = NULL;
    once__serve_request_unref(request);
    *state = NULL;
}

/*
 * What is refused is read to its end all the same, and the connection goes on: many clients do not listen while they send. One
 * that announces much more than may be sent is not read, and its connection ends.
 */
static int is_endless(const once__serve_request_t *request)
{
    const char *length = header(request->line->connection, "Content-Length");

    return length != NULL && strtoull(length, NULL, 10) / 4 > request->body.max;
}

static void receive(once__serve_request_t *request, const char *bytes, size_t len)
{
    once__buf_t *body = &request->body;
    int code;

    if (request->status != 0 || body->error != ONCE_OK) {
        return; /* it is refused, or will be */
    }
    code = has_room(request, len) ? once__buf_add(body, bytes, len) : ONCE_E_NOMEM;
    if (code != ONCE_OK) { /* nothing of it is kept */
        once__buf_free(body);
        body->error = code;
        request->serve->bytes -= request->bytes;
        request->bytes = 0;
    }
}

static enum MHD_Result handle(void *data, struct MHD_Connection *connection, const char *path,
                              const char *method, const char *version, const char *bytes,
                              size_t *len, void **state)
{
    once__serve_t *serve = data;
    once__serve_request_t *request = *state;
    once__serve_line_t *line = line_of(connection);

    (void)version;
    if (line == NULL) {
        return MHD_NO;
    }
    if (request == NULL) { /* the headers are there, and a body is yet to come */
        *state = request = new_request(serve, line);
        if (request == NULL) {
            return MHD_NO;
        }
        hear(request, path, method);
        return request->status != 0 && is_endless(request) ? send_answer(request) : MHD_YES;
    }
    if (*len > 0) {
        receive(request, bytes, *len);
        *len = 0;
        return MHD_YES;
    }
    if (!request->is_begun && request->status == 0) {
        begin(request);
    }
    if (request->status != 0) {
        return send_answer(request);
    }
    request->is_suspended = 1;
    MHD_suspend_connection(connection);
    return MHD_YES;
}

/* ------------------------------------------------------------------------------------------------------------ the daemon */

int once__serve_http_start(once__serve_t *serve)
{
    const union MHD_DaemonInfo *info;

    serve->daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, handle, serve,
        MHD_OPTION_LISTEN_SOCKET, serve->listener.fd, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)serve->settings->connections, MHD_OPTION_CONNECTION_TIMEOUT, stranger_s(serve),
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEADERS_MAX, MHD_OPTION_NOTIFY_CONNECTION,
        connected, serve, MHD_OPTION_NOTIFY_COMPLETED, completed, serve,
        MHD_OPTION_URI_LOG_CALLBACK, request_line, serve, MHD_OPTION_END);
    info =
        serve->daemon != NULL ? MHD_get_daemon_info(serve->daemon, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
    return info != NULL ? info->epoll_fd : -1;
}

void once__serve_http_turn(once__serve_t *serve)
{
    serve->has_answers = 0;
    (void)MHD_run(serve->daemon);
}

int once__serve_http_timeout(once__serve_t *serve)
{
    MHD_UNSIGNED_LONG_LONG ms;

    if (MHD_get_timeout(serve->daemon, &ms) != MHD_YES) {
        return -1;
    }
    return ms < 60000 ? (int)ms : 60000;
}

/*
 * libmicrohttpd does not always notice that the rest of a request cannot come any more: it waits until nothing has happened for so
 * long.
 */
static void end_line(once__serve_line_t *line)
{
    (void)shutdown(line->fd, SHUT_RDWR);
    line->timeout_s = 1;
    (void)MHD_set_connection_option(line->connection, MHD_CONNECTION_OPTION_TIMEOUT, 1u);
}

void once__serve_http_tick(once__serve_t *serve)
{
    uint64_t now = once__loop_now(serve->loop);

    for (once__serve_line_t *line = serve->lines; line != NULL; line = line->next) {
        int is_late = line->arrive_by != 0 && now > line->arrive_by;
        int is_gone = once__serve_line_is_gone(line);
        if (is_gone) {
            once__serve_drop_kept(line);
        }
        if (line->is_working) { /* its answer ends it */
            continue;
        }
        if (is_gone || is_late) {
            end_line(line);
        } else {
            set_timeout(line); /* its claims may have been ended by other connections */
        }
    }
}

void once__serve_http_quiesce(once__serve_t *serve)
{
    (void)MHD_quiesce_daemon(serve->daemon);
    once__serve_listener_close(&serve->listener);
}

void once__serve_http_abort(once__serve_t *serve)
{
    for (once__serve_request_t *request = serve->requests; request != NULL;
         request = request->next) {
        if (request->is_suspended) {
            once__serve_fail(request, ONCE_E_CLOSED, "the server is stopping");
        }
    }
    once__serve_http_turn(serve);
}

void once__serve_http_stop(once__serve_t *serve)
{
    if (serve->daemon != NULL) {
        MHD_stop_daemon(serve->daemon);
        serve->daemon = NULL;
    }
}
