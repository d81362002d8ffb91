/*
 * Looking at records and deciding about them, when replies are lost.
 */
#include "support/testing.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "support/world.h"

static world_fault_t lose_one_reply(world_t *world, const once__op_t *op)
{
    int *left = world->plan_data;

    return op->kind == ONCE__OP_EVENT && (*left)-- > 0 ? WORLD_LOSE_REPLY : WORLD_OK;
}

static once_t *open_with_record(world_t *world, int complete, char token[ONCE_TOKEN_SIZE])
{
    once_response_t response = world_response(201, "made");
    once_t *once;
    seen_t seen;

    world_init(world);
    once = world_open(world, "store_timeout=1s&renew=off");
    assert_int_equal(world_ask(once, "k", "lease=1s recover=hold", NULL, &seen), ONCE_OK);
    world_run(world, once);
    once_claim_token(seen.claim, token);
    if (complete) {
        assert_int_equal(once_claim_complete(seen.claim, &response, NULL, NULL), ONCE_OK);
    } else {
        once_claim_drop(seen.claim);
    }
    world_pass(world, once, 2000);
    return once;
}

static void a_purge_whose_reply_was_lost_is_done(void **state)
{
    char token[ONCE_TOKEN_SIZE];
    seen_t seen = {.calls = 0}, again = {.calls = 0};
    world_t world;
    once_t *once = open_with_record(&world, 1, token);
    int left = 1;

    world.plan = lose_one_reply;
    world.plan_data = &left;
    assert_int_equal(once_record_purge(once, token, 0, seen_cb, &seen), ONCE_OK);
    world_pass(&world, once, 900);
    assert_int_equal(seen.outcome, ONCE_OUTCOME_DONE);
    assert_int_equal(once_record_purge(once, token, 0, seen_cb, &again), ONCE_OK);
    world_pass(&world, once, 100);
    assert_int_equal(again.outcome, ONCE_OUTCOME_REFUSED); /* that one had nothing to purge */
    assert_int_equal(once_close(once, 0), ONCE_OK);
    world_free(&world);
}

static void a_settlement_whose_reply_was_lost_is_done(void **state)
{
    once_response_t mine = world_response(201, "settled"), other = world_response(200, "settled");
    char token[ONCE_TOKEN_SIZE];
    once_settle_t settle = ONCE_SETTLE_INIT;
    seen_t seen = {.calls = 0}, again = {.calls = 0};
    world_t world;
    once_t *once = open_with_record(&world, 0, token);
    int left = 1;

    world.plan = lose_one_reply;
    world.plan_data = &left;
    settle.token = token;
    settle.response = &mine;
    assert_int_equal(once_record_settle(once, &settle, seen_cb, &seen), ONCE_OK);
    world_pass(&world, once, 900);
    assert_int_equal(seen.outcome, ONCE_OUTCOME_DONE);
    settle.response = &other;
    assert_int_equal(once_record_settle(once, &settle, seen_cb, &again), ONCE_OK);
    world_pass(&world, once, 100);
    assert_int_equal(again.outcome, ONCE_OUTCOME_ALREADY);
    assert_string_equal(again.body, "settled");
    assert_int_equal(once_close(once, 0), ONCE_OK);
    world_free(&world);
}

typedef struct scanned {
    unsigned each, after_done, done;
    int error;
    uint64_t count;
} scanned_t;

static int count_each(once_t *once, const once_record_t *record, void *data)
{
    scanned_t *scanned = data;

    scanned->each++;
    scanned->after_done += scanned->done;
    return 0;
}

static void scan_done(once_t *once, once_answer_t *answer, void *data)
{
    scanned_t *scanned = data;

    scanned->done++;
    scanned->error = once_answer_error(answer);
    scanned->count = once_answer_count(answer);
}

static world_fault_t first_scan_away(world_t *world, const once__op_t *op)
{
    int *left = world->plan_data;

    return op->kind == ONCE__OP_SCAN && (*left)-- > 0 ? WORLD_AWAY : WORLD_OK;
}

static void a_scan_that_was_told_is_not_shown_anything_more(void **state)
{
    char token[ONCE_TOKEN_SIZE];
    scanned_t scanned = {0};
    world_t world;
    once_t *once = open_with_record(&world, 1, token);
    int left = 1;

    world.plan = first_scan_away;
    world.plan_data = &left;
    assert_int_equal(once_record_scan(once, NULL, count_each, scan_done, &scanned), ONCE_OK);
    world_run(&world, once);
    world.hang = 1;
    world_pass(&world, once, 2000);
    assert_int_equal(scanned.done, 1);
    assert_int_equal(scanned.error, ONCE_E_UNAVAILABLE);
    world.hang = 0;
    world_pass(&world, once, 1000);
    assert_int_equal(scanned.after_done, 0);
    assert_int_equal(once_close(once, 0), ONCE_OK);
    world_free(&world);
}

/* A hiccup at the beginning does not end a scan that takes longer than the store's timeout but gets on. */
static void a_long_scan_survives_a_hiccup(void **state)
{
    scanned_t scanned = {0};
    world_t world;
    once_t *once;
    seen_t seen;
    int left = 1;

    world_init(&world);
    once = world_open(&world, "store_timeout=1s");
    for (int i = 0; i < 1000; i++) {
        char key[16];
        (void)snprintf(key, sizeof(key), "key %d", i);
        assert_int_equal(world_ask(once, key, NULL, NULL, &seen), ONCE_OK);
        world_run(&world, once);
        once_claim_drop(seen.claim);
    }
    world.plan = first_scan_away;
    world.plan_data = &left;
    assert_int_equal(once_record_scan(once, NULL, count_each, scan_done, &scanned), ONCE_OK);
    world_pass(&world, once, 50);
    for (int i = 0; i < 100 && !scanned.done; i++) {
        world.hang = 1;
        world_pass(&world, once, 400);
        world.hang = 0;
        (void)once_dispatch(once);
    }
    assert_int_equal(scanned.error, ONCE_OK);
    assert_int_equal(scanned.count, 1000);
    assert_int_equal(once_close(once, 0), ONCE_OK);
    world_free(&world);
}

static void kept(once_t *once, once_answer_t *answer, void *data)
{
    once_answer_keep(answer);
    *(once_answer_t **)data = answer;
}

static void a_kept_answer_outlives_its_callback(void **state)
{
    char token[ONCE_TOKEN_SIZE];
    once_answer_t *answer = NULL;
    once_response_t response = ONCE_RESPONSE_INIT;
    world_t world;
    once_t *once = open_with_record(&world, 1, token);
    uint8_t id[ONCE_ID_SIZE];

    assert_int_equal(once_record_id_of(once, once__slice("", 0), once__slice("k", 1), id), ONCE_OK);
    assert_int_equal(once_record_get(once, id, kept, &answer), ONCE_OK);
    world_run(&world, once);
    assert_int_equal(once_record_purge(once, token, 0, NULL, NULL), ONCE_OK);
    world_run(&world, once);
    assert_int_equal(once_record_response(once_answer_record(answer), &response), ONCE_OK);
    assert_memory_equal(response.body.data, "made", 4);
    once_answer_free(answer);
    assert_int_equal(once_close(once, 0), ONCE_OK);
    world_free(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_purge_whose_reply_was_lost_is_done),
        cmocka_unit_test(a_settlement_whose_reply_was_lost_is_done),
        cmocka_unit_test(a_scan_that_was_told_is_not_shown_anything_more),
        cmocka_unit_test(a_long_scan_survives_a_hiccup),
        cmocka_unit_test(a_kept_answer_outlives_its_callback),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
