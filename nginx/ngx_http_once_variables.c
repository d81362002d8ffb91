/*
 * $once_key, $once_outcome, $once_epoch, $once_age for logs and traces;
 * $once_limit_key for limit_req.
 */
#include "ngx_http_once.h"


/* In the order of ngx_http_once_outcome_e. */
static ngx_str_t  ngx_http_once_outcomes[] = {
    ngx_null_string,
    ngx_string("run"),
    ngx_string("replay"),
    ngx_string("busy"),
    ngx_string("mismatch"),
    ngx_string("unknown"),
    ngx_string("lost"),
    ngx_string("missing"),
    ngx_string("invalid"),
    ngx_string("error"),
    ngx_string("pass"),
    ngx_string("refused"),
    ngx_string("denied")
};


static ngx_int_t
ngx_http_once_give(ngx_http_variable_value_t *v, u_char *data, size_t len)
{
    v->data = data;
    v->len = len;
    v->valid = 1;
    v->no_cacheable = 0;
    v->not_found = 0;

    return NGX_OK;
}


static ngx_int_t
ngx_http_once_key_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_http_once_ctx_t  *ctx;

    ctx = ngx_http_once_get_ctx(r->main);

    if (ctx == NULL || ctx->key.len == 0) {
        v->not_found = 1;
        return NGX_OK;
    }

    return ngx_http_once_give(v, (u_char *) ctx->key.text, ctx->key.len);
}


static ngx_int_t
ngx_http_once_outcome_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_str_t            *name;
    ngx_http_once_ctx_t  *ctx;

    ctx = ngx_http_once_get_ctx(r->main);

    if (ctx == NULL || ctx->outcome == NGX_HTTP_ONCE_NONE) {
        v->not_found = 1;
        return NGX_OK;
    }

    name = &ngx_http_once_outcomes[ctx->outcome];

    return ngx_http_once_give(v, name->data, name->len);
}


static ngx_int_t
ngx_http_once_epoch_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    u_char               *p;
    ngx_http_once_ctx_t  *ctx;

    ctx = ngx_http_once_get_ctx(r->main);

    if (ctx == NULL || ctx->epoch == 0) {
        v->not_found = 1;
        return NGX_OK;
    }

    p = ngx_pnalloc(r->pool, NGX_INT32_LEN);
    if (p == NULL) {
        return NGX_ERROR;
    }

    return ngx_http_once_give(v, p, ngx_sprintf(p, "%uD", ctx->epoch) - p);
}


/* Seconds with milliseconds, as $request_time is written. */

static ngx_int_t
ngx_http_once_age_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    u_char               *p, *last;
    ngx_http_once_ctx_t  *ctx;

    ctx = ngx_http_once_get_ctx(r->main);

    if (ctx == NULL || !ctx->has_age) {
        v->not_found = 1;
        return NGX_OK;
    }

    p = ngx_pnalloc(r->pool, NGX_INT64_LEN + 4);
    if (p == NULL) {
        return NGX_ERROR;
    }

    last = ngx_sprintf(p, "%uL.%03uL", ctx->age_ms / 1000,
                       ctx->age_ms % 1000);

    return ngx_http_once_give(v, p, last - p);
}


/* Empty, which limit_req does not count, for a replay that is known already. */

static ngx_int_t
ngx_http_once_limit_key_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_str_t            *text;
    struct sockaddr_in   *sin;
#if (NGX_HAVE_INET6)
    struct sockaddr_in6  *sin6;
#endif

    if (ngx_http_once_early_replay(r->main)) {
        return ngx_http_once_give(v, (u_char *) "", 0);
    }

    switch (r->connection->sockaddr->sa_family) {

    case AF_INET:
        sin = (struct sockaddr_in *) r->connection->sockaddr;
        return ngx_http_once_give(v, (u_char *) &sin->sin_addr,
                                  sizeof(in_addr_t));

#if (NGX_HAVE_INET6)
    case AF_INET6:
        sin6 = (struct sockaddr_in6 *) r->connection->sockaddr;
        return ngx_http_once_give(v, sin6->sin6_addr.s6_addr,
                                  sizeof(struct in6_addr));
#endif

    default:
        text = &r->connection->addr_text;
        return ngx_http_once_give(v, text->data, text->len);
    }
}


static ngx_http_variable_t  ngx_http_once_variables[] = {

    { ngx_string("once_key"), NULL, ngx_http_once_key_variable, 0,
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("once_outcome"), NULL, ngx_http_once_outcome_variable, 0,
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("once_epoch"), NULL, ngx_http_once_epoch_variable, 0,
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("once_age"), NULL, ngx_http_once_age_variable, 0,
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("once_limit_key"), NULL, ngx_http_once_limit_key_variable, 0,
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("once_json_"), NULL, ngx_http_once_json_variable, 0,
      NGX_HTTP_VAR_NOCACHEABLE|NGX_HTTP_VAR_PREFIX, 0 },

      ngx_http_null_variable
};


ngx_int_t
ngx_http_once_add_variables(ngx_conf_t *cf)
{
    ngx_http_variable_t  *var, *v;

    for (v = ngx_http_once_variables; v->name.len; v++) {

        var = ngx_http_add_variable(cf, &v->name, v->flags);
        if (var == NULL) {
            return NGX_ERROR;
        }

        var->get_handler = v->get_handler;
        var->data = v->data;
    }

    return NGX_OK;
}
