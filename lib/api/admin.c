/*
 * Reading records and deciding about them: get, scan, settle, purge, erase, and their ids.
 */
#include <stdlib.h>
#include <string.h>

#include <once/experimental.h>

#include "api/audit.h"
#include "api/claim.h"
#include "api/job.h"
#include "base/bytes.h"
#include "core/identity.h"
#include "core/sized.h"
#include "core/token.h"

#define SCAN_STEP 128  /* records; other work is done between two steps */
#define LOOKS_MAX 1000 /* of one step that a caller asks for */

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

/* -------------------------------------------------------------------------------------------------------- scanning */

typedef struct scan {
    once__job_t job;
    once_filter_t filter;
    uint8_t scope_hash[ONCE_SCOPE_HASH_SIZE];
    uint8_t subject_hash[ONCE_SUBJECT_SIZE];
    once_scan_cb each;
    void *each_data;
    uint64_t shown;
    uint64_t damaged;  /* records that cannot be read */
    once_page_t *page; /* of a scan that is one step: the caller's; NULL: it goes on to the end */
} scan_t;

/* Passes one record to the callback. Returns whether to go on. */
static int show(scan_t *scan, const once__record_t *data)
{
    once_t *once = scan->job.once;
    once__unpacked_t unpacked = {.memory = NULL};
    once_record_t record = {.data = *data,
                            .now = scan->job.op.now,
                            .seal = &once->options.seal,
                            .zstd = once->threaded ? NULL : &once->zstd,
                            .unpacked = &unpacked};
    int stop;

    once->callbacks++;
    once->depth++;
    stop = scan->each(once, &record, scan->each_data);
    once->depth--;
    once__unpacked_free(&unpacked);
    scan->shown++;
    return stop == 0 && (scan->filter.limit == 0 || scan->shown < scan->filter.limit);
}

/* Stores do not look into what a record says about itself. */
static int is_of_subject(const scan_t *scan, const once__record_t *record)
{
    once__about_t about;

    if (scan->filter.subject_hash == NULL) {
        return 1;
    }
    return once__about_read(&about, record->about) == ONCE_OK && about.subject != NULL &&
           memcmp(about.subject, scan->subject_hash, ONCE_SUBJECT_SIZE) == 0;
}

static int show_all(scan_t *scan)
{
    once__op_t *op = &scan->job.op;
    int more = !scan->job.delivered; /* no record after the failure was delivered */

    for (uint64_t i = 0; i < op->count; i++) {
        if (more && op->error == ONCE_OK && is_of_subject(scan, op->records[i])) {
            more = show(scan, op->records[i]);
        }
        free(op->records[i]);
    }
    free(op->records);
    op->records = NULL;
    op->count = 0;
    scan->damaged += op->error == ONCE_OK ? op->damaged : 0;
    return more;
}

static void scan_reply(once__job_t *job)
{
    scan_t *scan = (scan_t *)job;
    int more = show_all(scan);

    if (job->op.error != ONCE_OK) {
        once__job_reply_plain(job);
        return;
    }
    if (scan->page != NULL && !job->delivered) { /* it is the caller's until then */
        memcpy(scan->page->cursor, job->op.cursor.bytes, sizeof(scan->page->cursor));
        scan->page->end = job->op.cursor.end;
        scan->page->looked = job->op.looks;
    }
    if (scan->page == NULL && more && !job->op.cursor.end && !job->delivered) {
        once__job_well_again(job);
        once__job_submit(job);
        return;
    }
    job->answer.count = scan->shown;
    job->answer.damaged = scan->damaged;
    once__job_deliver(job, ONCE_OK, ONCE_OUTCOME_DONE);
    once__job_end(job);
}

/* `page` NULL: from the beginning to the end. */
static int scan_locked(once_t *once, const once_filter_t *filter, once_page_t *page,
                       once_scan_cb each, once_cb done, void *data)
{
    scan_t *scan;

    if (filter->scope_hash_len > ONCE_SCOPE_HASH_SIZE || each == NULL ||
        (page != NULL && (page->looks == 0 || page->looks > LOOKS_MAX))) {
        return ONCE_E_INVALID;
    }
    scan = (scan_t *)once__job_new(once, sizeof(*scan), done, data);
    if (scan == NULL) {
        return once__no_job(once);
    }
    scan->filter = *filter;
    if (filter->scope_hash_len > 0) {
        memcpy(scan->scope_hash, filter->scope_hash, filter->scope_hash_len);
    }
    scan->filter.scope_hash = scan->scope_hash;
    if (filter->subject_hash != NULL) {
        memcpy(scan->subject_hash, filter->subject_hash, ONCE_SUBJECT_SIZE);
        scan->filter.subject_hash = scan->subject_hash;
    }
    scan->each = each;
    scan->each_data = data;
    scan->job.reply = scan_reply;
    scan->job.op.kind = ONCE__OP_SCAN;
    scan->job.op.filter = &scan->filter;
    scan->job.op.limit = SCAN_STEP;
    if (page != NULL) {
        scan->page = page;
        scan->filter.limit = 0;
        scan->job.op.limit = page->looks < SCAN_STEP ? page->looks : SCAN_STEP;
        scan->job.op.looks = page->looks;
        memcpy(scan->job.op.cursor.bytes, page->cursor, sizeof(page->cursor));
    }
    once__job_submit(&scan->job);
    return ONCE_OK;
}

static int scan(once_t *once, const once_filter_t *given, once_page_t *page, once_scan_cb each,
                once_cb done, void *data)
{
    once_filter_t filter = ONCE_FILTER_INIT;
    int code = once__enter(once);

    if (code != ONCE_OK) {
        return code;
    }
    if (given != NULL) {
        code = once__sized_read(&filter, sizeof(filter), ONCE__FILTER_V1, given);
    }
    if (code == ONCE_OK) {
        code = scan_locked(once, &filter, page, each, done, data);
    }
    once__leave(once);
    return code;
}

int once_record_scan(once_t *once, const once_filter_t *filter, once_scan_cb each, once_cb done,
                     void *data)
{
    return scan(once, filter, NULL, each, done, data);
}

int once_record_page(once_t *once, once_page_t *page, once_scan_cb each, once_cb done, void *data)
{
    return page != NULL ? scan(once, page->filter, page, each, done, data) : ONCE_E_INVALID;
}

/* -------------------------------------------------------------------------------------------------------- deciding */

void once__admin_recognise(once__job_t *job)
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
}

static void admin_reply(once__job_t *job)
{
    once__admin_recognise(job);
    once__job_reply_plain(job);
}

/* Submits an event that does not come from the holder of the claim. On ONCE_OK the job owns `memory`. */
static int submit_event(once_t *once, const once__event_t *event, const uint8_t *id,
                        const once__payload_t *payload, uint8_t *memory, once_slice_t cause,
                        once_cb cb, void *data)
{
    once__job_t *job;

    if (once->auditor.by[0] != '\0') {
        return once__audit_event(once, event, id, payload, memory, cb,
                                 data); /* brings its own cause */
    }
    job = once__job_new(once, sizeof(*job) + ONCE_CAUSE_MAX, cb, data);
    if (job == NULL) {
        return once__no_job(once);
    }
    job->op.kind = ONCE__OP_EVENT;
    job->op.event = *event;
    job->reply = admin_reply;
    job->op.payload = *payload;
    job->payload = memory;
    once__job_set_cause(job, cause);
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
    once_slice_t cause = {NULL, 0};
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
        code = once__claim_pack_response(once, id, &response, &payload, &memory);
        cause = settle->note;
    } else {
        code = once__claim_pack_note(settle->status, settle->note, &payload, &memory);
    }
    if (code == ONCE_OK) {
        code = submit_event(once, &event, id, &payload, memory, cause, cb, data);
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

/* An event that brings nothing but the claim that it names. */
static int submit_bare(once_t *once, once__event_t *event, const char *token, once_cb cb,
                       void *data)
{
    static const once__payload_t none = {ONCE__PAYLOAD_NONE, 0, NULL, 0};
    uint8_t id[ONCE_ID_SIZE];
    int code = once__enter(once);

    if (code != ONCE_OK) {
        return code;
    }
    if (token == NULL || once__token_read(token, id, &event->claim) != 0) {
        code = ONCE_E_INVALID;
    } else {
        code = submit_event(once, event, id, &none, NULL, once__slice(NULL, 0), cb, data);
    }
    once__leave(once);
    return code;
}

int once_record_purge(once_t *once, const char *token, int force, once_cb cb, void *data)
{
    once__event_t event = {.kind = ONCE__PURGE, .force = force};

    return submit_bare(once, &event, token, cb, data);
}

int once_record_erase(once_t *once, const char *token, once_cb cb, void *data)
{
    once__event_t event = {.kind = ONCE__ERASE};

    return submit_bare(once, &event, token, cb, data);
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

static int hash_of(once_t *once, once_slice_t text,
                   void (*hash)(const once__secrets_t *, once_slice_t, uint8_t *), uint8_t *out)
{
    int code = once__enter(once);

    if (code != ONCE_OK) {
        return code;
    }
    code = secrets_state(once);
    if (code == ONCE_OK) {
        hash(&once->secrets, text, out);
    }
    once__leave(once);
    return code;
}

int once_scope_hash_of(once_t *once, once_slice_t scope, uint8_t hash[ONCE_SCOPE_HASH_SIZE])
{
    return hash_of(once, scope, once__scope_hash, hash);
}

int once_subject_hash_of(once_t *once, once_slice_t subject, uint8_t hash[ONCE_SUBJECT_SIZE])
{
    return hash_of(once, subject, once__subject_hash, hash);
}
