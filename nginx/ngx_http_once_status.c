/*
 * once_status: the counters as Prometheus text, or as JSON for those who ask
 * for it. Shows nothing of keys or scopes.
 */
#include "ngx_http_once_metrics.h"


/* Both formats: a route takes at most this, with every number at its longest. */
#define NGX_HTTP_ONCE_ROUTE_TEXT  24576
#define NGX_HTTP_ONCE_STORE_TEXT  512      /* beside its name */


static ngx_uint_t
ngx_http_once_wants_json(ngx_http_request_t *r)
{
    ngx_uint_t        i;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *h;

    part = &r->headers_in.headers.part;
    h = part->elts;

    for (i = 0; /* void */ ; i++) {

        if (i >= part->nelts) {
            if (part->next == NULL) {
                return 0;
            }

            part = part->next;
            h = part->elts;
            i = 0;
        }

        if (h[i].key.len == 6
            && ngx_strncasecmp(h[i].key.data, (u_char *) "Accept", 6) == 0
            && ngx_strlcasestrn(h[i].value.data,
                                h[i].value.data + h[i].value.len,
                                (u_char *) "application/json",
                                sizeof("application/json") - 2))
        {
            return 1;
        }
    }
}


ngx_int_t
ngx_http_once_status_handler(ngx_http_request_t *r)
{
    size_t                      size;
    ngx_int_t                   rc;
    ngx_buf_t                  *b;
    ngx_uint_t                  i, json;
    ngx_chain_t                 out;
    ngx_http_once_table_t      *table;
    ngx_http_once_store_t     **stores;
    ngx_http_once_main_conf_t  *omcf;

    if (!(r->method & (NGX_HTTP_GET|NGX_HTTP_HEAD))) {
        return NGX_HTTP_NOT_ALLOWED;
    }

    rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK) {
        return rc;
    }

    omcf = ngx_http_get_module_main_conf(r, ngx_http_once_module);
    table = ngx_http_once_table(omcf);

    if (table == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    json = ngx_http_once_wants_json(r);
    size = 4096 + table->used * NGX_HTTP_ONCE_ROUTE_TEXT
           + omcf->stores.nelts * NGX_HTTP_ONCE_STORE_TEXT;

    stores = omcf->stores.elts;

    for (i = 0; i < omcf->stores.nelts; i++) {
        size += 8 * stores[i]->name.len;
    }

    b = ngx_create_temp_buf(r->pool, size);
    if (b == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    b->last = json ? ngx_http_once_print_json(b->last, b->end, omcf, table)
                   : ngx_http_once_print_text(b->last, b->end, omcf, table);
    b->last_buf = (r == r->main) ? 1 : 0;
    b->last_in_chain = 1;

    r->headers_out.status = NGX_HTTP_OK;
    r->headers_out.content_length_n = b->last - b->pos;

    if (json) {
        ngx_str_set(&r->headers_out.content_type, "application/json");
    } else {
        ngx_str_set(&r->headers_out.content_type,
                    "text/plain; version=0.0.4; charset=utf-8");
    }

    r->headers_out.content_type_len = r->headers_out.content_type.len;

    rc = ngx_http_send_header(r);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    out.buf = b;
    out.next = NULL;

    return ngx_http_output_filter(r, &out);
}


char *
ngx_http_once_status(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_core_loc_conf_t   *clcf;
    ngx_http_once_main_conf_t  *omcf;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    clcf->handler = ngx_http_once_status_handler;

    omcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_once_module);
    omcf->status = 1;

    return NGX_CONF_OK;
}
