/*
 * The thread that prepares messages, and the owner that helps it: everything is prepared once, by either of them, and comes back in
 * its order; at the end all of it comes back.
 */
#include "support/testing.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "broker/kafka/preparer.h"

#define ALL   60000
#define BATCH 256

typedef struct thing {
    unsigned times; /* that it was prepared */
    pthread_t by;
} thing_t;

typedef struct stage {
    once__kafka_preparer_t *preparer;
    int fd;
    pthread_t owner;
    sem_t may;   /* the thread waits for it before it prepares, if `holds` */
    sem_t began; /* the thread has begun */
    int holds;
    thing_t things[ALL];
} stage_t;

static stage_t stage;

static void prepare(void *data, void *const *things, size_t count)
{
    stage_t *on = data;

    if (on->holds && !pthread_equal(pthread_self(), on->owner)) {
        sem_post(&on->began);
        sem_wait(&on->may);
    }
    if (count == 0 || count > BATCH) {
        abort(); /* not always cmocka's thread */
    }
    for (size_t i = 0; i < count; i++) {
        thing_t *thing = things[i];
        if (i == count / 2) {
            (void)sched_yield(); /* gives a premature take the time to happen */
        }
        thing->times++;
        thing->by = pthread_self();
    }
}

static int begin(void **state)
{
    stage = (stage_t){.owner = pthread_self()};
    stage.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    sem_init(&stage.may, 0, 0);
    sem_init(&stage.began, 0, 0);
    stage.preparer = once__kafka_preparer_new(prepare, &stage, stage.fd);
    return stage.preparer == NULL;
}

static int end(void **state)
{
    once__kafka_preparer_free(stage.preparer);
    sem_destroy(&stage.may);
    sem_destroy(&stage.began);
    return close(stage.fd);
}

static void give(size_t from, size_t count)
{
    void *some[ONCE__KAFKA_PREPARER_ROOM];

    for (size_t i = 0; i < count; i++) {
        some[i] = &stage.things[from + i];
    }
    once__kafka_preparer_give(stage.preparer, some, count);
}

/* Those that are prepared; they must be the next ones. Returns how many. */
static size_t take(size_t from, size_t most)
{
    void *some[ONCE__KAFKA_PREPARER_ROOM];
    size_t count = once__kafka_preparer_take(stage.preparer, some, most);

    assert_true(count <= most);
    for (size_t i = 0; i < count; i++) {
        assert_ptr_equal(some[i], &stage.things[from + i]);
        assert_int_equal(stage.things[from + i].times, 1);
    }
    return count;
}

static void await(void)
{
    struct pollfd wanted = {.fd = stage.fd, .events = POLLIN};
    uint64_t count;

    assert_int_equal(poll(&wanted, 1, 60000), 1);
    assert_int_equal(read(stage.fd, &count, sizeof(count)), sizeof(count));
}

static void give_and_take_all(int helps)
{
    size_t given = 0, taken = 0;

    for (unsigned turn = 0; taken < ALL; turn++) {
        size_t open = once__kafka_preparer_open(stage.preparer), some = turn * 37 % BATCH + 1, got;
        assert_int_equal(open, given - taken);
        some = some < ALL - given ? some : ALL - given;
        if (some > 0 && open + some <= ONCE__KAFKA_PREPARER_ROOM) {
            give(given, some);
            given += some;
        }
        got = take(taken, turn % 5 == 0 ? 3 : BATCH);
        taken += got;
        if (got == 0 && (!helps || once__kafka_preparer_help(stage.preparer) == 0) &&
            given > taken && (given == ALL || open + BATCH > ONCE__KAFKA_PREPARER_ROOM)) {
            await(); /* the thread has the rest */
        }
    }
    assert_int_equal(once__kafka_preparer_open(stage.preparer), 0);
}

static void everything_comes_back_once_and_in_order(void **state)
{
    give_and_take_all(0);
}

static void also_when_the_owner_helps(void **state)
{
    give_and_take_all(1);
}

/* The owner does what the thread has not begun, and gets nothing before the thread is done with what comes first. */
static void the_owner_helps_and_keeps_the_order(void **state)
{
    size_t taken = 0;

    stage.holds = 1;
    give(0, 2 * BATCH);
    sem_wait(&stage.began);
    assert_int_equal(once__kafka_preparer_help(stage.preparer), BATCH);
    assert_int_equal(once__kafka_preparer_help(stage.preparer), 0);
    assert_int_equal(take(0, 2 * BATCH), 0);
    sem_post(&stage.may);
    while (taken < 2 * BATCH) {
        await();
        taken += take(taken, 2 * BATCH);
    }
    assert_false(pthread_equal(stage.things[0].by, stage.owner));
    assert_true(pthread_equal(stage.things[BATCH].by, stage.owner));
}

static void what_was_not_taken_comes_back_after_the_stop(void **state)
{
    void *some[BATCH];
    size_t given = 0, taken = 0, count;

    while (once__kafka_preparer_open(stage.preparer) + BATCH <= ONCE__KAFKA_PREPARER_ROOM) {
        give(given, BATCH - 1);
        given += BATCH - 1;
    }
    once__kafka_preparer_stop(stage.preparer);
    while ((count = once__kafka_preparer_take(stage.preparer, some, BATCH)) > 0) {
        for (size_t i = 0; i < count; i++) {
            assert_ptr_equal(some[i], &stage.things[taken + i]);
            assert_true(stage.things[taken + i].times <= 1);
        }
        taken += count;
    }
    assert_int_equal(taken, given);
}

static void nothing_to_stop(void **state)
{
    once__kafka_preparer_stop(NULL);
    once__kafka_preparer_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(everything_comes_back_once_and_in_order, begin, end),
        cmocka_unit_test_setup_teardown(also_when_the_owner_helps, begin, end),
        cmocka_unit_test_setup_teardown(the_owner_helps_and_keeps_the_order, begin, end),
        cmocka_unit_test_setup_teardown(what_was_not_taken_comes_back_after_the_stop, begin, end),
        cmocka_unit_test(nothing_to_stop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
