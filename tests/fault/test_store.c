/*
 * The n-th operation of the store fails, for every n and every way to fail, and once all from the n-th on for a while.
 *
 * Whatever happens: every accepted call is called back exactly once, the effect of a key that was completed is replayed as it
 * was, and when the store is well again nothing is stuck.
 */
#include "support/testing.h"

#include <string.h>

#include "base/bytes.h"
#include "support/world.h"

typedef struct plan {
    unsigned at;    /* the operation that fails, counted from 1 */
    unsigned count; /* and this many after it */
    world_fault_t fault;
} plan_t;

static world_fault_t follow_plan(world_t *world, const once__op_t *op)
{
    const plan_t *plan = world->plan_data;
    unsigned n = world->ops + 1;

    return n >= plan->at && n < plan->at + plan->count ? plan->fault : WORLD_OK;
}

typedef struct story {
    world_t world;
    once_t *once;
    unsigned accepted, called;
    once_outcome_t outcome;
    int error;
    once_claim_t *claim;
    unsigned effects;
} story_t;

static void called_back(once_t *once, once_answer_t *answer, void *data)
{
    story_t *story = data;

    story->called++;
    story->error = once_answer_error(answer);
    story->outcome = once_answer_outcome(answer);
    story->claim = once_answer_take_claim(answer);
}

/* Lets the call come back. What was accepted must come back within the store's timeout and a little. */
static int settled(story_t *story, int code)
{
    if (code != ONCE_OK) {
        return 0;
    }
    story->accepted++;
    for (int i = 0; i < 60 && story->called < story->accepted; i++) {
        world_pass(&story->world, story->once, 100);
    }
    assert_int_equal(story->called, story->accepted);
    return story->error == ONCE_OK;
}

static int ask(story_t *story, const char *key)
{
    once_ask_t asked = ONCE_ASK_INIT;

    asked.key = once__slice(key, strlen(key));
    asked.method = once__slice("POST", 4); /* as world_ask does it */
    asked.target = once__slice("/", 1);
    return settled(story, once_begin(story->once, &asked, called_back, story)) &&
           story->outcome == ONCE_OUTCOME_RUN;
}

static int show_nothing(once_t *once, const once_record_t *record, void *data)
{
    return 0;
}

/* A client that does not know asks again with the same key; the second ask must not act again. */
static void pay(story_t *story)
{
    once_response_t response = world_response(201, "made");

    for (int try = 0; try < 2; try++) {
        if (ask(story, "pay")) {
            story->effects++;
            (void)settled(story, once_claim_complete(story->claim, &response, called_back, story));
        }
    }
}

/* A claim that another program finishes by its text, is judged, and removed. */
static void judge(story_t *story)
{
    once_settle_t settle = ONCE_SETTLE_INIT;
    once_claim_t *adopted;
    char token[ONCE_TOKEN_SIZE];

    if (!ask(story, "judged")) {
        return;
    }
    once_claim_token(story->claim, token);
    once_claim_drop(story->claim);
    assert_int_equal(once_claim_adopt(story->once, token, 0, &adopted), ONCE_OK);
    (void)settled(story, once_claim_doubt(adopted, once__slice("timeout", 7), called_back, story));
    settle.token = token;
    settle.status = 500;
    settle.note = once__slice("never", 5);
    settle.force = 1;
    (void)settled(story, once_record_settle(story->once, &settle, called_back, story));
    (void)settled(story, once_record_purge(story->once, token, 1, called_back, story));
}

static void tell(story_t *story)
{
    uint8_t id[ONCE_ID_SIZE] = {1};

    pay(story);
    if (ask(story, "refused")) {
        (void)settled(story, once_claim_release(story->claim, 429, once__slice("later", 5),
                                                called_back, story));
    }
    if (ask(story, "timeout")) {
        once_claim_t *claim = story->claim;
        (void)settled(story, once_claim_renew(claim, called_back, story));
        (void)settled(story,
                      once_claim_doubt(claim, once__slice("timeout", 7), called_back, story));
    }
    judge(story);
    (void)settled(story, once_record_get(story->once, id, called_back, story));
    (void)settled(story, once_record_scan(story->once, NULL, show_nothing, called_back, story));
    (void)settled(story, once_store_stats(story->once, called_back, story));
    (void)settled(story, once_store_reap(story->once, 0, called_back, story));
    (void)settled(story, once_secret_rotate(story->once, 3600000, called_back, story));
}

static once_outcome_t ask_at_the_end(story_t *story, const char *key, seen_t *seen)
{
    assert_int_equal(world_ask(story->once, key, NULL, NULL, seen), ONCE_OK);
    world_pass(&story->world, story->once, 100);
    assert_int_equal(seen->calls, 1);
    assert_int_equal(seen->error, ONCE_OK);
    once_claim_drop(seen->claim);
    return seen->outcome;
}

/* Everything is well again: every key is answered or can be had, and nothing was forgotten. */
static void check_end(story_t *story)
{
    seen_t seen;

    story->world.plan = NULL;
    world_pass(&story->world, story->once, 120000);
    if (story->effects > 0) {
        assert_int_equal(ask_at_the_end(story, "pay", &seen), ONCE_OUTCOME_REPLAY);
        assert_int_equal(seen.status, 201);
        assert_string_equal(seen.body, "made");
    } else {
        assert_int_equal(ask_at_the_end(story, "pay", &seen), ONCE_OUTCOME_RUN);
    }
    assert_int_equal(ask_at_the_end(story, "refused", &seen), ONCE_OUTCOME_RUN);
    assert_int_equal(ask_at_the_end(story, "timeout", &seen), ONCE_OUTCOME_RUN);
    assert_int_equal(ask_at_the_end(story, "judged", &seen), ONCE_OUTCOME_RUN);
}

static void run_story(unsigned at, unsigned count, world_fault_t fault, unsigned *ops)
{
    plan_t plan = {at, count, fault};
    story_t story;

    memset(&story, 0, sizeof(story));
    world_init(&story.world);
    story.world.plan = follow_plan;
    story.world.plan_data = &plan;
    story.once = world_open(&story.world, "store_timeout=2s&lease=10s");
    tell(&story);
    *ops = story.world.ops;
    check_end(&story);
    assert_int_equal(story.called, story.accepted);
    assert_true(story.effects <= 1);
    assert_int_equal(once_close(story.once, 0), ONCE_OK);
    world_free(&story.world);
}

static void every_operation_fails_once_in_every_way(void **state)
{
    unsigned ops, ignored;

    run_story(0, 0, WORLD_OK, &ops);
    assert_true(ops >= 12);
    for (unsigned n = 1; n <= ops; n++) {
        for (world_fault_t fault = WORLD_LOSE_REQUEST; fault < WORLD_FAULT_COUNT; fault++) {
            run_story(n, 1, fault, &ignored);
        }
    }
}

static void every_operation_begins_an_outage(void **state)
{
    unsigned ops, ignored;

    run_story(0, 0, WORLD_OK, &ops);
    for (unsigned n = 1; n <= ops; n++) {
        for (unsigned count = 2; count <= 64; count *= 2) {
            for (world_fault_t fault = WORLD_LOSE_REQUEST; fault < WORLD_FAULT_COUNT; fault++) {
                run_story(n, count, fault, &ignored);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operation_fails_once_in_every_way),
        cmocka_unit_test(every_operation_begins_an_outage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
