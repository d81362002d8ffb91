/*
 * How full the store is, and keeping it from growing: bounds, statistics, and the reaping of expired records.
 *
 * max_records and max_bytes of stores that do not know their size while they decide: the handle asks for it from time to time, as
 * long as there are claims, and counts what it adds meanwhile.
 */
#ifndef ONCE_API_BOUND_H
#define ONCE_API_BOUND_H

#include "api/handle.h"

/*
 * Finds out whether a claim may create a record. Returns ONCE_OK, ONCE_E_FULL, ONCE_E_UNAVAILABLE if the size is not known yet (ask
 * again soon), or why it cannot be known.
 */
int once__bound_check(once_t *once);

/* Counts records that the handle has created, and bytes of responses. */
void once__bound_made(once_t *once, uint64_t records, uint64_t bytes);

/* Removes expired records by a timer of the handle. */
int once__bound_reap_start(once_t *once, once_error_t *err);
void once__bound_reap_stop(once_t *once);

#endif
