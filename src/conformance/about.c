/*
 * What a record says about itself: what was asked, which process ran it, for whom, and why it is in its state.
 */
#include "conformance/suite.h"

#include <stdio.h>
#include <string.h>

static int is_text(once_slice_t got, const char *want)
{
    return got.len == strlen(want) && (got.len == 0 || memcmp(got.data, want, got.len) == 0);
}

#define SAYS(want, slice)                                                                          \
    do {                                                                                           \
        once_slice_t got_ = (slice);                                                               \
        if (!is_text(got_, (want))) {                                                              \
            FAIL("%s is \"%.*s\", not \"%s\"", #slice, (int)got_.len, (const char *)got_.data,     \
                 (want));                                                                          \
        }                                                                                          \
    } while (0)

/* Of the record as it is now: its description and its cause. */
#define CHECK_ABOUT(peer, asked, description, cause)                                               \
    do {                                                                                           \
        EXPECT(ONCE_OK, once__peer_get(peer, asked));                                              \
        SAYS(description, once_record_description((peer)->record));                                \
        SAYS(cause, once_record_cause((peer)->record));                                            \
    } while (0)

static int has_colon(once_slice_t text)
{
    return text.len > 0 && memchr(text.data, ':', text.len) != NULL;
}

static void about_comes_back(once__test_t *t)
{
    once__asked_t ask = {.key = "k", .description = "POST /payments", .subject = "ada"};
    once__asked_t bare = {.key = "bare"};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");
    uint8_t ada[ONCE_SUBJECT_SIZE];

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_OK, once_subject_hash_of(a->once, once__text("ada"), ada));
    for (int i = 0; i < 2; i++) {
        CHECK_ABOUT(b, &ask, "POST /payments", "");
        CHECK(has_colon(once_record_holder(b->record)));
        CHECK(once_record_subject(b->record) != NULL);
        CHECK(memcmp(once_record_subject(b->record), ada, sizeof(ada)) == 0);
        if (i == 0) {
            EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(a, NULL));
        }
    }
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &bare));
    CHECK_ABOUT(b, &bare, "", "");
    CHECK(has_colon(once_record_holder(b->record)));
    CHECK(once_record_subject(b->record) == NULL);
}

/* It is that of the last attempt: nothing of an earlier one is left. */
static void about_grant_replaces(once__test_t *t)
{
    once__asked_t first = {.key = "k", .description = "first", .subject = "ada"};
    once__asked_t second = {.key = "k", .description = "second, and longer"};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &first));
    EXPECT(ONCE_OUTCOME_BUSY, once__peer_begin(b, &second));
    CHECK_ABOUT(b, &first, "first", "");
    EXPECT(ONCE_OUTCOME_DONE, once__peer_release(a, 503, "not now"));
    CHECK_ABOUT(b, &first, "first", "not now");
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(b, &second));
    CHECK_ABOUT(a, &first, "second, and longer", "");
    CHECK(once_record_subject(a->record) == NULL);
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(b, NULL));
    EXPECT(ONCE_OUTCOME_REPLAY, once__peer_begin(a, &first));
    CHECK_ABOUT(a, &first, "second, and longer", "");
}

static void about_cause(once__test_t *t)
{
    once__asked_t ask = {.key = "k", .description = "POST /payments"};
    once_response_t response = once__response(200, "settled");
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_doubt(a));
    CHECK_ABOUT(b, &ask, "POST /payments", "timeout");
    EXPECT(ONCE_OUTCOME_DONE, once__peer_renew(a));
    CHECK_ABOUT(b, &ask, "POST /payments", "timeout");
    EXPECT(ONCE_OUTCOME_DONE, once__peer_settle(b, a->token, &response, 1));
    CHECK_ABOUT(a, &ask, "POST /payments", "settled by the test");
    ask.key = "doubted, then completed";
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_doubt(a));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(a, NULL));
    CHECK_ABOUT(b, &ask, "POST /payments", "");
    ask.key = "settled as failed";
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_doubt(a));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_settle(b, a->token, NULL, 1));
    CHECK_ABOUT(a, &ask, "POST /payments", "settled by the test");
}

/* An earlier attempt as the record shows it. Its holder may be left out, never another's. */
static void check_attempt(once__test_t *t, const once_record_t *record, unsigned n, uint64_t epoch,
                          once_state_t state, const char *cause)
{
    once_attempt_t attempt = ONCE_ATTEMPT_INIT;

    EXPECT(ONCE_OK, once_record_attempt(record, n, &attempt));
    CHECK_EQ(epoch, attempt.epoch);
    CHECK_EQ(state, attempt.state);
    SAYS(cause, attempt.cause);
    CHECK(attempt.holder.len == 0 || has_colon(attempt.holder));
    CHECK(attempt.ended >= once_record_time(record, ONCE_TIME_CREATED));
    CHECK(attempt.ended <= once_record_time(record, ONCE_TIME_CHANGED));
}

/* Of each attempt but the last: when and why it ended. They stay when the record ends. */
static void about_attempts(once__test_t *t)
{
    once__asked_t ask = {.key = "k", .description = "d", .policy = SHORT};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");
    once_attempt_t attempt = ONCE_ATTEMPT_INIT;

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_release(a, 503, "not now"));
    EXPECT(ONCE_OK, once__peer_get(b, &ask));
    EXPECT(ONCE_E_NOT_FOUND, once_record_attempt(b->record, 0, &attempt));
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(b, &ask));
    EXPECT(ONCE_OK, once__peer_get(b, &ask));
    SAYS("", once_record_cause(b->record));
    check_attempt(t, b->record, 0, 1, ONCE_STATE_FAILED, "not now");
    EXPECT(ONCE_E_NOT_FOUND, once_record_attempt(b->record, 1, &attempt));
    once__peer_wait_lease(b, &ask);
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_OUTCOME_LOST, once__peer_doubt(b)); /* too late to say anything */
    EXPECT(ONCE_OUTCOME_DONE, once__peer_renew(a));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_release(a, 503, "again"));
    CHECK_ABOUT(b, &ask, "d", "again");
    check_attempt(t, b->record, 0, 2, ONCE_STATE_UNKNOWN, "lease over");
    EXPECT(ONCE_OUTCOME_RUN,
           once__peer_begin(b, &ask)); /* nothing is promised since the lease ran out */
    EXPECT(ONCE_OUTCOME_DONE, once__peer_doubt(b));
    CHECK_ABOUT(a, &ask, "d", "timeout");
    check_attempt(t, a->record, 0, 3, ONCE_STATE_UNKNOWN, "again");
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(b, NULL));
    EXPECT(ONCE_OUTCOME_REPLAY, once__peer_begin(a, &ask));
    CHECK_ABOUT(a, &ask, "d", "");
    check_attempt(t, a->record, 0, 3, ONCE_STATE_UNKNOWN, "again");
    check_attempt(t, a->record, 1, 2, ONCE_STATE_UNKNOWN, "lease over");
    check_attempt(t, a->record, 2, 1, ONCE_STATE_FAILED, "not now");
    EXPECT(ONCE_E_NOT_FOUND, once_record_attempt(a->record, 3, &attempt));
}

/* However often it is tried: the last ones, and not more than a record has room for. */
static void about_many_attempts(once__test_t *t)
{
    char note[101];
    once__asked_t ask = {.key = "k"};
    once__peer_t *a = once__peer_open(t, "");
    once_attempt_t attempt = ONCE_ATTEMPT_INIT;

    memset(note, 'n', sizeof(note) - 1);
    note[sizeof(note) - 1] = '\0';
    for (int i = 0; i < 12; i++) {
        EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
        EXPECT(ONCE_OUTCOME_DONE, once__peer_release(a, 503, i < 6 ? note : "n"));
    }
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_OK, once__peer_get(a, &ask));
    for (unsigned n = 0; n < 4; n++) {
        check_attempt(t, a->record, n, 12 - n, ONCE_STATE_FAILED, "n");
    }
    EXPECT(ONCE_E_NOT_FOUND, once_record_attempt(a->record, 8, &attempt));
}

static void about_lease_over(once__test_t *t)
{
    once__asked_t ask = {.key = "k", .description = "d", .policy = SHORT "recover=hold"};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    once__peer_wait_lease(b, &ask);
    EXPECT(ONCE_OUTCOME_UNKNOWN, once__peer_begin(b, &ask));
    CHECK_ABOUT(b, &ask, "d", "lease over");
    /* The holder was only slow, and knows better. */
    EXPECT(ONCE_OUTCOME_DONE, once__peer_doubt(a));
    CHECK_ABOUT(b, &ask, "d", "timeout");
}

/* Whatever is given, what is stored is text of a bounded length that a terminal can show. */
static void about_is_clean(once__test_t *t)
{
    char text[ONCE_DESCRIPTION_MAX + 3], want[ONCE_DESCRIPTION_MAX + 1];
    once__asked_t ask = {.key = "k", .description = "a\033[2Jb\xc2\x9b\xff\nc \xc3\xa4"};
    once__asked_t large = {.key = "large", .description = text};
    once__peer_t *a = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    CHECK_ABOUT(a, &ask, "a?[2Jb????c \xc3\xa4", "");
    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    memset(want, 'x', sizeof(want));
    want[sizeof(want) - 1] = '\0';
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &large));
    CHECK_ABOUT(a, &large, want, "");
}

static int note_about(once_t *once, const once_record_t *record, void *data)
{
    int *seen = data;

    *seen += is_text(once_record_description(record), "POST /payments") &&
             is_text(once_record_cause(record), "timeout") && has_colon(once_record_holder(record));
    return 0;
}

static int count_one(once_t *once, const once_record_t *record, void *data)
{
    int *count = data;

    ++*count;
    return 0;
}

static void about_by_subject(once__test_t *t)
{
    once__asked_t asks[] = {{.key = "a", .subject = "ada"},
                            {.scope = "other", .key = "b", .subject = "ada"},
                            {.key = "c", .subject = "bob"},
                            {.key = "d"}};
    once__peer_t *a = once__peer_open(t, "");
    once_filter_t filter = ONCE_FILTER_INIT;
    uint8_t hash[ONCE_SUBJECT_SIZE];
    char person[ONCE__SCOPE_SIZE];
    int count = 0;

    /* A person of this test alone: other programs may use the store. */
    once__peer_scope(t, &asks[0], person);
    asks[0].subject = asks[1].subject = person;
    for (size_t i = 0; i < sizeof(asks) / sizeof(asks[0]); i++) {
        EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &asks[i]));
    }
    EXPECT(ONCE_OK, once_subject_hash_of(a->once, once__text(person), hash));
    filter.subject_hash = hash;
    EXPECT(ONCE_OK, once_record_scan_sync(a->once, &filter, count_one, &count, NULL));
    CHECK_EQ(2, count);
    filter.limit = 1;
    count = 0;
    EXPECT(ONCE_OK, once_record_scan_sync(a->once, &filter, count_one, &count, NULL));
    CHECK_EQ(1, count);
}

static void about_in_a_scan(once__test_t *t)
{
    once__asked_t ask = {.key = "k", .description = "POST /payments"};
    once_filter_t filter = ONCE_FILTER_INIT;
    uint8_t hash[ONCE_SCOPE_HASH_SIZE];
    char scope[ONCE__SCOPE_SIZE];
    once__peer_t *a = once__peer_open(t, "");
    int seen = 0;

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_doubt(a));
    once__peer_scope(t, &ask, scope);
    EXPECT(ONCE_OK, once_scope_hash_of(a->once, once__text(scope), hash));
    filter.scope_hash = hash;
    filter.scope_hash_len = sizeof(hash);
    EXPECT(ONCE_OK, once_record_scan_sync(a->once, &filter, note_about, &seen, NULL));
    CHECK_EQ(1, seen);
}

const once__case_t once__about_cases[] = {
    {"about-comes-back", "description, holder and subject are kept with the claim and the response",
     about_comes_back},
    {"about-grant-replaces", "a later attempt describes the record, and leaves no cause",
     about_grant_replaces},
    {"about-cause", "why a record is in its state: kept until the state changes", about_cause},
    {"about-attempts", "what became of earlier attempts is kept, also when the record has ended",
     about_attempts},
    {"about-many-attempts", "of many attempts the last ones are kept", about_many_attempts},
    {"about-lease-over", "a record that is unknown because of its lease says so", about_lease_over},
    {"about-is-clean", "control characters and long texts are not stored", about_is_clean},
    {"about-by-subject", "a scan finds the records of a subject in every scope", about_by_subject},
    {"about-in-a-scan", "a scan shows it, too", about_in_a_scan},
    {0},
};
