/*
 * Duels: two callers try opposite things with the same record at the same time. One wins, and the other learns the result.
 */
#include "conformance/suite.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static const char *key_name(char out[16], unsigned key)
{
    (void)snprintf(out, 16, "key %u", key);
    return out;
}

enum { DUELS = 40 };

typedef struct duels {
    char tokens[DUELS][ONCE_TOKEN_SIZE];
    int holder[DUELS];          /* the holder's answers */
    int settler[DUELS];         /* the settler's answers */
    atomic_uint granted[DUELS]; /* to callers that try to take over */
} duels_t;

static duels_t *new_duels(once__test_t *t, const char *policy)
{
    duels_t *duels = once__test_alloc(t, sizeof(*duels));
    once__peer_t *a = once__peer_open(t, "");

    for (unsigned i = 0; i < DUELS; i++) {
        char name[16];
        once__asked_t ask = {.key = key_name(name, i), .policy = policy};
        EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
        memcpy(duels->tokens[i], a->token, ONCE_TOKEN_SIZE);
    }
    once__peer_close(a);
    return duels;
}

static void complete_or_settle(once__test_t *t, unsigned number, void *data)
{
    duels_t *duels = data;
    once_response_t completed = once__response(200, "by the holder");
    once_response_t settled = once__response(200, "by the settler");
    once__peer_t *peer = once__peer_open(t, "");

    for (unsigned i = 0; i < DUELS; i++) {
        if (number == 0) {
            duels->holder[i] =
                once__peer_complete(once__peer_as(peer, duels->tokens[i]), &completed);
        } else {
            duels->settler[i] =
                once__peer_settle(peer, duels->tokens[i], i % 2 == 0 ? &settled : NULL, 1);
        }
    }
}

static void complete_against_settle(once__test_t *t)
{
    duels_t *duels = new_duels(t, LONG);
    once__peer_t *a;

    once__test_run_threads(t, 2, complete_or_settle, duels);
    a = once__peer_open(t, "");
    for (unsigned i = 0; i < DUELS; i++) {
        int holder_won = duels->holder[i] == ONCE_OUTCOME_DONE;
        once_response_t kept = once__response(200, holder_won ? "by the holder" : "by the settler");
        char name[16];
        once__asked_t ask = {.key = key_name(name, i)};

        EXPECT(ONCE_OK, once__peer_get(a, &ask));
        EXPECT(holder_won ? ONCE_OUTCOME_ALREADY : ONCE_OUTCOME_DONE, duels->settler[i]);
        if (i % 2 == 0 || holder_won) {
            EXPECT(holder_won ? ONCE_OUTCOME_DONE : ONCE_OUTCOME_ALREADY, duels->holder[i]);
            SAME_RESPONSE(&kept, a);
        } else {
            EXPECT(ONCE_OUTCOME_LOST, duels->holder[i]);
            CHECK_STATE(ONCE_STATE_FAILED, a);
        }
    }
}

static void hold_on_or_take_over(once__test_t *t, unsigned number, void *data)
{
    duels_t *duels = data;
    once__peer_t *peer = once__peer_open(t, "");

    for (unsigned i = 0; i < DUELS; i++) {
        char name[16];
        once__asked_t ask = {.key = key_name(name, i)};
        int outcome;

        if (number == 0) {
            (void)once__peer_as(peer, duels->tokens[i]);
            duels->holder[i] =
                i % 2 == 0 ? once__peer_complete(peer, NULL) : once__peer_renew(peer);
            continue;
        }
        outcome = once__peer_begin(peer, &ask);
        if (outcome == ONCE_OUTCOME_RUN) {
            CHECK_EQ(2, once__peer_epoch(peer));
            atomic_fetch_add(&duels->granted[i], 1);
        } else if (outcome != ONCE_OUTCOME_BUSY) {
            EXPECT(ONCE_OUTCOME_REPLAY, outcome);
        }
    }
}

/* The lease is over: either the holder is still in time, or one other is granted. Never both, never neither. */
static void holder_against_takeover(once__test_t *t)
{
    duels_t *duels = new_duels(t, SHORT);
    once__peer_t *a = once__peer_open(t, "");

    for (unsigned i = 0; i < DUELS; i++) {
        char name[16];
        once__asked_t ask = {.key = key_name(name, i)};
        once__peer_wait_lease(a, &ask);
    }
    once__test_run_threads(t, 3, hold_on_or_take_over, duels);
    for (unsigned i = 0; i < DUELS; i++) {
        unsigned granted = atomic_load(&duels->granted[i]);
        CHECK(granted <= 1);
        EXPECT(granted == 1 ? ONCE_OUTCOME_LOST : ONCE_OUTCOME_DONE, duels->holder[i]);
    }
}

const once__case_t once__duel_cases[] = {
    {"race-complete-against-settle", "one decides, the other learns what", complete_against_settle},
    {"race-holder-against-takeover", "the holder in time, or one other: never both",
     holder_against_takeover},
    {0},
};
