/*
 * What happens between nginx and an upstream: what it received, what it
 * answered, and where a guarded request must be treated differently. The
 * content handler, the output to the upstream and the input from it are
 * wrapped.
 */
#include "ngx_http_once_request.h"


#define NGX_HTTP_ONCE_RETAIN_MAX  (3650 * 24 * 3600)    /* seconds */


/* ------------------------------------------------------------ what it said */

static void
ngx_http_once_note_retain(ngx_http_request_t *r, ngx_str_t *value,
    ngx_http_once_run_t *run)
{
    ngx_int_t  seconds;

    seconds = ngx_atoi(value->data, value->len);

    if (seconds <= 0 || seconds > NGX_HTTP_ONCE_RETAIN_MAX) {
        ngx_log_error(NGX_LOG_WARN, r->connection->log, 0,
                      "once: upstream sent invalid \"Once-Retain\": it must be "
                      "seconds from 1 to %d", NGX_HTTP_ONCE_RETAIN_MAX);
        return;
    }

    run->retain_ms = (uint64_t) seconds * 1000;
}


static void
ngx_http_once_note_verdict(ngx_http_request_t *r, ngx_str_t *value,
    ngx_http_once_run_t *run)
{
    once_verdict_t  said;

    said = once_verdict_parse((char *) value->data, value->len);

    if (said == ONCE_VERDICT_NONE) {
        ngx_log_error(NGX_LOG_WARN, r->connection->log, 0,
                      "once: upstream sent invalid \"Once-Outcome\": it must "
                      "be final, retry or unknown");
        return;
    }

    /* contradicting values mean that it does not know */

    run->said = (run->said == ONCE_VERDICT_NONE || run->said == said)
                 ? said : ONCE_VERDICT_UNKNOWN;
}


static void
ngx_http_once_note_body(ngx_http_request_t *r, ngx_str_t *value,
    ngx_http_once_run_t *run)
{
    if (ngx_http_once_headers_omit(value)) {
        run->omit = 1;
        return;
    }

    ngx_log_error(NGX_LOG_WARN, r->connection->log, 0,
                  "once: upstream sent invalid \"Once-Body\": it must be omit");
}


static void
ngx_http_once_note_headers(ngx_http_request_t *r, ngx_list_t *headers,
    ngx_http_once_run_t *run)
{
    ngx_table_elt_t       *h;
    ngx_http_once_walk_t   walk;

    walk.part = &headers->part;
    walk.i = 0;

    while ((h = ngx_http_once_headers_next(&walk)) != NULL) {

        if (ngx_http_once_headers_named(h, "once-outcome", 12)) {
            ngx_http_once_note_verdict(r, &h->value, run);

        } else if (ngx_http_once_headers_named(h, "once-retain", 11)) {
            ngx_http_once_note_retain(r, &h->value, run);

        } else if (ngx_http_once_headers_named(h, "once-body", 9)) {
            ngx_http_once_note_body(r, &h->value, run);

        } else if (ngx_http_once_headers_named(h, "cache-control", 13)
                   && ngx_http_once_headers_no_store(&h->value))
        {
            run->no_store = 1;
        }
    }
}


void
ngx_http_once_upstream_handler_acted(ngx_http_request_t *r,
    ngx_http_once_run_t *run)
{
    r->aio = 0;
    run->starting = 0;
    run->acted = 1;
    run->sent = 1;
}


void
ngx_http_once_upstream_note(ngx_http_request_t *r, ngx_http_once_run_t *run)
{
    ngx_http_upstream_t  *u;

    u = r->upstream;

    if (u == NULL) {
        return;
    }

    if (u->request_sent && !run->late) {
        run->sent = 1;
    }

    /* header_time is set as soon as the header is complete */

    if (run->header_status || u->headers_in.status_n == 0
        || u->state == NULL || u->state->header_time == (ngx_msec_t) -1)
    {
        return;
    }

    run->header_status = u->headers_in.status_n;

    ngx_http_once_note_headers(r, &u->headers_in.headers, run);
}


void
ngx_http_once_upstream_note_handler(ngx_http_request_t *r,
    ngx_http_once_run_t *run)
{
    if (run->starting) {
        ngx_http_once_upstream_handler_acted(r, run);
    }

    if (run->acted && run->header_status == 0) {
        ngx_http_once_note_headers(r, &r->headers_out.headers, run);
    }
}


/* ------------------------------------------------- not too late, not twice */

/*
 * Between the store's answer and the first byte to the upstream a connection
 * is made, and this process may be stopped for a while. A claim that has become
 * old is not used: others may have taken over.
 *
 * After the first byte there is no next server, whatever the method and the
 * location, except for the GET that X-Accel-Redirect makes of a request.
 */

static ngx_int_t
ngx_http_once_output_filter(void *data, ngx_chain_t *in)
{
    ngx_http_request_t   *r;
    ngx_http_once_ctx_t  *ctx;
    ngx_http_once_run_t  *run;

    r = data;
    ctx = ngx_http_once_get_ctx(r);
    run = ctx->run;

    if (!(r->method & (NGX_HTTP_GET|NGX_HTTP_HEAD))) {
        r->upstream->conf->next_upstream = NGX_HTTP_UPSTREAM_FT_OFF;
    }

    if (!run->forwarded) {

        if (!ngx_http_once_guard_fresh(ctx->guard)) {
            ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                          "once: too late to forward, half of the lease has "
                          "passed");
            run->late = 1;
            return NGX_ERROR;
        }

        run->forwarded = 1;
    }

    return run->output_filter(run->output_ctx, in);
}


static void
ngx_http_once_watch_output(ngx_http_request_t *r, ngx_http_once_run_t *run)
{
    ngx_http_upstream_t  *u;

    u = r->upstream;

    run->output_filter = u->output.output_filter;
    run->output_ctx = u->output.filter_ctx;

    if (run->output_filter == NULL) {
        run->output_filter = ngx_chain_writer;
        run->output_ctx = &u->writer;
    }

    u->output.output_filter = ngx_http_once_output_filter;
    u->output.filter_ctx = r;
}


/* -------------------------------------------------- the location's handler */

/*
 * The upstream's configuration must neither send a guarded request twice nor
 * end it when its client disconnects. An internal redirect may have led to a
 * location that was not checked at startup: the request gets a configuration
 * of its own.
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


/* The handler has made an upstream, and has not started it. */

static ngx_int_t
ngx_http_once_check_upstream(ngx_http_request_t *r, ngx_http_once_run_t *run)
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

    ngx_http_once_watch_output(r, run);

    return NGX_OK;
}


/*
 * A handler that forwards makes an upstream and starts it at once, because the
 * body has been read. With a keepalive connection this may send, fail and go to
 * the next server before the handler returns. r->aio delays the start until the
 * upstream has been checked and wrapped.
 *
 * A handler that makes no upstream is the application itself, a script for
 * example: what it did cannot be observed. The request counts as sent from its
 * first step on, and its response is judged like a backend's. r->aio would also
 * block the copy filter forever: the header that such a handler sends, and the
 * location that it redirects to, reset it.
 */

static ngx_int_t
ngx_http_once_content_handler(ngx_http_request_t *r)
{
    ngx_int_t                  rc;
    ngx_http_once_ctx_t       *ctx;
    ngx_http_upstream_t       *before;
    ngx_http_once_run_t       *run;
    ngx_http_core_loc_conf_t  *clcf;

    ctx = ngx_http_once_get_ctx(r);
    run = ctx->run;
    before = r->upstream;

    /* nginx clones requests to update its cache: restore for the clone */
    r->content_handler = run->content_handler;

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    r->aio = 1;
    run->starting = 1;
    run->recursive = clcf->recursive_error_pages;
    rc = r->content_handler(r);

    if (!run->starting) {
        return rc;
    }

    if (r->upstream == before) {
        ngx_http_once_upstream_handler_acted(r, run);
        return rc;
    }

    r->aio = 0;
    run->starting = 0;

    if (rc != NGX_DONE || r->upstream->conf == NULL || r->upstream->cleanup) {
        return rc;
    }

    rc = ngx_http_once_check_upstream(r, run);

    if (rc != NGX_OK) {
        r->main->count--;    /* taken for the start */
        return rc;
    }

    ngx_http_upstream_init(r);

    return NGX_DONE;
}


void
ngx_http_once_upstream_watch(ngx_http_request_t *r, ngx_http_once_run_t *run)
{
    if (r->content_handler
        && r->content_handler != ngx_http_once_content_handler)
    {
        run->content_handler = r->content_handler;
        r->content_handler = ngx_http_once_content_handler;
    }
}


/* Recorded, and being sent: only the client needs the rest. */

void
ngx_http_once_upstream_heed_abort(ngx_http_request_t *r)
{
    ngx_connection_t  *c;

    c = r->connection;

    r->read_event_handler = ngx_http_test_reading;

    if (c->error || c->read->ready || c->read->pending_eof) {
        /* it may have disconnected meanwhile */
        ngx_post_event(c->read, &ngx_posted_events);
    }
}


/* ------------------------------------------------------- invalid responses */

/*
 * If a body is not framed as its header said, nginx closes the connection to
 * the client. While the response is buffered, it is treated as an error of the
 * upstream instead, like a connection that was cut, so that the client gets a
 * problem.
 */

static ngx_uint_t
ngx_http_once_is_buffering(ngx_http_request_t *r)
{
    ngx_http_once_ctx_t  *ctx;

    ctx = ngx_http_once_get_ctx(r);

    return ctx && ctx->phase == NGX_HTTP_ONCE_BUFFERING;
}


static ngx_int_t
ngx_http_once_pipe_filter(ngx_event_pipe_t *p, ngx_buf_t *buf)
{
    ngx_int_t             rc;
    ngx_http_once_ctx_t  *ctx;
    ngx_http_request_t   *r;

    r = p->output_ctx;
    ctx = ngx_http_once_get_ctx(r);

    rc = ctx->run->pipe_filter(p, buf);

    if (rc == NGX_ERROR && ngx_http_once_is_buffering(r)) {
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

    rc = ctx->run->input_filter(data, bytes);

    if (rc == NGX_ERROR && ngx_http_once_is_buffering(r)) {
        r->upstream->error = 1;
        return NGX_OK;
    }

    return rc;
}


/* Called when nginx has sent the header, that is, when it is buffered. */

static ngx_int_t
ngx_http_once_input_init(void *data)
{
    ngx_int_t             rc;
    ngx_http_once_ctx_t  *ctx;
    ngx_http_request_t   *r;
    ngx_http_upstream_t  *u;

    r = data;
    u = r->upstream;
    ctx = ngx_http_once_get_ctx(r);

    rc = ctx->run->input_init(data);

    if (rc != NGX_OK) {
        return rc;
    }

    if (u->pipe && u->pipe->input_filter) {
        ctx->run->pipe_filter = u->pipe->input_filter;
        u->pipe->input_filter = ngx_http_once_pipe_filter;
    }

    if (u->input_filter) {
        ctx->run->input_filter = u->input_filter;
        u->input_filter = ngx_http_once_input_filter;
    }

    return NGX_OK;
}


void
ngx_http_once_upstream_watch_input(ngx_http_request_t *r,
    ngx_http_once_run_t *run)
{
    ngx_http_upstream_t  *u;

    u = r->upstream;

    if (u->input_filter_init && u->input_filter_ctx == r
        && u->input_filter_init != ngx_http_once_input_init)
    {
        run->input_init = u->input_filter_init;
        u->input_filter_init = ngx_http_once_input_init;
    }
}


/*
 * A FastCGI response of unknown length ends with an end record. nginx also
 * accepts the end of the connection, which may mean that a worker has died.
 */

ngx_uint_t
ngx_http_once_upstream_is_cut_off(ngx_http_request_t *r)
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
