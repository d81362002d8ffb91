#include "support/testing.h"

#include <string.h>

#include "base/bytes.h"

static void numbers_are_little_endian(void **state)
{
    uint8_t bytes[8];

    once__put16(bytes, 0x0102);
    assert_memory_equal(bytes, "\x02\x01", 2);
    assert_int_equal(once__get16(bytes), 0x0102);
    once__put32(bytes, 0xf1020304);
    assert_memory_equal(bytes, "\x04\x03\x02\xf1", 4);
    assert_int_equal(once__get32(bytes), 0xf1020304);
    once__put64(bytes, 0xf102030405060708);
    assert_memory_equal(bytes, "\x08\x07\x06\x05\x04\x03\x02\xf1", 8);
    assert_int_equal(once__get64(bytes), 0xf102030405060708);
}

static void equal_looks_at_every_byte(void **state)
{
    uint8_t a[32] = {0}, b[32] = {0};

    assert_true(once__equal(a, b, sizeof(a)));
    for (size_t i = 0; i < 8 * sizeof(a); i++) {
        b[i / 8] ^= (uint8_t)(1 << i % 8);
        assert_false(once__equal(a, b, sizeof(a)));
        for (size_t len = 0; len <= sizeof(a); len++) {
            assert_int_equal(once__equal(a, b, len), len <= i / 8); /* and at no byte more */
        }
        b[i / 8] ^= (uint8_t)(1 << i % 8);
    }
}

static void hex_and_back(void **state)
{
    const uint8_t bytes[] = {0x00, 0x01, 0x7f, 0x80, 0xab, 0xff};
    char text[13];
    uint8_t back[6];

    once__hex(text, bytes, sizeof(bytes));
    assert_string_equal(text, "00017f80abff");
    assert_int_equal(once__unhex(back, 6, text, 12), 0);
    assert_memory_equal(back, bytes, 6);
    assert_int_equal(once__unhex(back, 6, "00017F80ABFF", 12), 0);
    assert_memory_equal(back, bytes, 6);
}

static void base64_is_padded(void **state)
{
    static const char *const cases[][2] = {
        {"", ""},        {"f", "Zg=="},        {"fo", "Zm8="},
        {"foo", "Zm9v"}, {"foob", "Zm9vYg=="}, {"\xff\xfe", "//4="},
    };
    char text[16];

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        memset(text, 'x', sizeof(text));
        once__base64(text, (const uint8_t *)cases[i][0], strlen(cases[i][0]));
        assert_string_equal(text, cases[i][1]);
    }
}

static void hex_is_strict(void **state)
{
    uint8_t back[2];

    assert_int_equal(once__unhex(back, 2, "012", 3), -1);
    assert_int_equal(once__unhex(back, 2, "01234", 5), -1);
    assert_int_equal(once__unhex(back, 2, "01g3", 4), -1);
    assert_int_equal(once__unhex(back, 2, "0 12", 4), -1);
    assert_int_equal(once__unhex(back, 2, "0x12", 4), -1);
    assert_int_equal(once__unhex(back, 2, "012/", 4), -1);
    for (int c = -128; c < 128; c++) {
        assert_int_equal(once__hex_digit((char)c) >= 0,
                         c > 0 && strchr("0123456789abcdefABCDEF", c) != NULL);
    }
    assert_int_equal(once__unhex(back, 2, "012:", 4), -1);
    assert_int_equal(once__unhex(back, 2, "", 0), -1);
}

/* RFC 4648, section 10, without padding. */
static void base64url_known_answers(void **state)
{
    static const char *const expected[] = {"",       "Zg",      "Zm8",     "Zm9v",
                                           "Zm9vYg", "Zm9vYmE", "Zm9vYmFy"};

    for (size_t len = 0; len <= 6; len++) {
        char text[ONCE__BASE64_SIZE(6)];
        uint8_t back[6];
        once__base64url(text, (const uint8_t *)"foobar", len);
        assert_string_equal(text, expected[len]);
        assert_int_equal(strlen(text) + 1, ONCE__BASE64_SIZE(len));
        assert_int_equal(once__unbase64url(back, len, text, strlen(text)), 0);
        assert_memory_equal(back, "foobar", len);
    }
}

static void base32_known_answers(void **state)
{
    static const char *const expected[] = {"",        "my",       "mzxq",      "mzxw6",
                                           "mzxw6yq", "mzxw6ytb", "mzxw6ytboi"};

    for (size_t len = 0; len <= 6; len++) {
        char text[ONCE__BASE32_SIZE(6)];
        once__base32(text, (const uint8_t *)"foobar", len);
        assert_string_equal(text, expected[len]);
        assert_int_equal(strlen(text) + 1, ONCE__BASE32_SIZE(len));
    }
}

static void base64url_uses_its_own_alphabet(void **state)
{
    const uint8_t bytes[] = {0xfb, 0xef, 0xff};
    char text[ONCE__BASE64_SIZE(3)];
    uint8_t back[3];

    once__base64url(text, bytes, 3);
    assert_string_equal(text, "--__");
    assert_int_equal(once__unbase64url(back, 3, "--__", 4), 0);
    assert_memory_equal(back, bytes, 3);
    assert_int_equal(once__unbase64url(back, 3, "++//", 4), -1);
}

/* One value, one text: else a claim could be written in several ways. */
static void base64url_is_strict(void **state)
{
    uint8_t back[4];

    assert_int_equal(once__unbase64url(back, 1, "Zg", 2), 0);
    assert_int_equal(once__unbase64url(back, 1, "Zh", 2), -1); /* spare bits */
    assert_int_equal(once__unbase64url(back, 1, "Zg==", 4), -1);
    assert_int_equal(once__unbase64url(back, 1, "Z", 1), -1);
    assert_int_equal(once__unbase64url(back, 2, "Zg", 2), -1);
    assert_int_equal(once__unbase64url(back, 3, "Zm 9", 4), -1);
    assert_int_equal(once__unbase64url(back, 3, "Zm\n9", 4), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_little_endian),
        cmocka_unit_test(equal_looks_at_every_byte),
        cmocka_unit_test(hex_and_back),
        cmocka_unit_test(hex_is_strict),
        cmocka_unit_test(base64_is_padded),
        cmocka_unit_test(base64url_known_answers),
        cmocka_unit_test(base32_known_answers),
        cmocka_unit_test(base64url_uses_its_own_alphabet),
        cmocka_unit_test(base64url_is_strict),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
