/*
 * Deciding about a record from outside: settle and purge.
 */
#include "conformance/suite.h"

#include <string.h>

/* The four ways to be undecided with the lease over, and how to get there. */
typedef struct undecided {
    const char *key;
    const char *policy;
    int doubted;
    once_state_t state;
} undecided_t;

static const undecided_t lease_over[] = {
    {"pending, retry", SHORT "recover=retry", 0, ONCE_STATE_PENDING},
    {"pending, hold", SHORT "recover=hold", 0, ONCE_STATE_PENDING},
    {"unknown, retry", SHORT "recover=retry", 1, ONCE_STATE_UNKNOWN},
    {"unknown, hold", SHORT "recover=hold", 1, ONCE_STATE_UNKNOWN},
};

static void make_undecided(once__test_t *t, once__peer_t *peer, const undecided_t *undecided)
{
    once__asked_t ask = {.key = undecided->key, .policy = undecided->policy};

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(peer, &ask));
    if (undecided->doubted) {
        EXPECT(ONCE_OUTCOME_DONE, once__peer_doubt(peer));
    }
    once__peer_wait_lease(peer, &ask);
    CHECK_STATE(undecided->state, peer);
}

static void settle_completed(once__test_t *t)
{
    once_response_t response = once__response(200, "settled"), late = once__response(200, "late");
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    for (unsigned i = 0; i < 4; i++) {
        once__asked_t ask = {.key = lease_over[i].key};
        make_undecided(t, a, &lease_over[i]);
        EXPECT(ONCE_OUTCOME_DONE, once__peer_settle(b, a->token, &response, 0));
        EXPECT(ONCE_OK, once__peer_get(b, &ask));
        CHECK_STATE(ONCE_STATE_COMPLETED, b);
        CHECK(once_record_expires_ms(b->record) > 0);
        EXPECT(ONCE_OUTCOME_REPLAY, once__peer_begin(b, &ask));
        SAME_RESPONSE(&response, b);
        /* The holder comes late, and learns what was decided. */
        EXPECT(ONCE_OUTCOME_ALREADY, once__peer_complete(a, &late));
        SAME_RESPONSE(&response, a);
    }
}

static void settle_failed(once__test_t *t)
{
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    for (unsigned i = 0; i < 4; i++) {
        once__asked_t ask = {.key = lease_over[i].key};
        make_undecided(t, a, &lease_over[i]);
        EXPECT(ONCE_OUTCOME_DONE, once__peer_settle(b, a->token, NULL, 0));
        EXPECT(ONCE_OK, once__peer_get(b, &ask));
        CHECK_STATE(ONCE_STATE_FAILED, b);
        CHECK(once_record_note(b->record).len > 0);
        CHECK(once_record_expires_ms(b->record) > 0);
        /* The fence: what the old claim does now, it does in vain. */
        EXPECT(ONCE_OUTCOME_LOST, once__peer_complete(a, NULL));
        EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(b, &ask));
        CHECK_EQ(2, once__peer_epoch(b));
        EXPECT(ONCE_OUTCOME_LOST, once__peer_complete(a, NULL));
        EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(b, NULL));
    }
}

static void settle_live(once__test_t *t)
{
    once_response_t response = once__response(200, "forced");
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    for (unsigned i = 0; i < 8; i++) {
        const char *keys[] = {"1", "2", "3", "4", "5", "6", "7", "8"};
        once_response_t *settled = i & 1 ? &response : NULL;
        once__asked_t ask = {.key = keys[i],
                             .policy = i & 4 ? LONG "recover=hold" : LONG "recover=retry"};

        EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
        if (i & 2) {
            EXPECT(ONCE_OUTCOME_DONE, once__peer_doubt(a));
        }
        EXPECT(ONCE_OUTCOME_REFUSED, once__peer_settle(b, a->token, settled, 0));
        EXPECT(ONCE_OK, once__peer_get(b, &ask));
        CHECK_STATE(i & 2 ? ONCE_STATE_UNKNOWN : ONCE_STATE_PENDING, b);
        EXPECT(ONCE_OUTCOME_DONE, once__peer_settle(b, a->token, settled, 1));
        EXPECT(ONCE_OK, once__peer_get(b, &ask));
        CHECK_STATE(settled != NULL ? ONCE_STATE_COMPLETED : ONCE_STATE_FAILED, b);
        CHECK(once_record_expires_ms(b->record) > 0);
        if (settled != NULL) {
            SAME_RESPONSE(settled, b);
            EXPECT(ONCE_OUTCOME_ALREADY, once__peer_complete(a, NULL));
        } else {
            CHECK(once_record_note(b->record).len > 0);
            EXPECT(ONCE_OUTCOME_LOST, once__peer_complete(a, NULL));
        }
    }
}

/* What was judged must still be what is there: also with force. */
static void settle_moved_on(once__test_t *t)
{
    once_response_t response = once__response(200, "of the wrong epoch");
    once__asked_t brief = {.key = "k", .policy = SHORT}, ask = {.key = "k", .policy = SHORT};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &brief));
    once__peer_wait_lease(b, &brief);
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(b, &ask));
    once__peer_wait_lease(b, &ask);
    for (int force = 0; force < 2; force++) {
        EXPECT(ONCE_OUTCOME_REFUSED, once__peer_settle(b, a->token, &response, force));
        EXPECT(ONCE_OUTCOME_REFUSED, once__peer_settle(b, a->token, NULL, force));
        EXPECT(ONCE_OK, once__peer_get(b, &ask));
        CHECK_STATE(ONCE_STATE_PENDING, b);
        CHECK_EQ(2, once__peer_epoch(b));
    }
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(b, NULL));
    EXPECT(ONCE_OUTCOME_REFUSED, once__peer_settle(a, a->token, NULL, 1));
    EXPECT(ONCE_OUTCOME_REFUSED, once__peer_settle(a, a->token, &response, 1));
    EXPECT(ONCE_OK, once__peer_get(b, &ask));
    CHECK_STATE(ONCE_STATE_COMPLETED, b);
}

static void settle_again(once__test_t *t)
{
    once_response_t first = once__response(200, "first"), second = once__response(200, "second");
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");
    once__asked_t completed = {.key = lease_over[0].key}, failed = {.key = lease_over[3].key};

    make_undecided(t, a, &lease_over[0]);
    EXPECT(ONCE_OUTCOME_DONE, once__peer_settle(b, a->token, &first, 0));
    for (int force = 0; force < 2; force++) {
        EXPECT(ONCE_OUTCOME_ALREADY, once__peer_settle(b, a->token, &second, force));
        SAME_RESPONSE(&first, b);
        EXPECT(ONCE_OUTCOME_ALREADY, once__peer_settle(b, a->token, NULL, force));
        EXPECT(ONCE_OUTCOME_REPLAY, once__peer_begin(b, &completed));
        SAME_RESPONSE(&first, b);
    }

    make_undecided(t, a, &lease_over[3]);
    EXPECT(ONCE_OUTCOME_DONE, once__peer_settle(b, a->token, NULL, 0));
    for (int force = 0; force < 2; force++) {
        EXPECT(ONCE_OUTCOME_DONE, once__peer_settle(b, a->token, NULL, force));
        EXPECT(ONCE_OUTCOME_REFUSED, once__peer_settle(b, a->token, &second, force));
        EXPECT(ONCE_OK, once__peer_get(b, &failed));
        CHECK_STATE(ONCE_STATE_FAILED, b);
    }
}

/* "It has not happened and no longer can" covers the earlier epochs as well. */
static void settle_clears_earlier_doubt(once__test_t *t)
{
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    for (int force = 0; force < 2; force++) {
        once__asked_t brief = {.key = force ? "forced" : "lease over", .policy = SHORT};
        EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &brief));
        once__peer_wait_lease(b, &brief);
        EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(b, &brief));
        if (!force) {
            once__peer_wait_lease(a, &brief);
        }
        EXPECT(ONCE_OUTCOME_DONE, once__peer_settle(a, b->token, NULL, force));
        EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(b, &brief));
        CHECK_EQ(3, once__peer_epoch(b));
        EXPECT(ONCE_OUTCOME_DONE, once__peer_release(b, 0, ""));
        EXPECT(ONCE_OK, once__peer_get(b, &brief));
        CHECK_STATE(ONCE_STATE_FAILED, b);
    }
}

static void settle_nothing(once__test_t *t)
{
    once__asked_t ask = {.key = "k"};
    once_response_t response = once__response(200, "out of nothing");
    once__peer_t *a = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_purge(a, NULL, 1));
    EXPECT(ONCE_OUTCOME_REFUSED, once__peer_settle(a, NULL, &response, 1));
    EXPECT(ONCE_OUTCOME_REFUSED, once__peer_settle(a, NULL, NULL, 1));
    EXPECT(ONCE_OUTCOME_REFUSED, once__peer_purge(a, NULL, 1));
    EXPECT(ONCE_E_NOT_FOUND, once__peer_get(a, &ask));
    EXPECT(ONCE_E_INVALID, once__peer_settle(a, "not a token", NULL, 1));
    EXPECT(ONCE_E_INVALID, once__peer_purge(a, "not a token", 1));
}

/* ------------------------------------------------------------------------------------------------------------- purge */

static void purge_ended(once__test_t *t)
{
    once__asked_t completed = {.key = "completed"}, failed = {.key = "failed"};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &completed));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(a, NULL));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_purge(b, a->token, 0));
    EXPECT(ONCE_E_NOT_FOUND, once__peer_get(b, &completed));
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(b, &completed));
    CHECK_EQ(1, once__peer_epoch(b));
    /* The new record has the old epoch number: the claim id distinguishes them. */
    EXPECT(ONCE_OUTCOME_LOST, once__peer_complete(a, NULL));
    EXPECT(ONCE_OUTCOME_REFUSED, once__peer_purge(a, a->token, 1));

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &failed));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_release(a, 0, ""));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_purge(b, a->token, 0));
    EXPECT(ONCE_E_NOT_FOUND, once__peer_get(b, &failed));
}

static void purge_undecided(once__test_t *t)
{
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    for (unsigned i = 0; i < 6; i++) {
        once__asked_t ask = {.key = i == 4 ? "live" : "live doubt"};
        if (i < 4) {
            ask.key = lease_over[i].key;
            make_undecided(t, a, &lease_over[i]);
        } else {
            EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
            if (i == 5) {
                EXPECT(ONCE_OUTCOME_DONE, once__peer_doubt(a));
            }
        }
        EXPECT(ONCE_OUTCOME_REFUSED, once__peer_purge(b, a->token, 0));
        EXPECT(ONCE_OK, once__peer_get(b, &ask));
        EXPECT(ONCE_OUTCOME_DONE, once__peer_purge(b, a->token, 1));
        EXPECT(ONCE_E_NOT_FOUND, once__peer_get(b, &ask));
        EXPECT(ONCE_OUTCOME_LOST, once__peer_complete(a, NULL));
    }
}

static void purge_moved_on(once__test_t *t)
{
    once__asked_t ask = {.key = "k"};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");
    char old[ONCE_TOKEN_SIZE];

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    memcpy(old, a->token, sizeof(old));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_release(a, 0, ""));
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_OUTCOME_REFUSED, once__peer_purge(b, old, 0));
    EXPECT(ONCE_OUTCOME_REFUSED, once__peer_purge(b, old, 1));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(a, NULL));
    EXPECT(ONCE_OUTCOME_REFUSED, once__peer_purge(b, old, 0));
    EXPECT(ONCE_OUTCOME_REFUSED, once__peer_purge(b, old, 1));
    EXPECT(ONCE_OUTCOME_REPLAY, once__peer_begin(b, &ask));
    CHECK_EQ(2, once__peer_epoch(b));
}

const once__case_t once__settle_cases[] = {
    {"settle-completed", "pending or unknown with the lease over: completed, and replays",
     settle_completed},
    {"settle-failed", "the same: failed, and a fence for the claim that was judged", settle_failed},
    {"settle-live-needs-force", "refused while the lease is live, unless forced", settle_live},
    {"settle-moved-on-is-refused", "also with force", settle_moved_on},
    {"settle-again", "the first decision stays", settle_again},
    {"settle-failed-clears-earlier-doubt", "a later release is a clean one",
     settle_clears_earlier_doubt},
    {"settle-nothing", "no record, or no token: refused", settle_nothing},
    {"purge-ended", "completed and failed are removed; the key is new again", purge_ended},
    {"purge-undecided-needs-force", "pending and unknown are removed only with force",
     purge_undecided},
    {"purge-moved-on-is-refused", "also with force", purge_moved_on},
    {0},
};
