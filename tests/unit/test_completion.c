/*
 * Completions: a frame that refers to others in its segment is the same record as a whole one, and is damage when one
 * of those is.
 */
#include "support/testing.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "store/local/crc32c.h"
#include "store/local/frame.h"
#include "store/local/pack.h"

#define SEGMENT 7u
#define SIZE    16384u

static uint8_t segment[SIZE], response[2][300];
static uint64_t claims[2], completions[2], end;
static once__whole_t whole;

static once__record_t make(unsigned n, once_state_t state)
{
    once__record_t record = {.head = {.schema = ONCE__SCHEMA,
                                      .state = (uint8_t)state,
                                      .claim = {.epoch = 1},
                                      .ttl_ms = 3600000,
                                      .changed = 1700000000000 + n,
                                      .expires = 1700000001000},
                             .key = n == 0 ? "key-0" : "key-one",
                             .key_len = n == 0 ? 5 : 7};

    record.id[0] = (uint8_t)(n + 1);
    record.head.fingerprint.mode = ONCE_BODY_MODE_EXACT;
    memset(record.head.fingerprint.mac, (int)n + 7, sizeof(record.head.fingerprint.mac));
    if (state == ONCE_STATE_COMPLETED) {
        record.payload = (once__payload_t){ONCE__PAYLOAD_RESPONSE, 201, response[n], 300};
    }
    return record;
}

static uint64_t write_claim(uint64_t offset, unsigned n)
{
    once__record_t record = make(n, ONCE_STATE_PENDING);
    once__place_t place = {SEGMENT, offset};

    once__frame_write(segment + offset, place, 64, record.id, &record);
    return offset + once__frame_size(&record);
}

static uint64_t write_completion(uint64_t offset, unsigned n, once__completion_t completion)
{
    once__record_t record = make(n, ONCE_STATE_COMPLETED);
    uint8_t *bytes = segment + offset + ONCE__FRAME_HEADER + ONCE__COMPLETION_HEADER;
    once__place_t place = {SEGMENT, offset};
    once__pattern_t pattern = {0};

    completion.size = record.payload.len;
    if (completion.template != 0) {
        assert_int_equal(once__pattern_set(&pattern, response[0], sizeof(response[0])), 0);
        completion.size = once__pack(&pattern, response[n], sizeof(response[n]), bytes);
        assert_true(completion.size > 0 && completion.size < 40);
        once__pattern_free(&pattern);
    } else {
        memcpy(bytes, response[n], sizeof(response[n]));
    }
    return offset + once__completion_write(segment + offset, place, 64, &record, &completion);
}

/* Two claims, a completion that is plain, and one that is packed against it. */
static int start(void **state)
{
    memset(segment, 0, sizeof(segment));
    for (unsigned i = 0; i < sizeof(response[0]); i++) {
        response[0][i] = response[1][i] = (uint8_t)(i * i % 251 + i % 7);
    }
    memset(response[1] + 100, 'x', 12);
    claims[0] = 64;
    claims[1] = write_claim(claims[0], 0);
    completions[0] = write_claim(claims[1], 1);
    completions[1] = write_completion(completions[0], 0, (once__completion_t){.claim = claims[0]});
    end = write_completion(completions[1], 1,
                           (once__completion_t){.claim = claims[1], .template = completions[0]});
    return 0;
}

static int stop(void **state)
{
    free(whole.bytes);
    memset(&whole, 0, sizeof(whole));
    return 0;
}

static int read_at(uint64_t offset, once__frame_t *frame)
{
    once__place_t place = {SEGMENT, offset};

    assert_int_equal(once__frame_read(frame, place, segment + offset, SIZE - offset), 1);
    return once__frame_complete(&whole, segment, SIZE, place, frame);
}

static void fix_sum(uint64_t offset)
{
    once__place_t place = {SEGMENT, offset};

    once__frame_set_watermark(segment + offset, place, 64);
}

/* ------------------------------------------------------------------------------------------------------------- tests */

static void test_is_the_whole_record(void **state)
{
    for (unsigned n = 0; n < 2; n++) {
        once__record_t record = make(n, ONCE_STATE_COMPLETED);
        uint8_t bytes[600];
        once__frame_t frame;
        once__head_t head;
        assert_int_equal(read_at(completions[n], &frame), ONCE_OK);
        assert_int_equal(frame.kind, ONCE__FRAME_RECORD);
        assert_int_equal(frame.len, once__record_size(&record));
        once__record_encode(&record, bytes);
        assert_memory_equal(frame.bytes, bytes, frame.len);
        assert_memory_equal(frame.id, record.id, ONCE_ID_SIZE);
        assert_int_equal(once__frame_head(&frame, &head), ONCE_OK);
        assert_int_equal(head.changed, record.head.changed);
    }
    assert_int_equal(completions[1] + 216 > end, 1); /* whole it would take 488 */
}

/* What needs no other frame is known without one. */
static void test_the_head_alone(void **state)
{
    once__place_t place = {SEGMENT, completions[1]};
    once__frame_t frame;
    once__head_t head;

    assert_int_equal(once__frame_read(&frame, place, segment + completions[1], SIZE), 1);
    assert_int_equal(once__frame_has_record(&frame), 1);
    assert_int_equal(once__frame_head(&frame, &head), ONCE_OK);
    assert_int_equal(head.state, ONCE_STATE_COMPLETED);
    assert_int_equal(head.expires, 1700000001000);
}

static void test_what_it_refers_to_is_damaged(void **state)
{
    const uint64_t needed[] = {claims[1], completions[0]};
    once__frame_t frame;

    for (unsigned i = 0; i < 2; i++) {
        uint64_t end_of_it = needed[i] + once__get32(segment + needed[i]);
        for (uint64_t at = needed[i]; at < end_of_it; at += 5) {
            segment[at] ^= 4;
            assert_int_equal(read_at(completions[1], &frame), ONCE_E_CORRUPT);
            segment[at] ^= 4;
        }
    }
    assert_int_equal(read_at(completions[1], &frame), ONCE_OK);
}

/* Sound by their sums, but not what they should be. */
static void test_wrong_references(void **state)
{
    uint8_t *reference = segment + completions[1] + ONCE__FRAME_HEADER + ONCE__ENVELOPE_SIZE;
    const uint64_t wrong_claims[] = {0,
                                     8,
                                     claims[0],
                                     claims[1] + 8,
                                     completions[0],
                                     completions[1],
                                     end,
                                     SIZE,
                                     (uint64_t)UINT32_MAX * 8};
    const uint64_t wrong_templates[] = {8, claims[0], claims[1] + 8, completions[1], end, SIZE};
    once__frame_t frame;

    for (unsigned i = 0; i < sizeof(wrong_claims) / sizeof(wrong_claims[0]); i++) {
        once__put32(reference, (uint32_t)(wrong_claims[i] / 8));
        fix_sum(completions[1]);
        assert_int_equal(read_at(completions[1], &frame), ONCE_E_CORRUPT);
    }
    once__put32(reference, (uint32_t)(claims[1] / 8));
    for (unsigned i = 0; i < sizeof(wrong_templates) / sizeof(wrong_templates[0]); i++) {
        once__put32(reference + 4, (uint32_t)(wrong_templates[i] / 8));
        fix_sum(completions[1]);
        assert_int_equal(read_at(completions[1], &frame), ONCE_E_CORRUPT);
    }
    once__put32(reference + 4, (uint32_t)(completions[0] / 8));
    fix_sum(completions[1]);
    assert_int_equal(read_at(completions[1], &frame), ONCE_OK);
}

/* One that is packed itself is no template: there are no chains. */
static void test_no_chains(void **state)
{
    once__completion_t chained = {.claim = claims[1], .template = completions[1]};
    once__frame_t frame;

    (void)write_completion(end, 1, chained);
    assert_int_equal(read_at(end, &frame), ONCE_E_CORRUPT);
}

static void test_wrong_envelopes(void **state)
{
    uint8_t *envelope = segment + completions[1] + ONCE__FRAME_HEADER;
    static const struct {
        unsigned at;
        uint8_t value;
    } wrong[] = {{0, 0}, {1, 2},    {1, 0}, {2, ONCE_STATE_PENDING}, {2, ONCE_STATE_FAILED}, {2, 9},
                 {3, 9}, {4, 0x80}, {5, 1}};

    for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        uint8_t right = envelope[wrong[i].at];
        once__frame_t frame;
        envelope[wrong[i].at] = wrong[i].value;
        fix_sum(completions[1]);
        assert_int_equal(read_at(completions[1], &frame), ONCE_E_CORRUPT);
        envelope[wrong[i].at] = right;
    }
}

/* Damage can be covered without moving anything. */
static void test_filler(void **state)
{
    once__place_t place = {SEGMENT, claims[0]};
    once__frame_t frame;

    once__frame_write_filler(segment + claims[0], place, claims[1] - claims[0]);
    assert_int_equal(read_at(claims[0], &frame), ONCE_OK);
    assert_int_equal(frame.kind, ONCE__FRAME_REMOVED);
    assert_int_equal(frame.size, claims[1] - claims[0]);
    assert_int_equal(read_at(completions[0], &frame), ONCE_E_CORRUPT);
    assert_int_equal(read_at(completions[1], &frame), ONCE_OK);
}

static void test_much_filler(void **state)
{
    uint64_t size = (5 << 20) + 8, at = 64;
    uint8_t *bytes = malloc(size);
    once__place_t place = {SEGMENT, 64};

    assert_non_null(bytes);
    memset(bytes, 0xff, size);
    once__frame_write_filler(bytes + at, place, size - at);
    while (at < size) {
        once__frame_t frame;
        place.offset = at;
        assert_int_equal(once__frame_read(&frame, place, bytes + at, size - at), 1);
        at += frame.size;
    }
    assert_int_equal(at, size);
    free(bytes);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)
    const struct CMUnitTest tests[] = {
        TEST(test_is_the_whole_record),
        TEST(test_the_head_alone),
        TEST(test_what_it_refers_to_is_damaged),
        TEST(test_wrong_references),
        TEST(test_no_chains),
        TEST(test_wrong_envelopes),
        TEST(test_filler),
        TEST(test_much_filler),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
