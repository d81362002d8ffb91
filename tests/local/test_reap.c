/*
 * What a handle does by itself must not keep those waiting who ask.
 */
#include "place.h"

#include "support/testing.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SEGMENTS 8
#define SLOW_MS  110
#define OFF      "segment=64k&renew=off&reap=off"

static _Atomic unsigned syncs;

/* Every segment that goes needs one of the manifest. */
static int sync_slowly(void *data, int fd)
{
    char link[64], path[PLACE_SIZE] = "";

    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    if (readlink(link, path, sizeof(path) - 1) > 0 && strstr(path, "/manifest") != NULL) {
        (void)poll(NULL, 0, SLOW_MS);
        atomic_fetch_add(&syncs, 1);
    }
    return fdatasync(fd);
}

static void leave_segment(const char *path, const char *key)
{
    once_t *once = place_open(path, OFF, NULL);

    do_with_body(once, key, 200, 4);
    assert_int_equal(once_close(once, 1000), ONCE_OK);
}

static void test_asks_come_between_segments(void **state)
{
    char base[PLACE_SIZE], path[PLACE_SIZE], key[16];
    once__disk_t disk = once__real_disk;
    unsigned before, most = 0;
    once_t *once;

    place_make(base);
    place_join(path, base, "store");
    for (unsigned i = 0; i < SEGMENTS; i++) {
        (void)snprintf(key, sizeof(key), "key-%u", i);
        leave_segment(path, key);
    }
    disk.sync = sync_slowly;
    once = place_open(path, "segment=64k&renew=off&reap=1ms&store_timeout=60s", &disk);
    while (place_count(path, "segments", ".log") > 2) {
        before = atomic_load(&syncs);
        assert_int_equal(get(once, "key-0").status, 200);
        most = atomic_load(&syncs) - before > most ? atomic_load(&syncs) - before : most;
    }
    assert_true(atomic_load(&syncs) > 0);
    assert_in_range(most, 0, 4); /* one segment, and a new one of our own */
    for (unsigned i = 0; i < SEGMENTS; i++) {
        (void)snprintf(key, sizeof(key), "key-%u", i);
        assert_int_equal(get(once, key).status, 200);
    }
    assert_int_equal(once_close(once, 5000), ONCE_OK);
    place_remove(base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_asks_come_between_segments)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
