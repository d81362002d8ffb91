/*
 * Is the server that libpq connects to the one that is meant? By default libpq does not ask (`sslmode=prefer`). Secrets and
 * responses travel there: beyond this machine the certificate is checked, unless somebody decided otherwise.
 */
#ifndef ONCE_PQ_TLS_H
#define ONCE_PQ_TLS_H

#include <stddef.h>

/* What was added to a connection's parameters; they point into it. */
typedef struct once__pq_tls {
    const char *sslmode;   /* verify-full; NULL: nothing was added */
    char sslrootcert[256]; /* the system's authorities, where libpq would find none; or "" */
} once__pq_tls_t;

/*
 * Adds it to the parameters of PQconnectStartParams (with `dbname` expanded), which end with NULL and have room for two more.
 * Nothing when all hosts are this machine, or when an sslmode stands among them, in the environment or in a service file (where
 * `prefer` counts as nothing said, because libpq does not tell it from its own default). Connects to nothing.
 */
void once__pq_tls_add(once__pq_tls_t *tls, const char **keywords, const char **values);

/* Is it this machine? A host and an address as libpq takes them; one of a list each. */
int once__pq_is_here(const char *host, const char *hostaddr);

/* What somebody can do about libpq's complaint, to be put behind it: "" when it is not about what was added here. */
const char *once__pq_tls_advice(const once__pq_tls_t *tls, const char *complaint);

#endif
