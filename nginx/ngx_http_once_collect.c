/*
 * The headers of a response that are kept for its replays.
 */
#include "ngx_http_once_request.h"


static const ngx_str_t  ngx_http_once_never[] = {
    /* framing of one message on one connection */
    ngx_string("connection"),
    ngx_string("keep-alive"),
    ngx_string("proxy-connection"),
    ngx_string("te"),
    ngx_string("trailer"),
    ngx_string("transfer-encoding"),
    ngx_string("upgrade"),
    ngx_string("content-length"),
    ngx_null_string
};

static const ngx_str_t  ngx_http_once_by_choice[] = {
    ngx_string("date"),
    ngx_string("server"),
    ngx_string("set-cookie"),
    ngx_string("proxy-authenticate"),
    ngx_null_string
};


static ngx_uint_t
ngx_http_once_listed(const ngx_str_t *names, u_char *name, size_t len)
{
    for ( /* void */ ; names->len; names++) {

        if (names->len == len
            && ngx_strncasecmp(names->data, name, len) == 0)
        {
            return 1;
        }
    }

    return 0;
}


ngx_uint_t
ngx_http_once_is_framing(u_char *name, size_t len)
{
    return ngx_http_once_listed(ngx_http_once_never, name, len);
}


ngx_uint_t
ngx_http_once_replayable(ngx_http_once_loc_conf_t *conf, u_char *name,
    size_t len)
{
    ngx_str_t   *allowed;
    ngx_uint_t   i;

    /* the gateway's own are made anew */

    if (ngx_http_once_is_framing(name, len)
        || ngx_http_once_is_own(conf, name, len))
    {
        return 0;
    }

    if (!ngx_http_once_listed(ngx_http_once_by_choice, name, len)) {
        return 1;
    }

    if (conf->replay_headers == NULL) {
        return 0;
    }

    allowed = conf->replay_headers->elts;

    for (i = 0; i < conf->replay_headers->nelts; i++) {

        if (allowed[i].len == len
            && ngx_strncasecmp(allowed[i].data, name, len) == 0)
        {
            return 1;
        }
    }

    return 0;
}


static void
ngx_http_once_set_header(once_header_t *header, const char *name,
    size_t name_len, u_char *value, size_t len)
{
    header->name.data = name;
    header->name.len = name_len;
    header->value.data = value;
    header->value.len = len;
}


/* nginx keeps some headers outside of its list. */

static ngx_int_t
ngx_http_once_collect_type(ngx_http_request_t *r, once_header_t *header)
{
    u_char      *p;
    size_t       len;
    ngx_str_t   *type, *charset;

    type = &r->headers_out.content_type;
    charset = &r->headers_out.charset;

    if (r->headers_out.content_type_len != type->len || charset->len == 0) {
        ngx_http_once_set_header(header, "Content-Type", 12, type->data,
                                 type->len);
        return NGX_OK;
    }

    len = type->len + sizeof("; charset=") - 1 + charset->len;
    p = ngx_pnalloc(r->pool, len);
    if (p == NULL) {
        return NGX_ERROR;
    }

    ngx_http_once_set_header(header, "Content-Type", 12, p, len);
    ngx_sprintf(p, "%V; charset=%V", type, charset);

    return NGX_OK;
}


static ngx_int_t
ngx_http_once_collect_modified(ngx_http_request_t *r, once_header_t *header)
{
    u_char  *p;

    p = ngx_pnalloc(r->pool, sizeof("Mon, 28 Sep 1970 06:00:00 GMT"));
    if (p == NULL) {
        return NGX_ERROR;
    }

    ngx_http_once_set_header(header, "Last-Modified", 13, p,
                             ngx_http_time(p,
                                           r->headers_out.last_modified_time)
                             - p);

    return NGX_OK;
}


/* The host by which nginx calls itself in a redirect, as its header filter has it. */

static ngx_int_t
ngx_http_once_redirect_host(ngx_http_request_t *r,
    ngx_http_core_loc_conf_t *clcf, ngx_str_t *host)
{
    ngx_http_core_srv_conf_t  *cscf;

    if (clcf->server_name_in_redirect) {
        cscf = ngx_http_get_module_srv_conf(r, ngx_http_core_module);
        *host = cscf->server_name;
        return NGX_OK;
    }

    if (r->headers_in.server.len) {
        *host = r->headers_in.server;
        return NGX_OK;
    }

    host->len = NGX_SOCKADDR_STRLEN;
    host->data = ngx_pnalloc(r->pool, NGX_SOCKADDR_STRLEN);

    if (host->data == NULL) {
        return NGX_ERROR;
    }

    return ngx_connection_local_sockaddr(r->connection, host, 0);
}


ngx_int_t
ngx_http_once_make_location(ngx_http_request_t *r)
{
    u_char                    *p;
    in_port_t                  port;
    ngx_str_t                  host;
    ngx_uint_t                 tls;
    ngx_table_elt_t           *h;
    ngx_http_core_loc_conf_t  *clcf;

    h = r->headers_out.location;
    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    if (h == NULL || h->value.len == 0 || h->value.data[0] != '/'
        || !clcf->absolute_redirect)
    {
        return NGX_OK;
    }

    if (ngx_http_once_redirect_host(r, clcf, &host) != NGX_OK) {
        return NGX_ERROR;
    }

    tls = 0;
#if (NGX_HTTP_SSL)
    tls = (r->connection->ssl != NULL);
#endif

    port = ngx_inet_get_port(r->connection->local_sockaddr);

    if (!clcf->port_in_redirect || port == (tls ? 443 : 80)) {
        port = 0;
    }

    p = ngx_pnalloc(r->pool, sizeof("https://:65535") - 1 + host.len
                             + h->value.len);
    if (p == NULL) {
        return NGX_ERROR;
    }

    host.len = ngx_sprintf(p, "http%s://%V", tls ? "s" : "", &host) - p;

    if (port) {
        host.len = ngx_sprintf(p + host.len, ":%ui", (ngx_uint_t) port) - p;
    }

    h->value.len = ngx_sprintf(p + host.len, "%V", &h->value) - p;
    h->value.data = p;

    return NGX_OK;
}


static ngx_uint_t
ngx_http_once_count_headers(ngx_http_request_t *r)
{
    ngx_uint_t        n;
    ngx_list_part_t  *part;

    n = 3;    /* those that are kept outside of the list */

    for (part = &r->headers_out.headers.part; part; part = part->next) {
        n += part->nelts;
    }

    return n;
}


/* Names that stand in the upstream's own Connection header, which nginx does not pass on. */

static ngx_uint_t
ngx_http_once_is_hop(ngx_http_request_t *r, ngx_str_t *name)
{
    u_char                *p, *end, *last;
    ngx_table_elt_t       *h;
    ngx_http_once_walk_t   walk;

    if (r->upstream == NULL) {
        return 0;
    }

    walk.part = &r->upstream->headers_in.headers.part;
    walk.i = 0;

    while ((h = ngx_http_once_next(&walk)) != NULL) {

        if (!ngx_http_once_named(h, "connection", 10)) {
            continue;
        }

        last = h->value.data + h->value.len;

        for (p = h->value.data; p < last; p = end + 1) {

            while (p < last && (*p == ' ' || *p == '\t')) {
                p++;
            }

            end = p;

            while (end < last && *end != ',' && *end != ' ' && *end != '\t') {
                end++;
            }

            if ((size_t) (end - p) == name->len
                && ngx_strncasecmp(p, name->data, name->len) == 0)
            {
                return 1;
            }
        }
    }

    return 0;
}


ngx_int_t
ngx_http_once_collect_headers(ngx_http_request_t *r,
    ngx_http_once_loc_conf_t *conf, once_response_t *response)
{
    once_header_t         *headers;
    ngx_uint_t             n;
    ngx_table_elt_t       *h;
    ngx_http_once_walk_t   walk;

    headers = ngx_palloc(r->pool, ngx_http_once_count_headers(r)
                                  * sizeof(once_header_t));
    if (headers == NULL) {
        return NGX_ERROR;
    }

    n = 0;

    /* of a 204 that is its own, nginx does not send the type */

    if (r->headers_out.content_type.len
        && (r->headers_out.status != NGX_HTTP_NO_CONTENT
            || r->headers_out.status_line.len)
        && ngx_http_once_collect_type(r, &headers[n++]) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (r->headers_out.last_modified_time != -1
        && r->headers_out.last_modified == NULL
        && ngx_http_once_collect_modified(r, &headers[n++]) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (r->headers_out.override_charset) {
        ngx_http_once_set_header(&headers[n++], "X-Accel-Charset", 15,
                                 r->headers_out.override_charset->data,
                                 r->headers_out.override_charset->len);
    }

    walk.part = &r->headers_out.headers.part;
    walk.i = 0;

    while ((h = ngx_http_once_next(&walk)) != NULL) {

        if (h->hash
            && ngx_http_once_replayable(conf, h->key.data, h->key.len)
            && !ngx_http_once_is_hop(r, &h->key))
        {
            ngx_http_once_set_header(&headers[n++], (char *) h->key.data,
                                     h->key.len, h->value.data, h->value.len);
        }
    }

    response->headers = headers;
    response->header_count = n;

    return NGX_OK;
}
