/*
 * The request body: its part of the fingerprint, computed while it streams in,
 * so that nothing is read twice and the size does not matter; and the limits
 * on bodies, of each worker.
 *
 * once_memory limits what is kept in memory for clients. Beyond it, a first
 * response passes through and is recorded without its body, and a replay is
 * refused for now. No record is lost, and nothing runs twice. once_bodies
 * limits request bodies that are in files.
 */
#include "ngx_http_once_request.h"

#include <assert.h>


#define NGX_HTTP_ONCE_READ_SIZE  16384
#define NGX_HTTP_ONCE_LOG_MSEC   60000


static ngx_http_request_body_filter_pt  ngx_http_next_request_body_filter;


/*
 * Of this worker: bytes in memory, and of request bodies in files. What is
 * taken is given back exactly once, so no more is given than was taken.
 */
static size_t      ngx_http_once_taken;
static size_t      ngx_http_once_limit;
static ngx_msec_t  ngx_http_once_logged;
static size_t      ngx_http_once_in_files;


/* -------------------------------------------------------------- the limits */

void
ngx_http_once_body_open(ngx_cycle_t *cycle)
{
    ngx_http_once_main_conf_t  *omcf;

    omcf = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_once_module);

    ngx_http_once_limit = omcf->memory;
}


ngx_int_t
ngx_http_once_body_take_memory(size_t bytes)
{
    if (bytes <= ngx_http_once_limit - ngx_http_once_taken) {
        ngx_http_once_taken += bytes;
        ngx_http_once_metrics_memory(ngx_http_once_taken);
        return NGX_OK;
    }

    if (ngx_http_once_logged == 0
        || ngx_current_msec - ngx_http_once_logged > NGX_HTTP_ONCE_LOG_MSEC)
    {
        ngx_http_once_logged = ngx_current_msec;

        ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0,
                      "once: \"once_memory\" is used up: %uz of %uz bytes; "
                      "replays are refused and responses are recorded without "
                      "their body", ngx_http_once_taken, ngx_http_once_limit);
    }

    return NGX_DECLINED;
}


void
ngx_http_once_body_give_memory(size_t *bytes)
{
    assert(*bytes <= ngx_http_once_taken);

    ngx_http_once_taken -= *bytes;
    *bytes = 0;
    ngx_http_once_metrics_memory(ngx_http_once_taken);
}


static ngx_int_t
ngx_http_once_body_take(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    off_t bytes)
{
    ngx_http_once_main_conf_t  *omcf;

    omcf = ngx_http_get_module_main_conf(r, ngx_http_once_module);

    if (omcf->bodies == 0) {
        return NGX_OK;
    }

    if (ngx_http_once_in_files > omcf->bodies
        || bytes > (off_t) (omcf->bodies - ngx_http_once_in_files))
    {
        return NGX_DECLINED;
    }

    ngx_http_once_in_files += (size_t) bytes;
    ctx->file += (size_t) bytes;

    return NGX_OK;
}


/*
 * By Content-Length, so that nothing of a refused body has to be read. A body
 * that fits into the buffer is not in a file.
 */

ngx_int_t
ngx_http_once_body_reserve(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    if (r->headers_in.content_length_n
        <= (off_t) clcf->client_body_buffer_size)
    {
        return NGX_OK;
    }

    return ngx_http_once_body_take(r, ctx, r->headers_in.content_length_n);
}


void
ngx_http_once_body_unreserve(ngx_http_once_ctx_t *ctx)
{
    assert(ctx->file <= ngx_http_once_in_files);

    ngx_http_once_in_files -= ctx->file;
    ctx->file = 0;
}


/* --------------------------------------------------------- the fingerprint */

/* A JSON document is kept in memory until it is complete. */

static void
ngx_http_once_take_json(ngx_http_once_ctx_t *ctx, size_t len)
{
    if (ctx->conf->fingerprint != ONCE_BODY_MODE_JSON
        || ctx->json + len > ONCE_BODY_JSON_MAX)
    {
        return;
    }

    if (ngx_http_once_body_take_memory(len) == NGX_OK) {
        ctx->json += len;
        return;
    }

    ngx_http_once_body_drop(ctx);
    ctx->crowded = 1;
}


void
ngx_http_once_body_drop(ngx_http_once_ctx_t *ctx)
{
    once_body_free(ctx->body);
    ctx->body = NULL;
    ngx_http_once_body_give_memory(&ctx->json);
}


static ngx_int_t
ngx_http_once_add_bytes(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    u_char *data, size_t len)
{
    ngx_uint_t  i;

    if (len == 0 || (ctx->body == NULL && ctx->rpc == NULL)) {
        return NGX_OK;
    }

    if (ctx->rpc == NULL) {
        ngx_http_once_take_json(ctx, len);

    } else if (ngx_http_once_mcp_add(r, ctx, data, len) != NGX_OK) {
        return NGX_ERROR;
    }

    for (i = 0; ctx->seeks && i < ctx->conf->key_pointers; i++) {
        ngx_http_once_seek_add(&ctx->seeks[i], data, len);
    }

    if (ctx->body && once_body_add(ctx->body, data, len) != ONCE_OK) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "once: out of memory while reading the request body");
        return NGX_ERROR;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_once_request_body_filter(ngx_http_request_t *r, ngx_chain_t *in)
{
    ngx_chain_t          *cl;
    ngx_http_once_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_once_module);

    if (ctx && ctx->phase == NGX_HTTP_ONCE_READING) {

        for (cl = in; cl; cl = cl->next) {

            if (r->headers_in.chunked
                && ngx_http_once_body_take(r, ctx,
                                           cl->buf->last - cl->buf->pos)
                   != NGX_OK)
            {
                ctx->outcome = NGX_HTTP_ONCE_REFUSED;
                ngx_http_once_count(ctx->conf->route,
                                    NGX_HTTP_ONCE_C_REFUSED);
                ngx_http_once_count(ctx->conf->route,
                                    NGX_HTTP_ONCE_C_NO_FILE);
                return NGX_HTTP_SERVICE_UNAVAILABLE;
            }

            if (ngx_http_once_add_bytes(r, ctx, cl->buf->pos,
                                        cl->buf->last - cl->buf->pos)
                != NGX_OK)
            {
                return NGX_HTTP_INTERNAL_SERVER_ERROR;
            }
        }
    }

    return ngx_http_next_request_body_filter(r, in);
}


static ngx_int_t
ngx_http_once_add_file(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    ngx_buf_t *b)
{
    off_t    offset;
    size_t   size;
    ssize_t  n;
    u_char   data[NGX_HTTP_ONCE_READ_SIZE];

    for (offset = b->file_pos; offset < b->file_last; offset += n) {

        size = (size_t) ngx_min(b->file_last - offset, (off_t) sizeof(data));
        n = ngx_read_file(b->file, data, size, offset);

        if (n <= 0) {
            return NGX_ERROR;
        }

        if (ngx_http_once_add_bytes(r, ctx, data, n) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


ngx_int_t
ngx_http_once_body_add_read(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    ngx_int_t     rc;
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    if (r->request_body == NULL) {
        return NGX_OK;
    }

    for (cl = r->request_body->bufs; cl; cl = cl->next) {
        b = cl->buf;

        if (ngx_buf_in_memory(b)) {
            rc = ngx_http_once_add_bytes(r, ctx, b->pos, b->last - b->pos);

        } else if (b->in_file) {
            rc = ngx_http_once_add_file(r, ctx, b);

        } else {
            rc = NGX_OK;
        }

        if (rc != NGX_OK) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


void
ngx_http_once_body_init(void)
{
    ngx_http_next_request_body_filter = ngx_http_top_request_body_filter;
    ngx_http_top_request_body_filter = ngx_http_once_request_body_filter;
}
