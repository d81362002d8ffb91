/*
 * The thread that decides and commits: batches, each with one sync. Over a simulated loop the handle's owner does the same in two
 * halves.
 */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "store/local/local.h"

#define RETRY_MS 2 /* pause before operations whose shard was locked are tried again */
#define PATIENCE                                                                                   \
    4 /* they are given up after this part of the store's timeout: the host tries again itself */

static once__decided_t apply(once__local_t *local, once__op_t *op)
{
    switch (op->kind) {
    case ONCE__OP_EVENT:
        if (op->event.kind == ONCE__CLAIM && !once__local_fits(local, op)) {
            once__op_clear(op);
            op->error = ONCE_E_SECRET;
            return ONCE__DECIDED_NOW;
        }
        return once__records_apply(&local->records, op);
    case ONCE__OP_GET:
        return once__records_apply(&local->records, op);
    case ONCE__OP_SECRETS_LOAD:
    case ONCE__OP_SECRETS_SWAP:
        once__local_secrets(local, op);
        return ONCE__DECIDED_NOW;
    case ONCE__OP_AUDIT_READ:
    case ONCE__OP_AUDIT_ADD:
        once__local_audit(local, op);
        return ONCE__DECIDED_NOW;
    case ONCE__OP_REAP:
    case ONCE__OP_SCAN:
    case ONCE__OP_STATS:
        once__local_chore(local, op); /* threadless */
        return ONCE__DECIDED_NOW;
    }
    return ONCE__DECIDED_NOW;
}

static int is_chore(const once__local_t *local, const once__op_t *op)
{
    return !local->threadless &&
           (op->kind == ONCE__OP_REAP || op->kind == ONCE__OP_SCAN || op->kind == ONCE__OP_STATS);
}

static void note_failure(once__local_t *local)
{
    if (once__log_failed(local->records.log)) {
        atomic_store(&local->failed, 1);
    }
}

void once__local_retire(const once__local_t *local, once__log_t *log)
{
    const once__index_t *index = local->directory.log.index;
    uint32_t slot = once__log_slot(log);

    if (slot != UINT32_MAX &&
        once__segment_is_dead(once__index_segment(index, slot), once__index_now(index))) {
        (void)once__log_retire(log);
    }
}

/* Nothing was applied. */
static void refuse(once__op_t *op)
{
    once__op_clear(op);
    op->error = ONCE_E_UNAVAILABLE;
}

/* After a failed sync it is not known what is on the disk. */
static void fail_all(once__oplist_t *list)
{
    for (once__op_t *op = list->first; op != NULL; op = op->next) {
        free(op->record);
        op->record = NULL;
        op->error = ONCE_E_NOREPLY;
    }
}

/* An operation that finds its shard locked waits, the others go on. op->now has the time until which it is tried. */
static void defer(once__local_t *local, once__op_t *op, uint64_t until, once__oplist_t *now)
{
    if (until != 0 && local->records.clock >= until) {
        refuse(op);
        once__oplist_add(now, op);
        return;
    }
    op->now = until != 0 ? until : local->records.clock + local->timeout_ms / PATIENCE + 1;
    once__oplist_add(&local->deferred, op);
}

static void decide_list(once__local_t *local, once__oplist_t *list, int is_again,
                        once__oplist_t *now, once__oplist_t *later)
{
    once__op_t *op = list->first;

    once__oplist_init(list);
    while (op != NULL) {
        once__op_t *next = op->next;
        uint64_t until = is_again ? op->now : 0;
        if (atomic_load(&local->failed)) {
            refuse(op);
            once__oplist_add(now, op);
        } else if (is_chore(local, op)) {
            once__oplist_add(&local->handed, op);
        } else {
            switch (apply(local, op)) {
            case ONCE__DECIDED_NOW:
                once__oplist_add(now, op);
                break;
            case ONCE__DECIDED_SYNC:
                once__oplist_add(later, op);
                break;
            case ONCE__DECIDED_LATER:
                defer(local, op, until, now);
                break;
            }
            note_failure(local);
        }
        op = next;
    }
}

/* Answers what need not wait; the rest is moved to `later`. */
static void decide_batch(once__local_t *local, once__oplist_t *batch, once__oplist_t *later)
{
    once__oplist_t now, again;

    once__oplist_init(&now);
    once__oplist_init(&again);
    once__oplist_move(&again, &local->deferred);
    if (!once__index_is_named(local->records.index)) {
        atomic_store(&local->failed, 1); /* others work with another index */
    }
    local->mark.fits = -1;
    local->records.clock = once__index_now(local->records.index);
    once__records_count(&local->records);
    once__records_expect(&local->records, batch->first);
    decide_list(local, &again, 1, &now, later);
    decide_list(local, batch, 0, &now, later);
    once__local_answer(local, &now);
}

/* The sync is also for what nothing waits for: until then, other processes take those records for busy. */
static void commit_batch(once__local_t *local, once__oplist_t *later)
{
    if (once__log_sync(local->records.log) != ONCE_OK) {
        fail_all(later);
        note_failure(local);
    }
    once__local_answer(local, later);
}

/* Chores are for the maintenance thread, which gets them when what came before was answered. */
static void hand_over(once__local_t *local)
{
    int wants_next = once__log_wants_next(local->records.log);

    for (const once__op_t *op = local->handed.first; op != NULL; op = op->next) {
        if (op->kind == ONCE__OP_REAP && op->thorough) {
            once__local_retire(local, local->records.log);
            note_failure(local);
        }
    }
    if (local->handed.first != NULL || wants_next) {
        (void)pthread_mutex_lock(&local->lock);
        once__oplist_move(&local->chores, &local->handed);
        local->wants_next |= wants_next;
        (void)pthread_cond_signal(&local->upkeep);
        (void)pthread_mutex_unlock(&local->lock);
    }
}

/* The lock is held. 1: there is something to do. */
static int wait_for_work(once__local_t *local)
{
    if (local->queue.first != NULL || local->forget || local->stop) {
        return 1;
    }
    if (local->deferred.first != NULL) {
        struct timespec until;
        (void)clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += RETRY_MS * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000L;
        until.tv_nsec %= 1000000000L;
        return pthread_cond_timedwait(&local->work, &local->lock, &until) == ETIMEDOUT;
    }
    (void)pthread_cond_wait(&local->work, &local->lock);
    return 0;
}

void *once__local_write(void *data)
{
    once__local_t *local = data;
    once__oplist_t batch, later;
    int forget;

    once__oplist_init(&batch);
    once__oplist_init(&later);
    (void)pthread_mutex_lock(&local->lock);
    while (!local->stop || local->queue.first != NULL) {
        if (!wait_for_work(local)) {
            continue;
        }
        forget = local->forget;
        local->forget = 0;
        once__oplist_move(&batch, &local->queue);
        (void)pthread_mutex_unlock(&local->lock);
        if (forget) {
            once__reader_forget(local->records.reader);
        }
        if (batch.first != NULL || local->deferred.first != NULL) {
            decide_batch(local, &batch, &later);
            commit_batch(local, &later);
            hand_over(local);
        }
        (void)pthread_mutex_lock(&local->lock);
    }
    (void)pthread_mutex_unlock(&local->lock);
    for (once__op_t *op = local->deferred.first; op != NULL; op = op->next) {
        refuse(op);
    }
    once__local_answer(local, &local->deferred);
    return NULL;
}

void once__local_decide(once__store_t *store)
{
    once__local_t *local = (once__local_t *)store;
    once__oplist_t batch;

    once__oplist_init(&batch);
    once__oplist_move(&batch, &local->queue);
    decide_batch(local, &batch, &local->decided);
}

void once__local_commit(once__store_t *store)
{
    once__local_t *local = (once__local_t *)store;

    commit_batch(local, &local->decided);
}
