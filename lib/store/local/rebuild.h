/*
 * Makes an index from the log.
 */
#ifndef ONCE_STORE_LOCAL_REBUILD_H
#define ONCE_STORE_LOCAL_REBUILD_H

#include "store/local/log.h"
#include "store/local/manifest.h"
#include "store/local/walk.h"

typedef struct once__rebuilt {
    uint64_t segments, frames, records, bytes;
    uint64_t damaged; /* frames with a damaged body: their keys answer with an error */
    uint64_t lost;    /* ranges that were passed over (only with `accept_lost`) */
    uint64_t torn;    /* ends that were cut */
} once__rebuilt_t;

typedef struct once__rebuild_config {
    int segments_fd;
    const once__disk_t *disk;
    uint8_t store_id[ONCE__STORE_ID_SIZE];
    uint8_t boot_id[ONCE__BOOT_ID_SIZE];
    unsigned threads; /* 0: one for each processor, at most 8 */
    int looks_only;   /* changes no file: torn ends stay, nothing is sealed or removed (fsck) */
    int accept_lost;  /* goes on behind ranges of which nobody knows whose frames they had (fsck) */
    /* Called now and then by one of the threads. NULL: not. */
    void (*progress)(void *data, uint64_t done_bytes, uint64_t all_bytes);
    /* Where to end in a segment: what was durable before it was read; UINT64_MAX: read all. NULL: all of each (fsck). */
    uint64_t (*limit)(void *data, uint64_t number);
    /*
     * Called at DAMAGED, LOST and TORN; with `walk` NULL if the file cannot be read, which `code` explains. By one thread at a
     * time. NULL: not. With this and `accept_lost`, a file that gives EIO is passed over as well (fsck).
     */
    void (*found)(void *data, uint64_t number, const once__walk_t *walk, int code);
    void *data;
    const once__manifest_t *manifest;
} once__rebuild_config_t;

/*
 * Fills `index`, which is empty and not published. Several threads read segments; each newest frame by version is entered. Sets the
 * clock. Seals what writers left. ONCE_OK; ONCE_E_CORRUPT, ONCE_E_IO, ONCE_E_FULL, ONCE_E_NOMEM, ONCE_E_NEWER: err names the
 * segment and what to do.
 */
int once__rebuild(once__index_t *index, const once__rebuild_config_t *config,
                  once__rebuilt_t *rebuilt, once_error_t *err);

/* The offset from CLOCK_BOOTTIME that gives the time of day, or `latest` + 1 if that is later. */
int64_t once__clock_after(uint64_t latest);

#endif
