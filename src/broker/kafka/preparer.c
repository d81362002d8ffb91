#include "broker/kafka/preparer.h"

#include <assert.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#define STEP    256 /* items that are prepared before the owner is woken */
#define NOTHING SIZE_MAX

enum { THREAD, OWNER, WORKERS };

/*
 * What holds whenever the lock is free (assert_preparer_state, with the lock):
 *   I-1  items are begun in the order in which they were given
 *   I-2  a worker prepares what was begun, and the two do not prepare the same
 * and for the owner:
 *   I-3  no more items are open than the ring holds, and none is taken back before it is prepared
 */
struct once__kafka_preparer {
    once__kafka_prepare_cb *prepare;
    void *data;
    int wake_fd;
    int stop;
    pthread_t thread;
    pthread_mutex_t lock; /* guards everything below except `taken` and the ring */
    pthread_cond_t changed;
    int waiting;         /* the thread waits for something to do */
    size_t given, begun; /* counts of items that were given, and that a worker has started */
    size_t at[WORKERS];  /* the first item that each worker is preparing; NOTHING: it is idle */
    size_t taken;        /* count of items that the owner took back */
    void *ring[ONCE__KAFKA_PREPARER_ROOM];
};

/* The end of the next step: contiguous in the ring, and at most STEP. */
static size_t step_end(size_t from, size_t to)
{
    size_t wrap = (from / ONCE__KAFKA_PREPARER_ROOM + 1) * ONCE__KAFKA_PREPARER_ROOM;

    to = to < wrap ? to : wrap;
    return to - from > STEP ? from + STEP : to;
}

static size_t prepared(const once__kafka_preparer_t *preparer)
{
    size_t to = preparer->begun;

    for (size_t i = 0; i < WORKERS; i++) {
        to = preparer->at[i] < to ? preparer->at[i] : to;
    }
    return to;
}

static void assert_preparer_state(const once__kafka_preparer_t *preparer)
{
    assert(preparer->begun <= preparer->given); /* I-1 */
    for (size_t i = 0; i < WORKERS; i++) {
        assert(preparer->at[i] == NOTHING || preparer->at[i] < preparer->begun); /* I-2 */
    }
    assert(preparer->at[THREAD] == NOTHING || preparer->at[THREAD] != preparer->at[OWNER]);
}

/* Called with the lock, which it releases while preparing. Returns the number of items. */
static size_t prepare_some(once__kafka_preparer_t *preparer, int worker)
{
    size_t from = preparer->begun, to = step_end(from, preparer->given);

    assert(preparer->at[worker] == NOTHING && from < to);
    preparer->begun = to;
    preparer->at[worker] = from;
    assert_preparer_state(preparer);
    pthread_mutex_unlock(&preparer->lock);
    preparer->prepare(preparer->data, preparer->ring + from % ONCE__KAFKA_PREPARER_ROOM, to - from);
    pthread_mutex_lock(&preparer->lock);
    preparer->at[worker] = NOTHING;
    return to - from;
}

static void tell(const once__kafka_preparer_t *preparer)
{
    static const uint64_t one = 1;
    ssize_t written = write(preparer->wake_fd, &one, sizeof(one));

    (void)written; /* EAGAIN: it is readable already */
}

static void *run(void *data)
{
    once__kafka_preparer_t *preparer = data;

    (void)pthread_setname_np(pthread_self(), "prepare");
    pthread_mutex_lock(&preparer->lock);
    while (!preparer->stop) {
        if (preparer->begun == preparer->given) {
            preparer->waiting = 1;
            pthread_cond_wait(&preparer->changed, &preparer->lock);
            preparer->waiting = 0;
            continue;
        }
        (void)prepare_some(preparer, THREAD);
        pthread_mutex_unlock(&preparer->lock);
        tell(preparer);
        pthread_mutex_lock(&preparer->lock);
    }
    pthread_mutex_unlock(&preparer->lock);
    return NULL;
}

once__kafka_preparer_t *once__kafka_preparer_new(once__kafka_prepare_cb *prepare, void *data,
                                                 int wake_fd)
{
    once__kafka_preparer_t *preparer = calloc(1, sizeof(*preparer));

    if (preparer == NULL) {
        return NULL;
    }
    preparer->prepare = prepare;
    preparer->data = data;
    preparer->wake_fd = wake_fd;
    preparer->at[THREAD] = preparer->at[OWNER] = NOTHING;
    pthread_mutex_init(&preparer->lock, NULL);
    pthread_cond_init(&preparer->changed, NULL);
    if (pthread_create(&preparer->thread, NULL, run, preparer) != 0) {
        preparer->stop = 1;
        once__kafka_preparer_free(preparer);
        return NULL;
    }
    return preparer;
}

void once__kafka_preparer_stop(once__kafka_preparer_t *preparer)
{
    if (preparer == NULL || preparer->stop) {
        return;
    }
    pthread_mutex_lock(&preparer->lock);
    preparer->stop = 1;
    pthread_cond_signal(&preparer->changed);
    pthread_mutex_unlock(&preparer->lock);
    pthread_join(preparer->thread, NULL);
    preparer->begun = preparer->given;
}

void once__kafka_preparer_free(once__kafka_preparer_t *preparer)
{
    if (preparer != NULL) {
        once__kafka_preparer_stop(preparer);
        pthread_cond_destroy(&preparer->changed);
        pthread_mutex_destroy(&preparer->lock);
        free(preparer);
    }
}

size_t once__kafka_preparer_open(const once__kafka_preparer_t *preparer)
{
    return preparer->given - preparer->taken;
}

void once__kafka_preparer_give(once__kafka_preparer_t *preparer, void *const *things, size_t count)
{
    int waiting;

    assert(count <= ONCE__KAFKA_PREPARER_ROOM - once__kafka_preparer_open(preparer)); /* I-3 */
    for (size_t i = 0; i < count; i++) {
        preparer->ring[(preparer->given + i) % ONCE__KAFKA_PREPARER_ROOM] = things[i];
    }
    pthread_mutex_lock(&preparer->lock);
    preparer->given += count;
    waiting = preparer->waiting;
    pthread_mutex_unlock(&preparer->lock);
    if (waiting) {
        pthread_cond_signal(&preparer->changed);
    }
}

size_t once__kafka_preparer_help(once__kafka_preparer_t *preparer)
{
    size_t count = 0;

    pthread_mutex_lock(&preparer->lock);
    if (preparer->begun != preparer->given) {
        count = prepare_some(preparer, OWNER);
    }
    pthread_mutex_unlock(&preparer->lock);
    return count;
}

size_t once__kafka_preparer_take(once__kafka_preparer_t *preparer, void **things, size_t most)
{
    size_t count;

    pthread_mutex_lock(&preparer->lock);
    assert_preparer_state(preparer);
    assert(preparer->taken <= prepared(preparer)); /* I-3 */
    count = prepared(preparer) - preparer->taken;
    pthread_mutex_unlock(&preparer->lock);
    count = count < most ? count : most;
    for (size_t i = 0; i < count; i++) {
        things[i] = preparer->ring[preparer->taken++ % ONCE__KAFKA_PREPARER_ROOM];
    }
    return count;
}
