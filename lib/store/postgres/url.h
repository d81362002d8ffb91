/*
 * The store's URL (docs/postgres.md): libpq's parameters, which are passed on, and once's own.
 */
#ifndef ONCE_STORE_POSTGRES_URL_H
#define ONCE_STORE_POSTGRES_URL_H

#include "base/url.h"
#include "pg/conninfo.h"

#define ONCE__POSTGRES_CONNECTIONS_MAX 8

typedef struct once__postgres_options {
    unsigned connections;
    int no_dictionary;
} once__postgres_options_t;

/*
 * Takes libpq's parameters and once's own from the URL. Returns ONCE_OK, ONCE_E_NOMEM, or ONCE_E_CONFIG with a text without a
 * password; after an error `info` need not be freed.
 */
int once__postgres_url_read(once__pg_conninfo_t *info, once__postgres_options_t *options,
                            once__url_t *url, once_error_t *err);

#endif
