/*
 * The index as a file, for the two that work on it: index.c (opening, clock, segments) and entries.c (records).
 */
#ifndef ONCE_STORE_LOCAL_INDEX_FILE_H
#define ONCE_STORE_LOCAL_INDEX_FILE_H

#include "store/local/index.h"

#define ONCE__INDEX_VIEW    ((uint64_t)1 << 36) /* addresses set aside: the file grows into them */
#define ONCE__INDEX_PAGE    4096u
#define ONCE__INDEX_PAGES   ((uint32_t)(ONCE__INDEX_VIEW / ONCE__INDEX_PAGE))
#define ONCE__SHARD_ENTRIES 48u /* of a shard's first table */

/* A table entry: two words. `where` 0: empty. */
typedef struct once__slot {
    _Atomic uint64_t key;
    _Atomic uint64_t where;
} once__slot_t;

/* Where a table is: offset / 16 in the upper 40 bits, entries in the lower 24. */
typedef struct once__shard {
    pthread_mutex_t lock;
    _Atomic uint64_t table;
    uint32_t used;  /* slots that are not empty, or more */
    uint32_t floor; /* a killed process may have left frames in segments up to this one */
} once__shard_t;

typedef enum once__clean {
    ONCE__IN_USE, /* and the disk knows it */
    ONCE__CLEAN,  /* as the last one left it */
    ONCE__BEGUN,  /* in use; whether the disk knows it, nobody can tell */
} once__clean_t;

typedef struct once__index_header {
    uint64_t magic;
    uint32_t version;
    _Atomic uint32_t clean; /* once__clean_t */
    uint8_t boot_id[ONCE__BOOT_ID_SIZE];
    _Atomic int64_t clock_offset;
    _Atomic uint64_t closed_at; /* store time of the last clean end */
    uint32_t sum;               /* of what counts, at the last clean end */
    _Atomic uint32_t next_segment;
    _Atomic uint32_t first_segment;
    _Atomic uint32_t oldest_active; /* no segment before it has a writer */
    _Atomic uint64_t damaged;
    _Atomic uint64_t entries;
    _Atomic uint64_t table_bytes;
    pthread_mutex_t grow_lock;
    pthread_mutex_t segment_lock;
    _Atomic uint64_t end; /* of the part of the file that is in use */
    once__segment_info_t ring[ONCE__RING];
    once__shard_t shards[ONCE__SHARDS];
    once__slot_t first_tables[ONCE__SHARDS][ONCE__SHARD_ENTRIES];
    uint32_t free_page; /* no page before it is free; under grow_lock, like the bits */
    /* A bit for each page of the file. Those have real room that tell of pages which the file has. */
    _Alignas(ONCE__INDEX_PAGE) uint64_t pages_used[ONCE__INDEX_PAGES / 64];
} once__index_header_t;

struct once__index {
    int fd;
    once__index_header_t *map;
};

/* Entries of a table. */
static inline uint32_t once__table_size(uint64_t table)
{
    return (uint32_t)(table & 0xffffff);
}

/* Real room in the file, not a hole: a hole that cannot be filled later would be a SIGBUS. 0, or -1 and errno. */
int once__index_reserve(int fd, uint64_t from, uint64_t to);

/* The oldest segment that a process may still append to; the next one when there is none. It only ever grows. */
uint32_t once__index_oldest_active(const once__index_t *index);

#endif
