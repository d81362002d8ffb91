/*
 * Doubt, and renewing a claim.
 */
#include "conformance/suite.h"

/* Makes `first` the holder of epoch 1 and `second` of epoch 2, which came after the lease of the first was over. */
static void take_over(once__test_t *t, once__peer_t *first, once__peer_t *second, const char *key)
{
    once__asked_t brief = {.key = key, .policy = SHORT}, ask = {.key = key};

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(first, &brief));
    once__peer_wait_lease(second, &brief);
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(second, &ask));
    CHECK_EQ(2, once__peer_epoch(second));
}

/* Makes the record unknown by lease, held by `holder`. */
static void let_run_out(once__test_t *t, once__peer_t *holder, once__peer_t *other, const char *key)
{
    once__asked_t ask = {.key = key, .policy = SHORT "recover=hold"};

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(holder, &ask));
    once__peer_wait_lease(other, &ask);
    EXPECT(ONCE_OUTCOME_UNKNOWN, once__peer_begin(other, &ask));
}

/* ------------------------------------------------------------------------------------------------------------- doubt */

static void doubt(once__test_t *t)
{
    once__asked_t ask = {.key = "k", .policy = SHORT};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");
    uint64_t lease;

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    once__peer_drop(a); /* adopted again, the claim asks for a long lease */
    EXPECT(ONCE_OUTCOME_DONE, once__peer_doubt(a));
    CHECK_STATE(ONCE_STATE_UNKNOWN, a);
    EXPECT(ONCE_OK, once__peer_get(b, &ask));
    CHECK_STATE(ONCE_STATE_UNKNOWN, b);
    lease = once_record_lease_ms(b->record);
    CHECK(lease > 60);
    CHECK_EQ(0, once_record_expires_ms(b->record));
    EXPECT(ONCE_OUTCOME_BUSY, once__peer_begin(b, &ask));

    /* Again is done, and starts no new lease. */
    once__test_wait(t, 3);
    EXPECT(ONCE_OUTCOME_DONE, once__peer_doubt(a));
    EXPECT(ONCE_OK, once__peer_get(b, &ask));
    CHECK_STATE(ONCE_STATE_UNKNOWN, b);
    CHECK(once_record_lease_ms(b->record) < lease);
}

static void doubt_unknown_by_lease(once__test_t *t)
{
    static const uint8_t id[ONCE_CLAIM_ID_SIZE] = "my own claim id";
    once__asked_t ask = {.key = "k", .policy = SHORT "recover=hold", .claim_id = id};
    once__asked_t other = {.key = "k", .policy = SHORT "recover=hold"};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    once__peer_wait_lease(b, &ask);
    EXPECT(ONCE_OUTCOME_UNKNOWN, once__peer_begin(b, &other));
    once__peer_drop(a);
    EXPECT(ONCE_OUTCOME_DONE, once__peer_doubt(a));
    EXPECT(ONCE_OK, once__peer_get(b, &ask));
    CHECK_STATE(ONCE_STATE_UNKNOWN, b);
    CHECK(once_record_lease_ms(b->record) > 0);
    /* Something was sent after all: the holder must not run it again. */
    EXPECT(ONCE_OUTCOME_UNKNOWN, once__peer_begin(a, &ask));
    CHECK_EQ(1, once__peer_epoch(a));
}

static void doubt_ended(once__test_t *t)
{
    once__asked_t ask = {.key = "completed"}, other = {.key = "failed"};
    once_response_t response = once__response(200, "kept");
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(a, &response));
    EXPECT(ONCE_OUTCOME_ALREADY, once__peer_doubt(a));
    SAME_RESPONSE(&response, a);
    EXPECT(ONCE_OUTCOME_REPLAY, once__peer_begin(b, &ask));
    SAME_RESPONSE(&response, b);

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &other));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_release(a, 0, ""));
    EXPECT(ONCE_OUTCOME_LOST, once__peer_doubt(a));
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(b, &other));
    CHECK_EQ(2, once__peer_epoch(b));
    EXPECT(ONCE_OUTCOME_LOST, once__peer_doubt(a));
    EXPECT(ONCE_OK, once__peer_get(a, &other));
    CHECK_STATE(ONCE_STATE_PENDING, a);
}

/* ------------------------------------------------------------------------------------------------------------- renew */

static void renew(once__test_t *t)
{
    static const char *const policies[] = {SHORT "recover=retry", SHORT "recover=hold"};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    for (unsigned i = 0; i < 2; i++) {
        once__asked_t ask = {.key = policies[i], .policy = policies[i]};
        EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
        once__peer_drop(a);
        EXPECT(ONCE_OUTCOME_DONE, once__peer_renew(a));
        CHECK(once_claim_alive(a->claim));
        EXPECT(ONCE_OK, once__peer_get(b, &ask));
        CHECK_STATE(ONCE_STATE_PENDING, b);
        CHECK(once_record_lease_ms(b->record) > 60);
        once__test_wait(t, 70);
        EXPECT(ONCE_OUTCOME_BUSY, once__peer_begin(b, &ask));
        EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(a, NULL));
    }
}

static void renew_after_lease(once__test_t *t)
{
    once__asked_t ask = {.key = "k", .policy = SHORT};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    once__peer_wait_lease(b, &ask);
    once__peer_drop(a);
    EXPECT(ONCE_OUTCOME_DONE, once__peer_renew(a));
    EXPECT(ONCE_OUTCOME_BUSY, once__peer_begin(b, &ask));
    CHECK_EQ(1, once__peer_epoch(b));
}

static void renew_unknown(once__test_t *t)
{
    once__asked_t ask = {.key = "doubt", .policy = SHORT};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_doubt(a));
    once__peer_wait_lease(b, &ask);
    EXPECT(ONCE_OUTCOME_DONE, once__peer_renew(a));
    CHECK_STATE(ONCE_STATE_UNKNOWN, a);
    EXPECT(ONCE_OUTCOME_BUSY, once__peer_begin(b, &ask));

    let_run_out(t, a, b, "lease");
    ask.key = "lease";
    once__peer_drop(a);
    EXPECT(ONCE_OUTCOME_DONE, once__peer_renew(a));
    EXPECT(ONCE_OK, once__peer_get(b, &ask));
    CHECK_STATE(ONCE_STATE_UNKNOWN, b);
    CHECK(once_record_lease_ms(b->record) > 0);
}

static void renew_never_shortens(once__test_t *t)
{
    once__asked_t ask = {.key = "k"};
    once__peer_t *a = once__peer_open(t, "");
    once_claim_t *claim = NULL;

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_OK, once_claim_adopt(a->once, a->token, 10, &claim));
    EXPECT(ONCE_OK, once_claim_renew_sync(claim, NULL));
    once_claim_drop(claim);
    EXPECT(ONCE_OK, once__peer_get(a, &ask));
    CHECK(once_record_lease_ms(a->record) > 10);
}

static void renew_ended(once__test_t *t)
{
    once__asked_t ask = {.key = "completed"}, other = {.key = "failed"};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(a, NULL));
    EXPECT(ONCE_OUTCOME_ALREADY, once__peer_renew(a));
    CHECK(!once_claim_alive(a->claim));
    EXPECT(ONCE_OUTCOME_REPLAY, once__peer_begin(b, &ask));
    once__peer_drop(a);

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &other));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_release(a, 0, ""));
    EXPECT(ONCE_OUTCOME_LOST, once__peer_renew(a));
    once__peer_drop(a);

    take_over(t, a, b, "k");
    EXPECT(ONCE_OUTCOME_LOST, once__peer_renew(a));
    CHECK(!once_claim_alive(a->claim));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(b, NULL));
    EXPECT(ONCE_OUTCOME_LOST, once__peer_renew(a));
}

/* A renewal by a claim that lost must not keep the record from others. */
static void renew_stale_extends_nothing(once__test_t *t)
{
    once__asked_t ask = {.key = "k", .policy = SHORT};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");
    uint64_t lease;

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    once__peer_wait_lease(b, &ask);
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(b, &ask));
    EXPECT(ONCE_OK, once__peer_get(b, &ask));
    lease = once_record_lease_ms(b->record);
    once__peer_drop(a);
    EXPECT(ONCE_OUTCOME_LOST, once__peer_renew(a));
    EXPECT(ONCE_OK, once__peer_get(b, &ask));
    CHECK(once_record_lease_ms(b->record) <= lease);
}

const once__case_t once__doubt_cases[] = {
    {"doubt-is-unknown-with-a-lease", "again is done and starts no new lease", doubt},
    {"doubt-when-unknown-by-lease", "starts a lease; the claim can no longer run again",
     doubt_unknown_by_lease},
    {"doubt-ended", "completed: already; failed and stale: lost", doubt_ended},
    {"renew-extends", "from now, under every policy", renew},
    {"renew-after-the-lease", "as long as no other caller was granted", renew_after_lease},
    {"renew-unknown", "by doubt or by lease: the lease is live again, the state stays",
     renew_unknown},
    {"renew-never-shortens", "a shorter lease changes nothing", renew_never_shortens},
    {"renew-ended", "completed: already; failed and stale: lost, and the claim is not alive",
     renew_ended},
    {"renew-stale-extends-nothing", "a claim that lost cannot keep others out",
     renew_stale_extends_nothing},
    {0},
};
