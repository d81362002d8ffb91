/*
 * URLs of stores and brokers: `SCHEME:PATH[?NAME=VALUE&...]`, where PATH may begin with an authority,
 * `//[USER[:PASSWORD]@]HOST[:PORT],.../`. All of it is percent-encoded.
 *
 * once__url_parse() reads everything except the authority, which some stores leave to their library (libpq) and others do not have;
 * once__url_authority() reads that. The query of http and https belongs to the endpoint: it is not taken apart.
 *
 * Errors name the URL as the caller calls it and show nothing of it: it may hold a password.
 */
#ifndef ONCE_BASE_URL_H
#define ONCE_BASE_URL_H

#include <stddef.h>
#include <stdint.h>

#include <once/error.h>

#define ONCE__URL_PARAMS_MAX 32
#define ONCE__URL_HOSTS_MAX  32
#define ONCE__URL_HOST_MAX   255 /* bytes of a name */

typedef struct once__url_param {
    const char *name, *value; /* decoded */
    int taken;
} once__url_param_t;

typedef struct once__url_host {
    const char *name; /* without the brackets of IPv6 */
    uint16_t port;    /* 0: none given */
} once__url_host_t;

typedef struct once__url {
    char *memory;     /* all texts point into it: a copy of the struct shares them */
    const char *what; /* what messages call it: "store URL" */
    const char *scheme;
    const char *raw;       /* as written, up to the query */
    const char *raw_query; /* as written; NULL: none */
    /* decoded, with the authority; after once__url_authority() what follows its slash */
    const char *path;
    once__url_param_t params[ONCE__URL_PARAMS_MAX];
    size_t param_count;

    /* Set by once__url_authority(). */
    const char *user, *password; /* decoded; NULL: none */
    const char *hosts;           /* as written: "a:1,b:2", "[::1]:5672" */
    const char *raw_path;        /* as written, behind the slash that ends the authority */
    once__url_host_t host[ONCE__URL_HOSTS_MAX];
    size_t host_count;
} once__url_t;

typedef enum once__url_flag {
    /* a parameter may be given several times: once__url_take() gives the first, `params` has all */
    ONCE__URL_REPEAT = 1,
} once__url_flag_t;

/* Reads all but the authority. Returns ONCE_OK, or ONCE_E_CONFIG or ONCE_E_NOMEM with nothing to be freed. */
int once__url_parse(once__url_t *url, const char *what, const char *text, unsigned flags,
                    once_error_t *err);

/* Reads the authority of a URL that was parsed; there must be one with at least one host. May be called again. Returns ONCE_OK or
 * ONCE_E_CONFIG. */
int once__url_authority(once__url_t *url, once_error_t *err);

/* Overwrites and frees the memory. */
void once__url_free(once__url_t *url);

/* The value of a parameter, which counts as taken from now on; NULL: it is not given. */
const char *once__url_take(once__url_t *url, const char *name);

/* The name of a parameter that was not taken; NULL: all were. */
const char *once__url_untaken(const once__url_t *url);

/*
 * Reads HOST, HOST:PORT, [IPV6] or [IPV6]:PORT; changes the text, and points into it. Returns NULL, or what is wrong as the end of
 * a sentence: "is missing".
 */
const char *once__url_host_read(once__url_host_t *host, char *text);

#endif
