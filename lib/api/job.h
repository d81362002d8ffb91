/*
 * A job: one call on a handle, from its acceptance to its end.
 *
 * It owns one store operation that is submitted, answered, and perhaps submitted again after a pause. The caller is told once
 * (once__job_tell); the job may go on after that, detached, until what was promised is done. The answer that the caller is
 * given lives inside the job, so that telling him cannot fail.
 *
 *   submit --> reply() --+--> once__job_tell --> once__job_end
 *     ^                  |
 *     +--- pause <-------+   deadline(): store_timeout is over and the caller has waited enough
 */
#ifndef ONCE_API_JOB_H
#define ONCE_API_JOB_H

#include "api/handle.h"
#include "core/response.h"

typedef struct once__job once__job_t;

struct once_record {
    once__record_t data;    /* points into what `owned` names, or into the job */
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
    once__record_t
        *owned; /* what the store gave; NULL: nothing, or its response was unpacked elsewhere */
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
    void (*ended)(once__job_t *job); /* gives up what the kind of job holds besides; may be NULL */
    once__timer_t pause_timer;
    once__timer_t deadline_timer;
    unsigned attempts;
    unsigned refs; /* the handle, and a kept answer */
    int is_write;  /* a completion, release or doubt: must not be abandoned lightly */
    int counted;   /* a graceful end waits for it */
    int submitted;
    int reply_lost; /* at least once: an earlier try may have been applied */
    int told;
    once_cb cb;
    void *data;
    once_claim_t *claim;
    uint8_t *payload; /* owned copy of what op.payload points to */
    once_answer_t answer;
};

/* `size` bytes, zeroed, beginning with the job. NULL: once__no_job says why. */
once__job_t *once__job_new(once_t *once, size_t size, once_cb cb, void *data);
int once__no_job(const once_t *once);

/* An accepted job without any special ways: tells its answer as it is, repeats until the deadline while the store is away. */
void once__job_reply_plain(once__job_t *job);
void once__job_deadline_plain(once__job_t *job);

void once__job_submit(once__job_t *job);

/* Submits again after a pause that grows; from the first time on, the deadline is watched. Returns when that will be. */
uint64_t once__job_pause(once__job_t *job);
void once__job_watch_deadline(once__job_t *job);

/* The store has answered: earlier failures do not count any more. */
void once__job_well_again(once__job_t *job);

/* Can the same operation be tried again with a hope for another answer? */
int once__is_transient(int error);
/* Will the same operation fail for ever, whatever becomes of the store? */
int once__is_hopeless(int error);

/* Fills the answer's record from the operation's. Takes op.record over. */
void once__job_answer_record(once__job_t *job);

/* Calls the callback, once. `error` not ONCE_OK: the answer has no outcome. */
void once__job_tell(once__job_t *job, int error, once_outcome_t outcome);

void once__job_end(once__job_t *job);

/* After a hard end: tells ONCE_E_CLOSED and ends. */
void once__job_kill(once__job_t *job);

void once__job_unref(once__job_t *job);

#endif
