/*
 * The rules of the record: the state machine as data, and the one function that applies it.
 *
 * Every store that can call C decides with once__step; SQL and Lua mirror the table and are compared with it. The table is
 * the contract: docs/record.md has it in words, tests go through it row by row, and the model checker searches its whole state
 * space. Run that search after every change.
 */
#ifndef ONCE_CORE_RULES_H
#define ONCE_CORE_RULES_H

#include "core/record.h"

typedef enum once__event_kind {
    ONCE__CLAIM,
    ONCE__COMPLETE,
    ONCE__RELEASE,
    ONCE__DOUBT,
    ONCE__RENEW,
    ONCE__SETTLE_COMPLETED,
    ONCE__SETTLE_FAILED,
    ONCE__REAP,
    ONCE__PURGE,
    ONCE__ERASE,
    ONCE__EVENT_COUNT
} once__event_kind_t;

/* Answers that only the library sees; the public ones are once_outcome_t. */
enum {
    /* claim: unknown by lease, and the claim is yours: release it, then claim again */
    ONCE__MINE = 32,
};

#define ONCE__FINGERPRINTS_MAX 4 /* live secrets that a claim is prepared for */

typedef struct once__event {
    once__event_kind_t kind;
    once__claim_ref_t claim; /* of a claim: the id only, the epoch is given by the record */
    int force;               /* settle, purge */
    uint8_t recover;         /* claim */
    uint8_t fingerprint_count;
    uint64_t lease_ms; /* claim, doubt, renew; 0 with the latter two: the record's */
    uint64_t ttl_ms; /* claim; complete, settle: 0 means the record's. Release: it ended before any
                          effect, to be remembered this long; 0: it may have had one */
    /* claim: the same request under each live secret */
    once__fingerprint_t fingerprints[ONCE__FINGERPRINTS_MAX];
} once__event_t;

/* Guards: facts about (record, event, now) that a row can need or forbid. */
enum {
    ONCE__G_MINE = 1 << 0, /* the claim is the record's: epoch and id (of a claim event: the id) */
    ONCE__G_SAME = 1 << 1, /* the fingerprint is the record's */
    ONCE__G_LIVE = 1 << 2, /* the lease is live */
    ONCE__G_HOLD = 1 << 3, /* the stricter of both policies is hold */
    ONCE__G_BY_LEASE = 1 << 4,  /* flag of the record */
    ONCE__G_TAINTED = 1 << 5,   /* flag of the record */
    ONCE__G_FORCE = 1 << 6,     /* asked for */
    ONCE__G_NEWER = 1 << 7,     /* written by a newer version */
    ONCE__G_EXPIRED = 1 << 8,   /* completed or failed, and the ttl is over */
    ONCE__G_ABANDONED = 1 << 9, /* pending or unknown, untouched for a retention after its lease */
    ONCE__G_EARLY = 1 << 10,    /* release: it ended before any effect */
    ONCE__G_BRIEF = 1 << 11,    /* failed, and kept for less than its ttl: it ended so */
    ONCE__G_TOUCHED = 1 << 12,  /* flag of the record */
    ONCE__G_END = 1 << 13,
};

/* Effects: what a row does to the head besides the state. */
enum {
    ONCE__E_GRANT = 1 << 0,  /* epoch + 1; the event's claim id, lease, ttl; the stricter policy */
    ONCE__E_TAINT = 1 << 1,  /* the epoch that ends here ended in doubt or by lease */
    ONCE__E_EXTEND = 1 << 2, /* lease = now + lease, never shorter than it is */
    ONCE__E_DOUBT_LEASE = 1 << 3,   /* lease = now + lease */
    ONCE__E_END_LEASE = 1 << 4,     /* the lease is over */
    ONCE__E_BY_LEASE = 1 << 5,      /* remember that the lease ran out */
    ONCE__E_NOT_BY_LEASE = 1 << 6,  /* forget it */
    ONCE__E_CLEAN = 1 << 7,         /* forget taint and by-lease */
    ONCE__E_RETAIN = 1 << 8,        /* expires = now + ttl */
    ONCE__E_PAYLOAD = 1 << 9,       /* the event's payload replaces the record's */
    ONCE__E_DROP_PAYLOAD = 1 << 10, /* the record has no payload any more */
    ONCE__E_TOUCH = 1 << 11,        /* the epoch that ended here may have taken effect */
    ONCE__E_BRIEFLY = 1 << 12,      /* expires = now + what the release asks for, within bounds */
    ONCE__E_ERASE =
        1 << 13, /* key text, texts and payload are gone; its status stays, and the head as it is */
    ONCE__E_END = 1 << 14,
};

#define ONCE__KEEP_STATE 0xff

/* The first row whose event and state fit, whose needed guards hold and whose forbidden ones do not, decides. */
typedef struct once__rule {
    const char *name; /* for tests, docs and traces; unique */
    uint8_t event;    /* once__event_kind_t */
    uint8_t from;     /* bits 1 << once_state_t */
    uint16_t need;
    uint16_t forbid;
    uint8_t to; /* once_state_t or ONCE__KEEP_STATE */
    uint16_t effects;
    uint8_t outcome; /* once_outcome_t or ONCE__MINE */
} once__rule_t;

typedef struct once__rules {
    const once__rule_t *rows;
    size_t count;
} once__rules_t;

/* The rules. Tests make copies with one row broken (mutants). */
extern const once__rules_t once__rules;

typedef struct once__step {
    const once__rule_t *rule; /* the row that decided */
    uint8_t outcome;          /* once_outcome_t or ONCE__MINE */
    int changed;       /* `next` must be written; with state NONE: the record must be removed */
    uint64_t now;      /* max(clock, the record's last change) */
    once__head_t next; /* the head after the event */
} once__step_t;

/*
 * Decides one event. `head` is the record's, or NULL when there is none (state NONE counts as none, too). `clock` is the
 * store's clock. Pure: no clock, no memory, no I/O. Every (state, event) has a row, so there is always a decision.
 * A completed or failed record whose ttl is over counts as none for every event but reap.
 */
void once__step(const once__rules_t *rules, const once__head_t *head, const once__event_t *event,
                uint64_t clock, once__step_t *step);

/* Whether once__step would change nothing and give this outcome, for callers that do not need the new head. */
int once__answers(const once__rules_t *rules, const once__head_t *head, const once__event_t *event,
                  uint64_t clock, uint8_t outcome);

/* Whether the event has a fingerprint by the secret that made the record's. If not, load the secrets again. */
int once__fingerprint_known(const once__head_t *head, const once__event_t *event);

const char *once__event_name(once__event_kind_t kind);

#endif
