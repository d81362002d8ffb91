/*
 * Limits on new keys: once_quota and once_unknown_max. Where one is reached, the
 * store is looked at before it is asked: a key that it knows is answered as
 * always, one that it does not know is refused and leaves nothing behind.
 */
#include "ngx_http_once_request.h"


static void
ngx_http_once_refuse_new(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    ctx->outcome = NGX_HTTP_ONCE_REFUSED;

    ngx_http_once_count(ctx->conf->route, NGX_HTTP_ONCE_C_REFUSED);
    ngx_http_once_count(ctx->conf->route,
                        ctx->refusal == NGX_HTTP_ONCE_P_QUOTA
                        ? NGX_HTTP_ONCE_C_OVER_QUOTA
                        : NGX_HTTP_ONCE_C_MANY_UNKNOWN);

    ngx_http_once_finish(r, ngx_http_once_refuse_request(r, ctx, ctx->refusal,
                                NULL, ctx->refusal_after));
}


static void
ngx_http_once_looked(once_t *once, once_answer_t *answer, void *data)
{
    int                     code;
    ngx_http_request_t     *r;
    ngx_http_once_ctx_t    *ctx;
    ngx_http_once_guard_t  *guard;

    guard = data;
    ctx = guard->ctx;

    (void) ngx_http_once_guard_returned(guard);

    if (ctx) {
        r = ctx->request;
        code = once_answer_error(answer);
        ngx_http_set_log_request(r->connection->log, r);

        if (code == ONCE_OK && once_answer_record(answer)) {
            ngx_http_once_ask(ctx);

        } else if (code == ONCE_OK || code == ONCE_E_NOT_FOUND) {
            ngx_http_once_refuse_new(r, ctx);

        } else {
            ngx_http_once_store_failed(r, ctx, code);
        }
    }

    ngx_http_once_guard_unref(guard);
}


/* NGX_OK: within the limits. */

static ngx_int_t
ngx_http_once_within(ngx_http_once_ctx_t *ctx)
{
    ngx_http_once_loc_conf_t  *conf;

    conf = ctx->conf;

    if (ngx_http_once_unknown_full(conf)) {
        ctx->refusal = NGX_HTTP_ONCE_P_MANY_UNKNOWN;
        ctx->refusal_after = conf->retry_after ? conf->retry_after : 30;
        return NGX_DECLINED;
    }

    if (ngx_http_once_quota_take(ctx, &ctx->refusal_after) != NGX_OK) {
        ctx->refusal = NGX_HTTP_ONCE_P_QUOTA;
        return NGX_DECLINED;
    }

    return NGX_OK;
}


void
ngx_http_once_admit(ngx_http_once_ctx_t *ctx)
{
    int           code;
    u_char        id[ONCE_ID_SIZE];
    once_t       *once;
    once_slice_t  scope, key;

    once = ctx->conf->store->once;

    if (once == NULL || ngx_http_once_within(ctx) == NGX_OK) {
        ngx_http_once_ask(ctx);
        return;
    }

    scope.data = ctx->scope.data;
    scope.len = ctx->scope.len;
    key.data = ctx->key.text;
    key.len = ctx->key.len;

    ctx->phase = NGX_HTTP_ONCE_ASKING;

    /* a worker that has just started has no secrets yet */

    code = once_record_id_of(once, scope, key, id);

    if (code == ONCE_OK) {
        code = once_record_get(once, id, ngx_http_once_looked, ctx->guard);
    }

    if (code == ONCE_OK) {
        ngx_http_once_guard_called(ctx->guard);
        return;
    }

    ngx_http_once_store_failed(ctx->request, ctx, code);
}
