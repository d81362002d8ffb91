/*
 * JSON-RPC 2.0 as MCP uses it: which message is a call of a guarded tool, what
 * it asks for, and its answer under the id of another request. Nothing of nginx
 * is used here, so that it can be fuzzed alone.
 *
 * What other readers may take for a guarded call is never passed: duplicate
 * names, names in another case, a method in another case, batches.
 */
#ifndef NGX_HTTP_ONCE_RPC_H
#define NGX_HTTP_ONCE_RPC_H

#include "ngx_http_once_json.h"


#define NGX_HTTP_ONCE_RPC_ID    256    /* bytes of an id, as it is written */
#define NGX_HTTP_ONCE_RPC_TOOL  128    /* bytes of a tool's name */

/* Codes of JSON-RPC. */
#define NGX_HTTP_ONCE_RPC_PARSE    -32700
#define NGX_HTTP_ONCE_RPC_INVALID  -32600
#define NGX_HTTP_ONCE_RPC_METHOD   -32601
#define NGX_HTTP_ONCE_RPC_PARAMS   -32602


typedef enum {
    NGX_HTTP_ONCE_RPC_PASS = 0,    /* certainly no call of a guarded tool */
    NGX_HTTP_ONCE_RPC_CALL,
    NGX_HTTP_ONCE_RPC_BAD          /* refused: `code` and `wrong` */
} ngx_http_once_rpc_e;


typedef struct {
    ngx_http_once_span_t  name;
    int                   prefix;    /* name* */
    int                   except;    /* !name */
} ngx_http_once_tool_t;


/* The spans are in the message. */
typedef struct {
    int                   code;
    const char           *wrong;
    ngx_http_once_span_t  id;        /* as it is written; 0: none */
    ngx_http_once_span_t  params;
    unsigned char         tool[NGX_HTTP_ONCE_RPC_TOOL];
    size_t                tool_len;
} ngx_http_once_call_t;


/* What an answer, or the events of one so far, have in them. */
#define NGX_HTTP_ONCE_RPC_ANSWERS  1    /* the result or the error */
#define NGX_HTTP_ONCE_RPC_ASKS     2    /* a request to the client */


ngx_http_once_rpc_e ngx_http_once_rpc_read(const unsigned char *data,
    size_t len, const ngx_http_once_tool_t *tools, size_t count,
    ngx_http_once_call_t *call);

/*
 * What the call asks for, without its id and _meta, as a JSON document: at most
 * params.len + NGX_HTTP_ONCE_RPC_MORE bytes. Returns how many.
 */
#define NGX_HTTP_ONCE_RPC_MORE  64
size_t ngx_http_once_rpc_operation(const ngx_http_once_call_t *call,
    unsigned char *to);

/* Of a JSON document. */
int ngx_http_once_rpc_has(const unsigned char *data, size_t len);

/*
 * Of the events that are complete; *used is where the first one begins that is
 * not. Returns what they have, -1: out of memory.
 */
int ngx_http_once_rpc_events_have(const unsigned char *data, size_t len,
    size_t *used);

/*
 * Writes an answer under another id to `to`, which has room for at most
 * ngx_http_once_rpc_room() bytes, and returns how many; 0: it has no answer.
 * Of events, requests to the client, its progress and event ids are left out:
 * they belong to the first request.
 */
size_t ngx_http_once_rpc_room(const unsigned char *data, size_t len,
    size_t id_len);
size_t ngx_http_once_rpc_answer(const unsigned char *data, size_t len,
    const ngx_http_once_span_t *id, unsigned char *to);
size_t ngx_http_once_rpc_events(const unsigned char *data, size_t len,
    const ngx_http_once_span_t *id, unsigned char *to);


#endif
