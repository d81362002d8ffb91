#include "harness.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/units.h"
#include "cli/histogram.h"
#include "cli/cli.h"
#include "cli/table.h"
#include "cli/text.h"
#include "cli/units.h"

static void escaping(void **state)
{
    char out[ONCE__CLI_ESCAPED_SIZE(16)];
    char every[256];
    char all[ONCE__CLI_ESCAPED_SIZE(256)];

    once__cli_escape(out, sizeof(out), once__slice_of("plain key-1"));
    assert_string_equal(out, "plain key-1");
    once__cli_escape(out, sizeof(out), once__slice_of("\033[2J\\"));
    assert_string_equal(out, "\\x1b[2J\\\\");
    once__cli_escape(out, sizeof(out), once__slice_of(""));
    assert_string_equal(out, "");
    for (int i = 0; i < 256; i++) {
        every[i] = (char)i;
    }
    once__cli_escape(all, sizeof(all), (once_slice_t){every, sizeof(every)});
    assert_true(is_harmless(all));
}

/* What does not fit is cut at a whole escape, for every size. */
static void cutting(void **state)
{
    for (size_t size = 1; size < 40; size++) {
        char *out = malloc(size); /* the sanitizer sees a byte too many */
        size_t len;
        assert_non_null(out);
        len = once__cli_escape(out, size, once__slice_of("ab\001cd\002efgh"));
        assert_int_equal(len, strlen(out));
        assert_true(len < size);
        if (size > 4 && len < 16) {
            assert_string_equal(out + len - 3, "...");
        }
        free(out);
    }
}

static void shown_arguments(void **state)
{
    char longer[400];

    memset(longer, 'x', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    assert_string_equal(once__cli_shown("abc").text, "abc");
    assert_string_equal(once__cli_shown("redis://u:p@h/").text, "redis://...");
    assert_string_equal(once__cli_shown("--limit=redis://u:p@h/").text, "--limit=redis://...");
    assert_true(strlen(once__cli_shown(longer).text) < 72);
}

static void shown_urls(void **state)
{
    static const char *const urls[][2] = {
        {"memory:x", "memory:x"},
        {"postgres://u:secret@db:5432/app?sslmode=require", "postgres://db:5432/app"},
        {"postgres://u:se?cr@et@a,b:5433/app", "postgres://a,b:5433/app"},
        {"postgres:///app?user=u&password=secret&host=/run/pg&port=1",
         "postgres:///app?host=/run/pg"},
        {"redis://:secret@h:1/2?prefix=x", "redis://h:1/2"},
        {"redis+sentinel://a:1,b:2/m", "redis+sentinel://a:1,b:2/m"},
        /* a password that should have been encoded */
        {"postgres://u:se/cret@db/app", "postgres://..."},
        {"redis://u:s/e@c@h", "redis://..."},
    };

    for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); i++) {
        assert_string_equal(once__cli_shown_url(urls[i][0]).text, urls[i][1]);
    }
}

static void reading_units(void **state)
{
    uint64_t n;

    assert_int_equal(once__duration_parse("500ms", &n), 0);
    assert_int_equal(n, 500);
    assert_int_equal(once__duration_parse("7", &n), 0);
    assert_int_equal(n, 7000);
    assert_int_equal(once__duration_parse("2d", &n), 0);
    assert_int_equal(n, 172800000);
    assert_int_equal(once__size_parse("64k", &n), 0);
    assert_int_equal(n, 65536);
    assert_int_equal(once__size_parse("64M", &n), 0); /* as in a URL */
    assert_int_equal(n, 64 << 20);
    assert_int_equal(once__cli_read_time("2024-01-01T00:00:00Z", &n), 0);
    assert_int_equal(n, UINT64_C(1704067200000));
    assert_int_equal(once__cli_read_time("1704067200", &n), 0);
    assert_int_equal(n, UINT64_C(1704067200000));
    assert_int_equal(once__number_parse("18446744073709551615", 20, &n), 0);
    assert_true(n == UINT64_MAX);
    for (size_t i = 0; i < 9; i++) {
        static const char *const bad[] = {"",     "-1",  "+1", " 1", "1 ", "18446744073709551616",
                                          "0x10", "1.5", "ms"};
        assert_int_equal(once__number_parse(bad[i], strlen(bad[i]), &n), -1);
        assert_int_equal(once__duration_parse(bad[i], &n), -1);
        assert_int_equal(once__size_parse(bad[i], &n), -1);
        assert_int_equal(once__cli_read_time(bad[i], &n), -1);
    }
    assert_int_equal(once__duration_parse("99999999999999999999d", &n), -1);
    assert_int_equal(once__cli_read_time("2024-01-01T00:00:00", &n), -1);
    assert_int_equal(once__cli_read_time("2024-01-01T00:00:00Z!", &n), -1);
    assert_int_equal(once__cli_read_time("1969-01-01T00:00:00Z", &n), -1);
    assert_int_equal(once__cli_read_time("18446744073709551615", &n), -1);
}

static void writing_units(void **state)
{
    assert_string_equal(once__cli_duration(0).text, "0ms");
    assert_string_equal(once__cli_duration(999).text, "999ms");
    assert_string_equal(once__cli_duration(59999).text, "59s");
    assert_string_equal(once__cli_duration(60000).text, "1m");
    assert_string_equal(once__cli_duration(303000).text, "5m 3s");
    assert_string_equal(once__cli_duration(7500000).text, "2h 5m");
    assert_string_equal(once__cli_duration(UINT64_C(172800000)).text, "2d");
    assert_string_equal(once__cli_duration(UINT64_C(180000000)).text, "2d 2h");
    assert_string_equal(once__cli_size(0).text, "0 B");
    assert_string_equal(once__cli_size(1023).text, "1023 B");
    assert_string_equal(once__cli_size(1536).text, "1.5 KiB");
    assert_string_equal(once__cli_size(UINT64_C(1) << 30).text, "1.0 GiB");
    assert_string_equal(once__cli_size(UINT64_MAX).text, "16.0 EiB");
}

static const char *nearest_of(const char *word)
{
    once__cli_nearest_t nearest;

    once__cli_nearest_start(&nearest, word);
    once__cli_nearest_try(&nearest, "list", 4);
    once__cli_nearest_try(&nearest, "release", 7);
    once__cli_nearest_try(&nearest, "purge", 5);
    return nearest.best;
}

static void nearest_words(void **state)
{
    assert_string_equal(nearest_of("lsit"), "list");
    assert_string_equal(nearest_of("lst"), "list");
    assert_string_equal(nearest_of("listt"), "list");
    assert_string_equal(nearest_of("relaese"), "release");
    assert_string_equal(nearest_of("purged"), "purge");
    assert_null(nearest_of("x"));
    assert_null(nearest_of("quantum"));
    assert_null(nearest_of("a-very-long-word-that-nobody-has-ever-typed-by-mistake"));
}

/* At most 1/32 above the true value, never below it, at every magnitude. */
static void percentiles(void **state)
{
    once__cli_histogram_t *h = calloc(1, sizeof(*h));

    assert_non_null(h);
    assert_int_equal(once__cli_histogram_at(h, 0.5), 0);
    for (uint64_t i = 1; i <= 1000; i++) {
        once__cli_histogram_add(h, i * 1000);
    }
    for (int p = 1; p <= 100; p++) {
        uint64_t exact = (uint64_t)p * 10000;
        uint64_t told = once__cli_histogram_at(h, p / 100.0);
        assert_true(told >= exact);
        assert_true(told <= exact + exact / 32 + 1);
    }
    assert_int_equal(once__cli_histogram_at(h, 1.0), 1000000);
    once__cli_histogram_add(h, UINT64_MAX);
    assert_true(once__cli_histogram_at(h, 1.0) == UINT64_MAX);
    free(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(escaping),        cmocka_unit_test(cutting),
        cmocka_unit_test(shown_arguments), cmocka_unit_test(shown_urls),
        cmocka_unit_test(reading_units),   cmocka_unit_test(writing_units),
        cmocka_unit_test(nearest_words),   cmocka_unit_test(percentiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
