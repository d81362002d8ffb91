/*
 * The module: what nginx calls, and when.
 *
 * Order within a phase and between filters is that of registration, reversed.
 * The module's place in nginx's list (HTTP_AUX_FILTER) makes it run ahead of
 * the rewrite module and limit_req in their phases, ahead of try_files and
 * mirror in precontent, and gives it responses before add_header, gzip and
 * chunked; `once on` moves it behind modules of that kind that were loaded later,
 * so that it gets responses before their filters do.
 */
#include "ngx_http_once_request.h"

#include <sys/prctl.h>


static ngx_int_t ngx_http_once_init(ngx_conf_t *cf);
static ngx_int_t ngx_http_once_init_module(ngx_cycle_t *cycle);
static ngx_int_t ngx_http_once_init_process(ngx_cycle_t *cycle);
static void ngx_http_once_exit_process(ngx_cycle_t *cycle);


static int  ngx_http_once_master_ends;    /* the signal that it asked for; 0: none */


static ngx_http_module_t  ngx_http_once_module_ctx = {
    ngx_http_once_add_variables,           /* preconfiguration */
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


/* Where no location uses it, the module leaves no trace in the request path. */

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
        && (ngx_http_once_credit_init(cf) != NGX_OK
            || ngx_http_once_add_phase(cf, NGX_HTTP_PREACCESS_PHASE,
                                       ngx_http_once_early_handler)
               != NGX_OK))
    {
        return NGX_ERROR;
    }

    if (ngx_http_once_add_phase(cf, NGX_HTTP_POST_READ_PHASE,
                                ngx_http_once_received)
        != NGX_OK
        || ngx_http_once_add_phase(cf, NGX_HTTP_REWRITE_PHASE,
                                   ngx_http_once_arrived)
           != NGX_OK
        || ngx_http_once_add_phase(cf, NGX_HTTP_PREACCESS_PHASE,
                                   ngx_http_once_entered)
           != NGX_OK
        || ngx_http_once_add_phase(cf, NGX_HTTP_PRECONTENT_PHASE,
                                   ngx_http_once_handler)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_http_once_body_filter_init();
    ngx_http_once_hold_filter_init();

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
 * A master that ends with whoever started it, as that of `once gate` does, has
 * workers that end with it. Otherwise workers of a master that was killed go on
 * for ever, and keep the address.
 */

static void
ngx_http_once_end_with_master(void)
{
    if (ngx_http_once_master_ends == 0 || ngx_process == NGX_PROCESS_SINGLE) {
        return;
    }

    (void) prctl(PR_SET_PDEATHSIG, SIGTERM);

    if (getppid() != ngx_parent) {
        /* it died before that could be asked for */
        ngx_terminate = 1;
    }
}


/* Helper processes (cache manager and loader) are no workers: they open nothing. */

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
