/*
 * Erasing: the texts of a record are gone, and its outcome stays.
 */
#include "conformance/suite.h"

#include <string.h>

#define HOUR_MS ((uint64_t)3600 * 1000)

static const once__asked_t full = {
    .key = "a key", .description = "POST /payments of ada", .subject = "ada"};

static once_response_t made_response(void)
{
    static const once_header_t headers[] = {{{"Location", 8}, {"/payments/of/ada", 16}}};
    once_response_t response = once__response(202, "the account of ada");

    response.headers = headers;
    response.header_count = 1;
    return response;
}

/* Of the record as it is now: nothing is left to read. */
static void check_erased(once__test_t *t, once__peer_t *peer, const once__asked_t *ask, int status)
{
    EXPECT(ONCE_OK, once__peer_get(peer, ask));
    CHECK(once_record_is_erased(peer->record));
    CHECK_EQ(0, once_record_key(peer->record).len);
    CHECK_EQ(0, once_record_description(peer->record).len);
    CHECK_EQ(0, once_record_holder(peer->record).len);
    CHECK_EQ(0, once_record_cause(peer->record).len);
    CHECK_EQ(0, once_record_note(peer->record).len);
    CHECK(once_record_subject(peer->record) == NULL);
    CHECK_EQ(status, once_record_status(peer->record));
    CHECK_EQ(0, once_record_bytes(peer->record));
}

static void erase_completed(once__test_t *t)
{
    once_response_t response = made_response(), erased = ONCE_RESPONSE_INIT;
    once__asked_t other = full;
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");
    once__facts_t before, after;

    erased.status = 202;
    erased.body_omitted = ONCE_BODY_ERASED;
    other.target = "/elsewhere";
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &full));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(a, &response));
    before = once__peer_facts(b, &full);
    EXPECT(ONCE_OUTCOME_DONE, once__peer_erase(b, a->token));
    CHECK_STATE(ONCE_STATE_COMPLETED, b);
    check_erased(t, b, &full, 202);
    after = once__peer_facts(b, &full);
    CHECK(after.expires_ms <= before.expires_ms && after.expires_ms > HOUR_MS);
    CHECK(strcmp(before.token, after.token) == 0);
    for (int i = 0; i < 2; i++) { /* also erased twice */
        EXPECT(ONCE_OUTCOME_REPLAY, once__peer_begin(b, &full));
        SAME_RESPONSE(&erased, b);
        EXPECT(ONCE_OUTCOME_MISMATCH, once__peer_begin(b, &other));
        EXPECT(ONCE_OUTCOME_ALREADY, once__peer_complete(a, &response));
        SAME_RESPONSE(&erased, a);
        EXPECT(ONCE_OUTCOME_DONE, once__peer_erase(b, a->token));
        check_erased(t, a, &full, 202);
    }
    EXPECT(ONCE_OUTCOME_DONE, once__peer_purge(b, a->token, 0));
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(b, &full));
}

/* The next attempt brings its texts along. */
static void erase_failed(once__test_t *t)
{
    once_response_t response = made_response();
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &full));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_release(a, 503, "ada was away"));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_erase(b, a->token));
    CHECK_STATE(ONCE_STATE_FAILED, b);
    check_erased(t, b, &full, 503);
    CHECK_STATE(ONCE_STATE_FAILED, b);
    EXPECT(ONCE_OUTCOME_LOST, once__peer_complete(a, &response)); /* the fence still works */
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(b, &full));
    CHECK_EQ(2, once__peer_epoch(b));
    for (int i = 0; i < 2; i++) {
        EXPECT(ONCE_OK, once__peer_get(a, &full));
        CHECK(!once_record_is_erased(a->record));
        CHECK_EQ(strlen(full.key), once_record_key(a->record).len);
        CHECK(memcmp(once_record_key(a->record).data, full.key, strlen(full.key)) == 0);
        CHECK_EQ(strlen(full.description), once_record_description(a->record).len);
        CHECK(once_record_subject(a->record) != NULL);
        if (i == 0) {
            EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(b, &response));
        }
    }
    EXPECT(ONCE_OUTCOME_REPLAY, once__peer_begin(a, &full));
    SAME_RESPONSE(&response, a);
}

/* Whether a record is kept briefly is seen from its times, and a release that may have acted stays one. */
static void erase_touched(once__test_t *t)
{
    once__asked_t ask = {.key = "k"}, brief = {.key = "brief"};
    once__peer_t *a = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_release(a, 503, "perhaps it acted"));
    once__test_wait(t, 2);
    EXPECT(ONCE_OUTCOME_DONE, once__peer_erase(a, NULL));
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_release_early(a));
    EXPECT(ONCE_OK, once__peer_get(a, &ask));
    CHECK(once_record_expires_ms(a->record) > HOUR_MS);

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &brief));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_release_early(a));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_erase(a, NULL));
    EXPECT(ONCE_OK, once__peer_get(a, &brief));
    CHECK(once_record_expires_ms(a->record) < HOUR_MS);
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &brief));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_release_early(a));
    EXPECT(ONCE_OK, once__peer_get(a, &brief));
    CHECK(once_record_expires_ms(a->record) < HOUR_MS);
}

/* What is not decided is not erased: its key and description are all that an operator has. */
static void erase_undecided(once__test_t *t)
{
    once__asked_t ask = full, brief = {.key = "lease over", .policy = SHORT "recover=hold"};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    STAYS(ONCE_OUTCOME_REFUSED, once__peer_erase(b, a->token), b, &ask);
    EXPECT(ONCE_OUTCOME_DONE, once__peer_doubt(a));
    STAYS(ONCE_OUTCOME_REFUSED, once__peer_erase(b, a->token), b, &ask);
    EXPECT(ONCE_OK, once__peer_get(b, &ask));
    CHECK_EQ(strlen(ask.key), once_record_key(b->record).len);
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &brief));
    once__peer_wait_lease(b, &brief);
    STAYS(ONCE_OUTCOME_REFUSED, once__peer_erase(b, a->token), b, &brief);
    EXPECT(ONCE_OUTCOME_UNKNOWN, once__peer_begin(b, &brief));
    STAYS(ONCE_OUTCOME_REFUSED, once__peer_erase(b, a->token), b, &brief);
}

/* What was looked at must still be what is there. */
static void erase_moved_on(once__test_t *t)
{
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &full));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_release(a, 503, "not now"));
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(b, &full));
    STAYS(ONCE_OUTCOME_REFUSED, once__peer_erase(b, a->token), b, &full);
    EXPECT(ONCE_OUTCOME_DONE, once__peer_release(b, 503, "not now either"));
    STAYS(ONCE_OUTCOME_REFUSED, once__peer_erase(b, a->token), b, &full);
    EXPECT(ONCE_OK, once__peer_get(b, &full));
    CHECK(once_record_note(b->record).len > 0);
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(b, &full));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(b, NULL));
    STAYS(ONCE_OUTCOME_REFUSED, once__peer_erase(b, a->token), b, &full);
    EXPECT(ONCE_OK, once__peer_get(b, &full));
    CHECK(!once_record_is_erased(b->record));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_purge(b, b->token, 0));
    EXPECT(ONCE_OUTCOME_REFUSED, once__peer_erase(b, b->token));
    EXPECT(ONCE_E_NOT_FOUND, once__peer_get(b, &full));
}

static int count_one(once_t *once, const once_record_t *record, void *data)
{
    int *count = data;

    ++*count;
    return 0;
}

/* By subject it is found no more; by scope it is. */
static void erase_listed(once__test_t *t)
{
    once_filter_t by_subject = ONCE_FILTER_INIT, by_scope = ONCE_FILTER_INIT;
    uint8_t subject[ONCE_SUBJECT_SIZE], hash[ONCE_SCOPE_HASH_SIZE];
    once__peer_t *a = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &full));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(a, NULL));
    EXPECT(ONCE_OK, once_subject_hash_of(a->once, once__text("ada"), subject));
    EXPECT(ONCE_OK, once__peer_get(a, &full));
    memcpy(hash, once_record_scope_hash(a->record), sizeof(hash));
    by_subject.subject_hash = subject;
    by_subject.scope_hash = by_scope.scope_hash = hash;
    by_subject.scope_hash_len = by_scope.scope_hash_len = sizeof(hash);
    for (int i = 0; i < 2; i++) {
        int found = 0, all = 0;
        EXPECT(ONCE_OK, once_record_scan_sync(a->once, &by_subject, count_one, &found, NULL));
        EXPECT(ONCE_OK, once_record_scan_sync(a->once, &by_scope, count_one, &all, NULL));
        CHECK_EQ(i == 0, found);
        CHECK_EQ(1, all);
        EXPECT(ONCE_OUTCOME_DONE, once__peer_erase(a, NULL));
    }
}

const once__case_t once__erase_cases[] = {
    {"erase-completed", "the texts are gone, the outcome and its status stay", erase_completed},
    {"erase-failed", "a failed record without texts is claimed again, and has the new ones",
     erase_failed},
    {"erase-touched", "whether a release may have acted is not forgotten", erase_touched},
    {"erase-undecided", "pending and unknown records are not erased", erase_undecided},
    {"erase-moved-on", "only the claim that was looked at is erased", erase_moved_on},
    {"erase-listed", "an erased record is listed by its scope, not by its subject", erase_listed},
    {0},
};
