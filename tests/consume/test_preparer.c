/*
 * The thread that prepares messages: what is given comes back once, prepared, in its order; at the end all of it comes back.
 */
#include "support/testing.h"

#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "broker/preparer.h"

#define MANY  200000
#define BATCH 256

typedef struct thing {
    size_t number, prepared;
} thing_t;

static void prepare(void *data, void *const *things, size_t count)
{
    if (count == 0 || count > BATCH) {
        abort(); /* not cmocka's thread */
    }
    for (size_t i = 0; i < count; i++) {
        thing_t *thing = things[i];
        if (i == count / 2) {
            (void)sched_yield(); /* whoever takes them too early is to have the time for it */
        }
        thing->prepared = thing->number + 1;
    }
}

static size_t give_some(once__preparer_t *preparer, thing_t *things, size_t given)
{
    void *some[BATCH];
    size_t count = 1 + (size_t)random() % BATCH;

    count = count < MANY - given ? count : MANY - given;
    for (size_t i = 0; i < count; i++) {
        things[given + i] = (thing_t){given + i, 0};
        some[i] = &things[given + i];
    }
    once__preparer_give(preparer, some, count);
    return count;
}

static size_t take_some(once__preparer_t *preparer, const thing_t *things, size_t taken)
{
    void *some[BATCH];
    size_t count = once__preparer_take(preparer, some, 1 + (size_t)random() % BATCH);

    for (size_t i = 0; i < count; i++) {
        assert_ptr_equal(some[i], &things[taken + i]);
        assert_int_equal(things[taken + i].prepared, taken + i + 1);
    }
    return count;
}

static void all_come_back_in_order(void **state)
{
    thing_t *things = calloc(MANY, sizeof(*things));
    struct pollfd wake = {.fd = eventfd(0, EFD_NONBLOCK), .events = POLLIN};
    once__preparer_t *preparer = once__preparer_new(prepare, NULL, wake.fd);
    size_t given = 0, taken = 0;
    uint64_t count;

    assert_non_null(preparer);
    while (taken < MANY) {
        size_t before = taken;
        if (given < MANY && once__preparer_open(preparer) + BATCH <= ONCE__PREPARER_ROOM) {
            given += give_some(preparer, things, given);
        }
        taken += take_some(preparer, things, taken);
        assert_int_equal(once__preparer_open(preparer), given - taken);
        if (taken == before &&
            (given == MANY || random() % 4 == 0)) { /* it says so when there is something */
            assert_int_equal(poll(&wake, 1, 60000), 1);
            assert_int_equal(read(wake.fd, &count, sizeof(count)), sizeof(count));
        }
    }
    once__preparer_free(preparer);
    (void)close(wake.fd);
    free(things);
}

static void what_was_not_taken_comes_back_after_the_stop(void **state)
{
    for (int round = 0; round < 50; round++) {
        static thing_t things[MANY];
        void *some[BATCH];
        int fd = eventfd(0, EFD_NONBLOCK);
        once__preparer_t *preparer = once__preparer_new(prepare, NULL, fd);
        size_t given = 0, taken = 0, count;
        while (once__preparer_open(preparer) + BATCH <= ONCE__PREPARER_ROOM) {
            given += give_some(preparer, things, given);
        }
        once__preparer_stop(preparer);
        while ((count = once__preparer_take(preparer, some, BATCH)) > 0) {
            for (size_t i = 0; i < count; i++) {
                assert_ptr_equal(some[i], &things[taken + i]);
            }
            taken += count;
        }
        assert_int_equal(taken, given);
        once__preparer_free(preparer);
        (void)close(fd);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_come_back_in_order),
        cmocka_unit_test(what_was_not_taken_comes_back_after_the_stop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
