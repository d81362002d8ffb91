/*
 * The entries of the index. Every function but those that lock is called with the shard locked, or by a process that is alone with
 * the index and uses each shard from one thread.
 */
#include <assert.h>
#include <stdlib.h>

#include "base/bytes.h"
#include "store/local/index_internal.h"

#define FILL_PERCENT   85u
#define GROWTH_PERCENT 115u
#define PAGE_CELLS     (ONCE__INDEX_PAGE / (uint32_t)sizeof(once__cell_t))
#define TABLE_MAX      0xff0000u /* cells of a table: 24 bits, and a page more */

#define WHERE_DEAD 1u /* forgotten: offset 0, where no frame is. The run goes on */

/* ------------------------------------------------------------------------------------------------------------ words */

/* Of the id's bits, the first 10 choose the shard, 6 and 11 others are the tag, and the 64 between those are the key. */

uint32_t once__index_shard_of(const uint8_t *id)
{
    return once__get16(id) % ONCE__SHARDS;
}

static uint64_t key_of(const uint8_t *id)
{
    return once__get64(id + 2);
}

static uint32_t tag_of(const uint8_t *id)
{
    return (uint32_t)once__get16(id) >> 10 | ((uint32_t)once__get16(id + 10) & 0x7ff) << 6;
}

int once__index_is_key(const uint8_t *id, uint64_t key, uint32_t tag)
{
    return key_of(id) == key && tag_of(id) == tag;
}

static once__shard_t *shard_of(const once__index_t *index, const uint8_t *id)
{
    return &index->map->shards[once__index_shard_of(id)];
}

static uint64_t pack(uint32_t tag, const once__entry_t *entry)
{
    assert(entry->place.slot < ONCE__SLOTS && entry->place.offset >= ONCE__SEGMENT_HEADER &&
           entry->place.offset < ONCE__SEGMENT_MAX && entry->place.offset % 8 == 0 &&
           entry->state <= ONCE_STATE_UNKNOWN);
    return (uint64_t)tag << 47 | (uint64_t)entry->place.slot << 31 | entry->place.offset / 8 << 3 |
           entry->state;
}

static once__entry_t unpack(uint64_t where)
{
    once__entry_t entry = {{(uint32_t)(where >> 31 & 0xffff), (where >> 3 & 0xfffffff) * 8},
                           (uint8_t)(where & 7)};

    return entry;
}

static uint32_t tag_in(uint64_t where)
{
    return (uint32_t)(where >> 47);
}

static int is_entry(uint64_t where)
{
    return where > WHERE_DEAD;
}

static int is_record(uint64_t where)
{
    return is_entry(where) && (where & 7) != ONCE_STATE_NONE;
}

/* ----------------------------------------------------------------------------------------------------------- tables */

static once__cell_t *cells_of(const once__index_t *index, uint64_t table)
{
    return (once__cell_t *)(void *)((char *)index->map + once__table_at(table));
}

static uint64_t where_of(const once__cell_t *cell)
{
    return atomic_load_explicit(&cell->where, memory_order_relaxed);
}

/* Where the run of a key begins. The order of keys stays, so that tables of any size can be used. */
static uint32_t home(uint64_t key, uint32_t size)
{
    return (uint32_t)((key >> 32) * size >> 32);
}

static once__cell_t *next_cell(once__cell_t *cells, uint32_t size, once__cell_t *cell)
{
    return ++cell < cells + size ? cell : cells;
}

/* The cell of the record. NULL: it has none. */
static once__cell_t *find(const once__index_t *index, const uint8_t *id)
{
    uint64_t table = atomic_load_explicit(&shard_of(index, id)->table, memory_order_relaxed);
    uint64_t key = key_of(id);
    uint32_t size = once__table_size(table), tag = tag_of(id);
    once__cell_t *cells = cells_of(index, table), *cell = cells + home(key, size);

    for (uint32_t passed = 0; passed < size; passed++) {
        uint64_t where = where_of(cell);
        if (where == 0) {
            break;
        }
        if (atomic_load_explicit(&cell->key, memory_order_relaxed) == key && tag_in(where) == tag &&
            is_entry(where)) {
            return cell;
        }
        cell = next_cell(cells, size, cell);
    }
    return NULL;
}

void once__index_expect_shard(const once__index_t *index, const uint8_t *id)
{
    __builtin_prefetch(shard_of(index, id), 1);
}

void once__index_expect(const once__index_t *index, const uint8_t *id)
{
    uint64_t table = atomic_load_explicit(&shard_of(index, id)->table, memory_order_relaxed);

    __builtin_prefetch(cells_of(index, table) + home(key_of(id), once__table_size(table)));
}

/* Puts an entry into the first cell of its run that is empty or dead. Returns what was there: 0 or WHERE_DEAD. */
static uint64_t put(const once__index_t *index, uint64_t table, uint64_t key, uint64_t where)
{
    uint32_t size = once__table_size(table);
    once__cell_t *cells = cells_of(index, table), *cell = cells + home(key, size);
    uint64_t old = where_of(cell);

    for (uint32_t passed = 0; is_entry(old); passed++) {
        assert(passed < size); /* there is room, and X-1: the record has no entry yet */
        assert(cell->key != key || tag_in(old) != tag_in(where));
        cell = next_cell(cells, size, cell);
        old = where_of(cell);
    }
    atomic_store_explicit(&cell->key, key, memory_order_relaxed);
    atomic_store_explicit(&cell->where, where, memory_order_release);
    return old;
}

/* Counts what is in the shard's table. */
static void count_cells(const once__index_t *index, const once__shard_t *shard, uint32_t *entries,
                        uint32_t *records)
{
    uint64_t table = atomic_load(&shard->table);
    const once__cell_t *cells = cells_of(index, table);

    *entries = *records = 0;
    for (uint32_t i = 0; i < once__table_size(table); i++) {
        uint64_t where = where_of(&cells[i]);
        *entries += (uint32_t)is_entry(where);
        *records += (uint32_t)is_record(where);
    }
}

/* The first tables stay. Pages of a size that is asked for again keep their memory, which is faster. */
static void free_table(once__index_t *index, uint64_t table, int is_usual)
{
    uint32_t first = (uint32_t)(once__table_at(table) / ONCE__INDEX_PAGE);

    if (once__table_at(table) < sizeof(once__index_header_t)) {
        return;
    }
    if (is_usual) {
        once__index_give_pages(index, first, once__table_size(table) / PAGE_CELLS);
    } else {
        once__pages_release(index, first, once__table_size(table) / PAGE_CELLS);
    }
}

/* Replaces the shard's table by one for `entries` that is not full then; dead cells are not taken over. */
static int replace_table(once__index_t *index, once__shard_t *shard, uint64_t entries)
{
    uint64_t old = atomic_load(&shard->table), fresh;
    const once__cell_t *from = cells_of(index, old);
    uint64_t pages = entries * 100 / FILL_PERCENT / PAGE_CELLS + 1;
    uint32_t first, kept = 0;

    first = pages * PAGE_CELLS > TABLE_MAX ? 0 : once__index_take_pages(index, (uint32_t)pages);
    if (first == 0) {
        return ONCE_E_FULL;
    }
    fresh = (uint64_t)first * ONCE__INDEX_PAGE / 16 << 24 | pages * PAGE_CELLS;
    for (uint32_t i = 0; i < once__table_size(old); i++) {
        uint64_t where = where_of(&from[i]);
        if (is_entry(where)) {
            (void)put(index, fresh, atomic_load_explicit(&from[i].key, memory_order_relaxed),
                      where);
            kept++;
        }
    }
    /* A process that is killed in between leaves `used` too high, not too low. */
    atomic_store_explicit(&shard->table, fresh, memory_order_release);
    atomic_store_explicit(&shard->used, kept, memory_order_release);
    free_table(index, old, once__table_size(old) == pages * PAGE_CELLS);
    return ONCE_OK;
}

/* Is the shard's table large enough for this number of cells in use? */
static int is_large_enough(const once__shard_t *shard, uint64_t cells)
{
    return cells * 100 <= (uint64_t)once__table_size(atomic_load(&shard->table)) * FILL_PERCENT;
}

int once__index_make_room(once__index_t *index, const uint8_t *id)
{
    once__shard_t *shard = shard_of(index, id);
    uint32_t entries, records;

    if (is_large_enough(shard, (uint64_t)atomic_load(&shard->used) + 1)) {
        return ONCE_OK;
    }
    count_cells(index, shard, &entries, &records);
    /* Without memory for another table, dead cells are used again in this one. */
    return replace_table(index, shard, (uint64_t)entries * GROWTH_PERCENT / 100) == ONCE_OK ||
                   is_large_enough(shard, (uint64_t)entries + 1)
               ? ONCE_OK
               : ONCE_E_FULL;
}

int once__index_reserve(once__index_t *index, const uint8_t *id, uint64_t entries)
{
    once__shard_t *shard = shard_of(index, id);

    return is_large_enough(shard, entries) ? ONCE_OK : replace_table(index, shard, entries);
}

/* ------------------------------------------------------------------------------------------------------------ locks */

/* A killed process leaves every entry valid. Only the number of records may be wrong (and `used` too high). */
static int lock_shard(once__index_t *index, once__shard_t *shard, uint32_t wait_ms)
{
    uint32_t entries, records;
    int died, code = once__index_lock_mutex(&shard->lock, wait_ms, &died);

    if (code == ONCE_OK && died) {
        count_cells(index, shard, &entries, &records);
        atomic_store(&shard->records, records);
    }
    return code;
}

int once__index_try_lock(once__index_t *index, const uint8_t *id)
{
    return lock_shard(index, shard_of(index, id), 0) == ONCE_OK;
}

int once__index_lock(once__index_t *index, const uint8_t *id, uint32_t wait_ms)
{
    return lock_shard(index, shard_of(index, id), wait_ms);
}

void once__index_unlock(once__index_t *index, const uint8_t *id)
{
    (void)pthread_mutex_unlock(&shard_of(index, id)->lock);
}

/* --------------------------------------------------------------------------------------------------------- versions */

/* it is stored before the caller writes its frame. */
uint64_t once__index_next_version(once__index_t *index, const uint8_t *id, uint64_t now)
{
    once__shard_t *shard = shard_of(index, id);
    uint64_t last = atomic_load_explicit(&shard->version, memory_order_relaxed);
    uint64_t version = now << 20 > last ? now << 20 : last + 1;

    atomic_store(&shard->version, version);
    return version;
}

void once__index_raise_version(once__index_t *index, const uint8_t *id, uint64_t version)
{
    once__shard_t *shard = shard_of(index, id);

    if (version > atomic_load_explicit(&shard->version, memory_order_relaxed)) {
        atomic_store(&shard->version, version);
    }
}

/* ---------------------------------------------------------------------------------------------------------- weights */

/* Classes by the time from the segment's making until the record goes: up to 1, 8, 64 ... minutes, then all others. */
static uint32_t class_of(const once__segment_t *segment, uint64_t until)
{
    uint64_t minutes = until > segment->created ? (until - segment->created - 1) / 60000 : 0;
    uint32_t class = minutes == 0 ? 0 : (63 - (uint32_t)__builtin_clzll(minutes)) / 3 + 1;

    return class < ONCE__CLASSES ? class : ONCE__CLASSES - 1;
}

static void raise(_Atomic uint64_t *word, uint64_t value)
{
    uint64_t old = atomic_load_explicit(word, memory_order_relaxed);

    while (old < value && !atomic_compare_exchange_weak(word, &old, value)) {
    }
}

static void count(const once__index_t *index, const once__entry_t *entry, uint64_t until,
                  int64_t entries, int64_t bytes)
{
    once__segment_t *segment = once__index_segment(index, entry->place.slot);
    uint32_t class = class_of(segment, until);

    if (until != 0) {
        raise(&segment->live[class].until, until);
    }
    if (until != 0 && bytes != 0) {
        atomic_fetch_add(&segment->live[class].bytes, bytes);
    }
    if (entries != 0) {
        atomic_fetch_add(&segment->entries, entries);
    }
}

uint64_t once__segment_live(const once__segment_t *segment, uint64_t now)
{
    uint64_t live = 0;

    for (uint32_t i = 0; i < ONCE__CLASSES; i++) {
        int64_t bytes = atomic_load_explicit(&segment->live[i].bytes, memory_order_relaxed);
        if (bytes > 0 &&
            atomic_load_explicit(&segment->live[i].until, memory_order_relaxed) > now) {
            live += (uint64_t)bytes;
        }
    }
    return live;
}

/* ---------------------------------------------------------------------------------------------------------- entries */

int once__index_find(const once__index_t *index, const uint8_t *id, once__entry_t *entry)
{
    const once__cell_t *cell = find(index, id);

    if (cell == NULL) {
        return 0;
    }
    *entry = unpack(where_of(cell));
    return 1;
}

/* The cell of the record, whose entry is `old`. */
static once__cell_t *find_old(const once__index_t *index, const uint8_t *id,
                              const once__entry_t *old)
{
    once__cell_t *cell = find(index, id);

    assert(cell != NULL && where_of(cell) == pack(tag_of(id), old));
    return cell;
}

static void count_records(once__shard_t *shard, int was, int is)
{
    uint32_t records = atomic_load_explicit(&shard->records, memory_order_relaxed);

    if (was != is) {
        atomic_store_explicit(&shard->records, is ? records + 1 : records - 1,
                              memory_order_relaxed);
    }
}

static void add(once__index_t *index, const uint8_t *id, uint64_t where)
{
    once__shard_t *shard = shard_of(index, id);
    uint32_t used = atomic_load_explicit(&shard->used, memory_order_relaxed);

    atomic_store_explicit(&shard->used, used + 1, memory_order_release);
    if (put(index, atomic_load(&shard->table), key_of(id), where) == WHERE_DEAD) {
        atomic_store_explicit(&shard->used, used, memory_order_release);
    }
}

/* counts go up before the entry is stored, and down afterwards. What stays at its place is not counted twice. */
void once__index_set(once__index_t *index, const uint8_t *id, const once__entry_t *entry,
                     once__weight_t weight, const once__entry_t *old, once__weight_t old_weight)
{
    const once__segment_t *segment = once__index_segment(index, entry->place.slot);
    int64_t size = weight.size, old_size = old_weight.size;
    int moves = old == NULL || old->place.slot != entry->place.slot;

    assert(entry->state != ONCE_STATE_NONE || weight.until == 0);
    if (!moves && weight.until != 0 && old_weight.until != 0 &&
        class_of(segment, weight.until) == class_of(segment, old_weight.until)) {
        int64_t both = size < old_size ? size : old_size;
        size -= both;
        old_size -= both;
    }
    count(index, entry, weight.until, moves, size);
    if (old == NULL) {
        add(index, id, pack(tag_of(id), entry));
    } else {
        atomic_store_explicit(&find_old(index, id, old)->where, pack(tag_of(id), entry),
                              memory_order_release);
        count(index, old, old_weight.until, -moves, -old_size);
    }
    count_records(shard_of(index, id), old != NULL && old->state != ONCE_STATE_NONE,
                  entry->state != ONCE_STATE_NONE);
}

void once__index_forget(once__index_t *index, const uint8_t *id, const once__entry_t *old,
                        once__weight_t old_weight)
{
    atomic_store_explicit(&find_old(index, id, old)->where, WHERE_DEAD, memory_order_release);
    count(index, old, old_weight.until, -1, -(int64_t)old_weight.size);
    count_records(shard_of(index, id), old->state != ONCE_STATE_NONE, 0);
}

/* ------------------------------------------------------------------------------------------------------ all records */

static int by_key(const void *a, const void *b)
{
    const once__shard_entry_t *x = a, *y = b;

    return x->key != y->key ? (x->key < y->key ? -1 : 1) : (x->tag > y->tag) - (x->tag < y->tag);
}

static int copy_entries(const once__index_t *index, const once__shard_t *shard,
                        once__shard_entry_t **out, size_t *count)
{
    uint64_t table = atomic_load(&shard->table);
    const once__cell_t *cells = cells_of(index, table);
    uint32_t entries, records;

    count_cells(index, shard, &entries, &records);
    if (entries == 0) {
        return ONCE_OK;
    }
    *out = malloc(entries * sizeof(**out));
    if (*out == NULL) {
        return ONCE_E_NOMEM;
    }
    for (uint32_t i = 0; i < once__table_size(table); i++) {
        uint64_t where = where_of(&cells[i]);
        if (is_entry(where)) {
            once__shard_entry_t found = {atomic_load_explicit(&cells[i].key, memory_order_relaxed),
                                         tag_in(where), unpack(where)};
            (*out)[(*count)++] = found;
        }
    }
    return ONCE_OK;
}

int once__index_shard(once__index_t *index, uint32_t number, once__shard_entry_t **entries,
                      size_t *count)
{
    once__shard_t *shard = &index->map->shards[number];
    int code = lock_shard(index, shard, ONCE__INDEX_WAIT_MS);

    *entries = NULL;
    *count = 0;
    if (code != ONCE_OK) {
        return code;
    }
    code = copy_entries(index, shard, entries, count);
    (void)pthread_mutex_unlock(&shard->lock);
    if (*count > 0) {
        qsort(*entries, *count, sizeof(**entries), by_key);
    }
    return code;
}
