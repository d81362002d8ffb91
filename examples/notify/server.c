#include "server.h"

#include <arpa/inet.h>
#include <microhttpd.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "log.h"

#define CONNECTIONS_MAX 128
#define IDLE_SECONDS    120

struct server {
    struct MHD_Daemon *daemon;
    service_t *service;
    char address[64];
    pthread_mutex_t lock;
    pthread_cond_t idle;
    unsigned active; /* requests that are not answered yet */
    int stopping;
};

typedef struct request {
    char *body;
    size_t len;
    int too_big;
} request_t;

/* ---------------------------------------------------------------------------------------------------------- answers */

static enum MHD_Result respond(struct MHD_Connection *connection, int status, const char *type,
                               char *body, unsigned retry_after)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(body != NULL ? strlen(body) : 0,
                                                                    body, MHD_RESPMEM_MUST_FREE);
    enum MHD_Result result = MHD_NO;
    char seconds[16];

    if (response == NULL) {
        free(body);
        return MHD_NO;
    }
    snprintf(seconds, sizeof(seconds), "%u", retry_after);
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    if (status ==
        503) { /* what was done is recorded: there is no doubt, it may be posted again at once */
        MHD_add_response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, seconds);
        MHD_add_response_header(response, "Once-Outcome", "retry");
    }
    result = MHD_queue_response(connection, (unsigned)status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result respond_problem(struct MHD_Connection *connection, const problem_t *problem,
                                       unsigned retry_after)
{
    return respond(connection, problem->status, "application/problem+json", problem_json(problem),
                   retry_after);
}

static const char *header(void *data, const char *name)
{
    return MHD_lookup_connection_value(data, MHD_HEADER_KIND, name);
}

static void note_bad_event(const service_t *service, const event_t *event, const problem_t *problem)
{
    if (strcmp(problem->name, PROBLEM_BAD_EVENT) == 0) {
        atomic_fetch_add(&service->metrics->bad_events, 1);
        log_line(LOG_WARNING, "bad event", "{s:s, s:s, s:s, s:s}", "event", event->id, "type",
                 event->type, "key", event->key.text, "detail", problem->detail);
    }
}

static enum MHD_Result handle_event(struct MHD_Connection *connection, service_t *service,
                                    const request_t *request)
{
    problem_t problem;
    event_t event;
    json_t *results = NULL;
    unsigned retry_after = 1;
    enum MHD_Result result;

    atomic_fetch_add(&service->metrics->events, 1);
    if (event_read(&event, header, connection, request->body != NULL ? request->body : "",
                   request->len, &problem) == 0 &&
        deliver(service, &event, &results, &problem, &retry_after) == 0) {
        json_t *body = json_pack("{s:s, s:O}", "event", event.id, "notifications", results);

        result = respond(connection, 200, "application/json", json_dumps(body, JSON_COMPACT), 0);
        json_decref(body);
    } else {
        note_bad_event(service, &event, &problem);
        result = respond_problem(connection, &problem, retry_after);
    }
    json_decref(results);
    event_free(&event);
    return result;
}

static enum MHD_Result handle(server_t *server, struct MHD_Connection *connection, const char *path,
                              const char *method, const request_t *request)
{
    problem_t problem;
    int get = strcmp(method, "GET") == 0;

    if (strcmp(path, "/events") == 0 && strcmp(method, "POST") == 0) {
        if (request->too_big) {
            problem_set(&problem, 413, PROBLEM_BAD_EVENT, "the body is longer than 256 KiB");
            return respond_problem(connection, &problem, 1);
        }
        return handle_event(connection, server->service, request);
    }
    if (strcmp(path, "/metrics") == 0 && get) {
        return respond(connection, 200, "text/plain; version=0.0.4",
                       metrics_text(server->service->metrics), 0);
    }
    if (strcmp(path, "/health") == 0 && get) {
        return respond(connection, 200, "application/json", strdup("{\"status\":\"up\"}"), 0);
    }
    problem_set(&problem, 404, PROBLEM_BAD_EVENT,
                "there are POST /events, GET /metrics and GET /health");
    return respond_problem(connection, &problem, 1);
}

/* -------------------------------------------------------------------------------------------------------- requests */

static void keep_body(request_t *request, const char *bytes, size_t len)
{
    char *body = NULL;

    if (request->len + len <= EVENT_BODY_MAX) {
        body = realloc(request->body, request->len + len);
    }
    if (body == NULL) {
        request->too_big = 1;
        return;
    }
    memcpy(body + request->len, bytes, len);
    request->body = body;
    request->len += len;
}

static int begin_request(server_t *server, void **context)
{
    int stopping;

    *context = calloc(1, sizeof(request_t));
    pthread_mutex_lock(&server->lock);
    server->active += *context != NULL;
    stopping = server->stopping;
    pthread_mutex_unlock(&server->lock);
    return stopping;
}

static enum MHD_Result on_request(void *data, struct MHD_Connection *connection, const char *path,
                                  const char *method, const char *version, const char *bytes,
                                  size_t *len, void **context)
{
    server_t *server = data;
    request_t *request = *context;

    if (request == NULL) {
        problem_t problem;

        if (begin_request(server, context)) {
            problem_set(&problem, 503, PROBLEM_STOPPING,
                        "post it again: another process will take it");
            return respond_problem(connection, &problem, 1);
        }
        return *context != NULL ? MHD_YES : MHD_NO;
    }
    if (*len > 0) {
        keep_body(request, bytes, *len);
        *len = 0;
        return MHD_YES;
    }
    return handle(server, connection, path, method, request);
}

static void on_completed(void *data, struct MHD_Connection *connection, void **context,
                         enum MHD_RequestTerminationCode how)
{
    server_t *server = data;
    request_t *request = *context;

    if (request == NULL) {
        return;
    }
    free(request->body);
    free(request);
    *context = NULL;
    pthread_mutex_lock(&server->lock);
    if (--server->active == 0) {
        pthread_cond_broadcast(&server->idle);
    }
    pthread_mutex_unlock(&server->lock);
}

/* ------------------------------------------------------------------------------------------------- starting, stopping */

static int read_address(const char *text, struct sockaddr_in *address)
{
    const char *colon = strrchr(text, ':');
    char host[32] = "", *end = NULL;
    long port = colon != NULL ? strtol(colon + 1, &end, 10) : -1;

    if (colon != NULL && (size_t)(colon - text) < sizeof(host)) {
        memcpy(host, text, (size_t)(colon - text));
    }
    *address = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    return port >= 0 && port <= 65535 && *end == '\0' &&
                   inet_pton(AF_INET, host, &address->sin_addr) == 1
               ? 0
               : -1;
}

server_t *server_start(const char *address, service_t *service)
{
    server_t *server = calloc(1, sizeof(*server));
    struct sockaddr_in at;

    if (server == NULL || read_address(address, &at) != 0) {
        fprintf(stderr, "notify: --listen wants IP:PORT, such as 127.0.0.1:3000\n");
        free(server);
        return NULL;
    }
    server->service = service;
    pthread_mutex_init(&server->lock, NULL);
    pthread_cond_init(&server->idle, NULL);
    server->daemon =
        MHD_start_daemon(MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD |
                             MHD_USE_ITC | MHD_USE_POLL,
                         0, NULL, NULL, on_request, server, MHD_OPTION_SOCK_ADDR,
                         (struct sockaddr *)&at, MHD_OPTION_NOTIFY_COMPLETED, on_completed, server,
                         MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS_MAX,
                         MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_SECONDS, MHD_OPTION_END);
    if (server->daemon == NULL) {
        fprintf(stderr, "notify: cannot listen on %s: is something else there?\n", address);
        free(server);
        return NULL;
    }
    snprintf(server->address, sizeof(server->address), "%.*s:%u",
             (int)(strrchr(address, ':') - address), address,
             MHD_get_daemon_info(server->daemon, MHD_DAEMON_INFO_BIND_PORT)->port);
    return server;
}

const char *server_address(const server_t *server)
{
    return server->address;
}

void server_stop(server_t *server)
{
    MHD_socket listener = MHD_quiesce_daemon(server->daemon);

    pthread_mutex_lock(&server->lock);
    server->stopping = 1;
    while (server->active > 0) {
        pthread_cond_wait(&server->idle, &server->lock);
    }
    pthread_mutex_unlock(&server->lock);
    MHD_stop_daemon(server->daemon);
    if (listener != MHD_INVALID_SOCKET) {
        close(listener);
    }
    pthread_cond_destroy(&server->idle);
    pthread_mutex_destroy(&server->lock);
    free(server);
}
