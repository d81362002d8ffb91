/*
 * Which segments must exist: the file segments/extent (docs/format.md). Without it nobody who makes the index anew would miss the
 * oldest or the newest segment, because only a gap between two files tells of one that is missing.
 */
#ifndef ONCE_STORE_LOCAL_EXTENT_H
#define ONCE_STORE_LOCAL_EXTENT_H

#include <stdint.h>

struct once__disk;

typedef struct once__extent {
    uint32_t first, last; /* `first` above `last`: none must */
} once__extent_t;

/* 1: it is told; 0: there is no file, or nothing in it that can be believed, so nothing is known. */
int once__extent_read(int segments_fd, once__extent_t *extent);

/* Makes the file, if there is none: its name is durable with the next sync of the directory. 0, or -1 and errno. */
int once__extent_make(int segments_fd);

/*
 * Writes it, not yet durably: a descriptor for the caller to sync and close, or -1 and errno. A crash before the sync leaves the
 * new one or the one before.
 */
int once__extent_write(const struct once__disk *disk, int segments_fd,
                       const once__extent_t *extent);

#endif
