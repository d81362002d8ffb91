/*
 * Retention: what is forgotten and when, what is never forgotten, and what removes it.
 */
#include "conformance/suite.h"

#include <string.h>

/* Completed, and forgotten a moment later. */
static void complete_for_a_moment(once__test_t *t, once__peer_t *peer, const once__asked_t *asked)
{
    once_response_t response = once__response(200, "soon forgotten");

    response.retain_ms = 40;
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(peer, asked));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(peer, &response));
}

static uint64_t reap(once__test_t *t, once__peer_t *peer, uint64_t limit)
{
    once_answer_t *answer = NULL;
    uint64_t count;

    EXPECT(ONCE_OK, once_store_reap_sync(peer->once, limit, &answer));
    count = once_answer_count(answer);
    once_answer_free(answer);
    return count;
}

static uint64_t expired_now(once__test_t *t, once__peer_t *peer)
{
    once_answer_t *answer = NULL;
    uint64_t count;

    EXPECT(ONCE_OK, once_store_stats_sync(peer->once, &answer));
    CHECK(once_answer_stats(answer) != NULL);
    count = once_answer_stats(answer)->expired;
    once_answer_free(answer);
    return count;
}

static int near(uint64_t a, uint64_t b)
{
    return a <= b + 2 && b <= a + 2; /* a store may round its times to milliseconds one by one */
}

static void announced(once__test_t *t)
{
    once__asked_t ask = {.key = "completed", .policy = LONG "ttl=1h"};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    once__test_wait(t, 5);
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(a, NULL));
    EXPECT(ONCE_OUTCOME_REPLAY, once__peer_begin(b, &ask));
    /* Counted from completion, not from the claim. */
    CHECK(near(once_record_expires_ms(b->record) + once_record_idle_ms(b->record), 3600000));
    CHECK(once_record_age_ms(b->record) >= once_record_idle_ms(b->record) + 3);

    ask.key = "failed";
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_release(a, 0, ""));
    EXPECT(ONCE_OK, once__peer_get(b, &ask));
    CHECK(near(once_record_expires_ms(b->record) + once_record_idle_ms(b->record), 3600000));
}

static void overridden(once__test_t *t)
{
    once__asked_t ask = {.key = "longer", .policy = LONG "ttl=1h"};
    once_response_t response = once__response(200, "");
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    response.retain_ms = 7200000;
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(a, &response));
    EXPECT(ONCE_OUTCOME_REPLAY, once__peer_begin(b, &ask));
    CHECK(near(once_record_expires_ms(b->record) + once_record_idle_ms(b->record), 7200000));

    ask.key = "shorter";
    response.retain_ms = 1800000;
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(a, &response));
    EXPECT(ONCE_OUTCOME_REPLAY, once__peer_begin(b, &ask));
    CHECK(near(once_record_expires_ms(b->record) + once_record_idle_ms(b->record), 1800000));

    ask.key = "settled";
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_settle(b, a->token, &response, 1));
    EXPECT(ONCE_OUTCOME_REPLAY, once__peer_begin(b, &ask));
    CHECK(near(once_record_expires_ms(b->record) + once_record_idle_ms(b->record), 1800000));
}

static void completed_is_forgotten(once__test_t *t)
{
    once__asked_t ask = {.key = "k"}, other = {.key = "k", .bytes = {"other", 5}};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    complete_for_a_moment(t, a, &ask);
    once__peer_wait_gone(b, &ask);
    EXPECT(ONCE_OUTCOME_REFUSED, once__peer_purge(b, a->token, 1));
    EXPECT(ONCE_OUTCOME_REFUSED, once__peer_settle(b, a->token, NULL, 1));
    EXPECT(ONCE_OUTCOME_LOST, once__peer_complete(a, NULL));
    EXPECT(ONCE_E_NOT_FOUND, once__peer_get(b, &ask));
    /* The key is free for anything. */
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(b, &other));
    CHECK_EQ(1, once__peer_epoch(b));
    EXPECT(ONCE_OK, once__peer_get(a, &ask));
    CHECK_STATE(ONCE_STATE_PENDING, a);
    CHECK_EQ(0, once_record_status(a->record));
    CHECK_EQ(0, once_record_expires_ms(a->record));
    EXPECT(ONCE_OUTCOME_MISMATCH, once__peer_begin(a, &ask));
}

static void failed_is_forgotten(once__test_t *t)
{
    once__asked_t ask = {.key = "k", .policy = LONG "recover=hold ttl=1s"};
    once__asked_t other = {.key = "k", .bytes = {"other", 5}};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_release(a, 0, ""));
    once__peer_wait_gone(b, &ask);
    (void)reap(t, b, 0);
    CHECK(!once__test_exclusive(t) || expired_now(t, b) == 0);
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(b, &other));
    CHECK_EQ(1, once__peer_epoch(b));
    CHECK_EQ(ONCE_RECOVER_RETRY, once_record_recover(once__peer_record(b)));
}

/* The claim is granted and released before any effect; how long the record is kept from then on. */
static uint64_t refused_for(once__test_t *t, once__peer_t *peer, const once__asked_t *asked)
{
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(peer, asked));
    EXPECT(ONCE_OK, once__peer_get(peer, asked));
    CHECK_EQ(0, once_record_status(peer->record));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_release_early(peer));
    EXPECT(ONCE_OK, once__peer_get(peer, asked));
    CHECK_STATE(ONCE_STATE_FAILED, peer);
    CHECK_EQ(401, once_record_status(peer->record));
    return once_record_expires_ms(peer->record) + once_record_idle_ms(peer->record);
}

/* What ended before any effect binds its key for two leases, or for what the policy says within its bounds. */
static void refused_is_brief(once__test_t *t)
{
    once__asked_t ask = {.key = "k", .policy = LONG "ttl=1d"};
    once__asked_t other = {.key = "k", .bytes = {"other", 5}};
    once__asked_t longer = {.key = "longer", .policy = LONG "ttl=1d release_ttl=1h"};
    once__asked_t least = {.key = "least", .policy = LONG "ttl=1d release_ttl=1s"};
    once__asked_t most = {.key = "most", .policy = LONG "ttl=1m"};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    CHECK(near(refused_for(t, a, &ask), 1200000));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_release_early(a)); /* its reply may have been lost */
    EXPECT(ONCE_OUTCOME_LOST, once__peer_complete(a, NULL));
    EXPECT(ONCE_OUTCOME_MISMATCH, once__peer_begin(b, &other));
    /* And again, however often: nothing has happened so far. */
    CHECK(near(refused_for(t, b, &ask), 1200000));
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(b, &ask));
    EXPECT(ONCE_OUTCOME_LOST, once__peer_release_early(a));
    EXPECT(ONCE_OK, once__peer_get(a, &ask));
    CHECK_STATE(ONCE_STATE_PENDING, a);
    EXPECT(ONCE_OUTCOME_DONE, once__peer_release_early(b));
    CHECK(near(refused_for(t, a, &ask), 1200000));
    CHECK(near(refused_for(t, a, &longer), 3600000));
    CHECK(near(refused_for(t, a, &least), 1200000));
    CHECK(near(refused_for(t, a, &most), 60000));
}

/* Not where an earlier claim was released or settled otherwise: that one may have taken effect. */
static void refused_after_failure(once__test_t *t)
{
    once__asked_t ask = {.key = "released", .policy = LONG "ttl=1d"};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_release(a, 500, ""));
    CHECK(near(refused_for(t, b, &ask), 86400000));
    CHECK(near(refused_for(t, a, &ask), 86400000));
    /* A claim that is unknown when it is given back is no other than a pending one. */
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_doubt(a));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_release_early(a));
    EXPECT(ONCE_OK, once__peer_get(b, &ask));
    CHECK(near(once_record_expires_ms(b->record) + once_record_idle_ms(b->record), 86400000));

    ask.key = "settled";
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_settle(b, a->token, NULL, 1));
    CHECK(near(refused_for(t, b, &ask), 86400000));

    ask.key = "doubted";
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_doubt(a));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_release_early(a));
    EXPECT(ONCE_OK, once__peer_get(b, &ask));
    CHECK(near(once_record_expires_ms(b->record) + once_record_idle_ms(b->record), 1200000));
}

/* After a lease that ran out the record stays unknown, whatever the next one says of itself. */
static void refused_after_lapse(once__test_t *t)
{
    once__asked_t ask = {.key = "k", .policy = SHORT "ttl=1d"};
    once__asked_t later = {.key = "k", .policy = LONG "ttl=1d"};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    once__test_wait(t, SHORT_MS);
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(b, &later));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_release_early(b));
    EXPECT(ONCE_OK, once__peer_get(b, &ask));
    CHECK_STATE(ONCE_STATE_UNKNOWN, b);
    CHECK_EQ(0, once_record_expires_ms(b->record));
}

static void refused_is_forgotten(once__test_t *t)
{
    once__asked_t ask = {.key = "k", .policy = SHORT "recover=hold ttl=1d"};
    once__asked_t other = {.key = "k", .bytes = {"other", 5}};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_release_early(a));
    once__peer_wait_gone(b, &ask);
    EXPECT(ONCE_OUTCOME_LOST, once__peer_release_early(a));
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(b, &other));
    CHECK_EQ(1, once__peer_epoch(b));
    CHECK_EQ(ONCE_RECOVER_RETRY, once_record_recover(once__peer_record(b)));
}

/* The new record has the old one's epoch: the claim id must be compared. */
static void stale_after_expiry(once__test_t *t)
{
    once__asked_t ask = {.key = "k"};
    once_response_t response = once__response(200, "new");
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    complete_for_a_moment(t, a, &ask);
    once__peer_wait_gone(b, &ask);
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(b, &ask));
    CHECK_EQ(1, once__peer_epoch(b));
    EXPECT(ONCE_OUTCOME_LOST, once__peer_renew(a));
    EXPECT(ONCE_OUTCOME_LOST, once__peer_doubt(a));
    EXPECT(ONCE_OUTCOME_LOST, once__peer_release(a, 0, ""));
    EXPECT(ONCE_OUTCOME_LOST, once__peer_complete(a, NULL));
    EXPECT(ONCE_OUTCOME_REFUSED, once__peer_settle(a, NULL, NULL, 1));
    EXPECT(ONCE_OUTCOME_REFUSED, once__peer_purge(a, NULL, 1));
    EXPECT(ONCE_OK, once__peer_get(a, &ask));
    CHECK_STATE(ONCE_STATE_PENDING, a);
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(b, &response));
    EXPECT(ONCE_OUTCOME_LOST, once__peer_complete(a, NULL));
    EXPECT(ONCE_OUTCOME_REPLAY, once__peer_begin(a, &ask));
    SAME_RESPONSE(&response, a);
}

static void hold_is_kept(once__test_t *t)
{
    once__asked_t pending = {.key = "pending", .policy = SHORT "recover=hold ttl=1s"};
    once__asked_t unknown = {.key = "unknown", .policy = SHORT "recover=hold ttl=1s"};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &pending));
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &unknown));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_doubt(a));
    once__peer_wait_lease(b, &pending);
    once__peer_wait_lease(b, &unknown);
    once__test_wait(t, 1100);
    (void)reap(t, b, 0);
    EXPECT(ONCE_OK, once__peer_get(b, &pending));
    CHECK_STATE(ONCE_STATE_PENDING, b);
    CHECK_EQ(0, once_record_expires_ms(b->record));
    EXPECT(ONCE_OUTCOME_UNKNOWN, once__peer_begin(b, &pending));
    EXPECT(ONCE_OUTCOME_UNKNOWN, once__peer_begin(b, &unknown));
    /* Settled, it is forgotten like any other. */
    EXPECT(ONCE_OUTCOME_DONE, once__peer_settle(b, a->token, NULL, 0));
    EXPECT(ONCE_OK, once__peer_get(b, &unknown));
    CHECK(once_record_expires_ms(b->record) > 0);
}

/* Asks for removal until the record is gone; a minute is more than any of these tests has to wait. */
static void reap_until_gone(once__test_t *t, once__peer_t *peer, const once__asked_t *asked)
{
    for (int i = 0; i < 600; i++) {
        (void)reap(t, peer, 0);
        if (once__peer_get(peer, asked) == ONCE_E_NOT_FOUND) {
            return;
        }
        once__test_wait(t, 100);
    }
    FAIL("%s is still there", asked->key);
}

static void abandoned_is_reaped(once__test_t *t)
{
    once__asked_t pending = {.key = "pending", .policy = SHORT "ttl=1s"};
    once__asked_t unknown = {.key = "unknown", .policy = SHORT "ttl=1s"};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(b, &pending));
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &unknown));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_doubt(a));
    reap_until_gone(t, a, &pending);
    reap_until_gone(t, a, &unknown);
    EXPECT(ONCE_OUTCOME_LOST, once__peer_complete(a, NULL));
    EXPECT(ONCE_OUTCOME_LOST, once__peer_complete(b, NULL));
}

/* A retention has to pass after the lease: not merely the lease. */
static void reap_keeps(once__test_t *t)
{
    once__asked_t live = {.key = "live"}, doubted = {.key = "doubted"};
    once__asked_t completed = {.key = "completed"}, failed = {.key = "failed"};
    once__asked_t over = {.key = "lease over", .policy = SHORT "ttl=1h"};
    once__asked_t unknown = {.key = "unknown, lease over", .policy = SHORT "ttl=1h"};
    const once__asked_t *const all[] = {&live, &doubted, &completed, &failed, &over, &unknown};
    once__peer_t *a = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &completed));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(a, NULL));
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &failed));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_release(a, 0, ""));
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &doubted));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_doubt(a));
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &unknown));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_doubt(a));
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &over));
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &live));
    once__peer_wait_lease(a, &over);
    once__peer_wait_lease(a, &unknown);
    (void)reap(t, a, 0);
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        EXPECT(ONCE_OK, once__peer_get(a, all[i]));
    }
}

static void reap_removes(once__test_t *t)
{
    static const char *const keys[] = {"1", "2", "3", "4", "5"};
    once__peer_t *a = once__peer_open(t, "");
    uint64_t count = 0, expired = 1;

    (void)reap(t, a, 0);
    for (unsigned i = 0; i < 5; i++) {
        once__asked_t ask = {.key = keys[i]};
        complete_for_a_moment(t, a, &ask);
    }
    for (unsigned i = 0; i < 5; i++) {
        once__asked_t ask = {.key = keys[i]};
        once__peer_wait_gone(a, &ask);
    }
    if (once__test_counts_expired(t)) {
        CHECK_EQ(5, expired_now(t, a));
        CHECK_EQ(2, reap(t, a, 2));
        CHECK_EQ(3, expired_now(t, a));
        CHECK_EQ(3, reap(t, a, 0));
        CHECK_EQ(0, reap(t, a, 0));
        CHECK_EQ(0, expired_now(t, a));
        return;
    }
    /* Others' records expire as well, and others may be reaping: what counts is that an end is reached. */
    for (int i = 0; i < 50 && expired > 0; i++) {
        count += reap(t, a, 0);
        expired = expired_now(t, a);
    }
    CHECK(expired == 0 || count >= 5);
}

/* What hold keeps forever must not prevent the removal of the rest. */
static void reap_beside_hold(once__test_t *t)
{
    once__asked_t kept = {.key = "kept", .policy = SHORT "recover=hold ttl=1s"};
    once__asked_t ask = {.key = "k"};
    once__peer_t *a = once__peer_open(t, "");

    if (!once__test_exclusive(t)) {
        once__test_not_applicable(t, "others use the store: its expired records cannot be counted");
    }
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &kept));
    once__peer_wait_lease(a, &kept);
    once__test_wait(t, 1100);
    complete_for_a_moment(t, a, &ask);
    (void)reap(t, a, 0);
    once__peer_wait_gone(a, &ask);
    (void)reap(t, a, 0);
    CHECK_EQ(0, expired_now(t, a));
    EXPECT(ONCE_OK, once__peer_get(a, &kept));
}

/* Programs clean up after themselves, without being asked. */
static void reap_by_timer(once__test_t *t)
{
    once__peer_t *a, *b;

    if (!once__test_real_time(t)) {
        once__test_not_applicable(t, "time does not pass by itself");
    }
    if (!once__test_exclusive(t)) {
        once__test_not_applicable(t, "others use the store: its expired records cannot be counted");
    }
    a = once__peer_open(t, "");
    for (unsigned i = 0; i < 20; i++) {
        char key[2] = {(char)('a' + i), '\0'};
        once__asked_t ask = {.key = key};
        complete_for_a_moment(t, a, &ask);
    }
    for (unsigned i = 0; i < 20; i++) {
        char key[2] = {(char)('a' + i), '\0'};
        once__asked_t ask = {.key = key};
        once__peer_wait_gone(a, &ask);
    }
    b = once__peer_open(t, "thread=on reap=1s");
    for (int i = 0; i < 600 && expired_now(t, a) > 0; i++) {
        once__test_wait(t, 100);
    }
    CHECK_EQ(0, expired_now(t, b));
}

const once__case_t once__expiry_cases[] = {
    {"expiry-is-announced", "counted from completion or failure", announced},
    {"expiry-is-overridden", "by the response: longer, shorter, settled", overridden},
    {"expiry-frees-the-key", "a completed record is forgotten: new record, epoch 1, any request",
     completed_is_forgotten},
    {"expiry-of-failed", "the same after a release; the old policy is forgotten, too",
     failed_is_forgotten},
    {"release-early-is-brief", "what ended before any effect binds its key for two leases",
     refused_is_brief},
    {"release-early-after-failure", "for the ttl where an earlier claim may have acted",
     refused_after_failure},
    {"release-early-after-lapse", "and stays unknown where its lease ran out", refused_after_lapse},
    {"expiry-of-early", "two leases later the key is free for anything", refused_is_forgotten},
    {"expiry-stale-claim-is-lost", "a claim of the old epoch 1 cannot touch the new epoch 1",
     stale_after_expiry},
    {"expiry-never-under-hold", "pending and unknown stay until they are settled", hold_is_kept},
    {"reap-abandoned", "retry: what was not touched for a retention after its lease",
     abandoned_is_reaped},
    {"reap-keeps", "everything whose time has not come", reap_keeps},
    {"reap-removes-expired", "all, or as many as were asked for", reap_removes},
    {"reap-beside-hold", "what must stay does not keep the rest from going", reap_beside_hold},
    {"reap-by-timer", "a handle removes what expired without being asked", reap_by_timer},
    {0},
};
