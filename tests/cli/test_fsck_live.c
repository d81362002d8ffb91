/*
 * once fsck and what a disk can do: a segment that is read while it is written, and one that cannot be read.
 */
#include "harness.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "local.h"
#include "records.h"

static int half; /* this many of the next reads of a segment find a frame that is only half there */

static int bad; /* the page from 4096 on cannot be read */

ssize_t __real_pread(int fd, void *data, size_t len, off_t offset);
ssize_t __wrap_pread(int fd, void *data, size_t len, off_t offset);
ssize_t __wrap_pread(int fd, void *data, size_t len, off_t offset)
{
    ssize_t got = __real_pread(fd, data, len, offset);

    if (bad && len >= 4096 && offset <= 4096 && offset + (off_t)len > 4096) {
        errno = EIO;
        return -1;
    }
    if (half > 0 && got >= 4096 && memcmp(data, "ONCELOG", 7) == 0) {
        memset((char *)data + 300, 0, 8);
        half--;
    }
    return got;
}

static void looked_at_again(void **state)
{
    place_t place;
    once_t *once;
    run_t r;

    place_make(&place, "?segment=64k");
    once = open_store(place.url);
    for (int i = 0; i < 5; i++) {
        char key[8];
        snprintf(key, sizeof(key), "k%d", i);
        make_completed(once, "s", key, "x");
    }
    half = 1;
    r = run("fsck", place.url, NULL);
    assert_run(r, ONCE__CLI_OK);
    assert_int_equal(half, 0);
    run_free(&r);
    half = 1000; /* always: then it is damage */
    r = run("fsck", place.url, NULL);
    assert_run(r, ONCE__CLI_NO);
    assert_has(r.out, "is damaged");
    run_free(&r);
    half = 0;
    once_close(once, -1);
    place_remove(&place);
}

static void a_page_that_cannot_be_read(void **state)
{
    place_t place;
    once_t *once;
    int there = 0;
    run_t r;

    place_make(&place, "?segment=64k");
    once = open_store(place.url);
    for (int i = 0; i < 40; i++) {
        char key[8];
        snprintf(key, sizeof(key), "k%d", i);
        make_completed(once, "s", key, "x");
    }
    once_close(once, -1);
    bad = 1;
    r = run("fsck", place.url, NULL);
    assert_run(r, ONCE__CLI_NO);
    assert_has(r.out, "segment 0000000000000001 cannot be read: Input/output error");
    run_free(&r);
    r = run("backup", place.url, inside(&place, "copy"), NULL);
    assert_run(r, ONCE__CLI_STORE);
    assert_has(r.err, "segment 0000000000000001 cannot be read");
    run_free(&r);
    r = run("fsck", place.url, "--repair", NULL); /* to another place on the disk */
    bad = 0;
    run_free(&r);
    once = open_store(place.url);
    for (int i = 0; i < 40; i++) {
        char key[8];
        snprintf(key, sizeof(key), "k%d", i);
        there += state_of(once, "s", key) == ONCE_STATE_COMPLETED;
    }
    once_close(once, -1);
    assert_true(there >= 25 && there < 40);
    r = run("fsck", place.url, NULL);
    assert_run(r, ONCE__CLI_OK);
    run_free(&r);
    place_remove(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(looked_at_again),
        cmocka_unit_test(a_page_that_cannot_be_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
