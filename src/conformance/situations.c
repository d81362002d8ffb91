#include "conformance/situations.h"

#include <stdio.h>
#include <string.h>

int once__situation_is_decided(const once__situation_t *situation)
{
    return situation->made == ONCE__COMPLETED || situation->made == ONCE__FAILED;
}

once_state_t once__situation_state(const once__situation_t *situation)
{
    switch (situation->made) {
    case ONCE__PENDING:
        return ONCE_STATE_PENDING;
    case ONCE__COMPLETED:
        return ONCE_STATE_COMPLETED;
    case ONCE__FAILED:
        return ONCE_STATE_FAILED;
    default:
        return ONCE_STATE_UNKNOWN;
    }
}

const char *once__situation_text(const once__situation_t *situation)
{
    static const char *const names[ONCE__MADE_COUNT] = {"pending", "doubted",   "lapsed",
                                                        "revoked", "completed", "failed"};
    static _Thread_local char text[80];

    (void)snprintf(text, sizeof(text), "%s, %s, lease %s%s", names[situation->made],
                   once_recover_name(situation->policy), situation->live ? "live" : "over",
                   situation->tainted ? ", after a lapse" : "");
    return text;
}

once__asked_t once__situation_ask(const once__situation_t *situation, const char *lease,
                                  once_recover_t recover, char policy[64])
{
    once__asked_t ask = {.key = situation->key, .policy = policy};

    (void)snprintf(policy, 64, "%srecover=%s", lease, once_recover_name(recover));
    return ask;
}

/* Under hold there is no grant after a lapse, so no such record has an earlier epoch that lapsed. */
static int can_be(const once__situation_t *s)
{
    if (s->tainted && s->policy == ONCE_RECOVER_HOLD) {
        return 0;
    }
    if (s->made == ONCE__REVOKED) {
        return !s->live && s->tainted;
    }
    return s->made != ONCE__LAPSED || !s->live;
}

static unsigned list_all(once__situation_t *all, unsigned variants)
{
    unsigned count = 0;

    for (unsigned n = 0; n < ONCE__MADE_COUNT * 12 * variants; n++) {
        once__situation_t *s = &all[count];
        s->made = (once__made_t)(n % ONCE__MADE_COUNT);
        s->policy = (once_recover_t)(n / ONCE__MADE_COUNT % 3);
        s->live = n / ONCE__MADE_COUNT / 3 % 2;
        s->tainted = n / ONCE__MADE_COUNT / 6 % 2;
        s->variant = n / ONCE__MADE_COUNT / 12;
        (void)snprintf(s->key, sizeof(s->key), "%u", n);
        (void)snprintf((char *)s->claim_id, sizeof(s->claim_id), "id %u", n);
        count += can_be(s) ? 1 : 0;
    }
    return count;
}

static void begin_lapsing(once__test_t *t, once__peer_t *peer, const once__situation_t *s)
{
    char policy[64];
    once__asked_t ask = once__situation_ask(s, SHORT, s->policy, policy);

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(peer, &ask));
}

static void wait_lapsed(once__peer_t *peer, const once__situation_t *s)
{
    char policy[64];
    once__asked_t ask = once__situation_ask(s, SHORT, s->policy, policy);

    once__peer_wait_lease(peer, &ask);
}

static void lapse_all(once__test_t *t, once__peer_t *peer, const once__situation_t *all,
                      unsigned count)
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

static uint32_t begin_one(once__test_t *t, once__peer_t *peer, const once__situation_t *s)
{
    char policy[64];
    once__asked_t ask = once__situation_ask(s, s->live ? LONG : SHORT, s->policy, policy);

    ask.claim_id = s->claim_id;
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(peer, &ask));
    return once__peer_epoch(peer);
}

static void claim_one(once__test_t *t, once__peer_t *peer, once__situation_t *s)
{
    CHECK_EQ(s->tainted ? 2 : 1, begin_one(t, peer, s));
    memcpy(s->token, peer->token, sizeof(s->token));
    if (s->made == ONCE__DOUBTED) {
        EXPECT(ONCE_OUTCOME_DONE, once__peer_doubt(peer));
    } else if (s->made == ONCE__COMPLETED) {
        EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(peer, NULL));
    } else if (s->made == ONCE__REVOKED || (s->made == ONCE__FAILED && !s->tainted)) {
        EXPECT(ONCE_OUTCOME_DONE, once__peer_release(peer, 503, "released"));
    } else if (s->made == ONCE__FAILED) {
        EXPECT(ONCE_OUTCOME_DONE, once__peer_settle(peer, NULL, NULL, 1));
    }
}

static void finish_one(once__test_t *t, once__peer_t *peer, const once__situation_t *s)
{
    char policy[64];
    once__asked_t hold = once__situation_ask(s, LONG, ONCE_RECOVER_HOLD, policy);

    if (!s->live && !once__situation_is_decided(s)) {
        once__peer_wait_lease(peer, &hold);
    }
    if (s->made == ONCE__LAPSED) {
        EXPECT(ONCE_OUTCOME_UNKNOWN, once__peer_begin(peer, &hold));
    }
    EXPECT(ONCE_OK, once__peer_get(peer, &hold));
    if (once__peer_state(peer) != once__situation_state(s)) {
        FAIL("%s: could not be made", once__situation_text(s));
    }
}

unsigned once__situations_make(once__test_t *t, once__peer_t *peer, unsigned variants,
                               once__situation_t **all)
{
    unsigned count;

    *all = once__test_alloc(t, (size_t)ONCE__MADE_COUNT * 12 * variants * sizeof(**all));
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
