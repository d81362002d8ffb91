/*
 * once fsck: what is damaged or missing, and what --repair does about it.
 */
#include "checking.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "records.h"
#include "store/local/crc32c.h"

/* Bytes in a response that look like the last frame of the segment: nothing behind them may be lost. */
static void forged_end(void **state)
{
    place_t place;
    once__frame_t frame;
    bytes_t bytes;
    uint64_t at;
    run_t r;

    make_many(&place);
    assert_int_equal(unlink(inside(&place, "index")), 0);
    bytes = read_bytes(segment(&place, 1));
    at = find_frame(&place, 1, 9, &frame);
    assert_true(frame.kind == ONCE__FRAME_COMPLETION && frame.size > 400);
    once__frame_write(bytes.data + at + 200, (once__place_t){1, at + 200}, at + 200, NULL, NULL);
    bytes.data[at + 1] ^= 0x40; /* its length leads nowhere */
    write_bytes(segment(&place, 1), &bytes);
    free(bytes.data);
    r = fsck(&place);
    assert_run(r, ONCE__CLI_NO);
    assert_has(r.out, "200 bytes are damaged");
    run_free(&r);
    assert_open_fails(place.url, ONCE_E_CORRUPT, "segment 00000001 is damaged");
    repair(&place, "segment 00000001");
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
    assert_has(r.out, "segment 00000002 is missing; it was begun between 20");
    assert_has(r.out, "their operations can run again");
    assert_has(r.err, "copy the directory");
    run_free(&r);
    report = fsck_json(&place, ONCE__CLI_NO);
    assert_int_equal(json_number_of(report, "missing"), 1);
    assert_true(json_number_of(json_object_get(report, "lost"), "completed") > 10);
    json_decref(report);
    repair(&place, "segment 00000002 is missing");
    there = count_completed(&place, "k", MANY);
    assert_true(there > MANY / 3 && there < MANY - 10);
    assert_int_equal(unlink(inside(&place, "index")), 0); /* a rebuild accepts it, too */
    assert_int_equal(count_completed(&place, "k", MANY), there);
    place_remove(&place);
}

/* The last one, and the first one: only the index knows of them. */
static void missing_ends(void **state)
{
    place_t place;
    json_t *report;
    char text[80];

    make_many(&place);
    assert_int_equal(unlink(segment(&place, 1)), 0);
    snprintf(text, sizeof(text), "segment %08x is missing", last_segment(&place));
    assert_int_equal(unlink(segment(&place, last_segment(&place))), 0);
    report = fsck_json(&place, ONCE__CLI_NO);
    assert_int_equal(json_number_of(report, "missing"), 2);
    json_decref(report);
    assert_open_fails(place.url, ONCE_E_CORRUPT, "segment 00000001 is missing");
    repair(&place, text);
    assert_true(count_completed(&place, "k", MANY) > 0);
    place_remove(&place);
}

/* The first frame from the n-th on that refers to others. */
static uint64_t find_completion(const place_t *place, uint32_t number, int n, once__frame_t *frame)
{
    uint64_t at = find_frame(place, number, n, frame);

    while (frame->kind != ONCE__FRAME_COMPLETION) {
        at = find_frame(place, number, ++n, frame);
    }
    return at;
}

/* What a damaged frame was needed for is damage, too: it is reported, never served, and goes with the repair. */
static void damage_to_what_others_refer_to(void **state)
{
    for (int template = 0; template <2; template ++) {
        char body[1000];
        once__completion_t completion;
        once__frame_t frame;
        json_t *report;
        place_t place;
        bytes_t bytes;
        once_t *once;
        uint64_t at;
        int lost;
        place_make(&place, "?segment=64k&compress=off");
        once = open_store(place.url);
        make_unlike(body, sizeof(body), 1);
        for (int i = 0; i < 10; i++) {
            char key[8];
            snprintf(key, sizeof(key), "k%d", i);
            make_completed(once, "s", key, body);
        }
        once_close(once, -1);
        bytes = read_bytes(segment(&place, 1));
        at = find_completion(&place, 1, 4, &frame);
        assert_true(
            once__frame_read(&frame, (once__place_t){1, at}, bytes.data + at, bytes.len - at));
        assert_int_equal(once__completion_read(&completion, &frame, at), ONCE_OK);
        free(bytes.data);
        assert_true(completion.template != 0 && completion.template <at);
        at = template ? completion.template : completion.claim;
        spoil(segment(&place, 1), (long)at + 60, 1);
        lost = template ? 10 : 1;
        report = fsck_json(&place, ONCE__CLI_NO);
        assert_int_equal(json_number_of(report, "damaged"), lost + !template);
        json_decref(report);
        once = open_store(place.url);
        assert_int_equal(once_close(once, -1), ONCE_OK);
        repair(&place, "are damaged");
        assert_int_equal(count_completed(&place, "k", 10), 10 - lost);
        assert_in_order(&place);
        place_remove(&place);
    }
}

static void damage_in_the_middle(void **state)
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
    spoil(segment(&place, 2), (long)at + 60, 1);
    before = read_bytes(segment(&place, 2));
    report = fsck_json(&place, ONCE__CLI_NO);
    assert_int_equal(json_number_of(report, "damaged"), 1);
    assert_int_equal(json_number_of(report, "damaged_bytes"), frame.size);
    finding = json_array_get(json_object_get(report, "findings"), 0);
    assert_string_equal(json_text_of(finding, "kind"), "damage");
    assert_int_equal(json_number_of(finding, "segment"), 2);
    assert_int_equal(json_number_of(finding, "offset"), at);
    assert_int_equal(json_number_of(finding, "length"), frame.size);
    json_decref(report);
    assert_int_equal(access(inside(&place, "quarantine"), F_OK), -1);

    snprintf(text, sizeof(text), "segment 00000002, offset %llu: %u bytes are damaged",
             (unsigned long long)at, frame.size);
    repair(&place, text);
    snprintf(text, sizeof(text), "quarantine/00000002-%llu", (unsigned long long)at);
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

static void damaged_header(void **state)
{
    place_t place;

    make_many(&place);
    spoil(segment(&place, 2), 10, 3);
    repair(&place, "segment 00000002: its header is damaged");
    assert_int_equal(count_completed(&place, "k", MANY), MANY); /* nothing is lost */
    place_remove(&place);
}

static void truncated_file(void **state)
{
    place_t place;
    int there;

    make_many(&place);
    assert_int_equal(truncate(segment(&place, 2), 20000), 0);
    repair(&place, "segment 00000002: its header is damaged"); /* it tells another size */
    there = count_completed(&place, "k", MANY);
    assert_true(there > MANY / 3 && there < MANY);
    assert_int_equal(truncate(segment(&place, 2), 0), 0);
    repair(&place, "segment 00000002: its header is damaged");
    assert_true(count_completed(&place, "k", MANY) < there);
    place_remove(&place);
}

static void a_newer_segment_is_left_alone(void **state)
{
    uint8_t header[ONCE__SEGMENT_HEADER];
    place_t place;
    bytes_t before, after;
    run_t r;

    make_many(&place);
    before = read_bytes(segment(&place, 2));
    memcpy(header, before.data, sizeof(header));
    assert_memory_equal(header, "ONCELOG2", 8);
    header[7] = '3';
    once__put32(header + 12, 0);
    once__put32(header + 12, once__crc32c(0, header, sizeof(header)));
    memcpy(before.data, header, sizeof(header));
    write_bytes(segment(&place, 2), &before);
    r = run("fsck", place.url, "--repair", NULL);
    assert_run(r, ONCE__CLI_STORE);
    assert_has(r.err, "segment 00000002 was written by a newer version of once");
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
        cmocka_unit_test(forged_end),
        cmocka_unit_test(missing_segment),
        cmocka_unit_test(missing_ends),
        cmocka_unit_test(damage_in_the_middle),
        cmocka_unit_test(damage_to_what_others_refer_to),
        cmocka_unit_test(damaged_header),
        cmocka_unit_test(truncated_file),
        cmocka_unit_test(a_newer_segment_is_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
