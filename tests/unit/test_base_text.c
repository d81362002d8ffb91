#include "support/testing.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"

static void utf8_is_the_shortest_form(void **state)
{
    static const struct {
        const char *text;
        size_t len;
    } cases[] = {
        {"a", 1},
        {"\x7f", 1},
        {"\xc2\x80", 2},
        {"\xdf\xbf", 2},
        {"\xe0\xa0\x80", 3},
        {"\xed\x9f\xbf", 3},
        {"\xee\x80\x80", 3},
        {"\xef\xbf\xbf", 3},
        {"\xf0\x90\x80\x80", 4},
        {"\xf4\x8f\xbf\xbf", 4},
        {"\x80", 0},             /* begins with a continuation */
        {"\xc0\x80", 0},         /* too long for U+0000 */
        {"\xc1\xbf", 0},         /* too long for U+007F */
        {"\xe0\x9f\xbf", 0},     /* too long for U+07FF */
        {"\xed\xa0\x80", 0},     /* a surrogate */
        {"\xf0\x8f\xbf\xbf", 0}, /* too long for U+FFFF */
        {"\xf4\x90\x80\x80", 0}, /* U+110000 */
        {"\xf5\x80\x80\x80", 0},
        {"\xff", 0},
        {"\xc3(", 0},
        {"\xe2\x82(", 0},
        {"\xf0\x9f\x98(", 0},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(once__utf8_len(cases[i].text, strlen(cases[i].text)), cases[i].len);
        for (size_t left = 0; left < cases[i].len; left++) {
            assert_int_equal(once__utf8_len(cases[i].text, left), 0); /* cut off */
        }
    }
}

static void percent_encoding_is_strict(void **state)
{
    static const char *const good[][2] = {
        {"", ""},         {"abc", "abc"},   {"%41%62c", "Abc"},     {"a%2Fb", "a/b"},
        {"%2f%2F", "//"}, {"%25 +", "% +"}, {"%c3%A4", "\xc3\xa4"},
    };
    static const char *const bad[] = {"%",   "%4", "a%4",  "%4g", "%g4",
                                      "%00", "a%", "%%41", "% 1", "%-1"};
    char out[16];

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_int_equal(once__percent_decode(out, sizeof(out), good[i][0], strlen(good[i][0])), 0);
        assert_string_equal(out, good[i][1]);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(once__percent_decode(out, sizeof(out), bad[i], strlen(bad[i])), -1);
    }
    assert_int_equal(once__percent_decode(out, sizeof(out), "%41", 2), -1); /* ends within */
    assert_int_equal(once__percent_decode(out, 4, "a%62c", 5), 0);
    assert_int_equal(once__percent_decode(out, 3, "a%62c", 5), -1);
    assert_int_equal(once__percent_decode(out, 0, "", 0), -1);
    strcpy(out, "x%41y");
    assert_int_equal(once__percent_decode(out, sizeof(out), out, strlen(out)), 0);
    assert_string_equal(out, "xAy");
}

static void only_unreserved_bytes_stay_as_they_are(void **state)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~";

    for (int c = 0; c < 256; c++) {
        char form[4] = "", expected[4], decoded[4];
        size_t len = once__percent_encode(form, (char)c);
        if (c != 0 && strchr(plain, c) != NULL) {
            snprintf(expected, sizeof(expected), "%c", c);
        } else {
            snprintf(expected, sizeof(expected), "%%%02X", (unsigned)c);
        }
        form[len] = '\0';
        assert_string_equal(form, expected);
        if (c != 0) {
            assert_int_equal(once__percent_decode(decoded, sizeof(decoded), form, len), 0);
            assert_int_equal((unsigned char)decoded[0], c);
        }
    }
}

static void tokens_are_those_of_http(void **state)
{
    static const char others[] = "!#$%&'*+-.^_`|~";

    for (int c = -128; c < 128; c++) {
        char byte = (char)c;
        int expected = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       (c != 0 && strchr(others, c) != NULL);
        assert_int_equal(once__is_token(&byte, 1), expected);
    }
    assert_false(once__is_token("", 0));
    assert_true(once__is_token("X-Id", 4));
    assert_false(once__is_token("X-Id:", 5));
    assert_false(once__is_token("a\0b", 3));
}

static void values_stay_on_their_line(void **state)
{
    assert_true(once__is_field_value("", 0));
    assert_true(once__is_field_value("a\tb \xff", 5));
    for (int c = 0; c < 0x20; c++) {
        char byte = (char)c;
        assert_int_equal(once__is_field_value(&byte, 1), c == '\t');
    }
    assert_false(once__is_field_value("a\x7f", 2));
}

static void json_is_escaped(void **state)
{
    static const struct {
        char byte;
        const char *text;
    } cases[] = {
        {'a', "a"},        {' ', " "},        {'/', "/"},        {'"', "\\\""},     {'\\', "\\\\"},
        {'\b', "\\b"},     {'\t', "\\t"},     {'\n', "\\n"},     {'\f', "\\f"},     {'\r', "\\r"},
        {'\0', "\\u0000"}, {'\v', "\\u000b"}, {0x1f, "\\u001f"}, {0x7f, "\\u007f"}, {'~', "~"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char out[6];
        size_t len = once__json_escape(out, cases[i].byte);
        assert_int_equal(len, strlen(cases[i].text));
        assert_memory_equal(out, cases[i].text, len);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(utf8_is_the_shortest_form),
        cmocka_unit_test(percent_encoding_is_strict),
        cmocka_unit_test(only_unreserved_bytes_stay_as_they_are),
        cmocka_unit_test(tokens_are_those_of_http),
        cmocka_unit_test(values_stay_on_their_line),
        cmocka_unit_test(json_is_escaped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
