/*
 * What a damaged frame still tells: whose it was.
 */
#include "store/local/remains.h"

#include "support/testing.h"

#include <string.h>

#include "base/bytes.h"

#define SEGMENT 7u
#define AT      64u
#define SIZE    4096u

static uint8_t segment[SIZE];
static uint8_t id[ONCE_ID_SIZE];

/* A frame of a record with a key of some length. Where it ends. */
static uint64_t write_frame(uint64_t offset, size_t key_len)
{
    static const char key[200] = {'k'};
    once__place_t place = {SEGMENT, offset};
    once__record_t record;

    memset(&record, 0, sizeof(record));
    memset(id, 0xa5, sizeof(id));
    id[0] = (uint8_t)key_len;
    record.head.schema = ONCE__SCHEMA;
    record.head.state = ONCE_STATE_PENDING;
    record.head.claim.epoch = 1;
    record.head.changed = 1234567;
    record.key = key;
    record.key_len = key_len;
    once__frame_write(segment + offset, place, offset, id, &record);
    return offset + once__frame_size(&record);
}

static int look(once__remains_t *remains, uint64_t offset, uint64_t end, int first)
{
    once__place_t place = {SEGMENT, offset};

    return once__frame_remains(remains, segment, place, end, first);
}

static void test_any_one_bit(void **state)
{
    for (size_t key_len = 30; key_len < 39; key_len++) { /* every padding */
        uint64_t end = write_frame(AT, key_len);
        for (uint64_t bit = AT * 8; bit < (AT + once__get32(segment + AT)) * 8; bit++) {
            once__remains_t remains;
            uint32_t len = once__get32(segment + AT);
            segment[bit / 8] ^= (uint8_t)(1 << bit % 8);
            assert_int_equal(look(&remains, AT, end, 1), 1);
            assert_true(remains.certain && !remains.nobodys);
            assert_int_equal(remains.size, end - AT);
            assert_memory_equal(remains.id, id, sizeof(id));
            assert_true(remains.has_head);
            assert_int_equal(remains.head.changed, 1234567);
            segment[bit / 8] ^= (uint8_t)(1 << bit % 8);
            assert_int_equal(once__get32(segment + AT), len);
        }
    }
}

/* What is told then may be true or not; that it is not certain must be said. */
static void test_more_than_one_bit(void **state)
{
    uint64_t end = write_frame(AT, 36);
    once__remains_t remains;

    memset(segment + AT + 100, 0x77, 30);
    assert_int_equal(look(&remains, AT, end, 1), 1);
    assert_false(remains.certain);
    assert_memory_equal(remains.id, id, sizeof(id));
    memset(segment + AT + 20, 0x11, 3);
    assert_int_equal(look(&remains, AT, end, 1), 1);
    assert_false(remains.certain);
}

static void test_one_of_several(void **state)
{
    uint64_t second = write_frame(AT, 36), end = write_frame(second, 40);
    once__remains_t remains;

    segment[AT + 70] ^= 1;
    segment[second + 70] ^= 1;
    assert_int_equal(look(&remains, AT, end, 1), 1);
    assert_int_equal(remains.size, second - AT);
    assert_true(remains.certain);
    assert_int_equal(remains.id[0], 36);
    assert_int_equal(look(&remains, second, end, 0), 1);
    assert_int_equal(remains.size, end - second);
    assert_int_equal(remains.id[0], 40);
}

static void test_nothing_is_left(void **state)
{
    uint64_t end = write_frame(AT, 36);
    once__remains_t remains;

    memset(segment + AT, 0, 200);
    assert_int_equal(look(&remains, AT, end, 1), 0);
    assert_int_equal(look(&remains, AT, AT + 8, 1), 0);
    once__put32(segment + AT, 10000); /* past the range */
    assert_int_equal(look(&remains, AT, end, 1), 0);
}

static void test_of_nobody(void **state)
{
    once__place_t place = {SEGMENT, AT};
    once__remains_t remains;

    once__frame_write_filler(segment + AT, place, 400);
    segment[AT + 300] ^= 4;
    assert_int_equal(look(&remains, AT, AT + 400, 1), 1);
    assert_true(remains.certain && remains.nobodys);
    memset(segment + AT + 300, 0xff, 8); /* zeros that may not have been */
    assert_int_equal(look(&remains, AT, AT + 400, 1), 1);
    assert_false(remains.nobodys);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_one_bit),    cmocka_unit_test(test_more_than_one_bit),
        cmocka_unit_test(test_one_of_several), cmocka_unit_test(test_nothing_is_left),
        cmocka_unit_test(test_of_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
