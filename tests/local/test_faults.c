/*
 * A disk that fails: syncs, writes and reads that do not work, no room.
 */
#include "faulty.h"

#include "support/testing.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Threads of the store may be at it. */
static void crash(survival_t survival, dice_t *dice, const char *to)
{
    (void)pthread_mutex_lock(&the.disk.lock);
    disk_crash(&the.disk, survival, dice, to);
    (void)pthread_mutex_unlock(&the.disk.lock);
}

/* ------------------------------------------------------------------------------------------------------ failed syncs */

static void test_a_failed_sync_ends_the_handle(void **state)
{
    once_t *other = place_open(the.store, QUERY, NULL);
    told_t held = ask(the.once, "held", NULL), told;
    unsigned syncs;

    assert_int_equal(held.outcome, ONCE_OUTCOME_RUN);
    do_with_body(the.once, "done", 201, 10);
    the.disk.fail_sync = EIO;
    told = ask(the.once, "unlucky", NULL);
    assert_int_equal(told.error, ONCE_E_UNAVAILABLE);
    syncs = the.disk.syncs;
    /* The disk works again, but nobody knows what it has: nothing is tried again as if nothing had happened. */
    the.disk.fail_sync = 0;
    assert_int_equal(ask(the.once, "other", NULL).error, ONCE_E_UNAVAILABLE);
    assert_int_equal(ask(the.once, "done", NULL).error, ONCE_E_UNAVAILABLE);
    assert_int_equal(get(the.once, "done").error, ONCE_E_UNAVAILABLE);
    assert_int_equal(complete(held.claim, 200, "", 0).error, ONCE_E_UNAVAILABLE);
    assert_int_equal(the.disk.syncs, syncs);
    /* Others go on, also with what was left half done. */
    do_with_body(other, "others", 202, 10);
    assert_int_equal(ask(other, "done", NULL).status, 201);
    assert_int_equal(ask(other, "held", NULL).outcome, ONCE_OUTCOME_BUSY);
    told = ask(other, "unlucky", NULL);
    assert_int_equal(told.error, ONCE_OK);
    assert_int_equal(told.outcome, ONCE_OUTCOME_BUSY); /* its claim was written, if not answered */
    assert_int_equal(the.disk.syncs, syncs);
    assert_int_equal(once_close(other, 5000), ONCE_OK);
    /* And so does every process that opens it again. */
    (void)once_close(the.once, 0);
    the.once = place_open(the.store, QUERY, &the.disk.hooks);
    assert_int_equal(ask(the.once, "done", NULL).status, 201);
    do_with_body(the.once, "again", 203, 10);
}

/* The write that failed may be there or not; what was answered before is there. */
static void test_a_failed_sync_and_then_a_crash(void **state)
{
    dice_t dice = {1};
    told_t told;

    do_with_body(the.once, "done", 201, 3000);
    the.disk.fail_sync = EIO;
    told = ask(the.once, "unlucky", NULL);
    assert_int_equal(told.error, ONCE_E_UNAVAILABLE);
    for (unsigned i = 0; i < 20; i++) {
        char copy[PLACE_SIZE], name[32];
        once_t *once;
        (void)snprintf(name, sizeof(name), "copy-%u", i);
        place_join(copy, the.base, name);
        crash(SURVIVES_SOMETHING, &dice, copy);
        once = place_open(copy, QUERY, NULL);
        assert_int_equal(ask(once, "done", NULL).status, 201);
        told = get(once, "unlucky");
        assert_true(told.error == ONCE_E_NOT_FOUND || told.state == ONCE_STATE_PENDING);
        (void)once_close(once, 1000);
    }
}

/* ------------------------------------------------------------------------------------------------------------ no room */

static void test_no_room(void **state)
{
    uint8_t late[500];
    unsigned count = 0;
    dice_t dice = {1};
    told_t told, held = ask(the.once, "held", NULL);

    do_with_body(the.once, "done", 201, 10);
    the.disk.full = 1;
    do {
        char key[32];
        (void)snprintf(key, sizeof(key), "key-%u", count++);
        told = ask(the.once, key, NULL);
        if (told.claim != NULL) {
            once_claim_drop(told.claim);
        }
    } while (told.error == ONCE_OK && count < 2000);
    assert_int_equal(told.error, ONCE_E_FULL);
    assert_int_equal(ask(the.once, "done", NULL).status, 201);
    assert_int_equal(get(the.once, "key-0").state, ONCE_STATE_PENDING);
    assert_int_equal(ask(the.once, "key-0", NULL).outcome, ONCE_OUTCOME_BUSY);
    dice_fill(&dice, late, sizeof(late));
    assert_int_equal(complete(held.claim, 202, late, sizeof(late)).error, ONCE_E_FULL);
    the.disk.full = 0;
    do_with_body(the.once, "room again", 203, 10);
    /* The library goes on with what it could not write down, by itself. */
    do {
        assert_true(once_wait(the.once, 1000) >= 0);
        told = get(the.once, "held");
    } while (told.state == ONCE_STATE_PENDING);
    assert_int_equal(told.status, 202);
}

/* ------------------------------------------------------------------------------------------------------ failed writes */

static void test_short_writes(void **state)
{
    dice_t dice = {1};
    char copy[PLACE_SIZE];
    once_t *once;

    the.disk.short_write = 100;
    do_with_body(the.once, "done", 201, 3000);
    do_with_body(the.once, "large", 202, 100000);
    place_join(copy, the.base, "copy");
    crash(SURVIVES_NOTHING, &dice, copy);
    once = place_open(copy, QUERY, NULL);
    assert_int_equal(ask(once, "done", NULL).status, 201);
    assert_int_equal(ask(once, "large", NULL).status, 202);
    (void)once_close(once, 1000);
}

static void test_a_failed_write_ends_the_handle(void **state)
{
    once_t *other = place_open(the.store, QUERY, NULL);
    unsigned syncs;
    told_t told;

    do_with_body(the.once, "done", 201, 10);
    the.disk.fail_write = EIO;
    syncs = the.disk.syncs;
    assert_int_equal(ask(the.once, "unlucky", NULL).error, ONCE_E_UNAVAILABLE);
    the.disk.fail_write = 0;
    assert_int_equal(ask(the.once, "other", NULL).error, ONCE_E_UNAVAILABLE);
    assert_int_equal(the.disk.syncs, syncs);
    /* Others have what it could not write. */
    assert_int_equal(ask(other, "done", NULL).status, 201);
    told = ask(other, "unlucky", NULL);
    assert_int_equal(told.outcome, ONCE_OUTCOME_BUSY);
    do_with_body(other, "others", 202, 10);
    assert_int_equal(once_close(other, 5000), ONCE_OK);
}

/* The room was promised when the file was made; some disks break that promise. Nothing is answered, and nothing is lost. */
static void test_no_room_to_write(void **state)
{
    dice_t dice = {1};
    char copy[PLACE_SIZE];
    once_t *once;
    told_t told;

    for (unsigned working = 0; working < 4; working++) {
        char key[32];
        (void)snprintf(key, sizeof(key), "key-%u", working);
        do_with_body(the.once, "done", 201, 10);
        the.disk.short_write = 40; /* so that it fails in the middle of a frame */
        the.disk.writes_left = working;
        the.disk.fail_write = ENOSPC;
        told = ask(the.once, key, NULL);
        assert_int_equal(told.error, ONCE_E_UNAVAILABLE);
        assert_int_equal(ask(the.once, "more", NULL).error, ONCE_E_FULL);
        (void)snprintf(key, sizeof(key), "copy-%u", working);
        place_join(copy, the.base, key);
        crash(SURVIVES_EVERYTHING, &dice, copy);
        once = place_open(copy, QUERY, NULL);
        assert_int_equal(ask(once, "done", NULL).status, 201);
        (void)once_close(once, 1000);
        the.disk.fail_write = 0;
        (void)snprintf(key, sizeof(key), "key-%u", working);
        assert_int_equal(get(the.once, key).state, ONCE_STATE_PENDING);
        assert_int_equal(once_record_purge_sync(the.once, get(the.once, "done").token, 1, NULL),
                         ONCE_OK);
    }
    do_with_body(the.once, "room again", 203, 10);
}

/* ------------------------------------------------------------------------------------------------------- failed reads */

static void open_again(void)
{
    assert_int_equal(once_close(the.once, 5000), ONCE_OK);
    the.once = place_open(the.store, QUERY, &the.disk.hooks);
}

/* A sector that cannot be read concerns the records in it, and no others. */
static void test_a_failed_read(void **state)
{
    told_t told;

    do_with_body(the.once, "bad", 201, 3000);
    do_with_body(the.once, "good", 202, 9000); /* so that no read of it touches the other one */
    disk_read_by_hook(&the.disk);
    open_again();
    the.disk.fail_read = ONCE__SEGMENT_HEADER + 1000; /* in the response */
    assert_int_equal(ask(the.once, "good", NULL).status, 202);
    told = ask(the.once, "bad", NULL);
    assert_true(told.error != ONCE_OK && told.claim == NULL);
    assert_int_not_equal(get(the.once, "bad").error, ONCE_OK);
    assert_int_not_equal(get(the.once, "bad").error, ONCE_E_NOT_FOUND);
    do_with_body(the.once, "new", 203, 10);
    the.disk.fail_read = 0;
    assert_int_equal(ask(the.once, "bad", NULL).status, 201);
}

/* Then nobody knows what else was there: the store does not open, and says which file it is. */
static void test_a_failed_read_of_a_rebuild(void **state)
{
    once_error_t err = {0};
    once_t *once = NULL;

    do_with_body(the.once, "bad", 201, 3000);
    disk_read_by_hook(&the.disk);
    assert_int_equal(once_close(the.once, 5000), ONCE_OK);
    the.disk.fail_read = ONCE__SEGMENT_HEADER + 10;
    assert_int_equal(place_try(the.store, QUERY, &the.disk.hooks, &once, &err), ONCE_E_IO);
    assert_non_null(strstr(err.text, "0000000000000001"));
    assert_non_null(strstr(err.text, "once fsck"));
    the.disk.fail_read = 0;
    the.once = place_open(the.store, QUERY, &the.disk.hooks);
    assert_int_equal(ask(the.once, "bad", NULL).status, 201);
}

/* Somebody cuts a file short that is open: damage, and not a signal. */
static void test_a_segment_cut_short(void **state)
{
    char path[PLACE_SIZE];
    uint64_t count;
    told_t told;

    do_with_body(the.once, "cut", 201, 10000);
    open_again();
    assert_int_equal(ask(the.once, "cut", NULL).status, 201); /* it is open now */
    place_join(path, the.store, "segments/0000000000000001.log");
    assert_int_equal(truncate(path, 4096), 0);
    assert_int_equal(reap(the.once, &count), ONCE_OK);
    told = get(the.once, "cut");
    assert_int_equal(told.error, ONCE_E_CORRUPT);
    do_with_body(the.once, "new", 203, 10);
}

/* ------------------------------------------------------------------------------------------------------ slow reads */

/* Longer than the second after which a rebuild says how far it has come. */
static ssize_t slow_read(void *data, int fd, void *bytes, size_t len, uint64_t offset)
{
    (void)usleep(300000);
    return pread(fd, bytes, len, (off_t)offset);
}

static void hear(void *data, const char *message)
{
    (void)snprintf(data, 200, "%s", message);
}

static void test_a_slow_rebuild_says_how_far_it_is(void **state)
{
    once__disk_t slow = once__real_disk;
    once__directory_t directory;
    once_error_t err = {0};
    char heard[200] = "";
    once__directory_config_t config = {.path = the.store,
                                       .disk = &slow,
                                       .any_filesystem = 1,
                                       .timeout_ms = 5000,
                                       .progress = hear,
                                       .data = heard};

    for (unsigned i = 0; i < 20; i++) {
        char key[16];
        (void)snprintf(key, sizeof(key), "k%u", i);
        do_with_body(the.once, key, 201, 40000);
    }
    assert_int_equal(once_close(the.once, 5000), ONCE_OK);
    place_forget_index(the.store);
    slow.read = slow_read;
    assert_int_equal(once__directory_open(&directory, &config, &err), ONCE_OK);
    once__directory_close(&directory);
    assert_non_null(strstr(heard, "rebuilding the index of"));
    assert_non_null(strstr(heard, " MB of its log read"));
    the.once = place_open(the.store, QUERY, &the.disk.hooks);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, faulty_start, faulty_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_failed_sync_ends_the_handle),
        TEST(test_a_failed_sync_and_then_a_crash),
        TEST(test_no_room),
        TEST(test_short_writes),
        TEST(test_a_failed_write_ends_the_handle),
        TEST(test_no_room_to_write),
        TEST(test_a_failed_read),
        TEST(test_a_failed_read_of_a_rebuild),
        TEST(test_a_segment_cut_short),
        TEST(test_a_slow_rebuild_says_how_far_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
