/*
 * A model of the world around one record, small enough to visit every state of it.
 *
 * The record is decided by once__step with the very table the stores use. Around it live slots (requests in the hands of
 * two gateways), the jobs they forwarded to a backend, an operator, and time. Whatever is able to happen next is a move;
 * search.h tries them all. What must hold after each move is in checks.c.
 *
 * Time is reduced to what the rules can see: a lease is live, over, or over for longer than the retention; a ttl is over
 * or not. Claim ids are 1, 2, 3... and never repeat. A life is one existence of the record, from its first claim to its
 * removal.
 */
#ifndef TESTS_MODEL_MODEL_H
#define TESTS_MODEL_MODEL_H

#include "core/rules.h"

enum { MODEL_CLAIMS = 5, MODEL_SLOTS = 3 };

/* Where a request is. */
enum {
    MODEL_IDLE,
    MODEL_ASKING,     /* has sent its claim, repeats it with the same id until it is answered */
    MODEL_GRANTED,    /* received run, has sent nothing yet */
    MODEL_FORWARDED,  /* waits for the backend */
    MODEL_COMPLETING, /* these three repeat their write until it is answered */
    MODEL_RELEASING,
    MODEL_DOUBTING,
};

/* Flags of a slot. */
enum {
    MODEL_GAVE_UP = 1, /* its client received 503: what is granted after all is released */
    MODEL_ANEW = 2,    /* received mine: releases, then asks with a new id */
    MODEL_LATE = 4,    /* the lease was over before anything was sent: nothing will be */
};

/* Where the backend is with what was forwarded under a claim. */
enum {
    MODEL_NO_JOB,
    MODEL_OPEN,  /* may still take effect */
    MODEL_ACTED, /* has taken effect, may still answer (plain door) */
};

/* Leases as the rules see them. */
enum { MODEL_OVER, MODEL_LIVE, MODEL_LONG_OVER };

/* Who wrote a response. A payload is claim << 3 | one of these. The last: a release that says "before any effect". */
enum { MODEL_2XX = 1, MODEL_4XX, MODEL_TX, MODEL_OPERATOR, MODEL_NOTE, MODEL_EARLY_NOTE };

/* What an operator has found out. */
enum { MODEL_NOT_LOOKED, MODEL_HAPPENED, MODEL_NEVER, MODEL_FORGET, MODEL_WIPE };

typedef struct model_record {
    uint8_t state, recover, flags;
    uint8_t claim, epoch;
    uint8_t lease, expired;
    uint8_t brief; /* failed, and kept for less than its ttl */
    uint8_t fingerprint, payload;
    uint8_t erased; /* of the payload only the status is left, which the number stands for */
} model_record_t;

typedef struct model_slot {
    uint8_t phase, claim, answer, flags;
} model_slot_t;

/*
 * One state. Only bytes, so that equal states are equal memory. Masks have bit 1 << claim; what only the checks look at is
 * at the end.
 */
typedef struct model_world {
    model_record_t record;
    model_slot_t slots[MODEL_SLOTS];
    uint8_t ids;                    /* claim ids given out */
    uint8_t crashes, looks, losses; /* how many more there may be */
    uint8_t look, look_claim, look_epoch, look_force;
    uint8_t policy[MODEL_CLAIMS + 1];
    uint8_t epoch[MODEL_CLAIMS + 1]; /* as the claim's holder knows it; 0: it does not */
    uint8_t job[MODEL_CLAIMS + 1];
    uint8_t sent[MODEL_CLAIMS + 1];  /* bits 1 << event: copies may arrive; the answer << 5 of a
                                        completion, 4 << 5: the release is early */
    uint8_t other;                   /* mask: asks with the other fingerprint */
    uint8_t life;                    /* of the record; 0: never existed */
    uint8_t lives[MODEL_CLAIMS + 1]; /* in which life the claim was granted; 0: never */
    uint8_t forwarded;               /* mask: something was sent under its present grant */
    uint8_t acted;                   /* mask: took effect */
    uint8_t held;                    /* mask: granted while the record's policy was hold */
    uint8_t doubtful;                /* mask: superseded after doubt or by lease */
    uint8_t loose;                   /* mask: released or settled, not "before any effect" */
    uint8_t excused;                 /* mask of lives: retry allows a second effect */
    uint8_t told;                    /* the answer that clients were given in the present life */
    uint8_t torn; /* removed before its time: the next record continues its life */
} model_world_t;

enum { MODEL_PLAIN, MODEL_SQL };

/* What can go wrong in a scenario. */
enum {
    MODEL_LOSE = 1 << 0,        /* replies to writes; replies to claims are counted in `losses` */
    MODEL_GIVING_UP = 1 << 1,   /* clients get 503 while the claim goes on */
    MODEL_LAPSE = 1 << 2,       /* leases of live holders run out */
    MODEL_RENEW = 1 << 3,       /* holders renew */
    MODEL_TTL = 1 << 4,         /* completed and failed records are forgotten */
    MODEL_ABANDON = 1 << 5,     /* a retention passes over pending and unknown ones */
    MODEL_LATE_CLAIMS = 1 << 6, /* copies of claims arrive late */
    MODEL_LATE_OWN = 1 << 7,    /* the same, but only while the record still names the claim */
    MODEL_LATE_WRITES = 1 << 8, /* copies of complete, release, doubt and renew arrive late */
    MODEL_5XX = 1 << 9,         /* complete 5xx, with or without an effect */
    MODEL_401 = 1 << 10,        /* statuses that release, before any effect */
    MODEL_ASKED = 1 << 11,      /* Once-Outcome: retry */
    MODEL_CONNECT = 1 << 12,    /* no byte could be sent */
    MODEL_REPEAT_TX = 1 << 13,  /* COMMIT reply lost, or request delivered twice: it runs again */
    MODEL_FORCE = 1 << 14,      /* the operator settles under a live lease, too */
    MODEL_PURGE = 1 << 15,      /* the operator removes records */
    MODEL_BLIND =
        1 << 16, /* the operator sees the backend only, and judges when the lease is over */
    MODEL_ANY_LOOK =
        1 << 17, /* the operator says anything (transactional door: failed is a fence) */

    /* Against the contract: */
    MODEL_LATE_FORWARD = 1 << 18, /* a gateway forwards although its lease may be over */
    MODEL_CONFIRM = 1 << 19,      /* a gateway whose lease was over renews it, and then forwards */
    MODEL_DIRTY_401 = 1 << 20,    /* a status that releases follows an effect */
    MODEL_HASTY = 1 << 21,        /* the operator says "never" when it is "not yet" */
    MODEL_EARLY = 1 << 22, /* the operator judges under a live lease, and settles when it is over */
    MODEL_BY_ASKER = 1 << 23,   /* responses are judged by the asker's policy alone */
    MODEL_OLD_COPIES = 1 << 24, /* copies of claims arrive after more than two leases */

    MODEL_BRIEF = 1 << 25, /* failed records that are kept briefly are forgotten */
    MODEL_ERASE = 1 << 26, /* the operator erases records */
};

typedef struct model_scenario {
    const char *name;
    const char *what;
    const char *breaks; /* the invariant that must fall, as the contract is not kept; NULL: none */
    uint8_t door;
    uint8_t slots, ids;
    uint8_t policies;     /* bits 1 << once_recover_t of the askers */
    uint8_t fingerprints; /* 2; else one */
    uint8_t crashes, looks;
    uint8_t losses; /* unheard grants: reply lost, or granted to a late copy */
    unsigned can;
    uint8_t deep_ids;  /* with --deep; 0: one more than `ids` */
    unsigned deep_can; /* with --deep, too */
} model_scenario_t;

extern const model_scenario_t model_scenarios[];
extern const size_t model_scenario_count;

/* What happened between two states; for traces. */
typedef struct model_move {
    uint8_t act, who, claim, kind, outcome, lost, epoch, detail;
} model_move_t;

enum {
    MODEL_ARRIVES,
    MODEL_ASKS,
    MODEL_GIVES_UP,
    MODEL_FORWARDS,
    MODEL_SENDS_NOTHING,
    MODEL_TIMES_OUT,
    MODEL_ANSWERED,
    MODEL_WRITES,
    MODEL_LATE_COPY,
    MODEL_CRASHES,
    MODEL_TAKES_EFFECT,
    MODEL_COMMITS,
    MODEL_DIES,
    MODEL_LEASE_RUNS_OUT,
    MODEL_RETENTION_PASSES,
    MODEL_TTL_OVER,
    MODEL_REAPED,
    MODEL_LOOKS,
    MODEL_SETTLES,
};

/* How a plain or transactional backend answers. */
enum {
    MODEL_SAYS_2XX = 1,
    MODEL_SAYS_4XX,
    MODEL_SAYS_401,
    MODEL_SAYS_5XX,
    MODEL_SAYS_5XX_DOUBT,
    MODEL_SAYS_RETRY
};

typedef struct model {
    const model_scenario_t *scenario;
    const once__rules_t *rules;
    unsigned behaviour; /* MUTANT_* of support/mutants.h */
    int harm_only;      /* check what the world suffers, not single answers */
    uint8_t *fired;     /* one byte for each row: it has decided something; may be NULL */
    const char *broken; /* the invariant that the move under way has broken */
    void (*emit)(void *data, const model_world_t *next, const model_move_t *move,
                 const char *broken);
    void *data;
} model_t;

static inline uint8_t model_bit(unsigned claim)
{
    return (uint8_t)(1u << claim);
}

/* The first state of a scenario. */
void model_begin(const model_scenario_t *scenario, model_world_t *world);

/* Calls `emit` for everything that can happen next. */
void model_moves(model_t *model, const model_world_t *world);

/* The parts of it: gateway.c, backend.c, time.c. */
void model_gateway_moves(model_t *model, const model_world_t *world);
void model_backend_moves(model_t *model, const model_world_t *world);
void model_time_moves(model_t *model, const model_world_t *world);

/* Ends a move: checks the state that it leads to and gives it to `emit`. */
void model_emit(model_t *model, const model_world_t *next, const model_move_t *move);

/* gateway.c: the backend's answer is there, the slot goes on to MODEL_COMPLETING, MODEL_RELEASING or MODEL_DOUBTING. */
void model_end_job(const model_t *model, model_world_t *world, unsigned who, unsigned phase,
                   unsigned answer);

/* record.c: hands an event to the record, checks the step, returns the outcome. */
uint8_t model_deliver(model_t *model, model_world_t *world, once__event_kind_t kind, unsigned claim,
                      unsigned epoch, uint8_t payload);
void model_head(const model_world_t *world, once__head_t *head);
void model_event(const model_world_t *world, once__event_kind_t kind, unsigned claim,
                 unsigned epoch, once__event_t *event);

#define MODEL_NOW ((uint64_t)1 << 20)

/* What a claim made now under a new id would be answered, with the record's own fingerprint and policy. */
uint8_t model_probe(const model_t *model, const model_world_t *world);

/* Would settling the record, as it is, work both ways? */
int model_can_settle(const model_t *model, const model_world_t *world);

/* A retention is longer than any message is under way: copies of claims sent before it never arrive. */
void model_forget_copies(model_world_t *world);

/* The life goes on: the record exists, or was removed when it should not have been. */
int model_lives(const model_world_t *world);

/* The record counts: it exists and its ttl is not over. */
int model_exists(const model_world_t *world);

/* checks.c */
typedef struct model_step {
    const model_world_t *before; /* only the record may differ */
    const model_world_t *after;
    once__event_kind_t kind;
    unsigned claim, epoch;
    int force, early;
    uint8_t payload, outcome;
    int changed;
} model_step_t;

void model_break(model_t *model, const char *invariant); /* the first one counts */
void model_check_step(model_t *model, const model_step_t *step);
void model_check_effect(model_t *model, const model_world_t *world, unsigned claim);
void model_check_told(model_t *model, model_world_t *world, uint8_t payload);
void model_check_world(model_t *model, const model_world_t *world);

/* Claims granted in the same life as this one, or in the record's present life. */
uint8_t model_peers(const model_world_t *world, unsigned life);

#endif
