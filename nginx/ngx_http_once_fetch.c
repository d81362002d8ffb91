/*
 * One GET, in the spirit of nginx's own OCSP client: a connection, a buffer
 * and nginx's parsers, without a request around them. This is the connection.
 */
#include "ngx_http_once_probe.h"


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
ngx_http_once_fetch_destroy(ngx_http_once_fetch_t *fetch)
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

    /* not ngx_http_once_fetch_write(): done is never called from here */

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
    fetch->parse = ngx_http_once_fetch_line;
    fetch->length = -1;

    fetch->timer.handler = ngx_http_once_fetch_timeout;
    fetch->timer.data = fetch;
    fetch->timer.log = fetch->log;

    return NGX_OK;
}


ngx_http_once_fetch_t *
ngx_http_once_fetch(ngx_http_once_probe_conf_t *conf, ngx_str_t *request,
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
        ngx_http_once_fetch_destroy(fetch);
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


/* Parses what is there. NGX_OK of a parser: go on with the next. */

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
