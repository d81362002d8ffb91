/*
 * The record table as a whole: a record in every situation, and everything that its holder, another asker or an operator can
 * do to it. What must follow is said here once more, in few words and without looking at the table.
 */
#include "conformance/suite.h"

#include <stdio.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------------ situations */

/* State and how it came about, policy, lease, and what an earlier epoch left. */
typedef enum made {
    MADE_PENDING,
    MADE_DOUBTED, /* unknown because the holder said so */
    MADE_LAPSED,  /* unknown because its lease ran out and an asker wanted hold */
    MADE_REVOKED, /* unknown because it was released after an earlier epoch had lapsed */
    MADE_COMPLETED,
    MADE_FAILED,
    MADE_COUNT
} made_t;

typedef struct situation {
    made_t made;
    once_recover_t policy;
    int live;         /* its lease */
    int tainted;      /* an earlier epoch lapsed */
    unsigned variant; /* what the test is going to do */
    char key[24];
    uint8_t claim_id[ONCE_CLAIM_ID_SIZE];
    char token[ONCE_TOKEN_SIZE];
} situation_t;

/* Completed or failed? */
static int is_decided(const situation_t *situation)
{
    return situation->made == MADE_COMPLETED || situation->made == MADE_FAILED;
}

static once_state_t state_of(const situation_t *situation)
{
    switch (situation->made) {
    case MADE_PENDING:
        return ONCE_STATE_PENDING;
    case MADE_COMPLETED:
        return ONCE_STATE_COMPLETED;
    case MADE_FAILED:
        return ONCE_STATE_FAILED;
    default:
        return ONCE_STATE_UNKNOWN;
    }
}

/* "pending, hold, lease live": for messages. Valid until the next call in this thread. */
static const char *text_of(const situation_t *situation)
{
    static const char *const names[MADE_COUNT] = {"pending", "doubted",   "lapsed",
                                                  "revoked", "completed", "failed"};
    static _Thread_local char text[80];

    (void)snprintf(text, sizeof(text), "%s, %s, lease %s%s", names[situation->made],
                   once_recover_name(situation->policy), situation->live ? "live" : "over",
                   situation->tainted ? ", after a lapse" : "");
    return text;
}

/* An ask for its key; `policy` holds the text of the policy. */
static once__asked_t ask_for(const situation_t *situation, const char *lease,
                             once_recover_t recover, char policy[64])
{
    once__asked_t ask = {.key = situation->key, .policy = policy};

    (void)snprintf(policy, 64, "%srecover=%s", lease, once_recover_name(recover));
    return ask;
}

/* Under hold there is no grant after a lapse, so no such record has an earlier epoch that lapsed. */
static int can_be(const situation_t *s)
{
    if (s->tainted && s->policy == ONCE_RECOVER_HOLD) {
        return 0;
    }
    if (s->made == MADE_REVOKED) {
        return !s->live && s->tainted;
    }
    return s->made != MADE_LAPSED || !s->live;
}

static unsigned list_all(situation_t *all, unsigned variants)
{
    unsigned count = 0;

    for (unsigned n = 0; n < MADE_COUNT * 12 * variants; n++) {
        situation_t *s = &all[count];
        s->made = (made_t)(n % MADE_COUNT);
        s->policy = (once_recover_t)(n / MADE_COUNT % 3);
        s->live = n / MADE_COUNT / 3 % 2;
        s->tainted = n / MADE_COUNT / 6 % 2;
        s->variant = n / MADE_COUNT / 12;
        (void)snprintf(s->key, sizeof(s->key), "%u", n);
        (void)snprintf((char *)s->claim_id, sizeof(s->claim_id), "id %u", n);
        count += can_be(s) ? 1 : 0;
    }
    return count;
}

static void begin_lapsing(once__test_t *t, once__peer_t *peer, const situation_t *s)
{
    char policy[64];
    once__asked_t ask = ask_for(s, SHORT, s->policy, policy);

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(peer, &ask));
}

static void wait_lapsed(once__peer_t *peer, const situation_t *s)
{
    char policy[64];
    once__asked_t ask = ask_for(s, SHORT, s->policy, policy);

    once__peer_wait_lease(peer, &ask);
}

static void lapse_all(once__test_t *t, once__peer_t *peer, const situation_t *all, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        if (all[i].tainted) {
            begin_lapsing(t, peer, &all[i]);
        }
    }
    for (unsigned i = 0; i < count; i++) {
        if (all[i].tainted) {
            wait_lapsed(peer, &all[i]);
        }
    }
}

static uint32_t begin_one(once__test_t *t, once__peer_t *peer, const situation_t *s)
{
    char policy[64];
    once__asked_t ask = ask_for(s, s->live ? LONG : SHORT, s->policy, policy);

    ask.claim_id = s->claim_id;
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(peer, &ask));
    return once__peer_epoch(peer);
}

static void claim_one(once__test_t *t, once__peer_t *peer, situation_t *s)
{
    CHECK_EQ(s->tainted ? 2 : 1, begin_one(t, peer, s));
    memcpy(s->token, peer->token, sizeof(s->token));
    if (s->made == MADE_DOUBTED) {
        EXPECT(ONCE_OUTCOME_DONE, once__peer_doubt(peer));
    } else if (s->made == MADE_COMPLETED) {
        EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(peer, NULL));
    } else if (s->made == MADE_REVOKED || (s->made == MADE_FAILED && !s->tainted)) {
        EXPECT(ONCE_OUTCOME_DONE, once__peer_release(peer, 503, "released"));
    } else if (s->made == MADE_FAILED) {
        EXPECT(ONCE_OUTCOME_DONE, once__peer_settle(peer, NULL, NULL, 1));
    }
}

static void finish_one(once__test_t *t, once__peer_t *peer, const situation_t *s)
{
    char policy[64];
    once__asked_t hold = ask_for(s, LONG, ONCE_RECOVER_HOLD, policy);

    if (!s->live && !is_decided(s)) {
        once__peer_wait_lease(peer, &hold);
    }
    if (s->made == MADE_LAPSED) {
        EXPECT(ONCE_OUTCOME_UNKNOWN, once__peer_begin(peer, &hold));
    }
    EXPECT(ONCE_OK, once__peer_get(peer, &hold));
    if (once__peer_state(peer) != state_of(s)) {
        FAIL("%s: could not be made", text_of(s));
    }
}

/* Makes `variants` records of each situation; gives how many there are. The array belongs to the test. */
static unsigned make_situations(once__test_t *t, once__peer_t *peer, unsigned variants,
                                situation_t **all)
{
    unsigned count;

    *all = once__test_alloc(t, (size_t)MADE_COUNT * 12 * variants * sizeof(**all));
    count = list_all(*all, variants);
    lapse_all(t, peer, *all, count);
    for (unsigned i = 0; i < count; i++) {
        claim_one(t, peer, &(*all)[i]);
    }
    once__test_wait(t, 65); /* the leases of those that are decided cannot be asked for */
    for (unsigned i = 0; i < count; i++) {
        finish_one(t, peer, &(*all)[i]);
    }
    return count;
}

/* ------------------------------------------------------------------------------------------------ what must follow */

typedef struct expected {
    int outcome;
    once_state_t state;
    int changes;
} expected_t;

static expected_t stays(const situation_t *s, int outcome)
{
    return (expected_t){outcome, state_of(s), 0};
}

static expected_t becomes(int outcome, once_state_t state)
{
    return (expected_t){outcome, state, 1};
}

/* What the caller gets, and the state of the record afterwards. */
static void check_expected(once__test_t *t, once__peer_t *watcher, const situation_t *s,
                           const char *deed, int got, const expected_t *want,
                           const once__facts_t *before)
{
    once__asked_t ask = {.key = s->key};
    once__facts_t after = once__peer_facts(watcher, &ask);

    if (got != want->outcome) {
        FAIL("%s: %s was answered %d (%s), not %s", text_of(s), deed, got,
             got > 0 ? once_outcome_name((once_outcome_t)got) : once_error_name(got),
             once_outcome_name((once_outcome_t)want->outcome));
    }
    if (after.state != want->state) {
        FAIL("%s: after %s it is %s, not %s", text_of(s), deed, once_state_name(after.state),
             once_state_name(want->state));
    }
    if (!want->changes) {
        once__test_unchanged(t, __FILE__, __LINE__, deed, before, watcher, &ask);
    }
}

/* ------------------------------------------------------------------------------------------- with the record's claim */

enum {
    RENEW,
    COMPLETE,
    RELEASE,
    DOUBT,
    SETTLE,
    FORCE_SETTLE,
    FAIL_IT,
    FORCE_FAIL,
    PURGE,
    FORCE_PURGE,
    DEEDS
};

static const char *const deed_names[DEEDS] = {
    "renew",  "complete",        "release",       "doubt",
    "settle", "settle by force", "settle failed", "settle failed by force",
    "purge",  "purge by force"};

static int do_deed(once__peer_t *peer, const situation_t *s, unsigned deed)
{
    once_response_t response = once__response(200, "another response");

    (void)once__peer_as(peer, s->token);
    switch (deed) {
    case RENEW:
        return once__peer_renew(peer);
    case COMPLETE:
        return once__peer_complete(peer, &response);
    case RELEASE:
        return once__peer_release(peer, 502, "another note");
    case DOUBT:
        return once__peer_doubt(peer);
    case SETTLE:
    case FORCE_SETTLE:
        return once__peer_settle(peer, NULL, &response, deed == FORCE_SETTLE);
    case FAIL_IT:
    case FORCE_FAIL:
        return once__peer_settle(peer, NULL, NULL, deed == FORCE_FAIL);
    default:
        return once__peer_purge(peer, NULL, deed == FORCE_PURGE);
    }
}

static expected_t after_deed_on_decided(const situation_t *s, unsigned deed)
{
    int failed = s->made == MADE_FAILED;

    switch (deed) {
    case PURGE:
    case FORCE_PURGE:
        return becomes(ONCE_OUTCOME_DONE, ONCE_STATE_NONE);
    case RELEASE:
    case FAIL_IT:
    case FORCE_FAIL:
        return stays(s, failed ? ONCE_OUTCOME_DONE : ONCE_OUTCOME_ALREADY);
    case SETTLE:
    case FORCE_SETTLE:
        return stays(s, failed ? ONCE_OUTCOME_REFUSED : ONCE_OUTCOME_ALREADY);
    default:
        return stays(s, failed ? ONCE_OUTCOME_LOST : ONCE_OUTCOME_ALREADY);
    }
}

static expected_t after_deed(const situation_t *s, unsigned deed)
{
    int doubted = s->made == MADE_DOUBTED || s->made == MADE_REVOKED;

    if (is_decided(s)) {
        return after_deed_on_decided(s, deed);
    }
    switch (deed) {
    case RENEW:
        return becomes(ONCE_OUTCOME_DONE, state_of(s));
    case COMPLETE:
        return becomes(ONCE_OUTCOME_DONE, ONCE_STATE_COMPLETED);
    case RELEASE:
        return becomes(ONCE_OUTCOME_DONE, s->tainted ? ONCE_STATE_UNKNOWN : ONCE_STATE_FAILED);
    case DOUBT:
        return doubted ? stays(s, ONCE_OUTCOME_DONE)
                       : becomes(ONCE_OUTCOME_DONE, ONCE_STATE_UNKNOWN);
    case SETTLE:
        return s->live ? stays(s, ONCE_OUTCOME_REFUSED)
                       : becomes(ONCE_OUTCOME_DONE, ONCE_STATE_COMPLETED);
    case FORCE_SETTLE:
        return becomes(ONCE_OUTCOME_DONE, ONCE_STATE_COMPLETED);
    case FAIL_IT:
        return s->live ? stays(s, ONCE_OUTCOME_REFUSED)
                       : becomes(ONCE_OUTCOME_DONE, ONCE_STATE_FAILED);
    case FORCE_FAIL:
        return becomes(ONCE_OUTCOME_DONE, ONCE_STATE_FAILED);
    case PURGE:
        return stays(s, ONCE_OUTCOME_REFUSED);
    default:
        return becomes(ONCE_OUTCOME_DONE, ONCE_STATE_NONE);
    }
}

/* What an action that changed something leaves besides the state. */
static void check_marks(once__test_t *t, once__peer_t *watcher, const situation_t *s, unsigned deed,
                        const once__facts_t *before)
{
    once__asked_t ask = {.key = s->key};
    once__facts_t after = once__peer_facts(watcher, &ask);
    int is_ended = after.state == ONCE_STATE_COMPLETED || after.state == ONCE_STATE_FAILED;
    int has_lease = deed == RENEW || deed == DOUBT;
    int status = deed == RELEASE                                              ? 502
                 : deed == COMPLETE || deed == SETTLE || deed == FORCE_SETTLE ? 200
                 : has_lease                                                  ? before->status
                                                                              : 0;

    if (strcmp(after.token, before->token) != 0 || after.epoch != before->epoch ||
        after.recover != before->recover) {
        FAIL("%s: %s changed the claim", text_of(s), deed_names[deed]);
    }
    if (after.status != status) {
        FAIL("%s: %s left status %d, not %d", text_of(s), deed_names[deed], after.status, status);
    }
    if ((after.expires_ms > 0) != is_ended || (after.lease_ms > 0) != has_lease) {
        FAIL("%s: %s left a lease of %llu ms and %llu ms to live", text_of(s), deed_names[deed],
             (unsigned long long)after.lease_ms, (unsigned long long)after.expires_ms);
    }
}

static void every_deed(once__test_t *t)
{
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");
    situation_t *all;
    unsigned count = make_situations(t, a, DEEDS, &all);

    for (unsigned i = 0; i < count; i++) {
        const situation_t *s = &all[i];
        once__asked_t ask = {.key = s->key};
        once__facts_t before = once__peer_facts(b, &ask);
        expected_t want = after_deed(s, s->variant);
        int got = do_deed(a, s, s->variant);

        check_expected(t, b, s, deed_names[s->variant], got, &want, &before);
        if (want.changes && want.state != ONCE_STATE_NONE) {
            check_marks(t, b, s, s->variant, &before);
        }
    }
}

/* ------------------------------------------------------------------------------------------------------------- asking */

enum { ASKS = 12 };

static int asks_own_id(const situation_t *s)
{
    return s->variant % 2 == 1;
}

static int asks_other_request(const situation_t *s)
{
    return s->variant / 2 % 2 == 1;
}

static once_recover_t asker_policy(const situation_t *s)
{
    return (once_recover_t)(s->variant / 4);
}

static int is_hold(const situation_t *s)
{
    return s->policy == ONCE_RECOVER_HOLD || asker_policy(s) == ONCE_RECOVER_HOLD;
}

/* The lapsed claim repeated: released, and claimed again unless an earlier epoch is in doubt. */
static expected_t after_own_ask(const situation_t *s)
{
    switch (s->made) {
    case MADE_PENDING:
        return stays(s, ONCE_OUTCOME_RUN);
    case MADE_LAPSED:
        return s->tainted && is_hold(s) ? becomes(ONCE_OUTCOME_UNKNOWN, ONCE_STATE_UNKNOWN)
                                        : becomes(ONCE_OUTCOME_RUN, ONCE_STATE_PENDING);
    case MADE_COMPLETED:
        return stays(s, ONCE_OUTCOME_REPLAY);
    case MADE_FAILED:
        return stays(s, ONCE_OUTCOME_LOST);
    default:
        return stays(s, ONCE_OUTCOME_UNKNOWN);
    }
}

static expected_t after_ask(const situation_t *s)
{
    if (asks_other_request(s)) {
        return stays(s, ONCE_OUTCOME_MISMATCH);
    }
    if (asks_own_id(s)) {
        return after_own_ask(s);
    }
    if (s->made == MADE_COMPLETED) {
        return stays(s, ONCE_OUTCOME_REPLAY);
    }
    if (s->made == MADE_FAILED) {
        return becomes(ONCE_OUTCOME_RUN, ONCE_STATE_PENDING);
    }
    if (s->made != MADE_PENDING && is_hold(s)) {
        return stays(s, ONCE_OUTCOME_UNKNOWN);
    }
    if (s->live) {
        return stays(s, ONCE_OUTCOME_BUSY);
    }
    return is_hold(s) ? becomes(ONCE_OUTCOME_UNKNOWN, ONCE_STATE_UNKNOWN)
                      : becomes(ONCE_OUTCOME_RUN, ONCE_STATE_PENDING);
}

static void check_grant(once__test_t *t, once__peer_t *watcher, const situation_t *s,
                        const once__facts_t *before)
{
    once__asked_t ask = {.key = s->key};
    once__facts_t after = once__peer_facts(watcher, &ask);
    once_recover_t stricter = is_hold(s)                        ? ONCE_RECOVER_HOLD
                              : s->policy == ONCE_RECOVER_RETRY ? asker_policy(s)
                                                                : s->policy;

    if (after.epoch != before->epoch + 1 || after.recover != stricter || after.status != 0 ||
        after.expires_ms != 0 || after.lease_ms == 0) {
        FAIL("%s: was granted as epoch %u, %s, status %d, %llu ms to live, lease %llu ms",
             text_of(s), after.epoch, once_recover_name(after.recover), after.status,
             (unsigned long long)after.expires_ms, (unsigned long long)after.lease_ms);
    }
}

static void every_ask(once__test_t *t)
{
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");
    situation_t *all;
    unsigned count = make_situations(t, a, ASKS, &all);

    for (unsigned i = 0; i < count; i++) {
        const situation_t *s = &all[i];
        char policy[64];
        once__asked_t ask = ask_for(s, LONG, asker_policy(s), policy);
        once__facts_t before = once__peer_facts(b, &ask);
        expected_t want = after_ask(s);
        int got;

        ask.claim_id = asks_own_id(s) ? s->claim_id : NULL;
        ask.bytes = asks_other_request(s) ? once__text("another request") : ask.bytes;
        got = once__peer_begin(a, &ask);
        check_expected(t, b, s, asks_own_id(s) ? "its own claim" : "another's claim", got, &want,
                       &before);
        if (want.outcome == ONCE_OUTCOME_RUN && want.changes) {
            check_grant(t, b, s, &before);
            CHECK(strcmp(a->token, before.token) != 0);
        }
    }
}

/* ---------------------------------------------------------------------------------------------------------- two steps */

/* What the first step leaves: renewing and doubting touch the lease, and must keep all else that the record remembers. */
static situation_t after_first(const situation_t *s, unsigned deed)
{
    situation_t next = *s;

    if (deed == RENEW) {
        next.live = 1;
    } else if (s->made == MADE_PENDING || s->made == MADE_LAPSED) {
        next.made = MADE_DOUBTED;
        next.live = 1;
    }
    next.variant = 1 + 4 * (unsigned)s->policy; /* an ask with its own id and policy */
    return next;
}

static void every_two_steps(once__test_t *t)
{
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");
    situation_t *all;
    unsigned count = make_situations(t, a, 4, &all);

    for (unsigned i = 0; i < count; i++) {
        unsigned first = all[i].variant % 2 == 0 ? RENEW : DOUBT;
        int releases = all[i].variant / 2 == 0;
        situation_t s = after_first(&all[i], first);
        expected_t want = releases ? after_deed(&s, RELEASE) : after_ask(&s);
        char policy[64];
        once__asked_t ask = ask_for(&s, LONG, s.policy, policy);
        once__facts_t before;
        int got;

        if (is_decided(&s)) {
            continue;
        }
        EXPECT(ONCE_OUTCOME_DONE, do_deed(a, &s, first));
        before = once__peer_facts(b, &ask);
        ask.claim_id = s.claim_id;
        got = releases ? do_deed(a, &s, RELEASE) : once__peer_begin(a, &ask);
        check_expected(t, b, &s, releases ? "release" : "its own claim", got, &want, &before);
    }
}

const once__case_t once__matrix_cases[] = {
    {"table-every-deed", "every end, renewal, settlement and removal in every situation",
     every_deed},
    {"table-every-ask",
     "every claim in every situation: its own or another's, each policy, "
     "the same request or not",
     every_ask},
    {"table-two-steps", "renewal and doubt forget nothing: then a release, or the claim repeated",
     every_two_steps},
    {0},
};
