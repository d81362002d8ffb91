/*
 * The handshake of a new connection: logs in, selects the database, and checks whether records can be kept on this server.
 */
#ifndef ONCE_STORE_REDIS_HANDSHAKE_H
#define ONCE_STORE_REDIS_HANDSHAKE_H

#include "store/redis/connection.h"

/* Collects the commands. Returns 0, or -1 if out of memory. When all are answered, the connection is ready or condemned. */
int once__redis_handshake(once__redis_connection_t *connection);

/*
 * Whether a server may be used, by its INFO. Returns ONCE_OK, ONCE_E_UNAVAILABLE or ONCE_E_CONFIG; `trouble` says why not.
 * Shared for tests.
 */
int once__redis_judge_info(const char *info, const once__redis_settings_t *settings,
                           char trouble[ONCE__REDIS_TROUBLE_SIZE], uint64_t *max_bytes);

/* Adds the keys of the database, and the memory that the whole server uses, by its INFO. Shared for tests. */
void once__redis_add_size(const char *info, unsigned database, uint64_t *keys, uint64_t *bytes);

#endif
