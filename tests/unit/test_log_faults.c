/*
 * The log on a disk that fails or is full.
 */
#include "support/log_store.h"
#include "support/testing.h"

#include <errno.h>

static void test_a_failed_sync_is_final(void **state)
{
    store_t *store = *state;
    once__place_t first, second;
    unsigned syncs;
    int sealed;

    assert_int_equal(store_append(store->logs[0], 1, FOREVER, 0, &first), ONCE_OK);
    assert_int_equal(once__log_sync(store->logs[0]), ONCE_OK);
    assert_int_equal(store_append(store->logs[0], 2, FOREVER, 0, &second), ONCE_OK);
    store->fail_sync = 1;
    assert_int_equal(once__log_sync(store->logs[0]), ONCE_E_IO);
    assert_int_equal(once__log_failed(store->logs[0]), 1);
    store->fail_sync = 0;
    syncs = store->syncs;
    assert_int_equal(once__log_sync(store->logs[0]), ONCE_E_IO);
    assert_int_equal(store_append(store->logs[0], 3, FOREVER, 0, &second), ONCE_E_IO);
    assert_int_equal(once__log_close(store->logs[0]), ONCE_E_IO);
    store->logs[0] = NULL;
    assert_int_equal(store->syncs, syncs);
    assert_int_equal(store_frames(store, 1, &sealed), 2);
    assert_false(sealed); /* a seal would say that all of it was synced */
}

/* Who fails does not keep its records from others: they write again what may be missing on the disk, and sync that. */
static void test_others_go_on_after_a_failed_sync(void **state)
{
    store_t *store = *state;
    once__place_t place;
    const once__segment_info_t *info = once__index_segment(store->index, 1);

    assert_int_equal(store_append(store->logs[0], 1, FOREVER, 0, &place), ONCE_OK);
    store->fail_sync = 1;
    assert_int_equal(once__log_sync(store->logs[0]), ONCE_E_IO);
    assert_int_equal(atomic_load(&info->suspect), 1);
    assert_int_equal(once__log_is_durable(store->logs[1], place), 0);
    assert_int_equal(atomic_load(&info->suspect), 1);
    store->fail_sync = 0;
    assert_int_equal(once__log_is_durable(store->logs[1], place), 1);
    assert_int_equal(atomic_load(&info->state), ONCE__SEGMENT_SEALED);
    store_check_read(store->logs[1], place, 1);
}

static void test_a_failed_sync_of_the_directory_is_final(void **state)
{
    store_t *store = *state;
    once__place_t place;

    store->fail_directory_sync = 1;
    assert_int_equal(store_append(store->logs[0], 1, FOREVER, 0, &place), ONCE_E_IO);
    store->fail_directory_sync = 0;
    assert_int_equal(once__log_failed(store->logs[0]), 1);
    assert_int_equal(store_append(store->logs[0], 1, FOREVER, 0, &place), ONCE_E_IO);
    assert_int_equal(store_append(store->logs[1], 1, FOREVER, 0, &place), ONCE_OK);
    store_check_read(store->logs[1], place, 1);
}

static void test_short_writes(void **state)
{
    store_t *store = *state;
    once__place_t places[2];
    int sealed;

    store->short_write = 13;
    assert_int_equal(store_append(store->logs[0], 1000, FOREVER, 0, &places[0]), ONCE_OK);
    assert_int_equal(store_append(store->logs[0], ONCE__WINDOW_SIZE, FOREVER, 0, &places[1]),
                     ONCE_OK);
    assert_int_equal(once__log_sync(store->logs[0]), ONCE_OK);
    assert_int_equal(store_frames(store, places[1].segment, &sealed), 1);
    store_check_read(store->logs[1], places[0], 1000);
    store_check_read(store->logs[1], places[1], ONCE__WINDOW_SIZE);
}

/* A write that fails leaves the window as it is: the process that takes over has all of it. */
static void test_a_failed_write_is_final(void **state)
{
    store_t *store = *state;
    once__place_t place;
    int sealed;

    assert_int_equal(store_append(store->logs[0], 1, FOREVER, 0, &place), ONCE_OK);
    store->write_errno = EIO;
    store->fail_write = 1;
    assert_int_equal(once__log_sync(store->logs[0]), ONCE_E_IO);
    assert_int_equal(once__log_failed(store->logs[0]), 1);
    assert_int_equal(once__log_is_durable(store->logs[1], place), 0);
    store->fail_write = 0;
    assert_int_equal(store_append(store->logs[0], 1, FOREVER, 0, &place), ONCE_E_IO);
    assert_int_equal(once__log_is_durable(store->logs[1], place), 1);
    assert_int_equal(store_frames(store, 1, &sealed), 1);
    store_check_read(store->logs[1], place, 1);
}

/* After a failed sync, all that is behind the synced mark is written once more, whether the file had it or not. */
static void test_what_a_failed_sync_left_is_written_again(void **state)
{
    store_t *store = *state;
    once__log_t *log = store_open_log(store, 4 * ONCE__WINDOW_SIZE);
    once__place_t place, first;
    uint64_t end;

    assert_int_equal(store_append(log, 1, FOREVER, 0, &first), ONCE_OK);
    assert_int_equal(once__log_sync(log), ONCE_OK);
    for (unsigned i = 0; i < 300; i++) {
        assert_int_equal(store_append(log, 1000, FOREVER, 0, &place), ONCE_OK);
    }
    end = log->active.tail;
    assert_true(end > ONCE__WINDOW_SIZE);
    store->fail_sync = 1;
    assert_int_equal(once__log_sync(log), ONCE_E_IO);
    store->fail_sync = 0;
    store->bytes = 0;
    assert_int_equal(once__log_is_durable(store->logs[1], place), 1);
    assert_int_equal(store->bytes, end - log->active.synced + ONCE__FRAME_HEADER); /* the seal */
    once__log_abandon(log);
}

static void test_no_room_to_write(void **state)
{
    store_t *store = *state;
    once__place_t place, last;
    int sealed;

    assert_int_equal(store_append(store->logs[0], 1, FOREVER, 0, &place), ONCE_OK);
    assert_int_equal(once__log_sync(store->logs[0]), ONCE_OK);
    assert_int_equal(store_append(store->logs[0], 500, FOREVER, 0, &last), ONCE_OK);
    store->write_errno = ENOSPC;
    store->short_write = 100;
    store->fail_write = 3; /* in the middle of the frame */
    assert_int_equal(once__log_sync(store->logs[0]), ONCE_E_FULL);
    assert_int_equal(once__log_failed(store->logs[0]), 0);
    assert_int_equal(once__log_is_durable(store->logs[1], last), 0);
    store_check_read(store->logs[1], last, 500);
    assert_int_equal(store_append(store->logs[0], 1, FOREVER, 0, &place), ONCE_E_FULL);
    assert_int_equal(store_append(store->logs[0], 2 * SEGMENT, FOREVER, 0, &place), ONCE_E_FULL);
    store->fail_write = 0;
    assert_int_equal(once__log_sync(store->logs[0]), ONCE_OK);
    assert_int_equal(store_append(store->logs[0], 1, FOREVER, 0, &place), ONCE_OK);
    assert_int_equal(once__log_close(store->logs[0]), ONCE_OK);
    store->logs[0] = NULL;
    assert_int_equal(store_frames(store, 1, &sealed), 3);
    store_check_read(store->logs[1], last, 500);
}

/* A frame that does not go through a window fails alone. */
static void test_no_room_to_write_a_large_frame(void **state)
{
    store_t *store = *state;
    once__place_t place;

    assert_int_equal(store_append(store->logs[0], 1, FOREVER, 0, &place), ONCE_OK);
    assert_int_equal(store_append(store->logs[0], ONCE__WINDOW_SIZE, FOREVER, 0, &place), ONCE_OK);
    store->write_errno = ENOSPC;
    store->fail_write = 1;
    assert_int_equal(store_append(store->logs[0], ONCE__WINDOW_SIZE, FOREVER, 0, &place),
                     ONCE_E_FULL);
    store->fail_write = 0;
    assert_int_equal(store_append(store->logs[0], 7, FOREVER, 0, &place), ONCE_OK);
    assert_int_equal(once__log_sync(store->logs[0]), ONCE_OK);
    store_check_read(store->logs[1], place, 7);
}

static void test_a_full_disk_heals(void **state)
{
    store_t *store = *state;
    once__place_t place = {0, 0}, last = {0, 0};
    int code = ONCE_OK;

    assert_int_equal(store_append(store->logs[0], 1000, FOREVER, 0, &place), ONCE_OK);
    store->fail_allocate = 1;
    while (code == ONCE_OK) {
        last = place;
        code = store_append(store->logs[0], 1000, FOREVER, 0, &place);
    }
    assert_int_equal(code, ONCE_E_FULL);
    assert_int_equal(once__log_sync(store->logs[0]), ONCE_OK);
    store_check_read(store->logs[0], last, 1000);
    assert_int_equal(store_append(store->logs[0], 1000, FOREVER, 0, &place), ONCE_E_FULL);
    store->fail_allocate = 0;
    assert_int_equal(store_append(store->logs[0], 1000, FOREVER, 0, &place), ONCE_OK);
    assert_int_equal(place.segment, 2);
    assert_int_equal(once__log_sync(store->logs[0]), ONCE_OK);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, store_setup, store_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_a_failed_sync_is_final),
        TEST(test_others_go_on_after_a_failed_sync),
        TEST(test_a_failed_sync_of_the_directory_is_final),
        TEST(test_short_writes),
        TEST(test_a_failed_write_is_final),
        TEST(test_what_a_failed_sync_left_is_written_again),
        TEST(test_no_room_to_write),
        TEST(test_no_room_to_write_a_large_frame),
        TEST(test_a_full_disk_heals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
