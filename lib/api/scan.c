/*
 * Scanning all records, a few at a time: other work is done between two steps.
 */
#include <stdlib.h>
#include <string.h>

#include "api/job.h"
#include "core/sized.h"

#define SCAN_STEP 128

typedef struct scan {
    once__job_t job;
    once_filter_t filter;
    uint8_t scope_hash[ONCE_SCOPE_HASH_SIZE];
    once_scan_cb each;
    void *each_data;
    uint64_t shown;
    uint64_t damaged; /* records that cannot be read */
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

static int show_all(scan_t *scan)
{
    once__op_t *op = &scan->job.op;
    int more = !scan->job.delivered; /* no record after the failure was delivered */

    for (uint64_t i = 0; i < op->count; i++) {
        if (more && op->error == ONCE_OK) {
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
    if (more && !job->op.cursor.end && !job->delivered) {
        once__job_well_again(job);
        once__job_submit(job);
        return;
    }
    job->answer.count = scan->shown;
    job->answer.damaged = scan->damaged;
    once__job_deliver(job, ONCE_OK, ONCE_OUTCOME_DONE);
    once__job_end(job);
}

static int scan_locked(once_t *once, const once_filter_t *filter, once_scan_cb each, once_cb done,
                       void *data)
{
    scan_t *scan;

    if (filter->scope_hash_len > ONCE_SCOPE_HASH_SIZE || each == NULL) {
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
    scan->each = each;
    scan->each_data = data;
    scan->job.reply = scan_reply;
    scan->job.op.kind = ONCE__OP_SCAN;
    scan->job.op.filter = &scan->filter;
    scan->job.op.limit = SCAN_STEP;
    once__job_submit(&scan->job);
    return ONCE_OK;
}

int once_record_scan(once_t *once, const once_filter_t *given, once_scan_cb each, once_cb done,
                     void *data)
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
        code = scan_locked(once, &filter, each, done, data);
    }
    once__leave(once);
    return code;
}
