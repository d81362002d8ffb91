/*
 * segments/manifest: which segments must exist (docs/format.md, "The manifest").
 */
#ifndef ONCE_STORE_LOCAL_MANIFEST_H
#define ONCE_STORE_LOCAL_MANIFEST_H

#include <stddef.h>

#include "store/local/disk.h"
#include "store/local/frame.h"

#define ONCE__MANIFEST_ENTRY 32

typedef struct once__manifest {
    int found;      /* there is such a file */
    uint64_t *live; /* numbers that must exist, ascending */
    size_t live_count;
    uint64_t *dropped; /* numbers that were dropped, ascending, and are not live */
    size_t dropped_count;
    uint64_t next;    /* above every number that it mentions; 1 at least */
    uint64_t entries; /* valid ones in the file */
    uint64_t bytes;   /* of the file */
    int torn;         /* a crash left entries that count for nothing: write it anew, when alone */
} once__manifest_t;

/* Reads it. ONCE_OK (also when there is none); ONCE_E_CORRUPT: damage, or another store's; ONCE_E_IO; ONCE_E_NOMEM. */
int once__manifest_read(once__manifest_t *manifest, int segments_fd, const once__disk_t *disk,
                        const uint8_t store_id[ONCE__STORE_ID_SIZE]);
void once__manifest_free(once__manifest_t *manifest);
int once__manifest_is_live(const once__manifest_t *manifest, uint64_t number);
int once__manifest_is_dropped(const once__manifest_t *manifest, uint64_t number);

/*
 * Appends an entry, durably. Several processes may do so at a time: a flock() on the file is held for the write, not for the
 * syncs. ONCE_OK; ONCE_E_FULL and ONCE_E_NOREPLY (the lock could not be had within a second): the entry is not in the file;
 * ONCE_E_IO: it may be.
 */
int once__manifest_add(int segments_fd, const once__disk_t *disk,
                       const uint8_t store_id[ONCE__STORE_ID_SIZE], uint64_t number);
int once__manifest_drop(int segments_fd, const once__disk_t *disk,
                        const uint8_t store_id[ONCE__STORE_ID_SIZE], uint64_t number);

/*
 * Writes it anew with these live segments, through manifest.new, so that numbers below `next` are not used again. Only by a
 * process that is alone with the store; files of dropped segments were removed before. ONCE_OK, ONCE_E_FULL, ONCE_E_IO,
 * ONCE_E_NOMEM.
 */
int once__manifest_write(int segments_fd, const once__disk_t *disk,
                         const uint8_t store_id[ONCE__STORE_ID_SIZE], const uint64_t *live,
                         size_t count, uint64_t next);

#endif
