/*
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

/* What the handle knows; unchanged if it knows nothing. */
void once__bound_usage(const once_t *once, once_usage_t *usage);

#endif
