/*
 * The manifest: which segments must exist, whatever interrupts those that write it.
 */
#include "store/local/log.h"

#include "support/testing.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <once/error.h>

#define ENTRY ONCE__MANIFEST_ENTRY

static char folder[64];
static int folder_fd;

/* A disk that takes a limited number of bytes, or cannot sync. */
static size_t room = SIZE_MAX;
static int fail_sync;
static unsigned directory_syncs;

static int hook_sync(void *data, int fd)
{
    errno = EIO;
    return fail_sync > 0 && --fail_sync == 0 ? -1 : fdatasync(fd);
}

static int hook_sync_directory(void *data, int fd)
{
    directory_syncs++;
    return fsync(fd);
}

static ssize_t hook_write(void *data, int fd, const void *bytes, size_t len, uint64_t offset)
{
    size_t take = len < room ? len : room;

    if (take == 0) {
        errno = ENOSPC;
        return -1;
    }
    room -= room == SIZE_MAX ? 0 : take;
    return pwrite(fd, bytes, take, (off_t)offset);
}

static const once__disk_t disk = {
    .sync = hook_sync, .sync_directory = hook_sync_directory, .write = hook_write};

static once__log_config_t log_config = {.disk = &disk, .store_id = {1, 2, 3, 4, 5, 6, 7, 8, 9}};

static int start(void **state)
{
    (void)snprintf(folder, sizeof(folder), "/tmp/once-manifest-XXXXXX");
    assert_non_null(mkdtemp(folder));
    log_config.segments_fd = folder_fd = open(folder, O_RDONLY | O_DIRECTORY);
    assert_true(folder_fd >= 0);
    room = SIZE_MAX;
    fail_sync = 0;
    directory_syncs = 0;
    return 0;
}

static int end(void **state)
{
    (void)unlinkat(folder_fd, "manifest", 0);
    (void)unlinkat(folder_fd, "manifest.new", 0);
    (void)close(folder_fd);
    assert_int_equal(rmdir(folder), 0);
    return 0;
}

static int add(uint64_t number)
{
    return once__manifest_add(&log_config, number);
}

static int drop(uint64_t number)
{
    return once__manifest_drop(&log_config, number);
}

static int read_it(once__manifest_t *manifest)
{
    return once__manifest_read(manifest, &log_config);
}

/* Live are exactly 1 to `count`. */
static void expect_live(uint64_t count, int torn)
{
    once__manifest_t manifest;

    assert_int_equal(read_it(&manifest), ONCE_OK);
    assert_int_equal(manifest.live_count, count);
    for (uint64_t i = 0; i < count; i++) {
        assert_int_equal(manifest.live[i], i + 1);
    }
    assert_int_equal(manifest.torn, torn);
    once__manifest_free(&manifest);
}

static uint64_t file_size(void)
{
    struct stat st;

    assert_int_equal(fstatat(folder_fd, "manifest", &st, 0), 0);
    return (uint64_t)st.st_size;
}

/* Changes bytes of the file behind the back of everybody. */
static void poke(uint64_t offset, const void *bytes, size_t len)
{
    int fd = openat(folder_fd, "manifest", O_RDWR);

    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, len, (off_t)offset), (ssize_t)len);
    (void)close(fd);
}

static void peek(uint64_t offset, void *bytes, size_t len)
{
    int fd = openat(folder_fd, "manifest", O_RDONLY);

    assert_true(fd >= 0);
    assert_int_equal(pread(fd, bytes, len, (off_t)offset), (ssize_t)len);
    (void)close(fd);
}

/* ------------------------------------------------------------------------------------------------------------- tests */

static void has_what_was_written(void **state)
{
    once__manifest_t manifest;

    assert_int_equal(read_it(&manifest), ONCE_OK);
    assert_false(manifest.found);
    assert_int_equal(manifest.next, 1);
    once__manifest_free(&manifest);

    assert_int_equal(add(7), ONCE_OK);
    assert_int_equal(directory_syncs, 1); /* its name */
    assert_int_equal(add(3), ONCE_OK);
    assert_int_equal(add(9), ONCE_OK);
    assert_int_equal(drop(7), ONCE_OK);
    assert_int_equal(drop(7), ONCE_OK); /* a process was killed behind the first one */
    assert_int_equal(directory_syncs, 1);

    assert_int_equal(read_it(&manifest), ONCE_OK);
    assert_true(manifest.found);
    assert_false(manifest.torn);
    assert_int_equal(manifest.entries, 5);
    assert_int_equal(manifest.bytes, 5 * ENTRY);
    assert_int_equal(manifest.next, 10);
    assert_int_equal(manifest.live_count, 2);
    assert_int_equal(manifest.dropped_count, 1);
    assert_true(once__manifest_is_live(&manifest, 3) && once__manifest_is_live(&manifest, 9));
    assert_false(once__manifest_is_live(&manifest, 7) || once__manifest_is_live(&manifest, 4));
    assert_true(once__manifest_is_dropped(&manifest, 7));
    assert_false(once__manifest_is_dropped(&manifest, 3));
    once__manifest_free(&manifest);
}

/* The disk becomes full at every byte of an entry. */
static void full_disk_leaves_no_part(void **state)
{
    assert_int_equal(add(1), ONCE_OK);
    for (size_t bytes = 0; bytes < ENTRY; bytes++) {
        room = bytes;
        assert_int_equal(add(2), ONCE_E_FULL);
        assert_int_equal(file_size(), ENTRY);
        expect_live(1, 0);
    }
    room = ENTRY;
    assert_int_equal(add(2), ONCE_OK);
    expect_live(2, 0);
}

/* A process is killed at every byte of an entry, and another one goes on. */
static void killed_process_leaves_no_damage(void **state)
{
    uint8_t entry[ENTRY];

    assert_int_equal(add(1), ONCE_OK);
    assert_int_equal(add(99), ONCE_OK);
    peek(ENTRY, entry, ENTRY);
    for (uint64_t bytes = 1; bytes < ENTRY; bytes++) {
        assert_int_equal(unlinkat(folder_fd, "manifest", 0), 0);
        assert_int_equal(add(1), ONCE_OK);
        poke(ENTRY, entry, (size_t)bytes);
        expect_live(1, 1);
        assert_int_equal(add(2), ONCE_OK);
        assert_int_equal(add(3), ONCE_OK);
        expect_live(3, 0);
    }
}

/* A crash leaves zeros where entries were, at the end of the file. */
static void crash_leaves_torn_end(void **state)
{
    static const uint8_t zeros[3 * ENTRY];

    assert_int_equal(add(1), ONCE_OK);
    assert_int_equal(add(2), ONCE_OK);
    poke((uint64_t)2 * ENTRY, zeros, sizeof(zeros));
    expect_live(2, 1);
    assert_int_equal(add(3), ONCE_OK);
    assert_int_equal(file_size(), 3 * ENTRY);
    assert_int_equal(add(4), ONCE_OK);
    expect_live(4, 0);
}

/* Two processes had appended when the power failed: the first entry is lost, the second is not. */
static void crash_leaves_torn_middle(void **state)
{
    static const uint8_t zeros[ENTRY];
    uint8_t entry[ENTRY];

    assert_int_equal(add(1), ONCE_OK);
    assert_int_equal(add(2), ONCE_OK); /* says that the first one is synced, nothing else */
    peek(ENTRY, entry, ENTRY);
    poke(ENTRY, zeros, ENTRY);
    poke((uint64_t)2 * ENTRY, entry, ENTRY);
    expect_live(2, 1);
}

/* Every bit of an entry that a later one vouches for. */
static void damage_is_told(void **state)
{
    once__manifest_t manifest;

    for (uint64_t i = 1; i <= 4; i++) {
        assert_int_equal(add(i), ONCE_OK);
    }
    for (uint64_t at = 0; at < (uint64_t)3 * ENTRY; at++) {
        for (unsigned bit = 0; bit < 8; bit++) {
            uint8_t byte;
            peek(at, &byte, 1);
            byte ^= (uint8_t)(1u << bit);
            poke(at, &byte, 1);
            assert_int_equal(read_it(&manifest), ONCE_E_CORRUPT);
            byte ^= (uint8_t)(1u << bit);
            poke(at, &byte, 1);
        }
    }
    expect_live(4, 0);
}

static void another_store_is_refused(void **state)
{
    once__log_config_t other = log_config;
    once__manifest_t manifest;

    other.store_id[0] = 8;

    assert_int_equal(add(1), ONCE_OK);
    assert_int_equal(once__manifest_read(&manifest, &other), ONCE_E_CORRUPT);
}

/* The first sync of an append is for the entries before it, the second one for the entry. */
static void failed_sync_is_an_error(void **state)
{
    assert_int_equal(add(1), ONCE_OK);
    fail_sync = 1;
    assert_int_equal(add(2), ONCE_E_IO);
    expect_live(1, 0);
    fail_sync = 2;
    assert_int_equal(add(2), ONCE_E_IO);
}

static void several_processes_append(void **state)
{
    pid_t children[4];
    int status;

    for (unsigned i = 0; i < 4; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            for (uint64_t n = 0; n < 50; n++) {
                int code;
                do {
                    code = add(n * 4 + i + 1);
                } while (code == ONCE_E_NOREPLY);
                if (code != ONCE_OK) {
                    _exit(1);
                }
            }
            _exit(0);
        }
    }
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    expect_live(200, 0);
}

static void holder_of_the_lock_is_not_waited_for(void **state)
{
    int fd;

    assert_int_equal(add(1), ONCE_OK);
    fd = openat(folder_fd, "manifest", O_RDONLY);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_int_equal(add(2), ONCE_E_NOREPLY);
    expect_live(1, 0);
    (void)close(fd);
    assert_int_equal(add(2), ONCE_OK);
}

static void file_size_limit_is_no_signal(void **state)
{
    struct rlimit limit = {2 * ENTRY + 7, 2 * ENTRY + 7};
    int status;
    pid_t child = fork();

    if (child == 0) {
        (void)setrlimit(RLIMIT_FSIZE, &limit);
        _exit(add(1) != ONCE_OK || add(2) != ONCE_OK || add(3) != ONCE_E_FULL);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    expect_live(2, 0);
}

static void written_anew_keeps_the_next_number(void **state)
{
    static const uint64_t live[] = {1, 2};
    once__manifest_t manifest;

    for (uint64_t i = 1; i <= 9; i++) {
        assert_int_equal(add(i), ONCE_OK);
    }
    assert_int_equal(drop(9), ONCE_OK);
    assert_int_equal(once__manifest_write(&log_config, live, 2, 10), ONCE_OK);
    assert_int_equal(read_it(&manifest), ONCE_OK);
    assert_int_equal(manifest.entries, 3);
    assert_int_equal(manifest.next, 10);
    assert_true(once__manifest_is_dropped(&manifest, 9));
    once__manifest_free(&manifest);
    expect_live(2, 0);

    room = ENTRY;
    assert_int_equal(once__manifest_write(&log_config, live, 2, 10), ONCE_E_FULL);
    room = SIZE_MAX;
    expect_live(2, 0);
    assert_int_equal(once__manifest_write(&log_config, live, 0, 1), ONCE_OK);
    assert_int_equal(file_size(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(has_what_was_written, start, end),
        cmocka_unit_test_setup_teardown(full_disk_leaves_no_part, start, end),
        cmocka_unit_test_setup_teardown(killed_process_leaves_no_damage, start, end),
        cmocka_unit_test_setup_teardown(crash_leaves_torn_end, start, end),
        cmocka_unit_test_setup_teardown(crash_leaves_torn_middle, start, end),
        cmocka_unit_test_setup_teardown(damage_is_told, start, end),
        cmocka_unit_test_setup_teardown(another_store_is_refused, start, end),
        cmocka_unit_test_setup_teardown(failed_sync_is_an_error, start, end),
        cmocka_unit_test_setup_teardown(several_processes_append, start, end),
        cmocka_unit_test_setup_teardown(holder_of_the_lock_is_not_waited_for, start, end),
        cmocka_unit_test_setup_teardown(file_size_limit_is_no_signal, start, end),
        cmocka_unit_test_setup_teardown(written_anew_keeps_the_next_number, start, end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
