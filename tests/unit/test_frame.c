#include "support/testing.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/bytes.h"
#include "store/local/crc32c.h"
#include "store/local/frame.h"

#define SEGMENT 7u
#define SIZE    8192u

static const uint8_t id[ONCE_ID_SIZE] = {1, 2, 3};
static uint8_t segment[SIZE];

/* A completed record with a response of `len` bytes. */
static once__record_t make(size_t len)
{
    static uint8_t bytes[SIZE];
    once__record_t record = {.head = {.schema = ONCE__SCHEMA,
                                      .state = ONCE_STATE_COMPLETED,
                                      .claim = {.epoch = 1},
                                      .changed = 1700000000000,
                                      .expires = 1700000001000},
                             .key = "key",
                             .key_len = 3,
                             .payload = {ONCE__PAYLOAD_RESPONSE, 200, bytes, len}};

    memset(bytes, 0xab, sizeof(bytes));
    return record;
}

static int read_at(once__frame_t *frame, uint64_t offset)
{
    once__place_t place = {SEGMENT, offset};

    return once__frame_read(frame, place, segment + offset, SIZE - offset);
}

/* Writes a frame with a response of `len` bytes; returns where the next one goes. */
static uint64_t write_at(uint64_t offset, uint64_t watermark, size_t len)
{
    once__record_t record = make(len);
    once__place_t place = {SEGMENT, offset};

    once__frame_write(segment + offset, place, watermark, id, &record);
    return offset + once__frame_size(&record);
}

static int read_two_at(uint64_t one, uint64_t two, const size_t rooms[2])
{
    const once__place_t places[2] = {{SEGMENT, one}, {SEGMENT, two}};
    const uint8_t *const data[2] = {segment + one, segment + two};
    once__frame_t frames[2];

    return once__frame_read_two(frames, places, data, rooms);
}

static once__gap_t gap_at(uint64_t offset, uint64_t *next)
{
    once__place_t place = {SEGMENT, offset};
    once__frame_t frame;

    assert_int_equal(read_at(&frame, offset), 0);
    return once__frame_gap(segment, SIZE, place, next);
}

static int clear(void **state)
{
    memset(segment, 0, sizeof(segment));
    return 0;
}

/* ----------------------------------------------------------------------------------------------------------- headers */

static void test_header_round_trip(void **state)
{
    once__segment_header_t header = {.number = 77, .size = 1 << 20, .created = 123456789012};
    once__segment_header_t again;
    uint8_t bytes[ONCE__SEGMENT_HEADER];

    memset(header.boot_id, 0xb0, sizeof(header.boot_id));
    once__segment_header_write(&header, bytes);
    assert_int_equal(once__segment_header_read(&again, bytes), ONCE_OK);
    assert_memory_equal(&again, &header, sizeof(header));
    for (size_t bit = 0; bit < sizeof(bytes) * 8; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_equal(once__segment_header_read(&again, bytes), ONCE_E_CORRUPT);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
}

static void test_headers_of_other_versions(void **state)
{
    static const int codes[] = {ONCE_E_CORRUPT, ONCE_OK, ONCE_OK, ONCE_E_NEWER};

    for (unsigned version = 0; version < 4; version++) {
        once__segment_header_t header = {.number = 1, .size = SIZE};
        uint8_t bytes[ONCE__SEGMENT_HEADER];
        once__segment_header_write(&header, bytes);
        bytes[7] = (uint8_t)('0' + version);
        once__put32(bytes + 12, 0);
        once__put32(bytes + 12, once__crc32c(0, bytes, sizeof(bytes)));
        assert_int_equal(once__segment_header_read(&header, bytes), codes[version]);
    }
}

/* ------------------------------------------------------------------------------------------------------------ frames */

static void test_round_trip(void **state)
{
    for (size_t len = 0; len < 70; len++) {
        once__record_t record = make(len), again;
        once__frame_t frame;
        assert_int_equal(write_at(64, 24, len), 64 + once__frame_size(&record));
        assert_int_equal(read_at(&frame, 64), 1);
        assert_int_equal(frame.kind, ONCE__FRAME_RECORD);
        assert_int_equal(frame.watermark, 24);
        assert_int_equal(frame.size, once__frame_size(&record));
        assert_int_equal(frame.size % 8, 0);
        assert_memory_equal(frame.id, id, sizeof(id));
        assert_int_equal(once__record_decode(&again, frame.bytes, frame.len), ONCE_OK);
        assert_int_equal(again.payload.len, len);
        assert_memory_equal(again.payload.data, record.payload.data, len);
    }
}

static void test_removed_and_sealed(void **state)
{
    once__place_t place = {SEGMENT, 64};
    once__frame_t frame;

    once__frame_write(segment + 64, place, 64, id, NULL);
    assert_int_equal(read_at(&frame, 64), 1);
    assert_int_equal(frame.kind, ONCE__FRAME_REMOVED);
    assert_memory_equal(frame.id, id, sizeof(id));
    assert_int_equal(frame.len, 0);
    once__frame_write(segment + 64, place, 64, NULL, NULL);
    assert_int_equal(read_at(&frame, 64), 1);
    assert_int_equal(frame.kind, ONCE__FRAME_SEALED);
    assert_int_equal(frame.size, once__frame_size(NULL));
}

/* A record that this program cannot read is written as it is. */
static void test_bytes_of_a_newer_version(void **state)
{
    once__record_t record = make(50), again;
    once__place_t place = {SEGMENT, 64};
    uint8_t bytes[512];
    once__frame_t frame;

    once__record_encode(&record, bytes);
    bytes[1] = ONCE__SCHEMA + 1;
    once__frame_write_bytes(segment + 64, place, 64, id, bytes, once__record_size(&record));
    assert_int_equal(read_at(&frame, 64), 1);
    assert_int_equal(frame.len, once__record_size(&record));
    assert_memory_equal(frame.bytes, bytes, frame.len);
    assert_int_equal(once__record_decode(&again, frame.bytes, frame.len), ONCE_E_NEWER);
}

/* No bit of a frame can change unnoticed, and no byte behind it matters. */
static void test_every_bit_counts(void **state)
{
    uint64_t end = write_at(64, 64, 13);
    once__frame_t frame;
    size_t len = once__get32(segment + 64);

    for (size_t bit = 64 * 8; bit < (64 + len) * 8; bit++) {
        segment[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_equal(read_at(&frame, 64), 0);
        segment[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    memset(segment + end, 0xff, 100);
    assert_int_equal(read_at(&frame, 64), 1);
}

/* The bytes of an earlier use of the file, or of another place, are not a frame. */
static void test_only_where_it_was_written(void **state)
{
    uint64_t end = write_at(64, 64, 40);
    once__place_t other = {SEGMENT + 1, 64};
    once__frame_t frame;

    assert_int_equal(once__frame_read(&frame, other, segment + 64, SIZE - 64), 0);
    other.segment = SEGMENT - 1;
    assert_int_equal(once__frame_read(&frame, other, segment + 64, SIZE - 64), 0);
    memmove(segment + end, segment + 64, end - 64);
    assert_int_equal(read_at(&frame, end), 0);
    assert_int_equal(read_at(&frame, 64), 1);
}

static void test_never_past_its_room(void **state)
{
    once__place_t place = {SEGMENT, 64};
    once__record_t record = make(40);
    size_t len = ONCE__FRAME_HEADER + once__record_size(&record);
    uint8_t *exact = malloc(len);
    once__frame_t frame;

    assert_non_null(exact);
    (void)write_at(64, 64, 40);
    memcpy(exact, segment + 64, len);
    assert_int_equal(once__frame_read(&frame, place, exact, len), 1);
    for (size_t room = 0; room < len; room++) {
        exact = realloc(exact, room + 1); /* so that the sanitizer sees a step too far */
        assert_non_null(exact);
        memcpy(exact, segment + 64, room);
        assert_int_equal(once__frame_read(&frame, place, exact, room), 0);
        exact = realloc(exact, len);
    }
    free(exact);
}

/* -------------------------------------------------------------------------------------------------------------- gaps */

static void test_clean_end(void **state)
{
    uint64_t next, end = write_at(64, 64, 40);

    assert_int_equal(gap_at(end, &next), ONCE__GAP_END);
}

/* Written together and never synced: all of them have the watermark from before. */
static void test_torn_tail(void **state)
{
    uint64_t next, first = write_at(64, 64, 40), second = write_at(first, first, 40);
    uint64_t third = write_at(second, first, 40);

    (void)write_at(third, first, 40);
    memset(segment + second + 20, 0x55, 20);
    assert_int_equal(gap_at(second, &next), ONCE__GAP_TORN);
    assert_int_equal(next, third);
    memset(segment + second, 0, third - second);
    assert_int_equal(gap_at(second, &next), ONCE__GAP_TORN);
}

static void test_torn_last_frame(void **state)
{
    uint64_t next, first = write_at(64, 64, 40);

    (void)write_at(first, first, 40);
    memset(segment + first + 60, 0x55, 20);
    assert_int_equal(gap_at(first, &next), ONCE__GAP_TORN);
    assert_int_equal(next, 0);
}

/* A crash may have lost no more than a bit of what a frame ends with, where the bytes of an earlier use were alike: it is torn. */
static void test_a_changed_bit_at_the_end_is_torn(void **state)
{
    uint64_t next, first = write_at(64, 64, 40);

    (void)write_at(first, first, 40);
    segment[first + 60] ^= 1;
    assert_int_equal(gap_at(first, &next), ONCE__GAP_TORN);
}

/* A later batch says that the place had been synced. */
static void test_damage(void **state)
{
    uint64_t next = 0, first = write_at(64, 64, 40), second = write_at(first, 64, 40);
    uint64_t third = write_at(second, second, 40);
    once__frame_t frame;

    segment[70] ^= 1;
    assert_int_equal(gap_at(64, &next), ONCE__GAP_DAMAGE);
    /* What proves it is the third frame; the second is sound, and must not be lost with the first. */
    assert_int_equal(next, first);
    segment[first + 50] ^= 1;
    assert_int_equal(gap_at(64, &next), ONCE__GAP_DAMAGE);
    assert_int_equal(next, second);
    assert_int_equal(read_at(&frame, second), 1);
    assert_true(third > second);
}

/* The seal vouches for the last batch, too. */
static void test_damage_before_the_seal(void **state)
{
    uint64_t next = 0, first = write_at(64, 64, 40);
    once__place_t place = {SEGMENT, first};

    once__frame_write(segment + first, place, first, NULL, NULL);
    segment[64 + 60] ^= 1;
    assert_int_equal(gap_at(64, &next), ONCE__GAP_DAMAGE);
    assert_int_equal(next, first);
}

/* Whoever has a say in a response can make a part of it look like the last frame of its segment. */
static void test_a_seal_inside_a_damaged_frame(void **state)
{
    uint64_t next = 0, first = write_at(64, 64, 200), second = write_at(first, 64, 40);
    once__place_t inside = {SEGMENT, 64 + 240};
    once__search_t search = {0};

    (void)write_at(second, second, 40);
    once__frame_write(segment + inside.offset, inside, inside.offset, NULL, NULL);
    assert_int_equal(gap_at(64, &next), ONCE__GAP_DAMAGE);
    assert_int_equal(next, first); /* by its length */
    segment[65] ^= 1;
    assert_int_equal(gap_at(64, &next), ONCE__GAP_DAMAGE);
    assert_int_equal(next, inside.offset);
    assert_int_equal(once__frame_is_no_end(&search, segment, SIZE, inside, &next), 1);
    assert_int_equal(next, first);
}

static void test_the_last_seal_is_the_end(void **state)
{
    uint64_t next = 0, first = write_at(64, 64, 40);
    once__place_t place = {SEGMENT, first}, again = {SEGMENT, first + 48};
    once__search_t search = {0};

    once__frame_write(segment + first, place, first, NULL, NULL);
    once__frame_write(segment + again.offset, again, first, NULL, NULL);
    assert_int_equal(once__frame_is_no_end(&search, segment, SIZE, place, &next), 0);
}

static void test_bytes_of_an_earlier_use_are_no_damage(void **state)
{
    once__record_t record = make(40);
    uint64_t next, end;

    for (uint64_t at = 64; at + once__frame_size(&record) <= SIZE;
         at += once__frame_size(&record)) {
        once__place_t place = {SEGMENT - 1, at};
        once__frame_write(segment + at, place, at, id, &record);
    }
    end = write_at(64, 64, 40);
    assert_int_not_equal(gap_at(end, &next), ONCE__GAP_DAMAGE);
    assert_int_not_equal(gap_at(end + 8, &next), ONCE__GAP_DAMAGE);
}

/* The same in a large segment: old records look like long frames to whoever reads them from the wrong place. */
static void test_a_large_segment_used_before(void **state)
{
    uint64_t size = 4 << 20, next;
    uint8_t *bytes = calloc(1, size);
    once__place_t at = {SEGMENT - 1, 64}, place = {SEGMENT, 64};
    once__search_t search = {0};

    assert_non_null(bytes);
    for (unsigned i = 0; at.offset + 400 < size; i++) {
        once__record_t record = make(i % 50);
        record.head.claim.epoch = 1 + i % 3;
        record.head.recover = (uint8_t)(i % 2);
        once__frame_write(bytes + at.offset, at, at.offset, id, &record);
        at.offset += once__frame_size(&record);
    }
    assert_int_equal(once__frame_search(&search, bytes, size, place, &next), ONCE__GAP_TORN);
    assert_true(search.effort < 2 * size);
    free(bytes);
}

static double seconds(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Bytes in which one long frame after the other seems to begin: looking at each to its end would take hours. */
static void test_hostile_bytes_cost_little(void **state)
{
    uint64_t size = 16 << 20, next = 0;
    once__place_t place = {SEGMENT, 64};
    once__search_t search = {0};
    uint8_t *bytes = calloc(1, size);
    double start = seconds();

    assert_non_null(bytes);
    for (uint64_t at = 64; at + 4096 <= size; at += 256) {
        /* Whole envelopes, with a length that fits: only the sum tells. */
        uint64_t len = size - at - 1024;
        once__record_t record = make(0);
        once__record_encode(&record, bytes + at + ONCE__FRAME_HEADER);
        once__put32(bytes + at, (uint32_t)len);
        bytes[at + 8] = ONCE__FRAME_RECORD;
        once__put32(bytes + at + ONCE__FRAME_HEADER + 128,
                    (uint32_t)(len - ONCE__FRAME_HEADER - 133 - 3));
    }
    /* What cannot be known is neither an end nor a torn tail. */
    assert_int_equal(once__frame_gap(bytes, size, place, &next), ONCE__GAP_UNKNOWN);
    assert_int_equal(next, size);
    next = 0;
    assert_true(once__frame_is_no_end(&search, bytes, size, place, &next) < 0);
    assert_int_equal(next, size);
    assert_true(seconds() - start < 20);
    free(bytes);
}

/* Valid only if both are, wherever one of them is damaged; and never with fewer bytes than it has. */
static void test_two_at_a_time(void **state)
{
    uint64_t two = write_at(64, 64, 10), end = write_at(two, 64, 77);
    const size_t all[2] = {two - 64, end - two}, few[2] = {40, end - two};
    once__frame_t frame;

    assert_int_equal(read_two_at(64, two, all), 1);
    assert_int_equal(read_two_at(64, two, few), 0);
    for (uint64_t at = 64; at < end; at++) {
        segment[at] ^= 0x40;
        assert_int_equal(read_two_at(64, two, all), read_at(&frame, 64) && read_at(&frame, two));
        segment[at] ^= 0x40;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_header_round_trip),
        cmocka_unit_test(test_headers_of_other_versions),
        cmocka_unit_test_setup(test_round_trip, clear),
        cmocka_unit_test_setup(test_removed_and_sealed, clear),
        cmocka_unit_test_setup(test_bytes_of_a_newer_version, clear),
        cmocka_unit_test_setup(test_every_bit_counts, clear),
        cmocka_unit_test_setup(test_two_at_a_time, clear),
        cmocka_unit_test_setup(test_only_where_it_was_written, clear),
        cmocka_unit_test_setup(test_never_past_its_room, clear),
        cmocka_unit_test_setup(test_clean_end, clear),
        cmocka_unit_test_setup(test_torn_tail, clear),
        cmocka_unit_test_setup(test_torn_last_frame, clear),
        cmocka_unit_test_setup(test_a_changed_bit_at_the_end_is_torn, clear),
        cmocka_unit_test_setup(test_damage, clear),
        cmocka_unit_test_setup(test_damage_before_the_seal, clear),
        cmocka_unit_test_setup(test_a_seal_inside_a_damaged_frame, clear),
        cmocka_unit_test_setup(test_the_last_seal_is_the_end, clear),
        cmocka_unit_test_setup(test_bytes_of_an_earlier_use_are_no_damage, clear),
        cmocka_unit_test(test_a_large_segment_used_before),
        cmocka_unit_test(test_hostile_bytes_cost_little),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
