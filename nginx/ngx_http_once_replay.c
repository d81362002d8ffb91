/*
 * A stored response as an answer. It passes the same filters as the first one
 * did after it was recorded, so add_header, gzip and chunking treat both alike.
 */
#include "ngx_http_once_request.h"


typedef struct {
    ngx_str_t   name;
    ngx_uint_t  offset;
} ngx_http_once_known_t;


/* Headers that nginx's own filters look at through a pointer. */
static const ngx_http_once_known_t  ngx_http_once_known[] = {
    { ngx_string("content-encoding"),
      offsetof(ngx_http_headers_out_t, content_encoding) },
    { ngx_string("content-range"),
      offsetof(ngx_http_headers_out_t, content_range) },
    { ngx_string("last-modified"),
      offsetof(ngx_http_headers_out_t, last_modified) },
    { ngx_string("etag"), offsetof(ngx_http_headers_out_t, etag) },
    { ngx_string("expires"), offsetof(ngx_http_headers_out_t, expires) },
    { ngx_string("www-authenticate"),
      offsetof(ngx_http_headers_out_t, www_authenticate) },
    { ngx_string("server"), offsetof(ngx_http_headers_out_t, server) },
    { ngx_string("date"), offsetof(ngx_http_headers_out_t, date) },
    { ngx_null_string, 0 }
};


static ngx_uint_t
ngx_http_once_is_name(const once_slice_t *name, const char *text, size_t len)
{
    return name->len == len
           && ngx_strncasecmp((u_char *) name->data, (u_char *) text, len)
              == 0;
}


/* As it came: its parameters stay where they are. */

static void
ngx_http_once_set_type(ngx_http_request_t *r, const once_slice_t *value)
{
    u_char  *p, *data;

    data = (u_char *) value->data;
    p = ngx_strlchr(data, data + value->len, ';');

    r->headers_out.content_type.data = data;
    r->headers_out.content_type.len = value->len;
    r->headers_out.content_type_len = value->len;
    r->headers_out.content_type_lowcase = NULL;

    if (p) {
        while (p > data && p[-1] == ' ') {
            p--;
        }

        r->headers_out.content_type_len = p - data;
    }
}


static ngx_int_t
ngx_http_once_put_header(ngx_http_request_t *r, const once_header_t *header)
{
    ngx_str_t                     name, value;
    ngx_table_elt_t              *h, **place;
    const ngx_http_once_known_t  *known;

    if (ngx_http_once_is_name(&header->name, "content-type", 12)) {
        ngx_http_once_set_type(r, &header->value);
        return NGX_OK;
    }

    name.data = (u_char *) header->name.data;
    name.len = header->name.len;
    value.data = (u_char *) header->value.data;
    value.len = header->value.len;

    h = ngx_http_once_push_header(&r->headers_out.headers, &name, &value);
    if (h == NULL) {
        return NGX_ERROR;
    }

    for (known = ngx_http_once_known; known->name.len; known++) {

        if (ngx_http_once_is_name(&header->name, (char *) known->name.data,
                                  known->name.len))
        {
            place = (ngx_table_elt_t **) ((char *) &r->headers_out
                                          + known->offset);
            *place = h;
        }
    }

    return NGX_OK;
}


/* These describe a body that is not there. */

static ngx_uint_t
ngx_http_once_of_body(const once_slice_t *name)
{
    return ngx_http_once_is_name(name, "content-encoding", 16)
           || ngx_http_once_is_name(name, "content-range", 13)
           || ngx_http_once_is_name(name, "content-md5", 11)
           || ngx_http_once_is_name(name, "content-digest", 14)
           || ngx_http_once_is_name(name, "digest", 6);
}


static ngx_int_t
ngx_http_once_put_headers(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    const once_response_t *response)
{
    ngx_str_t             name, value;
    ngx_uint_t            i;
    const once_header_t  *header;

    for (i = 0; i < response->header_count; i++) {
        header = &response->headers[i];

        if (!ngx_http_once_replayable(ctx->conf, (u_char *) header->name.data,
                                      header->name.len)
            || (response->body_omitted
                && ngx_http_once_of_body(&header->name)))
        {
            continue;
        }

        if (ngx_http_once_put_header(r, header) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    if (!response->body_omitted) {
        return NGX_OK;
    }

    ngx_str_set(&name, "Once-Body");
    ngx_str_set(&value, "omitted");

    return ngx_http_once_push_header(&r->headers_out.headers, &name, &value)
           ? NGX_OK : NGX_ERROR;
}


static ngx_int_t
ngx_http_once_mark_replay(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    ngx_str_t  value = ngx_string("true");

    if (ctx->conf->replay_header.len == 0) {
        return NGX_OK;
    }

    return ngx_http_once_push_header(&r->headers_out.headers,
                                     &ctx->conf->replay_header, &value)
           ? NGX_OK : NGX_ERROR;
}


static ngx_int_t
ngx_http_once_send_body(ngx_http_request_t *r, const once_response_t *response)
{
    ngx_int_t     rc;
    ngx_buf_t    *b;
    ngx_chain_t   out;

    rc = ngx_http_send_header(r);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    if (response->body.len == 0) {
        return ngx_http_send_special(r, NGX_HTTP_LAST);
    }

    b = ngx_calloc_buf(r->pool);
    if (b == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    /* of the kept answer, which lives as long as the request */

    b->pos = (u_char *) response->body.data;
    b->last = b->pos + response->body.len;
    b->memory = 1;
    b->last_buf = 1;
    b->last_in_chain = 1;

    out.buf = b;
    out.next = NULL;

    return ngx_http_output_filter(r, &out);
}


ngx_int_t
ngx_http_once_send_stored(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    ngx_uint_t replayed)
{
    int                   code;
    once_response_t       response = ONCE_RESPONSE_INIT;
    const once_record_t  *record;

    record = once_answer_record(ctx->answer);
    code = once_record_response(record, &response);

    if (code != ONCE_OK) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "once: a stored response cannot be read: %s",
                      once_error_text(code));

        return ngx_http_once_send_problem(r, ctx->conf, NGX_HTTP_ONCE_P_STORE,
                                          NULL, 1);
    }

    ngx_http_clean_header(r);

    r->err_status = 0;
    r->allow_ranges = 0;
    r->disable_not_modified = 1;    /* conditions were the first request's */
    ngx_http_once_set_status(r, response.status);

    if (response.status != NGX_HTTP_NO_CONTENT
        && response.status != NGX_HTTP_NOT_MODIFIED)
    {
        r->headers_out.content_length_n = response.body.len;
    }

    if (ngx_http_once_put_headers(r, ctx, &response) != NGX_OK
        || (replayed && ngx_http_once_mark_replay(r, ctx) != NGX_OK)
        || ngx_http_once_add_expires(r, ctx->expires_ms) != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_once_send_body(r, &response);
}
