/*
 * Records that cannot be read: the commands that show records say how many they do not show.
 */
#include "harness.h"

#include <string.h>

#include "local.h"
#include "records.h"
#include "store/local/frame.h"

/* Three records; the first one is damaged. */
static void fill(const place_t *place)
{
    once_t *once = open_store(place->url);

    make_pending(once, "s", "a");
    make_completed(once, "s", "b", "x");
    make_completed(once, "s", "c", "y");
    once_close(once, -1);
    spoil(inside(place, "segments/0000000000000001.log"),
          ONCE__SEGMENT_HEADER + ONCE__FRAME_HEADER + 40, 1);
}

static void stats_count_them(void **state)
{
    place_t place;
    json_t *stats;
    run_t r;

    place_make(&place, "");
    fill(&place);
    r = run("stats", place.url, "--json", NULL);
    assert_run(r, ONCE__CLI_OK);
    stats = json_line(r.out, 0);
    assert_int_equal(json_number_of(stats, "damaged"), 1);
    assert_int_equal(json_number_of(stats, "pending"), 0);
    assert_int_equal(json_number_of(stats, "completed"), 2);
    json_decref(stats);
    run_free(&r);
    r = run("stats", place.url, NULL);
    assert_has(r.out, "damaged             1  records that cannot be read");
    run_free(&r);
    place_remove(&place);
}

static void list_and_export_tell(void **state)
{
    place_t place;
    run_t r;

    place_make(&place, "");
    fill(&place);
    r = run("keys", "export", place.url, NULL);
    assert_run(r, ONCE__CLI_STORE);
    assert_int_equal(count_lines(r.out), 2); /* the others are there all the same */
    assert_has(r.err, "1 records cannot be read");
    run_free(&r);
    r = run("keys", "list", place.url, NULL);
    assert_run(r, ONCE__CLI_STORE);
    assert_int_equal(count_lines(r.out), 3);
    assert_has(r.err, "once fsck");
    run_free(&r);
    place_remove(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stats_count_them),
        cmocka_unit_test(list_and_export_tell),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
