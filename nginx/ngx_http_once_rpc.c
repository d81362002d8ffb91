/*
 * JSON-RPC messages. jansson decides what is valid and what it means; where a
 * value is in the text is found by ngx_http_once_json.c, so that ids, numbers
 * and arguments stay as they were written.
 */
#include "ngx_http_once_rpc.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>


#define ONCE_RPC_FLAGS  (JSON_DECODE_ANY|JSON_DECODE_INT_AS_REAL|JSON_ALLOW_NUL)


typedef enum {
    ONCE_RPC_OTHER = 0,
    ONCE_RPC_ANSWER,
    ONCE_RPC_REQUEST,
    ONCE_RPC_PROGRESS
} ngx_http_once_rpc_kind_e;


/* Lines of an event; `data` is allocated. */
typedef struct {
    const unsigned char  *start;
    const unsigned char  *end;
    unsigned char        *data;
    size_t                len;
} ngx_http_once_event_t;


static const char  ngx_http_once_rpc_batch[] =
    "This gateway takes no batch with a call of a guarded tool: send each "
    "call on its own.";


/* ------------------------------------------------------------ the request */

static ngx_http_once_rpc_e
ngx_http_once_rpc_bad(ngx_http_once_call_t *call, int code, const char *wrong)
{
    call->code = code;
    call->wrong = wrong;

    return NGX_HTTP_ONCE_RPC_BAD;
}


/* Some readers take names without regard to case. */

static int
ngx_http_once_rpc_disguised(json_t *object, const char *const *names)
{
    size_t       i;
    json_t      *value;
    const char  *name;

    json_object_foreach(object, name, value) {

        for (i = 0; names[i]; i++) {

            if (strcasecmp(name, names[i]) == 0 && strcmp(name, names[i]) != 0)
            {
                return 1;
            }
        }
    }

    return 0;
}


static int
ngx_http_once_rpc_fits(const ngx_http_once_tool_t *tool, const char *name,
    size_t len)
{
    if (tool->prefix ? len < tool->name.len : len != tool->name.len) {
        return 0;
    }

    /* an exception must be meant; a guarded tool may be meant */

    return tool->except
           ? memcmp(name, tool->name.data, tool->name.len) == 0
           : strncasecmp(name, (const char *) tool->name.data, tool->name.len)
             == 0;
}


static int
ngx_http_once_rpc_guarded(const ngx_http_once_tool_t *tools, size_t count,
    const char *name, size_t len)
{
    int     guarded;
    size_t  i;

    guarded = 0;

    for (i = 0; i < count; i++) {

        if (!ngx_http_once_rpc_fits(&tools[i], name, len)) {
            continue;
        }

        if (tools[i].except) {
            return 0;
        }

        guarded = 1;
    }

    return guarded;
}


static ngx_http_once_rpc_e
ngx_http_once_rpc_tool(json_t *params, const ngx_http_once_tool_t *tools,
    size_t count, ngx_http_once_call_t *call)
{
    size_t   len;
    json_t  *name;

    static const char *const  names[] = { "name", "arguments", "_meta", NULL };

    name = json_object_get(params, "name");    /* NULL if it is no object */
    len = json_string_length(name);

    if (len == 0 || len > NGX_HTTP_ONCE_RPC_TOOL
        || ngx_http_once_rpc_disguised(params, names))
    {
        return ngx_http_once_rpc_bad(call, NGX_HTTP_ONCE_RPC_PARAMS,
                   "params.name must be the name of a tool, of at most 128 "
                   "bytes.");
    }

    if (!ngx_http_once_rpc_guarded(tools, count, json_string_value(name), len))
    {
        return NGX_HTTP_ONCE_RPC_PASS;
    }

    memcpy(call->tool, json_string_value(name), len);
    call->tool_len = len;

    return NGX_HTTP_ONCE_RPC_CALL;
}


static ngx_http_once_rpc_e
ngx_http_once_rpc_message(json_t *message, const ngx_http_once_tool_t *tools,
    size_t count, ngx_http_once_call_t *call)
{
    json_t               *method, *id;
    const char           *text;
    ngx_http_once_rpc_e   kind;

    static const char *const  names[] = { "jsonrpc", "id", "method", "params",
                                          "result", "error", NULL };

    if (!json_is_object(message)
        || ngx_http_once_rpc_disguised(message, names))
    {
        return ngx_http_once_rpc_bad(call, NGX_HTTP_ONCE_RPC_INVALID,
                   "This is no message of JSON-RPC 2.0.");
    }

    method = json_object_get(message, "method");

    if (method == NULL) {
        return NGX_HTTP_ONCE_RPC_PASS;    /* an answer of the client */
    }

    text = json_string_value(method);

    if (text == NULL || strlen(text) != json_string_length(method)) {
        return ngx_http_once_rpc_bad(call, NGX_HTTP_ONCE_RPC_INVALID,
                   "The method must be a string.");
    }

    if (strcmp(text, "tools/call") != 0) {
        return strcasecmp(text, "tools/call") != 0
               ? NGX_HTTP_ONCE_RPC_PASS
               : ngx_http_once_rpc_bad(call, NGX_HTTP_ONCE_RPC_METHOD,
                                       "The method is written tools/call.");
    }

    kind = ngx_http_once_rpc_tool(json_object_get(message, "params"), tools,
                                  count, call);
    id = json_object_get(message, "id");

    if (kind == NGX_HTTP_ONCE_RPC_CALL
        && !json_is_string(id) && !json_is_number(id))
    {
        return ngx_http_once_rpc_bad(call, NGX_HTTP_ONCE_RPC_INVALID,
                   "A call of this tool needs an id, a string or a number, to "
                   "be answered.");
    }

    return kind;
}


static ngx_http_once_rpc_e
ngx_http_once_rpc_batched(json_t *batch, const ngx_http_once_tool_t *tools,
    size_t count, ngx_http_once_call_t *call)
{
    size_t   i;
    json_t  *message;

    if (json_array_size(batch) == 0) {
        return ngx_http_once_rpc_bad(call, NGX_HTTP_ONCE_RPC_INVALID,
                                     "The batch is empty.");
    }

    json_array_foreach(batch, i, message) {

        if (ngx_http_once_rpc_message(message, tools, count, call)
            != NGX_HTTP_ONCE_RPC_PASS)
        {
            return ngx_http_once_rpc_bad(call, NGX_HTTP_ONCE_RPC_INVALID,
                                         ngx_http_once_rpc_batch);
        }
    }

    return NGX_HTTP_ONCE_RPC_PASS;
}


/* Where id and params are in the text of a valid message. */

static void
ngx_http_once_rpc_locate(const unsigned char *data, size_t len,
    ngx_http_once_call_t *call)
{
    const unsigned char     *p, *name, *end;
    ngx_http_once_member_t   member;

    p = data;

    while (ngx_http_once_json_next(&p, data + len, &member)) {
        name = member.name.data;
        end = name + member.name.len;

        if (ngx_http_once_json_is(name, end, "id", 2)) {
            call->id = member.value;

        } else if (ngx_http_once_json_is(name, end, "params", 6)) {
            call->params = member.value;
        }
    }
}


ngx_http_once_rpc_e
ngx_http_once_rpc_read(const unsigned char *data, size_t len,
    const ngx_http_once_tool_t *tools, size_t count,
    ngx_http_once_call_t *call)
{
    json_t               *root;
    ngx_http_once_rpc_e   kind;

    memset(call, 0, sizeof(ngx_http_once_call_t));

    /* jansson takes a zero byte for the end */

    root = len && memchr(data, 0, len) == NULL
           ? json_loadb((const char *) data, len,
                        ONCE_RPC_FLAGS|JSON_REJECT_DUPLICATES, NULL)
           : NULL;

    if (root == NULL) {
        return ngx_http_once_rpc_bad(call, NGX_HTTP_ONCE_RPC_PARSE,
                   "The body is not JSON in UTF-8 that every reader "
                   "understands alike; no name may occur twice in an object.");
    }

    kind = json_is_array(root)
           ? ngx_http_once_rpc_batched(root, tools, count, call)
           : ngx_http_once_rpc_message(root, tools, count, call);

    if (json_is_object(root)) {
        ngx_http_once_rpc_locate(data, len, call);
    }

    json_decref(root);

    if (call->id.len > NGX_HTTP_ONCE_RPC_ID) {
        call->id.len = 0;

        if (kind == NGX_HTTP_ONCE_RPC_CALL) {
            kind = ngx_http_once_rpc_bad(call, NGX_HTTP_ONCE_RPC_INVALID,
                       "The id has more than 256 bytes.");
        }
    }

    if (call->id.len && call->id.data[0] != '"' && call->id.data[0] != '-'
        && (call->id.data[0] < '0' || call->id.data[0] > '9'))
    {
        call->id.len = 0;    /* null, or no id */
    }

    return kind;
}


static unsigned char *
ngx_http_once_rpc_copy(unsigned char *to, const void *data, size_t len)
{
    memcpy(to, data, len);

    return to + len;
}


size_t
ngx_http_once_rpc_operation(const ngx_http_once_call_t *call,
    unsigned char *to)
{
    int                      first;
    unsigned char           *out;
    const unsigned char     *p, *last, *name;
    ngx_http_once_member_t   member;

    static const char  begin[] = "{\"method\":\"tools/call\",\"params\":{";

    out = ngx_http_once_rpc_copy(to, begin, sizeof(begin) - 1);
    p = call->params.data;
    last = p + call->params.len;
    first = 1;

    while (ngx_http_once_json_next(&p, last, &member)) {
        name = member.name.data;

        if (ngx_http_once_json_is(name, name + member.name.len, "_meta", 5)) {
            continue;
        }

        if (!first) {
            *out++ = ',';
        }

        first = 0;

        out = ngx_http_once_rpc_copy(out, name - 1, member.name.len + 2);
        *out++ = ':';
        out = ngx_http_once_rpc_copy(out, member.value.data, member.value.len);
    }

    *out++ = '}';
    *out++ = '}';

    return (size_t) (out - to);
}


/* ------------------------------------------------------------- the answer */

static ngx_http_once_rpc_kind_e
ngx_http_once_rpc_kind(const unsigned char *data, size_t len)
{
    json_t                    *root, *method;
    const char                *text;
    ngx_http_once_rpc_kind_e   kind;

    root = len ? json_loadb((const char *) data, len, ONCE_RPC_FLAGS, NULL)
               : NULL;
    method = json_object_get(root, "method");
    kind = ONCE_RPC_OTHER;

    if (method) {
        text = json_string_value(method);

        if (json_object_get(root, "id")) {
            kind = ONCE_RPC_REQUEST;

        } else if (text && strcmp(text, "notifications/progress") == 0) {
            kind = ONCE_RPC_PROGRESS;
        }

    } else if (json_object_get(root, "id")
               && (json_object_get(root, "result")
                   || json_object_get(root, "error")))
    {
        kind = ONCE_RPC_ANSWER;
    }

    json_decref(root);

    return kind;
}


int
ngx_http_once_rpc_has(const unsigned char *data, size_t len)
{
    return ngx_http_once_rpc_kind(data, len) == ONCE_RPC_ANSWER
           ? NGX_HTTP_ONCE_RPC_ANSWERS : 0;
}


size_t
ngx_http_once_rpc_answer(const unsigned char *data, size_t len,
    const ngx_http_once_span_t *id, unsigned char *to)
{
    unsigned char           *out;
    const unsigned char     *p, *from, *last;
    ngx_http_once_member_t   member;

    if (ngx_http_once_rpc_kind(data, len) != ONCE_RPC_ANSWER) {
        return 0;
    }

    out = to;
    from = data;
    last = data + len;
    p = data;

    while (ngx_http_once_json_next(&p, last, &member)) {

        if (ngx_http_once_json_is(member.name.data,
                                  member.name.data + member.name.len, "id", 2))
        {
            out = ngx_http_once_rpc_copy(out, from,
                                         (size_t) (member.value.data - from));
            out = ngx_http_once_rpc_copy(out, id->data, id->len);
            from = member.value.data + member.value.len;
            break;    /* a second id would be another answer's */
        }
    }

    out = ngx_http_once_rpc_copy(out, from, (size_t) (last - from));

    return (size_t) (out - to);
}


/* ------------------------------------------------------------- the events */

/* The end of a line, and in *next the beginning of the next; NULL: none. */

static const unsigned char *
ngx_http_once_rpc_line(const unsigned char *p, const unsigned char *last,
    const unsigned char **next)
{
    while (p < last && *p != '\n' && *p != '\r') {
        p++;
    }

    if (p == last) {
        return NULL;
    }

    *next = p + 1;

    if (*p == '\r' && p + 1 < last && p[1] == '\n') {
        *next = p + 2;
    }

    return p;
}


static int
ngx_http_once_rpc_field(const unsigned char *p, const unsigned char *end,
    const char *name, const unsigned char **value)
{
    size_t  len;

    len = strlen(name);

    if ((size_t) (end - p) < len || memcmp(p, name, len) != 0
        || (p + len < end && p[len] != ':'))
    {
        return 0;
    }

    p += (p + len < end) ? len + 1 : len;
    *value = (p < end && *p == ' ') ? p + 1 : p;

    return 1;
}


/* The next event that is complete: 1; there is none: 0; -1: no memory. */

static int
ngx_http_once_rpc_event(const unsigned char **at, const unsigned char *last,
    ngx_http_once_event_t *event)
{
    const unsigned char  *p, *end, *next, *value;

    /* found first, so that nothing is allocated for the rest of a document */

    for (p = *at; (end = ngx_http_once_rpc_line(p, last, &next)) != NULL;
         p = next)
    {
        if (end == p) {
            break;
        }
    }

    if (end == NULL) {
        return 0;
    }

    event->start = *at;
    event->end = end;
    event->len = 0;
    event->data = malloc((size_t) (end - *at) + 1);
    *at = next;

    if (event->data == NULL) {
        return -1;
    }

    p = event->start;

    if (event->end - p >= 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0) {
        p += 3;    /* a byte order mark, which only the stream may have */
        event->start = p;
    }

    for ( /* void */ ; p < event->end; p = next) {
        end = ngx_http_once_rpc_line(p, last, &next);

        if (ngx_http_once_rpc_field(p, end, "data", &value)) {

            if (event->len) {
                event->data[event->len++] = '\n';
            }

            memcpy(event->data + event->len, value, (size_t) (end - value));
            event->len += (size_t) (end - value);
        }
    }

    return 1;
}


int
ngx_http_once_rpc_events_have(const unsigned char *data, size_t len,
    size_t *used)
{
    int                     rc, have;
    const unsigned char    *p;
    ngx_http_once_event_t   event;

    p = data;
    have = 0;

    while ((rc = ngx_http_once_rpc_event(&p, data + len, &event)) == 1) {

        switch (ngx_http_once_rpc_kind(event.data, event.len)) {

        case ONCE_RPC_ANSWER:
            have |= NGX_HTTP_ONCE_RPC_ANSWERS;
            break;

        case ONCE_RPC_REQUEST:
            have |= NGX_HTTP_ONCE_RPC_ASKS;
            break;

        default:
            break;
        }

        free(event.data);
    }

    *used = (size_t) (p - data);

    return rc < 0 ? -1 : have;
}


size_t
ngx_http_once_rpc_room(const unsigned char *data, size_t len, size_t id_len)
{
    size_t  i, lines;

    for (i = 0, lines = 2; i < len; i++) {
        lines += (data[i] == '\n' || data[i] == '\r');
    }

    return len + id_len + lines * sizeof("data: ");
}


/* Lines of an event that are not its data and not its id. */

static unsigned char *
ngx_http_once_rpc_other_lines(unsigned char *out,
    const ngx_http_once_event_t *event)
{
    const unsigned char  *p, *end, *next, *value;

    for (p = event->start; p < event->end; p = next) {
        end = ngx_http_once_rpc_line(p, event->end, &next);

        if (end == NULL) {
            return out;
        }

        if (!ngx_http_once_rpc_field(p, end, "data", &value)
            && !ngx_http_once_rpc_field(p, end, "id", &value))
        {
            out = ngx_http_once_rpc_copy(out, p, (size_t) (end - p));
            *out++ = '\n';
        }
    }

    return out;
}


static unsigned char *
ngx_http_once_rpc_data_lines(unsigned char *out, const unsigned char *data,
    size_t len)
{
    const unsigned char  *p, *end, *last;

    last = data + len;

    for (p = data; p <= last; p = end + 1) {
        end = (p < last) ? memchr(p, '\n', (size_t) (last - p)) : NULL;
        end = end ? end : last;

        out = ngx_http_once_rpc_copy(out, "data: ", 6);
        out = ngx_http_once_rpc_copy(out, p, (size_t) (end - p));
        *out++ = '\n';
    }

    *out++ = '\n';

    return out;
}


size_t
ngx_http_once_rpc_events(const unsigned char *data, size_t len,
    const ngx_http_once_span_t *id, unsigned char *to)
{
    int                        answered;
    size_t                     size;
    unsigned char             *out, *text;
    const unsigned char       *p;
    ngx_http_once_event_t      event;
    ngx_http_once_rpc_kind_e   kind;

    p = data;
    out = to;
    answered = 0;

    while (!answered && ngx_http_once_rpc_event(&p, data + len, &event) == 1) {
        kind = ngx_http_once_rpc_kind(event.data, event.len);

        if (kind == ONCE_RPC_ANSWER) {
            text = malloc(event.len + id->len + 1);

            if (text == NULL) {
                free(event.data);
                return 0;
            }

            size = ngx_http_once_rpc_answer(event.data, event.len, id, text);
            out = ngx_http_once_rpc_other_lines(out, &event);
            out = ngx_http_once_rpc_data_lines(out, text, size);
            free(text);
            answered = 1;

        } else if (kind == ONCE_RPC_OTHER && event.len) {
            out = ngx_http_once_rpc_other_lines(out, &event);
            out = ngx_http_once_rpc_data_lines(out, event.data, event.len);
        }

        free(event.data);
    }

    return answered ? (size_t) (out - to) : 0;
}
