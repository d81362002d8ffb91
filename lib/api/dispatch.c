#include "api/dispatch.h"

#include "api/begin.h"
#include "api/log.h"
#include "api/thread.h"

#define TURNS_MAX 64 /* then the host gets its turn; the descriptor stays readable */

static void tell_shutdown(once_t *once)
{
    once_shutdown_cb cb = once->shutdown_cb;

    if (!once->closing || once->job_count > 0 || cb == NULL) {
        return;
    }
    once->shutdown_cb = NULL;
    once->callbacks++;
    once->depth++;
    cb(once, once->shutdown_data);
    once->depth--;
}

int once__dispatch_locked(once_t *once)
{
    unsigned before = once->callbacks;
    int busy = 1;

    if (once->in_dispatch) {
        return 0;
    }
    once->in_dispatch = 1;
    once__loop_enter(once->loop);
    if (once->asks_to_close) {
        once->asks_to_close = 0;
        once__begin_close_all(once);
    }
    for (int turn = 0; turn < TURNS_MAX && busy && !once__loop_paused(once->loop); turn++) {
        busy = once__loop_run(once->loop);
        busy |= once->store->vt->dispatch(once->store) > 0;
        tell_shutdown(once);
    }
    if (busy) {
        once__loop_wake(once->loop);
    }
    once__log_store(once);
    once__loop_leave(once->loop);
    once->in_dispatch = 0;
    once__thread_notify(once);
    return (int)(once->callbacks - before);
}

int once_dispatch(once_t *once)
{
    int code = once__enter(once);

    if (code != ONCE_OK) {
        return code;
    }
    code = once__dispatch_locked(once);
    once__leave(once);
    return code;
}

/* The time left, for poll(). */
static int left_ms(const once_t *once, uint64_t until_ms)
{
    uint64_t now = once__loop_now(once->loop);

    if (until_ms == UINT64_MAX) {
        return -1;
    }
    if (until_ms <= now) {
        return 0;
    }
    return until_ms - now > 1000000 ? 1000000 : (int)(until_ms - now);
}

void once__block(once_t *once, once__is_done is_done, const void *data, uint64_t until_ms)
{
    while (!is_done(once, data) && once__loop_now(once->loop) < until_ms) {
        if (once->threaded) {
            once__thread_await(once, until_ms);
        } else {
            (void)once__loop_wait(once->loop, left_ms(once, until_ms));
            (void)once__dispatch_locked(once);
        }
    }
}

int once_wait(once_t *once, int timeout_ms)
{
    int code = once__enter(once);

    if (code != ONCE_OK) {
        return code;
    }
    if (once->depth > 0) {
        code = ONCE_E_REENTRANT;
    } else if (once->threaded) {
        code = ONCE_E_UNSUPPORTED;
    } else {
        (void)once__loop_wait(once->loop, timeout_ms);
        code = once__dispatch_locked(once);
    }
    once__leave(once);
    return code;
}

uint64_t once__due(const once_t *once)
{
    return once__loop_due(once->loop);
}
