/*
 * The log: a writer appends frames to segments of its own, readers read frames of all segments.
 *
 * Rules:
 *   L-1  nothing here waits for a disk or for a lock of others under a shard's lock, except where a function says so. Under the
 *        lock: once__log_append, once__reader_read with `now`, once__log_is_durable
 *   L-2  a segment gets frames only when its name and its entry in the manifest are durable
 *   L-3  what is behind `synced` of a segment was never acknowledged to anybody
 *   L-4  a failed write or sync (other than a full disk) is final for its writer
 */
#ifndef ONCE_STORE_LOCAL_LOG_H
#define ONCE_STORE_LOCAL_LOG_H

#include "store/disk.h"
#include "store/local/index.h"
#include "store/local/frame.h"

/* Of most write buffers. */
#define ONCE__BUFFER_ROOM (((uint64_t)256 << 10) - sizeof(once__buffer_t))

/*
 * The write buffer of a segment: its newest frames, in pages of the index, so that it outlives a writer that is killed. Written by
 * one process: the writer of the segment, or the one that has its flock() after that. The order of steps:
 *  - append: the frame, then `staged`, then the entry;
 *  - write: the file, then `written`; only then may `from` move on and the bytes be used again. The newest frames stay. Or another
 *    buffer takes its place: a larger one for a frame that is larger, and the usual one when that is full.
 */
typedef struct once__buffer {
    _Atomic uint64_t number;  /* of the segment */
    _Atomic uint64_t from;    /* where in the segment `bytes` begins */
    _Atomic uint64_t written; /* the file has what is before this offset */
    _Atomic uint64_t staged;  /* whole frames are here up to this one */
    _Alignas(64) uint8_t bytes[];
} once__buffer_t;

/* The segment's buffer, and how many bytes it has room for; NULL: it has none. */
once__buffer_t *once__buffer_of(const once__index_t *index, uint32_t slot, uint64_t *room);

typedef struct once__log_config {
    int segments_fd; /* stays the caller's */
    once__index_t *index;
    const once__disk_t *disk;
    uint64_t segment_size; /* of a full-grown segment */
    uint64_t max_bytes; /* segments are small where larger ones would go beyond it; 0: any size */
    uint8_t boot_id[ONCE__BOOT_ID_SIZE];
    uint8_t store_id[ONCE__STORE_ID_SIZE];
} once__log_config_t;

/* ---- segment files (segment.c) ---- */

#define ONCE__SEGMENT_NAME 32
void once__segment_name(char out[ONCE__SEGMENT_NAME], uint64_t number); /* XXXXXXXXXXXXXXXX.log */
int once__segment_number(const char *name, uint64_t *number); /* 1, or 0: not such a name */

/* A segment that a writer has. */
typedef struct once__own {
    uint32_t slot; /* meaningful if `fd` is */
    int fd;        /* -1: none */
    uint64_t number, word, size;
    uint64_t start;  /* of the first frame */
    uint64_t tail;   /* where the next frame goes */
    uint64_t synced; /* up to here */
    uint64_t last;   /* offset of the last frame that was appended; 0: none */
    uint64_t zeros;  /* up to here the blocks of the file were written before, if only with zeros */
    uint64_t ready;  /* up to here that is durable: frames go no further */
    once__dictionary_t *dictionary; /* NULL: none */
    once__buffer_t *buffer;
    uint64_t room; /* in it */
} once__own_t;

/* An empty buffer for frames of `bytes`; all of the one that it has is in the file. ONCE_OK, ONCE_E_FULL, ONCE_E_NOREPLY. */
int once__own_buffer(once__index_t *index, once__own_t *own, uint64_t bytes);

/* Lets go of file, lock and dictionary. The segment stays as it is, and so does its buffer: others can take it over. */
void once__own_release(once__own_t *own);

/* Writes zeros ahead of frames that will end at `to`. 0, or -1 and errno. */
int once__own_prepare(const once__log_config_t *config, once__own_t *own, uint64_t to);

/* Opens the file of a segment. A descriptor, or -1 and errno. */
int once__segment_open(const once__log_config_t *config, uint64_t number, int flags);

/* What others know of a segment of this boot that its writer may append to at `tail`. */
void once__segment_publish(once__segment_t *segment, const once__segment_header_t *header,
                           uint64_t tail);

/*
 * Makes a segment of `size` bytes: file, header, name, manifest, all durable; takes its flock(); state ACTIVE. `sampled`: when the
 * dictionary was taken; it is left out if texts were erased since. Waits for the disk;
 * no lock is held meanwhile. ONCE_OK; ONCE_E_FULL, ONCE_E_IO, ONCE_E_NOREPLY, ONCE_E_NOMEM, ONCE_E_CORRUPT (there is a segment with
 * this number: the index is older than the log): nothing is left behind but perhaps a file without frames.
 */
int once__segment_make(const once__log_config_t *config, uint64_t size, const uint8_t *dictionary,
                       size_t dictionary_len, uint64_t sampled, once__own_t *own);

/*
 * Everything in it is durable: writes the last frame, cuts the file, gives the buffer back, state SEALED, lets go of the file. If
 * the frame cannot be written, the state stays ACTIVE: once__segment_take_over tries again.
 */
void once__segment_seal(const once__log_config_t *config, once__own_t *own);

/*
 * Locks the set of segments: LOCK_SH to drop one, LOCK_EX to need all of them for a while (fsck, backup). ONCE_OK;
 * ONCE_E_CONFLICT: others have it, for `wait_ms` by now; ONCE_E_FULL, ONCE_E_IO.
 */
int once__segments_lock(int segments_fd, int how, unsigned wait_ms, int *lock);
/* Lets go and closes the descriptor of a file that is locked by flock(), unless it is -1. */
void once__segments_unlock(int lock);

/*
 * Drops a segment that no entry leads to: manifest, file, slot. ONCE_OK, ONCE_E_CONFLICT (fsck or backup: later), ONCE_E_IO,
 * ONCE_E_FULL, ONCE_E_NOREPLY. The caller has the flock() of its file, or there is no file: then several may come here with it.
 */
int once__segment_drop(const once__log_config_t *config, uint32_t slot, uint64_t number);

/* The file of a segment in state ACTIVE is gone. Frees the slot if its writer was killed while it dropped it, without frames. */
void once__segment_finish_drop(const once__log_config_t *config, uint32_t slot, uint64_t number);

/* Removes a segment in state PREPARING, if the process that made it is gone. */
void once__segment_discard_unfinished(const once__log_config_t *config, uint32_t slot);

/*
 * Takes over what a killed writer left: brings its buffer to the file, enters frames that are newer than the index has them
 * (locking shards one by one, waiting up to a tenth of a second each), syncs and seals. 1: the segment is sealed now (or was
 * already, or is gone); 0: its writer lives, or a lock could not be had, or the disk fails. Waits for the disk; the
 * caller has no shard locked.
 */
int once__segment_take_over(const once__log_config_t *config, uint32_t slot);
/* All that killed writers left, but for the slot `own` of the caller (UINT32_MAX: it has none). */
void once__segments_take_over(const once__log_config_t *config, uint32_t own);

/* ---- the manifest (manifest.c) ---- */

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
int once__manifest_read(once__manifest_t *manifest, const once__log_config_t *log);
void once__manifest_free(once__manifest_t *manifest);
int once__manifest_is_live(const once__manifest_t *manifest, uint64_t number);
int once__manifest_is_dropped(const once__manifest_t *manifest, uint64_t number);

/*
 * Appends an entry, durably. Several processes may do so at a time: a flock() on the file is held for the write, not for the
 * syncs. ONCE_OK; ONCE_E_FULL and ONCE_E_NOREPLY (the lock could not be had within a second): the entry is not in the file;
 * ONCE_E_IO: it may be.
 */
int once__manifest_add(const once__log_config_t *log, uint64_t number);
int once__manifest_drop(const once__log_config_t *log, uint64_t number);

/*
 * Writes it anew with these live segments, through manifest.new, so that numbers below `next` are not used again. Only
 * by a process that is alone with the store; files of dropped segments were removed before. ONCE_OK, ONCE_E_FULL, ONCE_E_IO,
 * ONCE_E_NOMEM.
 */
int once__manifest_write(const once__log_config_t *log, const uint64_t *live, size_t count,
                         uint64_t next);

int once__compare_numbers(const void *a, const void *b); /* of type uint64_t, for qsort */

/* ---- appending (log.c): one thread ---- */

typedef struct once__log once__log_t;

uint64_t
once__log_first_size(uint64_t segment_size); /* of a process's first segment: no other is smaller */
once__log_t *once__log_open(const once__log_config_t *config); /* NULL: out of memory */
int once__log_close(
    once__log_t *log); /* syncs, seals, frees. ONCE_OK, or why it could not be sealed */
void once__log_abandon(once__log_t *log); /* frees memory and descriptors only */

/*
 * Makes room for frames of `bytes` in all (with padding) in the segment and in the buffer. May write, sync and
 * make a segment: no shard is locked. ONCE_OK, ONCE_E_FULL, ONCE_E_IO, ONCE_E_TOO_BIG, ONCE_E_NOREPLY.
 */
int once__log_reserve(once__log_t *log, uint64_t bytes);

/*
 * Appends a frame for `record` (NULL: removed) with this version; `since` 0: none. Memory only: once__log_reserve came before.
 * ONCE_OK and where it is and its size; ONCE__E_ROOM: no room: unlock, reserve *size bytes, and decide again.
 */
#define ONCE__E_ROOM (-1000) /* inside the local store only */
int once__log_append(once__log_t *log, const uint8_t *id, const once__record_t *record,
                     uint64_t version, uint64_t since, once__place_t *place, uint32_t *size);

/* Would a frame for `record` go into the segment that the writer has? */
int once__log_fits(const once__log_t *log, const once__record_t *record);

/*
 * Makes everything durable that was appended: one write and one sync. ONCE_OK; ONCE_E_FULL: the disk takes no more, nothing was
 * synced, the next sync tries again; ONCE_E_IO.
 */
int once__log_sync(once__log_t *log);
int once__log_failed(const once__log_t *log);

/* Syncs and seals the segment, so that the writer has none. */
int once__log_retire(once__log_t *log);

/* Lets go of samples and segments that may have texts that were erased. By the thread that appends, between two batches. */
void once__log_renew(once__log_t *log);

/* The slot that the writer appends to; UINT32_MAX: none. What it wrote to earlier segments is durable. */
uint32_t once__log_slot(const once__log_t *log);

/* ---- erasing (erasing.c) ---- */

/* What a process is about to erase. Its thread that decides has it. */
typedef struct once__erasing {
    int fd;         /* the file, with a shared flock(); -1: not open */
    uint64_t from;  /* noted and not begun: erased is what was written from this version on */
    uint64_t until; /* what was written up to this time is being cleared away; 0: nothing */
    uint64_t size;  /* of the notes that go with it; UINT64_MAX: they stay */
} once__erasing_t;

#define ONCE__ERASING_NONE ((once__erasing_t){.fd = -1, .from = UINT64_MAX})

/*
 * Notes, durably, that texts are erased which were written from this version on: before the frame that takes their place. So a
 * process that is killed before they are cleared away leaves word. Waits for the disk. ONCE_OK, ONCE_E_FULL, ONCE_E_IO,
 * ONCE_E_CONFLICT.
 */
int once__erasing_note(once__erasing_t *erasing, const once__log_config_t *log, uint64_t from);

/*
 * Begins to clear away what was noted, or goes on: from now on segments that were written since then are let go of by their
 * writers, and compacted. If there is none left, the note goes, and *is_over is 1. Waits for the disk. Codes as above.
 */
int once__erasing_begin(once__erasing_t *erasing, const once__log_config_t *log, int *is_over);
void once__erasing_close(once__erasing_t *erasing);

/* May the segment have texts that are to be cleared away? */
int once__erasing_concerns(const once__index_t *index, const once__segment_t *segment);
/* How many may, those that are just being made included; *damaged of them cannot be compacted. */
uint64_t once__erasing_left(const once__index_t *index, uint64_t *damaged);

/* ---- places ---- */

static inline int once__is_same_place(once__place_t a, once__place_t b)
{
    return a.slot == b.slot && a.offset == b.offset;
}

static inline int once__log_is_durable(const once__index_t *index, once__place_t place)
{
    return place.offset < atomic_load_explicit(&once__index_segment(index, place.slot)->synced,
                                               memory_order_acquire);
}

/* Is what the frame says durable, there or elsewhere? */
static inline int once__is_settled(const once__index_t *index, once__place_t place)
{
    return once__log_is_durable(index, place) ||
           atomic_load(&once__index_segment(index, place.slot)->copies);
}

/* ---- reading whole segments (reader.c) ---- */

/* A segment's file in memory. */
typedef struct once__image {
    uint8_t *data; /* malloc'd; may be one allocation that is used again for the next segment */
    uint64_t size;
    uint64_t room;
    uint64_t end; /* of what is looked at: `size`, or less for a segment that is being written */
    once__segment_header_t header;
    const uint8_t *dictionary; /* NULL: there is none, or it is damaged */
    int salvage; /* a page that the disk cannot read is zeros, not ONCE_E_IO: for repair */
} once__image_t;

/*
 * Reads a whole segment with read calls (a disk that fails is an error, never a signal). `image` is zeroed at first, and may be
 * used again. ONCE_OK; ONCE_E_CORRUPT: the header is damaged, of another number or another store, or the file is longer than it was
 * made (data and size are set); ONCE_E_NEWER; ONCE_E_NOT_FOUND; ONCE_E_IO; ONCE_E_NOMEM; ONCE_E_CONFIG: it belongs to another user
 * than the directory, or is not a file. Of a segment that is being written, lower image->end to what was durable before.
 */
int once__image_read(once__image_t *image, const once__log_config_t *log, uint64_t number);
/* The same, but of the frames only what is from `from` to `to`. */
int once__image_read_part(once__image_t *image, const once__log_config_t *log, uint64_t number,
                          uint64_t from, uint64_t to);
void once__image_free(once__image_t *image);

/* Has it no frame but the one that seals? ONCE_OK; ONCE_E_CORRUPT: it has, or it is damaged; else as once__image_read. */
int once__segment_is_empty(const once__log_config_t *log, uint64_t number);

typedef enum once__walk_kind {
    ONCE__WALK_FRAME, /* a valid frame; also fillers; not the one that seals */
    /* A frame with a valid head and a damaged body, or compressed with a damaged dictionary. */
    ONCE__WALK_DAMAGED,
    /*
     * Bytes from offset to `end` that were synced, and nobody knows whose frames they had. Empty: the file was cut (it is
     * shorter than it was made and does not end with the frame that seals).
     */
    ONCE__WALK_LOST,
    ONCE__WALK_TORN,   /* bytes from offset on that were never synced: the walk ends here */
    ONCE__WALK_SEALED, /* the frame that seals: the walk ends here, `end` is behind it */
    ONCE__WALK_END,    /* nothing more was written: the walk ends here */
} once__walk_kind_t;

typedef struct once__walk {
    const once__image_t *image;
    uint64_t synced; /* what is known, from elsewhere or from frames that were looked for */
    uint64_t offset; /* of what was found last */
    uint64_t end;    /* behind it */
    once__walk_kind_t kind;
    once__frame_t frame; /* FRAME, DAMAGED, SEALED */
    int is_over;
} once__walk_t;

/* `synced`: up to here the segment is known to be synced (from the index); 0: not known; UINT64_MAX: it is sealed. */
void once__walk_begin(once__walk_t *walk, const once__image_t *image, uint64_t synced);
/* The next step. 1, or 0: there is none (behind TORN, SEALED or END, or behind LOST at the end). */
int once__walk_next(once__walk_t *walk);
/* Can what was found be used? ONCE_OK; ONCE_E_CORRUPT: DAMAGED, LOST, or its record has a wrong head; ONCE_E_NEWER: its schema. */
int once__walk_code(const once__walk_t *walk);

/* ---- reading single frames (reader.c): one thread each ---- */

typedef struct once__reader once__reader_t;

once__reader_t *once__reader_open(const once__log_config_t *config); /* NULL: out of memory */
void once__reader_close(once__reader_t *reader);

/*
 * Reads the frame at `place` into memory of the reader's, valid until its next read. `now`: without waiting for the disk.
 * ONCE_OK; ONCE_E_UNAVAILABLE: `now`, and it is not in memory; ONCE_E_CORRUPT: damaged (frame->version, id, state, size are right
 * if frame->kind is not 0); ONCE_E_NOT_FOUND: the segment is gone; ONCE_E_IO; ONCE_E_NOMEM.
 */
int once__reader_read(once__reader_t *reader, once__place_t place, int now, once__frame_t *frame);

/* The record of the frame that was read last from `place`. Leases of another boot are over. Codes as once__unpack. */
int once__reader_record(once__reader_t *reader, once__place_t place, const once__frame_t *frame,
                        once__record_t *record);

/* What the index counts of a frame whose entry has this state. */
once__weight_t once__frame_weight(const once__frame_t *frame, uint8_t state);

/* Closes the files of segments that were dropped. */
void once__reader_forget(once__reader_t *reader);

#endif
