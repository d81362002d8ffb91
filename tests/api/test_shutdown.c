/*
 * Ending a handle: gracefully, in a hurry, and inside a callback.
 */
#include "support/testing.h"

#include <string.h>

#include "base/bytes.h"
#include "support/world.h"

static world_fault_t all_away(world_t *world, const once__op_t *op)
{
    return WORLD_AWAY;
}

static void note_end(once_t *once, void *data)
{
    (*(unsigned *)data)++;
}

static void a_graceful_end_waits_for_submitted_completions(void **state)
{
    once_response_t response = world_response(201, "made");
    unsigned ended = 0;
    world_t world;
    once_t *once;
    seen_t seen, done = {.calls = 0}, refused;

    world_init(&world);
    once = world_open(&world, "store_timeout=1s");
    assert_int_equal(world_ask(once, "k", NULL, NULL, &seen), ONCE_OK);
    world_run(&world, once);
    world.plan = all_away;
    assert_int_equal(once_claim_complete(seen.claim, &response, seen_cb, &done), ONCE_OK);
    assert_int_equal(once_shutdown(once, note_end, &ended), ONCE_OK);
    assert_int_equal(world_ask(once, "k2", NULL, NULL, &refused), ONCE_E_CLOSED);
    assert_int_equal(once_shutdown(once, note_end, &ended), ONCE_E_CLOSED); /* one is enough */
    world_pass(&world, once, 20000);
    assert_int_equal(ended, 0);
    world.plan = NULL;
    world_pass(&world, once, 5000);
    assert_int_equal(ended, 1);
    assert_int_equal(world_record(&world, once, "k")->head.state, ONCE_STATE_COMPLETED);
    assert_int_equal(once_close(once, 0), ONCE_OK);
    world_free(&world);
}

static void asks_under_way_are_told_and_what_they_get_is_released(void **state)
{
    unsigned ended = 0;
    world_t world;
    once_t *once;
    seen_t seen;

    world_init(&world);
    once = world_open(&world, NULL);
    world_run(&world, once);
    assert_int_equal(world_ask(once, "k", "recover=hold", NULL, &seen), ONCE_OK);
    assert_int_equal(once_shutdown(once, note_end, &ended), ONCE_OK);
    assert_int_equal(seen.calls, 0); /* callbacks are for dispatch */
    world_run(&world, once);
    assert_int_equal(seen.calls, 1);
    assert_int_equal(seen.error, ONCE_E_CLOSED);
    assert_int_equal(ended, 1);
    assert_int_equal(world_record(&world, once, "k")->head.state, ONCE_STATE_FAILED);
    assert_int_equal(once_close(once, 0), ONCE_OK);
    world_free(&world);
}

static void an_end_in_a_hurry_says_what_it_abandoned(void **state)
{
    once_response_t response = world_response(201, "made");
    world_t world;
    once_t *once;
    seen_t seen, done = {.calls = 0};

    world_init(&world);
    once = world_open(&world, NULL);
    assert_int_equal(world_ask(once, "k", NULL, NULL, &seen), ONCE_OK);
    world_run(&world, once);
    world.plan = all_away;
    assert_int_equal(once_claim_complete(seen.claim, &response, seen_cb, &done), ONCE_OK);
    world_run(&world, once);
    assert_int_equal(once_close(once, 0), ONCE_E_UNAVAILABLE);
    assert_int_equal(done.calls, 1);
    assert_int_equal(done.error, ONCE_E_CLOSED);
    world_free(&world);
}

typedef struct stubborn {
    seen_t *held;
    int code;
} stubborn_t;

static void submit_more(once_t *once, once_answer_t *answer, void *data)
{
    stubborn_t *stubborn = data;

    stubborn->code = once_claim_doubt(stubborn->held->claim, once__slice("timeout", 7), NULL, NULL);
}

static void callbacks_of_a_dying_handle_can_submit_nothing(void **state)
{
    once_response_t response = world_response(201, "made");
    world_t world;
    once_t *once;
    seen_t first, second;
    stubborn_t stubborn = {&second, 0};

    world_init(&world);
    once = world_open(&world, NULL);
    assert_int_equal(world_ask(once, "a", NULL, NULL, &first), ONCE_OK);
    assert_int_equal(world_ask(once, "b", NULL, NULL, &second), ONCE_OK);
    world_run(&world, once);
    world.hang = 1;
    assert_int_equal(once_claim_complete(first.claim, &response, submit_more, &stubborn), ONCE_OK);
    world_run(&world, once);
    assert_int_equal(once_close(once, 0), ONCE_E_UNAVAILABLE);
    assert_int_equal(stubborn.code, ONCE_E_CLOSED);
    world_free(&world);
}

static void close_inside(once_t *once, once_answer_t *answer, void *data)
{
    *(int *)data = once_close(once, 0);
}

static void a_handle_cannot_be_closed_by_its_own_callback(void **state)
{
    once_ask_t ask = ONCE_ASK_INIT;
    world_t world;
    once_t *once;
    int code = 1;

    world_init(&world);
    once = world_open(&world, NULL);
    ask.key = once__slice("k", 1);
    assert_int_equal(once_begin(once, &ask, close_inside, &code), ONCE_OK);
    world_run(&world, once);
    assert_int_equal(code, ONCE_E_REENTRANT);
    assert_int_equal(once_close(once, 0), ONCE_OK);
    assert_int_equal(once_close(NULL, 0), ONCE_OK);
    world_free(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_graceful_end_waits_for_submitted_completions),
        cmocka_unit_test(asks_under_way_are_told_and_what_they_get_is_released),
        cmocka_unit_test(an_end_in_a_hurry_says_what_it_abandoned),
        cmocka_unit_test(callbacks_of_a_dying_handle_can_submit_nothing),
        cmocka_unit_test(a_handle_cannot_be_closed_by_its_own_callback),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
