#include "support/testing.h"

#include <string.h>

#include "base/bytes.h"
#include "core/about.h"

static const uint8_t subject[ONCE_SUBJECT_SIZE] = "0123456789abcdef";

static void assert_slice(once_slice_t got, const char *want)
{
    assert_int_equal(got.len, strlen(want));
    if (got.len > 0) {
        assert_memory_equal(got.data, want, got.len);
    }
}

static size_t write(uint8_t out[ONCE__ABOUT_MAX], const char *description, const char *holder,
                    const uint8_t *person)
{
    once__about_t about = {once__slice_of(description), once__slice_of(holder), person};

    return once__about_write(out, &about);
}

static int read(once__about_t *about, const void *bytes, size_t len)
{
    return once__about_read(about, once__slice(bytes, len));
}

/* SQL and Lua read these bytes: their form is part of the contract. */
static void as_bytes(void **state)
{
    uint8_t out[ONCE__ABOUT_MAX];

    assert_int_equal(write(out, "POST /a", "h:1", NULL), 12);
    assert_memory_equal(out, "\x01\x03h:1POST /a", 12);
    assert_int_equal(write(out, "POST /a", "h:1", subject), 28);
    assert_memory_equal(out, "\x01\x83h:10123456789abcdefPOST /a", 28);
    assert_int_equal(write(out, "", "", NULL), 0);
    assert_int_equal(write(out, "", "", subject), 18);
}

static void and_back(void **state)
{
    uint8_t out[ONCE__ABOUT_MAX];
    once__about_t about;

    assert_int_equal(read(&about, out, write(out, "POST /\xc3\xa4", "host:42", subject)), ONCE_OK);
    assert_slice(about.description, "POST /\xc3\xa4");
    assert_slice(about.holder, "host:42");
    assert_memory_equal(about.subject, subject, sizeof(subject));
    assert_int_equal(read(&about, out, write(out, "", "host:42", NULL)), ONCE_OK);
    assert_slice(about.description, "");
    assert_slice(about.holder, "host:42");
    assert_null(about.subject);
    assert_int_equal(read(&about, NULL, 0), ONCE_OK);
    assert_int_equal(about.holder.len + about.description.len, 0);
}

static void text_is_cleaned_and_cut_between_characters(void **state)
{
    char out[8];

    assert_int_equal(once__about_clean(out, 8, once__slice("a\nb\x7f\xff", 5)), 5);
    assert_memory_equal(out, "a?b??", 5);
    assert_int_equal(once__about_clean(out, 8, once__slice("\xc2\x9b\xc2\xa0", 4)), 4);
    assert_memory_equal(out, "??\xc2\xa0", 4);
    assert_int_equal(once__about_clean(out, 4, once__slice("abc\xc3\xa4", 5)), 3);
    assert_int_equal(once__about_clean(out, 5, once__slice("abc\xc3\xa4", 5)), 5);
    assert_int_equal(once__about_clean(out, 8, once__slice("\xe2\x82", 2)), 2); /* incomplete */
    assert_int_equal(once__about_clean(out, 0, once__slice("a", 1)), 0);
    assert_int_equal(once__about_clean(out, 8, once__slice(NULL, 0)), 0);
}

static void the_longest(void **state)
{
    char text[600];
    uint8_t out[ONCE__ABOUT_MAX];
    once__about_t about;
    size_t len;

    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    len = write(out, text, text, subject);
    assert_int_equal(len, ONCE__ABOUT_ROOM(ONCE_DESCRIPTION_MAX));
    assert_int_equal(read(&about, out, len), ONCE_OK);
    assert_int_equal(about.holder.len, ONCE__HOLDER_MAX);
    assert_int_equal(about.description.len, ONCE_DESCRIPTION_MAX);
    assert_int_equal(read(&about, out, len + 1), ONCE_E_CORRUPT);
}

/* What comes from a store is checked like any input. */
static void other_bytes_are_refused(void **state)
{
    uint8_t out[ONCE__ABOUT_MAX];
    once__about_t about;
    size_t len = write(out, "d", "host:42", subject);

    for (size_t cut = 1; cut < len - 1; cut++) {
        assert_int_equal(read(&about, out, cut), ONCE_E_CORRUPT);
        assert_int_equal(about.holder.len + about.description.len, 0);
        assert_null(about.subject);
    }
    out[len - 1] = '\n';
    assert_int_equal(read(&about, out, len), ONCE_E_CORRUPT);
    out[len - 1] = 'd';
    out[2] = 0xff;
    assert_int_equal(read(&about, out, len), ONCE_E_CORRUPT);
    out[2] = 'h';
    out[1] = ONCE__HOLDER_MAX + 1;
    assert_int_equal(read(&about, out, len), ONCE_E_CORRUPT);
    out[0] = 0;
    assert_int_equal(read(&about, out, len), ONCE_E_CORRUPT);
    out[0] = 2; /* of a newer version: nothing is known */
    assert_int_equal(read(&about, out, len), ONCE_OK);
    assert_int_equal(about.holder.len + about.description.len, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_bytes),
        cmocka_unit_test(and_back),
        cmocka_unit_test(text_is_cleaned_and_cut_between_characters),
        cmocka_unit_test(the_longest),
        cmocka_unit_test(other_bytes_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
