/*
 * A claim that this process holds, and its renewal.
 *
 * Renewal is part of the claim: its operation and timer are embedded, so keeping a claim alive needs no memory. References
 * are held by the caller (or the job that finishes the claim), by a renewal in flight and by jobs that renew on demand.
 */
#ifndef ONCE_API_CLAIM_H
#define ONCE_API_CLAIM_H

#include "api/handle.h"

struct once_claim {
    once_t *once;
    once_claim_t *next, **place; /* in once->claims */
    unsigned refs;
    uint8_t id[ONCE_ID_SIZE];
    once__claim_ref_t ref;
    uint64_t created; /* of the record that it is a claim of; 0: not known */
    uint8_t recover;  /* the stricter of the asker's policy and the record's */
    uint64_t lease_ms;
    uint64_t release_ttl_ms; /* how long a release before any effect is remembered */
    int alive;
    int renewing; /* by itself */
    int ended;    /* given to a write that has its answer: nothing more to renew */
    once__timer_t timer;
    once__op_t op;
    int submitted;
};

/* A claim that is not granted yet. NULL when out of memory. */
once_claim_t *once__claim_new(once_t *once);

/* It is granted: `granted_ms` is when the request for it was sent. */
void once__claim_granted(once_claim_t *claim, const uint8_t *id, const once__head_t *head,
                         uint64_t lease_ms, uint64_t granted_ms);

/* Begins to renew by itself (if the handle's options want that). */
void once__claim_start_renewing(once_claim_t *claim, uint64_t granted_ms);

/* Nothing more is to be renewed. */
void once__claim_stop(once_claim_t *claim);

void once__claim_ref(once_claim_t *claim);
void once__claim_unref(once_claim_t *claim);

/*
 * The claim is lost, and the key has a new record by now: the old one was forgotten after its ttl. That is the answer to somebody
 * else's request, not to this caller's: takes it out of what the store answered.
 */
void once__claim_forget_later_life(const once_claim_t *claim, once__op_t *op);

/* Nobody will run it: releases it, or lets it run out if there is no memory for that. */
void once__claim_give_back(once_claim_t *claim);

#endif
