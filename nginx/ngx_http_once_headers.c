/*
 * Headers: what clients must not send to a backend, what the gateway sends to
 * it, what the backend tells the gateway, and what is stored for replays.
 */
#include "ngx_http_once_conf.h"
#include "ngx_http_once_request.h"


ngx_table_elt_t *
ngx_http_once_headers_next(ngx_http_once_walk_t *walk)
{
    ngx_table_elt_t  *h;

    while (walk->part && walk->i >= walk->part->nelts) {
        walk->part = walk->part->next;
        walk->i = 0;
    }

    if (walk->part == NULL) {
        return NULL;
    }

    h = walk->part->elts;

    return &h[walk->i++];
}


ngx_uint_t
ngx_http_once_headers_named(ngx_table_elt_t *h, const char *name, size_t len)
{
    return h->key.len == len
           && ngx_strncasecmp(h->key.data, (u_char *) name, len) == 0;
}


ngx_table_elt_t *
ngx_http_once_headers_push(ngx_list_t *list, ngx_str_t *name, ngx_str_t *value)
{
    ngx_table_elt_t  *h;

    h = ngx_list_push(list);
    if (h == NULL) {
        return NULL;
    }

    /* since 1.23 it has a link to the next header of its name */
    ngx_memzero(h, sizeof(ngx_table_elt_t));

    h->hash = 1;
    h->key = *name;
    h->value = *value;

    return h;
}


/* ---------------------------------------------------------- to the backend */

ngx_uint_t
ngx_http_once_headers_named_as(ngx_table_elt_t *h, ngx_str_t *name)
{
    u_char      c;
    ngx_uint_t  i;

    if (h->key.len != name->len) {
        return 0;
    }

    for (i = 0; i < name->len; i++) {
        c = ngx_tolower(h->key.data[i]);

        if ((c == '_' ? '-' : c) != name->data[i]) {
            return 0;
        }
    }

    return 1;
}


static ngx_uint_t
ngx_http_once_is_ours(ngx_table_elt_t *h, ngx_str_t *also)
{
    /* both are HTTP_ONCE_... to a CGI */

    if (h->key.len >= 5
        && ngx_strncasecmp(h->key.data, (u_char *) "once", 4) == 0
        && (h->key.data[4] == '-' || h->key.data[4] == '_'))
    {
        return 1;
    }

    return also && ngx_http_once_headers_named_as(h, also);
}


/*
 * Removes element i of a part. nginx keeps pointers to elements, so the others
 * must not move: the part is split instead. Returns the part after it, or NULL.
 */

static ngx_list_part_t *
ngx_http_once_split(ngx_http_request_t *r, ngx_list_part_t *part, ngx_uint_t i)
{
    ngx_table_elt_t  *h;
    ngx_list_part_t  *rest;

    h = part->elts;

    if (i + 1 == part->nelts) {
        part->nelts = i;
        return part->next;
    }

    rest = ngx_palloc(r->pool, sizeof(ngx_list_part_t));
    if (rest == NULL) {
        return NULL;
    }

    rest->elts = &h[i + 1];
    rest->nelts = part->nelts - i - 1;
    rest->next = part->next;

    part->nelts = i;
    part->next = rest;

    return rest;
}


/* nginx's loops allow an empty part only at the front of a list. */

static void
ngx_http_once_join_parts(ngx_list_t *list)
{
    ngx_list_part_t  *part;

    for (part = &list->part; part->next; /* void */) {

        if (part->next->nelts == 0) {
            part->next = part->next->next;
            continue;
        }

        part = part->next;
    }

    list->last = part;

    /* the last part may begin inside its memory: the next header gets one */

    if (part->nelts) {
        list->nalloc = part->nelts;
    }
}


static ngx_int_t
ngx_http_once_strip(ngx_http_request_t *r, ngx_str_t *also)
{
    ngx_uint_t        i, n, found;
    ngx_list_t       *list;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *h;

    list = &r->headers_in.headers;
    found = 0;
    part = &list->part;

    while (part) {
        h = part->elts;
        n = part->nelts;

        for (i = 0; i < n; i++) {
            if (ngx_http_once_is_ours(&h[i], also)) {
                break;
            }
        }

        if (i == n) {
            part = part->next;
            continue;
        }

        found = 1;

        if (ngx_http_once_split(r, part, i) == NULL && i + 1 < n) {
            return NGX_ERROR;
        }

        part = part->next;
    }

    if (found) {
        ngx_http_once_join_parts(list);
    }

    return NGX_OK;
}


ngx_int_t
ngx_http_once_headers_strip_request(ngx_http_request_t *r)
{
    return ngx_http_once_strip(r, NULL);
}


ngx_int_t
ngx_http_once_headers_drop_request(ngx_http_request_t *r, ngx_str_t *name)
{
    return ngx_http_once_strip(r, name);
}


ngx_int_t
ngx_http_once_headers_add_request(ngx_http_request_t *r, const char *name,
    const char *lowcase, u_char *data, size_t len)
{
    ngx_str_t         key, value;
    ngx_table_elt_t  *h;

    key.data = (u_char *) name;
    key.len = ngx_strlen(name);

    value.len = len;
    value.data = ngx_pnalloc(r->pool, len + 1);
    if (value.data == NULL) {
        return NGX_ERROR;
    }

    *ngx_cpymem(value.data, data, len) = '\0';

    h = ngx_http_once_headers_push(&r->headers_in.headers, &key, &value);
    if (h == NULL) {
        return NGX_ERROR;
    }

    h->lowcase_key = (u_char *) lowcase;
    h->hash = ngx_hash_key((u_char *) lowcase, key.len);

    return NGX_OK;
}


ngx_int_t
ngx_http_once_headers_add_claim(ngx_http_request_t *r,
    ngx_http_once_ctx_t *ctx)
{
    char       token[ONCE_TOKEN_SIZE];
    ngx_str_t  name = ngx_string("idempotency-key");

    if (!ctx->standard) {

        /* the key came from elsewhere: the client's header is another one */

        if (ngx_http_once_strip(r, &name) != NGX_OK
            || ngx_http_once_headers_add_request(r, "Idempotency-Key",
                                                 "idempotency-key",
                                                 (u_char *) ctx->key.text,
                                                 ctx->key.len)
               != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    once_claim_token(ctx->guard->claim, token);

    return ngx_http_once_headers_add_request(r, "Once-Claim", "once-claim",
                                             (u_char *) token,
                                             ngx_strlen(token));
}


/* -------------------------------------------------------- from the backend */

/* A replay has a Once-Body of the gateway's: omitted. */

ngx_uint_t
ngx_http_once_headers_omit(ngx_str_t *value)
{
    return value->len == 4
           && ngx_strncasecmp(value->data, (u_char *) "omit", 4) == 0;
}


/* Commas also occur inside quotes, in `private="a, b"`. */

ngx_uint_t
ngx_http_once_headers_no_store(ngx_str_t *value)
{
    u_char      *p, *last, *start;
    ngx_uint_t   quoted;

    p = value->data;
    last = p + value->len;

    while (p < last) {

        while (p < last && (*p == ' ' || *p == '\t' || *p == ',')) {
            p++;
        }

        start = p;
        quoted = 0;

        while (p < last && (quoted || *p != ',')) {

            if (*p == '"') {
                quoted = !quoted;

            } else if (quoted && *p == '\\' && p + 1 < last) {
                p++;
            }

            p++;
        }

        if (p - start >= 8
            && ngx_strncasecmp(start, (u_char *) "no-store", 8) == 0
            && (p - start == 8 || start[8] == ' ' || start[8] == '\t'
                || start[8] == '='))
        {
            return 1;
        }
    }

    return 0;
}


ngx_uint_t
ngx_http_once_headers_is_own(ngx_http_once_loc_conf_t *conf, u_char *name,
    size_t len)
{
    ngx_uint_t   i;
    ngx_str_t   *own[3];

    own[0] = &conf->replay_header;
    own[1] = &conf->expires_header;
    own[2] = &conf->echo_key;

    for (i = 0; i < 3; i++) {

        if (len && len == own[i]->len
            && ngx_strncasecmp(name, own[i]->data, len) == 0)
        {
            return 1;
        }
    }

    return len >= 5 && ngx_strncasecmp(name, (u_char *) "once-", 5) == 0;
}


void
ngx_http_once_headers_strip_own(ngx_http_request_t *r,
    ngx_http_once_loc_conf_t *conf)
{
    ngx_table_elt_t       *h;
    ngx_http_once_walk_t   walk;

    walk.part = &r->headers_out.headers.part;
    walk.i = 0;

    while ((h = ngx_http_once_headers_next(&walk)) != NULL) {

        if (ngx_http_once_headers_is_own(conf, h->key.data, h->key.len)) {
            h->hash = 0;
        }
    }
}


void
ngx_http_once_headers_strip_response(ngx_http_request_t *r)
{
    ngx_table_elt_t       *h;
    ngx_http_once_walk_t   walk;

    walk.part = &r->headers_out.headers.part;
    walk.i = 0;

    while ((h = ngx_http_once_headers_next(&walk)) != NULL) {

        if (ngx_http_once_headers_named(h, "once-outcome", 12)
            || ngx_http_once_headers_named(h, "once-retain", 11)
            || (ngx_http_once_headers_named(h, "once-body", 9)
                && ngx_http_once_headers_omit(&h->value)))
        {
            h->hash = 0;
        }
    }
}


/*
 * An HTTP date. The text of two days is cached: records expire mostly today or
 * tomorrow, and printing a date costs more than the rest of the header.
 */

static u_char *
ngx_http_once_date(u_char *p, time_t when)
{
    size_t      i;
    time_t      day;
    ngx_uint_t  seconds, parts[3];

    static struct {
        time_t   day;
        u_char   text[sizeof("Mon, 28 Sep 1970 06:00:00 GMT")];
    } days[2];

    day = when / 86400 + 1;
    seconds = (ngx_uint_t) (when % 86400);

    if (days[day & 1].day != day) {
        (void) ngx_http_time(days[day & 1].text, when);
        days[day & 1].day = day;
    }

    p = ngx_cpymem(p, days[day & 1].text, sizeof("Mon, 28 Sep 1970 ") - 1);

    parts[0] = seconds / 3600;
    parts[1] = seconds / 60 % 60;
    parts[2] = seconds % 60;

    for (i = 0; i < 3; i++) {
        *p++ = (u_char) ('0' + parts[i] / 10);
        *p++ = (u_char) ('0' + parts[i] % 10);
        *p++ = (i < 2) ? ':' : ' ';
    }

    return ngx_cpymem(p, "GMT", 3);
}


ngx_int_t
ngx_http_once_headers_add_expires(ngx_http_request_t *r,
    ngx_http_once_loc_conf_t *conf, uint64_t msec)
{
    u_char      *p;
    ngx_str_t    value;
    ngx_time_t  *now;

    if (msec == 0 || conf->expires_header.len == 0) {
        return NGX_OK;
    }

    p = ngx_pnalloc(r->pool, sizeof("Mon, 28 Sep 1970 06:00:00 GMT"));
    if (p == NULL) {
        return NGX_ERROR;
    }

    now = ngx_timeofday();
    value.data = p;
    value.len = ngx_http_once_date(p, now->sec
                                      + (time_t) ((now->msec + msec) / 1000))
                - p;

    return ngx_http_once_headers_push(&r->headers_out.headers,
                                      &conf->expires_header, &value)
           ? NGX_OK : NGX_ERROR;
}


ngx_int_t
ngx_http_once_headers_add_echo(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    ngx_str_t  value;

    static ngx_str_t  derived = ngx_string("Once-Derived-Key");

    value.data = (u_char *) ctx->key.text;
    value.len = ctx->key.len;

    if (ctx->derived
        && ngx_http_once_headers_push(&r->headers_out.headers, &derived,
                                      &value)
           == NULL)
    {
        return NGX_ERROR;
    }

    if (ctx->conf->echo_key.len == 0 || ctx->key.len == 0) {
        return NGX_OK;
    }

    return ngx_http_once_headers_push(&r->headers_out.headers,
                                      &ctx->conf->echo_key, &value)
           ? NGX_OK : NGX_ERROR;
}


/* ---------------------------------------------------------- stored headers */

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
ngx_http_once_headers_is_framing(u_char *name, size_t len)
{
    return ngx_http_once_listed(ngx_http_once_never, name, len);
}


ngx_uint_t
ngx_http_once_headers_replayable(ngx_http_once_loc_conf_t *conf, u_char *name,
    size_t len)
{
    ngx_str_t   *allowed;
    ngx_uint_t   i;

    /* the gateway adds its own to each response */

    if (ngx_http_once_headers_is_framing(name, len)
        || ngx_http_once_headers_is_own(conf, name, len))
    {
        return 0;
    }

    /* a replay belongs to the session of its own request */

    if (conf->mcp && len == sizeof("mcp-session-id") - 1
        && ngx_strncasecmp(name, (u_char *) "mcp-session-id", len) == 0)
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


/* The host of a redirect, as in nginx's header filter. */

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
ngx_http_once_headers_make_location(ngx_http_request_t *r)
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


/* ----------------------------------------------------------- the directive */

char *
ngx_http_once_set_replay_headers(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_once_loc_conf_t *olcf = conf;

    ngx_str_t   *value, *name;
    ngx_uint_t   i;

    if (olcf->replay_headers != NGX_CONF_UNSET_PTR) {
        return "is duplicate";
    }

    value = cf->args->elts;
    olcf->replay_headers = NULL;

    if (cf->args->nelts == 2 && ngx_http_once_is(&value[1], "none")) {
        return NGX_CONF_OK;
    }

    olcf->replay_headers = ngx_array_create(cf->pool, cf->args->nelts - 1,
                                            sizeof(ngx_str_t));
    if (olcf->replay_headers == NULL) {
        return NGX_CONF_ERROR;
    }

    for (i = 1; i < cf->args->nelts; i++) {

        ngx_strlow(value[i].data, value[i].data, value[i].len);

        if (!ngx_http_once_is_token(&value[i])
            || ngx_http_once_headers_is_framing(value[i].data, value[i].len))
        {
            return ngx_http_once_bad(cf, &value[i], "it must be the name of "
                                     "a response header that can be replayed, "
                                     "such as Set-Cookie; or none");
        }

        name = ngx_array_push(olcf->replay_headers);
        if (name == NULL) {
            return NGX_CONF_ERROR;
        }

        *name = value[i];
    }

    return NGX_CONF_OK;
}
