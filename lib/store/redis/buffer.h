/*
 * Bytes that wait to be sent.
 */
#ifndef ONCE_STORE_REDIS_BUFFER_H
#define ONCE_STORE_REDIS_BUFFER_H

#include <stddef.h>

#define ONCE__REDIS_ROOM_MIN 16384u

typedef struct once__redis_buffer {
    char *data;
    size_t len, from, room;
} once__redis_buffer_t;

/* Room for so many bytes behind what is there; whoever fills it adds to `len`. NULL: out of memory. */
char *once__redis_buffer_reserve(once__redis_buffer_t *buffer, size_t more);

void once__redis_buffer_empty(once__redis_buffer_t *buffer);

#endif
