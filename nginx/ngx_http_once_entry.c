/*
 * Requests that were refused before the store was asked, and that an error
 * page redirects: `error_page 401 = @login`. A named location keeps the method
 * and may be guarded, mostly because its server has `once on`. Such a request
 * is neither asked, replayed nor recorded, there and wherever it goes from
 * there: no access check has let it pass.
 *
 * nginx does not remember this: r->error_page is not set if
 * recursive_error_pages is on, r->err_status is not if the page has `=`.
 * Therefore the module notes how far a request came in the previous location,
 * its progress, and the configuration says which statuses lead to the present
 * one. A request that another module or `return 418` redirects is on its way,
 * and not refused.
 */
#include "ngx_http_once_conf.h"
#include "ngx_http_once_request.h"


/* A named location that error pages redirect to. */
typedef struct {
    ngx_str_t                    name;         /* "": any, it has variables */
    ngx_uint_t                   refuses;      /* its status is a refusal */
} ngx_http_once_page_t;


/* Of a main request, in a cleanup of its pool. */
typedef struct {
    unsigned                     entered:1;    /* preaccess, of its location */
    unsigned                     passed:1;     /* its access phase */
    unsigned                     refused:1;
} ngx_http_once_progress_t;


/* ----------------------------------------------------------- configuration */

/*
 * Statuses with which nginx, other modules, or `return` in the rewrite phase
 * refuse a request before preaccess. There, every other status is used to go
 * to a named location.
 */

static ngx_uint_t
ngx_http_once_is_refusal(ngx_int_t status)
{
    switch (status) {

    case NGX_HTTP_BAD_REQUEST:
    case NGX_HTTP_UNAUTHORIZED:
    case NGX_HTTP_FORBIDDEN:
    case 407:                              /* proxy authentication required */
    case NGX_HTTP_REQUEST_TIME_OUT:
    case NGX_HTTP_LENGTH_REQUIRED:
    case NGX_HTTP_REQUEST_ENTITY_TOO_LARGE:
    case NGX_HTTP_REQUEST_URI_TOO_LARGE:
    case NGX_HTTP_MISDIRECTED_REQUEST:
    case NGX_HTTP_TOO_MANY_REQUESTS:
    case 431:                              /* request header fields too large */
    case 451:                              /* unavailable for legal reasons */
    case NGX_HTTP_REQUEST_HEADER_TOO_LARGE:
    case NGX_HTTPS_CERT_ERROR:
    case NGX_HTTPS_NO_CERT:
    case NGX_HTTP_TO_HTTPS:
    case NGX_HTTP_INTERNAL_SERVER_ERROR:
    case NGX_HTTP_NOT_IMPLEMENTED:
    case NGX_HTTP_SERVICE_UNAVAILABLE:
        return 1;

    default:
        return 0;
    }
}


static ngx_http_once_page_t *
ngx_http_once_add_page(ngx_conf_t *cf, ngx_http_once_srv_conf_t *oscf,
    ngx_str_t *name)
{
    ngx_uint_t             i;
    ngx_http_once_page_t  *page;

    if (oscf->pages == NULL) {
        oscf->pages = ngx_array_create(cf->pool, 4,
                                       sizeof(ngx_http_once_page_t));
        if (oscf->pages == NULL) {
            return NULL;
        }
    }

    page = oscf->pages->elts;

    for (i = 0; i < oscf->pages->nelts; i++) {

        if (page[i].name.len == name->len
            && ngx_memcmp(page[i].name.data, name->data, name->len) == 0)
        {
            return &page[i];
        }
    }

    page = ngx_array_push(oscf->pages);
    if (page == NULL) {
        return NULL;
    }

    page->name = *name;
    page->refuses = 0;

    return page;
}


ngx_int_t
ngx_http_once_entry_add_pages(ngx_conf_t *cf)
{
    ngx_str_t                  name;
    ngx_uint_t                 i;
    ngx_http_err_page_t       *err;
    ngx_http_once_page_t      *page;
    ngx_http_core_loc_conf_t  *clcf;
    ngx_http_once_srv_conf_t  *oscf;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    oscf = ngx_http_conf_get_module_srv_conf(cf, ngx_http_once_module);

    if (clcf->error_pages == NULL) {
        return NGX_OK;
    }

    err = clcf->error_pages->elts;

    for (i = 0; i < clcf->error_pages->nelts; i++) {

        ngx_str_set(&name, "");

        if (err[i].value.lengths == NULL) {
            name = err[i].value.value;

            if (name.len == 0 || name.data[0] != '@') {
                /* turned into a GET, which is never guarded */
                continue;
            }
        }

        page = ngx_http_once_add_page(cf, oscf, &name);
        if (page == NULL) {
            return NGX_ERROR;
        }

        page->refuses |= ngx_http_once_is_refusal(err[i].status);
    }

    return NGX_OK;
}


/* ------------------------------------------------------------ the progress */

static void
ngx_http_once_progress_cleanup(void *data)
{
}


static ngx_http_once_progress_t *
ngx_http_once_progress(ngx_http_request_t *r)
{
    ngx_http_once_srv_conf_t  *oscf;

    oscf = ngx_http_get_module_srv_conf(r, ngx_http_once_module);

    return oscf->pages
           ? ngx_http_once_cleanup_find(r->pool, ngx_http_once_progress_cleanup)
           : NULL;
}


static ngx_http_once_progress_t *
ngx_http_once_add_progress(ngx_http_request_t *r)
{
    return ngx_http_once_cleanup_add(r->pool, ngx_http_once_progress_cleanup,
                                     sizeof(ngx_http_once_progress_t));
}


/* The first phase: for every request whose header could be read. */

ngx_int_t
ngx_http_once_entry_post_read(ngx_http_request_t *r)
{
    ngx_http_once_srv_conf_t  *oscf;

    oscf = ngx_http_get_module_srv_conf(r, ngx_http_once_module);

    if (!oscf->guarded) {
        return NGX_DECLINED;
    }

    if (ngx_http_once_headers_strip_request(r) != NGX_OK
        || (oscf->pages && ngx_http_once_add_progress(r) == NULL))
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return NGX_DECLINED;
}


static ngx_uint_t
ngx_http_once_is_page(ngx_http_request_t *r, ngx_http_once_srv_conf_t *oscf,
    ngx_uint_t entered)
{
    ngx_uint_t                 i;
    ngx_http_once_page_t      *page;
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);
    page = oscf->pages->elts;

    for (i = 0; i < oscf->pages->nelts; i++) {

        if ((page[i].name.len == 0
             || (page[i].name.len == clcf->name.len
                 && ngx_memcmp(page[i].name.data, clcf->name.data,
                               clcf->name.len) == 0))
            && (entered || page[i].refuses))
        {
            return 1;
        }
    }

    return 0;
}


/* Before the rewrite module: this is the location of the redirect. */

ngx_int_t
ngx_http_once_entry_rewrite(ngx_http_request_t *r)
{
    ngx_http_once_progress_t  *progress;
    ngx_http_core_loc_conf_t  *clcf;
    ngx_http_once_srv_conf_t  *oscf;

    oscf = ngx_http_get_module_srv_conf(r, ngx_http_once_module);

    if (!oscf->guarded || oscf->pages == NULL || r != r->main) {
        return NGX_DECLINED;
    }

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);
    progress = ngx_http_once_progress(r);

    if (progress == NULL) {
        /* its header could not be read to the end */

        progress = ngx_http_once_add_progress(r);
        if (progress == NULL) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        progress->refused = 1;
    }

    if (clcf->named && !progress->passed
        && ngx_http_once_is_page(r, oscf, progress->entered))
    {
        progress->refused = 1;
    }

    progress->entered = 0;
    progress->passed = 0;

    return NGX_DECLINED;
}


ngx_int_t
ngx_http_once_entry_preaccess(ngx_http_request_t *r)
{
    ngx_http_once_progress_t  *progress;

    progress = (r == r->main) ? ngx_http_once_progress(r) : NULL;

    if (progress) {
        progress->entered = 1;
    }

    return NGX_DECLINED;
}


void
ngx_http_once_entry_passed_access(ngx_http_request_t *r)
{
    ngx_http_once_progress_t  *progress;

    progress = ngx_http_once_progress(r);

    if (progress) {
        progress->passed = 1;
    }
}


ngx_uint_t
ngx_http_once_entry_was_refused(ngx_http_request_t *r)
{
    ngx_http_once_progress_t  *progress;

    if (r->headers_in.headers.last == NULL) {
        /* reading its header has not even begun */
        return 1;
    }

    progress = ngx_http_once_progress(r);

    return progress && progress->refused;
}
