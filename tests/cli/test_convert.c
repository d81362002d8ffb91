/*
 * once convert: a store that an earlier version wrote (golden/format1) has the same records afterwards. Interrupted anywhere, it
 * can be run again, and until it is done no program takes the store for another.
 */
#include "harness.h"

#include <fcntl.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <once/local.h>

#include "local.h"
#include "records.h"
#include "steps.h"

#define FORMAT_1 SOURCE_DIR "/tests/cli/golden/format1"
#define RECORDS  96

/* A copy of the old store, with the modes that a repository does not keep. */
static void make_old(place_t *place)
{
    place_make(place, "");
    copy_tree(FORMAT_1, place->store);
    assert_int_equal(chmod(place->store, 0700), 0);
    assert_int_equal(unlink(inside(place, "export.jsonl")), 0);
    assert_int_equal(chmod(inside(place, "secrets"), 0600), 0);
    assert_int_equal(chmod(inside(place, "segments"), 0700), 0);
}

static void move(const place_t *place, const char *from, const char *to)
{
    char old[256];

    snprintf(old, sizeof(old), "%s", inside(place, from));
    assert_int_equal(rename(old, inside(place, to)), 0);
}

static int exists(const place_t *place, const char *name)
{
    return access(inside(place, name), F_OK) == 0;
}

/* A line of the export without what depends on the time and what format 1 did not have, the response as a sum. Free it. */
static char *normalise(const char *line)
{
    static const char *const passing[] = {
        "age_ms",  "idle_ms", "created", "changed",     "lease_ms", "lease_until", "expires_ms",
        "expires", "stuck",   "cause",   "description", "holder",   "subject_hash"};
    json_t *record = json_loads(line, 0, NULL), *response;
    char *text;

    assert_non_null(record);
    for (size_t i = 0; i < sizeof(passing) / sizeof(passing[0]); i++) {
        assert_int_equal(json_object_del(record, passing[i]), 0);
    }
    response = json_object_get(record, "response");
    if (response != NULL) {
        unsigned char sum[SHA256_DIGEST_LENGTH];
        char hex[2 * sizeof(sum) + 1];
        text = json_dumps(response, JSON_COMPACT | JSON_SORT_KEYS);
        SHA256((const unsigned char *)text, strlen(text), sum);
        free(text);
        for (size_t i = 0; i < sizeof(sum); i++) {
            snprintf(hex + 2 * i, 3, "%02x", sum[i]);
        }
        assert_int_equal(json_object_set_new(record, "response", json_string(hex)), 0);
    }
    text = json_dumps(record, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(record);
    return text;
}

static char *read_expected(void)
{
    static char text[1 << 16];
    FILE *file = fopen(FORMAT_1 "/export.jsonl", "r");
    size_t len;

    assert_non_null(file);
    len = fread(text, 1, sizeof(text) - 1, file);
    text[len] = '\0';
    fclose(file);
    assert_int_equal(count_lines(text), RECORDS);
    return text;
}

/* It opens, and has exactly the records that the earlier version exported. */
static void assert_same(const place_t *place)
{
    const char *expected = read_expected();
    run_t r = run("keys", "export", "--bodies", place->url, NULL);
    size_t count = 0;

    assert_run(r, ONCE__CLI_OK);
    for (char *line = strtok(r.out, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        char *text = normalise(line);
        assert_has(expected, text);
        free(text);
        count++;
    }
    assert_int_equal(count, RECORDS);
    run_free(&r);
    r = run("fsck", place->url, NULL);
    assert_run(r, ONCE__CLI_OK);
    run_free(&r);
}

static void convert(const place_t *place, const char *says)
{
    run_t r = run("convert", place->url, NULL);

    assert_run(r, ONCE__CLI_OK);
    assert_has(r.out, says);
    run_free(&r);
}

static void assert_refused(const place_t *place, const char *option, int code, const char *says)
{
    run_t r = run("convert", place->url, option, NULL);

    assert_run(r, code);
    assert_has(r.err, says);
    run_free(&r);
}

/* ------------------------------------------------------------------------------------------------------------- records */

static void it_has_the_same_records(void **state)
{
    place_t place;

    make_old(&place);
    assert_open_fails(place.url, ONCE_E_CONFIG, "once convert local:");
    convert(&place, "converted 96 records");
    assert_same(&place);
    assert_false(exists(&place, "segments.old"));
    assert_false(exists(&place, "segments.new"));
    assert_false(exists(&place, "lock"));
    convert(&place, "nothing to convert");
    assert_same(&place);
    place_remove(&place);
}

/* Leases of before do not count, and what hold keeps is kept. */
static void what_was_pending_can_be_settled(void **state)
{
    place_t place;
    once_t *once;
    run_t r;

    make_old(&place);
    convert(&place, "converted");
    once = open_store(place.url);
    assert_int_equal(state_of(once, "shop", "removed"), ONCE_STATE_NONE);
    assert_int_equal(state_of(once, "shop", "held"), ONCE_STATE_PENDING);
    once_close(once, -1);
    r = run("keys", "list", place.url, "--stuck", NULL);
    assert_run(r, ONCE__CLI_OK);
    assert_has(r.out, "held");
    assert_has(r.out, "doubted");
    assert_has(r.out, "pending");
    run_free(&r);
    place_remove(&place);
}

/* -------------------------------------------------------------------------------------------------------- interruptions */

static int convert_and_be_killed(void *data)
{
    const place_t *place = data;

    return once_local_convert(place->url, NULL, NULL, NULL);
}

/* No program takes the store for another before it is converted: it is as it was, or does not open. */
static void assert_not_open(const place_t *place)
{
    once_error_t err = {0};
    once_t *once = NULL;
    int code = once_open(place->url, NULL, &once, &err);

    if (code == ONCE_OK) {
        once_close(once, -1);
        assert_same(place);
    } else {
        assert_true(code == ONCE_E_CONFIG || code == ONCE_E_CORRUPT);
        assert_has(err.text, "once convert");
    }
}

/* Before any system call that changes something. */
static void killed_before_any_step(void **state)
{
    int code = STEPS_KILLED;

    for (int steps = 0; code == STEPS_KILLED; steps++) {
        place_t place;

        make_old(&place);
        steps_left = steps;
        code = in_child(convert_and_be_killed, &place);
        steps_left = -1;
        assert_true(code == 0 || code == STEPS_KILLED);
        assert_not_open(&place);
        convert(&place, "");
        assert_same(&place);
        assert_false(exists(&place, "segments.old"));
        assert_false(exists(&place, "segments.new"));
        place_remove(&place);
    }
}

static void killed_while_it_exchanges(void **state)
{
    place_t place, old;
    char from[256];
    once_t *user;
    once_error_t err;

    /* The old log has its other name. */
    make_old(&place);
    move(&place, "segments", "segments.old");
    assert_open_fails(place.url, ONCE_E_CONFIG, "once convert local:");
    convert(&place, "converted 96 records");
    assert_same(&place);

    /* The new format is written. */
    make_old(&old);
    snprintf(from, sizeof(from), "%s", inside(&old, "segments"));
    move(&place, "segments", "segments.new");
    assert_int_equal(rename(from, inside(&place, "segments.old")), 0);
    assert_open_fails(place.url, ONCE_E_CORRUPT, "run once convert again");
    convert(&place, "nothing to convert");
    assert_same(&place);
    assert_false(exists(&place, "segments.old"));

    /* The new log has its name, and a program uses it already. */
    assert_int_equal(mkdir(inside(&place, "segments.old"), 0700), 0);
    assert_int_equal(once_open(place.url, NULL, &user, &err), ONCE_OK);
    assert_same(&place);
    convert(&place, "nothing to convert");
    assert_false(exists(&place, "segments.old"));
    assert_false(exists(&place, "lock"));
    assert_same(&place);
    assert_int_equal(once_close(user, 5000), ONCE_OK);
    place_remove(&old);
    place_remove(&place);
}

static void not_while_programs_use_it(void **state)
{
    place_t place;
    int fd;

    make_old(&place);
    fd = open(inside(&place, "lock"), O_RDWR | O_CREAT, 0600);
    assert_int_equal(flock(fd, LOCK_SH), 0);
    assert_refused(&place, NULL, ONCE__CLI_REFUSED, "other programs use");
    close(fd);
    convert(&place, "converted 96 records");
    place_remove(&place);
}

/* --------------------------------------------------------------------------------------------------------------- damage */

static void damage_is_refused(void **state)
{
    static const struct {
        long offset;
        size_t len;
    } parts[] = {
        {20, 1},    /* header of the segment */
        {64, 1},    /* length of a frame */
        {200, 600}, /* several frames */
        {4000, 1},  /* a response, perhaps one that others are packed against */
    };

    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        place_t place;
        run_t r;

        make_old(&place);
        spoil(inside(&place, "segments/00000001.log"), parts[i].offset, parts[i].len);
        assert_refused(&place, NULL, ONCE__CLI_STORE,
                       "segments/00000001.log is missing, or damaged at ");
        assert_false(exists(&place, "segments.new"));
        assert_open_fails(place.url, ONCE_E_CONFIG, "once convert local:");
        r = run("convert", place.url, "--accept-loss", NULL);
        assert_run(r, ONCE__CLI_OK);
        assert_has(r.err, "left out ");
        run_free(&r);
        place_remove(&place);
    }
}

static void missing_segments_are_refused(void **state)
{
    static const char *const names[] = {"segments/00000001.log", "segments/00000002.log",
                                        "segments/00000003.log"};

    for (size_t i = 0; i < 3; i++) {
        place_t place;

        make_old(&place);
        assert_int_equal(unlink(inside(&place, names[i])), 0);
        assert_refused(&place, NULL, ONCE__CLI_STORE, "--accept-loss");
        place_remove(&place);
    }
}

static void other_places_are_left_alone(void **state)
{
    place_t place;

    place_make(&place, "");
    assert_refused(&place, NULL, ONCE__CLI_STORE, "there is no");
    assert_int_equal(mkdir(place.store, 0700), 0);
    write_text(inside(&place, "letter"), "dear");
    assert_refused(&place, NULL, ONCE__CLI_USAGE, "is not a once directory");
    place_remove(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_has_the_same_records),
        cmocka_unit_test(what_was_pending_can_be_settled),
        cmocka_unit_test(killed_before_any_step),
        cmocka_unit_test(killed_while_it_exchanges),
        cmocka_unit_test(not_while_programs_use_it),
        cmocka_unit_test(damage_is_refused),
        cmocka_unit_test(missing_segments_are_refused),
        cmocka_unit_test(other_places_are_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
