/*
 * The entries of the index: where the newest frame of each record is. The shard is locked by whoever calls, unless he only peeks.
 */
#include "store/local/index_file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "store/local/index_pages.h"

#define FILL_PERCENT   85u
#define GROWTH_PERCENT 115u      /* of the last table: 19 to 22 bytes a key */
#define TABLE_MAX      0xff0000u /* entries of a shard's table: 24 bits, and a page more */

#define WHERE_DEAD 1u /* segment 0: removed, the run goes on */

/*
 * A removed record whose last frame stands behind the segment of another writer leaves a trace: an entry of state NONE that
 * tells that segment. It goes when the segment goes, or when all writers are past it.
 */

/* ------------------------------------------------------------------------------------------------------------ words */

static uint64_t key_of(const uint8_t *id)
{
    return once__get64(id + 2);
}

static once__shard_t *shard_of(const once__index_t *index, const uint8_t *id)
{
    return &index->map->shards[once__get16(id) % ONCE__SHARDS];
}

static uint64_t pack(const once__entry_t *entry)
{
    return (uint64_t)entry->place.segment << 40 | entry->place.offset / 8 << 12 |
           (uint64_t)entry->state << 8 | 2;
}

static once__entry_t unpack(uint64_t where)
{
    once__entry_t entry = {{(uint32_t)(where >> 40), (where >> 12 & 0xfffffff) * 8},
                           (uint8_t)(where >> 8 & 7)};
    return entry;
}

static int is_live(const once__index_t *index, uint64_t where)
{
    uint32_t segment = (uint32_t)(where >> 40);

    return segment != 0 &&
           segment >= atomic_load_explicit(&index->map->first_segment, memory_order_acquire);
}

/* Not a trace, and not removed. */
static int is_record(uint64_t where)
{
    return (where >> 8 & 7) != ONCE_STATE_NONE;
}

static once__slot_t *table_slots(const once__index_t *index, uint64_t table)
{
    return (once__slot_t *)(void *)((char *)index->map + (table >> 24) * 16);
}

/* The place where a key's run begins: order-preserving, so that tables of any size can be used. */
static uint32_t home(uint64_t key, uint32_t size)
{
    return (uint32_t)((key >> 32) * size >> 32);
}

/* ------------------------------------------------------------------------------------------------------------ space */

/* An empty table with room for `size` entries or a few more. 0: no room. */
static uint64_t new_table(once__index_t *index, uint32_t size)
{
    uint32_t in_page = ONCE__INDEX_PAGE / sizeof(once__slot_t);
    uint32_t pages = size / in_page + 1;
    uint32_t first = size > TABLE_MAX ? 0 : once__pages_take(index, pages);

    if (first == 0) {
        return 0;
    }
    atomic_fetch_add(&index->map->table_bytes, (uint64_t)pages * ONCE__INDEX_PAGE);
    return (uint64_t)first * ONCE__INDEX_PAGE / 16 << 24 | (uint64_t)pages * in_page;
}

/* The shards' first tables stay where they are. */
static void free_table(once__index_t *index, uint64_t table)
{
    uint64_t at = (table >> 24) * 16;
    uint64_t bytes = (uint64_t)once__table_size(table) * sizeof(once__slot_t);

    atomic_fetch_sub(&index->map->table_bytes, bytes);
    if (at >= sizeof(once__index_header_t)) {
        once__pages_give(index, (uint32_t)(at / ONCE__INDEX_PAGE),
                         (uint32_t)(bytes / ONCE__INDEX_PAGE));
    }
}

/* ---------------------------------------------------------------------------------------------------------- entries */

static void locked(once__index_t *index, once__shard_t *shard, int code)
{
    if (code == EOWNERDEAD) {
        /* Its last frame may have no entry. It is in a segment that exists. */
        shard->floor = once__index_end_segment(index) - 1;
        code = pthread_mutex_consistent(&shard->lock);
    }
    assert(code == 0);
}

static void lock_shard(once__index_t *index, once__shard_t *shard)
{
    locked(index, shard, pthread_mutex_lock(&shard->lock));
}

void once__index_lock(once__index_t *index, const uint8_t *id)
{
    lock_shard(index, shard_of(index, id));
}

int once__index_try_lock(once__index_t *index, const uint8_t *id)
{
    once__shard_t *shard = shard_of(index, id);
    int code = pthread_mutex_trylock(&shard->lock);

    if (code == EBUSY) {
        return 0;
    }
    locked(index, shard, code);
    return 1;
}

void once__index_unlock(once__index_t *index, const uint8_t *id)
{
    (void)pthread_mutex_unlock(&shard_of(index, id)->lock);
}

void once__index_expect_shard(const once__index_t *index, const uint8_t *id)
{
    __builtin_prefetch(shard_of(index, id), 1);
}

/* Where the run of the record begins. */
static const once__slot_t *first_slot(const once__index_t *index, const uint8_t *id)
{
    uint64_t table = atomic_load_explicit(&shard_of(index, id)->table, memory_order_relaxed);

    return &table_slots(index, table)[home(key_of(id), once__table_size(table))];
}

void once__index_expect(const once__index_t *index, const uint8_t *id)
{
    __builtin_prefetch(first_slot(index, id), 1);
}

void once__index_expect_shard_to_peek(const once__index_t *index, const uint8_t *id)
{
    __builtin_prefetch(&shard_of(index, id)->table);
}

void once__index_expect_to_peek(const once__index_t *index, const uint8_t *id)
{
    __builtin_prefetch(first_slot(index, id));
}

/* The next slot of a run, from the one that is `*passed` behind its beginning, that has a live entry of the key. NULL: none. */
static const once__slot_t *find_slot(const once__index_t *index, uint64_t table, uint64_t key,
                                     uint64_t *passed, uint64_t *where)
{
    const once__slot_t *slots = table_slots(index, table);
    uint32_t size = once__table_size(table);
    uint64_t at = home(key, size) + *passed;

    for (; *passed < size; (*passed)++, at++) {
        const once__slot_t *slot = &slots[at < size ? at : at - size];
        *where = atomic_load_explicit(&slot->where, memory_order_acquire);
        if (*where == 0) {
            break;
        }
        if (atomic_load_explicit(&slot->key, memory_order_relaxed) == key && is_record(*where) &&
            is_live(index, *where)) {
            return slot;
        }
    }
    return NULL;
}

/* The cursor counts the slots of the run that were passed, plus one. */
int once__index_find(const once__index_t *index, const uint8_t *id, uint64_t *cursor,
                     once__entry_t *entry)
{
    uint64_t table = atomic_load(&shard_of(index, id)->table), passed = *cursor, where;

    if (find_slot(index, table, key_of(id), &passed, &where) == NULL) {
        return 0;
    }
    *cursor = passed + 1;
    *entry = unpack(where);
    return 1;
}

int once__index_peek(const once__index_t *index, const uint8_t *id, once__peek_t *peek)
{
    uint64_t passed = 0;

    peek->shard = shard_of(index, id);
    peek->table = atomic_load_explicit(&peek->shard->table, memory_order_acquire);
    peek->slot = find_slot(index, peek->table, key_of(id), &passed, &peek->where);
    if (peek->slot == NULL) {
        return 0;
    }
    peek->entry = unpack(peek->where);
    return 1;
}

int once__index_peek_holds(const once__index_t *index, const once__peek_t *peek)
{
    atomic_thread_fence(memory_order_acquire); /* what was read in between, was read before */
    /* In this order: in a table that was replaced, and its pages taken again for the same shard, an entry may be there still. */
    return atomic_load_explicit(&peek->shard->table, memory_order_acquire) == peek->table &&
           atomic_load_explicit(&peek->slot->where, memory_order_acquire) == peek->where &&
           is_live(index, peek->where);
}

uint32_t once__index_floor(const once__index_t *index, const uint8_t *id)
{
    const once__shard_t *shard = shard_of(index, id);
    uint64_t table = atomic_load(&shard->table);
    once__slot_t *slots = table_slots(index, table);
    uint32_t size = once__table_size(table), floor = shard->floor;
    uint64_t key = key_of(id);
    uint32_t start = home(key, size);

    for (uint32_t passed = 0; passed < size; passed++) {
        const once__slot_t *slot = &slots[(start + passed) % size];
        uint64_t where = atomic_load_explicit(&slot->where, memory_order_acquire);
        uint32_t segment = (uint32_t)(where >> 40);
        if (where == 0) {
            break;
        }
        if (atomic_load_explicit(&slot->key, memory_order_relaxed) == key && !is_record(where) &&
            segment > floor) {
            floor = segment;
        }
    }
    return floor;
}

/* Puts an entry into the first slot of its run that is empty or dead. What was there; -1: there is no such slot. */
static int put(const once__index_t *index, uint64_t table, uint64_t key, uint64_t where,
               uint64_t *old)
{
    once__slot_t *slots = table_slots(index, table);
    uint32_t size = once__table_size(table), start = home(key, size);

    for (uint32_t passed = 0; passed < size; passed++) {
        once__slot_t *slot = &slots[(start + passed) % size];
        *old = atomic_load_explicit(&slot->where, memory_order_relaxed);
        if (*old == 0 || !is_live(index, *old)) {
            atomic_store_explicit(&slot->key, key, memory_order_relaxed);
            atomic_store_explicit(&slot->where, where, memory_order_release);
            return 0;
        }
    }
    return -1;
}

static int is_kept(const once__index_t *index, uint64_t where)
{
    return is_live(index, where) &&
           (is_record(where) || (uint32_t)(where >> 40) > once__index_oldest_active(index));
}

/* Replaces the shard's table by one with room: only what lives is taken over. */
static int replace_table(once__index_t *index, once__shard_t *shard)
{
    uint64_t old = atomic_load(&shard->table), fresh, ignored;
    once__slot_t *from = table_slots(index, old);
    uint32_t kept = 0, size;
    int64_t records = 0;

    for (uint32_t i = 0; i < once__table_size(old); i++) {
        kept += (uint32_t)is_kept(index, atomic_load(&from[i].where));
    }
    size = (uint32_t)((uint64_t)kept * 100 / FILL_PERCENT * GROWTH_PERCENT / 100);
    fresh = new_table(index, size);
    if (fresh == 0) {
        return ONCE_E_FULL;
    }
    for (uint32_t i = 0; i < once__table_size(old); i++) {
        uint64_t where = atomic_load(&from[i].where);
        int record = is_record(where); /* those that were dropped were counted until now */
        if (is_kept(index, where) &&
            put(index, fresh, atomic_load(&from[i].key), where, &ignored) == 0) {
            record = 0;
        }
        records -= record;
    }
    atomic_fetch_add(&index->map->entries, (uint64_t)records);
    /* In this order: to be killed in between may leave `used` too high, not too low. */
    atomic_store_explicit(&shard->table, fresh, memory_order_release);
    shard->used = kept;
    free_table(index, old);
    return ONCE_OK;
}

static void count(const once__index_t *index, const once__entry_t *entry, int64_t by)
{
    once__segment_info_t *info = once__index_segment(index, entry->place.segment);

    atomic_fetch_add(&info->current, by);
    if (entry->state == ONCE_STATE_PENDING || entry->state == ONCE_STATE_UNKNOWN) {
        atomic_fetch_add(&info->held, by);
    }
}

int once__index_make_room(once__index_t *index, const uint8_t *id)
{
    once__shard_t *shard = shard_of(index, id);
    uint64_t room = (uint64_t)once__table_size(atomic_load(&shard->table)) * FILL_PERCENT;

    return ((uint64_t)shard->used + 1) * 100 > room ? replace_table(index, shard) : ONCE_OK;
}

static void add(once__index_t *index, once__shard_t *shard, uint64_t key, uint64_t where)
{
    uint64_t old;
    int code;

    shard->used++;
    code = put(index, atomic_load(&shard->table), key, where, &old);
    if (code != 0 && replace_table(index, shard) == ONCE_OK) { /* `used` was wrong: damage */
        shard->used++;
        code = put(index, atomic_load(&shard->table), key, where, &old);
    }
    assert(code == 0);
    shard->used -= old != 0;
    atomic_fetch_add(&index->map->entries, !is_record(old));
}

/* What stays of an entry whose last frame is there. */
static uint64_t trace(const once__index_t *index, const once__entry_t *last)
{
    once__entry_t left = {last->place, ONCE_STATE_NONE};

    return last->place.segment > once__index_oldest_active(index) ? pack(&left) : WHERE_DEAD;
}

void once__index_set(once__index_t *index, const uint8_t *id, uint64_t cursor, int replace,
                     const once__entry_t *entry)
{
    once__shard_t *shard = shard_of(index, id);
    uint64_t where = pack(entry);
    uint64_t table = atomic_load(&shard->table);
    once__slot_t *slots = table_slots(index, table), *slot;
    uint32_t size = once__table_size(table);
    once__entry_t old;

    /* Being killed in between leaves the counts too high, never too low: a segment is then searched for nothing. */
    if (entry->state != ONCE_STATE_NONE) {
        count(index, entry, 1);
    }
    if (!replace) {
        assert(entry->state != ONCE_STATE_NONE);
        add(index, shard, key_of(id), where);
        return;
    }
    assert(cursor > 0 && cursor <= size);
    slot = &slots[(home(key_of(id), size) + cursor - 1) % size];
    old = unpack(atomic_load(&slot->where));
    if (entry->state == ONCE_STATE_NONE) {
        where = trace(index, entry->place.segment > old.place.segment ? entry : &old);
        atomic_fetch_sub(&index->map->entries, 1);
    }
    atomic_store_explicit(&slot->where, where, memory_order_release);
    count(index, &old, -1);
}

static int by_key(const void *a, const void *b)
{
    const once__shard_entry_t *x = a, *y = b;

    return x->key < y->key ? -1 : x->key > y->key;
}

/* Is it a record, of this segment or (0) of any? */
static int is_of(const once__index_t *index, uint64_t where, uint32_t segment)
{
    return is_record(where) && is_live(index, where) &&
           (segment == 0 || (uint32_t)(where >> 40) == segment);
}

/* Locked: what there is does not change, but it may become less when a segment is dropped. */
static int copy_entries(const once__index_t *index, const once__shard_t *shard, uint32_t segment,
                        once__shard_entry_t **entries, size_t *count)
{
    uint64_t table = atomic_load(&shard->table);
    once__slot_t *slots = table_slots(index, table);
    uint32_t size = once__table_size(table);
    size_t most = 0;

    *count = 0;
    *entries = NULL;
    for (uint32_t i = 0; i < size; i++) {
        most += (size_t)is_of(index, atomic_load(&slots[i].where), segment);
    }
    if (most == 0) {
        return ONCE_OK;
    }
    *entries = malloc(most * sizeof(once__shard_entry_t));
    if (*entries == NULL) {
        return ONCE_E_NOMEM;
    }
    for (uint32_t i = 0; i < size; i++) {
        uint64_t where = atomic_load(&slots[i].where);
        if (is_of(index, where, segment)) {
            once__shard_entry_t found = {atomic_load(&slots[i].key), unpack(where)};
            (*entries)[(*count)++] = found;
        }
    }
    return ONCE_OK;
}

int once__index_shard_of(once__index_t *index, uint32_t number, uint32_t segment,
                         once__shard_entry_t **entries, size_t *count)
{
    once__shard_t *shard = &index->map->shards[number];
    int code;

    lock_shard(index, shard);
    code = copy_entries(index, shard, segment, entries, count);
    (void)pthread_mutex_unlock(&shard->lock);
    return code;
}

int once__index_shard(once__index_t *index, uint32_t number, once__shard_entry_t **entries,
                      size_t *count)
{
    int code = once__index_shard_of(index, number, 0, entries, count);

    if (*count > 0) {
        qsort(*entries, *count, sizeof(once__shard_entry_t), by_key);
    }
    return code;
}
