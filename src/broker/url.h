/*
 * URLs of brokers: SCHEME://[USER[:PASSWORD]@]HOSTS[/PATH][?NAME=VALUE&...], parts percent-decoded. The query of http and
 * https is the endpoint's: it is not taken apart.
 */
#ifndef ONCE_BROKER_URL_H
#define ONCE_BROKER_URL_H

#include <stddef.h>

#define ONCE__BROKER_URL_PARAMS_MAX 32

typedef struct once__broker_url {
    char *memory; /* all of the texts below */
    const char *scheme;
    const char *user, *password; /* NULL: none */
    const char *hosts;           /* as written: "a:1,b:2", "[::1]:5672" */
    const char *path;            /* decoded, without its first slash; "" */
    const char *raw_path;        /* as written, without its first slash and the query */
    const char *raw_query;       /* as written; NULL: none */
    struct {
        const char *name, *value;
        int used;
    } params[ONCE__BROKER_URL_PARAMS_MAX];
    size_t param_count;
} once__broker_url_t;

/* 0, or -1 after writing into `error` what is wrong, without showing a credential. Free it in both cases. */
int once__broker_url_read(once__broker_url_t *address, const char *url, char *error, size_t size);
void once__broker_url_free(once__broker_url_t *address);

/* The value of a parameter, which is then known; NULL: not given. */
const char *once__broker_url_param(once__broker_url_t *address, const char *name);

/* The name of a parameter that nobody asked for; NULL: there is none. */
const char *once__broker_url_unknown(const once__broker_url_t *address);

#endif
