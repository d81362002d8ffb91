/*
 * Looking at records from any thread: each looks through a log of its own, and takes no lock of the index.
 */
#include "store/local/local_inside.h"

#define TOGETHER 64

void once__recallers_open(once__local_t *local)
{
    for (size_t i = 0; i < ONCE__RECALLERS; i++) {
        once__recaller_t *recaller = &local->recallers[i];
        (void)pthread_mutex_init(&recaller->lock, NULL);
        recaller->records = local->records;
        recaller->records.log = NULL; /* opened when it is needed */
    }
}

void once__recallers_abandon(once__local_t *local)
{
    for (size_t i = 0; i < ONCE__RECALLERS; i++) {
        once__log_abandon(local->recallers[i].records.log);
    }
}

void once__recallers_close(once__local_t *local)
{
    once__recallers_abandon(local);
    for (size_t i = 0; i < ONCE__RECALLERS; i++) {
        (void)pthread_mutex_destroy(&local->recallers[i].lock);
    }
}

/* Locked. Whoever finds all of them busy waits for the first: not long. */
static once__recaller_t *take(once__local_t *local)
{
    for (size_t i = 0; i < ONCE__RECALLERS; i++) {
        if (pthread_mutex_trylock(&local->recallers[i].lock) == 0) {
            return &local->recallers[i];
        }
    }
    (void)pthread_mutex_lock(&local->recallers[0].lock);
    return &local->recallers[0];
}

/* Those that are in use come to it by themselves. */
void once__recallers_forget(once__local_t *local)
{
    for (size_t i = 0; i < ONCE__RECALLERS; i++) {
        once__recaller_t *recaller = &local->recallers[i];
        if (pthread_mutex_trylock(&recaller->lock) == 0) {
            if (recaller->records.log != NULL) {
                once__log_forget_readers(recaller->records.log);
            }
            (void)pthread_mutex_unlock(&recaller->lock);
        }
    }
}

/*
 * At most TOGETHER. One step for all of them before the next: the processor fetches what that needs of many records at a time.
 */
static void look_at_some(once__records_t *records, once__lookup_t *looks, size_t count)
{
    once__peek_t peeks[TOGETHER];
    size_t known[TOGETHER], found = 0;

    for (size_t i = 0; i < count; i++) {
        once__index_expect_shard_to_peek(records->index, looks[i].id);
    }
    for (size_t i = 0; i < count; i++) {
        once__index_expect_to_peek(records->index, looks[i].id);
    }
    for (size_t i = 0; i < count; i++) {
        if (once__records_peek(records, looks[i].id, &peeks[found])) {
            known[found++] = i;
        }
    }
    for (size_t i = 0; i < found; i++) {
        once__log_expect_claim(records->log, peeks[i].entry.place);
    }
    for (size_t i = 0; i < found; i++) {
        looks[known[i]].found = once__records_recall(records, &looks[known[i]], &peeks[i]);
    }
}

/* Returns whether segments were dropped since this one looked last. */
static int look(const once__local_t *local, once__recaller_t *recaller, once__lookup_t *looks,
                size_t count)
{
    once__records_t *records = &recaller->records;
    int dropped;

    if (records->log == NULL) {
        records->log = once__log_open(&local->log_config);
    }
    if (records->log == NULL) {
        return 0; /* and nothing is found */
    }
    dropped = once__records_begin_glances(records, &recaller->first_segment);
    for (size_t i = 0; i < count; i += TOGETHER) {
        look_at_some(records, looks + i, count - i < TOGETHER ? count - i : TOGETHER);
    }
    return dropped;
}

void once__local_recall(once__store_t *store, once__lookup_t *looks, size_t count)
{
    once__local_t *local = (once__local_t *)store;
    once__recaller_t *recaller;
    int dropped;

    if (atomic_load(&local->failed) || once__local_is_lost(local)) {
        return;
    }
    recaller = take(local);
    dropped = look(local, recaller, looks, count);
    (void)pthread_mutex_unlock(&recaller->lock);
    if (dropped) {
        once__recallers_forget(local);
    }
}
