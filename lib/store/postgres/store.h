/*
 * The store `postgres://`: records in a PostgreSQL database, by the functions of the schema `once` (docs/postgres.md).
 *
 * Operations wait in one queue (queue.h). What waits is sent as one transaction, a batch (batch.h): all claims in one
 * statement over arrays, all other events in a second one, all reads in a third. The more there is to do, the more is sent
 * together. A handle never has two operations on the same record under way at once.
 *
 * Any connection will do for any operation, also one of a pool in transaction mode.
 */
#ifndef ONCE_STORE_POSTGRES_STORE_H
#define ONCE_STORE_POSTGRES_STORE_H

#include "store/store.h"

extern const once__store_vt_t once__postgres_store;
extern const once__store_vt_t once__postgresql_store; /* the other spelling of the scheme */

#endif
