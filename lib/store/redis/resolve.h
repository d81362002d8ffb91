/*
 * Host names become addresses. The C library does that by waiting, so a thread does it, and tells by a descriptor.
 */
#ifndef ONCE_STORE_REDIS_RESOLVE_H
#define ONCE_STORE_REDIS_RESOLVE_H

#include <netdb.h>
#include <stdint.h>

typedef struct once__resolve once__resolve_t;

/* What needs no asking: addresses as numbers. NULL: it is a name. Freed with freeaddrinfo. */
struct addrinfo *once__resolve_number(const char *host, uint16_t port);

/* Begins; `*fd` becomes readable when it is done. NULL: no memory, descriptor or thread. */
once__resolve_t *once__resolve_start(const char *host, uint16_t port, int *fd);

/* After that: the addresses, now the caller's. NULL: there are none. */
struct addrinfo *once__resolve_take(once__resolve_t *resolve);

/* At any time; an answer that is still to come goes nowhere. */
void once__resolve_free(once__resolve_t *resolve);

#endif
