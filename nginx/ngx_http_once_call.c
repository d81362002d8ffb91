/*
 * Calls of a store that have not been answered yet. The library gives up on a
 * store that fails, not on one that hangs: who waits for it is told here. All
 * calls of a store have the same patience, so that the oldest is the next one
 * to be told, and one timer is enough.
 */
#include "ngx_http_once_request.h"


uint64_t
ngx_http_once_usec(void)
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
            ngx_http_once_hold_failed(r, ctx, ONCE_E_UNAVAILABLE);
        }

        return;
    }

    /* a claim that is granted after that is not taken, and so given back */

    guard->ctx = NULL;
    ctx->guard = NULL;

    ngx_http_once_wait_over(ctx);
    ngx_http_once_store_failed(r, ctx, ONCE_E_UNAVAILABLE);
    ngx_http_once_guard_unref(guard);
}


static void
ngx_http_once_overdue_handler(ngx_event_t *ev)
{
    uint64_t                now, due;
    ngx_http_once_store_t  *store;
    ngx_http_once_guard_t  *guard;

    store = ev->data;
    now = ngx_http_once_usec();

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
ngx_http_once_calls_init(ngx_http_once_store_t *store, ngx_log_t *log)
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

    guard->refs++;
    guard->calling = 1;
    guard->called_usec = ngx_http_once_usec();
    ngx_queue_insert_tail(&store->calls, &guard->call);

    if (!store->overdue.timer_set) {
        ngx_add_timer(&store->overdue, store->timeout);
    }
}


ngx_uint_t
ngx_http_once_guard_returned(ngx_http_once_guard_t *guard)
{
    if (guard->calling) {
        guard->calling = 0;
        ngx_queue_remove(&guard->call);
    }

    return (ngx_uint_t) (ngx_http_once_usec() - guard->called_usec);
}
