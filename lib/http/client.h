/*
 * libcurl's multi interface in a loop of lib/loop. For one thread, the loop's.
 */
#ifndef ONCE_HTTP_CLIENT_H
#define ONCE_HTTP_CLIENT_H

#include <curl/curl.h>

#include "loop/loop.h"

typedef struct once__http_client once__http_client_t;

/* A transfer has ended; its handle was removed from the client and can be added again. Called in a turn of the loop. */
typedef void once__http_done_cb(void *data, CURL *easy, CURLcode result);

/* Returns NULL if memory is short. */
once__http_client_t *once__http_client_new(once__loop_t *loop, once__http_done_cb *done,
                                           void *data);

/* All handles must have been removed. NULL is fine. */
void once__http_client_free(once__http_client_t *client);

/* To add and remove handles, and to set options other than its callbacks. */
CURLM *once__http_client_multi(const once__http_client_t *client);

/* To be called between two turns of the loop: frees connections that the last one may still have had events for. */
void once__http_client_turn_over(once__http_client_t *client);

#endif
