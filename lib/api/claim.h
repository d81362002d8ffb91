/*
 * A claim that this process holds, and its renewal.
 *
 * Renewal is part of the claim: its operation and timer are embedded, so keeping a claim alive needs no memory. References
 * are held by the caller (or the job that finishes the claim), by a renewal in flight and by jobs that renew on demand.
 *
 * What holds between calls (assert_claim_state in claim.c):
 *   I-1  there is at least one reference, and the claim is in the list of its handle
 *   I-2  a claim that ended is not renewed
 *   I-3  the timer is set only to renew: not while a renewal is in flight, and not for a claim that is not renewed
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
    uint64_t release_ttl_ms; /* how long a release before any effect is kept */
    int alive;
    int renewing; /* by the timer */
    int ended;    /* its final write is confirmed: nothing more to renew */
    once__timer_t timer;
    once__op_t op;
    int submitted;
};

/* Creates a claim that is not granted yet. NULL if out of memory. */
once_claim_t *once__claim_new(once_t *once);

/* Grants it. `granted_ms` is when the request for it was sent. */
void once__claim_granted(once_claim_t *claim, const uint8_t *id, const once__head_t *head,
                         uint64_t lease_ms, uint64_t granted_ms);

/* Stops renewing for good. */
void once__claim_stop(once_claim_t *claim);
void once__claim_unref(once_claim_t *claim);

/* Releases a claim that will not be run, or lets its lease run out if there is no memory for that. */
void once__claim_give_back(once_claim_t *claim);

/*
 * Makes payloads of responses and notes. `response` is ours: read with once__sized_read. On ONCE_OK the caller frees `*memory`,
 * which may be NULL.
 */
int once__claim_pack_response(once_t *once, const uint8_t *id, const once_response_t *response,
                              once__payload_t *payload, uint8_t **memory);
int once__claim_pack_note(int status, once_slice_t note, once__payload_t *payload,
                          uint8_t **memory);

#endif
