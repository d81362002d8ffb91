/*
 * once fsck: what looks like damage, and is what killed programs leave.
 */
#include "checking.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "records.h"

/* A program that was killed leaves a segment without its seal. Returns its number. */
static uint64_t killed_writer(place_t *place)
{
    companion_t companion;
    int status;

    make_many(place);
    companion_start(&companion, hold, place);
    assert_int_equal(kill(companion.pid, SIGKILL), 0);
    assert_int_equal(waitpid(companion.pid, &status, 0), companion.pid);
    close(companion.until);
    return last_segment(place);
}

static void torn_tail(void **state)
{
    once__frame_t frame;
    place_t place;
    json_t *report;
    uint64_t number = killed_writer(&place);
    uint64_t end = find_frame(&place, number, -1, &frame);

    spoil(segment(&place, number), (long)end, 100);
    assert_int_equal(unlink(inside(&place, "index")),
                     0); /* as after a restart: nobody knows where it ends */
    report = fsck_json(&place, ONCE__CLI_OK);
    assert_int_equal(json_number_of(report, "torn"), 1);
    assert_int_equal(json_number_of(report, "problems"), 0);
    assert_int_equal(json_number_of(report, "completed"), MANY + 1);
    json_decref(report);
    assert_int_equal(count_completed(&place, "k", MANY), MANY);
    place_remove(&place);
}

/* Files that killed programs left: here one that was about to become a segment. */
static void leftover(void **state)
{
    char path[256];
    place_t place;
    json_t *report, *finding;

    make_many(&place);
    snprintf(path, sizeof(path), "%s", inside(&place, "segments/00000000000000aa.new"));
    write_text(path, "x");
    report = fsck_json(&place, ONCE__CLI_OK);
    finding = json_array_get(json_object_get(report, "findings"), 0);
    assert_string_equal(json_text_of(finding, "kind"), "leftover");
    assert_int_equal(json_number_of(report, "completed"), MANY);
    json_decref(report);
    assert_int_equal(count_completed(&place, "k", MANY), MANY); /* the program removes it */
    assert_int_equal(access(path, F_OK), -1);
    place_remove(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(torn_tail),
        cmocka_unit_test(leftover),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
