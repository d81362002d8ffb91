/*
 * once fsck: what it finds, what it leaves alone, and what --repair does about it.
 */
#include "harness.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/bytes.h"
#include "local.h"
#include "records.h"
#include "store/local/crc32c.h"
#include "store/local/frame.h"
#include "terminal.h"

#define MANY 120

/* ---------------------------------------------------------------------------------------------------------- bytes */

typedef struct bytes {
    uint8_t *data;
    size_t len;
} bytes_t;

static bytes_t read_bytes(const char *path)
{
    bytes_t bytes = {0};
    struct stat st;
    int fd = open(path, O_RDONLY);

    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    bytes.len = (size_t)st.st_size;
    bytes.data = malloc(bytes.len + 1);
    assert_int_equal(read(fd, bytes.data, bytes.len), st.st_size);
    close(fd);
    return bytes;
}

/* In place: the file stays the same one. */
static void write_bytes(const char *path, const bytes_t *bytes)
{
    int fd = open(path, O_RDWR);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes->len), 0);
    assert_int_equal(pwrite(fd, bytes->data, bytes->len, 0), (ssize_t)bytes->len);
    close(fd);
}

static const char *segment(const place_t *place, uint32_t number)
{
    char name[40];

    snprintf(name, sizeof(name), "segments/%08x.log", number);
    return inside(place, name);
}

/*
 * Where the n-th frame of a segment begins (from 0), or where the first place without one is: n = -1. The frame is valid until the
 * next call.
 */
static uint64_t find_frame(const place_t *place, uint32_t number, int n, once__frame_t *frame)
{
    static bytes_t bytes;
    once__place_t at = {number, ONCE__SEGMENT_HEADER};

    free(bytes.data);
    bytes = read_bytes(segment(place, number));
    while (n-- != 0 && once__frame_read(frame, at, bytes.data + at.offset, bytes.len - at.offset)) {
        at.offset += frame->size;
    }
    if (n >= -1) {
        (void)once__frame_read(frame, at, bytes.data + at.offset, bytes.len - at.offset);
    }
    return at.offset;
}

static uint32_t last_segment(const place_t *place)
{
    DIR *stream = opendir(inside(place, "segments"));
    const struct dirent *entry;
    uint32_t last = 0;

    while ((entry = readdir(stream)) != NULL) {
        unsigned number;
        if (strstr(entry->d_name, ".log") != NULL && sscanf(entry->d_name, "%8x", &number) == 1 &&
            number > last) {
            last = number;
        }
    }
    closedir(stream);
    return last;
}

/* ---------------------------------------------------------------------------------------------------------- stores */

static void complete_many(once_t *once, const char *prefix, int count)
{
    char body[1000]; /* a few dozen fill a small segment */

    for (int i = 0; i < count; i++) {
        char key[32];
        snprintf(key, sizeof(key), "%s%d", prefix, i);
        make_unlike(body, sizeof(body), (unsigned)i);
        make_completed(once, "s", key, body);
    }
}

static int count_completed(const place_t *place, const char *prefix, int count)
{
    once_t *once = open_store(place->url);
    int found = 0;

    for (int i = 0; i < count; i++) {
        char key[32];
        snprintf(key, sizeof(key), "%s%d", prefix, i);
        found += state_of(once, "s", key) == ONCE_STATE_COMPLETED;
    }
    once_close(once, -1);
    return found;
}

/* MANY completed records in several small segments, closed. */
static void make_many(place_t *place)
{
    once_t *once;

    place_make(place, "?segment=64k&compress=off");
    once = open_store(place->url);
    complete_many(once, "k", MANY);
    once_close(once, -1);
    assert_true(last_segment(place) >= 3);
}

static run_t fsck(const place_t *place)
{
    return run("fsck", place->url, NULL);
}

/* fsck says 0 and tells of nothing that is wrong. */
static void assert_in_order(const place_t *place)
{
    run_t r = fsck(place);

    assert_run(r, ONCE__CLI_OK);
    assert_string_equal(r.err, "");
    run_free(&r);
}

static json_t *fsck_json(const place_t *place, int expected)
{
    run_t r = run("fsck", place->url, "--json", NULL);
    json_t *report;

    assert_run(r, expected);
    assert_int_equal(count_lines(r.out), 1);
    report = json_line(r.out, 0);
    run_free(&r);
    return report;
}

static void repair(const place_t *place, const char *told)
{
    run_t r = run("fsck", place->url, "--repair", NULL);

    assert_run(r, ONCE__CLI_OK);
    assert_has(r.out, told);
    assert_has(r.out, "repaired");
    run_free(&r);
    assert_in_order(place);
}

/* ---------------------------------------------------------------------------------------------------------- in order */

static void counts(void **state)
{
    place_t place;
    once_t *once;
    json_t *report;
    run_t r;

    place_make(&place, "");
    once = open_store(place.url);
    make_pending(once, "s", "p1");
    make_pending(once, "s", "p2");
    make_completed(once, "s", "c", "x");
    make_failed(once, "s", "f", "why");
    make_unknown(once, "s", "u", "hold");
    once_close(once, -1);
    report = fsck_json(&place, ONCE__CLI_OK);
    assert_int_equal(json_number_of(report, "pending"), 2);
    assert_int_equal(json_number_of(report, "completed"), 1);
    assert_int_equal(json_number_of(report, "failed"), 1);
    assert_int_equal(json_number_of(report, "unknown"), 1);
    /* More on a slow machine: a claim that is heard of late is given back and made anew. */
    assert_true(json_number_of(report, "frames") >= 8);
    assert_int_equal(json_number_of(report, "segments"), 1);
    assert_int_equal(json_number_of(report, "writing"), 0);
    assert_int_equal(json_number_of(report, "problems"), 0);
    assert_string_equal(json_text_of(report, "index"), "ok");
    json_decref(report);
    r = fsck(&place);
    assert_has(r.out, "agrees with the log");
    run_free(&r);

    assert_int_equal(unlink(inside(&place, "index")), 0);
    report = fsck_json(&place, ONCE__CLI_OK);
    assert_string_equal(json_text_of(report, "index"), "none");
    assert_true(json_is_null(json_object_get(report, "lost")));
    json_decref(report);
    assert_int_equal(access(inside(&place, "index"), F_OK), -1); /* looking makes nothing */
    place_remove(&place);
}

static void usage(void **state)
{
    place_t place;
    run_t r;

    place_make(&place, "");
    r = fsck(&place);
    assert_run(r, ONCE__CLI_STORE);
    assert_has(r.err, "there is no");
    run_free(&r);
    assert_int_equal(count_names(place.top), 0);
    assert_int_equal(mkdir(place.store, 0700), 0);
    r = fsck(&place);
    assert_run(r, ONCE__CLI_STORE);
    assert_has(r.err, "there is no store in");
    run_free(&r);
    assert_int_equal(count_names(place.store), 0);
    write_text(inside(&place, "x"), "x");
    r = run("fsck", place.url, "--repair", NULL);
    assert_run(r, ONCE__CLI_USAGE);
    assert_has(r.err, "not a once directory");
    run_free(&r);
    r = run("fsck", "memory:", NULL);
    assert_run(r, ONCE__CLI_USAGE);
    assert_has(r.err, "local stores only");
    run_free(&r);
    place_remove(&place);
}

/* --------------------------------------------------------------------------------------------------------- while in use */

static int hold(int ready, int until, void *data)
{
    const place_t *place = data;
    once_t *once = open_store(place->url);
    char byte;

    make_completed(once, "s", "held", "x");
    if (write(ready, "", 1) != 1) {
        return 1;
    }
    (void)!read(until, &byte, 1);
    once_close(once, -1);
    return 0;
}

static void others_may_use_it(void **state)
{
    companion_t companion;
    place_t place;
    json_t *report;
    run_t r;
    bytes_t before, after;

    make_many(&place);
    companion_start(&companion, hold, &place);
    report = fsck_json(&place, ONCE__CLI_OK);
    assert_int_equal(json_number_of(report, "writing"), 1);
    assert_int_equal(json_number_of(report, "completed"), MANY + 1);
    json_decref(report);
    r = fsck(&place);
    assert_has(r.out, "1 being written");
    run_free(&r);

    before = read_bytes(segment(&place, 2));
    spoil(segment(&place, 2), 200, 1);
    r = run("fsck", place.url, "--repair", NULL); /* but not repair it */
    assert_run(r, ONCE__CLI_REFUSED);
    assert_has(r.err, "other programs use");
    assert_has(r.err, "stop them first");
    run_free(&r);
    spoil(segment(&place, 2), 200, 1);
    after = read_bytes(segment(&place, 2));
    assert_int_equal(before.len, after.len);
    assert_memory_equal(before.data, after.data, after.len);
    free(before.data);
    free(after.data);
    companion_stop(&companion);
    assert_in_order(&place);
    place_remove(&place);
}

/* Writes, expires, drops and carries until it is told to stop. */
static int work(int ready, int until, void *data)
{
    const place_t *place = data;
    once_t *once = open_store(place->url);
    char byte;

    if (fcntl(until, F_SETFL, O_NONBLOCK) != 0 || write(ready, "", 1) != 1) {
        return 1;
    }
    for (int i = 0; read(until, &byte, 1) < 0; i++) {
        char key[48], policy[32];
        once_response_t response = ONCE_RESPONSE_INIT;
        once_claim_t *held;
        snprintf(key, sizeof(key), "%d-%d", (int)getpid(), i);
        snprintf(policy, sizeof(policy), "%s", i % 8 == 0 ? "ttl=1h" : "ttl=1s");
        held = claim(once, "s", key, policy);
        response.status = 200;
        if (i % 64 == 1) {
            once_claim_drop(held);
        } else if (once_complete_sync(held, &response, NULL) != ONCE_OK) {
            return 2;
        }
        if (i % 50 == 0 && once_reap_sync(once, 0, NULL) != ONCE_OK) {
            return 3;
        }
    }
    once_close(once, -1);
    return 0;
}

static void under_load(void **state)
{
    companion_t companions[2];
    place_t place;

    place_make(&place, "?segment=64k");
    once_close(open_store(place.url), -1);
    companion_start(&companions[0], work, &place);
    companion_start(&companions[1], work, &place);
    for (int i = 0; i < 40; i++) {
        json_t *report = fsck_json(&place, ONCE__CLI_OK);
        assert_string_equal(json_text_of(report, "index"), "ok");
        json_decref(report);
    }
    companion_stop(&companions[0]);
    companion_stop(&companions[1]);
    assert_in_order(&place);
    place_remove(&place);
}

static void after_kill(void **state)
{
    companion_t companion;
    place_t place;
    int status;

    place_make(&place, "?segment=64k");
    once_close(open_store(place.url), -1);
    for (int i = 0; i < 5; i++) {
        companion_start(&companion, work, &place);
        assert_int_equal(kill(companion.pid, SIGKILL), 0);
        assert_int_equal(waitpid(companion.pid, &status, 0), companion.pid);
        close(companion.until);
        assert_in_order(&place);
    }
    place_remove(&place);
}

/* ---------------------------------------------------------------------------------------------------------------- damage */

/* Bytes in a response that look like the last frame of the segment: nothing behind them may be lost, by nobody. */
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
    assert_has(r.err, "make a copy of the directory");
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

/* What a damaged frame was needed for is damage, too: it is told, never served, and goes with the repair. */
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

/* ------------------------------------------------------------------------------------------------------------- harmless */

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
    assert_int_equal(once_release_sync(claim(once, "s", "k", "ttl=1s"), 0, slice(""), NULL),
                     ONCE_OK);
    snprintf(kept, sizeof(kept), "%s/kept", place.top);
    copy_tree(segment(&place, 1), kept);
    once_close(once, -1);
    once = open_store(place.url);
    while (access(segment(&place, 1), F_OK) == 0) {
        assert_int_equal(once_reap_sync(once, 0, NULL), ONCE_OK);
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

/* Written, but killed before the index knew of it: nobody was told, so nobody can miss it. */
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

/* ---------------------------------------------------------------------------------------------------------------- index */

static void an_index_that_knows_too_little(void **state)
{
    place_t place;
    bytes_t old;
    json_t *report;
    once_t *once;

    make_many(&place);
    old = read_bytes(inside(&place, "index"));
    once = open_store(place.url);
    complete_many(once, "later", 20);
    once_close(once, -1);
    write_bytes(inside(&place, "index"), &old);
    free(old.data);
    report = fsck_json(&place, ONCE__CLI_NO);
    assert_string_equal(json_text_of(report, "index"), "differs");
    assert_int_equal(json_number_of(report, "problems"), 20);
    assert_int_equal(json_number_of(report, "completed"), MANY + 20);
    json_decref(report);
    repair(&place, "the index does not have a record of the log");
    assert_int_equal(count_completed(&place, "later", 20), 20);
    place_remove(&place);
}

/* ---------------------------------------------------------------------------------------------------------------- people */

static void progress(void **state)
{
    terminal_run_t r;
    place_t place;

    make_many(&place);
    {
        const char *const arguments[] = {"fsck", place.url, NULL};
        run_on_terminal(&r, NULL, NULL, NULL, arguments);
    }
    assert_int_equal(r.code, ONCE__CLI_OK);
    assert_has(r.text, "100 %");
    assert_has(r.text, "agrees with the log");
    place_remove(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts),
        cmocka_unit_test(usage),
        cmocka_unit_test(others_may_use_it),
        cmocka_unit_test(under_load),
        cmocka_unit_test(after_kill),
        cmocka_unit_test(forged_end),
        cmocka_unit_test(missing_segment),
        cmocka_unit_test(missing_ends),
        cmocka_unit_test(damage_in_the_middle),
        cmocka_unit_test(damage_to_what_others_refer_to),
        cmocka_unit_test(damaged_header),
        cmocka_unit_test(truncated_file),
        cmocka_unit_test(a_newer_segment_is_left_alone),
        cmocka_unit_test(torn_tail),
        cmocka_unit_test(leftover),
        cmocka_unit_test(last_breath),
        cmocka_unit_test(order),
        cmocka_unit_test(an_index_that_knows_too_little),
        cmocka_unit_test(progress),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
