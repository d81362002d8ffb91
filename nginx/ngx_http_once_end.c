/*
 * What a response means for its claim, and the end that this leads to; and the
 * bytes of it that are held until then.
 */
#include "ngx_http_once_request.h"


/* ------------------------------------------------------------ what it means */

once_judgement_t
ngx_http_once_judge(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    ngx_http_once_hold_t  *hold;

    hold = ctx->hold;

    if (hold->broken || hold->lost) {
        return ONCE_JUDGE_DOUBT;
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
        return hold->sent ? ONCE_JUDGE_DOUBT : ONCE_JUDGE_EARLY;
    }

    if (r->headers_out.status >= NGX_HTTP_SPECIAL_RESPONSE) {
        return hold->sent ? ONCE_JUDGE_RELEASE : ONCE_JUDGE_EARLY;
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


ngx_int_t
ngx_http_once_end(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    switch (ngx_http_once_judge(r, ctx)) {

    case ONCE_JUDGE_RECORD:
        return ngx_http_once_record(r, ctx);

    case ONCE_JUDGE_RELEASE:
        return ngx_http_once_guard_release(ctx->guard, r->headers_out.status,
                                           "answered as not done", 0);

    case ONCE_JUDGE_EARLY:
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
