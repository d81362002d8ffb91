/*
 * Claims: every row of the record table that begins with one.
 */
#include "conformance/suite.h"

#include <stdio.h>
#include <string.h>

static const char *const every_policy[] = {"recover=retry", "recover=transactional",
                                           "recover=hold"};

/* A policy with a lease, in `out`. */
static const char *with_lease(char out[64], const char *lease, const char *recover)
{
    (void)snprintf(out, 64, "%s%s", lease, recover);
    return out;
}

static void new_id(once__test_t *t, uint8_t id[ONCE_CLAIM_ID_SIZE])
{
    char text[ONCE_UUID_SIZE];

    CHECK(once_key_uuid4(text) == ONCE_OK);
    memcpy(id, text, ONCE_CLAIM_ID_SIZE);
}

static void new_key(once__test_t *t)
{
    once__asked_t ask = {.key = "k", .policy = LONG "recover=transactional"};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");
    char seen[ONCE_TOKEN_SIZE];
    once_slice_t key;

    EXPECT(ONCE_E_NOT_FOUND, once__peer_get(b, &ask));
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    CHECK_STATE(ONCE_STATE_PENDING, a);
    CHECK_EQ(1, once__peer_epoch(a));
    CHECK_EQ(1, once_claim_epoch(a->claim));
    CHECK(once_claim_alive(a->claim));

    EXPECT(ONCE_OK, once__peer_get(b, &ask));
    CHECK_STATE(ONCE_STATE_PENDING, b);
    CHECK_EQ(1, once__peer_epoch(b));
    CHECK_EQ(ONCE_RECOVER_TRANSACTIONAL, once_record_recover(b->record));
    CHECK(once_record_lease_ms(b->record) > 0);
    CHECK(once_record_lease_ms(b->record) <= 600000);
    CHECK_EQ(0, once_record_expires_ms(b->record));
    CHECK_EQ(0, once_record_status(b->record));
    key = once_record_key(b->record);
    CHECK(key.len == 1 && memcmp(key.data, "k", 1) == 0);
    once_record_token(b->record, seen);
    CHECK(strcmp(seen, a->token) == 0);
}

static void same_claim_again(once__test_t *t)
{
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    for (unsigned i = 0; i < 3; i++) {
        uint8_t id[ONCE_CLAIM_ID_SIZE];
        char first[ONCE_TOKEN_SIZE], policy[64];
        once__asked_t ask = {.key = every_policy[i], .claim_id = id};
        ask.policy = with_lease(policy, LONG, every_policy[i]);

        new_id(t, id);
        EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
        memcpy(first, a->token, sizeof(first));
        EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
        CHECK(strcmp(first, a->token) == 0);
        /* The process that asked may have been replaced by another one. */
        EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(b, &ask));
        CHECK(strcmp(first, b->token) == 0);
        CHECK_EQ(1, once__peer_epoch(b));
    }
}

static void same_claim_after_its_lease(once__test_t *t)
{
    uint8_t id[ONCE_CLAIM_ID_SIZE];
    once__asked_t ask = {.key = "k", .claim_id = id, .policy = SHORT "recover=hold"};
    once__peer_t *a = once__peer_open(t, "");

    new_id(t, id);
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    once__peer_wait_lease(a, &ask);
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    CHECK_EQ(1, once__peer_epoch(a));
    CHECK_STATE(ONCE_STATE_PENDING, a);
}

static void busy(once__test_t *t)
{
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    for (unsigned i = 0; i < 3; i++) {
        char policy[64];
        once__asked_t ask = {.key = every_policy[i],
                             .policy = with_lease(policy, LONG, every_policy[i])};

        EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
        STAYS(ONCE_OUTCOME_BUSY, once__peer_begin(b, &ask), a, &ask);
        CHECK(once_answer_retry_after_ms(b->answer) >= 1);
        CHECK(once_answer_retry_after_ms(b->answer) <= 600000);
        CHECK(once_answer_take_claim(b->answer) == NULL);
        CHECK_STATE(ONCE_STATE_PENDING, b);
        CHECK_EQ(1, once__peer_epoch(b));
        EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(a, NULL));
    }
}

static void lease_over(once__test_t *t)
{
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    for (unsigned i = 0; i < 2; i++) {
        char brief[64], policy[64];
        once__asked_t ask = {.key = every_policy[i],
                             .policy = with_lease(brief, SHORT, every_policy[i])};

        EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
        once__peer_wait_lease(b, &ask);
        CHECK_STATE(ONCE_STATE_PENDING, b);
        ask.policy = with_lease(policy, LONG, every_policy[i]);
        EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(b, &ask));
        CHECK_STATE(ONCE_STATE_PENDING, b);
        CHECK_EQ(2, once__peer_epoch(b));
        CHECK(strcmp(a->token, b->token) != 0);
        EXPECT(ONCE_OUTCOME_BUSY, once__peer_begin(a, &ask));
    }
}

static void lease_over_hold(once__test_t *t)
{
    once__asked_t ask = {.key = "k", .policy = SHORT "recover=hold"};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    once__peer_wait_lease(b, &ask);
    CHECK_STATE(ONCE_STATE_PENDING, b);
    EXPECT(ONCE_OUTCOME_UNKNOWN, once__peer_begin(b, &ask));
    CHECK_STATE(ONCE_STATE_UNKNOWN, b);
    CHECK_EQ(1, once__peer_epoch(b));
    CHECK(once_answer_take_claim(b->answer) == NULL);
    EXPECT(ONCE_OUTCOME_UNKNOWN, once__peer_begin(b, &ask));
    EXPECT(ONCE_OK, once__peer_get(b, &ask));
    CHECK_STATE(ONCE_STATE_UNKNOWN, b);
    CHECK_EQ(1, once__peer_epoch(b));
}

static void mine(once__test_t *t)
{
    uint8_t id[ONCE_CLAIM_ID_SIZE];
    once__asked_t own = {.key = "k", .claim_id = id, .policy = SHORT "recover=hold"};
    once__asked_t other = {.key = "k", .policy = LONG "recover=hold"};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");
    char stale[ONCE_TOKEN_SIZE];

    new_id(t, id);
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &own));
    memcpy(stale, a->token, sizeof(stale));
    once__peer_wait_lease(b, &own);
    EXPECT(ONCE_OUTCOME_UNKNOWN, once__peer_begin(b, &other));
    own.policy = LONG "recover=hold";
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &own));
    CHECK_STATE(ONCE_STATE_PENDING, a);
    CHECK_EQ(2, once__peer_epoch(a));
    CHECK(strcmp(stale, a->token) != 0);
    CHECK(memcmp(once_record_claim_id(a->record), id, sizeof(id)) != 0);
    EXPECT(ONCE_OUTCOME_LOST, once__peer_complete(once__peer_as(b, stale), NULL));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(a, NULL));
}

static void doubted_claim_again(once__test_t *t)
{
    once__peer_t *a = once__peer_open(t, "");

    for (unsigned i = 0; i < 3; i++) {
        uint8_t id[ONCE_CLAIM_ID_SIZE];
        char policy[64];
        once__asked_t ask = {.key = every_policy[i], .claim_id = id};
        ask.policy = with_lease(policy, SHORT, every_policy[i]);

        new_id(t, id);
        EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
        EXPECT(ONCE_OUTCOME_DONE, once__peer_doubt(a));
        EXPECT(ONCE_OUTCOME_UNKNOWN, once__peer_begin(a, &ask));
        once__peer_wait_lease(a, &ask);
        EXPECT(ONCE_OUTCOME_UNKNOWN, once__peer_begin(a, &ask));
        CHECK_EQ(1, once__peer_epoch(a));
        CHECK_STATE(ONCE_STATE_UNKNOWN, a);
    }
}

static void unknown_busy(once__test_t *t)
{
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    for (unsigned i = 0; i < 2; i++) {
        char policy[64];
        once__asked_t ask = {.key = every_policy[i],
                             .policy = with_lease(policy, LONG, every_policy[i])};

        EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
        EXPECT(ONCE_OUTCOME_DONE, once__peer_doubt(a));
        EXPECT(ONCE_OUTCOME_BUSY, once__peer_begin(b, &ask));
        CHECK_STATE(ONCE_STATE_UNKNOWN, b);
        CHECK(once_answer_retry_after_ms(b->answer) >= 1);
    }
}

static void unknown_lease_over(once__test_t *t)
{
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    for (unsigned i = 0; i < 2; i++) {
        char brief[64], policy[64];
        once__asked_t ask = {.key = every_policy[i],
                             .policy = with_lease(brief, SHORT, every_policy[i])};

        EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
        EXPECT(ONCE_OUTCOME_DONE, once__peer_doubt(a));
        once__peer_wait_lease(b, &ask);
        CHECK_STATE(ONCE_STATE_UNKNOWN, b);
        ask.policy = with_lease(policy, LONG, every_policy[i]);
        EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(b, &ask));
        CHECK_STATE(ONCE_STATE_PENDING, b);
        CHECK_EQ(2, once__peer_epoch(b));
    }
}

static void unknown_hold(once__test_t *t)
{
    once__asked_t ask = {.key = "k", .policy = SHORT "recover=hold"};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_doubt(a));
    EXPECT(ONCE_OUTCOME_UNKNOWN, once__peer_begin(b, &ask));
    once__peer_wait_lease(b, &ask);
    EXPECT(ONCE_OUTCOME_UNKNOWN, once__peer_begin(b, &ask));
    CHECK_STATE(ONCE_STATE_UNKNOWN, b);
    CHECK_EQ(1, once__peer_epoch(b));
}

static void failed(once__test_t *t)
{
    once__asked_t ask = {.key = "k"};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    for (uint32_t epoch = 1; epoch <= 5; epoch++) {
        EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
        CHECK_EQ(epoch, once__peer_epoch(a));
        EXPECT(ONCE_OK, once__peer_get(b, &ask));
        CHECK_STATE(ONCE_STATE_PENDING, b);
        CHECK_EQ(0, once_record_status(b->record));
        CHECK_EQ(0, once_record_note(b->record).len);
        CHECK_EQ(0, once_record_expires_ms(b->record));
        EXPECT(ONCE_OUTCOME_DONE, once__peer_release(a, 503, "no room"));
        EXPECT(ONCE_OK, once__peer_get(b, &ask));
        CHECK_STATE(ONCE_STATE_FAILED, b);
    }
}

static void released_claim_again(once__test_t *t)
{
    uint8_t id[ONCE_CLAIM_ID_SIZE];
    once__asked_t ask = {.key = "k", .claim_id = id};
    once__peer_t *a = once__peer_open(t, "");

    new_id(t, id);
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_release(a, 0, ""));
    EXPECT(ONCE_OUTCOME_LOST, once__peer_begin(a, &ask));
    EXPECT(ONCE_OK, once__peer_get(a, &ask));
    CHECK_STATE(ONCE_STATE_FAILED, a);
    CHECK_EQ(1, once__peer_epoch(a));
}

static void completed(once__test_t *t)
{
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    for (unsigned i = 0; i < 3; i++) {
        uint8_t id[ONCE_CLAIM_ID_SIZE];
        char policy[64];
        once_response_t response = once__response(200, every_policy[i]);
        once__asked_t own = {.key = every_policy[i], .claim_id = id}, other = {0};
        own.policy = with_lease(policy, LONG, every_policy[i]);
        other = own;
        other.claim_id = NULL;

        new_id(t, id);
        EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &own));
        EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(a, &response));
        for (int n = 0; n < 3; n++) {
            EXPECT(ONCE_OUTCOME_REPLAY, once__peer_begin(b, &other));
            SAME_RESPONSE(&response, b);
            CHECK_STATE(ONCE_STATE_COMPLETED, b);
            CHECK_EQ(1, once__peer_epoch(b));
        }
        /* The holder's own repeated question is answered in the same way. */
        EXPECT(ONCE_OUTCOME_REPLAY, once__peer_begin(a, &own));
        SAME_RESPONSE(&response, a);
    }
}

static void stricter_policy(once__test_t *t)
{
    once__asked_t retry = {.key = "1", .policy = SHORT "recover=retry"};
    once__asked_t hold = {.key = "1", .policy = SHORT "recover=hold"};
    once__asked_t transactional = {.key = "3", .policy = LONG "recover=transactional"};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    /* The asker's hold wins over the record's retry, */
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &retry));
    once__peer_wait_lease(b, &retry);
    EXPECT(ONCE_OUTCOME_UNKNOWN, once__peer_begin(b, &hold));
    /* and the record's hold over the asker's retry. */
    retry.key = hold.key = "2";
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &hold));
    once__peer_wait_lease(b, &hold);
    EXPECT(ONCE_OUTCOME_UNKNOWN, once__peer_begin(b, &retry));
    /* A record never becomes less strict. */
    retry.key = "3";
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &transactional));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_release(a, 0, ""));
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &retry));
    CHECK_EQ(ONCE_RECOVER_TRANSACTIONAL, once_record_recover(once__peer_record(a)));
    once__peer_wait_lease(b, &retry);
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(b, &transactional));
    CHECK_EQ(ONCE_RECOVER_TRANSACTIONAL, once_record_recover(once__peer_record(b)));
}

const once__case_t once__claim_cases[] = {
    {"claim-new-key-runs", "an unused key runs: pending, epoch 1", new_key},
    {"claim-repeated-runs-again", "the same claim id again is the same claim", same_claim_again},
    {"claim-repeated-after-its-lease", "also after the lease, if no other caller came",
     same_claim_after_its_lease},
    {"claim-busy-while-the-lease-is-live", "another's claim is busy under every policy", busy},
    {"claim-lease-over-runs", "retry, transactional: a new epoch when the lease is over",
     lease_over},
    {"claim-lease-over-under-hold", "hold: unknown when the lease is over, never run",
     lease_over_hold},
    {"claim-mine-runs-anew", "the holder of a record unknown by lease runs under a new claim",
     mine},
    {"claim-doubted-repeated", "the doubted claim repeated is unknown, also when its lease is over",
     doubted_claim_again},
    {"claim-unknown-is-busy", "after doubt, retry and transactional wait for the lease",
     unknown_busy},
    {"claim-unknown-lease-over-runs", "and then run under a new epoch", unknown_lease_over},
    {"claim-unknown-under-hold", "hold: unknown stays unknown, also when its lease is over",
     unknown_hold},
    {"claim-failed-runs", "a failed record runs again; epochs count up", failed},
    {"claim-released-repeated", "a claim that was released is not granted again",
     released_claim_again},
    {"claim-completed-replays", "a completed record replays, to every caller", completed},
    {"claim-stricter-policy-wins", "of the record's and the asker's policy", stricter_policy},
    {0},
};
