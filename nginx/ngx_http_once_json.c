/*
 * The text of a JSON document: where values begin and end.
 */
#include "ngx_http_once_json.h"

#include <jansson.h>
#include <string.h>


const unsigned char *
ngx_http_once_json_skip_space(const unsigned char *p,
    const unsigned char *last)
{
    while (p < last && (*p == ' ' || *p == '\t' || *p == '\r' || *p == '\n')) {
        p++;
    }

    return p;
}


const unsigned char *
ngx_http_once_json_skip_string(const unsigned char *p,
    const unsigned char *last)
{
    for (p++; p < last && *p != '"'; p++) {

        if (*p == '\\') {
            p++;
        }
    }

    return p < last ? p + 1 : last;
}


const unsigned char *
ngx_http_once_json_skip_value(const unsigned char *p,
    const unsigned char *last)
{
    size_t  depth;

    depth = 0;

    while (p < last) {

        switch (*p) {

        case '"':
            p = ngx_http_once_json_skip_string(p, last);
            break;

        case '{':
        case '[':
            depth++;
            p++;
            break;

        case '}':
        case ']':
            if (depth == 0) {
                return p;
            }

            depth--;
            p++;
            break;

        case ',':
        case ' ':
        case '\t':
        case '\r':
        case '\n':
            if (depth == 0) {
                return p;
            }

            /* fall through */

        default:
            p++;
            continue;
        }

        if (depth == 0) {
            return p;
        }
    }

    return last;
}


int
ngx_http_once_json_is(const unsigned char *start, const unsigned char *end,
    const void *name, size_t len)
{
    int      same;
    json_t  *text;

    if (end == start || memchr(start, '\\', (size_t) (end - start)) == NULL) {
        return (size_t) (end - start) == len
               && (len == 0 || memcmp(start, name, len) == 0);
    }

    text = json_loadb((const char *) start - 1, (size_t) (end - start) + 2,
                      JSON_DECODE_ANY, NULL);
    if (text == NULL) {
        return 1;    /* not readable: it may be the one */
    }

    same = json_string_length(text) == len
           && memcmp(json_string_value(text), name, len) == 0;

    json_decref(text);

    return same;
}


int
ngx_http_once_json_next(const unsigned char **at, const unsigned char *last,
    ngx_http_once_member_t *member)
{
    const unsigned char  *p;

    p = ngx_http_once_json_skip_space(*at, last);

    if (p < last && (*p == '{' || *p == ',')) {
        p = ngx_http_once_json_skip_space(p + 1, last);
    }

    if (p == last || *p != '"') {
        return 0;
    }

    member->name.data = p + 1;
    p = ngx_http_once_json_skip_string(p, last);

    if (p == last) {
        return 0;
    }

    member->name.len = (size_t) (p - 1 - member->name.data);

    p = ngx_http_once_json_skip_space(p, last);
    p = ngx_http_once_json_skip_space(p < last ? p + 1 : p, last);

    member->value.data = p;
    p = ngx_http_once_json_skip_value(p, last);
    member->value.len = (size_t) (p - member->value.data);

    *at = p;

    return 1;
}
