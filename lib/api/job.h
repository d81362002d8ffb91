/*
 * A job: one call on a handle, from its acceptance to its end.
 *
 * It owns one store operation that is submitted, answered, and perhaps submitted again after a pause. The callback is called once
 * (once__job_deliver); the job may go on after that, without the caller, until what was promised is done. The answer that the
 * callback receives is part of the job, so delivering it cannot fail.
 *
 *   submit --> reply() --+--> once__job_deliver --> once__job_end
 *     ^                  |
 *     +--- pause <-------+   deadline(): store_timeout is over, and the caller has waited long enough
 *
 * What holds between calls until once__job_end (assert_job_state in job.c):
 *   I-1  there is at least one reference, and the job is in the list of its handle
 *   I-2  an operation that is submitted is not waiting to be submitted
 *   I-3  there is no deadline after the callback was called
 *   I-4  a submitted write has its claim, which is renewed until the store has it
 *   I-5  the handle counts the jobs that a graceful end waits for
 */
#ifndef ONCE_API_JOB_H
#define ONCE_API_JOB_H

#include "api/handle.h"
#include "core/response.h"

typedef struct once__job once__job_t;

struct once_record {
    once__record_t data;    /* points into `*owned`, or into the job */
    once__record_t **owned; /* of the answer; NULL: none */
    uint64_t now;
    const once__seal_keys_t *seal;
    once__zstd_t *zstd;
    once__unpacked_t *unpacked; /* filled when the response is asked for */
};

struct once_answer {
    once__job_t *job;
    int error;
    once_outcome_t outcome;
    int has_record;
    once_record_t record;
    /* the record from the store; NULL: none, or its response was unpacked elsewhere */
    once__record_t *owned;
    once__unpacked_t unpacked;
    once_claim_t *claim; /* not yet taken */
    uint64_t count;
    uint64_t damaged; /* scan */
    int has_stats;
    once_stats_t stats;
};

struct once__job {
    once__op_t op;
    once_t *once;
    once__job_t *next, **place; /* in once->jobs */
    void (*reply)(once__job_t *job);
    void (*deadline)(once__job_t *job);
    void (*ended)(once__job_t *job); /* frees what this kind of job holds besides; may be NULL */
    once__timer_t pause_timer;
    once__timer_t deadline_timer;
    unsigned attempts;
    unsigned refs; /* the handle, and a kept answer */
    int is_write;  /* a completion, release or doubt */
    int counted;   /* a graceful end waits for it */
    int submitted;
    int reply_lost; /* at least once: an earlier attempt may have been applied */
    int delivered;  /* to the callback */
    once_cb cb;
    void *data;
    once_claim_t *claim;
    uint8_t *payload; /* owned copy of what op.payload points to */
    once_answer_t answer;
};

/* Creates a job of `size` bytes, zeroed, that begin with a once__job_t. NULL: once__no_job says why. */
once__job_t *once__job_new(once_t *once, size_t size, once_cb cb, void *data);
int once__no_job(const once_t *once);

/*
 * A public call that consists of one plain job: enters the handle and creates the job. On ONCE_OK the caller fills it in and calls
 * once__job_start, which submits it and leaves the handle.
 */
int once__job_enter(once_t *once, once_cb cb, void *data, once__job_t **job);
void once__job_start(once__job_t *job);

/* The cause that the operation brings, copied behind the job: it was made with ONCE_CAUSE_MAX bytes more. */
void once__job_set_cause(once__job_t *job, once_slice_t cause);

/* What most jobs do: deliver the answer as it is, and repeat until the deadline while the store is away. */
void once__job_reply_plain(once__job_t *job);
void once__job_submit(once__job_t *job);

/* Submits again after a pause that grows; starts the deadline with the first. Returns when that will be. */
uint64_t once__job_pause(once__job_t *job);
void once__job_watch_deadline(once__job_t *job);

/* The store has answered: forgets earlier failures. */
void once__job_well_again(once__job_t *job);

/* Whether the same operation may succeed if it is repeated soon. */
int once__is_transient(int error);
/* Whether not even that makes sense: the store was never reached, and the handle does not insist. */
int once__job_gives_up(const once_t *once);
/* Whether the same operation will always fail, whatever becomes of the store. */
int once__is_hopeless(int error);

/* Fills the record of the answer from the operation; owns op.record afterwards. */
void once__job_answer_record(once__job_t *job);

/* Calls the callback, unless it was called before. With an error the answer has no outcome. */
void once__job_deliver(once__job_t *job, int error, once_outcome_t outcome);

void once__job_end(once__job_t *job);

/* Ends the job with ONCE_E_CLOSED. */
void once__job_kill(once__job_t *job);

void once__job_unref(once__job_t *job);

#endif
