#include "api/dispatch.h"

#include <assert.h>
#include <time.h>

#include <once/experimental.h>

#include "api/begin.h"
#include "api/claim.h"
#include "api/job.h"
#include "base/error.h"

/*
 * After this the host gets its turn, and the descriptor stays readable. Turns alone would not bound the time: each of them delivers
 * all that has arrived, and a host with thousands of requests in flight submits new ones from the callbacks.
 */
#define TURNS_MAX     64
#define CALLBACKS_MAX 1024

/* Wakes blocked callers: what they wait for may have happened. */
static void notify(once_t *once)
{
    if (once->threaded) {
        (void)pthread_cond_broadcast(&once->changed);
    }
}

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

static int dispatch_locked(once_t *once)
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
    for (int turn = 0; turn < TURNS_MAX && once->callbacks - before < CALLBACKS_MAX && busy &&
                       !once__loop_paused(once->loop);
         turn++) {
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
    notify(once);
    return (int)(once->callbacks - before);
}

int once_dispatch(once_t *once)
{
    int code = once__enter(once);

    if (code != ONCE_OK) {
        return code;
    }
    code = dispatch_locked(once);
    once__leave(once);
    return code;
}

/* Waits for notify(), at most until `until_ms` of the loop's clock (UINT64_MAX: no limit). Releases the lock meanwhile. */
static void await_change(once_t *once, uint64_t until_ms)
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

void once__dispatch_until(once_t *once, once__is_done is_done, const void *data, uint64_t until_ms)
{
    while (!is_done(once, data) && once__loop_now(once->loop) < until_ms) {
        if (once->threaded) {
            await_change(once, until_ms);
        } else {
            (void)once__loop_wait(once->loop, left_ms(once, until_ms));
            (void)dispatch_locked(once);
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
        code = dispatch_locked(once);
    }
    once__leave(once);
    return code;
}

uint64_t once__due(const once_t *once)
{
    return once__loop_due(once->loop);
}

/* --------------------------------------------------------------------------------------------- the handle's thread */

static void *run(void *data)
{
    once_t *once = data;

    (void)pthread_mutex_lock(&once->lock);
    while (!once->thread_stop) {
        (void)pthread_mutex_unlock(&once->lock);
        (void)once__loop_wait(once->loop, -1);
        (void)pthread_mutex_lock(&once->lock);
        (void)dispatch_locked(once);
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

int once__dispatch_thread_start(once_t *once, once_error_t *err)
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

void once__dispatch_thread_end(once_t *once)
{
    once->thread_stop = 1;
    once__loop_wake(once->loop);
    (void)pthread_mutex_unlock(&once->lock);
    (void)pthread_join(once->thread, NULL);
    (void)pthread_mutex_lock(&once->lock);
}

/* -------------------------------------------------------------------------------------------------- blocking calls */

typedef struct waiter {
    int done;
    once_answer_t *answer;
} waiter_t;

static void arrived(once_t *once, once_answer_t *answer, void *data)
{
    waiter_t *waiter = data;

    assert(!waiter->done && waiter->answer == NULL); /* one call, one answer */
    once_answer_keep(answer);
    waiter->answer = answer;
    waiter->done = 1;
    notify(once);
}

/* Enters the handle, unless inside a callback. */
static int enter_blocking(once_t *once)
{
    int code = once__enter(once);

    if (code != ONCE_OK) {
        return code;
    }
    if (once->depth > 0 || once->in_dispatch) {
        once__leave(once);
        return ONCE_E_REENTRANT;
    }
    return ONCE_OK;
}

static int has_arrived(const once_t *once, const void *data)
{
    return ((const waiter_t *)data)->done;
}

/* `code` is the result of the submission. */
static int await_answer(once_t *once, int code, waiter_t *waiter, once_answer_t **answer)
{
    if (answer != NULL) {
        *answer = NULL;
    }
    if (code == ONCE_OK) {
        once__dispatch_until(once, has_arrived, waiter, UINT64_MAX);
        assert(waiter->done && waiter->answer != NULL);
        code = once_answer_error(waiter->answer);
        if (code == ONCE_OK && answer != NULL) {
            *answer = waiter->answer;
        } else {
            once_answer_free(waiter->answer);
        }
    }
    once__leave(once);
    return code;
}

#define BLOCKING(once, answer, call)                                                               \
    waiter_t waiter = {0, NULL};                                                                   \
    once_t *handle = (once);                                                                       \
    int code = enter_blocking(handle);                                                             \
    if (code != ONCE_OK) {                                                                         \
        if ((answer) != NULL) {                                                                    \
            *(answer) = NULL;                                                                      \
        }                                                                                          \
        return code;                                                                               \
    }                                                                                              \
    return await_answer(handle, (call), &waiter, (answer))

int once_begin_sync(once_t *once, const once_ask_t *ask, once_answer_t **answer)
{
    BLOCKING(once, answer, once_begin(once, ask, arrived, &waiter));
}

int once_claim_complete_sync(once_claim_t *claim, const once_response_t *response,
                             once_answer_t **answer)
{
    BLOCKING(claim->once, answer, once_claim_complete(claim, response, arrived, &waiter));
}

int once_claim_release_sync(once_claim_t *claim, int status, once_slice_t note,
                            once_answer_t **answer)
{
    BLOCKING(claim->once, answer, once_claim_release(claim, status, note, arrived, &waiter));
}

int once_claim_release_early_sync(once_claim_t *claim, int status, once_slice_t note,
                                  once_answer_t **answer)
{
    BLOCKING(claim->once, answer, once_claim_release_early(claim, status, note, arrived, &waiter));
}

int once_claim_doubt_sync(once_claim_t *claim, once_slice_t cause, once_answer_t **answer)
{
    BLOCKING(claim->once, answer, once_claim_doubt(claim, cause, arrived, &waiter));
}

int once_claim_renew_sync(once_claim_t *claim, once_answer_t **answer)
{
    BLOCKING(claim->once, answer, once_claim_renew(claim, arrived, &waiter));
}

int once_record_get_sync(once_t *once, const uint8_t id[ONCE_ID_SIZE], once_answer_t **answer)
{
    BLOCKING(once, answer, once_record_get(once, id, arrived, &waiter));
}

int once_record_settle_sync(once_t *once, const once_settle_t *settle, once_answer_t **answer)
{
    BLOCKING(once, answer, once_record_settle(once, settle, arrived, &waiter));
}

int once_record_purge_sync(once_t *once, const char *token, int force, once_answer_t **answer)
{
    BLOCKING(once, answer, once_record_purge(once, token, force, arrived, &waiter));
}

int once_record_erase_sync(once_t *once, const char *token, once_answer_t **answer)
{
    BLOCKING(once, answer, once_record_erase(once, token, arrived, &waiter));
}

int once_store_scrub_sync(once_t *once, once_answer_t **answer)
{
    BLOCKING(once, answer, once_store_scrub(once, arrived, &waiter));
}

int once_store_reap_sync(once_t *once, uint64_t limit, once_answer_t **answer)
{
    BLOCKING(once, answer, once_store_reap(once, limit, arrived, &waiter));
}

int once_store_stats_sync(once_t *once, once_answer_t **answer)
{
    BLOCKING(once, answer, once_store_stats(once, arrived, &waiter));
}

int once_secret_rotate_sync(once_t *once, uint64_t keep_ms, once_answer_t **answer)
{
    BLOCKING(once, answer, once_secret_rotate(once, keep_ms, arrived, &waiter));
}

int once_audit_add_sync(once_t *once, const once_act_t *act, once_answer_t **answer)
{
    BLOCKING(once, answer, once_audit_add(once, act, arrived, &waiter));
}

/* A scan has one `data` for both of its callbacks: this one includes the caller's. */
typedef struct scan_waiter {
    waiter_t waiter;
    once_scan_cb each;
    once_audit_cb each_entry;
    void *data;
} scan_waiter_t;

static int scan_each(once_t *once, const once_record_t *record, void *data)
{
    scan_waiter_t *scan = data;

    return scan->each(once, record, scan->data);
}

static void scan_arrived(once_t *once, once_answer_t *answer, void *data)
{
    scan_waiter_t *scan = data;

    arrived(once, answer, &scan->waiter);
}

/* `page` NULL: the whole scan. */
static int scan_sync(once_t *once, const once_filter_t *filter, once_page_t *page,
                     once_scan_cb each, void *data, once_answer_t **answer)
{
    scan_waiter_t scan = {.each = each, .data = data};
    int code = enter_blocking(once);

    if (code != ONCE_OK || each == NULL) {
        if (answer != NULL) {
            *answer = NULL;
        }
        if (code == ONCE_OK) {
            once__leave(once);
            code = ONCE_E_INVALID;
        }
        return code;
    }
    code = page != NULL ? once_record_page(once, page, scan_each, scan_arrived, &scan)
                        : once_record_scan(once, filter, scan_each, scan_arrived, &scan);
    return await_answer(once, code, &scan.waiter, answer);
}

int once_record_scan_sync(once_t *once, const once_filter_t *filter, once_scan_cb each, void *data,
                          once_answer_t **answer)
{
    return scan_sync(once, filter, NULL, each, data, answer);
}

int once_record_page_sync(once_t *once, once_page_t *page, once_scan_cb each, void *data,
                          once_answer_t **answer)
{
    if (page == NULL) {
        *(answer != NULL ? answer : &(once_answer_t *){NULL}) = NULL;
        return ONCE_E_INVALID;
    }
    return scan_sync(once, NULL, page, each, data, answer);
}

static int entry_each(once_t *once, const once_audit_entry_t *entry, void *data)
{
    scan_waiter_t *scan = data;

    return scan->each_entry(once, entry, scan->data);
}

/* `page` NULL: the whole trail. */
static int trail_sync(once_t *once, once_page_t *page, once_audit_cb each, void *data,
                      once_answer_t **answer)
{
    scan_waiter_t scan = {.each_entry = each, .data = data};
    once_audit_cb shown = each != NULL ? entry_each : NULL;
    int code = enter_blocking(once);

    if (code != ONCE_OK) {
        if (answer != NULL) {
            *answer = NULL;
        }
        return code;
    }
    code = page != NULL ? once_audit_page(once, page, shown, scan_arrived, &scan)
                        : once_audit_scan(once, shown, scan_arrived, &scan);
    return await_answer(once, code, &scan.waiter, answer);
}

int once_audit_scan_sync(once_t *once, once_audit_cb each, void *data, once_answer_t **answer)
{
    return trail_sync(once, NULL, each, data, answer);
}

int once_audit_page_sync(once_t *once, once_page_t *page, once_audit_cb each, void *data,
                         once_answer_t **answer)
{
    if (page == NULL) {
        *(answer != NULL ? answer : &(once_answer_t *){NULL}) = NULL;
        return ONCE_E_INVALID;
    }
    return trail_sync(once, page, each, data, answer);
}
