/*
 * Nothing is answered before it is durable, and what is asked together is synced together.
 */
#include "place.h"

#include "support/testing.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/bytes.h"

#define MANY 50

/* A disk whose syncs can be held up. */
typedef struct gate {
    once__disk_t hooks;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int shut;
    unsigned begun, ended;
} gate_t;

static int pass_gate(void *data, int fd)
{
    gate_t *gate = data;

    (void)pthread_mutex_lock(&gate->lock);
    gate->begun++;
    (void)pthread_cond_broadcast(&gate->changed);
    while (gate->shut) {
        (void)pthread_cond_wait(&gate->changed, &gate->lock);
    }
    gate->ended++;
    (void)pthread_mutex_unlock(&gate->lock);
    return once__real_disk.sync(NULL, fd);
}

static int sync_directory(void *data, int fd)
{
    return once__real_disk.sync_directory(NULL, fd);
}

static int allocate(void *data, int fd, uint64_t size)
{
    return once__real_disk.allocate(NULL, fd, size);
}

static void gate_set(gate_t *gate, int shut)
{
    (void)pthread_mutex_lock(&gate->lock);
    gate->shut = shut;
    (void)pthread_cond_broadcast(&gate->changed);
    (void)pthread_mutex_unlock(&gate->lock);
}

/* Does somebody stand before the gate? */
static int gate_is_busy(gate_t *gate)
{
    int busy;

    (void)pthread_mutex_lock(&gate->lock);
    busy = gate->begun != gate->ended;
    (void)pthread_mutex_unlock(&gate->lock);
    return busy;
}

static unsigned gate_count(gate_t *gate)
{
    unsigned ended;

    (void)pthread_mutex_lock(&gate->lock);
    ended = gate->ended;
    (void)pthread_mutex_unlock(&gate->lock);
    return ended;
}

typedef struct test {
    char base[PLACE_SIZE], store[PLACE_SIZE];
    gate_t gate;
    once_t *once;
} test_t;

static test_t the;

static void start(const char *query)
{
    memset(&the, 0, sizeof(the));
    place_make(the.base);
    place_join(the.store, the.base, "store");
    the.gate.hooks = (once__disk_t){.sync = pass_gate,
                                    .sync_directory = sync_directory,
                                    .allocate = allocate,
                                    .data = &the.gate};
    (void)pthread_mutex_init(&the.gate.lock, NULL);
    (void)pthread_cond_init(&the.gate.changed, NULL);
    the.once = place_open(the.store, query, &the.gate.hooks);
    (void)get(the.once, "nothing"); /* until the secrets are there */
}

static int end(void **state)
{
    gate_set(&the.gate, 0);
    (void)once_close(the.once, 5000);
    place_remove(the.base);
    return 0;
}

typedef struct seen {
    told_t told;
    unsigned calls;
} seen_t;

static void see(once_t *once, once_answer_t *answer, void *data)
{
    seen_t *seen = data;

    seen->calls++;
    told_from(&seen->told, answer);
}

static void wait_seen(once_t *once, const seen_t *seen)
{
    while (seen->calls == 0) {
        assert_true(once_wait(once, 10000) >= 0);
    }
}

static void wait_for_gate(void)
{
    while (!gate_is_busy(&the.gate)) {
        assert_true(once_wait(the.once, 1) >= 0);
    }
}

/* Dispatches while the sync is under way: nothing may come. */
static void check_silence(once_t *once, const seen_t *seen)
{
    wait_for_gate();
    for (unsigned i = 0; i < 20; i++) {
        assert_true(once_wait(once, 1) >= 0);
    }
    assert_int_equal(seen->calls, 0);
}

/* ------------------------------------------------------------------------------------------------------------- tests */

static void test_run_waits_for_the_sync(void **state)
{
    seen_t seen = {0};

    start("renew=off&reap=off");
    gate_set(&the.gate, 1);
    assert_int_equal(ask_later(the.once, "key", NULL, see, &seen), ONCE_OK);
    check_silence(the.once, &seen);
    gate_set(&the.gate, 0);
    wait_seen(the.once, &seen);
    assert_int_equal(seen.told.outcome, ONCE_OUTCOME_RUN);
    once_claim_drop(seen.told.claim);
}

static once_claim_t *claim(const char *key)
{
    told_t told = ask(the.once, key, NULL);

    assert_int_equal(told.outcome, ONCE_OUTCOME_RUN);
    return told.claim;
}

static int finish(once_claim_t *held, unsigned how, seen_t *seen)
{
    once_response_t response = ONCE_RESPONSE_INIT;

    switch (how) {
    case 0:
        return once_claim_complete(held, &response, see, seen);
    case 1:
        return once_claim_release(held, 0, once__slice("", 0), see, seen);
    default:
        return once_claim_doubt(held, once__slice("timeout", 7), see, seen);
    }
}

static void test_every_end_waits_for_the_sync(void **state)
{
    start("renew=off&reap=off");
    for (unsigned how = 0; how < 3; how++) {
        char key[16];
        once_claim_t *held;
        seen_t seen = {0};
        (void)snprintf(key, sizeof(key), "key-%u", how);
        held = claim(key);
        gate_set(&the.gate, 1);
        assert_int_equal(finish(held, how, &seen), ONCE_OK);
        check_silence(the.once, &seen);
        gate_set(&the.gate, 0);
        wait_seen(the.once, &seen);
        assert_int_equal(seen.told.outcome, ONCE_OUTCOME_DONE);
    }
}

static void test_settle_and_purge_wait_for_the_sync(void **state)
{
    once_settle_t settle = ONCE_SETTLE_INIT;
    seen_t seen = {0};
    told_t is;

    start("renew=off&reap=off");
    once_claim_drop(claim("key"));
    is = get(the.once, "key");
    gate_set(&the.gate, 1);
    settle.token = is.token;
    settle.force = 1;
    assert_int_equal(once_record_settle(the.once, &settle, see, &seen), ONCE_OK);
    check_silence(the.once, &seen);
    gate_set(&the.gate, 0);
    wait_seen(the.once, &seen);
    seen.calls = 0;
    gate_set(&the.gate, 1);
    assert_int_equal(once_record_purge(the.once, is.token, 0, see, &seen), ONCE_OK);
    check_silence(the.once, &seen);
    gate_set(&the.gate, 0);
    wait_seen(the.once, &seen);
    assert_int_equal(seen.told.outcome, ONCE_OUTCOME_DONE);
}

/* A completion that is not yet durable is shown to nobody: not as a replay, not to a reader. */
static void test_others_see_only_what_is_durable(void **state)
{
    seen_t seen = {0}, replay = {0}, read = {0};
    uint8_t id[ONCE_ID_SIZE];
    once_claim_t *held;
    once_t *other;
    told_t told;

    start("renew=off&reap=off");
    other = place_open(the.store, "renew=off&reap=off&store_timeout=10s", NULL);
    (void)get(other, "nothing");
    held = claim("key");
    assert_int_equal(once_record_id_of(other, once__slice("", 0), once__slice("key", 3), id),
                     ONCE_OK);
    gate_set(&the.gate, 1);
    assert_int_equal(finish(held, 0, &seen), ONCE_OK);
    check_silence(the.once, &seen);
    told = ask(other, "key", NULL);
    assert_int_equal(told.outcome, ONCE_OUTCOME_BUSY);
    assert_int_equal(once_record_get(other, id, see, &read), ONCE_OK);
    assert_int_equal(ask_later(the.once, "key", NULL, see, &replay), ONCE_OK);
    for (unsigned i = 0; i < 20; i++) {
        assert_true(once_wait(other, 1) >= 0 && once_wait(the.once, 1) >= 0);
    }
    assert_int_equal(read.calls + replay.calls, 0);
    gate_set(&the.gate, 0);
    wait_seen(other, &read);
    wait_seen(the.once, &replay);
    assert_int_equal(read.told.state, ONCE_STATE_COMPLETED);
    assert_int_equal(replay.told.outcome, ONCE_OUTCOME_REPLAY);
    told = ask(other, "key", NULL);
    assert_int_equal(told.outcome, ONCE_OUTCOME_REPLAY);
    (void)once_close(other, 5000);
}

/* Asks for "key" with a claim id of the caller's choice. */
static int ask_with_claim_id(once_t *once, const uint8_t *claim_id, seen_t *seen)
{
    once_ask_t question = ONCE_ASK_INIT;

    question.key = once__slice("key", 3);
    question.claim_id = claim_id;
    return once_begin(once, &question, see, seen);
}

/* A claim that is not yet durable is granted to nobody, not even to its own caller who repeats it through another process. */
static void test_a_repeated_claim_waits_for_the_sync(void **state)
{
    static const uint8_t claim_id[ONCE_CLAIM_ID_SIZE] = {1, 2, 3};
    static seen_t seen, again; /* the handles may outlive this function if it fails */
    once_t *other;

    start("renew=off&reap=off");
    other = place_open(the.store, "renew=off&reap=off&store_timeout=60s", NULL);
    (void)get(other, "nothing");
    once_claim_drop(claim("first")); /* the segment is there now */
    gate_set(&the.gate, 1);
    assert_int_equal(ask_with_claim_id(the.once, claim_id, &seen), ONCE_OK);
    check_silence(the.once, &seen);
    assert_int_equal(ask_with_claim_id(other, claim_id, &again), ONCE_OK);
    for (unsigned i = 0; i < 100; i++) {
        assert_true(once_wait(other, 1) >= 0);
    }
    assert_int_equal(again.calls, 0);
    gate_set(&the.gate, 0);
    wait_seen(the.once, &seen);
    wait_seen(other, &again);
    assert_int_equal(seen.told.outcome, ONCE_OUTCOME_RUN);
    assert_int_equal(again.told.outcome, ONCE_OUTCOME_RUN);
    assert_int_equal(again.told.epoch, seen.told.epoch);
    once_claim_drop(again.told.claim);
    once_claim_drop(seen.told.claim);
    (void)once_close(other, 5000);
}

static void test_a_batch_is_one_sync(void **state)
{
    seen_t seen[MANY];
    unsigned before;

    start("renew=off&reap=off");
    once_claim_drop(claim("first")); /* the segment is there now */
    before = gate_count(&the.gate);
    memset(seen, 0, sizeof(seen));
    for (unsigned i = 0; i < MANY; i++) {
        char key[16];
        (void)snprintf(key, sizeof(key), "key-%u", i);
        assert_int_equal(ask_later(the.once, key, NULL, see, &seen[i]), ONCE_OK);
    }
    for (unsigned i = 0; i < MANY; i++) {
        wait_seen(the.once, &seen[i]);
        assert_int_equal(seen[i].told.outcome, ONCE_OUTCOME_RUN);
    }
    assert_int_equal(gate_count(&the.gate), before + 1);
    for (unsigned i = 0; i < MANY; i++) {
        seen[i].calls = 0;
        assert_int_equal(finish(seen[i].told.claim, i % 3, &seen[i]), ONCE_OK);
    }
    for (unsigned i = 0; i < MANY; i++) {
        wait_seen(the.once, &seen[i]);
        assert_int_equal(seen[i].told.outcome, ONCE_OUTCOME_DONE);
    }
    assert_int_equal(gate_count(&the.gate), before + 2);
}

/* What changes nothing costs no sync, and waits for none. */
static void test_reading_needs_no_sync(void **state)
{
    once_claim_t *held;
    unsigned before;
    told_t told;

    start("renew=off&reap=off");
    held = claim("done");
    assert_int_equal(complete(held, 200, "body", 4).outcome, ONCE_OUTCOME_DONE);
    held = claim("pending");
    before = gate_count(&the.gate);
    gate_set(&the.gate, 1);
    told = ask(the.once, "done", NULL);
    assert_int_equal(told.outcome, ONCE_OUTCOME_REPLAY);
    assert_int_equal(told.body_len, 4);
    told = ask(the.once, "pending", NULL);
    assert_int_equal(told.outcome, ONCE_OUTCOME_BUSY);
    told = get(the.once, "done");
    assert_int_equal(told.state, ONCE_STATE_COMPLETED);
    gate_set(&the.gate, 0);
    assert_int_equal(gate_count(&the.gate), before);
    once_claim_drop(held);
}

/* The writer stands before the gate: somebody else answers. */
static void test_a_replay_waits_for_no_other_sync(void **state)
{
    seen_t seen = {0};
    told_t told;

    start("renew=off&reap=off");
    assert_int_equal(complete(claim("done"), 200, "body", 4).outcome, ONCE_OUTCOME_DONE);
    gate_set(&the.gate, 1);
    assert_int_equal(ask_later(the.once, "other", NULL, see, &seen), ONCE_OK);
    wait_for_gate();
    told = ask(the.once, "done", NULL);
    assert_int_equal(told.error, ONCE_OK);
    assert_int_equal(told.outcome, ONCE_OUTCOME_REPLAY);
    assert_int_equal(told.body_len, 4);
    assert_int_equal(seen.calls, 0);
    gate_set(&the.gate, 0);
    wait_seen(the.once, &seen);
    once_claim_drop(seen.told.claim);
}

/* A lease ends with the machine: its renewal is answered at once, and synced all the same. */
static void test_a_renewal_does_not_wait(void **state)
{
    once_claim_t *held;

    start("renew=off&reap=off");
    held = claim("key");
    gate_set(&the.gate, 1);
    assert_int_equal(once_claim_renew_sync(held, NULL), ONCE_OK);
    wait_for_gate();
    gate_set(&the.gate, 0);
    once_claim_drop(held);
}

/* A process that stands still with a renewal that is not durable keeps the key no longer than its lease. */
static void test_a_lease_ends_for_who_stands_still(void **state)
{
    time_t deadline = time(NULL) + 60;
    once_t *other;
    told_t told;

    start("renew=off&reap=off");
    other = place_open(the.store, "renew=off&reap=off&store_timeout=10s", NULL);
    told = ask(the.once, "key", "lease=1s");
    assert_int_equal(told.outcome, ONCE_OUTCOME_RUN);
    gate_set(&the.gate, 1);
    assert_int_equal(once_claim_renew_sync(told.claim, NULL), ONCE_OK);
    wait_for_gate();
    once_claim_drop(told.claim);
    told = ask(other, "key", NULL);
    assert_int_equal(told.outcome, ONCE_OUTCOME_BUSY);
    while (told.outcome == ONCE_OUTCOME_BUSY && time(NULL) < deadline) {
        assert_true(once_wait(other, 10) >= 0);
        told = ask(other, "key", NULL);
    }
    assert_int_equal(told.outcome, ONCE_OUTCOME_RUN);
    assert_int_equal(told.epoch, 2);
    assert_true(gate_is_busy(&the.gate));
    once_claim_drop(told.claim);
    gate_set(&the.gate, 0);
    (void)once_close(other, 5000);
}

static void test_relaxed_claims_do_not_wait(void **state)
{
    seen_t seen = {0};
    once_claim_t *held;

    start("renew=off&reap=off&durability=claims-relaxed");
    once_claim_drop(claim("first"));
    (void)get(the.once, "first"); /* durable now */
    gate_set(&the.gate, 1);
    held = claim("key");
    wait_for_gate();
    gate_set(&the.gate, 0);
    (void)get(the.once, "key");
    gate_set(&the.gate, 1);
    assert_int_equal(finish(held, 0, &seen), ONCE_OK);
    check_silence(the.once, &seen); /* an end is never relaxed */
    gate_set(&the.gate, 0);
    wait_seen(the.once, &seen);
}

/* A disk that stands still is told. What was asked for takes place when it goes on, or not at all. */
static void test_a_stalled_sync_is_told(void **state)
{
    seen_t begun = {0}, ended = {0}, behind = {0};
    once_claim_t *held;
    told_t told;

    start("renew=off&reap=off&store_timeout=500ms");
    held = claim("before");
    gate_set(&the.gate, 1);
    assert_int_equal(finish(held, 0, &ended), ONCE_OK);
    assert_int_equal(ask_later(the.once, "key", NULL, see, &begun), ONCE_OK);
    wait_for_gate();
    assert_int_equal(ask_later(the.once, "other", NULL, see, &behind), ONCE_OK);
    wait_seen(the.once, &begun);
    wait_seen(the.once, &ended);
    wait_seen(the.once, &behind);
    assert_int_equal(begun.told.error, ONCE_E_UNAVAILABLE);
    assert_int_equal(ended.told.error, ONCE_E_UNAVAILABLE);
    assert_int_equal(behind.told.error, ONCE_E_UNAVAILABLE);
    gate_set(&the.gate, 0);
    assert_int_equal(get(the.once, "before").state, ONCE_STATE_COMPLETED);
    do { /* claims that nobody waited for any longer are released */
        told = ask(the.once, "key", NULL);
    } while (told.outcome == ONCE_OUTCOME_BUSY);
    assert_int_equal(told.outcome, ONCE_OUTCOME_RUN);
    once_claim_drop(told.claim);
}

/* A host that is in the middle of its answers: what it asks for in the first of them is synced while it stands in a later one. */
typedef struct still {
    seen_t seen;
    unsigned calls, syncs;
    int synced;
} still_t;

static void stand_still(once_t *once, once_answer_t *answer, void *data)
{
    still_t *still = data;
    struct timespec until;

    if (still->calls++ == 0) {
        assert_int_equal(ask_later(once, "key", NULL, see, &still->seen), ONCE_OK);
    }
    if (still->calls != 2 * MANY) {
        return;
    }
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 30;
    (void)pthread_mutex_lock(&the.gate.lock);
    while (the.gate.begun == still->syncs &&
           pthread_cond_timedwait(&the.gate.changed, &the.gate.lock, &until) == 0) {
    }
    still->synced = the.gate.begun > still->syncs;
    (void)pthread_mutex_unlock(&the.gate.lock);
}

static void test_a_host_that_stands_still_holds_up_no_sync(void **state)
{
    uint8_t id[ONCE_ID_SIZE] = {1};
    still_t still = {0};

    start("renew=off&reap=off");
    once_claim_drop(claim("before")); /* so that there is a segment */
    still.syncs = gate_count(&the.gate);
    for (unsigned i = 0; i < 2 * MANY; i++) {
        assert_int_equal(once_record_get(the.once, id, stand_still, &still), ONCE_OK);
    }
    wait_seen(the.once, &still.seen);
    assert_int_equal(still.calls, 2 * MANY);
    assert_true(still.synced);
    once_claim_drop(still.seen.told.claim);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_run_waits_for_the_sync, end),
        cmocka_unit_test_teardown(test_every_end_waits_for_the_sync, end),
        cmocka_unit_test_teardown(test_settle_and_purge_wait_for_the_sync, end),
        cmocka_unit_test_teardown(test_others_see_only_what_is_durable, end),
        cmocka_unit_test_teardown(test_a_repeated_claim_waits_for_the_sync, end),
        cmocka_unit_test_teardown(test_a_batch_is_one_sync, end),
        cmocka_unit_test_teardown(test_reading_needs_no_sync, end),
        cmocka_unit_test_teardown(test_a_replay_waits_for_no_other_sync, end),
        cmocka_unit_test_teardown(test_a_renewal_does_not_wait, end),
        cmocka_unit_test_teardown(test_a_lease_ends_for_who_stands_still, end),
        cmocka_unit_test_teardown(test_relaxed_claims_do_not_wait, end),
        cmocka_unit_test_teardown(test_a_stalled_sync_is_told, end),
        cmocka_unit_test_teardown(test_a_host_that_stands_still_holds_up_no_sync, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
