/*
 * The index from the segments: after a machine restart, or when the index is missing.
 */
#ifndef ONCE_STORE_LOCAL_REBUILD_H
#define ONCE_STORE_LOCAL_REBUILD_H

#include "store/local/directory.h"

typedef struct once__rebuilt {
    uint64_t segments;
    uint64_t summaries; /* those of them that need not be read */
    uint64_t frames;
    uint64_t torn;    /* segments whose tail was cut */
    uint64_t damaged; /* ranges in quarantine */
} once__rebuilt_t;

/* Fills the fresh index of a directory that the caller has to himself. Errors as once__directory_open. */
int once__rebuild(once__directory_t *directory, once__rebuilt_t *rebuilt, once_error_t *err);

#endif
