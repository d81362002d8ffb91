/*
 * The guarded request: its context, its body, and what is forwarded. The store
 * is asked, and answered, in ngx_http_once_ask.c.
 *
 * The handler runs in the precontent phase. A request that the access phase
 * rejects never gets here: it neither claims a key nor receives a stored
 * response, wherever an error page may redirect it (ngx_http_once_entry.c).
 * When the phases resume, the handler is entered again, and the context says
 * how far the request has come:
 *
 *   START      the key is read, if a header has it; the body is read
 *   READING    the body streams through ngx_http_once_body.c
 *   ASKING     ngx_http_once_ask(), after ngx_http_once_admit()
 *   GRANTED    forwarded, and again after each internal redirect
 */
#include "ngx_http_once_request.h"

#include <assert.h>


/* ------------------------------------------------------------- the context */

void *
ngx_http_once_cleanup_find(ngx_pool_t *pool, ngx_pool_cleanup_pt handler)
{
    ngx_pool_cleanup_t  *cln;

    for (cln = pool->cleanup; cln; cln = cln->next) {
        if (cln->handler == handler) {
            return cln->data;
        }
    }

    return NULL;
}


void *
ngx_http_once_cleanup_add(ngx_pool_t *pool, ngx_pool_cleanup_pt handler,
    size_t size)
{
    ngx_pool_cleanup_t  *cln;

    cln = ngx_pool_cleanup_add(pool, size);
    if (cln == NULL) {
        return NULL;
    }

    ngx_memzero(cln->data, size);
    cln->handler = handler;

    return cln->data;
}


static void
ngx_http_once_cleanup(void *data)
{
    ngx_http_once_ctx_t  *ctx = data;

    ngx_http_once_wait_leave(ctx);

    ngx_http_once_replay_drop(ctx);

    if (ctx->guard) {
        ngx_http_once_guard_leave(ctx->guard);
    }

    ngx_http_once_body_drop(ctx);
    ngx_http_once_body_unreserve(ctx);
    ngx_http_once_body_give_memory(&ctx->memory);
}


static ngx_http_once_ctx_t *
ngx_http_once_make_ctx(ngx_http_request_t *r)
{
    ngx_http_once_ctx_t  *ctx;

    ctx = ngx_http_once_cleanup_add(r->pool, ngx_http_once_cleanup,
                                    sizeof(ngx_http_once_ctx_t));
    if (ctx == NULL) {
        return NULL;
    }

    ctx->request = r;
    ngx_http_set_ctx(r, ctx, ngx_http_once_module);

    return ctx;
}


ngx_http_once_ctx_t *
ngx_http_once_get_ctx(ngx_http_request_t *r)
{
    ngx_http_once_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_once_module);

    if (ctx || r != r->main || !(r->internal || r->filter_finalize)) {
        return ctx;
    }

    /* an internal redirect clears all contexts */

    ctx = ngx_http_once_cleanup_find(r->pool, ngx_http_once_cleanup);

    if (ctx) {
        ngx_http_set_ctx(r, ctx, ngx_http_once_module);
    }

    return ctx;
}


/* ------------------------------------------------------- resuming, sending */

/*
 * Posted requests are run by the handler of the event. In an event of the
 * request's own that is nginx, once every user of the request has returned:
 * if the client is gone, nginx posts the end of the request. In an event of
 * the store or of a timer it is up to us.
 */

static ngx_uint_t
ngx_http_once_runs_posted(ngx_http_request_t *r)
{
    ngx_uint_t            inside;
    ngx_http_once_ctx_t  *ctx;

    ctx = ngx_http_once_get_ctx(r);
    inside = ctx && ctx->inside;

    if (inside) {
        ctx->inside = 0;
    }

    return !inside;
}


void
ngx_http_once_finalize(ngx_http_request_t *r, ngx_int_t rc)
{
    ngx_uint_t         run_posted;
    ngx_connection_t  *c;

    c = r->connection;
    run_posted = ngx_http_once_runs_posted(r);

    ngx_http_finalize_request(r, rc);

    if (run_posted) {
        ngx_http_run_posted_requests(c);
    }
}


void
ngx_http_once_resume(ngx_http_request_t *r)
{
    ngx_uint_t         run_posted;
    ngx_connection_t  *c;

    c = r->connection;
    run_posted = ngx_http_once_runs_posted(r);

    r->read_event_handler = ngx_http_block_reading;
    r->write_event_handler = ngx_http_core_run_phases;

    ngx_http_core_run_phases(r);

    if (run_posted) {
        ngx_http_run_posted_requests(c);
    }
}


ngx_int_t
ngx_http_once_send(ngx_http_request_t *r, ngx_buf_t *b)
{
    ngx_int_t    rc;
    ngx_chain_t  out;

    b->last_buf = (r == r->main) ? 1 : 0;
    b->last_in_chain = 1;

    rc = ngx_http_send_header(r);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    out.buf = b;
    out.next = NULL;

    return ngx_http_output_filter(r, &out);
}


/* ---------------------------------------------------------------- the body */

static void
ngx_http_once_start(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    ctx->guard = ngx_http_once_guard_new(ctx);

    if (ctx->guard == NULL || ngx_http_once_identify_target(r, ctx) != NGX_OK)
    {
        ngx_http_once_finalize(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
        return;
    }

    /* a client that disconnects now has not asked for anything */

    r->read_event_handler = ngx_http_test_reading;
    r->write_event_handler = ngx_http_request_empty_handler;

    if (ngx_http_once_admit(ctx) == NGX_OK) {
        ngx_http_once_ask(ctx);
    }
}


/* NGX_OK: there is a key; NGX_DONE: the request has been answered. */

static ngx_int_t
ngx_http_once_check_key(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    time_t                   retry_after;
    ngx_int_t                rc;
    ngx_str_t                detail;
    ngx_http_once_problem_e  problem;
    ngx_http_once_counter_e  counter;

    retry_after = 0;
    rc = ngx_http_once_identify(r, ctx, &problem, &detail);

    if (rc != NGX_ABORT) {
        return rc;
    }

    switch (problem) {

    case NGX_HTTP_ONCE_P_KEY_MISSING:
        counter = NGX_HTTP_ONCE_C_MISSING;
        break;

    case NGX_HTTP_ONCE_P_STORE:
        counter = NGX_HTTP_ONCE_C_ERROR;
        retry_after = ctx->conf->retry_after ? ctx->conf->retry_after : 1;
        break;

    default:
        counter = NGX_HTTP_ONCE_C_INVALID;
    }

    ngx_http_once_count(ctx->conf->route, counter);

    rc = ngx_http_once_problem_refuse(r, ctx, problem, &detail, retry_after);
    ngx_http_finalize_request(r, rc);

    return NGX_DONE;
}


static void
ngx_http_once_body_done(ngx_http_request_t *r)
{
    ngx_int_t             rc;
    ngx_http_once_ctx_t  *ctx;

    ctx = ngx_http_once_get_ctx(r);

    assert(ctx->phase == NGX_HTTP_ONCE_READING);    /* it is read once */
    assert(ctx->run == NULL);

    ctx->phase = NGX_HTTP_ONCE_ASKING;
    ctx->inside = 1;

    if (ctx->crowded) {
        rc = ngx_http_once_problem_refuse_crowded(r, ctx,
                                                  NGX_HTTP_ONCE_C_NO_MEMORY);
        ngx_http_once_finalize(r, rc);
        return;
    }

    /* a key that is not in a header may be in the body */

    rc = ctx->rpc ? ngx_http_once_mcp_read(r, ctx) : NGX_OK;

    if (rc == NGX_OK && (ctx->rpc || ctx->conf->key_header.len == 0)) {
        rc = ngx_http_once_check_key(r, ctx);
    }

    if (rc == NGX_OK) {
        ngx_http_once_start(r, ctx);

    } else if (rc == NGX_DECLINED) {
        ctx->phase = NGX_HTTP_ONCE_SENDING;
        ngx_http_once_resume(r);

    } else if (rc != NGX_DONE) {
        ngx_http_once_finalize(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
    }
}


static ngx_int_t
ngx_http_once_read_body(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    ngx_int_t     rc;
    once_slice_t  type = { NULL, 0 };

    if (ngx_http_once_body_reserve(r, ctx) != NGX_OK) {
        rc = ngx_http_once_problem_refuse_crowded(r, ctx,
                                                  NGX_HTTP_ONCE_C_NO_FILE);
        ngx_http_finalize_request(r, rc);
        return NGX_DONE;
    }

    if (r->headers_in.content_type) {
        type.data = r->headers_in.content_type->value.data;
        type.len = r->headers_in.content_type->value.len;
    }

    if (ctx->conf->mcp) {
        rc = ngx_http_once_mcp_begin(r, ctx);

    } else {
        ctx->body = once_body_new(ctx->conf->fingerprint, type);
        rc = ctx->body ? NGX_OK : NGX_ERROR;
    }

    if (rc != NGX_OK
        || ngx_http_once_identify_seek(r, ctx) != NGX_OK
        || ngx_http_once_body_add_read(r, ctx) != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if ((r->method & NGX_HTTP_PUT) && r->content_handler == NULL) {
        /* the dav module renames the file to its destination */
        r->request_body_in_file_only = 1;
        r->request_body_in_persistent_file = 1;
        r->request_body_in_clean_file = 1;
        r->request_body_file_log_level = 0;
    }

    ctx->phase = NGX_HTTP_ONCE_READING;

    rc = ngx_http_read_client_request_body(r, ngx_http_once_body_done);

    if (rc >= NGX_HTTP_SPECIAL_RESPONSE) {
        return rc;
    }

    ngx_http_finalize_request(r, NGX_DONE);

    return NGX_DONE;
}


/* -------------------------------------------------------------- forwarding */

/*
 * A content handler that may have acted by itself can redirect on purpose
 * (ngx.exec, for example). An error page is not its decision.
 */

static ngx_uint_t
ngx_http_once_led_by_handler(ngx_http_request_t *r, ngx_http_once_run_t *run)
{
    return run->acted && !run->forwarded && !r->error_page
           && !run->recursive;
}


/*
 * What one upstream has received is sent to no other, unless the first one
 * answered and redirected the request there.
 */

static ngx_uint_t
ngx_http_once_may_forward(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    if (!ctx->run->sent) {

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
        || ngx_http_once_led_by_handler(r, ctx->run))
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
    if (ctx->run == NULL || ctx->phase != NGX_HTTP_ONCE_GRANTED) {
        return NGX_DECLINED;
    }

    ngx_http_once_upstream_note(r, ctx->run);

    if (ctx->run->starting) {
        ngx_http_once_upstream_handler_acted(r, ctx->run);
    }

    if (ctx->run->forwarded && ctx->run->header_status == 0) {
        /* what the backend of an error page says is about the page */
        ctx->run->unanswered = 1;
    }

    ctx->run->loc_conf = r->loc_conf;
    ctx->run->led = (r->err_status != 0);

    if (r->content_handler && !ngx_http_once_may_forward(r, ctx)) {
        ctx->run->led = 0;
        return NGX_HTTP_BAD_GATEWAY;
    }

    ngx_http_once_upstream_watch(r, ctx->run);

    return NGX_DECLINED;
}


/* --------------------------------------------------------------- the phase */

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

    /* a request that could not be read gets here by error pages only */

    if (r->internal && ngx_http_once_headers_strip_request(r) != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_http_once_entry_passed_access(r);

    conf = ngx_http_get_module_loc_conf(r, ngx_http_once_module);

    if (!conf->enable || !(r->method & conf->methods)) {
        return NGX_DECLINED;
    }

    if (ngx_http_once_entry_was_refused(r)) {
        ngx_log_error(NGX_LOG_WARN, r->connection->log, 0,
                      "once: the request was refused and redirected by an "
                      "error page: not guarded");
        return NGX_DECLINED;
    }

    if (ctx == NULL) {
        ctx = ngx_http_once_make_ctx(r);

        if (ctx == NULL) {
            return NGX_ERROR;
        }
    }

    ctx->conf = conf;

    if (conf->key_header.len && conf->mcp == NULL) {
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
