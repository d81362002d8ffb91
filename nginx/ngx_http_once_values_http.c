/*
 * Reading values of directives: which requests are guarded and how they are
 * known, and what their answers look like.
 */
#include "ngx_http_once_conf.h"


static ngx_conf_bitmask_t  ngx_http_once_methods[] = {
    { ngx_string("POST"), NGX_HTTP_POST },
    { ngx_string("PATCH"), NGX_HTTP_PATCH },
    { ngx_string("PUT"), NGX_HTTP_PUT },
    { ngx_string("DELETE"), NGX_HTTP_DELETE },
    { ngx_null_string, 0 }
};


/*
 * Filters take their places in the order of the modules, the last one on top.
 * Those of modules that are loaded behind this one would change a response
 * before it is recorded, and its replay once more. So this one becomes the last
 * ahead of the copy filter, above which bodies may still be in files. Nobody
 * goes through the list while a directive is read; it is made anew with each
 * configuration.
 */

static void
ngx_http_once_come_last(ngx_conf_t *cf)
{
    ngx_uint_t      i, own, copy;
    ngx_module_t  **modules;

    modules = cf->cycle->modules;
    own = copy = NGX_CONF_UNSET_UINT;

    for (i = 0; modules[i]; i++) {

        if (modules[i] == &ngx_http_once_module) {
            own = i;

        } else if (modules[i] == &ngx_http_copy_filter_module) {
            copy = i;
        }
    }

    if (own == NGX_CONF_UNSET_UINT || copy == NGX_CONF_UNSET_UINT) {
        return;
    }

    for (i = own; i + 1 < copy; i++) {
        modules[i] = modules[i + 1];
        modules[i + 1] = &ngx_http_once_module;
    }
}


char *
ngx_http_once_set_on(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_once_come_last(cf);

    return ngx_conf_set_flag_slot(cf, cmd, conf);
}


char *
ngx_http_once_set_methods(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_once_loc_conf_t *olcf = conf;

    ngx_str_t           *value;
    ngx_uint_t           i;
    ngx_conf_bitmask_t  *method;

    if (olcf->methods) {
        return "is duplicate";
    }

    value = cf->args->elts;

    for (i = 1; i < cf->args->nelts; i++) {

        for (method = ngx_http_once_methods; method->name.len; method++) {
            if (ngx_http_once_is(&value[i], (char *) method->name.data)) {
                break;
            }
        }

        if (method->name.len == 0) {
            return ngx_http_once_bad(cf, &value[i], "guarded can be POST, "
                                     "PATCH, PUT and DELETE; others have no "
                                     "effect that could happen twice");
        }

        olcf->methods |= method->mask;
    }

    return NGX_CONF_OK;
}


char *
ngx_http_once_set_require(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_once_loc_conf_t *olcf = conf;

    ngx_str_t  *value;

    if (olcf->require != NGX_CONF_UNSET_UINT) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (ngx_http_once_is(&value[1], "on")) {
        olcf->require = NGX_HTTP_ONCE_REQUIRE_ON;
        return NGX_CONF_OK;
    }

    if (ngx_http_once_is(&value[1], "off")) {
        olcf->require = NGX_HTTP_ONCE_REQUIRE_OFF;
        return NGX_CONF_OK;
    }

    if (ngx_http_script_variables_count(&value[1]) == 0) {
        return ngx_http_once_bad(cf, &value[1], "it must be on, off or a "
                                 "variable such as $require_key");
    }

    olcf->require = NGX_HTTP_ONCE_REQUIRE_VALUE;
    olcf->require_value = ngx_http_once_compile(cf, &value[1]);

    return olcf->require_value ? NGX_CONF_OK : NGX_CONF_ERROR;
}


char *
ngx_http_once_set_key(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_once_loc_conf_t *olcf = conf;

    ngx_str_t  *value;

    if (olcf->key_header.data) {
        return "is duplicate";
    }

    value = cf->args->elts;
    olcf->key_strict = 0;

    if (cf->args->nelts == 3) {
        if (!ngx_http_once_is(&value[2], "strict")) {
            return ngx_http_once_bad(cf, &value[2],
                                     "only strict may follow the key");
        }

        olcf->key_strict = 1;
    }

    if (ngx_http_script_variables_count(&value[1])) {
        ngx_str_set(&olcf->key_header, "");
        olcf->key_value = ngx_http_once_compile(cf, &value[1]);

        return olcf->key_value ? NGX_CONF_OK : NGX_CONF_ERROR;
    }

    if (!ngx_http_once_is_token(&value[1])) {
        return ngx_http_once_bad(cf, &value[1], "it must be the name of a "
                                 "request header such as Idempotency-Key, or "
                                 "contain a variable such as "
                                 "$once_json_id");
    }

    olcf->key_header = value[1];

    return NGX_CONF_OK;
}


char *
ngx_http_once_set_replay_headers(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_once_loc_conf_t *olcf = conf;

    ngx_str_t   *value, *name;
    ngx_uint_t   i;

    if (olcf->replay_headers != NGX_CONF_UNSET_PTR) {
        return "is duplicate";
    }

    value = cf->args->elts;
    olcf->replay_headers = NULL;

    if (cf->args->nelts == 2 && ngx_http_once_is(&value[1], "none")) {
        return NGX_CONF_OK;
    }

    olcf->replay_headers = ngx_array_create(cf->pool, cf->args->nelts - 1,
                                            sizeof(ngx_str_t));
    if (olcf->replay_headers == NULL) {
        return NGX_CONF_ERROR;
    }

    for (i = 1; i < cf->args->nelts; i++) {

        ngx_strlow(value[i].data, value[i].data, value[i].len);

        if (!ngx_http_once_is_token(&value[i])
            || ngx_http_once_is_framing(value[i].data, value[i].len))
        {
            return ngx_http_once_bad(cf, &value[i], "it must be the name of "
                                     "a response header that may be sent "
                                     "again, such as Set-Cookie; or none");
        }

        name = ngx_array_push(olcf->replay_headers);
        if (name == NULL) {
            return NGX_CONF_ERROR;
        }

        *name = value[i];
    }

    return NGX_CONF_OK;
}


char *
ngx_http_once_set_on_store_error(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_once_loc_conf_t *olcf = conf;

    ngx_str_t  *value;

    if (olcf->pass_on_error != NGX_CONF_UNSET) {
        return "is duplicate";
    }

    value = cf->args->elts;
    olcf->pass_on_error = ngx_http_once_is(&value[1], "pass");

    if (!olcf->pass_on_error && !ngx_http_once_is(&value[1], "fail")) {
        return ngx_http_once_bad(cf, &value[1], "it must be fail (answer "
                                 "503) or pass (forward unguarded)");
    }

    return NGX_CONF_OK;
}
