/*
 * What is rejected when nginx reads its configuration, rather than found out
 * by a second payment: policies that contradict each other, and handlers that
 * cannot be guarded.
 */
#include "ngx_http_once_conf.h"


/* In all of these, the upstream configuration comes first. */
static const char *const  ngx_http_once_upstreams[] = {
    "proxy", "fastcgi", "uwsgi", "scgi", "grpc", NULL
};


char *
ngx_http_once_reject(ngx_conf_t *cf, const char *fmt, const void *arg)
{
    ngx_str_t                  text;
    u_char                     buf[NGX_MAX_CONF_ERRSTR];
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    text.data = buf;
    text.len = ngx_snprintf(buf, sizeof(buf), fmt, arg) - buf;

    ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                  "\"once on\" in location \"%V\": %V", &clcf->name, &text);

    return NGX_CONF_ERROR;
}


static ngx_module_t *
ngx_http_once_find_module(ngx_conf_t *cf, const char *name)
{
    u_char         full[64];
    ngx_uint_t     i;
    ngx_module_t  *module;

    ngx_snprintf(full, sizeof(full), "ngx_http_%s_module%Z", name);

    for (i = 0; cf->cycle->modules[i]; i++) {
        module = cf->cycle->modules[i];

        if (module->type == NGX_HTTP_MODULE
            && ngx_strcmp(module->name, (char *) full) == 0)
        {
            return module;
        }
    }

    return NULL;
}


/*
 * The configuration of another module is private to it. That it begins with an
 * upstream configuration is verified by the module's name in it.
 */

static ngx_http_upstream_conf_t *
ngx_http_once_upstream_conf(ngx_conf_t *cf, const char *name)
{
    ngx_module_t              *module;
    ngx_http_conf_ctx_t       *ctx;
    ngx_http_upstream_conf_t  *ucf;

    module = ngx_http_once_find_module(cf, name);
    if (module == NULL) {
        return NULL;
    }

    ctx = cf->ctx;
    ucf = ctx->loc_conf[module->ctx_index];

    if (ucf == NULL || !ngx_http_once_is(&ucf->module, name)) {
        return NULL;
    }

    return ucf;
}


/*
 * The rewrite module executes `return` before any of our phases. Its
 * configuration begins with the code that it runs: this finds a `return` that
 * comes first, without a condition.
 */

ngx_uint_t
ngx_http_once_check_returns(ngx_conf_t *cf)
{
    ngx_array_t              **codes;
    ngx_module_t              *module;
    ngx_http_conf_ctx_t       *ctx;
    ngx_http_script_code_pt    code;

    module = ngx_http_once_find_module(cf, "rewrite");
    if (module == NULL) {
        return 0;
    }

    ctx = cf->ctx;
    codes = ctx->loc_conf[module->ctx_index];

    if (codes == NULL || *codes == NULL || (*codes)->size != 1
        || (*codes)->nelts < sizeof(ngx_http_script_return_code_t))
    {
        return 0;
    }

    ngx_memcpy(&code, (*codes)->elts, sizeof(code));

    return code == ngx_http_script_return_code;
}


/* Under these policies a second effect is never acceptable. */

static char *
ngx_http_once_check_strict(ngx_conf_t *cf, ngx_http_once_loc_conf_t *conf)
{
    once_recover_t  recover;

    recover = once_policy_recover(conf->policy);

    if (recover == ONCE_RECOVER_RETRY) {
        return NGX_CONF_OK;
    }

    if (conf->pass_on_error) {
        return ngx_http_once_reject(cf, "\"once_recover %s\" and "
               "\"once_on_store_error pass\" contradict each other: requests "
               "that pass unguarded may take effect twice; write "
               "\"once_on_store_error fail\"", once_recover_name(recover));
    }

    if (conf->fingerprint == ONCE_BODY_MODE_NONE) {
        return ngx_http_once_reject(cf, "\"once_recover %s\" and "
               "\"once_fingerprint none\" contradict each other: a different "
               "request with the same key would be taken for a retry; write "
               "\"once_fingerprint exact\"", once_recover_name(recover));
    }

    if (ngx_http_once_store_relaxed(&conf->store_url)) {
        return ngx_http_once_reject(cf, "\"once_recover %s\" and a store with "
               "\"durability=claims-relaxed\" contradict each other: a power "
               "failure may lose a claim; use durability=full",
               once_recover_name(recover));
    }

    if (ngx_strncmp(conf->store_url.data, "memory:", 7) == 0) {
        return ngx_http_once_reject(cf, "\"once_recover %s\" and the store "
               "\"memory:\" contradict each other: a reload forgets what is "
               "running; use a store that persists, for example "
               "\"once_store local:/var/lib/once\"",
               once_recover_name(recover));
    }

    if (recover == ONCE_RECOVER_TRANSACTIONAL
        && ngx_strncmp(conf->store_url.data, "postgres", 8) != 0)
    {
        return ngx_http_once_reject(cf, "\"once_recover %s\" needs a store "
               "that the backend's own transaction can reach: use "
               "\"postgres://\", or write \"once_recover hold\"",
               once_recover_name(recover));
    }

    if (recover == ONCE_RECOVER_TRANSACTIONAL
        && ngx_http_once_store_reads_sealed_only(&conf->store_url))
    {
        return ngx_http_once_reject(cf, "\"once_recover %s\" and a store with "
               "\"encrypt\" contradict each other: what a backend records by "
               "SQL is not encrypted, and would not be replayed; add "
               "encrypt_require=off to the URL, or remove encrypt",
               once_recover_name(recover));
    }

    return NGX_CONF_OK;
}


char *
ngx_http_once_check(ngx_conf_t *cf, ngx_http_once_loc_conf_t *conf)
{
    ngx_uint_t                 i;
    const char                *name;
    ngx_http_core_loc_conf_t  *clcf;
    ngx_http_upstream_conf_t  *ucf;

    if (ngx_http_once_check_strict(cf, conf) != NGX_CONF_OK) {
        return NGX_CONF_ERROR;
    }

    if (once_policy_release_ttl_ms(conf->policy)
        < 2 * once_policy_lease_ms(conf->policy))
    {
        return ngx_http_once_reject(cf, "\"once_release_ttl\" must be at least "
               "twice \"once_lease\": a late copy of a claim would be taken "
               "for a new one", NULL);
    }

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (clcf->send_timeout <= conf->store_timeout) {
        return ngx_http_once_reject(cf, "\"send_timeout\" must be longer than "
               "\"once_store_timeout\": nginx would disconnect a client while "
               "its response is being recorded", NULL);
    }

    for (i = 0; ngx_http_once_upstreams[i]; i++) {

        name = ngx_http_once_upstreams[i];
        ucf = ngx_http_once_upstream_conf(cf, name);

        if (ucf == NULL) {
            continue;
        }

        if (ucf->upstream && ngx_strcmp(name, "grpc") == 0) {
            return ngx_http_once_reject(cf, "\"grpc_pass\" cannot be guarded: "
                   "the status of a call follows its response; write "
                   "\"once off\" in this location", NULL);
        }

        if (ucf->next_upstream & NGX_HTTP_UPSTREAM_FT_NON_IDEMPOTENT) {
            return ngx_http_once_reject(cf, "\"%s_next_upstream\" with "
                   "\"non_idempotent\" would send a request twice: remove "
                   "non_idempotent", name);
        }
    }

    return NGX_CONF_OK;
}
