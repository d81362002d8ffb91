/*
 * The two ends of canonicalising: the document that is read and the text that is written, and strings from one to the other.
 */
#ifndef ONCE_CORE_JSON_IO_H
#define ONCE_CORE_JSON_IO_H

#include "core/json.h"

typedef struct once__json_io {
    const unsigned char *at; /* the document */
    const unsigned char *end;
    char *text; /* grows */
    size_t len;
    size_t room;
} once__json_io_t;

/* Room for `more` bytes; FINE or MEMORY. */
once__json_fault_t once__json_reserve(once__json_io_t *io, size_t more);
once__json_fault_t once__json_put(once__json_io_t *io, const void *data, size_t len);

/* A string with its quotes, from io->at (a quote) on, in its canonical form. */
once__json_fault_t once__json_put_string(once__json_io_t *io);

#endif
