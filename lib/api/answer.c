/*
 * What callers see of an answer and of a record.
 */
#include <stdlib.h>
#include <string.h>

#include "api/claim.h"
#include "api/job.h"
#include "base/bytes.h"
#include "core/about.h"
#include "core/attempts.h"
#include "core/keygen.h"
#include "core/sized.h"
#include "core/token.h"

const char *once_outcome_name(once_outcome_t outcome)
{
    static const char *const names[] = {"none",    "run",  "replay",  "busy", "mismatch",
                                        "unknown", "done", "already", "lost", "refused"};

    return (unsigned)outcome < sizeof(names) / sizeof(names[0]) ? names[outcome] : "?";
}

const char *once_state_name(once_state_t state)
{
    static const char *const names[] = {"none", "pending", "completed", "failed", "unknown"};

    return (unsigned)state < sizeof(names) / sizeof(names[0]) ? names[state] : "?";
}

/* --------------------------------------------------------------------------------------------------------- answers */

int once_answer_error(const once_answer_t *answer)
{
    return answer->error;
}

once_outcome_t once_answer_outcome(const once_answer_t *answer)
{
    return answer->outcome;
}

const once_record_t *once_answer_record(const once_answer_t *answer)
{
    return answer->has_record ? &answer->record : NULL;
}

once_claim_t *once_answer_take_claim(once_answer_t *answer)
{
    once_claim_t *claim = answer->claim;

    answer->claim = NULL;
    return claim;
}

uint64_t once_answer_retry_after_ms(const once_answer_t *answer)
{
    uint64_t left;

    if (answer->outcome != ONCE_OUTCOME_BUSY || !answer->has_record) {
        return 0;
    }
    left = once_record_lease_ms(&answer->record);
    return left > 0 ? left : 1;
}

uint64_t once_answer_damaged(const once_answer_t *answer)
{
    return answer->damaged;
}

uint64_t once_answer_count(const once_answer_t *answer)
{
    return answer->count;
}

const once_stats_t *once_answer_stats(const once_answer_t *answer)
{
    return answer->has_stats ? &answer->stats : NULL;
}

void once_answer_keep(once_answer_t *answer)
{
    answer->job->refs++;
}

void once_answer_free(once_answer_t *answer)
{
    once_t *once;

    if (answer == NULL) {
        return;
    }
    once = answer->job->once;
    if (once__enter(once) != ONCE_OK) {
        return;
    }
    if (answer->claim != NULL) {
        once_claim_t *claim = answer->claim;
        answer->claim = NULL;
        once__claim_give_back(claim);
    }
    once__job_unref(answer->job);
    once__leave(once);
}

/* --------------------------------------------------------------------------------------------------------- records */

static uint64_t until(uint64_t now, uint64_t then)
{
    return then > now ? then - now : 0;
}

once_state_t once_record_state(const once_record_t *record)
{
    return (once_state_t)record->data.head.state;
}

const uint8_t *once_record_id(const once_record_t *record)
{
    return record->data.id;
}

const uint8_t *once_record_scope_hash(const once_record_t *record)
{
    return record->data.scope_hash;
}

once_slice_t once_record_key(const once_record_t *record)
{
    return once__slice(record->data.key, record->data.key_len);
}

uint32_t once_record_epoch(const once_record_t *record)
{
    return record->data.head.claim.epoch;
}

const uint8_t *once_record_claim_id(const once_record_t *record)
{
    return record->data.head.claim.id;
}

once_recover_t once_record_recover(const once_record_t *record)
{
    return (once_recover_t)record->data.head.recover;
}

int once_record_status(const once_record_t *record)
{
    return record->data.payload.status;
}

once_slice_t once_record_note(const once_record_t *record)
{
    const once__payload_t *payload = &record->data.payload;

    return payload->kind == ONCE__PAYLOAD_NOTE ? once__slice(payload->data, payload->len)
                                               : once__slice(NULL, 0);
}

int once_record_is_erased(const once_record_t *record)
{
    return record->data.payload.kind == ONCE__PAYLOAD_ERASED;
}

static once__about_t about(const once_record_t *record)
{
    once__about_t about;

    (void)once__about_read(&about, record->data.about);
    return about;
}

once_slice_t once_record_description(const once_record_t *record)
{
    return about(record).description;
}

once_slice_t once_record_holder(const once_record_t *record)
{
    return about(record).holder;
}

const uint8_t *once_record_subject(const once_record_t *record)
{
    return about(record).subject;
}

once_slice_t once_record_cause(const once_record_t *record)
{
    once_slice_t cause = once__attempts_cause(record->data.cause);

    if (record->data.head.flags & ONCE__BY_LEASE) {
        return once__slice_of("lease over");
    }
    if (cause.len > 0) {
        return once__about_is_clean(cause) ? cause : once__slice(NULL, 0);
    }
    return once_record_note(record);
}

int once_record_attempt(const once_record_t *record, unsigned n, once_attempt_t *attempt)
{
    once_attempt_t read;

    if (once__sized(attempt) < ONCE__ATTEMPT_V1) {
        return ONCE_E_INVALID;
    }
    return once__attempts_read(&read, &record->data, n)
               ? once__sized_write(attempt, ONCE__ATTEMPT_V1, &read, sizeof(read))
               : ONCE_E_NOT_FOUND;
}

uint64_t once_record_age_ms(const once_record_t *record)
{
    return until(record->data.head.created, record->now);
}

uint64_t once_record_idle_ms(const once_record_t *record)
{
    return until(record->data.head.changed, record->now);
}

static int has_lease(const once_record_t *record)
{
    uint8_t state = record->data.head.state;

    return state == ONCE_STATE_PENDING || state == ONCE_STATE_UNKNOWN;
}

uint64_t once_record_lease_ms(const once_record_t *record)
{
    return has_lease(record) ? until(record->now, record->data.head.lease_until) : 0;
}

uint64_t once_record_expires_ms(const once_record_t *record)
{
    return until(record->now, record->data.head.expires);
}

uint64_t once_record_time(const once_record_t *record, once_time_t which)
{
    const once__head_t *head = &record->data.head;

    switch (which) {
    case ONCE_TIME_CREATED:
        return head->created;
    case ONCE_TIME_CHANGED:
        return head->changed;
    case ONCE_TIME_LEASE:
        return has_lease(record) ? head->lease_until : 0;
    case ONCE_TIME_EXPIRES:
        return head->expires;
    }
    return 0;
}

uint64_t once_record_bytes(const once_record_t *record)
{
    return record->data.key_len + record->data.payload.len + record->data.about.len +
           record->data.cause.len;
}

void once_record_token(const once_record_t *record, char out[ONCE_TOKEN_SIZE])
{
    once__token_write(out, record->data.id, &record->data.head.claim);
}

int once_record_derive(const once_record_t *record, once_slice_t step, once_key_t *key,
                       once_error_t *err)
{
    return once__key_of_step(record->data.id, record->data.head.created, step, key, err);
}

/* What was unpacked elsewhere is not kept packed besides: a body may be large, and a slow reader may keep an answer for long. */
static void drop_packed(const once_record_t *record)
{
    if (record->unpacked->in_place || record->owned == NULL || *record->owned == NULL ||
        record->data.key == (*record->owned)->key) {
        return;
    }
    free(*record->owned);
    *record->owned = NULL;
}

int once_record_response(const once_record_t *record, once_response_t *response)
{
    int code = ONCE_OK;

    if (once__sized(response) < ONCE__RESPONSE_V1) {
        return ONCE_E_INVALID;
    }
    if (once_record_is_erased(record) && record->data.head.state == ONCE_STATE_COMPLETED) {
        once_response_t erased = ONCE_RESPONSE_INIT;
        erased.status = record->data.payload.status;
        erased.body_omitted = ONCE_BODY_ERASED;
        return once__sized_write(response, ONCE__RESPONSE_V1, &erased, sizeof(erased));
    }
    if (record->data.payload.kind != ONCE__PAYLOAD_RESPONSE) {
        return ONCE_E_NOT_FOUND;
    }
    if (record->unpacked->memory == NULL) {
        code = once__response_unpack(&record->data.payload, record->data.id, record->seal,
                                     record->zstd, record->unpacked);
        if (code == ONCE_OK) {
            drop_packed(record);
        }
    }
    if (code == ONCE_OK) {
        const once_response_t *stored = &record->unpacked->response;
        code = once__sized_write(response, ONCE__RESPONSE_V1, stored, sizeof(*stored));
    }
    return code;
}
