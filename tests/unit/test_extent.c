/*
 * Which segments must exist: the newest of two slots that can be believed.
 */
#include "store/local/extent.h"

#include "support/testing.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "store/local/log.h"

static char folder[64];
static int folder_fd;

static int start(void **state)
{
    (void)snprintf(folder, sizeof(folder), "/tmp/once-extent-XXXXXX");
    assert_non_null(mkdtemp(folder));
    folder_fd = open(folder, O_RDONLY | O_DIRECTORY);
    assert_true(folder_fd >= 0);
    return 0;
}

static int end(void **state)
{
    (void)unlinkat(folder_fd, "extent", 0);
    (void)close(folder_fd);
    (void)rmdir(folder);
    return 0;
}

static void put(uint32_t first, uint32_t last)
{
    once__extent_t extent = {first, last};
    int fd = once__extent_write(&once__real_disk, folder_fd, &extent);

    assert_true(fd >= 0);
    (void)close(fd);
}

static void check(uint32_t first, uint32_t last)
{
    once__extent_t extent;

    assert_int_equal(once__extent_read(folder_fd, &extent), 1);
    assert_int_equal(extent.first, first);
    assert_int_equal(extent.last, last);
}

static void change(off_t at)
{
    int fd = openat(folder_fd, "extent", O_RDWR);
    uint8_t byte;

    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    (void)close(fd);
}

static void test_nothing_is_known(void **state)
{
    once__extent_t extent;

    assert_int_equal(once__extent_read(folder_fd, &extent), 0);
    assert_int_equal(once__extent_make(folder_fd), 0);
    assert_int_equal(once__extent_read(folder_fd, &extent), 0);
    assert_int_equal(once__extent_make(folder_fd), 0);
}

static void test_the_last_one_counts(void **state)
{
    put(1, 1);
    check(1, 1);
    assert_int_equal(once__extent_make(folder_fd), 0);
    for (uint32_t i = 2; i < 20; i++) {
        put(i / 2, i);
        check(i / 2, i);
    }
    put(20, 19); /* all of them were dropped */
    check(20, 19);
}

/* Whichever bytes of the slot that was being written are the old ones: it is not believed, and the other one is. */
static void test_a_torn_slot(void **state)
{
    put(1, 7);
    put(2, 8);
    for (off_t at = 0; at < 28; at++) {
        check(2, 8);
        change(at); /* the second one is the first in the file */
        check(1, 7);
        change(at);
    }
    change(3);
    put(3, 9); /* takes the place of the one that cannot be believed */
    check(3, 9);
    put(3, 10);
    check(3, 10);
}

static void test_what_cannot_be(void **state)
{
    once__extent_t extent;

    put(0, 4);
    assert_int_equal(once__extent_read(folder_fd, &extent), 0);
    put(1, ONCE__RING + 1);
    assert_int_equal(once__extent_read(folder_fd, &extent), 0);
    put(1, ONCE__SEGMENT_MAX + 1);
    assert_int_equal(once__extent_read(folder_fd, &extent), 0);
    put(1, ONCE__RING);
    check(1, ONCE__RING);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_nothing_is_known, start, end),
        cmocka_unit_test_setup_teardown(test_the_last_one_counts, start, end),
        cmocka_unit_test_setup_teardown(test_a_torn_slot, start, end),
        cmocka_unit_test_setup_teardown(test_what_cannot_be, start, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
