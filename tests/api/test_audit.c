/*
 * The audit trail when replies are lost, entries of others come in between, and a program ends between intent and result.
 */
#include "support/testing.h"

#include <stdio.h>
#include <string.h>

#include <once/audit.h>

#include "base/bytes.h"
#include "support/world.h"

typedef struct trail {
    unsigned count, faults;
    char texts[64][700];
} trail_t;

static int collect(once_t *once, const once_audit_entry_t *entry, void *data)
{
    trail_t *trail = data;

    trail->faults += entry->fault != ONCE_AUDIT_FINE;
    snprintf(trail->texts[trail->count], sizeof(trail->texts[0]), "%.*s", (int)entry->json.len,
             (const char *)entry->json.data);
    trail->count++;
    return 0;
}

static void done(once_t *once, once_answer_t *answer, void *data)
{
    assert_int_equal(once_answer_error(answer), ONCE_OK);
}

static void read_trail(world_t *world, once_t *once, trail_t *trail)
{
    memset(trail, 0, sizeof(*trail));
    world->plan = NULL;
    assert_int_equal(once_audit_scan(once, collect, done, trail), ONCE_OK);
    world_pass(world, once, 100);
    assert_int_equal(trail->faults, 0);
}

/* A handle that acts for a person, with an unknown record. */
static once_t *open_with_unknown(world_t *world, char token[ONCE_TOKEN_SIZE])
{
    once_t *once;
    seen_t seen;

    world_init(world);
    once = world_open(world, "store_timeout=1s&renew=off");
    assert_int_equal(world_ask(once, "k", "lease=1s recover=hold", NULL, &seen), ONCE_OK);
    world_run(world, once);
    once_claim_token(seen.claim, token);
    once_claim_drop(seen.claim);
    world_pass(world, once, 2000);
    assert_int_equal(once_audit_as(once, once__slice_of("ana"), once__slice_of("looked")), ONCE_OK);
    return once;
}

typedef struct plan {
    int turn; /* of the operations of a decision, this one fails */
    world_fault_t fault;
    int seen;
} plan_t;

static world_fault_t fail_one(world_t *world, const once__op_t *op)
{
    plan_t *plan = world->plan_data;

    return plan->seen++ == plan->turn ? plan->fault : WORLD_OK;
}

/* Whichever reply is lost: one intent, one effect, one result. */
static void lost_replies_leave_two_entries(void **state)
{
    static const world_fault_t faults[] = {WORLD_LOSE_REPLY, WORLD_LOSE_REQUEST};

    for (int i = 0; i < 10; i++) {
        plan_t plan = {.turn = i / 2, .fault = faults[i % 2]};
        once_settle_t settle = ONCE_SETTLE_INIT;
        char token[ONCE_TOKEN_SIZE];
        seen_t seen = {.calls = 0};
        world_t world;
        once_t *once = open_with_unknown(&world, token);
        trail_t trail;

        settle.token = token;
        world.plan = fail_one;
        world.plan_data = &plan;
        assert_int_equal(once_record_settle(once, &settle, seen_cb, &seen), ONCE_OK);
        world_pass(&world, once, 900);
        assert_int_equal(seen.calls, 1);
        assert_int_equal(seen.outcome, ONCE_OUTCOME_DONE);
        read_trail(&world, once, &trail);
        assert_int_equal(trail.count, 2);
        assert_non_null(strstr(trail.texts[0], "\"step\":\"intent\""));
        assert_non_null(strstr(trail.texts[1], "\"of\":1,"));
        assert_non_null(strstr(trail.texts[1], "\"result\":\"done\""));
        assert_int_equal(once_close(once, 0), ONCE_OK);
        world_free(&world);
    }
}

static world_fault_t no_trail(world_t *world, const once__op_t *op)
{
    return op->kind == ONCE__OP_AUDIT_ADD ? WORLD_LOSE_REQUEST : WORLD_OK;
}

/* Without a trail there is no decision. */
static void nothing_is_decided_without_an_intent(void **state)
{
    once_settle_t settle = ONCE_SETTLE_INIT;
    char token[ONCE_TOKEN_SIZE];
    seen_t seen = {.calls = 0};
    world_t world;
    once_t *once = open_with_unknown(&world, token);

    settle.token = token;
    world.plan = no_trail;
    assert_int_equal(once_record_settle(once, &settle, seen_cb, &seen), ONCE_OK);
    world_pass(&world, once, 3000);
    assert_int_equal(seen.calls, 1);
    assert_int_equal(seen.error, ONCE_E_UNAVAILABLE);
    assert_int_equal(world_record(&world, once, "k")->head.state, ONCE_STATE_PENDING);
    assert_int_equal(once_close(once, 0), ONCE_OK);
    world_free(&world);
}

static world_fault_t hang_after_add(world_t *world, const once__op_t *op)
{
    if (op->kind != ONCE__OP_AUDIT_ADD) {
        return WORLD_OK;
    }
    world->plan = NULL;
    world->hang = 1;
    return WORLD_LOSE_REQUEST;
}

/* The intent gets there when the caller has been told that the store is away: nothing is decided behind its back. */
static void an_intent_that_comes_too_late_decides_nothing(void **state)
{
    once_settle_t settle = ONCE_SETTLE_INIT;
    char token[ONCE_TOKEN_SIZE];
    seen_t seen = {.calls = 0};
    world_t world;
    once_t *once = open_with_unknown(&world, token);
    trail_t trail;

    settle.token = token;
    world.plan = hang_after_add;
    assert_int_equal(once_record_settle(once, &settle, seen_cb, &seen), ONCE_OK);
    world_pass(&world, once, 3000);
    assert_int_equal(seen.error, ONCE_E_UNAVAILABLE);
    world.hang = 0;
    world_pass(&world, once, 3000);
    read_trail(&world, once, &trail);
    assert_int_equal(trail.count, 1);
    assert_int_equal(world_record(&world, once, "k")->head.state, ONCE_STATE_PENDING);
    assert_int_equal(seen.calls, 1);
    assert_int_equal(once_close(once, 0), ONCE_OK);
    world_free(&world);
}

static world_fault_t no_event(world_t *world, const once__op_t *op)
{
    return op->kind == ONCE__OP_EVENT ? WORLD_LOSE_REQUEST : WORLD_OK;
}

/* A program that ends before it could decide leaves its intent. */
static void an_end_in_between_is_visible(void **state)
{
    once_settle_t settle = ONCE_SETTLE_INIT;
    char token[ONCE_TOKEN_SIZE];
    seen_t seen = {.calls = 0};
    world_t world;
    once_t *once = open_with_unknown(&world, token);
    trail_t trail;

    settle.token = token;
    world.plan = no_event;
    assert_int_equal(once_record_settle(once, &settle, seen_cb, &seen), ONCE_OK);
    world_pass(&world, once, 3000);
    assert_int_equal(seen.error, ONCE_E_UNAVAILABLE);
    read_trail(&world, once, &trail);
    assert_int_equal(trail.count, 1);
    assert_non_null(strstr(trail.texts[0], "\"step\":\"intent\""));
    assert_int_equal(once_close(once, 0), ONCE_OK);
    world_free(&world);
}

/* The handle knows where the trail ended; another one has added to it since. */
static void entries_of_others_come_in_between(void **state)
{
    once_act_t act = ONCE_ACT_INIT;
    char token[ONCE_TOKEN_SIZE];
    world_t world;
    once_t *one = open_with_unknown(&world, token), *two = world_open(&world, "renew=off");
    trail_t trail;

    assert_int_equal(once_audit_as(two, once__slice_of("ben"), once__slice_of("why")), ONCE_OK);
    act.name = "test";
    for (int i = 0; i < 6; i++) {
        assert_int_equal(once_audit_add(i % 2 ? one : two, &act, done, NULL), ONCE_OK);
        world_pass(&world, i % 2 ? one : two, 100);
    }
    read_trail(&world, one, &trail);
    assert_int_equal(trail.count, 6);
    for (int i = 0; i < 6; i++) {
        assert_non_null(strstr(trail.texts[i], i % 2 ? "\"by\":\"ana\"" : "\"by\":\"ben\""));
    }
    assert_int_equal(once_close(one, 0), ONCE_OK);
    assert_int_equal(once_close(two, 0), ONCE_OK);
    world_free(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lost_replies_leave_two_entries),
        cmocka_unit_test(nothing_is_decided_without_an_intent),
        cmocka_unit_test(an_intent_that_comes_too_late_decides_nothing),
        cmocka_unit_test(an_end_in_between_is_visible),
        cmocka_unit_test(entries_of_others_come_in_between),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
