/*
 * The index: where the newest frame of each record is. Memory that every user of the store shares (docs/format.md, "The index").
 *
 * What holds whenever a shard's lock is free, whichever process was killed at whatever instruction:
 *   X-1  each record that has a frame in the log has exactly one entry, and it leads to a complete frame of that record, in the
 *        file of its segment or in its write buffer. (A frame that a killed writer staged without entering it is entered by the
 *        process that takes its segment over.)
 *   X-2  the segment of an entry is in the table of segments: it is dropped only when no entry leads to it
 *   X-3  the last version of a shard is at least that of every frame of its records
 *   X-4  an entry is changed by one 8-byte store, a table is replaced by one 8-byte store
 *   X-5  the counts of a segment (entries, live bytes) are never too low: a killed process may leave them too high, which costs a
 *        useless compaction
 */
#ifndef ONCE_STORE_LOCAL_INDEX_H
#define ONCE_STORE_LOCAL_INDEX_H

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "store/local/frame.h"

#define ONCE__SHARDS        1024u
#define ONCE__SLOTS         16384u /* live segments at most */
#define ONCE__CLASSES       8      /* of live bytes, by expiry */
#define ONCE__INDEX_PAGE    4096u
#define ONCE__INDEX_VIEW    ((uint64_t)1 << 36) /* addresses set aside: the file grows into them */
#define ONCE__INDEX_PAGES   ((uint32_t)(ONCE__INDEX_VIEW / ONCE__INDEX_PAGE))
#define ONCE__BITS_PAGE     (ONCE__INDEX_PAGE * 8u) /* pages that one page of bits is about */
#define ONCE__FIRST_ENTRIES 32u                     /* of a shard's first table */
#define ONCE__INDEX_WAIT_MS 1000u /* for a lock that is held for work in memory only */

/* Words that other threads and processes may look at meanwhile. */
#define once__load(word)         atomic_load_explicit(word, memory_order_relaxed)
#define once__store(word, value) atomic_store_explicit(word, value, memory_order_release)

typedef enum once__segment_state {
    ONCE__SEGMENT_FREE,      /* no segment has this slot */
    ONCE__SEGMENT_PREPARING, /* the file is being made: not in the manifest, no frames */
    ONCE__SEGMENT_ACTIVE,    /* its writer may append */
    ONCE__SEGMENT_SEALED,    /* complete and synced */
} once__segment_state_t;

/* What all processes know of a segment. */
typedef struct once__segment {
    _Alignas(64) _Atomic uint64_t number; /* 0: none */
    _Atomic uint32_t state;               /* once__segment_state_t */
    uint32_t dictionary_len;
    uint64_t word;
    uint64_t size;
    uint64_t created;
    _Atomic uint64_t tail;   /* where its frames end so far */
    _Atomic uint64_t synced; /* frames before this are durable; UINT64_MAX: all are (sealed) */
    _Atomic uint64_t
        last; /* the last frame before `synced`, the one that seals included; 0: none */
    _Atomic uint64_t first_version, last_version; /* of its frames; 0: none */
    _Atomic int64_t entries;                      /* that lead here */
    struct {
        _Atomic int64_t bytes;  /* of newest frames */
        _Atomic uint64_t until; /* when the last of them expires; UINT64_MAX: never */
    } live[ONCE__CLASSES];
    _Atomic uint64_t buffer;  /* (log.h) pages << 32 | the first; 0: all of it is in the file */
    _Atomic uint16_t damaged; /* it has damage: it is neither compacted nor dropped */
    uint16_t other_boot;      /* leases in it are over */
    _Atomic uint16_t copies;  /* compaction writes it: what its frames say is durable elsewhere */
} once__segment_t;

/* Where a frame is. */
typedef struct once__place {
    uint32_t slot; /* of the segment */
    uint64_t offset;
} once__place_t;

typedef struct once__entry {
    once__place_t place;
    uint8_t state; /* once_state_t; NONE: removed, the frame is of kind removed */
} once__entry_t;

/* An entry of a table. `where` 0: empty. */
typedef struct once__cell {
    _Atomic uint64_t key;
    _Atomic uint64_t where; /* tag 17 bits, slot 16, offset / 8 28, state 3 */
} once__cell_t;

typedef struct once__shard {
    _Alignas(64) pthread_mutex_t lock;
    _Atomic uint64_t table; /* offset / 16 in the upper 40 bits, number of cells in the lower 24 */
    _Atomic uint64_t version; /* the last one that was given */
    _Atomic uint32_t used;    /* cells that are not empty, or more */
    _Atomic uint32_t records; /* entries of a state other than NONE */
} once__shard_t;

/* Which index it is. Two processes must agree on all of it but the last two before one looks at the rest of what the other made. */
typedef struct once__index_label {
    uint64_t magic;
    /* Version, sizes of header, mutex, page and pointer, C library, and the namespaces of pids and of time. */
    uint64_t abi[8];
    uint8_t store_id[ONCE__STORE_ID_SIZE];
    uint8_t boot_id[ONCE__BOOT_ID_SIZE];
    uint64_t device, inode; /* of the store's segments/ */
    uint64_t identity;      /* random */
    char segments[2048];    /* path of segments/; empty: not known */
} once__index_label_t;

/* As it lies in memory. */
typedef struct once__index_header {
    once__index_label_t label;
    _Atomic int64_t clock_offset;
    _Atomic uint64_t next_number;
    _Atomic uint64_t erased_from,
        erased_until; /* erasing.c: a version, and a time; 0: nothing was */
    /*
     * A process that is alone marks the index before it compares it with the log, and takes the mark away when both agree: one
     * that comes in between must not use it.
     */
    _Atomic uint32_t doubted;
    _Atomic uint32_t slot_end;   /* one past the highest slot in use */
    _Atomic uint32_t slot_limit; /* slots that have memory behind them */
    pthread_mutex_t slot_lock, page_lock;
    _Atomic uint64_t page_limit; /* pages whose bits have memory behind them */
    _Atomic uint64_t end;        /* the file is at least as long */
    _Atomic uint64_t view;       /* the smallest of all users: the file does not grow beyond it */
    _Alignas(64) once__shard_t shards[ONCE__SHARDS];
    once__cell_t first_tables[ONCE__SHARDS][ONCE__FIRST_ENTRIES];
    /* These two get memory as far as they are used. */
    _Alignas(ONCE__INDEX_PAGE) once__segment_t segments[ONCE__SLOTS];
    _Alignas(ONCE__INDEX_PAGE) _Atomic uint64_t page_bits[ONCE__INDEX_PAGES / 64]; /* 1: in use */
} once__index_header_t;

typedef struct once__index {
    once__index_header_t *map;
    uint64_t view;     /* bytes that are mapped */
    int fd;            /* -1: memory of this process alone */
    int directory_fd;  /* likewise */
    int is_named;      /* it has its name; else the temporary one */
    char name[64];     /* once-STORE_ID-BOOT */
    char new_name[64]; /* until it is published */
} once__index_t;

typedef struct once__index_config {
    const char *directory; /* a tmpfs; NULL: memory of this process alone */
    const char *store;     /* its path, for the removal of indexes without a store */
    int store_fd;          /* of its segments/: the index remembers device and inode */
    uint8_t store_id[ONCE__STORE_ID_SIZE];
    uint8_t boot_id[ONCE__BOOT_ID_SIZE];
    uid_t owner; /* of the file: that of the store's directory */
} once__index_config_t;

/* `/dev/shm`, if it is a tmpfs that can be written to; else another that is; NULL: none. */
const char *once__index_default_directory(void);

/*
 * Makes a new, empty index under a temporary name; once__index_publish gives it its name, over one that is there. Also removes
 * indexes in that directory whose store is gone. ONCE_E_FULL, ONCE_E_IO, ONCE_E_NOMEM, ONCE_E_CONFIG (not a tmpfs, no rights): err
 * says what to do.
 */
int once__index_create(once__index_t **index, const once__index_config_t *config,
                       once_error_t *err);
int once__index_publish(once__index_t *index, once_error_t *err);

/*
 * Maps the one that is there. ONCE_E_NOT_FOUND: there is none of this store and boot, or it is of another ABI or version or of
 * another directory (a copy of the store); ONCE_E_CONFIG: it belongs to another user, or others may write to it.
 */
int once__index_attach(once__index_t **index, const once__index_config_t *config,
                       once_error_t *err);

void once__index_close(once__index_t *index);
void once__index_remove(once__index_t *index); /* its name: by a process that is alone */
/*
 * Is it still the one that counts? 0: another one has its name (made by a process that could not see this one), or the file was
 * cut. One that was only unlinked goes on being used. Costs one system call.
 */
int once__index_is_named(const once__index_t *index);

/* A random number: two indexes of one store have different ones. */
static inline uint64_t once__index_identity(const once__index_t *index)
{
    return index->map->label.identity;
}

uint64_t once__index_bytes(const once__index_t *index);   /* of memory */
uint64_t once__index_entries(const once__index_t *index); /* records, without the removed */

/* Locks a robust mutex; `wait_ms` 0: tries only. ONCE_OK, or ONCE_E_NOREPLY. *died (may be NULL): its holder was killed. */
int once__index_lock_mutex(pthread_mutex_t *mutex, uint32_t wait_ms, int *died);

/* ---- clock and versions ---- */

/* Milliseconds of the store's clock: that of the system since its start, and an offset that the maker of the index sets. */
uint64_t once__index_now(const once__index_t *index);

static inline void once__index_set_clock(once__index_t *index, int64_t offset)
{
    atomic_store(&index->map->clock_offset, offset);
}

static inline int64_t once__index_clock(const once__index_t *index)
{
    return once__load(&index->map->clock_offset);
}

/* The shard of `id` is locked: a version above every earlier one of its records, and not before `now`. */
uint64_t once__index_next_version(once__index_t *index, const uint8_t *id, uint64_t now);
/* From now on the shard's versions are above this one. Locked, or alone. */
void once__index_raise_version(once__index_t *index, const uint8_t *id, uint64_t version);

/* ---- segments ---- */

static inline once__segment_t *once__index_segment(const once__index_t *index, uint32_t slot)
{
    assert(slot < once__load(&index->map->slot_limit));
    return &index->map->segments[slot];
}

/* One past the highest slot in use: for loops. */
static inline uint32_t once__index_slot_end(const once__index_t *index)
{
    return atomic_load(&index->map->slot_end);
}

/*
 * The lowest free slot and the next number for a segment (state PREPARING). ONCE_OK; ONCE_E_FULL: 16,384 are live; ONCE_E_NOREPLY:
 * the lock could not be had within a second.
 */
int once__index_take_slot(once__index_t *index, uint32_t *slot, uint64_t *number);
void once__index_free_slot(once__index_t *index, uint32_t slot);
void once__index_raise_number(once__index_t *index, uint64_t at_least); /* next numbers are above */

/* Segments in one of these states. */
uint32_t once__index_count(const once__index_t *index, once__segment_state_t first,
                           once__segment_state_t last);
/* Up to where the segment is durable; 0: it is just being made; UINT64_MAX: it is sealed, or not in the index (NULL: none). */
uint64_t once__index_durable(const once__index_t *index, uint64_t number);
/* Records and bytes of the log's files, by a look at each segment. */
void once__index_usage(const once__index_t *index, uint64_t *records, uint64_t *bytes);

/* Until when a record must be kept: UINT64_MAX for what hold keeps, and for what never expires. */
uint64_t once__index_kept_until(const once__head_t *head);

/* Bytes of the segment that are live at `now`: an upper bound. */
uint64_t once__segment_live(const once__segment_t *segment, uint64_t now);

/* ---- one record: lock its shard, look, perhaps change, unlock ---- */

/* ONCE_OK; ONCE_E_NOREPLY: it is taken, for `wait_ms` by now (0: tries only). */
int once__index_lock(once__index_t *index, const uint8_t *id, uint32_t wait_ms);
void once__index_unlock(once__index_t *index, const uint8_t *id);
/* 1 or 0. */
int once__index_find(const once__index_t *index, const uint8_t *id, once__entry_t *entry);

/*
 * The record is about to be locked and looked for: the processor fetches its shard (the first), then its cell (the second, when the
 * shard is there), for many records at a time. Nothing is read that a lock protects.
 */
void once__index_expect_shard(const once__index_t *index, const uint8_t *id);
void once__index_expect(const once__index_t *index, const uint8_t *id);

/* Room for a new entry. Before anything is written for it. ONCE_OK; ONCE_E_FULL: the tmpfs has no room; ONCE_E_NOREPLY: no lock. */
int once__index_make_room(once__index_t *index, const uint8_t *id);
/* Room for this number of entries in the shard of `id`, by a process that is alone. ONCE_OK or ONCE_E_FULL. */
int once__index_reserve(once__index_t *index, const uint8_t *id, uint64_t entries);

/* What is counted of a frame: its size with padding, and until when it is kept (once__index_kept_until; removed: 0). */
typedef struct once__weight {
    uint32_t size;
    uint64_t until;
} once__weight_t;

/*
 * Sets the entry of the record, which `old` (NULL: it has none, and there is room) was until now. The weights are those of the
 * frames: they are counted in their segments.
 */
void once__index_set(once__index_t *index, const uint8_t *id, const once__entry_t *entry,
                     once__weight_t weight, const once__entry_t *old, once__weight_t old_weight);
void once__index_forget(once__index_t *index, const uint8_t *id, const once__entry_t *old,
                        once__weight_t old_weight);

/* ---- all records ---- */

typedef struct once__shard_entry {
    uint64_t key; /* what the order of a scan goes by: part of the id */
    uint32_t tag;
    once__entry_t entry;
} once__shard_entry_t;

/* Copies the entries of a shard, also removed ones (malloc'd, sorted by key). ONCE_OK, ONCE_E_NOMEM, ONCE_E_NOREPLY. */
int once__index_shard(once__index_t *index, uint32_t shard, once__shard_entry_t **entries,
                      size_t *count);
uint32_t once__index_shard_of(const uint8_t *id);
/* What an entry of this shard says about its id: the rest of `id` is not changed. */
void once__index_id(uint8_t *id, uint32_t shard, const once__shard_entry_t *item);
/* Would an entry of `id` have this key and tag? */
int once__index_is_key(const uint8_t *id, uint64_t key, uint32_t tag);

/* ---- memory inside the index, for tables and write buffers ---- */

/* The first of `count` pages in a row, zeroed, with real memory behind them. 0 and errno: there is none; EAGAIN: no lock. */
uint32_t once__index_take_pages(once__index_t *index, uint32_t count, uint32_t wait_ms);
/* `release`: the memory goes back to the system. For pages that are looked at under a lock only. */
void once__index_give_pages(once__index_t *index, uint32_t first, uint32_t count, int release,
                            uint32_t wait_ms);
uint32_t once__pages_count(const once__index_header_t *map); /* in use */
/* Memory behind a part of the file: a hole that cannot be filled later would be a SIGBUS. 0, or -1 and errno. */
int once__index_allocate(const once__index_t *index, uint64_t from, uint64_t to);

static inline void *once__index_page(const once__index_t *index, uint32_t page)
{
    assert((uint64_t)page * ONCE__INDEX_PAGE >= sizeof(once__index_header_t) &&
           (uint64_t)page * ONCE__INDEX_PAGE < index->view);
    return (char *)index->map + (uint64_t)page * ONCE__INDEX_PAGE;
}

/* Of a shard's table: its cells, and where it begins in the file. */
static inline uint32_t once__table_size(uint64_t table)
{
    return (uint32_t)(table & 0xffffff);
}

static inline uint64_t once__table_at(uint64_t table)
{
    return (table >> 24) * 16;
}

#endif
