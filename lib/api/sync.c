/*
 * Blocking calls: submit, wait for the callback, hand over the answer. They use the same path as all other calls.
 */
#include "api/claim.h"
#include "api/dispatch.h"
#include "api/job.h"
#include "api/thread.h"

typedef struct waiter {
    int done;
    once_answer_t *answer;
} waiter_t;

static void arrived(once_t *once, once_answer_t *answer, void *data)
{
    waiter_t *waiter = data;

    once_answer_keep(answer);
    waiter->answer = answer;
    waiter->done = 1;
    once__thread_notify(once);
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
static int await(once_t *once, int code, waiter_t *waiter, once_answer_t **answer)
{
    if (answer != NULL) {
        *answer = NULL;
    }
    if (code == ONCE_OK) {
        once__block(once, has_arrived, waiter, UINT64_MAX);
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
    return await(handle, (call), &waiter, (answer))

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

int once_claim_doubt_sync(once_claim_t *claim, once_answer_t **answer)
{
    BLOCKING(claim->once, answer, once_claim_doubt(claim, arrived, &waiter));
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

/* A scan has one `data` for both of its callbacks: this one includes the caller's. */
typedef struct scan_waiter {
    waiter_t waiter;
    once_scan_cb each;
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

int once_record_scan_sync(once_t *once, const once_filter_t *filter, once_scan_cb each, void *data,
                          once_answer_t **answer)
{
    scan_waiter_t scan = {{0, NULL}, each, data};
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
    return await(once, once_record_scan(once, filter, scan_each, scan_arrived, &scan), &scan.waiter,
                 answer);
}
