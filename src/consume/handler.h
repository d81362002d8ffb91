/*
 * The handler: POST requests over HTTP, many at once, each sent at most once.
 */
#ifndef ONCE_CONSUME_HANDLER_H
#define ONCE_CONSUME_HANDLER_H

#include <stddef.h>
#include <stdint.h>

#include <once/once.h>

#include "consume/poller.h"

typedef struct once__consume_handler once__consume_handler_t;

/* What became of a request. */
typedef struct once__consume_reply {
    int status;           /* of a complete response; 0: there was none */
    int sent;             /* some of it may have reached the handler */
    once_verdict_t said;  /* Once-Outcome */
    uint64_t retry_after; /* milliseconds; 0: not said */
    uint64_t took;        /* microseconds */
    const char *trouble;  /* why there is no response */
    const char *words;    /* what the handler says about its refusal; "": nothing */
} once__consume_reply_t;

typedef void once__consume_reply_cb(void *data, const once__consume_reply_t *reply);

typedef struct once__consume_handler_options {
    const char *url;
    const char *ca_file; /* NULL: the system's authorities */
    size_t concurrency;
    uint64_t timeout_ms; /* of one request */
} once__consume_handler_options_t;

/* NULL after writing into `error` what is wrong. The URL must stay. */
once__consume_handler_t *once__consume_handler_new(once__consume_poller_t *poller,
                                                   const once__consume_handler_options_t *options,
                                                   char *error, size_t size);

/* Requests that are under way are cut; no callback is called. NULL is fine. */
void once__consume_handler_free(once__consume_handler_t *handler);

/* The headers of one request: each is "Name: value", copied. */
typedef struct once__consume_handler_headers once__consume_handler_headers_t;
once__consume_handler_headers_t *once__consume_handler_headers_new(void);
void once__consume_handler_headers_add(once__consume_handler_headers_t *headers, const char *format,
                                       ...) __attribute__((format(printf, 2, 3)));
void once__consume_handler_headers_free(once__consume_handler_headers_t *headers);

/*
 * Sends. The payload is borrowed until `cb` is called, which happens in a later turn of the loop; headers are taken over. 0, or
 * -1: out of memory, or `concurrency` requests are under way.
 */
int once__consume_handler_post(once__consume_handler_t *handler,
                               once__consume_handler_headers_t *headers, once_slice_t payload,
                               once__consume_reply_cb *cb, void *data);

/* To be called between two turns of the loop: frees what the loop might still have had an event for. */
void once__consume_handler_turn_over(once__consume_handler_t *handler);

#endif
