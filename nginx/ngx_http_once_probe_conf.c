/*
 * once_probe: where the backend is asked what became of a key.
 */
#include "ngx_http_once_conf.h"
#include "ngx_http_once_probe.h"


/* timeout=TIME and size=SIZE, in any order. */

static char *
ngx_http_once_probe_param(ngx_conf_t *cf, ngx_http_once_probe_conf_t *pcf,
    ngx_str_t *param)
{
    ssize_t     size;
    ngx_int_t   msec;
    ngx_str_t   value;

    if (param->len > 8 && ngx_strncmp(param->data, "timeout=", 8) == 0) {
        value.data = param->data + 8;
        value.len = param->len - 8;

        msec = ngx_parse_time(&value, 0);

        if (msec != NGX_ERROR && msec != 0) {
            pcf->timeout = msec;
            return NGX_CONF_OK;
        }
    }

    if (param->len > 5 && ngx_strncmp(param->data, "size=", 5) == 0) {
        value.data = param->data + 5;
        value.len = param->len - 5;

        size = ngx_parse_size(&value);

        if (size >= 1024 && size <= ONCE_BODY_STORE_MAX + ONCE_HEADERS_MAX) {
            pcf->size = size;
            return NGX_CONF_OK;
        }
    }

    return ngx_http_once_bad(cf, param, "it must be timeout=TIME such as "
                             "timeout=5s, or size=SIZE from 1k to 16m");
}


/* A query may follow the address at once; the request's target begins with a slash. */

static ngx_int_t
ngx_http_once_probe_path(ngx_conf_t *cf, ngx_http_once_probe_conf_t *pcf,
    ngx_str_t *uri)
{
    u_char  *p;

    if (uri->len && uri->data[0] == '/') {
        pcf->uri = *uri;

    } else {
        p = ngx_pnalloc(cf->pool, uri->len + 1);
        if (p == NULL) {
            return NGX_ERROR;
        }

        pcf->uri.data = p;
        pcf->uri.len = uri->len + 1;

        *p++ = '/';
        ngx_memcpy(p, uri->data, uri->len);
    }

    p = ngx_strlchr(pcf->uri.data, pcf->uri.data + pcf->uri.len, '?');

    pcf->path.data = pcf->uri.data;
    pcf->path.len = p ? (size_t) (p - pcf->uri.data) : pcf->uri.len;

    return NGX_OK;
}


static ngx_int_t
ngx_http_once_probe_url(ngx_conf_t *cf, ngx_http_once_probe_conf_t *pcf,
    ngx_str_t *url)
{
    ngx_url_t  u;

    ngx_memzero(&u, sizeof(ngx_url_t));

    u.url.data = url->data + sizeof("http://") - 1;
    u.url.len = url->len - (sizeof("http://") - 1);
    u.default_port = 80;
    u.uri_part = 1;

    if (ngx_parse_url(cf->pool, &u) != NGX_OK || u.naddrs == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "%s in \"once_probe\" \"%V\": name an address; "
                           "for a group of servers write a location that "
                           "proxies to it, and probe that",
                           u.err ? u.err : "no address", url);
        return NGX_ERROR;
    }

    pcf->addr = &u.addrs[0];

    if (u.family == AF_UNIX) {
        ngx_str_set(&pcf->host, "localhost");

    } else {
        /* as it stands in the URL, port included */
        pcf->host.data = u.url.data;
        pcf->host.len = u.url.len - u.uri.len;
    }

    return ngx_http_once_probe_path(cf, pcf, &u.uri);
}


char *
ngx_http_once_set_probe(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_once_loc_conf_t *olcf = conf;

    ngx_str_t                   *value;
    ngx_uint_t                   i;
    ngx_http_once_probe_conf_t  *pcf;

    if (olcf->probe != NGX_CONF_UNSET_PTR) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (ngx_http_once_is(&value[1], "off")) {
        olcf->probe = NULL;
        return NGX_CONF_OK;
    }

    if (ngx_strncasecmp(value[1].data, (u_char *) "https://", 8) == 0) {
        return ngx_http_once_bad(cf, &value[1], "probes speak plain HTTP: "
                                 "write a location on a loopback address "
                                 "with \"proxy_pass https://...\" and "
                                 "proxy_ssl_verify on, and probe that");
    }

    if (value[1].len <= 7
        || ngx_strncasecmp(value[1].data, (u_char *) "http://", 7) != 0
        || !ngx_http_once_is_plain(&value[1])
        || ngx_strlchr(value[1].data, value[1].data + value[1].len, '#'))
    {
        return ngx_http_once_bad(cf, &value[1], "it must be "
                                 "http://ADDRESS[:PORT]/PATH, "
                                 "http://unix:/SOCKET:/PATH or off");
    }

    pcf = ngx_pcalloc(cf->pool, sizeof(ngx_http_once_probe_conf_t));
    if (pcf == NULL) {
        return NGX_CONF_ERROR;
    }

    pcf->timeout = 5000;
    pcf->size = 1024 * 1024;
    olcf->probe = pcf;

    for (i = 2; i < cf->args->nelts; i++) {
        if (ngx_http_once_probe_param(cf, pcf, &value[i]) != NGX_CONF_OK) {
            return NGX_CONF_ERROR;
        }
    }

    return ngx_http_once_probe_url(cf, pcf, &value[1]) == NGX_OK
           ? NGX_CONF_OK : NGX_CONF_ERROR;
}
