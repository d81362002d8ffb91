/*
 * The end of a claim: complete, release, doubt.
 *
 * A submitted end is repeated until the store has it: a failed write never releases the claim, and after a lost reply it is sent
 * again with the same claim. The callback is called after store_timeout at the latest; the job goes on without the caller. The
 * claim is renewed meanwhile, so that no other process takes over an operation whose outcome is known.
 */
#include <stdlib.h>
#include <string.h>

#include "api/bound.h"
#include "api/claim.h"
#include "api/job.h"
#include "api/payload.h"
#include "core/sized.h"

/* A store that has no room for a note may have room for a release without one. */
static void drop_note(once__job_t *job)
{
    static const once__payload_t none = {ONCE__PAYLOAD_NONE, 0, NULL, 0};

    if (job->op.error == ONCE_E_FULL && job->op.event.kind == ONCE__RELEASE) {
        job->op.payload = none;
    }
}

static void finish_reply(once__job_t *job)
{
    if (job->op.error != ONCE_OK && !once__is_hopeless(job->op.error)) {
        drop_note(job);
        (void)once__job_pause(job);
        return;
    }
    /* Wrong arguments were refused before the claim was taken: to the caller this is a failure of the store. */
    if (job->op.error != ONCE_OK && job->op.error != ONCE_E_CORRUPT) {
        job->op.error = ONCE_E_UNSUPPORTED;
    }
    once__bound_made(job->once, 0, job->op.payload.len);
    once__claim_stop(job->claim);
    once__claim_forget_later_life(job->claim, &job->op);
    once__job_reply_plain(job);
}

static void finish_deadline(once__job_t *job)
{
    int error = job->op.error == ONCE_E_FULL || job->op.error == ONCE_E_NEWER ? job->op.error
                                                                              : ONCE_E_UNAVAILABLE;

    once__job_deliver(job, error, ONCE_OUTCOME_NONE);
}

/* On ONCE_OK the job owns `payload_memory` and the caller's reference to the claim. */
static int finish(once_claim_t *claim, once__event_kind_t kind, const once__payload_t *payload,
                  uint8_t *payload_memory, uint64_t ttl_ms, once_cb cb, void *data)
{
    once__job_t *job = once__job_new(claim->once, sizeof(*job), cb, data);

    if (job == NULL) {
        return once__no_job(claim->once);
    }
    job->is_write = 1;
    job->reply = finish_reply;
    job->deadline = finish_deadline;
    job->claim = claim;
    job->payload = payload_memory;
    job->op.kind = ONCE__OP_EVENT;
    job->op.payload = *payload;
    job->op.event.kind = kind;
    job->op.event.claim = claim->ref;
    job->op.event.lease_ms = kind == ONCE__DOUBT ? claim->lease_ms : 0;
    job->op.event.ttl_ms = ttl_ms;
    memcpy(job->op.id, claim->id, ONCE_ID_SIZE);
    once__job_submit(job);
    return ONCE_OK;
}

/* ------------------------------------------------------------------------------------------------------ public face */

int once_claim_complete(once_claim_t *claim, const once_response_t *given, once_cb cb, void *data)
{
    once_t *once = claim->once;
    once_response_t response;
    once__payload_t payload;
    uint8_t *memory = NULL;
    int code = once__enter(once);

    if (code != ONCE_OK) {
        return code;
    }
    code = once__sized_read(&response, sizeof(response), ONCE__RESPONSE_V1, given);
    if (code == ONCE_OK) {
        code = once__pack_response(once, claim->id, &response, &payload, &memory);
    }
    if (code == ONCE_OK) {
        code = finish(claim, ONCE__COMPLETE, &payload, memory, response.retain_ms, cb, data);
    }
    if (code != ONCE_OK) {
        free(memory);
    }
    once__leave(once);
    return code;
}

static int release(once_claim_t *claim, int status, once_slice_t note, uint64_t ttl_ms, once_cb cb,
                   void *data)
{
    once_t *once = claim->once;
    once__payload_t payload;
    uint8_t *memory = NULL;
    int code = once__enter(once);

    if (code != ONCE_OK) {
        return code;
    }
    code = once__pack_note(status, note, &payload, &memory);
    if (code == ONCE_OK) {
        code = finish(claim, ONCE__RELEASE, &payload, memory, ttl_ms, cb, data);
    }
    if (code != ONCE_OK) {
        free(memory);
    }
    once__leave(once);
    return code;
}

int once_claim_release(once_claim_t *claim, int status, once_slice_t note, once_cb cb, void *data)
{
    return release(claim, status, note, 0, cb, data);
}

int once_claim_release_early(once_claim_t *claim, int status, once_slice_t note, once_cb cb,
                             void *data)
{
    return release(claim, status, note, claim->release_ttl_ms, cb, data);
}

int once_claim_doubt(once_claim_t *claim, once_cb cb, void *data)
{
    static const once__payload_t none = {ONCE__PAYLOAD_NONE, 0, NULL, 0};
    once_t *once = claim->once;
    int code = once__enter(once);

    if (code != ONCE_OK) {
        return code;
    }
    code = finish(claim, ONCE__DOUBT, &none, NULL, 0, cb, data);
    once__leave(once);
    return code;
}
