#include "api/job.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "api/claim.h"
#include "base/backoff.h"
#include "base/bytes.h"
#include "core/about.h"

#define PAUSE_MIN_MS 10
#define PAUSE_MAX_MS 1000

#define JOB_OF(member, pointer)                                                                    \
    ((once__job_t *)(void *)((char *)(pointer)-offsetof(once__job_t, member)))

static void assert_job_state(const once__job_t *job)
{
    assert(job->refs > 0 && *job->place == job);                     /* I-1 */
    assert(!job->submitted || job->pause_timer.slot == 0);           /* I-2 */
    assert(!job->delivered || job->deadline_timer.slot == 0);        /* I-3 */
    assert(!job->is_write || !job->submitted || job->claim != NULL); /* I-4 */
    assert(!job->counted || job->once->job_count > 0);               /* I-5 */
}

static void op_done(once__op_t *op)
{
    once__job_t *job = JOB_OF(op, op);

    assert_job_state(job);
    assert(job->submitted);
    job->submitted = 0;
    job->reply_lost |= op->error == ONCE_E_NOREPLY;
    job->once->store_is_silent = once__is_transient(op->error);
    if (job->once->ended) {
        free(op->record);
        op->record = NULL;
        once__job_kill(job);
        return;
    }
    job->reply(job);
}

static void pause_over(once__timer_t *timer)
{
    once__job_submit(JOB_OF(pause_timer, timer));
}

static void deadline_over(once__timer_t *timer)
{
    once__job_t *job = JOB_OF(deadline_timer, timer);

    job->deadline(job);
}

static void deadline_plain(once__job_t *job)
{
    once__job_deliver(job, ONCE_E_UNAVAILABLE, ONCE_OUTCOME_NONE);
    if (!job->submitted) {
        once__job_end(job);
    }
}

once__job_t *once__job_new(once_t *once, size_t size, once_cb cb, void *data)
{
    once__job_t *job;

    if (once->ended || once__timers_reserve(once->loop) != 0) {
        return NULL;
    }
    if (once__timers_reserve(once->loop) != 0) {
        once__timers_release(once->loop);
        return NULL;
    }
    job = once__handle_alloc(once, size);
    if (job == NULL) {
        once__timers_release(once->loop);
        once__timers_release(once->loop);
        return NULL;
    }
    job->once = once;
    job->op.done = op_done;
    job->reply = once__job_reply_plain;
    job->deadline = deadline_plain;
    job->pause_timer.fire = pause_over;
    job->deadline_timer.fire = deadline_over;
    job->refs = 1;
    job->counted = 1;
    job->cb = cb;
    job->data = data;
    job->answer.job = job;
    job->next = once->jobs;
    job->place = &once->jobs;
    if (job->next != NULL) {
        job->next->place = &job->next;
    }
    once->jobs = job;
    once->job_count++;
    assert_job_state(job);
    return job;
}

int once__no_job(const once_t *once)
{
    return once->ended ? ONCE_E_CLOSED : ONCE_E_NOMEM;
}

int once__job_enter(once_t *once, once_cb cb, void *data, once__job_t **job)
{
    int code = once__enter(once);

    if (code != ONCE_OK) {
        return code;
    }
    *job = once__job_new(once, sizeof(**job), cb, data);
    if (*job == NULL) {
        code = once__no_job(once);
        once__leave(once);
    }
    return code;
}

void once__job_set_cause(once__job_t *job, once_slice_t cause)
{
    char *copy = (char *)(job + 1);

    job->op.cause = once__slice(copy, once__about_clean(copy, ONCE_CAUSE_MAX, cause));
}

void once__job_start(once__job_t *job)
{
    once_t *once = job->once;

    once__job_submit(job);
    once__leave(once);
}

void once__job_submit(once__job_t *job)
{
    assert(!job->submitted);
    job->submitted = 1;
    job->attempts++;
    assert_job_state(job);
    job->once->store->vt->submit(job->once->store, &job->op);
}

void once__job_watch_deadline(once__job_t *job)
{
    once_t *once = job->once;

    if (!job->delivered && job->deadline_timer.due == 0) {
        once__timer_set(once->loop, &job->deadline_timer,
                        once__loop_now(once->loop) + once->options.store_timeout_ms);
    }
}

uint64_t once__job_pause(once__job_t *job)
{
    once_t *once = job->once;
    uint64_t random = 0, pause;

    (void)once__random(once, &random, sizeof(random));
    pause = once__backoff(job->attempts, PAUSE_MIN_MS, PAUSE_MAX_MS, random);
    once__timer_set(once->loop, &job->pause_timer, once__loop_now(once->loop) + pause);
    once__job_watch_deadline(job);
    assert_job_state(job);
    return job->pause_timer.due;
}

void once__job_well_again(once__job_t *job)
{
    once__timer_stop(job->once->loop, &job->deadline_timer);
    job->deadline_timer.due = 0;
    job->attempts = 0;
}

int once__is_transient(int error)
{
    return error == ONCE_E_UNAVAILABLE || error == ONCE_E_NOREPLY;
}

int once__is_hopeless(int error)
{
    return error == ONCE_E_CORRUPT || error == ONCE_E_TOO_BIG || error == ONCE_E_INVALID ||
           error == ONCE_E_UNSUPPORTED;
}

void once__job_answer_record(once__job_t *job)
{
    once_record_t *record = &job->answer.record;
    const once__op_t *op = &job->op;

    if (op->head.state == ONCE_STATE_NONE && op->record == NULL) {
        return;
    }
    if (op->record != NULL) {
        job->answer.owned = op->record;
        record->owned = &job->answer.owned;
        record->data = *op->record;
        if (op->key != NULL && op->key_len == record->data.key_len) {
            /* Then `owned` is needed only for the payload, and can go when that is unpacked. */
            record->data.key = op->key;
            record->data.about = record->data.cause = once__slice(NULL, 0);
        }
        job->op.record = NULL;
    } else {
        memcpy(record->data.id, op->id, ONCE_ID_SIZE);
        memcpy(record->data.scope_hash, op->scope_hash, ONCE_SCOPE_HASH_SIZE);
        record->data.head = op->head;
        record->data.key = op->key;
        record->data.key_len = op->key_len;
    }
    record->now = op->now;
    record->seal = &job->once->options.seal;
    /* The context of the handle has one user at a time; with a thread there may be more. */
    record->zstd = job->once->threaded ? NULL : &job->once->zstd;
    record->unpacked = &job->answer.unpacked;
    job->answer.has_record = 1;
}

void once__job_deliver(once__job_t *job, int error, once_outcome_t outcome)
{
    once_t *once = job->once;

    if (job->delivered) {
        return;
    }
    job->delivered = 1;
    once__timer_stop(once->loop, &job->deadline_timer);
    assert_job_state(job);
    job->answer.error = error;
    job->answer.outcome = error == ONCE_OK ? outcome : ONCE_OUTCOME_NONE;
    if (job->cb != NULL) {
        once->callbacks++;
        once->depth++;
        job->cb(once, &job->answer, job->data);
        once->depth--;
    }
    /* A claim that was not taken will not be run, unless the answer was kept: then it can still be taken. */
    if (job->refs == 1 && job->answer.claim != NULL) {
        once__claim_give_back(job->answer.claim);
        job->answer.claim = NULL;
    }
}

int once__job_gives_up(const once_t *once)
{
    const once__store_vt_t *vt = once->store->vt;

    return !once->options.insist && vt->is_away != NULL && vt->is_away(once->store);
}

void once__job_reply_plain(once__job_t *job)
{
    if (once__is_transient(job->op.error) && !once__job_gives_up(job->once)) {
        if (job->delivered) {
            once__job_end(job);
        } else {
            (void)once__job_pause(job);
        }
        return;
    }
    if (job->op.error == ONCE_OK) {
        once__job_answer_record(job);
        job->answer.count = job->op.count;
    }
    /* The rules answer "busy" to writes on a record of a newer version. */
    if (job->op.error == ONCE_OK && job->op.kind == ONCE__OP_EVENT &&
        job->op.outcome == ONCE_OUTCOME_BUSY) {
        job->op.error = ONCE_E_NEWER;
    }
    once__job_deliver(job, job->op.error, (once_outcome_t)job->op.outcome);
    once__job_end(job);
}

void once__job_end(once__job_t *job)
{
    once_t *once = job->once;

    assert_job_state(job);
    assert(!job->submitted);
    once__timer_stop(once->loop, &job->pause_timer);
    once__timer_stop(once->loop, &job->deadline_timer);
    once__timers_release(once->loop);
    once__timers_release(once->loop);
    *job->place = job->next;
    if (job->next != NULL) {
        job->next->place = job->place;
    }
    once->job_count -= job->counted ? 1 : 0;
    free(job->op.record);
    free(job->payload);
    job->op.record = NULL;
    job->payload = NULL;
    if (job->claim != NULL) {
        once__claim_unref(job->claim);
        job->claim = NULL;
    }
    if (job->ended != NULL) {
        job->ended(job);
    }
    once__job_unref(job);
}

void once__job_kill(once__job_t *job)
{
    once__job_deliver(job, ONCE_E_CLOSED, ONCE_OUTCOME_NONE);
    once__job_end(job);
}

void once__job_unref(once__job_t *job)
{
    job->refs--;
    if (job->refs > 0) {
        return;
    }
    once__unpacked_free(&job->answer.unpacked);
    free(job->answer.owned);
    once__handle_free(job->once, job);
}
