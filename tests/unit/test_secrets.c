#include "support/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/secrets.h"

#define H1 "0101010101010101010101010101010101010101010101010101010101010101"
#define H2 "ABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABAB"

#define FIRST   "once-secrets 1\n"
#define RECORD  "record " H1 "\n"
#define RETIRED "fingerprint 1 1000 2000 " H1 "\n"
#define IN_USE  "fingerprint 2 2000 0 " H2 "\n"
#define GOOD    FIRST RECORD RETIRED IN_USE

static int parse(const char *text, once__secrets_t *secrets, once_error_t *err)
{
    /* In memory of its own size, without a terminator: a read too far is seen by the sanitizer. */
    size_t len = strlen(text);
    char *copy = malloc(len + 1);
    int rc;

    memcpy(copy + 1, text, len);
    rc = once__secrets_parse(secrets, copy + 1, len, err);
    free(copy);
    return rc;
}

static void make(once__secrets_t *secrets)
{
    uint8_t random[2 * ONCE__SECRET_SIZE];

    memset(random, 0x11, ONCE__SECRET_SIZE);
    memset(random + ONCE__SECRET_SIZE, 0x22, ONCE__SECRET_SIZE);
    once__secrets_make(secrets, random, 1000);
}

static uint32_t rotate(once__secrets_t *secrets, uint64_t now_ms, uint64_t keep_ms)
{
    uint8_t random[ONCE__SECRET_SIZE];

    memset(random, (int)now_ms, sizeof(random));
    return once__secrets_rotate(secrets, random, now_ms, keep_ms);
}

static void fresh_secrets_as_text(void **state)
{
    char text[ONCE__SECRETS_TEXT_SIZE];
    once__secrets_t secrets;
    size_t len;

    make(&secrets);
    len = once__secrets_format(&secrets, text);
    assert_int_equal(len, strlen(text));
    assert_string_equal(
        text,
        "once-secrets 1\n"
        "record 1111111111111111111111111111111111111111111111111111111111111111\n"
        "fingerprint 1 1000 0 2222222222222222222222222222222222222222222222222222222222222222\n");
}

static void text_and_back(void **state)
{
    char text[ONCE__SECRETS_TEXT_SIZE];
    once__secrets_t secrets, read;

    make(&secrets);
    rotate(&secrets, UINT64_MAX - 1, UINT64_MAX);
    rotate(&secrets, UINT64_MAX, UINT64_MAX);
    once__secrets_format(&secrets, text);
    assert_int_equal(parse(text, &read, NULL), ONCE_OK);
    assert_memory_equal(&read, &secrets, sizeof(read)); /* keys are ready for use, too */
}

static void the_longest_text_fits(void **state)
{
    char text[ONCE__SECRETS_TEXT_SIZE];
    once__secrets_t secrets, read;

    make(&secrets);
    while (secrets.count < ONCE__FINGERPRINTS_MAX) {
        rotate(&secrets, UINT64_MAX, UINT64_MAX);
    }
    for (unsigned i = 0; i < ONCE__FINGERPRINTS_MAX; i++) {
        secrets.fingerprints[i].id = UINT32_MAX - ONCE__FINGERPRINTS_MAX + 1 + i;
        secrets.fingerprints[i].created_ms = UINT64_MAX;
    }
    assert_true(once__secrets_format(&secrets, text) < sizeof(text));
    assert_int_equal(parse(text, &read, NULL), ONCE_OK);
    assert_int_equal(read.fingerprints[ONCE__FINGERPRINTS_MAX - 1].id, UINT32_MAX);
}

static void good_texts_are_read(void **state)
{
    once__secrets_t secrets;

    assert_int_equal(parse(GOOD, &secrets, NULL), ONCE_OK);
    assert_int_equal(secrets.count, 2);
    assert_int_equal(secrets.record_bytes[31], 0x01);
    assert_int_equal(secrets.fingerprints[0].id, 1);
    assert_int_equal(secrets.fingerprints[0].created_ms, 1000);
    assert_int_equal(secrets.fingerprints[0].retired_ms, 2000);
    assert_int_equal(secrets.fingerprints[1].id, 2);
    assert_int_equal(secrets.fingerprints[1].bytes[0], 0xab);
    /* Without the last line's end; ids may have gaps. */
    assert_int_equal(parse(FIRST RECORD "fingerprint 9 1 0 " H1, &secrets, NULL), ONCE_OK);
    assert_int_equal(secrets.fingerprints[0].id, 9);
}

static void bad_texts_name_their_line(void **state)
{
    static const struct {
        const char *text;
        unsigned line;
    } cases[] = {
        {"", 1},
        {"\n", 1},
        {"once-secrets", 1},
        {"once-secrets \n" RECORD IN_USE, 1},
        {"once-secrets one\n" RECORD IN_USE, 1},
        {" once-secrets 1\n" RECORD IN_USE, 1},
        {"once-secrets 1 \n" RECORD IN_USE, 1},
        {"once-secrets 1\r\n" RECORD IN_USE, 1},
        {FIRST, 2},
        {FIRST "\n" RECORD IN_USE, 2},
        {FIRST IN_USE, 2},
        {FIRST "record\n" IN_USE, 2},
        {FIRST "record " H1 "0\n" IN_USE, 2},
        {FIRST "record  " H1 "\n" IN_USE, 2},
        {FIRST "record " H1 " \n" IN_USE, 2},
        {FIRST "Record " H1 "\n" IN_USE, 2},
        {FIRST RECORD, 3},
        {FIRST RECORD RECORD IN_USE, 3},
        {FIRST RECORD "\n" IN_USE, 3},
        {FIRST RECORD "# a comment\n" IN_USE, 3},
        {FIRST RECORD "fingerprint\n", 3},
        {FIRST RECORD "fingerprint 1 1000 0\n", 3},
        {FIRST RECORD "fingerprint 1 1000 " H1 "\n", 3},
        {FIRST RECORD "fingerprint 0 1000 0 " H1 "\n", 3},
        {FIRST RECORD "fingerprint -1 1000 0 " H1 "\n", 3},
        {FIRST RECORD "fingerprint 4294967297 1000 0 " H1 "\n", 3},
        {FIRST RECORD "fingerprint 1 18446744073709551616 0 " H1 "\n", 3},
        {FIRST RECORD "fingerprint 1  1000 0 " H1 "\n", 3},
        {FIRST RECORD "fingerprint 1 1000 0 " H1 " x\n", 3},
        {FIRST RECORD RETIRED, 3},
        {FIRST RECORD IN_USE RETIRED, 4},
        {FIRST RECORD "fingerprint 1 1000 0 " H1 "\n" IN_USE, 4},
        {FIRST RECORD "fingerprint 2 1000 2000 " H1 "\n" IN_USE, 4},
        {FIRST RECORD "fingerprint 3 1000 2000 " H1 "\n" IN_USE, 4},
        {GOOD "\n", 5},
        {FIRST RECORD "fingerprint 1 1 2 " H1 "\nfingerprint 2 1 2 " H1 "\nfingerprint 3 1 2 " H1
                      "\nfingerprint 4 1 2 " H1 "\nfingerprint 5 1 0 " H1 "\n",
         7},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        once__secrets_t secrets;
        once_error_t err = {0};
        char line[16];

        assert_int_equal(parse(cases[i].text, &secrets, &err), ONCE_E_SECRET);
        snprintf(line, sizeof(line), "line %u:", cases[i].line);
        assert_non_null(strstr(err.text, line));
    }
}

static void a_cut_text_is_not_taken_for_a_shorter_one(void **state)
{
    once__secrets_t secrets;

    for (size_t len = 0; len < strlen(GOOD) - 1; len++) {
        assert_int_not_equal(once__secrets_parse(&secrets, GOOD, len, NULL), ONCE_OK);
    }
}

static void another_version_is_newer(void **state)
{
    once__secrets_t secrets;
    once_error_t err;

    assert_int_equal(parse("once-secrets 2\nwho knows\n", &secrets, &err), ONCE_E_NEWER);
    assert_int_equal(err.code, ONCE_E_NEWER);
}

static void errors_tell_no_secret(void **state)
{
    once__secrets_t secrets;
    once_error_t err;

    parse(FIRST "record " H2 "!\n" IN_USE, &secrets, &err);
    assert_null(strstr(err.text, "ABAB"));
    parse(FIRST RECORD "fingerprint x 1000 0 " H2 "\n", &secrets, &err);
    assert_null(strstr(err.text, "ABAB"));
}

static void nothing_is_left_after_an_error(void **state)
{
    static const once__secrets_t zero;
    once__secrets_t secrets;

    make(&secrets);
    assert_int_equal(parse(FIRST RECORD RETIRED, &secrets, NULL), ONCE_E_SECRET);
    assert_memory_equal(&secrets, &zero, sizeof(zero));
    make(&secrets);
    once__secrets_wipe(&secrets);
    assert_memory_equal(&secrets, &zero, sizeof(zero));
}

static void a_rotation_retires_the_one_in_use(void **state)
{
    once__secrets_t secrets, before;

    make(&secrets);
    before = secrets;
    assert_int_equal(rotate(&secrets, 5000, 10000), 2);
    assert_int_equal(secrets.count, 2);
    assert_int_equal(secrets.fingerprints[0].id, 1);
    assert_int_equal(secrets.fingerprints[0].retired_ms, 5000);
    assert_memory_equal(secrets.fingerprints[0].bytes, before.fingerprints[0].bytes,
                        ONCE__SECRET_SIZE);
    assert_int_equal(secrets.fingerprints[1].created_ms, 5000);
    assert_int_equal(secrets.fingerprints[1].retired_ms, 0);
    assert_int_equal(secrets.fingerprints[1].bytes[0], (uint8_t)5000);
    assert_memory_equal(&secrets.record, &before.record, sizeof(before.record)); /* permanent */
}

static void secrets_are_kept_for_as_long_as_asked(void **state)
{
    once__secrets_t secrets;

    make(&secrets);
    rotate(&secrets, 5000, 0);
    assert_int_equal(secrets.count, 2); /* retired this very moment: not longer ago than 0 */
    rotate(&secrets, 6000, 1000);
    assert_int_equal(secrets.count, 3); /* exactly as long ago */
    rotate(&secrets, 6001, 1000);
    assert_int_equal(secrets.count, 3); /* 1 is gone, 2, 3 and 4 are there */
    assert_int_equal(secrets.fingerprints[0].id, 2);
    assert_int_equal(secrets.fingerprints[2].id, 4);
}

static void without_room_the_oldest_goes(void **state)
{
    static const once__secret_t zero;
    once__secrets_t secrets;

    make(&secrets);
    for (uint32_t id = 2; id <= 20; id++) {
        assert_int_equal(rotate(&secrets, 1000 + id, UINT64_MAX), id);
    }
    assert_int_equal(secrets.count, ONCE__FINGERPRINTS_MAX);
    assert_int_equal(secrets.fingerprints[0].id, 17);
    assert_int_equal(secrets.fingerprints[3].id, 20);
    rotate(&secrets, 900000,
           1); /* only the one in use is young enough, to be kept beside the new one */
    assert_int_equal(secrets.count, 2);
    assert_memory_equal(&secrets.fingerprints[2], &zero, sizeof(zero));
    assert_memory_equal(&secrets.fingerprints[3], &zero, sizeof(zero));
}

static void a_clock_that_went_back_forgets_nothing(void **state)
{
    once__secrets_t secrets;

    make(&secrets);
    rotate(&secrets, 900000, 1000);
    rotate(&secrets, 10, 1000);
    assert_int_equal(secrets.count, 3);
    rotate(&secrets, 0, 1000);
    assert_int_equal(secrets.count, 4);
    assert_int_not_equal(secrets.fingerprints[2].retired_ms, 0); /* at time 0, too */
}

static void ids_are_never_used_again(void **state)
{
    once__secrets_t secrets, before;

    make(&secrets);
    secrets.fingerprints[0].id = UINT32_MAX;
    before = secrets;
    assert_int_equal(rotate(&secrets, 5000, 0), 0);
    assert_memory_equal(&secrets, &before, sizeof(before));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fresh_secrets_as_text),
        cmocka_unit_test(text_and_back),
        cmocka_unit_test(the_longest_text_fits),
        cmocka_unit_test(good_texts_are_read),
        cmocka_unit_test(bad_texts_name_their_line),
        cmocka_unit_test(a_cut_text_is_not_taken_for_a_shorter_one),
        cmocka_unit_test(another_version_is_newer),
        cmocka_unit_test(errors_tell_no_secret),
        cmocka_unit_test(nothing_is_left_after_an_error),
        cmocka_unit_test(a_rotation_retires_the_one_in_use),
        cmocka_unit_test(secrets_are_kept_for_as_long_as_asked),
        cmocka_unit_test(without_room_the_oldest_goes),
        cmocka_unit_test(a_clock_that_went_back_forgets_nothing),
        cmocka_unit_test(ids_are_never_used_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
