/*
 * From a host name to its addresses. The C library blocks while it looks a name up, so a thread does that, and makes a descriptor
 * readable when it is done.
 */
#ifndef ONCE_STORE_REDIS_LOOKUP_H
#define ONCE_STORE_REDIS_LOOKUP_H

#include <netdb.h>
#include <stdint.h>

typedef struct once__redis_lookup once__redis_lookup_t;

/* An address that needs no look-up. NULL if it is a name. Freed with freeaddrinfo. */
struct addrinfo *once__redis_lookup_numeric(const char *host, uint16_t port);

/* `*fd` becomes readable when it is done. NULL: no memory, descriptor or thread. */
once__redis_lookup_t *once__redis_lookup_start(const char *host, uint16_t port, int *fd);

/* When it is done: the addresses, which the caller frees. NULL: there are none. */
struct addrinfo *once__redis_lookup_take(once__redis_lookup_t *lookup);

/* At any time; a late answer is dropped. */
void once__redis_lookup_free(once__redis_lookup_t *lookup);

#endif
