/*
 * A probe as HTTP: the request that asks, and the operation's response in the
 * answer.
 */
#include "ngx_http_once_probe.h"


/*
 * Raw, as most clients send it, unless the key would be read differently then.
 * RFC 8941 strings escape the quote and the backslash.
 */

static u_char *
ngx_http_once_print_key(u_char *p, once_key_t *key)
{
    size_t      i;
    ngx_uint_t  quote;

    quote = key->text[0] == ' ' || key->text[key->len - 1] == ' ';

    for (i = 0; i < key->len; i++) {
        if (key->text[i] == '"' || key->text[i] == ','
            || key->text[i] == ';' || key->text[i] == '\\')
        {
            quote = 1;
        }
    }

    if (!quote) {
        return ngx_cpymem(p, key->text, key->len);
    }

    *p++ = '"';

    for (i = 0; i < key->len; i++) {
        if (key->text[i] == '"' || key->text[i] == '\\') {
            *p++ = '\\';
        }

        *p++ = key->text[i];
    }

    *p++ = '"';

    return p;
}


ngx_int_t
ngx_http_once_probe_request(ngx_http_once_probe_conf_t *pcf, once_key_t *key,
    const char *token, ngx_str_t *request)
{
    u_char  *p;
    size_t   len;

    len = sizeof("GET  HTTP/1.1" CRLF "Host: " CRLF "Idempotency-Key: " CRLF
                 "Once-Claim: " CRLF "Accept: */*" CRLF "User-Agent: once/"
                 ONCE_VERSION CRLF "Connection: close" CRLF CRLF)
          + pcf->uri.len + pcf->host.len + 2 * ONCE_KEY_MAX + 2
          + ONCE_TOKEN_SIZE;

    p = ngx_alloc(len, ngx_cycle->log);
    if (p == NULL) {
        return NGX_ERROR;
    }

    request->data = p;

    p = ngx_sprintf(p, "GET %V HTTP/1.1" CRLF "Host: %V" CRLF
                    "Idempotency-Key: ", &pcf->uri, &pcf->host);
    p = ngx_http_once_print_key(p, key);
    p = ngx_sprintf(p, CRLF "Once-Claim: %s" CRLF "Accept: */*" CRLF
                    "User-Agent: once/" ONCE_VERSION CRLF
                    "Connection: close" CRLF CRLF, token);

    request->len = p - request->data;

    return NGX_OK;
}


static uint64_t
ngx_http_once_probe_retain(ngx_http_once_fetch_t *fetch,
    ngx_http_once_loc_conf_t *conf)
{
    ngx_int_t   seconds;
    ngx_str_t  *value;

    value = ngx_http_once_fetch_header(fetch, "Once-Retain", NULL);
    seconds = value ? ngx_atoi(value->data, value->len) : NGX_ERROR;

    return seconds > 0 ? (uint64_t) seconds * 1000
                       : once_policy_ttl_ms(conf->policy);
}


/* What the backend gave as the operation's response. */

ngx_int_t
ngx_http_once_probe_response(ngx_http_once_fetch_t *fetch,
    ngx_http_once_loc_conf_t *conf, once_response_t *response)
{
    ngx_int_t       status;
    ngx_str_t      *value;
    ngx_uint_t      i, n;
    ngx_keyval_t   *h;
    once_header_t  *headers;

    value = ngx_http_once_fetch_header(fetch, "Once-Status", NULL);
    status = value ? ngx_atoi(value->data, value->len) : NGX_ERROR;

    if (status < 200 || status > 599) {
        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                      "once_probe: \"Once-Outcome: final\" needs a "
                      "\"Once-Status\" from 200 to 599");
        return NGX_ERROR;
    }

    headers = ngx_palloc(fetch->pool, (fetch->headers.nelts + 1)
                                      * sizeof(once_header_t));
    if (headers == NULL) {
        return NGX_ERROR;
    }

    h = fetch->headers.elts;
    n = 0;

    for (i = 0; i < fetch->headers.nelts; i++) {

        if (!ngx_http_once_replayable(conf, h[i].key.data, h[i].key.len)
            || (h[i].key.len >= 5
                && ngx_strncasecmp(h[i].key.data, (u_char *) "Once-", 5) == 0))
        {
            continue;
        }

        headers[n].name.data = h[i].key.data;
        headers[n].name.len = h[i].key.len;
        headers[n].value.data = h[i].value.data;
        headers[n].value.len = h[i].value.len;
        n++;
    }

    response->status = (int) status;
    response->headers = headers;
    response->header_count = n;
    response->retain_ms = ngx_http_once_probe_retain(fetch, conf);

    if (fetch->body.len > conf->store_body) {
        response->body_omitted = 1;

    } else {
        response->body.data = fetch->body.data;
        response->body.len = fetch->body.len;
    }

    return NGX_OK;
}
