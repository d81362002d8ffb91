/*
 * Records as Redis keeps them: every form comes back, golden bytes stay what they are, an earlier version sees a newer schema,
 * other bytes are refused; and what goes into a dictionary.
 */
#include "support/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "core/codec.h"
#include "store/redis/pack.h"

static once__redis_dictionaries_t dictionaries;

static once__record_t completed(void)
{
    once__record_t record = {
        .head = {.schema = ONCE__SCHEMA,
                 .state = ONCE_STATE_COMPLETED,
                 .recover = ONCE_RECOVER_HOLD,
                 .claim = {.epoch = 3, .id = "claim id......."},
                 .lease_ms = 30000,
                 .lease_until = 1800000030000,
                 .changed = 1800000001000,
                 .expires = 1800086401000,
                 .ttl_ms = 86400000,
                 .created = 1800000000000,
                 .fingerprint = {.secret = 7, .mode = 2, .mac = "a hash of what was asked for..."}},
        .scope_hash = "of the scope...",
        .key = "8e03978e-40d5-43e8-bc93-6894a57f9324",
        .key_len = 36,
        .about = {"\1\6host:1POST /payments", 22},
        .payload = {ONCE__PAYLOAD_RESPONSE, 201, (const uint8_t *)"\0\0\0\0\0\4\0\0\0\0\0\0\0",
                    13}};

    return record;
}

static int is_same(once_slice_t a, once_slice_t b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

static void assert_same(const once__record_t *a, const once__record_t *b)
{
    assert_memory_equal(&a->head.claim, &b->head.claim, sizeof(a->head.claim));
    assert_int_equal(a->head.state, b->head.state);
    assert_int_equal(a->head.lease_until, b->head.lease_until);
    assert_int_equal(a->head.expires, b->head.expires);
    assert_int_equal(a->head.ttl_ms, b->head.ttl_ms);
    assert_int_equal(a->head.fingerprint.secret, b->head.fingerprint.secret);
    assert_int_equal(a->head.fingerprint.mode, b->head.fingerprint.mode);
    assert_memory_equal(a->head.fingerprint.mac, b->head.fingerprint.mac, 32);
    assert_memory_equal(a->scope_hash, b->scope_hash, ONCE_SCOPE_HASH_SIZE);
    assert_true(is_same(once__slice(a->key, a->key_len), once__slice(b->key, b->key_len)));
    assert_true(is_same(a->about, b->about));
    assert_true(is_same(a->cause, b->cause));
    assert_int_equal(a->payload.kind, b->payload.kind);
    assert_int_equal(a->payload.status, b->payload.status);
    assert_true(is_same(once__slice(a->payload.data, a->payload.len),
                        once__slice(b->payload.data, b->payload.len)));
}

static size_t pack(uint8_t *out, size_t room, const once__record_t *record)
{
    assert_true(once__redis_pack_bound(record) <= room);
    return once__redis_pack(out, record, &dictionaries);
}

static void assert_comes_back(const once__record_t *record)
{
    uint8_t bytes[4096];
    size_t len = pack(bytes, sizeof(bytes), record);
    once__record_t read = {.id = {1, 2, 3}};

    assert_int_equal(once__redis_unpack(&read, &dictionaries, bytes, len), ONCE_OK);
    assert_same(&read, record);
    assert_int_equal(read.id[2], 3);
    for (size_t cut = 0; cut < len - record->payload.len; cut++) {
        uint8_t *exact = malloc(cut + 1); /* so that a sanitizer sees what reads behind it */
        memcpy(exact + 1, bytes, cut);
        assert_int_equal(once__redis_unpack(&read, &dictionaries, exact + 1, cut), ONCE_E_CORRUPT);
        free(exact);
    }
}

static void every_form_comes_back(void **state)
{
    once__record_t record = completed();

    assert_comes_back(&record);
    record.head.ttl_ms++; /* not the time to its end */
    assert_comes_back(&record);
    record.head.ttl_ms = ONCE__REDIS_MS_MAX;
    assert_comes_back(&record);
    record.key = "8E03978E-40D5-43E8-BC93-6894A57F9324"; /* not as once__uuid_text writes it */
    assert_comes_back(&record);
    record.key = "k";
    record.key_len = 1;
    record.about.len = 0;
    assert_comes_back(&record);
    record.head.state = ONCE_STATE_UNKNOWN;
    record.payload = (once__payload_t){ONCE__PAYLOAD_NOTE, 503, (const uint8_t *)"note", 4};
    record.cause = once__slice_of("settled by the operator");
    assert_comes_back(&record);
    record.head.state = ONCE_STATE_PENDING;
    record.payload = (once__payload_t){ONCE__PAYLOAD_NONE, 0, NULL, 0};
    assert_comes_back(&record);
}

/* record.lua leaves the key of a record of schema 1 as it is, in 36 bytes. */
static void a_uuid_may_be_there_as_text(void **state)
{
    once__record_t record = completed(), read = {.key = NULL};
    uint8_t bytes[4096], text[4096];
    size_t len = pack(bytes, sizeof(bytes), &record), at = ONCE__REDIS_AT_TTL;

    memcpy(text, bytes, at);
    text[at] = (uint8_t)record.key_len;
    memcpy(text + at + 1, record.key, record.key_len);
    memcpy(text + at + 1 + record.key_len, bytes + at + 17, len - at - 17);
    len += record.key_len - 16;
    assert_int_equal(once__redis_unpack(&read, &dictionaries, text, len), ONCE_OK);
    assert_same(&read, &record);
}

static void the_bytes_stay_what_they_are(void **state)
{
    static const char golden[] = "4f02020200" /* magic, schema, completed, hold, flags */
                                 "12c900"     /* form, status */
                                 "03000000307500"
                                 "00636c61696d2069642e2e2e2e2e2e2e00"
                                 "30c55c18a3010000e8535c18a3010000e8af821da301000000505c18a3010000"
                                 "070000006f66207468652073636f70652e2e2e00"
                                 "612068617368206f662077686174207761732061736b656420666f722e2e2e00"
                                 "008e03978e40d543e8bc936894a57f9324"
                                 "1600000106686f73743a31504f5354202f7061796d656e7473"
                                 "00000000000400000000000000";
    once__record_t record = completed();
    uint8_t bytes[4096];
    char text[2 * 512 + 1];
    size_t len = pack(bytes, sizeof(bytes), &record);

    once__hex(text, bytes, len);
    assert_string_equal(text, golden);
}

static void an_earlier_version_sees_a_newer_schema(void **state)
{
    once__record_t record = completed(), read;
    once__head_t head;
    uint8_t bytes[4096];
    size_t len = pack(bytes, sizeof(bytes), &record);

    assert_true(ONCE__REDIS_SCHEMA > 1); /* the highest that versions before 0.2 know */
    if (ONCE__SCHEMA < ONCE__REDIS_SCHEMA) {
        assert_int_equal(once__envelope_decode(&head, bytes), ONCE_E_NEWER);
        assert_int_equal(once__record_decode(&read, bytes, len), ONCE_E_NEWER);
        assert_memory_equal(&head.claim, &record.head.claim, sizeof(head.claim));
    }
    bytes[ONCE__AT_SCHEMA] = ONCE__REDIS_SCHEMA + 1;
    assert_int_equal(once__redis_unpack(&read, &dictionaries, bytes, len), ONCE_E_NEWER);
    assert_int_equal(read.head.state, ONCE_STATE_COMPLETED);
}

static void schema_1_is_read(void **state)
{
    once__record_t record = completed(), read = {.key = NULL};
    uint8_t bytes[512];

    record.about.len = 0;
    assert_true(once__record_size(&record) <= sizeof(bytes));
    once__record_encode(&record, bytes);
    assert_int_equal(once__redis_unpack(&read, &dictionaries, bytes, once__record_size(&record)),
                     ONCE_OK);
    assert_same(&read, &record);
    assert_int_equal(once__redis_unpack_head(&read, bytes, ONCE__REDIS_HEAD_ROOM), ONCE_OK);
    assert_int_equal(read.head.ttl_ms, record.head.ttl_ms);
}

/* ------------------------------------------------------------------------------------------------------- dictionaries */

/* A response with names of its own: `secret` is in one of them only, `shared` in as many as a person has who asks a lot. */
static size_t response(char out[512], unsigned i)
{
    static const char head[] = {0, 0, 0, 0, 0, 1, 1, 0, 0};
    const char *name = i == 5 ? "Secret-Canary-Text" : i % 20 == 3 ? "Rare-Customer-Name" : "n";
    size_t len = sizeof(head);

    memcpy(out, head, len);
    return len + (size_t)snprintf(out + len, 512 - len,
                                  "{\"id\":\"ch_%08x\",\"object\":\"charge\",\"name\":\"%s%u\"}",
                                  i * 2654435761u, name, i * 40503u);
}

static void fill(void)
{
    char text[512];

    for (unsigned i = 0; !once__pieces_enough(&dictionaries.samples); i++) {
        size_t len = response(text, i);
        (void)once__redis_dictionaries_offer(&dictionaries, text, len);
    }
}

static int holds(const uint8_t *bytes, size_t len, const char *text)
{
    for (size_t i = 0; i + strlen(text) <= len; i++) {
        if (memcmp(bytes + i, text, strlen(text)) == 0) {
            return 1;
        }
    }
    return 0;
}

static void a_dictionary_has_what_many_have(void **state)
{
    uint8_t made[ONCE__REDIS_DICTIONARY_MAX];
    size_t len;

    fill();
    len = once__pieces_take(&dictionaries.samples, made, sizeof(made));
    assert_true(len > 0);
    assert_true(holds(made, len, "\",\"object\":\"charge\",\"name\":\""));
    assert_false(holds(made, len, "ecret-Ca"));
    assert_false(holds(made, len, "are-Cust")); /* seven of 128 */
}

static void records_are_shorter_with_it_and_unread_without(void **state)
{
    static once__redis_dictionaries_t other;
    once__record_t record = completed(), read = {.key = NULL};
    uint8_t list[ONCE__REDIS_ENTRY_SIZE + ONCE__REDIS_DICTIONARY_MAX], bytes[4096];
    char text[512];
    size_t plain, packed, len;

    record.payload.data = (const uint8_t *)text;
    record.payload.len = response(text, 77777);
    plain = pack(bytes, sizeof(bytes), &record);
    fill();
    once__redis_dictionaries_judge(&dictionaries);
    assert_int_equal(dictionaries.samples.count, 0);
    assert_true(dictionaries.candidate_len > 0);
    len = dictionaries.candidate_len;
    memcpy(list, dictionaries.candidate, len);
    assert_int_equal(once__redis_dictionaries_read(&dictionaries, list, len), 0);
    assert_int_equal(dictionaries.candidate_len, 0);
    assert_int_equal(dictionaries.current, 1);
    /* Neither a list that is cut nor one with another byte counts as holding it. */
    assert_int_equal(once__redis_dictionaries_read(&dictionaries, list, len - 1), -1);
    assert_null(once__redis_dictionary_held(&dictionaries));
    list[len - 1] ^= 1;
    assert_int_equal(once__redis_dictionaries_read(&dictionaries, list, len), -1);
    assert_null(once__redis_dictionary_held(&dictionaries));
    list[len - 1] ^= 1;
    assert_int_equal(once__redis_dictionaries_read(&dictionaries, list, len), 0);
    assert_ptr_equal(once__redis_dictionary_held(&dictionaries), &dictionaries.known[0]);

    assert_comes_back(&record);
    packed = pack(bytes, sizeof(bytes), &record);
    assert_true(packed + 30 < plain);
    assert_int_equal(once__redis_unpack(&read, &other, bytes, packed), ONCE_E_NOT_FOUND);
    assert_int_equal(other.missing, dictionaries.known[0].id);

    /* A store that lost it is given it again; one that has it is not. */
    assert_int_equal(once__redis_dictionaries_read(&dictionaries, list, 0), 0);
    assert_int_equal(dictionaries.candidate_len, len);
    assert_memory_equal(dictionaries.candidate, list, len);
    assert_int_equal(pack(bytes, sizeof(bytes), &record), plain);
    assert_int_equal(once__redis_dictionaries_read(&dictionaries, list, len), 0);
    assert_int_equal(dictionaries.candidate_len, 0);
    assert_int_equal(pack(bytes, sizeof(bytes), &record), packed);
    /* What it does well needs no other. */
    fill();
    once__redis_dictionaries_judge(&dictionaries);
    assert_int_equal(dictionaries.candidate_len, 0);
}

/* Retired, it is read and not written with; gone, it is not put back. */
static void a_retired_dictionary_is_only_read(void **state)
{
    once__record_t record = completed();
    uint8_t list[2 * (ONCE__REDIS_ENTRY_SIZE + ONCE__REDIS_DICTIONARY_MAX)], bytes[4096];
    char text[512];
    size_t plain, packed, len;

    record.payload.data = (const uint8_t *)text;
    record.payload.len = response(text, 77777);
    plain = pack(bytes, sizeof(bytes), &record);
    fill();
    once__redis_dictionaries_judge(&dictionaries);
    len = dictionaries.candidate_len;
    memcpy(list, dictionaries.candidate, len);
    assert_int_equal(once__redis_dictionaries_read(&dictionaries, list, len), 0);
    packed = pack(bytes, sizeof(bytes), &record);
    assert_true(packed < plain);
    list[1] |= 0x80;
    assert_int_equal(once__redis_dictionaries_read(&dictionaries, list, len), 0);
    assert_null(once__redis_dictionary_held(&dictionaries));
    assert_int_equal(dictionaries.candidate_len, 0);
    assert_int_equal(once__redis_unpack(&record, &dictionaries, bytes, packed), ONCE_OK);
    assert_true(dictionaries.met_retired);
    fill();
    once__redis_dictionaries_judge(&dictionaries);
    assert_int_equal(dictionaries.candidate_len, 0); /* the same again */
    memcpy(list, "\0\x80", 2);
    assert_int_equal(once__redis_dictionaries_read(&dictionaries, list, ONCE__REDIS_ENTRY_SIZE), 0);
    assert_int_equal(dictionaries.count, 0);
    assert_int_equal(dictionaries.candidate_len, 0);
    assert_int_equal(once__redis_unpack(&record, &dictionaries, bytes, packed), ONCE_E_NOT_FOUND);
}

static int fresh(void **state)
{
    once__redis_dictionaries_free(&dictionaries);
    memset(&dictionaries, 0, sizeof(dictionaries));
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(every_form_comes_back, fresh),
        cmocka_unit_test_setup(a_uuid_may_be_there_as_text, fresh),
        cmocka_unit_test_setup(the_bytes_stay_what_they_are, fresh),
        cmocka_unit_test_setup(an_earlier_version_sees_a_newer_schema, fresh),
        cmocka_unit_test_setup(schema_1_is_read, fresh),
        cmocka_unit_test_setup(a_dictionary_has_what_many_have, fresh),
        cmocka_unit_test_setup(a_retired_dictionary_is_only_read, fresh),
        cmocka_unit_test_setup_teardown(records_are_shorter_with_it_and_unread_without, fresh,
                                        fresh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
