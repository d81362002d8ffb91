#include "api/thread.h"

#include <time.h>

#include "api/dispatch.h"
#include "base/error.h"

static void *run(void *data)
{
    once_t *once = data;

    (void)pthread_mutex_lock(&once->lock);
    while (!once->thread_stop) {
        (void)pthread_mutex_unlock(&once->lock);
        (void)once__loop_wait(once->loop, -1);
        (void)pthread_mutex_lock(&once->lock);
        (void)once__dispatch_locked(once);
    }
    (void)pthread_mutex_unlock(&once->lock);
    return NULL;
}

static int make_lock(once_t *once)
{
    pthread_mutexattr_t recursive;
    pthread_condattr_t monotonic;
    int failed;

    (void)pthread_mutexattr_init(&recursive);
    (void)pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    failed = pthread_mutex_init(&once->lock, &recursive);
    if (!failed) {
        failed = pthread_cond_init(&once->changed, &monotonic);
        if (failed) {
            (void)pthread_mutex_destroy(&once->lock);
        }
    }
    (void)pthread_condattr_destroy(&monotonic);
    (void)pthread_mutexattr_destroy(&recursive);
    return failed ? -1 : 0;
}

int once__thread_start(once_t *once, once_error_t *err)
{
    if (make_lock(once) != 0) {
        return once__fail(err, ONCE_E_NOMEM, "%s", once_error_text(ONCE_E_NOMEM));
    }
    once->threaded = 1;
    if (pthread_create(&once->thread, NULL, run, once) != 0) {
        once->threaded = 0;
        (void)pthread_cond_destroy(&once->changed);
        (void)pthread_mutex_destroy(&once->lock);
        return once__fail(err, ONCE_E_NOMEM, "cannot start the handle's thread");
    }
    return ONCE_OK;
}

void once__thread_end(once_t *once)
{
    once->thread_stop = 1;
    once__loop_wake(once->loop);
    (void)pthread_mutex_unlock(&once->lock);
    (void)pthread_join(once->thread, NULL);
    (void)pthread_mutex_lock(&once->lock);
}

void once__thread_notify(once_t *once)
{
    if (once->threaded) {
        (void)pthread_cond_broadcast(&once->changed);
    }
}

void once__thread_await(once_t *once, uint64_t until_ms)
{
    uint64_t now = once__loop_now(once->loop);
    struct timespec until;

    if (until_ms == UINT64_MAX) {
        (void)pthread_cond_wait(&once->changed, &once->lock);
        return;
    }
    if (until_ms <= now) {
        return;
    }
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)((until_ms - now) / 1000);
    until.tv_nsec += (long)((until_ms - now) % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    (void)pthread_cond_timedwait(&once->changed, &once->lock, &until);
}
