#include "harness.h"

#include <string.h>

static void the_story_is_true(void **state)
{
    run_t r = run("demo", NULL);
    run_t other = run("demo", "memory:demo", NULL);

    assert_run(r, ONCE__CLI_OK);
    assert_string_equal(r.err, "");
    assert_has(r.out, "each took effect exactly once");
    assert_lacks(r.out, "WRONG");
    assert_string_equal(r.out, other.out); /* the same text every time */
    run_free(&r);
    run_free(&other);
}

/* On a store that does not do as told: under hold, a silent holder is not replaced. */
static void a_wrong_answer_is_noticed(void **state)
{
    run_t r = run("demo", "memory:?recover=hold", NULL);
    run_t full = run("demo", "memory:?max_records=1&store_timeout=50ms", NULL);

    assert_run(r, ONCE__CLI_NO);
    assert_has(r.out, "WRONG");
    assert_lacks(r.out, "exactly once");
    assert_run(full, ONCE__CLI_STORE);
    assert_lacks(full.out, "exactly once");
    run_free(&r);
    run_free(&full);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_story_is_true),
        cmocka_unit_test(a_wrong_answer_is_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
