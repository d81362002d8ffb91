/*
 * The handler: POST requests over HTTP, many at once, each sent at most once.
 */
#ifndef ONCE_CONSUME_HANDLER_H
#define ONCE_CONSUME_HANDLER_H

#include <stddef.h>
#include <stdint.h>

#include <once/once.h>

#include "loop/loop.h"

typedef struct once__consume_handler once__consume_handler_t;

/* The result of a request. */
typedef struct once__consume_reply {
    int status;           /* of a complete response; 0: there was none */
    int sent;             /* a part of it may have reached the handler */
    once_verdict_t said;  /* Once-Outcome */
    uint64_t retry_after; /* milliseconds; 0: not given */
    uint64_t took;        /* microseconds */
    const char *trouble;  /* why there is no response */
    const char *words;    /* the reason that the handler gives for a refusal; "": none */
} once__consume_reply_t;

typedef void once__consume_reply_cb(void *data, const once__consume_reply_t *reply);

typedef struct once__consume_handler_options {
    const char *url;
    const char *ca_file; /* NULL: the system's authorities */
    size_t concurrency;
    uint64_t timeout_ms; /* of one request */
} once__consume_handler_options_t;

/* Returns NULL after writing into `error` what is wrong. The URL is borrowed. */
once__consume_handler_t *once__consume_handler_new(once__loop_t *loop,
                                                   const once__consume_handler_options_t *options,
                                                   char *error, size_t size);

/* Cuts requests that are in flight without calling back. NULL is fine. */
void once__consume_handler_free(once__consume_handler_t *handler);

/* The headers of one request: each is "Name: value", copied. */
typedef struct once__consume_handler_headers once__consume_handler_headers_t;
once__consume_handler_headers_t *once__consume_handler_headers_new(void);
void once__consume_handler_headers_add(once__consume_handler_headers_t *headers, const char *format,
                                       ...) __attribute__((format(printf, 2, 3)));
/*
 * Sends a request. The payload is borrowed until `cb` is called, which happens in a later turn of the loop; the headers are taken
 * over. Returns 0, or -1 if memory is short or `concurrency` requests are in flight.
 */
int once__consume_handler_post(once__consume_handler_t *handler,
                               once__consume_handler_headers_t *headers, once_slice_t payload,
                               once__consume_reply_cb *cb, void *data);

/* To be called between two turns of the loop: frees connections that the last one may still have had events for. */
void once__consume_handler_turn_over(once__consume_handler_t *handler);

#endif
