/*
 * The same with processes, which share nothing but the store.
 */
#include "conformance/suite.h"

#include <stdio.h>
#include <string.h>

#define KEYS 24

enum { TOLD_GRANTS, TOLD_EFFECTS, TOLD_TOTAL };

static const char *key_name(char out[16], unsigned key)
{
    (void)snprintf(out, 16, "key %u", key);
    return out;
}

/* ------------------------------------------------------------------------------------------------------------ sharing */

static void write_one(once__test_t *t, once__process_t *self, unsigned number)
{
    once__asked_t ask = {.key = "k"};
    once_response_t response = once__response(201, "from another process");
    once__peer_t *a = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(a, &response));
    self->told[TOLD_EFFECTS] = 1;
}

static void shared_store(once__test_t *t)
{
    once__asked_t ask = {.key = "k"}, other = {.key = "k", .bytes = {"other", 5}};
    once_response_t response = once__response(201, "from another process");
    once__process_t child;
    once__peer_t *a;

    once__test_needs_processes(t);
    once__process_start(t, &child, 0, write_one);
    once__process_end(t, &child);
    CHECK_EQ(1, child.told[TOLD_EFFECTS]);
    a = once__peer_open(t, "");
    EXPECT(ONCE_OUTCOME_REPLAY, once__peer_begin(a, &ask));
    SAME_RESPONSE(&response, a);
    EXPECT(ONCE_OUTCOME_MISMATCH, once__peer_begin(a, &other));
}

/* -------------------------------------------------------------------------------------------------------------- races */

/* Goes through the keys until each of them is completed; dies and lags on the way where `mortal`. */
static void work(once__test_t *t, once__process_t *self, unsigned number, const char *policy,
                 int mortal)
{
    once__peer_t *peer = once__peer_open(t, "");
    uint64_t random = once__test_seed(t, number);

    once__process_pause(t, self);
    for (unsigned key = 0; key < KEYS;) {
        char name[16];
        once__asked_t ask = {.key = key_name(name, key), .policy = policy};
        int outcome = once__peer_begin(peer, &ask);
        uint64_t fate = mortal ? once__test_random(&random) % 6 : 5;

        if (outcome == ONCE_OUTCOME_BUSY) {
            once__test_wait(t, 10);
        } else if (outcome != ONCE_OUTCOME_RUN) {
            EXPECT(ONCE_OUTCOME_REPLAY, outcome);
            key++;
        } else if (fate == 0) {
            self->told[TOLD_GRANTS]++;
            once__peer_drop(peer);
        } else {
            self->told[TOLD_GRANTS]++;
            once__test_wait(t, fate == 1 ? 70 : 0);
            outcome = once__peer_complete(peer, NULL);
            self->told[TOLD_EFFECTS] += outcome == ONCE_OUTCOME_DONE;
            self->told[TOLD_TOTAL] += outcome == ONCE_OUTCOME_DONE ? key + 1 : 0;
            if (outcome != ONCE_OUTCOME_DONE) {
                EXPECT(ONCE_OUTCOME_LOST, outcome);
            }
        }
    }
}

static void work_immortal(once__test_t *t, once__process_t *self, unsigned number)
{
    work(t, self, number, LONG "recover=hold", 0);
}

static void work_mortal(once__test_t *t, once__process_t *self, unsigned number)
{
    work(t, self, number, SHORT "recover=retry", 1);
}

static void run_race(once__test_t *t, uint64_t sums[ONCE__TOLD],
                     void (*body)(once__test_t *t, once__process_t *self, unsigned number))
{
    unsigned count = once__test_processes(t);
    once__process_t *children = once__test_alloc(t, count * sizeof(*children));

    for (unsigned i = 0; i < count; i++) {
        once__process_start(t, &children[i], i, body);
    }
    for (unsigned i = 0; i < count; i++) {
        once__process_await(t, &children[i]);
    }
    for (unsigned i = 0; i < count; i++) {
        once__process_go(t, &children[i]);
    }
    for (unsigned i = 0; i < count; i++) {
        once__process_end(t, &children[i]);
        for (unsigned n = 0; n < ONCE__TOLD; n++) {
            sums[n] += children[i].told[n];
        }
    }
}

/* Every key is completed; returns what the epochs of all of them add up to. Removes what the children made. */
static uint64_t sum_epochs(once__test_t *t)
{
    once__peer_t *a = once__peer_open(t, "");
    uint64_t epochs = 0;

    for (unsigned key = 0; key < KEYS; key++) {
        char name[16], token[ONCE_TOKEN_SIZE];
        once__asked_t ask = {.key = key_name(name, key)};
        EXPECT(ONCE_OUTCOME_REPLAY, once__peer_begin(a, &ask));
        epochs += once__peer_epoch(a);
        once_record_token(a->record, token);
        EXPECT(ONCE_OUTCOME_DONE, once__peer_purge(a, token, 0));
    }
    return epochs;
}

static void one_run(once__test_t *t)
{
    uint64_t sums[ONCE__TOLD] = {0};

    once__test_needs_processes(t);
    run_race(t, sums, work_immortal);
    CHECK_EQ(KEYS, sums[TOLD_GRANTS]);
    CHECK_EQ(KEYS, sums[TOLD_EFFECTS]);
    CHECK_EQ(sums[TOLD_GRANTS], sum_epochs(t));
}

static void mortal(once__test_t *t)
{
    uint64_t sums[ONCE__TOLD] = {0};

    once__test_needs_processes(t);
    run_race(t, sums, work_mortal);
    CHECK_EQ(KEYS, sums[TOLD_EFFECTS]);
    CHECK_EQ(KEYS * (KEYS + 1) / 2, sums[TOLD_TOTAL]);
    /* More than were reported: the library releases a grant that comes after half of such a short lease. */
    CHECK(sum_epochs(t) >= sums[TOLD_GRANTS]);
}

/* ------------------------------------------------------------------------------------------------------------- killed */

static void claim_and_pause(once__test_t *t, once__process_t *self, unsigned number)
{
    once__asked_t ask = {.key = number == 0 ? "retry" : "hold",
                         .policy = number == 0 ? SHORT "recover=retry" : SHORT "recover=hold"};
    once__peer_t *a = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    once__process_pause(t, self);
}

/* A holder that is killed at its work: nothing is lost, nothing is locked, nothing is assumed. */
static void killed(once__test_t *t)
{
    once__asked_t retry = {.key = "retry"}, hold = {.key = "hold"};
    once__process_t children[2];
    once__peer_t *a;

    once__test_needs_processes(t);
    for (unsigned i = 0; i < 2; i++) {
        once__process_start(t, &children[i], i, claim_and_pause);
        once__process_await(t, &children[i]);
    }
    for (unsigned i = 0; i < 2; i++) {
        once__process_kill(t, &children[i]);
    }
    a = once__peer_open(t, "");
    once__peer_wait_lease(a, &retry);
    once__peer_wait_lease(a, &hold);
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &retry));
    CHECK_EQ(2, once__peer_epoch(a));
    EXPECT(ONCE_OUTCOME_UNKNOWN, once__peer_begin(a, &hold));
    once_record_token(once__peer_record(a), a->token);
    EXPECT(ONCE_OUTCOME_DONE, once__peer_purge(a, NULL, 1));
}

static void write_for_ever(once__test_t *t, once__process_t *self, unsigned number)
{
    once__peer_t *a = once__peer_open(t, "");

    once__process_pause(t, self);
    for (unsigned i = 0;; i++) {
        char name[32];
        once__asked_t ask = {.key = name};
        (void)snprintf(name, sizeof(name), "doomed %u.%u", number, i);
        EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
        EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(a, NULL));
        EXPECT(ONCE_OUTCOME_DONE, once__peer_purge(a, NULL, 0));
    }
}

/* Killed in the middle of writing, again and again: the others go on, and read what they wrote. */
static void killed_while_writing(once__test_t *t)
{
    uint64_t random = once__test_seed(t, 0);
    once__process_t survivor;

    once__test_needs_processes(t);
    once__process_start(t, &survivor, 0, work_immortal);
    once__process_await(t, &survivor);
    for (unsigned i = 0; i < 8; i++) {
        once__process_t child;
        once__process_start(t, &child, i, write_for_ever);
        once__process_await(t, &child);
        once__process_go(t, &child);
        once__test_wait(t, 5 + once__test_random(&random) % 40);
        once__process_kill(t, &child);
    }
    once__process_go(t, &survivor);
    once__process_end(t, &survivor);
    CHECK_EQ(KEYS, survivor.told[TOLD_EFFECTS]);
    CHECK_EQ(KEYS, sum_epochs(t));
}

const once__case_t once__process_cases[] = {
    {"process-shares-the-store", "what one process completes, another replays", shared_store},
    {"process-race", "each key runs once, in one of the processes", one_run},
    {"process-race-mortal-holders", "retry: one effect per key, totals add up", mortal},
    {"process-killed-holder", "retry takes over, hold says unknown", killed},
    {"process-killed-while-writing", "the others go on", killed_while_writing},
    {0},
};
