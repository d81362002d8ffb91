/*
 * The ledger: what really happened, kept outside of everything that is tested.
 *
 * A key has lives: one existence of its record each, from the first claim to the removal. A life has grants: the claims that
 * were granted in it. A grant knows which process asked for it, whether it was answered, forwarded, doubted, overtaken, and
 * how often it took effect. The store's door (server.h) and the actors write the ledger; the checks and the truthful operator
 * read it.
 */
#ifndef SIMULATION_LEDGER_H
#define SIMULATION_LEDGER_H

#include "process.h"
#include "world.h"

#include "core/secrets.h"

typedef struct grant grant_t;
typedef struct life life_t;
typedef struct sim_key sim_key_t;

/* Why a claim was released. */
enum { REASON_NONE, REASON_NOT_SENT, REASON_BEFORE_EFFECT, REASON_5XX, REASON_ASKED };

struct grant {
    grant_t *next; /* the one before it in its life */
    life_t *life;
    once__claim_ref_t ref;
    process_t *process; /* that asked for it */
    int late;           /* granted to a request whose sender had given up */
    int held;           /* the record's policy was hold */
    int dropped;        /* its gateway forgot it */
    uint64_t fresh_at;  /* true time at which its lease last began */
    unsigned runs, forwards, effects;
    unsigned open; /* jobs at the backend that may still take effect */
    int doubted, lease_over, reason;
    response_t effect; /* what the backend would say if asked */
};

struct life {
    life_t *next; /* the one before it */
    sim_key_t *key;
    uint64_t began, ended; /* true time; UINT64_MAX: it lives */
    int variant;           /* of the body */
    int completed;
    int tainted; /* a grant ended in doubt or by lease, and was not settled */
    int touched; /* a grant was released, not "before any effect", or settled */
    unsigned effects;
    response_t response; /* as recorded */
    grant_t *grants;     /* newest first */
};

/* A record as it was seen last. */
typedef struct mirror {
    int exists;
    once__head_t head;
    uint8_t payload_kind;
    uint16_t payload_status;
    size_t payload_len;
    uint64_t payload_hash;
} mirror_t;

struct sim_key {
    int number;
    const char *scope, *key;
    once_recover_t recover;
    const once_policy_t *policy;
    uint8_t id[ONCE_ID_SIZE];
    mirror_t seen;
    life_t *life;      /* the newest */
    unsigned glimpsed; /* bodies of claims that may not have been durable, a bit each */
    /* what the two bodies look like under each secret */
    once__fingerprint_t fingerprints[2][ONCE__FINGERPRINTS_MAX];
    unsigned fingerprint_count;
};

typedef struct ledger {
    int ready; /* the secrets are known, and with them the record ids */
    sim_key_t keys[PLAN_KEYS_MAX];
} ledger_t;

void ledger_open(world_t *world);

/* The store has these secrets. */
void ledger_secrets(world_t *world, const char *text);

sim_key_t *ledger_find(world_t *world, const uint8_t id[ONCE_ID_SIZE]);

/* The request bodies; a key is used with body 0, sometimes with body 1. */
const char *ledger_body(int variant);

/* Which body a claim asks for: 0, 1, or -1 when it is neither. */
int ledger_variant(const sim_key_t *key, const once__event_t *event);

/* The life that the record has now, or NULL. */
life_t *ledger_life(const sim_key_t *key);

/* The newest grant of the key with this claim, or NULL. */
grant_t *ledger_grant(const sim_key_t *key, const once__claim_ref_t *ref);

void ledger_begin_life(world_t *world, sim_key_t *key, int variant);
void ledger_end_life(world_t *world, sim_key_t *key);
grant_t *ledger_add_grant(world_t *world, sim_key_t *key, const once__claim_ref_t *ref,
                          process_t *process, int late);

/* What an omniscient operator would say about the record: it took effect (with this response), it has not and
 * no longer can, or neither can be said yet. */
typedef enum truth { TRUTH_OPEN, TRUTH_HAPPENED, TRUTH_NEVER } truth_t;
truth_t ledger_truth(const sim_key_t *key, response_t *response);

#endif
