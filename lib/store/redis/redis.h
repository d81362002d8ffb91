/*
 * The store `redis://`: records in Redis 7, alone, behind sentinels, or as a cluster (docs/stores.md).
 *
 * A record is one Redis key, an operation is one script and one round trip. What one turn of the loop collected for a server
 * goes out in one write, over one connection; replies come back in that order. Decisions are made in the scripts, by the
 * server's clock.
 */
#ifndef ONCE_STORE_REDIS_REDIS_H
#define ONCE_STORE_REDIS_REDIS_H

#include "store/store.h"

extern const once__store_vt_t once__redis_store;          /* redis:// */
extern const once__store_vt_t once__rediss_store;         /* rediss:// */
extern const once__store_vt_t once__redis_sentinel_store; /* redis+sentinel:// */
extern const once__store_vt_t once__redis_cluster_store;  /* redis+cluster:// */

#endif
