/*
 * The log: short frames that refer to others.
 */
#include "support/log_store.h"
#include "support/testing.h"

#include <stdio.h>
#include <unistd.h>

#include "base/bytes.h"

#define BODY 400u

/* The claim of the n-th record, and its completion: responses that differ in a few bytes. */
static once__record_t numbered(unsigned n, once_state_t state)
{
    static uint8_t bytes[BODY];
    static char key[32];
    once__record_t record = {.head = {.schema = ONCE__SCHEMA,
                                      .state = (uint8_t)state,
                                      .claim = {.epoch = 1},
                                      .expires = FOREVER},
                             .key = key};

    record.key_len = (size_t)snprintf(key, sizeof(key), "key-%u", n);
    once__put32(record.id, n * 2654435761u);
    once__put32(record.id + 4, n);
    if (state == ONCE_STATE_COMPLETED) {
        for (unsigned i = 0; i < BODY; i++) {
            bytes[i] = (uint8_t)(i * i % 251);
        }
        (void)snprintf((char *)bytes + 50, 20, "number %08u", n);
        bytes[0] = 0; /* neither compressed nor sealed */
        record.payload = (once__payload_t){ONCE__PAYLOAD_RESPONSE, 200, bytes, BODY};
    }
    return record;
}

static void append_claim(once__log_t *log, unsigned n, once__place_t *place)
{
    once__record_t record = numbered(n, ONCE_STATE_PENDING);

    assert_int_equal(once__log_append(log, record.id, &record, 0, place), ONCE_OK);
}

static void append_completion(once__log_t *log, unsigned n, once__place_t claim,
                              once__place_t *place)
{
    once__record_t record = numbered(n, ONCE_STATE_COMPLETED);

    assert_int_equal(once__log_complete(log, &record, claim, claim.segment, place), ONCE_OK);
}

static void check_completion(once__log_t *log, unsigned n, once__place_t place)
{
    once__record_t record = numbered(n, ONCE_STATE_COMPLETED), is;
    once__frame_t frame;

    assert_int_equal(once__log_read(log, place, &frame), ONCE_OK);
    assert_int_equal(once__record_decode(&is, frame.bytes, frame.len), ONCE_OK);
    assert_memory_equal(frame.id, record.id, ONCE_ID_SIZE);
    assert_int_equal(is.key_len, record.key_len);
    assert_memory_equal(is.key, record.key, is.key_len);
    assert_int_equal(is.payload.len, BODY);
    assert_memory_equal(is.payload.data, record.payload.data, BODY);
}

/* By its writer, by others, from the window and from the file; over several segments, and when the templates change. */
static void test_completions(void **state)
{
    enum { MANY = 12000 };
    static once__place_t claims[MANY], places[MANY];
    store_t *store = *state;
    once__log_t *log = store_open_log(store, (uint64_t)4 << 20);
    uint64_t bytes = 0;

    for (unsigned n = 0; n < MANY; n++) {
        append_claim(log, n, &claims[n]);
        if (n >= 10) { /* some time later */
            uint64_t before = log->active.tail;
            append_completion(log, n - 10, claims[n - 10], &places[n - 10]);
            check_completion(log, n - 10, places[n - 10]);
            check_completion(store->logs[1], n - 10, places[n - 10]);
            bytes += log->active.tail > before ? log->active.tail - before : 0;
        }
        if (n % 97 == 0) {
            assert_int_equal(once__log_sync(log), ONCE_OK);
        }
    }
    assert_true(log->active.number > 2);
    assert_true(bytes / MANY < 170);
    once__log_abandon(log);
    (void)once__log_is_durable(store->logs[1], places[MANY - 11]);
    for (unsigned n = 0; n < MANY - 10; n++) {
        check_completion(store->logs[1], n, places[n]);
    }
}

/* What is not in the same segment is not referred to. */
static void test_completions_that_are_whole(void **state)
{
    store_t *store = *state;
    once__place_t claim, place, large;
    once__frame_t frame;
    once__record_t record = numbered(7, ONCE_STATE_COMPLETED);
    uint8_t raw[ONCE__FRAME_HEADER];
    int fd;

    append_claim(store->logs[0], 7, &claim);
    assert_int_equal(once__log_sync(store->logs[0]), ONCE_OK);
    append_completion(store->logs[1], 7, claim, &place);
    assert_int_equal(place.segment, 2);
    assert_int_equal(once__log_complete(store->logs[0], &record, claim, 3, &place), ONCE_OK);
    assert_int_equal(place.segment, 3);
    append_claim(store->logs[0], 7, &claim);
    assert_int_equal(store_append(store->logs[0], SEGMENT - 1500, FOREVER, 0, &large), ONCE_OK);
    append_completion(store->logs[0], 7, claim, &place);
    assert_int_not_equal(place.segment, claim.segment);
    assert_int_equal(once__log_sync(store->logs[0]), ONCE_OK);
    assert_int_equal(once__log_sync(store->logs[1]), ONCE_OK);
    for (uint32_t n = 2; n <= place.segment; n++) {
        once__place_t first = {n, ONCE__SEGMENT_HEADER};
        assert_int_equal(once__log_read(store->logs[1], first, &frame), ONCE_OK);
        fd = store_open_segment(store, n);
        assert_int_equal(pread(fd, raw, sizeof(raw), (off_t)first.offset), sizeof(raw));
        assert_int_equal(raw[8], ONCE__FRAME_RECORD);
        (void)close(fd);
    }
    check_completion(store->logs[1], 7, place);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, store_setup, store_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_completions),
        TEST(test_completions_that_are_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
