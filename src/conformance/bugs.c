/*
 * Bugs that other idempotency layers had or have, each as a test of ours: ownership of the record, takeover, what it
 * is known by. The numbers are kept in bugs_more.c; those that are missing belong to the gateway, the relay, the
 * consumer and PostgreSQL.
 */
#include "conformance/suite.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/*
 * 0. The handler succeeded, recording its response failed, and the error path deleted the record: the retry ran it again.
 *    A completion that cannot be recorded leaves the claim as it is; no other caller runs.
 */
static void failed_completion(once__test_t *t)
{
    once__asked_t ask = {.key = "k"};
    once_response_t wrong = once__response(42, "no such status");
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_E_INVALID, once_claim_complete_sync(a->claim, &wrong, NULL));
    EXPECT(ONCE_OUTCOME_BUSY, once__peer_begin(b, &ask));
    CHECK_STATE(ONCE_STATE_PENDING, b);
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(a, NULL));
    EXPECT(ONCE_OUTCOME_REPLAY, once__peer_begin(b, &ask));
}

/*
 * 1. Completion did not say whose it was: a worker that was presumed dead overwrote the result of its successor.
 */
static void stale_owner(once__test_t *t)
{
    once__asked_t brief = {.key = "k", .policy = SHORT}, ask = {.key = "k"};
    once_response_t stale = once__response(200, "stale"), fresh = once__response(200, "fresh");
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &brief));
    once__peer_wait_lease(b, &brief);
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(b, &ask));
    EXPECT(ONCE_OUTCOME_LOST, once__peer_complete(a, &stale));
    EXPECT(ONCE_OUTCOME_BUSY, once__peer_begin(a, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(b, &fresh));
    EXPECT(ONCE_OUTCOME_LOST, once__peer_complete(a, &stale));
    EXPECT(ONCE_OUTCOME_REPLAY, once__peer_begin(a, &ask));
    SAME_RESPONSE(&fresh, a);
}

/*
 * 2. Taking over was decided on what had been read before, then written without a condition: of three callers two ran.
 */
enum { ROUNDS = 12 };

static void ask_each(once__test_t *t, unsigned number, void *data)
{
    atomic_uint *granted = data;
    once__peer_t *peer = once__peer_open(t, "");

    for (unsigned i = 0; i < ROUNDS; i++) {
        char key[16];
        once__asked_t ask = {.key = key};
        int outcome;
        (void)snprintf(key, sizeof(key), "%u", i);
        outcome = once__peer_begin(peer, &ask);
        if (outcome == ONCE_OUTCOME_RUN) {
            CHECK_EQ(2, once__peer_epoch(peer));
            atomic_fetch_add(&granted[i], 1);
        } else {
            EXPECT(ONCE_OUTCOME_BUSY, outcome);
        }
    }
}

static void old_read(once__test_t *t)
{
    atomic_uint granted[ROUNDS] = {0};
    once__peer_t *a = once__peer_open(t, "");
    once__asked_t last = {.key = "11"};

    for (unsigned i = 0; i < ROUNDS; i++) {
        char key[16];
        once__asked_t ask = {.key = key, .policy = SHORT};
        (void)snprintf(key, sizeof(key), "%u", i);
        EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
        once__peer_drop(a);
    }
    once__peer_wait_lease(a, &last);
    once__test_run_threads(t, once__test_threads(t), ask_each, granted);
    for (unsigned i = 0; i < ROUNDS; i++) {
        CHECK_EQ(1, atomic_load(&granted[i]));
    }
}

/*
 * 3. A record in progress that had no deadline was taken for an orphan and run by every caller.
 *    Here every pending and every doubted record has a lease from the moment it can be seen.
 */
static void no_deadline(once__test_t *t)
{
    static const char *const policies[] = {"recover=retry", "recover=transactional", "lease=1d",
                                           "ttl=1s"};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    for (unsigned i = 0; i < 4; i++) {
        once__asked_t ask = {.key = policies[i], .policy = policies[i]};
        EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
        EXPECT(ONCE_OK, once__peer_get(b, &ask));
        CHECK(once_record_lease_ms(b->record) > 0);
        EXPECT(ONCE_OUTCOME_BUSY, once__peer_begin(b, &ask));
        EXPECT(ONCE_OUTCOME_DONE, once__peer_doubt(a));
        EXPECT(ONCE_OK, once__peer_get(b, &ask));
        CHECK(once_record_lease_ms(b->record) > 0);
        EXPECT(ONCE_OUTCOME_BUSY, once__peer_begin(b, &ask));
    }
}

/*
 * 4. The record's identity was computed again after the handler had changed its input: the result went to another record.
 */
static void mutated_input(once__test_t *t)
{
    char key[] = "before", body[] = "{\"amount\":10}", target[] = "/payments";
    once__asked_t ask = {.key = key, .target = target, .bytes = {body, sizeof(body) - 1}};
    once__asked_t intact = {.key = "before"}, changed = {.key = "behind"};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    memcpy(key, "behind", 6);
    memset(body, 'x', sizeof(body) - 1);
    memset(target, 'x', sizeof(target) - 1);
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(a, NULL));
    EXPECT(ONCE_OUTCOME_REPLAY, once__peer_begin(b, &intact));
    EXPECT(ONCE_E_NOT_FOUND, once__peer_get(b, &changed));
}

/*
 * 5. The record vanished between the claim that failed and the read that followed, and the handler ran without any claim.
 *    Keys are removed and asked for all the time: every run has a claim, and every replay a response.
 */
typedef struct vanishing {
    atomic_uint granted, completed;
    atomic_int working;
} vanishing_t;

static void remove_or_ask(once__test_t *t, unsigned number, void *data)
{
    vanishing_t *vanishing = data;
    once__peer_t *peer = once__peer_open(t, "");
    once__asked_t ask = {.key = "k"};

    if (number == 0) {
        while (atomic_load(&vanishing->working) > 0) {
            if (once__peer_get(peer, &ask) == ONCE_OK &&
                once__peer_state(peer) == ONCE_STATE_COMPLETED) {
                char token[ONCE_TOKEN_SIZE];
                once_record_token(peer->record, token);
                (void)once__peer_purge(peer, token, 0);
            }
        }
        return;
    }
    for (unsigned i = 0; i < 150; i++) {
        int outcome = once__peer_begin(peer, &ask);
        if (outcome == ONCE_OUTCOME_RUN) {
            CHECK(peer->claim != NULL);
            atomic_fetch_add(&vanishing->granted, 1);
            EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(peer, NULL));
            atomic_fetch_add(&vanishing->completed, 1);
        } else if (outcome == ONCE_OUTCOME_REPLAY) {
            once_response_t done = once__response(201, "done");
            SAME_RESPONSE(&done, peer);
        } else {
            EXPECT(ONCE_OUTCOME_BUSY, outcome);
        }
    }
    atomic_fetch_sub(&vanishing->working, 1);
}

static void vanished_record(once__test_t *t)
{
    vanishing_t vanishing = {0, 0, 3};

    once__test_run_threads(t, 4, remove_or_ask, &vanishing);
    CHECK(atomic_load(&vanishing.granted) > 0);
    CHECK_EQ(atomic_load(&vanishing.granted), atomic_load(&vanishing.completed));
}

/*
 * 6. The response expired, the marker "completed" did not: the key was a conflict for ever.
 */
static void marker_outlives_response(once__test_t *t)
{
    once__asked_t ask = {.key = "k"};
    once_response_t response = once__response(200, "brief");
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    response.retain_ms = 40;
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(a, &response));
    once__peer_wait_gone(b, &ask);
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(b, &ask));
    CHECK_EQ(1, once__peer_epoch(b));
}

/*
 * 7. Records were also looked up by the hash of the body: two tenants that posted the same body got in each other's way.
 */
static void same_body(once__test_t *t)
{
    once__asked_t one = {.scope = "a", .key = "1"}, two = {.scope = "b", .key = "2"};
    once__asked_t three = {.scope = "a", .key = "3"};
    once_response_t response = once__response(200, "of a, 1");
    once__peer_t *a = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &one));
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &two));
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &three));
    EXPECT(ONCE_OK, once__peer_get(a, &one));
    once_record_token(a->record, a->token);
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(once__peer_as(a, a->token), &response));
    EXPECT(ONCE_OUTCOME_BUSY, once__peer_begin(a, &two));
    EXPECT(ONCE_OUTCOME_BUSY, once__peer_begin(a, &three));
}

/*
 * 8. The key was reused with another body while the first was in progress, and the answer was "in progress" instead of "mismatch".
 */
static void mismatch_in_progress(once__test_t *t)
{
    once__asked_t ask = {.key = "k"}, other = {.key = "k", .bytes = {"other", 5}};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_OUTCOME_MISMATCH, once__peer_begin(b, &other));
    EXPECT(ONCE_OUTCOME_BUSY, once__peer_begin(b, &ask));
}

const once__case_t once__bug_cases[] = {
    {"bug-00-failed-completion-frees-the-record", "a completion that fails leaves the claim",
     failed_completion},
    {"bug-01-stale-owner-completes-after-takeover", "it is lost and overwrites nothing",
     stale_owner},
    {"bug-02-takeover-on-an-old-read", "of many callers one takes over", old_read},
    {"bug-03-no-deadline-is-an-orphan", "what is in progress has a lease from the start",
     no_deadline},
    {"bug-04-identity-of-mutated-input", "the claim knows its record", mutated_input},
    {"bug-05-record-vanishes-after-the-claim", "no caller runs without a claim", vanished_record},
    {"bug-06-marker-outlives-the-response", "key and response are forgotten together",
     marker_outlives_response},
    {"bug-07-same-body-other-key", "is no conflict, in one scope or in two", same_body},
    {"bug-08-mismatch-while-in-progress", "mismatch goes before busy", mismatch_in_progress},
    {0},
};
