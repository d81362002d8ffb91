#include "core/rules.h"

#include <assert.h>
#include <string.h>

#include "base/bytes.h"

#define N (1 << ONCE_STATE_NONE)
#define P (1 << ONCE_STATE_PENDING)
#define C (1 << ONCE_STATE_COMPLETED)
#define F (1 << ONCE_STATE_FAILED)
#define U (1 << ONCE_STATE_UNKNOWN)

#define TO_NONE      ONCE_STATE_NONE
#define TO_PENDING   ONCE_STATE_PENDING
#define TO_COMPLETED ONCE_STATE_COMPLETED
#define TO_FAILED    ONCE_STATE_FAILED
#define TO_UNKNOWN   ONCE_STATE_UNKNOWN
#define STAY         ONCE__KEEP_STATE

#define MINE      ONCE__G_MINE
#define SAME      ONCE__G_SAME
#define LIVE      ONCE__G_LIVE
#define HOLD      ONCE__G_HOLD
#define BY_LEASE  ONCE__G_BY_LEASE
#define TAINTED   ONCE__G_TAINTED
#define FORCE     ONCE__G_FORCE
#define NEWER     ONCE__G_NEWER
#define EXPIRED   ONCE__G_EXPIRED
#define ABANDONED ONCE__G_ABANDONED
#define EARLY     ONCE__G_EARLY
#define BRIEF     ONCE__G_BRIEF
#define TOUCHED   ONCE__G_TOUCHED

#define GRANT   (ONCE__E_GRANT | ONCE__E_NOT_BY_LEASE | ONCE__E_DROP_PAYLOAD)
#define TAINT   ONCE__E_TAINT
#define TOUCH   ONCE__E_TOUCH
#define FINISH  (ONCE__E_PAYLOAD | ONCE__E_RETAIN | ONCE__E_CLEAN)
#define BRIEFLY (ONCE__E_PAYLOAD | ONCE__E_BRIEFLY | ONCE__E_CLEAN)
#define ENDED   (ONCE__E_PAYLOAD | ONCE__E_END_LEASE | ONCE__E_NOT_BY_LEASE)
#define DOUBTED (ONCE__E_DOUBT_LEASE | ONCE__E_NOT_BY_LEASE)
#define ERASE   ONCE__E_ERASE

/* clang-format off */
static const once__rule_t rows[] = {
    /* name                          event                   from       need             forbid  to            effects              outcome */
    {"claim: newer version",         ONCE__CLAIM,            P|C|F|U,   NEWER,           0,      STAY,         0,                   ONCE_OUTCOME_BUSY},
    {"claim: other fingerprint",     ONCE__CLAIM,            P|C|F|U,   0,               SAME,   STAY,         0,                   ONCE_OUTCOME_MISMATCH},
    {"claim: new",                   ONCE__CLAIM,            N,         0,               0,      TO_PENDING,   GRANT,               ONCE_OUTCOME_RUN},
    {"claim: released claim again",  ONCE__CLAIM,            F,         MINE,            0,      STAY,         0,                   ONCE_OUTCOME_LOST},
    {"claim: refused before",        ONCE__CLAIM,            F,         BRIEF,           0,      TO_PENDING,   GRANT,               ONCE_OUTCOME_RUN},
    {"claim: failed",                ONCE__CLAIM,            F,         0,               0,      TO_PENDING,   GRANT|TOUCH,         ONCE_OUTCOME_RUN},
    {"claim: same claim again",      ONCE__CLAIM,            P,         MINE,            0,      STAY,         0,                   ONCE_OUTCOME_RUN},
    {"claim: lease live",            ONCE__CLAIM,            P,         LIVE,            0,      STAY,         0,                   ONCE_OUTCOME_BUSY},
    {"claim: lease over, hold",      ONCE__CLAIM,            P,         HOLD,            0,      TO_UNKNOWN,   ONCE__E_BY_LEASE,    ONCE_OUTCOME_UNKNOWN},
    {"claim: lease over",            ONCE__CLAIM,            P,         0,               0,      TO_PENDING,   GRANT|TAINT,         ONCE_OUTCOME_RUN},
    {"claim: mine, unknown by lease",ONCE__CLAIM,            U,         MINE|BY_LEASE,   0,      STAY,         0,                   ONCE__MINE},
    {"claim: doubted claim again",   ONCE__CLAIM,            U,         MINE,            0,      STAY,         0,                   ONCE_OUTCOME_UNKNOWN},
    {"claim: unknown, hold",         ONCE__CLAIM,            U,         HOLD,            0,      STAY,         0,                   ONCE_OUTCOME_UNKNOWN},
    {"claim: unknown, lease live",   ONCE__CLAIM,            U,         LIVE,            0,      STAY,         0,                   ONCE_OUTCOME_BUSY},
    {"claim: unknown, lease over",   ONCE__CLAIM,            U,         0,               0,      TO_PENDING,   GRANT|TAINT,         ONCE_OUTCOME_RUN},
    {"claim: completed",             ONCE__CLAIM,            C,         0,               0,      STAY,         0,                   ONCE_OUTCOME_REPLAY},

    {"complete: newer version",      ONCE__COMPLETE,         P|C|F|U,   NEWER,           0,      STAY,         0,                   ONCE_OUTCOME_BUSY},
    {"complete",                     ONCE__COMPLETE,         P|U,       MINE,            0,      TO_COMPLETED, FINISH,              ONCE_OUTCOME_DONE},
    {"complete: again",              ONCE__COMPLETE,         C,         MINE,            0,      STAY,         0,                   ONCE_OUTCOME_ALREADY},
    {"complete: stale",              ONCE__COMPLETE,         N|P|C|F|U, 0,               0,      STAY,         0,                   ONCE_OUTCOME_LOST},

    {"release: newer version",       ONCE__RELEASE,          P|C|F|U,   NEWER,           0,      STAY,         0,                   ONCE_OUTCOME_BUSY},
    {"release: earlier doubt",       ONCE__RELEASE,          P|U,       MINE|TAINTED,    0,      TO_UNKNOWN,   ENDED,               ONCE_OUTCOME_DONE},
    {"release: before any effect",   ONCE__RELEASE,          P|U,       MINE|EARLY,      TOUCHED, TO_FAILED,   BRIEFLY,             ONCE_OUTCOME_DONE},
    {"release",                      ONCE__RELEASE,          P|U,       MINE,            0,      TO_FAILED,    FINISH,              ONCE_OUTCOME_DONE},
    {"release: again",               ONCE__RELEASE,          F,         MINE,            0,      STAY,         0,                   ONCE_OUTCOME_DONE},
    {"release: completed",           ONCE__RELEASE,          C,         MINE,            0,      STAY,         0,                   ONCE_OUTCOME_ALREADY},
    {"release: stale",               ONCE__RELEASE,          N|P|C|F|U, 0,               0,      STAY,         0,                   ONCE_OUTCOME_LOST},

    {"doubt: newer version",         ONCE__DOUBT,            P|C|F|U,   NEWER,           0,      STAY,         0,                   ONCE_OUTCOME_BUSY},
    {"doubt",                        ONCE__DOUBT,            P,         MINE,            0,      TO_UNKNOWN,   DOUBTED,             ONCE_OUTCOME_DONE},
    {"doubt: unknown by lease",      ONCE__DOUBT,            U,         MINE|BY_LEASE,   0,      STAY,         DOUBTED,             ONCE_OUTCOME_DONE},
    {"doubt: again",                 ONCE__DOUBT,            U,         MINE,            0,      STAY,         0,                   ONCE_OUTCOME_DONE},
    {"doubt: completed",             ONCE__DOUBT,            C,         MINE,            0,      STAY,         0,                   ONCE_OUTCOME_ALREADY},
    {"doubt: stale",                 ONCE__DOUBT,            N|P|C|F|U, 0,               0,      STAY,         0,                   ONCE_OUTCOME_LOST},

    {"renew: newer version",         ONCE__RENEW,            P|C|F|U,   NEWER,           0,      STAY,         0,                   ONCE_OUTCOME_BUSY},
    {"renew",                        ONCE__RENEW,            P|U,       MINE,            0,      STAY,         ONCE__E_EXTEND,      ONCE_OUTCOME_DONE},
    {"renew: completed",             ONCE__RENEW,            C,         MINE,            0,      STAY,         0,                   ONCE_OUTCOME_ALREADY},
    {"renew: stale",                 ONCE__RENEW,            N|P|C|F|U, 0,               0,      STAY,         0,                   ONCE_OUTCOME_LOST},

    {"settle completed: newer",      ONCE__SETTLE_COMPLETED, P|C|F|U,   NEWER,           0,      STAY,         0,                   ONCE_OUTCOME_BUSY},
    {"settle completed",             ONCE__SETTLE_COMPLETED, P|U,       MINE,            LIVE,   TO_COMPLETED, FINISH,              ONCE_OUTCOME_DONE},
    {"settle completed: forced",     ONCE__SETTLE_COMPLETED, P|U,       MINE|FORCE,      0,      TO_COMPLETED, FINISH,              ONCE_OUTCOME_DONE},
    {"settle completed: again",      ONCE__SETTLE_COMPLETED, C,         MINE,            0,      STAY,         0,                   ONCE_OUTCOME_ALREADY},
    {"settle completed: refused",    ONCE__SETTLE_COMPLETED, N|P|C|F|U, 0,               0,      STAY,         0,                   ONCE_OUTCOME_REFUSED},

    {"settle failed: newer",         ONCE__SETTLE_FAILED,    P|C|F|U,   NEWER,           0,      STAY,         0,                   ONCE_OUTCOME_BUSY},
    {"settle failed",                ONCE__SETTLE_FAILED,    P|U,       MINE,            LIVE,   TO_FAILED,    FINISH,              ONCE_OUTCOME_DONE},
    {"settle failed: forced",        ONCE__SETTLE_FAILED,    P|U,       MINE|FORCE,      0,      TO_FAILED,    FINISH,              ONCE_OUTCOME_DONE},
    {"settle failed: again",         ONCE__SETTLE_FAILED,    F,         MINE,            0,      STAY,         0,                   ONCE_OUTCOME_DONE},
    {"settle failed: completed",     ONCE__SETTLE_FAILED,    C,         MINE,            0,      STAY,         0,                   ONCE_OUTCOME_ALREADY},
    {"settle failed: refused",       ONCE__SETTLE_FAILED,    N|P|C|F|U, 0,               0,      STAY,         0,                   ONCE_OUTCOME_REFUSED},

    {"reap: expired",                ONCE__REAP,             C|F,       EXPIRED,         NEWER,  TO_NONE,      0,                   ONCE_OUTCOME_DONE},
    {"reap: abandoned",              ONCE__REAP,             P|U,       ABANDONED,       HOLD|NEWER, TO_NONE,  0,                   ONCE_OUTCOME_DONE},
    {"reap: kept",                   ONCE__REAP,             N|P|C|F|U, 0,               0,      STAY,         0,                   ONCE_OUTCOME_REFUSED},

    {"purge: ended",                 ONCE__PURGE,            C|F,       MINE,            0,      TO_NONE,      0,                   ONCE_OUTCOME_DONE},
    {"purge: forced",                ONCE__PURGE,            P|U,       MINE|FORCE,      0,      TO_NONE,      0,                   ONCE_OUTCOME_DONE},
    {"purge: refused",               ONCE__PURGE,            N|P|C|F|U, 0,               0,      STAY,         0,                   ONCE_OUTCOME_REFUSED},

    {"erase: newer version",         ONCE__ERASE,            P|C|F|U,   NEWER,           0,      STAY,         0,                   ONCE_OUTCOME_BUSY},
    {"erase",                        ONCE__ERASE,            C|F,       MINE,            0,      STAY,         ERASE,               ONCE_OUTCOME_DONE},
    {"erase: refused",               ONCE__ERASE,            N|P|C|F|U, 0,               0,      STAY,         0,                   ONCE_OUTCOME_REFUSED},
};
/* clang-format on */

const once__rules_t once__rules = {rows, sizeof(rows) / sizeof(rows[0])};

static int same_fingerprint(const once__head_t *head, const once__event_t *event)
{
    for (unsigned i = 0; i < event->fingerprint_count; i++) {
        const once__fingerprint_t *asked = &event->fingerprints[i];
        if (asked->secret == head->fingerprint.secret && asked->mode == head->fingerprint.mode &&
            once__equal(asked->mac, head->fingerprint.mac, sizeof(asked->mac))) {
            return 1;
        }
    }
    return 0;
}

int once__fingerprint_known(const once__head_t *head, const once__event_t *event)
{
    for (unsigned i = 0; i < event->fingerprint_count; i++) {
        if (event->fingerprints[i].secret == head->fingerprint.secret) {
            return 1;
        }
    }
    return 0;
}

static int is_mine(const once__head_t *head, const once__event_t *event)
{
    if (!once__equal(head->claim.id, event->claim.id, ONCE_CLAIM_ID_SIZE)) {
        return 0;
    }
    return event->kind == ONCE__CLAIM || head->claim.epoch == event->claim.epoch;
}

static uint8_t stricter(uint8_t a, uint8_t b)
{
    return a > b ? a : b;
}

/* Adds without wrapping: a lease or ttl at the end of time never ends. */
static uint64_t after(uint64_t now, uint64_t ms)
{
    return ms > UINT64_MAX - now ? UINT64_MAX : now + ms;
}

static int is_ended(uint8_t state)
{
    return state == ONCE_STATE_COMPLETED || state == ONCE_STATE_FAILED;
}

/*
 * Was it released before any effect? Its ttl says what it would have been kept for otherwise; so no version of once that does
 * not know of this leaves a record that looks like it.
 */
static int is_brief(const once__head_t *head)
{
    return head->state == ONCE_STATE_FAILED && head->expires != 0 &&
           head->expires < after(head->changed, head->ttl_ms);
}

/* The guards that hold: for tests that walk the table. `head` is not NULL. */
static unsigned guards_of(const once__head_t *head, const once__event_t *event, uint64_t now)
{
    uint8_t recover = head->recover;
    unsigned guards = 0;

    if (event->kind == ONCE__CLAIM) {
        recover = stricter(recover, event->recover);
        guards |= same_fingerprint(head, event) ? ONCE__G_SAME : 0;
    }
    guards |= is_mine(head, event) ? ONCE__G_MINE : 0;
    guards |= now < head->lease_until ? ONCE__G_LIVE : 0;
    guards |= recover == ONCE_RECOVER_HOLD ? ONCE__G_HOLD : 0;
    guards |= head->flags & ONCE__BY_LEASE ? ONCE__G_BY_LEASE : 0;
    guards |= head->flags & ONCE__TAINTED ? ONCE__G_TAINTED : 0;
    guards |= head->flags & ONCE__TOUCHED ? ONCE__G_TOUCHED : 0;
    guards |= is_brief(head) ? ONCE__G_BRIEF : 0;
    guards |= event->kind == ONCE__RELEASE && event->ttl_ms != 0 ? ONCE__G_EARLY : 0;
    guards |= event->force ? ONCE__G_FORCE : 0;
    guards |= head->schema > ONCE__SCHEMA ? ONCE__G_NEWER : 0;
    if (is_ended(head->state)) {
        guards |= head->expires != 0 && now >= head->expires ? ONCE__G_EXPIRED : 0;
    } else {
        guards |= now >= after(head->lease_until, head->ttl_ms) ? ONCE__G_ABANDONED : 0;
    }
    return guards;
}

static const once__rule_t *find_rule(const once__rules_t *rules, const once__event_t *event,
                                     uint8_t state, unsigned guards)
{
    for (size_t i = 0; i < rules->count; i++) {
        const once__rule_t *rule = &rules->rows[i];
        if (rule->event == event->kind && (rule->from & (1u << state)) != 0 &&
            (guards & rule->need) == rule->need && (guards & rule->forbid) == 0) {
            return rule;
        }
    }
    return NULL;
}

static void grant(once__head_t *next, const once__event_t *event, uint64_t now, unsigned effects)
{
    if (next->state == ONCE_STATE_NONE) {
        memset(next, 0, sizeof(*next));
        next->schema = ONCE__SCHEMA;
        next->created = now;
        if (event->fingerprint_count > 0) {
            next->fingerprint = event->fingerprints[0];
        }
    }
    next->flags |= effects & ONCE__E_TAINT ? ONCE__TAINTED : 0;
    next->flags |= effects & ONCE__E_TOUCH ? ONCE__TOUCHED : 0;
    next->recover = stricter(next->recover, event->recover);
    next->claim.epoch++;
    memcpy(next->claim.id, event->claim.id, ONCE_CLAIM_ID_SIZE);
    next->lease_ms = event->lease_ms;
    next->lease_until = after(now, event->lease_ms);
    next->ttl_ms = event->ttl_ms;
    next->expires = 0;
}

/* Two leases, so that every copy of the claim arrives in time to receive `lost`. No longer than the ttl. */
static uint64_t brief_ms(const once__head_t *head, const once__event_t *event)
{
    uint64_t leases = after(head->lease_ms, head->lease_ms);
    uint64_t ms = event->ttl_ms > leases ? event->ttl_ms : leases;

    return ms < head->ttl_ms ? ms : head->ttl_ms;
}

static void apply(once__head_t *next, const once__event_t *event, unsigned effects, uint64_t now)
{
    uint64_t lease_ms = event->lease_ms != 0 ? event->lease_ms : next->lease_ms;
    int own_ttl = event->ttl_ms == 0 || event->kind == ONCE__RELEASE;
    uint64_t ttl_ms = own_ttl ? next->ttl_ms : event->ttl_ms;

    if (effects & ONCE__E_GRANT) {
        grant(next, event, now, effects);
    }
    if (effects & ONCE__E_EXTEND) {
        uint64_t until = after(now, lease_ms);
        next->lease_until = until > next->lease_until ? until : next->lease_until;
    }
    if (effects & ONCE__E_DOUBT_LEASE) {
        next->lease_until = after(now, lease_ms);
    }
    if ((effects & ONCE__E_END_LEASE) && next->lease_until > now) {
        next->lease_until = now;
    }
    if (effects & ONCE__E_BY_LEASE) {
        next->flags |= ONCE__BY_LEASE;
    }
    if (effects & ONCE__E_NOT_BY_LEASE) {
        next->flags &= (uint8_t)~ONCE__BY_LEASE;
    }
    if (effects & ONCE__E_CLEAN) {
        next->flags = 0;
    }
    if (effects & ONCE__E_RETAIN) {
        next->ttl_ms = ttl_ms;
        next->expires = after(now, ttl_ms);
    }
    if (effects & ONCE__E_BRIEFLY) {
        next->expires = after(now, brief_ms(next, event));
    }
    /* What is erased decides as before: whether it was kept briefly is seen from the time of its last change. */
    next->changed = effects & ONCE__E_ERASE ? next->changed : now;
}

/* The row that decides, and from which head: none if what `*from` was has expired. */
static const once__rule_t *decide(const once__rules_t *rules, const once__head_t **from,
                                  const once__event_t *event, uint64_t clock, uint64_t *now)
{
    static const once__head_t none = {.state = ONCE_STATE_NONE};
    const once__rule_t *rule;
    unsigned guards = 0;

    *from = *from != NULL ? *from : &none;
    /* A clock that went back must not shorten or revive anything. */
    *now = clock > (*from)->changed ? clock : (*from)->changed;
    if ((*from)->state != ONCE_STATE_NONE) {
        guards = guards_of(*from, event, *now);
        if ((guards & ONCE__G_EXPIRED) && !(guards & ONCE__G_NEWER) && event->kind != ONCE__REAP) {
            *from = &none;
            guards = 0;
        }
    }
    rule = find_rule(rules, event, (*from)->state, guards);
    assert(rule != NULL);
    return rule;
}

static int changes(const once__rule_t *rule)
{
    return rule->to != ONCE__KEEP_STATE || rule->effects != 0;
}

void once__step(const once__rules_t *rules, const once__head_t *head, const once__event_t *event,
                uint64_t clock, once__step_t *step)
{
    const once__head_t *from = head;

    step->rule = decide(rules, &from, event, clock, &step->now);
    step->outcome = step->rule->outcome;
    step->next = *from;
    step->changed = changes(step->rule);
    if (!step->changed) {
        return;
    }
    apply(&step->next, event, step->rule->effects, step->now);
    if (step->rule->to != ONCE__KEEP_STATE) {
        step->next.state = step->rule->to;
    }
    if (rules == &once__rules) { /* tests break single rows of copies, to see that it is noticed */
        once__record_assert_state(from, &step->next, (step->rule->effects & ONCE__E_GRANT) != 0);
    }
}

int once__answers(const once__rules_t *rules, const once__head_t *head, const once__event_t *event,
                  uint64_t clock, uint8_t outcome)
{
    const once__head_t *from = head;
    uint64_t now;
    const once__rule_t *rule = decide(rules, &from, event, clock, &now);

    return rule->outcome == outcome && !changes(rule);
}

const char *once__event_name(once__event_kind_t kind)
{
    static const char *const names[ONCE__EVENT_COUNT] = {
        "claim",         "complete", "release", "doubt", "renew", "settle completed",
        "settle failed", "reap",     "purge",   "erase",
    };
    return kind < ONCE__EVENT_COUNT ? names[kind] : "?";
}
