/*
 * Shared by connection.c (life, calls, bytes), connect.c (until there is a connection) and handshake.c.
 */
#ifndef ONCE_STORE_REDIS_CONNECTION_INTERNAL_H
#define ONCE_STORE_REDIS_CONNECTION_INTERNAL_H

#include "store/redis/connection.h"

/* connection.c */
void once__redis_connection_timer(once__redis_connection_t *connection,
                                  uint64_t ms); /* 0: at once */
void once__redis_connection_watch(once__redis_connection_t *connection, uint32_t events);
/* Closes the socket, or stops a look-up. */
void once__redis_connection_hang_up(once__redis_connection_t *connection);
/* Down, and not to be tried again before a pause that grows. */
void once__redis_connection_fail(once__redis_connection_t *connection, int refusal);
void once__redis_connection_trouble(once__redis_connection_t *connection, const char *what,
                                    const char *why);

/* connect.c: the next step of connecting. */
void once__redis_connection_resolved(once__redis_connection_t *connection);
void once__redis_connection_connected(once__redis_connection_t *connection);
void once__redis_connection_tls(once__redis_connection_t *connection);
/* the addresses, one after the other */
void once__redis_connection_try(once__redis_connection_t *connection);
/* at any time; a late answer is dropped */
void once__redis_lookup_free(struct once__redis_lookup *lookup);

#endif
