/*
 * The newest frame of a record is the one in the segment with the highest number. Whoever writes must keep it so, or a rebuild
 * brings back what was over. Each test ends with a rebuild.
 */
#include "place.h"

#include "support/testing.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <once/local.h>

#include "base/bytes.h"
#include "store/local/index_file.h"

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
    char path[PLACE_SIZE];

    close_all();
    place_join(path, the.store, "index");
    assert_int_equal(unlink(path), 0);
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
    once__index_start_clock(the.peek.index, once__index_now(the.peek.index) + ms);
}

/* Each has a segment: `one` the first, `two` the second. */
static void have_segments(void)
{
    do_all(the.one, "of one", 200);
    do_all(the.two, "of two", 200);
    assert_int_equal(once__index_end_segment(the.peek.index), 3);
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

/* Reaping takes a record out of the index, but its frame stays until its segment goes. */
static void test_reaped_then_claimed_by_the_other(void **state)
{
    uint64_t count = 0;
    told_t told;

    have_segments();
    for (unsigned i = 0; i < 100; i++) { /* so that nothing is carried */
        char key[16];
        (void)snprintf(key, sizeof(key), "stays %u", i);
        told = ask(i % 2 ? the.two : the.one, key, "ttl=10d");
        assert_int_equal(complete(told.claim, 200, "", 0).outcome, ONCE_OUTCOME_DONE);
    }
    do_all(the.two, "key", 201);
    pass(2 * HOUR);
    assert_int_equal(reap(the.two, &count), ONCE_OK);
    assert_int_equal(count, 3);
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
    once__directory_t directory;
    once__log_config_t config = {.disk = &once__real_disk, .segment_size = 64 << 10};
    once__record_t record = {.head = {.schema = ONCE__SCHEMA,
                                      .state = ONCE_STATE_COMPLETED,
                                      .claim = {.epoch = 7},
                                      .expires = UINT64_MAX},
                             .key = "key",
                             .key_len = 3,
                             .payload = {ONCE__PAYLOAD_RESPONSE, 599, NULL, 0}};
    once__place_t place;
    once__log_t *log;

    if (once__directory_open(&directory, the.store, NULL) != ONCE_OK) {
        _exit(1);
    }
    config.directory_fd = directory.segments_fd;
    config.index = directory.index;
    memcpy(config.boot_id, directory.boot_id, sizeof(config.boot_id));
    log = once__log_open(&config);
    once__index_lock(directory.index, id);
    if (log == NULL || once__log_append(log, id, &record, 0, &place) != ONCE_OK) {
        _exit(2);
    }
    (void)kill(getpid(), SIGKILL);
}

static void test_killed_between_frame_and_entry(void **state)
{
    uint8_t id[ONCE_ID_SIZE];
    pid_t child;
    told_t told;
    int status;

    have_segments();
    assert_int_equal(once_record_id_of(the.one, once__slice("", 0), once__slice("key", 3), id),
                     ONCE_OK);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        die_after_the_frame(id);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(get(the.one, "key").error, ONCE_E_NOT_FOUND);
    do_all(the.one, "key", 202);
    rebuild();
    told = get(the.one, "key");
    assert_int_equal(told.status, 202);
    assert_int_equal(told.epoch, 1);
}

/* The last one out leaves an index for the next boot only when all that was written is on the disk. */
static void test_a_clean_end_after_a_kill(void **state)
{
    uint8_t id[ONCE_ID_SIZE];
    pid_t child;
    int fd;
    once__index_header_t *header;
    char path[PLACE_SIZE];

    have_segments();
    assert_int_equal(once_record_id_of(the.one, once__slice("", 0), once__slice("key", 3), id),
                     ONCE_OK);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        die_after_the_frame(id);
    }
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(atomic_load(&once__index_segment(the.peek.index, 3)->state),
                     ONCE__SEGMENT_ACTIVE);
    close_all();
    place_join(path, the.store, "index");
    fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    header = mmap(NULL, sizeof(*header), PROT_READ, MAP_SHARED, fd, 0);
    assert_true(header != MAP_FAILED);
    assert_int_equal(atomic_load(&header->clean), 1);
    assert_int_equal(atomic_load(&header->ring[3].state), ONCE__SEGMENT_SEALED);
    (void)munmap(header, sizeof(*header));
    (void)close(fd);
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

/*
 * All segments are gone, their files wait as spares, and the index is lost: if numbers began again at 1, the old frames would
 * be valid again, just behind the new ones.
 */
static void test_numbers_are_never_used_twice(void **state)
{
    char copy[PLACE_SIZE];
    once_t *once;

    /* All frames have one size, so that the new ones end exactly where an old one begins. */
    for (unsigned i = 0; i < 60; i++) {
        char key[16];
        (void)snprintf(key, sizeof(key), "old %06u", i);
        do_all(the.one, key, 200);
    }
    pass(2 * HOUR);
    assert_int_equal(reap(the.one, NULL), ONCE_OK);
    assert_int_equal(place_count(the.store, "segments", ".log"), 0);
    assert_int_equal(place_count(the.store, "segments", ".spare"), 1);
    rebuild();
    for (unsigned i = 0; i < 20; i++) {
        char key[16];
        (void)snprintf(key, sizeof(key), "new %06u", i);
        do_all(the.one, key, 200);
    }
    assert_int_equal(place_count(the.store, "segments", ".spare"), 0);
    /* As a crash would leave it: nothing is sealed. */
    place_join(copy, the.base, "copy");
    place_copy(the.store, copy);
    once = place_open(copy, QUERY, NULL);
    assert_int_equal(count_records(once), 20);
    assert_int_equal(get(once, "old 000050").error, ONCE_E_NOT_FOUND);
    assert_int_equal(get(once, "new 000010").status, 200);
    assert_int_equal(once_close(once, 5000), ONCE_OK);
}

/* ---------------------------------------------------------------------------------------------- of a newer version */

/* Makes the record of the first frame in the file one of a newer schema. */
static void make_newer(const char *path)
{
    int fd = open(path, O_RDWR);
    struct stat st;
    uint8_t *map, bytes[4096];
    once__segment_header_t header;
    once__place_t place = {0, ONCE__SEGMENT_HEADER};
    once__frame_t frame;

    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    map = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(map != MAP_FAILED);
    assert_int_equal(once__segment_header_read(&header, map), ONCE_OK);
    place.segment = header.number;
    assert_int_equal(once__frame_read(&frame, place, map + place.offset, 60000), 1);
    assert_int_equal(frame.kind, ONCE__FRAME_RECORD);
    memcpy(bytes, frame.bytes, frame.len);
    bytes[1] = ONCE__SCHEMA + 1;
    once__frame_write_bytes(map + place.offset, place, frame.watermark, frame.id, bytes, frame.len);
    (void)munmap(map, (size_t)st.st_size);
    (void)close(fd);
}

static void test_records_of_a_newer_version_are_carried(void **state)
{
    char path[PLACE_SIZE];
    told_t told = ask(the.one, "key", "lease=1h recover=hold");

    assert_int_equal(told.outcome, ONCE_OUTCOME_RUN);
    once_claim_drop(told.claim);
    close_all();
    place_join(path, the.store, "segments/00000001.log");
    make_newer(path);
    the.one = place_open(the.store, QUERY, NULL);
    the.two = place_open(the.store, QUERY, NULL);
    peek_open(&the.peek, the.store);
    rebuild();
    told = ask(the.two, "key", "recover=hold");
    assert_int_equal(told.outcome, ONCE_OUTCOME_BUSY);
    assert_int_equal(reap(the.two, NULL), ONCE_OK);
    assert_int_equal(once__index_first_segment(the.peek.index), 2); /* it is in another one now */
    told = ask(the.two, "key", "recover=hold");
    assert_int_equal(told.outcome, ONCE_OUTCOME_BUSY);
    rebuild();
    told = ask(the.one, "key", "recover=hold");
    assert_int_equal(told.outcome, ONCE_OUTCOME_BUSY);
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

/* A key that is in another shard than "key", which the stalled writer does not lock. */
static void name_another(char name[16])
{
    uint8_t id[ONCE_ID_SIZE], other[ONCE_ID_SIZE];
    unsigned i = 0;

    assert_int_equal(once_record_id_of(the.two, once__slice("", 0), once__slice("key", 3), id),
                     ONCE_OK);
    do {
        (void)snprintf(name, 16, "another %u", i++);
        assert_int_equal(
            once_record_id_of(the.two, once__slice("", 0), once__slice(name, strlen(name)), other),
            ONCE_OK);
    } while (once__get16(id) % ONCE__SHARDS == once__get16(other) % ONCE__SHARDS);
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
    char another[16];
    int runs = 0;

    do_all(the.two, "of two", 200);
    assert_int_equal(once_close(the.one, 5000), ONCE_OK);
    disk.allocate = stall;
    the.one = place_open(the.store, QUERY, &disk);
    name_another(another);
    assert_int_equal(get(the.one, "key").error, ONCE_E_NOT_FOUND); /* it has the secrets now */
    stalled = 1;
    assert_int_equal(ask_later(the.one, another, "ttl=1h", count_runs, &runs), ONCE_OK);
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
        TEST(test_a_clean_end_after_a_kill),
        TEST(test_numbers_are_never_used_twice),
        TEST(test_records_of_a_newer_version_are_carried),
        TEST(test_claimed_after_a_stall),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
