/*
 * A claim that is over, against a record in every state: whatever it tries is refused, and nothing changes.
 */
#include "conformance/suite.h"

#include <string.h>

/* What the record's present holder has made of it. */
typedef enum made {
    PENDING,
    PENDING_LEASE_OVER,
    DOUBTED,
    DOUBTED_LEASE_OVER,
    UNKNOWN_BY_LEASE,
    COMPLETED,
    FAILED,
    MADE_COUNT
} made_t;

static const char *const names[MADE_COUNT] = {
    "pending",          "pending, lease over", "doubted", "doubted, lease over",
    "unknown by lease", "completed",           "failed"};

static int ends_by_itself(made_t made)
{
    return made == PENDING_LEASE_OVER || made == DOUBTED_LEASE_OVER || made == UNKNOWN_BY_LEASE;
}

static void make(once__test_t *t, once__peer_t *holder, once__peer_t *other, made_t made)
{
    once__asked_t ask = {.key = names[made], .policy = ends_by_itself(made) ? SHORT : LONG};
    once__asked_t hold = {.key = names[made], .policy = LONG "recover=hold"};

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(holder, &ask));
    CHECK_EQ(2, once__peer_epoch(holder));
    if (made == DOUBTED || made == DOUBTED_LEASE_OVER) {
        EXPECT(ONCE_OUTCOME_DONE, once__peer_doubt(holder));
    } else if (made == COMPLETED) {
        EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(holder, NULL));
    } else if (made == FAILED) {
        EXPECT(ONCE_OUTCOME_DONE, once__peer_settle(holder, NULL, NULL, 1));
    }
    if (ends_by_itself(made)) {
        once__peer_wait_lease(other, &ask);
    }
    if (made == UNKNOWN_BY_LEASE) {
        EXPECT(ONCE_OUTCOME_UNKNOWN, once__peer_begin(other, &hold));
    }
}

static int try_stale(once__peer_t *peer, const char *token, unsigned deed)
{
    once_response_t response = once__response(500, "by a stale claim");

    (void)once__peer_as(peer, token);
    switch (deed) {
    case 0:
        return once__peer_renew(peer);
    case 1:
        return once__peer_complete(peer, &response);
    case 2:
        return once__peer_release(peer, 500, "by a stale claim");
    case 3:
        return once__peer_doubt(peer);
    case 4:
    case 5:
        return once__peer_settle(peer, NULL, &response, deed == 5);
    case 6:
    case 7:
        return once__peer_settle(peer, NULL, NULL, deed == 7);
    default:
        return once__peer_purge(peer, NULL, deed == 9);
    }
}

static void try_everything(once__test_t *t, once__peer_t *peer, const char *token, made_t made)
{
    static const char *const deeds[] = {
        "renew",  "complete",        "release",       "doubt",
        "settle", "settle by force", "settle failed", "settle failed by force",
        "purge",  "purge by force"};
    once__asked_t ask = {.key = names[made]};

    for (unsigned deed = 0; deed < 10; deed++) {
        once__facts_t before = once__peer_facts(peer, &ask);
        int want = deed < 4 ? ONCE_OUTCOME_LOST : ONCE_OUTCOME_REFUSED;
        int got = try_stale(peer, token, deed);

        if (got != want) {
            FAIL("%s: a stale %s was answered %d, not %s", names[made], deeds[deed], got,
                 once_outcome_name((once_outcome_t)want));
        }
        once__test_unchanged(t, __FILE__, __LINE__, deeds[deed], &before, peer, &ask);
    }
}

/* The first epoch was released: nothing is in doubt. */
static void after_release(once__test_t *t)
{
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    for (unsigned made = 0; made < MADE_COUNT; made++) {
        once__asked_t ask = {.key = names[made]};
        char stale[ONCE_TOKEN_SIZE];

        EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
        memcpy(stale, a->token, sizeof(stale));
        EXPECT(ONCE_OUTCOME_DONE, once__peer_release(a, 0, ""));
        make(t, b, a, (made_t)made);
        try_everything(t, a, stale, (made_t)made);
    }
}

/* The first epoch lapsed: its holder may be alive, and its effect may have happened. */
static void after_lapse(once__test_t *t)
{
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");
    char stale[MADE_COUNT][ONCE_TOKEN_SIZE];

    for (unsigned made = 0; made < MADE_COUNT; made++) {
        once__asked_t ask = {.key = names[made], .policy = SHORT};
        EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
        memcpy(stale[made], a->token, ONCE_TOKEN_SIZE);
    }
    for (unsigned made = 0; made < MADE_COUNT; made++) {
        once__asked_t ask = {.key = names[made]};
        once__peer_wait_lease(b, &ask);
        make(t, b, a, (made_t)made);
        try_everything(t, a, stale[made], (made_t)made);
    }
}

const once__case_t once__stale_cases[] = {
    {"stale-after-release", "ten actions in seven states: lost or refused, nothing changes",
     after_release},
    {"stale-after-lapse", "the same when the first epoch ended by its lease", after_lapse},
    {0},
};
