/*
 * Asks the store whether the operation may run, and acts on the answer. By
 * outcome:
 *
 *   run        granted: the phases resume, and the request is forwarded
 *   replay     the stored response is sent
 *   busy       waits (ngx_http_once_wait.c) and asks again, or gets a 409
 *   mismatch   422: the key belongs to a different request
 *   unknown    the backend is probed first, if it can be; then 409
 *   an error   503, or forwarded unguarded (once_on_store_error)
 *
 * Everything except run is first submitted to once_authorize.
 */
#include "ngx_http_once_request.h"

#include <assert.h>


static void ngx_http_once_ask_done(once_t *once, once_answer_t *answer,
    void *data);


/* Sets what the record says about itself. Only the beginning is stored. */

static ngx_int_t
ngx_http_once_describe(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    once_ask_t *ask)
{
    u_char                    *p;
    size_t                     len;
    ngx_str_t                  text;
    ngx_http_once_loc_conf_t  *conf;

    conf = ctx->conf;

    if (conf->subject) {

        if (ngx_http_complex_value(r, conf->subject, &text) != NGX_OK) {
            return NGX_ERROR;
        }

        ask->subject.data = text.data;
        ask->subject.len = text.len;
    }

    switch (conf->describe) {

    case NGX_HTTP_ONCE_DESCRIBE_OFF:
        return NGX_OK;

    case NGX_HTTP_ONCE_DESCRIBE_VALUE:

        if (ngx_http_complex_value(r, conf->describe_value, &text) != NGX_OK) {
            return NGX_ERROR;
        }

        ask->description.data = text.data;
        ask->description.len = text.len;

        return NGX_OK;

    default: /* NGX_HTTP_ONCE_DESCRIBE_PATH */
        break;
    }

    if (ctx->rpc) {

        if (ngx_http_once_mcp_describe(r, ctx, &text) != NGX_OK) {
            return NGX_ERROR;
        }

        ask->description.data = text.data;
        ask->description.len = text.len;

        return NGX_OK;
    }

    text = r->unparsed_uri;

    p = ngx_strlchr(text.data, text.data + text.len, '?');
    len = p ? (size_t) (p - text.data) : text.len;
    len = ngx_min(len, ONCE_DESCRIPTION_MAX);

    p = ngx_pnalloc(r->pool, r->method_name.len + 1 + len);
    if (p == NULL) {
        return NGX_ERROR;
    }

    ask->description.data = p;
    ask->description.len = r->method_name.len + 1 + len;

    p = ngx_cpymem(p, r->method_name.data, r->method_name.len);
    *p++ = ' ';
    ngx_memcpy(p, text.data, len);

    return NGX_OK;
}


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

    if (once == NULL) {
        code = ONCE_E_UNAVAILABLE;

    } else if (ngx_http_once_describe(r, ctx, &ask) != NGX_OK) {
        code = ONCE_E_NOMEM;

    } else {
        code = once_begin(once, &ask, ngx_http_once_ask_done, ctx->guard);
    }

    if (code == ONCE_OK) {
        ctx->inside = 0;
        ngx_http_once_guard_called(ctx->guard);
        return;
    }

    ngx_http_once_admit_asked(ctx->guard, NULL);
    ngx_http_once_wait_over(ctx);
    ngx_http_once_ask_failed(r, ctx, code);
}


void
ngx_http_once_ask_failed(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    int code)
{
    time_t                     retry_after;
    ngx_int_t                  rc;
    ngx_http_once_loc_conf_t  *conf;

    static ngx_str_t  secrets = ngx_string(
        "The secrets of the idempotency records are missing, or do not belong "
        "to this server. Its operator has to fix this. Send the same request "
        "with the same key again later.");

    conf = ctx->conf;

    if (code == ONCE_E_FULL) {
        ngx_http_once_store_full(conf->store, r->connection->log);

    } else {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "once: store \"%V\" did not answer: %s",
                      &conf->store->name, once_error_text(code));
        ngx_http_once_count(conf->route, NGX_HTTP_ONCE_C_STORE_ERROR);
    }

    if (conf->pass_on_error) {
        ctx->outcome = NGX_HTTP_ONCE_PASS;
        ngx_http_once_count(conf->route, NGX_HTTP_ONCE_C_PASS);
        ctx->phase = NGX_HTTP_ONCE_SENDING;
        ngx_http_once_resume(r);
        return;
    }

    if (code == ONCE_E_FULL) {
        ctx->outcome = NGX_HTTP_ONCE_REFUSED;
        ngx_http_once_count(conf->route, NGX_HTTP_ONCE_C_REFUSED);
        ngx_http_once_count(conf->route, NGX_HTTP_ONCE_C_FULL);

    } else {
        ctx->outcome = NGX_HTTP_ONCE_ERROR;
        ngx_http_once_count(conf->route, NGX_HTTP_ONCE_C_ERROR);
    }

    retry_after = conf->retry_after ? conf->retry_after : 1;

    rc = ngx_http_once_problem_refuse(r, ctx, NGX_HTTP_ONCE_P_STORE,
                                      code == ONCE_E_SECRET ? &secrets : NULL,
                                      retry_after);
    ngx_http_once_finalize(r, rc);
}


/* ------------------------------------------------------------- the answers */

static void
ngx_http_once_granted(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    once_answer_t *answer)
{
    ngx_str_t  coding = ngx_string("accept-encoding");

    assert(ctx->phase == NGX_HTTP_ONCE_ASKING && ctx->run == NULL);

    ctx->run = ngx_pcalloc(r->pool, sizeof(ngx_http_once_run_t));

    if (ctx->run == NULL || r->connection->error) {
        /* not taken: the library releases the claim */
        ngx_http_once_finalize(r, ctx->run ? NGX_HTTP_CLIENT_CLOSED_REQUEST
                                          : NGX_HTTP_INTERNAL_SERVER_ERROR);
        return;
    }

    ngx_http_once_guard_grant(ctx->guard, answer);

    /* filters such as SSI may read it after the response was recorded */
    r->preserve_body = 1;

    /* nginx must not turn the recorded response into a 304 or a 412 */
    r->headers_in.if_match = NULL;
    r->headers_in.if_none_match = NULL;
    r->headers_in.if_modified_since = NULL;
    r->headers_in.if_unmodified_since = NULL;

    ctx->run->http_version = r->http_version;
    ctx->outcome = NGX_HTTP_ONCE_RUN;
    ctx->epoch = once_claim_epoch(ctx->guard->claim);
    ctx->phase = NGX_HTTP_ONCE_GRANTED;

    ngx_http_once_body_drop(ctx);

    /* a coded answer could not be replayed under another id */

    if ((ctx->rpc
         && ngx_http_once_headers_drop_request(r, &coding) != NGX_OK)
        || ngx_http_once_headers_add_claim(r, ctx) != NGX_OK)
    {
        ngx_http_once_finalize(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
        return;
    }

    ngx_http_once_resume(r);
}


static void
ngx_http_once_replayed(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    once_answer_t *answer)
{
    ngx_int_t  rc;

    ngx_http_once_body_drop(ctx);

    if (ngx_http_once_replay_keep(ctx, answer) != NGX_OK) {
        rc = ngx_http_once_problem_refuse_crowded(r, ctx,
                                                  NGX_HTTP_ONCE_C_NO_MEMORY);
        ngx_http_once_finalize(r, rc);
        return;
    }

    ctx->outcome = NGX_HTTP_ONCE_REPLAY;
    ctx->phase = NGX_HTTP_ONCE_ANSWERED;

    ngx_http_once_count(ctx->conf->route, NGX_HTTP_ONCE_C_REPLAY);

    ngx_http_once_finalize(r, ngx_http_once_replay_send(r, ctx, 1));
}


time_t
ngx_http_once_ask_retry_after(ngx_http_once_loc_conf_t *conf,
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

    /*
     * the holder keeps renewing, so the end of its lease overestimates: use the
     * observed latency
     */

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
    time_t                    retry_after;
    ngx_int_t                 rc;
    const once_record_t      *record;
    ngx_http_once_problem_e   problem;

    record = once_answer_record(answer);

    problem = record && once_record_state(record) == ONCE_STATE_UNKNOWN
              ? NGX_HTTP_ONCE_P_IN_DOUBT : NGX_HTTP_ONCE_P_IN_FLIGHT;

    switch (ngx_http_once_wait(ctx, answer)) {

    case NGX_OK:
        ctx->authorized = 0;
        return;

    case NGX_BUSY:
        problem = NGX_HTTP_ONCE_P_TOO_MANY_WAITERS;
        break;

    default:
        break;
    }

    ctx->outcome = NGX_HTTP_ONCE_BUSY;
    ngx_http_once_count(ctx->conf->route, NGX_HTTP_ONCE_C_BUSY);

    retry_after = ngx_http_once_ask_retry_after(ctx->conf, answer);

    rc = ngx_http_once_problem_refuse(r, ctx, problem, NULL, retry_after);
    ngx_http_once_finalize(r, rc);
}


static void
ngx_http_once_answered(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    once_answer_t *answer)
{
    ngx_int_t             rc;
    const once_record_t  *record;

    record = once_answer_record(answer);

    if (record) {
        ctx->epoch = once_record_epoch(record);
        ctx->age_ms = once_record_age_ms(record);
        ctx->has_age = 1;
    }

    if (ngx_http_once_authorize(ctx, answer) == NGX_OK) {
        return;
    }

    /* under retry, an unknown record is busy until its lease runs out */

    if (record && once_record_state(record) == ONCE_STATE_UNKNOWN
        && (once_answer_outcome(answer) == ONCE_OUTCOME_UNKNOWN
            || once_answer_outcome(answer) == ONCE_OUTCOME_BUSY)
        && ngx_http_once_probe_first(ctx, answer) == NGX_OK)
    {
        return;
    }

    if (once_answer_outcome(answer) == ONCE_OUTCOME_BUSY) {
        ngx_http_once_was_busy(r, ctx, answer);
        return;
    }

    ngx_http_once_wait_over(ctx);

    switch (once_answer_outcome(answer)) {

    case ONCE_OUTCOME_RUN:
        ctx->has_age = 0;
        ngx_http_once_granted(r, ctx, answer);
        return;

    case ONCE_OUTCOME_REPLAY:
        ngx_http_once_replayed(r, ctx, answer);
        return;

    case ONCE_OUTCOME_MISMATCH:
        ctx->outcome = NGX_HTTP_ONCE_MISMATCH;
        ngx_http_once_count(ctx->conf->route, NGX_HTTP_ONCE_C_MISMATCH);
        rc = ngx_http_once_problem_refuse(r, ctx, NGX_HTTP_ONCE_P_MISMATCH,
                                          NULL, 0);
        ngx_http_once_finalize(r, rc);
        return;

    case ONCE_OUTCOME_UNKNOWN:
        ctx->outcome = NGX_HTTP_ONCE_UNKNOWN;
        ngx_http_once_count(ctx->conf->route, NGX_HTTP_ONCE_C_UNKNOWN);
        rc = ngx_http_once_problem_refuse(r, ctx, NGX_HTTP_ONCE_P_UNKNOWN,
                                          NULL, 0);
        ngx_http_once_finalize(r, rc);
        return;

    default:
        ngx_http_once_ask_failed(r, ctx, ONCE_E_CONFLICT);
    }
}


static void
ngx_http_once_ask_done(once_t *once, once_answer_t *answer, void *data)
{
    ngx_http_request_t     *r;
    ngx_http_once_ctx_t    *ctx;
    ngx_http_once_guard_t  *guard;

    guard = data;
    ctx = guard->ctx;

    ngx_http_once_observe(guard->conf->route, NGX_HTTP_ONCE_H_CLAIM,
                          ngx_http_once_guard_returned(guard));
    ngx_http_once_admit_asked(guard, answer);
    ngx_http_once_admit_note(guard->conf, answer);

    if (ctx) {
        r = ctx->request;
        ngx_http_set_log_request(r->connection->log, r);

        if (once_answer_error(answer) == ONCE_OK) {
            ngx_http_once_answered(r, ctx, answer);

        } else {
            ngx_http_once_wait_over(ctx);
            ngx_http_once_ask_failed(r, ctx, once_answer_error(answer));
        }
    }

    ngx_http_once_guard_unref(guard);
}
