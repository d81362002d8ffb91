#include "support/testing.h"

#include <string.h>

#include "conformance/conformance.h"

static void nothing_chooses_all(void **state)
{
    assert_true(once_conformance_chooses(NULL, "claim-new"));
    assert_true(once_conformance_chooses("", "claim-new"));
}

static void a_part_of_the_name(void **state)
{
    assert_true(once_conformance_chooses("new", "claim-new"));
    assert_true(once_conformance_chooses("x,claim", "claim-new"));
    assert_false(once_conformance_chooses("busy", "claim-new"));
}

static void a_glob_is_the_whole_name(void **state)
{
    assert_true(once_conformance_chooses("claim-*", "claim-new"));
    assert_true(once_conformance_chooses("claim-ne?", "claim-new"));
    assert_false(once_conformance_chooses("new*", "claim-new"));
    assert_false(once_conformance_chooses("claim-[ab]*", "claim-new"));
}

static void taken_out_again(void **state)
{
    assert_false(once_conformance_chooses("bug-*,!bug-07*", "bug-07-x"));
    assert_true(once_conformance_chooses("bug-*,!bug-07*", "bug-08-x"));
    assert_false(once_conformance_chooses("bug-*,!bug-07*", "claim-new"));
    assert_true(once_conformance_chooses("!race", "claim-new"));
    assert_false(once_conformance_chooses("!race", "race-x"));
    assert_true(once_conformance_chooses("!race,race-x", "race-x"));
}

static void names_are_unique_and_explained(void **state)
{
    size_t count;
    const once_conformance_test_t *tests = once_conformance_tests(&count);

    assert_true(count > 100);
    for (size_t i = 0; i < count; i++) {
        assert_true(strlen(tests[i].name) > 0);
        assert_true(strlen(tests[i].what) > 0);
        assert_null(strpbrk(tests[i].name, " ,!*?["));
        for (size_t j = 0; j < i; j++) {
            assert_string_not_equal(tests[i].name, tests[j].name);
        }
    }
}

static void what_cannot_be_opened_is_told(void **state)
{
    once_conformance_options_t options = ONCE_CONFORMANCE_INIT;
    once_conformance_counts_t counts = {9, 9, 9};

    assert_true(once_conformance_run("nosuchstore:", &options) < 0);
    assert_true(once_conformance_run("memory:?nosuchoption=1", &options) < 0);
    options.filter = "no test has this name";
    options.counts = &counts;
    assert_int_equal(once_conformance_run("memory:", &options), 1);
    assert_int_equal(counts.passed + counts.failed + counts.not_applicable, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_chooses_all),
        cmocka_unit_test(a_part_of_the_name),
        cmocka_unit_test(a_glob_is_the_whole_name),
        cmocka_unit_test(taken_out_again),
        cmocka_unit_test(names_are_unique_and_explained),
        cmocka_unit_test(what_cannot_be_opened_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
