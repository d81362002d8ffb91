/*
 * The thread that decides and commits: batches, each with one sync. Over a simulated loop the handle's owner does the same in two
 * halves.
 */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "store/local/local.h"

#define RETRY_MS 2 /* pause before operations whose shard was locked are tried again */
#define MORE_MS  1 /* for what the host is about to hand over */
#define PATIENCE                                                                                   \
    4 /* they are given up after this part of the store's timeout: the host tries again itself */

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

static void refuse(once__op_t *op)
{
    once__op_clear(op);
    op->error = ONCE_E_UNAVAILABLE;
}

void once__local_refuse(once__oplist_t *list)
{
    for (once__op_t *op = list->first; op != NULL; op = op->next) {
        refuse(op);
    }
}

void once__local_doubt(once__oplist_t *list)
{
    for (once__op_t *op = list->first; op != NULL; op = op->next) {
        free(op->record);
        op->record = NULL;
        op->error = ONCE_E_NOREPLY;
    }
}

/* An operation that finds its shard locked waits until `until` (0: that is to be set, in op->now), the others go on. */
static once__oplist_t *defer(once__local_t *local, once__op_t *op, uint64_t until,
                             once__oplist_t *now)
{
    if (until != 0 && local->records.clock >= until) {
        refuse(op);
        return now;
    }
    op->now = until != 0 ? until : local->records.clock + local->timeout_ms / PATIENCE + 1;
    return &local->deferred;
}

/* What the thread that decides has to do about it: the rest is compaction. */
static void begin_scrub(once__local_t *local, once__op_t *op)
{
    int is_over;

    op->error = once__erasing_begin(&local->records.erasing, &local->directory.log, &is_over);
    op->scrub = is_over ? ONCE__SCRUB_OVER : 1;
    once__log_renew(local->records.log);
    note_failure(local);
}

/* Decides an operation, or has it done. Returns the list that it goes to. */
static once__oplist_t *decide(once__local_t *local, once__op_t *op, uint64_t until,
                              once__oplist_t *now, once__oplist_t *later)
{
    once__decided_t decided = ONCE__DECIDED_NOW;

    if (atomic_load(&local->failed)) {
        refuse(op);
        return now;
    }
    switch (op->kind) {
    case ONCE__OP_EVENT:
    case ONCE__OP_GET:
        if (op->kind == ONCE__OP_EVENT && op->event.kind == ONCE__CLAIM &&
            !once__local_fits(local, op)) {
            once__op_clear(op);
            op->error = ONCE_E_SECRET;
        } else {
            decided = once__records_apply(&local->records, op);
        }
        break;
    case ONCE__OP_SECRETS_LOAD:
    case ONCE__OP_SECRETS_SWAP:
        once__local_secrets(local, op);
        break;
    case ONCE__OP_AUDIT_READ:
    case ONCE__OP_AUDIT_ADD:
        once__local_audit(local, op);
        break;
    case ONCE__OP_REAP:
    case ONCE__OP_SCAN:
    case ONCE__OP_STATS:
        if (op->scrub) {
            begin_scrub(local, op);
        }
        if (!local->threadless) {
            return &local->handed;
        }
        once__local_chore(local, op);
        break;
    }
    note_failure(local);
    return decided == ONCE__DECIDED_LATER  ? defer(local, op, until, now)
           : decided == ONCE__DECIDED_SYNC ? later
                                           : now;
}

static void decide_list(once__local_t *local, once__oplist_t *list, int is_again,
                        once__oplist_t *now, once__oplist_t *later)
{
    once__op_t *op = list->first;

    once__oplist_init(list);
    while (op != NULL) {
        once__op_t *next = op->next;
        once__oplist_add(decide(local, op, is_again ? op->now : 0, now, later), op);
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

/*
 * Syncs, and answers what was decided, unless the host has given it up meanwhile. The sync is also for what nothing waits for:
 * until then, other processes take those records for busy.
 */
static void commit_batch(once__local_t *local)
{
    int failed = once__log_sync(local->records.log) != ONCE_OK;
    once__oplist_t later;

    once__oplist_init(&later);
    (void)pthread_mutex_lock(&local->lock);
    once__oplist_move(&later, &local->decided);
    (void)pthread_mutex_unlock(&local->lock);
    if (failed) { /* it is not known what is on the disk */
        once__local_doubt(&later);
        note_failure(local);
    }
    once__local_answer(local, &later);
    once__log_renew(local->records.log);
    note_failure(local);
}

/* Chores are for the maintenance thread, which gets them when what came before was answered. */
static void hand_over(once__local_t *local)
{
    for (const once__op_t *op = local->handed.first; op != NULL; op = op->next) {
        if (op->kind == ONCE__OP_REAP && op->thorough) {
            once__local_retire(local, local->records.log);
            note_failure(local);
        }
    }
    if (local->handed.first != NULL) {
        (void)pthread_mutex_lock(&local->lock);
        once__oplist_move(&local->chores, &local->handed);
        (void)pthread_cond_signal(&local->upkeep);
        (void)pthread_mutex_unlock(&local->lock);
    }
}

static struct timespec time_in(long ms)
{
    struct timespec at;

    (void)clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_nsec += ms * 1000000L;
    at.tv_sec += at.tv_nsec / 1000000000L;
    at.tv_nsec %= 1000000000L;
    return at;
}

/* The lock is held. 1: the time is over. */
static int wait_until(once__local_t *local, const struct timespec *until)
{
    return pthread_cond_timedwait(&local->work, &local->lock, until) == ETIMEDOUT;
}

/* The lock is held. 1: there is something to do. */
static int wait_for_work(once__local_t *local)
{
    if (local->queue.first != NULL || local->forget || local->stop) {
        return 1;
    }
    if (local->deferred.first != NULL) {
        struct timespec until = time_in(RETRY_MS);
        return wait_until(local, &until);
    }
    (void)pthread_cond_wait(&local->work, &local->lock);
    return 0;
}

/*
 * The host is about to hand over more: it shares the sync. 1: there it is. What was decided waits no longer than until then, also
 * if a host asks without end for what needs no sync.
 */
static int wait_for_more(once__local_t *local, const struct timespec *until)
{
    struct timespec now = time_in(0);

    if (now.tv_sec > until->tv_sec ||
        (now.tv_sec == until->tv_sec && now.tv_nsec >= until->tv_nsec)) {
        return 0;
    }
    while (local->queue.first == NULL && local->more) {
        if (wait_until(local, until)) {
            return 0;
        }
    }
    return local->queue.first != NULL;
}

void *once__local_write(void *data)
{
    once__local_t *local = data;
    once__oplist_t batch, later;

    once__oplist_init(&batch);
    once__oplist_init(&later);
    (void)pthread_mutex_lock(&local->lock);
    while (!local->stop || local->queue.first != NULL) {
        struct timespec until;
        int forget, more;
        if (!wait_for_work(local)) {
            continue;
        }
        forget = local->forget;
        local->forget = 0;
        until = time_in(MORE_MS);
        local->busy = 1;
        do {
            once__oplist_move(&batch, &local->queue);
            (void)pthread_mutex_unlock(&local->lock);
            decide_batch(local, &batch, &later);
            (void)pthread_mutex_lock(&local->lock);
            more = wait_for_more(local, &until);
        } while (more);
        once__oplist_move(&local->decided, &later);
        (void)pthread_mutex_unlock(&local->lock);
        commit_batch(local);
        hand_over(local);
        if (forget) {
            once__reader_forget(local->records.reader);
        }
        (void)pthread_mutex_lock(&local->lock);
        local->rounds++;
        local->busy = 0;
    }
    (void)pthread_mutex_unlock(&local->lock);
    once__local_refuse(&local->deferred);
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

    commit_batch(local);
}
