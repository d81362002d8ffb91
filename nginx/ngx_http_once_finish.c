/*
 * The end of an operation, in two steps. When the response is complete, or will
 * never be, ngx_http_once_finish() judges what it means for the claim and ends
 * it:
 *
 *   record     completed with the response, which is replayed from then on
 *   release    answered as not done: the key may be used again
 *   early      refused before any effect, or never sent
 *   doubt      it may have taken effect, and the response is not known
 *
 * When the store has answered, or did not in time, ngx_http_once_finish_ended()
 * and ngx_http_once_finish_failed() decide what the client gets.
 */
#include "ngx_http_once_request.h"


/* ---------------------------------------------------- the end of the claim */

once_judgement_t
ngx_http_once_finish_judge(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    ngx_http_once_run_t  *run;

    run = ctx->run;

    if (run->broken || run->unanswered) {
        return ONCE_JUDGEMENT_DOUBT;
    }

    if (run->header_status) {
        return once_claim_judge(ctx->guard->claim, ctx->conf->policy,
                                (int) run->header_status, run->said);
    }

    if (run->acted) {
        return once_claim_judge(ctx->guard->claim, ctx->conf->policy,
                                (int) r->headers_out.status, run->said);
    }

    /* from here on the response is nginx's own */

    if (r->upstream) {
        return run->sent ? ONCE_JUDGEMENT_DOUBT : ONCE_JUDGEMENT_EARLY;
    }

    if (r->headers_out.status >= NGX_HTTP_SPECIAL_RESPONSE) {
        return run->sent ? ONCE_JUDGEMENT_RELEASE : ONCE_JUDGEMENT_EARLY;
    }

    return once_claim_judge(ctx->guard->claim, ctx->conf->policy,
                            (int) r->headers_out.status, ONCE_VERDICT_NONE);
}


static void
ngx_http_once_set_header(once_header_t *header, const char *name,
    size_t name_len, u_char *value, size_t len)
{
    header->name.data = name;
    header->name.len = name_len;
    header->value.data = value;
    header->value.len = len;
}


/* nginx keeps some headers outside its list. */

static ngx_int_t
ngx_http_once_collect_type(ngx_http_request_t *r, once_header_t *header)
{
    u_char     *p;
    size_t      len;
    ngx_str_t  *type, *charset;

    type = &r->headers_out.content_type;
    charset = &r->headers_out.charset;

    if (r->headers_out.content_type_len != type->len || charset->len == 0) {
        ngx_http_once_set_header(header, "Content-Type", 12, type->data,
                                 type->len);
        return NGX_OK;
    }

    len = type->len + sizeof("; charset=") - 1 + charset->len;
    p = ngx_pnalloc(r->pool, len);
    if (p == NULL) {
        return NGX_ERROR;
    }

    ngx_http_once_set_header(header, "Content-Type", 12, p, len);
    ngx_sprintf(p, "%V; charset=%V", type, charset);

    return NGX_OK;
}


static ngx_int_t
ngx_http_once_collect_modified(ngx_http_request_t *r, once_header_t *header)
{
    u_char  *p;

    p = ngx_pnalloc(r->pool, sizeof("Mon, 28 Sep 1970 06:00:00 GMT"));
    if (p == NULL) {
        return NGX_ERROR;
    }

    ngx_http_once_set_header(header, "Last-Modified", 13, p,
                             ngx_http_time(p,
                                           r->headers_out.last_modified_time)
                             - p);

    return NGX_OK;
}


static ngx_uint_t
ngx_http_once_count_headers(ngx_http_request_t *r)
{
    ngx_uint_t        n;
    ngx_list_part_t  *part;

    n = 3;    /* those outside the list */

    for (part = &r->headers_out.headers.part; part; part = part->next) {
        n += part->nelts;
    }

    return n;
}


/* Headers named by the upstream's Connection header: not passed on. */

static ngx_uint_t
ngx_http_once_is_hop(ngx_http_request_t *r, ngx_str_t *name)
{
    u_char                *p, *end, *last;
    ngx_table_elt_t       *h;
    ngx_http_once_walk_t   walk;

    if (r->upstream == NULL) {
        return 0;
    }

    walk.part = &r->upstream->headers_in.headers.part;
    walk.i = 0;

    while ((h = ngx_http_once_headers_next(&walk)) != NULL) {

        if (!ngx_http_once_headers_named(h, "connection", 10)) {
            continue;
        }

        last = h->value.data + h->value.len;

        for (p = h->value.data; p < last; p = end + 1) {

            while (p < last && (*p == ' ' || *p == '\t')) {
                p++;
            }

            end = p;

            while (end < last && *end != ',' && *end != ' ' && *end != '\t') {
                end++;
            }

            if ((size_t) (end - p) == name->len
                && ngx_strncasecmp(p, name->data, name->len) == 0)
            {
                return 1;
            }
        }
    }

    return 0;
}


/* The headers to be stored, in the request's pool. */

static ngx_int_t
ngx_http_once_collect(ngx_http_request_t *r, ngx_http_once_loc_conf_t *conf,
    once_response_t *response)
{
    once_header_t         *headers;
    ngx_uint_t             n;
    ngx_table_elt_t       *h;
    ngx_http_once_walk_t   walk;

    headers = ngx_palloc(r->pool, ngx_http_once_count_headers(r)
                                  * sizeof(once_header_t));
    if (headers == NULL) {
        return NGX_ERROR;
    }

    n = 0;

    /* nginx sends no type with a 204 of its own */

    if (r->headers_out.content_type.len
        && (r->headers_out.status != NGX_HTTP_NO_CONTENT
            || r->headers_out.status_line.len)
        && ngx_http_once_collect_type(r, &headers[n++]) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (r->headers_out.last_modified_time != -1
        && r->headers_out.last_modified == NULL
        && ngx_http_once_collect_modified(r, &headers[n++]) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (r->headers_out.override_charset) {
        ngx_http_once_set_header(&headers[n++], "X-Accel-Charset", 15,
                                 r->headers_out.override_charset->data,
                                 r->headers_out.override_charset->len);
    }

    walk.part = &r->headers_out.headers.part;
    walk.i = 0;

    while ((h = ngx_http_once_headers_next(&walk)) != NULL) {

        if (h->hash
            && ngx_http_once_headers_replayable(conf, h->key.data, h->key.len)
            && !ngx_http_once_is_hop(r, &h->key))
        {
            ngx_http_once_set_header(&headers[n++], (char *) h->key.data,
                                     h->key.len, h->value.data, h->value.len);
        }
    }

    response->headers = headers;
    response->header_count = n;

    return NGX_OK;
}


/* Is there a body that is not recorded? */

static ngx_uint_t
ngx_http_once_omits(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    ngx_http_once_run_t  *run;

    run = ctx->run;

    if (run->stream || run->len == 0) {
        return run->stream;
    }

    return run->omit || (run->no_store && !ctx->conf->store_no_store)
           || ngx_http_once_mcp_omits(r, ctx);
}


static ngx_int_t
ngx_http_once_record(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    once_response_t       response = ONCE_RESPONSE_INIT;
    ngx_http_once_run_t  *run;

    run = ctx->run;

    response.status = (int) r->headers_out.status;
    response.retain_ms = run->retain_ms;
    response.body_omitted = ngx_http_once_omits(r, ctx);

    if (!response.body_omitted) {
        response.body.data = run->data;
        response.body.len = run->len;
    }

    if (ngx_http_once_collect(r, ctx->conf, &response) != NGX_OK
        || ngx_http_once_redact(r->pool, ctx->conf, &response) != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_http_once_guard_complete(ctx->guard, &response);
}


/* Why its outcome is not known, or was not an effect: for operators. */

const char *
ngx_http_once_finish_cause(ngx_http_request_t *r, ngx_http_once_run_t *run)
{
    static u_char  status[sizeof("status ") + NGX_INT_T_LEN];

    if (run->broken) {
        return "response cut off";
    }

    if (run->said == ONCE_VERDICT_UNKNOWN) {
        return "Once-Outcome: unknown";
    }

    if (run->header_status || run->acted) {
        *ngx_sprintf(status, "status %ui",
                     run->header_status ? run->header_status
                                        : r->headers_out.status) = '\0';
        return (char *) status;
    }

    if (r->headers_out.status == NGX_HTTP_GATEWAY_TIME_OUT) {
        return "timeout";
    }

    if (ngx_exiting || ngx_terminate || ngx_quit) {
        return "gateway stopped";
    }

    return r->headers_out.status == NGX_HTTP_BAD_GATEWAY ? "reset"
                                                         : "no response";
}


ngx_int_t
ngx_http_once_finish(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    once_judgement_t  judgement;

    judgement = ngx_http_once_finish_judge(r, ctx);

    if (judgement == ONCE_JUDGEMENT_RECORD
        && ctx->run->said != ONCE_VERDICT_FINAL
        && ngx_http_once_mcp_unanswered(r, ctx))
    {
        judgement = ONCE_JUDGEMENT_DOUBT;
    }

    switch (judgement) {

    case ONCE_JUDGEMENT_RECORD:
        return ngx_http_once_record(r, ctx);

    case ONCE_JUDGEMENT_RELEASE:
        return ngx_http_once_guard_release(ctx->guard, r->headers_out.status,
                                           ngx_http_once_finish_cause(r,
                                                                  ctx->run),
                                           0);

    case ONCE_JUDGEMENT_EARLY:
        return ngx_http_once_guard_release(ctx->guard, r->headers_out.status,
                                           ctx->run->sent
                                           ? "refused before any effect"
                                           : "nothing was sent", 1);

    default:
        return ngx_http_once_guard_doubt(ctx->guard,
                                    ngx_http_once_finish_cause(r, ctx->run));
    }
}


/* ----------------------------------------------------- the client's answer */

static void
ngx_http_once_stop_waiting(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    r->buffered &= ~NGX_HTTP_ONCE_BUFFERED;

    if (ctx->run->delayed) {
        ctx->run->delayed = 0;
        r->connection->write->delayed = 0;
    }
}


/*
 * The content handler has sent its response and goes on: a script that does
 * the rest of its work after the response. It will finalize the request itself;
 * until then nothing else is sent.
 */

static ngx_uint_t
ngx_http_once_handler_goes_on(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    return ctx->run->acted && !(r->upstream && r->upstream->cleanup)
           && r->http_state != NGX_HTTP_WRITING_REQUEST_STATE;
}


/* The buffered response, or the beginning of one that passes through. */

static void
ngx_http_once_send_buffered(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    ngx_connection_t  *c;

    c = r->connection;

    ngx_http_once_stop_waiting(r, ctx);
    ctx->phase = NGX_HTTP_ONCE_SENDING;

    if (r->upstream && r->upstream->cleanup) {
        /* the upstream may have nothing to send for a while */
        (void) ngx_http_output_filter(r, NULL);
        ngx_http_once_upstream_heed_abort(r);

    } else if (ngx_http_once_handler_goes_on(r, ctx)) {
        (void) ngx_http_output_filter(r, NULL);
    }

    r->write_event_handler(r);
    ngx_http_run_posted_requests(c);
}


/* Makes way for another response: nothing of the buffered one was sent. */

static void
ngx_http_once_drop_buffered(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    ngx_http_upstream_t  *u;

    u = r->upstream;

    ngx_http_once_stop_waiting(r, ctx);
    ctx->phase = NGX_HTTP_ONCE_ANSWERED;

    if (u && u->cleanup) {
        r->main->count++;
        (*u->cleanup)(r);
    }

    /* drop what the copy filter has not passed on */

    ngx_http_set_ctx(r, NULL, ngx_http_copy_filter_module);
    r->buffered &= ~NGX_HTTP_COPY_BUFFERED;

    if (!ngx_http_once_handler_goes_on(r, ctx)) {
        r->write_event_handler = ngx_http_request_empty_handler;
    }
}


/* Another response has been made. */

static void
ngx_http_once_made_instead(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    ngx_int_t rc)
{
    ngx_connection_t  *c;

    c = r->connection;

    if (!ngx_http_once_handler_goes_on(r, ctx)) {
        ngx_http_once_finalize(r, rc);
        return;
    }

    ctx->run->dropped = 1;

    if (rc == NGX_ERROR || rc > NGX_OK) {
        c->error = 1;
    }

    ngx_http_run_posted_requests(c);
}


static void
ngx_http_once_send_instead(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    ngx_http_once_problem_e problem, time_t retry_after)
{
    ngx_int_t  rc;

    ngx_http_once_drop_buffered(r, ctx);

    rc = ngx_http_once_problem_send(r, ctx->conf, problem, NULL, retry_after);
    ngx_http_once_made_instead(r, ctx, rc);
}


/*
 * Whether the operation has taken effect is not known: what becomes of the key
 * depends on the policy.
 */

static void
ngx_http_once_in_doubt_detail(ngx_http_once_loc_conf_t *conf, ngx_str_t *detail)
{
    switch (once_policy_recover(conf->policy)) {

    case ONCE_RECOVER_HOLD:
        ngx_str_set(detail, "The operation may have taken effect, and is not "
                    "run again until its outcome has been settled. Send the "
                    "same request with the same key again to learn it. Do not "
                    "use a new key: that would be a new operation.");
        break;

    case ONCE_RECOVER_TRANSACTIONAL:
        ngx_str_set(detail, "The operation may have taken effect. Send the "
                    "same request with the same key again: it gets the "
                    "recorded response, or runs the operation if nothing was "
                    "committed.");
        break;

    default:
        ngx_str_set(detail, "The operation may have taken effect. Send the "
                    "same request with the same key again: it gets the "
                    "outcome if that has become known, and runs the operation "
                    "again after Retry-After.");
    }
}


/* When the outcome may be known, in seconds; 0: unknown. */

static time_t
ngx_http_once_in_doubt_retry(ngx_http_once_loc_conf_t *conf)
{
    if (conf->retry_after) {
        return conf->retry_after;
    }

    switch (once_policy_recover(conf->policy)) {

    case ONCE_RECOVER_HOLD:
        return conf->probe ? 1 : 0;

    case ONCE_RECOVER_TRANSACTIONAL:
        return 1;

    default:
        return conf->probe
               ? 1 : (time_t) ((once_policy_lease_ms(conf->policy) + 999)
                               / 1000);
    }
}


/* In place of a response that was cut off, or of nginx's own error page. */

static void
ngx_http_once_send_no_response(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    time_t                   retry_after;
    ngx_int_t                rc;
    ngx_str_t                detail;
    ngx_uint_t               status;
    ngx_http_once_problem_e  problem;

    status = ctx->run->broken ? NGX_HTTP_BAD_GATEWAY : r->headers_out.status;

    if (!ctx->run->broken && !ctx->run->sent) {
        problem = NGX_HTTP_ONCE_P_NOT_SENT;
        retry_after = ctx->conf->retry_after ? ctx->conf->retry_after : 1;
        ngx_str_null(&detail);

    } else {
        problem = ctx->run->broken ? NGX_HTTP_ONCE_P_UPSTREAM
                                    : NGX_HTTP_ONCE_P_NO_RESPONSE;
        retry_after = ngx_http_once_in_doubt_retry(ctx->conf);
        ngx_http_once_in_doubt_detail(ctx->conf, &detail);
    }

    ngx_http_once_drop_buffered(r, ctx);

    rc = ngx_http_once_problem_send_as(r, ctx->conf, problem, status, &detail,
                                       retry_after);
    ngx_http_once_made_instead(r, ctx, rc);
}


/*
 * The record is the answer if the backend completed it itself, or if the claim
 * had been lost. A caller that the backend refused gets the refusal: the record
 * has the answer to another caller.
 */

static ngx_uint_t
ngx_http_once_record_answers(ngx_http_once_ctx_t *ctx, once_answer_t *answer)
{
    if (once_answer_outcome(answer) != ONCE_OUTCOME_LOST) {
        return once_answer_outcome(answer) != ONCE_OUTCOME_DONE;
    }

    ctx->outcome = NGX_HTTP_ONCE_LOST;

    return ctx->guard->end != NGX_HTTP_ONCE_RELEASING;
}


static void
ngx_http_once_send_recorded(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    once_answer_t *answer)
{
    ngx_int_t             rc;
    once_state_t          state;
    const once_record_t  *record;

    record = once_answer_record(answer);
    state = record ? once_record_state(record) : ONCE_STATE_NONE;

    if (once_answer_outcome(answer) == ONCE_OUTCOME_LOST
        && state == ONCE_STATE_COMPLETED && ctx->conf->authorize.len)
    {
        /* another caller's answer, not authorized: the next request will be */
        ngx_http_once_send_instead(r, ctx, NGX_HTTP_ONCE_P_IN_FLIGHT,
                                   ctx->conf->retry_after
                                   ? ctx->conf->retry_after : 1);
        return;
    }

    if (state == ONCE_STATE_COMPLETED) {
        rc = ngx_http_once_replay_keep(ctx, answer);

        ngx_http_once_drop_buffered(r, ctx);

        rc = (rc == NGX_OK)
             ? ngx_http_once_replay_send(r, ctx, 0)
             : ngx_http_once_problem_refuse_crowded(r, ctx,
                                                    NGX_HTTP_ONCE_C_NO_MEMORY);

        ngx_http_once_made_instead(r, ctx, rc);
        return;
    }

    if (state == ONCE_STATE_PENDING
        || (state == ONCE_STATE_UNKNOWN
            && once_record_recover(record) != ONCE_RECOVER_HOLD))
    {
        ngx_http_once_send_instead(r, ctx,
                                   state == ONCE_STATE_PENDING
                                   ? NGX_HTTP_ONCE_P_IN_FLIGHT
                                   : NGX_HTTP_ONCE_P_IN_DOUBT,
                                   ngx_http_once_ask_retry_after(ctx->conf,
                                                                 answer));
        return;
    }

    ngx_http_once_send_instead(r, ctx, NGX_HTTP_ONCE_P_UNKNOWN, 0);
}


void
ngx_http_once_finish_failed(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    int code)
{
    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                  "once: store \"%V\" has not taken the end of an operation "
                  "yet: %s", &ctx->conf->store->name, once_error_text(code));

    if (ctx->guard->end != NGX_HTTP_ONCE_COMPLETING && !ctx->run->broken) {
        /* the response makes no promise that depends on the record */

        if (ctx->run->page) {
            ngx_http_once_send_no_response(r, ctx);

        } else {
            ngx_http_once_send_buffered(r, ctx);
        }

        return;
    }

    ctx->outcome = NGX_HTTP_ONCE_ERROR;

    ngx_http_once_send_instead(r, ctx, NGX_HTTP_ONCE_P_STORE,
                               ctx->conf->retry_after ? ctx->conf->retry_after
                                                      : 1);
}


/*
 * The backend should have completed the record in the transaction of the
 * effect. As it did not, a crash between the two makes the operation run again.
 */

static void
ngx_http_once_warn_not_transactional(ngx_http_request_t *r,
    ngx_http_once_ctx_t *ctx)
{
    if (once_policy_recover(ctx->conf->policy) != ONCE_RECOVER_TRANSACTIONAL
        || r->headers_out.status >= NGX_HTTP_BAD_REQUEST)
    {
        return;
    }

    ngx_http_once_count(ctx->conf->route, NGX_HTTP_ONCE_C_APART);

    ngx_log_error(NGX_LOG_WARN, r->connection->log, 0,
                  "once: the backend answered %ui without once.complete() in "
                  "its transaction: effect and record are apart "
                  "(\"once_recover transactional\")",
                  r->headers_out.status);
}


void
ngx_http_once_finish_ended(ngx_http_once_ctx_t *ctx, once_answer_t *answer)
{
    ngx_http_request_t   *r;
    const once_record_t  *record;

    r = ctx->request;
    record = once_answer_record(answer);

    if (ctx->phase != NGX_HTTP_ONCE_RECORDING) {
        return;
    }

    ngx_http_set_log_request(r->connection->log, r);

    if (once_answer_error(answer) != ONCE_OK) {
        ngx_http_once_finish_failed(r, ctx, once_answer_error(answer));
        return;
    }

    if (ngx_http_once_record_answers(ctx, answer)) {
        ngx_http_once_send_recorded(r, ctx, answer);
        return;
    }

    if (ctx->run->broken
        || (ctx->run->page && ctx->guard->end != NGX_HTTP_ONCE_COMPLETING))
    {
        ngx_http_once_send_no_response(r, ctx);
        return;
    }

    if (ctx->guard->end == NGX_HTTP_ONCE_COMPLETING) {
        (void) ngx_http_once_headers_add_expires(r, ctx->conf, record
                                            ? once_record_expires_ms(record)
                                            : 0);
        ngx_http_once_warn_not_transactional(r, ctx);
    }

    ngx_http_once_send_buffered(r, ctx);
}
