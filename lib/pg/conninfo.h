/*
 * The parameters that libpq gets: a URL, and the defaults of once for what the URL leaves open.
 *
 *   - of several hosts the one that takes writes; nothing is read from replicas
 *   - TLS (tls.h)
 *   - TCP notices within about 10 seconds that a host is gone without a word (a power cut, an address that moved): a connection
 *     that waits for a commit is kept until the server answers, and only TCP can tell that it never will
 *   - texts are UTF-8, whatever the URL, the environment or the database says
 */
#ifndef ONCE_PG_CONNINFO_H
#define ONCE_PG_CONNINFO_H

#include "pg/tls.h"

#define ONCE__PG_CONNINFO_MAX 48

/* Arrays for PQconnectStartParams, ended by NULL. */
typedef struct once__pg_conninfo {
    const char *keywords[ONCE__PG_CONNINFO_MAX + 3];
    const char *values[ONCE__PG_CONNINFO_MAX + 3];
    char *memory[ONCE__PG_CONNINFO_MAX];
    unsigned count;
    once__pg_tls_t tls; /* what was added to the URL */
} once__pg_conninfo_t;

/* Begins with what the URL takes precedence over, and the URL. `name` is the program's. Returns ONCE_OK or ONCE_E_NOMEM. */
int once__pg_conninfo_begin(once__pg_conninfo_t *info, const char *name, const char *url);

/* Adds a parameter. The keyword lives as long as `info`; the value is copied. Returns ONCE_OK or ONCE_E_NOMEM. */
int once__pg_conninfo_add(once__pg_conninfo_t *info, const char *keyword, const char *value);

/* Adds what takes precedence over all others. Returns ONCE_OK or ONCE_E_NOMEM. */
int once__pg_conninfo_end(once__pg_conninfo_t *info);

/* Overwrites the values before it frees them: there are passwords among them. */
void once__pg_conninfo_free(once__pg_conninfo_t *info);

#endif
