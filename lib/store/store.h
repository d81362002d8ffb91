/*
 * What a store is: a few functions that take submitted operations and answer them later, from dispatch.
 *
 * Rules of the vtable, kept by every store and relied on by the api layer:
 *  - submit never blocks and never calls `done`; it queues the operation and wakes the loop. Operations that are submitted in
 *    one turn are sent together; in a long turn the first may be sent before it ends.
 *  - `done` is called exactly once for every submit, from the store's dispatch (or from close, with ONCE_E_CLOSED).
 *  - every record event is decided by once__step (or its mirror), in one atomic step; two claims never both get run.
 *  - a claim that names a mark is granted only while the store's secrets have it (secrets.h): else ONCE_E_SECRET. Two handles
 *    whose ids differ for the same key must never both be granted it.
 *  - ONCE_E_NOREPLY: the operation may have been applied. ONCE_E_UNAVAILABLE, ONCE_E_FULL: it was not.
 *  - what an answer points to is the operation owner's: `record`, `records` and `lines` are freed with free().
 */
#ifndef ONCE_STORE_STORE_H
#define ONCE_STORE_STORE_H

#include "base/hash.h"
#include "core/attempts.h"
#include "core/rules.h"
#include "core/secrets.h"
#include "loop/loop.h"
#include "store/limits.h"

typedef struct once__store once__store_t;
typedef struct once__op once__op_t;

typedef enum once__op_kind {
    ONCE__OP_EVENT, /* a record event: claim, complete, release, doubt, renew, settle, purge, erase */
    ONCE__OP_GET,   /* one record */
    ONCE__OP_SCAN,  /* the next records after a cursor */
    ONCE__OP_REAP,  /* remove what expired or was abandoned */
    ONCE__OP_STATS, /* counts; if not `thorough`, only `count` and stats.bytes, cheaply */
    ONCE__OP_SECRETS_LOAD, /* the secrets text; if there is none, `secrets_new` with mark `mark` becomes it */
    ONCE__OP_SECRETS_SWAP, /* `secrets_new` replaces it if it is still `secrets_old`; otherwise ONCE_E_CONFLICT */
    ONCE__OP_AUDIT_READ, /* some lines of the audit trail from `place` on; UINT64_MAX: the last one */
    ONCE__OP_AUDIT_ADD, /* `payload` becomes the line at `place`; ONCE_E_CONFLICT if the trail does not end there */
} once__op_kind_t;

#define ONCE__CURSOR_SIZE 40

typedef struct once__cursor {
    uint8_t bytes[ONCE__CURSOR_SIZE]; /* the store's; all zero: the beginning */
    int end;                          /* nothing is left */
} once__cursor_t;

struct once__op {
    once__op_kind_t kind;
    void (*done)(once__op_t *op);
    once__op_t *next;       /* the store's while the operation is submitted */
    once__hash_node_t node; /* likewise */

    /* Asked. What is pointed to stays valid until done. */
    uint8_t id[ONCE_ID_SIZE];
    once__event_t event;
    uint8_t scope_hash[ONCE_SCOPE_HASH_SIZE]; /* claim */
    const char *key;                          /* claim */
    size_t key_len;
    once__payload_t payload; /* complete, release, settle */
    once_slice_t about;      /* claim: as about.h packs it */
    once_slice_t cause;      /* complete, release, doubt, settle: at most ONCE_CAUSE_MAX bytes */
    const once_filter_t *filter; /* scan; the store ignores its `limit` and `subject_hash` */
    once__cursor_t cursor;       /* scan: where to continue; updated */
    uint64_t limit;              /* scan: records per step; reap: at most this many, 0: all */
    uint64_t
        looks; /* scan: the step ends after this many, and says here how many it were; 0: no bound */
    int thorough; /* reap, stats: asked for explicitly, so it may be expensive */
    int scrub; /* reap: instead, one step of clearing away what erased records have left; `count`: what is left */
    int bare;                /* scan, set by the store: records have heads and keys only */
    const uint8_t *mark;     /* claim, load: of the record secret; NULL: not compared */
    const char *secrets_new; /* terminated */
    const char *secrets_old;
    char *secrets;  /* ONCE__SECRETS_TEXT_SIZE bytes for the answer */
    uint64_t place; /* audit: of a line, by the count of the store, from 0 */

    /* Answered. */
    int error; /* once_code_t; the rest holds only when it is ONCE_OK */
    uint8_t outcome;
    uint64_t now;      /* the store's clock */
    once__head_t head; /* the record after the event; state NONE: there is none */
    /* a copy: for get, and for every event after which the record has a payload */
    once__record_t *record;
    once__record_t **records; /* scan: `count` copies */
    uint64_t count;           /* scan, reap, stats */
    char *lines;  /* audit read: `count` bytes, each line ended by a newline. NULL: none */
    uint64_t end; /* audit: the place behind the lines that were read or added */
    uint64_t
        damaged; /* scan: unreadable records in this step, not among `records`; scrub: of `count` */
    uint64_t
        pause_ms; /* reap, unless `thorough`: when it makes sense again; 0: the store does not say */
    once_stats_t stats; /* reap, if `pause_ms` is not 0: behind_ms and messages_behind_ms */
};

/* A lookup: would this claim be answered with replay? */
typedef struct once__lookup {
    uint8_t id[ONCE_ID_SIZE];
    once__event_t event; /* a claim */
    int found;           /* set by the store: certainly yes */
} once__lookup_t;

/* What a store is opened with. Valid during open, except `loop`. */
typedef struct once__store_config {
    const char *path;    /* after the scheme, decoded */
    uint64_t timeout_ms; /* ONCE_E_NOREPLY if there is no answer by then */
    once__loop_t *loop;
    struct once__url *url; /* the store takes its parameters with once__url_take (url.h) */
    /* How far an opening that takes long has come, for people; now and then, by the calling thread. NULL: not. */
    void (*progress)(void *data, const char *message);
    void *data;
} once__store_config_t;

/* What the places of the audit trail are: where a line begins is known by going back from the end in such units. */
typedef enum once__audit_unit {
    ONCE__AUDIT_BYTES,   /* before it */
    ONCE__AUDIT_LINES,   /* before it */
    ONCE__AUDIT_NUMBERS, /* the number of the entry before it */
} once__audit_unit_t;

typedef struct once__store_vt {
    const char *scheme;
    once__audit_unit_t audit_unit;
    int scrubs; /* what an erased record was is not gone at once: see once_store_scrub */
    /* When a handle reaps for the first time; 0: when its own interval is over. */
    uint64_t reap_first_ms;
    /* Takes and checks the URL's parameters. Does not touch the loop, files or the network. */
    int (*check)(const once__store_config_t *config, once_error_t *err);
    int (*open)(const once__store_config_t *config, once__store_t **store, once_error_t *err);
    void (*submit)(once__store_t *store, once__op_t *op);
    int (*dispatch)(once__store_t *store); /* answers what it can; returns how many */
    /* Never waits: what is not known at once counts as not found. NULL: the store cannot do this. */
    void (*recall)(once__store_t *store, once__lookup_t *lookups, size_t count);
    /* The size and its limits, without waiting. NULL: use ONCE__OP_STATS. */
    void (*usage)(once__store_t *store, once_usage_t *usage);
    void (*close)(once__store_t *store); /* answers what is left with ONCE_E_CLOSED, then frees */
    /* After fork: frees memory, touches nothing that is shared. */
    void (*abandon)(once__store_t *store);
    /* What is wrong, for people; empty: nothing. NULL: the store never reports trouble. */
    const char *(*trouble)(const once__store_t *store);
    /* The program that has the records, and its version; empty: not met yet. NULL: there is none. */
    const char *(*server)(const once__store_t *store);
    /* Every server was tried, and none could be reached so far. NULL: the store is never away. */
    int (*is_away)(const once__store_t *store);
} once__store_vt_t;

struct once__store {
    const once__store_vt_t *vt;
    /* Limits that the api layer enforces by asking for the size now and then. Those that the store enforces are not here. */
    once__limits_t limits;
};

/* The built-in store of a URL scheme. NULL: there is none. */
const once__store_vt_t *once__store_find(const char *scheme, size_t len);
const char *once__store_schemes(void); /* for people */

/* The payload that the record has after `rule` was applied to `op`: the old one, the operation's, or none. */
once__payload_t once__payload_after(const once__rule_t *rule, const once__op_t *op,
                                    const once__payload_t *old);

/* The same for what the record says about itself: a grant replaces it. */
once_slice_t once__about_after(const once__rule_t *rule, const once__op_t *op, once_slice_t old);

/*
 * The same for the cause: any change but a renewal replaces it, and earlier attempts stay behind it. It is old->cause,
 * op->cause, or in `out`.
 */
once_slice_t once__cause_after(uint8_t out[ONCE__WHY_MAX], const once__step_t *step,
                               const once__op_t *op, const once__record_t *old);

/* For the key text: every grant brings it, because it may have been erased. */
once_slice_t once__key_after(const once__rule_t *rule, const once__op_t *op, once_slice_t old);

/* Does the record pass the filter? */
int once__filter_passes(const once_filter_t *filter, const once__record_t *record, uint64_t now);

/* Counts one record into the statistics. */
void once__stats_add(once_stats_t *stats, const once__record_t *record, uint64_t now);

#endif
