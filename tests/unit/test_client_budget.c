/* How many retries the calls of one client may make: client/budget.h. */
#include "support/testing.h"

#include "client/budget.h"

static int take_all(once__client_budget_t *budget, uint64_t now)
{
    int count = 0;

    while (once__client_budget_take(budget, now)) {
        count++;
    }
    return count;
}

static void earns_by_time(void **state)
{
    once__client_budget_t budget;

    once__client_budget_init(&budget, 64, 1000);
    assert_int_equal(take_all(&budget, 1000), 64);
    assert_int_equal(take_all(&budget, 2000), 4);
    assert_int_equal(take_all(&budget, 1500), 0); /* a time before gives nothing, */
    assert_int_equal(take_all(&budget, 2000), 2); /* and is the new beginning */
    assert_int_equal(take_all(&budget, UINT64_MAX), 64);
}

static void earns_by_first_attempts(void **state)
{
    once__client_budget_t budget;

    once__client_budget_init(&budget, 1, 0);
    assert_int_equal(take_all(&budget, 0), 16); /* the least */
    for (int i = 0; i < 24; i++) {
        once__client_budget_earn(&budget);
    }
    assert_int_equal(take_all(&budget, 0), 4);
    for (int i = 0; i < 1000; i++) {
        once__client_budget_earn(&budget);
    }
    assert_int_equal(take_all(&budget, 0), 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(earns_by_time),
        cmocka_unit_test(earns_by_first_attempts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
