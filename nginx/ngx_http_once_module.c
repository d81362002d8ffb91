/*
 * The module: what nginx calls, and when; and its configuration. That of a
 * location is created empty, filled by the directives, then merged with the
 * enclosing block: each value that was not set is inherited separately.
 *
 * Handlers of a phase, and filters, run in the reverse order of registration.
 * As an HTTP_AUX_FILTER the module runs before rewrite, limit_req, try_files
 * and mirror in their phases, and it sees responses before add_header, gzip
 * and chunked do. `once on` moves it behind modules of the same kind that were
 * loaded later, so that it also sees responses before their filters do.
 */
#include "ngx_http_once_conf.h"
#include "ngx_http_once_request.h"

#include <sys/prctl.h>


static void *ngx_http_once_create_main_conf(ngx_conf_t *cf);
static char *ngx_http_once_init_main_conf(ngx_conf_t *cf, void *conf);
static void *ngx_http_once_create_srv_conf(ngx_conf_t *cf);
static char *ngx_http_once_merge_loc_conf(ngx_conf_t *cf, void *parent,
    void *child);
static ngx_int_t ngx_http_once_init(ngx_conf_t *cf);
static ngx_int_t ngx_http_once_init_module(ngx_cycle_t *cycle);
static ngx_int_t ngx_http_once_init_process(ngx_cycle_t *cycle);
static void ngx_http_once_exit_process(ngx_cycle_t *cycle);


/* The signal that the master gets when its parent dies; 0: none. */
static int  ngx_http_once_master_ends;


static ngx_http_module_t  ngx_http_once_module_ctx = {
    ngx_http_once_variables_add,           /* preconfiguration */
    ngx_http_once_init,                    /* postconfiguration */

    ngx_http_once_create_main_conf,        /* create main configuration */
    ngx_http_once_init_main_conf,          /* init main configuration */

    ngx_http_once_create_srv_conf,         /* create server configuration */
    NULL,                                  /* merge server configuration */

    ngx_http_once_create_loc_conf,         /* create location configuration */
    ngx_http_once_merge_loc_conf           /* merge location configuration */
};


ngx_module_t  ngx_http_once_module = {
    NGX_MODULE_V1,
    &ngx_http_once_module_ctx,             /* module context */
    ngx_http_once_commands,                /* module directives */
    NGX_HTTP_MODULE,                       /* module type */
    NULL,                                  /* init master */
    ngx_http_once_init_module,             /* init module */
    ngx_http_once_init_process,            /* init process */
    NULL,                                  /* init thread */
    NULL,                                  /* exit thread */
    ngx_http_once_exit_process,            /* exit process */
    NULL,                                  /* exit master */
    NGX_MODULE_V1_PADDING
};


/* ------------------------------------------------------- the configuration */

static void *
ngx_http_once_create_main_conf(ngx_conf_t *cf)
{
    ngx_http_once_main_conf_t  *conf;

    conf = ngx_pcalloc(cf->pool, sizeof(ngx_http_once_main_conf_t));
    if (conf == NULL) {
        return NULL;
    }

    conf->memory = NGX_CONF_UNSET_SIZE;
    conf->bodies = NGX_CONF_UNSET_SIZE;
    conf->stats = NGX_CONF_UNSET_MSEC;

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


static char *
ngx_http_once_init_main_conf(ngx_conf_t *cf, void *conf)
{
    ngx_http_once_main_conf_t *omcf = conf;

    ngx_conf_init_size_value(omcf->memory, 128 * 1024 * 1024);
    ngx_conf_init_size_value(omcf->bodies, 0);
    ngx_conf_init_msec_value(omcf->stats, 30000);

    return NGX_CONF_OK;
}


static void *
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
     *     conf->describe_value = NULL;
     *     conf->name, store_url, secret_file, key_header, ttl, lease,
     *     recover, record, release, release_ttl, replay_header,
     *     expires_header, echo_key, docs = { 0, NULL };
     *     conf->errors = { 0, { 0, NULL }, { 0, NULL } }, ...;
     *     conf->store, policy, route, written, outer, profile = NULL;
     */

    conf->on = NGX_CONF_UNSET;
    conf->store_timeout = NGX_CONF_UNSET_MSEC;
    conf->require = NGX_CONF_UNSET_UINT;
    conf->key_strict = NGX_CONF_UNSET;
    conf->scope_set = NGX_CONF_UNSET;
    conf->scope_optional = NGX_CONF_UNSET;
    conf->scope_path = NGX_CONF_UNSET;
    conf->key_format = NGX_CONF_UNSET_UINT;
    conf->error_body = NGX_CONF_UNSET_PTR;
    conf->describe = NGX_CONF_UNSET_UINT;
    conf->subject = NGX_CONF_UNSET_PTR;
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
    conf->redact = NGX_CONF_UNSET_PTR;
    conf->mcp = NGX_CONF_UNSET_PTR;
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
        conf->key_sources = prev->key_sources;
        conf->key_pointers = prev->key_pointers;
        conf->key_derived = prev->key_derived;
        conf->key_strict = prev->key_strict;
    }

    if (conf->key_format == NGX_CONF_UNSET_UINT) {
        conf->key_format = prev->key_format;
        conf->key_min = prev->key_min;
    }

    if (conf->error_body == NGX_CONF_UNSET_PTR) {
        conf->error_body = prev->error_body;
        conf->error_type = prev->error_type;
    }

    if (conf->error_header.data == NULL) {
        conf->error_header = prev->error_header;
        conf->error_header_value = prev->error_header_value;
    }

    if (conf->scope_set == NGX_CONF_UNSET) {
        conf->scope_set = prev->scope_set;
        conf->scope = prev->scope;
        conf->scope_optional = prev->scope_optional;
    }

    if (conf->describe == NGX_CONF_UNSET_UINT) {
        conf->describe = prev->describe;
        conf->describe_value = prev->describe_value;
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
    ngx_conf_merge_uint_value(conf->describe, prev->describe,
                              NGX_HTTP_ONCE_DESCRIBE_PATH);
    ngx_conf_merge_uint_value(conf->key_format, prev->key_format,
                              NGX_HTTP_ONCE_KEY_ANY);
    ngx_conf_merge_ptr_value(conf->error_body, prev->error_body, NULL);
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
    ngx_conf_merge_value(conf->scope_path, prev->scope_path, 0);

    ngx_conf_merge_str_value(conf->replay_header, prev->replay_header,
                             "Idempotent-Replayed");
    ngx_conf_merge_str_value(conf->expires_header, prev->expires_header,
                             "Idempotency-Expires");
    ngx_conf_merge_str_value(conf->echo_key, prev->echo_key, "");
    ngx_conf_merge_ptr_value(conf->replay_headers, prev->replay_headers, NULL);
    ngx_conf_merge_ptr_value(conf->redact, prev->redact, NULL);
    ngx_conf_merge_ptr_value(conf->mcp, prev->mcp, NULL);
    ngx_conf_merge_ptr_value(conf->probe, prev->probe, NULL);
    ngx_conf_merge_ptr_value(conf->subject, prev->subject, NULL);
}


/* The library has the defaults: what is not configured stays unset. */

static void
ngx_http_once_inherit_text(ngx_str_t *text, ngx_str_t *prev)
{
    if (text->data == NULL) {
        *text = *prev;
    }
}


static void
ngx_http_once_inherit_errors(ngx_http_once_loc_conf_t *prev,
    ngx_http_once_loc_conf_t *conf)
{
    ngx_uint_t  i;

    for (i = 0; i < NGX_HTTP_ONCE_PROBLEMS; i++) {

        if (conf->errors[i].status == 0) {
            conf->errors[i].status = prev->errors[i].status;
        }

        ngx_http_once_inherit_text(&conf->errors[i].code,
                                   &prev->errors[i].code);
        ngx_http_once_inherit_text(&conf->errors[i].type,
                                   &prev->errors[i].type);
    }
}


void
ngx_http_once_inherit(ngx_http_once_loc_conf_t *prev,
    ngx_http_once_loc_conf_t *conf)
{
    ngx_http_once_merge_groups(prev, conf);
    ngx_http_once_merge_values(prev, conf);
    ngx_http_once_inherit_errors(prev, conf);

    ngx_http_once_inherit_text(&conf->ttl, &prev->ttl);
    ngx_http_once_inherit_text(&conf->lease, &prev->lease);
    ngx_http_once_inherit_text(&conf->recover, &prev->recover);
    ngx_http_once_inherit_text(&conf->record, &prev->record);
    ngx_http_once_inherit_text(&conf->release, &prev->release);
    ngx_http_once_inherit_text(&conf->release_ttl, &prev->release_ttl);
    ngx_http_once_inherit_text(&conf->docs, &prev->docs);
    ngx_http_once_inherit_text(&conf->authorize, &prev->authorize);
}


/* A location may have another profile than the blocks around it. */

static ngx_int_t
ngx_http_once_merge(ngx_conf_t *cf, ngx_http_once_loc_conf_t *prev,
    ngx_http_once_loc_conf_t *conf)
{
    conf->written = ngx_palloc(cf->pool, sizeof(ngx_http_once_loc_conf_t));
    if (conf->written == NULL) {
        return NGX_ERROR;
    }

    *conf->written = *conf;
    conf->written->outer = prev->written ? prev->written : prev;

    if (ngx_http_once_mcp_defaults(cf, conf) != NGX_OK) {
        return NGX_ERROR;
    }

    if (conf->profile == NULL) {
        conf->profile = prev->profile;
    }

    if (conf->profile) {
        return ngx_http_once_profile_merge(cf, conf);
    }

    ngx_http_once_inherit(prev, conf);

    return NGX_OK;
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
    ngx_http_once_admit_unknown_add(conf);
    omcf->has_unknown |= conf->unknown_max != 0;

    oscf = ngx_http_conf_get_module_srv_conf(cf, ngx_http_once_module);
    oscf->guarded = 1;

    conf->enable = 1;

    return NGX_CONF_OK;
}


static char *
ngx_http_once_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child)
{
    ngx_http_once_loc_conf_t *prev = parent;
    ngx_http_once_loc_conf_t *conf = child;

    ngx_uint_t                 here;
    ngx_http_core_loc_conf_t  *clcf;

    here = conf->on != NGX_CONF_UNSET;

    if (ngx_http_once_merge(cf, prev, conf) != NGX_OK
        || ngx_http_once_entry_add_pages(cf) != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    /*
     * A server block forwards nothing itself: it only passes its values on,
     * and must not be asked for a scope that its locations have. Its name is
     * NULL; that of `location ""` is empty.
     */

    if (!conf->on || clcf->name.data == NULL
        || clcf->handler == ngx_http_once_status_handler
        || clcf->handler == ngx_http_once_ready_handler
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


/* ------------------------------------------------------ phases and filters */

static ngx_int_t
ngx_http_once_add_phase(ngx_conf_t *cf, ngx_uint_t phase,
    ngx_http_handler_pt handler)
{
    ngx_http_handler_pt        *h;
    ngx_http_core_main_conf_t  *cmcf;

    cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);

    h = ngx_array_push(&cmcf->phases[phase].handlers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    *h = handler;

    return NGX_OK;
}


ngx_shm_zone_t *
ngx_http_once_add_zone(ngx_conf_t *cf, ngx_str_t *name, size_t size,
    ngx_shm_zone_init_pt init)
{
    ngx_shm_zone_t  *zone;

    zone = ngx_shared_memory_add(cf, name, size, &ngx_http_once_module);

    if (zone) {
        zone->init = init;
        zone->data = ngx_http_conf_get_module_main_conf(cf,
                                                        ngx_http_once_module);
    }

    return zone;
}


/* If no location uses it, the module costs requests nothing. */

static ngx_int_t
ngx_http_once_init(ngx_conf_t *cf)
{
    ngx_http_once_main_conf_t  *omcf;

    omcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_once_module);

    if (!omcf->guarded) {
        return omcf->status ? ngx_http_once_metrics_init(cf) : NGX_OK;
    }

    if (ngx_http_once_metrics_init(cf) != NGX_OK
        || ngx_http_once_admit_init(cf, omcf) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (omcf->early
        && (ngx_http_once_early_init(cf) != NGX_OK
            || ngx_http_once_add_phase(cf, NGX_HTTP_PREACCESS_PHASE,
                                       ngx_http_once_early_handler)
               != NGX_OK))
    {
        return NGX_ERROR;
    }

    if (ngx_http_once_add_phase(cf, NGX_HTTP_POST_READ_PHASE,
                                ngx_http_once_entry_post_read)
        != NGX_OK
        || ngx_http_once_add_phase(cf, NGX_HTTP_REWRITE_PHASE,
                                   ngx_http_once_entry_rewrite)
           != NGX_OK
        || ngx_http_once_add_phase(cf, NGX_HTTP_PREACCESS_PHASE,
                                   ngx_http_once_entry_preaccess)
           != NGX_OK
        || ngx_http_once_add_phase(cf, NGX_HTTP_PRECONTENT_PHASE,
                                   ngx_http_once_handler)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_http_once_body_init();
    ngx_http_once_buffer_init();

    return NGX_OK;
}


/*
 * Filters are called in the reverse order of the modules. Those of modules
 * loaded after this one would change a response before it is recorded, and
 * its replay a second time. Therefore this one moves to the end, just before
 * the copy filter, above which bodies may still be in files. The list is not
 * in use while a directive is read, and each configuration makes a new one.
 */

static void
ngx_http_once_move_last(ngx_conf_t *cf)
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
    ngx_http_once_move_last(cf);

    return ngx_conf_set_flag_slot(cf, cmd, conf);
}


/* --------------------------------------------------------------- processes */

static ngx_http_once_main_conf_t *
ngx_http_once_main_conf(ngx_cycle_t *cycle)
{
    ngx_http_once_main_conf_t  *omcf;

    omcf = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_once_module);

    return (omcf && omcf->guarded) ? omcf : NULL;
}


static ngx_int_t
ngx_http_once_init_module(ngx_cycle_t *cycle)
{
    if (prctl(PR_GET_PDEATHSIG, &ngx_http_once_master_ends) != 0) {
        ngx_http_once_master_ends = 0;
    }

    if (ngx_http_once_main_conf(cycle) == NULL) {
        return NGX_OK;
    }

    return ngx_http_once_stores_prepare(cycle);
}


/*
 * If the master dies with its parent, as that of `once gate` does, then so do
 * its workers. Otherwise the workers of a killed master would run forever and
 * keep its address.
 */

static void
ngx_http_once_end_with_master(void)
{
    if (ngx_http_once_master_ends == 0 || ngx_process == NGX_PROCESS_SINGLE) {
        return;
    }

    (void) prctl(PR_SET_PDEATHSIG, SIGTERM);

    if (getppid() != ngx_parent) {
        /* it died before the signal was set */
        ngx_terminate = 1;
    }
}


/* Helper processes (cache manager and loader) open no stores. */

static ngx_int_t
ngx_http_once_init_process(ngx_cycle_t *cycle)
{
    ngx_http_once_end_with_master();

    if (ngx_process != NGX_PROCESS_WORKER && ngx_process != NGX_PROCESS_SINGLE)
    {
        return NGX_OK;
    }

    if (ngx_http_once_main_conf(cycle) == NULL) {
        return NGX_OK;
    }

    ngx_http_once_metrics_join(cycle);

    if (ngx_http_once_stores_open(cycle) != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_http_once_watch_start(cycle);

    return NGX_OK;
}


static void
ngx_http_once_exit_process(ngx_cycle_t *cycle)
{
    if (ngx_process != NGX_PROCESS_WORKER && ngx_process != NGX_PROCESS_SINGLE)
    {
        return;
    }

    if (ngx_http_once_main_conf(cycle) == NULL) {
        return;
    }

    ngx_http_once_stores_close(cycle);
    ngx_http_once_watch_stop(cycle);
    ngx_http_once_metrics_leave();
}
