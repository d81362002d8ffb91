/*
 * Values of several parts: once_scope and what once_fingerprint adds. Each part
 * goes in with its length in front of it, so that where one ends and the next
 * begins is not for a client to choose: "x y" and "z" are not "x" and "y z".
 */
#include "ngx_http_once_conf.h"


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


/* What a client is told of a part that is missing: the header, where it is one; otherwise the value as it is written. */

static ngx_int_t
ngx_http_once_tell_part(ngx_conf_t *cf, ngx_str_t *value, ngx_str_t *told)
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

    told->data = ngx_pnalloc(cf->pool, sizeof("the query parameter ")
                                       + value->len);
    if (told->data == NULL) {
        return NGX_ERROR;
    }

    p = told->data;

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

    told->len = p - told->data;

    return NGX_OK;
}


/* Adds the arguments of the directive from the first on. */

static char *
ngx_http_once_add_parts(ngx_conf_t *cf, ngx_uint_t first, ngx_uint_t last,
    ngx_array_t **parts)
{
    ngx_str_t             *value;
    ngx_uint_t             i;
    ngx_http_once_part_t  *part;

    value = cf->args->elts;

    if (last - first > NGX_HTTP_ONCE_PARTS_MAX) {
        return "takes 8 values at most";
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
            || ngx_http_once_tell_part(cf, &value[i], &part->told) != NGX_OK)
        {
            return ngx_http_once_bad(cf, &value[i], "a value is not empty");
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
            return ngx_http_once_bad(cf, &value[i], "behind the first value "
                                     "of a scope there may be others with "
                                     "variables, and optional at the end");
        }
    }

    if (variables == 0) {
        return ngx_http_once_bad(cf, &value[1], "it must contain a variable "
                                 "that tells callers apart, such as "
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
            return ngx_http_once_bad(cf, &value[i], "what is added must "
                                     "contain a variable, such as "
                                     "$http_stripe_account");
        }
    }

    if (cf->args->nelts == 2) {
        return NGX_CONF_OK;
    }

    return ngx_http_once_add_parts(cf, 2, cf->args->nelts,
                                   &olcf->fingerprint_parts);
}
