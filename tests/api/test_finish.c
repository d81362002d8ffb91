/*
 * The end of a claim when the store is away: nothing submitted is ever abandoned, no callback runs twice.
 */
#include "support/testing.h"

#include <stdio.h>
#include <string.h>

#include "api/claim.h"
#include "base/bytes.h"
#include "support/world.h"

static world_fault_t all_away(world_t *world, const once__op_t *op)
{
    return WORLD_AWAY;
}

static world_fault_t writes_find_it_full(world_t *world, const once__op_t *op)
{
    return op->event.kind == ONCE__RENEW ? WORLD_OK : WORLD_FULL;
}

static world_fault_t lose_first(world_t *world, const once__op_t *op)
{
    int *left = world->plan_data;

    return (*left)-- > 0 ? WORLD_LOSE_REPLY : WORLD_OK;
}

static once_t *open_with_claim(world_t *world, const char *policy, seen_t *seen)
{
    once_t *once;

    world_init(world);
    once = world_open(world, "store_timeout=2s");
    assert_int_equal(world_ask(once, "k", policy, NULL, seen), ONCE_OK);
    world_run(world, once);
    assert_int_equal(seen->outcome, ONCE_OUTCOME_RUN);
    return once;
}

static void completion_survives_an_outage_and_its_caller(void **state)
{
    once_response_t response = world_response(201, "made");
    world_t world;
    seen_t seen, done = {.calls = 0}, again;
    once_t *once = open_with_claim(&world, "lease=3s", &seen);

    world.plan = all_away;
    assert_int_equal(once_claim_complete(seen.claim, &response, seen_cb, &done), ONCE_OK);
    world_pass(&world, once, 2500);
    assert_int_equal(done.calls, 1);
    assert_int_equal(done.error, ONCE_E_UNAVAILABLE);
    world_pass(&world, once, 10000); /* the lease is over meanwhile; there was no other request */
    world.plan = NULL;
    world_pass(&world, once, 2000);
    assert_int_equal(done.calls, 1);
    assert_int_equal(world_record(&world, once, "k")->head.state, ONCE_STATE_COMPLETED);
    assert_int_equal(world_ask(once, "k", NULL, NULL, &again), ONCE_OK);
    world_run(&world, once);
    assert_int_equal(again.outcome, ONCE_OUTCOME_REPLAY);
    assert_string_equal(again.body, "made");
    assert_int_equal(once_close(once, 0), ONCE_OK);
    world_free(&world);
}

/* field.md 7.0: a completion that cannot be written must not free the key. */
static void a_failed_completion_write_never_releases(void **state)
{
    once_response_t response = world_response(201, "made");
    world_t world;
    seen_t seen, done = {.calls = 0}, other;
    once_t *once = open_with_claim(&world, "lease=3s", &seen);
    once_t *second = world_open(&world, NULL);

    world_run(&world, second);
    world.plan = writes_find_it_full;
    assert_int_equal(once_claim_complete(seen.claim, &response, seen_cb, &done), ONCE_OK);
    for (int i = 0; i < 20; i++) {
        world_pass(&world, once, 500);
        assert_int_equal(world_record(&world, once, "k")->head.state, ONCE_STATE_PENDING);
    }
    assert_int_equal(done.error, ONCE_E_FULL);
    world.plan = NULL;
    assert_int_equal(world_ask(second, "k", "lease=3s", NULL, &other), ONCE_OK);
    world_run(&world, second);
    assert_int_equal(other.outcome, ONCE_OUTCOME_BUSY); /* renewed all the time */
    world_pass(&world, once, 2000);
    assert_int_equal(world_record(&world, once, "k")->head.state, ONCE_STATE_COMPLETED);
    assert_int_equal(once_close(once, 0), ONCE_OK);
    assert_int_equal(once_close(second, 0), ONCE_OK);
    world_free(&world);
}

static void a_lost_reply_to_a_completion_is_already(void **state)
{
    once_response_t response = world_response(201, "made");
    int left = 1;
    world_t world;
    seen_t seen, done = {.calls = 0};
    once_t *once = open_with_claim(&world, NULL, &seen);

    world.plan = lose_first;
    world.plan_data = &left;
    assert_int_equal(once_claim_complete(seen.claim, &response, seen_cb, &done), ONCE_OK);
    world_pass(&world, once, 1000);
    assert_int_equal(done.calls, 1);
    assert_int_equal(done.outcome, ONCE_OUTCOME_ALREADY);
    assert_string_equal(done.body, "made");
    assert_int_equal(once_close(once, 0), ONCE_OK);
    world_free(&world);
}

static void a_lost_claim_is_answered_from_the_record(void **state)
{
    once_response_t mine = world_response(201, "mine"), theirs = world_response(200, "theirs");
    world_t world;
    seen_t seen, taken, done = {.calls = 0};
    once_t *once = open_with_claim(&world, "lease=1s", &seen);
    once_t *second = world_open(&world, NULL);

    world_run(&world, second);
    world.wall_ms += 5000;
    assert_int_equal(world_ask(second, "k", "lease=1s", NULL, &taken), ONCE_OK);
    world_run(&world, second);
    assert_int_equal(taken.outcome, ONCE_OUTCOME_RUN);
    assert_int_equal(taken.epoch, 2);
    assert_int_equal(once_claim_complete(taken.claim, &theirs, NULL, NULL), ONCE_OK);
    world_run(&world, second);
    assert_int_equal(once_claim_alive(seen.claim), 1);
    world_pass(&world, once, 400); /* the next renewal finds out */
    assert_int_equal(once_claim_alive(seen.claim), 0);
    assert_int_equal(once_claim_complete(seen.claim, &mine, seen_cb, &done), ONCE_OK);
    world_run(&world, once);
    assert_int_equal(done.outcome, ONCE_OUTCOME_LOST);
    assert_int_equal(done.state, ONCE_STATE_COMPLETED);
    assert_string_equal(done.body, "theirs");
    assert_int_equal(once_close(once, 0), ONCE_OK);
    assert_int_equal(once_close(second, 0), ONCE_OK);
    world_free(&world);
}

static void a_held_claim_is_renewed_every_third_of_its_lease(void **state)
{
    world_t world;
    seen_t seen, done = {.calls = 0};
    once_t *once = open_with_claim(&world, "recover=hold lease=3s", &seen);

    for (int i = 0; i < 50; i++) {
        world_pass(&world, once, 1000);
        assert_true(world_record(&world, once, "k")->head.lease_until >= world.wall_ms + 1990);
    }
    assert_int_equal(
        once_claim_release(seen.claim, 429, once__slice("slow down", 9), seen_cb, &done), ONCE_OK);
    world_run(&world, once);
    assert_int_equal(done.outcome, ONCE_OUTCOME_DONE);
    assert_int_equal(world_record(&world, once, "k")->head.state, ONCE_STATE_FAILED);
    assert_int_equal(world_record(&world, once, "k")->payload.status, 429);
    assert_memory_equal(world_record(&world, once, "k")->payload.data, "slow down", 9);
    assert_int_equal(once_close(once, 0), ONCE_OK);
    world_free(&world);
}

static world_fault_t notes_find_it_full(world_t *world, const once__op_t *op)
{
    return op->payload.kind == ONCE__PAYLOAD_NOTE ? WORLD_FULL : WORLD_OK;
}

static void a_release_goes_without_its_note_when_there_is_no_room(void **state)
{
    world_t world;
    seen_t seen, done = {.calls = 0};
    once_t *once = open_with_claim(&world, NULL, &seen);

    world.plan = notes_find_it_full;
    assert_int_equal(
        once_claim_release(seen.claim, 429, once__slice("slow down", 9), seen_cb, &done), ONCE_OK);
    world_pass(&world, once, 1000);
    assert_int_equal(done.outcome, ONCE_OUTCOME_DONE);
    assert_int_equal(world_record(&world, once, "k")->head.state, ONCE_STATE_FAILED);
    assert_int_equal(once_close(once, 0), ONCE_OK);
    world_free(&world);
}

/* The key was forgotten and used again meanwhile: what it holds now is another operation's answer. */
static void a_lost_claim_is_not_shown_a_later_life(void **state)
{
    once_response_t theirs = world_response(200, "theirs");
    char token[ONCE_TOKEN_SIZE];
    once_claim_t *adopted;
    world_t world;
    seen_t seen, other, renewed = {.calls = 0}, mine = {.calls = 0}, by_token = {.calls = 0};
    once_t *once = open_with_claim(&world, "ttl=1s lease=10ms", &seen);
    once_t *second = world_open(&world, NULL);
    world_run(&world, second);

    once_claim_token(seen.claim, token);
    world.wall_ms += 5000; /* only the store's clock: no renewal is due */
    assert_int_equal(once_store_reap(second, 0, NULL, NULL), ONCE_OK);
    world_run(&world, second);
    assert_null(world_record(&world, once, "k"));
    assert_int_equal(world_ask(second, "k", NULL, NULL, &other), ONCE_OK);
    world_run(&world, second);
    assert_int_equal(once_claim_complete(other.claim, &theirs, NULL, NULL), ONCE_OK);
    world_run(&world, second);
    assert_int_equal(once_claim_adopt(once, token, 0, &adopted), ONCE_OK);
    assert_int_equal(once_claim_renew(seen.claim, seen_cb, &renewed), ONCE_OK);
    assert_int_equal(once_claim_complete(adopted, &theirs, seen_cb, &by_token), ONCE_OK);
    assert_int_equal(once_claim_complete(seen.claim, &theirs, seen_cb, &mine), ONCE_OK);
    world_run(&world, once);
    assert_int_equal(renewed.outcome, ONCE_OUTCOME_LOST);
    assert_int_equal(mine.outcome, ONCE_OUTCOME_LOST);
    assert_int_equal(by_token.outcome, ONCE_OUTCOME_LOST);
    assert_int_equal(renewed.state + mine.state + by_token.state, ONCE_STATE_NONE);
    assert_int_equal(once_close(once, 0), ONCE_OK);
    assert_int_equal(once_close(second, 0), ONCE_OK);
    world_free(&world);
}

static void a_dropped_claim_runs_out(void **state)
{
    world_t world;
    seen_t seen;
    once_t *once = open_with_claim(&world, "lease=3s", &seen);

    once_claim_drop(seen.claim);
    world_pass(&world, once, 10000);
    assert_true(world_record(&world, once, "k")->head.lease_until < world.wall_ms);
    assert_int_equal(once_close(once, 0), ONCE_OK);
    world_free(&world);
}

static void bad_ends_leave_the_claim_with_the_caller(void **state)
{
    once_response_t response = world_response(99, "");
    world_t world;
    seen_t seen;
    once_t *once = open_with_claim(&world, NULL, &seen);

    assert_int_equal(once_claim_complete(seen.claim, &response, NULL, NULL), ONCE_E_INVALID);
    assert_int_equal(once_claim_complete(seen.claim, NULL, NULL, NULL), ONCE_E_INVALID);
    response.status = 200;
    response.body.len = ONCE_BODY_STORE_MAX + 1;
    assert_int_equal(once_claim_complete(seen.claim, &response, NULL, NULL), ONCE_E_TOO_BIG);
    assert_int_equal(once_claim_release(seen.claim, 12, once__slice("", 0), NULL, NULL),
                     ONCE_E_INVALID);
    assert_int_equal(once_claim_doubt(seen.claim, once__slice("timeout", 7), NULL, NULL), ONCE_OK);
    world_run(&world, once);
    assert_int_equal(world_record(&world, once, "k")->head.state, ONCE_STATE_UNKNOWN);
    assert_int_equal(once_close(once, 0), ONCE_OK);
    world_free(&world);
}

static void an_adopted_claim_finishes_what_another_began(void **state)
{
    once_response_t response = world_response(201, "made");
    char token[ONCE_TOKEN_SIZE];
    once_claim_t *adopted;
    world_t world;
    seen_t seen, done = {.calls = 0};
    once_t *once = open_with_claim(&world, NULL, &seen);
    once_t *backend = world_open(&world, NULL);

    once_claim_token(seen.claim, token);
    assert_int_equal(once_claim_adopt(backend, "nonsense", 0, &adopted), ONCE_E_INVALID);
    assert_int_equal(once_claim_adopt(backend, token, 0, &adopted), ONCE_OK);
    assert_int_equal(once_claim_complete(adopted, &response, seen_cb, &done), ONCE_OK);
    world_run(&world, backend);
    assert_int_equal(done.outcome, ONCE_OUTCOME_DONE);
    memset(&done, 0, sizeof(done));
    assert_int_equal(once_claim_doubt(seen.claim, once__slice("timeout", 7), seen_cb, &done),
                     ONCE_OK);
    world_run(&world, once);
    assert_int_equal(done.outcome, ONCE_OUTCOME_ALREADY);
    assert_string_equal(done.body, "made");
    assert_int_equal(once_close(once, 0), ONCE_OK);
    assert_int_equal(once_close(backend, 0), ONCE_OK);
    world_free(&world);
}

static world_fault_t away_after_the_first(world_t *world, const once__op_t *op)
{
    int *calls = world->plan_data;

    return (*calls)++ == 0 ? WORLD_LOSE_REPLY : WORLD_AWAY;
}

/* It may have been asked for again at another handle, and be at work: what gave up must not release it. */
static void a_claim_of_the_callers_id_is_not_released(void **state)
{
    static const uint8_t id[ONCE_CLAIM_ID_SIZE] = "my own claim id";
    world_t world;
    seen_t seen, again;
    once_t *once, *other;
    int calls = 0;

    world_init(&world);
    once = world_open(&world, "store_timeout=2s");
    other = world_open(&world, NULL);
    world_run(&world, once);
    world_run(&world, other);
    world.plan = away_after_the_first;
    world.plan_data = &calls;
    assert_int_equal(world_ask(once, "k", "lease=60s recover=hold", id, &seen), ONCE_OK);
    world_pass(&world, once, 3000);
    assert_int_equal(seen.error, ONCE_E_UNAVAILABLE);
    world.plan = NULL;
    assert_int_equal(world_ask(other, "k", "lease=60s recover=hold", id, &again), ONCE_OK);
    world_run(&world, other);
    assert_int_equal(again.outcome, ONCE_OUTCOME_RUN);
    world_pass(&world, once, 10000);
    assert_int_equal(world_record(&world, other, "k")->head.state, ONCE_STATE_PENDING);
    once_claim_drop(again.claim);
    assert_int_equal(once_close(once, 0), ONCE_OK);
    assert_int_equal(once_close(other, 0), ONCE_OK);
    world_free(&world);
}

/* Its text does not say for how long it was granted: the record does. */
static void an_adopted_claim_is_renewed_by_its_own_lease(void **state)
{
    char token[ONCE_TOKEN_SIZE];
    once_claim_t *adopted;
    world_t world;
    seen_t seen, renewed = {.calls = 0};
    once_t *once = open_with_claim(&world, "lease=10m", &seen);
    once_t *other = world_open(&world, NULL);

    once_claim_token(seen.claim, token);
    once_claim_drop(seen.claim);
    world_pass(&world, once, 300000);
    assert_int_equal(once_claim_adopt(other, token, ONCE_LEASE_GRANTED, &adopted), ONCE_OK);
    assert_int_equal(once_claim_renew(adopted, seen_cb, &renewed), ONCE_OK);
    world_run(&world, other);
    assert_int_equal(renewed.outcome, ONCE_OUTCOME_DONE);
    assert_int_equal(world_record(&world, other, "k")->head.lease_until, world.wall_ms + 600000);
    world_pass(&world, other, 650000); /* every third of it */
    assert_true(world_record(&world, other, "k")->head.lease_until > world.wall_ms);
    once_claim_drop(adopted);
    assert_int_equal(once_close(once, 0), ONCE_OK);
    assert_int_equal(once_close(other, 0), ONCE_OK);
    world_free(&world);
}

static void take_stats(once_t *once, once_answer_t *answer, void *data)
{
    *(once_stats_t *)data = *once_answer_stats(answer);
}

static uint64_t count_records(world_t *world, once_t *once)
{
    once_stats_t stats;

    assert_int_equal(once_store_stats(once, take_stats, &stats), ONCE_OK);
    world_run(world, once);
    return stats.pending + stats.completed + stats.failed + stats.unknown + stats.expired;
}

/* Refused requests leave nothing behind: neither after two leases, nor because a claim was never taken. */
static void what_was_refused_does_not_fill_the_store(void **state)
{
    enum { STRANGERS = 4000 };
    world_t world;
    once_t *once;

    world_init(&world);
    once = world_open(&world, "reap=1m&lease=30s&ttl=1d");
    for (int i = 0; i < STRANGERS; i++) {
        char key[16];
        seen_t seen = {.calls = 0};
        (void)snprintf(key, sizeof(key), "%d", i);
        assert_int_equal(world_ask(once, key, NULL, NULL, &seen), ONCE_OK);
        world_run(&world, once);
        assert_int_equal(once_claim_release_early(seen.claim, 401, once__slice("", 0), NULL, NULL),
                         ONCE_OK);
    }
    world_run(&world, once);
    assert_int_equal(world_record(&world, once, "7")->head.state, ONCE_STATE_FAILED);
    assert_int_equal(count_records(&world, once), STRANGERS);
    world_pass(&world, once, 120000);
    assert_int_equal(count_records(&world, once), 0);
    assert_int_equal(once_close(once, -1), ONCE_OK);
    world_free(&world);
}

/* The library releases what will not be run: then the key is free, too. */
static void a_claim_that_nobody_takes_is_released_early(void **state)
{
    world_t world;
    seen_t seen = {.calls = 0};
    once_t *once;

    world_init(&world);
    once = world_open(&world, "lease=30s&ttl=1d");
    assert_int_equal(world_ask(once, "k", "lease=10s release_ttl=5m", NULL, &seen), ONCE_OK);
    world_run(&world, once);
    once__claim_give_back(seen.claim);
    world_run(&world, once);
    assert_int_equal(world_record(&world, once, "k")->head.expires, world.wall_ms + 300000);
    assert_int_equal(once_close(once, -1), ONCE_OK);
    world_free(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_refused_does_not_fill_the_store),
        cmocka_unit_test(a_claim_that_nobody_takes_is_released_early),
        cmocka_unit_test(completion_survives_an_outage_and_its_caller),
        cmocka_unit_test(a_failed_completion_write_never_releases),
        cmocka_unit_test(a_lost_reply_to_a_completion_is_already),
        cmocka_unit_test(a_lost_claim_is_answered_from_the_record),
        cmocka_unit_test(a_held_claim_is_renewed_every_third_of_its_lease),
        cmocka_unit_test(a_release_goes_without_its_note_when_there_is_no_room),
        cmocka_unit_test(a_lost_claim_is_not_shown_a_later_life),
        cmocka_unit_test(a_dropped_claim_runs_out),
        cmocka_unit_test(bad_ends_leave_the_claim_with_the_caller),
        cmocka_unit_test(an_adopted_claim_finishes_what_another_began),
        cmocka_unit_test(an_adopted_claim_is_renewed_by_its_own_lease),
        cmocka_unit_test(a_claim_of_the_callers_id_is_not_released),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
