/*
 * TLS by default. libpq's own default (`sslmode=prefer`) does not verify the server, and secrets and responses go there. So
 * the certificate of a server on another machine is checked, unless the configuration says otherwise.
 */
#ifndef ONCE_PG_TLS_H
#define ONCE_PG_TLS_H

#include <stddef.h>

/* What was added to a connection's parameters, which point into it. */
typedef struct once__pg_tls {
    const char *sslmode;   /* verify-full; NULL: nothing was added */
    char sslrootcert[256]; /* the system's authorities if libpq would find none; or "" */
} once__pg_tls_t;

/*
 * Adds sslmode=verify-full to the parameters of PQconnectStartParams (with `dbname` expanded), which end with NULL and have room
 * for two more. Adds nothing if all hosts are this machine, or if the parameters, the environment or a service file have an
 * sslmode. `prefer` in a service file does not count: libpq does not distinguish it from its own default. Does not connect.
 */
void once__pg_tls_add(once__pg_tls_t *tls, const char **keywords, const char **values);

/* A hint to append to libpq's complaint; "" if the complaint is not about what was added here. */
const char *once__pg_tls_advice(const once__pg_tls_t *tls, const char *complaint);

#endif
