#include "support/testing.h"

#include <string.h>

#include <once/key.h>

static once_slice_t slice(const char *text)
{
    once_slice_t value = {text, strlen(text)};
    return value;
}

static int parse(const char *text, unsigned flags, once_key_t *key, once_error_t *err)
{
    once_slice_t value = slice(text);

    return once_key_parse(&value, 1, flags, key, err);
}

static void accepts(const char *text, const char *expected)
{
    once_key_t key;
    once_error_t err;

    assert_int_equal(parse(text, 0, &key, &err), ONCE_OK);
    assert_string_equal(key.text, expected);
    assert_int_equal(key.len, strlen(expected));
}

/* Refused, and the error says `why`. */
static void refuses(const char *text, const char *why)
{
    once_key_t key;
    once_error_t err = {0, ""};

    memset(&key, 'x', sizeof(key));
    assert_int_equal(parse(text, 0, &key, &err), ONCE_E_KEY);
    assert_int_equal(err.code, ONCE_E_KEY);
    if (strstr(err.text, why) == NULL) {
        fail_msg("%s: expected '%s' in '%s'", text, why, err.text);
    }
    assert_int_equal(key.len, 0);
    assert_string_equal(key.text, "");
    assert_int_equal(parse(text, 0, &key, NULL), ONCE_E_KEY);
}

static void raw_and_quoted_are_the_same_key(void **state)
{
    accepts("abc", "abc");
    accepts("\"abc\"", "abc");
    accepts("8e03978e-40d5-43dd-bc93-6894a57f9324", "8e03978e-40d5-43dd-bc93-6894a57f9324");
    accepts("\"8e03978e-40d5-43dd-bc93-6894a57f9324\"", "8e03978e-40d5-43dd-bc93-6894a57f9324");
    accepts("a;b=c", "a;b=c");
    accepts("two words", "two words");
    accepts("~!@#$%^&*()_+{}|:<>?[]\\'./`-=", "~!@#$%^&*()_+{}|:<>?[]\\'./`-=");
    accepts("a\"b", "a\"b");
}

static void spaces_around_a_value_are_not_the_key(void **state)
{
    accepts(" abc", "abc");
    accepts("\t abc \t", "abc");
    accepts(" \"abc\"\t", "abc");
    accepts("\" abc \"", " abc ");
    accepts("\" \"", " ");
}

static void escapes_of_a_quoted_key_are_undone(void **state)
{
    accepts("\"a\\\"b\"", "a\"b");
    accepts("\"a\\\\b\"", "a\\b");
    accepts("\"\\\\\\\"\"", "\\\"");
    accepts("\"a,b\"", "a,b");
    refuses("\"a\\nb\"", "backslash");
    refuses("\"a\\", "backslash");
    refuses("\"a\\\"", "closing quote is missing");
}

static void bad_quoting_is_refused(void **state)
{
    refuses("\"abc", "closing quote is missing");
    refuses("\"", "closing quote is missing");
    refuses("\"a\"b", "after the key's closing quote");
    refuses("\"a\" b", "after the key's closing quote");
    refuses("\"a\"\"b\"", "after the key's closing quote");
    refuses("\"a\";x=1", "parameters");
    refuses("\"a\" ;x", "parameters");
    refuses("\"a\", \"b\"", "several keys");
    refuses("\"a\" , b", "several keys");
}

static void joined_header_lines_are_refused(void **state)
{
    refuses("a, b", "comma");
    refuses("a,b", "comma");
    refuses(",", "comma");
    refuses("a, \"b\"", "comma");
}

static void empty_keys_are_refused(void **state)
{
    once_slice_t nothing = {NULL, 0};
    once_key_t key;

    refuses("", "empty");
    refuses(" \t ", "empty");
    refuses("\"\"", "empty");
    assert_int_equal(once_key_parse(&nothing, 1, 0, &key, NULL), ONCE_E_KEY);
}

static void only_one_value_is_a_key(void **state)
{
    once_slice_t values[2] = {slice("abc"), slice("abc")};
    once_key_t key;
    once_error_t err;

    assert_int_equal(once_key_parse(NULL, 0, 0, &key, &err), ONCE_E_KEY);
    assert_non_null(strstr(err.text, "missing"));
    assert_int_equal(once_key_parse(values, 2, 0, &key, &err), ONCE_E_KEY);
    assert_non_null(strstr(err.text, "2 times"));
    assert_int_equal(key.len, 0);
}

static void every_byte_outside_visible_ascii_is_refused(void **state)
{
    for (int byte = 0; byte < 256; byte++) {
        char raw[3] = {'a', (char)byte, 'b'}, quoted[5] = {'"', 'a', (char)byte, 'b', '"'};
        once_slice_t values[2] = {{raw, sizeof(raw)}, {quoted, sizeof(quoted)}};
        int visible = byte >= 0x20 && byte <= 0x7e;
        once_key_t key;
        once_error_t err = {0, ""};

        assert_int_equal(once_key_parse(&values[0], 1, 0, &key, &err),
                         visible && byte != ',' ? ONCE_OK : ONCE_E_KEY);
        if (!visible) {
            assert_non_null(strstr(err.text, byte < 0x80 ? "control" : "not ASCII"));
        }
        assert_int_equal(once_key_parse(&values[1], 1, 0, &key, NULL),
                         visible && byte != '"' && byte != '\\' ? ONCE_OK : ONCE_E_KEY);
    }
}

static void a_key_has_at_most_255_bytes(void **state)
{
    char text[2 * ONCE_KEY_MAX + 8];
    once_slice_t value = {text, ONCE_KEY_MAX};
    once_key_t key;
    once_error_t err;

    memset(text, 'k', sizeof(text));
    assert_int_equal(once_key_parse(&value, 1, 0, &key, &err), ONCE_OK);
    assert_int_equal(key.len, ONCE_KEY_MAX);
    assert_int_equal(key.text[ONCE_KEY_MAX], 0);
    value.len++;
    assert_int_equal(once_key_parse(&value, 1, 0, &key, &err), ONCE_E_KEY);
    assert_non_null(strstr(err.text, "longer than 255"));

    /* Quotes and escapes do not count. */
    text[0] = '"';
    for (size_t i = 0; i < ONCE_KEY_MAX; i++) {
        text[1 + 2 * i] = text[2 + 2 * i] = '\\';
    }
    text[1 + 2 * ONCE_KEY_MAX] = '"';
    value.len = 2 + 2 * ONCE_KEY_MAX;
    assert_int_equal(once_key_parse(&value, 1, 0, &key, &err), ONCE_OK);
    assert_int_equal(key.len, ONCE_KEY_MAX);
}

static void strict_mode_takes_the_quoted_form_only(void **state)
{
    once_key_t key;
    once_error_t err;

    assert_int_equal(parse("\"abc\"", ONCE_KEY_STRICT, &key, &err), ONCE_OK);
    assert_string_equal(key.text, "abc");
    assert_int_equal(parse("abc", ONCE_KEY_STRICT, &key, &err), ONCE_E_KEY);
    assert_non_null(strstr(err.text, "not quoted"));
}

static void errors_do_not_show_the_key(void **state)
{
    static const char *const texts[] = {"geheim,x", "\"geheim", "\"geheim\";a", "geheim\x01",
                                        "\"geheim\\x\""};
    once_key_t key;
    once_error_t err;

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        assert_int_equal(parse(texts[i], 0, &key, &err), ONCE_E_KEY);
        assert_null(strstr(err.text, "geheim"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(raw_and_quoted_are_the_same_key),
        cmocka_unit_test(spaces_around_a_value_are_not_the_key),
        cmocka_unit_test(escapes_of_a_quoted_key_are_undone),
        cmocka_unit_test(bad_quoting_is_refused),
        cmocka_unit_test(joined_header_lines_are_refused),
        cmocka_unit_test(empty_keys_are_refused),
        cmocka_unit_test(only_one_value_is_a_key),
        cmocka_unit_test(every_byte_outside_visible_ascii_is_refused),
        cmocka_unit_test(a_key_has_at_most_255_bytes),
        cmocka_unit_test(strict_mode_takes_the_quoted_form_only),
        cmocka_unit_test(errors_do_not_show_the_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
