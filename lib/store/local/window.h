/*
 * The window of a segment: its newest frames, in memory that every user of the store shares, until its writer has
 * written them to the file. It lies in pages of the index, so that it outlives a writer that is killed: an entry may
 * point to a frame that only a window has.
 *
 * Written by one: the writer of the segment, or whoever has its lock after that. The order of his steps:
 *  - append: the frame, then `staged`, then the entry;
 *  - write: the file, then `written`; only then `from` may move on and the bytes be used again.
 * So whoever finds in the window what an entry points to may take it if its checksum is right, and finds it in the file
 * otherwise.
 */
#ifndef ONCE_STORE_LOCAL_WINDOW_H
#define ONCE_STORE_LOCAL_WINDOW_H

#include "store/local/index.h"

#define ONCE__WINDOW_SIZE ((uint64_t)256 << 10)
#define ONCE__WINDOW_ROOM (ONCE__WINDOW_SIZE - 64)

typedef struct once__window {
    _Atomic uint64_t segment;
    _Atomic uint64_t from;    /* where in the segment `bytes` begins */
    _Atomic uint64_t written; /* the file has what is before this offset */
    _Atomic uint64_t staged;  /* whole frames are here up to this one */
    _Alignas(64) uint8_t bytes[ONCE__WINDOW_ROOM];
} once__window_t;

/*
 * A window of nobody. NULL: there is no room for it. To be killed before it is a segment's loses its pages until a
 * rebuild.
 */
once__window_t *once__window_take(once__index_t *index);
void once__window_give(once__index_t *index, once__window_t *window);

/*
 * From now on it is this segment's, beginning at `offset`. It was nobody's, or that of `before` (0: none), which needs
 * it no more.
 */
void once__window_assign(once__index_t *index, once__window_t *window, uint32_t before,
                         uint32_t segment, uint64_t offset);

/* The segment has none any more. Does not give it back. */
void once__window_detach(once__index_t *index, uint32_t segment);

/* The segment's window; NULL: it has none, all of it is in the file. */
once__window_t *once__window_of(const once__index_t *index, uint32_t segment);

/* Is there a frame of the record that is not in any file yet? By the part of the id that the index has. 1 or 0. */
int once__window_has(const once__index_t *index, const uint8_t *id);

#endif
