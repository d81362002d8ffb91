/*
 * What libpq is told about the server: the URL with all of libpq's parameters, and TLS where nobody said anything about it.
 */
#ifndef ONCE_STORE_POSTGRES_CONNINFO_H
#define ONCE_STORE_POSTGRES_CONNINFO_H

#include "base/url.h"
#include "pg/tls.h"

#define ONCE__CONNINFO_MAX (ONCE__URL_PARAMS_MAX + 8)

/* Arrays for PQconnectStartParams, ended by NULL. */
typedef struct once__conninfo {
    const char *keywords[ONCE__CONNINFO_MAX + 3];
    const char *values[ONCE__CONNINFO_MAX + 3];
    char *memory[ONCE__CONNINFO_MAX];
    unsigned count;
    once__pq_tls_t tls; /* what was added to the URL */
} once__conninfo_t;

/* Takes libpq's parameters from the URL. ONCE_E_CONFIG says what is wrong, without showing a password; ONCE_E_NOMEM. */
int once__conninfo_read(once__conninfo_t *info, once__url_t *url, once_error_t *err);
void once__conninfo_free(once__conninfo_t *info);

#endif
