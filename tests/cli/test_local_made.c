/*
 * The making of a local store, step by step: a process that is killed before any of its system calls leaves something that the next
 * one opens. And the moment between two locks, in which another process can be alone with the store.
 */
#include "harness.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <once/local.h>

#include "local.h"
#include "records.h"

#define KILLED 9

/* The child is killed before its `left`-th call that changes something; -1: never. */
static int left = -1;

/* What happens between giving up one lock and getting another. */
static void (*in_between)(const place_t *place);
static const place_t *in_between_place;

static void step(void)
{
    if (left >= 0 && left-- == 0) {
        _exit(KILLED);
    }
}

/* clang-format off */
#define STEP(type, name, parameters, arguments)    \
    type __real_##name parameters;                 \
    type __wrap_##name parameters;                 \
    type __wrap_##name parameters                  \
    {                                              \
        step();                                    \
        return __real_##name arguments;            \
    }

STEP(int, mkdir, (const char *path, mode_t mode), (path, mode))
STEP(int, mkdirat, (int fd, const char *path, mode_t mode), (fd, path, mode))
STEP(int, renameat, (int from, const char *a, int to, const char *b), (from, a, to, b))
STEP(int, fsync, (int fd), (fd))
STEP(int, fdatasync, (int fd), (fd))
STEP(int, ftruncate, (int fd, off_t size), (fd, size))
STEP(int, fallocate, (int fd, int mode, off_t at, off_t len), (fd, mode, at, len))
STEP(int, msync, (void *at, size_t len, int flags), (at, len, flags))
STEP(int, link, (const char *from, const char *to), (from, to))
STEP(ssize_t, write, (int fd, const void *data, size_t len), (fd, data, len))
STEP(ssize_t, pwrite, (int fd, const void *data, size_t len, off_t at), (fd, data, len, at))
/* clang-format on */

int __real_openat(int directory, const char *path, int flags, ...);
int __wrap_openat(int directory, const char *path, int flags, ...);
int __wrap_openat(int directory, const char *path, int flags, ...)
{
    mode_t mode = 0;

    if (flags & O_CREAT) {
        va_list args;
        va_start(args, flags);
        mode = va_arg(args, mode_t);
        va_end(args);
        step();
    }
    return __real_openat(directory, path, flags, mode);
}

/* The kernel changes a lock by giving up the old one first: others may come in between. */
int __real_flock(int fd, int how);
int __wrap_flock(int fd, int how);
int __wrap_flock(int fd, int how)
{
    step();
    if (how == LOCK_SH && in_between != NULL) {
        void (*now)(const place_t *) = in_between;
        in_between = NULL;
        (void)__real_flock(fd, LOCK_UN);
        now(in_between_place);
    }
    return __real_flock(fd, how);
}

/* ------------------------------------------------------------------------------------------------------------- killed */

static int open_and_be_killed(void *data)
{
    const place_t *place = data;
    once_t *once = NULL;

    if (once_open(place->url, NULL, &once, NULL) != ONCE_OK) {
        return 1;
    }
    /* The secrets are made by the first answer. */
    return once_store_stats_sync(once, NULL) == ONCE_OK ? 0 : 2;
}

static void killed_before_any_step(void **state)
{
    int steps = 0, code = KILLED;

    for (; code == KILLED; steps++) {
        place_t place;
        once_t *once;

        place_make(&place, "");
        left = steps;
        code = in_child(open_and_be_killed, &place);
        left = -1;
        if (code != 0 && code != KILLED) {
            print_error("step %d: %d\n", steps, code);
        }
        assert_true(code == 0 || code == KILLED);
        once = open_store(place.url);
        make_completed(once, "s", "k", "x");
        once_close(once, -1);
        once = open_store(place.url);
        assert_int_equal(state_of(once, "s", "k"), ONCE_STATE_COMPLETED);
        once_close(once, -1);
        place_remove(&place);
    }
    assert_true(steps > 15);
}

/* The same on a store that has records, and whose index must be rebuilt. */
static void killed_while_the_index_is_made(void **state)
{
    int steps = 0, code = KILLED;
    place_t place;
    once_t *once;

    place_make(&place, "");
    once = open_store(place.url);
    make_completed(once, "s", "k", "x");
    once_close(once, -1);
    for (; code == KILLED; steps++) {
        assert_int_equal(unlink(inside(&place, "index")), 0);
        left = steps;
        code = in_child(open_and_be_killed, &place);
        left = -1;
        assert_true(code == 0 || code == KILLED);
        once = open_store(place.url);
        assert_int_equal(state_of(once, "s", "k"), ONCE_STATE_COMPLETED);
        once_close(once, -1);
    }
    assert_true(steps > 5);
    place_remove(&place);
}

/* ---------------------------------------------------------------------------------------------------- between two locks */

static int is_marked_clean(const place_t *place)
{
    uint32_t clean;
    int fd = open(inside(place, "index"), O_RDONLY);

    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &clean, sizeof(clean), 12), sizeof(clean));
    close(fd);
    return (int)clean;
}

static void somebody_comes_and_goes(const place_t *place)
{
    once_t *once = open_store(place->url);

    once_close(once, -1);
    assert_int_equal(is_marked_clean(place), 1);
}

/* Otherwise a machine that stops now would find an index that looks complete, and is not. */
static void a_clean_end_in_between_does_not_count(void **state)
{
    place_t place;
    once_t *once;

    place_make(&place, "");
    in_between = somebody_comes_and_goes;
    in_between_place = &place;
    once = open_store(place.url);
    assert_null(in_between);
    make_completed(once, "s", "k", "x");
    assert_int_equal(is_marked_clean(&place), 0);
    once_close(once, -1);
    assert_int_equal(is_marked_clean(&place), 1);
    place_remove(&place);
}

static void somebody_makes_another_index(const place_t *place)
{
    once_t *once;

    assert_int_equal(unlink(inside(place, "index")), 0);
    once = open_store(place->url);
    make_completed(once, "s", "k", "x");
    once_close(once, -1);
}

static void another_index_in_between_is_noticed(void **state)
{
    place_t place;
    once_t *once;

    place_make(&place, "");
    in_between = somebody_makes_another_index;
    in_between_place = &place;
    once = open_store(place.url);
    assert_null(in_between);
    assert_int_equal(state_of(once, "s", "k"), ONCE_STATE_COMPLETED);
    once_close(once, -1);
    place_remove(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_before_any_step),
        cmocka_unit_test(killed_while_the_index_is_made),
        cmocka_unit_test(a_clean_end_in_between_does_not_count),
        cmocka_unit_test(another_index_in_between_is_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
