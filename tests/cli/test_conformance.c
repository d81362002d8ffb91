#include "harness.h"

#include <stdlib.h>
#include <string.h>

static void conformance_tests_are_chosen(void **state)
{
    run_t all = run("conformance", "--list", NULL);
    run_t some = run("conformance", "--list", "--filter", "claim", NULL);
    run_t none = run("conformance", "--list", "--filter", "no-such-test", NULL);
    run_t many = run("conformance", "memory:", "--threads", "65", NULL);

    assert_run(all, ONCE__CLI_OK);
    assert_run(some, ONCE__CLI_OK);
    assert_true(strlen(some.out) > 0);
    assert_true(strlen(some.out) < strlen(all.out));
    assert_run(none, ONCE__CLI_NO);
    assert_run(many, ONCE__CLI_USAGE);
    run_free(&all);
    run_free(&some);
    run_free(&none);
    run_free(&many);
}

static void a_store_is_tried(void **state)
{
    run_t r = run("conformance", "memory:", "--filter", "claim-new*", "--threads", "2", NULL);
    run_t none = run("conformance", "memory:", "--filter", "no-such-test", NULL);
    run_t closed = run("conformance", "nowhere:", NULL);

    assert_run(r, ONCE__CLI_OK);
    assert_has(r.out, "claim-new");
    assert_run(none, ONCE__CLI_NO);
    assert_run(closed, ONCE__CLI_USAGE);
    run_free(&r);
    run_free(&none);
    run_free(&closed);
}

/* Each test of the filter is in exactly one part. */
static void conformance_runs_in_parts(void **state)
{
    static const char *const wrong[] = {"0/4", "5/4", "1/", "/4", "1", "a/b", "2/4x"};
    run_t all = run("conformance", "memory:", "--filter", "claim-new*,scan-*", NULL);
    unsigned tests = 0;

    for (unsigned part = 1; part <= 3; part++) {
        char text[8];
        run_t r;
        snprintf(text, sizeof(text), "%u/3", part);
        r = run("conformance", "memory:", "--filter", "claim-new*,scan-*", "--part", text, NULL);
        assert_run(r, ONCE__CLI_OK);
        tests += count_lines(r.out) - 2;
        run_free(&r);
    }
    assert_true(tests > 3);
    assert_int_equal(tests, count_lines(all.out) - 2);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        run_t r = run("conformance", "memory:", "--part", wrong[i], NULL);
        assert_run(r, ONCE__CLI_USAGE);
        assert_has(r.err, "--part must be I/N");
        run_free(&r);
    }
    run_free(&all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conformance_tests_are_chosen),
        cmocka_unit_test(conformance_runs_in_parts),
        cmocka_unit_test(a_store_is_tried),
    };
    unsetenv("ONCE_STORE");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
