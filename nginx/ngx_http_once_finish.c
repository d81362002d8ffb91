/*
 * The store has taken the end of the claim, or did not: what the client gets.
 */
#include "ngx_http_once_request.h"


static void
ngx_http_once_stop_waiting(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    r->buffered &= ~NGX_HTTP_ONCE_BUFFERED;

    if (ctx->hold->delayed) {
        ctx->hold->delayed = 0;
        r->connection->write->delayed = 0;
    }
}


/*
 * The location's handler has sent its response and goes on: a script that does
 * the rest of its work behind the client's back. It will finalize the request
 * itself; until then nobody else sends anything.
 */

static ngx_uint_t
ngx_http_once_handler_goes_on(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    return ctx->hold->acted && !(r->upstream && r->upstream->cleanup)
           && r->http_state != NGX_HTTP_WRITING_REQUEST_STATE;
}


/* The response that was held, or begins to pass. */

static void
ngx_http_once_send_own(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    ngx_connection_t  *c;

    c = r->connection;

    ngx_http_once_stop_waiting(r, ctx);
    ctx->phase = NGX_HTTP_ONCE_SENDING;

    if (r->upstream && r->upstream->cleanup) {
        /* the upstream may have nothing to send for a while */
        (void) ngx_http_output_filter(r, NULL);
        ngx_http_once_heed_abort(r);

    } else if (ngx_http_once_handler_goes_on(r, ctx)) {
        (void) ngx_http_output_filter(r, NULL);
    }

    r->write_event_handler(r);
    ngx_http_run_posted_requests(c);
}


/* Makes room for another response: nothing of the held one has been sent. */

static void
ngx_http_once_drop_own(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    ngx_http_upstream_t  *u;

    u = r->upstream;

    ngx_http_once_stop_waiting(r, ctx);
    ctx->phase = NGX_HTTP_ONCE_ANSWERED;

    if (u && u->cleanup) {
        r->main->count++;
        (*u->cleanup)(r);
    }

    /* bytes that it has read and not passed on */

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
        ngx_http_once_finish(r, rc);
        return;
    }

    ctx->hold->dropped = 1;

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

    ngx_http_once_drop_own(r, ctx);

    rc = ngx_http_once_send_problem(r, ctx->conf, problem, NULL, retry_after);
    ngx_http_once_made_instead(r, ctx, rc);
}


/*
 * The operation may have been done, and nobody knows: what becomes of the key
 * is for the policy to say.
 */

static void
ngx_http_once_lost_detail(ngx_http_once_loc_conf_t *conf, ngx_str_t *detail)
{
    switch (once_policy_recover(conf->policy)) {

    case ONCE_RECOVER_HOLD:
        ngx_str_set(detail, "The operation may have taken effect, and is not "
                    "run again until its outcome has been settled. Send the "
                    "same request with the same key again to learn it, and no "
                    "new key: that would be a new operation.");
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


/* When asking again may tell more; 0: nobody can say. */

static time_t
ngx_http_once_lost_retry(ngx_http_once_loc_conf_t *conf)
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


/* In place of a response that was cut off, or of a page of nginx's own that says that there is none. */

static void
ngx_http_once_send_lost(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    time_t                   retry_after;
    ngx_int_t                rc;
    ngx_str_t                detail;
    ngx_uint_t               status;
    ngx_http_once_problem_e  problem;

    status = ctx->hold->broken ? NGX_HTTP_BAD_GATEWAY : r->headers_out.status;

    if (!ctx->hold->broken && !ctx->hold->sent) {
        problem = NGX_HTTP_ONCE_P_NOT_SENT;
        retry_after = ctx->conf->retry_after ? ctx->conf->retry_after : 1;
        ngx_str_null(&detail);

    } else {
        problem = ctx->hold->broken ? NGX_HTTP_ONCE_P_UPSTREAM
                                    : NGX_HTTP_ONCE_P_LOST;
        retry_after = ngx_http_once_lost_retry(ctx->conf);
        ngx_http_once_lost_detail(ctx->conf, &detail);
    }

    ngx_http_once_drop_own(r, ctx);

    rc = ngx_http_once_send_problem_as(r, ctx->conf, problem, status, &detail,
                                       retry_after);
    ngx_http_once_made_instead(r, ctx, rc);
}


/*
 * The record is the answer where the backend completed it itself, and where the
 * claim was not ours any more. A caller whom the backend refused gets the
 * refusal: what the record holds is the answer to somebody else.
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
    ngx_int_t             kept;
    once_state_t          state;
    const once_record_t  *record;

    record = once_answer_record(answer);
    state = record ? once_record_state(record) : ONCE_STATE_NONE;

    if (once_answer_outcome(answer) == ONCE_OUTCOME_LOST
        && state == ONCE_STATE_COMPLETED && ctx->conf->authorize.len)
    {
        /* another caller's answer, and nobody was asked: the next request is */
        ngx_http_once_send_instead(r, ctx, NGX_HTTP_ONCE_P_IN_FLIGHT,
                                   ctx->conf->retry_after
                                   ? ctx->conf->retry_after : 1);
        return;
    }

    if (state == ONCE_STATE_COMPLETED) {
        kept = ngx_http_once_keep_answer(ctx, answer);

        ngx_http_once_drop_own(r, ctx);
        ngx_http_once_made_instead(r, ctx,
                                   kept == NGX_OK
                                   ? ngx_http_once_send_stored(r, ctx, 0)
                                   : ngx_http_once_refuse_crowded(r, ctx,
                                NGX_HTTP_ONCE_C_NO_MEMORY));
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
                                   ngx_http_once_retry_after(ctx->conf,
                                                             answer));
        return;
    }

    ngx_http_once_send_instead(r, ctx, NGX_HTTP_ONCE_P_UNKNOWN, 0);
}


void
ngx_http_once_hold_failed(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    int code)
{
    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                  "once: store \"%V\" did not take the end of an operation "
                  "yet: %s", &ctx->conf->store->name, once_error_text(code));

    if (ctx->guard->end != NGX_HTTP_ONCE_COMPLETING && !ctx->hold->broken) {
        /* a response that promises nothing */

        if (ctx->hold->page) {
            ngx_http_once_send_lost(r, ctx);

        } else {
            ngx_http_once_send_own(r, ctx);
        }

        return;
    }

    ctx->outcome = NGX_HTTP_ONCE_ERROR;

    ngx_http_once_send_instead(r, ctx, NGX_HTTP_ONCE_P_STORE,
                               ctx->conf->retry_after ? ctx->conf->retry_after
                                                      : 1);
}


/*
 * The backend should have completed the record together with the effect. It
 * did not: between the two is a moment in which a crash makes it run again.
 */

static void
ngx_http_once_tell_apart(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    if (once_policy_recover(ctx->conf->policy) != ONCE_RECOVER_TRANSACTIONAL
        || r->headers_out.status >= NGX_HTTP_BAD_REQUEST)
    {
        return;
    }

    ngx_log_error(NGX_LOG_WARN, r->connection->log, 0,
                  "once: the backend answered %ui without once.complete() in "
                  "its transaction: effect and record are apart "
                  "(\"once_recover transactional\")",
                  r->headers_out.status);
}


void
ngx_http_once_hold_ended(ngx_http_once_ctx_t *ctx, once_answer_t *answer)
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
        ngx_http_once_hold_failed(r, ctx, once_answer_error(answer));
        return;
    }

    if (ngx_http_once_record_answers(ctx, answer)) {
        ngx_http_once_send_recorded(r, ctx, answer);
        return;
    }

    if (ctx->hold->broken
        || (ctx->hold->page && ctx->guard->end != NGX_HTTP_ONCE_COMPLETING))
    {
        ngx_http_once_send_lost(r, ctx);
        return;
    }

    if (ctx->guard->end == NGX_HTTP_ONCE_COMPLETING) {
        (void) ngx_http_once_add_expires(r, record
                                            ? once_record_expires_ms(record)
                                            : 0);
        ngx_http_once_tell_apart(r, ctx);
    }

    ngx_http_once_send_own(r, ctx);
}


/* ---------------------------------------------------- the end of the claim */

/*
 * What a response means for its claim, and the end that this leads to; and the
 * bytes of it that are held until then.
 */

/* ------------------------------------------------------------ what it means */

once_judgement_t
ngx_http_once_judge(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    ngx_http_once_hold_t  *hold;

    hold = ctx->hold;

    if (hold->broken || hold->lost) {
        return ONCE_JUDGEMENT_DOUBT;
    }

    if (hold->header_status) {
        return once_claim_judge(ctx->guard->claim, ctx->conf->policy,
                                (int) hold->header_status, hold->said);
    }

    if (hold->acted) {
        return once_claim_judge(ctx->guard->claim, ctx->conf->policy,
                                (int) r->headers_out.status, hold->said);
    }

    /* from here on the response is nginx's own */

    if (r->upstream) {
        return hold->sent ? ONCE_JUDGEMENT_DOUBT : ONCE_JUDGEMENT_EARLY;
    }

    if (r->headers_out.status >= NGX_HTTP_SPECIAL_RESPONSE) {
        return hold->sent ? ONCE_JUDGEMENT_RELEASE : ONCE_JUDGEMENT_EARLY;
    }

    return once_claim_judge(ctx->guard->claim, ctx->conf->policy,
                            (int) r->headers_out.status, ONCE_VERDICT_NONE);
}


static ngx_int_t
ngx_http_once_record(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    once_response_t        response = ONCE_RESPONSE_INIT;
    ngx_http_once_hold_t  *hold;

    hold = ctx->hold;

    response.status = (int) r->headers_out.status;
    response.retain_ms = hold->retain_ms;
    response.body_omitted = hold->stream;

    if (!hold->stream) {
        response.body.data = hold->data;
        response.body.len = hold->len;
    }

    if (ngx_http_once_collect_headers(r, ctx->conf, &response) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_once_guard_complete(ctx->guard, &response);
}


ngx_int_t
ngx_http_once_end(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    switch (ngx_http_once_judge(r, ctx)) {

    case ONCE_JUDGEMENT_RECORD:
        return ngx_http_once_record(r, ctx);

    case ONCE_JUDGEMENT_RELEASE:
        return ngx_http_once_guard_release(ctx->guard, r->headers_out.status,
                                           "answered as not done", 0);

    case ONCE_JUDGEMENT_EARLY:
        return ngx_http_once_guard_release(ctx->guard, r->headers_out.status,
                                           ctx->hold->sent
                                           ? "refused before any effect"
                                           : "nothing was sent", 1);

    default:
        return ngx_http_once_guard_doubt(ctx->guard);
    }
}


/* ------------------------------------------------------------ what is held */

/* Twice: as it is held, and as it is written to the store. */

static ngx_int_t
ngx_http_once_take_room(ngx_http_once_ctx_t *ctx, size_t bytes)
{
    if (ngx_http_once_memory_take(2 * bytes) != NGX_OK) {
        ngx_http_once_count(ctx->conf->route, NGX_HTTP_ONCE_C_NO_ROOM);
        return NGX_DECLINED;
    }

    ctx->memory += bytes;
    ctx->guard->memory += bytes;

    return NGX_OK;
}


static ngx_int_t
ngx_http_once_grow(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    size_t need)
{
    u_char                *data;
    size_t                 size;
    ngx_http_once_hold_t  *hold;

    hold = ctx->hold;

    if (need <= hold->size) {
        return NGX_OK;
    }

    size = hold->size ? hold->size * 2 : 4096;

    if (hold->size == 0 && r->headers_out.content_length_n > 0) {
        size = (size_t) r->headers_out.content_length_n;
    }

    size = ngx_min(ngx_max(size, need),
                   ngx_max(ctx->conf->store_body, need));

    if (ngx_http_once_take_room(ctx, size - hold->size) != NGX_OK) {
        return NGX_DECLINED;
    }

    data = ngx_pnalloc(r->pool, size);
    if (data == NULL) {
        return NGX_ERROR;
    }

    if (hold->len) {
        ngx_memcpy(data, hold->data, hold->len);
        ngx_pfree(r->pool, hold->data);
    }

    hold->data = data;
    hold->size = size;

    return NGX_OK;
}


ngx_chain_t *
ngx_http_once_held_chain(ngx_http_request_t *r, ngx_http_once_hold_t *hold)
{
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    b = ngx_calloc_buf(r->pool);
    cl = ngx_alloc_chain_link(r->pool);

    if (b == NULL || cl == NULL) {
        return NULL;
    }

    if (hold->len) {
        b->pos = hold->data;
        b->last = hold->data + hold->len;
        b->start = b->pos;
        b->end = b->last;
        b->temporary = 1;
    }

    cl->buf = b;
    cl->next = NULL;

    return cl;
}


ngx_int_t
ngx_http_once_hold_bytes(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    ngx_chain_t *in, ngx_chain_t **rest)
{
    size_t                 size;
    ngx_int_t              rc;
    ngx_buf_t             *b;
    ngx_chain_t           *cl;
    ngx_http_once_hold_t  *hold;

    hold = ctx->hold;

    for (cl = in; cl; cl = cl->next) {
        b = cl->buf;
        size = ngx_buf_in_memory(b) ? (size_t) (b->last - b->pos) : 0;

        if (hold->len + size > ctx->conf->store_body && !hold->broken) {
            *rest = cl;
            return NGX_DECLINED;
        }

        if (size && !hold->broken) {

            rc = ngx_http_once_grow(r, ctx, hold->len + size);

            if (rc != NGX_OK) {
                *rest = cl;
                return rc;
            }

            ngx_memcpy(hold->data + hold->len, b->pos, size);
            hold->len += size;
        }

        b->pos = b->last;

        if (b->in_file) {
            b->file_pos = b->file_last;
        }

        if (b->last_buf) {
            hold->whole = 1;
        }
    }

    return NGX_OK;
}
