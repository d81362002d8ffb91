/*
 * Seeks the value that a JSON pointer (RFC 6901) leads to, in a document that
 * arrives in pieces: nothing of it is kept but that value. Nothing of nginx is
 * used here, so that it can be fuzzed alone.
 */
#ifndef NGX_HTTP_ONCE_SEEK_H
#define NGX_HTTP_ONCE_SEEK_H

#include <stddef.h>
#include <stdint.h>


#define NGX_HTTP_ONCE_SEEK_NAMES   16    /* in a pointer */
#define NGX_HTTP_ONCE_SEEK_LEVELS  64    /* of a document */
#define NGX_HTTP_ONCE_SEEK_VALUE   256   /* one more than a key may have */


typedef enum {
    NGX_HTTP_ONCE_SEEK_NONE = 0,   /* no such value; not a string or integer */
    NGX_HTTP_ONCE_SEEK_FOUND,
    NGX_HTTP_ONCE_SEEK_TWICE,      /* readers may differ on which one counts */
    NGX_HTTP_ONCE_SEEK_BAD         /* not JSON, or too deep */
} ngx_http_once_seek_e;


typedef struct {
    const unsigned char  *data;
    size_t                len;
    uint64_t              index;   /* of an array; UINT64_MAX: none */
} ngx_http_once_name_t;


typedef struct {
    ngx_http_once_name_t  name[NGX_HTTP_ONCE_SEEK_NAMES];
    unsigned              n;
} ngx_http_once_path_t;


typedef struct {
    const ngx_http_once_path_t  *path;
    int                          state;
    int                          string_is_name;
    const char                  *rest;      /* of true, false, null */

    uint64_t                     objects;   /* by level: 1 is an object */
    unsigned                     depth;     /* open containers */
    unsigned                     matched;   /* ... that the path leads into */
    uint64_t                     index[NGX_HTTP_ONCE_SEEK_NAMES];
    uint32_t                     seen;      /* by level: was a child on it? */

    int                          leads;     /* the next value is on the path */
    int                          same;      /* the name so far */
    size_t                       pos;

    unsigned                     code;      /* of \uXXXX, so far */
    unsigned                     digits;
    unsigned                     high;      /* half of a pair; 0: none */

    int                          keeps;     /* this value is sought */
    int                          fraction;  /* the number is no integer */
    int                          result;
    unsigned char                value[NGX_HTTP_ONCE_SEEK_VALUE];
    size_t                       len;
} ngx_http_once_seek_t;


/*
 * Reads a pointer, "/a/0/b", whose escapes are replaced in place. Returns NULL,
 * or what is wrong.
 */
const char *ngx_http_once_seek_parse(ngx_http_once_path_t *path,
    unsigned char *text, size_t len);

void ngx_http_once_seek_init(ngx_http_once_seek_t *seek,
    const ngx_http_once_path_t *path);
void ngx_http_once_seek_add(ngx_http_once_seek_t *seek,
    const unsigned char *data, size_t len);

/* After the last piece. If the value is found, it is in `value` and `len`. */
ngx_http_once_seek_e ngx_http_once_seek_end(ngx_http_once_seek_t *seek);


#endif
