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

    if (ngx_http_once_judge(r, ctx) == ONCE_JUDGEMENT_RECORD) {
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


/*
 * A page of nginx's own is for people with a browser, and who called here is a
 * program: it gets a problem instead, unless the operator has pages for it.
 */

static ngx_uint_t
ngx_http_once_is_page(ngx_http_request_t *r, ngx_http_once_hold_t *hold)
{
    return !hold->live && !hold->led && r->loc_conf == hold->loc_conf
           && r->err_status == r->headers_out.status
           && r->err_status >= NGX_HTTP_INTERNAL_SERVER_ERROR
           && (r->upstream || r->err_status == NGX_HTTP_BAD_GATEWAY);
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
    hold->page = ngx_http_once_is_page(r, hold);

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
    ngx_http_once_note_handler(r, ctx->hold);
    ngx_http_once_strip_own(r, ctx->conf);
    ngx_http_once_note_header(r, ctx);

    if (ctx->hold->live && r->upstream->upgrade) {
        return ngx_http_once_upgraded(r, ctx);
    }

    r->allow_ranges = 0;    /* the whole response is the answer */

    if (ngx_http_once_make_location(r) != NGX_OK) {
        return NGX_ERROR;
    }

    ctx->phase = NGX_HTTP_ONCE_HOLDING;

    if (ctx->hold->broken && ctx->hold->live) {
        /* nobody knows when it would end */
        ctx->hold->stream = 1;
        return ngx_http_once_end_and_wait(r, ctx);
    }

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
    ngx_http_once_srv_conf_t  *oscf;

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

    oscf = ngx_http_get_module_srv_conf(r, ngx_http_once_module);

    if (oscf->guarded) {
        ngx_http_once_strip_response(r);
    }

    return ngx_http_next_header_filter(r);
}


/* -------------------------------------------------------------------- the body */

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


static off_t
ngx_http_once_consume(ngx_chain_t *in)
{
    off_t         size;
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    size = 0;

    for (cl = in; cl; cl = cl->next) {
        b = cl->buf;
        size += ngx_buf_size(b);
        b->pos = b->last;

        if (b->in_file) {
            b->file_pos = b->file_last;
        }
    }

    return size;
}


/*
 * A subrequest of the location's handler. Scripts take what it says for
 * themselves; if it is to be part of the response (echo_location), it would
 * overtake the header, which is held. Nothing is written meanwhile, and what
 * was to be written shows that this response cannot be held together.
 */

static ngx_int_t
ngx_http_once_part(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    ngx_chain_t *in)
{
    ngx_int_t          rc;
    ngx_uint_t         delayed;
    ngx_connection_t  *c;

    c = r->connection;

    delayed = c->write->delayed;
    c->write->delayed = 1;

    rc = ngx_http_next_body_filter(r, in);

    c->write->delayed = delayed;

    if (r->main->out == NULL) {
        return rc;
    }

    if (ngx_http_once_consume(r->main->out) && !ctx->hold->broken) {
        ngx_log_error(NGX_LOG_ERR, c->log, 0,
                      "once: a subrequest writes into the response of a "
                      "guarded location, which cannot be recorded");
        ctx->hold->broken = 1;
    }

    r->main->out = NULL;
    c->buffered &= ~NGX_HTTP_WRITE_BUFFERED;

    return rc == NGX_AGAIN ? NGX_OK : rc;
}


/* The last byte of the response came ahead of parts of it: nothing that could be sent would be whole. */

static ngx_uint_t
ngx_http_once_is_apart(ngx_http_request_t *r, ngx_http_once_hold_t *hold)
{
    if (!hold->acted || !hold->whole
        || (r->postponed == NULL && r == r->connection->data))
    {
        return 0;
    }

    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                  "once: subrequests write into the response of a guarded "
                  "location side by side, which cannot be recorded");

    return 1;
}


static ngx_int_t
ngx_http_once_hold_body(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    ngx_chain_t *in)
{
    ngx_int_t              rc;
    ngx_chain_t           *rest;
    ngx_http_once_hold_t  *hold;

    hold = ctx->hold;

    rc = ngx_http_once_hold_bytes(r, ctx, in, &rest);

    if (rc == NGX_DECLINED) {
        return ngx_http_once_overflow(r, ctx, rest);
    }

    if (rc != NGX_OK || ngx_http_once_is_apart(r, hold)) {
        return NGX_ERROR;
    }

    if (hold->live && r->upstream->cleanup == NULL
        && (!hold->whole || ngx_http_once_cut_off(r)))
    {
        /* the upstream is finished, and this was not the last */
        hold->broken = 1;
    }

    if (hold->whole
        || (hold->broken && !(hold->live && r->upstream->cleanup)
            && !(hold->acted && !hold->live)))
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
    ngx_int_t             rc;
    ngx_http_once_ctx_t  *ctx;

    if (r != r->main) {
        rc = ngx_http_once_authorize_body(r, in);

        if (rc != NGX_DECLINED) {
            return rc;
        }
    }

    ctx = ngx_http_once_get_ctx(r->main);

    if (ctx == NULL || ctx->hold == NULL) {
        return ngx_http_next_body_filter(r, in);
    }

    if (r != r->main) {
        return ctx->hold->acted && (ctx->phase == NGX_HTTP_ONCE_HOLDING
                                    || ctx->phase == NGX_HTTP_ONCE_RECORDING)
               ? ngx_http_once_part(r, ctx, in)
               : ngx_http_next_body_filter(r, in);
    }

    if (ctx->hold->dropped) {
        (void) ngx_http_once_consume(in);
        return NGX_OK;
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


void
ngx_http_once_hold_filter_init(void)
{
    ngx_http_next_header_filter = ngx_http_top_header_filter;
    ngx_http_top_header_filter = ngx_http_once_header_filter;

    ngx_http_next_body_filter = ngx_http_top_body_filter;
    ngx_http_top_body_filter = ngx_http_once_body_filter;
}
