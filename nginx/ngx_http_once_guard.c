/*
 * The guard of an operation: owns the claim and ends it, exactly once, whether
 * or not the request still exists. If the request is destroyed before its
 * response is complete, the claim ends in doubt if an upstream may have
 * received a byte of it, and is released otherwise.
 *
 * The library repeats the write of an end until the store has it. The client's
 * response, requests that wait for the same key, and a worker that is to quit
 * wait for that here.
 *
 * Calls: the library gives up on a store that fails, but not on one that hangs.
 * Therefore the pending calls of a store are in a queue. All of them have the
 * same timeout, so that the oldest is the next to time out and one timer is
 * enough.
 */
#include "ngx_http_once_request.h"

#include <assert.h>


#define NGX_HTTP_ONCE_RUNNING_SLOTS  1024


static void ngx_http_once_ended(once_t *once, once_answer_t *answer,
    void *data);


static ngx_queue_t  ngx_http_once_guards = {
    &ngx_http_once_guards, &ngx_http_once_guards
};

/* Those that run, by the id of their record, which is a keyed hash. */
static ngx_queue_t  ngx_http_once_running[NGX_HTTP_ONCE_RUNNING_SLOTS];

static ngx_uint_t   ngx_http_once_process_ends;


static void
ngx_http_once_assert_guard_state(ngx_http_once_guard_t *guard)
{
    assert(guard->refs > 0);                                         /* I-1 */
    assert(!guard->calling || !guard->ctx || guard->refs > 1);
    assert(!guard->claim || guard->running);                         /* I-2 */
    assert(!guard->claim || guard->end == NGX_HTTP_ONCE_OPEN);
    assert(!guard->ctx || guard->ctx->guard == guard);               /* I-3 */
    assert(!guard->reserved || guard->conf->quota > 0);              /* I-4 */
    assert(!guard->calling || guard->called_usec > 0);               /* I-5 */
}


ngx_http_once_guard_t *
ngx_http_once_guard_new(ngx_http_once_ctx_t *ctx)
{
    ngx_http_once_guard_t  *guard;

    guard = ngx_calloc(sizeof(ngx_http_once_guard_t),
                       ctx->request->connection->log);
    if (guard == NULL) {
        return NULL;
    }

    guard->refs = 1;
    guard->ctx = ctx;
    guard->conf = ctx->conf;

    ngx_queue_insert_head(&ngx_http_once_guards, &guard->queue);
    ngx_http_once_store_block_exit();

    return guard;
}


void
ngx_http_once_guard_ref(ngx_http_once_guard_t *guard)
{
    guard->refs++;
}


void
ngx_http_once_guard_unref(ngx_http_once_guard_t *guard)
{
    assert(guard->refs > 0);
    guard->refs--;

    if (guard->refs > 0) {
        return;
    }

    assert(!guard->calling && !guard->claim && !guard->running);

    ngx_queue_remove(&guard->queue);
    ngx_http_once_body_give_memory(&guard->memory);
    ngx_free(guard);
    ngx_http_once_store_allow_exit();
}


static ngx_queue_t *
ngx_http_once_bucket(const u_char *id)
{
    ngx_queue_t  *bucket;

    bucket = &ngx_http_once_running[(id[0] | id[1] << 8)
                                    % NGX_HTTP_ONCE_RUNNING_SLOTS];

    if (bucket->next == NULL) {
        ngx_queue_init(bucket);
    }

    return bucket;
}


ngx_uint_t
ngx_http_once_guard_runs(const u_char *id)
{
    ngx_queue_t            *q, *bucket;
    ngx_http_once_guard_t  *guard;

    bucket = ngx_http_once_bucket(id);

    for (q = ngx_queue_head(bucket);
         q != ngx_queue_sentinel(bucket);
         q = ngx_queue_next(q))
    {
        guard = ngx_queue_data(q, ngx_http_once_guard_t, peers);

        if (ngx_memcmp(guard->id, id, ONCE_ID_SIZE) == 0) {
            return 1;
        }
    }

    return 0;
}


/*
 * Half of the lease from the call. If the library has asked several times, the
 * call was long ago; then half of the lease from now, because the library
 * guarantees that less than half of it has passed.
 */

static uint64_t
ngx_http_once_fresh_until(ngx_http_once_guard_t *guard)
{
    uint64_t  now, half;

    now = ngx_http_once_guard_usec();
    half = once_policy_lease_ms(guard->conf->policy) * 500;

    return (now - guard->called_usec < half ? guard->called_usec : now) + half;
}


ngx_uint_t
ngx_http_once_guard_fresh(ngx_http_once_guard_t *guard)
{
    return guard->claim && once_claim_alive(guard->claim)
           && ngx_http_once_guard_usec() < guard->fresh_usec;
}


void
ngx_http_once_guard_grant(ngx_http_once_guard_t *guard, once_answer_t *answer)
{
    assert(!guard->running && guard->end == NGX_HTTP_ONCE_OPEN);

    guard->claim = once_answer_take_claim(answer);
    guard->granted = ngx_current_msec;
    guard->fresh_usec = ngx_http_once_fresh_until(guard);
    guard->running = 1;

    ngx_memcpy(guard->id, once_record_id(once_answer_record(answer)),
               ONCE_ID_SIZE);
    ngx_queue_insert_head(ngx_http_once_bucket(guard->id), &guard->peers);

    ngx_http_once_count(guard->conf->route, NGX_HTTP_ONCE_C_RUN);
    ngx_http_once_in_flight(guard->conf->route, 1);
    ngx_http_once_assert_guard_state(guard);
}


/* The operation has ended, as far as this worker knows. */

static void
ngx_http_once_guard_stop(ngx_http_once_guard_t *guard)
{
    ngx_msec_t  took, *latency;

    if (!guard->running) {
        return;
    }

    guard->running = 0;
    ngx_queue_remove(&guard->peers);

    took = ngx_current_msec - guard->granted;
    latency = &guard->conf->latency;

    if (guard->end == NGX_HTTP_ONCE_COMPLETING) {
        *latency = *latency ? (*latency * 7 + took + 4) / 8 : took + 1;
    }

    ngx_http_once_in_flight(guard->conf->route, -1);

    if (!ngx_http_once_process_ends) {
        ngx_http_once_wait_wake(guard->id);
    }
}


/* ----------------------------------------------------------------- the end */

static ngx_int_t
ngx_http_once_guard_ending(ngx_http_once_guard_t *guard, int code,
    ngx_http_once_end_e end)
{
    assert(guard->claim);    /* it ends once */

    if (code != ONCE_OK) {
        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                      "once: the end of an operation could not be written: "
                      "%s; its record waits for its lease to run out",
                      once_error_text(code));

        once_claim_drop(guard->claim);
        guard->claim = NULL;
        ngx_http_once_guard_stop(guard);

        return NGX_ERROR;
    }

    guard->claim = NULL;
    guard->end = end;
    ngx_http_once_guard_called(guard);

    return NGX_OK;
}


ngx_int_t
ngx_http_once_guard_complete(ngx_http_once_guard_t *guard,
    once_response_t *response)
{
    int  code;

    code = once_claim_complete(guard->claim, response, ngx_http_once_ended,
                               guard);

    if (code == ONCE_E_TOO_BIG || code == ONCE_E_HEADER
        || code == ONCE_E_INVALID)
    {
        /* not recordable, but it must be recorded that it was done */

        ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0,
                      "once: a response is recorded without its headers and "
                      "body: %s", once_error_text(code));

        response->header_count = 0;
        response->body.len = 0;
        response->body_omitted = 1;

        code = once_claim_complete(guard->claim, response,
                                   ngx_http_once_ended, guard);
    }

    if (response->body_omitted) {
        ngx_http_once_count(guard->conf->route, NGX_HTTP_ONCE_C_OMITTED);
    }

    return ngx_http_once_guard_ending(guard, code, NGX_HTTP_ONCE_COMPLETING);
}


ngx_int_t
ngx_http_once_guard_release(ngx_http_once_guard_t *guard, ngx_uint_t status,
    const char *note, ngx_uint_t early)
{
    int           code;
    once_slice_t  text;

    text.data = note;
    text.len = ngx_strlen(note);

    code = (early ? once_claim_release_early : once_claim_release)
           (guard->claim, (int) status, text, ngx_http_once_ended, guard);

    return ngx_http_once_guard_ending(guard, code, NGX_HTTP_ONCE_RELEASING);
}


ngx_int_t
ngx_http_once_guard_doubt(ngx_http_once_guard_t *guard, const char *cause)
{
    int           code;
    once_slice_t  text;

    text.data = cause;
    text.len = ngx_strlen(cause);

    code = once_claim_doubt(guard->claim, text, ngx_http_once_ended, guard);

    return ngx_http_once_guard_ending(guard, code, NGX_HTTP_ONCE_DOUBTING);
}


static void
ngx_http_once_count_end(ngx_http_once_guard_t *guard, once_answer_t *answer)
{
    ngx_uint_t              usec;
    ngx_http_once_route_t  *route;

    route = guard->conf->route;
    usec = ngx_http_once_guard_returned(guard);

    if (guard->end == NGX_HTTP_ONCE_COMPLETING) {
        ngx_http_once_observe(route, NGX_HTTP_ONCE_H_COMPLETE, usec);
    }

    if (once_answer_error(answer) != ONCE_OK) {
        ngx_http_once_count(route, NGX_HTTP_ONCE_C_STORE_ERROR);
        return;
    }

    switch (once_answer_outcome(answer)) {

    case ONCE_OUTCOME_LOST:
        ngx_http_once_count(route, NGX_HTTP_ONCE_C_LOST);
        break;

    case ONCE_OUTCOME_ALREADY:
        ngx_http_once_count(route, NGX_HTTP_ONCE_C_COMPLETED);
        break;

    default:
        ngx_http_once_count(route,
                            guard->end == NGX_HTTP_ONCE_COMPLETING
                            ? NGX_HTTP_ONCE_C_COMPLETED
                            : guard->end == NGX_HTTP_ONCE_RELEASING
                            ? NGX_HTTP_ONCE_C_RELEASED
                            : NGX_HTTP_ONCE_C_DOUBTED);
    }
}


static void
ngx_http_once_ended(once_t *once, once_answer_t *answer, void *data)
{
    ngx_http_once_guard_t  *guard;

    guard = data;

    assert(guard->end != NGX_HTTP_ONCE_OPEN && !guard->claim);
    ngx_http_once_assert_guard_state(guard);

    ngx_http_once_count_end(guard, answer);
    ngx_http_once_admit_note(guard->conf, answer);
    ngx_http_once_body_give_memory(&guard->memory);
    ngx_http_once_guard_stop(guard);

    if (guard->end == NGX_HTTP_ONCE_DOUBTING && !ngx_http_once_process_ends) {
        ngx_http_once_probe_later(guard->conf, guard->id);
    }

    if (guard->ctx) {
        ngx_http_once_finish_ended(guard->ctx, answer);
    }

    ngx_http_once_guard_unref(guard);
}


/* ------------------------------------------------------- without a request */

static void
ngx_http_once_guard_abandon(ngx_http_once_guard_t *guard)
{
    ngx_http_once_ctx_t  *ctx;

    ctx = guard->ctx;
    guard->ctx = NULL;

    if (guard->claim == NULL) {
        return;
    }

    if (ctx->run) {
        ngx_http_once_upstream_note(ctx->request, ctx->run);
    }

    if (ctx->run && ctx->run->sent) {
        (void) ngx_http_once_guard_doubt(guard,
                         ngx_http_once_finish_cause(ctx->request, ctx->run));

    } else {
        (void) ngx_http_once_guard_release(guard, 0, "nothing was sent", 1);
    }
}


void
ngx_http_once_guard_leave(ngx_http_once_guard_t *guard)
{
    ngx_http_once_guard_abandon(guard);
    ngx_http_once_guard_unref(guard);
}


void
ngx_http_once_guard_end_all(void)
{
    ngx_queue_t            *q, *next;
    ngx_http_once_ctx_t    *ctx;
    ngx_http_once_guard_t  *guard;

    ngx_http_once_process_ends = 1;

    for (q = ngx_queue_head(&ngx_http_once_guards);
         q != ngx_queue_sentinel(&ngx_http_once_guards);
         q = next)
    {
        next = ngx_queue_next(q);
        guard = ngx_queue_data(q, ngx_http_once_guard_t, queue);
        ctx = guard->ctx;

        if (ctx == NULL) {
            continue;
        }

        ngx_http_once_replay_drop(ctx);
        ctx->guard = NULL;
        ngx_http_once_guard_leave(guard);
    }
}


/* ------------------------------------------------------------------- calls */

uint64_t
ngx_http_once_guard_usec(void)
{
    struct timespec  ts;

    (void) clock_gettime(CLOCK_BOOTTIME, &ts);

    return (uint64_t) ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}


static void
ngx_http_once_overdue(ngx_http_once_guard_t *guard)
{
    ngx_http_request_t   *r;
    ngx_http_once_ctx_t  *ctx;

    ngx_queue_remove(&guard->call);
    guard->calling = 0;
    ctx = guard->ctx;

    if (ctx == NULL) {
        return;
    }

    r = ctx->request;
    ngx_http_set_log_request(r->connection->log, r);

    if (guard->end != NGX_HTTP_ONCE_OPEN) {

        if (ctx->phase == NGX_HTTP_ONCE_RECORDING) {
            ngx_http_once_finish_failed(r, ctx, ONCE_E_UNAVAILABLE);
        }

        return;
    }

    /* a claim that is granted later is not taken: the library releases it */

    guard->ctx = NULL;
    ctx->guard = NULL;

    ngx_http_once_wait_over(ctx);
    ngx_http_once_ask_failed(r, ctx, ONCE_E_UNAVAILABLE);
    ngx_http_once_guard_unref(guard);
}


static void
ngx_http_once_overdue_handler(ngx_event_t *ev)
{
    uint64_t                now, due;
    ngx_http_once_store_t  *store;
    ngx_http_once_guard_t  *guard;

    store = ev->data;
    now = ngx_http_once_guard_usec();

    while (!ngx_queue_empty(&store->calls)) {

        guard = ngx_queue_data(ngx_queue_head(&store->calls),
                               ngx_http_once_guard_t, call);
        due = guard->called_usec + (uint64_t) store->timeout * 1000;

        if (due > now) {
            ngx_add_timer(ev, (ngx_msec_t) ((due - now) / 1000 + 1));
            return;
        }

        ngx_http_once_overdue(guard);
    }
}


void
ngx_http_once_guard_calls_init(ngx_http_once_store_t *store, ngx_log_t *log)
{
    ngx_queue_init(&store->calls);

    store->overdue.handler = ngx_http_once_overdue_handler;
    store->overdue.data = store;
    store->overdue.log = log;
    store->overdue.cancelable = 1;
}


void
ngx_http_once_guard_called(ngx_http_once_guard_t *guard)
{
    ngx_http_once_store_t  *store;

    store = guard->conf->store;

    assert(!guard->calling);

    guard->refs++;
    guard->calling = 1;
    guard->called_usec = ngx_http_once_guard_usec();
    ngx_queue_insert_tail(&store->calls, &guard->call);
    ngx_http_once_assert_guard_state(guard);

    if (!store->overdue.timer_set) {
        ngx_add_timer(&store->overdue, store->timeout);
    }
}


ngx_uint_t
ngx_http_once_guard_returned(ngx_http_once_guard_t *guard)
{
    ngx_http_once_assert_guard_state(guard);

    if (guard->calling) {
        guard->calling = 0;
        ngx_queue_remove(&guard->call);
    }

    return (ngx_uint_t) (ngx_http_once_guard_usec() - guard->called_usec);
}
