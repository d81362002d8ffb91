/*
 * The response of a fetch, by nginx's own parsers. Each function works on what
 * has come in: NGX_OK: fetch->parse is the next; NGX_AGAIN: more is needed;
 * NGX_DONE: the response is whole; NGX_ERROR: it is none.
 */
#include "ngx_http_once_probe.h"


static ngx_int_t ngx_http_once_parse_headers(ngx_http_once_fetch_t *fetch);
static ngx_int_t ngx_http_once_parse_body(ngx_http_once_fetch_t *fetch);


ngx_int_t
ngx_http_once_fetch_line(ngx_http_once_fetch_t *fetch)
{
    ngx_int_t  rc;

    rc = ngx_http_parse_status_line(fetch->parser, fetch->in, &fetch->line);

    if (rc != NGX_OK) {
        return rc;
    }

    fetch->status = fetch->line.code;
    fetch->parse = ngx_http_once_parse_headers;

    return NGX_OK;
}


static ngx_int_t
ngx_http_once_take_header(ngx_http_once_fetch_t *fetch)
{
    ngx_keyval_t        *h;
    ngx_http_request_t  *r;

    h = ngx_array_push(&fetch->headers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    r = fetch->parser;

    h->key.data = r->header_name_start;
    h->key.len = r->header_name_end - r->header_name_start;
    h->value.data = r->header_start;
    h->value.len = r->header_end - r->header_start;

    return NGX_OK;
}


ngx_str_t *
ngx_http_once_fetch_header(ngx_http_once_fetch_t *fetch, const char *name,
    ngx_uint_t *count)
{
    size_t         len;
    ngx_str_t     *value;
    ngx_uint_t     i, n;
    ngx_keyval_t  *h;

    h = fetch->headers.elts;
    len = ngx_strlen(name);
    value = NULL;
    n = 0;

    for (i = 0; i < fetch->headers.nelts; i++) {
        if (h[i].key.len == len
            && ngx_strncasecmp(h[i].key.data, (u_char *) name, len) == 0)
        {
            value = &h[i].value;
            n++;
        }
    }

    if (count) {
        *count = n;
    }

    return n == 1 ? value : NULL;
}


/* How long the body is. Two answers to that are none (RFC 9112, 6.3). */

static ngx_int_t
ngx_http_once_frame(ngx_http_once_fetch_t *fetch)
{
    ngx_str_t   *value;
    ngx_uint_t   lengths, codings;

    value = ngx_http_once_fetch_header(fetch, "Content-Length", &lengths);

    if (value) {
        fetch->length = ngx_atoof(value->data, value->len);
    }

    if (lengths && (value == NULL || fetch->length == NGX_ERROR)) {
        return NGX_ERROR;
    }

    value = ngx_http_once_fetch_header(fetch, "Transfer-Encoding", &codings);

    if (codings) {
        if (value == NULL || lengths || value->len != 7
            || ngx_strncasecmp(value->data, (u_char *) "chunked", 7) != 0)
        {
            return NGX_ERROR;
        }

        fetch->chunked = 1;
    }

    if (fetch->status == NGX_HTTP_NO_CONTENT
        || fetch->status == NGX_HTTP_NOT_MODIFIED)
    {
        fetch->chunked = 0;
        fetch->length = 0;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_once_parse_headers(ngx_http_once_fetch_t *fetch)
{
    ngx_int_t            rc;
    ngx_http_request_t  *r;

    r = fetch->parser;

    for ( ;; ) {
        rc = ngx_http_parse_header_line(r, fetch->in, 1);

        if (rc != NGX_OK) {
            break;
        }

        if (r->invalid_header) {
            return NGX_ERROR;
        }

        if (ngx_http_once_take_header(fetch) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    if (rc != NGX_HTTP_PARSE_HEADER_DONE) {
        return rc == NGX_AGAIN ? NGX_AGAIN : NGX_ERROR;
    }

    if (fetch->status < 200) {

        if (fetch->status == NGX_HTTP_SWITCHING_PROTOCOLS) {
            return NGX_ERROR;
        }

        fetch->headers.nelts = 0;
        ngx_memzero(&fetch->line, sizeof(ngx_http_status_t));
        r->state = 0;
        fetch->parse = ngx_http_once_fetch_line;

        return NGX_OK;
    }

    if (ngx_http_once_frame(fetch) != NGX_OK) {
        return NGX_ERROR;
    }

    fetch->body.data = fetch->in->pos;
    fetch->body_last = fetch->in->pos;
    fetch->parse = ngx_http_once_parse_body;

    return NGX_OK;
}


/* The pieces are moved together over what stood between them. */

static ngx_int_t
ngx_http_once_parse_chunks(ngx_http_once_fetch_t *fetch)
{
    off_t       size;
    ngx_buf_t  *b;
    ngx_int_t   rc;

    b = fetch->in;

    for ( ;; ) {
#if (nginx_version >= 1027002)
        rc = ngx_http_parse_chunked(fetch->parser, b, &fetch->chunks, 0);
#else
        rc = ngx_http_parse_chunked(fetch->parser, b, &fetch->chunks);
#endif

        if (rc != NGX_OK) {
            break;
        }

        size = ngx_min(fetch->chunks.size, b->last - b->pos);

        ngx_memmove(fetch->body_last, b->pos, (size_t) size);
        fetch->body_last += size;
        fetch->chunks.size -= size;
        b->pos += size;

        if (b->pos == b->last) {
            return NGX_AGAIN;
        }
    }

    if (rc == NGX_DONE) {
        fetch->body.len = fetch->body_last - fetch->body.data;
    }

    return rc;
}


static ngx_int_t
ngx_http_once_parse_body(ngx_http_once_fetch_t *fetch)
{
    off_t  there;

    if (fetch->chunked) {
        return ngx_http_once_parse_chunks(fetch);
    }

    there = fetch->in->last - fetch->body.data;

    if (fetch->length >= 0) {
        fetch->body.len = (size_t) fetch->length;
        return there >= fetch->length ? NGX_DONE : NGX_AGAIN;
    }

    fetch->body.len = (size_t) there;

    return fetch->eof ? NGX_DONE : NGX_AGAIN;
}
