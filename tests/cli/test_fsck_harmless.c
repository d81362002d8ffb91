/*
 * once fsck: what looks like damage, and is what killed programs leave.
 */
#include "checking.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bytes.h"
#include "records.h"

/* A program that was killed leaves a segment without its seal. Returns its number. */
static uint32_t killed_writer(place_t *place)
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
    uint32_t number = killed_writer(&place);
    uint64_t end = find_frame(&place, number, -1, &frame);

    spoil(segment(&place, number), (long)end, 100);
    report = fsck_json(&place, ONCE__CLI_OK);
    assert_int_equal(json_number_of(report, "torn"), 1);
    assert_int_equal(json_number_of(report, "problems"), 0);
    assert_int_equal(json_number_of(report, "completed"), MANY + 1);
    json_decref(report);
    assert_int_equal(count_completed(&place, "k", MANY), MANY);
    place_remove(&place);
}

/* A program that was killed between telling the index that a segment is gone and removing its file. */
static void leftover(void **state)
{
    char kept[256];
    place_t place;
    json_t *report, *finding;
    once_t *once;

    place_make(&place, "?segment=64k");
    once = open_store(place.url);
    assert_int_equal(once_claim_release_sync(claim(once, "s", "k", "ttl=1s"), 0, slice(""), NULL),
                     ONCE_OK);
    snprintf(kept, sizeof(kept), "%s/kept", place.top);
    copy_tree(segment(&place, 1), kept);
    once_close(once, -1);
    once = open_store(place.url);
    while (access(segment(&place, 1), F_OK) == 0) {
        assert_int_equal(once_store_reap_sync(once, 0, NULL), ONCE_OK);
    }
    make_completed(once, "s", "other", "x");
    once_close(once, -1);
    assert_int_equal(rename(kept, segment(&place, 1)), 0);
    report = fsck_json(&place, ONCE__CLI_OK);
    finding = json_array_get(json_object_get(report, "findings"), 0);
    assert_string_equal(json_text_of(finding, "kind"), "leftover");
    assert_int_equal(json_number_of(report, "completed"), 1);
    json_decref(report);
    place_remove(&place);
}

/* Appends a frame to a segment that a killed program left. */
static void append(const place_t *place, uint32_t number, const uint8_t *id, const uint8_t *record,
                   size_t len)
{
    once__frame_t frame;
    uint8_t *room = calloc(1, ONCE__FRAME_HEADER + len + 8);
    once__place_t at = {number, find_frame(place, number, -1, &frame)};
    int fd = open(segment(place, number), O_RDWR);

    once__frame_write_bytes(room, at, frame.watermark, id, record, len);
    assert_int_equal(pwrite(fd, room, ONCE__FRAME_HEADER + len, (off_t)at.offset),
                     (ssize_t)(ONCE__FRAME_HEADER + len));
    close(fd);
    free(room);
}

/* Written, but killed before the index knew of it: it was not acknowledged, so it is not missed. */
static void last_breath(void **state)
{
    once__frame_t frame;
    place_t place;
    uint32_t number = killed_writer(&place);
    uint64_t at = find_frame(&place, number, 0, &frame);
    bytes_t bytes = read_bytes(segment(&place, number));
    uint8_t id[ONCE_ID_SIZE] = {1, 2, 3};

    assert_true(at > 0 && frame.kind == ONCE__FRAME_RECORD);
    append(&place, number, id, bytes.data + at + ONCE__FRAME_HEADER, frame.len);
    assert_in_order(&place);
    /* A second one cannot be: the first would be known by then. */
    id[5] = 9;
    append(&place, number, id, bytes.data + at + ONCE__FRAME_HEADER, frame.len);
    json_decref(fsck_json(&place, ONCE__CLI_NO));
    free(bytes.data);
    place_remove(&place);
}

static void order(void **state)
{
    once__frame_t frame;
    place_t place;
    json_t *report, *finding;
    uint32_t number = killed_writer(&place);
    uint64_t at = find_frame(&place, 1, 0, &frame);
    bytes_t bytes = read_bytes(segment(&place, 1));
    uint8_t *record = bytes.data + at + ONCE__FRAME_HEADER;

    assert_int_equal(frame.kind, ONCE__FRAME_RECORD);
    once__put64(record + 40, once__get64(record + 40) - 1); /* changed a moment before it was */
    append(&place, number, bytes.data + at + 16, record, frame.len);
    free(bytes.data);
    report = fsck_json(&place, ONCE__CLI_NO);
    finding = json_array_get(json_object_get(report, "findings"), 0);
    assert_string_equal(json_text_of(finding, "kind"), "order");
    repair(&place, "older state");
    json_decref(report);
    place_remove(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(torn_tail),
        cmocka_unit_test(leftover),
        cmocka_unit_test(last_breath),
        cmocka_unit_test(order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
