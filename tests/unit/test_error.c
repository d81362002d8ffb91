#include "support/testing.h"

#include <ctype.h>
#include <string.h>

#include "base/error.h"

static const int codes[] = {
#define CODE(name, number, retryable, text) name,
    ONCE_ERROR_MAP(CODE)
#undef CODE
};

#define COUNT (sizeof(codes) / sizeof(codes[0]))

static void every_code_has_a_name_and_a_sentence(void **state)
{
    for (size_t i = 0; i < COUNT; i++) {
        const char *name = once_error_name(codes[i]);
        const char *text = once_error_text(codes[i]);
        assert_int_equal(strncmp(name, codes[i] == 0 ? "ONCE_OK" : "ONCE_E_", 7), 0);
        assert_true(strlen(text) > 1);
        assert_true(text[strlen(text) - 1] != '.');
        assert_false(isupper((unsigned char)text[0]));
    }
    assert_string_equal(once_error_name(ONCE_E_FULL), "ONCE_E_FULL");
}

static void codes_are_negative_and_differ(void **state)
{
    for (size_t i = 0; i < COUNT; i++) {
        assert_true(codes[i] <= 0);
        for (size_t j = 0; j < i; j++) {
            assert_int_not_equal(codes[i], codes[j]);
            assert_string_not_equal(once_error_text(codes[i]), once_error_text(codes[j]));
        }
    }
}

/* Numbers go into logs and other languages: they never change. */
static void numbers_stay(void **state)
{
    assert_int_equal(ONCE_OK, 0);
    assert_int_equal(ONCE_E_NOMEM, -1);
    assert_int_equal(ONCE_E_CORRUPT, -9);
    assert_int_equal(ONCE_E_NEWER, -10);
    assert_int_equal(ONCE_E_SEALED, -15);
    assert_int_equal(ONCE_E_CONFLICT, -19);
    assert_int_equal(ONCE_E_SQL, -22);
    assert_int_equal(ONCE_E_HEADER, -23);
}

/* What a program does about an error depends on it. */
static void what_passes_by_itself_is_retryable(void **state)
{
    static const int retryable[] = {ONCE_E_NOMEM, ONCE_E_UNAVAILABLE, ONCE_E_NOREPLY, ONCE_E_FULL,
                                    ONCE_E_CONFLICT};

    for (size_t i = 0; i < COUNT; i++) {
        int expected = 0;
        for (size_t j = 0; j < sizeof(retryable) / sizeof(retryable[0]); j++) {
            expected |= codes[i] == retryable[j];
        }
        assert_int_equal(once_error_is_retryable(codes[i]), expected);
    }
    assert_int_equal(once_error_is_retryable(1), 0);
    assert_int_equal(once_error_is_retryable(-12345), 0);
}

static void unknown_codes_have_words_too(void **state)
{
    assert_non_null(once_error_name(1));
    assert_non_null(once_error_name(-12345));
    assert_non_null(once_error_text(1));
    assert_string_equal(once_error_text(-12345), once_error_text(4711));
}

static void failing_says_why(void **state)
{
    once_error_t err = {0};

    assert_int_equal(once__fail(&err, ONCE_E_CONFIG, "%s: %d", "lease", 7), ONCE_E_CONFIG);
    assert_int_equal(err.code, ONCE_E_CONFIG);
    assert_string_equal(err.text, "lease: 7");
    assert_int_equal(once__fail(NULL, ONCE_E_IO, "nobody listens"), ONCE_E_IO);
}

static void long_texts_are_cut_and_terminated(void **state)
{
    char word[1000];
    once_error_t err;

    memset(&err, 'x', sizeof(err));
    memset(word, 'w', sizeof(word));
    word[sizeof(word) - 1] = '\0';
    (void)once__fail(&err, ONCE_E_CONFIG, "%s", word);
    assert_int_equal(strlen(err.text), sizeof(err.text) - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_has_a_name_and_a_sentence),
        cmocka_unit_test(codes_are_negative_and_differ),
        cmocka_unit_test(numbers_stay),
        cmocka_unit_test(what_passes_by_itself_is_retryable),
        cmocka_unit_test(unknown_codes_have_words_too),
        cmocka_unit_test(failing_says_why),
        cmocka_unit_test(long_texts_are_cut_and_terminated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
