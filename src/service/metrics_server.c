#include "service/internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define CONNECTIONS_MAX 16
#define TIMEOUT_S       10 /* of an idle connection */

struct once__service_metrics_server {
    struct MHD_Daemon *daemon;
};

/* ---------------------------------------------------------------------------------------------------------- answers */

static enum MHD_Result answer(struct MHD_Connection *connection, unsigned status, const char *type,
                              char *text)
{
    struct MHD_Response *response =
        text != NULL ? MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE)
                     : NULL;
    enum MHD_Result result;

    if (response == NULL) {
        free(text);
        return MHD_NO;
    }
    MHD_add_response_header(response, "Content-Type", type);
    MHD_add_response_header(response, "Cache-Control", "no-store");
    result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result handle(void *data, struct MHD_Connection *connection, const char *path,
                              const char *method, const char *version, const char *upload,
                              size_t *upload_len, void **state)
{
    once__service_metrics_t *metrics = data;

    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0) {
        *upload_len = 0;
        return answer(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "text/plain", strdup("GET\n"));
    }
    if (strcmp(path, "/metrics") == 0) {
        return answer(connection, MHD_HTTP_OK, "text/plain; version=0.0.4; charset=utf-8",
                      once__service_metrics_text(metrics));
    }
    if (strcmp(path, "/metrics.json") == 0) {
        return answer(connection, MHD_HTTP_OK, "application/json",
                      once__service_metrics_json(metrics));
    }
    if (strcmp(path, "/health") == 0) {
        int good = once__service_metrics_good(metrics);
        return answer(connection, good ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE, "text/plain",
                      strdup(good ? "ok\n" : "not working\n"));
    }
    return answer(connection, MHD_HTTP_NOT_FOUND, "text/plain",
                  strdup("/metrics, /metrics.json, /health\n"));
}

/* ---------------------------------------------------------------------------------------------------------- address */

/* Reads PORT, IP:PORT or [IPV6]:PORT. Returns 0 or -1. */
static int read_address(const char *text, struct sockaddr_storage *address)
{
    const char *colon = strrchr(text, ':');
    const char *port_text = colon != NULL ? colon + 1 : text;
    char host[64] = "127.0.0.1", *end;
    size_t len = colon != NULL ? (size_t)(colon - text) : 0;
    unsigned long port = strtoul(port_text, &end, 10);
    struct sockaddr_in *v4 = (struct sockaddr_in *)address;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)address;

    memset(address, 0, sizeof(*address));
    if (*port_text < '0' || *port_text > '9' || *end != '\0' || port > 65535 ||
        len >= sizeof(host)) {
        return -1;
    }
    if (len > 2 && text[0] == '[' && text[len - 1] == ']') {
        memcpy(host, text + 1, len - 2);
        host[len - 2] = '\0';
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons((uint16_t)port);
        return inet_pton(AF_INET6, host, &v6->sin6_addr) == 1 ? 0 : -1;
    }
    if (colon != NULL) {
        memcpy(host, text, len);
        host[len] = '\0';
    }
    v4->sin_family = AF_INET;
    v4->sin_port = htons((uint16_t)port);
    return inet_pton(AF_INET, host, &v4->sin_addr) == 1 ? 0 : -1;
}

once__service_metrics_server_t *once__service_metrics_server_start(once__service_metrics_t *metrics,
                                                                   const char *address, char *error,
                                                                   size_t size)
{
    once__service_metrics_server_t *server = calloc(1, sizeof(*server));
    struct sockaddr_storage storage;
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD;

    if (server == NULL || read_address(address, &storage) != 0) {
        snprintf(error, size, "the address of metrics must be PORT, IP:PORT or [IPV6]:PORT");
        free(server);
        return NULL;
    }
    flags |= storage.ss_family == AF_INET6 ? MHD_USE_IPv6 : 0;
    errno = 0;
    server->daemon = MHD_start_daemon(flags, 0, NULL, NULL, handle, metrics, MHD_OPTION_SOCK_ADDR,
                                      (struct sockaddr *)&storage, MHD_OPTION_CONNECTION_LIMIT,
                                      (unsigned)CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT,
                                      (unsigned)TIMEOUT_S, MHD_OPTION_END);
    if (server->daemon == NULL) {
        snprintf(error, size, "cannot serve metrics at %s: %s", address,
                 errno != 0 ? strerror(errno) : "libmicrohttpd refuses");
        free(server);
        return NULL;
    }
    return server;
}

void once__service_metrics_server_stop(once__service_metrics_server_t *server)
{
    if (server != NULL) {
        MHD_stop_daemon(server->daemon);
        free(server);
    }
}
