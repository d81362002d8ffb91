/*
 * Header and body filters: the response of a guarded operation is buffered
 * until it has been recorded. One that is too large for that is recorded
 * without its body as soon as its size is known, and passes through then.
 *
 * Every response ends the same way: the claim is ended (complete, release or
 * doubt), the request waits as if the client were slow (r->buffered), and
 * ngx_http_once_finish_ended() decides what the client gets: the buffered
 * response, the recorded one, or a problem. By ctx->phase:
 *
 *   GRANTED      a header is taken, not passed on
 *   BUFFERING    bytes are copied; after the last one the claim is ended
 *   RECORDING    the store has not answered; what comes in is kept
 *   SENDING      header and bytes are passed on
 */
#include "ngx_http_once_request.h"

#include <assert.h>


static ngx_http_output_header_filter_pt  ngx_http_next_header_filter;
static ngx_http_output_body_filter_pt    ngx_http_next_body_filter;


static ngx_int_t ngx_http_once_pass_body(ngx_http_request_t *r,
    ngx_http_once_ctx_t *ctx, ngx_chain_t *in);


/* Ends the claim; the response waits for it. */

static ngx_int_t
ngx_http_once_end_and_wait(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    if (ngx_http_once_finish(r, ctx) != NGX_OK) {
        return NGX_ERROR;
    }

    assert(ctx->guard->end != NGX_HTTP_ONCE_OPEN);
    ctx->phase = NGX_HTTP_ONCE_RECORDING;
    r->buffered |= NGX_HTTP_ONCE_BUFFERED;

    return NGX_OK;
}


/* --------------------------------------------------------------- the bytes */

off_t
ngx_http_once_buffer_consume(ngx_buf_t *b)
{
    off_t  size;

    size = ngx_buf_size(b);
    b->pos = b->last;

    if (b->in_file) {
        b->file_pos = b->file_last;
    }

    return size;
}


static off_t
ngx_http_once_consume(ngx_chain_t *in)
{
    off_t  size;

    for (size = 0; in; in = in->next) {
        size += ngx_http_once_buffer_consume(in->buf);
    }

    return size;
}


/* Twice: as it is buffered, and as it is written to the store. */

static ngx_int_t
ngx_http_once_take_room(ngx_http_once_ctx_t *ctx, size_t bytes)
{
    if (ngx_http_once_body_take_memory(2 * bytes) != NGX_OK) {
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
    u_char               *data;
    size_t                size;
    ngx_http_once_run_t  *run;

    run = ctx->run;

    if (need <= run->size) {
        return NGX_OK;
    }

    size = run->size ? run->size * 2 : 4096;

    if (run->size == 0 && r->headers_out.content_length_n > 0) {
        size = (size_t) r->headers_out.content_length_n;
    }

    size = ngx_min(ngx_max(size, need),
                   ngx_max(ctx->conf->store_body, need));

    if (ngx_http_once_take_room(ctx, size - run->size) != NGX_OK) {
        return NGX_DECLINED;
    }

    data = ngx_pnalloc(r->pool, size);
    if (data == NULL) {
        return NGX_ERROR;
    }

    if (run->len) {
        ngx_memcpy(data, run->data, run->len);
        ngx_pfree(r->pool, run->data);
    }

    run->data = data;
    run->size = size;

    return NGX_OK;
}


/* The buffered bytes. NULL: out of memory. */

static ngx_chain_t *
ngx_http_once_buffer_chain(ngx_http_request_t *r, ngx_http_once_run_t *run)
{
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    b = ngx_calloc_buf(r->pool);
    cl = ngx_alloc_chain_link(r->pool);

    if (b == NULL || cl == NULL) {
        return NULL;
    }

    if (run->len) {
        b->pos = run->data;
        b->last = run->data + run->len;
        b->start = b->pos;
        b->end = b->last;
        b->temporary = 1;
    }

    cl->buf = b;
    cl->next = NULL;

    return cl;
}


/*
 * Copies what came in. NGX_OK; NGX_DECLINED: from *rest on it is too much, for
 * once_store_body or once_memory; NGX_ERROR.
 */

static ngx_int_t
ngx_http_once_buffer_bytes(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    ngx_chain_t *in, ngx_chain_t **rest)
{
    size_t                size;
    ngx_int_t             rc;
    ngx_buf_t            *b;
    ngx_chain_t          *cl;
    ngx_http_once_run_t  *run;

    run = ctx->run;

    for (cl = in; cl; cl = cl->next) {
        b = cl->buf;
        size = ngx_buf_in_memory(b) ? (size_t) (b->last - b->pos) : 0;

        if (run->len + size > ctx->conf->store_body && !run->broken) {
            *rest = cl;
            return NGX_DECLINED;
        }

        if (size && !run->broken) {

            rc = ngx_http_once_grow(r, ctx, run->len + size);

            if (rc != NGX_OK) {
                *rest = cl;
                return rc;
            }

            assert(run->size - run->len >= size);
            ngx_memcpy(run->data + run->len, b->pos, size);
            run->len += size;
        }

        (void) ngx_http_once_buffer_consume(b);

        if (b->last_buf) {
            run->whole = 1;
        }
    }

    return NGX_OK;
}


/* -------------------------------------------------------------- the header */

/* Endless by nature: their first byte would never be sent. */

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
           || (ngx_http_once_is_endless(r)
               && !ngx_http_once_mcp_expects(r, ctx));
}


/*
 * The response will not be buffered. If it is to be recorded, it is now, and
 * without its body; if not, the claim is ended after the last byte.
 */

static ngx_int_t
ngx_http_once_stream(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    ctx->run->stream = 1;

    if (ngx_http_once_finish_judge(r, ctx) == ONCE_JUDGEMENT_RECORD) {
        return ngx_http_once_end_and_wait(r, ctx);
    }

    ctx->phase = NGX_HTTP_ONCE_SENDING;

    return NGX_OK;
}


/* The protocol is switched: nothing that follows is a response. */

static ngx_int_t
ngx_http_once_upgraded(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    if (ngx_http_once_guard_doubt(ctx->guard, "protocol switched") != NGX_OK) {
        return NGX_ERROR;
    }

    ctx->phase = NGX_HTTP_ONCE_SENDING;
    ctx->run->header_sent = 1;

    return ngx_http_next_header_filter(r);
}


/*
 * nginx's own error pages are for browsers, but the caller is a program: it
 * gets a problem instead, unless the operator has configured a page.
 */

static ngx_uint_t
ngx_http_once_is_page(ngx_http_request_t *r, ngx_http_once_run_t *run)
{
    return !run->live && !run->led && r->loc_conf == run->loc_conf
           && r->err_status == r->headers_out.status
           && r->err_status >= NGX_HTTP_INTERNAL_SERVER_ERROR
           && (r->upstream || r->err_status == NGX_HTTP_BAD_GATEWAY);
}


static void
ngx_http_once_note_header(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    ngx_http_upstream_t  *u;
    ngx_http_once_run_t  *run;

    u = r->upstream;
    run = ctx->run;

    if (ctx->phase == NGX_HTTP_ONCE_BUFFERING) {
        /* a second header: the first response has failed */
        run->broken = 1;
        run->len = 0;
    }

    ngx_http_once_upstream_note(r, run);

    run->live = u && u->cleanup && !u->header_sent;
    run->page = ngx_http_once_is_page(r, run);

    if (u == NULL && r->headers_out.status < NGX_HTTP_SPECIAL_RESPONSE) {
        run->sent = 1;    /* nginx itself has acted */
    }

    if (run->live && r->headers_out.status < NGX_HTTP_OK && !u->upgrade) {
        /* an interim response taken for the final one, or not HTTP */
        run->broken = 1;
        r->http_version = run->http_version;
    }
}


static ngx_int_t
ngx_http_once_buffer_header(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    ngx_http_once_upstream_note_handler(r, ctx->run);
    ngx_http_once_headers_strip_own(r, ctx->conf);
    ngx_http_once_note_header(r, ctx);

    if (ngx_http_once_headers_add_echo(r, ctx) != NGX_OK) {
        return NGX_ERROR;
    }

    if (ctx->run->live && r->upstream->upgrade) {
        return ngx_http_once_upgraded(r, ctx);
    }

    r->allow_ranges = 0;    /* the response is recorded as a whole */

    if (ngx_http_once_headers_make_location(r) != NGX_OK) {
        return NGX_ERROR;
    }

    ctx->phase = NGX_HTTP_ONCE_BUFFERING;

    if (ctx->run->broken && ctx->run->live) {
        /* its end is not known */
        ctx->run->stream = 1;
        return ngx_http_once_end_and_wait(r, ctx);
    }

    if (ngx_http_once_too_large(r, ctx)) {

        if (ngx_http_once_stream(r, ctx) != NGX_OK) {
            return NGX_ERROR;
        }

        if (ctx->phase == NGX_HTTP_ONCE_SENDING) {
            ctx->run->header_sent = 1;
            return ngx_http_next_header_filter(r);
        }

        return NGX_OK;
    }

    r->filter_need_in_memory = 1;

    if (ctx->run->live) {
        ngx_http_once_upstream_watch_input(r, ctx->run);
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

    if (ctx && ctx->run) {

        switch (ctx->phase) {

        case NGX_HTTP_ONCE_GRANTED:
        case NGX_HTTP_ONCE_BUFFERING:
            return ngx_http_once_buffer_header(r, ctx);

        case NGX_HTTP_ONCE_RECORDING:
            return NGX_ERROR;

        default:
            return ngx_http_next_header_filter(r);
        }
    }

    oscf = ngx_http_get_module_srv_conf(r, ngx_http_once_module);

    if (oscf->guarded) {
        ngx_http_once_headers_strip_response(r);
    }

    return ngx_http_next_header_filter(r);
}


/* ---------------------------------------------------------------- the body */

/* Keeps buffers as they are: the upstream stops when it has no more. */

static ngx_int_t
ngx_http_once_keep(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    ngx_chain_t *in)
{
    ngx_event_t          *wev;
    ngx_http_once_run_t  *run;

    run = ctx->run;

    if (in && ngx_chain_add_copy(r->pool, &run->kept, in) != NGX_OK) {
        return NGX_ERROR;
    }

    wev = r->connection->write;

    if (run->stream && !wev->delayed) {
        /* otherwise it would try to send them over and over */
        wev->delayed = 1;
        run->delayed = 1;
    }

    r->buffered |= NGX_HTTP_ONCE_BUFFERED;

    return NGX_AGAIN;
}


static ngx_int_t
ngx_http_once_overflow(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    ngx_chain_t *rest)
{
    ngx_chain_t          *prefix;
    ngx_http_once_run_t  *run;

    run = ctx->run;

    if (run->len) {
        prefix = ngx_http_once_buffer_chain(r, run);

        if (prefix == NULL) {
            return NGX_ERROR;
        }

        prefix->buf->flush = 1;    /* nothing may follow for a while */
        run->kept = prefix;
    }

    if (ngx_http_once_stream(r, ctx) != NGX_OK) {
        return NGX_ERROR;
    }

    return ctx->phase == NGX_HTTP_ONCE_RECORDING
           ? ngx_http_once_keep(r, ctx, rest)
           : ngx_http_once_pass_body(r, ctx, rest);
}


/*
 * A subrequest of the content handler. Scripts consume its output themselves;
 * if it were part of the response (echo_location), it would overtake the
 * buffered header. Nothing is written meanwhile, and any output to be written
 * means that this response cannot be recorded.
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

    if (ngx_http_once_consume(r->main->out) && !ctx->run->broken) {
        ngx_log_error(NGX_LOG_ERR, c->log, 0,
                      "once: a subrequest writes into the response of a "
                      "guarded location, which cannot be recorded");
        ctx->run->broken = 1;
    }

    r->main->out = NULL;
    c->buffered &= ~NGX_HTTP_WRITE_BUFFERED;

    return rc == NGX_AGAIN ? NGX_OK : rc;
}


/* The last byte came before parts of the response: it is incomplete. */

static ngx_uint_t
ngx_http_once_is_apart(ngx_http_request_t *r, ngx_http_once_run_t *run)
{
    if (!run->acted || !run->whole
        || (r->postponed == NULL && r == r->connection->data))
    {
        return 0;
    }

    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                  "once: parallel subrequests write into the response of a "
                  "guarded location, which cannot be recorded");

    return 1;
}


static ngx_int_t
ngx_http_once_buffer_body(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    ngx_chain_t *in)
{
    ngx_int_t             rc;
    ngx_chain_t          *rest;
    ngx_http_once_run_t  *run;

    run = ctx->run;

    rc = ngx_http_once_buffer_bytes(r, ctx, in, &rest);

    if (rc == NGX_OK && ctx->rpc && ngx_http_once_mcp_asks(r, ctx)) {
        /* it waits for what the client says to this */
        rest = NULL;
        rc = NGX_DECLINED;
    }

    if (rc == NGX_DECLINED) {
        return ngx_http_once_overflow(r, ctx, rest);
    }

    if (rc != NGX_OK || ngx_http_once_is_apart(r, run)) {
        return NGX_ERROR;
    }

    if (run->live && r->upstream->cleanup == NULL
        && (!run->whole || ngx_http_once_upstream_is_cut_off(r)))
    {
        /* the upstream is finished, and the response is not */
        run->broken = 1;
    }

    if (run->whole
        || (run->broken && !(run->live && r->upstream->cleanup)
            && !(run->acted && !run->live)))
    {
        return ngx_http_once_end_and_wait(r, ctx);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_once_buffer_send(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    ngx_chain_t *in)
{
    ngx_int_t             rc;
    ngx_chain_t          *out;
    ngx_http_once_run_t  *run;

    run = ctx->run;
    run->header_sent = 1;

    if (!run->stream && r->headers_out.status != NGX_HTTP_NO_CONTENT
        && r->headers_out.status != NGX_HTTP_NOT_MODIFIED
        && !(r->method & NGX_HTTP_HEAD))
    {
        ngx_http_clear_content_length(r);
        r->headers_out.content_length_n = run->len;
    }

    rc = ngx_http_next_header_filter(r);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    if (!run->stream) {
        out = ngx_http_once_buffer_chain(r, run);

        if (out == NULL) {
            return NGX_ERROR;
        }

        out->buf->last_buf = 1;
        out->buf->last_in_chain = 1;

        return ngx_http_next_body_filter(r, out);
    }

    if (in && ngx_chain_add_copy(r->pool, &run->kept, in) != NGX_OK) {
        return NGX_ERROR;
    }

    out = run->kept;
    run->kept = NULL;

    return ngx_http_next_body_filter(r, out);
}


/* After the last byte of a response that is not recorded. */

static ngx_int_t
ngx_http_once_passed(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    ngx_chain_t *in)
{
    ngx_chain_t  *cl;

    for (cl = in; cl; cl = cl->next) {

        if (cl->buf->last_buf) {
            return ngx_http_once_finish(r, ctx);
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

    if (!ctx->run->header_sent) {
        return ngx_http_once_buffer_send(r, ctx, in);
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

    if (ctx == NULL || ctx->run == NULL) {
        return ngx_http_next_body_filter(r, in);
    }

    if (r != r->main) {
        return ctx->run->acted && (ctx->phase == NGX_HTTP_ONCE_BUFFERING
                                    || ctx->phase == NGX_HTTP_ONCE_RECORDING)
               ? ngx_http_once_part(r, ctx, in)
               : ngx_http_next_body_filter(r, in);
    }

    if (ctx->run->dropped) {
        (void) ngx_http_once_consume(in);
        return NGX_OK;
    }

    switch (ctx->phase) {

    case NGX_HTTP_ONCE_BUFFERING:
        return ngx_http_once_buffer_body(r, ctx, in);

    case NGX_HTTP_ONCE_RECORDING:
        return ngx_http_once_keep(r, ctx, in);

    case NGX_HTTP_ONCE_SENDING:
        return ngx_http_once_pass_body(r, ctx, in);

    default:
        return ngx_http_next_body_filter(r, in);
    }
}


void
ngx_http_once_buffer_init(void)
{
    ngx_http_next_header_filter = ngx_http_top_header_filter;
    ngx_http_top_header_filter = ngx_http_once_header_filter;

    ngx_http_next_body_filter = ngx_http_top_body_filter;
    ngx_http_top_body_filter = ngx_http_once_body_filter;
}
