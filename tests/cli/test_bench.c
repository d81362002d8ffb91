#include "harness.h"

#include <string.h>

#include "local.h"
#include "records.h"

static double real_of(const json_t *object, const char *name)
{
    assert_true(json_is_number(json_object_get(object, name)));
    return json_number_value(json_object_get(object, name));
}

static void every_pair_is_counted(void **state)
{
    once_t *once = open_store("memory:bench");
    once_answer_t *answer = NULL;
    json_t *result;
    const json_t *latency;
    run_t r = run("bench", "store", "memory:bench", "--pairs", "500", "--inflight", "7",
                  "--value-size", "1k", "--json", NULL);

    assert_run(r, ONCE__CLI_OK);
    result = json_line(r.out, 0);
    assert_int_equal(json_number_of(result, "pairs"), 500);
    assert_int_equal(json_number_of(result, "inflight"), 7);
    assert_int_equal(json_number_of(result, "value_size"), 1024);
    assert_true(real_of(result, "pairs_per_second") > 0);
    latency = json_object_get(result, "latency_us");
    assert_true(real_of(latency, "p50") > 0);
    assert_true(real_of(latency, "p50") <= real_of(latency, "p99"));
    assert_true(real_of(latency, "p99") <= real_of(latency, "max"));
    json_decref(result);
    run_free(&r);

    /* They are really in the store, and completed. */
    assert_int_equal(once_store_stats_sync(once, &answer), ONCE_OK);
    assert_int_equal(once_answer_stats(answer)->completed, 500);
    assert_true(once_answer_stats(answer)->bytes > 500 * 1024);
    once_answer_free(answer);
    once_close(once, 0);
}

/* Pairs are started one after the other, a hundredth of a second apart. */
static void at_most_so_many_a_second(void **state)
{
    run_t r =
        run("bench", "store", "memory:paced", "--pairs", "30", "--rate", "100", "--json", NULL);
    json_t *result;

    assert_run(r, ONCE__CLI_OK);
    result = json_line(r.out, 0);
    assert_int_equal(json_number_of(result, "pairs"), 30);
    assert_true(real_of(result, "seconds") >= 0.28);
    json_decref(result);
    run_free(&r);
}

/* What the disk allows stands beside it; nothing is left of the measurement. */
static void the_limit_of_the_disk(void **state)
{
    const json_t *limit;
    json_t *result;
    place_t place;
    int names;
    run_t r;

    place_make(&place, "");
    r = run("bench", "store", place.url, "--pairs", "100", NULL);
    assert_run(r, ONCE__CLI_OK);
    assert_has(r.out, "pairs/s; limit ");
    assert_has(r.out, "of this process; limit ");
    assert_has(r.out, "; limit p50 ");
    run_free(&r);
    names = count_names(place.store);
    r = run("bench", "store", place.url, "--pairs", "100", "--json", NULL);
    assert_run(r, ONCE__CLI_OK);
    result = json_line(r.out, 0);
    limit = json_object_get(result, "limit");
    assert_true(real_of(limit, "pairs_per_second") > 0);
    assert_true(real_of(limit, "cpu_us_per_pair") > 0);
    assert_true(real_of(limit, "latency_us") > 0);
    json_decref(result);
    run_free(&r);
    assert_int_equal(count_names(place.store), names);
    place_remove(&place);
}

static void ends_after_its_time(void **state)
{
    run_t r = run("bench", "store", "memory:?max_records=100000000&max_bytes=100g", "--seconds",
                  "1", "--inflight", "1", NULL);

    assert_run(r, ONCE__CLI_OK);
    assert_has(r.out, "pairs/s");
    assert_has(r.out, "p999");
    assert_lacks(r.out, "limit"); /* of no disk */
    run_free(&r);
}

static void a_full_store_is_told(void **state)
{
    run_t r =
        run("bench", "store", "memory:?max_records=10&store_timeout=50ms", "--pairs", "100", NULL);

    assert_run(r, ONCE__CLI_STORE);
    assert_string_equal(r.out, "");
    assert_has(r.err, "no room");
    run_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pair_is_counted), cmocka_unit_test(at_most_so_many_a_second),
        cmocka_unit_test(the_limit_of_the_disk), cmocka_unit_test(ends_after_its_time),
        cmocka_unit_test(a_full_store_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
