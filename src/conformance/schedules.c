/*
 * Schedules that broke earlier versions of the record table, found by searching its state space. Each is played step by step;
 * the names are those of the search.
 */
#include "conformance/suite.h"

#include <string.h>

static const uint8_t own_id[ONCE_CLAIM_ID_SIZE] = "a reply was los";

/* A claim whose lease runs out while its holder is presumed to work. */
static void claim_and_lapse(once__test_t *t, once__peer_t *peer, once__peer_t *other,
                            const once__asked_t *asked)
{
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(peer, asked));
    once__peer_wait_lease(other, asked);
}

/* L3: completed under epoch 2 and forgotten; a zombie of the first epoch 1 meets the new epoch 1. */
static void zombie_after_expiry(once__test_t *t)
{
    once__asked_t brief = {.key = "k", .policy = SHORT "recover=transactional"};
    once__asked_t ask = {.key = "k", .policy = LONG "recover=transactional"};
    once_response_t response = once__response(200, "by epoch 2");
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, ""),
                 *c = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &brief));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_doubt(a));
    once__peer_wait_lease(b, &brief);
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(b, &ask));
    CHECK_EQ(2, once__peer_epoch(b));
    response.retain_ms = 40;
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(b, &response));
    once__peer_wait_gone(b, &ask);
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(c, &ask));
    CHECK_EQ(1, once__peer_epoch(c));
    EXPECT(ONCE_OUTCOME_LOST, once__peer_complete(a, NULL));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(c, NULL));
}

/* M7: the same, and the zombie releases: the new claim must not be freed for a third one. */
static void zombie_releases(once__test_t *t)
{
    once__asked_t brief = {.key = "k", .policy = SHORT}, ask = {.key = "k"};
    once_response_t response = once__response(404, "by epoch 2");
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    claim_and_lapse(t, a, b, &brief);
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(b, &ask));
    response.retain_ms = 40;
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(b, &response));
    once__peer_wait_gone(b, &ask);
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(b, &ask));
    CHECK_EQ(1, once__peer_epoch(b));
    EXPECT(ONCE_OUTCOME_LOST, once__peer_release(a, 0, ""));
    EXPECT(ONCE_OUTCOME_BUSY, once__peer_begin(a, &ask));
}

/* L6: under hold the pending record must outlive its retention: forgetting it would run it again. */
static void pending_outlives_ttl(once__test_t *t)
{
    once__asked_t ask = {.key = "k", .policy = SHORT "recover=hold ttl=1s"};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    claim_and_lapse(t, a, b, &ask);
    once__test_wait(t, 1200);
    EXPECT(ONCE_OK, once_store_reap_sync(b->once, 0, NULL));
    EXPECT(ONCE_OUTCOME_UNKNOWN, once__peer_begin(b, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(a, NULL));
}

/* L4: the reply to a claim is lost and another caller finds the lease over: nothing was run, so nothing stays unknown. */
static void lost_claim_reply(once__test_t *t)
{
    once__asked_t own = {.key = "k", .claim_id = own_id, .policy = SHORT "recover=hold"};
    once__asked_t other = {.key = "k", .policy = LONG "recover=hold"};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    claim_and_lapse(t, a, b, &own);
    EXPECT(ONCE_OUTCOME_UNKNOWN, once__peer_begin(b, &other));
    own.policy = LONG "recover=hold";
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &own));
    CHECK_EQ(2, once__peer_epoch(a));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(a, NULL));
    EXPECT(ONCE_OUTCOME_REPLAY, once__peer_begin(b, &other));
}

/* L12: a claim that is repeated because its reply was lost must not get busy because of itself. */
static void own_claim_busy(once__test_t *t)
{
    once__asked_t own = {.key = "k", .claim_id = own_id, .policy = LONG "recover=hold"};
    once__peer_t *a = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &own));
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &own));
    CHECK_EQ(1, once__peer_epoch(a));
}

/* F4a: the holder must not come back under the same epoch: a verdict on that epoch may still be on its way. */
static void revived_epoch(once__test_t *t)
{
    once__asked_t own = {.key = "k", .claim_id = own_id, .policy = SHORT "recover=hold"};
    once__asked_t other = {.key = "k", .policy = LONG "recover=hold"};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");
    char judged[ONCE_TOKEN_SIZE];

    claim_and_lapse(t, a, b, &own);
    EXPECT(ONCE_OUTCOME_UNKNOWN, once__peer_begin(b, &other));
    once_record_token(once__peer_record(b), judged);
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &own));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_doubt(a));
    once__peer_wait_lease(b, &own);
    EXPECT(ONCE_OUTCOME_REFUSED, once__peer_settle(b, judged, NULL, 0));
    EXPECT(ONCE_OUTCOME_REFUSED, once__peer_settle(b, judged, NULL, 1));
    EXPECT(ONCE_OUTCOME_UNKNOWN, once__peer_begin(b, &other));
}

/* L7: settled as failed while the holder is still at work: what it records afterwards must not count. */
static void settled_too_early(once__test_t *t)
{
    once__asked_t ask = {.key = "k", .policy = SHORT "recover=hold"};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_doubt(a));
    once__peer_wait_lease(b, &ask);
    EXPECT(ONCE_OUTCOME_DONE, once__peer_settle(b, a->token, NULL, 0));
    EXPECT(ONCE_OUTCOME_LOST, once__peer_complete(a, NULL));
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(b, &ask));
    CHECK_EQ(2, once__peer_epoch(b));
    EXPECT(ONCE_OUTCOME_LOST, once__peer_complete(a, NULL));
}

/* L8: a verdict whose reply was lost is repeated: it must not hit the next epoch. */
static void repeated_settle(once__test_t *t)
{
    once__asked_t ask = {.key = "k", .policy = SHORT "recover=hold"};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");
    char judged[ONCE_TOKEN_SIZE];

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_doubt(a));
    memcpy(judged, a->token, sizeof(judged));
    once__peer_wait_lease(b, &ask);
    EXPECT(ONCE_OUTCOME_DONE, once__peer_settle(b, judged, NULL, 0));
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_doubt(a));
    once__peer_wait_lease(b, &ask);
    EXPECT(ONCE_OUTCOME_REFUSED, once__peer_settle(b, judged, NULL, 0));
    EXPECT(ONCE_OUTCOME_UNKNOWN, once__peer_begin(b, &ask));
    CHECK_EQ(2, once__peer_epoch(b));
}

/* L13: a holder that lost must answer from the record, and the record has an answer. */
static void answer_from_the_record(once__test_t *t)
{
    once__asked_t brief = {.key = "k", .policy = SHORT}, ask = {.key = "k"};
    once_response_t first = once__response(404, "first"), second = once__response(201, "second");
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    claim_and_lapse(t, a, b, &brief);
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(b, &ask));
    EXPECT(ONCE_OUTCOME_LOST, once__peer_complete(a, &first));
    EXPECT(ONCE_OUTCOME_BUSY, once__peer_begin(a, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(b, &second));
    EXPECT(ONCE_OUTCOME_REPLAY, once__peer_begin(a, &ask));
    SAME_RESPONSE(&second, a);
}

/* L15: a released record must not be taken by another request: an earlier epoch of the first may have acted. */
static void two_payloads(once__test_t *t)
{
    once__asked_t brief = {.key = "k", .policy = SHORT}, ask = {.key = "k"};
    once__asked_t other = {.key = "k", .bytes = {"other", 5}};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    claim_and_lapse(t, a, b, &brief);
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(b, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_release(b, 0, ""));
    EXPECT(ONCE_OUTCOME_MISMATCH, once__peer_begin(b, &other));
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(b, &ask));
    CHECK_EQ(3, once__peer_epoch(b));
}

/* I3t: epoch 1 acted, its lease ran out, epoch 2 could not even connect: "failed" would be a lie. */
static void failed_hides_doubt(once__test_t *t)
{
    once__asked_t brief = {.key = "k", .policy = SHORT}, ask = {.key = "k"};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    claim_and_lapse(t, a, b, &brief);
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(b, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_release(b, 0, "could not connect"));
    EXPECT(ONCE_OK, once__peer_get(a, &ask));
    CHECK_STATE(ONCE_STATE_UNKNOWN, a);
}

/* I7: the reply to a completion is lost: its repetition learns that it was done, and by the same claim. */
static void lost_complete_reply(once__test_t *t)
{
    once__asked_t ask = {.key = "k", .policy = LONG "recover=hold"};
    once_response_t response = once__response(402, "no funds");
    once__peer_t *a = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(a, &response));
    EXPECT(ONCE_OUTCOME_ALREADY, once__peer_complete(a, &response));
    SAME_RESPONSE(&response, a);
}

/* I7b: a slow holder knows the outcome, but another caller has meanwhile found its lease over. */
static void known_outcome_refused(once__test_t *t)
{
    once__asked_t ask = {.key = "k", .policy = SHORT "recover=hold"};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    claim_and_lapse(t, a, b, &ask);
    EXPECT(ONCE_OUTCOME_UNKNOWN, once__peer_begin(b, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(a, NULL));
    EXPECT(ONCE_OUTCOME_REPLAY, once__peer_begin(b, &ask));
}

/* L17: the gateway gives up and doubts; the backend's transaction, with the same claim, commits. */
static void doubted_by_another(once__test_t *t)
{
    once__asked_t ask = {.key = "k", .policy = LONG "recover=hold"};
    once__peer_t *gateway = once__peer_open(t, ""), *backend = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(gateway, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_doubt(gateway));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(once__peer_as(backend, gateway->token), NULL));
    EXPECT(ONCE_OUTCOME_REPLAY, once__peer_begin(gateway, &ask));
}

/* M2: the same the other way round: the doubt comes after the commit, and must not undo it. */
static void doubt_after_commit(once__test_t *t)
{
    once__asked_t ask = {.key = "k", .policy = LONG "recover=transactional"};
    once_response_t response = once__response(200, "committed");
    once__peer_t *gateway = once__peer_open(t, ""), *backend = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(gateway, &ask));
    EXPECT(ONCE_OUTCOME_DONE,
           once__peer_complete(once__peer_as(backend, gateway->token), &response));
    EXPECT(ONCE_OUTCOME_ALREADY, once__peer_doubt(gateway));
    SAME_RESPONSE(&response, gateway);
    EXPECT(ONCE_OUTCOME_ALREADY, once__peer_release(gateway, 504, "timeout"));
    EXPECT(ONCE_OUTCOME_REPLAY, once__peer_begin(backend, &ask));
    SAME_RESPONSE(&response, backend);
}

/* M1: a stale claim changes nothing, whether or not that would have caused a second effect. */
static void stale_changes_nothing(once__test_t *t)
{
    once__asked_t brief = {.key = "k", .policy = SHORT "recover=transactional"};
    once__asked_t ask = {.key = "k", .policy = LONG "recover=transactional"};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    claim_and_lapse(t, a, b, &brief);
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(b, &ask));
    EXPECT(ONCE_OUTCOME_LOST, once__peer_complete(a, NULL));
    EXPECT(ONCE_OK, once__peer_get(a, &ask));
    CHECK_STATE(ONCE_STATE_PENDING, a);
    CHECK_EQ(2, once__peer_epoch(a));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(b, NULL));
}

const once__case_t once__schedule_cases[] = {
    {"schedule-L3-zombie-after-expiry", "epoch 1 of old meets epoch 1 of new", zombie_after_expiry},
    {"schedule-M7-zombie-releases", "the same, with a release", zombie_releases},
    {"schedule-L6-pending-outlives-its-ttl", "hold: never forgotten", pending_outlives_ttl},
    {"schedule-L4-lost-claim-reply", "what never ran does not stay unknown", lost_claim_reply},
    {"schedule-L12-own-claim-is-busy", "a repeated claim is recognised", own_claim_busy},
    {"schedule-F4a-revived-epoch", "the holder comes back under a new epoch only", revived_epoch},
    {"schedule-L7-settled-too-early", "settled as failed is a fence", settled_too_early},
    {"schedule-L8-repeated-settle", "a verdict names the claim it judged", repeated_settle},
    {"schedule-L13-own-answer-after-lost", "the record has the answer", answer_from_the_record},
    {"schedule-L15-two-payloads", "one key, one request, also after a release", two_payloads},
    {"schedule-I3t-failed-hides-doubt", "released after a lapse is not failed", failed_hides_doubt},
    {"schedule-I7-lost-complete-reply", "repeated: already", lost_complete_reply},
    {"schedule-I7b-known-outcome-refused", "unknown by lease accepts the holder's outcome",
     known_outcome_refused},
    {"schedule-L17-doubted-by-the-gateway", "unknown by doubt accepts the backend's commit",
     doubted_by_another},
    {"schedule-M2-doubt-after-commit", "what is completed stays completed", doubt_after_commit},
    {"schedule-M1-stale-changes-nothing", "seen in the record, not only in effects",
     stale_changes_nothing},
    {0},
};
