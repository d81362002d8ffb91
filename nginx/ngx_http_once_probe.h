/*
 * What the files of the probe share: probe.c decides when to probe and what to
 * do with the answer; probe_fetch.c is its HTTP client.
 */
#ifndef NGX_HTTP_ONCE_PROBE_H
#define NGX_HTTP_ONCE_PROBE_H

#include "ngx_http_once_request.h"


struct ngx_http_once_probe_conf_s {
    ngx_addr_t                  *addr;
    ngx_str_t                    host;         /* for the header Host */
    ngx_str_t                    uri;
    ngx_str_t                    path;         /* without query, for logs */
    ngx_msec_t                   timeout;      /* of the whole exchange */
    size_t                       size;         /* limit of the response */
};


typedef struct ngx_http_once_fetch_s  ngx_http_once_fetch_t;

/* NGX_OK: the response is complete; NGX_ERROR: logged why there is none. */
typedef void (*ngx_http_once_fetch_pt)(ngx_http_once_fetch_t *fetch,
    ngx_int_t rc);


struct ngx_http_once_fetch_s {
    ngx_http_once_probe_conf_t  *conf;
    ngx_http_once_fetch_pt       done;
    void                        *data;

    ngx_pool_t                  *pool;
    ngx_log_t                   *log;
    ngx_peer_connection_t        peer;
    ngx_event_t                  timer;        /* of the whole exchange */
    ngx_buf_t                   *out;
    ngx_buf_t                   *in;
    ngx_int_t                  (*parse)(ngx_http_once_fetch_t *fetch);
    ngx_http_request_t          *parser;       /* state of nginx's parsers */
    ngx_http_status_t            line;
    ngx_http_chunked_t           chunks;
    off_t                        length;       /* of the body; -1: unknown */
    u_char                      *body_last;    /* of chunks put together */

    /* the response */
    ngx_uint_t                   status;
    ngx_array_t                  headers;      /* of ngx_keyval_t */
    ngx_str_t                    body;

    unsigned                     chunked:1;
    unsigned                     eof:1;
};


/*
 * Sends `request` (bytes, copied) and calls `done` once, from the event loop.
 * NULL: nothing was sent. The caller destroys the fetch, in `done` or to give
 * up, but never in the `done` of another fetch.
 */
ngx_http_once_fetch_t *ngx_http_once_probe_fetch(
    ngx_http_once_probe_conf_t *conf, ngx_str_t *request,
    ngx_http_once_fetch_pt done, void *data);
void ngx_http_once_probe_fetch_destroy(ngx_http_once_fetch_t *fetch);

/* The only header of this name, or NULL. `count` may be NULL. */
ngx_str_t *ngx_http_once_probe_fetch_header(ngx_http_once_fetch_t *fetch,
    const char *name, ngx_uint_t *count);

/* The request of a probe; free request->data with ngx_free. */
ngx_int_t ngx_http_once_probe_fetch_request(ngx_http_once_probe_conf_t *pcf,
    once_key_t *key, const char *token, ngx_str_t *request);

/*
 * The operation's response as the backend reported it; it points into the
 * fetch. NGX_ERROR: it is incomplete.
 */
ngx_int_t ngx_http_once_probe_fetch_response(ngx_http_once_fetch_t *fetch,
    ngx_http_once_loc_conf_t *conf, once_response_t *response);


#endif
