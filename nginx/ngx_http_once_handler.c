/*
 * The request, up to the point where the store is asked: its context, its body,
 * the ask. What the answer leads to is in ngx_http_once_answer.c.
 *
 * Runs in precontent: whoever may not pass the access phase has been refused by
 * then and neither claims a key nor gets a stored answer, wherever an error page
 * may lead (ngx_http_once_refused.c). The handler is entered again when the
 * phases go on; the context says where the request stands.
 */
#include "ngx_http_once_request.h"


/* -------------------------------------------------------------- the context */

static void
ngx_http_once_cleanup(void *data)
{
    ngx_http_once_ctx_t  *ctx = data;

    ngx_http_once_wait_leave(ctx);

    ngx_http_once_drop_answer(ctx);

    if (ctx->guard) {
        ngx_http_once_guard_leave(ctx->guard);
    }

    ngx_http_once_body_drop(ctx);
    ngx_http_once_body_gone(ctx);
    ngx_http_once_memory_give(&ctx->memory);
}


ngx_http_once_ctx_t *
ngx_http_once_make_ctx(ngx_http_request_t *r, ngx_http_once_loc_conf_t *conf)
{
    ngx_pool_cleanup_t   *cln;
    ngx_http_once_ctx_t  *ctx;

    cln = ngx_pool_cleanup_add(r->pool, sizeof(ngx_http_once_ctx_t));
    if (cln == NULL) {
        return NULL;
    }

    ctx = cln->data;
    ngx_memzero(ctx, sizeof(ngx_http_once_ctx_t));

    ctx->request = r;
    ctx->conf = conf;
    cln->handler = ngx_http_once_cleanup;

    ngx_http_set_ctx(r, ctx, ngx_http_once_module);

    return ctx;
}


ngx_http_once_ctx_t *
ngx_http_once_get_ctx(ngx_http_request_t *r)
{
    ngx_pool_cleanup_t   *cln;
    ngx_http_once_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_once_module);

    if (ctx || r != r->main || !(r->internal || r->filter_finalize)) {
        return ctx;
    }

    /* an internal redirect clears all contexts */

    for (cln = r->pool->cleanup; cln; cln = cln->next) {

        if (cln->handler == ngx_http_once_cleanup) {
            ctx = cln->data;
            ngx_http_set_ctx(r, ctx, ngx_http_once_module);
            return ctx;
        }
    }

    return NULL;
}


/* -------------------------------------------------------------------- the ask */

void
ngx_http_once_ask(ngx_http_once_ctx_t *ctx)
{
    int                  code;
    once_t              *once;
    once_ask_t           ask = ONCE_ASK_INIT;
    ngx_http_request_t  *r;

    r = ctx->request;
    once = ctx->conf->store->once;

    ctx->phase = NGX_HTTP_ONCE_ASKING;

    ask.scope.data = ctx->scope.data;
    ask.scope.len = ctx->scope.len;
    ask.key.data = ctx->key.text;
    ask.key.len = ctx->key.len;
    ask.method.data = r->method_name.data;
    ask.method.len = r->method_name.len;
    ask.target.data = ctx->target.data;
    ask.target.len = ctx->target.len;
    ask.body = ctx->body;
    ask.policy = ctx->conf->policy;

    code = once ? once_begin(once, &ask, ngx_http_once_asked, ctx->guard)
                : ONCE_E_UNAVAILABLE;

    if (code == ONCE_OK) {
        ctx->inside = 0;
        ngx_http_once_guard_called(ctx->guard);
        return;
    }

    ngx_http_once_quota_asked(ctx->guard, NULL);
    ngx_http_once_wait_over(ctx);
    ngx_http_once_store_failed(r, ctx, code);
}


static void
ngx_http_once_start(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    ctx->guard = ngx_http_once_guard_new(ctx);

    if (ctx->guard == NULL || ngx_http_once_target(r, ctx) != NGX_OK) {
        ngx_http_once_finish(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
        return;
    }

    /* a client that hangs up now has not asked for anything */

    r->read_event_handler = ngx_http_test_reading;
    r->write_event_handler = ngx_http_request_empty_handler;

    ngx_http_once_admit(ctx);
}


/* NGX_OK: there is a key; NGX_DONE: the request has been answered. */

static ngx_int_t
ngx_http_once_check_key(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    ngx_int_t                rc;
    ngx_str_t                detail;
    ngx_http_once_problem_e  problem;

    rc = ngx_http_once_identify(r, ctx, &problem, &detail);

    if (rc != NGX_ABORT) {
        return rc;
    }

    ngx_http_once_count(ctx->conf->route,
                        problem == NGX_HTTP_ONCE_P_KEY_MISSING
                        ? NGX_HTTP_ONCE_C_MISSING : NGX_HTTP_ONCE_C_INVALID);

    ngx_http_finalize_request(r, ngx_http_once_refuse_request(r, ctx, problem,
                                                              &detail, 0));
    return NGX_DONE;
}


static void
ngx_http_once_body_read(ngx_http_request_t *r)
{
    ngx_int_t             rc;
    ngx_http_once_ctx_t  *ctx;

    ctx = ngx_http_once_get_ctx(r);
    ctx->phase = NGX_HTTP_ONCE_ASKING;
    ctx->inside = 1;

    if (ctx->crowded) {
        ngx_http_once_finish(r, ngx_http_once_refuse_crowded(r, ctx,
                                NGX_HTTP_ONCE_C_NO_MEMORY));
        return;
    }

    /* a key in the body is known only now */

    rc = ngx_http_once_check_key(r, ctx);

    if (rc == NGX_OK) {
        ngx_http_once_start(r, ctx);

    } else if (rc == NGX_DECLINED) {
        ctx->phase = NGX_HTTP_ONCE_SENDING;
        ngx_http_once_go_on(r);

    } else if (rc != NGX_DONE) {
        ngx_http_once_finish(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
    }
}


static ngx_int_t
ngx_http_once_read_body(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    ngx_int_t     rc;
    once_slice_t  type = { NULL, 0 };

    if (ngx_http_once_body_room(r, ctx) != NGX_OK) {
        ngx_http_finalize_request(r, ngx_http_once_refuse_crowded(r, ctx,
                                                  NGX_HTTP_ONCE_C_NO_FILE));
        return NGX_DONE;
    }

    if (r->headers_in.content_type) {
        type.data = r->headers_in.content_type->value.data;
        type.len = r->headers_in.content_type->value.len;
    }

    ctx->body = once_body_new(ctx->conf->fingerprint, type);

    if (ctx->body == NULL
        || ngx_http_once_body_of(r, ctx) != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if ((r->method & NGX_HTTP_PUT) && r->content_handler == NULL) {
        /* the dav module moves the body to where it belongs */
        r->request_body_in_file_only = 1;
        r->request_body_in_persistent_file = 1;
        r->request_body_in_clean_file = 1;
        r->request_body_file_log_level = 0;
    }

    ctx->phase = NGX_HTTP_ONCE_READING;

    rc = ngx_http_read_client_request_body(r, ngx_http_once_body_read);

    if (rc >= NGX_HTTP_SPECIAL_RESPONSE) {
        return rc;
    }

    ngx_http_finalize_request(r, NGX_DONE);

    return NGX_DONE;
}


/* ---------------------------------------------------------------- the phase */

/*
 * A handler that may have acted by itself leads on (ngx.exec, for example): it
 * knows what it does. An error page is not its wish.
 */

static ngx_uint_t
ngx_http_once_led_by_handler(ngx_http_request_t *r, ngx_http_once_hold_t *hold)
{
    return hold->acted && !hold->forwarded && !r->error_page
           && !hold->recursive;
}


/*
 * What an upstream got once goes to no other, unless the first one answered and
 * sent us there.
 */

static ngx_uint_t
ngx_http_once_may_forward(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    if (!ctx->hold->sent) {

        if (ngx_http_once_guard_fresh(ctx->guard)) {
            return 1;
        }

        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "once: too late to forward, half of the lease has "
                      "passed");
        return 0;
    }

    if (r->post_action || r->method == NGX_HTTP_GET
        || r->method == NGX_HTTP_HEAD
        || (r->upstream && r->upstream->headers_in.x_accel_redirect)
        || ngx_http_once_led_by_handler(r, ctx->hold))
    {
        return 1;
    }

    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                  "once: not sent to a second upstream, the first one may "
                  "have acted on it");
    return 0;
}


/*
 * The request was granted: it goes on, for the first time or after an internal
 * redirect (error_page, a named location, X-Accel-Redirect).
 */

static ngx_int_t
ngx_http_once_forward(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    if (ctx->hold == NULL || ctx->phase != NGX_HTTP_ONCE_GRANTED) {
        return NGX_DECLINED;
    }

    ngx_http_once_note_upstream(r, ctx->hold);

    if (ctx->hold->starting) {
        ngx_http_once_handler_acts(r, ctx->hold);
    }

    if (ctx->hold->forwarded && ctx->hold->header_status == 0) {
        /* whatever an error page's own backend says, it says of the page */
        ctx->hold->lost = 1;
    }

    ctx->hold->loc_conf = r->loc_conf;
    ctx->hold->led = (r->err_status != 0);

    if (r->content_handler && !ngx_http_once_may_forward(r, ctx)) {
        ctx->hold->led = 0;
        return NGX_HTTP_BAD_GATEWAY;
    }

    ngx_http_once_watch_content(r, ctx->hold);

    return NGX_DECLINED;
}


ngx_int_t
ngx_http_once_handler(ngx_http_request_t *r)
{
    ngx_int_t                  rc;
    ngx_http_once_ctx_t       *ctx;
    ngx_http_once_loc_conf_t  *conf;
    ngx_http_once_srv_conf_t  *oscf;

    if (r != r->main) {
        return NGX_DECLINED;
    }

    ctx = ngx_http_once_get_ctx(r);

    if (ctx && ctx->phase != NGX_HTTP_ONCE_START) {
        return ngx_http_once_forward(r, ctx);
    }

    oscf = ngx_http_get_module_srv_conf(r, ngx_http_once_module);

    if (!oscf->guarded || r->post_action) {
        return NGX_DECLINED;
    }

    /* a request that could not be read reaches a location by error pages only */

    if (r->internal && ngx_http_once_strip_request(r) != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_http_once_passed_access(r);

    conf = ngx_http_get_module_loc_conf(r, ngx_http_once_module);

    if (!conf->enable || !(r->method & conf->methods)) {
        return NGX_DECLINED;
    }

    if (ngx_http_once_was_refused(r)) {
        ngx_log_error(NGX_LOG_WARN, r->connection->log, 0,
                      "once: refused, and led on by an error page: not "
                      "guarded");
        return NGX_DECLINED;
    }

    if (ctx == NULL) {
        ctx = ngx_http_once_make_ctx(r, conf);

        if (ctx == NULL) {
            return NGX_ERROR;
        }
    }

    ctx->conf = conf;

    if (conf->key_header.len) {
        rc = ngx_http_once_check_key(r, ctx);

        if (rc == NGX_DECLINED) {
            ctx->phase = NGX_HTTP_ONCE_SENDING;
        }

        if (rc != NGX_OK) {
            return rc;
        }
    }

    return ngx_http_once_read_body(r, ctx);
}
