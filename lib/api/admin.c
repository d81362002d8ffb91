/*
 * Reading records and deciding about them: get, stats, settle, purge, and their ids.
 */
#include <stdlib.h>
#include <string.h>

#include "api/bound.h"
#include "api/job.h"
#include "api/payload.h"
#include "base/bytes.h"
#include "core/identity.h"
#include "core/sized.h"
#include "core/token.h"

int once_record_get(once_t *once, const uint8_t id[ONCE_ID_SIZE], once_cb cb, void *data)
{
    once__job_t *job;
    int code = once__job_enter(once, cb, data, &job);

    if (code == ONCE_OK) {
        job->op.kind = ONCE__OP_GET;
        memcpy(job->op.id, id, ONCE_ID_SIZE);
        once__job_start(job);
    }
    return code;
}

static void stats_reply(once__job_t *job)
{
    const once__limits_t *limits = &job->once->store->limits;
    once_stats_t *stats = &job->op.stats;

    stats->max_records = limits->max_records != 0 ? limits->max_records : stats->max_records;
    if (limits->max_bytes != 0 && (stats->max_bytes == 0 || limits->max_bytes < stats->max_bytes)) {
        stats->max_bytes = limits->max_bytes; /* a server may have a bound of its own */
    }
    job->answer.stats = *stats;
    job->answer.has_stats = job->op.error == ONCE_OK;
    once__job_reply_plain(job);
}

int once_store_stats(once_t *once, once_cb cb, void *data)
{
    once__job_t *job;
    int code = once__job_enter(once, cb, data, &job);

    if (code == ONCE_OK) {
        job->op.kind = ONCE__OP_STATS;
        job->op.thorough = 1;
        job->reply = stats_reply;
        once__job_start(job);
    }
    return code;
}

int once_store_usage(once_t *once, once_usage_t *usage)
{
    once_usage_t now = ONCE_USAGE_INIT;
    int code = once__enter(once);

    if (code != ONCE_OK) {
        return code;
    }
    if (once->store->vt->usage != NULL) {
        once->store->vt->usage(once->store, &now);
    } else {
        once__bound_usage(once, &now);
    }
    now.behind_ms = once->behind_ms;
    now.messages_behind_ms = once->messages_behind_ms;
    once__leave(once);
    return once__sized_write(usage, ONCE__USAGE_V1, &now, sizeof(now));
}

/* A reply was lost: the record may be as it is because of our own earlier attempt. */
static void admin_reply(once__job_t *job)
{
    once__op_t *op = &job->op;

    if (op->error == ONCE_OK && job->reply_lost) {
        const once__record_t *record = op->record;
        if (op->event.kind == ONCE__PURGE && op->outcome == ONCE_OUTCOME_REFUSED &&
            op->head.state == ONCE_STATE_NONE) {
            op->outcome = ONCE_OUTCOME_DONE;
        }
        if (op->event.kind == ONCE__SETTLE_COMPLETED && op->outcome == ONCE_OUTCOME_ALREADY &&
            record != NULL && record->payload.len == op->payload.len &&
            once__equal(record->payload.data, op->payload.data, op->payload.len)) {
            op->outcome = ONCE_OUTCOME_DONE;
        }
    }
    once__job_reply_plain(job);
}

/* Submits an event that does not come from the holder of the claim. On ONCE_OK the job owns `memory`. */
static int submit_event(once_t *once, const once__event_t *event, const uint8_t *id,
                        const once__payload_t *payload, uint8_t *memory, once_cb cb, void *data)
{
    once__job_t *job = once__job_new(once, sizeof(*job), cb, data);

    if (job == NULL) {
        return once__no_job(once);
    }
    job->op.kind = ONCE__OP_EVENT;
    job->op.event = *event;
    job->reply = admin_reply;
    job->op.payload = *payload;
    job->payload = memory;
    memcpy(job->op.id, id, ONCE_ID_SIZE);
    once__job_submit(job);
    return ONCE_OK;
}

static int settle_locked(once_t *once, const once_settle_t *settle, once_cb cb, void *data)
{
    once__event_t event = {.kind = ONCE__SETTLE_FAILED, .force = settle->force};
    once_response_t response;
    uint8_t id[ONCE_ID_SIZE];
    uint8_t *memory = NULL;
    once__payload_t payload;
    int code;

    if (settle->token == NULL || once__token_read(settle->token, id, &event.claim) != 0) {
        return ONCE_E_INVALID;
    }
    if (settle->response != NULL) {
        code = once__sized_read(&response, sizeof(response), ONCE__RESPONSE_V1, settle->response);
        if (code != ONCE_OK) {
            return code;
        }
        event.kind = ONCE__SETTLE_COMPLETED;
        event.ttl_ms = response.retain_ms;
        code = once__pack_response(once, id, &response, &payload, &memory);
    } else {
        code = once__pack_note(settle->status, settle->note, &payload, &memory);
    }
    if (code == ONCE_OK) {
        code = submit_event(once, &event, id, &payload, memory, cb, data);
    }
    if (code != ONCE_OK) {
        free(memory);
    }
    return code;
}

int once_record_settle(once_t *once, const once_settle_t *given, once_cb cb, void *data)
{
    once_settle_t settle;
    int code = once__enter(once);

    if (code != ONCE_OK) {
        return code;
    }
    code = once__sized_read(&settle, sizeof(settle), ONCE__SETTLE_V1, given);
    if (code == ONCE_OK) {
        code = settle_locked(once, &settle, cb, data);
    }
    once__leave(once);
    return code;
}

int once_record_purge(once_t *once, const char *token, int force, once_cb cb, void *data)
{
    static const once__payload_t none = {ONCE__PAYLOAD_NONE, 0, NULL, 0};
    once__event_t event = {.kind = ONCE__PURGE, .force = force};
    uint8_t id[ONCE_ID_SIZE];
    int code = once__enter(once);

    if (code != ONCE_OK) {
        return code;
    }
    if (token == NULL || once__token_read(token, id, &event.claim) != 0) {
        code = ONCE_E_INVALID;
    } else {
        code = submit_event(once, &event, id, &none, NULL, cb, data);
    }
    once__leave(once);
    return code;
}

/* ------------------------------------------------------------------------------------------------------------- names */

static int secrets_state(const once_t *once)
{
    if (once->secrets_ready) {
        return ONCE_OK;
    }
    return once->secrets_error != ONCE_OK ? once->secrets_error : ONCE_E_UNAVAILABLE;
}

int once_record_id_of(once_t *once, once_slice_t scope, once_slice_t key, uint8_t id[ONCE_ID_SIZE])
{
    int code = once__enter(once);

    if (code != ONCE_OK) {
        return code;
    }
    code = key.len == 0 || key.len > ONCE_KEY_MAX ? ONCE_E_KEY : secrets_state(once);
    if (code == ONCE_OK) {
        once__record_id(&once->secrets, scope, key, id);
    }
    once__leave(once);
    return code;
}

int once_scope_hash_of(once_t *once, once_slice_t scope, uint8_t hash[ONCE_SCOPE_HASH_SIZE])
{
    int code = once__enter(once);

    if (code != ONCE_OK) {
        return code;
    }
    code = secrets_state(once);
    if (code == ONCE_OK) {
        once__scope_hash(&once->secrets, scope, hash);
    }
    once__leave(once);
    return code;
}
