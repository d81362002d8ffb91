/*
 * Errors that the gateway itself answers, as application/problem+json (RFC
 * 9457): the type is stable, and the member "retryable" says whether the same
 * request may be sent again. once_problems is a page about all of them, made
 * of the same table. once_error and once_error_body, or a profile, change the
 * status and the body for clients of another protocol.
 */
#include "ngx_http_once_conf.h"
#include "ngx_http_once_request.h"


typedef struct {
    ngx_uint_t                   status;
    ngx_uint_t                   retryable;
    ngx_str_t                    name;     /* urn:once:problem:NAME */
    ngx_str_t                    kind;     /* the type of "error" */
    ngx_str_t                    title;
    ngx_str_t                    detail;   /* unless the caller has another */
} ngx_http_once_problem_t;


typedef struct {
    ngx_uint_t  status;
    ngx_str_t   line;
} ngx_http_once_reason_t;


/*
 * In the order of ngx_http_once_problem_e. `kind` is what Stripe's clients, and
 * those modelled on them, read from the member "error": some of them take any
 * response without that member for success.
 */

static const ngx_http_once_problem_t  ngx_http_once_problems[] = {

    { NGX_HTTP_BAD_REQUEST, 0, ngx_string("key-missing"),
      ngx_string("invalid_request_error"),
      ngx_string("Idempotency key is missing"),
      ngx_string("This operation needs an idempotency key. Send a new, unique "
                 "key with each new operation, and the same key with each "
                 "retry of it.") },

    { NGX_HTTP_BAD_REQUEST, 0, ngx_string("key-invalid"),
      ngx_string("invalid_request_error"),
      ngx_string("Idempotency key is invalid"),
      ngx_string("A key is 1 to 255 visible ASCII characters, sent once.") },

    { NGX_HTTP_BAD_REQUEST, 0, ngx_string("scope-missing"),
      ngx_string("invalid_request_error"),
      ngx_string("Caller is not known"),
      ngx_string("Idempotency keys belong to a caller, and this request does "
                 "not say whose it is.") },

    { NGX_HTTP_CONFLICT, 1, ngx_string("in-flight"),
      ngx_string("idempotency_error"),
      ngx_string("A request with this idempotency key is in progress"),
      ngx_string("Send the same request again later to get its response.") },

    { NGX_HTTP_CONFLICT, 0, ngx_string("outcome-unknown"),
      ngx_string("idempotency_error"),
      ngx_string("The outcome of this operation is not known"),
      ngx_string("An earlier request with this key may have taken effect. It "
                 "is not run again until its outcome has been settled.") },

    { 422, 0, ngx_string("key-reused"),
      ngx_string("idempotency_error"),
      ngx_string("Idempotency key was used for another request"),
      ngx_string("The first request with this key was different. Send a new "
                 "key with a new operation.") },

    { NGX_HTTP_BAD_GATEWAY, 1, ngx_string("response-incomplete"),
      ngx_string("api_error"),
      ngx_string("The response was cut off"),
      ngx_string("The operation may have taken effect. Send the same request "
                 "with the same key again to learn its outcome.") },

    { NGX_HTTP_SERVICE_UNAVAILABLE, 1, ngx_string("store-unavailable"),
      ngx_string("api_error"),
      ngx_string("Idempotency records are not available"),
      ngx_string("Send the same request with the same key again later.") },

    { NGX_HTTP_TOO_MANY_REQUESTS, 1, ngx_string("too-many-waiters"),
      ngx_string("rate_limit_error"),
      ngx_string("Too many requests wait for the same operation"),
      ngx_string("Send the same request with the same key again later.") },

    { NGX_HTTP_CONFLICT, 1, ngx_string("in-doubt"),
      ngx_string("idempotency_error"),
      ngx_string("The outcome of an earlier attempt is not known"),
      ngx_string("No request with this key is in progress. The response of an "
                 "earlier one was lost, and it may have taken effect. Send "
                 "the same request with the same key again after Retry-After: "
                 "it gets the outcome if that has become known, and otherwise "
                 "runs the operation again.") },

    { NGX_HTTP_BAD_GATEWAY, 1, ngx_string("response-lost"),
      ngx_string("api_error"),
      ngx_string("The response was lost"),
      ngx_string("The operation may have taken effect. Send the same request "
                 "with the same key again to learn its outcome.") },

    { NGX_HTTP_BAD_GATEWAY, 1, ngx_string("backend-unavailable"),
      ngx_string("api_error"),
      ngx_string("The backend could not be reached"),
      ngx_string("This request did not reach the backend and had no effect. "
                 "Send it again with the same key.") },

    { NGX_HTTP_SERVICE_UNAVAILABLE, 1,
      ngx_string("authorization-unavailable"),
      ngx_string("api_error"),
      ngx_string("The caller could not be authorized"),
      ngx_string("There is an answer for this key, but it could not be "
                 "verified that the caller may have it. Send the same request "
                 "with the same key again later.") },

    { NGX_HTTP_SERVICE_UNAVAILABLE, 1, ngx_string("out-of-memory"),
      ngx_string("api_error"),
      ngx_string("The gateway has no room for more bodies"),
      ngx_string("Send the same request with the same key again later.") },

    { NGX_HTTP_TOO_MANY_REQUESTS, 1, ngx_string("quota-exceeded"),
      ngx_string("rate_limit_error"),
      ngx_string("Too many new idempotency keys"),
      ngx_string("This caller has used as many new keys as it may for now. "
                 "Nothing was done. Send the same request again later; keys "
                 "that have been used before are still answered.") },

    { NGX_HTTP_SERVICE_UNAVAILABLE, 1, ngx_string("too-many-unknown"),
      ngx_string("api_error"),
      ngx_string("Too many operations with an unknown outcome"),
      ngx_string("New operations wait until the outcome of earlier ones has "
                 "been settled. Nothing was done. Send the same request again "
                 "later; keys that have been used before are still "
                 "answered.") }
};


/* Statuses that nginx would send without a reason phrase: "422 ". */
static const ngx_http_once_reason_t  ngx_http_once_reasons[] = {
    { 203, ngx_string("203 Non-Authoritative Information") },
    { 205, ngx_string("205 Reset Content") },
    { 207, ngx_string("207 Multi-Status") },
    { 208, ngx_string("208 Already Reported") },
    { 226, ngx_string("226 IM Used") },
    { 300, ngx_string("300 Multiple Choices") },
    { 305, ngx_string("305 Use Proxy") },
    { 407, ngx_string("407 Proxy Authentication Required") },
    { 417, ngx_string("417 Expectation Failed") },
    { 422, ngx_string("422 Unprocessable Content") },
    { 423, ngx_string("423 Locked") },
    { 424, ngx_string("424 Failed Dependency") },
    { 425, ngx_string("425 Too Early") },
    { 426, ngx_string("426 Upgrade Required") },
    { 428, ngx_string("428 Precondition Required") },
    { 431, ngx_string("431 Request Header Fields Too Large") },
    { 451, ngx_string("451 Unavailable For Legal Reasons") },
    { 506, ngx_string("506 Variant Also Negotiates") },
    { 508, ngx_string("508 Loop Detected") },
    { 511, ngx_string("511 Network Authentication Required") },
    { 0, ngx_null_string }
};


static const char  ngx_http_once_page_head[] =
    "<!DOCTYPE html>\n"
    "<html lang=\"en\">\n"
    "<head><meta charset=\"utf-8\"><title>Errors of the gateway</title>\n"
    "<style>body{font-family:sans-serif;max-width:45em;margin:2em auto;"
    "padding:0 1em}:target{background:#ffd}</style></head>\n"
    "<body>\n"
    "<h1>Errors of the gateway</h1>\n"
    "<p>Each has a stable <code>type</code>, and a member "
    "<code>retryable</code>: whether the same request, with the same key, may "
    "be sent again.</p>\n";

static const char  ngx_http_once_page_tail[] = "</body>\n</html>\n";


void
ngx_http_once_problem_set_status(ngx_http_request_t *r, ngx_uint_t status)
{
    const ngx_http_once_reason_t  *reason;

    r->headers_out.status = status;
    r->headers_out.status_line.len = 0;

    for (reason = ngx_http_once_reasons; reason->status; reason++) {

        if (reason->status == status) {
            r->headers_out.status_line = reason->line;
            return;
        }
    }
}


static ngx_int_t
ngx_http_once_problem_header(ngx_http_request_t *r, const char *name,
    ngx_str_t *value)
{
    ngx_str_t  key;

    key.data = (u_char *) name;
    key.len = ngx_strlen(name);

    return ngx_http_once_headers_push(&r->headers_out.headers, &key, value)
           ? NGX_OK : NGX_ERROR;
}


/*
 * Links to the page that explains it, at the anchor of this problem unless
 * once_docs has an anchor of its own.
 */

static ngx_int_t
ngx_http_once_problem_link(ngx_http_request_t *r,
    ngx_http_once_loc_conf_t *conf, const ngx_http_once_problem_t *problem)
{
    u_char                    *p;
    ngx_str_t                  value, docs;
    ngx_http_once_srv_conf_t  *oscf;

    docs = conf->docs;

    if (docs.data == NULL) {
        oscf = ngx_http_get_module_srv_conf(r, ngx_http_once_module);
        docs = oscf->problems;
    }

    if (docs.len == 0) {
        return NGX_OK;
    }

    value.len = sizeof("<#>; rel=\"describedby\"; type=\"text/html\"")
                + docs.len + problem->name.len;
    value.data = ngx_pnalloc(r->pool, value.len);
    if (value.data == NULL) {
        return NGX_ERROR;
    }

    p = ngx_sprintf(value.data, "<%V", &docs);

    if (ngx_strlchr(docs.data, docs.data + docs.len, '#') == NULL) {
        p = ngx_sprintf(p, "#%V", &problem->name);
    }

    p = ngx_sprintf(p, ">; rel=\"describedby\"; type=\"text/html\"");
    value.len = p - value.data;

    return ngx_http_once_problem_header(r, "Link", &value);
}


static ngx_int_t
ngx_http_once_problem_headers(ngx_http_request_t *r,
    ngx_http_once_loc_conf_t *conf, const ngx_http_once_problem_t *problem,
    time_t retry_after)
{
    u_char     *p;
    ngx_str_t   value;

    ngx_str_set(&value, "en");
    if (ngx_http_once_problem_header(r, "Content-Language", &value) != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_str_set(&value, "no-store");
    if (ngx_http_once_problem_header(r, "Cache-Control", &value) != NGX_OK) {
        return NGX_ERROR;
    }

    if (retry_after > 0) {
        value.data = ngx_pnalloc(r->pool, NGX_TIME_T_LEN);
        if (value.data == NULL) {
            return NGX_ERROR;
        }

        p = ngx_sprintf(value.data, "%T", retry_after);
        value.len = p - value.data;

        if (ngx_http_once_problem_header(r, "Retry-After", &value) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    if (conf->error_header.len) {

        if (ngx_http_complex_value(r, conf->error_header_value, &value)
            != NGX_OK
            || (value.len
                && ngx_http_once_headers_push(&r->headers_out.headers,
                                              &conf->error_header, &value)
                   == NULL))
        {
            return NGX_ERROR;
        }
    }

    return ngx_http_once_problem_link(r, conf, problem);
}


static ngx_buf_t *
ngx_http_once_problem_body(ngx_http_request_t *r, ngx_str_t *text)
{
    size_t      len;
    ngx_buf_t  *b;

    static const char  format[] = "{\"type\":\"urn:once:problem:%V\","
                                  "\"title\":\"%V\",\"status\":%V,"
                                  "\"detail\":\"%V\",\"retryable\":%V,"
                                  "\"error\":{\"type\":\"%V\","
                                  "\"code\":\"%V\","
                                  "\"message\":\"%V\"}}" CRLF;

    len = sizeof(format) + text[NGX_HTTP_ONCE_E_NAME].len
          + text[NGX_HTTP_ONCE_E_TITLE].len
          + text[NGX_HTTP_ONCE_E_STATUS].len
          + text[NGX_HTTP_ONCE_E_RETRYABLE].len
          + text[NGX_HTTP_ONCE_E_TYPE].len
          + text[NGX_HTTP_ONCE_E_CODE].len
          + 2 * text[NGX_HTTP_ONCE_E_DETAIL].len;

    b = ngx_create_temp_buf(r->pool, len);
    if (b == NULL) {
        return NULL;
    }

    b->last = ngx_sprintf(b->last, format, &text[NGX_HTTP_ONCE_E_NAME],
                          &text[NGX_HTTP_ONCE_E_TITLE],
                          &text[NGX_HTTP_ONCE_E_STATUS],
                          &text[NGX_HTTP_ONCE_E_DETAIL],
                          &text[NGX_HTTP_ONCE_E_RETRYABLE],
                          &text[NGX_HTTP_ONCE_E_TYPE],
                          &text[NGX_HTTP_ONCE_E_CODE],
                          &text[NGX_HTTP_ONCE_E_DETAIL]);

    return b;
}


static ngx_int_t
ngx_http_once_problem_escape(ngx_http_request_t *r, const ngx_str_t *from,
    ngx_str_t *to)
{
    size_t  escape;

    escape = (size_t) ngx_escape_json(NULL, from->data, from->len);

    if (escape == 0) {
        *to = *from;
        return NGX_OK;
    }

    to->len = from->len + escape;
    to->data = ngx_pnalloc(r->pool, to->len);
    if (to->data == NULL) {
        return NGX_ERROR;
    }

    (void) ngx_escape_json(to->data, from->data, from->len);

    return NGX_OK;
}


/* What the variables of once_error_body have as their values. */

static ngx_int_t
ngx_http_once_problem_texts(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    const ngx_http_once_problem_t *problem, ngx_http_once_error_t *error,
    ngx_uint_t status, const ngx_str_t *detail)
{
    u_char     *p;
    ngx_str_t  *text;

    text = ngx_pcalloc(r->pool, NGX_HTTP_ONCE_E_TEXTS * sizeof(ngx_str_t));
    p = ngx_pnalloc(r->pool, NGX_INT_T_LEN);

    if (text == NULL || p == NULL) {
        return NGX_ERROR;
    }

    text[NGX_HTTP_ONCE_E_NAME] = problem->name;
    text[NGX_HTTP_ONCE_E_TITLE] = problem->title;
    text[NGX_HTTP_ONCE_E_STATUS].data = p;
    text[NGX_HTTP_ONCE_E_STATUS].len = ngx_sprintf(p, "%ui", status) - p;

    if (problem->retryable) {
        ngx_str_set(&text[NGX_HTTP_ONCE_E_RETRYABLE], "true");

    } else {
        ngx_str_set(&text[NGX_HTTP_ONCE_E_RETRYABLE], "false");
    }

    ctx->error = text;

    if (ngx_http_once_problem_escape(r, error->code.len ? &error->code
                                                        : &problem->name,
                                     &text[NGX_HTTP_ONCE_E_CODE])
        != NGX_OK
        || ngx_http_once_problem_escape(r, error->type.len ? &error->type
                                                           : &problem->kind,
                                        &text[NGX_HTTP_ONCE_E_TYPE])
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_http_once_problem_escape(r, detail,
                                        &text[NGX_HTTP_ONCE_E_DETAIL]);
}


/* The body as once_error_body has it. */

static ngx_buf_t *
ngx_http_once_problem_own_body(ngx_http_request_t *r,
    ngx_http_once_loc_conf_t *conf)
{
    ngx_buf_t  *b;
    ngx_str_t   text;

    if (ngx_http_complex_value(r, conf->error_body, &text) != NGX_OK) {
        return NULL;
    }

    b = ngx_create_temp_buf(r->pool, text.len + sizeof(CRLF));
    if (b == NULL) {
        return NULL;
    }

    b->last = ngx_sprintf(b->last, "%V" CRLF, &text);

    return b;
}


/* Names the header that the key is expected in. */

static void
ngx_http_once_key_detail(ngx_http_request_t *r, ngx_http_once_loc_conf_t *conf,
    ngx_str_t *detail)
{
    size_t   len;
    u_char  *p;

    static const u_char  before[] = "This operation needs an idempotency key "
                                    "in the header ";
    static const u_char  after[] = ". Send a new, unique key with each new "
                                   "operation, and the same key with each "
                                   "retry of it.";

    *detail = ngx_http_once_problems[NGX_HTTP_ONCE_P_KEY_MISSING].detail;

    len = sizeof(before) - 1 + conf->key_header.len + sizeof(after) - 1;

    p = conf->key_header.len ? ngx_pnalloc(r->pool, len) : NULL;
    if (p == NULL) {
        return;
    }

    detail->data = p;
    detail->len = len;

    ngx_sprintf(p, "%s%V%s", before, &conf->key_header, after);
}


ngx_int_t
ngx_http_once_problem_send(ngx_http_request_t *r,
    ngx_http_once_loc_conf_t *conf, ngx_http_once_problem_e code,
    ngx_str_t *detail, time_t retry_after)
{
    return ngx_http_once_problem_send_as(r, conf, code,
                                         ngx_http_once_problems[code].status,
                                         detail, retry_after);
}


ngx_int_t
ngx_http_once_problem_send_as(ngx_http_request_t *r,
    ngx_http_once_loc_conf_t *conf, ngx_http_once_problem_e code,
    ngx_uint_t status, ngx_str_t *detail, time_t retry_after)
{
    ngx_int_t                       rc;
    ngx_buf_t                      *b;
    ngx_str_t                       text;
    ngx_http_once_ctx_t            *ctx;
    const ngx_http_once_problem_t  *problem;

    ctx = ngx_http_once_get_ctx(r);
    problem = &ngx_http_once_problems[code];
    text = problem->detail;

    if (conf->errors[code].status) {
        status = conf->errors[code].status;
    }

    if (detail && detail->len) {
        text = *detail;

    } else if (code == NGX_HTTP_ONCE_P_KEY_MISSING) {
        ngx_http_once_key_detail(r, conf, &text);
    }

    rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK) {
        return rc;
    }

    if (ctx == NULL
        || ngx_http_once_problem_texts(r, ctx, problem, &conf->errors[code],
                                       status, &text)
           != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    b = conf->error_body && ctx->rpc == NULL
        ? ngx_http_once_problem_own_body(r, conf)
        : ngx_http_once_problem_body(r, ctx->error);

    if (ctx->rpc) {
        b = ngx_http_once_mcp_problem(r, ctx, code, b, retry_after);
        status = ngx_http_once_mcp_status(ctx, status);
    }

    if (b == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    /* remove what is left of a response that had begun to arrive */
    ngx_http_clean_header(r);

    r->err_status = 0;
    ngx_http_once_problem_set_status(r, status);
    r->headers_out.content_length_n = b->last - b->pos;
    ngx_str_set(&r->headers_out.content_type, "application/problem+json");

    if (ctx->rpc) {
        ngx_str_set(&r->headers_out.content_type, "application/json");

    } else if (conf->error_body) {
        r->headers_out.content_type = conf->error_type;
    }

    r->headers_out.content_type_len = r->headers_out.content_type.len;
    r->headers_out.content_type_lowcase = NULL;

    if (ngx_http_once_problem_headers(r, conf, problem, retry_after)
        != NGX_OK
        || ngx_http_once_headers_add_echo(r, ctx) != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_once_send(r, b);
}


ngx_int_t
ngx_http_once_problem_refuse(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx,
    ngx_http_once_problem_e problem, ngx_str_t *detail, time_t retry_after)
{
    ctx->phase = NGX_HTTP_ONCE_ANSWERED;

    return ngx_http_once_problem_send(r, ctx->conf, problem, detail,
                                      retry_after);
}


ngx_int_t
ngx_http_once_problem_refuse_crowded(ngx_http_request_t *r,
    ngx_http_once_ctx_t *ctx, ngx_http_once_counter_e counter)
{
    if (ctx->outcome == NGX_HTTP_ONCE_NONE) {
        /* otherwise it has been counted by its outcome */
        ngx_http_once_count(ctx->conf->route, NGX_HTTP_ONCE_C_REFUSED);
    }

    ctx->outcome = NGX_HTTP_ONCE_REFUSED;
    ngx_http_once_count(ctx->conf->route, counter);

    return ngx_http_once_problem_refuse(r, ctx, NGX_HTTP_ONCE_P_MEMORY, NULL,
                                        ctx->conf->retry_after
                                        ? ctx->conf->retry_after : 1);
}


/* ---------------------------------------------------------------- the page */

static ngx_buf_t *
ngx_http_once_page(ngx_http_request_t *r)
{
    size_t                          len;
    ngx_buf_t                      *b;
    ngx_uint_t                      i;
    const ngx_http_once_problem_t  *problem;

    static const char  entry[] = "<h2 id=\"%V\">%V</h2>\n"
                                 "<p><code>urn:once:problem:%V</code>, status "
                                 "%ui, %s.</p>\n<p>%V</p>\n";

    len = sizeof(ngx_http_once_page_head) + sizeof(ngx_http_once_page_tail);

    for (i = 0; i < NGX_HTTP_ONCE_PROBLEMS; i++) {
        problem = &ngx_http_once_problems[i];
        len += sizeof(entry) + NGX_INT_T_LEN + sizeof("not retryable")
               + 2 * problem->name.len + problem->title.len
               + problem->detail.len;
    }

    b = ngx_create_temp_buf(r->pool, len);
    if (b == NULL) {
        return NULL;
    }

    b->last = ngx_cpymem(b->last, ngx_http_once_page_head,
                         sizeof(ngx_http_once_page_head) - 1);

    for (i = 0; i < NGX_HTTP_ONCE_PROBLEMS; i++) {
        problem = &ngx_http_once_problems[i];
        b->last = ngx_sprintf(b->last, entry, &problem->name, &problem->title,
                              &problem->name, problem->status,
                              problem->retryable ? "retryable"
                                                 : "not retryable",
                              &problem->detail);
    }

    b->last = ngx_cpymem(b->last, ngx_http_once_page_tail,
                         sizeof(ngx_http_once_page_tail) - 1);
    return b;
}


ngx_int_t
ngx_http_once_problem_page_handler(ngx_http_request_t *r)
{
    ngx_int_t   rc;
    ngx_buf_t  *b;

    if (!(r->method & (NGX_HTTP_GET|NGX_HTTP_HEAD))) {
        return NGX_HTTP_NOT_ALLOWED;
    }

    rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK) {
        return rc;
    }

    b = ngx_http_once_page(r);
    if (b == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    r->headers_out.status = NGX_HTTP_OK;
    r->headers_out.content_length_n = b->last - b->pos;
    ngx_str_set(&r->headers_out.content_type, "text/html; charset=utf-8");
    r->headers_out.content_type_len = sizeof("text/html") - 1;

    return ngx_http_once_send(r, b);
}


char *
ngx_http_once_problem_page(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_core_loc_conf_t  *clcf;
    ngx_http_once_srv_conf_t  *oscf;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (clcf->named
#if (NGX_PCRE)
        || clcf->regex
#endif
        || clcf->noname || clcf->name.len == 0 || clcf->name.data[0] != '/')
    {
        return "must be in a location with a path, which errors link to";
    }

    clcf->handler = ngx_http_once_problem_page_handler;

    oscf = ngx_http_conf_get_module_srv_conf(cf, ngx_http_once_module);

    if (oscf->problems.len) {
        return "is duplicate in this server";
    }

    oscf->problems = clcf->name;

    return NGX_CONF_OK;
}


/* -------------------------------------------------------------- directives */

static ngx_uint_t
ngx_http_once_error_find(ngx_str_t *name)
{
    ngx_uint_t  i;

    for (i = 0; i < NGX_HTTP_ONCE_PROBLEMS; i++) {
        if (ngx_http_once_is(name,
                             (char *) ngx_http_once_problems[i].name.data))
        {
            break;
        }
    }

    return i;
}


/* The text after "status=", "code=" or "type=". */

static ngx_uint_t
ngx_http_once_error_value(ngx_str_t *word, const char *name, ngx_str_t *text)
{
    size_t  len;

    len = ngx_strlen(name);

    if (word->len <= len || ngx_strncmp(word->data, name, len) != 0) {
        return 0;
    }

    text->data = word->data + len;
    text->len = word->len - len;

    return 1;
}


static char *
ngx_http_once_error_set(ngx_conf_t *cf, ngx_str_t *word,
    ngx_http_once_error_t *error)
{
    ngx_int_t  status;
    ngx_str_t  text, *field;

    if (ngx_http_once_error_value(word, "status=", &text)) {
        status = ngx_atoi(text.data, text.len);

        if (status < 400 || status > 599) {
            return ngx_http_once_bad(cf, word, "a status must be 400 to 599");
        }

        if (error->status) {
            return "is duplicate";
        }

        error->status = (ngx_uint_t) status;

        return NGX_CONF_OK;
    }

    if (ngx_http_once_error_value(word, "code=", &text)) {
        field = &error->code;

    } else if (ngx_http_once_error_value(word, "type=", &text)) {
        field = &error->type;

    } else {
        return ngx_http_once_bad(cf, word, "it must be status=, code= or "
                                 "type= with a value");
    }

    if (field->data) {
        return "is duplicate";
    }

    *field = text;

    return NGX_CONF_OK;
}


char *
ngx_http_once_set_error(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_once_loc_conf_t *olcf = conf;

    char        *rv;
    ngx_str_t   *value;
    ngx_uint_t   i, problem;

    value = cf->args->elts;
    problem = ngx_http_once_error_find(&value[1]);

    if (problem == NGX_HTTP_ONCE_PROBLEMS) {
        return ngx_http_once_bad(cf, &value[1], "it must be the name of a "
                                 "problem such as key-reused");
    }

    for (i = 2; i < cf->args->nelts; i++) {
        rv = ngx_http_once_error_set(cf, &value[i], &olcf->errors[problem]);

        if (rv != NGX_CONF_OK) {
            return rv;
        }
    }

    return NGX_CONF_OK;
}


char *
ngx_http_once_set_error_body(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_once_loc_conf_t *olcf = conf;

    ngx_str_t  *value;

    if (olcf->error_body != NGX_CONF_UNSET_PTR) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (cf->args->nelts == 2 && ngx_http_once_is(&value[1], "problem")) {
        olcf->error_body = NULL;
        return NGX_CONF_OK;
    }

    if (ngx_http_script_variables_count(&value[1]) == 0) {
        return ngx_http_once_bad(cf, &value[1], "it must be problem, or a "
                                 "text with variables such as "
                                 "$once_error_detail");
    }

    ngx_str_set(&olcf->error_type, "application/json");

    if (cf->args->nelts == 3) {

        if (!ngx_http_once_is_plain(&value[2])) {
            return ngx_http_once_bad(cf, &value[2], "it must be a media type "
                                     "such as application/json");
        }

        olcf->error_type = value[2];
    }

    olcf->error_body = ngx_http_once_compile(cf, &value[1]);

    return olcf->error_body ? NGX_CONF_OK : NGX_CONF_ERROR;
}


char *
ngx_http_once_set_error_header(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_once_loc_conf_t *olcf = conf;

    ngx_str_t  *value;

    if (olcf->error_header.data) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (cf->args->nelts == 2 && ngx_http_once_is(&value[1], "off")) {
        ngx_str_set(&olcf->error_header, "");
        return NGX_CONF_OK;
    }

    if (cf->args->nelts == 2 || !ngx_http_once_is_token(&value[1])) {
        return ngx_http_once_bad(cf, &value[1], "it must be off, or the name "
                                 "of a response header and its value");
    }

    olcf->error_header = value[1];
    olcf->error_header_value = ngx_http_once_compile(cf, &value[2]);

    return olcf->error_header_value ? NGX_CONF_OK : NGX_CONF_ERROR;
}
