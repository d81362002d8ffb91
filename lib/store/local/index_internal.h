/*
 * The index as it lies in memory, for index.c (file, clock, segments), pages.c (pages) and entries.c (records).
 */
#ifndef ONCE_STORE_LOCAL_INDEX_INTERNAL_H
#define ONCE_STORE_LOCAL_INDEX_INTERNAL_H

#include "store/local/index.h"

#define ONCE__INDEX_VIEW    ((uint64_t)1 << 36) /* addresses set aside: the file grows into them */
#define ONCE__INDEX_PAGES   ((uint32_t)(ONCE__INDEX_VIEW / ONCE__INDEX_PAGE))
#define ONCE__FIRST_ENTRIES 32u   /* of a shard's first table */
#define ONCE__INDEX_WAIT_MS 1000u /* for a lock that is held for work in memory only */

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

typedef struct once__index_header {
    once__index_label_t label;
    _Atomic int64_t clock_offset;
    _Atomic uint64_t next_number;
    _Atomic uint32_t doubted;    /* once__index_set_doubt */
    _Atomic uint32_t slot_end;   /* one past the highest slot in use */
    _Atomic uint32_t slot_limit; /* slots that have memory behind them */
    pthread_mutex_t slot_lock, page_lock;
    _Atomic uint64_t end; /* of the part of the file that has memory behind it */
    _Atomic uint64_t
        view; /* the smallest of all users: the file does not grow beyond it; page_lock */
    _Atomic uint32_t free_page; /* no page before it is free; page_lock, as the bits */
    _Alignas(64) once__shard_t shards[ONCE__SHARDS];
    once__cell_t first_tables[ONCE__SHARDS][ONCE__FIRST_ENTRIES];
    /* These two get memory as far as they are used. */
    _Alignas(ONCE__INDEX_PAGE) once__segment_t segments[ONCE__SLOTS];
    _Alignas(ONCE__INDEX_PAGE) _Atomic uint64_t page_bits[ONCE__INDEX_PAGES / 64]; /* 1: in use */
} once__index_header_t;

struct once__index {
    once__index_header_t *map;
    uint64_t view;     /* bytes that are mapped */
    int fd;            /* -1: memory of this process alone */
    int directory_fd;  /* likewise */
    int is_named;      /* it has its name; else the temporary one */
    char name[64];     /* once-STORE_ID-BOOT */
    char new_name[64]; /* the same and .new */
};

/* Cells of a table. */
static inline uint32_t once__table_size(uint64_t table)
{
    return (uint32_t)(table & 0xffffff);
}

/* Where it begins in the file. */
static inline uint64_t once__table_at(uint64_t table)
{
    return (table >> 24) * 16;
}

/*
 * Locks a robust mutex; `wait_ms` 0: tries only. ONCE_OK, or ONCE_E_NOREPLY. *died (may be NULL): its holder was killed.
 */
int once__index_lock_mutex(pthread_mutex_t *mutex, uint32_t wait_ms, int *died);

/* Memory behind a part of the file: a hole that cannot be filled later would be a SIGBUS. 0, or -1 and errno. */
int once__index_allocate(const once__index_t *index, uint64_t from, uint64_t to);

/* The memory goes back to the system: the part is zero from then on. 0, or -1: it is as it was. */
int once__index_release(const once__index_t *index, uint64_t from, uint64_t to);

/* As once__index_give_pages, for pages that are looked at under a lock only: their memory goes back to the system. */
void once__pages_release(once__index_t *index, uint32_t first, uint32_t count);

uint32_t once__pages_count(const once__index_header_t *map); /* in use */

#endif
