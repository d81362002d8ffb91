/*
 * The configuration of a location: created empty, filled by the directives,
 * then merged with the enclosing block. Each value that was not set is
 * inherited separately.
 */
#include "ngx_http_once_conf.h"


static ngx_int_t ngx_http_once_make_policy(ngx_conf_t *cf,
    ngx_http_once_loc_conf_t *conf);


void *
ngx_http_once_create_main_conf(ngx_conf_t *cf)
{
    ngx_http_once_main_conf_t  *conf;

    conf = ngx_pcalloc(cf->pool, sizeof(ngx_http_once_main_conf_t));
    if (conf == NULL) {
        return NULL;
    }

    conf->memory = NGX_CONF_UNSET_SIZE;
    conf->bodies = NGX_CONF_UNSET_SIZE;

    if (ngx_array_init(&conf->stores, cf->pool, 4,
                       sizeof(ngx_http_once_store_t *))
        != NGX_OK
        || ngx_array_init(&conf->routes, cf->pool, 8,
                          sizeof(ngx_http_once_route_t *))
           != NGX_OK)
    {
        return NULL;
    }

    return conf;
}


char *
ngx_http_once_init_main_conf(ngx_conf_t *cf, void *conf)
{
    ngx_http_once_main_conf_t *omcf = conf;

    ngx_conf_init_size_value(omcf->memory, 128 * 1024 * 1024);
    ngx_conf_init_size_value(omcf->bodies, 0);

    return NGX_CONF_OK;
}


void *
ngx_http_once_create_srv_conf(ngx_conf_t *cf)
{
    return ngx_pcalloc(cf->pool, sizeof(ngx_http_once_srv_conf_t));
}


void *
ngx_http_once_create_loc_conf(ngx_conf_t *cf)
{
    ngx_http_once_loc_conf_t  *conf;

    conf = ngx_pcalloc(cf->pool, sizeof(ngx_http_once_loc_conf_t));
    if (conf == NULL) {
        return NULL;
    }

    /*
     * set by ngx_pcalloc():
     *
     *     conf->enable = 0;
     *     conf->methods = 0;
     *     conf->name, store_url, secret_file, key_header, ttl, lease,
     *     recover, record, release, release_ttl, replay_header, docs =
     *     { 0, NULL };
     *     conf->store, policy, route = NULL;
     */

    conf->on = NGX_CONF_UNSET;
    conf->store_timeout = NGX_CONF_UNSET_MSEC;
    conf->require = NGX_CONF_UNSET_UINT;
    conf->key_strict = NGX_CONF_UNSET;
    conf->scope_set = NGX_CONF_UNSET;
    conf->scope_optional = NGX_CONF_UNSET;
    conf->fingerprint = NGX_CONF_UNSET_UINT;
    conf->wait = NGX_CONF_UNSET_MSEC;
    conf->wait_max = NGX_CONF_UNSET_UINT;
    conf->store_body = NGX_CONF_UNSET_SIZE;
    conf->retry_after = NGX_CONF_UNSET;
    conf->quota = NGX_CONF_UNSET_UINT;
    conf->quota_period = NGX_CONF_UNSET_MSEC;
    conf->unknown_max = NGX_CONF_UNSET_UINT;
    conf->early_lookup = NGX_CONF_UNSET;
    conf->store_no_store = NGX_CONF_UNSET;
    conf->pass_on_error = NGX_CONF_UNSET;
    conf->replay_headers = NGX_CONF_UNSET_PTR;
    conf->probe = NGX_CONF_UNSET_PTR;

    return conf;
}


/* Values of one directive are inherited together. */

static void
ngx_http_once_merge_groups(ngx_http_once_loc_conf_t *prev,
    ngx_http_once_loc_conf_t *conf)
{
    if (conf->require == NGX_CONF_UNSET_UINT) {
        conf->require = prev->require;
        conf->require_value = prev->require_value;
    }

    if (conf->key_header.data == NULL) {
        conf->key_header = prev->key_header;
        conf->key_value = prev->key_value;
        conf->key_strict = prev->key_strict;
    }

    if (conf->scope_set == NGX_CONF_UNSET) {
        conf->scope_set = prev->scope_set;
        conf->scope = prev->scope;
        conf->scope_optional = prev->scope_optional;
    }

    if (conf->fingerprint == NGX_CONF_UNSET_UINT) {
        conf->fingerprint = prev->fingerprint;
        conf->fingerprint_parts = prev->fingerprint_parts;
    }

    ngx_conf_merge_uint_value(conf->require, prev->require,
                              NGX_HTTP_ONCE_REQUIRE_ON);
    ngx_conf_merge_str_value(conf->key_header, prev->key_header,
                             "Idempotency-Key");
    ngx_conf_merge_value(conf->key_strict, prev->key_strict, 0);
    ngx_conf_merge_value(conf->scope_set, prev->scope_set, 0);
    ngx_conf_merge_value(conf->scope_optional, prev->scope_optional, 0);
}


static void
ngx_http_once_merge_values(ngx_http_once_loc_conf_t *prev,
    ngx_http_once_loc_conf_t *conf)
{
    ngx_conf_merge_value(conf->on, prev->on, 0);
    ngx_conf_merge_str_value(conf->name, prev->name, "");

    ngx_conf_merge_str_value(conf->store_url, prev->store_url, "");
    ngx_conf_merge_msec_value(conf->store_timeout, prev->store_timeout, 5000);
    ngx_conf_merge_str_value(conf->secret_file, prev->secret_file, "");

    /* without NGX_CONF_BITMASK_SET, which is NGX_HTTP_UNKNOWN as well */
    ngx_conf_merge_bitmask_value(conf->methods, prev->methods,
                                 (NGX_HTTP_POST|NGX_HTTP_PATCH));
    ngx_conf_merge_uint_value(conf->fingerprint, prev->fingerprint,
                              ONCE_BODY_MODE_EXACT);

    ngx_conf_merge_msec_value(conf->wait, prev->wait, 0);
    ngx_conf_merge_uint_value(conf->wait_max, prev->wait_max, 16);

    ngx_conf_merge_size_value(conf->store_body, prev->store_body, 1024 * 1024);
    ngx_conf_merge_value(conf->retry_after, prev->retry_after, 0);
    ngx_conf_merge_uint_value(conf->quota, prev->quota, 0);
    ngx_conf_merge_msec_value(conf->quota_period, prev->quota_period, 0);
    ngx_conf_merge_uint_value(conf->unknown_max, prev->unknown_max, 0);
    ngx_conf_merge_value(conf->early_lookup, prev->early_lookup, 0);
    ngx_conf_merge_value(conf->store_no_store, prev->store_no_store, 0);
    ngx_conf_merge_value(conf->pass_on_error, prev->pass_on_error, 0);

    ngx_conf_merge_str_value(conf->replay_header, prev->replay_header,
                             "Idempotent-Replayed");
    ngx_conf_merge_ptr_value(conf->replay_headers, prev->replay_headers, NULL);
    ngx_conf_merge_ptr_value(conf->probe, prev->probe, NULL);
}


/* The library has the defaults: what is not configured stays unset. */

static void
ngx_http_once_inherit_text(ngx_str_t *text, ngx_str_t *prev)
{
    if (text->data == NULL) {
        *text = *prev;
    }
}


/* A location whose requests are guarded, after the merge. */

static char *
ngx_http_once_enable(ngx_conf_t *cf, ngx_http_once_loc_conf_t *conf,
    ngx_str_t *name)
{
    ngx_http_once_srv_conf_t   *oscf;
    ngx_http_once_main_conf_t  *omcf;

    if (conf->store_url.len == 0) {
        return ngx_http_once_reject(cf, "\"once_store\" is missing: say "
               "where to keep records, for example "
               "\"once_store local:/var/lib/once\" in http", NULL);
    }

    if (!conf->scope_set) {
        return ngx_http_once_reject(cf, "\"once_scope\" is missing: say "
               "what distinguishes callers, for example "
               "\"once_scope $remote_user\", or \"once_scope none\" if all "
               "callers share one scope", NULL);
    }

    conf->secrets_apart = conf->secret_file.len
                          || ngx_strstr(conf->store_url.data,
                                        "secrets=file:") != NULL;

    if (ngx_http_once_make_policy(cf, conf) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    if (ngx_http_once_check(cf, conf) != NGX_CONF_OK) {
        return NGX_CONF_ERROR;
    }

    conf->store = ngx_http_once_store_add(cf, conf);
    conf->route = ngx_http_once_metrics_route(cf, conf->name.len ? &conf->name
                                                             : name);

    if (conf->store == NULL || conf->route == NULL) {
        return NGX_CONF_ERROR;
    }

    omcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_once_module);
    omcf->guarded = 1;
    omcf->early |= conf->early_lookup;
    omcf->has_quota |= conf->quota != 0;
    ngx_http_once_unknown_add(conf);
    omcf->has_unknown |= conf->unknown_max != 0;

    oscf = ngx_http_conf_get_module_srv_conf(cf, ngx_http_once_module);
    oscf->guarded = 1;

    conf->enable = 1;

    return NGX_CONF_OK;
}


char *
ngx_http_once_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child)
{
    ngx_http_once_loc_conf_t *prev = parent;
    ngx_http_once_loc_conf_t *conf = child;

    ngx_uint_t                 here;
    ngx_http_core_loc_conf_t  *clcf;

    here = conf->on != NGX_CONF_UNSET;

    ngx_http_once_merge_groups(prev, conf);
    ngx_http_once_merge_values(prev, conf);

    if (ngx_http_once_entry_add_pages(cf) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    ngx_http_once_inherit_text(&conf->ttl, &prev->ttl);
    ngx_http_once_inherit_text(&conf->lease, &prev->lease);
    ngx_http_once_inherit_text(&conf->recover, &prev->recover);
    ngx_http_once_inherit_text(&conf->record, &prev->record);
    ngx_http_once_inherit_text(&conf->release, &prev->release);
    ngx_http_once_inherit_text(&conf->release_ttl, &prev->release_ttl);
    ngx_http_once_inherit_text(&conf->docs, &prev->docs);
    ngx_http_once_inherit_text(&conf->authorize, &prev->authorize);

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    /*
     * A server block forwards nothing itself: it only passes its values on,
     * and must not be asked for a scope that its locations have. Its name is
     * NULL; that of `location ""` is empty.
     */

    if (!conf->on || clcf->name.data == NULL
        || clcf->handler == ngx_http_once_status_handler
        || clcf->handler == ngx_http_once_problem_page_handler)
    {
        return NGX_CONF_OK;
    }

    if (ngx_http_once_check_returns(cf)) {
        return here ? ngx_http_once_reject(cf, "\"return\" answers "
                      "before anything can be guarded: write \"once off\" in "
                      "this location, or proxy_pass instead of return", NULL)
                    : NGX_CONF_OK;
    }

    return ngx_http_once_enable(cf, conf, &clcf->name);
}


static void
ngx_http_once_free_policy(void *data)
{
    once_policy_free(data);
}


static ngx_int_t
ngx_http_once_make_policy(ngx_conf_t *cf, ngx_http_once_loc_conf_t *conf)
{
    ngx_uint_t           i;
    once_error_t         err;
    ngx_pool_cleanup_t  *cln;

    struct {
        const char  *name;
        ngx_str_t   *text;
    } parts[] = {
        { "ttl", &conf->ttl },
        { "lease", &conf->lease },
        { "recover", &conf->recover },
        { "record", &conf->record },
        { "release", &conf->release },
        { "release_ttl", &conf->release_ttl }
    };

    cln = ngx_pool_cleanup_add(cf->pool, 0);
    if (cln == NULL) {
        return NGX_ERROR;
    }

    conf->policy = once_policy_new();
    if (conf->policy == NULL) {
        return NGX_ERROR;
    }

    cln->handler = ngx_http_once_free_policy;
    cln->data = conf->policy;

    for (i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {

        if (parts[i].text->data == NULL) {
            continue;
        }

        if (once_policy_set(conf->policy, parts[i].name,
                            (char *) parts[i].text->data, &err)
            != ONCE_OK)
        {
            ngx_http_once_reject(cf, "%s", err.text);
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}
