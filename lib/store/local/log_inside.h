/*
 * The inside of a log, for those that work on it: log.c (appending), log_start.c (new segments), log_read.c (everybody's
 * segments), log_head.c (heads of records, where they stand), log_drop.c (the end of segments).
 */
#ifndef ONCE_STORE_LOCAL_LOG_INSIDE_H
#define ONCE_STORE_LOCAL_LOG_INSIDE_H

#include "store/local/log.h"
#include "store/local/template.h"
#include "store/local/window.h"

#define ONCE__SEAL_ROOM 64 /* kept free at the end of a segment, for the frame that seals */
#define ONCE__READERS   256

/* What is read is copied, a frame and those that it refers to. */
enum {
    ONCE__BUFFER_FRAME,
    ONCE__BUFFER_CLAIM,
    ONCE__BUFFER_TEMPLATE,
    ONCE__BUFFER_WHOLE,
    ONCE__BUFFERS
};

typedef struct once__segment {
    uint32_t number; /* 0: none */
    int fd;
    uint64_t size;
    uint64_t tail;   /* where the next frame goes */
    uint64_t synced; /* up to here */
    uint64_t ready;  /* up to here the blocks of the file were written before, if only with zeros */
} once__segment_t;

typedef struct once__reader {
    uint32_t number; /* 0: none */
    const uint8_t *map;
    uint64_t size;
    uint8_t *resident;    /* NULL, or a bit for each page that was in memory a moment ago */
    uint64_t resident_at; /* when that moment began */
} once__reader_t;

/* A place that another's segment must be synced up to. */
typedef struct once__mark {
    uint32_t number;
    uint64_t end;
} once__mark_t;

#define ONCE__MARKS 64

struct once__log {
    once__log_config_t config;
    once__segment_t active;
    /* finished since the last sync: all of it is written, and must be synced, too */
    once__segment_t rolled;
    once__window_t *window; /* of the active segment; NULL when there is none */
    uint64_t next_size;
    once__reader_t readers[ONCE__READERS]; /* by number */
    uint64_t never_wait; /* since when reads give up that would wait for the disk; 0: they wait */
    once__templates_t templates; /* of the active segment */
    struct {
        uint8_t *bytes;
        size_t size;
    } buffers[ONCE__BUFFERS];
    uint64_t syncs;
    uint32_t kept; /* a segment that it is not worth to carry, with */
    int64_t kept_records;
    uint32_t dropping; /* a segment that goes when the marks are reached; 0: none */
    unsigned mark_count;
    once__mark_t marks[ONCE__MARKS];
    int stuck; /* the disk did not take what is in the window */
    int failed;
    _Atomic int outdated; /* once__log_is_outdated */
};

/* All of it, to a segment's file. 0, or -1 and errno. */
int once__log_write(const once__log_t *log, int fd, const void *bytes, uint64_t len,
                    uint64_t offset);

/* One sync of a file or of segments/. A failure is final: ONCE_E_IO, and the log has failed. */
int once__log_sync_fd(once__log_t *log, int fd);
int once__log_sync_directory(once__log_t *log);

/* Maps a segment for reading, or finds it mapped; another one may lose its mapping for that. */
int once__log_find_reader(once__log_t *log, uint32_t number, once__reader_t **out);

/*
 * Is the frame in memory? Otherwise a look into the mapping would wait for the disk, and end in a SIGBUS where the disk
 * cannot read, or where somebody has cut the file short. So many bytes of it as may be looked at; 0: none.
 */
uint64_t once__log_at_hand(const once__log_t *log, once__reader_t *reader, uint64_t offset);

/* Makes a segment of `size` the active one. ONCE_OK, ONCE_E_FULL, ONCE_E_IO, ONCE_E_CORRUPT if the log is outdated. */
int once__log_start(once__log_t *log, uint64_t size);

/*
 * Locks the segments, and finishes what somebody began who was killed while he had the lock: a file that has a number which
 * the index does not know, a file that is still there though its segment was dropped.
 */
void once__log_lock_segments(once__log_t *log);

/*
 * Says durably that the segments from `first` to `last` must exist. Locked, behind the sync that brings the newest one to the
 * directory, and before the oldest one goes. ONCE_OK, ONCE_E_FULL, ONCE_E_IO.
 */
int once__log_set_extent(once__log_t *log, uint32_t first, uint32_t last);

/* Writes the frame that seals a segment of `size` bytes behind its last one. Everything before is synced. */
void once__log_write_seal(const once__log_t *log, int fd, once__place_t end, uint64_t size);

/* Syncs and seals our segment, so that we have none. ONCE_OK or ONCE_E_IO. */
int once__log_retire(once__log_t *log);

/* Takes over what a writer left who is gone: syncs and seals it, so that it counts. 1 when nobody will append any more. */
int once__log_seal_dead(once__log_t *log, uint32_t number);

/* What errno means to whoever wanted to write. */
int once__log_errno(void);

#endif
