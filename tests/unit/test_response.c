#include "support/testing.h"

#include <stdlib.h>
#include <string.h>

#include <zstd.h>

#include "base/bytes.h"
#include "core/codec.h"
#include "core/response.h"

#define NEVER UINT64_MAX

static const uint8_t id[ONCE_ID_SIZE] = {7};

/* Packs and gives a payload in memory of exactly its size; free with drop. */
static int pack(const once_response_t *response, uint64_t compress_from,
                const once__seal_keys_t *keys, once__zstd_t *zstd, once__payload_t *payload)
{
    once__packing_t packing = {.seal = keys, .zstd = zstd, .compress_from = compress_from};
    uint8_t *data;
    int rc = once__response_pack(response, id, &packing, &data, &payload->len);

    payload->kind = ONCE__PAYLOAD_RESPONSE;
    payload->status = (uint16_t)response->status;
    payload->data = data;
    return rc;
}

static void drop(once__payload_t *payload)
{
    uint8_t *data;
    memcpy(&data, &payload->data, sizeof(data));
    free(data);
}

static void assert_slice(once_slice_t a, once_slice_t b)
{
    assert_int_equal(a.len, b.len);
    if (a.len > 0) {
        assert_memory_equal(a.data, b.data, a.len);
    }
}

static void assert_same(const once_response_t *a, const once_response_t *b)
{
    assert_int_equal(b->size, sizeof(*b));
    assert_int_equal(a->status, b->status);
    assert_int_equal(!!a->body_omitted, !!b->body_omitted);
    assert_int_equal(a->header_count, b->header_count);
    for (size_t i = 0; i < a->header_count; i++) {
        assert_slice(a->headers[i].name, b->headers[i].name);
        assert_slice(a->headers[i].value, b->headers[i].value);
    }
    assert_slice(a->body, b->body);
    assert_int_equal(b->retain_ms, 0);
}

static int unpack(const uint8_t *data, size_t len)
{
    once__payload_t payload = {
        .kind = ONCE__PAYLOAD_RESPONSE, .status = 200, .data = data, .len = len};
    once__unpacked_t out;
    int rc = once__response_unpack(&payload, id, NULL, NULL, &out);

    if (rc != ONCE_OK) {
        static const once__unpacked_t zero;
        assert_memory_equal(&out, &zero, sizeof(zero));
    }
    once__unpacked_free(&out);
    return rc;
}

static char *fill_json(size_t len)
{
    static const char item[] = "{\"id\":\"itm_000\",\"quantity\":3,\"price\":\"19.90\"},";
    char *text = malloc(len);

    for (size_t i = 0; i < len; i++) {
        text[i] = item[i % (sizeof(item) - 1)];
    }
    return text;
}

static void fill_noise(uint8_t *out, size_t len)
{
    uint32_t x = 2463534242;

    for (size_t i = 0; i < len; i++) {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        out[i] = (uint8_t)x;
    }
}

static void responses_come_back_as_they_were(void **state)
{
    static const once_header_t headers[] = {
        {{"Content-Type", 12}, {"application/json", 16}},
        {{"x-empty", 7}, {NULL, 0}},
        {{"x-empty", 7}, {"again", 5}},
        {{"x\xff", 2}, {"bytes\t\x7f", 7}},
    };
    char *json = fill_json(100000);
    once__seal_keys_t keys = {.count = 1};
    once__zstd_t zstd = {NULL, NULL};

    keys.keys[0].id = 9;
    once__hmac_key_set(&keys.keys[0].key, (const uint8_t *)"key", 3);
    for (unsigned i = 0; i < 64; i++) {
        once_response_t response = ONCE_RESPONSE_INIT;
        once__payload_t payload;
        once__unpacked_t out;

        response.status = i & 1 ? 200 : 599;
        response.headers = headers;
        response.header_count = i & 2 ? 4 : 0;
        response.body_omitted = (i & 4) != 0;
        response.body = once__slice(i & 4 ? NULL : json, i & 4 ? 0 : i & 32 ? 100000 : 50);
        assert_int_equal(pack(&response, i & 8 ? 0 : NEVER, i & 16 ? &keys : NULL,
                              i & 32 ? &zstd : NULL, &payload),
                         ONCE_OK);
        assert_int_equal((payload.data[0] & 2) != 0, (i & 16) != 0);
        assert_int_equal((payload.data[0] & 4) != 0, (i & 4) != 0);
        assert_int_equal(
            once__response_unpack(&payload, id, i & 16 ? &keys : NULL, i & 32 ? &zstd : NULL, &out),
            ONCE_OK);
        /* Nothing is copied that stands there as it is; what was unpacked stands on its own. */
        int in_place = (payload.data[0] & 3) == 0;
        assert_int_equal(out.in_place, in_place);
        if (in_place && out.response.body.len > 0) {
            assert_ptr_equal((const uint8_t *)out.response.body.data + out.response.body.len,
                             payload.data + payload.len);
        }
        if (!in_place) {
            drop(&payload);
        }
        assert_same(&response, &out.response);
        once__unpacked_free(&out);
        if (in_place) {
            drop(&payload);
        }
    }
    once__zstd_end(&zstd);
    free(json);
}

static void the_bytes_are_as_documented(void **state)
{
    static const once_header_t headers[] = {{{"a", 1}, {"bc", 2}}, {{"de", 2}, {"", 0}}};
    static const uint8_t expected[] = "\0"
                                      "\0\0\0\0"
                                      "\x1d\0\0\0"
                                      "\x02\0\0\0"
                                      "\x01\0\0\0"
                                      "a"
                                      "\x02\0\0\0"
                                      "bc"
                                      "\x02\0\0\0"
                                      "de"
                                      "\0\0\0\0"
                                      "body";
    once_response_t response = ONCE_RESPONSE_INIT;
    once__payload_t payload;

    response.headers = headers;
    response.header_count = 2;
    response.body = once__slice("body", 4);
    assert_int_equal(pack(&response, NEVER, NULL, NULL, &payload), ONCE_OK);
    assert_int_equal(payload.len, sizeof(expected) - 1);
    assert_memory_equal(payload.data, expected, payload.len);
    drop(&payload);
}

static void compression_begins_at_its_threshold(void **state)
{
    char *json = fill_json(4096);
    once_response_t response = ONCE_RESPONSE_INIT;
    once__payload_t payload;

    response.body = once__slice(json, 1024 - 4); /* the header count is a part of it */
    assert_int_equal(pack(&response, 1024, NULL, NULL, &payload), ONCE_OK);
    assert_int_equal(payload.data[0], 1);
    assert_true(payload.len < 300);
    drop(&payload);
    response.body.len--;
    assert_int_equal(pack(&response, 1024, NULL, NULL, &payload), ONCE_OK);
    assert_int_equal(payload.data[0], 0);
    assert_int_equal(payload.len, 9 + 1023);
    drop(&payload);
    free(json);
}

static void what_does_not_get_smaller_is_stored_plain(void **state)
{
    uint8_t noise[5000];
    once_response_t response = ONCE_RESPONSE_INIT;
    once__payload_t payload;

    fill_noise(noise, sizeof(noise));
    response.body = once__slice(noise, sizeof(noise));
    assert_int_equal(pack(&response, 0, NULL, NULL, &payload), ONCE_OK);
    assert_int_equal(payload.data[0], 0);
    assert_int_equal(payload.len, 9 + 4 + sizeof(noise));
    drop(&payload);
    response.body.len = 0;
    assert_int_equal(pack(&response, 0, NULL, NULL, &payload), ONCE_OK);
    assert_int_equal(payload.len, 9 + 4);
    drop(&payload);
}

static int pack_only(const once_response_t *response)
{
    once__payload_t payload;
    int rc = pack(response, NEVER, NULL, NULL, &payload);

    assert_int_equal(payload.data == NULL, rc != ONCE_OK);
    drop(&payload);
    return rc;
}

/* Statuses that a client could not be given: after an interim one it would take the body for the response. */
static const int no_answers[] = {-200, 0, 99, 100, 101, 199, 600, 999, 1000};

static void wrong_responses_are_refused(void **state)
{
    once_response_t response = ONCE_RESPONSE_INIT;

    for (size_t i = 0; i < sizeof(no_answers) / sizeof(no_answers[0]); i++) {
        response.status = no_answers[i];
        assert_int_equal(pack_only(&response), ONCE_E_INVALID);
    }
    response.status = 200;
    response.body_omitted = 1;
    assert_int_equal(pack_only(&response), ONCE_OK);
    response.body = once__slice("x", 1);
    assert_int_equal(pack_only(&response), ONCE_E_INVALID);
}

/* A gateway writes headers out as they are: what ends a line makes other headers of them. */
static void headers_that_end_early_are_refused(void **state)
{
    static const char breaks[] = {'\r', '\n', '\0', ':', ' ', '\t', '\x7f'};
    char name[] = "x-name", value[] = "value";
    once_header_t headers[] = {{{"x", 1}, {NULL, 0}}, {{name, 6}, {value, 5}}};
    once_response_t response = ONCE_RESPONSE_INIT;

    response.headers = headers;
    response.header_count = 2;
    for (size_t i = 0; i < sizeof(breaks); i++) {
        for (size_t at = 0; at < 11; at++) {
            char *place = at < 6 ? &name[at] : &value[at - 6];
            char kept = *place;
            *place = breaks[i];
            assert_int_equal(pack_only(&response), at < 6 || i < 3 ? ONCE_E_HEADER : ONCE_OK);
            *place = kept;
        }
    }
    assert_int_equal(pack_only(&response), ONCE_OK);
    headers[1].name.len = 0;
    assert_int_equal(pack_only(&response), ONCE_E_HEADER);
}

static void limits_hold_to_the_byte(void **state)
{
    static uint8_t zeros[ONCE_BODY_STORE_MAX + 1];
    static char text[ONCE_HEADERS_MAX];
    static once_header_t headers[ONCE_HEADER_COUNT_MAX + 1];
    once_response_t response = ONCE_RESPONSE_INIT;
    once__payload_t payload;
    once__unpacked_t out;

    memset(text, 'x', sizeof(text));
    for (size_t i = 0; i <= ONCE_HEADER_COUNT_MAX; i++) {
        headers[i].name = once__slice(text, 1);
    }
    headers[0].value = once__slice(text, ONCE_HEADERS_MAX - ONCE_HEADER_COUNT_MAX);
    response.headers = headers;
    response.header_count = ONCE_HEADER_COUNT_MAX;
    response.body = once__slice(zeros, ONCE_BODY_STORE_MAX);
    assert_int_equal(pack(&response, NEVER, NULL, NULL, &payload), ONCE_OK);
    assert_true(payload.len <= ONCE__PAYLOAD_MAX);
    assert_int_equal(once__response_unpack(&payload, id, NULL, NULL, &out), ONCE_OK);
    assert_same(&response, &out.response);
    once__unpacked_free(&out);
    drop(&payload);

    response.body.len++;
    assert_int_equal(pack_only(&response), ONCE_E_TOO_BIG);
    response.body.len--;
    headers[0].value.len++;
    assert_int_equal(pack_only(&response), ONCE_E_TOO_BIG);
    headers[0].value.len = SIZE_MAX;
    assert_int_equal(pack_only(&response), ONCE_E_TOO_BIG);
    headers[0].value.len = 0;
    headers[1].name.len = SIZE_MAX;
    assert_int_equal(pack_only(&response), ONCE_E_TOO_BIG);
    headers[1].name.len = 1;
    response.header_count++;
    assert_int_equal(pack_only(&response), ONCE_E_TOO_BIG);
}

static void damaged_payloads_are_corrupt(void **state)
{
    static const struct {
        const char *bytes;
        size_t len;
        int expected;
    } cases[] = {
        {"\0\0\0\0\0\x04\0\0\0\0\0\0\0", 13, ONCE_OK},
        {"", 0, ONCE_E_CORRUPT},
        {"\0\0\0\0\0\x04\0\0", 8, ONCE_E_CORRUPT},                    /* fields are cut */
        {"\x08\0\0\0\0\x04\0\0\0\0\0\0\0", 13, ONCE_E_NEWER},         /* unknown flag */
        {"\x80\0\0\0\0\x04\0\0\0\0\0\0\0", 13, ONCE_E_NEWER},         /* unknown flag */
        {"\0\x01\0\0\0\x04\0\0\0\0\0\0\0", 13, ONCE_E_CORRUPT},       /* key, not sealed */
        {"\x02\0\0\0\0\x04\0\0\0\0\0\0\0", 13, ONCE_E_CORRUPT},       /* sealed, no key */
        {"\x02\x01\0\0\0\x04\0\0\0\0\0\0\0", 13, ONCE_E_CORRUPT},     /* sealed, no room for it */
        {"\0\0\0\0\0\x03\0\0\0\0\0\0", 12, ONCE_E_CORRUPT},           /* no header count */
        {"\0\0\0\0\0\x05\0\0\0\0\0\0\0", 13, ONCE_E_CORRUPT},         /* shorter than it says */
        {"\0\0\0\0\0\x04\0\0\0\0\0\0\0x", 14, ONCE_E_CORRUPT},        /* longer than it says */
        {"\x04\0\0\0\0\x05\0\0\0\0\0\0\0x", 14, ONCE_E_CORRUPT},      /* omitted, and yet there */
        {"\0\0\0\0\0\x04\0\0\0\x01\0\0\0", 13, ONCE_E_CORRUPT},       /* no such header */
        {"\0\0\0\0\0\x04\0\0\0\xff\xff\xff\xff", 13, ONCE_E_CORRUPT}, /* nor this many */
        {"\0\0\0\0\0\x0d\0\0\0\x01\0\0\0\x01\0\0\0n\0\0\0\0", 22, ONCE_OK},
        {"\0\0\0\0\0\x0d\0\0\0\x01\0\0\0\x01\0\0\0n\x01\0\0\0", 22, ONCE_E_CORRUPT},
        {"\0\0\0\0\0\x0d\0\0\0\x01\0\0\0\x06\0\0\0n\0\0\0\0", 22, ONCE_E_CORRUPT},
        {"\0\0\0\0\0\x0d\0\0\0\x01\0\0\0\xff\xff\xff\xffn\0\0\0\0", 22, ONCE_E_CORRUPT},
        {"\0\0\0\0\0\x0d\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0", 22, ONCE_E_CORRUPT}, /* no name */
        {"\x01\0\0\0\0\x04\0\0\0\0\0\0\0", 13, ONCE_E_CORRUPT}, /* not a zstd frame */
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint8_t *exact = malloc(cases[i].len + 1);
        memcpy(exact + 1, cases[i].bytes, cases[i].len);
        assert_int_equal(unpack(exact + 1, cases[i].len), cases[i].expected);
        free(exact);
    }
}

/* As many headers as the limit says, and one more than there is room for. */
static void too_many_headers_are_corrupt(void **state)
{
    for (uint32_t count = ONCE_HEADER_COUNT_MAX; count <= ONCE_HEADER_COUNT_MAX + 1; count++) {
        uint32_t plain_len = 4 + 9 * count;
        uint8_t *data = calloc(1, 9 + plain_len);

        once__put32(data + 5, plain_len);
        once__put32(data + 9, count);
        for (uint32_t i = 0; i < count; i++) {
            data[13 + 9 * i] = 1;
            data[17 + 9 * i] = 'n';
        }
        assert_int_equal(unpack(data, 9 + plain_len),
                         count == ONCE_HEADER_COUNT_MAX ? ONCE_OK : ONCE_E_CORRUPT);
        free(data);
    }
}

static void a_payload_must_be_a_response(void **state)
{
    once__payload_t payload = {.kind = ONCE__PAYLOAD_RESPONSE,
                               .status = 200,
                               .data = (const uint8_t *)"\0\0\0\0\0\x04\0\0\0\0\0\0\0",
                               .len = 13};
    once__unpacked_t out;

    for (size_t i = 0; i < sizeof(no_answers) / sizeof(no_answers[0]); i++) {
        payload.status = (uint16_t)no_answers[i];
        assert_int_equal(once__response_unpack(&payload, id, NULL, NULL, &out), ONCE_E_CORRUPT);
    }
    payload.status = 200;
    payload.kind = ONCE__PAYLOAD_NOTE;
    assert_int_equal(once__response_unpack(&payload, id, NULL, NULL, &out), ONCE_E_CORRUPT);
}

/* Write access to the store must not be enough to make headers that were never recorded. */
static void headers_that_end_early_are_not_read(void **state)
{
    static const char breaks[] = {'\r', '\n', '\0', ':', ' '};
    once_header_t header = {{"x-name", 6}, {"value", 5}};
    once_response_t response = ONCE_RESPONSE_INIT;

    response.headers = &header;
    response.header_count = 1;
    for (size_t i = 0; i < sizeof(breaks); i++) {
        for (size_t at = 0; at < 11; at++) {
            once__payload_t payload;
            uint8_t bytes[64];
            assert_int_equal(pack(&response, NEVER, NULL, NULL, &payload), ONCE_OK);
            assert_true(payload.len < sizeof(bytes));
            memcpy(bytes, payload.data, payload.len);
            bytes[at < 6 ? 17 + at : 21 + at] = (uint8_t)breaks[i]; /* a length between the two */
            assert_int_equal(unpack(bytes, payload.len),
                             at < 6 || i < 3 ? ONCE_E_CORRUPT : ONCE_OK);
            drop(&payload);
        }
    }
}

/* A handle with keys reads what is sealed, and what is not only when it was opened so. */
static void what_is_not_sealed_is_refused_where_there_are_keys(void **state)
{
    once__seal_keys_t keys = {.count = 1};
    once_response_t response = ONCE_RESPONSE_INIT;
    once__payload_t payload;
    once__unpacked_t out;

    keys.keys[0].id = 9;
    once__hmac_key_set(&keys.keys[0].key, (const uint8_t *)"key", 3);
    assert_int_equal(pack(&response, NEVER, NULL, NULL, &payload), ONCE_OK);
    assert_int_equal(once__response_unpack(&payload, id, &keys, NULL, &out), ONCE_E_UNSEALED);
    keys.plain_too = 1;
    assert_int_equal(once__response_unpack(&payload, id, &keys, NULL, &out), ONCE_OK);
    once__unpacked_free(&out);
    keys.count = 0;
    keys.plain_too = 0;
    assert_int_equal(once__response_unpack(&payload, id, &keys, NULL, &out), ONCE_OK);
    once__unpacked_free(&out);
    drop(&payload);
}

/* Puts `frame` behind fields that say `plain_len`. */
static int unpack_frame(const uint8_t *frame, size_t len, uint32_t plain_len)
{
    uint8_t *data = malloc(9 + len);
    int rc;

    memset(data, 0, 9);
    data[0] = 1;
    once__put32(data + 5, plain_len);
    memcpy(data + 9, frame, len);
    rc = unpack(data, 9 + len);
    free(data);
    return rc;
}

static void a_bomb_does_not_go_off(void **state)
{
    static uint8_t frame[1 << 20];
    size_t limit = ONCE_BODY_STORE_MAX + 4, huge = 64u << 20;
    uint8_t *zeros = calloc(1, huge);
    size_t len;

    assert_non_null(zeros);
    len = ZSTD_compress(frame, sizeof(frame), zeros, limit, 1);
    assert_int_equal(unpack_frame(frame, len, (uint32_t)limit), ONCE_OK);
    assert_int_equal(unpack_frame(frame, len, (uint32_t)limit - 1), ONCE_E_CORRUPT);
    assert_int_equal(unpack_frame(frame, len, (uint32_t)limit + 1), ONCE_E_CORRUPT);
    assert_int_equal(unpack_frame(frame, len, 4), ONCE_E_CORRUPT);
    assert_int_equal(unpack_frame(frame, len, UINT32_MAX), ONCE_E_CORRUPT);
    len = ZSTD_compress(frame, sizeof(frame), zeros, huge, 1);
    assert_false(ZSTD_isError(len));
    assert_int_equal(unpack_frame(frame, len, (uint32_t)huge), ONCE_E_CORRUPT);
    assert_int_equal(unpack_frame(frame, len, 100), ONCE_E_CORRUPT);
    free(zeros);
}

static void exactly_one_frame_is_read(void **state)
{
    static const uint8_t skippable[] = {0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0};
    uint8_t plain[104] = {0}, frame[300];
    size_t one = ZSTD_compress(frame, sizeof(frame), plain, sizeof(plain), 1);
    size_t two = ZSTD_compress(frame + one, sizeof(frame) - one, plain, sizeof(plain), 1);

    assert_int_equal(unpack_frame(frame, one, sizeof(plain)), ONCE_OK);
    assert_int_equal(unpack_frame(frame, one + two, sizeof(plain)), ONCE_E_CORRUPT);
    assert_int_equal(unpack_frame(frame, one + two, 2 * sizeof(plain)), ONCE_E_CORRUPT);
    assert_int_equal(unpack_frame(frame, one - 1, sizeof(plain)), ONCE_E_CORRUPT);
    memcpy(frame + one, skippable, sizeof(skippable));
    assert_int_equal(unpack_frame(frame, one + sizeof(skippable), sizeof(plain)), ONCE_E_CORRUPT);
    /* All this is known before memory is set aside. */
    assert_true(once__zstd_holds(frame, one, sizeof(plain)));
    assert_false(once__zstd_holds(frame, one, sizeof(plain) + 1));
    assert_false(once__zstd_holds(frame, one + sizeof(skippable), sizeof(plain)));
    assert_false(once__zstd_holds(skippable, sizeof(skippable), 0));
    assert_false(once__zstd_holds(frame, 3, 0));
}

/* A frame may say one size and hold another. */
static void a_frame_that_lies_is_corrupt(void **state)
{
    uint8_t plain[104] = {0}, frame[300];
    size_t len = ZSTD_compress(frame, sizeof(frame), plain, sizeof(plain), 1);

    assert_int_equal(frame[4], 0x20); /* one segment, its size in one byte: */
    assert_int_equal(frame[5], sizeof(plain));
    frame[5]++;
    assert_int_equal(unpack_frame(frame, len, sizeof(plain) + 1), ONCE_E_CORRUPT);
    frame[5] -= 2;
    assert_int_equal(unpack_frame(frame, len, sizeof(plain) - 1), ONCE_E_CORRUPT);
}

static void contexts_can_be_ended_and_used_again(void **state)
{
    char *json = fill_json(4096);
    uint8_t small[4096], back[4096];
    once__zstd_t zstd = {NULL, NULL};

    for (int i = 0; i < 3; i++) {
        size_t len = once__zstd_pack(&zstd, small, sizeof(small), (const uint8_t *)json, 4096);
        assert_true(len > 0 && len < 1000);
        assert_int_equal(once__zstd_unpack(&zstd, back, 4096, small, len), ONCE_OK);
        assert_memory_equal(back, json, 4096);
        once__zstd_end(&zstd);
        assert_null(zstd.compress);
    }
    assert_int_equal(once__zstd_pack(&zstd, small, 20, (const uint8_t *)json, 4096), 0);
    once__zstd_end(&zstd);
    free(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(responses_come_back_as_they_were),
        cmocka_unit_test(the_bytes_are_as_documented),
        cmocka_unit_test(compression_begins_at_its_threshold),
        cmocka_unit_test(what_does_not_get_smaller_is_stored_plain),
        cmocka_unit_test(wrong_responses_are_refused),
        cmocka_unit_test(headers_that_end_early_are_refused),
        cmocka_unit_test(limits_hold_to_the_byte),
        cmocka_unit_test(damaged_payloads_are_corrupt),
        cmocka_unit_test(too_many_headers_are_corrupt),
        cmocka_unit_test(a_payload_must_be_a_response),
        cmocka_unit_test(headers_that_end_early_are_not_read),
        cmocka_unit_test(what_is_not_sealed_is_refused_where_there_are_keys),
        cmocka_unit_test(a_bomb_does_not_go_off),
        cmocka_unit_test(exactly_one_frame_is_read),
        cmocka_unit_test(a_frame_that_lies_is_corrupt),
        cmocka_unit_test(contexts_can_be_ended_and_used_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
