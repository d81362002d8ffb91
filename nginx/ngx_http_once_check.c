/*
 * What is rejected when nginx reads its configuration, rather than found out
 * by a second payment: URLs of stores that cannot be used, policies that
 * contradict each other, and handlers that cannot be guarded.
 */
#include "ngx_http_once_conf.h"

#include <once/local.h>

#include <sys/prctl.h>


/* In all of these, the upstream configuration comes first. */
static const char *const  ngx_http_once_upstreams[] = {
    "proxy", "fastcgi", "uwsgi", "scgi", "grpc", NULL
};


/* --------------------------------------------------------------- store URLs */

/*
 * The URL of a store is checked without opening it: workers would inherit the
 * threads and locks of a store that the master had opened.
 */

static ngx_uint_t
ngx_http_once_has_option(ngx_str_t *url, const char *name)
{
    return once_store_option((char *) url->data, name, NULL, 0) == ONCE_OK;
}


static ngx_uint_t
ngx_http_once_option_is(ngx_str_t *url, const char *name, const char *word)
{
    char  value[64];

    return once_store_option((char *) url->data, name, value, sizeof(value))
           == ONCE_OK
           && ngx_strcmp(value, word) == 0;
}


/*
 * Options that have a directive of their own, or that nginx decides: callbacks
 * must run in its event loop, and claims must be renewed.
 */

static char *
ngx_http_once_check_reserved(ngx_conf_t *cf, ngx_str_t *url)
{
    ngx_uint_t  i;

    static const char *const  directives[] = {
        "ttl", "lease", "recover", "record", "release", "release_ttl",
        "store_timeout", NULL
    };

    static const char *const  decided[] = { "thread", "renew", NULL };

    for (i = 0; directives[i]; i++) {
        if (ngx_http_once_has_option(url, directives[i])) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "\"%s\" in \"once_store\": write \"once_%s\" "
                               "instead", directives[i], directives[i]);
            return NGX_CONF_ERROR;
        }
    }

    for (i = 0; decided[i]; i++) {
        if (ngx_http_once_has_option(url, decided[i])) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "\"%s\" in \"once_store\" is not for nginx: "
                               "remove it", decided[i]);
            return NGX_CONF_ERROR;
        }
    }

    return NGX_CONF_OK;
}


/* `local:data` is relative to nginx's prefix. */

static ngx_int_t
ngx_http_once_absolute(ngx_conf_t *cf, ngx_str_t *url)
{
    u_char     *p;
    size_t      skip, escape;
    ngx_str_t   prefix, full;

    skip = sizeof("local:") - 1;

    if (url->len > skip && url->data[skip] == '/') {
        return NGX_OK;
    }

    prefix = cf->cycle->prefix;
    escape = ngx_escape_uri(NULL, prefix.data, prefix.len, NGX_ESCAPE_URI);

    full.len = skip + prefix.len + 2 * escape + url->len - skip;
    full.data = ngx_pnalloc(cf->pool, full.len + 1);
    if (full.data == NULL) {
        return NGX_ERROR;
    }

    p = ngx_cpymem(full.data, "local:", skip);
    p = (u_char *) ngx_escape_uri(p, prefix.data, prefix.len, NGX_ESCAPE_URI);
    p = ngx_cpymem(p, url->data + skip, url->len - skip);
    *p = '\0';

    *url = full;

    return NGX_OK;
}


/*
 * The directory belongs to the workers: a master of root checks it as their
 * user. If `user` does not precede the store, that user is not known yet:
 * ONCE_E_NOT_FOUND.
 */

static int
ngx_http_once_check_as_worker(ngx_conf_t *cf, ngx_str_t *url,
    once_error_t *err)
{
    int               code, ends;
    pid_t             parent;
    ngx_core_conf_t  *ccf;

    ccf = (ngx_core_conf_t *) ngx_get_conf(cf->cycle->conf_ctx,
                                           ngx_core_module);

    if (geteuid() != 0 || ccf->user == 0) {
        return once_local_exists((char *) url->data, err);
    }

    if (ccf->user == (ngx_uid_t) NGX_CONF_UNSET_UINT) {
        return ONCE_E_NOT_FOUND;
    }

    /* changing the user clears the signal for the parent's death */

    parent = getppid();
    ends = 0;
    (void) prctl(PR_GET_PDEATHSIG, &ends);

    if (setegid(ccf->group) == -1 || seteuid(ccf->user) == -1) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                           "seteuid(%d) failed", ccf->user);
        code = ONCE_E_IO;

    } else {
        code = once_local_exists((char *) url->data, err);
    }

    if (seteuid(0) == -1 || setegid(getgid()) == -1) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno, "seteuid(0) failed");
        return ONCE_E_CONFIG;
    }

    if (ends) {
        (void) prctl(PR_SET_PDEATHSIG, ends);

        if (getppid() != parent) {
            (void) raise(ends);
        }
    }

    return code;
}


/* A directory that is missing, locked or damaged is reported by the workers. */

char *
ngx_http_once_check_store(ngx_conf_t *cf, ngx_str_t *url)
{
    int           code;
    once_error_t  err;

    ngx_memzero(&err, sizeof(err));

    if (ngx_http_once_check_reserved(cf, url) != NGX_CONF_OK) {
        return NGX_CONF_ERROR;
    }

    code = ONCE_OK;

    if (url->len > 6 && ngx_strncmp(url->data, "local:", 6) == 0) {

        if (ngx_http_once_absolute(cf, url) != NGX_OK) {
            return NGX_CONF_ERROR;
        }

        code = ngx_http_once_check_as_worker(cf, url, &err);
    }

    if (code != ONCE_E_CONFIG && code != ONCE_E_UNSUPPORTED) {
        code = once_store_check((char *) url->data, &err);
    }

    if (code == ONCE_OK) {
        return NGX_CONF_OK;
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "\"once_store\" cannot be used: %s",
                       err.text[0] ? err.text : once_error_text(code));

    return NGX_CONF_ERROR;
}


/* ----------------------------------------------------------- the location */

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

    if (ngx_http_once_option_is(&conf->store_url, "durability",
                                "claims-relaxed"))
    {
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
        && ngx_http_once_has_option(&conf->store_url, "encrypt")
        && !ngx_http_once_option_is(&conf->store_url, "encrypt", "off")
        && !ngx_http_once_option_is(&conf->store_url, "encrypt_require", "off"))
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

    if (conf->key_derived && conf->fingerprint == ONCE_BODY_MODE_NONE) {
        return ngx_http_once_reject(cf, "\"once_key\" with \"derive=\" and "
               "\"once_fingerprint none\" contradict each other: all requests "
               "to a path would have one key; write \"once_fingerprint "
               "exact\" or json", NULL);
    }

    if (conf->key_derived && (conf->scope == NULL || conf->scope_optional)) {
        return ngx_http_once_reject(cf, "\"once_key\" with \"derive=\" needs "
               "a \"once_scope\" that every caller has: the same request of "
               "two callers would be one operation", NULL);
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
