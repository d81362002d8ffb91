/*
 * What happens between nginx and an upstream, as far as the guard must know it
 * or must have it otherwise than nginx does.
 */
#include "ngx_http_once_request.h"


#define NGX_HTTP_ONCE_RETAIN_MAX  (3650 * 24 * 3600)    /* seconds */


/* ------------------------------------------------------------ what it said */

static void
ngx_http_once_note_retain(ngx_http_request_t *r, ngx_str_t *value,
    ngx_http_once_hold_t *hold)
{
    ngx_int_t  seconds;

    seconds = ngx_atoi(value->data, value->len);

    if (seconds <= 0 || seconds > NGX_HTTP_ONCE_RETAIN_MAX) {
        ngx_log_error(NGX_LOG_WARN, r->connection->log, 0,
                      "once: upstream sent \"Once-Retain\" that is no number "
                      "of seconds from 1 to %d", NGX_HTTP_ONCE_RETAIN_MAX);
        return;
    }

    hold->retain_ms = (uint64_t) seconds * 1000;
}


static void
ngx_http_once_note_verdict(ngx_http_request_t *r, ngx_str_t *value,
    ngx_http_once_hold_t *hold)
{
    once_verdict_t  said;

    said = once_verdict_parse((char *) value->data, value->len);

    if (said == ONCE_VERDICT_NONE) {
        ngx_log_error(NGX_LOG_WARN, r->connection->log, 0,
                      "once: upstream sent \"Once-Outcome\" that is not "
                      "final, retry or unknown");
        return;
    }

    /* who contradicts himself does not know */

    hold->said = (hold->said == ONCE_VERDICT_NONE || hold->said == said)
                 ? said : ONCE_VERDICT_UNKNOWN;
}


static void
ngx_http_once_note_headers(ngx_http_request_t *r, ngx_list_t *headers,
    ngx_http_once_hold_t *hold)
{
    ngx_table_elt_t       *h;
    ngx_http_once_walk_t   walk;

    walk.part = &headers->part;
    walk.i = 0;

    while ((h = ngx_http_once_next(&walk)) != NULL) {

        if (ngx_http_once_named(h, "once-outcome", 12)) {
            ngx_http_once_note_verdict(r, &h->value, hold);

        } else if (ngx_http_once_named(h, "once-retain", 11)) {
            ngx_http_once_note_retain(r, &h->value, hold);
        }
    }
}


void
ngx_http_once_handler_acts(ngx_http_request_t *r, ngx_http_once_hold_t *hold)
{
    r->aio = 0;
    hold->starting = 0;
    hold->acted = 1;
    hold->sent = 1;
}


void
ngx_http_once_note_upstream(ngx_http_request_t *r, ngx_http_once_hold_t *hold)
{
    ngx_http_upstream_t  *u;

    u = r->upstream;

    if (u == NULL) {
        return;
    }

    if (u->request_sent && !hold->late) {
        hold->sent = 1;
    }

    /* the time of the header is known as soon as it is whole */

    if (hold->header_status || u->headers_in.status_n == 0
        || u->state == NULL || u->state->header_time == (ngx_msec_t) -1)
    {
        return;
    }

    hold->header_status = u->headers_in.status_n;

    ngx_http_once_note_headers(r, &u->headers_in.headers, hold);
}


void
ngx_http_once_note_handler(ngx_http_request_t *r, ngx_http_once_hold_t *hold)
{
    if (hold->starting) {
        ngx_http_once_handler_acts(r, hold);
    }

    if (hold->acted && hold->header_status == 0) {
        ngx_http_once_note_headers(r, &r->headers_out.headers, hold);
    }
}


/* ------------------------------------------------- not too late, not twice */

/*
 * Between the store's answer and the first byte to the upstream a connection
 * has to be made, and this process may have been stopped for a while. A claim
 * that has become old may have been judged by others: it is not used.
 *
 * From the first byte on there is no next server, whatever the method and the
 * location say; but for the GET that X-Accel-Redirect makes of a request.
 */

static ngx_int_t
ngx_http_once_output_filter(void *data, ngx_chain_t *in)
{
    ngx_http_request_t    *r;
    ngx_http_once_ctx_t   *ctx;
    ngx_http_once_hold_t  *hold;

    r = data;
    ctx = ngx_http_once_get_ctx(r);
    hold = ctx->hold;

    if (!(r->method & (NGX_HTTP_GET|NGX_HTTP_HEAD))) {
        r->upstream->conf->next_upstream = NGX_HTTP_UPSTREAM_FT_OFF;
    }

    if (!hold->forwarded) {

        if (!ngx_http_once_guard_fresh(ctx->guard)) {
            ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                          "once: too late to forward, half of the lease has "
                          "passed");
            hold->late = 1;
            return NGX_ERROR;
        }

        hold->forwarded = 1;
    }

    return hold->output_filter(hold->output_ctx, in);
}


static void
ngx_http_once_watch_output(ngx_http_request_t *r, ngx_http_once_hold_t *hold)
{
    ngx_http_upstream_t  *u;

    u = r->upstream;

    hold->output_filter = u->output.output_filter;
    hold->output_ctx = u->output.filter_ctx;

    if (hold->output_filter == NULL) {
        hold->output_filter = ngx_chain_writer;
        hold->output_ctx = &u->writer;
    }

    u->output.output_filter = ngx_http_once_output_filter;
    u->output.filter_ctx = r;
}


/* --------------------------------------------------- the location's handler */

/*
 * What the location of an upstream says must not make a guarded request go out
 * twice, nor end it when its client hangs up. An internal redirect may have led
 * to a location that was not looked at when the configuration was read: the
 * request gets a configuration of its own.
 */

static ngx_int_t
ngx_http_once_own_conf(ngx_http_request_t *r)
{
    ngx_http_upstream_t       *u;
    ngx_http_upstream_conf_t  *conf;

    u = r->upstream;

    conf = ngx_palloc(r->pool, sizeof(ngx_http_upstream_conf_t));
    if (conf == NULL) {
        return NGX_ERROR;
    }

    *conf = *u->conf;
    conf->ignore_client_abort = 1;
    u->conf = conf;

    return NGX_OK;
}


/* The handler has made an upstream, and nothing has been done with it yet. */

static ngx_int_t
ngx_http_once_check_upstream(ngx_http_request_t *r, ngx_http_once_hold_t *hold)
{
    ngx_str_t  *module;

    module = &r->upstream->conf->module;

    if (module->len == 4 && ngx_strncmp(module->data, "grpc", 4) == 0) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "once: \"grpc_pass\" cannot be guarded, nothing was "
                      "sent");
        return NGX_HTTP_BAD_GATEWAY;
    }

    if (ngx_http_once_own_conf(r) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ngx_http_once_watch_output(r, hold);

    return NGX_OK;
}


/*
 * A handler that forwards makes an upstream and starts it at once, for the body
 * has been read. Over a connection that was kept alive that may send, fail and
 * go to the next server before the handler returns. r->aio makes the start wait
 * until the upstream has been looked at.
 *
 * A handler that makes none is the application itself, a script for example:
 * what it did, and whom it asked, nobody sees. It counts as sent from its first
 * step on, and its response is judged as a backend's is. r->aio would make the
 * copy filter wait as well, for ever: the header that such a handler sends, and
 * the location that it leads to, take it back.
 */

static ngx_int_t
ngx_http_once_content_handler(ngx_http_request_t *r)
{
    ngx_int_t                  rc;
    ngx_http_once_ctx_t       *ctx;
    ngx_http_upstream_t       *before;
    ngx_http_once_hold_t      *hold;
    ngx_http_core_loc_conf_t  *clcf;

    ctx = ngx_http_once_get_ctx(r);
    hold = ctx->hold;
    before = r->upstream;

    /* nginx clones requests, to update its cache: the copy gets this handler */
    r->content_handler = hold->content_handler;

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    r->aio = 1;
    hold->starting = 1;
    hold->recursive = clcf->recursive_error_pages;
    rc = r->content_handler(r);

    if (!hold->starting) {
        return rc;
    }

    if (r->upstream == before) {
        ngx_http_once_handler_acts(r, hold);
        return rc;
    }

    r->aio = 0;
    hold->starting = 0;

    if (rc != NGX_DONE || r->upstream->conf == NULL || r->upstream->cleanup) {
        return rc;
    }

    rc = ngx_http_once_check_upstream(r, hold);

    if (rc != NGX_OK) {
        r->main->count--;    /* taken for the start */
        return rc;
    }

    ngx_http_upstream_init(r);

    return NGX_DONE;
}


void
ngx_http_once_watch_content(ngx_http_request_t *r, ngx_http_once_hold_t *hold)
{
    if (r->content_handler
        && r->content_handler != ngx_http_once_content_handler)
    {
        hold->content_handler = r->content_handler;
        r->content_handler = ngx_http_once_content_handler;
    }
}


/* Recorded, and on its way: from here on nobody needs the rest of it but the client. */

void
ngx_http_once_heed_abort(ngx_http_request_t *r)
{
    ngx_connection_t  *c;

    c = r->connection;

    r->read_event_handler = ngx_http_test_reading;

    if (c->error || c->read->ready || c->read->pending_eof) {
        /* it may have left while nobody looked */
        ngx_post_event(c->read, &ngx_posted_events);
    }
}


/* ------------------------------------------------- responses that make no sense */

/*
 * Where a body is not framed as its header said, nginx closes the connection to
 * the client. While the response is held there is something better to say: it
 * is made an error of the upstream, like a connection that is cut.
 */

static ngx_http_once_hold_t *
ngx_http_once_holding(ngx_http_request_t *r)
{
    ngx_http_once_ctx_t  *ctx;

    ctx = ngx_http_once_get_ctx(r);

    return (ctx && ctx->phase == NGX_HTTP_ONCE_HOLDING) ? ctx->hold : NULL;
}


static ngx_int_t
ngx_http_once_pipe_filter(ngx_event_pipe_t *p, ngx_buf_t *buf)
{
    ngx_int_t              rc;
    ngx_http_once_ctx_t   *ctx;
    ngx_http_request_t    *r;

    r = p->output_ctx;
    ctx = ngx_http_once_get_ctx(r);

    rc = ctx->hold->pipe_filter(p, buf);

    if (rc == NGX_ERROR && ngx_http_once_holding(r)) {
        p->upstream_error = 1;
        return NGX_OK;
    }

    return rc;
}


static ngx_int_t
ngx_http_once_input_filter(void *data, ssize_t bytes)
{
    ngx_int_t             rc;
    ngx_http_once_ctx_t  *ctx;
    ngx_http_request_t   *r;

    r = data;
    ctx = ngx_http_once_get_ctx(r);

    rc = ctx->hold->input_filter(data, bytes);

    if (rc == NGX_ERROR && ngx_http_once_holding(r)) {
        r->upstream->error = 1;
        return NGX_OK;
    }

    return rc;
}


/* Called when the header has been sent, which is when it is held. */

static ngx_int_t
ngx_http_once_input_init(void *data)
{
    ngx_int_t              rc;
    ngx_http_once_ctx_t   *ctx;
    ngx_http_request_t    *r;
    ngx_http_upstream_t   *u;

    r = data;
    u = r->upstream;
    ctx = ngx_http_once_get_ctx(r);

    rc = ctx->hold->input_init(data);

    if (rc != NGX_OK) {
        return rc;
    }

    if (u->pipe && u->pipe->input_filter) {
        ctx->hold->pipe_filter = u->pipe->input_filter;
        u->pipe->input_filter = ngx_http_once_pipe_filter;
    }

    if (u->input_filter) {
        ctx->hold->input_filter = u->input_filter;
        u->input_filter = ngx_http_once_input_filter;
    }

    return NGX_OK;
}


void
ngx_http_once_watch_input(ngx_http_request_t *r, ngx_http_once_hold_t *hold)
{
    ngx_http_upstream_t  *u;

    u = r->upstream;

    if (u->input_filter_init && u->input_filter_ctx == r
        && u->input_filter_init != ngx_http_once_input_init)
    {
        hold->input_init = u->input_filter_init;
        u->input_filter_init = ngx_http_once_input_init;
    }
}


/*
 * A FastCGI response of unknown length ends with a record that says so. nginx
 * takes the end of the connection for it, too: a worker that died.
 */

ngx_uint_t
ngx_http_once_cut_off(ngx_http_request_t *r)
{
    ngx_http_upstream_t  *u;

    u = r->upstream;

    if (u->conf->module.len != 7
        || ngx_strncmp(u->conf->module.data, "fastcgi", 7) != 0
        || u->headers_in.content_length_n != -1)
    {
        return 0;
    }

    return u->buffering ? !u->pipe->upstream_done : u->length != 0;
}
