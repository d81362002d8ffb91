/*
 * Where the newest frame of each record is, by a reading of the log: what a rebuild would put into the index. In memory of its own,
 * to compare.
 */
#ifndef ONCE_STORE_LOCAL_NEWEST_H
#define ONCE_STORE_LOCAL_NEWEST_H

#include "store/local/index.h"

/* A record is known by the part of its id that the index has: its shard and its key. */
typedef struct once__newest_entry {
    uint64_t key;
    uint64_t changed; /* the greatest time of any of its frames */
    uint32_t segment; /* 0: this place of the table is empty */
    uint32_t offset;  /* / 8 */
    uint16_t shard;
    uint8_t state; /* ONCE_STATE_NONE: removed */
    uint8_t expired;
    uint8_t newer;
    uint8_t seen;      /* in the index */
    uint8_t misplaced; /* an older state than one that stands before it */
} once__newest_entry_t;

typedef struct once__newest {
    once__newest_entry_t *entries;
    size_t size, used;
} once__newest_t;

/* The shard and the key of a record id, and the other way round: an id that has them. */
uint16_t once__newest_shard(const uint8_t *id);
uint64_t once__newest_key(const uint8_t *id);
void once__newest_id(uint8_t id[ONCE_ID_SIZE], uint16_t shard, uint64_t key);

/* The record's entry; NULL: there is none. */
once__newest_entry_t *once__newest_find(const once__newest_t *newest, uint16_t shard, uint64_t key);

/* The record's entry, made if there is none. NULL: out of memory. */
once__newest_entry_t *once__newest_enter(once__newest_t *newest, uint16_t shard, uint64_t key);

void once__newest_free(once__newest_t *newest);

/* Is the first place before the second one? */
int once__place_before(once__place_t a, once__place_t b);

#endif
