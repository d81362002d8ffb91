#include "support/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "core/about.h"
#include "store/local/frame.h"

#define KEY   "8e03978e-40d5-43dd-bc93-6894a57f9324"
#define ABOUT "\x01\x12gateway-7.example:31415POST /payments"

static uint64_t mix(uint64_t n)
{
    n = (n ^ n >> 30) * 0xbf58476d1ce4e5b9u;
    n = (n ^ n >> 27) * 0x94d049bb133111ebu;
    return n ^ n >> 31;
}

static void fill(uint8_t *out, size_t len, uint64_t seed)
{
    for (size_t i = 0; i < len; i++) {
        out[i] = (uint8_t)mix(seed + i);
    }
}

static once__record_t make(uint8_t state, const char *key, const once__payload_t *payload)
{
    once__record_t record = {
        .head = {.schema = ONCE__SCHEMA,
                 .state = state,
                 .recover = ONCE_RECOVER_TRANSACTIONAL,
                 .flags = state == ONCE_STATE_UNKNOWN ? ONCE__TAINTED | ONCE__BY_LEASE : 0,
                 .claim = {.epoch = 1},
                 .lease_until = 1700000030123,
                 .lease_ms = 30000,
                 .changed = 1700000000123,
                 .expires = state == ONCE_STATE_COMPLETED ? 1700086400123 : 0,
                 .ttl_ms = 86400000,
                 .created = 1699999999999,
                 .fingerprint = {.secret = 7, .mode = ONCE_BODY_MODE_JSON}},
        .key = key,
        .key_len = strlen(key),
    };
    if (payload != NULL) {
        record.payload = *payload;
    }
    fill(record.id, sizeof(record.id), 1);
    fill(record.scope_hash, sizeof(record.scope_hash), 2);
    fill(record.head.claim.id, sizeof(record.head.claim.id), 3);
    fill(record.head.fingerprint.mac, sizeof(record.head.fingerprint.mac), 4);
    return record;
}

static once__payload_t response(const uint8_t *data, size_t len)
{
    return (once__payload_t){ONCE__PAYLOAD_RESPONSE, 201, data, len};
}

/* The frame that a record becomes; its body is malloc'd. */
static once__frame_t pack(const once__record_t *record, const once__dictionary_t *dictionary)
{
    uint8_t *bytes = malloc(once__pack_bound(record));
    once__frame_t frame = {
        .kind = ONCE__FRAME_RECORD, .state = record->head.state, .id = record->id, .body = bytes};

    assert_non_null(bytes);
    frame.len = once__pack(bytes, record, dictionary, &frame.flags);
    assert_true(frame.len <= once__pack_bound(record));
    return frame;
}

static void drop(once__frame_t *frame)
{
    free((void *)(uintptr_t)frame->body);
}

static void assert_same(const once__record_t *a, const once__record_t *b)
{
    once__record_t x = *a, y = *b;

    assert_int_equal(x.key_len, y.key_len);
    assert_memory_equal(x.key, y.key, x.key_len);
    assert_int_equal(x.payload.len, y.payload.len);
    if (x.payload.len > 0) {
        assert_memory_equal(x.payload.data, y.payload.data, x.payload.len);
    }
    assert_int_equal(x.about.len, y.about.len);
    assert_int_equal(x.cause.len, y.cause.len);
    if (x.about.len > 0) {
        assert_memory_equal(x.about.data, y.about.data, x.about.len);
    }
    if (x.cause.len > 0) {
        assert_memory_equal(x.cause.data, y.cause.data, x.cause.len);
    }
    assert_int_equal(x.payload.kind, y.payload.kind);
    assert_int_equal(x.payload.status, y.payload.status);
    assert_memory_equal(x.id, y.id, sizeof(x.id));
    assert_memory_equal(x.scope_hash, y.scope_hash, sizeof(x.scope_hash));
    assert_int_equal(x.head.schema, y.head.schema);
    assert_int_equal(x.head.state, y.head.state);
    assert_int_equal(x.head.recover, y.head.recover);
    assert_int_equal(x.head.flags, y.head.flags);
    assert_int_equal(x.head.claim.epoch, y.head.claim.epoch);
    assert_memory_equal(x.head.claim.id, y.head.claim.id, sizeof(x.head.claim.id));
    assert_int_equal(x.head.lease_until, y.head.lease_until);
    assert_int_equal(x.head.lease_ms, y.head.lease_ms);
    assert_int_equal(x.head.changed, y.head.changed);
    assert_int_equal(x.head.expires, y.head.expires);
    assert_int_equal(x.head.created, y.head.created);
    assert_int_equal(x.head.ttl_ms, y.head.ttl_ms);
    assert_int_equal(x.head.fingerprint.secret, y.head.fingerprint.secret);
    assert_int_equal(x.head.fingerprint.mode, y.head.fingerprint.mode);
    assert_memory_equal(x.head.fingerprint.mac, y.head.fingerprint.mac, 32);
}

static void check(const once__record_t *record, const once__dictionary_t *dictionary)
{
    once__frame_t frame = pack(record, dictionary);
    once__scratch_t scratch = {0};
    once__record_t back;
    once__head_t head;

    assert_int_equal(once__unpack(&back, &frame, dictionary, &scratch), ONCE_OK);
    assert_same(&back, record);
    assert_int_equal(once__unpack_head(&head, &frame), ONCE_OK);
    assert_memory_equal(&head.fingerprint.mac, &record->head.fingerprint.mac, 32);
    assert_int_equal(head.expires, record->head.expires);
    assert_int_equal(head.ttl_ms, record->head.ttl_ms);
    free(scratch.bytes);
    drop(&frame);
}

/* ----------------------------------------------------------------------------------------------------------- records */

static void test_records_come_back(void **state)
{
    static const char *const keys[] = {KEY,
                                       "k",
                                       "8E03978E-40D5-43DD-BC93-6894A57F9324",
                                       "8e03978e-40d5-43dd-bc93-6894a57f932g",
                                       "8e03978e+40d5-43dd-bc93-6894a57f9324",
                                       "8e03978e-40d5-43dd-bc93-6894a57f93240"};
    once__payload_t note = {ONCE__PAYLOAD_NOTE, 0, (const uint8_t *)"why", 3};
    once__payload_t answer = response((const uint8_t *)"abc", 3);
    once__payload_t empty = response(NULL, 0);

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        once__record_t records[] = {make(ONCE_STATE_PENDING, keys[i], NULL),
                                    make(ONCE_STATE_COMPLETED, keys[i], &answer),
                                    make(ONCE_STATE_COMPLETED, keys[i], &empty),
                                    make(ONCE_STATE_FAILED, keys[i], &note),
                                    make(ONCE_STATE_FAILED, keys[i], NULL),
                                    make(ONCE_STATE_UNKNOWN, keys[i], &note)};
        for (size_t j = 0; j < sizeof(records) / sizeof(records[0]); j++) {
            check(&records[j], NULL);
        }
    }
}

/* Each character of a UUID as any byte: what is none is stored as it is. */
static void test_keys_like_uuids_come_back(void **state)
{
    for (size_t at = 0; at < strlen(KEY); at++) {
        for (unsigned byte = 1; byte < 256; byte++) {
            int is_digit = (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'f');
            int is_uuid = KEY[at] == '-' ? byte == '-' : is_digit;
            char key[] = KEY;
            once__record_t record;
            once__frame_t frame;
            key[at] = (char)byte;
            record = make(ONCE_STATE_PENDING, key, NULL);
            frame = pack(&record, NULL);
            assert_int_equal((frame.body[1] & 0x20) != 0, is_uuid);
            drop(&frame);
            check(&record, NULL);
        }
    }
}

static void test_extreme_numbers_come_back(void **state)
{
    static const uint64_t numbers[] = {0,
                                       1,
                                       127,
                                       128,
                                       (uint64_t)1 << 62,
                                       ((uint64_t)1 << 63) - 1,
                                       (uint64_t)1 << 63,
                                       ((uint64_t)1 << 63) + 1,
                                       UINT64_MAX - 1,
                                       UINT64_MAX};
    const size_t count = sizeof(numbers) / sizeof(numbers[0]);

    for (size_t i = 0; i < count * count * count; i++) {
        once__record_t record = make(ONCE_STATE_PENDING, KEY, NULL);
        record.head.changed = numbers[i % count];
        record.head.expires = numbers[i / count % count];
        record.head.created = numbers[i / count / count];
        record.head.lease_until = numbers[(i / count + i) % count];
        record.head.ttl_ms = numbers[(i + 3) % count];
        record.head.lease_ms = i % 2 == 0 ? UINT32_MAX : 0;
        record.head.claim.epoch = i % 3 == 0 ? UINT32_MAX : 1;
        record.head.fingerprint.secret = i % 5 == 0 ? UINT32_MAX : 0;
        check(&record, NULL);
    }
}

/* A lease that is longer than its field is stored as the longest, as in the other form of a record. */
static void test_long_lease_is_cut(void **state)
{
    once__record_t record = make(ONCE_STATE_PENDING, KEY, NULL);
    once__frame_t frame;
    once__head_t head;

    record.head.lease_ms = (uint64_t)UINT32_MAX + 5;
    frame = pack(&record, NULL);
    assert_int_equal(once__unpack_head(&head, &frame), ONCE_OK);
    assert_int_equal(head.lease_ms, UINT32_MAX);
    drop(&frame);
}

/* Whatever is accepted is what packing gives. */
static int is_own_form(const once__frame_t *frame)
{
    once__scratch_t scratch = {0};
    once__record_t record;
    once__head_t head;
    once__frame_t again;
    int code = once__unpack(&record, frame, NULL, &scratch);

    assert_int_equal(once__unpack_head(&head, frame), code);
    assert_true(code == ONCE_OK || code == ONCE_E_CORRUPT || code == ONCE_E_NEWER);
    if (code == ONCE_OK) {
        again = pack(&record, NULL);
        assert_int_equal(again.len, frame->len);
        assert_memory_equal(again.body, frame->body, frame->len);
        drop(&again);
    }
    free(scratch.bytes);
    return code == ONCE_OK;
}

static void test_only_own_forms_are_accepted(void **state)
{
    once__payload_t answer = response((const uint8_t *)"abcdefgh", 8);
    once__record_t records[] = {
        make(ONCE_STATE_PENDING, KEY, NULL), make(ONCE_STATE_COMPLETED, KEY, &answer),
        make(ONCE_STATE_COMPLETED, "key", &answer), make(ONCE_STATE_UNKNOWN, KEY, NULL)};

    records[3].about = once__slice_of("POST /payments");
    records[3].cause = once__slice_of("reset");

    for (size_t i = 0; i < sizeof(records) / sizeof(records[0]); i++) {
        once__frame_t frame = pack(&records[i], NULL);
        uint8_t *bytes = malloc(frame.len + 1);
        unsigned accepted = 0;
        assert_non_null(bytes);
        memcpy(bytes, frame.body, frame.len);
        drop(&frame);
        frame.body = bytes;
        for (size_t at = 0; at < frame.len; at++) {
            uint8_t before = bytes[at];
            for (unsigned value = 0; value < 256; value++) {
                bytes[at] = (uint8_t)value;
                accepted += (unsigned)is_own_form(&frame);
            }
            bytes[at] = before;
        }
        assert_true(accepted > 10000); /* ids and sums may be anything */
        bytes[frame.len] = 0;
        for (size_t len = 0; len <= frame.len + 1; len++) {
            once__frame_t part = frame;
            uint8_t *copy = malloc(len + 1); /* so that a sanitizer sees what is read behind it */
            assert_non_null(copy);
            memcpy(copy, bytes, len);
            part.body = copy;
            part.len = len;
            assert_int_equal(is_own_form(&part), len == frame.len);
            free(copy);
        }
        free(bytes);
    }
}

/* The head of the frame with `count` bytes at `at` replaced by others. */
static int code_with(const once__frame_t *frame, size_t at, size_t count, const char *bytes,
                     size_t len)
{
    once__frame_t other = *frame;
    uint8_t body[512];
    once__head_t head;

    memcpy(body, frame->body, at);
    memcpy(body + at, bytes, len);
    memcpy(body + at + len, frame->body + at + count, frame->len - at - count);
    other.body = body;
    other.len = frame->len - count + len;
    return once__unpack_head(&head, &other);
}

/* What means the same as another form, or nothing. In the fourth byte is the epoch. */
static void test_other_forms_are_corrupt(void **state)
{
    once__record_t record = make(ONCE_STATE_PENDING, KEY, NULL);
    once__frame_t frame;
    size_t expires, key;

    record.head.expires = record.head.changed - 1;
    record.head.lease_until = record.head.changed;
    frame = pack(&record, NULL);
    expires = 4 + 3 + 16 + 8 + 1;
    assert_int_equal(code_with(&frame, 3, 1, "\x01", 1), ONCE_OK);
    assert_int_equal(code_with(&frame, 3, 1, "\x81\x00", 2), ONCE_E_CORRUPT);
    assert_int_equal(code_with(&frame, 3, 1, "\xff\xff\xff\xff\x0f", 5), ONCE_OK);
    assert_int_equal(code_with(&frame, 3, 1, "\xff\xff\xff\xff\x1f", 5), ONCE_E_CORRUPT);
    /* more than 64 bits */
    assert_int_equal(frame.body[expires], 1);
    assert_int_equal(code_with(&frame, expires, 1, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 10),
                     ONCE_OK);
    assert_int_equal(code_with(&frame, expires, 1, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x03", 10),
                     ONCE_E_CORRUPT);
    /* a UUID as text */
    drop(&frame);
    record.key = "8e03978e-40d5-43dd-bc93-6894a57f932x";
    frame = pack(&record, NULL);
    key = frame.len - 36;
    assert_int_equal(code_with(&frame, key, 36, record.key, 36), ONCE_OK);
    assert_int_equal(code_with(&frame, key, 36, KEY, 36), ONCE_E_CORRUPT);
    drop(&frame);
    /* it expires, at 0 */
    record.head.changed = record.head.lease_until = 1;
    record.head.expires = 2;
    frame = pack(&record, NULL);
    assert_int_equal(code_with(&frame, expires, 1, "\x02", 1), ONCE_OK);
    assert_int_equal(code_with(&frame, expires, 1, "\x01", 1), ONCE_E_CORRUPT);
    drop(&frame);
}

static void test_state_of_the_frame_counts(void **state)
{
    once__record_t record = make(ONCE_STATE_PENDING, KEY, NULL), back;
    once__frame_t frame = pack(&record, NULL);
    once__scratch_t scratch = {0};

    frame.state = ONCE_STATE_UNKNOWN;
    assert_int_equal(once__unpack(&back, &frame, NULL, &scratch), ONCE_E_CORRUPT);
    frame.state = ONCE_STATE_PENDING;
    frame.kind = ONCE__FRAME_REMOVED;
    assert_int_equal(once__unpack(&back, &frame, NULL, &scratch), ONCE_E_CORRUPT);
    frame.kind = ONCE__FRAME_RECORD;
    frame.flags = ONCE__FRAME_COMPRESSED; /* there is nothing that could be */
    assert_int_equal(once__unpack(&back, &frame, NULL, &scratch), ONCE_E_CORRUPT);
    assert_null(back.key);
    assert_memory_equal(back.id, record.id, ONCE_ID_SIZE);
    free(scratch.bytes);
    drop(&frame);
}

/* Of a newer schema the envelope is known, whatever follows. */
static void test_newer_schema(void **state)
{
    once__record_t record = make(ONCE_STATE_UNKNOWN, KEY, NULL), back;
    once__frame_t frame = pack(&record, NULL);
    once__scratch_t scratch = {0};
    uint8_t bytes[512];
    once__head_t head;

    memcpy(bytes, frame.body, frame.len);
    drop(&frame);
    frame.body = bytes;
    frame.flags = ONCE__FRAME_COMPRESSED;
    bytes[0] = ONCE__SCHEMA + 1;
    bytes[1] |= 0x80;
    bytes[2] |= 0x40;
    for (size_t len = 40; len < sizeof(bytes); len += 20) {
        frame.len = len;
        assert_int_equal(once__unpack(&back, &frame, NULL, &scratch), ONCE_E_NEWER);
        assert_int_equal(back.head.schema, ONCE__SCHEMA + 1);
        assert_int_equal(back.head.lease_until, record.head.lease_until);
        assert_int_equal(back.head.created, record.head.created);
        assert_memory_equal(back.head.claim.id, record.head.claim.id, ONCE_CLAIM_ID_SIZE);
        assert_memory_equal(back.id, record.id, ONCE_ID_SIZE);
        assert_true(back.key == NULL && back.payload.len == 0 && back.head.ttl_ms == 0);
        assert_int_equal(once__unpack_head(&head, &frame), ONCE_E_NEWER);
        assert_int_equal(head.claim.epoch, 1);
    }
    bytes[1] = (bytes[1] & ~7u) | 5; /* no such state */
    assert_int_equal(once__unpack_head(&head, &frame), ONCE_E_CORRUPT);
    assert_null(scratch.bytes);
}

/* -------------------------------------------------------------------------------------------------------- dictionary */

/* A stored response with one header and 400 bytes of JSON, as a payment service answers. */
static size_t charge(uint8_t *out, uint64_t n)
{
    unsigned long long a = mix(n * 2 + 1000001), b = mix(n * 2 + 1000002);
    char *body = (char *)out + 49;
    int len;

    memset(out, 0, 9);
    once__put32(out + 5, 440);
    once__put32(out + 9, 1);
    once__put32(out + 13, 12);
    memcpy(out + 17, "content-type", 12);
    once__put32(out + 29, 16);
    memcpy(out + 33, "application/json", 16);
    len = snprintf(
        body, 401,
        "{\"id\":\"ch_%016llx\",\"object\":\"charge\",\"amount\":%llu,\"currency\":\"eur\","
        "\"status\":\"succeeded\",\"created\":%llu,\"customer\":\"cus_%010llx\",\"paid\":"
        "true,\"refunded\":false,\"captured\":true,\"description\":\"Order %llu\","
        "\"livemode\":true,\"payment_method\":{\"type\":\"card\",\"brand\":\"%s\",\"last4\":"
        "\"%04llu\",\"exp_month\":%llu,\"exp_year\":20%llu},\"receipt_url\":"
        "\"https://pay.example.com/receipts/%012llx\"",
        a, b % 100000, 1780000000ull + n / 50, b >> 24, 100000ull + n,
        b & 1 ? "visa" : "mastercard", a % 10000, a % 12 + 1, 27 + b % 6, a >> 16);
    memset(body + len, ' ', (size_t)(400 - len));
    body[399] = '}';
    return 449;
}

static once__dictionary_t *dictionary_of(unsigned responses)
{
    once__samples_t *samples = calloc(1, sizeof(*samples));
    uint8_t data[512], bytes[ONCE__DICTIONARY_MAX];
    once__dictionary_t *dictionary;
    size_t len;

    assert_non_null(samples);
    for (unsigned i = 0; i < responses; i++) {
        once__payload_t payload = response(data, charge(data, 1000000 + i));
        once__record_t record = make(ONCE_STATE_COMPLETED, KEY, &payload);
        record.about = once__slice_of(ABOUT);
        once__samples_offer(samples, &record);
    }
    len = once__samples_take(samples, bytes);
    assert_true(len > 0 && len <= sizeof(bytes));
    dictionary = once__dictionary_open(bytes, len, 1);
    assert_non_null(dictionary);
    free(samples);
    return dictionary;
}

/* What a pair of claim and completion takes in the log. */
static void test_similar_responses_are_short(void **state)
{
    static const unsigned seen[] = {1, 20, 200, 5000};

    for (size_t i = 0; i < sizeof(seen) / sizeof(seen[0]); i++) {
        once__dictionary_t *dictionary = dictionary_of(seen[i]);
        uint64_t bytes = 0;
        for (uint64_t n = 0; n < 500; n++) {
            uint8_t data[512];
            once__payload_t payload = response(data, charge(data, n));
            once__record_t claim = make(ONCE_STATE_PENDING, KEY, NULL);
            once__record_t completion = make(ONCE_STATE_COMPLETED, KEY, &payload);
            once__frame_t frame;
            claim.about = completion.about = once__slice_of(ABOUT);
            frame = pack(&claim, dictionary);
            assert_int_equal(frame.flags, ONCE__FRAME_SHORT_ABOUT);
            bytes += once__frame_size(frame.len, 0);
            drop(&frame);
            frame = pack(&completion, dictionary);
            assert_int_equal(frame.flags, ONCE__FRAME_COMPRESSED | ONCE__FRAME_SHORT_ABOUT);
            bytes += once__frame_size(frame.len, 0);
            drop(&frame);
            check(&completion, dictionary);
        }
        print_message("dictionary of %u responses: %.1f bytes a pair\n", seen[i],
                      (double)bytes / 500);
        assert_true(bytes / 500 <= 445);
        once__dictionary_close(dictionary);
    }
}

static void test_what_cannot_become_shorter_stays(void **state)
{
    static uint8_t data[ONCE__DICTIONARY_MOST + 8];
    once__dictionary_t *dictionary = dictionary_of(40);
    static const size_t lens[] = {0, 1, 63, 64, 65, 1000, ONCE__DICTIONARY_MOST};

    fill(data, sizeof(data), 99);
    data[0] = 0;
    for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
        once__payload_t payload = response(data, lens[i]);
        once__record_t record = make(ONCE_STATE_COMPLETED, KEY, &payload);
        once__frame_t frame = pack(&record, dictionary);
        assert_int_equal(frame.flags, 0);
        drop(&frame);
        check(&record, dictionary);
    }
    once__dictionary_close(dictionary);
}

/* What is compressed, sealed, too long or no response is not tried. */
static void test_what_does_not_fit(void **state)
{
    static uint8_t data[ONCE__DICTIONARY_MOST + 1];
    once__payload_t payload = response(data, 449);

    (void)charge(data, 5);
    assert_true(once__dictionary_fits(&payload));
    payload.len = ONCE__DICTIONARY_MOST;
    assert_true(once__dictionary_fits(&payload));
    payload.len++;
    assert_false(once__dictionary_fits(&payload));
    payload.len = ONCE__DICTIONARY_LEAST - 1;
    assert_false(once__dictionary_fits(&payload));
    payload.len = 449;
    payload.kind = ONCE__PAYLOAD_NOTE;
    assert_false(once__dictionary_fits(&payload));
    payload.kind = ONCE__PAYLOAD_RESPONSE;
    for (uint8_t flags = 0; flags < 8; flags++) {
        data[0] = flags;
        assert_int_equal(once__dictionary_fits(&payload), (flags & 3) == 0);
    }
}

/* Pieces of the dictionary in any order and length, with other bytes between them. */
static void test_any_mixture_comes_back(void **state)
{
    static uint8_t words[ONCE__DICTIONARY_MAX], data[ONCE__DICTIONARY_MOST],
        packed[ONCE__DICTIONARY_MOST], back[ONCE__DICTIONARY_MOST];

    fill(words, sizeof(words), 5);
    for (uint64_t seed = 0; seed < 3000; seed++) {
        size_t dictionary_len = 1 + mix(seed) % (seed % 3 == 0 ? 40 : sizeof(words));
        size_t len = 1 + mix(seed + 7) % (seed % 2 == 0 ? 300 : sizeof(data)), at = 0, size;
        once__dictionary_t *dictionary = once__dictionary_open(words, dictionary_len, 1);
        assert_non_null(dictionary);
        for (uint64_t step = 0; at < len; step++) {
            uint64_t random = mix(seed * 1000 + step);
            size_t from = random % dictionary_len;
            size_t most = random % 2 == 0 ? dictionary_len - from : len;
            size_t part = 1 + (random >> 20) % (random % 32 == 0 ? 3000 : 40);
            part = part < most ? part : most;
            part = part < len - at ? part : len - at;
            for (size_t i = 0; i < part; i++) {
                uint8_t other = (uint8_t)mix(random + i);
                data[at + i] = random % 2 == 0   ? words[from + i]
                               : random % 3 == 0 ? (uint8_t) "0123456789abcdef"[other & 15]
                                                 : other;
            }
            at += part;
        }
        size = once__dictionary_pack(dictionary, packed, data, len);
        assert_true(size < len || size == 0);
        if (size > 0) {
            assert_int_equal(once__dictionary_unpack(dictionary, back, len, packed, size), 0);
            assert_memory_equal(back, data, len);
            assert_int_equal(once__dictionary_unpack(dictionary, back, len - 1, packed, size), -1);
            assert_int_equal(once__dictionary_unpack(dictionary, back, len, packed, size - 1), -1);
        }
        once__dictionary_close(dictionary);
    }
}

/* Damage that no checksum caught: never memory of others, never more than the length. */
static void test_unpacking_trusts_nothing(void **state)
{
    once__dictionary_t *dictionary = dictionary_of(3);
    uint8_t data[512], packed[512];
    size_t len = charge(data, 8), size = once__dictionary_pack(dictionary, packed, data, len);

    assert_true(size > 0);
    for (uint64_t seed = 0; seed < 20000; seed++) {
        size_t part = seed % 4 == 0 ? mix(seed) % size : size;
        uint8_t *in = malloc(part + 1), *out = malloc(len);
        assert_non_null(in);
        assert_non_null(out);
        memcpy(in, packed, part);
        for (uint64_t change = 0; change < 1 + seed % 3 && part > 0; change++) {
            in[mix(seed + change) % part] = (uint8_t)mix(seed * 3 + change);
        }
        (void)once__dictionary_unpack(dictionary, out, len, in, part);
        free(in);
        free(out);
    }
    once__dictionary_close(dictionary);
}

/* Steps by hand: literals, digits of hex, copies from within the dictionary and from beyond it. */
static void test_steps(void **state)
{
    static const struct {
        const char *in;
        size_t len;
        const char *out; /* NULL: it is wrong */
    } steps[] = {
        {"\x0a\x00", 2, "0123456789"},
        {"\x0b\x00", 2, NULL},           /* beyond the end */
        {"\x08\x80\x04", 3, "23456789"}, /* from two on */
        {"\x09\x80\x04", 3, NULL},
        {"\x08\x80\x03", 3, NULL},        /* before the beginning */
        {"\x07\x03xyz", 5, "xyz3456789"}, /* as if the literals had replaced as many */
        {"\x00\x45\xab\xcd\xe0", 5, "abcde"},
        {"\x00\x45\xab\xcd", 4, NULL},
        {"\x02\x01x\x02\x01y", 6, "x12y45"}, /* and goes on behind them */
        {"\x02\x01x\x02\x81y\x03", 7, "x12y23"},
        {"\x02\x01x\x02\x81y", 6, NULL},
        {"\x0a\x00\x00", 3, NULL},
        {"\xff\x00\x00", 3, NULL},
    };
    once__dictionary_t *dictionary = once__dictionary_open((const uint8_t *)"0123456789", 10, 0);

    assert_non_null(dictionary);
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        size_t len = steps[i].out != NULL ? strlen(steps[i].out) : (size_t)steps[i].in[0] & 15;
        uint8_t out[32];
        assert_int_equal(once__dictionary_unpack(dictionary, out, len, (const uint8_t *)steps[i].in,
                                                 steps[i].len),
                         steps[i].out != NULL ? 0 : -1);
        if (steps[i].out != NULL) {
            assert_memory_equal(out, steps[i].out, len);
        }
    }
    once__dictionary_close(dictionary);
}

static void test_compressed_needs_its_dictionary(void **state)
{
    once__dictionary_t *dictionary = dictionary_of(3);
    uint8_t data[512];
    once__payload_t payload = response(data, charge(data, 8));
    once__record_t record = make(ONCE_STATE_COMPLETED, KEY, &payload), back;
    once__frame_t frame = pack(&record, dictionary);
    once__scratch_t scratch = {0};
    once__head_t head;

    assert_int_equal(once__unpack(&back, &frame, NULL, &scratch), ONCE_E_CORRUPT);
    assert_int_equal(once__unpack_head(&head, &frame), ONCE_OK);
    assert_int_equal(head.expires, record.head.expires);
    frame.flags = 0; /* then the length is wrong */
    assert_int_equal(once__unpack(&back, &frame, dictionary, &scratch), ONCE_E_CORRUPT);
    assert_int_equal(once__unpack_head(&head, &frame), ONCE_E_CORRUPT);
    free(scratch.bytes);
    drop(&frame);
    once__dictionary_close(dictionary);
}

/* With and without a dictionary that has it, of any length; whatever else the record has. */
static void test_what_it_says_comes_back(void **state)
{
    once__dictionary_t *dictionary = dictionary_of(3);
    static uint8_t data[512], text[ONCE__ABOUT_MAX];
    once__payload_t payload = response(data, charge(data, 8));
    static const size_t lens[] = {0, 1, 15, 16, 40, ONCE__ABOUT_MAX};

    fill(text, sizeof(text), 77);
    for (size_t i = 0; i < 6 * 2 * 2 * 2; i++) {
        int completed = i / 6 % 2 == 0;
        once__record_t record = make(completed ? ONCE_STATE_COMPLETED : ONCE_STATE_UNKNOWN, KEY,
                                     completed ? &payload : NULL);
        record.about = once__slice(i / 12 % 2 == 0 ? text : (const uint8_t *)ABOUT, lens[i % 6]);
        if (i / 12 % 2 != 0 && record.about.len > strlen(ABOUT)) {
            record.about.len = strlen(ABOUT);
        }
        record.cause = once__slice(text, i / 24 % 2 == 0 ? 0 : ONCE_CAUSE_MAX);
        check(&record, NULL);
        check(&record, dictionary);
    }
    once__dictionary_close(dictionary);
}

/* A damaged dictionary takes the description, and not the record. */
static void test_what_it_says_is_not_worth_a_record(void **state)
{
    once__dictionary_t *dictionary = dictionary_of(3);
    once__record_t record = make(ONCE_STATE_PENDING, KEY, NULL), back;
    once__scratch_t scratch = {0};
    once__frame_t frame;

    record.about = once__slice_of(ABOUT);
    frame = pack(&record, dictionary);
    assert_int_equal(frame.flags, ONCE__FRAME_SHORT_ABOUT);
    assert_int_equal(once__unpack(&back, &frame, NULL, &scratch), ONCE_OK);
    assert_int_equal(back.about.len, 0);
    record.about.len = 0;
    assert_same(&back, &record);
    frame.flags = 0; /* then the length is wrong */
    assert_int_equal(once__unpack(&back, &frame, dictionary, &scratch), ONCE_E_CORRUPT);
    free(scratch.bytes);
    drop(&frame);
    once__dictionary_close(dictionary);
}

/* Newest last; one of sixteen; long ones by their beginning; nothing of what is sealed. */
static void test_samples(void **state)
{
    static once__samples_t samples;
    static uint8_t data[4096], out[ONCE__DICTIONARY_MAX];
    once__payload_t payload = response(data, 300);
    once__record_t record = make(ONCE_STATE_COMPLETED, KEY, &payload);
    size_t len;

    memset(&samples, 0, sizeof(samples));
    assert_int_equal(once__samples_take(&samples, out), 0);
    memset(data + 1, 's', 299);
    data[0] = 2;
    once__samples_offer(&samples, &record);
    assert_int_equal(once__samples_take(&samples, out), 0);
    data[0] = 0;
    for (unsigned i = 0; i < 16 * 100 + 1; i++) {
        memset(data + 1, (int)(i / 16), 299);
        once__samples_offer(&samples, &record);
        len = once__samples_take(&samples, out);
        assert_int_equal(len, (i / 16 + 1) * 300 < sizeof(out) ? (i / 16 + 1) * 300 : sizeof(out));
        assert_int_equal(out[len - 300], 0);
        assert_int_equal(out[len - 299], (uint8_t)(i / 16));
        assert_int_equal(out[len - 1], (uint8_t)(i / 16));
        if (i >= 16) {
            assert_int_equal(out[len - 301], (uint8_t)(i / 16 - 1));
        }
    }
    record.payload.len = sizeof(data);
    memset(data + 1, 'b', sizeof(data) - 1);
    memset(data + 2048, 'c', sizeof(data) - 2048);
    for (unsigned i = 0; i < 16; i++) {
        once__samples_offer(&samples, &record);
    }
    assert_int_equal(once__samples_take(&samples, out), sizeof(out));
    assert_int_equal(out[sizeof(out) - 1], 'b');
    assert_int_equal(out[sizeof(out) - 2047], 'b');
    assert_int_equal(out[sizeof(out) - 2049], 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_records_come_back),
        cmocka_unit_test(test_keys_like_uuids_come_back),
        cmocka_unit_test(test_extreme_numbers_come_back),
        cmocka_unit_test(test_long_lease_is_cut),
        cmocka_unit_test(test_only_own_forms_are_accepted),
        cmocka_unit_test(test_other_forms_are_corrupt),
        cmocka_unit_test(test_state_of_the_frame_counts),
        cmocka_unit_test(test_newer_schema),
        cmocka_unit_test(test_similar_responses_are_short),
        cmocka_unit_test(test_what_cannot_become_shorter_stays),
        cmocka_unit_test(test_what_does_not_fit),
        cmocka_unit_test(test_any_mixture_comes_back),
        cmocka_unit_test(test_unpacking_trusts_nothing),
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_compressed_needs_its_dictionary),
        cmocka_unit_test(test_what_it_says_comes_back),
        cmocka_unit_test(test_what_it_says_is_not_worth_a_record),
        cmocka_unit_test(test_samples),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
