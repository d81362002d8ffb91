/*
 * The newest frame of a record is the one with the highest version, in whichever segment. Nothing that is over comes back when the
 * index is made anew: each test ends with that.
 */
#include "place.h"

#include "support/testing.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <once/local.h>

#include "base/bytes.h"

#define QUERY "segment=64k&renew=off&reap=off"
#define HOUR  ((uint64_t)3600 * 1000)

typedef struct test {
    char base[PLACE_SIZE], store[PLACE_SIZE];
    once_t *one, *two; /* one writes to the older segment */
    peek_t peek;
} test_t;

static test_t the;

static int start(void **state)
{
    memset(&the, 0, sizeof(the));
    place_make(the.base);
    place_join(the.store, the.base, "store");
    the.one = place_open(the.store, QUERY, NULL);
    the.two = place_open(the.store, QUERY, NULL);
    peek_open(&the.peek, the.store);
    return 0;
}

static void close_all(void)
{
    if (the.one != NULL) {
        peek_close(&the.peek);
        assert_int_equal(once_close(the.one, 5000), ONCE_OK);
        assert_int_equal(once_close(the.two, 5000), ONCE_OK);
        the.one = the.two = NULL;
    }
}

static int end(void **state)
{
    close_all();
    place_remove(the.base);
    return 0;
}

static void rebuild(void)
{
    close_all(); /* the index goes with the last handle */
    the.one = place_open(the.store, QUERY, NULL);
    the.two = place_open(the.store, QUERY, NULL);
    peek_open(&the.peek, the.store);
}

static void do_all(once_t *once, const char *key, int status)
{
    told_t told = ask(once, key, "ttl=1h");

    assert_int_equal(told.outcome, ONCE_OUTCOME_RUN);
    assert_int_equal(complete(told.claim, status, key, strlen(key)).outcome, ONCE_OUTCOME_DONE);
}

static void pass(uint64_t ms)
{
    peek_set_now(&the.peek, once__index_now(the.peek.index) + ms);
}

/* Each has a segment. */
static void have_segments(void)
{
    do_all(the.one, "of one", 200);
    do_all(the.two, "of two", 200);
    assert_int_equal(peek_count(&the.peek, ONCE__SEGMENT_ACTIVE), 2);
}

/* ------------------------------------------------------------------------------------------------------------- tests */

static void test_changed_by_the_other(void **state)
{
    told_t told;

    have_segments();
    do_all(the.two, "key", 201);
    assert_int_equal(once_record_purge_sync(the.one, get(the.one, "key").token, 0, NULL), ONCE_OK);
    rebuild();
    told = get(the.one, "key");
    assert_int_equal(told.error, ONCE_E_NOT_FOUND);
}

static void test_purged_then_claimed_by_the_other(void **state)
{
    told_t told;

    have_segments();
    do_all(the.two, "key", 201);
    assert_int_equal(once_record_purge_sync(the.two, get(the.two, "key").token, 0, NULL), ONCE_OK);
    do_all(the.one, "key", 202);
    rebuild();
    told = get(the.one, "key");
    assert_int_equal(told.error, ONCE_OK);
    assert_int_equal(told.status, 202);
}

/* Reaping takes a record out, but its frame stays until its segment goes. */
static void test_reaped_then_claimed_by_the_other(void **state)
{
    told_t told;

    have_segments();
    for (unsigned i = 0; i < 100; i++) { /* so that the segments stay */
        char key[16];
        (void)snprintf(key, sizeof(key), "stays %u", i);
        told = ask(i % 2 ? the.two : the.one, key, "ttl=10d");
        assert_int_equal(complete(told.claim, 200, "", 0).outcome, ONCE_OUTCOME_DONE);
    }
    do_all(the.two, "key", 201);
    pass(2 * HOUR);
    assert_int_equal(reap(the.two, NULL), ONCE_OK);
    do_all(the.one, "key", 202);
    rebuild();
    told = get(the.one, "key");
    assert_int_equal(told.status, 202);
}

/* An expired record that nobody took away is replaced likewise. */
static void test_expired_then_claimed_by_the_other(void **state)
{
    have_segments();
    do_all(the.two, "key", 201);
    pass(2 * HOUR);
    do_all(the.one, "key", 202);
    rebuild();
    assert_int_equal(get(the.one, "key").status, 202);
}

/* Writes a frame for the key as a process would that is killed before its entry is in the index. */
static void die_after_the_frame(const uint8_t *id)
{
    static const uint8_t empty[] = {0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0}; /* a response */
    once__directory_config_t where = {.path = the.store, .timeout_ms = 5000};
    once__record_t record = {.head = {.schema = ONCE__SCHEMA,
                                      .state = ONCE_STATE_COMPLETED,
                                      .claim = {.epoch = 7},
                                      .expires = UINT64_MAX / 2},
                             .key = "key",
                             .key_len = 3,
                             .payload = {ONCE__PAYLOAD_RESPONSE, 599, empty, sizeof(empty)}};
    once__directory_t directory;
    once_error_t err;
    once__place_t place;
    once__log_t *log;
    uint32_t size;

    if (once__directory_open(&directory, &where, &err) != ONCE_OK) {
        _exit(1);
    }
    directory.log.segment_size = 64 << 10;
    log = once__log_open(&directory.log);
    if (log == NULL || once__log_reserve(log, 1000) != ONCE_OK ||
        once__index_lock(directory.log.index, id, 1000) != ONCE_OK ||
        once__log_append(
            log, id, &record,
            once__index_next_version(directory.log.index, id, once__index_now(directory.log.index)),
            0, &place, &size) != ONCE_OK) {
        _exit(2);
    }
    (void)kill(getpid(), SIGKILL);
}

static void let_one_die(void)
{
    uint8_t id[ONCE_ID_SIZE];
    int status;
    pid_t child;

    assert_int_equal(once_record_id_of(the.one, once__slice("", 0), once__slice("key", 3), id),
                     ONCE_OK);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        die_after_the_frame(id);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
}

/* Somebody goes on with the key before the frame was found. */
static void test_killed_between_frame_and_entry(void **state)
{
    told_t told;

    have_segments();
    let_one_die();
    assert_int_equal(get(the.one, "key").error, ONCE_E_NOT_FOUND);
    do_all(the.one, "key", 202);
    rebuild();
    told = get(the.one, "key");
    assert_int_equal(told.status, 202);
    assert_int_equal(told.epoch, 1);
}

/* And the key is over before: what no caller received must not come back when the frames that everybody knows are gone. */
static void test_killed_before_a_whole_life(void **state)
{
    have_segments();
    let_one_die();
    do_all(the.one, "key", 202);
    assert_int_equal(once_record_purge_sync(the.one, get(the.one, "key").token, 0, NULL), ONCE_OK);
    pass(2 * HOUR);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(reap(the.two, NULL), ONCE_OK);
        rebuild();
        assert_int_equal(get(the.one, "key").error, ONCE_E_NOT_FOUND);
    }
}

/* Nobody goes on with it: then it counts, as after a crash. */
static void test_a_clean_end_after_a_kill(void **state)
{
    have_segments();
    let_one_die();
    assert_int_equal(peek_count(&the.peek, ONCE__SEGMENT_ACTIVE), 3);
    rebuild();
    assert_int_equal(peek_count(&the.peek, ONCE__SEGMENT_ACTIVE), 0);
    assert_int_equal(get(the.one, "key").status, 599);
}

static uint64_t count_records(once_t *once)
{
    once_answer_t *answer = NULL;
    const once_stats_t *stats;
    uint64_t count;

    assert_int_equal(once_store_stats_sync(once, &answer), ONCE_OK);
    stats = once_answer_stats(answer);
    count = stats->pending + stats->completed + stats->failed + stats->unknown + stats->expired;
    once_answer_free(answer);
    return count;
}

/* All segments are gone, and so is the index. */
static void test_numbers_are_never_used_twice(void **state)
{
    char first[PLACE_SIZE];

    for (unsigned i = 0; i < 60; i++) {
        char key[16];
        (void)snprintf(key, sizeof(key), "old %06u", i);
        do_all(the.one, key, 200);
    }
    pass(2 * HOUR);
    close_all();
    the.one = place_open(the.store, QUERY, NULL);
    the.two = place_open(the.store, QUERY, NULL);
    peek_open(&the.peek, the.store);
    pass(2 * HOUR);
    assert_int_equal(reap(the.one, NULL), ONCE_OK);
    assert_int_equal(place_count(the.store, "segments", ".log"), 0);
    rebuild();
    do_all(the.one, "new", 200);
    place_segment(first, the.store, 1);
    assert_int_not_equal(access(first, F_OK), 0);
    rebuild();
    assert_int_equal(count_records(the.one), 1);
    assert_int_equal(get(the.one, "new").status, 200);
}

/* ---------------------------------------------------------------------------------------------- of a newer version */

typedef struct first {
    uint64_t offset;
    once__frame_t frame;
    uint8_t id[ONCE_ID_SIZE], body[4096];
} first_t;

static void note_first(void *data, uint64_t offset, const once__frame_t *frame)
{
    first_t *first = data;

    if (first->offset == 0) {
        first->offset = offset;
        first->frame = *frame;
        memcpy(first->id, frame->id, ONCE_ID_SIZE);
        memcpy(first->body, frame->body, frame->len);
    }
}

/* Makes the record of the first frame one of a newer schema. */
static void make_newer(void)
{
    char path[PLACE_SIZE];
    uint8_t header[ONCE__SEGMENT_HEADER], bytes[4096];
    once__segment_header_t segment;
    first_t first = {0};
    uint32_t size;
    int fd;

    (void)place_frames(the.store, 1, note_first, &first);
    place_segment(path, the.store, 1);
    fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, header, sizeof(header), 0), sizeof(header));
    assert_int_equal(once__segment_header_read(&segment, header, sizeof(header)), ONCE_OK);
    first.body[0] = ONCE__SCHEMA + 1;
    first.frame.id = first.id;
    first.frame.body = first.body;
    size = once__frame_write(bytes, segment.word, first.offset, &first.frame);
    assert_int_equal(pwrite(fd, bytes, size, (off_t)first.offset), size);
    (void)close(fd);
}

static void test_records_of_a_newer_version_are_kept(void **state)
{
    told_t told = ask(the.one, "key", "lease=1h recover=hold");

    assert_int_equal(told.outcome, ONCE_OUTCOME_RUN);
    once_claim_drop(told.claim);
    close_all();
    make_newer();
    the.one = place_open(the.store, QUERY, NULL);
    the.two = place_open(the.store, QUERY, NULL);
    peek_open(&the.peek, the.store);
    for (unsigned i = 0; i < 3; i++) {
        told = ask(the.two, "key", "recover=hold");
        assert_int_equal(told.outcome, ONCE_OUTCOME_BUSY);
        assert_int_equal(reap(the.two, NULL), ONCE_OK);
        told = ask(the.one, "key", "recover=hold");
        assert_int_equal(told.outcome, ONCE_OUTCOME_BUSY);
        rebuild();
    }
}

/* ----------------------------------------------------------------------------------------------------------- a stall */

/* 1: the next allocation stalls; then what went wrong meanwhile, as a negative number. */
static int stalled;

static int live_and_be_purged(void)
{
    told_t told = ask(the.two, "key", "ttl=1h");

    if (told.outcome != ONCE_OUTCOME_RUN ||
        complete(told.claim, 201, "", 0).outcome != ONCE_OUTCOME_DONE) {
        return -1;
    }
    return once_record_purge_sync(the.two, get(the.two, "key").token, 0, NULL) == ONCE_OK ? 0 : -2;
}

/* In the writer of `one`, which has looked at the clock: a whole life of the key passes. */
static int stall(void *data, int fd, uint64_t size)
{
    if (stalled == 1) {
        pass(1000);
        stalled = live_and_be_purged();
    }
    return once__real_disk.allocate(once__real_disk.data, fd, size);
}

static void count_runs(once_t *once, once_answer_t *answer, void *data)
{
    int *runs = data;

    assert_int_equal(once_answer_outcome(answer), ONCE_OUTCOME_RUN);
    once_claim_drop(once_answer_take_claim(answer));
    ++*runs;
}

static unsigned count_problems(void)
{
    once_local_fsck_options_t how = ONCE_LOCAL_FSCK_OPTIONS_INIT;
    once_local_fsck_report_t report = ONCE_LOCAL_FSCK_REPORT_INIT;
    char url[PLACE_SIZE + 8];
    once_error_t err;

    (void)snprintf(url, sizeof(url), "local:%s", the.store);
    assert_int_equal(once_local_fsck(url, &how, &report, &err), ONCE_OK);
    return (unsigned)report.problems;
}

/* The times of a record never go back, not even from one life of a key to the next: or fsck takes the newer one for misplaced. */
static void test_claimed_after_a_stall(void **state)
{
    once__disk_t disk = once__real_disk;
    int runs = 0;

    do_all(the.two, "of two", 200);
    assert_int_equal(once_close(the.one, 5000), ONCE_OK);
    disk.allocate = stall;
    the.one = place_open(the.store, QUERY, &disk);
    assert_int_equal(get(the.one, "key").error, ONCE_E_NOT_FOUND); /* it has the secrets now */
    stalled = 1;
    assert_int_equal(ask_later(the.one, "another", "ttl=1h", count_runs, &runs), ONCE_OK);
    assert_int_equal(ask_later(the.one, "key", "ttl=1h", count_runs, &runs), ONCE_OK);
    while (runs < 2) {
        assert_true(once_wait(the.one, 1000) >= 0);
    }
    assert_int_equal(stalled, 0);
    assert_int_equal(count_problems(), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, start, end)
    const struct CMUnitTest tests[] = {
        TEST(test_changed_by_the_other),
        TEST(test_purged_then_claimed_by_the_other),
        TEST(test_reaped_then_claimed_by_the_other),
        TEST(test_expired_then_claimed_by_the_other),
        TEST(test_killed_between_frame_and_entry),
        TEST(test_killed_before_a_whole_life),
        TEST(test_a_clean_end_after_a_kill),
        TEST(test_numbers_are_never_used_twice),
        TEST(test_records_of_a_newer_version_are_kept),
        TEST(test_claimed_after_a_stall),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
