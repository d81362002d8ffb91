#include "api/bound.h"

#include "api/job.h"

#define PAUSE_MS       5000 /* between two counts */
#define PAUSE_NEAR_MS  1000 /* when less than a tenth (NEAR_PART) of a bound is left, or nothing */
#define PAUSE_FIRST_MS 50   /* until the first answer */
#define NEAR_PART      10
#define RECORD_BYTES   256 /* of a record without its response, about */

static uint64_t records_now(const once__bound_t *bound)
{
    return bound->records + bound->made_records;
}

static uint64_t bytes_now(const once__bound_t *bound)
{
    return bound->bytes + bound->made_bytes;
}

static int is_reached(uint64_t is, uint64_t max)
{
    return max != 0 && is >= max;
}

static int is_near(uint64_t is, uint64_t max)
{
    return max != 0 && is >= max - max / NEAR_PART;
}

static uint64_t pause_of(const once_t *once)
{
    const once__bound_t *bound = &once->bound;
    const once__limits_t *limits = &once->store->limits;

    if (!bound->is_known) {
        return PAUSE_FIRST_MS;
    }
    return is_near(records_now(bound), limits->max_records) ||
                   is_near(bytes_now(bound), limits->max_bytes)
               ? PAUSE_NEAR_MS
               : PAUSE_MS;
}

static void counted(once__job_t *job)
{
    once_t *once = job->once;
    once__bound_t *bound = &once->bound;
    const once__op_t *op = &job->op;

    bound->is_counting = 0;
    if (op->error == ONCE_OK) {
        bound->is_known = 1;
        bound->error = ONCE_OK;
        bound->records = op->count;
        bound->bytes = op->stats.bytes;
        bound->made_records -= bound->made_records_before;
        bound->made_bytes -= bound->made_bytes_before;
    } else if (!once__is_transient(op->error)) {
        bound->error = op->error;
    }
    once__job_end(job);
}

/* What is added while the store counts may or may not be in its answer: it stays counted. */
static void start_count(once_t *once)
{
    once__bound_t *bound = &once->bound;
    uint64_t now = once__loop_now(once->loop);
    once__job_t *job;

    if (bound->is_counting || once->closing ||
        (bound->counted_at != 0 && now - bound->counted_at < pause_of(once))) {
        return;
    }
    job = once__job_new(once, sizeof(*job), NULL, NULL);
    if (job == NULL) {
        return;
    }
    bound->is_counting = 1;
    bound->counted_at = now;
    bound->made_records_before = bound->made_records;
    bound->made_bytes_before = bound->made_bytes;
    job->op.kind = ONCE__OP_STATS;
    job->reply = counted;
    once__job_submit(job);
}

int once__bound_check(once_t *once)
{
    const once__bound_t *bound = &once->bound;
    const once__limits_t *limits = &once->store->limits;

    if (limits->max_records == 0 && limits->max_bytes == 0) {
        return ONCE_OK;
    }
    start_count(once);
    if (bound->error != ONCE_OK) {
        return bound->error;
    }
    if (!bound->is_known) {
        return ONCE_E_UNAVAILABLE;
    }
    return is_reached(records_now(bound), limits->max_records) ||
                   is_reached(bytes_now(bound), limits->max_bytes)
               ? ONCE_E_FULL
               : ONCE_OK;
}

void once__bound_made(once_t *once, uint64_t records, uint64_t bytes)
{
    once->bound.made_records += records;
    once->bound.made_bytes += bytes + records * RECORD_BYTES;
}

void once__bound_usage(const once_t *once, once_usage_t *usage)
{
    const once__bound_t *bound = &once->bound;

    if (bound->is_known) {
        *usage = (once_usage_t){.records = records_now(bound),
                                .max_records = once->store->limits.max_records,
                                .bytes = bytes_now(bound),
                                .max_bytes = once->store->limits.max_bytes};
    }
}
