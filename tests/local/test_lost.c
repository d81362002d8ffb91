/*
 * A held record that cannot be read any more: its segment goes all the same, and its key is not taken for unused.
 */
#include "place.h"

#include "support/testing.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <once/local.h>

#define QUERY "segment=64k&renew=off&reap=off"

static char base[PLACE_SIZE], path[PLACE_SIZE];

static int start(void **state)
{
    place_make(base);
    place_join(path, base, "store");
    return 0;
}

static int end(void **state)
{
    place_remove(base);
    return 0;
}

/* Two records that hold keeps, in a segment that is finished. */
static void make_held(void)
{
    once_t *once = place_open(path, QUERY, NULL);

    for (int i = 0; i < 2; i++) {
        told_t told = ask(once, i == 0 ? "damaged" : "sound", "recover=hold lease=1h");
        assert_int_equal(told.outcome, ONCE_OUTCOME_RUN);
        once_claim_drop(told.claim);
    }
    assert_int_equal(once_close(once, 5000), ONCE_OK);
}

/* In the first frame of the first segment. */
static void damage(uint64_t at)
{
    char file[PLACE_SIZE];
    uint8_t byte;
    int fd;

    place_join(file, path, "segments/00000001.log");
    fd = open(file, O_RDWR);
    assert_true(fd >= 0);
    at += ONCE__SEGMENT_HEADER;
    assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
    (void)close(fd);
}

static uint32_t first_segment(void)
{
    uint32_t first;
    peek_t peek;

    peek_open(&peek, path);
    first = once__index_first_segment(peek.index);
    peek_close(&peek);
    return first;
}

/* Neither granted nor served; the other one is as it was. */
static void check_keys(once_t *once)
{
    assert_int_equal(ask(once, "damaged", "recover=hold").error, ONCE_E_CORRUPT);
    assert_int_equal(get(once, "damaged").error, ONCE_E_CORRUPT);
    assert_int_equal(get(once, "sound").state, ONCE_STATE_PENDING);
}

/* Moves what is held to a new segment, and leaves that finished. */
static void move(uint32_t first)
{
    once_t *once = place_open(path, QUERY, NULL);

    check_keys(once);
    assert_int_equal(reap(once, NULL), ONCE_OK);
    assert_true(first_segment() > first);
    check_keys(once);
    assert_int_equal(once_close(once, 5000), ONCE_OK);
}

static void remove_index(void)
{
    char file[PLACE_SIZE];

    place_join(file, path, "index");
    assert_int_equal(unlink(file), 0);
}

static void check_fsck(void)
{
    once_local_fsck_report_t report = ONCE_LOCAL_FSCK_REPORT_INIT;
    once_local_fsck_options_t how = ONCE_LOCAL_FSCK_OPTIONS_INIT;
    char url[PLACE_SIZE + 8];
    once_t *once;

    (void)snprintf(url, sizeof(url), "local:%s", path);
    assert_int_equal(once_local_fsck(url, &how, &report, NULL), ONCE_OK);
    assert_int_equal(report.damaged, 1);
    how.repair = 1; /* somebody decides: the loss is accepted */
    assert_int_equal(once_local_fsck(url, &how, &report, NULL), ONCE_OK);
    once = place_open(path, QUERY, NULL);
    assert_int_equal(get(once, "damaged").error, ONCE_E_NOT_FOUND);
    assert_int_equal(get(once, "sound").state, ONCE_STATE_PENDING);
    assert_int_equal(once_close(once, 5000), ONCE_OK);
}

static void check_damage_at(uint64_t at)
{
    make_held();
    damage(at);
    move(1);
    assert_int_equal(place_count(path, "quarantine", ""), 1);
    /* What says so stays where an index is made from, and is moved on like a record. */
    remove_index();
    move(2);
    remove_index();
    move(3);
    assert_int_equal(place_count(path, "quarantine", ""), 1);
    check_fsck();
}

static void test_a_damaged_length(void **state)
{
    check_damage_at(1);
}

static void test_a_damaged_id(void **state)
{
    check_damage_at(16 + 5);
}

static void test_a_damaged_record(void **state)
{
    check_damage_at(ONCE__FRAME_HEADER + 70);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_damaged_length, start, end),
        cmocka_unit_test_setup_teardown(test_a_damaged_id, start, end),
        cmocka_unit_test_setup_teardown(test_a_damaged_record, start, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
