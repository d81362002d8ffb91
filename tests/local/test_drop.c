/*
 * The end of a segment: what took the place of its records must be durable first, and what is carried must be worth it.
 */
#include "place.h"

#include "support/testing.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/local/log_inside.h"

#define EXPIRES 1000u

typedef struct store {
    char path[PLACE_SIZE];
    int fd, segments_fd;
    once__index_t *index;
    once__log_t *logs[2];
} store_t;

static const uint8_t boot[ONCE__BOOT_ID_SIZE] = "boot";
static const uint8_t id[ONCE_ID_SIZE] = {42};

static once__log_t *open_log(const store_t *store)
{
    once__log_config_t config = {.directory_fd = store->segments_fd,
                                 .index = store->index,
                                 .disk = &once__real_disk,
                                 .segment_size = 65536};
    once__log_t *log = once__log_open(&config);

    assert_non_null(log);
    return log;
}

static int setup(void **state)
{
    static store_t store;

    memset(&store, 0, sizeof(store));
    (void)snprintf(store.path, sizeof(store.path), "%s/once-drop-XXXXXX",
                   access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    assert_non_null(mkdtemp(store.path));
    store.fd = open(store.path, O_RDONLY | O_DIRECTORY);
    assert_true(store.fd >= 0 && mkdirat(store.fd, "segments", 0700) == 0);
    store.segments_fd = openat(store.fd, "segments", O_RDONLY | O_DIRECTORY);
    assert_true(store.segments_fd >= 0);
    assert_int_equal(once__index_open(&store.index, store.fd, boot, 1, NULL), ONCE_OK);
    assert_int_equal(once__index_mark_used(store.index), ONCE_OK);
    store.logs[0] = open_log(&store);
    store.logs[1] = open_log(&store);
    *state = &store;
    return 0;
}

static int teardown(void **state)
{
    const store_t *store = *state;

    once__log_abandon(store->logs[0]);
    once__log_abandon(store->logs[1]);
    once__index_close(store->index);
    (void)close(store->segments_fd);
    (void)close(store->fd);
    place_remove(store->path);
    return 0;
}

/* Writes the record once more, and points the index to it. */
static void write_record(const store_t *store, once__log_t *log, uint32_t epoch)
{
    once__record_t record = {.head = {.schema = ONCE__SCHEMA,
                                      .state = ONCE_STATE_COMPLETED,
                                      .claim = {.epoch = epoch},
                                      .expires = EXPIRES},
                             .key = "key",
                             .key_len = 3,
                             .payload = {ONCE__PAYLOAD_RESPONSE, 200, id, sizeof(id)}};
    once__entry_t old, entry = {{0, 0}, ONCE_STATE_COMPLETED};
    uint64_t cursor = 0;
    int found;

    once__index_lock(store->index, id);
    found = once__index_find(store->index, id, &cursor, &old);
    assert_int_equal(found || once__index_make_room(store->index, id) == ONCE_OK, 1);
    assert_int_equal(
        once__log_append(log, id, &record, found ? old.place.segment : 0, &entry.place), ONCE_OK);
    once__index_set(store->index, id, cursor, found, &entry);
    once__index_unlock(store->index, id);
}

static int carry_nothing(void *data, uint32_t segment, int everything)
{
    return ONCE_OK;
}

static int drop(once__log_t *log)
{
    uint64_t count = 0;

    return once__log_drop(log, EXPIRES + 1, carry_nothing, NULL, &count);
}

static int exists(const store_t *store, uint32_t number)
{
    char name[ONCE__SEGMENT_NAME];
    struct stat st;

    once__segment_name(name, number, "log");
    return fstatat(store->segments_fd, name, &st, 0) == 0;
}

/* The record is in segment 1, which is finished; a newer frame of it is in segment 2, of the other process. */
static void replace_by_other(const store_t *store)
{
    write_record(store, store->logs[0], 1);
    assert_int_equal(once__log_retire(store->logs[0]), ONCE_OK);
    write_record(store, store->logs[1], 2);
    assert_true(exists(store, 1) && exists(store, 2));
}

static void test_waits_for_another_process(void **state)
{
    const store_t *store = *state;

    replace_by_other(store);
    assert_int_equal(drop(store->logs[0]), ONCE_E_NOT_FOUND);
    assert_int_equal(drop(store->logs[0]), ONCE_E_NOT_FOUND);
    assert_true(exists(store, 1));
    assert_int_equal(once__log_sync(store->logs[1]), ONCE_OK);
    assert_int_equal(drop(store->logs[0]), ONCE_OK);
    assert_false(exists(store, 1));
}

/* What is written meanwhile is not waited for, or a busy writer would keep it for ever. */
static void test_waits_for_no_more_than_that(void **state)
{
    const store_t *store = *state;

    replace_by_other(store);
    assert_int_equal(drop(store->logs[0]), ONCE_E_NOT_FOUND);
    assert_int_equal(once__log_sync(store->logs[1]), ONCE_OK);
    write_record(store, store->logs[1], 3);
    assert_int_equal(drop(store->logs[0]), ONCE_OK);
    assert_false(exists(store, 1));
}

static void test_takes_over_from_the_dead(void **state)
{
    store_t *store = *state;

    replace_by_other(store);
    assert_int_equal(drop(store->logs[0]), ONCE_E_NOT_FOUND);
    once__log_abandon(store->logs[1]);
    store->logs[1] = open_log(store);
    assert_int_equal(drop(store->logs[0]), ONCE_OK);
    assert_true(atomic_load(&once__index_segment(store->index, 2)->synced) == UINT64_MAX);
}

static void test_syncs_its_own(void **state)
{
    const store_t *store = *state;
    uint64_t syncs;

    write_record(store, store->logs[0], 1);
    assert_int_equal(once__log_retire(store->logs[0]), ONCE_OK);
    write_record(store, store->logs[0], 2);
    syncs = once__log_syncs(store->logs[0]);
    assert_int_equal(drop(store->logs[0]), ONCE_OK);
    assert_true(once__log_syncs(store->logs[0]) >= syncs + 2); /* the segment, the directory */
    assert_int_not_equal(atomic_load(&once__index_segment(store->index, 2)->synced),
                         ONCE__SEGMENT_HEADER);
}

/* ------------------------------------------------------------------------------------------------------ what is carried */

static uint32_t reap_all(once_t *once, const char *path)
{
    uint32_t end;
    peek_t peek;

    assert_int_equal(reap(once, NULL), ONCE_OK);
    peek_open(&peek, path);
    end = once__index_end_segment(peek.index);
    peek_close(&peek);
    return end;
}

/* Each fills a segment of its own: to carry them would only make new segments, of which each is the next to go. */
static void test_large_records_stay(void **state)
{
    static uint8_t body[100000];
    char base[PLACE_SIZE], path[PLACE_SIZE], key[16];
    dice_t dice = {1};
    uint32_t end;
    once_t *once;

    place_make(base);
    place_join(path, base, "store");
    once = place_open(path, "segment=64k&reap=off", NULL);
    (void)alarm(60);
    for (int i = 0; i < 4; i++) {
        told_t told;
        (void)snprintf(key, sizeof(key), "large-%d", i);
        told = ask(once, key, "ttl=1h");
        assert_int_equal(told.outcome, ONCE_OUTCOME_RUN);
        dice_fill(&dice, body, sizeof(body));
        assert_int_equal(complete(told.claim, 200, body, sizeof(body)).outcome, ONCE_OUTCOME_DONE);
    }
    (void)reap_all(once, path);
    end = reap_all(once, path);
    assert_int_equal(reap_all(once, path), end);
    assert_int_equal(get(once, "large-0").body_len, sizeof(body));
    (void)alarm(0);
    assert_int_equal(once_close(once, 5000), ONCE_OK);
    place_remove(base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_waits_for_another_process, setup, teardown),
        cmocka_unit_test_setup_teardown(test_waits_for_no_more_than_that, setup, teardown),
        cmocka_unit_test_setup_teardown(test_takes_over_from_the_dead, setup, teardown),
        cmocka_unit_test_setup_teardown(test_syncs_its_own, setup, teardown),
        cmocka_unit_test(test_large_records_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
