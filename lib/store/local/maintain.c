/*
 * The thread that does what may take long: compacts, scans, counts.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "store/local/local.h"

#define PAUSE_NS 5000000 /* between two attempts while no segment may be dropped */
#define SCRUB_MS 1000    /* of one step, but for the segment that is begun */

static int is_closing(void *data)
{
    once__local_t *local = data;
    int stop;

    (void)pthread_mutex_lock(&local->lock);
    stop = local->stop;
    (void)pthread_mutex_unlock(&local->lock);
    return stop;
}

/* With the reader of compaction, which has no frame of it across a call of tend(). */
static void look(once__local_t *local, once__op_t *op)
{
    uint64_t bytes;

    once__reader_forget(local->own.reader);
    if (op->kind == ONCE__OP_SCAN) {
        once__records_scan(&local->own, op);
    } else {
        once__records_stats(&local->own, op, is_closing, local);
        once__directory_quarantine(&local->directory, &op->stats.quarantined, &bytes);
        op->stats.index_bytes = once__index_bytes(local->directory.log.index);
    }
}

/* Does the first operation there is, or the first but reap, and answers it. 1, or 0: there is none. */
static int do_chore(once__local_t *local, int with_reap)
{
    once__oplist_t answer;
    once__op_t **at, *op;

    once__oplist_init(&answer);
    (void)pthread_mutex_lock(&local->lock);
    at = &local->chores.first;
    while (*at != NULL && !with_reap && (*at)->kind == ONCE__OP_REAP) {
        at = &(*at)->next;
    }
    op = *at;
    if (op != NULL) {
        *at = op->next;
        local->chores.last = *at == NULL ? at : local->chores.last;
    }
    (void)pthread_mutex_unlock(&local->lock);
    if (op != NULL) {
        once__local_chore(local, op);
        once__oplist_add(&answer, op);
        once__local_answer(local, &answer);
    }
    return op != NULL;
}

/* What compaction must not hold up. 1: the handle is being closed. */
static int tend(void *data)
{
    int stop;

    while (!(stop = is_closing(data)) && do_chore(data, 0)) {
    }
    return stop;
}

/* ----------------------------------------------------------------------------------------------------------- reaping */

/* Waits for a backup or fsck, if the reap was asked for explicitly. */
static int compact(once__local_t *local, int thorough)
{
    const struct timespec pause = {0, PAUSE_NS};
    uint64_t until = once__index_now(local->directory.log.index) + local->timeout_ms;
    int code = once__records_compact(&local->own, &local->compaction);

    while (code == ONCE_E_CONFLICT && thorough && !local->threadless && !tend(local) &&
           once__index_now(local->directory.log.index) < until) {
        (void)nanosleep(&pause, NULL);
        code = once__records_compact(&local->own, &local->compaction);
    }
    if (code == ONCE_E_CONFLICT) {
        return thorough ? ONCE_E_UNAVAILABLE : ONCE_OK;
    }
    return code;
}

/* Closes the files of segments that were dropped, by whichever process, so that their room is free. */
static void forget_dropped(once__local_t *local)
{
    once__reader_forget(local->own.reader);
    once__local_forget(local);
    if (local->threadless) {
        once__reader_forget(local->records.reader);
        return;
    }
    (void)pthread_mutex_lock(&local->lock);
    local->forget = 1;
    (void)pthread_cond_signal(&local->work);
    (void)pthread_mutex_unlock(&local->lock);
}

/*
 * Of clearing away what was erased, one step: nothing is over before the thread that decides has found nothing left, and taken the
 * note away.
 */
static void reap(once__local_t *local, once__op_t *op)
{
    once__compaction_t *compaction = &local->compaction;
    int begun = op->scrub ? op->error : ONCE_OK;

    once__op_clear(op);
    op->now = once__index_now(local->directory.log.index);
    op->damaged = 0;
    if (begun != ONCE_OK || op->scrub == ONCE__SCRUB_OVER) {
        op->error = begun;
        return;
    }
    if (local->own.log == NULL &&
        (local->own.log = once__log_open(&local->directory.log)) == NULL) {
        op->error = ONCE_E_NOMEM;
        return;
    }
    once__log_renew(local->own.log);
    if (op->thorough) {
        once__local_retire(local, local->own.log);
    }
    if (op->thorough && local->threadless) { /* else the writer has done so with its own */
        once__local_retire(local, local->records.log);
    }
    compaction->thorough = op->thorough;
    compaction->limit = op->limit;
    compaction->until = op->scrub ? op->now + SCRUB_MS : 0;
    compaction->tend = local->threadless ? NULL : tend;
    compaction->data = local;
    compaction->removed = 0;
    op->error = compact(local, op->thorough || op->scrub);
    op->count = compaction->removed;
    if (op->scrub) {
        op->count = once__erasing_left(local->directory.log.index, &op->damaged);
        op->count += op->count == 0;
    }
    if (once__log_failed(local->own.log)) { /* the next one begins with a segment of its own */
        once__log_abandon(local->own.log);
        local->own.log = NULL;
    }
    forget_dropped(local);
}

void once__local_chore(once__local_t *local, once__op_t *op)
{
    if (op->kind == ONCE__OP_REAP) {
        reap(local, op);
    } else {
        look(local, op);
    }
}

void *once__local_maintain(void *data)
{
    once__local_t *local = data;

    (void)pthread_mutex_lock(&local->lock);
    while (!local->stop) {
        if (local->chores.first == NULL) {
            (void)pthread_cond_wait(&local->upkeep, &local->lock);
            continue;
        }
        (void)pthread_mutex_unlock(&local->lock);
        if (!tend(local)) {
            (void)do_chore(local, 1);
        }
        (void)pthread_mutex_lock(&local->lock);
    }
    (void)pthread_mutex_unlock(&local->lock);
    return NULL;
}
