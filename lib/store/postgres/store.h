/*
 * The store `postgres://`: records in a PostgreSQL database, by the functions of the schema `once` (docs/postgres.md).
 *
 * Operations wait in one queue. Whenever a connection is idle, what waits goes out on it as one transaction: all claims as one
 * statement over arrays, all other events as a second one, all reads as a third. So the more there is to do, the more travels
 * together, and nothing waits for a timer. No two operations on the same record are ever under way at once.
 *
 * There is no session state: any connection will do for anything, also one of a pool in transaction mode.
 */
#ifndef ONCE_STORE_POSTGRES_STORE_H
#define ONCE_STORE_POSTGRES_STORE_H

#include "store/store.h"

extern const once__store_vt_t once__postgres_store;
extern const once__store_vt_t once__postgresql_store; /* the other way to write the scheme */

#endif
