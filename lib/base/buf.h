/*
 * Buffers and arrays that grow, each with a maximum.
 *
 * A buffer is made with its maximum: `once__buf_t buf = ONCE__BUF(LIMIT);`. The data has a terminator behind its last byte that
 * does not count, so that text can be used as a C string. Growing doubles the memory: adding n bytes one by one costs O(n).
 *
 * Errors stick: once an addition fails, all further ones fail with the same code and change nothing. A writer of many pieces may
 * therefore ignore the single results and check `buf.error` at the end. Reset and free forgive.
 *
 * What holds between calls (assert_buf_state in buf.c):
 *   I-1  the data is no longer than the maximum
 *   I-2  there is memory if there is data, and the terminator is in it
 */
#ifndef ONCE_BASE_BUF_H
#define ONCE_BASE_BUF_H

#include <stddef.h>

#include <once/error.h>

typedef struct once__buf {
    char *data; /* owned; NULL until something is added */
    size_t len;
    size_t room; /* bytes allocated, with the terminator */
    size_t max;  /* `len` never exceeds it */
    int error;   /* ONCE_OK, ONCE_E_NOMEM or ONCE_E_TOO_BIG */
} once__buf_t;

#define ONCE__BUF(limit)                                                                           \
    {                                                                                              \
        .max = (limit)                                                                             \
    }

/* Appends. Returns ONCE_OK, ONCE_E_TOO_BIG if the maximum would be exceeded, or ONCE_E_NOMEM. */
int once__buf_add(once__buf_t *buf, const void *data, size_t len);

/*
 * Room for `more` bytes behind the data, valid until the buffer is used again. They do not count before once__buf_added() says how
 * many of them were written. Returns NULL on failure; `error` says why.
 */
char *once__buf_reserve(once__buf_t *buf, size_t more);
void once__buf_added(once__buf_t *buf, size_t len);

/* Empties the buffer and keeps its memory, unless that is more than `keep` bytes. */
void once__buf_reset(once__buf_t *buf, size_t keep);

/* Frees the memory. The buffer is empty and keeps its maximum. */
void once__buf_free(once__buf_t *buf);

/* The terminated data, which the caller frees; the buffer is empty. NULL: `error` says why; the buffer is then freed. */
char *once__buf_take(once__buf_t *buf);

/*
 * Makes room in an array for at least `count` items of `size` bytes: returns the array, perhaps at a new address, and sets `room`
 * (counted in items). Returns NULL if `count` exceeds `max` or memory is short; the array is then as it was.
 *
 *     row_t *rows = once__grow(list->rows, &list->room, list->count + 1, sizeof(*rows), ROWS_MAX);
 */
void *once__grow(void *items, size_t *room, size_t count, size_t size, size_t max);

#endif
