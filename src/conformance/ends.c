/*
 * The end of a claim: complete, release, doubt; and renewing it.
 */
#include "conformance/suite.h"

#include <string.h>

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

/* ---------------------------------------------------------------------------------------------------------- complete */

static void complete(once__test_t *t)
{
    once__asked_t ask = {.key = "k"};
    once_response_t response = once__response(201, "paid");
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(a, &response));
    CHECK_STATE(ONCE_STATE_COMPLETED, a);
    EXPECT(ONCE_OK, once__peer_get(b, &ask));
    CHECK_STATE(ONCE_STATE_COMPLETED, b);
    CHECK_EQ(1, once__peer_epoch(b));
    CHECK_EQ(0, once_record_lease_ms(b->record));
    SAME_RESPONSE(&response, b);
}

static void complete_again(once__test_t *t)
{
    once__asked_t ask = {.key = "k"};
    once_response_t first = once__response(201, "first"), second = once__response(500, "second");
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(a, &first));
    EXPECT(ONCE_OUTCOME_ALREADY, once__peer_complete(a, &second));
    SAME_RESPONSE(&first, a);
    EXPECT(ONCE_OUTCOME_ALREADY, once__peer_complete(once__peer_as(b, a->token), &second));
    SAME_RESPONSE(&first, b);
    EXPECT(ONCE_OUTCOME_REPLAY, once__peer_begin(b, &ask));
    SAME_RESPONSE(&first, b);
}

static void complete_after_doubt(once__test_t *t)
{
    static const char *const policies[] = {LONG "recover=retry", LONG "recover=hold"};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    for (unsigned i = 0; i < 2; i++) {
        once__asked_t ask = {.key = policies[i], .policy = policies[i]};
        EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
        EXPECT(ONCE_OUTCOME_DONE, once__peer_doubt(a));
        EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(a, NULL));
        EXPECT(ONCE_OUTCOME_REPLAY, once__peer_begin(b, &ask));
    }
}

static void complete_unknown_by_lease(once__test_t *t)
{
    once__asked_t ask = {.key = "k"};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    let_run_out(t, a, b, "k");
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(a, NULL));
    EXPECT(ONCE_OUTCOME_REPLAY, once__peer_begin(b, &ask));
}

static void complete_after_lease(once__test_t *t)
{
    static const char *const policies[] = {SHORT "recover=retry", SHORT "recover=hold"};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    for (unsigned i = 0; i < 2; i++) {
        once__asked_t ask = {.key = policies[i], .policy = policies[i]};
        EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
        once__peer_wait_lease(b, &ask);
        EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(a, NULL));
        EXPECT(ONCE_OUTCOME_REPLAY, once__peer_begin(b, &ask));
        CHECK_EQ(1, once__peer_epoch(b));
    }
}

static void stale_complete(once__test_t *t)
{
    once__asked_t ask = {.key = "k"};
    once_response_t mine = once__response(200, "second"), stale = once__response(200, "first");
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    take_over(t, a, b, "k");
    EXPECT(ONCE_OUTCOME_LOST, once__peer_complete(a, &stale));
    EXPECT(ONCE_OK, once__peer_get(a, &ask));
    CHECK_STATE(ONCE_STATE_PENDING, a);
    CHECK_EQ(2, once__peer_epoch(a));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(b, &mine));
    EXPECT(ONCE_OUTCOME_LOST, once__peer_complete(a, &stale));
    EXPECT(ONCE_OUTCOME_REPLAY, once__peer_begin(a, &ask));
    SAME_RESPONSE(&mine, a);
}

static void complete_failed(once__test_t *t)
{
    once__asked_t ask = {.key = "k"};
    once__peer_t *a = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_release(a, 0, ""));
    EXPECT(ONCE_OUTCOME_LOST, once__peer_complete(a, NULL));
    EXPECT(ONCE_OK, once__peer_get(a, &ask));
    CHECK_STATE(ONCE_STATE_FAILED, a);
}

static void end_nothing(once__test_t *t)
{
    once__asked_t ask = {.key = "k"};
    once__peer_t *a = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_purge(a, NULL, 1));
    EXPECT(ONCE_OUTCOME_LOST, once__peer_renew(a));
    EXPECT(ONCE_OUTCOME_LOST, once__peer_complete(a, NULL));
    EXPECT(ONCE_OUTCOME_LOST, once__peer_release(a, 0, ""));
    EXPECT(ONCE_OUTCOME_LOST, once__peer_doubt(a));
    EXPECT(ONCE_E_NOT_FOUND, once__peer_get(a, &ask));
}

/* A claim id of the caller's own can come back in a later epoch: the epoch must be compared, too. */
static void epoch_is_compared(once__test_t *t)
{
    static const uint8_t id[ONCE_CLAIM_ID_SIZE] = "0123456789abcde";
    once__asked_t own = {.key = "k", .policy = SHORT, .claim_id = id}, other = {.key = "k"};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");
    char stale[ONCE_TOKEN_SIZE];

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &own));
    memcpy(stale, a->token, sizeof(stale));
    once__peer_wait_lease(b, &own);
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(b, &other));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_settle(b, NULL, NULL, 1));
    own.policy = LONG;
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &own));
    CHECK_EQ(3, once__peer_epoch(a));
    EXPECT(ONCE_OUTCOME_LOST, once__peer_renew(once__peer_as(b, stale)));
    EXPECT(ONCE_OUTCOME_LOST, once__peer_doubt(b));
    EXPECT(ONCE_OUTCOME_LOST, once__peer_release(b, 0, ""));
    EXPECT(ONCE_OUTCOME_LOST, once__peer_complete(b, NULL));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(a, NULL));
    EXPECT(ONCE_OUTCOME_LOST, once__peer_complete(once__peer_as(b, stale), NULL));
}

/* ----------------------------------------------------------------------------------------------------------- release */

static void release(once__test_t *t)
{
    static const char note[] = "card declined";
    once__asked_t ask = {.key = "k", .policy = LONG "recover=hold ttl=1h"};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");
    char text[300];
    once_slice_t kept;

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_release(a, 402, note));
    CHECK_STATE(ONCE_STATE_FAILED, a);
    EXPECT(ONCE_OK, once__peer_get(b, &ask));
    CHECK_STATE(ONCE_STATE_FAILED, b);
    CHECK_EQ(402, once_record_status(b->record));
    kept = once_record_note(b->record);
    CHECK(kept.len == strlen(note) && memcmp(kept.data, note, kept.len) == 0);
    CHECK(once_record_expires_ms(b->record) > 0);
    CHECK_EQ(0, once_record_lease_ms(b->record));

    /* A note that is too long is cut, not refused. */
    memset(text, 'n', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    ask.key = "long note";
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_release(a, 0, text));
    EXPECT(ONCE_OK, once__peer_get(b, &ask));
    CHECK_EQ(ONCE_NOTE_MAX, once_record_note(b->record).len);
    CHECK_EQ(0, once_record_status(b->record));
}

static void release_again(once__test_t *t)
{
    once__asked_t ask = {.key = "k"};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_release(a, 402, "first"));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_release(a, 500, "second"));
    EXPECT(ONCE_OK, once__peer_get(b, &ask));
    CHECK_STATE(ONCE_STATE_FAILED, b);
    CHECK_EQ(402, once_record_status(b->record));
    CHECK_EQ(5, once_record_note(b->record).len);
}

static void release_completed(once__test_t *t)
{
    once__asked_t ask = {.key = "k"};
    once_response_t response = once__response(200, "kept");
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    take_over(t, b, a, "tainted");
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(a, &response));
    EXPECT(ONCE_OUTCOME_ALREADY, once__peer_release(a, 0, ""));
    SAME_RESPONSE(&response, a);

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(a, &response));
    EXPECT(ONCE_OUTCOME_ALREADY, once__peer_release(a, 500, "late"));
    SAME_RESPONSE(&response, a);
    EXPECT(ONCE_OUTCOME_REPLAY, once__peer_begin(b, &ask));
    SAME_RESPONSE(&response, b);
}

static void release_stale(once__test_t *t)
{
    once__asked_t ask = {.key = "k"}, clean = {.key = "clean"};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");
    char stale[ONCE_TOKEN_SIZE];

    take_over(t, a, b, "k");
    EXPECT(ONCE_OUTCOME_LOST, once__peer_release(a, 0, ""));
    EXPECT(ONCE_OK, once__peer_get(a, &ask));
    CHECK_STATE(ONCE_STATE_PENDING, a);
    CHECK_EQ(2, once__peer_epoch(a));
    CHECK(once_record_lease_ms(a->record) > 0);
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(b, NULL));
    EXPECT(ONCE_OUTCOME_LOST, once__peer_release(a, 0, ""));

    /* The same where no earlier claim is in doubt. */
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &clean));
    memcpy(stale, a->token, sizeof(stale));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_release(a, 0, ""));
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(b, &clean));
    EXPECT(ONCE_OUTCOME_LOST, once__peer_release(once__peer_as(a, stale), 0, ""));
    EXPECT(ONCE_OK, once__peer_get(a, &clean));
    CHECK_STATE(ONCE_STATE_PENDING, a);
}

static void release_unknown(once__test_t *t)
{
    once__asked_t ask = {.key = "doubt", .policy = LONG "recover=hold"};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_doubt(a));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_release(a, 0, "it was not sent"));
    CHECK_STATE(ONCE_STATE_FAILED, a);
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(b, &ask));

    let_run_out(t, a, b, "lease");
    ask.key = "lease";
    EXPECT(ONCE_OUTCOME_DONE, once__peer_release(a, 0, ""));
    CHECK_STATE(ONCE_STATE_FAILED, a);
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(b, &ask));
    CHECK_EQ(2, once__peer_epoch(b));
}

static void check_released_in_doubt(once__test_t *t, once__peer_t *a, once__peer_t *b,
                                    once__asked_t *ask)
{
    EXPECT(ONCE_OUTCOME_DONE, once__peer_release(b, 503, "no room"));
    EXPECT(ONCE_OK, once__peer_get(a, ask));
    CHECK_STATE(ONCE_STATE_UNKNOWN, a);
    CHECK_EQ(0, once_record_lease_ms(a->record));
    CHECK_EQ(503, once_record_status(a->record));
    CHECK_EQ(7, once_record_note(a->record).len);
    ask->policy = LONG "recover=hold";
    EXPECT(ONCE_OUTCOME_UNKNOWN, once__peer_begin(a, ask));
    ask->policy = LONG "recover=retry";
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, ask));
    CHECK_EQ(3, once__peer_epoch(a));
    EXPECT(ONCE_OK, once__peer_get(a, ask));
    CHECK_EQ(0, once_record_status(a->record));
    CHECK_EQ(0, once_record_note(a->record).len);
    EXPECT(ONCE_OUTCOME_DONE, once__peer_release(a, 0, ""));
    EXPECT(ONCE_OK, once__peer_get(a, ask));
    CHECK_STATE(ONCE_STATE_UNKNOWN, a);
}

static void release_after_lapse(once__test_t *t)
{
    once__asked_t ask = {.key = "k"};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    take_over(t, a, b, "k");
    check_released_in_doubt(t, a, b, &ask);
}

static void release_after_doubt(once__test_t *t)
{
    once__asked_t brief = {.key = "k", .policy = SHORT}, ask = {.key = "k"};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &brief));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_doubt(a));
    once__peer_wait_lease(b, &brief);
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(b, &ask));
    check_released_in_doubt(t, a, b, &ask);
}

/* Both at once: an earlier epoch lapsed, and the present one is unknown by lease when its holder gives it back. */
static void release_lapsed_twice(once__test_t *t)
{
    static const uint8_t id[ONCE_CLAIM_ID_SIZE] = "my own claim id";
    once__asked_t brief = {.key = "k", .policy = SHORT}, own = brief;
    once__asked_t hold = {.key = "k", .policy = LONG "recover=hold"};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    own.claim_id = id;
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &brief));
    once__peer_wait_lease(b, &brief);
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(b, &own));
    once__peer_wait_lease(a, &brief);
    EXPECT(ONCE_OUTCOME_UNKNOWN, once__peer_begin(a, &hold));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_release(b, 0, ""));
    EXPECT(ONCE_OK, once__peer_get(a, &brief));
    CHECK_STATE(ONCE_STATE_UNKNOWN, a);
    /* The holder may no longer run it again. */
    EXPECT(ONCE_OUTCOME_UNKNOWN, once__peer_begin(b, &own));
    CHECK_EQ(2, once__peer_epoch(b));
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

const once__case_t once__end_cases[] = {
    {"complete-records-the-response", "pending becomes completed", complete},
    {"complete-again-is-already", "with the stored response; a second one changes nothing",
     complete_again},
    {"complete-after-doubt", "the holder learned the outcome after all", complete_after_doubt},
    {"complete-when-unknown-by-lease", "a slow holder's outcome is not refused",
     complete_unknown_by_lease},
    {"complete-after-the-lease", "as long as no other caller was granted", complete_after_lease},
    {"complete-stale-is-lost", "after another was granted, and after it completed", stale_complete},
    {"complete-failed-is-lost", "a failed record is a fence", complete_failed},
    {"end-nothing-is-lost", "no record: renew, complete, release and doubt are lost", end_nothing},
    {"end-compares-the-epoch", "the same claim id in an earlier epoch is lost", epoch_is_compared},
    {"release-fails-the-record", "with its status and note", release},
    {"release-again-is-done", "the first status and note stay", release_again},
    {"release-completed-is-already", "with the stored response", release_completed},
    {"release-stale-is-lost", "it changes nothing", release_stale},
    {"release-unknown", "by doubt or by lease: failed", release_unknown},
    {"release-after-earlier-lapse", "stays unknown, lease over: an earlier holder may have acted",
     release_after_lapse},
    {"release-after-earlier-doubt", "the same when the earlier epoch ended in doubt",
     release_after_doubt},
    {"release-after-two-lapses", "unknown, and the holder may not run it again",
     release_lapsed_twice},
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
