/*
 * Input and output of canonicalising: the document that is read, the text that is written, and strings copied between them.
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

/* Makes room for `more` bytes. Returns ONCE__JSON_FINE or ONCE__JSON_MEMORY. */
once__json_fault_t once__json_reserve(once__json_io_t *io, size_t more);
once__json_fault_t once__json_put(once__json_io_t *io, const void *data, size_t len);

/* Reads the string at io->at (its opening quote) and writes it in canonical form, with its quotes. */
once__json_fault_t once__json_put_string(once__json_io_t *io);

#endif
