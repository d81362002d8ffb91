/*
 * Payloads as differences to another one: what is packed comes back, what is not alike is not packed, and bytes that
 * are no packed payload are refused.
 */
#include "support/testing.h"

#include <stdlib.h>
#include <string.h>

#include "store/local/pack.h"

static uint64_t state = 1;

static uint32_t roll(uint32_t sides)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % sides;
}

static void fill(uint8_t *out, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        out[i] = (uint8_t)roll(256);
    }
}

/* Replaces, takes out and puts in a few bytes. The new length. */
static size_t change(uint8_t *data, size_t len, unsigned times)
{
    while (times-- > 0) {
        size_t at = roll((uint32_t)len - 40), count = 1 + roll(20);
        switch (roll(3)) {
        case 0:
            fill(data + at, count);
            break;
        case 1:
            memmove(data + at, data + at + count, len - at - count);
            len -= count;
            break;
        default:
            memmove(data + at + count, data + at, len - at);
            fill(data + at, count);
            len += count;
            break;
        }
    }
    return len;
}

static void test_round_trip(void **unused)
{
    static uint8_t base[9000], data[20000], packed[20000], back[20000];
    once__pattern_t pattern = {0};
    unsigned worth = 0;

    for (unsigned trial = 0; trial < 2000; trial++) {
        size_t len = 100 + roll(trial % 10 == 0 ? 8000 : 900), size, changed;
        fill(base, len);
        assert_int_equal(once__pattern_set(&pattern, base, len), 0);
        memcpy(data, base, len);
        changed = change(data, len, roll(8));
        memset(packed, 0xee, sizeof(packed));
        size = once__pack(&pattern, data, changed, packed);
        assert_true(size < changed && packed[changed] == 0xee);
        if (size == 0) {
            continue;
        }
        worth++;
        assert_int_equal(once__packed_length(packed, size), changed);
        assert_int_equal(once__unpack(base, len, packed, size, back), 0);
        assert_memory_equal(back, data, changed);
    }
    assert_true(worth > 1500);
    once__pattern_free(&pattern);
}

/* One service's answers: all but the values. */
static void test_similar_json(void **unused)
{
    static const char first[] = "{\"id\":\"ch_9f1c22aa07\",\"amount\":1999,\"currency\":\"eur\","
                                "\"status\":\"succeeded\",\"customer\":\"cus_77120\"}";
    static const char other[] = "{\"id\":\"ch_00b7d2e51c\",\"amount\":50,\"currency\":\"eur\","
                                "\"status\":\"succeeded\",\"customer\":\"cus_90333\"}";
    uint8_t packed[sizeof(other)];
    char back[sizeof(other)];
    once__pattern_t pattern = {0};
    size_t size;

    assert_int_equal(once__pattern_set(&pattern, (const uint8_t *)first, sizeof(first)), 0);
    assert_true(once__pattern_likeness(&pattern, (const uint8_t *)other, sizeof(other)) >= 7);
    size = once__pack(&pattern, (const uint8_t *)other, sizeof(other), packed);
    assert_true(size > 0 && size < 36);
    assert_int_equal(
        once__unpack((const uint8_t *)first, sizeof(first), packed, size, (uint8_t *)back), 0);
    assert_string_equal(back, other);
    once__pattern_free(&pattern);
}

static void test_what_is_not_alike(void **unused)
{
    static uint8_t base[2000], data[2000], packed[2000];
    once__pattern_t pattern = {0};

    fill(base, sizeof(base));
    fill(data, sizeof(data));
    assert_int_equal(once__pattern_set(&pattern, base, sizeof(base)), 0);
    assert_true(once__pattern_likeness(&pattern, data, sizeof(data)) <= 1);
    assert_int_equal(once__pack(&pattern, data, sizeof(data), packed), 0);
    once__pattern_free(&pattern);
}

static void test_sizes(void **unused)
{
    static uint8_t data[ONCE__PACK_MAX + 1], packed[ONCE__PACK_MAX];
    once__pattern_t pattern = {0};
    size_t size;

    assert_int_equal(once__pattern_set(&pattern, data, ONCE__PACK_MIN - 1), -1);
    assert_int_equal(once__pattern_set(&pattern, data, ONCE__PACK_MAX + 1), -1);
    assert_int_equal(once__pattern_set(&pattern, data, ONCE__PACK_MAX), 0);
    size = once__pack(&pattern, data, ONCE__PACK_MAX, packed);
    assert_true(size > 0 && size < 16);
    assert_int_equal(once__packed_length(packed, size), ONCE__PACK_MAX);
    packed[0]++; /* longer than anything may be */
    assert_int_equal(once__packed_length(packed, size), 0);
    assert_int_equal(once__packed_length(packed, 0), 0);
    once__pattern_free(&pattern);
}

/* Each in memory of exactly its size, so that a sanitizer sees every step too far. */
static int unpack_exactly(const uint8_t *base, size_t base_len, const uint8_t *packed, size_t size)
{
    uint32_t len = once__packed_length(packed, size);
    uint8_t *copy = malloc(size + 1), *out = malloc(len + 1u);
    int code;

    assert_true(copy != NULL && out != NULL);
    memcpy(copy + 1, packed, size);
    code = once__unpack(base, base_len, copy + 1, size, out + 1);
    free(copy);
    free(out);
    return code;
}

static void test_no_packed_bytes(void **unused)
{
    static const struct {
        const char *bytes;
        size_t len;
    } broken[] = {
        {"", 0},                                 /* no length */
        {"\x80", 1},                             /* half a length */
        {"\x05", 1},                             /* no steps */
        {"\x05\x50xxxx", 6},                     /* a literal is missing */
        {"\x05\x60xxxxxx", 8},                   /* more than the length */
        {"\x05\x40xxxx", 6},                     /* less than the length */
        {"\x05\x05", 2},                         /* no place to copy from */
        {"\x05\x05\x01", 3},                     /* from before the template */
        {"\x05\x05\xc8\x01", 4},                 /* from behind it */
        {"\x05\x05\x80\x80\x80\x80\x01", 7},     /* a number that does not end */
        {"\x05\x05\x00\x01\x00", 5},             /* something behind the end */
        {"\xff\xff\x03\x0f\xff\xff\x7f\x00", 8}, /* a long one */
    };
    uint8_t *base = calloc(1, 100);

    assert_non_null(base);
    for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); i++) {
        assert_int_equal(unpack_exactly(base, 100, (const uint8_t *)broken[i].bytes, broken[i].len),
                         -1);
    }
    assert_int_equal(unpack_exactly(base, 100, (const uint8_t *)"\x05\x05\x00", 3), 0);
    assert_int_equal(unpack_exactly(base, 4, (const uint8_t *)"\x05\x05\x00", 3), -1);
    for (unsigned trial = 0; trial < 20000; trial++) {
        uint8_t bytes[24];
        fill(bytes, sizeof(bytes));
        bytes[0] &= 0x7f;
        (void)unpack_exactly(base, 100, bytes, 1 + roll(sizeof(bytes)));
    }
    free(base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),        cmocka_unit_test(test_similar_json),
        cmocka_unit_test(test_what_is_not_alike), cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_no_packed_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
