/*
 * $once_key, $once_id, $once_outcome, $once_epoch, $once_age, $once_time for
 * logs and traces; $once_limit_key for limit_req; $once_error_NAME for
 * once_error_body; $once_json_NAME for keys in the body.
 *
 * $once_json_NAME is a top-level member of a JSON request body. It is found
 * only after the body was read, which the handler does before it evaluates a
 * key of variables. nginx lowers the case of variable names, so that a member
 * is found whatever its case, and not at all if two match. Nor is one found in
 * a document with duplicate names: the backend might take the other one.
 */
#include "ngx_http_once_request.h"

#include <jansson.h>


/* The document of a request, read once. Lives in a cleanup of its pool. */
typedef struct {
    json_t                      *root;         /* NULL: no usable JSON */
} ngx_http_once_json_t;


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


/* The record's id: a keyed hash of scope and key, which keys show takes. */

static ngx_int_t
ngx_http_once_id_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    u_char               *p, id[ONCE_ID_SIZE];
    once_slice_t          scope, key;
    ngx_http_once_ctx_t  *ctx;

    ctx = ngx_http_once_get_ctx(r->main);

    if (ctx == NULL || ctx->key.len == 0 || ctx->scope.data == NULL
        || ctx->conf->store == NULL || ctx->conf->store->once == NULL)
    {
        v->not_found = 1;
        return NGX_OK;
    }

    scope.data = ctx->scope.data;
    scope.len = ctx->scope.len;
    key.data = ctx->key.text;
    key.len = ctx->key.len;

    if (once_record_id_of(ctx->conf->store->once, scope, key, id) != ONCE_OK) {
        v->not_found = 1;
        return NGX_OK;
    }

    p = ngx_pnalloc(r->pool, 2 * ONCE_ID_SIZE);
    if (p == NULL) {
        return NGX_ERROR;
    }

    ngx_hex_dump(p, id, ONCE_ID_SIZE);

    return ngx_http_once_give(v, p, 2 * ONCE_ID_SIZE);
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


/* Now, by RFC 3339, in UTC, as the logs of the other programs have it. */

static ngx_int_t
ngx_http_once_time_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    u_char      *p, *last;
    ngx_tm_t     tm;
    ngx_time_t  *now;

    p = ngx_pnalloc(r->pool, sizeof("-05-17T08:30:00.000Z") + NGX_TIME_T_LEN);
    if (p == NULL) {
        return NGX_ERROR;
    }

    now = ngx_timeofday();
    ngx_gmtime(now->sec, &tm);

    last = ngx_sprintf(p, "%d-%02d-%02dT%02d:%02d:%02d.%03MZ", tm.ngx_tm_year,
                       tm.ngx_tm_mon, tm.ngx_tm_mday, tm.ngx_tm_hour,
                       tm.ngx_tm_min, tm.ngx_tm_sec, now->msec);

    return ngx_http_once_give(v, p, last - p);
}


/* Seconds with milliseconds, like $request_time. */

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


/* The problem that is being answered; `data` is ngx_http_once_error_e. */

static ngx_int_t
ngx_http_once_error_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_http_once_ctx_t  *ctx;

    ctx = ngx_http_once_get_ctx(r->main);

    if (ctx == NULL || ctx->error == NULL) {
        v->not_found = 1;
        return NGX_OK;
    }

    return ngx_http_once_give(v, ctx->error[data].data, ctx->error[data].len);
}


/* Empty for a known replay: limit_req does not count it. */

static ngx_int_t
ngx_http_once_limit_key_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_str_t           *text;
    struct sockaddr_in  *sin;
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


static void
ngx_http_once_json_cleanup(void *data)
{
    ngx_http_once_json_t  *json = data;

    json_decref(json->root);
}


static ngx_int_t
ngx_http_once_json_copy(ngx_http_request_t *r, ngx_buf_t *b, u_char *p)
{
    size_t  size;

    if (ngx_buf_in_memory(b)) {
        ngx_memcpy(p, b->pos, b->last - b->pos);
        return NGX_OK;
    }

    size = (size_t) (b->file_last - b->file_pos);

    return ngx_read_file(b->file, p, size, b->file_pos) == (ssize_t) size
           ? NGX_OK : NGX_ERROR;
}


/* A body that is too large for a JSON fingerprint is not read. */

static json_t *
ngx_http_once_json_load(ngx_http_request_t *r)
{
    off_t         len;
    u_char       *body, *p;
    json_t       *root;
    ngx_chain_t  *cl;

    len = 0;

    for (cl = r->request_body->bufs; cl; cl = cl->next) {
        len += ngx_buf_size(cl->buf);
    }

    if (len == 0 || len > ONCE_BODY_JSON_MAX) {
        return NULL;
    }

    body = ngx_alloc((size_t) len, r->connection->log);
    if (body == NULL) {
        return NULL;
    }

    p = body;
    root = NULL;

    for (cl = r->request_body->bufs; cl; cl = cl->next) {

        if (ngx_buf_size(cl->buf) == 0) {
            continue;
        }

        if (ngx_http_once_json_copy(r, cl->buf, p) != NGX_OK) {
            goto done;
        }

        p += ngx_buf_size(cl->buf);
    }

    root = json_loadb((char *) body, (size_t) len, JSON_REJECT_DUPLICATES,
                      NULL);

done:

    ngx_free(body);

    return root;
}


static json_t *
ngx_http_once_json_root(ngx_http_request_t *r)
{
    ngx_http_once_json_t  *json;

    json = ngx_http_once_cleanup_find(r->pool, ngx_http_once_json_cleanup);

    if (json) {
        return json->root;
    }

    json = ngx_http_once_cleanup_add(r->pool, ngx_http_once_json_cleanup,
                                     sizeof(ngx_http_once_json_t));
    if (json == NULL) {
        return NULL;
    }

    json->root = ngx_http_once_json_load(r);

    return json->root;
}


static json_t *
ngx_http_once_json_member(json_t *root, ngx_str_t *name)
{
    void    *iter;
    json_t  *found;

    const char  *key;

    found = NULL;

    for (iter = json_object_iter(root);
         iter;
         iter = json_object_iter_next(root, iter))
    {
        key = json_object_iter_key(iter);

        if (ngx_strlen(key) != name->len
            || ngx_strncasecmp((u_char *) key, name->data, name->len) != 0)
        {
            continue;
        }

        if (found) {
            return NULL;
        }

        found = json_object_iter_value(iter);
    }

    return found;
}


static ngx_int_t
ngx_http_once_json_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    u_char     *p;
    json_t     *member;
    ngx_str_t   name;

    v->not_found = 1;

    if (r->main->request_body == NULL || r->main->request_body->rest > 0) {
        return NGX_OK;
    }

    name = *(ngx_str_t *) data;
    name.data += sizeof("once_json_") - 1;
    name.len -= sizeof("once_json_") - 1;

    member = ngx_http_once_json_member(ngx_http_once_json_root(r->main),
                                       &name);

    if (json_is_string(member)) {
        return ngx_http_once_give(v, (u_char *) json_string_value(member),
                                  json_string_length(member));
    }

    if (json_is_integer(member)) {
        p = ngx_pnalloc(r->pool, NGX_INT64_LEN);
        if (p == NULL) {
            return NGX_ERROR;
        }

        return ngx_http_once_give(v, p,
                                  ngx_sprintf(p, "%L",
                                       (int64_t) json_integer_value(member))
                                  - p);
    }

    return NGX_OK;
}


static ngx_http_variable_t  ngx_http_once_variables[] = {

    { ngx_string("once_key"), NULL, ngx_http_once_key_variable, 0,
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("once_id"), NULL, ngx_http_once_id_variable, 0,
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("once_outcome"), NULL, ngx_http_once_outcome_variable, 0,
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("once_epoch"), NULL, ngx_http_once_epoch_variable, 0,
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("once_age"), NULL, ngx_http_once_age_variable, 0,
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("once_time"), NULL, ngx_http_once_time_variable, 0,
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("once_limit_key"), NULL, ngx_http_once_limit_key_variable, 0,
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("once_error_code"), NULL, ngx_http_once_error_variable,
      NGX_HTTP_ONCE_E_CODE, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("once_error_detail"), NULL, ngx_http_once_error_variable,
      NGX_HTTP_ONCE_E_DETAIL, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("once_error_name"), NULL, ngx_http_once_error_variable,
      NGX_HTTP_ONCE_E_NAME, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("once_error_retryable"), NULL, ngx_http_once_error_variable,
      NGX_HTTP_ONCE_E_RETRYABLE, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("once_error_status"), NULL, ngx_http_once_error_variable,
      NGX_HTTP_ONCE_E_STATUS, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("once_error_title"), NULL, ngx_http_once_error_variable,
      NGX_HTTP_ONCE_E_TITLE, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("once_error_type"), NULL, ngx_http_once_error_variable,
      NGX_HTTP_ONCE_E_TYPE, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("once_json_"), NULL, ngx_http_once_json_variable, 0,
      NGX_HTTP_VAR_NOCACHEABLE|NGX_HTTP_VAR_PREFIX, 0 },

      ngx_http_null_variable
};


ngx_int_t
ngx_http_once_variables_add(ngx_conf_t *cf)
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
