/*
 * What the files of the probe share: probe.c decides when to probe and what to
 * do with the answer; probe_fetch.c is its HTTP client.
 */
#ifndef NGX_HTTP_ONCE_PROBE_H
#define NGX_HTTP_ONCE_PROBE_H

#include "ngx_http_once_request.h"


struct ngx_http_once_probe_conf_s {
    ngx_addr_t                  *addr;
    ngx_str_t                    host;             /* of the request's Host */
    ngx_str_t                    uri;
    ngx_str_t                    path;             /* without its query, which may hold a secret: for logs */
    ngx_msec_t                   timeout;          /* of the whole exchange */
    size_t                       size;             /* of a response with its headers, at most */
};


typedef struct ngx_http_once_fetch_s  ngx_http_once_fetch_t;

/* NGX_OK: a whole response is there; NGX_ERROR: there is none, and why is in the log. The fetch is still there. */
typedef void (*ngx_http_once_fetch_pt)(ngx_http_once_fetch_t *fetch,
    ngx_int_t rc);


struct ngx_http_once_fetch_s {
    ngx_http_once_probe_conf_t  *conf;
    ngx_http_once_fetch_pt       done;
    void                        *data;

    ngx_pool_t                  *pool;
    ngx_log_t                   *log;
    ngx_peer_connection_t        peer;
    ngx_event_t                  timer;            /* of the whole exchange */
    ngx_buf_t                   *out;
    ngx_buf_t                   *in;
    ngx_int_t                  (*parse)(ngx_http_once_fetch_t *fetch);
    ngx_http_request_t          *parser;           /* state of nginx's parsers, no request */
    ngx_http_status_t            line;
    ngx_http_chunked_t           chunks;
    off_t                        length;           /* of the body; -1: not told */
    u_char                      *body_last;        /* of chunks, put together */

    /* the response */
    ngx_uint_t                   status;
    ngx_array_t                  headers;          /* of ngx_keyval_t, as they came */
    ngx_str_t                    body;

    unsigned                     chunked:1;
    unsigned                     eof:1;
};


/*
 * Sends `request` (bytes, copied) and calls done once, from the event loop. NULL: nothing was sent. The caller destroys it,
 * when done was called or to give up; never from within another's done.
 */
ngx_http_once_fetch_t *ngx_http_once_fetch(ngx_http_once_probe_conf_t *conf,
    ngx_str_t *request, ngx_http_once_fetch_pt done, void *data);
void ngx_http_once_fetch_destroy(ngx_http_once_fetch_t *fetch);

/* The only header of this name; NULL: none. `count` (may be NULL) is how many there are. */
ngx_str_t *ngx_http_once_fetch_header(ngx_http_once_fetch_t *fetch,
    const char *name, ngx_uint_t *count);

/* Its first parser (..._fetch_parse.c). */
ngx_int_t ngx_http_once_fetch_line(ngx_http_once_fetch_t *fetch);


/* What a probe sends; free request->data with ngx_free. */
ngx_int_t ngx_http_once_probe_request(ngx_http_once_probe_conf_t *pcf,
    once_key_t *key, const char *token, ngx_str_t *request);

/* What the backend gave as the operation's response; it points into the fetch. NGX_ERROR: it is not complete. */
ngx_int_t ngx_http_once_probe_response(ngx_http_once_fetch_t *fetch,
    ngx_http_once_loc_conf_t *conf, once_response_t *response);


#endif
