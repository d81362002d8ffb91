#include "api/reap.h"

#include "api/job.h"
#include "base/error.h"

#define REAP_BATCH 10000 /* per step of the timer, so as not to hold up the store */

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

static void reaped(once_t *once, once_answer_t *answer, void *data)
{
    int more = once_answer_error(answer) == ONCE_OK && once_answer_count(answer) == REAP_BATCH;

    if (once->ended || once->closing) {
        return;
    }
    /* The rest follows soon, after the work of others. */
    reap_again(once, more ? 10 : once->options.reap_ms);
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
    if (once->options.reap_ms == 0) {
        return ONCE_OK;
    }
    if (once__timers_reserve(once->loop) != 0) {
        once->options.reap_ms = 0;
        return once__fail(err, ONCE_E_NOMEM, "%s", once_error_text(ONCE_E_NOMEM));
    }
    once->reap_timer.fire = reap_due;
    reap_again(once, once->options.reap_ms);
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
