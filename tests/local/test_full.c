/*
 * A disk that is really full: a small file system of our own. Needs the right to mount, as root or in a user namespace; where
 * there is neither, the test is skipped and says so.
 */
#include "place.h"

#include "support/testing.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"

#define QUERY   "segment=64k&renew=off&reap=off&store_timeout=100ms"
#define SKIPPED 77

static char base[PLACE_SIZE], store[PLACE_SIZE], filler[PLACE_SIZE];

static int write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    int ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

    if (fd >= 0) {
        (void)close(fd);
    }
    return ok ? 0 : -1;
}

/* A namespace of our own: the mount is seen by nobody else and goes with this process. */
static int may_mount(void)
{
    char map[64];
    unsigned user = getuid(), group = getgid();

    if (unshare(CLONE_NEWNS) == 0) {
        return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
    }
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) {
        return 0;
    }
    (void)snprintf(map, sizeof(map), "%u %u 1", user, user);
    if (write_text("/proc/self/setgroups", "deny") != 0 ||
        write_text("/proc/self/uid_map", map) != 0) {
        return 0;
    }
    (void)snprintf(map, sizeof(map), "%u %u 1", group, group);
    return write_text("/proc/self/gid_map", map) == 0;
}

/* Takes all room but `left` bytes. */
static void fill(uint64_t left)
{
    int fd = open(filler, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    off_t size = 0;

    assert_true(fd >= 0);
    while (fallocate(fd, 0, size, 4096) == 0) {
        size += 4096;
    }
    assert_int_equal(errno, ENOSPC);
    assert_true((uint64_t)size > left);
    assert_int_equal(ftruncate(fd, size - (off_t)(left / 4096 * 4096)), 0);
    (void)close(fd);
}

static int start(void **state)
{
    place_make(base);
    assert_int_equal(mount("tmpfs", base, "tmpfs", 0, "size=24m,mode=700"), 0);
    place_join(store, base, "store");
    place_join(filler, base, "filler");
    return 0;
}

static int end(void **state)
{
    (void)umount2(base, MNT_DETACH);
    (void)rmdir(base);
    return 0;
}

static told_t ask_number(once_t *once, unsigned number)
{
    char key[32];

    (void)snprintf(key, sizeof(key), "key-%u", number);
    return ask(once, key, NULL);
}

/* Fails closed, serves what it has, and heals by itself. */
static void test_records(void **state)
{
    once_t *once = place_open(store, QUERY, NULL);
    unsigned done = 0;
    told_t told;

    (void)get(once, "nothing");
    fill(600 << 10);
    for (;; done++) {
        uint8_t body[3000];
        dice_t dice = {done};
        dice_fill(&dice, body, sizeof(body));
        told = ask_number(once, done);
        if (told.error != ONCE_OK) {
            break;
        }
        assert_int_equal(told.outcome, ONCE_OUTCOME_RUN);
        told = complete(told.claim, 200, body, sizeof(body));
        if (told.error != ONCE_OK) {
            break;
        }
    }
    assert_int_equal(told.error, ONCE_E_FULL);
    assert_true(done > 20);
    for (unsigned i = 0; i < done; i++) {
        assert_int_equal(ask_number(once, i).outcome, ONCE_OUTCOME_REPLAY);
    }
    assert_int_equal(unlink(filler), 0);
    told = ask_number(once, 1000000);
    assert_int_equal(told.outcome, ONCE_OUTCOME_RUN);
    assert_int_equal(complete(told.claim, 201, "", 0).outcome, ONCE_OUTCOME_DONE);
    assert_int_equal(once_close(once, 5000), ONCE_OK);
    once = place_open(store, QUERY, NULL);
    for (unsigned i = 0; i < done; i++) {
        assert_int_equal(ask_number(once, i).outcome, ONCE_OUTCOME_REPLAY);
    }
    assert_int_equal(once_close(once, 5000), ONCE_OK);
}

/* The outcome of a held key is not known once its lease is over, also where that cannot be written down. */
static void test_held_key(void **state)
{
    once_t *once = place_open(store, QUERY, NULL);
    told_t held = ask(once, "held", "recover=hold lease=1s"),
           other = ask(once, "other", "recover=retry lease=1s");
    peek_t peek;
    unsigned done = 0;

    assert_int_equal(held.outcome, ONCE_OUTCOME_RUN);
    assert_int_equal(other.outcome, ONCE_OUTCOME_RUN);
    fill(0);
    while (ask_number(once, done).error == ONCE_OK) {
        done++;
    }
    peek_open(&peek, store);
    peek_set_now(&peek, once__index_now(peek.index) + 10000);
    assert_int_equal(ask(once, "held", "recover=hold").outcome, ONCE_OUTCOME_UNKNOWN);
    assert_int_equal(ask(once, "held", "recover=retry").outcome, ONCE_OUTCOME_UNKNOWN);
    /* To hold what was not held would have to be written down. */
    assert_int_equal(ask(once, "other", "recover=hold").error, ONCE_E_FULL);
    assert_int_equal(ask(once, "other", "recover=retry").error, ONCE_E_FULL);
    assert_int_equal(unlink(filler), 0);
    assert_int_equal(ask(once, "held", "recover=hold").outcome, ONCE_OUTCOME_UNKNOWN);
    assert_int_equal(get(once, "held").state, ONCE_STATE_UNKNOWN);
    assert_int_equal(complete(held.claim, 200, "", 0).outcome, ONCE_OUTCOME_DONE);
    once_claim_drop(other.claim);
    peek_close(&peek);
    (void)once_close(once, 5000);
}

static void test_opening(void **state)
{
    once_error_t err = {0};
    once_t *once;

    fill(0);
    assert_int_equal(place_try(store, QUERY, NULL, &once, &err), ONCE_E_FULL);
    assert_int_equal(unlink(filler), 0);
    once = place_open(store, QUERY, NULL);
    assert_int_equal(ask_number(once, 1).outcome, ONCE_OUTCOME_RUN);
    (void)once_close(once, 5000);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, start, end)
    const struct CMUnitTest tests[] = {
        TEST(test_records),
        TEST(test_held_key),
        TEST(test_opening),
    };

    if (!may_mount()) {
        (void)fprintf(stderr,
                      "SKIPPED: no file system can be mounted here (%s); a full disk was "
                      "not tried\n",
                      strerror(errno));
        return SKIPPED;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
