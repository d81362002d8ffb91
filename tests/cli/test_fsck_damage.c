/*
 * once fsck: what is damaged or missing, and what --repair does about it.
 */
#include "checking.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "records.h"

/* The first completion from the n-th frame on. */
static uint64_t find_completion(const place_t *place, uint64_t number, int n, once__frame_t *frame)
{
    uint64_t at = find_frame(place, number, n, frame);

    while (frame->state != ONCE_STATE_COMPLETED) {
        at = find_frame(place, number, ++n, frame);
    }
    return at;
}

/* Nobody knows whose frame that was: any key might be. */
static void damage_to_a_head(void **state)
{
    once__frame_t frame;
    place_t place;
    uint64_t at;
    run_t r;

    make_many(&place);
    at = find_completion(&place, 1, 9, &frame);
    spoil(segment(&place, 1), (long)at + 30, 1); /* in the record id */
    r = fsck(&place);
    assert_run(r, ONCE__CLI_NO);
    assert_has(r.out, "nobody knows of which records");
    run_free(&r);
    assert_open_fails(place.url, ONCE_E_CORRUPT, "segment 0000000000000001 is damaged at ");
    repair(&place, "segment 0000000000000001 is damaged at ");
    assert_int_equal(count_completed(&place, "k", MANY), MANY - 1);
    place_remove(&place);
}

static void missing_segment(void **state)
{
    place_t place;
    json_t *report;
    run_t r;
    int there;

    make_many(&place);
    assert_int_equal(unlink(segment(&place, 2)), 0);
    r = fsck(&place);
    assert_run(r, ONCE__CLI_NO);
    assert_has(r.out, "segment 0000000000000002 is missing");
    assert_has(r.out, "their operations can run again");
    assert_has(r.err, "copy the directory");
    run_free(&r);
    report = fsck_json(&place, ONCE__CLI_NO);
    assert_int_equal(json_number_of(report, "missing"), 1);
    json_decref(report);
    assert_open_fails(place.url, ONCE_E_CORRUPT, "segment 0000000000000002 is missing");
    repair(&place, "segment 0000000000000002 is missing");
    there = count_completed(&place, "k", MANY);
    assert_true(there > MANY / 3 && there < MANY - 10);
    place_remove(&place);
}

static void missing_ends(void **state)
{
    place_t place;
    json_t *report;

    make_many(&place);
    assert_int_equal(unlink(segment(&place, 1)), 0);
    assert_int_equal(unlink(segment(&place, last_segment(&place))), 0);
    report = fsck_json(&place, ONCE__CLI_NO);
    assert_int_equal(json_number_of(report, "missing"), 2);
    json_decref(report);
    assert_open_fails(place.url, ONCE_E_CORRUPT, " is missing; restore it");
    repair(&place, "segment 0000000000000001 is missing");
    assert_true(count_completed(&place, "k", MANY) > 0);
    place_remove(&place);
}

/* With the index of a program that uses the store, fsck knows how many records are lost. */
static void what_is_lost_is_counted(void **state)
{
    companion_t companion;
    place_t place;
    json_t *report;
    run_t r;

    make_many(&place);
    companion_start(&companion, hold, &place);
    assert_int_equal(unlink(segment(&place, 2)), 0);
    report = fsck_json(&place, ONCE__CLI_NO);
    assert_int_equal(json_number_of(report, "missing"), 1);
    assert_true(json_number_of(json_object_get(report, "lost"), "completed") > 10);
    assert_string_equal(json_text_of(report, "index"), "differs");
    json_decref(report);
    r = fsck(&place);
    assert_has(r.out, "lost: the newest state of ");
    run_free(&r);
    companion_stop(&companion);
    place_remove(&place);
}

static void missing_manifest(void **state)
{
    place_t place;
    run_t r;

    make_many(&place);
    assert_int_equal(unlink(inside(&place, "segments/manifest")), 0);
    r = fsck(&place);
    assert_run(r, ONCE__CLI_NO);
    assert_has(r.out, "manifest is missing");
    run_free(&r);
    repair(&place, "manifest is missing");
    assert_int_equal(count_completed(&place, "k", MANY), MANY); /* nothing is lost */
    place_remove(&place);
}

static void damage_to_a_record(void **state)
{
    once__frame_t frame;
    place_t place;
    json_t *report, *finding;
    bytes_t before, kept;
    uint64_t at;
    char text[120];
    run_t r;

    make_many(&place);
    at = find_completion(&place, 2, 7, &frame);
    spoil(segment(&place, 2), (long)at + ONCE__FRAME_HEADER + 40, 1);
    before = read_bytes(segment(&place, 2));
    report = fsck_json(&place, ONCE__CLI_NO);
    assert_int_equal(json_number_of(report, "damaged"), 1);
    assert_int_equal(json_number_of(report, "damaged_bytes"), frame.size);
    finding = json_array_get(json_object_get(report, "findings"), 0);
    assert_string_equal(json_text_of(finding, "kind"), "record");
    assert_int_equal(json_number_of(finding, "segment"), 2);
    assert_int_equal(json_number_of(finding, "offset"), at);
    assert_int_equal(json_number_of(finding, "length"), frame.size);
    json_decref(report);
    assert_int_equal(access(inside(&place, "quarantine"), F_OK), -1);
    assert_int_equal(count_completed(&place, "k", MANY), MANY - 1); /* it opens without that one */

    snprintf(text, sizeof(text), "segment 0000000000000002: the record at %llu is damaged",
             (unsigned long long)at);
    repair(&place, text);
    snprintf(text, sizeof(text), "quarantine/0000000000000002-%llu", (unsigned long long)at);
    kept = read_bytes(inside(&place, text));
    assert_int_equal(kept.len, frame.size);
    assert_memory_equal(kept.data, before.data + at, kept.len);
    /* One frame is lost: a completion, then the record is pending again. */
    assert_int_equal(count_completed(&place, "k", MANY), MANY - 1);
    r = run("stats", place.url, NULL);
    assert_has(r.out, "quarantine          1  damaged ranges");
    run_free(&r);
    free(before.data);
    free(kept.data);
    place_remove(&place);
}

/* Without the word in its header no frame of it can be told from other bytes. */
static void damaged_header(void **state)
{
    place_t place;
    int there;

    make_many(&place);
    spoil(segment(&place, 2), 10, 3);
    repair(&place, "segment 0000000000000002: the header is damaged");
    there = count_completed(&place, "k", MANY);
    assert_true(there > MANY / 3 && there < MANY - 10);
    assert_int_equal(access(inside(&place, "quarantine/0000000000000002-0"), F_OK), 0);
    place_remove(&place);
}

static void truncated_file(void **state)
{
    place_t place;
    int there;

    make_many(&place);
    assert_int_equal(truncate(segment(&place, 2), 20000), 0);
    assert_open_fails(place.url, ONCE_E_CORRUPT, "segment 0000000000000002 is damaged at ");
    repair(&place, "segment 0000000000000002 is ");
    there = count_completed(&place, "k", MANY);
    assert_true(there > MANY / 3 && there < MANY);
    assert_int_equal(truncate(segment(&place, 2), 0), 0);
    repair(&place, "segment 0000000000000002: the header is damaged");
    assert_true(count_completed(&place, "k", MANY) < there);
    place_remove(&place);
}

static void a_newer_segment_is_left_alone(void **state)
{
    place_t place;
    bytes_t before, after;
    run_t r;

    make_many(&place);
    before = read_bytes(segment(&place, 2));
    assert_memory_equal(before.data, "ONCELOG3", 8);
    before.data[7] = '4';
    write_bytes(segment(&place, 2), &before);
    r = run("fsck", place.url, "--repair", NULL);
    assert_run(r, ONCE__CLI_STORE);
    assert_has(r.err, "segment 0000000000000002 was written by a newer version of once");
    run_free(&r);
    after = read_bytes(segment(&place, 2));
    assert_int_equal(before.len, after.len);
    assert_memory_equal(before.data, after.data, after.len);
    free(before.data);
    free(after.data);
    place_remove(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damage_to_a_head),
        cmocka_unit_test(missing_segment),
        cmocka_unit_test(missing_ends),
        cmocka_unit_test(what_is_lost_is_counted),
        cmocka_unit_test(missing_manifest),
        cmocka_unit_test(damage_to_a_record),
        cmocka_unit_test(damaged_header),
        cmocka_unit_test(truncated_file),
        cmocka_unit_test(a_newer_segment_is_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
