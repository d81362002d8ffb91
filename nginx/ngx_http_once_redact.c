/*
 * once_redact: what is left out of a response before it is recorded. A header
 * is removed; what a JSON pointer (RFC 6901) leads to becomes null, and every
 * other byte of the body stays as it is.
 *
 * Where there is a pointer, a body that cannot be searched is not recorded at
 * all: it is not JSON, it is encoded, or it is not valid.
 */
#include "ngx_http_once_conf.h"
#include "ngx_http_once_json.h"
#include "ngx_http_once_request.h"

#include <jansson.h>  /* after nginx's headers, which define _GNU_SOURCE */


#define NGX_HTTP_ONCE_REDACT_DEPTH  16    /* names in a pointer */


typedef struct {
    ngx_str_t                    name[NGX_HTTP_ONCE_REDACT_DEPTH];
    ngx_uint_t                   n;
} ngx_http_once_pointer_t;


struct ngx_http_once_redact_s {
    ngx_array_t                  headers;    /* of ngx_str_t, lower case */
    ngx_array_t                  pointers;
};


/* A value of the document. */
typedef struct {
    const u_char                *start;
    const u_char                *end;
} ngx_http_once_range_t;


/* ------------------------------------------------------------ the document */

static ngx_uint_t
ngx_http_once_is_element(ngx_uint_t i, ngx_str_t *name)
{
    u_char  text[NGX_INT_T_LEN], *end;

    if (name->len == 1 && name->data[0] == '*') {
        return 1;
    }

    end = ngx_sprintf(text, "%ui", i);

    return (size_t) (end - text) == name->len
           && ngx_memcmp(text, name->data, name->len) == 0;
}


/* Adds what the names from `level` on lead to, beginning with a value at p. */

static ngx_int_t
ngx_http_once_find(ngx_array_t *ranges, const u_char *p, const u_char *last,
    ngx_http_once_pointer_t *pointer, ngx_uint_t level)
{
    const u_char           *name, *end;
    ngx_uint_t              i, is_object, leads;
    ngx_http_once_range_t  *range;

    if (level == pointer->n) {
        range = ngx_array_push(ranges);
        if (range == NULL) {
            return NGX_ERROR;
        }

        range->start = p;
        range->end = ngx_http_once_json_skip_value(p, last);

        return NGX_OK;
    }

    if (p == last || (*p != '{' && *p != '[')) {
        return NGX_OK;
    }

    is_object = *p == '{';
    p = ngx_http_once_json_skip_space(p + 1, last);

    for (i = 0; p < last && *p != '}' && *p != ']'; i++) {

        if (is_object) {
            name = p + 1;
            p = ngx_http_once_json_skip_string(p, last);
            end = p - 1;
            leads = ngx_http_once_json_is(name, end,
                                          pointer->name[level].data,
                                          pointer->name[level].len);

            p = ngx_http_once_json_skip_space(p, last);
            p = ngx_http_once_json_skip_space(p < last ? p + 1 : p, last);

        } else {
            leads = ngx_http_once_is_element(i, &pointer->name[level]);
        }

        if (leads
            && ngx_http_once_find(ranges, p, last, pointer, level + 1)
               != NGX_OK)
        {
            return NGX_ERROR;
        }

        p = ngx_http_once_json_skip_value(p, last);
        p = ngx_http_once_json_skip_space(p, last);

        if (p < last && *p == ',') {
            p = ngx_http_once_json_skip_space(p + 1, last);
        }
    }

    return NGX_OK;
}


static int ngx_libc_cdecl
ngx_http_once_by_start(const void *one, const void *two)
{
    const ngx_http_once_range_t  *a = one;
    const ngx_http_once_range_t  *b = two;

    if (a->start == b->start) {
        return 0;
    }

    return a->start < b->start ? -1 : 1;
}


/* Rewrites the body. What is inside of a range goes with it. */

static ngx_int_t
ngx_http_once_cut(ngx_pool_t *pool, ngx_array_t *ranges,
    once_response_t *response)
{
    u_char                 *p, *body;
    const u_char           *from, *last;
    ngx_uint_t              i;
    ngx_http_once_range_t  *range;

    range = ranges->elts;
    ngx_qsort(range, ranges->nelts, sizeof(ngx_http_once_range_t),
              ngx_http_once_by_start);

    body = ngx_pnalloc(pool, response->body.len + 4 * ranges->nelts);
    if (body == NULL) {
        return NGX_ERROR;
    }

    p = body;
    from = response->body.data;
    last = from + response->body.len;

    for (i = 0; i < ranges->nelts; i++) {

        if (range[i].start < from) {
            continue;
        }

        p = ngx_cpymem(p, from, range[i].start - from);
        p = ngx_cpymem(p, "null", 4);
        from = range[i].end;
    }

    p = ngx_cpymem(p, from, last - from);

    response->body.data = body;
    response->body.len = p - body;

    return NGX_OK;
}


/* ------------------------------------------------------------ the response */

static ngx_uint_t
ngx_http_once_header_is(const once_header_t *header, const char *name)
{
    return header->name.len == ngx_strlen(name)
           && ngx_strncasecmp((u_char *) header->name.data, (u_char *) name,
                              header->name.len)
              == 0;
}


/* application/json, and everything that ends in /json or +json. */

static ngx_uint_t
ngx_http_once_is_json(const once_slice_t *type)
{
    u_char  *p, *last;

    p = (u_char *) type->data;
    last = ngx_strlchr(p, p + type->len, ';');
    last = last ? last : p + type->len;

    while (last > p && (last[-1] == ' ' || last[-1] == '\t')) {
        last--;
    }

    return last - p > 5
           && (last[-5] == '/' || last[-5] == '+')
           && ngx_strncasecmp(last - 4, (u_char *) "json", 4) == 0;
}


/* Can the body be searched? */

static ngx_uint_t
ngx_http_once_is_searchable(once_response_t *response)
{
    json_t               *root;
    ngx_uint_t            i, is_json;
    const once_header_t  *h;

    is_json = 0;

    for (i = 0; i < response->header_count; i++) {
        h = &response->headers[i];

        if (ngx_http_once_header_is(h, "content-type")) {
            is_json = ngx_http_once_is_json(&h->value);

        } else if (ngx_http_once_header_is(h, "content-encoding")) {
            return 0;
        }
    }

    if (!is_json) {
        return 0;
    }

    root = json_loadb(response->body.data, response->body.len,
                      JSON_DECODE_ANY|JSON_DECODE_INT_AS_REAL|JSON_ALLOW_NUL,
                      NULL);
    if (root == NULL) {
        return 0;
    }

    json_decref(root);

    return 1;
}


/* What the body was before: no longer true. */

static ngx_uint_t
ngx_http_once_is_of_body(const once_header_t *h)
{
    return ngx_http_once_header_is(h, "etag")
           || ngx_http_once_header_is(h, "content-md5")
           || ngx_http_once_header_is(h, "content-digest")
           || ngx_http_once_header_is(h, "repr-digest")
           || ngx_http_once_header_is(h, "digest");
}


static ngx_uint_t
ngx_http_once_is_redacted(ngx_http_once_redact_t *redact,
    const once_header_t *h)
{
    ngx_str_t   *name;
    ngx_uint_t   i;

    name = redact->headers.elts;

    for (i = 0; i < redact->headers.nelts; i++) {

        if (ngx_http_once_header_is(h, (char *) name[i].data)) {
            return 1;
        }
    }

    return 0;
}


static ngx_int_t
ngx_http_once_redact_headers(ngx_pool_t *pool, ngx_http_once_redact_t *redact,
    once_response_t *response, ngx_uint_t changed)
{
    ngx_uint_t            i, n;
    once_header_t        *headers;
    const once_header_t  *h;

    headers = ngx_palloc(pool, (response->header_count + 1)
                               * sizeof(once_header_t));
    if (headers == NULL) {
        return NGX_ERROR;
    }

    n = 0;

    for (i = 0; i < response->header_count; i++) {
        h = &response->headers[i];

        if (ngx_http_once_is_redacted(redact, h)
            || (changed && ngx_http_once_is_of_body(h)))
        {
            continue;
        }

        headers[n++] = *h;
    }

    if (changed) {
        headers[n].name.data = "Once-Body";
        headers[n].name.len = 9;
        headers[n].value.data = "redacted";
        headers[n++].value.len = 8;
    }

    response->headers = headers;
    response->header_count = n;

    return NGX_OK;
}


ngx_int_t
ngx_http_once_redact(ngx_pool_t *pool, ngx_http_once_loc_conf_t *conf,
    once_response_t *response)
{
    const u_char             *p, *last;
    ngx_uint_t                i;
    ngx_array_t               ranges;
    ngx_http_once_redact_t   *redact;
    ngx_http_once_pointer_t  *pointer;

    redact = conf->redact;

    if (redact == NULL) {
        return NGX_OK;
    }

    if (redact->pointers.nelts == 0 || response->body.len == 0) {
        return ngx_http_once_redact_headers(pool, redact, response, 0);
    }

    if (!ngx_http_once_is_searchable(response)) {
        response->body_omitted = 1;
        response->body.len = 0;

        return ngx_http_once_redact_headers(pool, redact, response, 0);
    }

    if (ngx_array_init(&ranges, pool, 4, sizeof(ngx_http_once_range_t))
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    p = response->body.data;
    last = p + response->body.len;
    p = ngx_http_once_json_skip_space(p, last);
    pointer = redact->pointers.elts;

    for (i = 0; i < redact->pointers.nelts; i++) {

        if (ngx_http_once_find(&ranges, p, last, &pointer[i], 0) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    if (ranges.nelts && ngx_http_once_cut(pool, &ranges, response) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_once_redact_headers(pool, redact, response,
                                        ranges.nelts != 0);
}


/* ----------------------------------------------------------- the directive */

/* Names are separated by "/"; "~1" in one is "/", and "~0" is "~". */

static char *
ngx_http_once_read_pointer(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_once_pointer_t *pointer)
{
    u_char     *p, *to, *last;
    ngx_str_t  *name;

    p = value->data + 1;
    last = value->data + value->len;
    pointer->n = 0;

    for ( ;; ) {

        if (pointer->n == NGX_HTTP_ONCE_REDACT_DEPTH) {
            return ngx_http_once_bad(cf, value, "it has more than 16 names");
        }

        name = &pointer->name[pointer->n++];

        name->data = ngx_pnalloc(cf->pool, last - p + 1);
        if (name->data == NULL) {
            return NGX_CONF_ERROR;
        }

        for (to = name->data; p < last && *p != '/'; p++) {

            if (*p != '~') {
                *to++ = *p;
                continue;
            }

            p++;

            if (p == last || (*p != '0' && *p != '1')) {
                return ngx_http_once_bad(cf, value, "\"~\" must be followed "
                                         "by 0 or 1, as in a JSON pointer");
            }

            *to++ = *p == '0' ? '~' : '/';
        }

        name->len = to - name->data;

        if (p == last) {
            return NGX_CONF_OK;
        }

        p++;
    }
}


char *
ngx_http_once_set_redact(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_once_loc_conf_t *olcf = conf;

    ngx_str_t                *value, *name;
    ngx_uint_t                i;
    ngx_http_once_redact_t   *redact;
    ngx_http_once_pointer_t  *pointer;

    if (olcf->redact != NGX_CONF_UNSET_PTR) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (cf->args->nelts == 2 && ngx_http_once_is(&value[1], "off")) {
        olcf->redact = NULL;
        return NGX_CONF_OK;
    }

    redact = ngx_pcalloc(cf->pool, sizeof(ngx_http_once_redact_t));
    if (redact == NULL
        || ngx_array_init(&redact->headers, cf->pool, 4, sizeof(ngx_str_t))
           != NGX_OK
        || ngx_array_init(&redact->pointers, cf->pool, 4,
                          sizeof(ngx_http_once_pointer_t))
           != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    olcf->redact = redact;

    for (i = 1; i < cf->args->nelts; i++) {

        if (value[i].len && value[i].data[0] == '/') {
            pointer = ngx_array_push(&redact->pointers);
            if (pointer == NULL
                || ngx_http_once_read_pointer(cf, &value[i], pointer)
                   != NGX_CONF_OK)
            {
                return NGX_CONF_ERROR;
            }

            continue;
        }

        if (!ngx_http_once_is_token(&value[i])) {
            return ngx_http_once_bad(cf, &value[i], "it must be the name of a "
                                     "header, or a JSON pointer, such as "
                                     "/card/number");
        }

        name = ngx_array_push(&redact->headers);
        if (name == NULL) {
            return NGX_CONF_ERROR;
        }

        *name = value[i];
    }

    return NGX_CONF_OK;
}
