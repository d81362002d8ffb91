/*
 * Bugs that other idempotency layers had or have, each as a test of ours: ownership of the record, takeover, what it
 * is known by. The numbers that are missing belong to the gateway, the relay, the consumer and PostgreSQL.
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
enum { TAKEOVERS = 12 };

static void ask_each(once__test_t *t, unsigned number, void *data)
{
    atomic_uint *granted = data;
    once__peer_t *peer = once__peer_open(t, "");

    for (unsigned i = 0; i < TAKEOVERS; i++) {
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
    atomic_uint granted[TAKEOVERS] = {0};
    once__peer_t *a = once__peer_open(t, "");
    once__asked_t last = {.key = "11"};

    for (unsigned i = 0; i < TAKEOVERS; i++) {
        char key[16];
        once__asked_t ask = {.key = key, .policy = SHORT};
        (void)snprintf(key, sizeof(key), "%u", i);
        EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
        once__peer_drop(a);
    }
    once__peer_wait_lease(a, &last);
    once__test_run_threads(t, once__test_threads(t), ask_each, granted);
    for (unsigned i = 0; i < TAKEOVERS; i++) {
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
 * 6. The response expired, the marker "completed" did not: the key was a conflict forever.
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

/*
 * 9. Losing the race for a claim was reported as an unavailable store and tried again.
 * 15. "Is it there? Then put it" in two steps: both callers found nothing.
 *     A new key, many callers at once: one runs, all others are busy. No errors.
 */
enum { RUSHES = 40 };

typedef struct rush {
    atomic_uint granted[RUSHES];
    once__peer_t *handle; /* NULL: every thread has its own */
} rush_t;

static void rush_in(once__test_t *t, unsigned number, void *data)
{
    rush_t *rush = data;
    once__peer_t *peer =
        rush->handle != NULL ? once__peer_share(rush->handle) : once__peer_open(t, "");

    for (unsigned i = 0; i < RUSHES; i++) {
        char key[16];
        once__asked_t ask = {.key = key};
        int outcome;
        (void)snprintf(key, sizeof(key), "%u", i);
        outcome = once__peer_begin(peer, &ask);
        if (outcome == ONCE_OUTCOME_RUN) {
            atomic_fetch_add(&rush->granted[i], 1);
        } else {
            EXPECT(ONCE_OUTCOME_BUSY, outcome);
            CHECK(once_answer_retry_after_ms(peer->answer) >= 1);
        }
    }
}

static void check_rush(once__test_t *t, rush_t *rush)
{
    once__test_run_threads(t, once__test_threads(t), rush_in, rush);
    for (unsigned i = 0; i < RUSHES; i++) {
        CHECK_EQ(1, atomic_load(&rush->granted[i]));
    }
}

static void lost_race(once__test_t *t)
{
    rush_t *rush = once__test_alloc(t, sizeof(*rush));

    check_rush(t, rush);
}

static void check_then_put(once__test_t *t)
{
    rush_t *rush = once__test_alloc(t, sizeof(*rush));

    rush->handle = once__peer_open(t, "thread=on");
    check_rush(t, rush);
}

/*
 * 10. Having asked for the same thing was taken as proof of owning the record.
 */
static void same_fingerprint_owns(once__test_t *t)
{
    once__asked_t ask = {.key = "k"}, brief = {.key = "brief", .policy = SHORT};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_OUTCOME_BUSY, once__peer_begin(b, &ask));
    CHECK(once_answer_take_claim(b->answer) == NULL);
    /* Not even for the same handle: it is the claim that counts. */
    EXPECT(ONCE_OUTCOME_BUSY, once__peer_begin(a, &ask));

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &brief));
    once__peer_wait_lease(b, &brief);
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(b, &brief));
    EXPECT(ONCE_OUTCOME_LOST, once__peer_complete(a, NULL));
    EXPECT(ONCE_OUTCOME_LOST, once__peer_release(a, 0, ""));
}

/*
 * 11. The record was made under the key as it was understood and cleaned up under the header as it was sent.
 */
static void raw_header(once__test_t *t)
{
    once_slice_t raw = once__text("abc"), quoted = once__text("  \"abc\" ");
    once_key_t one, two;
    once__asked_t ask = {.key = one.text}, other = {.key = two.text};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    EXPECT(ONCE_OK, once_key_parse(&raw, 1, 0, &one, NULL));
    EXPECT(ONCE_OK, once_key_parse(&quoted, 1, 0, &two, NULL));
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_OUTCOME_BUSY, once__peer_begin(b, &other));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_release(a, 0, ""));
    EXPECT(ONCE_OK, once__peer_get(b, &other));
    CHECK_STATE(ONCE_STATE_FAILED, b);
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(b, &other));
    CHECK_EQ(2, once__peer_epoch(b));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_purge(b, NULL, 1));
    EXPECT(ONCE_E_NOT_FOUND, once__peer_get(a, &ask));
}

/*
 * 13. The completion was written after the client had its answer: a crash in between blocked the retry for a day.
 *     Done means that every caller can see it.
 */
static void done_is_visible(once__test_t *t)
{
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    for (unsigned i = 0; i < 50; i++) {
        char key[16];
        once__asked_t ask = {.key = key};
        once_response_t response = once__response(201, key);
        (void)snprintf(key, sizeof(key), "%u", i);
        response.body = once__text(key);
        EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
        EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(a, &response));
        EXPECT(ONCE_OUTCOME_REPLAY, once__peer_begin(b, &ask));
        SAME_RESPONSE(&response, b);
    }
}

/*
 * 14. A response over the limit was silently not stored, and the retry ran again; or the whole call failed after its effect.
 *     Large ones are stored; over the limit the caller gets an error, still holds the claim, and records it without the body.
 */
static void large_response(once__test_t *t)
{
    once__asked_t large = {.key = "large"}, over = {.key = "over the limit"};
    char *bytes = once__test_alloc(t, ONCE_BODY_STORE_MAX + 1);
    once_response_t response = ONCE_RESPONSE_INIT;
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    response.body = (once_slice_t){bytes, 5 << 20};
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &large));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(a, &response));
    EXPECT(ONCE_OUTCOME_REPLAY, once__peer_begin(b, &large));
    SAME_RESPONSE(&response, b);

    response.body.len = ONCE_BODY_STORE_MAX + 1;
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &over));
    EXPECT(ONCE_E_TOO_BIG, once_claim_complete_sync(a->claim, &response, NULL));
    EXPECT(ONCE_OUTCOME_BUSY, once__peer_begin(b, &over));
    response.body.len = 0;
    response.body_omitted = 1;
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(a, &response));
    EXPECT(ONCE_OUTCOME_REPLAY, once__peer_begin(b, &over));
    SAME_RESPONSE(&response, b);
}

/*
 * 16. No principal in the key: one tenant was given another's response.
 */
static void cross_tenant(once__test_t *t)
{
    once__asked_t ours = {.scope = "tenant 1", .key = "k"};
    once__asked_t theirs = {.scope = "tenant 2", .key = "k"};
    once_response_t secret = once__response(200, "the account of tenant 1");
    once_response_t public = once__response(200, "the account of tenant 2");
    once__peer_t *a = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ours));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(a, &secret));
    EXPECT(ONCE_E_NOT_FOUND, once__peer_get(a, &theirs));
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &theirs));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(a, &public));
    EXPECT(ONCE_OUTCOME_REPLAY, once__peer_begin(a, &ours));
    SAME_RESPONSE(&secret, a);
    EXPECT(ONCE_OUTCOME_REPLAY, once__peer_begin(a, &theirs));
    SAME_RESPONSE(&public, a);
}

/*
 * 17. The hash was always that of nothing, so a mismatch was never found.
 */
static void empty_hash(once__test_t *t)
{
    static const char *const bodies[] = {"", "a", "b", "aa", "{}", "{\"amount\":10}"};
    enum { COUNT = sizeof(bodies) / sizeof(bodies[0]) };
    once__peer_t *a = once__peer_open(t, "");

    for (unsigned i = 0; i < COUNT; i++) {
        char key[16];
        once__asked_t ask = {.key = key};
        (void)snprintf(key, sizeof(key), "%u", i);
        ask.bytes = once__text(bodies[i]);
        EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
        for (unsigned j = 0; j < COUNT; j++) {
            ask.bytes = once__text(bodies[j]);
            EXPECT(i == j ? ONCE_OUTCOME_BUSY : ONCE_OUTCOME_MISMATCH, once__peer_begin(a, &ask));
        }
    }
}

/*
 * 19. Expired records were removed only as a side effect of looking one up, ten at a time: an idle store never shrank.
 *     One call removes them all, without asking for their keys.
 */
static void garbage(once__test_t *t)
{
    enum { RECORDS = 64 };
    once__peer_t *a = once__peer_open(t, "");
    once_response_t response = once__response(200, "");
    once__asked_t last = {.key = "63"};
    once_answer_t *answer = NULL;
    uint64_t removed;

    EXPECT(ONCE_OK, once_store_reap_sync(a->once, 0, NULL));
    response.retain_ms = 40;
    for (unsigned i = 0; i < RECORDS; i++) {
        char key[16];
        once__asked_t ask = {.key = key};
        (void)snprintf(key, sizeof(key), "%u", i);
        EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
        EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(a, &response));
    }
    if (!once__test_counts_expired(t)) {
        once__test_not_applicable(t, "others may be removing expired records, too");
    }
    once__peer_wait_gone(a, &last);
    EXPECT(ONCE_OK, once_store_reap_sync(a->once, 0, &answer));
    removed = once_answer_count(answer);
    once_answer_free(answer);
    CHECK_EQ(RECORDS, removed);
}

/*
 * 22. Keys were derived from the body behind the caller's back: a customer that really ordered twice got one order.
 *     Nothing is derived unless it is asked for, and then the time is a part of it.
 */
static void derived_keys(once__test_t *t)
{
    once_key_parts_t parts = ONCE_KEY_PARTS_INIT;
    once__peer_t *a = once__peer_open(t, "");
    once_ask_t no_key = ONCE_ASK_INIT;
    once_answer_t *answer = NULL;
    once_key_t now, soon, later;
    once__asked_t first = {.key = now.text}, repeat = {.key = soon.text},
                  second = {.key = later.text};

    no_key.bytes = once__text("book");
    EXPECT(ONCE_E_KEY, once_begin_sync(a->once, &no_key, &answer));
    parts.principal = once__text("customer-7");
    parts.action = once__text("order");
    parts.payload = once__text("book");
    parts.bucket_ms = 3600000;
    parts.when_ms = 3600000;
    EXPECT(ONCE_OK, once_key_deterministic(&parts, &now, NULL));
    parts.when_ms = 7199999;
    EXPECT(ONCE_OK, once_key_deterministic(&parts, &soon, NULL));
    parts.when_ms = 7200000;
    EXPECT(ONCE_OK, once_key_deterministic(&parts, &later, NULL));
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &first));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(a, NULL));
    EXPECT(ONCE_OUTCOME_REPLAY, once__peer_begin(a, &repeat));
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &second));
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
    {"bug-09-lost-race-is-an-error", "the losers are busy, at once", lost_race},
    {"bug-10-same-fingerprint-owns-the-record", "it is the claim that counts",
     same_fingerprint_owns},
    {"bug-11-clean-up-by-raw-header", "quoted and raw are one key, for every call", raw_header},
    {"bug-13-completed-after-the-answer", "done means that every caller can see it",
     done_is_visible},
    {"bug-14-large-response-is-not-stored", "it is stored, or the caller gets an error",
     large_response},
    {"bug-15-check-then-put", "the same race through one handle: one runs", check_then_put},
    {"bug-16-cross-tenant-replay", "the scope is a part of the identity", cross_tenant},
    {"bug-17-hash-of-nothing", "every body differs from every other", empty_hash},
    {"bug-19-garbage-of-an-idle-store", "one call removes all that expired", garbage},
    {"bug-22-derived-keys-swallow-repeats", "only when asked for, and not beyond the bucket",
     derived_keys},
    {0},
};
