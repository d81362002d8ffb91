/*
 * The module: what nginx calls, and when.
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
        || (omcf->has_quota && ngx_http_once_quota_init(cf, omcf) != NGX_OK)
        || (omcf->has_unknown
            && ngx_http_once_unknown_init(cf, omcf) != NGX_OK))
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
 * its workers. Otherwise the workers of a killed master would run for ever and
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

    return ngx_http_once_stores_open(cycle);
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
    ngx_http_once_metrics_leave();
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
