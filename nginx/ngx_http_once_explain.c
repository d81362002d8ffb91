/*
 * For people who meet an answer of the gateway: the page of once_problems,
 * made of the same table as the answers, and the words behind a status.
 */
#include "ngx_http_once.h"


typedef struct {
    ngx_uint_t  status;
    ngx_str_t   line;
} ngx_http_once_reason_t;


/* nginx writes a status that it has no words for with none: "422 ". */

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
    "<p>Each has a <code>type</code> that stays, and a member "
    "<code>retryable</code>: whether the same request, with the same key, may "
    "be sent again.</p>\n";

static const char  ngx_http_once_page_tail[] = "</body>\n</html>\n";


void
ngx_http_once_set_status(ngx_http_request_t *r, ngx_uint_t status)
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
        problem = ngx_http_once_problem_of(i);
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
        problem = ngx_http_once_problem_of(i);
        b->last = ngx_sprintf(b->last, entry, &problem->name, &problem->title,
                              &problem->name, problem->status,
                              problem->retryable ? "retryable"
                                                 : "not retryable",
                              &problem->detail);
    }

    b->last = ngx_cpymem(b->last, ngx_http_once_page_tail,
                         sizeof(ngx_http_once_page_tail) - 1);
    b->last_buf = (r == r->main) ? 1 : 0;
    b->last_in_chain = 1;

    return b;
}


ngx_int_t
ngx_http_once_problems_handler(ngx_http_request_t *r)
{
    ngx_int_t    rc;
    ngx_buf_t   *b;
    ngx_chain_t  out;

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

    rc = ngx_http_send_header(r);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    out.buf = b;
    out.next = NULL;

    return ngx_http_output_filter(r, &out);
}


char *
ngx_http_once_problems_page(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
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
        return "must stand in a location with a path, which errors link to";
    }

    clcf->handler = ngx_http_once_problems_handler;

    oscf = ngx_http_conf_get_module_srv_conf(cf, ngx_http_once_module);

    if (oscf->problems.len) {
        return "is duplicate in this server";
    }

    oscf->problems = clcf->name;

    return NGX_CONF_OK;
}
