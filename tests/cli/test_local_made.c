/*
 * The making of a local store, step by step: a process that is killed before any of its system calls leaves something that the next
 * one opens. And the moment between two locks, in which another process can be alone with the store.
 */
#include "harness.h"

#include <stdio.h>
#include <unistd.h>

#include <once/once.h>

#include "local.h"
#include "records.h"
#include "steps.h"

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
    int steps = 0, code = STEPS_KILLED;

    for (; code == STEPS_KILLED; steps++) {
        place_t place;
        once_t *once;

        place_make(&place, "");
        steps_left = steps;
        code = in_child(open_and_be_killed, &place);
        steps_left = -1;
        if (code != 0 && code != STEPS_KILLED) {
            print_error("step %d: %d\n", steps, code);
        }
        assert_true(code == 0 || code == STEPS_KILLED);
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

/* The same on a store that has records, and no index: the last program that ends removes a small one. */
static void killed_while_the_index_is_made(void **state)
{
    int steps = 0, code = STEPS_KILLED;
    place_t place;
    once_t *once;

    place_make(&place, "");
    once = open_store(place.url);
    make_completed(once, "s", "k", "x");
    once_close(once, -1);
    for (; code == STEPS_KILLED; steps++) {
        steps_left = steps;
        code = in_child(open_and_be_killed, &place);
        steps_left = -1;
        assert_true(code == 0 || code == STEPS_KILLED);
        once = open_store(place.url);
        assert_int_equal(state_of(once, "s", "k"), ONCE_STATE_COMPLETED);
        once_close(once, -1);
    }
    assert_true(steps > 5);
    place_remove(&place);
}

/* ---------------------------------------------------------------------------------------------------- between two locks */

static void another_program_comes_and_goes(void *data)
{
    const place_t *place = data;
    once_t *once = open_store(place->url);

    make_completed(once, "s", "k", "x");
    once_close(once, -1); /* removes the index, as the last one */
}

/* Otherwise this program would go on with an index that no other finds, and that does not have what happened in between. */
static void another_index_in_between_is_noticed(void **state)
{
    place_t place;
    once_t *once, *other;

    place_make(&place, "");
    steps_between_locks = another_program_comes_and_goes;
    steps_data = &place;
    once = open_store(place.url);
    assert_null(steps_between_locks);
    assert_int_equal(state_of(once, "s", "k"), ONCE_STATE_COMPLETED);
    other = open_store(place.url);
    make_completed(other, "s", "later", "x");
    assert_int_equal(state_of(once, "s", "later"), ONCE_STATE_COMPLETED);
    once_close(other, -1);
    once_close(once, -1);
    place_remove(&place);
}

static int open_and_die(void *data)
{
    const place_t *place = data;

    make_completed(open_store(place->url), "s", "k", "x");
    _exit(0);
}

static void another_program_is_killed(void *data)
{
    assert_int_equal(in_child(open_and_die, data), 0);
}

/* Its index is the same one: it was compared with the log again. */
static void the_same_index_is_used_together(void **state)
{
    place_t place;
    once_t *once;

    place_make(&place, "");
    steps_between_locks = another_program_is_killed;
    steps_data = &place;
    once = open_store(place.url);
    assert_null(steps_between_locks);
    assert_int_equal(state_of(once, "s", "k"), ONCE_STATE_COMPLETED);
    once_close(once, -1);
    place_remove(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_before_any_step),
        cmocka_unit_test(killed_while_the_index_is_made),
        cmocka_unit_test(another_index_in_between_is_noticed),
        cmocka_unit_test(the_same_index_is_used_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
