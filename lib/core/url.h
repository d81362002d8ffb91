/*
 * Store URLs: `scheme:path?name=value&name=value`, percent-encoded.
 */
#ifndef ONCE_CORE_URL_H
#define ONCE_CORE_URL_H

#include <stddef.h>

#include <once/error.h>

#define ONCE__URL_PARAMS_MAX 32

typedef struct once__url_param {
    char *name;
    char *value;
    int taken;
} once__url_param_t;

typedef struct once__url {
    char *memory; /* everything below points into it */
    const char *scheme;
    char *path;      /* decoded; for scheme:// URLs it begins with the two slashes */
    const char *raw; /* as it was written, up to the parameters */
    once__url_param_t params[ONCE__URL_PARAMS_MAX];
    size_t count;
} once__url_t;

/* ONCE_E_CONFIG says what is wrong (never shows the URL: it may hold a password), ONCE_E_NOMEM. */
int once__url_parse(once__url_t *url, const char *text, once_error_t *err);
void once__url_free(once__url_t *url);

/* The value of a parameter, marked as taken; NULL: not there. */
const char *once__url_take(once__url_t *url, const char *name);

/* ONCE_E_CONFIG names a parameter that nobody took. */
int once__url_check_taken(const once__url_t *url, once_error_t *err);

#endif
