/*
 * The store's answer to an ask, and what each outcome leads to: the request is
 * forwarded, answered, or waits.
 */
#include "ngx_http_once_request.h"


/* --------------------------------------------------------------- going on */

/*
 * What nginx posted is run by whoever handles the event. In an event of the
 * request's own that is nginx, and only when all who use the request have
 * returned: a client that is gone makes it post the end of the request.
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
ngx_http_once_finish(ngx_http_request_t *r, ngx_int_t rc)
{
    ngx_uint_t         run;
    ngx_connection_t  *c;

    c = r->connection;
    run = ngx_http_once_runs_posted(r);

    ngx_http_finalize_request(r, rc);

    if (run) {
        ngx_http_run_posted_requests(c);
    }
}


ngx_int_t
ngx_http_once_refuse_request(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    ngx_http_once_problem_e problem, ngx_str_t *detail, time_t retry_after)
{
    ctx->phase = NGX_HTTP_ONCE_ANSWERED;

    return ngx_http_once_send_problem(r, ctx->conf, problem, detail,
                                      retry_after);
}


ngx_int_t
ngx_http_once_refuse_crowded(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    ngx_http_once_counter_e counter)
{
    if (ctx->outcome == NGX_HTTP_ONCE_NONE) {    /* else it has been counted as what it was */
        ngx_http_once_count(ctx->conf->route, NGX_HTTP_ONCE_C_REFUSED);
    }

    ctx->outcome = NGX_HTTP_ONCE_REFUSED;
    ngx_http_once_count(ctx->conf->route, counter);

    return ngx_http_once_refuse_request(r, ctx, NGX_HTTP_ONCE_P_MEMORY, NULL,
                                        ctx->conf->retry_after
                                        ? ctx->conf->retry_after : 1);
}


void
ngx_http_once_go_on(ngx_http_request_t *r)
{
    ngx_uint_t         run;
    ngx_connection_t  *c;

    c = r->connection;
    run = ngx_http_once_runs_posted(r);

    r->read_event_handler = ngx_http_block_reading;
    r->write_event_handler = ngx_http_core_run_phases;

    ngx_http_core_run_phases(r);

    if (run) {
        ngx_http_run_posted_requests(c);
    }
}


void
ngx_http_once_store_failed(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    int code)
{
    time_t                     retry_after;
    ngx_http_once_loc_conf_t  *conf;
    static ngx_str_t           secrets = ngx_string(
        "The secrets of the idempotency records are missing, or not those of "
        "this server. Its operator has to put that right. Send the same "
        "request with the same key again later.");

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
        ngx_http_once_go_on(r);
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

    ngx_http_once_finish(r, ngx_http_once_refuse_request(r, ctx,
                                NGX_HTTP_ONCE_P_STORE,
                                code == ONCE_E_SECRET ? &secrets : NULL,
                                retry_after));
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

    /* what reads the body later, SSI for example, is asked when the response is recorded */
    r->preserve_body = 1;

    /* conditions are about what is stored somewhere: nginx must not make a 304 or 412 of what is recorded */
    r->headers_in.if_match = NULL;
    r->headers_in.if_none_match = NULL;
    r->headers_in.if_modified_since = NULL;
    r->headers_in.if_unmodified_since = NULL;

    ctx->hold->http_version = r->http_version;
    ctx->outcome = NGX_HTTP_ONCE_RUN;
    ctx->epoch = once_claim_epoch(ctx->guard->claim);
    ctx->phase = NGX_HTTP_ONCE_GRANTED;

    ngx_http_once_body_drop(ctx);

    if (ngx_http_once_add_claim(r, ctx) != NGX_OK) {
        ngx_http_once_finish(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
        return;
    }

    ngx_http_once_go_on(r);
}


static void
ngx_http_once_replayed(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    once_answer_t *answer)
{
    ngx_http_once_body_drop(ctx);

    if (ngx_http_once_keep_answer(ctx, answer) != NGX_OK) {
        ngx_http_once_finish(r, ngx_http_once_refuse_crowded(r, ctx,
                                NGX_HTTP_ONCE_C_NO_MEMORY));
        return;
    }

    ctx->outcome = NGX_HTTP_ONCE_REPLAY;
    ctx->phase = NGX_HTTP_ONCE_ANSWERED;

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
    const once_record_t     *record;
    ngx_http_once_problem_e  problem;

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

    if (ngx_http_once_authorize(ctx, answer) == NGX_OK) {
        return;
    }

    /* under retry, an unknown record is busy until its lease is over */

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
        ngx_http_once_finish(r, ngx_http_once_refuse_request(r, ctx,
                                    NGX_HTTP_ONCE_P_MISMATCH, NULL, 0));
        return;

    case ONCE_OUTCOME_UNKNOWN:
        ctx->outcome = NGX_HTTP_ONCE_UNKNOWN;
        ngx_http_once_count(ctx->conf->route, NGX_HTTP_ONCE_C_UNKNOWN);
        ngx_http_once_finish(r, ngx_http_once_refuse_request(r, ctx,
                                    NGX_HTTP_ONCE_P_UNKNOWN, NULL, 0));
        return;

    default:
        ngx_http_once_store_failed(r, ctx, ONCE_E_CONFLICT);
    }
}


void
ngx_http_once_asked(once_t *once, once_answer_t *answer, void *data)
{
    ngx_http_request_t     *r;
    ngx_http_once_ctx_t    *ctx;
    ngx_http_once_guard_t  *guard;

    guard = data;
    ctx = guard->ctx;

    ngx_http_once_observe(guard->conf->route, NGX_HTTP_ONCE_H_CLAIM,
                          ngx_http_once_guard_returned(guard));
    ngx_http_once_quota_asked(guard, answer);
    ngx_http_once_unknown_note(guard->conf, answer);

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
