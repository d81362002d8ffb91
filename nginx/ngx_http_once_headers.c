/*
 * Headers: what clients may not say to a backend, what the gateway says to it,
 * what the backend says to the gateway, and what is kept for a replay.
 */
#include "ngx_http_once_request.h"


ngx_table_elt_t *
ngx_http_once_next(ngx_http_once_walk_t *walk)
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
ngx_http_once_named(ngx_table_elt_t *h, const char *name, size_t len)
{
    return h->key.len == len
           && ngx_strncasecmp(h->key.data, (u_char *) name, len) == 0;
}


ngx_table_elt_t *
ngx_http_once_push_header(ngx_list_t *list, ngx_str_t *name, ngx_str_t *value)
{
    ngx_table_elt_t  *h;

    h = ngx_list_push(list);
    if (h == NULL) {
        return NULL;
    }

    /* since 1.23 it has a link to the next of its name */
    ngx_memzero(h, sizeof(ngx_table_elt_t));

    h->hash = 1;
    h->key = *name;
    h->value = *value;

    return h;
}


/* ------------------------------------------------------------ to the backend */

/* To a CGI, - and _ are the same. */

ngx_uint_t
ngx_http_once_is_named_as(ngx_table_elt_t *h, ngx_str_t *name)
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
    /* to a CGI, both are HTTP_ONCE_... */

    if (h->key.len >= 5
        && ngx_strncasecmp(h->key.data, (u_char *) "once", 4) == 0
        && (h->key.data[4] == '-' || h->key.data[4] == '_'))
    {
        return 1;
    }

    return also && ngx_http_once_is_named_as(h, also);
}


/*
 * Takes element i out of a part. Pointers to elements are kept all over nginx:
 * none of the others moves, the part is split instead. Returns the part that
 * begins behind it; NULL: there is none.
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


/* Loops all over nginx cope with an empty part at the front of a list only. */

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

    /*
     * The last part may begin in the middle of its memory: the next header
     * gets a part of its own.
     */

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
ngx_http_once_strip_request(ngx_http_request_t *r)
{
    return ngx_http_once_strip(r, NULL);
}


ngx_int_t
ngx_http_once_add_request_header(ngx_http_request_t *r, const char *name,
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

    h = ngx_http_once_push_header(&r->headers_in.headers, &key, &value);
    if (h == NULL) {
        return NGX_ERROR;
    }

    h->lowcase_key = (u_char *) lowcase;
    h->hash = ngx_hash_key((u_char *) lowcase, key.len);

    return NGX_OK;
}


static ngx_uint_t
ngx_http_once_key_is_standard(ngx_http_once_loc_conf_t *conf)
{
    ngx_str_t  name = ngx_string("Idempotency-Key");

    return conf->key_header.len == name.len
           && ngx_strncasecmp(conf->key_header.data, name.data, name.len) == 0;
}


ngx_int_t
ngx_http_once_add_claim(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    char       token[ONCE_TOKEN_SIZE];
    ngx_str_t  name = ngx_string("idempotency-key");

    if (!ngx_http_once_key_is_standard(ctx->conf)) {

        /* the key came from elsewhere: what a client says here is another */

        if (ngx_http_once_strip(r, &name) != NGX_OK
            || ngx_http_once_add_request_header(r, "Idempotency-Key",
                                                "idempotency-key",
                                                (u_char *) ctx->key.text,
                                                ctx->key.len)
               != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    once_claim_token(ctx->guard->claim, token);

    return ngx_http_once_add_request_header(r, "Once-Claim", "once-claim",
                                            (u_char *) token,
                                            ngx_strlen(token));
}


/* ---------------------------------------------------------- from the backend */

ngx_uint_t
ngx_http_once_is_own(ngx_http_once_loc_conf_t *conf, u_char *name, size_t len)
{
    ngx_str_t  *marker;

    static const char  expires[] = "Idempotency-Expires";

    marker = &conf->replay_header;

    return (len >= 5 && ngx_strncasecmp(name, (u_char *) "once-", 5) == 0)
           || (len == sizeof(expires) - 1
               && ngx_strncasecmp(name, (u_char *) expires, len) == 0)
           || (len && len == marker->len
               && ngx_strncasecmp(name, marker->data, len) == 0);
}


void
ngx_http_once_strip_own(ngx_http_request_t *r,
    ngx_http_once_loc_conf_t *conf)
{
    ngx_table_elt_t       *h;
    ngx_http_once_walk_t   walk;

    walk.part = &r->headers_out.headers.part;
    walk.i = 0;

    while ((h = ngx_http_once_next(&walk)) != NULL) {

        if (ngx_http_once_is_own(conf, h->key.data, h->key.len)) {
            h->hash = 0;
        }
    }
}


void
ngx_http_once_strip_response(ngx_http_request_t *r)
{
    ngx_table_elt_t       *h;
    ngx_http_once_walk_t   walk;

    walk.part = &r->headers_out.headers.part;
    walk.i = 0;

    while ((h = ngx_http_once_next(&walk)) != NULL) {

        if (ngx_http_once_named(h, "once-outcome", 12)
            || ngx_http_once_named(h, "once-retain", 11))
        {
            h->hash = 0;
        }
    }
}


/*
 * A date as HTTP writes it. The days are kept: expiry is mostly today or
 * tomorrow, and printing a date costs more than all the rest of the header.
 */

static u_char *
ngx_http_once_date(u_char *p, time_t when)
{
    size_t       i;
    time_t       day;
    ngx_uint_t   seconds, parts[3];

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


/* How long the answer is kept, as a date. */

ngx_int_t
ngx_http_once_add_expires(ngx_http_request_t *r, uint64_t msec)
{
    u_char      *p;
    ngx_str_t    value;
    ngx_time_t  *now;

    ngx_str_t    name = ngx_string("Idempotency-Expires");

    if (msec == 0) {
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

    return ngx_http_once_push_header(&r->headers_out.headers, &name, &value)
           ? NGX_OK : NGX_ERROR;
}
