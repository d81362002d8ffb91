/*
 * A very small HTTP/1.1 server, enough for an example behind a gateway: one thread around poll(), requests with a
 * Content-Length, keep-alive. It is not made to face the internet.
 */
#ifndef EXAMPLES_PAYMENTS_HTTP_H
#define EXAMPLES_PAYMENTS_HTTP_H

#include <stddef.h>

/* Texts are terminated and live until the handler returns. */
typedef struct http_request {
    const char *method;
    const char *path;
    const char *query; /* "" when there is none */
    const char *key;   /* of the header Idempotency-Key; "" when there is none */
    const char *body;
} http_request_t;

/* What the handler answers. It was zeroed before. */
typedef struct http_response {
    int status;
    char body[512];    /* JSON */
    unsigned delay_ms; /* answers after this time */
    int hang_up;       /* closes the connection in place of an answer */
} http_response_t;

typedef void http_handler_t(const http_request_t *request, http_response_t *response);

/*
 * Serves until SIGINT or SIGTERM. `address` is IP:PORT; with port 0 the system chooses one. Calls `ready` with the address when
 * connections are accepted. 0, or -1 after saying what is wrong.
 */
int http_serve(const char *address, http_handler_t *handler, void (*ready)(const char *address));

#endif
