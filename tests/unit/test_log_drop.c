/*
 * The log: segments that are dropped and used again, also by processes that are killed meanwhile.
 */
#include "support/log_store.h"
#include "support/testing.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---------------------------------------------------------------------------------------------------------- dropping */

static void test_dropped_and_used_again(void **state)
{
    store_t *store = *state;
    once__place_t place;
    struct stat before, after;
    int sealed;

    for (unsigned i = 0; i < 100; i++) {
        assert_int_equal(store_append(store->logs[0], 300, 1000, 0, &place), ONCE_OK);
    }
    assert_int_equal(once__log_sync(store->logs[0]), ONCE_OK);
    assert_int_equal(fstatat(store->segments_fd, "00000001.log", &before, 0), 0);
    assert_int_equal(store_drop(store->logs[0], 999),
                     ONCE_OK); /* nothing in the index points to it */
    assert_int_equal(store_drop(store->logs[0], 999), ONCE_E_NOT_FOUND);
    assert_int_equal(once__index_first_segment(store->index), 2);
    assert_int_equal(store_append(store->logs[1], 1, FOREVER, 0, &place), ONCE_OK);
    assert_int_equal(once__log_sync(store->logs[1]), ONCE_OK);
    assert_int_equal(fstatat(store->segments_fd, "00000002.log", &after, 0), 0);
    assert_int_equal(after.st_ino, before.st_ino);
    assert_int_equal(place.segment, 2);
    assert_int_equal(store_frames(store, 2, &sealed), 1); /* and what was in it is not */
}

/* A spare that was copied has holes where zeros were: it is of no use without the room for them. */
static void test_a_spare_with_holes(void **state)
{
    store_t *store = *state;
    int fd = openat(store->segments_fd, "00000001.spare", O_RDWR | O_CREAT, 0600);
    once__place_t place;
    struct stat st;

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, SEGMENT), 0);
    store->fail_allocate = 1;
    assert_int_equal(store_append(store->logs[0], 1, FOREVER, 0, &place), ONCE_E_FULL);
    store->fail_allocate = 0;
    assert_int_equal(ftruncate(fd, 0), 0);
    (void)close(fd);
    fd = openat(store->segments_fd, "00000001.spare", O_RDWR | O_CREAT, 0600);
    assert_int_equal(ftruncate(fd, SEGMENT), 0);
    assert_int_equal(store_append(store->logs[0], 1, FOREVER, 0, &place), ONCE_OK);
    assert_int_equal(fstat(fd, &st), 0);
    assert_true((uint64_t)st.st_blocks * 512 >= SEGMENT);
    (void)close(fd);
}

/* Zeros go ahead of the frames into a new file, and not into one that was used before; and not into what is there. */
static void test_blocks_are_written_ahead(void **state)
{
    store_t *store = *state;
    uint64_t size = (uint64_t)4 << 20, bytes;
    once__log_t *log = store_open_log(store, size);
    once__place_t place = {0, 0}, places[3000];
    unsigned count = 0;

    while (place.segment < 3) {
        assert_int_equal(store_append(log, 3000, 1000, 0, &place), ONCE_OK);
        assert_int_equal(once__log_sync(log), ONCE_OK);
        places[count++] = place;
    }
    bytes = store->bytes;
    assert_true(bytes > 2 * (uint64_t)count * 3000 - (1 << 20));
    for (unsigned i = 0; i < count; i++) {
        store_check_read(store->logs[1], places[i], 3000);
    }
    while (place.segment < 4) {
        assert_int_equal(store_append(log, 3000, 1000, 0, &place), ONCE_OK);
    }
    assert_int_equal(once__log_sync(log), ONCE_OK);
    while (store_drop(log, 1000) == ONCE_OK) {
    }
    assert_int_equal(store_append(log, 3000, 1000, 0, &place), ONCE_OK); /* in a used file */
    bytes = store->bytes;
    assert_int_equal(once__log_sync(log), ONCE_OK);
    assert_true(store->bytes - bytes < 4000);
    once__log_abandon(log);
}

/* A process that does nothing any more must not keep the segments of the others. */
static void test_an_idle_writer_is_not_in_the_way(void **state)
{
    store_t *store = *state;
    once__place_t place;

    assert_int_equal(store_append(store->logs[0], 1, 1000, 0, &place), ONCE_OK);
    assert_int_equal(once__log_sync(store->logs[0]), ONCE_OK);
    for (unsigned round = 0; round < 5; round++) {
        assert_int_equal(store_append(store->logs[1], 1, 1000, 0, &place), ONCE_OK);
        assert_int_equal(once__log_sync(store->logs[1]), ONCE_OK);
        while (store_drop(store->logs[0], 1000) == ONCE_OK ||
               store_drop(store->logs[1], 1000) == ONCE_OK) {
        }
        assert_int_equal(once__index_first_segment(store->index),
                         once__index_end_segment(store->index));
    }
}

/* The writer is alive and may still append: its segment stays, whatever is in it. */
static void test_the_segment_of_another_stays(void **state)
{
    store_t *store = *state;
    once__place_t place;

    assert_int_equal(store_append(store->logs[0], 1, 1000, 0, &place), ONCE_OK);
    assert_int_equal(store_drop(store->logs[1], FOREVER), ONCE_E_NOT_FOUND);
    once__log_abandon(store->logs[0]);
    store->logs[0] = NULL;
    assert_int_equal(store_drop(store->logs[1], FOREVER), ONCE_OK);
}

/* A lock that a forked child holds, because it has a copy of the descriptor, must not spoil the file for ever. */
static void test_a_spare_that_is_locked(void **state)
{
    store_t *store = *state;
    once__place_t place;
    int fd;

    assert_int_equal(store_append(store->logs[0], 1, 1000, 0, &place), ONCE_OK);
    fd = dup(store->logs[0]->active.fd); /* as a child has it */
    assert_true(fd >= 0);
    assert_int_equal(store_drop(store->logs[0], 1000), ONCE_OK);
    assert_int_equal(store_append(store->logs[1], 1, 1000, 0, &place), ONCE_OK);
    assert_int_equal(once__log_retire(store->logs[1]), ONCE_OK);
    (void)close(fd);
    fd = store_open_segment(store, 2);
    assert_true(fd >= 0);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    assert_int_equal(store_drop(store->logs[1], 1000), ONCE_OK); /* a spare now, and locked */
    assert_int_equal(store_append(store->logs[1], 1, 1000, 0, &place), ONCE_OK);
    (void)close(fd);
}

static unsigned count_deleted_mappings(const store_t *store)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    unsigned count = 0;

    assert_non_null(maps);
    while (fgets(line, sizeof(line), maps) != NULL) {
        count += strstr(line, store->path) != NULL && strstr(line, "(deleted)") != NULL;
    }
    (void)fclose(maps);
    return count;
}

/* A file that is mapped takes room after it was removed. */
static void test_mappings_of_dropped_segments_go(void **state)
{
    store_t *store = *state;
    once__log_t *other = store_open_log(store, SEGMENT * 2); /* so that no file becomes a spare */
    once__place_t place;

    assert_int_equal(store_append(store->logs[0], 1, 1000, 0, &place), ONCE_OK);
    assert_int_equal(once__log_close(store->logs[0]), ONCE_OK);
    store->logs[0] = NULL;
    store_check_read(store->logs[1], place, 1);
    store_check_read(other, place, 1);
    assert_int_equal(store_drop(other, 1000), ONCE_OK);
    (void)store_drop(other, 1000);
    assert_int_equal(count_deleted_mappings(store), 1);
    (void)store_drop(store->logs[1], 1000);
    assert_int_equal(count_deleted_mappings(store), 0);
    once__log_abandon(other);
}

/* ----------------------------------------------------------------------------------------------------------- killing */

static void kill_in(store_t *store, void (*what)(store_t *store))
{
    pid_t child = fork();
    int status;

    assert_true(child >= 0);
    if (child == 0) {
        (void)once__index_lock_segments(store->index);
        what(store);
        (void)kill(getpid(), SIGKILL);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
}

static void drop_half(store_t *store)
{
    once__index_set_first_segment(store->index, 2);
}

/* Its file would make a gap when later ones are gone, and a gap is a missing segment. */
static void test_killed_while_dropping(void **state)
{
    store_t *store = *state;
    once__place_t place;
    int fd;

    assert_int_equal(store_append(store->logs[0], 1, 1000, 0, &place), ONCE_OK);
    assert_int_equal(once__log_retire(store->logs[0]), ONCE_OK);
    assert_int_equal(store_append(store->logs[0], 1, 1000, 0, &place), ONCE_OK);
    kill_in(store, drop_half);
    fd = store_open_segment(store, 1);
    assert_true(fd >= 0);
    (void)close(fd);
    assert_int_equal(store_drop(store->logs[0], 1000), ONCE_OK);
    assert_int_equal(store_open_segment(store, 1), -1);
    assert_int_equal(store_open_segment(store, 2), -1);
}

static void spare_half(store_t *store)
{
    drop_half(store);
    (void)renameat(store->segments_fd, "00000001.log", store->segments_fd, "00000001.spare");
}

/* A file that could come back under its old name is not used again before the disk knows the new one. */
static void test_killed_before_the_name_was_synced(void **state)
{
    store_t *store = *state;
    once__place_t place;
    unsigned before;

    assert_int_equal(store_append(store->logs[0], 1, 1000, 0, &place), ONCE_OK);
    assert_int_equal(once__log_retire(store->logs[0]), ONCE_OK);
    kill_in(store, spare_half);
    before = store->directory_syncs;
    store->fail_sync = 1;
    assert_int_equal(store_append(store->logs[1], 1, 1000, 0, &place), ONCE_E_IO);
    assert_true(store->directory_syncs > before);
}

static void name_half(store_t *store)
{
    once__segment_header_t header = {.number = 2, .size = SEGMENT};
    uint8_t bytes[ONCE__SEGMENT_HEADER];
    int fd = openat(store->segments_fd, "00000002.log", O_RDWR | O_CREAT, 0600);

    once__segment_header_write(&header, bytes);
    if (ftruncate(fd, SEGMENT) != 0 || pwrite(fd, bytes, sizeof(bytes), 0) != sizeof(bytes)) {
        _exit(1);
    }
}

static void test_killed_while_starting(void **state)
{
    store_t *store = *state;
    once__place_t place;

    assert_int_equal(store_append(store->logs[0], 1, FOREVER, 0, &place), ONCE_OK);
    kill_in(store, name_half);
    assert_int_equal(store_append(store->logs[1], 1, FOREVER, 0, &place), ONCE_OK);
    assert_int_equal(place.segment, 3);
    assert_int_equal(once__index_end_segment(store->index), 4);
    assert_int_equal(atomic_load(&once__index_segment(store->index, 2)->state),
                     ONCE__SEGMENT_SEALED);
}

static int make_half(const store_t *store, const char *name)
{
    int fd = openat(store->segments_fd, name, O_RDWR | O_CREAT, 0600);

    assert_true(fd >= 0);
    return fd;
}

/* What was left half made takes room: it goes, unless a process is working on it. */
static void test_files_that_nobody_finished(void **state)
{
    store_t *store = *state;
    int fds[] = {make_half(store, "1.new"), make_half(store, "2.new")};
    once__place_t place;

    assert_int_equal(flock(fds[1], LOCK_EX), 0);
    assert_int_equal(store_append(store->logs[0], 1, FOREVER, 0, &place), ONCE_OK);
    assert_int_equal(faccessat(store->segments_fd, "1.new", F_OK, 0), -1);
    assert_int_equal(faccessat(store->segments_fd, "2.new", F_OK, 0), 0);
    for (size_t i = 0; i < 2; i++) {
        (void)close(fds[i]);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, store_setup, store_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_dropped_and_used_again),
        TEST(test_a_spare_with_holes),
        TEST(test_blocks_are_written_ahead),
        TEST(test_an_idle_writer_is_not_in_the_way),
        TEST(test_the_segment_of_another_stays),
        TEST(test_a_spare_that_is_locked),
        TEST(test_mappings_of_dropped_segments_go),
        TEST(test_killed_while_dropping),
        TEST(test_killed_while_starting),
        TEST(test_files_that_nobody_finished),
        TEST(test_killed_before_the_name_was_synced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
