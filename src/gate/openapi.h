/*
 * Routes from an OpenAPI 3 document: which operations carry an idempotency key, and what the document says of them.
 *
 * Knows nothing of nginx's syntax except that of a regular expression, and prints nothing: what is wrong is a text. The document is
 * not trusted. It can say which operations are guarded and how long their answers are kept, but not whose key it is nor where
 * requests go, and nothing of it becomes a word of the configuration before it has been looked at, byte by byte.
 */
#ifndef ONCE_GATE_OPENAPI_H
#define ONCE_GATE_OPENAPI_H

#include <stddef.h>

#include <jansson.h>

#define ONCE__OPENAPI_BYTES    (16u << 20) /* of a document */
#define ONCE__OPENAPI_PATHS    1000        /* in it; nginx tries their patterns one by one */
#define ONCE__OPENAPI_SETTINGS 18          /* extension fields that are known */

/* Methods that can be guarded, as bits. */
enum once__openapi_method {
    ONCE__OPENAPI_POST = 1,
    ONCE__OPENAPI_PUT = 2,
    ONCE__OPENAPI_PATCH = 4,
    ONCE__OPENAPI_DELETE = 8,
};

typedef struct once__openapi_path {
    char *
        path; /* below its base, as it is written: /payments/{id}; visible ASCII without quotes and the like */
    char *pattern;     /* the regular expression that the whole decoded path of a request matches */
    char *rank;        /* their order: concrete before templated, as OpenAPI has it */
    unsigned guarded;  /* methods with a key */
    unsigned required; /* those of them that need one */
    unsigned passing;  /* methods that could be guarded and are not */
    int shadowed;      /* guards nothing, and a guarded pattern after it matches it, too */
    char *settings
        [ONCE__OPENAPI_SETTINGS]; /* of the guarded ones: NAME=VALUE as in a route; NULL: not given */
} once__openapi_path_t;

typedef struct once__openapi {
    once__openapi_path_t *paths; /* in the order in which they must be tried */
    size_t count;
    size_t room;
    char error
        [400]; /* what is wrong, and where; may have control characters of the document in it */
} once__openapi_t;

/* The document as a tree. Text that begins with { is JSON, other text YAML. NULL: `error` says why. Free with json_decref. */
json_t *once__openapi_parse(const char *text, size_t len, char *error, size_t size);

/* Finds its operations with the header parameter `key`. 0, or -1: `error` says why. Free in both cases. */
int once__openapi_read(const json_t *document, const char *key, once__openapi_t *api);
void once__openapi_free(once__openapi_t *api);

/* "POST,PATCH" */
typedef struct once__openapi_methods {
    char text[32];
} once__openapi_methods_t;
once__openapi_methods_t once__openapi_methods(unsigned methods);

#endif
