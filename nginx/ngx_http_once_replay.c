/*
 * Sends a stored response. It passes the same filters as the first one did
 * after it was recorded: add_header, gzip and chunking treat both alike.
 *
 * A stored response is in memory once, even if several clients receive it at
 * the same time: a completed record does not change, so its id and the claim
 * that completed it identify the response.
 */
#include "ngx_http_once_request.h"

#include <assert.h>


#define NGX_HTTP_ONCE_STORED_SLOTS  256


struct ngx_http_once_stored_s {
    ngx_queue_t                  queue;        /* of its slot */
    ngx_uint_t                   refs;         /* requests that send it */
    ngx_http_once_store_t       *store;
    once_answer_t               *answer;       /* kept */
    size_t                       bytes;
};


static ngx_queue_t  ngx_http_once_stored[NGX_HTTP_ONCE_STORED_SLOTS];


typedef struct {
    ngx_str_t   name;
    ngx_uint_t  offset;
    ngx_uint_t  many;        /* may occur more than once */
} ngx_http_once_known_t;


/* Headers that nginx's filters read through a pointer. */
static const ngx_http_once_known_t  ngx_http_once_known[] = {
    { ngx_string("content-encoding"),
      offsetof(ngx_http_headers_out_t, content_encoding), 0 },
    { ngx_string("content-range"),
      offsetof(ngx_http_headers_out_t, content_range), 0 },
    { ngx_string("accept-ranges"),
      offsetof(ngx_http_headers_out_t, accept_ranges), 0 },
    { ngx_string("last-modified"),
      offsetof(ngx_http_headers_out_t, last_modified), 0 },
    { ngx_string("etag"), offsetof(ngx_http_headers_out_t, etag), 0 },
    { ngx_string("expires"), offsetof(ngx_http_headers_out_t, expires), 0 },
    { ngx_string("cache-control"),
      offsetof(ngx_http_headers_out_t, cache_control), 1 },
    { ngx_string("link"), offsetof(ngx_http_headers_out_t, link), 1 },
    { ngx_string("www-authenticate"),
      offsetof(ngx_http_headers_out_t, www_authenticate), 0 },
    { ngx_string("server"), offsetof(ngx_http_headers_out_t, server), 0 },
    { ngx_string("date"), offsetof(ngx_http_headers_out_t, date), 0 },
    { ngx_null_string, 0, 0 }
};


/* -------------------------------------------------------- stored responses */

static ngx_queue_t *
ngx_http_once_stored_slot(const once_record_t *record)
{
    ngx_queue_t  *slot;

    slot = &ngx_http_once_stored[once_record_id(record)[0]
                                 % NGX_HTTP_ONCE_STORED_SLOTS];

    if (slot->next == NULL) {
        ngx_queue_init(slot);
    }

    return slot;
}


static ngx_http_once_stored_t *
ngx_http_once_stored_find(ngx_queue_t *slot, ngx_http_once_store_t *store,
    const once_record_t *record)
{
    ngx_queue_t             *q;
    const once_record_t     *other;
    ngx_http_once_stored_t  *stored;

    for (q = ngx_queue_head(slot);
         q != ngx_queue_sentinel(slot);
         q = ngx_queue_next(q))
    {
        stored = ngx_queue_data(q, ngx_http_once_stored_t, queue);
        other = once_answer_record(stored->answer);

        if (stored->store == store
            && ngx_memcmp(once_record_id(other), once_record_id(record),
                          ONCE_ID_SIZE)
               == 0
            && ngx_memcmp(once_record_claim_id(other),
                          once_record_claim_id(record), ONCE_CLAIM_ID_SIZE)
               == 0)
        {
            return stored;
        }
    }

    return NULL;
}


/* What an answer takes while it is kept. */

static size_t
ngx_http_once_stored_bytes(const once_record_t *record)
{
    size_t           bytes;
    ngx_uint_t       i;
    once_response_t  response = ONCE_RESPONSE_INIT;

    bytes = (size_t) once_record_bytes(record);

    if (once_record_response(record, &response) == ONCE_OK
        && response.body.len > 0)
    {
        /* unpacked: the record itself may be smaller, and is freed */

        bytes = response.body.len;

        for (i = 0; i < response.header_count; i++) {
            bytes += sizeof(once_header_t) + response.headers[i].name.len
                     + response.headers[i].value.len;
        }
    }

    return bytes;
}


ngx_int_t
ngx_http_once_replay_keep(ngx_http_once_ctx_t *ctx, once_answer_t *answer)
{
    ngx_queue_t             *slot;
    const once_record_t     *record;
    ngx_http_once_stored_t  *stored;

    record = once_answer_record(answer);
    slot = ngx_http_once_stored_slot(record);
    stored = ngx_http_once_stored_find(slot, ctx->conf->store, record);

    if (stored == NULL) {
        stored = ngx_calloc(sizeof(ngx_http_once_stored_t), ngx_cycle->log);
        if (stored == NULL) {
            return NGX_ERROR;
        }

        stored->bytes = ngx_http_once_stored_bytes(record);

        if (ngx_http_once_body_take_memory(stored->bytes) != NGX_OK) {
            ngx_free(stored);
            return NGX_DECLINED;
        }

        stored->store = ctx->conf->store;
        stored->answer = answer;
        once_answer_keep(answer);
        ngx_queue_insert_head(slot, &stored->queue);
    }

    assert(!ctx->stored);    /* a request sends one response */
    stored->refs++;

    ctx->stored = stored;
    ctx->answer = stored->answer;
    ctx->expires_ms = once_record_expires_ms(record);

    return NGX_OK;
}


void
ngx_http_once_replay_drop(ngx_http_once_ctx_t *ctx)
{
    ngx_http_once_stored_t  *stored;

    stored = ctx->stored;

    if (stored == NULL) {
        return;
    }

    assert(stored->refs > 0 && ctx->answer == stored->answer);

    ctx->stored = NULL;
    ctx->answer = NULL;
    stored->refs--;

    if (stored->refs == 0) {
        ngx_queue_remove(&stored->queue);
        ngx_http_once_body_give_memory(&stored->bytes);
        once_answer_free(stored->answer);
        ngx_free(stored);
    }
}


/* ------------------------------------------------------------ the response */

static ngx_uint_t
ngx_http_once_is_name(const once_slice_t *name, const char *text, size_t len)
{
    return name->len == len
           && ngx_strncasecmp((u_char *) name->data, (u_char *) text, len)
              == 0;
}


/*
 * The type is sent as it was received, with its parameters. Filters get the
 * charset and the length of the type before it, as from an upstream's header.
 */

static void
ngx_http_once_set_type(ngx_http_request_t *r, const once_slice_t *value)
{
    u_char  *p, *type, *data, *last;

    data = (u_char *) value->data;
    last = data + value->len;

    r->headers_out.content_type.data = data;
    r->headers_out.content_type.len = value->len;
    r->headers_out.content_type_len = value->len;
    r->headers_out.content_type_lowcase = NULL;

    for (p = data; (type = ngx_strlchr(p, last, ';')) != NULL; /* void */ ) {

        for (p = type + 1; p < last && *p == ' '; p++) { /* void */ }

        if (last - p < 8 || ngx_strncasecmp(p, (u_char *) "charset=", 8) != 0)
        {
            continue;
        }

        r->headers_out.content_type_len = type - data;

        p += (p + 8 < last && p[8] == '"') ? 9 : 8;
        last -= (p < last && last[-1] == '"') ? 1 : 0;

        r->headers_out.charset.data = p;
        r->headers_out.charset.len = last - p;

        return;
    }
}


/* From the backend to nginx's charset filter; clients do not get it. */

static ngx_int_t
ngx_http_once_override_charset(ngx_http_request_t *r, ngx_str_t *value)
{
    ngx_str_t  *charset;

    charset = ngx_palloc(r->pool, sizeof(ngx_str_t));
    if (charset == NULL) {
        return NGX_ERROR;
    }

    *charset = *value;
    r->headers_out.override_charset = charset;

    return NGX_OK;
}


/* Sets the pointer that nginx's filters read. */

static ngx_int_t
ngx_http_once_make_known(ngx_http_request_t *r, ngx_table_elt_t *h,
    const ngx_http_once_known_t *known)
{
    ngx_table_elt_t  **place;
#if (nginx_version < 1023000)
    ngx_array_t       *list;
#endif

    place = (ngx_table_elt_t **) ((char *) &r->headers_out + known->offset);

    if (!known->many) {
        *place = h;
        return NGX_OK;
    }

#if (nginx_version >= 1023000)

    while (*place) {
        place = &(*place)->next;
    }

#else

    list = (ngx_array_t *) ((char *) &r->headers_out + known->offset);

    if (list->elts == NULL
        && ngx_array_init(list, r->pool, 2, sizeof(ngx_table_elt_t *))
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    place = ngx_array_push(list);
    if (place == NULL) {
        return NGX_ERROR;
    }

#endif

    *place = h;

    return NGX_OK;
}


static ngx_int_t
ngx_http_once_put_header(ngx_http_request_t *r, const once_header_t *header)
{
    ngx_str_t                     name, value;
    ngx_table_elt_t              *h;
    const ngx_http_once_known_t  *known;

    if (ngx_http_once_is_name(&header->name, "content-type", 12)) {
        ngx_http_once_set_type(r, &header->value);
        return NGX_OK;
    }

    name.data = (u_char *) header->name.data;
    name.len = header->name.len;
    value.data = (u_char *) header->value.data;
    value.len = header->value.len;

    if (ngx_http_once_is_name(&header->name, "x-accel-charset", 15)) {
        return ngx_http_once_override_charset(r, &value);
    }

    h = ngx_http_once_headers_push(&r->headers_out.headers, &name, &value);
    if (h == NULL) {
        return NGX_ERROR;
    }

    for (known = ngx_http_once_known; known->name.len; known++) {

        if (ngx_http_once_is_name(&header->name, (char *) known->name.data,
                                  known->name.len)
            && ngx_http_once_make_known(r, h, known) != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    if (h == r->headers_out.last_modified) {
        r->headers_out.last_modified_time = ngx_parse_http_time(value.data,
                                                                value.len);
    }

    return NGX_OK;
}


/* Headers that describe the body, which has been omitted. */

static ngx_uint_t
ngx_http_once_of_body(const once_slice_t *name)
{
    return ngx_http_once_is_name(name, "content-encoding", 16)
           || ngx_http_once_is_name(name, "content-range", 13)
           || ngx_http_once_is_name(name, "content-md5", 11)
           || ngx_http_once_is_name(name, "content-digest", 14)
           || ngx_http_once_is_name(name, "digest", 6);
}


/* Of the headers in a record that are the gateway's, one is for clients. */

static ngx_uint_t
ngx_http_once_says_redacted(const once_header_t *header)
{
    return ngx_http_once_is_name(&header->name, "once-body", 9)
           && header->value.len == 8
           && ngx_strncmp(header->value.data, "redacted", 8) == 0;
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

        if ((!ngx_http_once_headers_replayable(ctx->conf,
                                               (u_char *) header->name.data,
                                               header->name.len)
             && !ngx_http_once_says_redacted(header))
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

    if (response->body_omitted == ONCE_BODY_ERASED) {
        ngx_str_set(&value, "erased");

    } else {
        ngx_str_set(&value, "omitted");
    }

    return ngx_http_once_headers_push(&r->headers_out.headers, &name, &value)
           ? NGX_OK : NGX_ERROR;
}


static ngx_int_t
ngx_http_once_mark_replay(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    ngx_str_t  value = ngx_string("true");

    if (ctx->conf->replay_header.len == 0) {
        return NGX_OK;
    }

    return ngx_http_once_headers_push(&r->headers_out.headers,
                                      &ctx->conf->replay_header, &value)
           ? NGX_OK : NGX_ERROR;
}


static ngx_int_t
ngx_http_once_send_body(ngx_http_request_t *r, const once_response_t *response)
{
    ngx_buf_t  *b;

    b = ngx_calloc_buf(r->pool);
    if (b == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (response->body.len) {
        /* in the kept answer, which lives as long as the request */
        b->pos = (u_char *) response->body.data;
        b->last = b->pos + response->body.len;
        b->memory = 1;
    }

    return ngx_http_once_send(r, b);
}


ngx_int_t
ngx_http_once_replay_send(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    ngx_uint_t replayed)
{
    int                   code;
    ngx_int_t             rc;
    once_response_t       response = ONCE_RESPONSE_INIT;
    const once_record_t  *record;

    record = once_answer_record(ctx->answer);
    code = once_record_response(record, &response);

    if (code != ONCE_OK) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "once: a stored response cannot be read: %s",
                      once_error_text(code));

        return ngx_http_once_problem_send(r, ctx->conf, NGX_HTTP_ONCE_P_STORE,
                                          NULL, 1);
    }

    if (ctx->rpc) {
        rc = ngx_http_once_mcp_replay(r, ctx, &response);

        if (rc == NGX_BUSY) {
            return ngx_http_once_problem_refuse_crowded(r, ctx,
                                                  NGX_HTTP_ONCE_C_NO_MEMORY);
        }

        if (rc != NGX_OK) {
            return rc == NGX_DECLINED
                   ? ngx_http_once_mcp_send_omitted(r, ctx, response.status)
                   : NGX_HTTP_INTERNAL_SERVER_ERROR;
        }
    }

    ngx_http_clean_header(r);

    r->err_status = 0;
    r->allow_ranges = 0;
    r->disable_not_modified = 1;    /* the first request's were evaluated */
    ngx_http_once_problem_set_status(r, response.status);

    if (response.status != NGX_HTTP_NO_CONTENT
        && response.status != NGX_HTTP_NOT_MODIFIED)
    {
        r->headers_out.content_length_n = response.body.len;
    }

    if (response.status == NGX_HTTP_NO_CONTENT) {
        /* otherwise nginx drops headers, as it does with its own 204 */
        ngx_str_set(&r->headers_out.status_line, "204 No Content");
    }

    if (ngx_http_once_put_headers(r, ctx, &response) != NGX_OK
        || (replayed && ngx_http_once_mark_replay(r, ctx) != NGX_OK)
        || ngx_http_once_headers_add_echo(r, ctx) != NGX_OK
        || ngx_http_once_headers_add_expires(r, ctx->conf, ctx->expires_ms)
           != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_once_send_body(r, &response);
}
