/*
 * `memory:` and `memory:NAME`: records in this process, gone with it. For tests, demonstrations and as the oracle.
 *
 * Handles that name the same NAME share one table, as they would share a server: the table has a lock, and lives as long as
 * a handle is open on it. Operations are answered from dispatch, never from submit, like those of every other store.
 */
#ifndef ONCE_STORE_MEMORY_MEMORY_H
#define ONCE_STORE_MEMORY_MEMORY_H

#include "store/store.h"

extern const once__store_vt_t once__memory_store;

#endif
