/*
 * The thread that decides and commits: batches, each with one sync. Over a simulated loop its owner does the same in two halves.
 */
#include "store/local/local_inside.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static void give_answers(once__local_t *local, once__oplist_t *answers)
{
    static const uint64_t one = 1;
    int was_empty;

    if (answers->first == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&local->lock);
    was_empty = local->answers.first == NULL;
    once__oplist_move(&local->answers, answers);
    (void)pthread_mutex_unlock(&local->lock);
    if (was_empty && !local->threadless) {
        while (write(local->source.fd, &one, sizeof(one)) < 0 && errno == EINTR) {
        }
    }
}

/* Whether the answer waits for the sync. */
static int apply(once__local_t *local, once__op_t *op)
{
    switch (op->kind) {
    case ONCE__OP_EVENT:
        if (op->event.kind == ONCE__CLAIM && !once__local_fits(local, op)) {
            once__op_clear(op);
            op->error = ONCE_E_SECRET;
            return 0;
        }
        return once__records_apply(&local->records, op);
    case ONCE__OP_GET:
        return once__records_apply(&local->records, op);
    case ONCE__OP_SCAN:
        once__records_scan(&local->records, op);
        return 0;
    case ONCE__OP_REAP:
        once__local_reap(local, op);
        once__summariser_go(&local->summariser);
        return 0;
    case ONCE__OP_STATS:
        once__local_stats(local, op);
        return 0;
    case ONCE__OP_SECRETS_LOAD:
    case ONCE__OP_SECRETS_SWAP:
        once__local_secrets(local, op);
        return 0;
    }
    return 0;
}

/* After a failed sync nobody knows what is on the disk: whoever waited is told that, and nothing more is done. */
static void fail_all(once__oplist_t *list, int error)
{
    for (once__op_t *op = list->first; op != NULL; op = op->next) {
        free(op->record);
        op->record = NULL;
        op->error = error;
    }
}

void once__local_expect(const once__local_t *local, const once__oplist_t *batch)
{
    for (const once__op_t *op = batch->first; op != NULL; op = op->next) {
        for (size_t at = 64; at < offsetof(once__op_t, filter); at += 64) {
            __builtin_prefetch((const char *)op + at, 1);
        }
        once__index_expect_shard(local->records.index, op->id);
    }
    for (const once__op_t *op = batch->first; op != NULL; op = op->next) {
        once__index_expect(local->records.index, op->id);
    }
}

int once__local_is_lost(once__local_t *local)
{
    if (!atomic_load(&local->lost) &&
        !once__index_is_whole(local->records.index, local->directory.fd)) {
        atomic_store(&local->lost, 1);
        atomic_store(&local->failed, 1);
    }
    return atomic_load(&local->lost);
}

static void refuse_all(once__oplist_t *list)
{
    for (once__op_t *op = list->first; op != NULL; op = op->next) {
        op->record = NULL;
        op->error = ONCE_E_UNAVAILABLE;
    }
}

/* Answers what need not wait; the rest is moved to `later`. */
static void decide_batch(once__local_t *local, once__oplist_t *batch, once__oplist_t *later)
{
    once__oplist_t now;
    once__op_t *op = batch->first;

    once__oplist_init(&now);
    if (once__local_is_lost(local)) {
        refuse_all(batch);
        give_answers(local, batch);
        return;
    }
    once__local_expect(local, batch);
    local->mark.fits = -1;
    local->records.clock = once__index_now(local->records.index);
    once__records_count(&local->records);
    while (op != NULL) {
        once__op_t *next = op->next;
        if (once__log_failed(local->records.log)) {
            op->error = ONCE_E_UNAVAILABLE;
            op->record = NULL;
            once__oplist_add(&now, op);
        } else {
            once__oplist_add(apply(local, op) ? later : &now, op);
        }
        op = next;
    }
    give_answers(local, &now);
}

/* The sync is also for what nobody waits for: until then, other processes take the record for busy. */
static void commit_batch(once__local_t *local, once__oplist_t *later)
{
    if (once__local_is_lost(local)) {
        fail_all(later, ONCE_E_NOREPLY);
    } else if (once__log_sync(local->records.log) != ONCE_OK) {
        fail_all(later, ONCE_E_NOREPLY);
        atomic_store(&local->failed, once__log_failed(local->records.log));
    }
    give_answers(local, later);
}

static void run_batch(once__local_t *local, once__oplist_t *batch)
{
    once__oplist_t later;

    once__oplist_init(&later);
    decide_batch(local, batch, &later);
    commit_batch(local, &later);
}

void *once__local_write(void *data)
{
    once__local_t *local = data;
    once__oplist_t batch;

    once__oplist_init(&batch);
    (void)pthread_mutex_lock(&local->lock);
    for (;;) {
        while (local->queue.first == NULL && !local->stop) {
            (void)pthread_cond_wait(&local->work, &local->lock);
        }
        if (local->queue.first == NULL) {
            break;
        }
        once__oplist_move(&batch, &local->queue);
        (void)pthread_mutex_unlock(&local->lock);
        run_batch(local, &batch);
        once__oplist_init(&batch);
        (void)pthread_mutex_lock(&local->lock);
    }
    (void)pthread_mutex_unlock(&local->lock);
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
