/*
 * Just enough HTTP for the example, with libmicrohttpd and jansson: a payment in, JSON out, a thread for each connection.
 */
#ifndef EXAMPLES_DOOR_HTTP_H
#define EXAMPLES_DOOR_HTTP_H

#define HTTP_BODY 4096 /* a larger request is answered with 413 */

enum { KEY, ORDER, ACCOUNT, AMOUNT, FIELDS };

/* A payment that is well-formed; what is not is answered with 422. */
typedef struct http_request {
    const char *claim;         /* Once-Claim; "" when there is none */
    const char *asked[FIELDS]; /* Idempotency-Key, and the members of the JSON object */
} http_request_t;

/* Writes JSON to `body` and returns the status. Called by many threads. */
typedef int http_handler_t(const http_request_t *request, char body[HTTP_BODY]);

/* Serves POST `path` at 127.0.0.1, port PORT (3000; 0: any), until SIGINT or SIGTERM. What main returns. */
int http_serve(const char *path, http_handler_t *handler);

#endif
