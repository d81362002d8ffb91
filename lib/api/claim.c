#include "api/claim.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "api/bound.h"
#include "api/job.h"
#include "base/bytes.h"
#include "core/response.h"
#include "core/sized.h"
#include "core/token.h"

#define CLAIM_OF(member, pointer)                                                                  \
    ((once_claim_t *)(void *)((char *)(pointer)-offsetof(once_claim_t, member)))

static void assert_claim_state(const once_claim_t *claim)
{
    assert(claim->refs > 0 && *claim->place == claim);                        /* I-1 */
    assert(!claim->ended || !claim->renewing);                                /* I-2 */
    assert(claim->timer.slot == 0 || (claim->renewing && !claim->submitted)); /* I-3 */
}

/* ---------------------------------------------------------------------------------------------------------- renewal */

static void claim_ref(once_claim_t *claim)
{
    claim->refs++;
}

static void renew_now(once__timer_t *timer)
{
    once_claim_t *claim = CLAIM_OF(timer, timer);

    assert_claim_state(claim);
    assert(!claim->submitted);
    memset(&claim->op.event, 0, sizeof(claim->op.event));
    claim->op.kind = ONCE__OP_EVENT;
    claim->op.event.kind = ONCE__RENEW;
    claim->op.event.claim = claim->ref;
    claim->op.event.lease_ms = claim->lease_ms;
    memcpy(claim->op.id, claim->id, ONCE_ID_SIZE);
    claim->submitted = 1;
    claim_ref(claim);
    claim->once->store->vt->submit(claim->once->store, &claim->op);
}

/* A claim that was completed by its token was not lost: its outcome is ALREADY. */
static void log_lost(const once_claim_t *claim)
{
    char id[2 * ONCE_ID_SIZE + 1];

    if (claim->op.outcome == ONCE_OUTCOME_LOST && !claim->ended) {
        once__hex(id, claim->id, ONCE_ID_SIZE);
        once__log(claim->once, ONCE_LOG_NOTICE,
                  "the claim of record %s is lost: it was settled, released, or taken over", id);
    }
}

static void renew_done(once__op_t *op)
{
    once_claim_t *claim = CLAIM_OF(op, op);
    once_t *once = claim->once;
    uint64_t pause = claim->lease_ms / 3;

    claim->submitted = 0;
    once->store_is_silent = once__is_transient(op->error);
    free(op->record);
    op->record = NULL;
    if (op->error == ONCE_OK &&
        (op->outcome == ONCE_OUTCOME_LOST || op->outcome == ONCE_OUTCOME_ALREADY)) {
        claim->alive = 0;
        claim->renewing = 0;
        log_lost(claim);
    }
    if (op->error != ONCE_OK) {
        pause = claim->lease_ms / 10;
    }
    if (claim->renewing && !claim->ended && !once->ended) {
        once__timer_set(once->loop, &claim->timer,
                        once__loop_now(once->loop) + (pause > 0 ? pause : 1));
    }
    assert_claim_state(claim);
    once__claim_unref(claim);
}

/* Starts renewing by timer, unless the option `renew` is off. */
static void start_renewing(once_claim_t *claim, uint64_t granted_ms)
{
    once_t *once = claim->once;

    if (claim->renewing || claim->ended || !once->options.renew) {
        return;
    }
    claim->renewing = 1;
    if (!claim->submitted) {
        once__timer_set(once->loop, &claim->timer, granted_ms + claim->lease_ms / 3);
    }
    assert_claim_state(claim);
}

void once__claim_stop(once_claim_t *claim)
{
    claim->ended = 1;
    claim->renewing = 0;
    once__timer_stop(claim->once->loop, &claim->timer);
    assert_claim_state(claim);
}

/* --------------------------------------------------------------------------------------------------------- lifetime */

once_claim_t *once__claim_new(once_t *once)
{
    once_claim_t *claim;

    if (once__timers_reserve(once->loop) != 0) {
        return NULL;
    }
    claim = once__handle_alloc(once, sizeof(*claim));
    if (claim == NULL) {
        once__timers_release(once->loop);
        return NULL;
    }
    claim->once = once;
    claim->refs = 1;
    claim->timer.fire = renew_now;
    claim->op.done = renew_done;
    claim->next = once->claims;
    claim->place = &once->claims;
    if (claim->next != NULL) {
        claim->next->place = &claim->next;
    }
    once->claims = claim;
    assert_claim_state(claim);
    return claim;
}

void once__claim_granted(once_claim_t *claim, const uint8_t *id, const once__head_t *head,
                         uint64_t lease_ms, uint64_t granted_ms)
{
    memcpy(claim->id, id, ONCE_ID_SIZE);
    claim->ref = head->claim;
    claim->created = head->created;
    claim->recover = head->recover;
    claim->lease_ms = lease_ms;
    claim->alive = 1;
    start_renewing(claim, granted_ms);
}

void once__claim_unref(once_claim_t *claim)
{
    assert_claim_state(claim);
    if (claim->refs > 1) {
        claim->refs--;
        return;
    }
    once__claim_stop(claim);
    once__timers_release(claim->once->loop);
    *claim->place = claim->next;
    if (claim->next != NULL) {
        claim->next->place = claim->place;
    }
    once__handle_free(claim->once, claim);
}

/* An adopted claim does not know when its record was created, but the epochs of one record only grow. */
static int is_later_life(const once_claim_t *claim, const once__head_t *head)
{
    if (claim->created != 0) {
        return head->created != claim->created;
    }
    return head->claim.epoch < claim->ref.epoch ||
           (head->claim.epoch == claim->ref.epoch &&
            !once__equal(head->claim.id, claim->ref.id, ONCE_CLAIM_ID_SIZE));
}

/*
 * If the claim is lost and its record was forgotten after its ttl, the key may have a new record by now. That record answers
 * another request: removes it from what the store answered.
 */
static void forget_later_life(const once_claim_t *claim, once__op_t *op)
{
    if (op->error == ONCE_OK && op->outcome == ONCE_OUTCOME_LOST &&
        is_later_life(claim, &op->head)) {
        memset(&op->head, 0, sizeof(op->head));
        free(op->record);
        op->record = NULL;
    }
}

void once__claim_give_back(once_claim_t *claim)
{
    static const char note[] = "not taken by the caller";

    if (once_claim_release_early(claim, 0, once__slice(note, sizeof(note) - 1), NULL, NULL) !=
        ONCE_OK) {
        once_claim_drop(claim);
    }
}

/* ------------------------------------------------------------------------------------------------------- public face */

void once_claim_drop(once_claim_t *claim)
{
    once_t *once;

    if (claim == NULL) {
        return;
    }
    once = claim->once;
    if (once__enter(once) != ONCE_OK) {
        return;
    }
    once__claim_stop(claim);
    once__claim_unref(claim);
    once__leave(once);
}

uint32_t once_claim_epoch(const once_claim_t *claim)
{
    return claim->ref.epoch;
}

int once_claim_alive(const once_claim_t *claim)
{
    int alive = 0;

    if (once__enter(claim->once) == ONCE_OK) {
        alive = claim->alive;
        once__leave(claim->once);
    }
    return alive;
}

once_judgement_t once_claim_judge(const once_claim_t *claim, const once_policy_t *policy,
                                  int status, once_verdict_t said)
{
    once_policy_t stricter = *(policy != NULL ? policy : &claim->once->options.policy);

    if (claim->recover > stricter.recover) {
        stricter.recover = (once_recover_t)claim->recover;
    }
    return once_policy_judge(&stricter, status, said);
}

void once_claim_token(const once_claim_t *claim, char out[ONCE_TOKEN_SIZE])
{
    once__token_write(out, claim->id, &claim->ref);
}

int once_claim_adopt(once_t *once, const char *token, uint64_t lease_ms, once_claim_t **out)
{
    uint8_t id[ONCE_ID_SIZE];
    once__claim_ref_t ref;
    once_claim_t *claim;
    int code = once__enter(once);

    *out = NULL;
    if (code != ONCE_OK) {
        return code;
    }
    if (token == NULL || once__token_read(token, id, &ref) != 0) {
        once__leave(once);
        return ONCE_E_INVALID;
    }
    claim = once__claim_new(once);
    if (claim != NULL) {
        memcpy(claim->id, id, ONCE_ID_SIZE);
        claim->ref = ref;
        claim->lease_ms = lease_ms != 0 ? lease_ms : once_policy_lease_ms(&once->options.policy);
        if (lease_ms == ONCE_LEASE_GRANTED) {
            claim->lease_ms = 0; /* to a store: the record's own */
        }
        claim->release_ttl_ms = once_policy_release_ttl_ms(&once->options.policy);
        claim->alive = 1;
        *out = claim;
    }
    once__leave(once);
    return claim != NULL ? ONCE_OK : ONCE_E_NOMEM;
}

/* How often it has to be renewed. */
static void learn_lease(once_claim_t *claim, const once__head_t *head)
{
    if (claim->lease_ms == 0) {
        claim->lease_ms = head->lease_ms != 0 ? head->lease_ms
                                              : once_policy_lease_ms(&claim->once->options.policy);
    }
}

static void renew_reply(once__job_t *job)
{
    if (job->op.error == ONCE_OK && job->op.outcome == ONCE_OUTCOME_DONE) {
        job->claim->alive = 1;
        learn_lease(job->claim, &job->op.head);
        start_renewing(job->claim, once__loop_now(job->once->loop));
    } else if (job->op.error == ONCE_OK) {
        job->claim->alive = 0;
    }
    forget_later_life(job->claim, &job->op);
    once__job_reply_plain(job);
}

int once_claim_renew(once_claim_t *claim, once_cb cb, void *data)
{
    once__job_t *job;
    int code = once__job_enter(claim->once, cb, data, &job);

    if (code == ONCE_OK) {
        job->reply = renew_reply;
        job->claim = claim;
        claim_ref(claim);
        job->op.kind = ONCE__OP_EVENT;
        job->op.event.kind = ONCE__RENEW;
        job->op.event.claim = claim->ref;
        job->op.event.lease_ms = claim->lease_ms;
        memcpy(job->op.id, claim->id, ONCE_ID_SIZE);
        once__job_start(job);
    }
    return code;
}

/* -------------------------------------------------------------------------------------------------------- payloads */

int once__claim_pack_response(once_t *once, const uint8_t *id, const once_response_t *response,
                              once__payload_t *payload, uint8_t **memory)
{
    once__packing_t packing = {.seal = &once->options.seal,
                               .compress_from = once->options.compress_from,
                               .zstd = &once->zstd};
    int code;

    if (packing.seal->count > 0 && once__random(once, packing.nonce, sizeof(packing.nonce)) != 0) {
        return ONCE_E_IO;
    }
    code = once__response_pack(response, id, &packing, memory, &payload->len);
    payload->kind = ONCE__PAYLOAD_RESPONSE;
    payload->status = (uint16_t)response->status;
    payload->data = *memory;
    return code;
}

int once__claim_pack_note(int status, once_slice_t note, once__payload_t *payload, uint8_t **memory)
{
    size_t len = note.len < ONCE_NOTE_MAX ? note.len : ONCE_NOTE_MAX;

    memset(payload, 0, sizeof(*payload));
    *memory = NULL;
    if (status != 0 && (status < 100 || status > 999)) {
        return ONCE_E_INVALID;
    }
    if (status == 0 && len == 0) {
        return ONCE_OK;
    }
    *memory = malloc(len + 1);
    if (*memory == NULL) {
        return ONCE_E_NOMEM;
    }
    if (len > 0) {
        memcpy(*memory, note.data, len);
    }
    payload->kind = ONCE__PAYLOAD_NOTE;
    payload->status = (uint16_t)status;
    payload->data = *memory;
    payload->len = len;
    return ONCE_OK;
}

/* --------------------------------------------------------------------------------------------------------- the end */

/*
 * The end of a claim: complete, release, doubt.
 *
 * A submitted end is repeated until the store has it: a failed write never releases the claim, and after a lost reply it is sent
 * again with the same claim. The callback is called after store_timeout at the latest; the job goes on without the caller. The
 * claim is renewed meanwhile, so that no other process takes over an operation whose outcome is known.
 */

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
    forget_later_life(job->claim, &job->op);
    once__job_reply_plain(job);
}

static void finish_deadline(once__job_t *job)
{
    int error = job->op.error == ONCE_E_FULL || job->op.error == ONCE_E_NEWER ? job->op.error
                                                                              : ONCE_E_UNAVAILABLE;

    once__job_deliver(job, error, ONCE_OUTCOME_NONE);
}

static const once_slice_t no_cause = {NULL, 0};

/* On ONCE_OK the job owns `payload_memory` and the caller's reference to the claim. */
static int finish(once_claim_t *claim, once__event_kind_t kind, const once__payload_t *payload,
                  uint8_t *payload_memory, once_slice_t cause, uint64_t ttl_ms, once_cb cb,
                  void *data)
{
    once__job_t *job = once__job_new(claim->once, sizeof(*job) + ONCE_CAUSE_MAX, cb, data);

    if (job == NULL) {
        int code = once__no_job(claim->once);
        assert(code != ONCE_OK); /* otherwise the job would own the memory */
        return code;
    }
    job->is_write = 1;
    job->reply = finish_reply;
    job->deadline = finish_deadline;
    job->claim = claim;
    job->payload = payload_memory;
    once__job_set_cause(job, cause);
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
        code = once__claim_pack_response(once, claim->id, &response, &payload, &memory);
    }
    if (code == ONCE_OK) {
        code =
            finish(claim, ONCE__COMPLETE, &payload, memory, no_cause, response.retain_ms, cb, data);
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
    code = once__claim_pack_note(status, note, &payload, &memory);
    if (code == ONCE_OK) {
        /* The note says why. */
        code = finish(claim, ONCE__RELEASE, &payload, memory, no_cause, ttl_ms, cb, data);
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

int once_claim_doubt(once_claim_t *claim, once_slice_t cause, once_cb cb, void *data)
{
    static const once__payload_t none = {ONCE__PAYLOAD_NONE, 0, NULL, 0};
    once_t *once = claim->once;
    int code = once__enter(once);

    if (code != ONCE_OK) {
        return code;
    }
    code = finish(claim, ONCE__DOUBT, &none, NULL, cause, 0, cb, data);
    once__leave(once);
    return code;
}
