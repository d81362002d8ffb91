/*
 * Header and body filters: the response of a guarded operation is held until
 * the store has it. What is too large to be held is recorded without its body,
 * as soon as that is known, and passes then.
 *
 * Everything that a response ends in goes the same way: the claim is ended
 * (complete, release or doubt), the request waits as if the client were slow
 * (r->buffered), and ngx_http_once_hold_ended() decides what the client gets:
 * the response that was held, the one that the record has, or a problem.
 */
#include "ngx_http_once_request.h"


static ngx_http_output_header_filter_pt  ngx_http_next_header_filter;
static ngx_http_output_body_filter_pt    ngx_http_next_body_filter;


static ngx_int_t ngx_http_once_pass_body(ngx_http_request_t *r,
    ngx_http_once_ctx_t *ctx, ngx_chain_t *in);


extern ngx_module_t  ngx_http_copy_filter_module;


/* ------------------------------------------------------------- what it means */

static once_judgement_t
ngx_http_once_judge(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    ngx_http_once_hold_t  *hold;

    hold = ctx->hold;

    if (hold->broken) {
        return ONCE_JUDGE_DOUBT;
    }

    if (hold->header_status) {
        return once_claim_judge(ctx->guard->claim, ctx->conf->policy,
                                (int) hold->header_status, hold->said);
    }

    /* from here on the response is nginx's own */

    if (r->upstream) {
        return hold->sent ? ONCE_JUDGE_DOUBT : ONCE_JUDGE_RELEASE;
    }

    if (r->headers_out.status >= NGX_HTTP_SPECIAL_RESPONSE) {
        return ONCE_JUDGE_RELEASE;
    }

    return once_claim_judge(ctx->guard->claim, ctx->conf->policy,
                            (int) r->headers_out.status, ONCE_SAID_NOTHING);
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


static ngx_int_t
ngx_http_once_end(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    switch (ngx_http_once_judge(r, ctx)) {

    case ONCE_JUDGE_RECORD:
        return ngx_http_once_record(r, ctx);

    case ONCE_JUDGE_RELEASE:
        return ngx_http_once_guard_release(ctx->guard, r->headers_out.status,
                                           ctx->hold->sent
                                           ? "answered as not done"
                                           : "nothing was sent");

    default:
        return ngx_http_once_guard_doubt(ctx->guard);
    }
}


/* Ends the claim; the client's response waits for it. */

static ngx_int_t
ngx_http_once_end_and_wait(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    if (ngx_http_once_end(r, ctx) != NGX_OK) {
        return NGX_ERROR;
    }

    ctx->phase = NGX_HTTP_ONCE_RECORDING;
    r->buffered |= NGX_HTTP_ONCE_BUFFERED;

    return NGX_OK;
}


/* ------------------------------------------------------------------ the header */

/* Endless by nature: nobody would ever see their first byte. */

static ngx_uint_t
ngx_http_once_is_endless(ngx_http_request_t *r)
{
    ngx_str_t  type;

    type = r->headers_out.content_type;
    type.len = ngx_min(type.len, r->headers_out.content_type_len);

    return (type.len == 17
            && ngx_strncasecmp(type.data, (u_char *) "text/event-stream", 17)
               == 0)
           || (type.len == 25
               && ngx_strncasecmp(type.data,
                                  (u_char *) "multipart/x-mixed-replace", 25)
                  == 0);
}


static ngx_uint_t
ngx_http_once_too_large(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    if (r->method & NGX_HTTP_HEAD) {
        return 0;
    }

    return r->headers_out.content_length_n > (off_t) ctx->conf->store_body
           || ngx_http_once_is_endless(r);
}


/*
 * The response will not be held. If it is to be recorded, it is now, without
 * its body; if not, the claim is ended when the last byte has come.
 */

static ngx_int_t
ngx_http_once_stream(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    ctx->hold->stream = 1;

    if (ngx_http_once_judge(r, ctx) == ONCE_JUDGE_RECORD) {
        return ngx_http_once_end_and_wait(r, ctx);
    }

    ctx->phase = NGX_HTTP_ONCE_SENDING;

    return NGX_OK;
}


/* The protocol changes: nothing that follows is a response. */

static ngx_int_t
ngx_http_once_upgraded(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    if (ngx_http_once_guard_doubt(ctx->guard) != NGX_OK) {
        return NGX_ERROR;
    }

    ctx->phase = NGX_HTTP_ONCE_SENDING;
    ctx->hold->header_sent = 1;

    return ngx_http_next_header_filter(r);
}


static void
ngx_http_once_note_header(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    ngx_http_upstream_t   *u;
    ngx_http_once_hold_t  *hold;

    u = r->upstream;
    hold = ctx->hold;

    if (ctx->phase == NGX_HTTP_ONCE_HOLDING) {
        /* a second header: whatever the first belonged to has failed */
        hold->broken = 1;
        hold->len = 0;
    }

    ngx_http_once_note_upstream(r, hold);

    hold->live = u && u->cleanup && !u->header_sent;

    if (u == NULL && r->headers_out.status < NGX_HTTP_SPECIAL_RESPONSE) {
        hold->sent = 1;    /* nginx itself did something */
    }

    if (hold->live && r->headers_out.status < NGX_HTTP_OK && !u->upgrade) {
        /* an interim response, taken for the last one; or no HTTP at all */
        hold->broken = 1;
        r->http_version = hold->http_version;
    }
}


static ngx_int_t
ngx_http_once_hold_header(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    ngx_http_once_strip_response(r);
    ngx_http_once_note_header(r, ctx);

    if (ctx->hold->live && r->upstream->upgrade) {
        return ngx_http_once_upgraded(r, ctx);
    }

    /* the whole response is the answer, and a relative Location stays so */

    r->allow_ranges = 0;

    if (r->headers_out.location && r->headers_out.location->value.len
        && r->headers_out.location->value.data[0] == '/')
    {
        r->headers_out.location = NULL;
    }

    ctx->phase = NGX_HTTP_ONCE_HOLDING;

    if (ngx_http_once_too_large(r, ctx)) {

        if (ngx_http_once_stream(r, ctx) != NGX_OK) {
            return NGX_ERROR;
        }

        if (ctx->phase == NGX_HTTP_ONCE_SENDING) {
            ctx->hold->header_sent = 1;
            return ngx_http_next_header_filter(r);
        }

        return NGX_OK;
    }

    r->filter_need_in_memory = 1;

    if (ctx->hold->live) {
        ngx_http_once_watch_input(r, ctx->hold);
    }

    return r->header_only ? ngx_http_once_end_and_wait(r, ctx) : NGX_OK;
}


static ngx_int_t
ngx_http_once_header_filter(ngx_http_request_t *r)
{
    ngx_http_once_ctx_t       *ctx;
    ngx_http_once_loc_conf_t  *conf;

    if (r != r->main) {
        return ngx_http_next_header_filter(r);
    }

    ctx = ngx_http_once_get_ctx(r);

    if (ctx && ctx->hold) {

        switch (ctx->phase) {

        case NGX_HTTP_ONCE_GRANTED:
        case NGX_HTTP_ONCE_HOLDING:
            return ngx_http_once_hold_header(r, ctx);

        case NGX_HTTP_ONCE_RECORDING:
            return NGX_ERROR;

        default:
            return ngx_http_next_header_filter(r);
        }
    }

    conf = ngx_http_get_module_loc_conf(r, ngx_http_once_module);

    if (ctx || conf->enable) {
        ngx_http_once_strip_response(r);
    }

    return ngx_http_next_header_filter(r);
}


/* -------------------------------------------------------------------- the body */

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


/* The bytes that are held, as a buffer. NULL: none, or out of memory. */

static ngx_chain_t *
ngx_http_once_held_chain(ngx_http_request_t *r, ngx_http_once_hold_t *hold)
{
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    b = ngx_calloc_buf(r->pool);
    cl = ngx_alloc_chain_link(r->pool);

    if (b == NULL || cl == NULL) {
        return NULL;
    }

    b->pos = hold->data;
    b->last = hold->data + hold->len;
    b->start = b->pos;
    b->end = b->last;
    b->temporary = hold->len ? 1 : 0;

    cl->buf = b;
    cl->next = NULL;

    return cl;
}


/* Keeps buffers as they are: the upstream stops when it has no more of them. */

static ngx_int_t
ngx_http_once_keep(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    ngx_chain_t *in)
{
    ngx_event_t           *wev;
    ngx_http_once_hold_t  *hold;

    hold = ctx->hold;

    if (in && ngx_chain_add_copy(r->pool, &hold->kept, in) != NGX_OK) {
        return NGX_ERROR;
    }

    wev = r->connection->write;

    if (hold->stream && !wev->delayed) {
        /* else it would try again and again to get rid of them */
        wev->delayed = 1;
        hold->delayed = 1;
    }

    r->buffered |= NGX_HTTP_ONCE_BUFFERED;

    return NGX_AGAIN;
}


static ngx_int_t
ngx_http_once_overflow(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    ngx_chain_t *rest)
{
    ngx_chain_t           *prefix;
    ngx_http_once_hold_t  *hold;

    hold = ctx->hold;

    if (hold->len) {
        prefix = ngx_http_once_held_chain(r, hold);

        if (prefix == NULL) {
            return NGX_ERROR;
        }

        hold->kept = prefix;
    }

    if (ngx_http_once_stream(r, ctx) != NGX_OK) {
        return NGX_ERROR;
    }

    return ctx->phase == NGX_HTTP_ONCE_RECORDING
           ? ngx_http_once_keep(r, ctx, rest)
           : ngx_http_once_pass_body(r, ctx, rest);
}


/* NGX_OK: taken; NGX_DECLINED: from *rest on it is too much; NGX_ERROR. */

static ngx_int_t
ngx_http_once_copy(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    ngx_chain_t *in, ngx_chain_t **rest)
{
    size_t                 size;
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

            if (ngx_http_once_grow(r, ctx, hold->len + size) != NGX_OK) {
                return NGX_ERROR;
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


static ngx_int_t
ngx_http_once_hold_body(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    ngx_chain_t *in)
{
    ngx_int_t              rc;
    ngx_chain_t           *rest;
    ngx_http_once_hold_t  *hold;

    hold = ctx->hold;

    rc = ngx_http_once_copy(r, ctx, in, &rest);

    if (rc == NGX_DECLINED) {
        return ngx_http_once_overflow(r, ctx, rest);
    }

    if (rc != NGX_OK) {
        return NGX_ERROR;
    }

    if (hold->live && r->upstream->cleanup == NULL
        && (!hold->whole || ngx_http_once_cut_off(r)))
    {
        /* the upstream is finished, and this was not the last */
        hold->broken = 1;
    }

    if (hold->whole
        || (hold->broken && !(hold->live && r->upstream->cleanup)))
    {
        return ngx_http_once_end_and_wait(r, ctx);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_once_send_held(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    ngx_chain_t *in)
{
    ngx_int_t              rc;
    ngx_chain_t           *out;
    ngx_http_once_hold_t  *hold;

    hold = ctx->hold;
    hold->header_sent = 1;

    if (!hold->stream && r->headers_out.status != NGX_HTTP_NO_CONTENT
        && r->headers_out.status != NGX_HTTP_NOT_MODIFIED
        && !(r->method & NGX_HTTP_HEAD))
    {
        ngx_http_clear_content_length(r);
        r->headers_out.content_length_n = hold->len;
    }

    rc = ngx_http_next_header_filter(r);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    if (!hold->stream) {
        out = ngx_http_once_held_chain(r, hold);

        if (out == NULL) {
            return NGX_ERROR;
        }

        out->buf->last_buf = 1;
        out->buf->last_in_chain = 1;

        return ngx_http_next_body_filter(r, out);
    }

    if (in && ngx_chain_add_copy(r->pool, &hold->kept, in) != NGX_OK) {
        return NGX_ERROR;
    }

    out = hold->kept;
    hold->kept = NULL;

    return ngx_http_next_body_filter(r, out);
}


/* A response that was not recorded has passed: now the claim can be ended. */

static ngx_int_t
ngx_http_once_passed(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    ngx_chain_t *in)
{
    ngx_chain_t  *cl;

    for (cl = in; cl; cl = cl->next) {

        if (cl->buf->last_buf) {
            return ngx_http_once_end(r, ctx);
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_once_pass_body(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    ngx_chain_t *in)
{
    if (ctx->guard->claim && ngx_http_once_passed(r, ctx, in) != NGX_OK) {
        return NGX_ERROR;
    }

    if (!ctx->hold->header_sent) {
        return ngx_http_once_send_held(r, ctx, in);
    }

    return ngx_http_next_body_filter(r, in);
}


static ngx_int_t
ngx_http_once_body_filter(ngx_http_request_t *r, ngx_chain_t *in)
{
    ngx_http_once_ctx_t  *ctx;

    if (r != r->main) {
        return ngx_http_next_body_filter(r, in);
    }

    ctx = ngx_http_once_get_ctx(r);

    if (ctx == NULL || ctx->hold == NULL) {
        return ngx_http_next_body_filter(r, in);
    }

    switch (ctx->phase) {

    case NGX_HTTP_ONCE_HOLDING:
        return ngx_http_once_hold_body(r, ctx, in);

    case NGX_HTTP_ONCE_RECORDING:
        return ngx_http_once_keep(r, ctx, in);

    case NGX_HTTP_ONCE_SENDING:
        return ngx_http_once_pass_body(r, ctx, in);

    default:
        return ngx_http_next_body_filter(r, in);
    }
}


/* ---------------------------------------------------------- the store has it */

static void
ngx_http_once_stop_waiting(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    r->buffered &= ~NGX_HTTP_ONCE_BUFFERED;

    if (ctx->hold->delayed) {
        ctx->hold->delayed = 0;
        r->connection->write->delayed = 0;
    }
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

    r->write_event_handler = ngx_http_request_empty_handler;
}


static void
ngx_http_once_send_instead(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    ngx_http_once_problem_e problem, time_t retry_after)
{
    ngx_http_once_drop_own(r, ctx);
    ngx_http_once_finish(r, ngx_http_once_send_problem(r, ctx->conf, problem,
                                                       NULL, retry_after));
}


/* The claim was not ours any more, or the backend had completed it itself: the record is the answer. */

static void
ngx_http_once_send_recorded(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    once_answer_t *answer)
{
    once_state_t          state;
    const once_record_t  *record;

    record = once_answer_record(answer);
    state = record ? once_record_state(record) : ONCE_STATE_NONE;

    if (once_answer_outcome(answer) == ONCE_LOST) {
        ctx->outcome = NGX_HTTP_ONCE_LOST;
    }

    if (state == ONCE_STATE_COMPLETED) {
        ctx->answer = answer;
        once_answer_keep(answer);

        ngx_http_once_drop_own(r, ctx);
        ngx_http_once_finish(r, ngx_http_once_send_stored(r, ctx, 0));
        return;
    }

    if (state == ONCE_STATE_PENDING) {
        ngx_http_once_send_instead(r, ctx, NGX_HTTP_ONCE_P_IN_FLIGHT,
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
        ngx_http_once_send_own(r, ctx);
        return;
    }

    ctx->outcome = NGX_HTTP_ONCE_ERROR;

    ngx_http_once_send_instead(r, ctx, NGX_HTTP_ONCE_P_STORE,
                               ctx->conf->retry_after ? ctx->conf->retry_after
                                                      : 1);
}


void
ngx_http_once_hold_ended(ngx_http_once_ctx_t *ctx, once_answer_t *answer)
{
    ngx_http_request_t  *r;

    r = ctx->request;

    if (ctx->phase != NGX_HTTP_ONCE_RECORDING) {
        return;
    }

    ngx_http_set_log_request(r->connection->log, r);

    if (once_answer_error(answer) != ONCE_OK) {
        ngx_http_once_hold_failed(r, ctx, once_answer_error(answer));
        return;
    }

    if (once_answer_outcome(answer) != ONCE_DONE) {
        ngx_http_once_send_recorded(r, ctx, answer);
        return;
    }

    if (ctx->hold->broken) {
        ngx_http_once_send_instead(r, ctx, NGX_HTTP_ONCE_P_UPSTREAM, 0);
        return;
    }

    if (ctx->guard->end == NGX_HTTP_ONCE_COMPLETING) {
        (void) ngx_http_once_add_expires(r, once_answer_record(answer));
    }

    ngx_http_once_send_own(r, ctx);
}


void
ngx_http_once_hold_filter_init(void)
{
    ngx_http_next_header_filter = ngx_http_top_header_filter;
    ngx_http_top_header_filter = ngx_http_once_header_filter;

    ngx_http_next_body_filter = ngx_http_top_body_filter;
    ngx_http_top_body_filter = ngx_http_once_body_filter;
}
