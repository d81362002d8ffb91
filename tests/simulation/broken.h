/*
 * What can be deliberately wrong in a schedule: a broken table of rules, or an actor that does not do what the contract says.
 * The simulation must notice each of them (mutants.c): a simulation that cannot fail proves nothing.
 */
#ifndef SIMULATION_BROKEN_H
#define SIMULATION_BROKEN_H

#include "core/rules.h"

/* Wrong behaviour of an actor. */
enum {
    /* backend: "completed before" counts as success, the transaction commits */
    BROKEN_SQL_IDEMPOTENT = 1 << 0,
    /* backend: the effect commits first, the record is completed afterwards */
    BROKEN_SQL_SEPARATE = 1 << 1,
    BROKEN_OWN_ANSWER = 1 << 2,   /* gateway: answers with its own response after lost or already */
    BROKEN_EARLY_ANSWER = 1 << 3, /* gateway: answers before the completion is recorded */
    BROKEN_ERROR_RELEASES = 1 << 4, /* gateway: releases when a completion could not be written */
    BROKEN_LATE_FORWARD = 1 << 5,   /* gateway: forwards however old the claim is */
    BROKEN_NEW_CLAIM_ID = 1 << 6,   /* library: repeats a claim under a new id after a lost reply */
    BROKEN_TIMEOUT_RELEASES = 1 << 7, /* gateway: takes "no response" for "not executed" */
    BROKEN_NEXT_UPSTREAM = 1 << 8,    /* gateway: sends again when there was no response */
    BROKEN_HANGUP_RELEASES = 1 << 9,  /* gateway: releases when the client hangs up */
    /* gateway: forwards without a claim when the store does not answer */
    BROKEN_FAIL_OPEN = 1 << 10,
    BROKEN_NO_RENEWAL = 1 << 11,     /* library: claims are not renewed */
    BROKEN_NO_BODY = 1 << 12,        /* gateway: leaves the body out of the fingerprint */
    BROKEN_NO_SCOPE = 1 << 13,       /* gateway: leaves the scope out */
    BROKEN_HASTY_OPERATOR = 1 << 14, /* operator: "has not happened yet" counts as "never" */
    /* operator: repeats a settle naming the claim of now, not the one it judged */
    BROKEN_RENAMING_OPERATOR = 1 << 15,
    BROKEN_BOLD_409 = 1 << 16, /* gateway: runs without a claim when it is answered busy */
    /* gateway: judges by its own policy although the record's is stricter */
    BROKEN_OWN_POLICY = 1 << 17,
    BROKEN_DIRTY_401 = 1 << 18,  /* backend: sends a status that releases after the effect */
    BROKEN_EPOCH_ONLY = 1 << 19, /* store: compares the epoch of a claim but not its id */
    /* of the local store */
    BROKEN_EARLY_ACK = 1 << 20,   /* waiting callers are answered before the sync */
    BROKEN_LYING_SYNC = 1 << 21,  /* segments are not synced */
    BROKEN_LYING_NAMES = 1 << 22, /* their directory is not synced */
    BROKEN_UNSYNCED = 1 << 23,    /* what another process has written counts before its sync */
    BROKEN_OLD_LEASES = 1 << 25,  /* leases of another boot are believed */

    BROKEN_ALWAYS_EARLY = 1 << 27, /* gateway: every release says "before any effect" */
};

typedef struct broken {
    const char *name;
    const char *what;
    const once__rules_t *rules;
    unsigned behaviour;
} broken_t;

extern const broken_t broken_nothing;

/* The actors' wrong behaviours, by name. */
extern const broken_t broken_actors[];
extern const size_t broken_actor_count;

/* Wrong behaviours of a local store. */
extern const broken_t broken_stores[];
extern const size_t broken_store_count;

#endif
