/*
 * The log: heads of records, read where they stand. Whatever is damaged, or refers to something else than it should, is not one.
 */
#include "support/log_store.h"
#include "support/testing.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"

#define AT_CLAIM (ONCE__FRAME_HEADER + ONCE__ENVELOPE_SIZE) /* in a frame of kind completion */

typedef struct subject {
    store_t *store;
    once__log_t *writer, *reader;
    once__record_t claim, completed;
    once__place_t at_claim, at_completion;
    int fd;
} subject_t;

static once__record_t make(unsigned n, once_state_t state)
{
    static const uint8_t response[] = "\0the response";
    once__record_t record = {.head = {.schema = ONCE__SCHEMA,
                                      .state = (uint8_t)state,
                                      .recover = ONCE_RECOVER_HOLD,
                                      .claim = {.epoch = n},
                                      .lease_until = 100 + n,
                                      .lease_ms = 30000,
                                      .changed = state == ONCE_STATE_COMPLETED ? 90 + n : 80 + n,
                                      .expires = state == ONCE_STATE_COMPLETED ? FOREVER : 0,
                                      .ttl_ms = 70 + n,
                                      .created = 60 + n,
                                      .fingerprint = {.secret = n, .mode = ONCE_BODY_MODE_EXACT}},
                             .key = "key",
                             .key_len = 3};

    memset(record.id, (int)n, sizeof(record.id));
    memset(record.scope_hash, 0x5c, sizeof(record.scope_hash));
    memset(record.head.claim.id, (int)n + 1, sizeof(record.head.claim.id));
    memset(record.head.fingerprint.mac, (int)n + 2, sizeof(record.head.fingerprint.mac));
    if (state == ONCE_STATE_COMPLETED) {
        record.payload = (once__payload_t){ONCE__PAYLOAD_RESPONSE, 200, response, sizeof(response)};
    }
    return record;
}

static void assert_same_head(const once__head_t *a, const once__head_t *b)
{
    assert_int_equal(a->schema, b->schema);
    assert_int_equal(a->state, b->state);
    assert_int_equal(a->recover, b->recover);
    assert_int_equal(a->flags, b->flags);
    assert_int_equal(a->claim.epoch, b->claim.epoch);
    assert_memory_equal(a->claim.id, b->claim.id, sizeof(a->claim.id));
    assert_int_equal(a->lease_until, b->lease_until);
    assert_int_equal(a->lease_ms, b->lease_ms);
    assert_int_equal(a->changed, b->changed);
    assert_int_equal(a->expires, b->expires);
    assert_int_equal(a->ttl_ms, b->ttl_ms);
    assert_int_equal(a->created, b->created);
    assert_int_equal(a->fingerprint.secret, b->fingerprint.secret);
    assert_int_equal(a->fingerprint.mode, b->fingerprint.mode);
    assert_memory_equal(a->fingerprint.mac, b->fingerprint.mac, sizeof(a->fingerprint.mac));
}

/* A claim and its completion, with others around them, synced. */
static subject_t begin(void **state)
{
    subject_t subject = {.store = *state};
    once__record_t other = make(9, ONCE_STATE_PENDING);
    once__place_t ignored;
    char name[ONCE__SEGMENT_NAME];

    subject.writer = subject.store->logs[0];
    subject.reader = subject.store->logs[1];
    subject.claim = make(5, ONCE_STATE_PENDING);
    subject.completed = make(5, ONCE_STATE_COMPLETED);
    assert_int_equal(once__log_append(subject.writer, other.id, &other, 0, &ignored), ONCE_OK);
    assert_int_equal(
        once__log_append(subject.writer, subject.claim.id, &subject.claim, 0, &subject.at_claim),
        ONCE_OK);
    assert_int_equal(once__log_append(subject.writer, other.id, &other, 0, &ignored), ONCE_OK);
    assert_int_equal(once__log_complete(subject.writer, &subject.completed, subject.at_claim, 0,
                                        &subject.at_completion),
                     ONCE_OK);
    assert_int_equal(once__log_append(subject.writer, other.id, &other, 0, &ignored), ONCE_OK);
    assert_int_equal(once__log_sync(subject.writer), ONCE_OK);
    once__segment_name(name, subject.at_claim.segment, "log");
    subject.fd = openat(subject.store->segments_fd, name, O_RDWR);
    assert_true(subject.fd >= 0);
    return subject;
}

/* Into memory that was something else before: nothing of that may stay. */
static int read_head(const subject_t *subject, once__place_t place, once__record_t *record)
{
    memset(record, 0xa5, sizeof(*record));
    return once__log_read_head(subject->reader, place, subject->claim.id, record);
}

static void test_heads_are_those_of_the_records(void **state)
{
    subject_t subject = begin(state);
    once__record_t record, whole = make(5, ONCE_STATE_COMPLETED);
    once__place_t at_whole;
    uint8_t other[ONCE_ID_SIZE] = {5};

    assert_int_equal(read_head(&subject, subject.at_claim, &record), ONCE_OK);
    assert_same_head(&record.head, &subject.claim.head);
    assert_int_equal(read_head(&subject, subject.at_completion, &record), ONCE_OK);
    assert_same_head(&record.head, &subject.completed.head);
    assert_int_equal(once__log_read_head(subject.reader, subject.at_completion, other, &record),
                     ONCE_E_NOT_FOUND);
    assert_int_equal(once__log_append(subject.writer, whole.id, &whole, 0, &at_whole), ONCE_OK);
    assert_int_equal(once__log_sync(subject.writer), ONCE_OK);
    assert_int_equal(read_head(&subject, at_whole, &record), ONCE_OK);
    assert_same_head(&record.head, &whole.head);
    (void)close(subject.fd);
}

/* In the file, which the reader has mapped. */
static void flip(const subject_t *subject, uint64_t at, unsigned bit)
{
    uint8_t byte;

    assert_int_equal(pread(subject->fd, &byte, 1, (off_t)at), 1);
    byte ^= (uint8_t)(1 << bit);
    assert_int_equal(pwrite(subject->fd, &byte, 1, (off_t)at), 1);
}

static uint32_t length_at(const subject_t *subject, uint64_t at)
{
    uint8_t bytes[4];

    assert_int_equal(pread(subject->fd, bytes, sizeof(bytes), (off_t)at), sizeof(bytes));
    return once__get32(bytes);
}

static void test_every_bit_of_both_frames_counts(void **state)
{
    subject_t subject = begin(state);
    const uint64_t frames[] = {subject.at_claim.offset, subject.at_completion.offset};
    once__record_t record;

    for (size_t i = 0; i < 2; i++) {
        uint64_t end = frames[i] + length_at(&subject, frames[i]);
        for (uint64_t at = frames[i]; at < end; at++) {
            for (unsigned bit = 0; bit < 8; bit++) {
                flip(&subject, at, bit);
                assert_int_not_equal(read_head(&subject, subject.at_completion, &record), ONCE_OK);
                flip(&subject, at, bit);
            }
        }
    }
    assert_int_equal(read_head(&subject, subject.at_completion, &record), ONCE_OK);
    assert_same_head(&record.head, &subject.completed.head);
    (void)close(subject.fd);
}

/* Frames that are valid, but refer to what is not the claim of the record: before and behind, in the file and outside. */
static void test_only_the_claim_is_referred_to(void **state)
{
    subject_t subject = begin(state);
    once__place_t place = subject.at_completion;
    uint32_t len = length_at(&subject, place.offset);
    uint8_t frame[512];
    once__record_t record;
    unsigned found = 0;

    assert_true(len <= sizeof(frame));
    assert_int_equal(pread(subject.fd, frame, len, (off_t)place.offset), len);
    for (uint64_t claim = 0; claim <= UINT32_MAX; claim += claim < SEGMENT / 4 ? 1 : 104729) {
        int code;
        once__put32(frame + AT_CLAIM, (uint32_t)claim);
        once__put32(frame + 4, once__frame_checksum(place, frame, len));
        assert_int_equal(pwrite(subject.fd, frame, len, (off_t)place.offset), len);
        code = read_head(&subject, place, &record);
        assert_int_equal(code == ONCE_OK, claim * 8 == subject.at_claim.offset);
        found += code == ONCE_OK;
    }
    assert_int_equal(found, 1);
    (void)close(subject.fd);
}

static void test_no_place_is_too_far(void **state)
{
    subject_t subject = begin(state);
    once__record_t record;

    for (uint64_t offset = 0; offset < ONCE__OFFSET_LIMIT;
         offset += offset < 2 * SEGMENT ? 8 : 1048583 * 8) {
        once__place_t place = {subject.at_claim.segment, offset};
        int code = read_head(&subject, place, &record);
        assert_int_equal(code == ONCE_OK, offset == subject.at_claim.offset ||
                                              offset == subject.at_completion.offset);
    }
    assert_int_equal(read_head(&subject, (once__place_t){77, 64}, &record), ONCE_E_NOT_FOUND);
    (void)close(subject.fd);
}

/* The file is used again, for the same frames at the same places of another segment, while it is mapped as what it was. */
static void test_a_file_that_is_used_again(void **state)
{
    subject_t subject = begin(state);
    uint8_t bytes[2048];
    once__record_t record;
    uint64_t size = subject.at_completion.offset + 512;

    assert_int_equal(read_head(&subject, subject.at_completion, &record), ONCE_OK);
    assert_true(size <= sizeof(bytes));
    assert_int_equal(pread(subject.fd, bytes, size, 0), size);
    for (uint64_t at = ONCE__SEGMENT_HEADER; once__get32(bytes + at) != 0;) {
        once__place_t place = {subject.at_claim.segment + 1, at};
        uint32_t len = once__get32(bytes + at);
        once__put32(bytes + at + 4, once__frame_checksum(place, bytes + at, len));
        at += once__frame_padded(len - ONCE__FRAME_HEADER);
    }
    assert_int_equal(pwrite(subject.fd, bytes, size, 0), size);
    assert_int_equal(read_head(&subject, subject.at_completion, &record), ONCE_E_CORRUPT);
    assert_int_equal(read_head(&subject, subject.at_claim, &record), ONCE_E_CORRUPT);
    (void)close(subject.fd);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, store_setup, store_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_heads_are_those_of_the_records), TEST(test_every_bit_of_both_frames_counts),
        TEST(test_only_the_claim_is_referred_to),  TEST(test_no_place_is_too_far),
        TEST(test_a_file_that_is_used_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
