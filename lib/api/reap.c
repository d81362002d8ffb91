#include "api/reap.h"

#include "api/job.h"
#include "base/error.h"

#define REAP_BATCH    10000 /* per step of the timer, so as not to hold up the store */
#define REAP_AGAIN_MS 10

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

int once__reap_start(once_t *once, once_error_t *err)
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

void once__reap_stop(once_t *once)
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
