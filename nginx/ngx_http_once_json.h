/*
 * Goes through the text of a JSON document that is known to be valid, to find
 * where its values begin and end. Nevertheless nothing reads beyond `last`.
 * Nothing of nginx is used here, so that it can be fuzzed alone.
 */
#ifndef NGX_HTTP_ONCE_JSON_H
#define NGX_HTTP_ONCE_JSON_H

#include <stddef.h>


typedef struct {
    const unsigned char  *data;
    size_t                len;
} ngx_http_once_span_t;


/* A member of an object: its name between the quotes, and its value. */
typedef struct {
    ngx_http_once_span_t  name;
    ngx_http_once_span_t  value;
} ngx_http_once_member_t;


const unsigned char *ngx_http_once_json_skip_space(const unsigned char *p,
    const unsigned char *last);
const unsigned char *ngx_http_once_json_skip_string(const unsigned char *p,
    const unsigned char *last);
const unsigned char *ngx_http_once_json_skip_value(const unsigned char *p,
    const unsigned char *last);

/* Is the text between the quotes of a string this name? */
int ngx_http_once_json_is(const unsigned char *start,
    const unsigned char *end, const void *name, size_t len);

/*
 * The next member of an object. *p is where the object begins, and is moved.
 * Returns 0 if there is none.
 */
int ngx_http_once_json_next(const unsigned char **p,
    const unsigned char *last, ngx_http_once_member_t *member);


#endif
