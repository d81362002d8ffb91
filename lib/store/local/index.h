/*
 * The index: where the newest frame of each record is. A mapping that every user of the store shares (docs/format.md).
 *
 * Invariants, for whoever is killed at any instruction:
 *  - an entry is changed by one 8-byte store; a table is replaced by one 8-byte store of its shard's `table` word;
 *  - an entry is written only under its shard's lock; the lock is robust, and its data needs no repair;
 *  - an entry points to a frame that is complete, in its segment's file or in its window;
 *  - whoever is killed between writing a frame and its entry leaves a frame that only a rebuild sees. The next one who locks the
 *    shard is told, and from then on its records are written to segments behind that frame (once__index_floor).
 */
#ifndef ONCE_STORE_LOCAL_INDEX_H
#define ONCE_STORE_LOCAL_INDEX_H

#include <pthread.h>
#include <stdatomic.h>

#include "store/local/frame.h"

#define ONCE__SHARDS       1024u
#define ONCE__RING         16384u /* live segments at most */
#define ONCE__SEGMENT_MAX  ((1u << 24) - 1)
#define ONCE__OFFSET_LIMIT ((uint64_t)1 << 31)

typedef enum once__segment_state {
    ONCE__SEGMENT_NONE,   /* never used, or dropped */
    ONCE__SEGMENT_ACTIVE, /* its writer may still append */
    ONCE__SEGMENT_SEALED, /* complete and synced */
} once__segment_state_t;

/* What everybody must know of a segment. Found at ring[number % ONCE__RING]. */
typedef struct once__segment_info {
    _Atomic uint32_t number;
    _Atomic uint32_t state;
    _Atomic uint64_t synced;      /* frames before this offset are durable */
    _Atomic uint64_t last_expiry; /* when everything in it may go, except what hold keeps */
    _Atomic uint64_t frames;      /* written to it */
    _Atomic int64_t current;      /* records whose newest frame is here */
    _Atomic int64_t held;         /* those of them that are pending or unknown */
    uint64_t size;
    uint16_t other_boot;      /* leases in it are over */
    _Atomic uint16_t suspect; /* a sync of it failed: what the cache holds may not be on the disk */
    _Atomic uint32_t window;  /* page of its window (window.h); 0: all of it is in the file */
} once__segment_info_t;

typedef struct once__index once__index_t;

/* An entry, unpacked. */
typedef struct once__entry {
    once__place_t place;
    uint8_t state; /* once_state_t */
} once__entry_t;

typedef struct once__index_stats {
    uint64_t entries;     /* live ones */
    uint64_t table_bytes; /* of all tables */
    uint64_t damaged;     /* ranges in quarantine */
} once__index_stats_t;

/*
 * Maps the index of the directory `fd`. `fresh`: makes a new one (the caller has the store to himself). ONCE_E_CORRUPT: there
 * is none that can be used as it is, make a fresh one; ONCE_E_FULL; ONCE_E_IO; ONCE_E_NOMEM.
 */
int once__index_open(once__index_t **index, int directory_fd,
                     const uint8_t boot_id[ONCE__BOOT_ID_SIZE], int fresh, once_error_t *err);
void once__index_close(once__index_t *index);

/* Is there an index that can be shared as it is: complete, of this version and this boot? Changes nothing. 1 or 0. */
int once__index_is_current(int directory_fd, const uint8_t boot_id[ONCE__BOOT_ID_SIZE]);

/*
 * Has the file still all that is in use of it, and is it still the one that counts? Somebody may have cut it short, and
 * then the next look into it would be a SIGBUS; or made another one, because he could not see that we are here. Costs
 * one system call. 1 or 0.
 */
int once__index_is_whole(const once__index_t *index, int directory_fd);

/*
 * From now on the index is in use (and, when fresh, complete). Before anything is changed: every one who adds or drops a
 * segment calls it, it costs nothing when it is so already. ONCE_OK or ONCE_E_IO.
 */
int once__index_mark_used(once__index_t *index);

/*
 * A clean end: the caller has the store to himself. The index is then usable by the next boot, too. ONCE_E_CONFLICT: there are
 * segments that are not sealed, the next boot must read them. ONCE_E_IO.
 */
int once__index_mark_clean(once__index_t *index);

/*
 * Is it another one than the clean end left? An entry that was changed on the disk would make its key count as never used.
 * Only while it is clean, before mark_used: 0 otherwise. Costs a reading of all entries.
 */
int once__index_has_changed(const once__index_t *index);

/* After a clean end nobody holds a lock, whatever the file says. Only by who is alone with it; does nothing if it is not clean. */
void once__index_free_locks(once__index_t *index);

/* The store's clock: CLOCK_BOOTTIME plus the shared offset. */
uint64_t once__index_now(const once__index_t *index);
/* Fixes the offset so that the clock is at least `at_least`. Only on a fresh index or in a new boot. */
void once__index_start_clock(once__index_t *index, uint64_t at_least);

/*
 * Segments are added and dropped under this lock. lock tells whether the one before was killed in the middle: then a segment's
 * file may exist already under the next number.
 */
int once__index_lock_segments(once__index_t *index);
void once__index_unlock_segments(once__index_t *index);
/* The number that the next segment will have. 0: there are none left, or too many live ones. */
uint32_t once__index_next_segment(const once__index_t *index);
void once__index_add_segment(once__index_t *index, uint32_t number, once__segment_state_t state,
                             uint64_t size, int other_boot);

/* The next number is at least this one: after a rebuild, when files of dropped segments are still there. */
void once__index_start_segments(once__index_t *index, uint32_t at_least);

/* Until when a frame must be kept: 0 when that alone does not keep it (pending and unknown under hold are carried). */
uint64_t once__index_kept_until(const once__head_t *head);

/* A frame was written to the segment (head NULL: of a removed record): until when must it be kept? By its writer only. */
void once__index_note_frame(once__index_t *index, uint32_t number, const once__head_t *head);

once__segment_info_t *once__index_segment(const once__index_t *index, uint32_t number);
/* Numbers from the oldest live segment to one past the newest. */
uint32_t once__index_first_segment(const once__index_t *index);
uint32_t once__index_end_segment(const once__index_t *index);
void once__index_set_first_segment(once__index_t *index, uint32_t number);

void once__index_count_damage(once__index_t *index);
void once__index_stats(const once__index_t *index, once__index_stats_t *stats);

/* Records that there are, and bytes of the files of the log. Costs a look at each segment: takes no lock, asks no disk. */
void once__index_usage(const once__index_t *index, uint64_t *records, uint64_t *bytes);

/* ---- one record: lock its shard, look, perhaps set, unlock ---- */

void once__index_lock(once__index_t *index, const uint8_t *id);
int once__index_try_lock(once__index_t *index, const uint8_t *id); /* 1, or 0: somebody has it */
void once__index_unlock(once__index_t *index, const uint8_t *id);

/*
 * Goes through the live entries that may be of this record: there is more than one only when two ids have 74 bits in common.
 * `cursor` starts at 0. 1 and the entry, or 0: no more.
 */
int once__index_find(const once__index_t *index, const uint8_t *id, uint64_t *cursor,
                     once__entry_t *entry);

/*
 * The first of them without a lock. What was read where it points to counts only if it holds afterwards: then the entry was there
 * all the time, in the table that counts, and so was its segment, whose bytes do not change while it is there.
 */
typedef struct once__peek {
    once__entry_t entry;
    const struct once__shard *shard;
    const struct once__slot *slot;
    uint64_t table, where; /* as they were */
} once__peek_t;

int once__index_peek(const once__index_t *index, const uint8_t *id, once__peek_t *peek);
int once__index_peek_holds(const once__index_t *index, const once__peek_t *peek);

/*
 * Frames of this record that the index does not know may be in segments up to this number: of what was removed, or of somebody
 * who was killed. The next frame must not go before it, or a rebuild would take the older one for the newest.
 */
uint32_t once__index_floor(const once__index_t *index, const uint8_t *id);

/* Hints that the record will be looked for soon: first where its shard is, then where its entry must be. */
void once__index_expect_shard(const once__index_t *index, const uint8_t *id);
void once__index_expect(const once__index_t *index, const uint8_t *id);
/* The same for who will change nothing there: then two can look without taking it from each other. */
void once__index_expect_shard_to_peek(const once__index_t *index, const uint8_t *id);
void once__index_expect_to_peek(const once__index_t *index, const uint8_t *id);

/* Room for one new entry in the record's shard. ONCE_OK, ONCE_E_FULL. Invalidates cursors of this shard. */
int once__index_make_room(once__index_t *index, const uint8_t *id);

/*
 * Sets the entry of the record: the one that find gave last with `cursor` when `replace`, else a new one, for which there must
 * be room. `state` ONCE_STATE_NONE removes it; `place` is then where that was written down, if anywhere.
 */
void once__index_set(once__index_t *index, const uint8_t *id, uint64_t cursor, int replace,
                     const once__entry_t *entry);

/* Can the locks of all shards be taken and given back? Waits some seconds where one is held. 1 or 0: they are damaged. */
int once__index_locks_are_sound(once__index_t *index);

/* ---- all records, shard by shard ---- */

typedef struct once__shard_entry {
    uint64_t key; /* hash and tag: what the order of a scan goes by */
    once__entry_t entry;
} once__shard_entry_t;

/* Copies the live entries of a shard (malloc'd, sorted by key). ONCE_OK or ONCE_E_NOMEM. */
int once__index_shard(once__index_t *index, uint32_t shard, once__shard_entry_t **entries,
                      size_t *count);

/* The same of those that are in this segment, in no order: much less work where they are few. */
int once__index_shard_of(once__index_t *index, uint32_t shard, uint32_t segment,
                         once__shard_entry_t **entries, size_t *count);

#endif
