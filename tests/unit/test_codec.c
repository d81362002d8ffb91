#include "support/testing.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "core/codec.h"
#include "core/rules.h"

#define KEY "8e03978e-40d5-43dd-bc93-6894a57f9324"

static once__record_t make(uint8_t state, uint8_t kind, uint16_t status, const char *payload)
{
    once__record_t record = {
        .head = {.schema = ONCE__SCHEMA,
                 .state = state,
                 .recover = ONCE_RECOVER_HOLD,
                 .flags = ONCE__TAINTED,
                 .claim = {.epoch = 3},
                 .lease_until = 0x1122334455667788,
                 .lease_ms = 30000,
                 .changed = 1700000000123,
                 .expires = 1700086400123,
                 .ttl_ms = 3650ull * 24 * 3600 * 1000,
                 .created = 1699999999999,
                 .fingerprint = {.secret = 7, .mode = ONCE_BODY_MODE_JSON}},
        .key = KEY,
        .key_len = strlen(KEY),
        .payload = {.kind = kind,
                    .status = status,
                    .data = (const uint8_t *)payload,
                    .len = strlen(payload)},
    };
    memset(record.scope_hash, 0x5c, sizeof(record.scope_hash));
    memset(record.head.claim.id, 0xc1, sizeof(record.head.claim.id));
    memset(record.head.fingerprint.mac, 0xfa, sizeof(record.head.fingerprint.mac));
    return record;
}

static uint8_t *encode(const once__record_t *record, size_t *len)
{
    uint8_t *bytes;

    *len = once__record_size(record);
    bytes = malloc(*len);
    assert_non_null(bytes);
    once__record_encode(record, bytes);
    return bytes;
}

static void assert_same_claim(const once__claim_ref_t *a, const once__claim_ref_t *b)
{
    assert_int_equal(a->epoch, b->epoch);
    assert_memory_equal(a->id, b->id, sizeof(a->id));
}

static void assert_same_envelope(const once__head_t *a, const once__head_t *b)
{
    assert_int_equal(a->schema, b->schema);
    assert_int_equal(a->state, b->state);
    assert_int_equal(a->recover, b->recover);
    assert_int_equal(a->flags, b->flags);
    assert_same_claim(&a->claim, &b->claim);
    assert_int_equal(a->lease_until, b->lease_until);
    assert_int_equal(a->lease_ms, b->lease_ms);
    assert_int_equal(a->changed, b->changed);
    assert_int_equal(a->expires, b->expires);
    assert_int_equal(a->created, b->created);
}

static void assert_same(const once__record_t *a, const once__record_t *b)
{
    assert_same_envelope(&a->head, &b->head);
    assert_int_equal(a->head.ttl_ms, b->head.ttl_ms);
    assert_int_equal(a->head.fingerprint.secret, b->head.fingerprint.secret);
    assert_int_equal(a->head.fingerprint.mode, b->head.fingerprint.mode);
    assert_memory_equal(a->head.fingerprint.mac, b->head.fingerprint.mac, 32);
    assert_memory_equal(a->scope_hash, b->scope_hash, sizeof(a->scope_hash));
    assert_int_equal(a->key_len, b->key_len);
    assert_memory_equal(a->key, b->key, a->key_len);
    assert_int_equal(a->payload.kind, b->payload.kind);
    assert_int_equal(a->payload.status, b->payload.status);
    assert_int_equal(a->payload.len, b->payload.len);
    assert_memory_equal(a->payload.data, b->payload.data, a->payload.len);
}

static void what_is_written_is_read_back(void **state)
{
    once__record_t records[] = {
        make(ONCE_STATE_PENDING, ONCE__PAYLOAD_NONE, 0, ""),
        make(ONCE_STATE_COMPLETED, ONCE__PAYLOAD_RESPONSE, 201, "a packed response"),
        make(ONCE_STATE_FAILED, ONCE__PAYLOAD_NONE, 0, ""),
        make(ONCE_STATE_FAILED, ONCE__PAYLOAD_NOTE, 503, "the backend was not there"),
        make(ONCE_STATE_FAILED, ONCE__PAYLOAD_NOTE, 0, ""),
        make(ONCE_STATE_UNKNOWN, ONCE__PAYLOAD_NONE, 0, ""),
        make(ONCE_STATE_UNKNOWN, ONCE__PAYLOAD_NOTE, 999,
             "released, but an earlier epoch ended in doubt"),
    };

    for (size_t i = 0; i < sizeof(records) / sizeof(records[0]); i++) {
        once__record_t read;
        once__record_t *clone;
        size_t len;
        uint8_t *bytes = encode(&records[i], &len);

        assert_int_equal(once__record_decode(&read, bytes, len), ONCE_OK);
        assert_same(&records[i], &read);
        clone = once__record_clone(&read);
        free(bytes); /* the clone stands on its own */
        assert_same(&records[i], clone);
        free(clone);
    }
}

/* Decoded over other bytes than zeros. */
static int decode_over(int before, const uint8_t *bytes, size_t len, once__record_t *record)
{
    memset(record, before, sizeof(*record));
    return once__record_decode(record, bytes, len);
}

static void check_nothing_stays(const uint8_t *bytes, size_t len, int expected)
{
    once__record_t zeroed, record;
    once__head_t head;
    int code;

    assert_int_equal(decode_over(0, bytes, len, &zeroed), expected);
    assert_int_equal(decode_over(0xa5, bytes, len, &record), expected);
    assert_same(&zeroed, &record);
    assert_memory_equal(zeroed.id, record.id, sizeof(record.id));
    assert_ptr_equal(zeroed.key, record.key);
    assert_ptr_equal(zeroed.payload.data, record.payload.data);
    if (len >= ONCE__ENVELOPE_SIZE) { /* alone it has no fingerprint and no ttl */
        memset(&head, 0xa5, sizeof(head));
        memset(&zeroed, 0, sizeof(zeroed));
        code = once__envelope_decode(&head, bytes);
        assert_int_equal(once__envelope_decode(&zeroed.head, bytes), code);
        record = zeroed;
        record.head = head;
        assert_same(&zeroed, &record);
        assert_int_equal(head.ttl_ms, 0);
    }
}

/* Whatever the kind of record, and whatever is wrong with it. */
static void nothing_stays_of_what_was_there_before(void **state)
{
    const once__record_t records[] = {
        make(ONCE_STATE_PENDING, ONCE__PAYLOAD_NONE, 0, ""),
        make(ONCE_STATE_COMPLETED, ONCE__PAYLOAD_RESPONSE, 201, "a packed response"),
        make(ONCE_STATE_COMPLETED, ONCE__PAYLOAD_RESPONSE, 204, ""),
        make(ONCE_STATE_FAILED, ONCE__PAYLOAD_NONE, 0, ""),
        make(ONCE_STATE_FAILED, ONCE__PAYLOAD_NOTE, 503, "the backend was not there"),
        make(ONCE_STATE_UNKNOWN, ONCE__PAYLOAD_NOTE, 0, "released"),
    };

    for (size_t i = 0; i < sizeof(records) / sizeof(records[0]); i++) {
        size_t len;
        uint8_t *bytes = encode(&records[i], &len);

        check_nothing_stays(bytes, len, ONCE_OK);
        for (size_t cut = 0; cut < len; cut++) {
            check_nothing_stays(bytes, cut, ONCE_E_CORRUPT);
        }
        bytes[1] = ONCE__SCHEMA + 1;
        check_nothing_stays(bytes, len, ONCE_E_NEWER);
        bytes[0] ^= 1;
        check_nothing_stays(bytes, len, ONCE_E_CORRUPT);
        free(bytes);
    }
}

static void the_bytes_are_as_documented(void **state)
{
    static const char expected[] =
        "4f01030202000000030000003075000020212223242526272829"
        "2a2b2c2d2e2f"
        "8877665544332211" /* lease until */
        "7b68e5cf8b010000" /* changed */
        "7bc40bd58b010000" /* expires */
        "ff67e5cf8b010000" /* created */
        "07000000"         /* secret */
        "02"               /* mode */
        "02"               /* note */
        "f701"             /* 503 */
        "fafafafafafafafafafafafafafafafafafafafafafafafafafafafafafafafa"
        "5c5c5c5c5c5c5c5c5c5c5c5c5c5c5c5c"
        "00b8eb6c49000000" /* ttl */
        "03000000"         /* payload length */
        "03"               /* key length */
        "6b6579"           /* key */
        "6e6f74";
    once__record_t record = make(ONCE_STATE_FAILED, ONCE__PAYLOAD_NOTE, 503, "not");
    char hex[2 * 256 + 1];
    size_t len;
    uint8_t *bytes;

    for (size_t i = 0; i < ONCE_CLAIM_ID_SIZE; i++) {
        record.head.claim.id[i] = (uint8_t)(0x20 + i);
    }
    record.key = "key";
    record.key_len = 3;
    bytes = encode(&record, &len);
    assert_int_equal(len, 133 + 3 + 3);
    once__hex(hex, bytes, len);
    assert_string_equal(hex, expected);
    free(bytes);
}

static void a_pending_record_is_small(void **state)
{
    once__record_t record = make(ONCE_STATE_PENDING, ONCE__PAYLOAD_NONE, 0, "");
    assert_int_equal(once__record_size(&record), 169);
}

static void the_id_is_the_stores_business(void **state)
{
    static const uint8_t zero[ONCE_ID_SIZE];
    once__record_t record = make(ONCE_STATE_PENDING, ONCE__PAYLOAD_NONE, 0, "");
    once__record_t read;
    size_t len;
    uint8_t *bytes;

    memset(record.id, 0x1d, sizeof(record.id));
    bytes = encode(&record, &len);
    memset(&read, 0xff, sizeof(read));
    assert_int_equal(once__record_decode(&read, bytes, len), ONCE_OK);
    assert_memory_equal(read.id, zero, sizeof(zero));
    free(bytes);
}

static void a_lease_beyond_its_field_is_the_greatest(void **state)
{
    once__record_t record = make(ONCE_STATE_PENDING, ONCE__PAYLOAD_NONE, 0, "");
    once__record_t read;
    size_t len;
    uint8_t *bytes;

    record.head.lease_ms = (uint64_t)UINT32_MAX + 5;
    bytes = encode(&record, &len);
    assert_int_equal(once__record_decode(&read, bytes, len), ONCE_OK);
    assert_int_equal(read.head.lease_ms, UINT32_MAX);
    free(bytes);
}

static void any_other_length_is_corrupt(void **state)
{
    static const once__record_t zero;
    once__record_t record = make(ONCE_STATE_FAILED, ONCE__PAYLOAD_NOTE, 500, "a note");
    once__record_t read;
    size_t len;
    uint8_t *bytes = encode(&record, &len);
    uint8_t *longer = calloc(1, len + 1);

    memcpy(longer, bytes, len);
    for (size_t cut = 0; cut < len; cut++) {
        /* of its size: a byte too many is seen by the sanitizer */
        uint8_t *exact = malloc(cut + 1);
        memcpy(exact + 1, bytes, cut);
        assert_int_equal(once__record_decode(&read, exact + 1, cut), ONCE_E_CORRUPT);
        assert_memory_equal(&read, &zero, sizeof(zero));
        free(exact);
    }
    assert_int_equal(once__record_decode(&read, longer, len + 1), ONCE_E_CORRUPT);
    free(longer);
    free(bytes);
}

static void a_value_outside_its_table_is_corrupt(void **state)
{
    static const struct {
        size_t at;
        uint8_t value;
    } wrong[] = {
        {0, 0x4e}, {0, 0},   {1, 0},    {2, 0},   {2, 5},   {2, 255},  {3, 3},
        {4, 8},    {4, 128}, {5, 1},    {6, 1},   {7, 1},   {8, 0},    {68, 4},
        {68, 255}, {69, 3},  {69, 255}, {69, 0},  {69, 1},  {71, 255}, {71, 4},
        {128, 5},  {128, 7}, {131, 1},  {132, 0}, {132, 2}, {132, 4},  {132, 255},
    };
    once__record_t record = make(ONCE_STATE_FAILED, ONCE__PAYLOAD_NOTE, 500, "a note");
    once__record_t read;
    size_t len;
    uint8_t *bytes;

    record.key = "key";
    record.key_len = 3;
    bytes = encode(&record, &len);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        uint8_t right = bytes[wrong[i].at];
        bytes[wrong[i].at] = wrong[i].value;
        assert_int_equal(once__record_decode(&read, bytes, len), ONCE_E_CORRUPT);
        bytes[wrong[i].at] = right;
    }
    assert_int_equal(once__record_decode(&read, bytes, len), ONCE_OK);
    free(bytes);
}

static void a_record_without_a_key_is_corrupt(void **state)
{
    once__record_t record = make(ONCE_STATE_FAILED, ONCE__PAYLOAD_NOTE, 500, "");
    once__record_t read;
    size_t len;
    uint8_t *bytes;

    record.key_len = 3;
    bytes = encode(&record, &len);
    bytes[132] = 0; /* the key's bytes count as the payload's: all lengths meet */
    bytes[128] = 3;
    assert_int_equal(once__record_decode(&read, bytes, len), ONCE_E_CORRUPT);
    free(bytes);
}

/* Writes kind and status over a valid record's bytes and says how they are read. */
static int read_as(uint8_t record_state, uint8_t kind, uint16_t status, const char *payload)
{
    once__record_t record = make(ONCE_STATE_FAILED, ONCE__PAYLOAD_NOTE, 0, payload);
    once__record_t read;
    size_t len;
    uint8_t *bytes = encode(&record, &len);
    int rc;

    bytes[2] = record_state;
    bytes[69] = kind;
    once__put16(bytes + 70, status);
    rc = once__record_decode(&read, bytes, len);
    free(bytes);
    return rc;
}

static void a_state_has_only_its_own_payloads(void **state)
{
    static const struct {
        uint8_t state, kind;
        uint16_t status;
        const char *payload;
        int expected;
    } cases[] = {
        {ONCE_STATE_PENDING, ONCE__PAYLOAD_NONE, 0, "", ONCE_OK},
        {ONCE_STATE_PENDING, ONCE__PAYLOAD_NONE, 200, "", ONCE_E_CORRUPT},
        {ONCE_STATE_PENDING, ONCE__PAYLOAD_NONE, 0, "x", ONCE_E_CORRUPT},
        {ONCE_STATE_PENDING, ONCE__PAYLOAD_RESPONSE, 200, "x", ONCE_E_CORRUPT},
        {ONCE_STATE_PENDING, ONCE__PAYLOAD_NOTE, 500, "x", ONCE_E_CORRUPT},
        {ONCE_STATE_COMPLETED, ONCE__PAYLOAD_RESPONSE, 200, "x", ONCE_OK},
        {ONCE_STATE_COMPLETED, ONCE__PAYLOAD_RESPONSE, 0, "x", ONCE_E_CORRUPT},
        {ONCE_STATE_COMPLETED, ONCE__PAYLOAD_RESPONSE, 99, "x", ONCE_E_CORRUPT},
        {ONCE_STATE_COMPLETED, ONCE__PAYLOAD_RESPONSE, 1000, "x", ONCE_E_CORRUPT},
        {ONCE_STATE_COMPLETED, ONCE__PAYLOAD_NONE, 0, "", ONCE_E_CORRUPT},
        {ONCE_STATE_COMPLETED, ONCE__PAYLOAD_NOTE, 200, "x", ONCE_E_CORRUPT},
        {ONCE_STATE_FAILED, ONCE__PAYLOAD_NONE, 0, "", ONCE_OK},
        {ONCE_STATE_FAILED, ONCE__PAYLOAD_NOTE, 0, "x", ONCE_OK},
        {ONCE_STATE_FAILED, ONCE__PAYLOAD_NOTE, 100, "", ONCE_OK},
        {ONCE_STATE_FAILED, ONCE__PAYLOAD_RESPONSE, 500, "x", ONCE_E_CORRUPT},
        {ONCE_STATE_UNKNOWN, ONCE__PAYLOAD_NONE, 0, "", ONCE_OK},
        {ONCE_STATE_UNKNOWN, ONCE__PAYLOAD_NOTE, 500, "x", ONCE_OK},
        {ONCE_STATE_UNKNOWN, ONCE__PAYLOAD_RESPONSE, 500, "x", ONCE_E_CORRUPT},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(read_as(cases[i].state, cases[i].kind, cases[i].status, cases[i].payload),
                         cases[i].expected);
    }
}

static void unknown_by_lease_is_only_of_unknown(void **state)
{
    static const uint8_t states[] = {ONCE_STATE_PENDING, ONCE_STATE_FAILED, ONCE_STATE_UNKNOWN};

    for (size_t i = 0; i < sizeof(states); i++) {
        once__record_t record = make(states[i], ONCE__PAYLOAD_NONE, 0, "");
        once__record_t read;
        size_t len;
        uint8_t *bytes = encode(&record, &len);

        bytes[4] |= ONCE__BY_LEASE;
        assert_int_equal(once__record_decode(&read, bytes, len),
                         states[i] == ONCE_STATE_UNKNOWN ? ONCE_OK : ONCE_E_CORRUPT);
        free(bytes);
    }
}

static void payloads_have_limits(void **state)
{
    static uint8_t zeros[ONCE__PAYLOAD_MAX + 1];
    once__record_t note = make(ONCE_STATE_FAILED, ONCE__PAYLOAD_NOTE, 500, "");
    once__record_t response = make(ONCE_STATE_COMPLETED, ONCE__PAYLOAD_RESPONSE, 200, "");
    once__record_t *records[] = {&note, &response};
    const size_t limits[] = {ONCE_NOTE_MAX, ONCE__PAYLOAD_MAX};

    for (int i = 0; i < 2; i++) {
        once__record_t read;
        size_t len;
        uint8_t *bytes;

        records[i]->payload.data = zeros;
        records[i]->payload.len = limits[i];
        bytes = encode(records[i], &len);
        assert_int_equal(once__record_decode(&read, bytes, len), ONCE_OK);
        bytes = realloc(bytes, len + 1);
        bytes[len] = 0;
        once__put32(bytes + 128, (uint32_t)limits[i] + 1);
        assert_int_equal(once__record_decode(&read, bytes, len + 1), ONCE_E_CORRUPT);
        free(bytes);
    }
}

static void a_newer_record_shows_its_envelope(void **state)
{
    once__record_t record = make(ONCE_STATE_COMPLETED, ONCE__PAYLOAD_RESPONSE, 200, "x");
    once__record_t expected = {.head = record.head}, read;
    size_t len;
    uint8_t *bytes = encode(&record, &len);

    bytes[1] = expected.head.schema = ONCE__SCHEMA + 1;
    bytes[4] = expected.head.flags = 0xff; /* flags and reserved bytes may mean something by then */
    bytes[6] = 0xff;
    assert_int_equal(once__record_decode(&read, bytes, ONCE__ENVELOPE_SIZE), ONCE_E_NEWER);
    assert_same_envelope(&expected.head, &read.head);
    assert_int_equal(read.head.ttl_ms, 0);
    assert_int_equal(read.head.fingerprint.secret, 0);
    assert_null(read.key);
    assert_null(read.payload.data);
    assert_int_equal(once__record_decode(&read, bytes, len), ONCE_E_NEWER);
    assert_int_equal(once__record_decode(&read, bytes, ONCE__ENVELOPE_SIZE - 1), ONCE_E_CORRUPT);
    free(bytes);
}

static void a_newer_record_keeps_the_frozen_values(void **state)
{
    static const struct {
        size_t at;
        uint8_t value;
    } wrong[] = {{0, 0}, {2, 0}, {2, 5}, {3, 3}};
    once__record_t record = make(ONCE_STATE_COMPLETED, ONCE__PAYLOAD_RESPONSE, 200, "x");
    once__record_t read;
    size_t len;
    uint8_t *bytes = encode(&record, &len);

    bytes[1] = 255;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        uint8_t right = bytes[wrong[i].at];
        bytes[wrong[i].at] = wrong[i].value;
        assert_int_equal(once__record_decode(&read, bytes, len), ONCE_E_CORRUPT);
        bytes[wrong[i].at] = right;
    }
    once__put32(bytes + 8, 0);
    assert_int_equal(once__record_decode(&read, bytes, len), ONCE_E_CORRUPT);
    free(bytes);
}

static void a_newer_record_is_busy_and_never_run(void **state)
{
    for (int of = ONCE_STATE_PENDING; of <= ONCE_STATE_UNKNOWN; of++) {
        once__record_t record = make(ONCE_STATE_PENDING, ONCE__PAYLOAD_NONE, 0, "");
        once__event_t claim = {.kind = ONCE__CLAIM, .fingerprint_count = 1};
        once__record_t read;
        once__step_t step;
        size_t len;
        uint8_t *bytes = encode(&record, &len);

        bytes[1] = ONCE__SCHEMA + 1;
        bytes[2] = (uint8_t)of;
        assert_int_equal(once__record_decode(&read, bytes, len), ONCE_E_NEWER);
        claim.fingerprints[0] = record.head.fingerprint;
        once__step(&once__rules, &read.head, &claim, UINT64_MAX, &step);
        assert_int_equal(step.outcome, ONCE_OUTCOME_BUSY);
        assert_false(step.changed);
        free(bytes);
    }
}

/* Whatever one changed byte makes of a record: if it is one, it is written as it was read. */
static void what_is_read_is_written_back(void **state)
{
    once__record_t record = make(ONCE_STATE_FAILED, ONCE__PAYLOAD_NOTE, 500, "a note");
    size_t len, again_len;
    uint8_t *bytes = encode(&record, &len);

    for (size_t at = 0; at < len; at++) {
        for (int change = 1; change < 256; change++) {
            once__record_t read;
            bytes[at] ^= (uint8_t)change;
            if (once__record_decode(&read, bytes, len) == ONCE_OK) {
                uint8_t *again = encode(&read, &again_len);
                assert_int_equal(again_len, len);
                assert_memory_equal(again, bytes, len);
                free(again);
            }
            bytes[at] ^= (uint8_t)change;
        }
    }
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read_back),
        cmocka_unit_test(nothing_stays_of_what_was_there_before),
        cmocka_unit_test(the_bytes_are_as_documented),
        cmocka_unit_test(a_pending_record_is_small),
        cmocka_unit_test(the_id_is_the_stores_business),
        cmocka_unit_test(a_lease_beyond_its_field_is_the_greatest),
        cmocka_unit_test(any_other_length_is_corrupt),
        cmocka_unit_test(a_value_outside_its_table_is_corrupt),
        cmocka_unit_test(a_record_without_a_key_is_corrupt),
        cmocka_unit_test(a_state_has_only_its_own_payloads),
        cmocka_unit_test(unknown_by_lease_is_only_of_unknown),
        cmocka_unit_test(payloads_have_limits),
        cmocka_unit_test(a_newer_record_shows_its_envelope),
        cmocka_unit_test(a_newer_record_keeps_the_frozen_values),
        cmocka_unit_test(a_newer_record_is_busy_and_never_run),
        cmocka_unit_test(what_is_read_is_written_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
