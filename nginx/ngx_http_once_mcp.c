/*
 * once_mcp: a location that speaks MCP, which is JSON-RPC over HTTP. Calls of
 * the tools that it names are guarded; every other message passes. The message
 * is kept in memory until it is read (ngx_http_once_rpc.c); what cannot be read
 * is refused, because a backend might read a guarded call in it.
 *
 * The fingerprint is made of the tool and its arguments, without the id of the
 * message and without _meta. Errors are JSON-RPC errors with status 200, which
 * clients hand on to the model, with the problem as their data. A replay is the
 * recorded answer under the id of the new request.
 */
#include "ngx_http_once_conf.h"
#include "ngx_http_once_request.h"
#include "ngx_http_once_rpc.h"


struct ngx_http_once_mcp_s {
    ngx_array_t                  tools;    /* of ngx_http_once_tool_t */
};


struct ngx_http_once_rpc_s {
    u_char                      *data;     /* the message, while it is read */
    size_t                       len;
    size_t                       size;
    size_t                       scanned;  /* of the events of its answer */
    ngx_str_t                    id;       /* as written; "": not known */
    ngx_str_t                    tool;
    unsigned                     long_:1;  /* more than can be read */
};


typedef struct {
    ngx_int_t                    code;
    const char                  *text;
} ngx_http_once_advice_t;


/*
 * In the order of ngx_http_once_problem_e: for a model that has to decide what
 * to do next.
 */

static const ngx_http_once_advice_t  ngx_http_once_advice[] = {

    { NGX_HTTP_ONCE_RPC_PARAMS,
      "Nothing was done: this tool needs an idempotency key in "
      "params._meta.idempotencyKey. Use a new key for each new intent, and the "
      "same key whenever the same call is repeated." },

    { NGX_HTTP_ONCE_RPC_PARAMS,
      "Nothing was done: the idempotency key is not valid. A key is 1 to 255 "
      "visible ASCII characters." },

    { NGX_HTTP_ONCE_RPC_PARAMS,
      "Nothing was done: the request does not say who makes it. Do not call "
      "again; ask the operator for credentials." },

    { -32050,
      "This call is still in progress. Do not start another one: make the same "
      "call with the same key again later to get its result." },

    { -32052,
      "Do not call again: the outcome is unknown. An earlier call with this "
      "key may have taken effect. Look up by a tool that only reads whether it "
      "has, or ask a person to settle it. A new key would be a second "
      "effect." },

    { -32053,
      "Nothing was done: this key belongs to another call. To repeat that "
      "call, send the same tool and arguments; for a new intent, use a new "
      "key." },

    { -32054,
      "The answer was cut off, and the call may have taken effect. Do not use "
      "a new key: make the same call with the same key to learn its "
      "outcome." },

    { -32056,
      "Nothing was done now: the records of earlier calls are not available. "
      "Make the same call with the same key again later; do not use a new "
      "key." },

    { -32050,
      "This call is still in progress, and many wait for it. Make the same "
      "call with the same key again later to get its result." },

    { -32051,
      "The outcome of an earlier attempt is not known yet. Do not use a new "
      "key: make the same call with the same key again later." },

    { -32054,
      "The answer was lost, and the call may have taken effect. Do not use a "
      "new key: make the same call with the same key to learn its outcome." },

    { -32055,
      "Nothing was done: the server could not be reached. Make the same call "
      "with the same key again." },

    { -32056,
      "There is an answer, but the permission to have it could not be "
      "verified. Make the same call with the same key again later." },

    { -32056,
      "Nothing was done now: the gateway is busy. Make the same call with the "
      "same key again later." },

    { -32057,
      "Nothing was done: too many new calls. Make the same call with the same "
      "key again later." },

    { -32057,
      "Nothing was done: new calls wait until the outcome of earlier ones has "
      "been settled. Make the same call with the same key again later, or ask "
      "a person." }
};


static ngx_str_t  ngx_http_once_mcp_omitted = ngx_string(
    "{\"jsonrpc\":\"2.0\",\"id\":%V,\"error\":{\"code\":-32058,\"message\":"
    "\"Do not call again: this call has been made and is complete, but its "
    "result was not kept. Look up by a tool that only reads what it has "
    "done.\",\"data\":{\"body\":\"omitted\",\"status\":%i}}}" CRLF);


/* ------------------------------------------------------------- the message */

ngx_int_t
ngx_http_once_mcp_begin(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    ctx->rpc = ngx_pcalloc(r->pool, sizeof(ngx_http_once_rpc_t));

    return ctx->rpc ? NGX_OK : NGX_ERROR;
}


static ngx_int_t
ngx_http_once_mcp_grow(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    size_t need)
{
    u_char               *data;
    size_t                size;
    ngx_http_once_rpc_t  *rpc;

    rpc = ctx->rpc;
    size = rpc->size ? 2 * rpc->size : 4096;

    if (rpc->size == 0 && r->headers_in.content_length_n > 0) {
        size = (size_t) r->headers_in.content_length_n;
    }

    size = ngx_min(ngx_max(size, need), ONCE_BODY_JSON_MAX);

    if (ngx_http_once_body_take_memory(size - rpc->size) != NGX_OK) {
        ctx->crowded = 1;
        return NGX_OK;
    }

    ctx->json += size - rpc->size;

    data = ngx_pnalloc(r->pool, size);
    if (data == NULL) {
        return NGX_ERROR;
    }

    if (rpc->len) {
        ngx_memcpy(data, rpc->data, rpc->len);
        (void) ngx_pfree(r->pool, rpc->data);
    }

    rpc->data = data;
    rpc->size = size;

    return NGX_OK;
}


ngx_int_t
ngx_http_once_mcp_add(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    u_char *data, size_t len)
{
    ngx_http_once_rpc_t  *rpc;

    rpc = ctx->rpc;

    if (rpc->long_ || ctx->crowded) {
        return NGX_OK;
    }

    if (len > ONCE_BODY_JSON_MAX - rpc->len) {
        rpc->long_ = 1;
        return NGX_OK;
    }

    if (rpc->len + len > rpc->size
        && ngx_http_once_mcp_grow(r, ctx, rpc->len + len) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (!ctx->crowded) {
        ngx_memcpy(rpc->data + rpc->len, data, len);
        rpc->len += len;
    }

    return NGX_OK;
}


static void
ngx_http_once_mcp_drop(ngx_http_request_t *r, ngx_http_once_rpc_t *rpc)
{
    if (rpc->data) {
        (void) ngx_pfree(r->pool, rpc->data);
        rpc->data = NULL;
    }
}


/* A parameter of a media type: charset, in any case. */

static ngx_uint_t
ngx_http_once_mcp_is_utf8(u_char *p, u_char *last)
{
    u_char  *end;

    while (p < last) {

        while (p < last && (*p == ' ' || *p == '\t' || *p == ';')) {
            p++;
        }

        end = ngx_strlchr(p, last, ';');
        end = end ? end : last;

        if (end - p >= 7 && ngx_strncasecmp(p, (u_char *) "charset", 7) == 0
            && !(end - p == 13
                 && ngx_strncasecmp(p + 7, (u_char *) "=utf-8", 6) == 0)
            && !(end - p == 15
                 && ngx_strncasecmp(p + 7, (u_char *) "=\"utf-8\"", 8) == 0))
        {
            return 0;
        }

        p = end;
    }

    return 1;
}


/*
 * A backend that decodes another charset, or another coding, may read another
 * message than the gateway does.
 */

static ngx_uint_t
ngx_http_once_mcp_is_json(ngx_http_request_t *r)
{
    u_char                *p, *last;
    ngx_uint_t             types;
    ngx_table_elt_t       *h;
    ngx_http_once_walk_t   walk;

    walk.part = &r->headers_in.headers.part;
    walk.i = 0;
    types = 0;

    while ((h = ngx_http_once_headers_next(&walk)) != NULL) {

        if (ngx_http_once_headers_named(h, "content-encoding", 16)) {
            return 0;
        }

        if (!ngx_http_once_headers_named(h, "content-type", 12)) {
            continue;
        }

        types++;
        p = h->value.data;
        last = p + h->value.len;

        if (h->value.len < 16
            || ngx_strncasecmp(p, (u_char *) "application/json", 16) != 0
            || (h->value.len > 16
                && p[16] != ';' && p[16] != ' ' && p[16] != '\t')
            || !ngx_http_once_mcp_is_utf8(p + 16, last))
        {
            return 0;
        }
    }

    return types == 1;
}


static ngx_int_t
ngx_http_once_mcp_send(ngx_http_request_t *r, ngx_buf_t *b, ngx_uint_t status)
{
    ngx_int_t  rc;

    rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK) {
        return rc;
    }

    ngx_http_clean_header(r);

    r->err_status = 0;
    ngx_http_once_problem_set_status(r, status);
    r->headers_out.content_length_n = b->last - b->pos;
    ngx_str_set(&r->headers_out.content_type, "application/json");
    r->headers_out.content_type_len = r->headers_out.content_type.len;
    r->headers_out.content_type_lowcase = NULL;

    return ngx_http_once_send(r, b);
}


static void
ngx_http_once_mcp_id(ngx_http_once_rpc_t *rpc, ngx_str_t *id)
{
    if (rpc->id.len) {
        *id = rpc->id;
        return;
    }

    ngx_str_set(id, "null");
}


/* The message cannot be read, or must not be passed. NGX_DONE. */

static ngx_int_t
ngx_http_once_mcp_refuse(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    ngx_uint_t status, ngx_int_t code, const char *text)
{
    ngx_buf_t  *b;
    ngx_int_t   rc;
    ngx_str_t   id;

    static const char  format[] = "{\"jsonrpc\":\"2.0\",\"id\":%V,\"error\":"
                                  "{\"code\":%i,\"message\":\"%s\"}}" CRLF;

    ngx_http_once_mcp_id(ctx->rpc, &id);
    ctx->phase = NGX_HTTP_ONCE_ANSWERED;
    ctx->outcome = NGX_HTTP_ONCE_INVALID;
    ngx_http_once_count(ctx->conf->route, NGX_HTTP_ONCE_C_INVALID);

    b = ngx_create_temp_buf(r->pool, sizeof(format) + NGX_INT_T_LEN + id.len
                                     + ngx_strlen(text));
    if (b == NULL) {
        rc = NGX_HTTP_INTERNAL_SERVER_ERROR;

    } else {
        b->last = ngx_sprintf(b->last, format, &id, code, text);
        rc = ngx_http_once_mcp_send(r, b, status);
    }

    ngx_http_once_finalize(r, rc);

    return NGX_DONE;
}


/* What is left of the message once it is read. */

static ngx_int_t
ngx_http_once_mcp_keep(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    ngx_http_once_call_t *call)
{
    ngx_http_once_rpc_t  *rpc;

    rpc = ctx->rpc;
    rpc->id.len = call->id.len;
    rpc->tool.len = call->tool_len;
    rpc->id.data = ngx_pnalloc(r->pool, call->id.len + call->tool_len + 1);

    if (rpc->id.data == NULL) {
        return NGX_ERROR;
    }

    rpc->tool.data = rpc->id.data + rpc->id.len;

    if (rpc->id.len) {
        ngx_memcpy(rpc->id.data, call->id.data, rpc->id.len);
    }

    ngx_memcpy(rpc->tool.data, call->tool, rpc->tool.len);

    return NGX_OK;
}


static ngx_int_t
ngx_http_once_mcp_digest(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    ngx_http_once_call_t *call)
{
    int           code;
    u_char       *text;
    size_t        len;
    once_slice_t  type = { NULL, 0 };

    text = ngx_pnalloc(r->pool, call->params.len + NGX_HTTP_ONCE_RPC_MORE);
    if (text == NULL) {
        return NGX_ERROR;
    }

    len = ngx_http_once_rpc_operation(call, text);
    ctx->body = once_body_new(ctx->conf->fingerprint, type);
    code = ctx->body ? once_body_add(ctx->body, text, len) : ONCE_E_NOMEM;

    (void) ngx_pfree(r->pool, text);

    return code == ONCE_OK ? NGX_OK : NGX_ERROR;
}


ngx_int_t
ngx_http_once_mcp_read(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    ngx_int_t              rc;
    ngx_http_once_rpc_e    kind;
    ngx_http_once_mcp_t   *mcp;
    ngx_http_once_rpc_t   *rpc;
    ngx_http_once_call_t   call;

    rpc = ctx->rpc;
    mcp = ctx->conf->mcp;

    if (rpc->long_) {
        return ngx_http_once_mcp_refuse(r, ctx,
                                        NGX_HTTP_REQUEST_ENTITY_TOO_LARGE,
                                        NGX_HTTP_ONCE_RPC_INVALID,
                                        "The message has more than 1 MiB.");
    }

    if (!ngx_http_once_mcp_is_json(r)) {
        return ngx_http_once_mcp_refuse(r, ctx,
                                        NGX_HTTP_UNSUPPORTED_MEDIA_TYPE,
                                        NGX_HTTP_ONCE_RPC_PARSE,
                                        "A message must be application/json "
                                        "in UTF-8, without a content coding.");
    }

    kind = ngx_http_once_rpc_read(rpc->data, rpc->len, mcp->tools.elts,
                                  mcp->tools.nelts, &call);
    rc = ngx_http_once_mcp_keep(r, ctx, &call);

    if (rc == NGX_OK && kind == NGX_HTTP_ONCE_RPC_CALL) {
        rc = ngx_http_once_mcp_digest(r, ctx, &call);
    }

    ngx_http_once_mcp_drop(r, rpc);

    if (rc != NGX_OK) {
        return NGX_ERROR;
    }

    switch (kind) {

    case NGX_HTTP_ONCE_RPC_CALL:
        return NGX_OK;

    case NGX_HTTP_ONCE_RPC_PASS:
        ngx_http_once_body_drop(ctx);
        return NGX_DECLINED;

    default: /* NGX_HTTP_ONCE_RPC_BAD */
        return ngx_http_once_mcp_refuse(r, ctx,
                                        rpc->id.len ? NGX_HTTP_OK
                                                    : NGX_HTTP_BAD_REQUEST,
                                        call.code, call.wrong);
    }
}


/* "tools/call pay". A name that is not plain is not shown. */

ngx_int_t
ngx_http_once_mcp_describe(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    ngx_str_t *text)
{
    ngx_str_t  *tool;

    tool = &ctx->rpc->tool;

    text->data = ngx_pnalloc(r->pool, sizeof("tools/call ") + tool->len);
    if (text->data == NULL) {
        return NGX_ERROR;
    }

    text->len = ngx_http_once_is_token(tool)
                ? (size_t) (ngx_sprintf(text->data, "tools/call %V", tool)
                            - text->data)
                : (size_t) (ngx_sprintf(text->data, "tools/call")
                            - text->data);

    return NGX_OK;
}


/* -------------------------------------------------------------- the errors */

ngx_buf_t *
ngx_http_once_mcp_problem(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    ngx_http_once_problem_e problem, ngx_buf_t *data, time_t retry_after)
{
    size_t                         len;
    ngx_buf_t                     *b;
    ngx_str_t                      id;
    const ngx_http_once_advice_t  *advice;

    static const char  format[] = "{\"jsonrpc\":\"2.0\",\"id\":%V,\"error\":"
                                  "{\"code\":%i,\"message\":\"%s";
    static const char  wait[] = " Wait %T seconds first.";

    if (data == NULL) {
        return NULL;
    }

    ngx_http_once_mcp_id(ctx->rpc, &id);
    advice = &ngx_http_once_advice[problem];
    len = data->last - data->pos - (sizeof(CRLF) - 1);

    b = ngx_create_temp_buf(r->pool, sizeof(format) + sizeof(wait) + id.len
                                     + NGX_INT_T_LEN + NGX_TIME_T_LEN
                                     + ngx_strlen(advice->text) + len
                                     + sizeof("\",\"data\":}}" CRLF));
    if (b == NULL) {
        return NULL;
    }

    b->last = ngx_sprintf(b->last, format, &id, advice->code, advice->text);

    if (retry_after > 0) {
        b->last = ngx_sprintf(b->last, wait, retry_after);
    }

    b->last = ngx_sprintf(b->last, "\",\"data\":%*s}}" CRLF, len, data->pos);

    return b;
}


ngx_uint_t
ngx_http_once_mcp_status(ngx_http_once_ctx_t *ctx, ngx_uint_t status)
{
    return ctx->rpc->id.len ? NGX_HTTP_OK : status;
}


/* -------------------------------------------------------------- the answer */

static ngx_uint_t
ngx_http_once_mcp_is_events(const u_char *type, size_t len)
{
    return len >= 17
           && ngx_strncasecmp((u_char *) type, (u_char *) "text/event-stream",
                              17)
              == 0
           && (len == 17 || type[17] == ';' || type[17] == ' ');
}


ngx_uint_t
ngx_http_once_mcp_expects(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    return ctx->rpc && r->headers_out.content_encoding == NULL
           && ngx_http_once_mcp_is_events(r->headers_out.content_type.data,
                                          r->headers_out.content_type.len);
}


ngx_uint_t
ngx_http_once_mcp_asks(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    int                   have;
    size_t                used;
    ngx_http_once_rpc_t  *rpc;
    ngx_http_once_run_t  *run;

    rpc = ctx->rpc;
    run = ctx->run;

    if (run->whole || run->broken || !ngx_http_once_mcp_expects(r, ctx)
        || run->len <= rpc->scanned)
    {
        return 0;
    }

    have = ngx_http_once_rpc_events_have(run->data + rpc->scanned,
                                         run->len - rpc->scanned, &used);
    rpc->scanned += used;

    return have != -1 && (have & NGX_HTTP_ONCE_RPC_ASKS);
}


ngx_uint_t
ngx_http_once_mcp_omits(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    return ctx->rpc && r->headers_out.content_encoding
           && r->headers_out.content_encoding->hash;
}


ngx_uint_t
ngx_http_once_mcp_unanswered(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    int                   have;
    size_t                used;
    ngx_http_once_run_t  *run;

    run = ctx->run;

    if (ctx->rpc == NULL || run->stream || r->headers_out.status >= 300
        || ngx_http_once_mcp_omits(r, ctx))
    {
        return 0;
    }

    have = ngx_http_once_mcp_expects(r, ctx)
           ? ngx_http_once_rpc_events_have(run->data, run->len, &used)
           : ngx_http_once_rpc_has(run->data, run->len);

    return have == -1 || !(have & NGX_HTTP_ONCE_RPC_ANSWERS);
}


static ngx_uint_t
ngx_http_once_mcp_recorded_events(const once_response_t *response)
{
    ngx_uint_t            i;
    const once_header_t  *h;

    for (i = 0; i < response->header_count; i++) {
        h = &response->headers[i];

        if (h->name.len == 12
            && ngx_strncasecmp((u_char *) h->name.data,
                               (u_char *) "content-type", 12)
               == 0)
        {
            return ngx_http_once_mcp_is_events(h->value.data, h->value.len);
        }
    }

    return 0;
}


ngx_int_t
ngx_http_once_mcp_replay(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    once_response_t *response)
{
    u_char                *to;
    size_t                 room, len;
    const u_char          *data;
    ngx_http_once_span_t   id;

    if (response->status >= 300) {
        return NGX_OK;
    }

    if (response->body_omitted || response->body.len == 0) {
        return NGX_DECLINED;
    }

    data = response->body.data;
    id.data = ctx->rpc->id.data;
    id.len = ctx->rpc->id.len;
    room = ngx_http_once_rpc_room(data, response->body.len, id.len);

    if (ngx_http_once_body_take_memory(room) != NGX_OK) {
        return NGX_BUSY;
    }

    ctx->memory += room;

    to = ngx_pnalloc(r->pool, room);
    if (to == NULL) {
        return NGX_ERROR;
    }

    len = ngx_http_once_mcp_recorded_events(response)
          ? ngx_http_once_rpc_events(data, response->body.len, &id, to)
          : ngx_http_once_rpc_answer(data, response->body.len, &id, to);

    if (len == 0) {
        return NGX_DECLINED;
    }

    response->body.data = to;
    response->body.len = len;

    return NGX_OK;
}


ngx_int_t
ngx_http_once_mcp_send_omitted(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    ngx_int_t status)
{
    ngx_buf_t  *b;
    ngx_str_t   id;

    ngx_http_once_mcp_id(ctx->rpc, &id);

    b = ngx_create_temp_buf(r->pool, ngx_http_once_mcp_omitted.len + id.len
                                     + NGX_INT_T_LEN);
    if (b == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    b->last = ngx_sprintf(b->last, (char *) ngx_http_once_mcp_omitted.data,
                          &id, status);

    return ngx_http_once_mcp_send(r, b, NGX_HTTP_OK);
}


/* ----------------------------------------------------------- the directive */

static char *
ngx_http_once_mcp_add_tool(ngx_conf_t *cf, ngx_http_once_mcp_t *mcp,
    ngx_str_t *value)
{
    ngx_str_t              name;
    ngx_http_once_tool_t  *tool;

    tool = ngx_array_push(&mcp->tools);
    if (tool == NULL) {
        return NGX_CONF_ERROR;
    }

    ngx_memzero(tool, sizeof(ngx_http_once_tool_t));
    name = *value;

    if (name.len && name.data[0] == '!') {
        tool->except = 1;
        name.data++;
        name.len--;
    }

    if (!tool->except && ngx_http_once_is(&name, "all")) {
        name.len = 0;
        tool->prefix = 1;

    } else {

        if (name.len && name.data[name.len - 1] == '*') {
            tool->prefix = 1;
            name.len--;
        }

        if (name.len == 0 || name.len > NGX_HTTP_ONCE_RPC_TOOL
            || !ngx_http_once_is_plain(&name)
            || ngx_strlchr(name.data, name.data + name.len, '*'))
        {
            return ngx_http_once_bad(cf, value, "it must be all, the name of "
                                     "a tool such as pay, the beginning of "
                                     "names such as pay_*, or an exception "
                                     "such as !get_*");
        }
    }

    tool->name.data = name.data;
    tool->name.len = name.len;

    return NGX_CONF_OK;
}


char *
ngx_http_once_set_mcp(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_once_loc_conf_t *olcf = conf;

    char                  *rv;
    ngx_str_t             *value;
    ngx_uint_t             i, guards;
    ngx_http_once_mcp_t   *mcp;
    ngx_http_once_tool_t  *tool;

    if (olcf->mcp != NGX_CONF_UNSET_PTR) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (cf->args->nelts == 2 && ngx_http_once_is(&value[1], "off")) {
        olcf->mcp = NULL;
        return NGX_CONF_OK;
    }

    mcp = ngx_pcalloc(cf->pool, sizeof(ngx_http_once_mcp_t));

    if (mcp == NULL
        || ngx_array_init(&mcp->tools, cf->pool, cf->args->nelts,
                          sizeof(ngx_http_once_tool_t))
           != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    for (i = 1; i < cf->args->nelts; i++) {
        rv = ngx_http_once_mcp_add_tool(cf, mcp, &value[i]);

        if (rv != NGX_CONF_OK) {
            return rv;
        }
    }

    tool = mcp->tools.elts;

    for (i = 0, guards = 0; i < mcp->tools.nelts; i++) {
        guards += !tool[i].except;
    }

    if (guards == 0) {
        return "has only exceptions: write all in front of them";
    }

    olcf->mcp = mcp;

    return NGX_CONF_OK;
}


/* What is written in a block, or in one around it. */

static ngx_int_t
ngx_http_once_mcp_written(ngx_http_once_loc_conf_t *conf)
{
    while (conf && conf->mcp == NGX_CONF_UNSET_PTR) {
        conf = conf->outer;
    }

    return conf && conf->mcp;
}


ngx_int_t
ngx_http_once_mcp_defaults(ngx_conf_t *cf, ngx_http_once_loc_conf_t *conf)
{
    ngx_uint_t                 key, fingerprint, release;
    ngx_http_once_loc_conf_t  *block;

    if (!ngx_http_once_mcp_written(conf->written)) {
        return NGX_OK;
    }

    key = fingerprint = release = 0;

    for (block = conf->written; block; block = block->outer) {
        key |= block->key_header.data != NULL;
        fingerprint |= block->fingerprint != NGX_CONF_UNSET_UINT;
        release |= block->release.data != NULL;
    }

    if (!fingerprint) {
        conf->fingerprint = ONCE_BODY_MODE_JSON;
    }

    if (!release) {
        /* of the transport: before the call is read */
        ngx_str_set(&conf->release,
                    "400,401,403-407,411,413,415,421,425,429");
    }

    return key ? NGX_OK : ngx_http_once_identify_mcp_key(cf, conf);
}
