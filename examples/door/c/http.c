#include "http.h"

#include <arpa/inet.h>
#include <jansson.h>
#include <microhttpd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct service {
    const char *path;
    http_handler_t *handler;
} service_t;

typedef struct upload {
    size_t len; /* of all that came, also of what was left out */
    char body[HTTP_BODY];
} upload_t;

static enum MHD_Result answer(struct MHD_Connection *connection, int status, const char *body)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(strlen(body), (void *)(size_t)body, MHD_RESPMEM_MUST_COPY);
    enum MHD_Result result;

    (void)MHD_add_response_header(response, "Content-Type", "application/json");
    result = MHD_queue_response(connection, (unsigned)status, response);
    MHD_destroy_response(response);
    return result;
}

static const char *header(struct MHD_Connection *connection, const char *name)
{
    const char *value = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);

    return value != NULL ? value : "";
}

/* Texts that need no escapes, and an amount like 12.50 that is more than nothing. */
static int well_formed(const http_request_t *request)
{
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.:";
    const char *amount = request->asked[AMOUNT];
    size_t digits = strspn(amount, "0123456789");

    for (int i = ORDER; i < AMOUNT; i++) {
        size_t len = strlen(request->asked[i]);
        if (len == 0 || len > 100 || strspn(request->asked[i], plain) != len) {
            return 0;
        }
    }
    return digits >= 1 && digits <= 3 && amount[digits] == '.' && strlen(amount) == digits + 3 &&
           strspn(amount + digits + 1, "0123456789") == 2 && (amount[0] != '0' || digits == 1) &&
           strcmp(amount, "0.00") != 0;
}

static int serve_one(const service_t *service, http_request_t *request, const char *text,
                     char body[HTTP_BODY])
{
    json_t *json = json_loads(text, 0, NULL);
    int status = 422;

    if (json_unpack(json, "{s:s,s:s,s:s}", "order", &request->asked[ORDER], "account",
                    &request->asked[ACCOUNT], "amount", &request->asked[AMOUNT]) == 0 &&
        well_formed(request)) {
        status = service->handler(request, body);
    }
    if (status == 503) { /* what was not committed is not reported */
        snprintf(body, HTTP_BODY, "{\"error\": \"not now\"}");
    }
    json_decref(json);
    return status;
}

static enum MHD_Result handle(void *data, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *part,
                              size_t *part_len, void **state)
{
    const service_t *service = data;
    upload_t *upload = *state;
    http_request_t request = {header(connection, "Once-Claim"),
                              {header(connection, "Idempotency-Key"), "", "", ""}};
    char body[HTTP_BODY] = "{}";
    int status;

    if (upload == NULL) { /* the head alone */
        *state = calloc(1, sizeof(*upload));
        return *state != NULL ? MHD_YES : MHD_NO;
    }
    if (*part_len > 0) {
        if (upload->len + *part_len < sizeof(upload->body)) {
            memcpy(upload->body + upload->len, part, *part_len);
        }
        upload->len += *part_len;
        *part_len = 0;
        return MHD_YES;
    }
    if (strcmp(url, service->path) != 0) {
        return answer(connection, 404, body);
    }
    if (strcmp(method, "POST") != 0) {
        return answer(connection, 405, body);
    }
    if (upload->len >= sizeof(upload->body)) {
        return answer(connection, 413, body);
    }
    status = serve_one(service, &request, upload->body, body);
    return answer(connection, status, body);
}

static void forget(void *data, struct MHD_Connection *connection, void **state,
                   enum MHD_RequestTerminationCode how)
{
    free(*state);
}

int http_serve(const char *path, http_handler_t *handler)
{
    service_t service = {path, handler};
    const char *port = getenv("PORT");
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)atoi(port != NULL ? port : "3000")),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct MHD_Daemon *daemon;
    sigset_t ends;
    int number;

    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    (void)pthread_sigmask(SIG_BLOCK, &ends, NULL); /* before there are threads */
    daemon = MHD_start_daemon(MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD |
                                  MHD_USE_ERROR_LOG,
                              0, NULL, NULL, handle, &service, MHD_OPTION_SOCK_ADDR, &address,
                              MHD_OPTION_NOTIFY_COMPLETED, forget, NULL, MHD_OPTION_END);
    if (daemon == NULL) {
        fprintf(stderr, "cannot listen on port %s\n", port != NULL ? port : "3000");
        return 1;
    }
    printf("listening on http://127.0.0.1:%u\n",
           (unsigned)MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_BIND_PORT)->port);
    (void)fflush(stdout);
    (void)sigwait(&ends, &number);
    MHD_stop_daemon(daemon);
    return 0;
}
