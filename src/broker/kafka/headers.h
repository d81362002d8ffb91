/*
 * Headers of a message, packed into one piece of memory that is used again for the next message.
 */
#ifndef ONCE_BROKER_KAFKA_HEADERS_H
#define ONCE_BROKER_KAFKA_HEADERS_H

#include <stddef.h>
#include <stdint.h>

#include <once/key.h>

#include "base/buf.h"

typedef struct once__kafka_headers { /* all zero: empty */
    once__buf_t buf;                 /* of each header: both lengths, name, value */
} once__kafka_headers_t;

/* Returns 0, or -1 if memory is short; then nothing was added. */
int once__kafka_headers_add(once__kafka_headers_t *headers, once_slice_t name, once_slice_t value);

/* In the order in which they were added. */
void once__kafka_headers_each(const once__kafka_headers_t *headers,
                              void (*each)(void *data, once_slice_t name, once_slice_t value),
                              void *data);

/* Empties it, and frees the memory if it is unusually large. */
void once__kafka_headers_clear(once__kafka_headers_t *headers);
void once__kafka_headers_free(once__kafka_headers_t *headers);

#endif
