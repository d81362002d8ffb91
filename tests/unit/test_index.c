#include "support/testing.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bytes.h"
#include "store/local/index_file.h"

static const uint8_t boot[ONCE__BOOT_ID_SIZE] = "boot one";
static const uint8_t next_boot[ONCE__BOOT_ID_SIZE] = "boot two";

typedef struct place {
    char path[64];
    int fd;
    once__index_t *index;
} place_t;

static uint64_t mix(uint64_t n)
{
    n = (n ^ n >> 30) * 0xbf58476d1ce4e5b9u;
    n = (n ^ n >> 27) * 0x94d049bb133111ebu;
    return n ^ n >> 31;
}

/* The id of the n-th record. */
static void make_id(uint64_t n, uint8_t id[ONCE_ID_SIZE])
{
    for (unsigned i = 0; i < 4; i++) {
        once__put64(id + 8 * i, mix(n * 4 + i + 1));
    }
}

/* Where record n is: the place tells n, so that an entry can be checked by itself. */
static once__entry_t entry_of(uint32_t segment, uint64_t n, uint8_t state)
{
    once__entry_t entry = {{segment, (n + 8) * 8}, state};

    return entry;
}

static int setup(void **state)
{
    place_t *place = calloc(1, sizeof(*place));

    assert_non_null(place);
    (void)snprintf(place->path, sizeof(place->path), "%s/once-index-XXXXXX",
                   access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    assert_non_null(mkdtemp(place->path));
    place->fd = open(place->path, O_RDONLY | O_DIRECTORY);
    assert_true(place->fd >= 0);
    assert_int_equal(once__index_open(&place->index, place->fd, boot, 1, NULL), ONCE_OK);
    once__index_add_segment(place->index, 1, ONCE__SEGMENT_SEALED, 1 << 20, 0);
    assert_int_equal(once__index_mark_used(place->index), ONCE_OK);
    *state = place;
    return 0;
}

static int teardown(void **state)
{
    place_t *place = *state;

    once__index_close(place->index);
    (void)unlinkat(place->fd, "index", 0);
    (void)close(place->fd);
    (void)rmdir(place->path);
    free(place);
    return 0;
}

static void reopen(place_t *place)
{
    once__index_close(place->index);
    place->index = NULL;
    assert_int_equal(once__index_open(&place->index, place->fd, boot, 0, NULL), ONCE_OK);
}

/* Sets record n, which may be there already (under this entry's key). */
static void set(once__index_t *index, uint64_t n, uint32_t segment, uint8_t state)
{
    once__entry_t old, entry = entry_of(segment, n, state);
    uint8_t id[ONCE_ID_SIZE];
    uint64_t cursor = 0;
    int found;

    make_id(n, id);
    once__index_lock(index, id);
    found = once__index_find(index, id, &cursor, &old);
    if (!found && state != ONCE_STATE_NONE) {
        assert_int_equal(once__index_make_room(index, id), ONCE_OK);
    }
    if (found || state != ONCE_STATE_NONE) {
        once__index_set(index, id, cursor, found, &entry);
    }
    once__index_unlock(index, id);
}

/* The state of record n; NONE: it is not there. */
static uint8_t get(once__index_t *index, uint64_t n)
{
    uint8_t id[ONCE_ID_SIZE];
    once__entry_t entry;
    uint64_t cursor = 0;
    int found;

    make_id(n, id);
    once__index_lock(index, id);
    found = once__index_find(index, id, &cursor, &entry);
    if (found) {
        once__entry_t more;
        assert_int_equal(entry.place.offset, (n + 8) * 8);
        assert_int_equal(once__index_find(index, id, &cursor, &more), 0);
    }
    once__index_unlock(index, id);
    return found ? entry.state : ONCE_STATE_NONE;
}

static uint32_t floor_of(once__index_t *index, uint64_t n)
{
    uint8_t id[ONCE_ID_SIZE];
    uint32_t floor;

    make_id(n, id);
    once__index_lock(index, id);
    floor = once__index_floor(index, id);
    once__index_unlock(index, id);
    return floor;
}

static uint64_t count_all(once__index_t *index)
{
    uint64_t all = 0;

    for (uint32_t shard = 0; shard < ONCE__SHARDS; shard++) {
        once__shard_entry_t *entries;
        size_t count;
        assert_int_equal(once__index_shard(index, shard, &entries, &count), ONCE_OK);
        all += count;
        free(entries);
    }
    return all;
}

/* ----------------------------------------------------------------------------------------------------------- entries */

#define MANY 200000u

static void test_many(void **state)
{
    place_t *place = *state;
    once__index_stats_t stats;
    struct stat st;

    for (uint64_t n = 0; n < MANY; n++) {
        set(place->index, n, 1, ONCE_STATE_PENDING);
    }
    once__index_stats(place->index, &stats);
    assert_int_equal(stats.entries, MANY);
    assert_true(stats.table_bytes <= (uint64_t)24 * MANY);
    /* What the file takes is that, the fixed part, and for each shard less than a page and one small table. */
    assert_int_equal(fstat(place->index->fd, &st), 0);
    assert_true((uint64_t)st.st_blocks * 512 <=
                stats.table_bytes + (uint64_t)ONCE__SHARDS * 5 * 4096 + (2 << 20));
    reopen(place);
    for (uint64_t n = 0; n < MANY; n++) {
        assert_int_equal(get(place->index, n), ONCE_STATE_PENDING);
        set(place->index, n, 1, n % 3 == 0 ? ONCE_STATE_NONE : ONCE_STATE_COMPLETED);
    }
    for (uint64_t n = 0; n < 2 * MANY; n++) {
        assert_int_equal(get(place->index, n),
                         n >= MANY || n % 3 == 0 ? ONCE_STATE_NONE : ONCE_STATE_COMPLETED);
    }
    once__index_stats(place->index, &stats);
    assert_int_equal(stats.entries, MANY - (MANY + 2) / 3);
    assert_int_equal(count_all(place->index), stats.entries);
}

/* Two ids with 74 bits in common: both are given, and the caller reads the frames to tell them apart. */
static void test_ids_that_look_alike(void **state)
{
    place_t *place = *state;
    once__index_t *index = place->index;
    once__entry_t entry;
    uint8_t id[ONCE_ID_SIZE];
    uint64_t cursor = 0;

    make_id(1, id);
    once__index_lock(index, id);
    for (uint8_t i = 0; i < 3; i++) {
        once__entry_t one = entry_of(1, i, ONCE_STATE_PENDING);
        id[ONCE_ID_SIZE - 1] = i;
        assert_int_equal(once__index_make_room(index, id), ONCE_OK);
        once__index_set(index, id, 0, 0, &one);
    }
    for (uint64_t i = 0; i < 3; i++) {
        assert_int_equal(once__index_find(index, id, &cursor, &entry), 1);
        assert_int_equal(entry.place.offset, (i + 8) * 8);
        if (i == 1) {
            once__entry_t other = entry_of(1, 77, ONCE_STATE_COMPLETED);
            once__index_set(index, id, cursor, 1, &other);
        }
    }
    assert_int_equal(once__index_find(index, id, &cursor, &entry), 0);
    cursor = 0;
    assert_int_equal(once__index_find(index, id, &cursor, &entry), 1);
    assert_int_equal(once__index_find(index, id, &cursor, &entry), 1);
    assert_int_equal(entry.place.offset, (77 + 8) * 8);
    assert_int_equal(entry.state, ONCE_STATE_COMPLETED);
    once__index_unlock(index, id);
}

static void test_limits_of_an_entry(void **state)
{
    place_t *place = *state;
    once__entry_t entry = {{ONCE__SEGMENT_MAX, ONCE__OFFSET_LIMIT - 8}, ONCE_STATE_UNKNOWN}, again;
    uint8_t id[ONCE_ID_SIZE];
    uint64_t cursor = 0;

    memset(id, 0xff, sizeof(id));
    once__index_lock(place->index, id);
    assert_int_equal(once__index_make_room(place->index, id), ONCE_OK);
    once__index_set(place->index, id, 0, 0, &entry);
    assert_int_equal(once__index_find(place->index, id, &cursor, &again), 1);
    assert_int_equal(again.place.segment, entry.place.segment);
    assert_int_equal(again.place.offset, entry.place.offset);
    assert_int_equal(again.state, entry.state);
    once__index_unlock(place->index, id);
}

/* Dropping a segment costs nothing and takes all its entries away. */
static void test_dropped_segments_are_dead(void **state)
{
    place_t *place = *state;

    once__index_add_segment(place->index, 2, ONCE__SEGMENT_SEALED, 1 << 20, 0);
    for (uint64_t n = 0; n < 1000; n++) {
        set(place->index, n, 1 + n % 2, ONCE_STATE_COMPLETED);
    }
    assert_int_equal(atomic_load(&once__index_segment(place->index, 1)->current), 500);
    once__index_set_first_segment(place->index, 2);
    for (uint64_t n = 0; n < 1000; n++) {
        assert_int_equal(get(place->index, n) != ONCE_STATE_NONE, n % 2);
    }
    assert_int_equal(count_all(place->index), 500);
}

/* What lives stays the same while everything is replaced over and over: the file must not grow for ever. */
static void test_a_busy_index_does_not_grow(void **state)
{
    place_t *place = *state;
    uint64_t after[4];
    uint64_t n = 0;

    for (uint32_t round = 0; round < 400; round++) {
        uint32_t segment = round + 2;
        once__index_add_segment(place->index, segment, ONCE__SEGMENT_SEALED, 1 << 20, 0);
        for (uint64_t end = n + 5000; n < end; n++) {
            set(place->index, n, segment, ONCE_STATE_COMPLETED);
        }
        once__index_set_first_segment(place->index, segment);
        if (round % 100 == 99) {
            after[round / 100] = atomic_load(&place->index->map->end);
        }
    }
    assert_int_equal(after[3], after[1]);
    assert_int_equal(count_all(place->index), 5000);
}

static void test_counts_what_counts(void **state)
{
    place_t *place = *state;
    const once__segment_info_t *one = once__index_segment(place->index, 1);
    const once__segment_info_t *two = once__index_segment(place->index, 2);

    once__index_add_segment(place->index, 2, ONCE__SEGMENT_SEALED, 1 << 20, 0);
    set(place->index, 1, 1, ONCE_STATE_PENDING);
    set(place->index, 2, 1, ONCE_STATE_UNKNOWN);
    set(place->index, 3, 1, ONCE_STATE_FAILED);
    assert_int_equal(atomic_load(&one->current), 3);
    assert_int_equal(atomic_load(&one->held), 2);
    set(place->index, 1, 2, ONCE_STATE_COMPLETED);
    set(place->index, 2, 2, ONCE_STATE_NONE);
    assert_int_equal(atomic_load(&one->current), 1);
    assert_int_equal(atomic_load(&one->held), 0);
    assert_int_equal(atomic_load(&two->current), 1);
    assert_int_equal(atomic_load(&two->held), 0);
}

/* ------------------------------------------------------------------------------------------------------------- order */

/* A removed record must not come back from a segment behind the one that the next claim of it is written to. */
static void test_removed_records_leave_a_trace(void **state)
{
    place_t *place = *state;

    once__index_add_segment(place->index, 2, ONCE__SEGMENT_ACTIVE, 1 << 20, 0);
    once__index_add_segment(place->index, 3, ONCE__SEGMENT_ACTIVE, 1 << 20, 0);
    set(place->index, 1, 3, ONCE_STATE_COMPLETED);
    set(place->index, 2, 2, ONCE_STATE_COMPLETED);
    assert_int_equal(floor_of(place->index, 1), 0);
    set(place->index, 1, 3, ONCE_STATE_NONE);
    set(place->index, 2, 2, ONCE_STATE_NONE);
    assert_int_equal(get(place->index, 1), ONCE_STATE_NONE);
    assert_int_equal(floor_of(place->index, 1), 3);
    assert_int_equal(floor_of(place->index, 2), 0); /* nobody writes before 2 */
    assert_int_equal(count_all(place->index), 0);
    /* It stays when the table is replaced, and goes when nobody writes to an older segment. */
    for (uint64_t n = 10; n < 100000; n++) {
        set(place->index, n, 1, ONCE_STATE_COMPLETED);
    }
    assert_int_equal(floor_of(place->index, 1), 3);
    atomic_store(&once__index_segment(place->index, 2)->state, ONCE__SEGMENT_SEALED);
    for (uint64_t n = 100000; n < 300000; n++) {
        set(place->index, n, 1, ONCE_STATE_COMPLETED);
    }
    assert_int_equal(floor_of(place->index, 1), 0);
}

static void test_the_purge_is_behind_the_record(void **state)
{
    place_t *place = *state;

    once__index_add_segment(place->index, 2, ONCE__SEGMENT_ACTIVE, 1 << 20, 0);
    once__index_add_segment(place->index, 3, ONCE__SEGMENT_ACTIVE, 1 << 20, 0);
    set(place->index, 1, 1, ONCE_STATE_COMPLETED);
    set(place->index, 1, 3, ONCE_STATE_NONE); /* written down in 3 */
    assert_int_equal(floor_of(place->index, 1), 3);
}

/* Killed after the frame, before the entry: whoever comes next writes behind that frame. */
static void test_killed_with_a_lock(void **state)
{
    place_t *place = *state;
    uint8_t id[ONCE_ID_SIZE];
    pid_t child;
    int status;

    make_id(1, id);
    once__index_add_segment(place->index, 2, ONCE__SEGMENT_ACTIVE, 1 << 20, 0);
    once__index_add_segment(place->index, 3, ONCE__SEGMENT_ACTIVE, 1 << 20, 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        once__index_lock(place->index, id);
        (void)kill(getpid(), SIGKILL);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(floor_of(place->index, 1), 3);
    assert_int_equal(floor_of(place->index, 2), 0);
}

/* ----------------------------------------------------------------------------------------------------------- killing */

#define UNIVERSE 3000u

/* Inserts, replaces, removes, and drops segments, until it is killed. */
static void hammer(once__index_t *index, uint64_t seed)
{
    for (uint64_t i = 0;; i++) {
        uint64_t what = mix(seed * 1000003 + i);
        uint32_t end = once__index_end_segment(index);
        set(index, what % UNIVERSE, end - 1, (uint8_t)(what >> 32) % 5);
        if (i % 500 == 0) {
            (void)once__index_lock_segments(index);
            end = once__index_end_segment(index);
            once__index_add_segment(index, end, ONCE__SEGMENT_SEALED, 1 << 20, 0);
            if (end - once__index_first_segment(index) > 5) {
                once__index_set_first_segment(index, end - 5);
            }
            once__index_unlock_segments(index);
        }
    }
}

static void check_entries(once__index_t *index)
{
    uint32_t first = once__index_first_segment(index), end = once__index_end_segment(index);

    for (uint64_t n = 0; n < UNIVERSE; n++) {
        (void)get(index, n); /* at most one entry, and it is its own */
    }
    for (uint32_t shard = 0; shard < ONCE__SHARDS; shard++) {
        once__shard_entry_t *entries;
        size_t count;
        assert_int_equal(once__index_shard(index, shard, &entries, &count), ONCE_OK);
        for (size_t i = 0; i < count; i++) {
            const once__entry_t *entry = &entries[i].entry;
            uint8_t id[ONCE_ID_SIZE];
            make_id(entry->place.offset / 8 - 8, id);
            assert_int_equal(entries[i].key, once__get64(id + 2));
            assert_in_range(entry->state, ONCE_STATE_PENDING, ONCE_STATE_UNKNOWN);
            assert_in_range(entry->place.segment, first, end - 1);
        }
        free(entries);
    }
}

static void test_killed_at_any_point(void **state)
{
    place_t *place = *state;

    alarm(60); /* a lock that cannot be taken, or a table without an end, would last for ever */
    for (uint64_t round = 0; round < 60; round++) {
        pid_t children[2];
        for (unsigned i = 0; i < 2; i++) {
            children[i] = fork();
            assert_true(children[i] >= 0);
            if (children[i] == 0) {
                hammer(place->index, round * 2 + i + 1);
            }
        }
        (void)usleep((useconds_t)(mix(round) % 20000));
        for (unsigned i = 0; i < 2; i++) {
            (void)kill(children[i], SIGKILL);
            assert_int_equal(waitpid(children[i], NULL, 0), children[i]);
        }
        check_entries(place->index);
    }
    alarm(0);
}

/* ----------------------------------------------------------------------------------------------------------- opening */

static int open_again(const place_t *place, const uint8_t *boot_id)
{
    once__index_t *index;
    int code = once__index_open(&index, place->fd, boot_id, 0, NULL);

    once__index_close(index);
    return code;
}

static void test_only_a_clean_end_survives_a_boot(void **state)
{
    place_t *place = *state;

    set(place->index, 1, 1, ONCE_STATE_COMPLETED);
    assert_int_equal(open_again(place, boot), ONCE_OK);
    assert_int_equal(open_again(place, next_boot), ONCE_E_CORRUPT);
    assert_int_equal(once__index_mark_clean(place->index), ONCE_OK);
    /* Used again by somebody who was not alone with it: the clean end is over. */
    assert_int_equal(once__index_mark_used(place->index), ONCE_OK);
    assert_int_equal(open_again(place, next_boot), ONCE_E_CORRUPT);
    assert_int_equal(once__index_mark_clean(place->index), ONCE_OK);
    assert_int_equal(open_again(place, next_boot), ONCE_OK);
    assert_int_equal(get(place->index, 1), ONCE_STATE_COMPLETED);
    assert_int_equal(once__index_segment(place->index, 1)->other_boot, 1);
}

/* A clock that was changed would let all records expire, and one that went back would keep leases for ever. */
static void test_a_boot_believes_no_changed_clock(void **state)
{
    place_t *place = *state;
    once__index_header_t *map = place->index->map;

    for (int which = 0; which < 2; which++) {
        assert_int_equal(once__index_mark_clean(place->index), ONCE_OK);
        if (which == 0) {
            atomic_fetch_add(&map->closed_at, 1ull << 40);
        } else {
            atomic_fetch_sub(&map->clock_offset, 1ll << 20);
        }
        assert_int_equal(open_again(place, next_boot), ONCE_E_CORRUPT);
        assert_int_equal(once__index_mark_used(place->index), ONCE_OK);
    }
    assert_int_equal(once__index_mark_clean(place->index), ONCE_OK);
    assert_int_equal(open_again(place, next_boot), ONCE_OK);
    assert_int_equal(once__index_has_changed(place->index), 0);
}

/* Frames of a writer that was killed may not be on the disk: the next boot must look. */
static void test_no_clean_end_with_an_open_segment(void **state)
{
    place_t *place = *state;

    once__index_add_segment(place->index, 2, ONCE__SEGMENT_ACTIVE, 1 << 20, 0);
    assert_int_equal(once__index_mark_clean(place->index), ONCE_E_CONFLICT);
    assert_int_equal(open_again(place, next_boot), ONCE_E_CORRUPT);
}

static void test_not_before_it_is_complete(void **state)
{
    place_t *place = *state;

    once__index_close(place->index);
    assert_int_equal(once__index_open(&place->index, place->fd, boot, 1, NULL), ONCE_OK);
    assert_int_equal(open_again(place, boot), ONCE_E_CORRUPT);
    assert_int_equal(once__index_mark_used(place->index), ONCE_OK);
    assert_int_equal(open_again(place, boot), ONCE_OK);
}

static void test_truncated_or_zeroed(void **state)
{
    place_t *place = *state;
    int fd = openat(place->fd, "index", O_RDWR);
    struct stat st;

    assert_true(fd >= 0);
    for (uint64_t n = 0; n < 20000; n++) {
        set(place->index, n, 1, ONCE_STATE_COMPLETED);
    }
    once__index_close(place->index);
    place->index = NULL;
    assert_int_equal(fstat(fd, &st), 0);
    for (off_t size = st.st_size - 1; size > 0; size /= 3) {
        assert_int_equal(ftruncate(fd, size), 0);
        assert_int_equal(open_again(place, boot), ONCE_E_CORRUPT);
        assert_int_equal(ftruncate(fd, st.st_size), 0); /* what was cut off is zero now */
        if ((size_t)size < offsetof(once__index_header_t, first_tables)) {
            assert_int_equal(open_again(place, boot), ONCE_E_CORRUPT);
        }
    }
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(open_again(place, boot), ONCE_E_CORRUPT);
    (void)close(fd);
    assert_int_equal(unlinkat(place->fd, "index", 0), 0);
    assert_int_equal(open_again(place, boot), ONCE_E_CORRUPT);
}

static void test_clock_never_goes_back(void **state)
{
    place_t *place = *state;
    uint64_t now = once__index_now(place->index);

    once__index_start_clock(place->index, now + 3600000);
    assert_true(once__index_now(place->index) >= now + 3600000);
}

static int peek(const once__index_t *index, uint64_t n, once__peek_t *peek)
{
    uint8_t id[ONCE_ID_SIZE];

    make_id(n, id);
    return once__index_peek(index, id, peek);
}

/* What was seen without a lock counts only as long as it is so: the entry, its table, its segment. */
static void test_a_peek_holds_while_nothing_changes(void **state)
{
    once__index_t *index = ((place_t *)*state)->index;
    once__peek_t seen;

    once__index_add_segment(index, 2, ONCE__SEGMENT_SEALED, 1 << 20, 0);
    assert_int_equal(peek(index, 1, &seen), 0);
    set(index, 1, 1, ONCE_STATE_COMPLETED);
    assert_int_equal(peek(index, 1, &seen), 1);
    assert_int_equal(seen.entry.state, ONCE_STATE_COMPLETED);
    assert_int_equal(seen.entry.place.segment, 1);
    assert_int_equal(seen.entry.place.offset, (1 + 8) * 8);
    set(index, 2, 1, ONCE_STATE_COMPLETED);
    assert_int_equal(once__index_peek_holds(index, &seen), 1);

    set(index, 1, 1, ONCE_STATE_PENDING);
    assert_int_equal(once__index_peek_holds(index, &seen), 0);
    set(index, 1, 1, ONCE_STATE_COMPLETED);
    assert_int_equal(once__index_peek_holds(index, &seen), 1);
    set(index, 1, 1, ONCE_STATE_NONE);
    assert_int_equal(once__index_peek_holds(index, &seen), 0);

    set(index, 1, 1, ONCE_STATE_COMPLETED);
    assert_int_equal(peek(index, 1, &seen), 1);
    for (uint64_t n = 10; n < MANY; n++) { /* until no shard has its first table any more */
        set(index, n, 2, ONCE_STATE_COMPLETED);
    }
    assert_int_equal(once__index_peek_holds(index, &seen), 0);
    assert_int_equal(peek(index, 1, &seen), 1);
    assert_int_equal(once__index_peek_holds(index, &seen), 1);
    once__index_set_first_segment(index, 2);
    assert_int_equal(once__index_peek_holds(index, &seen), 0);
    assert_int_equal(peek(index, 1, &seen), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_many),
        TEST(test_ids_that_look_alike),
        TEST(test_a_peek_holds_while_nothing_changes),
        TEST(test_limits_of_an_entry),
        TEST(test_dropped_segments_are_dead),
        TEST(test_a_busy_index_does_not_grow),
        TEST(test_counts_what_counts),
        TEST(test_removed_records_leave_a_trace),
        TEST(test_the_purge_is_behind_the_record),
        TEST(test_killed_with_a_lock),
        TEST(test_killed_at_any_point),
        TEST(test_only_a_clean_end_survives_a_boot),
        TEST(test_a_boot_believes_no_changed_clock),
        TEST(test_no_clean_end_with_an_open_segment),
        TEST(test_not_before_it_is_complete),
        TEST(test_truncated_or_zeroed),
        TEST(test_clock_never_goes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
