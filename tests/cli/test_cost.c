/*
 * once cost: what it computes, and that docs/stores.md shows what it prints.
 */
#include "harness.h"

#include <stdlib.h>
#include <string.h>

#include "cli/file.h"

static void the_page_shows_what_is_printed(void **state)
{
    run_t r = run("cost", "--rate", "10000", "--ttl", "24h", "--body", "400", NULL);
    once__cli_bytes_t page;

    assert_run(r, ONCE__CLI_OK);
    assert_int_equal(once__cli_read_file(SOURCE_DIR "/docs/stores.md", 1 << 20, &page),
                     ONCE__CLI_OK);
    assert_has(page.data, "`once cost --rate 10000 --ttl 24h --body 400`");
    assert_has(page.data, r.out);
    run_free(&r);
    r = run("cost", NULL);
    assert_has(page.data, r.out); /* the same is the default */
    free(page.data);
    run_free(&r);
}

/* One member of the first row. */
static double member(const run_t *r, const char *name)
{
    json_t *json = json_loads(r->out, 0, NULL);
    double value = json_number_value(
        json_object_get(json_array_get(json_object_get(json, "stores"), 0), name));

    assert_non_null(json);
    json_decref(json);
    return value;
}

static void figures_follow_what_is_asked(void **state)
{
    run_t one = run("cost", "--store", "redis", "--json", NULL);
    run_t rate = run("cost", "--store", "redis", "--rate", "20000", "--json", NULL);
    run_t ttl = run("cost", "--store", "redis", "--ttl", "12h", "--json", NULL);
    run_t body = run("cost", "--store", "redis", "--body", "800", "--json", NULL);
    double memory = member(&one, "memory_bytes"), bytes = member(&one, "bytes");

    assert_true(memory > bytes * 863999999 && memory < bytes * 864000001);
    assert_true(member(&one, "disk_bytes") == 0);
    assert_true(member(&rate, "memory_bytes") == 2 * memory);
    assert_true(member(&rate, "cpu_cores") == 2 * member(&one, "cpu_cores"));
    assert_true(member(&ttl, "memory_bytes") == memory / 2);
    assert_true(member(&ttl, "written_bytes_per_day") == member(&one, "written_bytes_per_day"));
    assert_true(member(&body, "bytes") > bytes && member(&body, "bytes") < 2 * bytes);
    run_free(&one);
    run_free(&rate);
    run_free(&ttl);
    run_free(&body);
}

static void one_store_or_some(void **state)
{
    run_t one = run("cost", "--store", "local", NULL);
    run_t two = run("cost", "--store", "local", "--store", "postgres", NULL);

    assert_has(one.out, "\nlocal ");
    assert_lacks(one.out, "redis");
    assert_has(two.out, "\npostgres ");
    assert_lacks(two.out, "redis");
    run_free(&one);
    run_free(&two);
}

static void what_makes_no_sense_is_refused(void **state)
{
    static const char *const wrong[][2] = {{"--store", "memory"}, {"--rate", "0"},  {"--ttl", "0"},
                                           {"--body", "17m"},     {"--rate", "-1"}, {"--ttl", "x"}};

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        run_t r = run("cost", wrong[i][0], wrong[i][1], NULL);
        assert_run(r, ONCE__CLI_USAGE);
        assert_has(r.err, wrong[i][0]);
        assert_string_equal(r.out, "");
        run_free(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_page_shows_what_is_printed),
        cmocka_unit_test(figures_follow_what_is_asked),
        cmocka_unit_test(one_store_or_some),
        cmocka_unit_test(what_makes_no_sense_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
