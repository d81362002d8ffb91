/*
 * The store `redis://`: records in Redis 7, alone, behind sentinels, or as a cluster (docs/stores.md).
 *
 * A record is one Redis key, an operation is one call of a script and one round trip. The operations of one turn of the loop go
 * to a server in one write over one connection; replies come back in the same order. record.lua decides, by the server's clock.
 */
#ifndef ONCE_STORE_REDIS_REDIS_H
#define ONCE_STORE_REDIS_REDIS_H

#include "store/store.h"

extern const once__store_vt_t once__redis_store;          /* redis:// */
extern const once__store_vt_t once__rediss_store;         /* rediss:// */
extern const once__store_vt_t once__redis_sentinel_store; /* redis+sentinel:// */
extern const once__store_vt_t once__redis_cluster_store;  /* redis+cluster:// */

#endif
