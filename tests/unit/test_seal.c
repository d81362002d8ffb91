#include "support/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "core/response.h"
#include "core/policy.h"

#define H1 "0101010101010101010101010101010101010101010101010101010101010101"
#define H2 "abABabABabABabABabABabABabABabABabABabABabABabABabABabABabABabAB"

static const uint8_t id_a[ONCE_ID_SIZE] = {1}, id_b[ONCE_ID_SIZE] = {2};

static int parse(once__seal_keys_t *keys, const char *text, once_error_t *err)
{
    return once__seal_keys_parse(keys, text, strlen(text), err);
}

/* A small response packed with the keys of the text; free the payload's data. */
static once__payload_t pack(const char *keys_text, const uint8_t *id)
{
    static const once_header_t header = {{"content-type", 12}, {"text/plain", 10}};
    once_response_t response = ONCE_RESPONSE_INIT;
    once__seal_keys_t keys;
    once__packing_t packing = {.seal = &keys, .compress_from = UINT64_MAX};
    once__payload_t payload = {.kind = ONCE__PAYLOAD_RESPONSE, .status = 201};
    uint8_t *data;

    assert_int_equal(parse(&keys, keys_text, NULL), ONCE_OK);
    response.status = 201;
    response.headers = &header;
    response.header_count = 1;
    response.body = once__slice("the balance is 42", 17);
    memset(packing.nonce, 0x4e, sizeof(packing.nonce));
    assert_int_equal(once__response_pack(&response, id, &packing, &data, &payload.len), ONCE_OK);
    payload.data = data;
    return payload;
}

static int open_with(const char *keys_text, const once__payload_t *payload, const uint8_t *id)
{
    once__seal_keys_t keys = {.count = 0};
    once__unpacked_t unpacked;
    int rc;

    if (keys_text != NULL) {
        assert_int_equal(parse(&keys, keys_text, NULL), ONCE_OK);
    }
    rc = once__response_unpack(payload, id, &keys, NULL, &unpacked);
    if (rc == ONCE_OK) {
        assert_int_equal(unpacked.response.status, 201);
        assert_int_equal(unpacked.response.body.len, 17);
        assert_memory_equal(unpacked.response.body.data, "the balance is 42", 17);
    }
    once__unpacked_free(&unpacked);
    return rc;
}

static void drop(once__payload_t *payload)
{
    uint8_t *data;
    memcpy(&data, &payload->data, sizeof(data));
    free(data);
}

static void a_sealed_response_opens_with_its_key(void **state)
{
    once__payload_t payload = pack("1 " H1, id_a);

    assert_int_equal(open_with("1 " H1, &payload, id_a), ONCE_OK);
    assert_null(memmem(payload.data, payload.len, "balance", 7));
    assert_null(memmem(payload.data, payload.len, "content-type", 12));
    drop(&payload);
}

static void keys_rotate(void **state)
{
    once__payload_t old = pack("1 " H1 "\n", id_a);
    once__payload_t new = pack("1 " H1 "\n2 " H2 "\n", id_a);

    assert_int_equal(once__get32(old.data + 1), 1);
    assert_int_equal(once__get32(new.data + 1), 2); /* the last line seals */
    assert_int_equal(open_with("1 " H1 "\n2 " H2 "\n", &old, id_a), ONCE_OK);
    assert_int_equal(open_with("1 " H1 "\n2 " H2 "\n", &new, id_a), ONCE_OK);
    assert_int_equal(open_with("2 " H2, &new, id_a), ONCE_OK);
    drop(&old);
    drop(&new);
}

static void without_its_key_it_stays_closed(void **state)
{
    once__payload_t payload = pack("1 " H1, id_a);

    assert_int_equal(open_with("2 " H2, &payload, id_a), ONCE_E_SEALED);
    assert_int_equal(open_with("1 " H2, &payload, id_a), ONCE_E_SEALED); /* same id, other key */
    assert_int_equal(open_with(NULL, &payload, id_a), ONCE_E_SEALED);
    drop(&payload);
}

static void it_opens_only_in_its_own_record_and_status(void **state)
{
    once__payload_t payload = pack("1 " H1, id_a);

    assert_int_equal(open_with("1 " H1, &payload, id_b), ONCE_E_SEALED);
    for (int bit = 0; bit < 8 * ONCE_ID_SIZE; bit++) {
        uint8_t id[ONCE_ID_SIZE];
        memcpy(id, id_a, sizeof(id));
        id[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_equal(open_with("1 " H1, &payload, id), ONCE_E_SEALED);
    }
    for (uint16_t status = 100; status <= 999; status++) {
        int is_answer = status >= ONCE__ANSWER_MIN && status <= ONCE__ANSWER_MAX;
        payload.status = status;
        assert_int_equal(open_with("1 " H1, &payload, id_a), status == 201 ? ONCE_OK
                                                             : is_answer   ? ONCE_E_SEALED
                                                                           : ONCE_E_CORRUPT);
    }
    drop(&payload);
}

static void any_changed_bit_is_seen(void **state)
{
    once__payload_t payload = pack("1 " H1, id_a);
    uint8_t *copy = malloc(payload.len);

    memcpy(copy, payload.data, payload.len);
    drop(&payload);
    payload.data = copy;
    for (size_t bit = 0; bit < 8 * payload.len; bit++) {
        int rc;
        copy[bit / 8] ^= (uint8_t)(1 << bit % 8);
        rc = open_with("1 " H1, &payload, id_a);
        if (bit / 8 >= 9) {
            assert_int_equal(rc, ONCE_E_SEALED);
        } else {
            assert_true(rc == ONCE_E_SEALED || rc == ONCE_E_CORRUPT || rc == ONCE_E_NEWER);
        }
        copy[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    assert_int_equal(open_with("1 " H1, &payload, id_a), ONCE_OK);
    free(copy);
}

static void any_cut_is_seen(void **state)
{
    once__payload_t payload = pack("1 " H1, id_a);

    for (payload.len--; payload.len > 0; payload.len--) {
        int rc = open_with("1 " H1, &payload, id_a);
        assert_true(rc == ONCE_E_SEALED || rc == ONCE_E_CORRUPT);
    }
    drop(&payload);
}

/* The key of a record is its own, so the same nonce in another record gives away nothing. */
static void records_do_not_share_a_key_stream(void **state)
{
    once__payload_t a = pack("1 " H1, id_a), b = pack("1 " H1, id_b);

    assert_int_equal(a.len, b.len);
    assert_memory_equal(a.data, b.data, 9 + ONCE__SEAL_NONCE_SIZE);
    assert_memory_not_equal(a.data + 9 + ONCE__SEAL_NONCE_SIZE, b.data + 9 + ONCE__SEAL_NONCE_SIZE,
                            16);
    drop(&a);
    drop(&b);
}

/* The same bytes, computed by another implementation. */
static void the_bytes_are_as_documented(void **state)
{
    once__payload_t payload = pack("258 " H2, id_a);
    char hex[256];

    assert_true(2 * payload.len < sizeof(hex));
    once__hex(hex, payload.data, payload.len);
    assert_string_equal(hex, "0202010000330000004e4e4e4e4e4e4e4e4e4e4e4e116fbc10c33847eed255c0a9"
                             "6317d5c1631b38dfed0daade76b5060d1d185657ec5d33cf4f9ad6330bb0f2a4c7"
                             "246d8ea4c0ba2b1b9bf717b8b42041d1f04041143fb7");
    drop(&payload);
}

static void key_files_are_read(void **state)
{
    once__seal_keys_t keys;

    assert_int_equal(parse(&keys, "# keys\n\n7 " H1 "\n#\n4294967295 " H2, NULL), ONCE_OK);
    assert_int_equal(keys.count, 2);
    assert_int_equal(keys.keys[0].id, 7);
    assert_int_equal(keys.keys[1].id, UINT32_MAX);
    assert_ptr_equal(once__seal_keys_find(&keys, 7), &keys.keys[0]);
    assert_null(once__seal_keys_find(&keys, 8));
    assert_null(once__seal_keys_find(NULL, 7));
}

static void bad_key_files_name_the_line(void **state)
{
    static const struct {
        const char *text;
        const char *says;
    } cases[] = {
        {"", "line 1: no key"},
        {"\n# nothing\n", "no key"},
        {"0 " H1, "line 1: it must begin with an id"},
        {"x " H1, "line 1: it must begin with an id"},
        {" 1 " H1, "line 1: it must begin with an id"},
        {H1, "line 1: it must begin with an id"},
        {"4294967296 " H1, "line 1: it must begin with an id"},
        {"\n1", "line 2: one space and 64 hex digits"},
        {"1 " H1 "\n\n2 " H1 "0\n", "line 3: one space and 64 hex digits"},
        {"1  " H1, "line 1: one space"},
        {"1 " H1 " ", "line 1: one space"},
        {"1 " H1 "\r\n", "line 1: one space"},
        {"1\t" H1, "line 1: it must begin with an id"},
        {"1 g" H1, "line 1: one space"},
        {"1 " H1 "\n2 " H2 "\n1 " H2, "line 3: this id is on an earlier line"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        static const once__seal_keys_t zero;
        once__seal_keys_t keys;
        once_error_t err = {0};
        assert_int_equal(parse(&keys, cases[i].text, &err), ONCE_E_SECRET);
        assert_non_null(strstr(err.text, cases[i].says));
        assert_null(strstr(err.text, "0101"));
        assert_memory_equal(&keys, &zero, sizeof(zero));
    }
}

static void there_is_room_for_sixteen_keys(void **state)
{
    char text[17 * 80];
    once__seal_keys_t keys;
    once_error_t err;
    size_t len = 0;

    for (int i = 1; i <= ONCE__SEAL_KEYS_MAX; i++) {
        len += (size_t)snprintf(text + len, sizeof(text) - len, "%d " H1 "\n", i);
    }
    assert_int_equal(once__seal_keys_parse(&keys, text, len, &err), ONCE_OK);
    assert_int_equal(keys.count, ONCE__SEAL_KEYS_MAX);
    len += (size_t)snprintf(text + len, sizeof(text) - len, "17 " H1 "\n");
    assert_int_equal(once__seal_keys_parse(&keys, text, len, &err), ONCE_E_SECRET);
    assert_non_null(strstr(err.text, "line 17: more than 16"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sealed_response_opens_with_its_key),
        cmocka_unit_test(keys_rotate),
        cmocka_unit_test(without_its_key_it_stays_closed),
        cmocka_unit_test(it_opens_only_in_its_own_record_and_status),
        cmocka_unit_test(any_changed_bit_is_seen),
        cmocka_unit_test(any_cut_is_seen),
        cmocka_unit_test(records_do_not_share_a_key_stream),
        cmocka_unit_test(the_bytes_are_as_documented),
        cmocka_unit_test(key_files_are_read),
        cmocka_unit_test(bad_key_files_name_the_line),
        cmocka_unit_test(there_is_room_for_sixteen_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
