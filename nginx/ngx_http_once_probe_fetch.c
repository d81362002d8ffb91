/*
 * The HTTP client of probes: one GET, in the manner of nginx's OCSP client,
 * with a connection, a buffer and nginx's parsers but without a request. The
 * parsers follow each other in fetch->parse: status line, headers, body. At
 * the end: what a probe sends, and how the answer is read.
 */
#include "ngx_http_once_probe.h"


static ngx_int_t ngx_http_once_parse_line(ngx_http_once_fetch_t *fetch);
static ngx_int_t ngx_http_once_parse_headers(ngx_http_once_fetch_t *fetch);
static ngx_int_t ngx_http_once_parse_body(ngx_http_once_fetch_t *fetch);
static void ngx_http_once_fetch_write(ngx_event_t *wev);
static void ngx_http_once_fetch_read(ngx_event_t *rev);
static void ngx_http_once_fetch_timeout(ngx_event_t *ev);
static void ngx_http_once_fetch_step(ngx_http_once_fetch_t *fetch);


static void
ngx_http_once_fetch_close(ngx_http_once_fetch_t *fetch)
{
    if (fetch->timer.timer_set) {
        ngx_del_timer(&fetch->timer);
    }

    if (fetch->timer.posted) {
        ngx_delete_posted_event(&fetch->timer);
    }

    if (fetch->peer.connection) {
        ngx_close_connection(fetch->peer.connection);
        fetch->peer.connection = NULL;
    }
}


void
ngx_http_once_probe_fetch_destroy(ngx_http_once_fetch_t *fetch)
{
    ngx_http_once_fetch_close(fetch);
    ngx_destroy_pool(fetch->pool);
}


static void
ngx_http_once_fetch_end(ngx_http_once_fetch_t *fetch, ngx_int_t rc)
{
    ngx_http_once_fetch_close(fetch);
    fetch->done(fetch, rc);
}


static void
ngx_http_once_fetch_fail(ngx_http_once_fetch_t *fetch, ngx_err_t err,
    const char *why)
{
    ngx_log_error(NGX_LOG_WARN, fetch->log, err,
                  "once_probe: %s, http://%V%V (%V)", why, &fetch->conf->host,
                  &fetch->conf->path, &fetch->conf->addr->name);

    ngx_http_once_fetch_end(fetch, NGX_ERROR);
}


static ngx_int_t
ngx_http_once_fetch_connect(ngx_http_once_fetch_t *fetch)
{
    ngx_int_t          rc;
    ngx_connection_t  *c;

    fetch->peer.sockaddr = fetch->conf->addr->sockaddr;
    fetch->peer.socklen = fetch->conf->addr->socklen;
    fetch->peer.name = &fetch->conf->addr->name;
    fetch->peer.get = ngx_event_get_peer;
    fetch->peer.log = fetch->log;
    fetch->peer.log_error = NGX_ERROR_ERR;

    rc = ngx_event_connect_peer(&fetch->peer);

    if (rc == NGX_ERROR || rc == NGX_BUSY || rc == NGX_DECLINED) {
        return NGX_ERROR;
    }

    c = fetch->peer.connection;
    c->data = fetch;
    c->pool = fetch->pool;
    c->addr_text = fetch->conf->addr->name;

    c->read->handler = ngx_http_once_fetch_read;
    c->write->handler = ngx_http_once_fetch_write;
    c->read->log = fetch->log;
    c->write->log = fetch->log;

    fetch->parser->connection = c;

    /* posted, not called: `done` is never called from here */

    if (rc == NGX_OK) {
        ngx_post_event(c->write, &ngx_posted_events);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_once_fetch_prepare(ngx_http_once_fetch_t *fetch, ngx_str_t *request)
{
    fetch->out = ngx_create_temp_buf(fetch->pool, request->len);
    fetch->in = ngx_create_temp_buf(fetch->pool, fetch->conf->size);
    fetch->parser = ngx_pcalloc(fetch->pool, sizeof(ngx_http_request_t));

    if (fetch->out == NULL || fetch->in == NULL || fetch->parser == NULL
        || ngx_array_init(&fetch->headers, fetch->pool, 16,
                          sizeof(ngx_keyval_t))
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    fetch->out->last = ngx_cpymem(fetch->out->last, request->data,
                                  request->len);
    fetch->parse = ngx_http_once_parse_line;
    fetch->length = -1;

    fetch->timer.handler = ngx_http_once_fetch_timeout;
    fetch->timer.data = fetch;
    fetch->timer.log = fetch->log;

    return NGX_OK;
}


ngx_http_once_fetch_t *
ngx_http_once_probe_fetch(ngx_http_once_probe_conf_t *conf, ngx_str_t *request,
    ngx_http_once_fetch_pt done, void *data)
{
    ngx_pool_t             *pool;
    ngx_http_once_fetch_t  *fetch;

    pool = ngx_create_pool(4096, ngx_cycle->log);
    if (pool == NULL) {
        return NULL;
    }

    fetch = ngx_pcalloc(pool, sizeof(ngx_http_once_fetch_t));
    if (fetch == NULL) {
        ngx_destroy_pool(pool);
        return NULL;
    }

    fetch->pool = pool;
    fetch->log = ngx_cycle->log;
    fetch->conf = conf;
    fetch->done = done;
    fetch->data = data;

    if (ngx_http_once_fetch_prepare(fetch, request) != NGX_OK
        || ngx_http_once_fetch_connect(fetch) != NGX_OK)
    {
        ngx_http_once_probe_fetch_destroy(fetch);
        return NULL;
    }

    ngx_add_timer(&fetch->timer, conf->timeout);

    return fetch;
}


static void
ngx_http_once_fetch_timeout(ngx_event_t *ev)
{
    ngx_http_once_fetch_fail(ev->data, NGX_ETIMEDOUT, "no answer in time");
}


static void
ngx_http_once_fetch_write(ngx_event_t *wev)
{
    ssize_t                 n;
    ngx_connection_t       *c;
    ngx_http_once_fetch_t  *fetch;

    c = wev->data;
    fetch = c->data;

    while (fetch->out->pos < fetch->out->last) {

        n = ngx_send(c, fetch->out->pos, fetch->out->last - fetch->out->pos);

        if (n == NGX_ERROR) {
            ngx_http_once_fetch_fail(fetch, 0, "cannot be sent");
            return;
        }

        if (n <= 0) {
            break;
        }

        fetch->out->pos += n;
    }

    if (ngx_handle_write_event(wev, 0) != NGX_OK) {
        ngx_http_once_fetch_fail(fetch, 0, "cannot be sent");
    }
}


static void
ngx_http_once_fetch_read(ngx_event_t *rev)
{
    ssize_t                 n;
    ngx_buf_t              *b;
    ngx_connection_t       *c;
    ngx_http_once_fetch_t  *fetch;

    c = rev->data;
    fetch = c->data;
    b = fetch->in;

    while (b->last < b->end) {

        n = ngx_recv(c, b->last, b->end - b->last);

        if (n == NGX_AGAIN) {
            break;
        }

        if (n == NGX_ERROR) {
            ngx_http_once_fetch_fail(fetch, 0, "the answer was cut off");
            return;
        }

        if (n == 0) {
            fetch->eof = 1;
            break;
        }

        b->last += n;
    }

    if (!fetch->eof && ngx_handle_read_event(rev, 0) != NGX_OK) {
        ngx_http_once_fetch_fail(fetch, 0, "the answer was cut off");
        return;
    }

    ngx_http_once_fetch_step(fetch);
}


/* Parses what has arrived. */

static void
ngx_http_once_fetch_step(ngx_http_once_fetch_t *fetch)
{
    ngx_int_t  rc;

    do {
        rc = fetch->parse(fetch);
    } while (rc == NGX_OK);

    if (rc == NGX_DONE) {
        ngx_http_once_fetch_end(fetch, NGX_OK);
        return;
    }

    if (rc != NGX_AGAIN) {
        ngx_http_once_fetch_fail(fetch, 0, "the answer is not valid HTTP");
        return;
    }

    if (fetch->eof) {
        ngx_http_once_fetch_fail(fetch, 0, "the answer was cut off");
        return;
    }

    if (fetch->in->last == fetch->in->end) {
        ngx_http_once_fetch_fail(fetch, 0, "the answer is too large");
    }
}


/* ------------------------------------------------------------ the response */

/*
 * The parsers work on what has arrived. NGX_OK: go on with fetch->parse;
 * NGX_AGAIN: more is needed; NGX_DONE: the response is complete; NGX_ERROR: it
 * is invalid.
 */

static ngx_int_t
ngx_http_once_parse_line(ngx_http_once_fetch_t *fetch)
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
ngx_http_once_probe_fetch_header(ngx_http_once_fetch_t *fetch, const char *name,
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


/* The length of the body; it must be unambiguous (RFC 9112, 6.3). */

static ngx_int_t
ngx_http_once_frame(ngx_http_once_fetch_t *fetch)
{
    ngx_str_t   *value;
    ngx_uint_t   lengths, codings;

    value = ngx_http_once_probe_fetch_header(fetch, "Content-Length", &lengths);

    if (value) {
        fetch->length = ngx_atoof(value->data, value->len);
    }

    if (lengths && (value == NULL || fetch->length == NGX_ERROR)) {
        return NGX_ERROR;
    }

    value = ngx_http_once_probe_fetch_header(fetch, "Transfer-Encoding",
                                             &codings);

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
        fetch->parse = ngx_http_once_parse_line;

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


/* Moves the chunks together, over the chunk headers between them. */

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


/* --------------------------------------------------------------- the probe */

/*
 * Raw, as most clients send it, unless it would be parsed differently then:
 * a string of RFC 8941, which escapes quotes and backslashes.
 */

static u_char *
ngx_http_once_print_key(u_char *p, once_key_t *key)
{
    size_t      i;
    ngx_uint_t  quote;

    quote = key->text[0] == ' ' || key->text[key->len - 1] == ' ';

    for (i = 0; i < key->len; i++) {
        if (key->text[i] == '"' || key->text[i] == ','
            || key->text[i] == ';' || key->text[i] == '\\')
        {
            quote = 1;
        }
    }

    if (!quote) {
        return ngx_cpymem(p, key->text, key->len);
    }

    *p++ = '"';

    for (i = 0; i < key->len; i++) {
        if (key->text[i] == '"' || key->text[i] == '\\') {
            *p++ = '\\';
        }

        *p++ = key->text[i];
    }

    *p++ = '"';

    return p;
}


ngx_int_t
ngx_http_once_probe_fetch_request(ngx_http_once_probe_conf_t *pcf,
    once_key_t *key, const char *token, ngx_str_t *request)
{
    u_char  *p;
    size_t   len;

    len = sizeof("GET  HTTP/1.1" CRLF "Host: " CRLF "Idempotency-Key: " CRLF
                 "Once-Claim: " CRLF "Accept: */*" CRLF "User-Agent: once/"
                 ONCE_VERSION CRLF "Connection: close" CRLF CRLF)
          + pcf->uri.len + pcf->host.len + 2 * ONCE_KEY_MAX + 2
          + ONCE_TOKEN_SIZE;

    p = ngx_alloc(len, ngx_cycle->log);
    if (p == NULL) {
        return NGX_ERROR;
    }

    request->data = p;

    p = ngx_sprintf(p, "GET %V HTTP/1.1" CRLF "Host: %V" CRLF
                    "Idempotency-Key: ", &pcf->uri, &pcf->host);
    p = ngx_http_once_print_key(p, key);
    p = ngx_sprintf(p, CRLF "Once-Claim: %s" CRLF "Accept: */*" CRLF
                    "User-Agent: once/" ONCE_VERSION CRLF
                    "Connection: close" CRLF CRLF, token);

    request->len = p - request->data;

    return NGX_OK;
}


static uint64_t
ngx_http_once_probe_retain(ngx_http_once_fetch_t *fetch,
    ngx_http_once_loc_conf_t *conf)
{
    ngx_int_t   seconds;
    ngx_str_t  *value;

    value = ngx_http_once_probe_fetch_header(fetch, "Once-Retain", NULL);
    seconds = value ? ngx_atoi(value->data, value->len) : NGX_ERROR;

    return seconds > 0 ? (uint64_t) seconds * 1000
                       : once_policy_ttl_ms(conf->policy);
}


/* Is the body not to be stored? */

static ngx_uint_t
ngx_http_once_probe_omits(ngx_http_once_fetch_t *fetch,
    ngx_http_once_loc_conf_t *conf)
{
    ngx_str_t     *value;
    ngx_uint_t     i;
    ngx_keyval_t  *h;

    value = ngx_http_once_probe_fetch_header(fetch, "Once-Body", NULL);

    if (value && ngx_http_once_headers_omit(value)) {
        return 1;
    }

    h = fetch->headers.elts;

    for (i = 0; i < fetch->headers.nelts && !conf->store_no_store; i++) {

        if (h[i].key.len == 13
            && ngx_strncasecmp(h[i].key.data, (u_char *) "cache-control", 13)
               == 0
            && ngx_http_once_headers_no_store(&h[i].value))
        {
            return 1;
        }
    }

    return 0;
}


ngx_int_t
ngx_http_once_probe_fetch_response(ngx_http_once_fetch_t *fetch,
    ngx_http_once_loc_conf_t *conf, once_response_t *response)
{
    ngx_int_t       status;
    ngx_str_t      *value;
    ngx_uint_t      i, n;
    ngx_keyval_t   *h;
    once_header_t  *headers;

    value = ngx_http_once_probe_fetch_header(fetch, "Once-Status", NULL);
    status = value ? ngx_atoi(value->data, value->len) : NGX_ERROR;

    if (status < 200 || status > 599) {
        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                      "once_probe: \"Once-Outcome: final\" needs a "
                      "\"Once-Status\" from 200 to 599");
        return NGX_ERROR;
    }

    headers = ngx_palloc(fetch->pool, (fetch->headers.nelts + 1)
                                      * sizeof(once_header_t));
    if (headers == NULL) {
        return NGX_ERROR;
    }

    h = fetch->headers.elts;
    n = 0;

    for (i = 0; i < fetch->headers.nelts; i++) {

        if (!ngx_http_once_headers_replayable(conf, h[i].key.data, h[i].key.len)
            || (h[i].key.len >= 5
                && ngx_strncasecmp(h[i].key.data, (u_char *) "Once-", 5) == 0))
        {
            continue;
        }

        headers[n].name.data = h[i].key.data;
        headers[n].name.len = h[i].key.len;
        headers[n].value.data = h[i].value.data;
        headers[n].value.len = h[i].value.len;
        n++;
    }

    response->status = (int) status;
    response->headers = headers;
    response->header_count = n;
    response->retain_ms = ngx_http_once_probe_retain(fetch, conf);

    if (fetch->body.len > conf->store_body
        || (fetch->body.len && ngx_http_once_probe_omits(fetch, conf)))
    {
        response->body_omitted = 1;

    } else {
        response->body.data = fetch->body.data;
        response->body.len = fetch->body.len;
    }

    return ngx_http_once_redact(fetch->pool, conf, response);
}
