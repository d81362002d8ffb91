/*
 * The index in memory: entries, what is counted of segments, versions, slots and pages.
 */
#include <pthread.h>

#include "support/local_index.h"

static once__index_t *index_of(void **state)
{
    return ((place_t *)*state)->index;
}

static size_t count_all(once__index_t *index)
{
    size_t all = 0;

    for (uint32_t shard = 0; shard < ONCE__SHARDS; shard++) {
        once__shard_entry_t *entries;
        size_t count;
        assert_int_equal(once__index_shard(index, shard, &entries, &count), ONCE_OK);
        for (size_t i = 0; i < count; i++) {
            uint8_t id[ONCE_ID_SIZE];
            make_id(number_of(&entries[i].entry), id);
            assert_int_equal(once__index_shard_of(id), shard);
            assert_true(once__index_is_key(id, entries[i].key, entries[i].tag));
            assert_true(i == 0 || entries[i - 1].key <= entries[i].key);
        }
        all += count;
        free(entries);
    }
    return all;
}

/* ---------------------------------------------------------------------------------------------------------- entries */

#define MANY 1000000u

/* At most 24 bytes of memory a key, with everything that the file has. */
static void a_million(void **state)
{
    once__index_t *index = index_of(state);
    uint32_t slot = new_segment(index, ONCE__SEGMENT_ACTIVE);
    once__entry_t entry;
    struct stat st;

    for (uint64_t n = 0; n < MANY; n++) {
        assert_int_equal(set_record(index, n, slot, ONCE_STATE_PENDING), ONCE_OK);
    }
    assert_int_equal(once__index_entries(index), MANY);
    assert_int_equal(fstat(index->fd, &st), 0);
    assert_true((uint64_t)st.st_blocks * 512 <= (uint64_t)24 * MANY);
    assert_true(once__index_bytes(index) <= (uint64_t)24 * MANY);
    /* What was outgrown went back, but for some that the file has in reserve. */
    assert_true((uint64_t)st.st_blocks * 512 <= once__index_bytes(index) + (2 << 20));
    for (uint64_t n = 0; n < MANY; n += 7) {
        assert_true(get_record(index, n, &entry) && entry.state == ONCE_STATE_PENDING);
    }
    for (uint64_t n = MANY; n < MANY + 10000; n++) {
        assert_false(get_record(index, n, &entry));
    }
    assert_int_equal(count_all(index), MANY);
}

static void changed_removed_forgotten(void **state)
{
    once__index_t *index = index_of(state);
    uint32_t slot = new_segment(index, ONCE__SEGMENT_ACTIVE);
    once__entry_t entry;

    for (uint64_t n = 0; n < 100000; n++) {
        assert_int_equal(set_record(index, n, slot, ONCE_STATE_PENDING), ONCE_OK);
    }
    for (uint64_t n = 0; n < 100000; n++) {
        if (n % 4 == 0) {
            forget_record(index, n);
        } else {
            (void)set_record(index, n, slot, n % 4 == 1 ? ONCE_STATE_NONE : ONCE_STATE_COMPLETED);
        }
    }
    for (uint64_t n = 0; n < 100000; n++) {
        assert_int_equal(get_record(index, n, &entry), n % 4 != 0);
        assert_true(n % 4 == 0 ||
                    entry.state == (n % 4 == 1 ? ONCE_STATE_NONE : ONCE_STATE_COMPLETED));
    }
    assert_int_equal(once__index_entries(index), 50000);
    assert_int_equal(count_all(index), 75000);
    assert_int_equal(atomic_load(&once__index_segment(index, slot)->entries), 75000);
}

/* Of a segment in the last slot. */
static void check_limits_of_an_entry(once__index_t *index)
{
    once__entry_t entry = {{ONCE__SLOTS - 1, ONCE__SEGMENT_MAX - 8}, ONCE_STATE_UNKNOWN}, again;
    once__weight_t heavy = {8, NEVER};
    uint8_t id[ONCE_ID_SIZE];

    memset(id, 0xff, sizeof(id));
    assert_int_equal(once__index_lock(index, id, 0), ONCE_OK);
    assert_int_equal(once__index_make_room(index, id), ONCE_OK);
    once__index_set(index, id, &entry, heavy, NULL, heavy);
    assert_int_equal(once__index_find(index, id, &again), 1);
    assert_int_equal(again.place.slot, entry.place.slot);
    assert_int_equal(again.place.offset, entry.place.offset);
    assert_int_equal(again.state, entry.state);
    id[10] ^= 4; /* a bit of the tag */
    assert_int_equal(once__index_find(index, id, &again), 0);
    id[10] ^= 4;
    id[11] ^= 8; /* behind the bits that count */
    assert_int_equal(once__index_find(index, id, &again), 1);
    once__index_forget(index, id, &entry, heavy);
    once__index_unlock(index, id);
}

/* Two ids that differ in the tag alone are two records. */
static void neighbours_in_a_run(void **state)
{
    once__index_t *index = index_of(state);
    uint32_t slot = new_segment(index, ONCE__SEGMENT_ACTIVE);
    uint8_t id[ONCE_ID_SIZE] = {0};
    once__weight_t weight = {8, NEVER};
    once__entry_t entry;

    assert_int_equal(once__index_lock(index, id, 0), ONCE_OK);
    for (uint8_t i = 0; i < 200; i++) {
        once__entry_t one = entry_of(slot, i, ONCE_STATE_PENDING);
        id[10] = i;
        assert_int_equal(once__index_make_room(index, id), ONCE_OK);
        once__index_set(index, id, &one, weight, NULL, weight);
    }
    for (uint8_t i = 0; i < 200; i++) {
        id[10] = i;
        assert_int_equal(once__index_find(index, id, &entry), 1);
        assert_int_equal(number_of(&entry), i);
        if (i % 2 != 0) {
            once__index_forget(index, id, &entry, weight);
        }
    }
    for (uint8_t i = 0; i < 200; i++) {
        id[10] = i;
        assert_int_equal(once__index_find(index, id, &entry), i % 2 == 0);
    }
    once__index_unlock(index, id);
}

#define WINDOW 20000u

/* While everything is replaced over and over, the memory stays the same. */
static void a_busy_index_does_not_grow(void **state)
{
    once__index_t *index = index_of(state);
    uint32_t slot = new_segment(index, ONCE__SEGMENT_ACTIVE);
    uint64_t after[4];

    few_shards = 1;
    for (uint64_t n = 0; n < 4 * WINDOW; n++) {
        assert_int_equal(set_record(index, n, slot, ONCE_STATE_COMPLETED), ONCE_OK);
        if (n >= WINDOW) {
            forget_record(index, n - WINDOW);
        }
        if (n % WINDOW == WINDOW - 1) {
            after[n / WINDOW] = once__pages_count(index->map);
        }
    }
    assert_true(after[3] <= after[1] + after[1] / 10);
    assert_true((atomic_load(&index->map->end) - sizeof(*index->map)) / ONCE__INDEX_PAGE <=
                2 * after[1] + 256);
    assert_int_equal(count_all(index), WINDOW);
    /* It becomes smaller with what it has. */
    for (uint64_t n = 3 * WINDOW; n < 4 * WINDOW; n++) {
        forget_record(index, n);
    }
    for (uint64_t n = 4 * WINDOW; n < 7 * WINDOW; n++) {
        assert_int_equal(set_record(index, n, slot, ONCE_STATE_COMPLETED), ONCE_OK);
        forget_record(index, n);
    }
    assert_true(once__pages_count(index->map) <= after[1] - after[1] / 3);
    few_shards = 0;
}

static void room_for_many_at_once(void **state)
{
    once__index_t *index = index_of(state);
    uint32_t slot = new_segment(index, ONCE__SEGMENT_ACTIVE);
    uint8_t id[ONCE_ID_SIZE] = {0};
    uint64_t table;

    assert_int_equal(once__index_reserve(index, id, 5000), ONCE_OK);
    table = atomic_load(&index->map->shards[0].table);
    for (uint64_t n = 0; n < 5000; n++) {
        once__entry_t entry = entry_of(slot, n, ONCE_STATE_PENDING);
        once__put64(id + 2, mix(n));
        assert_int_equal(once__index_make_room(index, id), ONCE_OK);
        once__index_set(index, id, &entry, weight_of(n, 1), NULL, weight_of(n, 1));
    }
    assert_int_equal(atomic_load(&index->map->shards[0].table), table);
    assert_int_equal(once__index_reserve(index, id, (uint64_t)1 << 24), ONCE_E_FULL);
}

/* ----------------------------------------------------------------------------------------------------------- counts */

static void set_weighed(once__index_t *index, uint64_t n, uint32_t slot, uint8_t state_now,
                        once__weight_t weight, once__weight_t old_weight)
{
    once__entry_t entry = entry_of(slot, n, state_now), old;
    uint8_t id[ONCE_ID_SIZE];
    int found = begin(index, n, id, &old);

    assert_int_equal(found ? ONCE_OK : once__index_make_room(index, id), ONCE_OK);
    once__index_set(index, id, &entry, weight, found ? &old : NULL, old_weight);
    once__index_unlock(index, id);
}

static once__weight_t weight(uint32_t size, uint64_t until)
{
    once__weight_t result = {size, until};

    return result;
}

static void live_bytes_end_with_their_class(void **state)
{
    static const uint64_t minutes[] = {1, 8, 64, 512, 4096, 32768, 262144};
    once__index_t *index = index_of(state);
    uint32_t slot = new_segment(index, ONCE__SEGMENT_ACTIVE);
    const once__segment_t *segment = once__index_segment(index, slot);
    uint64_t none = 0, n = 0;

    for (unsigned i = 0; i < 7; i++) { /* the last one of a class, and the first of the next */
        uint64_t until = segment->created + minutes[i] * 60000;
        set_weighed(index, n++, slot, ONCE_STATE_COMPLETED, weight(1, until), weight(0, none));
        set_weighed(index, n++, slot, ONCE_STATE_COMPLETED, weight(16, until + 1), weight(0, none));
        assert_int_equal(atomic_load(&segment->live[i].bytes), i == 0 ? 1 : 17);
        assert_int_equal(atomic_load(&segment->live[i].until), until);
        assert_int_equal(atomic_load(&segment->live[i + 1].bytes), 16);
    }
    set_weighed(index, n++, slot, ONCE_STATE_PENDING, weight(100, NEVER), weight(0, none));
    set_weighed(index, n++, slot, ONCE_STATE_COMPLETED, weight(3, 5), weight(0, none));
    assert_int_equal(atomic_load(&segment->live[0].bytes), 4); /* expired before it was made */
    assert_int_equal(once__segment_live(segment, 0), 7 * 17 + 100 + 3);
    assert_int_equal(once__segment_live(segment, segment->created + 60000 - 1), 222);
    assert_int_equal(once__segment_live(segment, segment->created + 60000), 218);
    assert_int_equal(once__segment_live(segment, segment->created + 64 * 60000), 218 - 2 * 17);
    assert_int_equal(once__segment_live(segment, NEVER - 1), 116);
    assert_int_equal(atomic_load(&segment->entries), (int64_t)n);
}

static void counts_move_with_the_entry(void **state)
{
    once__index_t *index = index_of(state);
    uint32_t a = new_segment(index, ONCE__SEGMENT_SEALED), b;
    const once__segment_t *from = once__index_segment(index, a), *to;
    once__weight_t none = {0, 0}, brief = {100, 2000}, large = {400, 3000}, held = {50, NEVER};

    b = new_segment(index, ONCE__SEGMENT_ACTIVE);
    to = once__index_segment(index, b);
    set_weighed(index, 1, a, ONCE_STATE_PENDING, brief, none);
    set_weighed(index, 1, a, ONCE_STATE_COMPLETED, large, brief); /* the same class */
    assert_int_equal(atomic_load(&from->entries), 1);
    assert_int_equal(atomic_load(&from->live[0].bytes), 400);
    assert_int_equal(atomic_load(&from->live[0].until), 3000);
    set_weighed(index, 1, a, ONCE_STATE_PENDING, brief, large); /* and smaller again */
    assert_int_equal(atomic_load(&from->live[0].bytes), 100);
    set_weighed(index, 1, a, ONCE_STATE_UNKNOWN, held, brief); /* another class */
    assert_int_equal(atomic_load(&from->live[0].bytes), 0);
    assert_int_equal(atomic_load(&from->live[7].bytes), 50);
    set_weighed(index, 1, b, ONCE_STATE_COMPLETED, large, held);
    assert_int_equal(atomic_load(&from->entries), 0);
    assert_int_equal(once__segment_live(from, 0), 0);
    assert_int_equal(atomic_load(&to->entries), 1);
    assert_int_equal(once__segment_live(to, 0), 400);
    assert_int_equal(once__index_entries(index), 1);
    set_weighed(index, 1, b, ONCE_STATE_NONE, none, large); /* expired: still an entry */
    assert_int_equal(atomic_load(&to->entries), 1);
    assert_int_equal(once__segment_live(to, 0), 0);
    assert_int_equal(once__index_entries(index), 0);
    set_weighed(index, 1, b, ONCE_STATE_NONE, none, none);
    forget_record(index, 1);
    assert_int_equal(atomic_load(&to->entries), 0);
    assert_int_equal(once__index_entries(index), 0);
}

static void usage(void **state)
{
    once__index_t *index = index_of(state);
    uint32_t active = new_segment(index, ONCE__SEGMENT_ACTIVE), slot;
    uint64_t records, bytes, number;

    (void)new_segment(index, ONCE__SEGMENT_SEALED);
    assert_int_equal(once__index_take_slot(index, &slot, &number), ONCE_OK); /* being prepared */
    once__index_segment(index, slot)->size = 999;
    (void)set_record(index, 1, active, ONCE_STATE_PENDING);
    (void)set_record(index, 2, active, ONCE_STATE_NONE);
    once__index_usage(index, &records, &bytes);
    assert_int_equal(records, 1);
    assert_int_equal(bytes, (1 << 20) + 4096);
}

static void kept_until(void **state)
{
    once__head_t head = {.schema = ONCE__SCHEMA, .state = ONCE_STATE_COMPLETED, .expires = 77};

    (void)state;
    assert_int_equal(once__index_kept_until(&head), 77);
    head.expires = 0;
    assert_int_equal(once__index_kept_until(&head), NEVER);
    head.state = ONCE_STATE_PENDING;
    head.lease_until = 100;
    head.ttl_ms = 20;
    assert_int_equal(once__index_kept_until(&head), 120);
    head.ttl_ms = NEVER - 50;
    assert_int_equal(once__index_kept_until(&head), NEVER);
    head.ttl_ms = 20;
    head.recover = ONCE_RECOVER_HOLD;
    assert_int_equal(once__index_kept_until(&head), NEVER);
    head.recover = ONCE_RECOVER_RETRY;
    head.expires = 77;
    head.schema = ONCE__SCHEMA + 1;
    assert_int_equal(once__index_kept_until(&head), NEVER);
}

/* ----------------------------------------------------------------------------------------------- clock and versions */

static void clock_and_versions(void **state)
{
    once__index_t *index = index_of(state);
    uint8_t id[ONCE_ID_SIZE] = {7}, other[ONCE_ID_SIZE] = {8};
    uint64_t now = once__index_now(index), first;

    once__index_set_clock(index, 3600000);
    assert_int_equal(once__index_clock(index), 3600000);
    assert_true(once__index_now(index) >= now + 3600000);
    now = once__index_now(index);
    first = once__index_next_version(index, id, now);
    assert_int_equal(first, now << 20);
    assert_int_equal(once__index_next_version(index, id, now), first + 1);
    assert_int_equal(once__index_next_version(index, id, now - 1000), first + 2); /* never back */
    assert_int_equal(once__index_next_version(index, other, now), first);
    assert_int_equal(once__index_next_version(index, id, now + 1), (now + 1) << 20);
    once__index_raise_version(index, id, 5);
    once__index_raise_version(index, id, (now + 9) << 20);
    assert_int_equal(once__index_next_version(index, id, now + 2), ((now + 9) << 20) + 1);
}

/* -------------------------------------------------------------------------------------------------- slots and pages */

static void slots(void **state)
{
    once__index_t *index = index_of(state);
    uint64_t number, last = 0;
    uint32_t slot;

    for (uint32_t i = 0; i < ONCE__SLOTS; i++) {
        assert_int_equal(once__index_take_slot(index, &slot, &number), ONCE_OK);
        assert_int_equal(slot, i);
        assert_int_equal(number, ++last);
        assert_int_equal(atomic_load(&once__index_segment(index, slot)->number), number);
        assert_int_equal(once__index_segment(index, slot)->state, ONCE__SEGMENT_PREPARING);
        atomic_store(&once__index_segment(index, slot)->entries, 5);
    }
    assert_int_equal(once__index_slot_end(index), ONCE__SLOTS);
    assert_int_equal(once__index_take_slot(index, &slot, &number), ONCE_E_FULL);
    check_limits_of_an_entry(index);
    once__index_free_slot(index, 77);
    once__index_free_slot(index, ONCE__SLOTS - 1);
    assert_int_equal(atomic_load(&once__index_segment(index, 77)->number), 0);
    once__index_raise_number(index, 100);
    once__index_raise_number(index, 1000000);
    assert_int_equal(once__index_take_slot(index, &slot, &number), ONCE_OK);
    assert_int_equal(slot, 77);
    assert_int_equal(number, 1000001); /* no number twice */
    assert_int_equal(atomic_load(&once__index_segment(index, 77)->entries), 0);
    assert_int_equal(once__index_slot_end(index), ONCE__SLOTS - 1);
    once__index_raise_number(index, ((uint64_t)1 << 40) - 1);
    assert_int_equal(once__index_take_slot(index, &slot, &number), ONCE_OK);
    assert_int_equal(slot, ONCE__SLOTS - 1);
    assert_int_equal(atomic_load(&once__index_segment(index, slot)->number), (uint64_t)1 << 40);
    once__index_free_slot(index, 3);
    assert_int_equal(once__index_take_slot(index, &slot, &number), ONCE_OK);
    assert_int_equal(number, ((uint64_t)1 << 40) + 1);
}

#define RUNS 400

static void pages_belong_to_one(void **state)
{
    once__index_t *index = index_of(state);
    uint32_t first[RUNS], size[RUNS];
    uint64_t end;

    for (uint32_t i = 0; i < RUNS; i++) {
        size[i] = i * 7 % 11 + 1;
        first[i] = once__index_take_pages(index, size[i], ONCE__INDEX_WAIT_MS);
        assert_true((uint64_t)first[i] * ONCE__INDEX_PAGE >= sizeof(once__index_header_t));
        for (uint32_t j = 0; j < i; j++) {
            assert_true(first[j] + size[j] <= first[i] || first[i] + size[i] <= first[j]);
        }
        memset(once__index_page(index, first[i]), (int)i | 1, size[i] * ONCE__INDEX_PAGE);
    }
    end = atomic_load(&index->map->end);
    for (uint32_t i = 0; i < RUNS; i += 2) {
        once__index_give_pages(index, first[i], size[i], i % 4 != 0, ONCE__INDEX_WAIT_MS);
    }
    for (uint32_t i = 0; i < RUNS; i += 2) {
        first[i] = once__index_take_pages(index, size[i], ONCE__INDEX_WAIT_MS);
        for (uint32_t j = 0; j < size[i] * ONCE__INDEX_PAGE; j++) {
            assert_int_equal(((const char *)once__index_page(index, first[i]))[j], 0);
        }
        for (uint32_t j = 0; j < RUNS; j++) {
            assert_true(j == i || (j > i && j % 2 == 0) || first[j] + size[j] <= first[i] ||
                        first[i] + size[i] <= first[j]);
        }
    }
    assert_int_equal(atomic_load(&index->map->end), end);
    assert_int_equal(once__index_take_pages(index, ONCE__INDEX_PAGES, ONCE__INDEX_WAIT_MS), 0);
}

static void free_neighbours_join(void **state)
{
    once__index_t *index = index_of(state);
    uint32_t a = once__index_take_pages(index, 3, ONCE__INDEX_WAIT_MS),
             b = once__index_take_pages(index, 3, ONCE__INDEX_WAIT_MS);

    assert_int_equal(once__index_take_pages(index, 1, ONCE__INDEX_WAIT_MS), b + 3);
    once__index_give_pages(index, b, 3, 0, ONCE__INDEX_WAIT_MS);
    once__index_give_pages(index, a, 3, 0, ONCE__INDEX_WAIT_MS);
    assert_int_equal(once__index_take_pages(index, 6, ONCE__INDEX_WAIT_MS), a);
}

static once__index_t *watched; /* NULL: no index */
static unsigned asked;         /* calls for memory while it is watched */

int __real_fallocate(int fd, int mode, off_t offset, off_t len);
int __wrap_fallocate(int fd, int mode, off_t offset, off_t len);

int __wrap_fallocate(int fd, int mode, off_t offset, off_t len)
{
    if (watched != NULL) {
        assert_int_equal(pthread_mutex_trylock(&watched->map->page_lock), 0);
        (void)pthread_mutex_unlock(&watched->map->page_lock);
        asked++;
    }
    return __real_fallocate(fd, mode, offset, len);
}

/* A process that is stopped in a call for memory, or waits long for it, has no lock that all need. */
static void memory_is_asked_for_without_the_lock(void **state)
{
    once__index_t *index = index_of(state);
    uint32_t first;

    watched = index;
    asked = 0;
    first = once__index_take_pages(index, 5, ONCE__INDEX_WAIT_MS);
    assert_true(first != 0 && asked > 0);
    once__index_give_pages(index, first, 5, 1, ONCE__INDEX_WAIT_MS);
    watched = NULL;
}

/* ------------------------------------------------------------------------------------------------------------ locks */

typedef struct holder {
    once__index_t *index;
    uint8_t id[ONCE_ID_SIZE];
    int ready[2], done[2]; /* pipes */
} holder_t;

static void *hold(void *data)
{
    holder_t *holder = data;
    char c = 0;

    assert_int_equal(once__index_lock(holder->index, holder->id, 1000), ONCE_OK);
    assert_int_equal(write(holder->ready[1], &c, 1), 1);
    assert_int_equal(read(holder->done[0], &c, 1), 1);
    once__index_unlock(holder->index, holder->id);
    return NULL;
}

static void every_wait_has_an_end(void **state)
{
    holder_t holder = {.index = index_of(state)};
    uint8_t other[ONCE_ID_SIZE] = {1};
    pthread_t thread;
    char c = 0;

    assert_int_equal(pipe(holder.ready), 0);
    assert_int_equal(pipe(holder.done), 0);
    assert_int_equal(pthread_create(&thread, NULL, hold, &holder), 0);
    assert_int_equal(read(holder.ready[0], &c, 1), 1);
    assert_int_equal(once__index_lock(holder.index, holder.id, 0), ONCE_E_NOREPLY);
    assert_int_equal(once__index_lock(holder.index, holder.id, 30), ONCE_E_NOREPLY);
    assert_int_equal(once__index_lock(holder.index, other, 0), ONCE_OK); /* another shard */
    once__index_unlock(holder.index, other);
    assert_int_equal(write(holder.done[1], &c, 1), 1);
    assert_int_equal(once__index_lock(holder.index, holder.id, 60000), ONCE_OK);
    once__index_unlock(holder.index, holder.id);
    assert_int_equal(pthread_join(thread, NULL), 0);
    for (int i = 0; i < 2; i++) {
        (void)close(holder.ready[i]);
        (void)close(holder.done[i]);
    }
}

static void *hold_pages(void *data)
{
    holder_t *holder = data;
    char c = 0;

    assert_int_equal(once__index_lock_mutex(&holder->index->map->page_lock, 1000, NULL), ONCE_OK);
    assert_int_equal(write(holder->ready[1], &c, 1), 1);
    assert_int_equal(read(holder->done[0], &c, 1), 1);
    (void)usleep(100000);
    (void)pthread_mutex_unlock(&holder->index->map->page_lock);
    return NULL;
}

/* A process that was just stopped with the lock of the pages: there is room all the same, and who is alone waits. */
static void a_lock_is_no_lack_of_room(void **state)
{
    holder_t holder = {.index = index_of(state)};
    uint32_t slot = new_segment(holder.index, ONCE__SEGMENT_ACTIVE);
    pthread_t thread;
    char c = 0;

    assert_int_equal(pipe(holder.ready), 0);
    assert_int_equal(pipe(holder.done), 0);
    assert_int_equal(pthread_create(&thread, NULL, hold_pages, &holder), 0);
    assert_int_equal(read(holder.ready[0], &c, 1), 1);
    for (uint64_t n = 0; n < 33; n++) { /* of one shard, whose first table has 32 cells */
        uint8_t id[ONCE_ID_SIZE];
        once__entry_t entry = entry_of(slot, n, ONCE_STATE_PENDING);
        make_id(n, id);
        id[0] = id[1] = 0;
        assert_int_equal(once__index_make_room(holder.index, id),
                         n < 31 ? ONCE_OK : ONCE_E_NOREPLY);
        if (n < 31) {
            once__index_set(holder.index, id, &entry, weight_of(n, entry.state), NULL,
                            (once__weight_t){0, 0});
        }
    }
    assert_int_equal(write(holder.done[1], &c, 1), 1);
    assert_int_equal(once__index_reserve(holder.index, holder.id, 1000), ONCE_OK);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(once__index_make_room(holder.index, holder.id), ONCE_OK);
    for (int i = 0; i < 2; i++) {
        (void)close(holder.ready[i]);
        (void)close(holder.done[i]);
    }
}

#define SHARED 20000u

typedef struct worker {
    once__index_t *index;
    uint32_t slot;
    uint64_t seed;
} worker_t;

static void *work(void *data)
{
    const worker_t *worker = data;

    for (uint64_t i = 0; i < 60000; i++) {
        uint64_t n = mix(worker->seed + i) % SHARED;
        if (i % 3 == 0) {
            forget_record(worker->index, n);
        } else {
            assert_int_equal(set_record(worker->index, n, worker->slot, (uint8_t)(1 + i % 4)),
                             ONCE_OK);
        }
    }
    return NULL;
}

/* Two threads, each with a segment: in the end all counts are exact. */
static void counts_are_exact(void **state)
{
    once__index_t *index = index_of(state);
    worker_t workers[2];
    pthread_t threads[2];
    int64_t entries[2] = {0}, bytes[2] = {0};
    once__entry_t entry;

    for (uint64_t i = 0; i < 2; i++) {
        worker_t worker = {index, new_segment(index, ONCE__SEGMENT_ACTIVE), i << 32};
        workers[i] = worker;
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    for (uint64_t n = 0; n < SHARED; n++) {
        if (get_record(index, n, &entry)) {
            int which = entry.place.slot == workers[1].slot;
            entries[which]++;
            bytes[which] += weight_of(n, entry.state).size;
        }
    }
    for (int i = 0; i < 2; i++) {
        const once__segment_t *segment = once__index_segment(index, workers[i].slot);
        assert_int_equal(atomic_load(&segment->entries), entries[i]);
        assert_int_equal(once__segment_live(segment, 0), (uint64_t)bytes[i]);
    }
    assert_int_equal(once__index_entries(index), (uint64_t)(entries[0] + entries[1]));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup_index, teardown_index)
    const struct CMUnitTest tests[] = {
        TEST(a_million),
        TEST(changed_removed_forgotten),
        TEST(neighbours_in_a_run),
        TEST(a_busy_index_does_not_grow),
        TEST(room_for_many_at_once),
        TEST(live_bytes_end_with_their_class),
        TEST(counts_move_with_the_entry),
        TEST(usage),
        cmocka_unit_test(kept_until),
        TEST(clock_and_versions),
        TEST(slots),
        TEST(pages_belong_to_one),
        TEST(free_neighbours_join),
        TEST(memory_is_asked_for_without_the_lock),
        TEST(every_wait_has_an_end),
        TEST(a_lock_is_no_lack_of_room),
        TEST(counts_are_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
