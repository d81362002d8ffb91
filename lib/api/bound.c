#include "api/bound.h"

#include <assert.h>

#include "api/job.h"
#include "base/error.h"
#include "core/sized.h"

#define PAUSE_MS       5000 /* between two counts */
#define PAUSE_NEAR_MS  1000 /* when less than a tenth (NEAR_PART) of a bound is left, or nothing */
#define PAUSE_FIRST_MS 50   /* until the first answer */
#define NEAR_PART      10
#define RECORD_BYTES   256   /* of a record without its response, about */
#define REAP_BATCH     10000 /* per step of the timer, so as not to hold up the store */
#define REAP_AGAIN_MS  10

static void assert_bound_state(const once__bound_t *bound)
{
    assert(!bound->is_counting || bound->made_records_before <= bound->made_records);
    assert(!bound->is_counting || bound->made_bytes_before <= bound->made_bytes);
}

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

    assert(bound->is_counting);
    assert_bound_state(bound);
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
    assert_bound_state(&once->bound);
}

/* ------------------------------------------------------------------------------------------------------ statistics */

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

/* What the handle knows; unchanged if it knows nothing. */
static void usage_known(const once_t *once, once_usage_t *usage)
{
    const once__bound_t *bound = &once->bound;

    if (bound->is_known) {
        *usage = (once_usage_t){.records = records_now(bound),
                                .max_records = once->store->limits.max_records,
                                .bytes = bytes_now(bound),
                                .max_bytes = once->store->limits.max_bytes};
    }
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
        usage_known(once, &now);
    }
    now.behind_ms = once->behind_ms;
    now.messages_behind_ms = once->messages_behind_ms;
    once__leave(once);
    return once__sized_write(usage, ONCE__USAGE_V1, &now, sizeof(now));
}

/* --------------------------------------------------------------------------------------------------------- reaping */

static int submit_reap(once_t *once, uint64_t limit, int thorough, once_cb cb, void *data)
{
    once__job_t *job;

    if (once->closing) {
        return ONCE_E_CLOSED;
    }
    job = once__job_new(once, sizeof(*job), cb, data);
    if (job == NULL) {
        return once__no_job(once);
    }
    job->op.kind = ONCE__OP_REAP;
    job->op.limit = limit;
    job->op.thorough = thorough;
    once__job_submit(job);
    return ONCE_OK;
}

static void scrub_reply(once__job_t *job)
{
    if (job->op.kind == ONCE__OP_REAP) {
        job->answer.count = job->op.count;
        job->answer.damaged = job->op.damaged;
    }
    once__job_reply_plain(job);
}

/* A store that has nothing to clear away is asked for its size, which costs little. */
int once_store_scrub(once_t *once, once_cb cb, void *data)
{
    once__job_t *job;
    int code = once__job_enter(once, cb, data, &job);

    if (code == ONCE_OK) {
        job->op.kind = once->store->vt->scrubs ? ONCE__OP_REAP : ONCE__OP_STATS;
        job->op.scrub = 1;
        job->reply = scrub_reply;
        once__job_start(job);
    }
    return code;
}

static void reap_again(once_t *once, uint64_t pause_ms)
{
    once__timer_set(once->loop, &once->reap_timer, once__loop_now(once->loop) + pause_ms);
}

static uint64_t min64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* When to reap again: when the store says so, and the rest of what is much soon, after the work of others. */
static uint64_t pause_after(once_t *once, const once__op_t *op)
{
    uint64_t reap_ms = once->options.reap_ms;

    if (op->error != ONCE_OK) {
        return reap_ms;
    }
    if (op->pause_ms != 0) {
        once->behind_ms = op->stats.behind_ms;
        once->messages_behind_ms = op->stats.messages_behind_ms;
        return min64(op->pause_ms, reap_ms);
    }
    return op->count == REAP_BATCH ? REAP_AGAIN_MS : reap_ms;
}

static void reaped(once_t *once, once_answer_t *answer, void *data)
{
    if (once->ended || once->closing) {
        return;
    }
    reap_again(once, pause_after(once, &answer->job->op));
}

static void reap_due(once__timer_t *timer)
{
    once_t *once = (once_t *)(void *)((char *)timer - offsetof(once_t, reap_timer));

    if (once->closing) {
        return;
    }
    if (submit_reap(once, REAP_BATCH, 0, reaped, NULL) != ONCE_OK) {
        reap_again(once, once->options.reap_ms);
    }
}

int once__bound_reap_start(once_t *once, once_error_t *err)
{
    uint64_t first_ms = once->store->vt->reap_first_ms;

    if (once->options.reap_ms == 0) {
        return ONCE_OK;
    }
    if (once__timers_reserve(once->loop) != 0) {
        once->options.reap_ms = 0;
        return once__fail(err, ONCE_E_NOMEM, "%s", once_error_text(ONCE_E_NOMEM));
    }
    once->reap_timer.fire = reap_due;
    reap_again(once,
               first_ms != 0 ? min64(first_ms, once->options.reap_ms) : once->options.reap_ms);
    return ONCE_OK;
}

void once__bound_reap_stop(once_t *once)
{
    if (once->reap_timer.fire != NULL) {
        once__timer_stop(once->loop, &once->reap_timer);
        once__timers_release(once->loop);
        once->reap_timer.fire = NULL;
    }
}

int once_store_reap(once_t *once, uint64_t limit, once_cb cb, void *data)
{
    int code = once__enter(once);

    if (code != ONCE_OK) {
        return code;
    }
    code = submit_reap(once, limit, 1, cb, data);
    once__leave(once);
    return code;
}
