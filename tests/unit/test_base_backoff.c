#include "support/testing.h"

#include "base/backoff.h"

static void pauses_double_up_to_the_maximum(void **state)
{
    static const uint64_t expected[] = {50, 100, 200, 400, 800, 1000, 1000};

    for (unsigned i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        assert_int_equal(once__backoff(i, 50, 1000, 0), expected[i]);
    }
    assert_int_equal(once__backoff(63, 1, UINT64_MAX, 0), 1ull << 63);
    assert_int_equal(once__backoff(64, 1, UINT64_MAX, 0), UINT64_MAX);
    assert_int_equal(once__backoff(UINT32_MAX, 50, 1000, 0), 1000);
    assert_int_equal(once__backoff(0, 5000, 1000, 0), 1000);
    assert_int_equal(once__backoff(3, 0, 1000, 0), 0);
    assert_int_equal(once__backoff(3, 0, 0, 7), 0);
}

static void jitter_takes_away_up_to_one_half(void **state)
{
    uint64_t least = UINT64_MAX, most = 0;

    for (uint64_t bits = 0; bits < 1000; bits++) {
        uint64_t ms = once__backoff(2, 25, 1000, bits * 0x9e3779b97f4a7c15u);
        assert_true(ms >= 50 && ms <= 100);
        least = ms < least ? ms : least;
        most = ms > most ? ms : most;
    }
    assert_int_equal(least, 50);
    assert_int_equal(most, 100);
    assert_int_equal(once__backoff_jitter(0, UINT64_MAX), 0);
    assert_int_equal(once__backoff_jitter(1, UINT64_MAX), 1);
    assert_int_equal(once__backoff_jitter(UINT64_MAX, 0), UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pauses_double_up_to_the_maximum),
        cmocka_unit_test(jitter_takes_away_up_to_one_half),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
