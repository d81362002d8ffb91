/*
 * The log: frames, windows and segments.
 */
#include "support/log_store.h"
#include "support/testing.h"

static void test_a_batch_is_one_sync(void **state)
{
    store_t *store = *state;
    once__place_t places[100];
    unsigned before;

    assert_int_equal(store_append(store->logs[0], 0, FOREVER, 0, &places[0]), ONCE_OK);
    assert_int_equal(once__log_sync(store->logs[0]), ONCE_OK);
    before = store->syncs;
    for (size_t i = 0; i < 100; i++) {
        assert_int_equal(store_append(store->logs[0], i, FOREVER, 0, &places[i]), ONCE_OK);
        assert_int_equal(once__log_is_durable(store->logs[0], places[i]), 0);
        store_check_read(store->logs[0], places[i], i);
    }
    assert_int_equal(store->syncs, before);
    assert_int_equal(once__log_sync(store->logs[0]), ONCE_OK);
    assert_int_equal(once__log_sync(store->logs[0]), ONCE_OK);
    assert_int_equal(store->syncs, before + 1);
    for (size_t i = 0; i < 100; i++) {
        assert_int_equal(once__log_is_durable(store->logs[0], places[i]), 1);
        assert_int_equal(once__log_is_durable(store->logs[1], places[i]), 1);
        store_check_read(store->logs[1], places[i], i);
    }
}

/* Others see a frame before it is durable, and know so as long as its writer lives. */
static void test_unsynced_frames_of_others(void **state)
{
    store_t *store = *state;
    once__place_t place;
    int sealed;

    assert_int_equal(store_append(store->logs[0], 5, FOREVER, 0, &place), ONCE_OK);
    store_check_read(store->logs[1], place, 5);
    assert_int_equal(once__log_is_durable(store->logs[1], place), 0);
    assert_int_equal(store_frames(store, 1, &sealed), 0); /* only in the window */
    assert_int_equal(once__window_has(store->index, store_id), 1);
    once__log_abandon(store->logs[0]); /* killed */
    store->logs[0] = NULL;
    store_check_read(store->logs[1], place, 5);
    assert_int_equal(once__log_is_durable(store->logs[1], place), 1);
    assert_int_equal(once__window_has(store->index, store_id), 0);
    assert_null(once__window_of(store->index, 1));
    assert_int_equal(store_frames(store, 1, &sealed), 1);
    store_check_read(store->logs[1], place, 5);
}

/* Everything is found while the window moves on, by its writer and by others, and after its writer is gone. */
static void test_more_than_a_window(void **state)
{
    store_t *store = *state;
    once__log_t *log = store_open_log(store, 4 * ONCE__WINDOW_SIZE);
    once__place_t places[600];

    for (size_t i = 0; i < 600; i++) {
        assert_int_equal(store_append(log, i * 7 % 3000, FOREVER, 0, &places[i]), ONCE_OK);
        for (size_t j = i % 5; j <= i; j += 37) {
            store_check_read(log, places[j], j * 7 % 3000);
            store_check_read(store->logs[1], places[j], j * 7 % 3000);
        }
    }
    once__log_abandon(log);
    assert_int_equal(once__log_is_durable(store->logs[1], places[599]), 1);
    for (size_t j = 0; j < 600; j++) {
        store_check_read(store->logs[1], places[j], j * 7 % 3000);
    }
}

/* Windows are given back: by processes that end, and by those that find a dead one. */
static void test_windows_are_used_again(void **state)
{
    store_t *store = *state;
    once__place_t place;
    uint32_t page = 0;

    for (unsigned i = 0; i < 20; i++) {
        once__log_t *log = store_open_log(store, SEGMENT);
        assert_int_equal(store_append(log, 5, FOREVER, 0, &place), ONCE_OK);
        if (page == 0) {
            page = atomic_load(&once__index_segment(store->index, place.segment)->window);
        }
        assert_int_equal(atomic_load(&once__index_segment(store->index, place.segment)->window),
                         page);
        if (i % 2) {
            assert_int_equal(once__log_close(log), ONCE_OK);
        } else {
            once__log_abandon(log);
            assert_int_equal(once__log_is_durable(store->logs[1], place), 1);
        }
    }
}

/* What a killed writer left is sealed by the process that takes it over: the segment that it was writing, and one that was full. */
static void test_what_a_killed_writer_left_is_sealed(void **state)
{
    store_t *store = *state;
    once__place_t place = {0, 0}, first = {1, ONCE__SEGMENT_HEADER};
    unsigned count = 0;
    int sealed = 0;

    while (place.segment < 2) {
        assert_int_equal(store_append(store->logs[0], 500, FOREVER, 0, &place), ONCE_OK);
        count++;
    }
    once__log_abandon(store->logs[0]);
    store->logs[0] = NULL;
    assert_int_equal(once__log_is_durable(store->logs[1], first), 1);
    assert_int_equal(store_frames(store, 1, &sealed), count - 1);
    assert_true(sealed);
    assert_int_equal(once__log_is_durable(store->logs[1], place), 1);
    assert_int_equal(store_frames(store, 2, &sealed), 1);
    assert_true(sealed);
}

/* A window is only believed what its checksums say: nothing else of it gets into a file. */
static void test_a_damaged_window(void **state)
{
    store_t *store = *state;
    once__place_t places[3];
    once__frame_t frame;
    once__window_t *window;
    int sealed;

    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(store_append(store->logs[0], 5, FOREVER, 0, &places[i]), ONCE_OK);
    }
    window = once__window_of(store->index, 1);
    window->bytes[places[1].offset - atomic_load(&window->from) + 60] ^= 1;
    atomic_store(&window->staged, UINT64_MAX);
    once__log_abandon(store->logs[0]);
    store->logs[0] = NULL;
    assert_int_equal(once__log_is_durable(store->logs[1], places[0]), 1);
    assert_int_equal(store_frames(store, 1, &sealed), 1);
    store_check_read(store->logs[1], places[0], 5);
    assert_int_equal(once__log_read(store->logs[1], places[1], &frame), ONCE_E_CORRUPT);
}

static void test_many_segments(void **state)
{
    store_t *store = *state;
    once__place_t places[500];
    int sealed;

    for (size_t i = 0; i < 500; i++) {
        assert_int_equal(store_append(store->logs[0], i * 4, FOREVER, 0, &places[i]), ONCE_OK);
        if (i % 7 == 0) {
            assert_int_equal(once__log_sync(store->logs[0]), ONCE_OK);
        }
    }
    assert_int_equal(once__log_close(store->logs[0]), ONCE_OK);
    store->logs[0] = NULL;
    assert_true(once__index_end_segment(store->index) > 8);
    assert_false(store->sealed_early);
    for (uint32_t n = 1; n < once__index_end_segment(store->index); n++) {
        const once__segment_info_t *info = once__index_segment(store->index, n);
        assert_int_equal(store_frames(store, n, &sealed), atomic_load(&info->frames));
        assert_true(sealed);
        assert_int_equal(atomic_load(&info->state), ONCE__SEGMENT_SEALED);
    }
    for (size_t i = 0; i < 500; i++) {
        store_check_read(store->logs[1], places[i], i * 4);
    }
}

static void test_a_frame_larger_than_a_segment(void **state)
{
    store_t *store = *state;
    once__place_t places[3];

    assert_int_equal(store_append(store->logs[0], 10, FOREVER, 0, &places[0]), ONCE_OK);
    assert_int_equal(store_append(store->logs[0], 1 << 20, FOREVER, 0, &places[1]), ONCE_OK);
    assert_int_equal(store_append(store->logs[0], 11, FOREVER, 0, &places[2]), ONCE_OK);
    assert_int_equal(once__log_sync(store->logs[0]), ONCE_OK);
    store_check_read(store->logs[1], places[0], 10);
    store_check_read(store->logs[1], places[1], 1 << 20);
    store_check_read(store->logs[1], places[2], 11);
}

/* Segments begin small and grow, but not beyond what was asked for, also when that is not a power of two. */
static void test_sizes(void **state)
{
    store_t *store = *state;
    uint64_t limit = (uint64_t)3 << 20;
    once__log_t *log = store_open_log(store, limit);
    once__place_t place = {0, 0};

    while (place.segment < 5) {
        assert_int_equal(store_append(log, 200000, FOREVER, 0, &place), ONCE_OK);
    }
    assert_int_equal(once__index_segment(store->index, 1)->size, 1 << 20);
    assert_int_equal(once__index_segment(store->index, 2)->size, 2 << 20);
    for (uint32_t n = 3; n <= 5; n++) {
        assert_int_equal(once__index_segment(store->index, n)->size, limit);
    }
    once__log_abandon(log);
}

static void test_not_before(void **state)
{
    store_t *store = *state;
    once__place_t place;

    assert_int_equal(store_append(store->logs[0], 1, FOREVER, 0, &place), ONCE_OK);
    assert_int_equal(store_append(store->logs[1], 1, FOREVER, 0, &place), ONCE_OK);
    assert_int_equal(place.segment, 2);
    assert_int_equal(store_append(store->logs[0], 1, FOREVER, 1, &place), ONCE_OK);
    assert_int_equal(place.segment, 1);
    assert_int_equal(store_append(store->logs[0], 1, FOREVER, 2, &place), ONCE_OK);
    assert_int_equal(place.segment, 3);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, store_setup, store_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_a_batch_is_one_sync),
        TEST(test_unsynced_frames_of_others),
        TEST(test_more_than_a_window),
        TEST(test_windows_are_used_again),
        TEST(test_what_a_killed_writer_left_is_sealed),
        TEST(test_a_damaged_window),
        TEST(test_many_segments),
        TEST(test_a_frame_larger_than_a_segment),
        TEST(test_sizes),
        TEST(test_not_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
