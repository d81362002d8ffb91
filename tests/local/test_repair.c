/*
 * fsck --repair, and a crash at each of its syncs: what was whole is whole afterwards, and a repair that is repeated ends well.
 */
#include "disk.h"

#include "support/testing.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "store/local/fsck.h"

#define QUERY  "segment=64k&renew=off&reap=off"
#define KEYS   60
#define COPIES 64

static char base[PLACE_SIZE], path[PLACE_SIZE];
static unsigned copies;

static const char *copy_path(unsigned number, char out[PLACE_SIZE])
{
    char name[32];

    (void)snprintf(name, sizeof(name), "copy-%u", number);
    place_join(out, base, name);
    return out;
}

static void crash(disk_t *disk, void *data)
{
    dice_t *dice = data;
    char to[PLACE_SIZE];

    must(copies + 2 <= COPIES, "too many syncs");
    disk_crash(disk, SURVIVES_NOTHING, dice, copy_path(copies++, to));
    disk_crash(disk, SURVIVES_EVERYTHING, dice, copy_path(copies++, to));
}

static void fill(void)
{
    once_t *once = place_open(path, QUERY, NULL);
    uint8_t body[3000];
    dice_t dice = {3};

    for (unsigned key = 0; key < KEYS; key++) {
        char name[32];
        told_t told;
        (void)snprintf(name, sizeof(name), "key-%u", key);
        told = ask(once, name, "ttl=1h");
        assert_int_equal(told.outcome, ONCE_OUTCOME_RUN);
        dice_fill(&dice, body, sizeof(body));
        assert_int_equal(complete(told.claim, 201, body, sizeof(body)).outcome, ONCE_OUTCOME_DONE);
    }
    assert_int_equal(once_close(once, 5000), ONCE_OK);
}

static void note_first(void *data, uint64_t offset, const once__frame_t *frame)
{
    uint64_t *first = data;

    if (*first == 0 && frame->state == ONCE_STATE_COMPLETED) {
        *first = offset;
    }
}

/* In the body of the first completed record of a segment. */
static void damage(unsigned segment)
{
    uint64_t offset = 0;

    (void)place_frames(path, segment, note_first, &offset);
    place_flip(path, segment, (offset + ONCE__FRAME_HEADER + 100) * 8);
}

/* How many problems there were. */
static uint64_t repair(const char *store, const once__disk_t *disk)
{
    once_local_fsck_report_t report = ONCE_LOCAL_FSCK_REPORT_INIT;
    once_local_fsck_options_t how = ONCE_LOCAL_FSCK_OPTIONS_INIT;
    char url[PLACE_SIZE + 8];
    once_error_t err = {0};

    (void)snprintf(url, sizeof(url), "local:%s", store);
    how.repair = 1;
    if (once__local_fsck(url, disk, &how, &report, &err) != ONCE_OK) {
        fail_msg("%s: %s", store, err.text);
    }
    assert_int_equal(report.left, 0);
    return report.problems;
}

/* All but the two that were damaged. */
static void check_records(const char *store)
{
    once_t *once = place_open(store, QUERY, NULL);
    unsigned found = 0;

    for (unsigned key = 0; key < KEYS; key++) {
        char name[32];
        (void)snprintf(name, sizeof(name), "key-%u", key);
        found += get(once, name).status == 201;
    }
    assert_int_equal(found, KEYS - 2);
    assert_int_equal(once_close(once, 5000), ONCE_OK);
}

static void test_a_crash_at_each_sync(void **state)
{
    dice_t dice = {1};
    disk_t disk;

    place_make(base);
    place_join(path, base, "store");
    fill();
    assert_true(place_count(path, "segments", ".log") >= 3);
    damage(1);
    damage(2);
    disk_init(&disk, path);
    disk.boundary = crash;
    disk.data = &dice;
    assert_true(repair(path, &disk.hooks) > 0);
    crash(&disk, &dice); /* and when all is done */
    print_message("%u copies\n", copies);
    assert_true(copies >= 10);
    check_records(path);
    for (unsigned i = 0; i < copies; i++) {
        char copy[PLACE_SIZE];
        uint64_t problems = repair(copy_path(i, copy), &once__real_disk);
        assert_true(problems == 0 || i + 2 < copies); /* what it said was repaired stays so */
        check_records(copy);
    }
    disk_free(&disk);
    place_remove(base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_crash_at_each_sync)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
