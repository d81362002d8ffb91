/*
 * once_authorize: may this caller still have what the record says? The backend
 * checks the requests that it receives, but a replay, or anything else that is
 * said about a key, would also reach a caller whose credential has been
 * revoked. Therefore a service is asked first, by a subrequest with the
 * caller's headers and without the body. 2xx: the caller gets the answer;
 * anything else is sent to the caller instead.
 *
 * A request that runs makes no subrequest. One that waits for another is
 * checked before it waits, so that it takes no other's place, and again when
 * there is an answer.
 */
#include "ngx_http_once_request.h"


#define NGX_HTTP_ONCE_REFUSAL_MAX  65536    /* bytes of its body, at most */


struct ngx_http_once_authorize_s {
    ngx_http_request_t          *subrequest;
    ngx_chain_t                 *body;
    ngx_chain_t                **last;
    ngx_buf_t                   *tail;
    size_t                       len;

    unsigned                     failed:1;     /* it is incomplete */
    unsigned                     large:1;      /* its body is not passed on */
};


/* ------------------------------------------------------------ the question */

/* Headers of the body, and conditions: not for a GET without a body. */

static ngx_uint_t
ngx_http_once_of_request(ngx_table_elt_t *h)
{
    ngx_uint_t  i;

    static ngx_str_t  names[] = {
        ngx_string("content-length"),
        ngx_string("content-type"),
        ngx_string("content-encoding"),
        ngx_string("transfer-encoding"),
        ngx_string("expect"),
        ngx_string("range"),
        ngx_string("upgrade"),
        ngx_string("x-original-method"),
        ngx_string("x-original-uri"),
        ngx_null_string
    };

    if (h->key.len > 3
        && ngx_strncasecmp(h->key.data, (u_char *) "if-", 3) == 0)
    {
        return 1;
    }

    for (i = 0; names[i].len; i++) {
        if (ngx_http_once_headers_named_as(h, &names[i])) {
            return 1;
        }
    }

    return 0;
}


static ngx_int_t
ngx_http_once_authorize_headers(ngx_http_request_t *r, ngx_http_request_t *sr)
{
    ngx_list_t             *list;
    ngx_table_elt_t        *h, *copy;
    ngx_http_once_walk_t    walk;
    ngx_http_headers_in_t  *in;

    in = &sr->headers_in;
    list = &in->headers;

    in->content_length = NULL;
    in->content_length_n = -1;
    in->content_type = NULL;
    in->transfer_encoding = NULL;
    in->chunked = 0;
    in->expect = NULL;
    in->range = NULL;
    in->if_range = NULL;
    in->upgrade = NULL;
    in->if_modified_since = NULL;
    in->if_unmodified_since = NULL;
    in->if_match = NULL;
    in->if_none_match = NULL;

    if (ngx_list_init(list, r->pool, 20, sizeof(ngx_table_elt_t)) != NGX_OK) {
        return NGX_ERROR;
    }

    walk.part = &r->headers_in.headers.part;
    walk.i = 0;

    while ((h = ngx_http_once_headers_next(&walk)) != NULL) {

        if (ngx_http_once_of_request(h)) {
            continue;
        }

        copy = ngx_list_push(list);
        if (copy == NULL) {
            return NGX_ERROR;
        }

        *copy = *h;
    }

    if (ngx_http_once_headers_add_request(sr, "X-Original-Method",
                                         "x-original-method",
                                         r->method_name.data,
                                         r->method_name.len)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_http_once_headers_add_request(sr, "X-Original-URI",
                                            "x-original-uri",
                                            r->unparsed_uri.data,
                                            r->unparsed_uri.len);
}


/* If it fails, the request goes on, unless its client is gone. */

static ngx_int_t
ngx_http_once_authorize_done(ngx_http_request_t *sr, void *data, ngx_int_t rc)
{
    ngx_http_once_authorize_t *auth = data;

    if (rc == NGX_ERROR && !sr->connection->error) {
        auth->failed = 1;
        return NGX_OK;
    }

    return rc;
}


ngx_int_t
ngx_http_once_authorize_body(ngx_http_request_t *sr, ngx_chain_t *in)
{
    size_t                      size;
    ngx_buf_t                  *b;
    ngx_chain_t                *cl;
    ngx_http_once_ctx_t        *ctx;
    ngx_http_once_authorize_t  *auth;

    ctx = ngx_http_once_get_ctx(sr->main);
    auth = ctx ? ctx->authorize : NULL;

    if (auth == NULL || auth->subrequest != sr) {
        return NGX_DECLINED;
    }

    for ( /* void */ ; in; in = in->next) {

        /* a body that has begun must be complete */
        auth->failed = !in->buf->last_in_chain;

        size = ngx_buf_in_memory(in->buf) ? in->buf->last - in->buf->pos : 0;

        if (size > NGX_HTTP_ONCE_REFUSAL_MAX - auth->len) {
            auth->large = 1;
        }

        if (size && !auth->large) {
            b = ngx_create_temp_buf(sr->pool, size);
            cl = ngx_alloc_chain_link(sr->pool);

            if (b == NULL || cl == NULL) {
                return NGX_ERROR;
            }

            b->last = ngx_cpymem(b->last, in->buf->pos, size);
            cl->buf = b;
            cl->next = NULL;

            *auth->last = cl;
            auth->last = &cl->next;
            auth->tail = b;
            auth->len += size;
        }

        (void) ngx_http_once_buffer_consume(in->buf);
    }

    return NGX_OK;
}


/* ------------------------------------------------------------- the refusal */

static ngx_uint_t
ngx_http_once_has_page(ngx_http_request_t *r, ngx_uint_t status)
{
    ngx_uint_t                 i;
    ngx_http_err_page_t       *page;
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    if (clcf->error_pages == NULL) {
        return 0;
    }

    page = clcf->error_pages->elts;

    for (i = 0; i < clcf->error_pages->nelts; i++) {
        if (page[i].status == (ngx_int_t) status) {
            return 1;
        }
    }

    return 0;
}


/* With a page of the operator's, only the challenge and cookies are kept. */

static ngx_int_t
ngx_http_once_refusal_headers(ngx_http_request_t *r,
    ngx_http_once_ctx_t *ctx, ngx_uint_t page)
{
    ngx_uint_t             challenge;
    ngx_table_elt_t       *h, *copy;
    ngx_http_request_t    *sr;
    ngx_http_once_walk_t   walk;

    sr = ctx->authorize->subrequest;
    walk.part = &sr->headers_out.headers.part;
    walk.i = 0;

    while ((h = ngx_http_once_headers_next(&walk)) != NULL) {

        challenge = ngx_http_once_headers_named(h, "www-authenticate", 16);

        if (h->hash == 0
            || ngx_http_once_headers_is_own(ctx->conf, h->key.data, h->key.len)
            || ngx_http_once_headers_is_framing(h->key.data, h->key.len)
            || (page && !challenge
                && !ngx_http_once_headers_named(h, "set-cookie", 10))
            || (ctx->authorize->large
                && ngx_http_once_headers_named(h, "content-encoding", 16)))
        {
            continue;
        }

        copy = ngx_http_once_headers_push(&r->headers_out.headers, &h->key,
                                         &h->value);
        if (copy == NULL) {
            return NGX_ERROR;
        }

        if (challenge && r->headers_out.www_authenticate == NULL) {
            r->headers_out.www_authenticate = copy;
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_once_send_refusal(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    ngx_int_t                   rc;
    ngx_uint_t                  status, page;
    ngx_http_request_t         *sr;
    ngx_http_once_authorize_t  *auth;

    auth = ctx->authorize;
    sr = auth->subrequest;
    status = sr->headers_out.status;
    page = ngx_http_once_has_page(r, status);

    ngx_http_clean_header(r);
    r->err_status = 0;

    if (ngx_http_once_refusal_headers(r, ctx, page) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (page) {
        return status;
    }

    ngx_http_once_problem_set_status(r, status);

    r->headers_out.content_type = sr->headers_out.content_type;
    r->headers_out.content_type_len = sr->headers_out.content_type_len;
    r->headers_out.content_type_lowcase = NULL;
    r->headers_out.charset = sr->headers_out.charset;
    r->headers_out.content_length_n = auth->large ? 0 : (off_t) auth->len;
    r->allow_ranges = 0;
    r->disable_not_modified = 1;

    rc = ngx_http_send_header(r);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    if (auth->len == 0 || auth->large) {
        return ngx_http_send_special(r, NGX_HTTP_LAST);
    }

    auth->tail->last_buf = 1;
    auth->tail->last_in_chain = 1;

    return ngx_http_output_filter(r, auth->body);
}


/* -------------------------------------------------------------- the answer */

static void
ngx_http_once_authorize_refused(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    time_t               retry_after;
    ngx_int_t            rc;
    ngx_uint_t           status;
    ngx_http_request_t  *sr;

    sr = ctx->authorize->subrequest;
    status = ctx->authorize->failed ? 0 : sr->headers_out.status;

    ctx->phase = NGX_HTTP_ONCE_ANSWERED;

    if (status >= NGX_HTTP_SPECIAL_RESPONSE
        && status < NGX_HTTP_INTERNAL_SERVER_ERROR)
    {
        ctx->outcome = NGX_HTTP_ONCE_DENIED;
        ngx_http_once_count(ctx->conf->route, NGX_HTTP_ONCE_C_DENIED);
        ngx_http_once_finalize(r, ngx_http_once_send_refusal(r, ctx));
        return;
    }

    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                  "once: \"once_authorize %V\" did not say whether the caller "
                  "may have the answer (status %ui), it was withheld",
                  &ctx->conf->authorize, status);

    ctx->outcome = NGX_HTTP_ONCE_ERROR;
    ngx_http_once_count(ctx->conf->route, NGX_HTTP_ONCE_C_ERROR);
    retry_after = ctx->conf->retry_after ? ctx->conf->retry_after : 1;

    rc = ngx_http_once_problem_refuse(r, ctx, NGX_HTTP_ONCE_P_AUTHORIZE, NULL,
                                      retry_after);
    ngx_http_once_finalize(r, rc);
}


/* The subrequest wakes its parent. */

static void
ngx_http_once_authorize_resume(ngx_http_request_t *r)
{
    ngx_uint_t            status;
    ngx_http_once_ctx_t  *ctx;

    ctx = ngx_http_once_get_ctx(r);

    if (!ctx->authorize->subrequest->done) {
        return;
    }

    ngx_http_set_log_request(r->connection->log, r);
    ctx->inside = 1;

    r->write_event_handler = ngx_http_request_empty_handler;
    ngx_http_once_upstream_heed_abort(r);

    status = ctx->authorize->subrequest->headers_out.status;

    if (!ctx->authorize->failed && status >= NGX_HTTP_OK
        && status < NGX_HTTP_SPECIAL_RESPONSE)
    {
        /* the first answer was not kept: it may be large, and is outdated */

        ctx->authorized = 1;
        ctx->authorize = NULL;
        ngx_http_once_ask(ctx);
        return;
    }

    ngx_http_once_authorize_refused(r, ctx);
}


static ngx_int_t
ngx_http_once_authorize_start(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    ngx_http_request_t          *sr;
    ngx_http_once_authorize_t   *auth;
    ngx_http_post_subrequest_t  *ps;

    auth = ngx_pcalloc(r->pool, sizeof(ngx_http_once_authorize_t));
    ps = ngx_palloc(r->pool, sizeof(ngx_http_post_subrequest_t));

    if (auth == NULL || ps == NULL) {
        return NGX_ERROR;
    }

    auth->last = &auth->body;
    ps->handler = ngx_http_once_authorize_done;
    ps->data = auth;

    /* in memory: subrequests of its own would write to the client */

    if (ngx_http_subrequest(r, &ctx->conf->authorize, NULL, &sr, ps,
                            NGX_HTTP_SUBREQUEST_WAITED
                            |NGX_HTTP_SUBREQUEST_IN_MEMORY)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    /* an empty body: none is read, and the request's is not closed */

    sr->request_body = ngx_pcalloc(r->pool, sizeof(ngx_http_request_body_t));

    if (sr->request_body == NULL
        || ngx_http_once_authorize_headers(r, sr) != NGX_OK)
    {
        return NGX_ERROR;
    }

    /* an error page such as a login form would replace the refusal by 200 */
    sr->error_page = 1;

    auth->subrequest = sr;
    ctx->authorize = auth;
    ctx->phase = NGX_HTTP_ONCE_AUTHORIZING;

    r->write_event_handler = ngx_http_once_authorize_resume;

    return NGX_OK;
}


ngx_int_t
ngx_http_once_authorize(ngx_http_once_ctx_t *ctx, once_answer_t *answer)
{
    ngx_connection_t    *c;
    ngx_http_request_t  *r;

    if (ctx->conf->authorize.len == 0
        || once_answer_outcome(answer) == ONCE_OUTCOME_RUN || ctx->authorized
        || (once_answer_outcome(answer) == ONCE_OUTCOME_BUSY && ctx->waiter))
    {
        return NGX_DECLINED;
    }

    r = ctx->request;
    c = r->connection;

    if (once_answer_outcome(answer) != ONCE_OUTCOME_BUSY) {
        /* other waiters need not wait for this caller's authorization */
        ngx_http_once_wait_over(ctx);
    }

    if (ngx_http_once_authorize_start(r, ctx) != NGX_OK) {
        ngx_http_once_finalize(r, NGX_ERROR);
        return NGX_OK;
    }

    ngx_http_run_posted_requests(c);

    return NGX_OK;
}
