#include "api/claim.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "api/job.h"
#include "api/log.h"
#include "base/bytes.h"
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
    claim = once__pool_take(&once->pool, sizeof(*claim));
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
    once__pool_give(&claim->once->pool, claim);
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

void once__claim_forget_later_life(const once_claim_t *claim, once__op_t *op)
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
        claim->release_ttl_ms = once_policy_release_ttl_ms(&once->options.policy);
        claim->alive = 1;
        *out = claim;
    }
    once__leave(once);
    return claim != NULL ? ONCE_OK : ONCE_E_NOMEM;
}

static void renew_reply(once__job_t *job)
{
    if (job->op.error == ONCE_OK && job->op.outcome == ONCE_OUTCOME_DONE) {
        job->claim->alive = 1;
        start_renewing(job->claim, once__loop_now(job->once->loop));
    } else if (job->op.error == ONCE_OK) {
        job->claim->alive = 0;
    }
    once__claim_forget_later_life(job->claim, &job->op);
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
