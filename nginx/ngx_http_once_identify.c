/*
 * The identity of a request: its key, its scope and the target of its
 * fingerprint, and the directives that say where they come from.
 *
 * once_scope and once_fingerprint take several values. Each is joined with its
 * length in front of it, so that a client cannot choose where one value ends
 * and the next begins: "x y" and "z" are not "x" and "y z".
 */
#include "ngx_http_once_conf.h"
#include "ngx_http_once_request.h"


static ngx_int_t
ngx_http_once_header_values(ngx_http_request_t *r, ngx_str_t *name,
    ngx_array_t *values)
{
    once_slice_t          *value;
    ngx_table_elt_t       *h;
    ngx_http_once_walk_t   walk;

    walk.part = &r->headers_in.headers.part;
    walk.i = 0;

    while ((h = ngx_http_once_headers_next(&walk)) != NULL) {

        if (!ngx_http_once_headers_named(h, (char *) name->data, name->len)) {
            continue;
        }

        value = ngx_array_push(values);
        if (value == NULL) {
            return NGX_ERROR;
        }

        value->data = h->value.data;
        value->len = h->value.len;
    }

    return NGX_OK;
}


static ngx_uint_t
ngx_http_once_is_word(u_char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')
           || (c >= '0' && c <= '9') || c == '_';
}


/* The length of a value without its variables: `$name`, `${name}`, `$1`. */

static size_t
ngx_http_once_literal(ngx_str_t *value)
{
    size_t   len;
    u_char  *p, *last;

    len = 0;
    last = value->data + value->len;

    for (p = value->data; p < last; /* void */) {

        if (*p++ != '$') {
            len++;
            continue;
        }

        if (p < last && *p == '{') {
            p = ngx_strlchr(p, last, '}');
            p = p ? p + 1 : last;

        } else if (p < last && *p >= '1' && *p <= '9') {
            p++;

        } else {
            while (p < last && ngx_http_once_is_word(*p)) {
                p++;
            }
        }
    }

    return len;
}


/* "$a-$b" with both variables empty identifies nothing: it is empty. */

static ngx_int_t
ngx_http_once_evaluate(ngx_http_request_t *r, ngx_http_complex_value_t *value,
    ngx_str_t *text)
{
    if (ngx_http_complex_value(r, value, text) != NGX_OK) {
        return NGX_ERROR;
    }

    if (value->lengths && text->len == ngx_http_once_literal(&value->value)) {
        text->len = 0;
    }

    return NGX_OK;
}


static ngx_uint_t
ngx_http_once_is_standard(ngx_str_t *header)
{
    ngx_str_t  name = ngx_string("Idempotency-Key");

    return header->len == name.len
           && ngx_strncasecmp(header->data, name.data, name.len) == 0;
}


static ngx_int_t
ngx_http_once_add_value(ngx_array_t *values, ngx_str_t *text)
{
    once_slice_t  *value;

    if (text->len == 0) {
        return NGX_OK;
    }

    value = ngx_array_push(values);
    if (value == NULL) {
        return NGX_ERROR;
    }

    value->data = text->data;
    value->len = text->len;

    return NGX_OK;
}


/*
 * The key in a JSON body. NGX_DECLINED: there are several, and the backend may
 * take another one.
 */

static ngx_int_t
ngx_http_once_json_value(ngx_http_once_seek_t *seek, ngx_array_t *values)
{
    ngx_str_t  text;

    switch (ngx_http_once_seek_end(seek)) {

    case NGX_HTTP_ONCE_SEEK_FOUND:
        text.data = seek->value;
        text.len = seek->len;
        return ngx_http_once_add_value(values, &text);

    case NGX_HTTP_ONCE_SEEK_TWICE:
        return NGX_DECLINED;

    default:
        return NGX_OK;
    }
}


/*
 * The first source that has a key. NGX_AGAIN: the key is to be derived;
 * NGX_DECLINED: see above. Before the body is read, no source is asked that
 * follows one in the body: it might have another key.
 */

static ngx_int_t
ngx_http_once_source_values(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    ngx_array_t *values)
{
    ngx_int_t                    rc;
    ngx_str_t                    text;
    ngx_uint_t                   i, n;
    ngx_http_once_key_source_t  *source;

    source = ctx->conf->key_sources->elts;
    rc = NGX_OK;
    n = 0;

    for (i = 0; i < ctx->conf->key_sources->nelts; i++) {

        switch (source[i].from) {

        case NGX_HTTP_ONCE_FROM_HEADER:
            rc = ngx_http_once_header_values(r, &source[i].header, values);
            ctx->standard = values->nelts
                            && ngx_http_once_is_standard(&source[i].header);
            break;

        case NGX_HTTP_ONCE_FROM_VALUE:
            rc = ngx_http_once_evaluate(r, source[i].value, &text);

            if (rc == NGX_OK) {
                rc = ngx_http_once_add_value(values, &text);
            }

            break;

        case NGX_HTTP_ONCE_FROM_JSON:
            if (ctx->seeks == NULL) {
                return NGX_OK;
            }

            rc = ngx_http_once_json_value(&ctx->seeks[n++], values);
            break;

        default: /* NGX_HTTP_ONCE_FROM_CONTENT */
            return ctx->body ? NGX_AGAIN : NGX_OK;
        }

        if (rc != NGX_OK || values->nelts) {
            return rc;
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_once_key_values(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    ngx_array_t *values)
{
    ngx_http_once_loc_conf_t  *conf;

    conf = ctx->conf;

    if (ngx_array_init(values, r->pool, 1, sizeof(once_slice_t)) != NGX_OK) {
        return NGX_ERROR;
    }

    if (conf->key_header.len == 0) {
        return ngx_http_once_source_values(r, ctx, values);
    }

    ctx->standard = ngx_http_once_is_standard(&conf->key_header);

    return ngx_http_once_header_values(r, &conf->key_header, values);
}


/* NGX_OK: a key is required; NGX_DECLINED: it is not. */

static ngx_int_t
ngx_http_once_required(ngx_http_request_t *r, ngx_http_once_loc_conf_t *conf)
{
    ngx_str_t  value;

    if (conf->require != NGX_HTTP_ONCE_REQUIRE_VALUE) {
        return conf->require == NGX_HTTP_ONCE_REQUIRE_ON ? NGX_OK
                                                         : NGX_DECLINED;
    }

    if (ngx_http_complex_value(r, conf->require_value, &value) != NGX_OK) {
        return NGX_ERROR;
    }

    if (value.len == 0 || (value.len == 1 && value.data[0] == '0')
        || (value.len == 3 && ngx_strncasecmp(value.data, (u_char *) "off", 3)
                              == 0))
    {
        return NGX_DECLINED;
    }

    return NGX_OK;
}


/* RFC 9562: in hexadecimal digits, with the version where it belongs. */

static ngx_uint_t
ngx_http_once_is_uuid(once_key_t *key, u_char version)
{
    u_char      c;
    ngx_uint_t  i;

    if (key->len != 36) {
        return 0;
    }

    for (i = 0; i < 36; i++) {
        c = ngx_tolower(key->text[i]);

        if (i == 8 || i == 13 || i == 18 || i == 23) {
            if (c != '-') {
                return 0;
            }

        } else if ((c < '0' || c > '9') && (c < 'a' || c > 'f')) {
            return 0;
        }
    }

    if (version == 0) {
        return 1;
    }

    c = ngx_tolower(key->text[19]);

    return key->text[14] == version
           && (c == '8' || c == '9' || c == 'a' || c == 'b');
}


static ngx_uint_t
ngx_http_once_key_fits(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    ngx_str_t *detail)
{
    u_char  *p;

    static const char  text[] = "This operation needs a key of at least %ui "
                                "characters.";

    switch (ctx->conf->key_format) {

    case NGX_HTTP_ONCE_KEY_UUID:
        ngx_str_set(detail, "This operation needs a key that is a UUID.");
        return ngx_http_once_is_uuid(&ctx->key, 0);

    case NGX_HTTP_ONCE_KEY_UUID4:
        ngx_str_set(detail, "This operation needs a key that is a UUID of "
                    "version 4.");
        return ngx_http_once_is_uuid(&ctx->key, '4');

    case NGX_HTTP_ONCE_KEY_UUID7:
        ngx_str_set(detail, "This operation needs a key that is a UUID of "
                    "version 7.");
        return ngx_http_once_is_uuid(&ctx->key, '7');

    case NGX_HTTP_ONCE_KEY_MIN:
        if (ctx->key.len >= ctx->conf->key_min) {
            return 1;
        }

        p = ngx_pnalloc(r->pool, sizeof(text) + NGX_INT_T_LEN);

        if (p) {
            detail->data = p;
            detail->len = ngx_sprintf(p, text, ctx->conf->key_min) - p;
        }

        return 0;

    default: /* NGX_HTTP_ONCE_KEY_ANY */
        return 1;
    }
}


static ngx_int_t
ngx_http_once_read_key(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    ngx_http_once_problem_e *problem, ngx_str_t *detail)
{
    u_char        *p;
    ngx_int_t      rc;
    ngx_array_t    values;
    once_error_t   err;

    rc = ngx_http_once_key_values(r, ctx, &values);

    if (rc == NGX_DECLINED) {
        ngx_str_set(detail, "The request body has more than one value where "
                    "its key is expected.");
        ctx->outcome = NGX_HTTP_ONCE_INVALID;
        *problem = NGX_HTTP_ONCE_P_KEY_INVALID;
        return NGX_ABORT;
    }

    if (rc != NGX_OK) {
        return rc;
    }

    if (values.nelts == 0) {
        rc = ngx_http_once_required(r, ctx->conf);

        if (rc != NGX_OK) {
            return rc;
        }

        ctx->outcome = NGX_HTTP_ONCE_MISSING;
        *problem = NGX_HTTP_ONCE_P_KEY_MISSING;

        return NGX_ABORT;
    }

    if (once_key_parse(values.elts, values.nelts,
                       ctx->conf->key_strict ? ONCE_KEY_STRICT : 0, &ctx->key,
                       &err)
        == ONCE_OK)
    {
        if (ngx_http_once_key_fits(r, ctx, detail)) {
            return NGX_OK;
        }

        ctx->key.len = 0;
        ctx->outcome = NGX_HTTP_ONCE_INVALID;
        *problem = NGX_HTTP_ONCE_P_KEY_INVALID;

        return NGX_ABORT;
    }

    ctx->outcome = NGX_HTTP_ONCE_INVALID;
    *problem = NGX_HTTP_ONCE_P_KEY_INVALID;

    p = ngx_pnalloc(r->pool, sizeof(err.text));
    if (p == NULL) {
        return NGX_ERROR;
    }

    detail->data = p;
    detail->len = ngx_cpystrn(p, (u_char *) err.text, sizeof(err.text)) - p;

    return NGX_ABORT;
}


/* There is room for one more. */

static ngx_str_t *
ngx_http_once_evaluate_parts(ngx_http_request_t *r, ngx_array_t *parts)
{
    ngx_str_t             *texts;
    ngx_uint_t             i, n;
    ngx_http_once_part_t  *part;

    n = parts ? parts->nelts : 0;
    part = parts ? parts->elts : NULL;

    texts = ngx_palloc(r->pool, (n + 1) * sizeof(ngx_str_t));
    if (texts == NULL) {
        return NULL;
    }

    for (i = 0; i < n; i++) {
        if (ngx_http_once_evaluate(r, part[i].value, &texts[i]) != NGX_OK) {
            return NULL;
        }
    }

    return texts;
}


/*
 * Appends texts to `joined`, each with its length in front of it. They follow a
 * zero byte, which neither a header nor a URI can contain.
 */

static ngx_int_t
ngx_http_once_join_parts(ngx_http_request_t *r, ngx_str_t *joined,
    ngx_str_t *texts, ngx_uint_t count)
{
    u_char      *p, *data;
    size_t       len;
    ngx_uint_t   i;

    len = joined->len + 1;

    for (i = 0; i < count; i++) {
        len += NGX_SIZE_T_LEN + 1 + texts[i].len;
    }

    data = ngx_pnalloc(r->pool, len);
    if (data == NULL) {
        return NGX_ERROR;
    }

    p = ngx_cpymem(data, joined->data, joined->len);
    *p++ = '\0';

    for (i = 0; i < count; i++) {
        p = ngx_sprintf(p, "%uz:%V", texts[i].len, &texts[i]);
    }

    joined->data = data;
    joined->len = p - data;

    return NGX_OK;
}


static ngx_int_t
ngx_http_once_scope_detail(ngx_http_request_t *r, ngx_str_t *label,
    ngx_str_t *detail)
{
    u_char  *p;

    static const char  text[] = "Idempotency keys belong to a caller, and "
                                "this request does not say whose it is: %V is "
                                "missing.";

    p = ngx_pnalloc(r->pool, sizeof(text) + label->len);
    if (p == NULL) {
        return NGX_ERROR;
    }

    detail->data = p;
    detail->len = ngx_sprintf(p, text, label) - p;

    return NGX_ABORT;
}


/*
 * The scope's hash would contain a password. With a copy of the store and the
 * secret in it, passwords could be tried against it offline.
 */

static ngx_uint_t
ngx_http_once_is_password(ngx_http_request_t *r, ngx_http_once_part_t *part)
{
    ngx_table_elt_t  *h;

    h = r->headers_in.authorization;

    return part->credential && h && h->value.len >= 6
           && ngx_strncasecmp(h->value.data, (u_char *) "Basic ", 6) == 0;
}


/* once_scope_path: "POST /payments", without the query. */

static ngx_int_t
ngx_http_once_operation(ngx_http_request_t *r, ngx_str_t *text)
{
    u_char     *p;
    ngx_str_t   path;

    path = r->unparsed_uri;
    p = ngx_strlchr(path.data, path.data + path.len, '?');

    if (p) {
        path.len = p - path.data;
    }

    text->len = r->method_name.len + 1 + path.len;
    text->data = ngx_pnalloc(r->pool, text->len);
    if (text->data == NULL) {
        return NGX_ERROR;
    }

    ngx_sprintf(text->data, "%V %V", &r->method_name, &path);

    return NGX_OK;
}


static ngx_int_t
ngx_http_once_read_scope(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    ngx_str_t *detail)
{
    ngx_str_t             *texts;
    ngx_uint_t             i, n;
    ngx_array_t           *parts;
    ngx_http_once_part_t  *part;

    parts = ctx->conf->scope;
    part = parts ? parts->elts : NULL;
    n = parts ? parts->nelts : 0;

    texts = ngx_http_once_evaluate_parts(r, parts);
    if (texts == NULL) {
        return NGX_ERROR;
    }

    for (i = 0; i < n; i++) {

        if (!ctx->conf->secrets_apart
            && ngx_http_once_is_password(r, &part[i]))
        {
            ngx_str_set(detail, "The header Authorization contains a password "
                        "(Basic), which this gateway does not accept as a "
                        "scope: its operator can keep the secrets outside the "
                        "store, or scope by the name of the user.");
            return NGX_ABORT;
        }

        if (texts[i].len == 0 && !ctx->conf->scope_optional) {
            return ngx_http_once_scope_detail(r, &part[i].label, detail);
        }
    }

    ngx_str_set(&ctx->caller, "");

    if (n == 1) {
        ctx->caller = texts[0];

    } else if (n > 1
               && ngx_http_once_join_parts(r, &ctx->caller, texts, n)
                  != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (!ctx->conf->scope_path) {
        ctx->scope = ctx->caller;
        return NGX_OK;
    }

    if (ngx_http_once_operation(r, &texts[n]) != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_str_set(&ctx->scope, "");

    return ngx_http_once_join_parts(r, &ctx->scope, texts, n + 1);
}


/*
 * The caller, as a part of a derived key: a keyed hash of the scope, which may
 * be a credential. The key is shown, and the scope must not be guessed from it.
 */

static int
ngx_http_once_caller(ngx_http_once_ctx_t *ctx, u_char *id)
{
    once_slice_t  scope, key;

    if (ctx->conf->store->once == NULL) {
        return ONCE_E_UNAVAILABLE;
    }

    scope.data = ctx->scope.data;
    scope.len = ctx->scope.len;
    key.data = "derive";
    key.len = sizeof("derive") - 1;

    return once_record_id_of(ctx->conf->store->once, scope, key, id);
}


/*
 * A key for a request that has none: of whom, for what, and when. Without the
 * secrets of the store there is none, and it is as if the store did not answer.
 */

static ngx_int_t
ngx_http_once_derive(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    ngx_http_once_problem_e *problem)
{
    u_char                      *p, id[ONCE_ID_SIZE];
    uint8_t                      body[ONCE_DIGEST_SIZE];
    once_error_t                 err;
    once_key_parts_t             parts = ONCE_KEY_PARTS_INIT;
    ngx_http_once_key_source_t  *source;

    source = ctx->conf->key_sources->elts;
    source += ctx->conf->key_sources->nelts - 1;

    if (ngx_http_once_caller(ctx, id) != ONCE_OK) {
        ctx->outcome = ctx->conf->pass_on_error ? NGX_HTTP_ONCE_PASS
                                                : NGX_HTTP_ONCE_ERROR;
        *problem = NGX_HTTP_ONCE_P_STORE;

        return ctx->conf->pass_on_error ? NGX_DECLINED : NGX_ABORT;
    }

    if (ngx_http_once_identify_target(r, ctx) != NGX_OK
        || once_body_digest(ctx->body, body) != ONCE_OK)
    {
        return NGX_ERROR;
    }

    parts.action.len = r->method_name.len + 1 + ctx->target.len;

    p = ngx_pnalloc(r->pool, parts.action.len);
    if (p == NULL) {
        return NGX_ERROR;
    }

    parts.action.data = p;
    p = ngx_cpymem(p, r->method_name.data, r->method_name.len);
    *p++ = ' ';
    ngx_memcpy(p, ctx->target.data, ctx->target.len);

    parts.principal.data = id;
    parts.principal.len = sizeof(id);
    parts.payload.data = body;
    parts.payload.len = sizeof(body);
    parts.when_ms = (uint64_t) ngx_time() * 1000;
    parts.bucket_ms = (uint64_t) source->period * 1000;

    if (once_key_deterministic(&parts, &ctx->key, &err) != ONCE_OK) {
        return NGX_ERROR;
    }

    ctx->derived = 1;

    return NGX_OK;
}


ngx_int_t
ngx_http_once_identify(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    ngx_http_once_problem_e *problem, ngx_str_t *detail)
{
    ngx_int_t   rc;
    ngx_uint_t  derive;

    ngx_str_null(detail);

    if (ctx->key.len) {
        return NGX_OK;
    }

    rc = ngx_http_once_read_key(r, ctx, problem, detail);
    derive = (rc == NGX_AGAIN);

    if (rc != NGX_OK && !derive) {
        return rc;
    }

    if (ctx->conf->scope == NULL && !ctx->conf->scope_path) {
        ngx_str_set(&ctx->caller, "");
        ngx_str_set(&ctx->scope, "");
        return NGX_OK;
    }

    rc = ngx_http_once_read_scope(r, ctx, detail);

    if (rc == NGX_ABORT) {
        ctx->outcome = NGX_HTTP_ONCE_INVALID;
        ctx->key.len = 0;
        *problem = NGX_HTTP_ONCE_P_SCOPE_MISSING;
    }

    return (rc == NGX_OK && derive) ? ngx_http_once_derive(r, ctx, problem)
                                    : rc;
}


ngx_int_t
ngx_http_once_identify_seek(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    ngx_uint_t                   i, n;
    ngx_http_once_key_source_t  *source;

    if (ctx->conf->key_sources == NULL || ctx->conf->key_pointers == 0) {
        return NGX_OK;
    }

    ctx->seeks = ngx_palloc(r->pool, ctx->conf->key_pointers
                                     * sizeof(ngx_http_once_seek_t));
    if (ctx->seeks == NULL) {
        return NGX_ERROR;
    }

    source = ctx->conf->key_sources->elts;

    for (i = 0, n = 0; i < ctx->conf->key_sources->nelts; i++) {

        if (source[i].from == NGX_HTTP_ONCE_FROM_JSON) {
            ngx_http_once_seek_init(&ctx->seeks[n++], &source[i].path);
        }
    }

    return NGX_OK;
}


int
ngx_http_once_identify_record(ngx_http_once_ctx_t *ctx, u_char *id)
{
    once_slice_t  scope, key;

    scope.data = ctx->scope.data;
    scope.len = ctx->scope.len;
    key.data = ctx->key.text;
    key.len = ctx->key.len;

    return once_record_id_of(ctx->conf->store->once, scope, key, id);
}


ngx_int_t
ngx_http_once_identify_target(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    ngx_str_t    *texts;
    ngx_array_t  *parts;

    parts = ctx->conf->fingerprint_parts;
    ctx->target = r->unparsed_uri;

    if (parts == NULL) {
        return NGX_OK;
    }

    texts = ngx_http_once_evaluate_parts(r, parts);

    if (texts == NULL) {
        return NGX_ERROR;
    }

    return ngx_http_once_join_parts(r, &ctx->target, texts, parts->nelts);
}


/* -------------------------------------------------------------- directives */

#define NGX_HTTP_ONCE_PARTS_MAX  8


/* "x_api_key": "X-Api-Key" */

static u_char *
ngx_http_once_header_of(u_char *p, u_char *name, size_t len)
{
    size_t  i;

    for (i = 0; i < len; i++) {
        *p++ = (name[i] == '_') ? '-'
               : (i == 0 || name[i - 1] == '_') ? ngx_toupper(name[i])
                                                 : name[i];
    }

    return p;
}


/*
 * How a problem names a missing value: by its header, cookie or parameter if
 * it has one, otherwise as it is written.
 */

static ngx_int_t
ngx_http_once_label_part(ngx_conf_t *cf, ngx_str_t *value, ngx_str_t *label)
{
    u_char     *p;
    size_t      len;
    ngx_str_t   name;

    name.data = value->data + 1;
    name.len = value->len - 1;

    if (name.len > 2 && name.data[0] == '{'
        && name.data[name.len - 1] == '}')
    {
        name.data++;
        name.len -= 2;
    }

    for (len = 0; len < name.len; len++) {
        if (!ngx_http_once_is_word(name.data[len])) {
            break;
        }
    }

    label->data = ngx_pnalloc(cf->pool, sizeof("the query parameter ")
                                        + value->len);
    if (label->data == NULL) {
        return NGX_ERROR;
    }

    p = label->data;

    if (value->data[0] != '$' || len != name.len) {
        p = ngx_sprintf(p, "the value of %V", value);

    } else if (len > 5 && ngx_strncmp(name.data, "http_", 5) == 0) {
        p = ngx_sprintf(p, "the header ");
        p = ngx_http_once_header_of(p, name.data + 5, len - 5);

    } else if (len > 7 && ngx_strncmp(name.data, "cookie_", 7) == 0) {
        p = ngx_sprintf(p, "the cookie %*s", len - 7, name.data + 7);

    } else if (len > 4 && ngx_strncmp(name.data, "arg_", 4) == 0) {
        p = ngx_sprintf(p, "the query parameter %*s", len - 4, name.data + 4);

    } else if (len > 11 && ngx_strncmp(name.data, "ssl_client_", 11) == 0) {
        p = ngx_sprintf(p, "a client certificate");

    } else if (ngx_http_once_is(&name, "remote_user")) {
        p = ngx_sprintf(p, "the name of a user");

    } else {
        p = ngx_sprintf(p, "the value of $%V", &name);
    }

    label->len = p - label->data;

    return NGX_OK;
}


/* Adds arguments of the directive, from `first` up to `last`. */

static char *
ngx_http_once_add_parts(ngx_conf_t *cf, ngx_uint_t first, ngx_uint_t last,
    ngx_array_t **parts)
{
    ngx_str_t             *value;
    ngx_uint_t             i;
    ngx_http_once_part_t  *part;

    value = cf->args->elts;

    if (last - first > NGX_HTTP_ONCE_PARTS_MAX) {
        return "takes at most 8 values";
    }

    *parts = ngx_array_create(cf->pool, last - first,
                              sizeof(ngx_http_once_part_t));
    if (*parts == NULL) {
        return NGX_CONF_ERROR;
    }

    for (i = first; i < last; i++) {

        part = ngx_array_push(*parts);
        if (part == NULL) {
            return NGX_CONF_ERROR;
        }

        ngx_memzero(part, sizeof(ngx_http_once_part_t));

        if (value[i].len == 0
            || ngx_http_once_label_part(cf, &value[i], &part->label) != NGX_OK)
        {
            return ngx_http_once_bad(cf, &value[i], "it must not be empty");
        }

        part->credential = ngx_strlcasestrn(value[i].data,
                               value[i].data + value[i].len,
                               (u_char *) "http_authorization",
                               sizeof("http_authorization") - 2) != NULL;

        part->value = ngx_http_once_compile(cf, &value[i]);

        if (part->value == NULL) {
            return NGX_CONF_ERROR;
        }
    }

    return NGX_CONF_OK;
}


char *
ngx_http_once_set_scope(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_once_loc_conf_t *olcf = conf;

    ngx_str_t   *value;
    ngx_uint_t   i, last, variables;

    if (olcf->scope_set != NGX_CONF_UNSET) {
        return "is duplicate";
    }

    value = cf->args->elts;
    last = cf->args->nelts;

    olcf->scope_set = 1;
    olcf->scope_optional = 0;

    if (last > 2 && ngx_http_once_is(&value[last - 1], "optional")) {
        olcf->scope_optional = 1;
        last--;
    }

    if (last == 2 && ngx_http_once_is(&value[1], "none")) {
        olcf->scope = NULL;
        return NGX_CONF_OK;
    }

    variables = 0;

    for (i = 1; i < last; i++) {
        variables += ngx_http_script_variables_count(&value[i]);

        if (ngx_http_script_variables_count(&value[i]) == 0 && i > 1) {
            return ngx_http_once_bad(cf, &value[i], "values after the first "
                                     "must contain a variable, except "
                                     "\"optional\" at the end");
        }
    }

    if (variables == 0) {
        return ngx_http_once_bad(cf, &value[1], "it must contain a variable "
                                 "that distinguishes callers, such as "
                                 "$remote_user or $ssl_client_s_dn; write "
                                 "none if all callers share one scope");
    }

    return ngx_http_once_add_parts(cf, 1, last, &olcf->scope);
}


char *
ngx_http_once_set_fingerprint(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_once_loc_conf_t *olcf = conf;

    int          mode;
    ngx_str_t   *value;
    ngx_uint_t   i;

    if (olcf->fingerprint != NGX_CONF_UNSET_UINT) {
        return "is duplicate";
    }

    value = cf->args->elts;
    mode = once_body_mode_parse((char *) value[1].data);

    if (mode < 0) {
        return ngx_http_once_bad(cf, &value[1], "it must be exact, json, "
                                 "multipart or none");
    }

    olcf->fingerprint = (ngx_uint_t) mode;

    for (i = 2; i < cf->args->nelts; i++) {
        if (ngx_http_script_variables_count(&value[i]) == 0) {
            return ngx_http_once_bad(cf, &value[i], "an added value must "
                                     "contain a variable such as "
                                     "$http_stripe_account");
        }
    }

    if (cf->args->nelts == 2) {
        return NGX_CONF_OK;
    }

    return ngx_http_once_add_parts(cf, 2, cf->args->nelts,
                                   &olcf->fingerprint_parts);
}


static char *
ngx_http_once_add_source(ngx_conf_t *cf, ngx_http_once_loc_conf_t *conf,
    ngx_str_t *word, ngx_uint_t first)
{
    ngx_str_t                    text;
    const char                  *wrong;
    ngx_http_once_key_source_t  *source;

    source = ngx_array_push(conf->key_sources);
    if (source == NULL) {
        return NGX_CONF_ERROR;
    }

    ngx_memzero(source, sizeof(ngx_http_once_key_source_t));

    if (word->len > 5 && ngx_strncmp(word->data, "json:", 5) == 0) {
        source->from = NGX_HTTP_ONCE_FROM_JSON;
        conf->key_pointers++;

        wrong = ngx_http_once_seek_parse(&source->path, word->data + 5,
                                         word->len - 5);

        return wrong ? ngx_http_once_bad(cf, word, wrong) : NGX_CONF_OK;
    }

    if (word->len > 7 && ngx_strncmp(word->data, "derive=", 7) == 0) {
        source->from = NGX_HTTP_ONCE_FROM_CONTENT;
        conf->key_derived = 1;

        text.data = word->data + 7;
        text.len = word->len - 7;
        source->period = ngx_parse_time(&text, 1);

        return (source->period > 0 && source->period <= 86400)
               ? NGX_CONF_OK
               : ngx_http_once_bad(cf, word, "a key is derived for a period "
                                   "of 1s to 24h, such as derive=10m");
    }

    if (ngx_http_script_variables_count(word)) {
        source->from = NGX_HTTP_ONCE_FROM_VALUE;
        source->value = ngx_http_once_compile(cf, word);

        return source->value ? NGX_CONF_OK : NGX_CONF_ERROR;
    }

    if (first && ngx_http_once_is_token(word)) {
        source->from = NGX_HTTP_ONCE_FROM_HEADER;
        source->header = *word;

        return NGX_CONF_OK;
    }

    return ngx_http_once_bad(cf, word, first
                             ? "it must be the name of a request header such "
                               "as Idempotency-Key, contain a variable such "
                               "as $once_json_id, or be json:/pointer"
                             : "only json:/pointer, a value with a variable "
                               "such as $http_x_request_id, derive=TIME at "
                               "the end, and strict may follow the first");
}


char *
ngx_http_once_set_key(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_once_loc_conf_t *olcf = conf;

    char                        *rv;
    ngx_str_t                   *value;
    ngx_uint_t                   i, last;
    ngx_http_once_key_source_t  *source;

    if (olcf->key_header.data) {
        return "is duplicate";
    }

    value = cf->args->elts;
    last = cf->args->nelts;
    olcf->key_strict = 0;

    if (last > 2 && ngx_http_once_is(&value[last - 1], "strict")) {
        olcf->key_strict = 1;
        last--;
    }

    if (last - 1 > NGX_HTTP_ONCE_PARTS_MAX) {
        return "takes at most 8 sources";
    }

    ngx_str_set(&olcf->key_header, "");
    olcf->key_sources = ngx_array_create(cf->pool, last - 1,
                                         sizeof(ngx_http_once_key_source_t));
    if (olcf->key_sources == NULL) {
        return NGX_CONF_ERROR;
    }

    for (i = 1; i < last; i++) {

        if (olcf->key_derived) {
            return ngx_http_once_bad(cf, &value[i], "derive= must be the last "
                                     "source: it always has a key");
        }

        rv = ngx_http_once_add_source(cf, olcf, &value[i], i == 1);

        if (rv != NGX_CONF_OK) {
            return rv;
        }
    }

    source = olcf->key_sources->elts;

    if (last == 2 && source->from == NGX_HTTP_ONCE_FROM_HEADER) {
        /* is known before the body is read */
        olcf->key_header = source->header;
        olcf->key_sources = NULL;
    }

    return NGX_CONF_OK;
}


/* The key of a call is in _meta, or in the header. */

ngx_int_t
ngx_http_once_identify_mcp_key(ngx_conf_t *cf, ngx_http_once_loc_conf_t *conf)
{
    ngx_str_t  meta = ngx_string("json:/params/_meta/idempotencyKey");
    ngx_str_t  header = ngx_string("$http_idempotency_key");

    meta.data = ngx_pstrdup(cf->pool, &meta);    /* is rewritten */
    conf->key_sources = ngx_array_create(cf->pool, 2,
                                         sizeof(ngx_http_once_key_source_t));

    if (meta.data == NULL || conf->key_sources == NULL
        || ngx_http_once_add_source(cf, conf, &meta, 0) != NGX_CONF_OK
        || ngx_http_once_add_source(cf, conf, &header, 0) != NGX_CONF_OK)
    {
        return NGX_ERROR;
    }

    ngx_str_set(&conf->key_header, "");
    conf->key_strict = 0;

    return NGX_OK;
}


char *
ngx_http_once_set_key_format(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_once_loc_conf_t *olcf = conf;

    ngx_int_t    min;
    ngx_str_t   *value;
    ngx_uint_t   i;

    static const char *const  words[] = { "any", "uuid", "uuid4", "uuid7" };

    if (olcf->key_format != NGX_CONF_UNSET_UINT) {
        return "is duplicate";
    }

    value = cf->args->elts;

    for (i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (ngx_http_once_is(&value[1], words[i])) {
            olcf->key_format = i;    /* ngx_http_once_key_format_e */
            return NGX_CONF_OK;
        }
    }

    min = (value[1].len > 4 && ngx_strncmp(value[1].data, "min=", 4) == 0)
          ? ngx_atoi(value[1].data + 4, value[1].len - 4) : NGX_ERROR;

    if (min < 1 || min > ONCE_KEY_MAX) {
        return ngx_http_once_bad(cf, &value[1], "it must be any, uuid, uuid4, "
                                 "uuid7, or min= with the least number of "
                                 "characters, 1 to 255");
    }

    olcf->key_format = NGX_HTTP_ONCE_KEY_MIN;
    olcf->key_min = (ngx_uint_t) min;

    return NGX_CONF_OK;
}
