/*
 * Asking to run when the store is slow, away, or loses messages.
 */
#include "support/testing.h"

#include <string.h>

#include "base/bytes.h"
#include "support/world.h"

#define HOLD "recover=hold lease=30s"

static world_fault_t lose_first_claim_reply(world_t *world, const once__op_t *op)
{
    int *left = world->plan_data;

    if (op->kind == ONCE__OP_EVENT && op->event.kind == ONCE__CLAIM && *left > 0) {
        (*left)--;
        return WORLD_LOSE_REPLY;
    }
    return WORLD_OK;
}

static world_fault_t all_away(world_t *world, const once__op_t *op)
{
    return WORLD_AWAY;
}

static world_fault_t lose_all_replies(world_t *world, const once__op_t *op)
{
    return WORLD_LOSE_REPLY;
}

static void a_lost_reply_is_asked_for_again_with_the_same_claim(void **state)
{
    world_t world;
    once_t *once;
    seen_t seen;
    int left = 3;

    world_init(&world);
    once = world_open(&world, NULL);
    world_run(&world, once);
    world.plan = lose_first_claim_reply;
    world.plan_data = &left;
    assert_int_equal(world_ask(once, "k", HOLD, NULL, &seen), ONCE_OK);
    world_pass(&world, once, 1000);
    assert_int_equal(left, 0);
    assert_int_equal(seen.calls, 1);
    assert_int_equal(seen.outcome, ONCE_OUTCOME_RUN);
    assert_int_equal(seen.epoch, 1);
    once_claim_drop(seen.claim);
    assert_int_equal(once_close(once, 0), ONCE_OK);
    world_free(&world);
}

static void what_was_granted_behind_the_callers_back_is_released(void **state)
{
    world_t world;
    once_t *once;
    seen_t seen;

    world_init(&world);
    once = world_open(&world, "store_timeout=2s");
    world_run(&world, once);
    world.plan = lose_all_replies;
    assert_int_equal(world_ask(once, "k", HOLD, NULL, &seen), ONCE_OK);
    world_pass(&world, once, 1900);
    assert_int_equal(seen.calls, 0);
    world_pass(&world, once, 200);
    assert_int_equal(seen.calls, 1);
    assert_int_equal(seen.error, ONCE_E_UNAVAILABLE);
    assert_int_equal(world_record(&world, once, "k")->head.state, ONCE_STATE_PENDING);
    world.plan = NULL;
    world_pass(&world, once, 3000);
    assert_int_equal(world_record(&world, once, "k")->head.state, ONCE_STATE_FAILED);
    assert_int_equal(seen.calls, 1);
    assert_int_equal(once_close(once, 0), ONCE_OK);
    world_free(&world);
}

static void what_was_never_sent_leaves_nothing_behind(void **state)
{
    world_t world;
    once_t *once;
    seen_t seen;

    world_init(&world);
    once = world_open(&world, "store_timeout=1s");
    world_run(&world, once);
    world.plan = all_away;
    assert_int_equal(world_ask(once, "k", HOLD, NULL, &seen), ONCE_OK);
    world_pass(&world, once, 5000);
    assert_int_equal(seen.error, ONCE_E_UNAVAILABLE);
    world.plan = NULL;
    world_pass(&world, once, 5000);
    assert_null(world_record(&world, once, "k"));
    assert_int_equal(once_close(once, 0), ONCE_OK);
    world_free(&world);
}

static void asks_before_the_secrets_are_there_wait_for_them(void **state)
{
    world_t world;
    once_t *once;
    seen_t seen, late;

    world_init(&world);
    world.plan = all_away;
    once = world_open(&world, "store_timeout=2s");
    assert_int_equal(world_ask(once, "a", NULL, NULL, &seen), ONCE_OK);
    world_pass(&world, once, 1000);
    assert_int_equal(seen.calls, 0);
    world_pass(&world, once, 1500);
    assert_int_equal(seen.error, ONCE_E_UNAVAILABLE);
    assert_int_equal(world_ask(once, "b", NULL, NULL, &late), ONCE_OK);
    world.plan = NULL;
    world_pass(&world, once, 1500);
    assert_int_equal(late.outcome, ONCE_OUTCOME_RUN);
    once_claim_drop(late.claim);
    assert_int_equal(once_close(once, 0), ONCE_OK);
    world_free(&world);
}

static void a_grant_that_comes_late_is_given_back_and_asked_for_anew(void **state)
{
    world_t world;
    once_t *once;
    seen_t seen;
    int left = 1;

    world_init(&world);
    once = world_open(&world, "renew=off");
    world_run(&world, once);
    world.plan = lose_first_claim_reply;
    world.plan_data = &left;
    world.hang = 1;
    assert_int_equal(world_ask(once, "k", "lease=1s", NULL, &seen), ONCE_OK);
    world_pass(&world, once, 400);
    world.hang = 0;
    world_run(&world, once); /* granted now, reply lost */
    world.hang = 1;
    world_pass(&world, once, 800);
    world.hang = 0;
    world_pass(&world, once, 200);
    assert_int_equal(seen.outcome, ONCE_OUTCOME_RUN);
    assert_int_equal(seen.epoch, 2);
    assert_true(world_record(&world, once, "k")->head.lease_until > world.wall_ms + 500);
    once_claim_drop(seen.claim);
    assert_int_equal(once_close(once, 0), ONCE_OK);
    world_free(&world);
}

static void an_own_claim_that_went_unknown_is_released_and_claimed_anew(void **state)
{
    world_t world;
    once_t *first, *second;
    seen_t mine, other;
    int left = 1;

    world_init(&world);
    first = world_open(&world, "store_timeout=1h");
    second = world_open(&world, NULL);
    world_run(&world, first);
    world_run(&world, second);
    world.plan = lose_first_claim_reply;
    world.plan_data = &left;
    assert_int_equal(world_ask(first, "k", "recover=hold lease=1s", NULL, &mine), ONCE_OK);
    world_run(&world, first);
    world.wall_ms += 2000; /* only the store's clock: the first one's next try is not due yet */
    assert_int_equal(world_ask(second, "k", "recover=hold lease=1s", NULL, &other), ONCE_OK);
    world_run(&world, second);
    assert_int_equal(other.outcome, ONCE_OUTCOME_UNKNOWN);
    world_pass(&world, first, 400);
    assert_int_equal(mine.outcome, ONCE_OUTCOME_RUN);
    assert_int_equal(mine.epoch, 2);
    once_claim_drop(mine.claim);
    assert_int_equal(once_close(first, 0), ONCE_OK);
    assert_int_equal(once_close(second, 0), ONCE_OK);
    world_free(&world);
}

static world_fault_t then_nomem(world_t *world, const once__op_t *op)
{
    int *step = world->plan_data;

    if (op->kind != ONCE__OP_EVENT || *step > 3) {
        return WORLD_OK;
    }
    (*step)++;
    return *step == 1 ? WORLD_LOSE_REPLY : WORLD_NOMEM;
}

/* Whatever the store says after a lost reply: what may have been granted is looked up, and released or delivered. */
static void a_grant_is_not_forgotten_because_of_a_later_error(void **state)
{
    world_t world;
    once_t *once;
    seen_t seen, again;
    int step = 0;

    world_init(&world);
    once = world_open(&world, "store_timeout=2s");
    world_run(&world, once);
    world.plan = then_nomem;
    world.plan_data = &step;
    assert_int_equal(world_ask(once, "k", HOLD, NULL, &seen), ONCE_OK);
    world_pass(&world, once, 1500);
    assert_int_equal(seen.outcome, ONCE_OUTCOME_RUN);
    assert_int_equal(once_claim_release(seen.claim, 0, once__slice("", 0), NULL, NULL), ONCE_OK);
    assert_int_equal(world_ask(once, "k", HOLD, NULL, &again), ONCE_OK);
    world_pass(&world, once, 100);
    assert_int_equal(again.outcome, ONCE_OUTCOME_RUN);
    once_claim_drop(again.claim);
    assert_int_equal(once_close(once, 0), ONCE_OK);
    world_free(&world);
}

static world_fault_t answer_after_6_ms(world_t *world, const once__op_t *op)
{
    world->monotonic_ms += 6;
    world->wall_ms += 6;
    return WORLD_OK;
}

/* Every answer takes longer than half the lease: there is an end to it, and nothing is left behind. */
static void a_store_that_is_always_too_slow_is_told(void **state)
{
    world_t world;
    once_t *once;
    seen_t seen;

    world_init(&world);
    once = world_open(&world, "store_timeout=1s");
    world_run(&world, once);
    assert_int_equal(world_ask(once, "k", "recover=hold lease=10ms", NULL, &seen), ONCE_OK);
    world.plan = answer_after_6_ms;
    for (int i = 0; i < 1000 && seen.calls == 0; i++) {
        world_pass(&world, once, 10);
    }
    assert_int_equal(seen.calls, 1);
    assert_int_equal(seen.error, ONCE_E_UNAVAILABLE);
    world_pass(&world, once, 5000);
    assert_int_equal(world_record(&world, once, "k")->head.state, ONCE_STATE_FAILED);
    assert_int_equal(once_close(once, 0), ONCE_OK);
    world_free(&world);
}

static world_fault_t no_secrets(world_t *world, const once__op_t *op)
{
    return op->kind == ONCE__OP_SECRETS_LOAD ? WORLD_NOMEM : WORLD_OK;
}

static void ask_again(once_t *once, once_answer_t *answer, void *data)
{
    once_ask_t ask = ONCE_ASK_INIT;
    unsigned *calls = data;

    ask.key = once__slice("k", 1);
    if (once_answer_error(answer) == ONCE_E_NOMEM && (*calls)++ < 1000) {
        assert_int_equal(once_begin(once, &ask, ask_again, data), ONCE_OK);
    }
}

static void one_dispatch_does_not_answer_for_ever(void **state)
{
    once_ask_t ask = ONCE_ASK_INIT;
    unsigned calls = 0;
    world_t world;
    once_t *once;

    world_init(&world);
    world.plan = no_secrets;
    once = world_open(&world, NULL);
    ask.key = once__slice("k", 1);
    assert_int_equal(once_begin(once, &ask, ask_again, &calls), ONCE_OK);
    assert_true(once_dispatch(once) >= 1);
    assert_true(calls < 100);
    assert_true(once_close(once, 0) == ONCE_OK);
    world_free(&world);
}

#define CROWD 2000

/* With many in flight, a dispatch ends after the turn that delivered a thousand answers. */
static void one_dispatch_of_many_ends_with_its_turn(void **state)
{
    once_ask_t ask = ONCE_ASK_INIT;
    unsigned calls[CROWD] = {0}, all = 0;
    world_t world;
    once_t *once;

    world_init(&world);
    world.plan = no_secrets;
    once = world_open(&world, NULL);
    ask.key = once__slice("k", 1);
    for (int i = 0; i < CROWD; i++) {
        assert_int_equal(once_begin(once, &ask, ask_again, &calls[i]), ONCE_OK);
    }
    assert_true(once_dispatch(once) >= CROWD);
    for (int i = 0; i < CROWD; i++) {
        all += calls[i];
    }
    assert_in_range(all, CROWD, 2 * CROWD);
    assert_true(once_close(once, 0) == ONCE_OK);
    world_free(&world);
}

static void not_taken(once_t *once, once_answer_t *answer, void *data)
{
    (*(unsigned *)data)++;
}

static void a_claim_that_nobody_takes_is_released(void **state)
{
    once_ask_t ask = ONCE_ASK_INIT;
    unsigned calls = 0;
    world_t world;
    once_t *once;

    world_init(&world);
    once = world_open(&world, NULL);
    ask.key = once__slice("k", 1);
    assert_int_equal(once_begin(once, &ask, not_taken, &calls), ONCE_OK);
    world_pass(&world, once, 10);
    assert_int_equal(calls, 1);
    assert_int_equal(world_record(&world, once, "k")->head.state, ONCE_STATE_FAILED);
    assert_int_equal(once_close(once, 0), ONCE_OK);
    world_free(&world);
}

static void bad_asks_are_refused_before_anything_is_submitted(void **state)
{
    char big[ONCE__PART_MAX + 1];
    once_ask_t ask = ONCE_ASK_INIT, none = ONCE_ASK_INIT;
    world_t world;
    once_t *once;
    seen_t seen = {.calls = 0};

    memset(big, 'x', sizeof(big));
    world_init(&world);
    once = world_open(&world, NULL);
    world_run(&world, once);
    assert_int_equal(once_begin(once, &none, seen_cb, &seen), ONCE_E_KEY);
    ask.key = once__slice(big, ONCE_KEY_MAX + 1);
    assert_int_equal(once_begin(once, &ask, seen_cb, &seen), ONCE_E_KEY);
    ask.key = once__slice(big, ONCE_KEY_MAX);
    ask.scope = once__slice(big, sizeof(big));
    assert_int_equal(once_begin(once, &ask, seen_cb, &seen), ONCE_E_TOO_BIG);
    ask.scope = once__slice(NULL, 0);
    assert_int_equal(once_begin(once, &ask, NULL, NULL), ONCE_E_INVALID);
    ask.size = 1;
    assert_int_equal(once_begin(once, &ask, seen_cb, &seen), ONCE_E_INVALID);
    world_run(&world, once);
    assert_int_equal(seen.calls, 0);
    assert_int_equal(once_close(once, 0), ONCE_OK);
    world_free(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lost_reply_is_asked_for_again_with_the_same_claim),
        cmocka_unit_test(what_was_granted_behind_the_callers_back_is_released),
        cmocka_unit_test(what_was_never_sent_leaves_nothing_behind),
        cmocka_unit_test(asks_before_the_secrets_are_there_wait_for_them),
        cmocka_unit_test(a_grant_that_comes_late_is_given_back_and_asked_for_anew),
        cmocka_unit_test(an_own_claim_that_went_unknown_is_released_and_claimed_anew),
        cmocka_unit_test(a_grant_is_not_forgotten_because_of_a_later_error),
        cmocka_unit_test(a_store_that_is_always_too_slow_is_told),
        cmocka_unit_test(one_dispatch_does_not_answer_for_ever),
        cmocka_unit_test(one_dispatch_of_many_ends_with_its_turn),
        cmocka_unit_test(a_claim_that_nobody_takes_is_released),
        cmocka_unit_test(bad_asks_are_refused_before_anything_is_submitted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
