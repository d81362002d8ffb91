#include "store/local/newest.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

#define FIRST_SIZE 4096u /* a power of two, like every size */

uint16_t once__newest_shard(const uint8_t *id)
{
    return (uint16_t)(once__get16(id) % ONCE__SHARDS);
}

uint64_t once__newest_key(const uint8_t *id)
{
    return once__get64(id + 2);
}

void once__newest_id(uint8_t id[ONCE_ID_SIZE], uint16_t shard, uint64_t key)
{
    memset(id, 0, ONCE_ID_SIZE);
    once__put16(id, shard);
    once__put64(id + 2, key);
}

static size_t slot_of(const once__newest_t *newest, uint16_t shard, uint64_t key)
{
    /* Keys are parts of a keyed hash: even enough as they are. */
    size_t at = (size_t)(key ^ (uint64_t)shard << 40) & (newest->size - 1);

    while (newest->entries[at].segment != 0 &&
           (newest->entries[at].key != key || newest->entries[at].shard != shard)) {
        at = (at + 1) & (newest->size - 1);
    }
    return at;
}

once__newest_entry_t *once__newest_find(const once__newest_t *newest, uint16_t shard, uint64_t key)
{
    once__newest_entry_t *entry;

    if (newest->size == 0) {
        return NULL;
    }
    entry = &newest->entries[slot_of(newest, shard, key)];
    return entry->segment != 0 ? entry : NULL;
}

static int grow(once__newest_t *newest)
{
    once__newest_t larger = {.size = newest->size == 0 ? FIRST_SIZE : 2 * newest->size,
                             .used = newest->used};

    larger.entries = calloc(larger.size, sizeof(larger.entries[0]));
    if (larger.entries == NULL) {
        return -1;
    }
    for (size_t i = 0; i < newest->size; i++) {
        const once__newest_entry_t *entry = &newest->entries[i];
        if (entry->segment != 0) {
            larger.entries[slot_of(&larger, entry->shard, entry->key)] = *entry;
        }
    }
    free(newest->entries);
    *newest = larger;
    return 0;
}

once__newest_entry_t *once__newest_enter(once__newest_t *newest, uint16_t shard, uint64_t key)
{
    once__newest_entry_t *entry;

    if (newest->used >= newest->size / 4 * 3 && grow(newest) != 0) {
        return NULL;
    }
    entry = &newest->entries[slot_of(newest, shard, key)];
    if (entry->segment == 0) {
        entry->shard = shard;
        entry->key = key;
        newest->used++;
    }
    return entry; /* the caller gives it its place */
}

void once__newest_free(once__newest_t *newest)
{
    free(newest->entries);
    memset(newest, 0, sizeof(*newest));
}

int once__place_before(once__place_t a, once__place_t b)
{
    return a.segment != b.segment ? a.segment < b.segment : a.offset < b.offset;
}
