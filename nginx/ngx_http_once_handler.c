/*
 * The request, up to the point where it is forwarded or answered: key and
 * scope, the body, the ask, and what each outcome leads to.
 *
 * Runs in precontent: whoever may not pass the access phase has been refused by
 * then and neither claims a key nor gets a stored answer. The handler is entered
 * again when the phases go on; the context says where the request stands.
 */
#include "ngx_http_once_request.h"


static void ngx_http_once_asked(once_t *once, once_answer_t *answer,
    void *data);


/* -------------------------------------------------------------- the context */

static void
ngx_http_once_cleanup(void *data)
{
    ngx_http_once_ctx_t  *ctx = data;

    ngx_http_once_wait_leave(ctx);

    if (ctx->answer) {
        once_answer_free(ctx->answer);
    }

    if (ctx->guard) {
        ngx_http_once_guard_leave(ctx->guard);
    }

    once_body_free(ctx->body);
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


/* ------------------------------------------------------------- key and scope */

static ngx_int_t
ngx_http_once_header_values(ngx_http_request_t *r, ngx_str_t *name,
    ngx_array_t *values)
{
    ngx_uint_t        i;
    once_slice_t     *value;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *h;

    for (part = &r->headers_in.headers.part; part; part = part->next) {
        h = part->elts;

        for (i = 0; i < part->nelts; i++) {

            if (h[i].key.len != name->len
                || ngx_strncasecmp(h[i].key.data, name->data, name->len) != 0)
            {
                continue;
            }

            value = ngx_array_push(values);
            if (value == NULL) {
                return NGX_ERROR;
            }

            value->data = h[i].value.data;
            value->len = h[i].value.len;
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_once_key_values(ngx_http_request_t *r,
    ngx_http_once_loc_conf_t *conf, ngx_array_t *values)
{
    ngx_str_t      text;
    once_slice_t  *value;

    if (ngx_array_init(values, r->pool, 1, sizeof(once_slice_t)) != NGX_OK) {
        return NGX_ERROR;
    }

    if (conf->key_header.len) {
        return ngx_http_once_header_values(r, &conf->key_header, values);
    }

    if (ngx_http_complex_value(r, conf->key_value, &text) != NGX_OK) {
        return NGX_ERROR;
    }

    if (text.len == 0) {
        return NGX_OK;
    }

    value = ngx_array_push(values);
    if (value == NULL) {
        return NGX_ERROR;
    }

    value->data = text.data;
    value->len = text.len;

    return NGX_OK;
}


/* NGX_OK: a key is required; NGX_DECLINED: not. */

static ngx_int_t
ngx_http_once_required(ngx_http_request_t *r, ngx_http_once_loc_conf_t *conf)
{
    ngx_str_t  value;

    if (conf->require != NGX_HTTP_ONCE_REQUIRE_VALUE) {
        return conf->require == NGX_HTTP_ONCE_REQUIRE_ON ? NGX_OK
                                                         : NGX_DECLINED;
    }

    if (ngx_http_complex_value(r, conf->require_value, &value) != NGX_OK) {
        return NGX_ERROR;
    }

    if (value.len == 0 || (value.len == 1 && value.data[0] == '0')
        || (value.len == 3 && ngx_strncasecmp(value.data, (u_char *) "off", 3)
                              == 0))
    {
        return NGX_DECLINED;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_once_read_key(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    ngx_http_once_problem_e *problem, ngx_str_t *detail)
{
    u_char        *p;
    ngx_int_t      rc;
    ngx_array_t    values;
    once_error_t   err;

    if (ngx_http_once_key_values(r, ctx->conf, &values) != NGX_OK) {
        return NGX_ERROR;
    }

    if (values.nelts == 0) {
        rc = ngx_http_once_required(r, ctx->conf);

        if (rc != NGX_OK) {
            return rc;
        }

        ctx->outcome = NGX_HTTP_ONCE_MISSING;
        *problem = NGX_HTTP_ONCE_P_KEY_MISSING;

        return NGX_ABORT;
    }

    if (once_key_parse(values.elts, values.nelts,
                       ctx->conf->key_strict ? ONCE_KEY_STRICT : 0, &ctx->key,
                       &err)
        == ONCE_OK)
    {
        return NGX_OK;
    }

    ctx->outcome = NGX_HTTP_ONCE_INVALID;
    *problem = NGX_HTTP_ONCE_P_KEY_INVALID;

    p = ngx_pnalloc(r->pool, sizeof(err.text));
    if (p == NULL) {
        return NGX_ERROR;
    }

    detail->data = p;
    detail->len = ngx_cpystrn(p, (u_char *) err.text, sizeof(err.text)) - p;

    return NGX_ABORT;
}


ngx_int_t
ngx_http_once_identify(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    ngx_http_once_problem_e *problem, ngx_str_t *detail)
{
    ngx_int_t  rc;

    ngx_str_null(detail);

    if (ctx->key.len) {
        return NGX_OK;
    }

    rc = ngx_http_once_read_key(r, ctx, problem, detail);

    if (rc != NGX_OK) {
        return rc;
    }

    if (ctx->conf->scope == NULL) {
        ngx_str_set(&ctx->scope, "");
        return NGX_OK;
    }

    if (ngx_http_complex_value(r, ctx->conf->scope, &ctx->scope) != NGX_OK) {
        return NGX_ERROR;
    }

    if (ctx->scope.len == 0 && !ctx->conf->scope_optional) {
        ctx->outcome = NGX_HTTP_ONCE_INVALID;
        ctx->key.len = 0;
        *problem = NGX_HTTP_ONCE_P_SCOPE_MISSING;

        return NGX_ABORT;
    }

    return NGX_OK;
}


/* --------------------------------------------------------------- going on */

void
ngx_http_once_finish(ngx_http_request_t *r, ngx_int_t rc)
{
    ngx_connection_t  *c;

    c = r->connection;

    ngx_http_finalize_request(r, rc);
    ngx_http_run_posted_requests(c);
}


static ngx_int_t
ngx_http_once_refuse_request(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    ngx_http_once_problem_e problem, ngx_str_t *detail, time_t retry_after)
{
    ctx->phase = NGX_HTTP_ONCE_ANSWERED;

    return ngx_http_once_send_problem(r, ctx->conf, problem, detail,
                                      retry_after);
}


static void
ngx_http_once_go_on(ngx_http_request_t *r)
{
    ngx_connection_t  *c;

    c = r->connection;

    r->read_event_handler = ngx_http_block_reading;
    r->write_event_handler = ngx_http_core_run_phases;

    r->main->count++;    /* it may be over when the phases return */

    ngx_http_core_run_phases(r);
    ngx_http_once_ignore_abort(r);

    ngx_http_finalize_request(r, NGX_DONE);
    ngx_http_run_posted_requests(c);
}


void
ngx_http_once_store_failed(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    int code)
{
    time_t                     retry_after;
    ngx_http_once_loc_conf_t  *conf;

    conf = ctx->conf;

    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                  "once: store \"%V\" did not answer: %s", &conf->store->name,
                  once_error_text(code));

    ngx_http_once_count(conf->route, NGX_HTTP_ONCE_C_STORE_ERROR);

    if (conf->pass_on_error) {
        ctx->outcome = NGX_HTTP_ONCE_PASS;
        ctx->phase = NGX_HTTP_ONCE_SENDING;
        ngx_http_once_go_on(r);
        return;
    }

    ctx->outcome = NGX_HTTP_ONCE_ERROR;
    retry_after = conf->retry_after ? conf->retry_after : 1;

    ngx_http_once_finish(r, ngx_http_once_refuse_request(r, ctx,
                                NGX_HTTP_ONCE_P_STORE, NULL, retry_after));
}


/* --------------------------------------------------------------- the answers */

static void
ngx_http_once_granted(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    once_answer_t *answer)
{
    ctx->hold = ngx_pcalloc(r->pool, sizeof(ngx_http_once_hold_t));

    if (ctx->hold == NULL || r->connection->error) {
        /* not taken: the library gives the claim back */
        ngx_http_once_finish(r, ctx->hold ? NGX_HTTP_CLIENT_CLOSED_REQUEST
                                          : NGX_HTTP_INTERNAL_SERVER_ERROR);
        return;
    }

    ngx_http_once_guard_grant(ctx->guard, answer);

    ctx->hold->http_version = r->http_version;
    ctx->outcome = NGX_HTTP_ONCE_RUN;
    ctx->epoch = once_claim_epoch(ctx->guard->claim);
    ctx->phase = NGX_HTTP_ONCE_GRANTED;

    once_body_free(ctx->body);
    ctx->body = NULL;

    if (ngx_http_once_add_claim(r, ctx) != NGX_OK) {
        ngx_http_once_finish(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
        return;
    }

    /*
     * nginx sends a request to another server once a byte of it was sent only
     * for methods that it takes for repeatable. A guarded one is not.
     */

    if (r->content_handler && !(r->method & (NGX_HTTP_POST|NGX_HTTP_PATCH))) {
        r->method |= NGX_HTTP_LOCK;
    }

    ngx_http_once_go_on(r);
}


static void
ngx_http_once_replayed(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    once_answer_t *answer)
{
    ctx->outcome = NGX_HTTP_ONCE_REPLAY;
    ctx->phase = NGX_HTTP_ONCE_ANSWERED;
    ctx->answer = answer;
    once_answer_keep(answer);

    ngx_http_once_count(ctx->conf->route, NGX_HTTP_ONCE_C_REPLAY);

    ngx_http_once_finish(r, ngx_http_once_send_stored(r, ctx, 1));
}


time_t
ngx_http_once_retry_after(ngx_http_once_loc_conf_t *conf,
    once_answer_t *answer)
{
    uint64_t              msec, lease;
    const once_record_t  *record;

    if (conf->retry_after) {
        return conf->retry_after;
    }

    lease = once_answer_retry_after_ms(answer);
    record = once_answer_record(answer);
    msec = lease;

    /* the lease is renewed: who runs will be ready long before it is over */

    if (conf->latency && conf->latency < msec
        && record && once_record_state(record) == ONCE_STATE_PENDING)
    {
        msec = conf->latency;
    }

    msec = (msec + 999) / 1000;

    return msec ? (time_t) msec : 1;
}


static void
ngx_http_once_was_busy(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    once_answer_t *answer)
{
    time_t                   retry_after;
    ngx_http_once_problem_e  problem;

    problem = NGX_HTTP_ONCE_P_IN_FLIGHT;

    switch (ngx_http_once_wait(ctx, answer)) {

    case NGX_OK:
        return;

    case NGX_BUSY:
        problem = NGX_HTTP_ONCE_P_TOO_MANY_WAITERS;
        break;

    default:
        break;
    }

    ctx->outcome = NGX_HTTP_ONCE_BUSY;
    ngx_http_once_count(ctx->conf->route, NGX_HTTP_ONCE_C_BUSY);

    retry_after = ngx_http_once_retry_after(ctx->conf, answer);

    ngx_http_once_finish(r, ngx_http_once_refuse_request(r, ctx, problem, NULL,
                                                         retry_after));
}


static void
ngx_http_once_answered(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    once_answer_t *answer)
{
    const once_record_t  *record;

    record = once_answer_record(answer);

    if (record) {
        ctx->epoch = once_record_epoch(record);
        ctx->age_ms = once_record_age_ms(record);
        ctx->has_age = 1;
    }

    /* under retry, an unknown record is busy until its lease is over */

    if (record && once_record_state(record) == ONCE_STATE_UNKNOWN
        && (once_answer_outcome(answer) == ONCE_UNKNOWN
            || once_answer_outcome(answer) == ONCE_BUSY)
        && ngx_http_once_probe_first(ctx, answer) == NGX_OK)
    {
        return;
    }

    if (once_answer_outcome(answer) == ONCE_BUSY) {
        ngx_http_once_was_busy(r, ctx, answer);
        return;
    }

    ngx_http_once_wait_over(ctx);

    switch (once_answer_outcome(answer)) {

    case ONCE_RUN:
        ctx->has_age = 0;
        ngx_http_once_granted(r, ctx, answer);
        return;

    case ONCE_REPLAY:
        ngx_http_once_replayed(r, ctx, answer);
        return;

    case ONCE_MISMATCH:
        ctx->outcome = NGX_HTTP_ONCE_MISMATCH;
        ngx_http_once_count(ctx->conf->route, NGX_HTTP_ONCE_C_MISMATCH);
        ngx_http_once_finish(r, ngx_http_once_refuse_request(r, ctx,
                                    NGX_HTTP_ONCE_P_MISMATCH, NULL, 0));
        return;

    case ONCE_UNKNOWN:
        ctx->outcome = NGX_HTTP_ONCE_UNKNOWN;
        ngx_http_once_count(ctx->conf->route, NGX_HTTP_ONCE_C_UNKNOWN);
        ngx_http_once_finish(r, ngx_http_once_refuse_request(r, ctx,
                                    NGX_HTTP_ONCE_P_UNKNOWN, NULL, 0));
        return;

    default:
        ngx_http_once_store_failed(r, ctx, ONCE_E_CONFLICT);
    }
}


static void
ngx_http_once_asked(once_t *once, once_answer_t *answer, void *data)
{
    ngx_http_request_t     *r;
    ngx_http_once_ctx_t    *ctx;
    ngx_http_once_guard_t  *guard;

    guard = data;
    ctx = guard->ctx;

    ngx_http_once_observe(guard->conf->route, NGX_HTTP_ONCE_H_CLAIM,
                          ngx_http_once_guard_returned(guard));

    if (ctx) {
        r = ctx->request;
        ngx_http_set_log_request(r->connection->log, r);

        if (once_answer_error(answer) == ONCE_OK) {
            ngx_http_once_answered(r, ctx, answer);

        } else {
            ngx_http_once_wait_over(ctx);
            ngx_http_once_store_failed(r, ctx, once_answer_error(answer));
        }
    }

    ngx_http_once_guard_unref(guard);
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
    ask.target.data = r->unparsed_uri.data;
    ask.target.len = r->unparsed_uri.len;
    ask.body = ctx->body;
    ask.policy = ctx->conf->policy;

    code = once ? once_begin(once, &ask, ngx_http_once_asked, ctx->guard)
                : ONCE_E_UNAVAILABLE;

    if (code == ONCE_OK) {
        ngx_http_once_guard_called(ctx->guard);
        return;
    }

    ngx_http_once_wait_over(ctx);
    ngx_http_once_store_failed(r, ctx, code);
}


static void
ngx_http_once_start(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    ctx->guard = ngx_http_once_guard_new(ctx);

    if (ctx->guard == NULL) {
        ngx_http_once_finish(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
        return;
    }

    /* a client that hangs up now has not asked for anything */

    r->read_event_handler = ngx_http_test_reading;
    r->write_event_handler = ngx_http_request_empty_handler;

    ngx_http_once_ask(ctx);
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

    if (r->headers_in.content_type) {
        type.data = r->headers_in.content_type->value.data;
        type.len = r->headers_in.content_type->value.len;
    }

    ctx->body = once_body_new(ctx->conf->fingerprint, type);

    if (ctx->body == NULL
        || ngx_http_once_body_of(r, ctx->body) != NGX_OK)
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
 * An internal redirect of a request that was granted: error_page, a named
 * location, X-Accel-Redirect. What an upstream got once goes to no other, unless
 * the first one answered and sent us there.
 */

static ngx_int_t
ngx_http_once_redirected(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    if (ctx->hold == NULL || ctx->phase != NGX_HTTP_ONCE_GRANTED) {
        return NGX_DECLINED;
    }

    ngx_http_once_note_upstream(r, ctx->hold);

    if (ctx->hold->sent && r->content_handler
        && !(r->method & (NGX_HTTP_GET|NGX_HTTP_HEAD))
        && !(r->upstream && r->upstream->headers_in.x_accel_redirect))
    {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "once: not sent to a second upstream, the first one may "
                      "have acted on it");

        return NGX_HTTP_BAD_GATEWAY;
    }

    return NGX_DECLINED;
}


ngx_int_t
ngx_http_once_handler(ngx_http_request_t *r)
{
    ngx_int_t                  rc;
    ngx_http_once_ctx_t       *ctx;
    ngx_http_once_loc_conf_t  *conf;

    if (r != r->main) {
        return NGX_DECLINED;
    }

    ctx = ngx_http_once_get_ctx(r);

    if (ctx && ctx->phase != NGX_HTTP_ONCE_START) {
        return ngx_http_once_redirected(r, ctx);
    }

    conf = ngx_http_get_module_loc_conf(r, ngx_http_once_module);

    if (!conf->enable || r->post_action) {
        return NGX_DECLINED;
    }

    if (ngx_http_once_strip_request(r) != NGX_OK) {
        return NGX_ERROR;
    }

    if (!(r->method & conf->methods)) {
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
