/*
 * The entries of the index, in a table for each shard, and the pages that tables and write buffers are made of. Every function
 * about entries but those that lock is called with the shard locked, or by a process that is alone with the index and uses each
 * shard from one thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/bytes.h"
#include "store/local/index.h"

#define PAGE_WAIT_MS   20u    /* some callers hold the lock of a shard */
#define ALONE_WAIT_MS  60000u /* for other threads of the process that is alone */
#define FILL_PERCENT   85u
#define MOST_PERCENT   97u
#define GROWTH_PERCENT 115u
#define PAGE_CELLS     (ONCE__INDEX_PAGE / (uint32_t)sizeof(once__cell_t))
#define TABLE_MAX      0xff0000u /* cells of a table: 24 bits, and a page more */

#define WHERE_DEAD 1u /* forgotten: offset 0, where no frame is. The run goes on */

/* ------------------------------------------------------------------------------------------------------------ pages */

/* A process that is killed meanwhile leaves bits set for pages that nothing uses: they are lost until the index is made anew. */

static int is_used(const once__index_header_t *map, uint32_t page)
{
    return (once__load(&map->page_bits[page / 64]) >> page % 64 & 1) != 0;
}

static void flip(once__index_header_t *map, uint32_t first, uint32_t count)
{
    for (uint32_t page = first; page < first + count; page++) {
        map->page_bits[page / 64] ^= (uint64_t)1 << page % 64;
    }
}

/* Where the first run of `count` free pages before `end` begins; `end`: there is none. */
static uint32_t find_run(const once__index_header_t *map, uint32_t end, uint32_t count)
{
    uint32_t run = 0, page = sizeof(*map) / ONCE__INDEX_PAGE;

    while (page < end && run < count) {
        if (page % 64 == 0 && once__load(&map->page_bits[page / 64]) == UINT64_MAX) {
            run = 0;
            page += 64;
        } else {
            run = is_used(map, page) ? 0 : run + 1;
            page++;
        }
    }
    return run == count ? page - run : end;
}

static void raise(_Atomic uint64_t *word, uint64_t value)
{
    uint64_t old = once__load(word);

    while (old < value && !atomic_compare_exchange_weak(word, &old, value)) {
    }
}

/* Memory for the bits of more pages. 0, or -1 and errno. */
static int add_bits(once__index_t *index)
{
    once__index_header_t *map = index->map;
    uint64_t limit = atomic_load(&map->page_limit);
    uint64_t at = offsetof(once__index_header_t, page_bits) + limit / 8;

    if (limit * ONCE__INDEX_PAGE >= map->view) {
        errno = ENOSPC;
        return -1;
    }
    if (once__index_allocate(index, at, at + ONCE__INDEX_PAGE) != 0) {
        return -1;
    }
    raise(&map->page_limit, limit + ONCE__BITS_PAGE);
    return 0;
}

/* Sets the bits of `count` free pages in a row. The first of them; 0: there are none; -1: the lock could not be had. */
static int64_t take_bits(once__index_t *index, uint32_t count, uint32_t wait_ms)
{
    once__index_header_t *map = index->map;
    uint64_t end = atomic_load(&map->page_limit), first;

    if (once__index_lock_mutex(&map->page_lock, wait_ms, NULL) != ONCE_OK) {
        return -1;
    }
    end = end * ONCE__INDEX_PAGE < map->view ? end : map->view / ONCE__INDEX_PAGE;
    first = find_run(map, (uint32_t)end, count);
    if (first < end) {
        flip(map, (uint32_t)first, count);
    }
    (void)pthread_mutex_unlock(&map->page_lock);
    return first < end ? (int64_t)first : 0;
}

static void give_bits(once__index_t *index, uint32_t first, uint32_t count, uint32_t wait_ms)
{
    if (once__index_lock_mutex(&index->map->page_lock, wait_ms, NULL) == ONCE_OK) {
        flip(index->map, first, count);
        (void)pthread_mutex_unlock(&index->map->page_lock);
    }
}

/*
 * Free pages are zero: they were never used, or zeroed when they were given back. Some have no memory until they are taken. The
 * system is asked for it without the lock: it may take long, and a process may be stopped there.
 */
uint32_t once__index_take_pages(once__index_t *index, uint32_t count, uint32_t wait_ms)
{
    int64_t first = 0;
    uint64_t at, end;

    assert(count > 0);
    errno = ENOSPC;
    if (count > ONCE__INDEX_PAGES / 2) {
        return 0;
    }
    while ((first = take_bits(index, count, wait_ms)) == 0 && add_bits(index) == 0) {
    }
    if (first <= 0) {
        errno = first < 0 ? EAGAIN : errno;
        return 0;
    }
    at = (uint64_t)first * ONCE__INDEX_PAGE;
    end = at + (uint64_t)count * ONCE__INDEX_PAGE;
    if (once__index_allocate(index, at, end) != 0) {
        int why = errno;
        give_bits(index, (uint32_t)first, count, wait_ms);
        errno = why;
        return 0;
    }
    raise(&index->map->end, end);
    return (uint32_t)first;
}

/* If the lock cannot be had, the pages are lost, too. */
void once__index_give_pages(once__index_t *index, uint32_t first, uint32_t count, int release,
                            uint32_t wait_ms)
{
    once__index_header_t *map = index->map;
    char *pages = once__index_page(index, first);
    uint64_t size = (uint64_t)count * ONCE__INDEX_PAGE;

    assert(is_used(map, first) && is_used(map, first + count - 1));
    if (!release ||
        (index->fd < 0 ? madvise(pages, size, MADV_DONTNEED)
                       : fallocate(index->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                   pages - (char *)map, (off_t)size)) != 0) {
        memset(pages, 0, (size_t)size);
    }
    give_bits(index, first, count, wait_ms);
}

uint32_t once__pages_count(const once__index_header_t *map)
{
    uint32_t count = 0;

    for (uint64_t i = 0; i < atomic_load(&map->page_limit) / 64; i++) {
        count += (uint32_t)__builtin_popcountll(once__load(&map->page_bits[i]));
    }
    return count;
}

/* ------------------------------------------------------------------------------------------------------------ words */

/* The id's first 16 bits are a little-endian number: its lower 10 bits choose the shard, its upper 6 and the lower 11 of the
   number at byte 10 are the tag, and the 64 bits between the two are the key. */

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

void once__index_id(uint8_t *id, uint32_t shard, const once__shard_entry_t *item)
{
    once__put16(id, (uint16_t)(shard | (item->tag & 63) << 10));
    once__put64(id + 2, item->key);
    once__put16(id + 10, (uint16_t)(item->tag >> 6));
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
    return (once__entry_t){{(uint32_t)(where >> 31 & 0xffff), (where >> 3 & 0xfffffff) * 8},
                           (uint8_t)(where & 7)};
}

static uint32_t tag_in(uint64_t where)
{
    return (uint32_t)(where >> 47);
}

static int is_entry(uint64_t where)
{
    return where > WHERE_DEAD;
}

/* ----------------------------------------------------------------------------------------------------------- tables */

static once__cell_t *cells_of(const once__index_t *index, uint64_t table)
{
    return (once__cell_t *)(void *)((char *)index->map + once__table_at(table));
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
    uint64_t table = once__load(&shard_of(index, id)->table), key = key_of(id), where;
    uint32_t size = once__table_size(table), tag = tag_of(id);
    once__cell_t *cells = cells_of(index, table), *cell = cells + home(key, size);

    for (uint32_t passed = 0; passed < size && (where = once__load(&cell->where)) != 0; passed++) {
        if (once__load(&cell->key) == key && tag_in(where) == tag && is_entry(where)) {
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
    uint64_t table = once__load(&shard_of(index, id)->table);

    __builtin_prefetch(cells_of(index, table) + home(key_of(id), once__table_size(table)));
}

/* Puts an entry into the first cell of its run that is empty or dead. Returns what was there: 0 or WHERE_DEAD. */
static uint64_t put(const once__index_t *index, uint64_t table, uint64_t key, uint64_t where)
{
    uint32_t size = once__table_size(table), passed = 0;
    once__cell_t *cells = cells_of(index, table), *cell = cells + home(key, size);
    uint64_t old;

    for (; is_entry(old = once__load(&cell->where)); passed++) {
        assert(passed < size); /* there is room, and X-1: the record has no entry yet */
        assert(once__load(&cell->key) != key || tag_in(old) != tag_in(where));
        cell = next_cell(cells, size, cell);
    }
    once__store(&cell->key, key);
    once__store(&cell->where, where);
    return old;
}

/* The entries of the shard; *records (may be NULL): without the removed. */
static uint32_t count_entries(const once__index_t *index, const once__shard_t *shard,
                              uint32_t *records)
{
    uint64_t table = once__load(&shard->table);
    const once__cell_t *cells = cells_of(index, table);
    uint32_t entries = 0, removed = 0;

    for (uint32_t i = 0; i < once__table_size(table); i++) {
        uint64_t where = once__load(&cells[i].where);
        entries += (uint32_t)is_entry(where);
        removed += (uint32_t)(is_entry(where) && (where & 7) == ONCE_STATE_NONE);
    }
    if (records != NULL) {
        *records = entries - removed;
    }
    return entries;
}

/* Replaces the shard's table by one for `entries` that is not full then; dead cells are not taken over. */
static int replace_table(once__index_t *index, once__shard_t *shard, uint64_t entries,
                         uint32_t wait_ms)
{
    uint64_t old = once__load(&shard->table), pages = entries * 100 / FILL_PERCENT / PAGE_CELLS + 1;
    const once__cell_t *from = cells_of(index, old);
    uint32_t size = once__table_size(old), first = 0, kept = 0;
    uint64_t fresh;

    errno = ENOSPC;
    if (pages * PAGE_CELLS <= TABLE_MAX) {
        first = once__index_take_pages(index, (uint32_t)pages, wait_ms);
    }
    if (first == 0) {
        return errno == EAGAIN ? ONCE_E_NOREPLY : ONCE_E_FULL;
    }
    fresh = (uint64_t)first * ONCE__INDEX_PAGE / 16 << 24 | pages * PAGE_CELLS;
    for (uint32_t i = 0; i < size; i++) {
        uint64_t where = once__load(&from[i].where);
        if (is_entry(where)) {
            (void)put(index, fresh, once__load(&from[i].key), where);
            kept++;
        }
    }
    /* A process that is killed in between leaves `used` too high, not too low. */
    once__store(&shard->table, fresh);
    once__store(&shard->used, kept);
    if (once__table_at(old) >= sizeof(once__index_header_t)) { /* the first tables stay */
        once__index_give_pages(
            index, (uint32_t)(once__table_at(old) / ONCE__INDEX_PAGE), size / PAGE_CELLS,
            size != pages * PAGE_CELLS, /* a size that is asked for again keeps its memory */
            wait_ms);
    }
    return ONCE_OK;
}

/* Is not more of the shard's table in use with this number of cells? */
static int is_within(const once__shard_t *shard, uint64_t cells, uint32_t percent)
{
    return cells * 100 <= (uint64_t)once__table_size(once__load(&shard->table)) * percent;
}

int once__index_make_room(once__index_t *index, const uint8_t *id)
{
    once__shard_t *shard = shard_of(index, id);
    uint64_t entries;
    int code;

    if (is_within(shard, (uint64_t)once__load(&shard->used) + 1, FILL_PERCENT)) {
        return ONCE_OK;
    }
    entries = count_entries(index, shard, NULL);
    code = replace_table(index, shard, entries * GROWTH_PERCENT / 100, PAGE_WAIT_MS);
    /* Without another table (no memory, or not yet: the lock is taken), this one is filled further. */
    return is_within(shard, entries + 1, MOST_PERCENT) ? ONCE_OK : code;
}

int once__index_reserve(once__index_t *index, const uint8_t *id, uint64_t entries)
{
    once__shard_t *shard = shard_of(index, id);

    return is_within(shard, entries, FILL_PERCENT)
               ? ONCE_OK
               : replace_table(index, shard, entries, ALONE_WAIT_MS);
}

/* ----------------------------------------------------------------------------------------------- locks and versions */

/* A killed process leaves every entry valid. Only the number of records may be wrong (and `used` too high). */
static int lock_shard(once__index_t *index, once__shard_t *shard, uint32_t wait_ms)
{
    uint32_t records;
    int died, code = once__index_lock_mutex(&shard->lock, wait_ms, &died);

    if (code == ONCE_OK && died) {
        (void)count_entries(index, shard, &records);
        once__store(&shard->records, records);
    }
    return code;
}

int once__index_lock(once__index_t *index, const uint8_t *id, uint32_t wait_ms)
{
    return lock_shard(index, shard_of(index, id), wait_ms);
}

void once__index_unlock(once__index_t *index, const uint8_t *id)
{
    (void)pthread_mutex_unlock(&shard_of(index, id)->lock);
}

/* it is stored before the caller writes its frame. */
uint64_t once__index_next_version(once__index_t *index, const uint8_t *id, uint64_t now)
{
    _Atomic uint64_t *last = &shard_of(index, id)->version;
    uint64_t version = now << 20 > once__load(last) ? now << 20 : once__load(last) + 1;

    once__store(last, version);
    return version;
}

void once__index_raise_version(once__index_t *index, const uint8_t *id, uint64_t version)
{
    _Atomic uint64_t *last = &shard_of(index, id)->version;

    if (version > once__load(last)) {
        once__store(last, version);
    }
}

/* ---------------------------------------------------------------------------------------------------------- weights */

/* Pending and unknown records go a retention after their lease, unless hold keeps them. What a newer version wrote is kept. */
uint64_t once__index_kept_until(const once__head_t *head)
{
    if (head->schema > ONCE__SCHEMA) {
        return UINT64_MAX;
    }
    if (head->expires != 0) {
        return head->expires;
    }
    if (head->state == ONCE_STATE_COMPLETED || head->state == ONCE_STATE_FAILED ||
        head->recover == ONCE_RECOVER_HOLD || head->lease_until > UINT64_MAX - head->ttl_ms) {
        return UINT64_MAX;
    }
    return head->lease_until + head->ttl_ms;
}

/* Classes by the time from the segment's making until the record goes: up to 1, 8, 64 ... minutes, then all others. */
static uint32_t class_of(const once__segment_t *segment, uint64_t until)
{
    uint64_t minutes = until > segment->created ? (until - segment->created - 1) / 60000 : 0;
    uint32_t class = minutes == 0 ? 0 : (63 - (uint32_t)__builtin_clzll(minutes)) / 3 + 1;

    return class < ONCE__CLASSES ? class : ONCE__CLASSES - 1;
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
        int64_t bytes = once__load(&segment->live[i].bytes);
        live += bytes > 0 && once__load(&segment->live[i].until) > now ? (uint64_t)bytes : 0;
    }
    return live;
}

/* ---------------------------------------------------------------------------------------------------------- entries */

int once__index_find(const once__index_t *index, const uint8_t *id, once__entry_t *entry)
{
    const once__cell_t *cell = find(index, id);

    if (cell != NULL) {
        *entry = unpack(once__load(&cell->where));
    }
    return cell != NULL;
}

/* Changes the cell of the record, whose entry is `old`. */
static void replace(const once__index_t *index, const uint8_t *id, const once__entry_t *old,
                    uint64_t where)
{
    once__cell_t *cell = find(index, id);

    assert(cell != NULL && once__load(&cell->where) == pack(tag_of(id), old));
    once__store(&cell->where, where);
}

static void add(once__index_t *index, const uint8_t *id, uint64_t where)
{
    once__shard_t *shard = shard_of(index, id);
    uint32_t used = once__load(&shard->used);

    once__store(&shard->used, used + 1);
    if (put(index, once__load(&shard->table), key_of(id), where) == WHERE_DEAD) {
        once__store(&shard->used, used);
    }
}

static void count_record(once__shard_t *shard, int was, int is)
{
    once__store(&shard->records, once__load(&shard->records) + (uint32_t)is - (uint32_t)was);
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
        replace(index, id, old, pack(tag_of(id), entry));
        count(index, old, old_weight.until, -moves, -old_size);
    }
    count_record(shard_of(index, id), old != NULL && old->state != ONCE_STATE_NONE,
                 entry->state != ONCE_STATE_NONE);
}

void once__index_forget(once__index_t *index, const uint8_t *id, const once__entry_t *old,
                        once__weight_t old_weight)
{
    replace(index, id, old, WHERE_DEAD);
    count(index, old, old_weight.until, -1, -(int64_t)old_weight.size);
    count_record(shard_of(index, id), old->state != ONCE_STATE_NONE, 0);
}

/* ------------------------------------------------------------------------------------------------------ all records */

static int by_key(const void *a, const void *b)
{
    const once__shard_entry_t *x = a, *y = b;

    return x->key != y->key ? (x->key < y->key ? -1 : 1) : (x->tag > y->tag) - (x->tag < y->tag);
}

static once__shard_entry_t *copy_entries(const once__index_t *index, const once__shard_t *shard,
                                         size_t *count)
{
    uint64_t table = once__load(&shard->table);
    const once__cell_t *cells = cells_of(index, table);
    once__shard_entry_t *copy = malloc((count_entries(index, shard, NULL) + 1) * sizeof(*copy));

    for (uint32_t i = 0; copy != NULL && i < once__table_size(table); i++) {
        uint64_t where = once__load(&cells[i].where);
        if (is_entry(where)) {
            copy[(*count)++] =
                (once__shard_entry_t){once__load(&cells[i].key), tag_in(where), unpack(where)};
        }
    }
    return copy;
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
    *entries = copy_entries(index, shard, count);
    (void)pthread_mutex_unlock(&shard->lock);
    if (*entries == NULL) {
        return ONCE_E_NOMEM;
    }
    qsort(*entries, *count, sizeof(**entries), by_key);
    return ONCE_OK;
}
