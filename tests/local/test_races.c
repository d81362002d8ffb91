/*
 * What one program does between two steps of another. Certain calls of the library go through here, so that the other one can act
 * at exactly that moment, as it does now and then on a machine that is busy.
 */
#include "place.h"

#include "support/log_store.h"
#include "support/testing.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <once/local.h>

#include "store/local/index_file.h"

#define QUERY "segment=64k&renew=off&reap=off&store_timeout=10s"

/* ------------------------------------------------------------------------------------------------------------ moments */

/* Called once, by whoever comes there first. */
static void (*before_msync)(void);
static void (*behind_missing)(void); /* an open() that found no such file */
static void (*before_pages)(void);   /* a look at those of a table */
static unsigned msyncs, missing;
static once__shard_t *watched; /* its floor when it was unlocked last */
static uint32_t floor_seen;

int __real_msync(void *from, size_t len, int flags);
int __wrap_msync(void *from, size_t len, int flags);
int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __real_once__pages_hold(const once__index_header_t *map, uint64_t table);
int __wrap_once__pages_hold(const once__index_header_t *map, uint64_t table);
int __real_pthread_mutex_unlock(pthread_mutex_t *lock);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *lock);

static void reach(void (**moment)(void))
{
    void (*what)(void) = *moment;

    *moment = NULL;
    if (what != NULL) {
        what();
    }
}

int __wrap_msync(void *from, size_t len, int flags)
{
    reach(&before_msync);
    msyncs++;
    return __real_msync(from, len, flags);
}

int __wrap_open(const char *path, int flags, ...)
{
    va_list args;
    int fd, mode;

    va_start(args, flags);
    mode = (flags & O_CREAT) != 0 ? va_arg(args, int) : 0;
    va_end(args);
    fd = __real_open(path, flags, mode);
    if (fd < 0 && errno == ENOENT && behind_missing != NULL && missing-- == 0) {
        reach(&behind_missing);
        errno = ENOENT;
    }
    return fd;
}

int __wrap_once__pages_hold(const once__index_header_t *map, uint64_t table)
{
    reach(&before_pages);
    return __real_once__pages_hold(map, table);
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *lock)
{
    if (watched != NULL && lock == &watched->lock) {
        floor_seen = watched->floor;
    }
    return __real_pthread_mutex_unlock(lock);
}

/* ---------------------------------------------------------------------------------------------------------- segments */

static store_t *at_hand;

/* The writer of the oldest segment, in which everything has expired, completes one more record and is done with it. */
static void write_the_last(void)
{
    once__entry_t entry = {{0, 0}, ONCE_STATE_COMPLETED};

    must(store_append(at_hand->logs[0], 1, FOREVER, 0, &entry.place) == ONCE_OK, "append");
    once__index_lock(at_hand->index, store_id);
    must(once__index_make_room(at_hand->index, store_id) == ONCE_OK, "room");
    once__index_set(at_hand->index, store_id, 0, 0, &entry);
    once__index_unlock(at_hand->index, store_id);
    must(once__log_retire(at_hand->logs[0]) == ONCE_OK, "retire");
}

static int carry_no_more(void *data, uint32_t segment, int everything)
{
    return everything ? ONCE_E_NOT_FOUND : ONCE_OK;
}

/* That it has expired was true before the last record came. */
static void test_what_came_last_is_not_dropped(void **state)
{
    once__place_t place;
    uint64_t count = 0;

    at_hand = *state;
    assert_int_equal(store_append(at_hand->logs[0], 1, 1000, 0, &place), ONCE_OK);
    assert_int_equal(once__log_sync(at_hand->logs[0]), ONCE_OK);
    atomic_store(&at_hand->index->map->clean, ONCE__CLEAN); /* so that the other one comes there */
    before_msync = write_the_last;
    assert_int_equal(once__log_drop(at_hand->logs[1], 1000, carry_no_more, NULL, &count),
                     ONCE_E_NOT_FOUND);
    assert_null(before_msync);
    assert_int_equal(once__index_first_segment(at_hand->index), 1);
    assert_int_equal(count, 0);
}

/* ------------------------------------------------------------------------------------------------------------- index */

static unsigned own_msyncs;

static void use_it_too(void)
{
    unsigned before = msyncs;

    must(once__index_mark_used(at_hand->index) == ONCE_OK, "mark_used");
    own_msyncs = msyncs - before;
}

/* Whoever began may be killed before the disk knows. After a power failure the end would still be clean. */
static void test_used_only_when_the_disk_knows(void **state)
{
    unsigned before;

    at_hand = *state;
    assert_int_equal(once__index_mark_clean(at_hand->index), ONCE_OK);
    before_msync = use_it_too;
    assert_int_equal(once__index_mark_used(at_hand->index), ONCE_OK);
    assert_null(before_msync);
    assert_int_equal(own_msyncs, 1);
    before = msyncs;
    assert_int_equal(once__index_mark_used(at_hand->index), ONCE_OK);
    assert_int_equal(msyncs, before);
}

/* Makes the first shard get another table. */
static void replace_table(void)
{
    const once__shard_t *shard = &at_hand->index->map->shards[0];
    uint64_t before = atomic_load(&shard->table);
    once__entry_t entry = {{1, ONCE__SEGMENT_HEADER}, ONCE_STATE_COMPLETED};
    uint8_t id[ONCE_ID_SIZE] = {0};

    for (unsigned n = 0; atomic_load(&shard->table) == before; n++) {
        id[2] = (uint8_t)n;
        id[3] = (uint8_t)(n >> 8);
        once__index_lock(at_hand->index, id);
        must(once__index_make_room(at_hand->index, id) == ONCE_OK, "room");
        once__index_set(at_hand->index, id, 0, 0, &entry);
        once__index_unlock(at_hand->index, id);
    }
}

/* The pages of a table are free when it was replaced: nothing is damaged. */
static void test_open_while_a_table_is_replaced(void **state)
{
    once__index_t *again = NULL;
    once__place_t place;

    at_hand = *state;
    assert_int_equal(store_append(at_hand->logs[0], 1, FOREVER, 0, &place), ONCE_OK);
    replace_table(); /* the first one has no pages */
    before_pages = replace_table;
    assert_int_equal(
        once__index_open(&again, at_hand->fd, at_hand->logs[0]->config.boot_id, 0, NULL), ONCE_OK);
    assert_null(before_pages);
    once__index_close(again);
}

static void *die_with_the_lock(void *data)
{
    once__index_lock(data, store_id);
    return NULL;
}

/* What the one who was killed may have written is known before anybody else has the lock. */
static void test_the_floor_comes_before_the_lock(void **state)
{
    once__place_t place;
    pthread_t thread;

    at_hand = *state;
    assert_int_equal(store_append(at_hand->logs[0], 1, FOREVER, 0, &place), ONCE_OK);
    assert_int_equal(pthread_create(&thread, NULL, die_with_the_lock, at_hand->index), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    watched = &at_hand->index->map->shards[store_id[0] | (store_id[1] & 3) << 8];
    floor_seen = 0;
    assert_true(once__index_locks_are_sound(at_hand->index));
    watched = NULL;
    assert_int_equal(floor_seen, place.segment);
}

/* ------------------------------------------------------------------------------------------------------------ handles */

static char base[PLACE_SIZE], path[PLACE_SIZE];

static int make_place(void **state)
{
    place_make(base);
    place_join(path, base, "store");
    return 0;
}

static int remove_place(void **state)
{
    place_remove(base);
    return 0;
}

static void do_all(once_t *once, const char *key)
{
    told_t told = ask(once, key, "ttl=1h");

    must(told.outcome == ONCE_OUTCOME_RUN, "run");
    must(complete(told.claim, 201, "x", 1).outcome == ONCE_OUTCOME_DONE, "done");
}

static void be_first(void)
{
    once_t *once = place_open(path, QUERY, NULL);

    do_all(once, "key");
    must(once_close(once, 1000) == ONCE_OK, "close");
}

/* Two open a new store: one finds no secrets, and then a record that the other one has made with his. */
static void test_secrets_that_came_meanwhile(void **state)
{
    once_t *once;

    missing = 1; /* the first one who looks is not the one who would make them */
    behind_missing = be_first;
    once = place_open(path, QUERY, NULL);
    assert_int_equal(ask(once, "key", NULL).outcome, ONCE_OUTCOME_REPLAY);
    assert_null(behind_missing);
    assert_int_equal(once_close(once, 1000), ONCE_OK);
}

/* A child that has a copy of all descriptors, and will never use them. */
static pid_t fork_idle(void)
{
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) {
            (void)pause();
        }
    }
    return child;
}

static void end(pid_t child)
{
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

/* Or everybody who opens the store waits for the child to end. */
static void test_a_child_keeps_nobody_out(void **state)
{
    once_t *once = place_open(path, QUERY, NULL);
    char file[PLACE_SIZE];
    pid_t child;
    int fd;

    do_all(once, "key");
    child = fork_idle();
    assert_int_equal(once_close(once, 1000), ONCE_OK);
    place_join(file, path, "lock");
    fd = open(file, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    (void)close(fd);
    once = place_open(path, QUERY, NULL);
    assert_int_equal(ask(once, "key", NULL).status, 201);
    assert_int_equal(once_close(once, 1000), ONCE_OK);
    end(child);
}

/* -------------------------------------------------------------------------------------------------------------- fsck */

static ssize_t die_when_told(void *data, int fd, const void *bytes, size_t len, uint64_t offset)
{
    if (*(int *)data) {
        (void)kill(getpid(), SIGKILL);
    }
    return pwrite(fd, bytes, len, (off_t)offset);
}

/* A process that is killed with a record that no file has yet. */
static void leave_in_the_window(const char *key)
{
    pid_t child = fork();
    int status;

    assert_true(child >= 0);
    if (child == 0) {
        int told_to = 0;
        once__disk_t disk = once__real_disk;
        once_t *once;
        disk.write = die_when_told;
        disk.data = &told_to;
        once = place_open(path, QUERY, &disk);
        do_all(once, "another");
        told_to = 1;
        (void)ask(once, key, "ttl=1h");
        _exit(1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
}

static void take_over(uint64_t done, uint64_t total, void *data)
{
    once_t **once = data;

    if (*once != NULL && done >= total) {
        assert_int_equal(ask(*once, "key", "ttl=1h").outcome, ONCE_OUTCOME_BUSY);
        *once = NULL;
    }
}

static void tell(const once_local_finding_t *finding, void *data)
{
    print_message("%s: %s\n", finding->kind, finding->text);
}

/* Read by fsck first, and then finished by another program that needed it: nothing is wrong with that. */
static void test_a_segment_that_is_finished_meanwhile(void **state)
{
    once_local_fsck_options_t how = ONCE_LOCAL_FSCK_OPTIONS_INIT;
    once_local_fsck_report_t report = ONCE_LOCAL_FSCK_REPORT_INIT;
    once_t *once = place_open(path, QUERY, NULL), *other = once;
    char url[PLACE_SIZE + 8];

    do_all(once, "first");
    leave_in_the_window("key");
    (void)snprintf(url, sizeof(url), "local:%s", path);
    how.progress = take_over;
    how.found = tell;
    how.data = &other;
    assert_int_equal(once_local_fsck(url, &how, &report, NULL), ONCE_OK);
    assert_null(other);
    assert_int_equal(report.problems, 0);
    assert_int_equal(report.index, ONCE_LOCAL_INDEX_OK);
    assert_int_equal(once_close(once, 1000), ONCE_OK);
}

/* Whoever looks at a store that is being made finds none, and not one that has lost its segments. */
static void test_a_store_that_is_being_made(void **state)
{
    char url[PLACE_SIZE + 8], file[PLACE_SIZE];
    int fd;

    (void)snprintf(url, sizeof(url), "local:%s", path);
    assert_int_equal(mkdir(path, 0700), 0);
    place_join(file, path, "format");
    fd = open(file, O_WRONLY | O_CREAT, 0600);
    assert_int_equal(write(fd, "once-local 1\n", 13), 13);
    (void)close(fd);
    assert_int_equal(once_local_exists(url, NULL), ONCE_E_NOT_FOUND);
    assert_int_equal(once_close(place_open(path, QUERY, NULL), 1000), ONCE_OK);
    assert_int_equal(once_local_exists(url, NULL), ONCE_OK);
}

int main(void)
{
#define LOG(name)   cmocka_unit_test_setup_teardown(name, store_setup, store_teardown)
#define PLACE(name) cmocka_unit_test_setup_teardown(name, make_place, remove_place)
    const struct CMUnitTest tests[] = {
        LOG(test_what_came_last_is_not_dropped),          LOG(test_used_only_when_the_disk_knows),
        LOG(test_open_while_a_table_is_replaced),         LOG(test_the_floor_comes_before_the_lock),
        PLACE(test_secrets_that_came_meanwhile),          PLACE(test_a_child_keeps_nobody_out),
        PLACE(test_a_segment_that_is_finished_meanwhile), PLACE(test_a_store_that_is_being_made),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
