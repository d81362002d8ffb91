/*
 * A segment that is missing is reported, whichever it is, with an index and without; and accepted only by a repair.
 */
#include "disk.h"

#include "support/testing.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <once/local.h>

#define QUERY "segment=64k&renew=off&reap=off"
#define KEYS  6 /* each takes more than half a segment */

static char base[PLACE_SIZE], path[PLACE_SIZE], names[KEYS + 1][32];

static const char *name_of(unsigned key, char out[16])
{
    (void)snprintf(out, 16, "key-%u", key);
    return out;
}

static void fill(once_t *once, unsigned from, unsigned to, const char *policy)
{
    static uint8_t body[40000];
    dice_t dice = {from};
    char key[16];

    for (; from < to; from++) {
        told_t told = ask(once, name_of(from, key), policy);
        dice_fill(&dice, body, sizeof(body)); /* so that it cannot be compressed */
        assert_int_equal(told.outcome, ONCE_OUTCOME_RUN);
        assert_int_equal(complete(told.claim, 201, body, sizeof(body)).outcome, ONCE_OUTCOME_DONE);
    }
}

static void take_away(const char *name)
{
    char file[PLACE_SIZE];

    place_join(file, path, name);
    assert_int_equal(unlink(file), 0);
}

static int is_segment(const struct dirent *entry)
{
    uint64_t number;

    return once__segment_number(entry->d_name, &number);
}

/* The segments that there are, from 1 on: numbers can have gaps. */
static void name_segments(const char *store)
{
    char folder[PLACE_SIZE];
    struct dirent **found;
    int count;

    place_join(folder, store, "segments");
    count = scandir(folder, &found, is_segment, alphasort);
    assert_int_equal(count, KEYS);
    for (int i = 0; i < count; i++) {
        (void)snprintf(names[i + 1], sizeof(names[0]), "%.20s", found[i]->d_name);
        free(found[i]);
    }
    free(found);
}

static void take_segment(unsigned number)
{
    char name[40];

    (void)snprintf(name, sizeof(name), "segments/%s", names[number]);
    take_away(name);
}

static int start(void **state)
{
    once_t *once;

    place_make(base);
    place_join(path, base, "store");
    once = place_open(path, QUERY, NULL);
    fill(once, 0, KEYS, "ttl=1h");
    assert_int_equal(once_close(once, 5000), ONCE_OK);
    name_segments(path);
    return 0;
}

static int end(void **state)
{
    place_remove(base);
    return 0;
}

static uint64_t fsck(const char *store, int repair)
{
    once_local_fsck_report_t report = ONCE_LOCAL_FSCK_REPORT_INIT;
    once_local_fsck_options_t how = ONCE_LOCAL_FSCK_OPTIONS_INIT;
    char url[PLACE_SIZE + 8];

    (void)snprintf(url, sizeof(url), "local:%s", store);
    how.repair = repair;
    assert_int_equal(once_local_fsck(url, &how, &report, NULL), ONCE_OK);
    assert_int_equal(report.left, repair ? 0 : report.problems);
    return report.missing;
}

static void check_refused(const char *store, unsigned number)
{
    once_error_t err = {0};
    char name[17];
    once_t *once;

    (void)snprintf(name, sizeof(name), "%.16s", names[number]);
    assert_int_equal(place_try(store, QUERY, NULL, &once, &err), ONCE_E_CORRUPT);
    assert_non_null(strstr(err.text, name));
}

/* Accepts the loss of `count` records; then everything else is there, and stays so when the index is made anew. */
static void accept(unsigned count)
{
    assert_int_equal(fsck(path, 1), count);
    for (int anew = 0; anew < 2; anew++) {
        once_t *once = place_open(path, QUERY, NULL);
        unsigned found = 0;
        char key[16];
        for (unsigned i = 0; i < KEYS; i++) {
            found += get(once, name_of(i, key)).status == 201;
        }
        assert_int_equal(found, KEYS - count);
        assert_int_equal(once_close(once, 5000), ONCE_OK);
        assert_int_equal(fsck(path, 0), 0);
    }
}

static void test_any_one(void **state)
{
    for (unsigned number = 1; number <= KEYS; number++) {
        take_segment(number);
        check_refused(path, number);
        assert_int_equal(fsck(path, 0), 1);
        check_refused(path, number);
        accept(1);
        (void)end(state);
        (void)start(state);
    }
}

/* More than one, and where the numbers follow one another: all that the files tell is whole. */
static void test_the_first_ones(void **state)
{
    take_segment(1);
    take_segment(2);
    check_refused(path, 1);
    accept(2);
}

static void test_the_last_ones(void **state)
{
    take_segment(KEYS);
    take_segment(KEYS - 1);
    check_refused(path, KEYS - 1);
    accept(2);
}

static void test_all(void **state)
{
    for (unsigned number = 1; number <= KEYS; number++) {
        take_segment(number);
    }
    assert_int_equal(fsck(path, 0), KEYS);
    check_refused(path, 1);
    accept(KEYS);
}

/* Those that were dropped are not missed, also when all were; and no number is used twice. */
static void test_dropped_ones(void **state)
{
    once_t *once;
    time_t deadline;

    place_join(path, base, "short");
    once = place_open(path, QUERY, NULL);
    fill(once, 0, KEYS, "ttl=1s");
    deadline = time(NULL) + 60;
    /* All but the one that is being written, which goes as well if all of it has expired. */
    while (place_count(path, "segments", ".log") > 1 && time(NULL) < deadline) {
        assert_int_equal(reap(once, NULL), ONCE_OK);
    }
    assert_true(place_count(path, "segments", ".log") <= 1);
    assert_int_equal(once_close(once, 5000), ONCE_OK);
    assert_int_equal(fsck(path, 0), 0);
    once = place_open(path, QUERY, NULL);
    fill(once, 0, 1, "ttl=1h");
    for (unsigned number = 1; number < KEYS; number++) {
        char file[PLACE_SIZE], name[40];
        (void)snprintf(name, sizeof(name), "segments/%016x.log", number);
        place_join(file, path, name);
        assert_int_not_equal(access(file, F_OK), 0); /* at least this many were used */
    }
    assert_int_equal(once_close(once, 5000), ONCE_OK);
}

/* Then nobody knows which segments there were. */
static void test_without_a_manifest(void **state)
{
    once_error_t err = {0};
    once_t *once;

    take_away("segments/manifest");
    assert_int_equal(place_try(path, QUERY, NULL, &once, &err), ONCE_E_CORRUPT);
    assert_non_null(strstr(err.text, "manifest"));
}

static void test_of_a_copy(void **state)
{
    char url[PLACE_SIZE + 8], copy[PLACE_SIZE];

    place_join(copy, base, "copy");
    (void)snprintf(url, sizeof(url), "local:%s", path);
    assert_int_equal(once_local_backup(url, copy, NULL, NULL, NULL), ONCE_OK);
    assert_int_equal(fsck(copy, 0), 0);
    (void)snprintf(path, sizeof(path), "%s", copy);
    take_segment(KEYS);
    check_refused(copy, KEYS);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, start, end)
    const struct CMUnitTest tests[] = {
        TEST(test_any_one),   TEST(test_the_first_ones), TEST(test_the_last_ones),
        TEST(test_all),       TEST(test_dropped_ones),   TEST(test_without_a_manifest),
        TEST(test_of_a_copy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
