#include "support/testing.h"

#include <string.h>

#include "base/units.h"

static void durations_have_units(void **state)
{
    static const struct {
        const char *text;
        uint64_t ms;
    } cases[] = {
        {"500ms", 500},    {"30s", 30000},
        {"5m", 300000},    {"24h", 86400000},
        {"7d", 604800000}, {"3650d", 315360000000},
        {"10", 10000},     {"0", 0},
        {"0ms", 0},        {"18446744073709551615ms", UINT64_MAX},
        {"007s", 7000},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t ms = 1;
        assert_int_equal(once__duration_parse(cases[i].text, &ms), 0);
        assert_int_equal(ms, cases[i].ms);
    }
}

static void anything_else_is_no_duration(void **state)
{
    static const char *const texts[] = {
        "",
        "s",
        "ms",
        "-1s",
        "+1s",
        " 1s",
        "1s ",
        "1 s",
        "1x",
        "24x",
        "1.5h",
        "1h30m",
        "1S",
        "1M",
        "1sec",
        "0x10",
        "1e3",
        "٣s",
        "1,000s",
        "18446744073709551616ms",
        "18446744073709551615s",
        "18446744073709551615",
        "213503982335d",
        "99999999999999999999999999999999999999",
    };

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        uint64_t ms = 42;
        assert_int_equal(once__duration_parse(texts[i], &ms), -1);
        assert_int_equal(ms, 42);
    }
}

static void sizes_are_powers_of_1024(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } cases[] = {
        {"0", 0},        {"512", 512},       {"64k", 65536},
        {"64K", 65536},  {"16m", 1 << 24},   {"16M", 1 << 24},
        {"1g", 1 << 30}, {"4G", 4ull << 30}, {"17179869183g", 17179869183ull << 30},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t bytes = 1;
        assert_int_equal(once__size_parse(cases[i].text, &bytes), 0);
        assert_int_equal(bytes, cases[i].bytes);
    }
}

static void anything_else_is_no_size(void **state)
{
    static const char *const texts[] = {
        "", "k", "-1", "1kb", "1 k", "1.5m", "1t", "0x1", "17179869184g", "18446744073709551616",
    };

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        uint64_t bytes = 42;
        assert_int_equal(once__size_parse(texts[i], &bytes), -1);
        assert_int_equal(bytes, 42);
    }
}

static void numbers_are_digits_only(void **state)
{
    uint64_t number = 0;

    assert_int_equal(once__number_parse("18446744073709551615", 20, &number), 0);
    assert_int_equal(number, UINT64_MAX);
    assert_int_equal(once__number_parse("123456", 3, &number), 0); /* no further than its length */
    assert_int_equal(number, 123);
    assert_int_equal(once__number_parse("18446744073709551616", 20, &number), -1);
    assert_int_equal(once__number_parse("18446744073709551625", 20, &number), -1);
    assert_int_equal(once__number_parse("", 0, &number), -1);
    assert_int_equal(once__number_parse("1 ", 2, &number), -1);
    assert_int_equal(once__number_parse("-1", 2, &number), -1);
    assert_int_equal(once__number_parse("1\0"
                                        "2",
                                        3, &number),
                     -1);
    assert_int_equal(once__number_parse("\xb1", 1, &number), -1);
    assert_int_equal(number, 123);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(durations_have_units),     cmocka_unit_test(anything_else_is_no_duration),
        cmocka_unit_test(sizes_are_powers_of_1024), cmocka_unit_test(anything_else_is_no_size),
        cmocka_unit_test(numbers_are_digits_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
