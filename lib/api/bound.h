/*
 * max_records and max_bytes of stores that cannot tell their size while they decide: the handle asks for it from time to time, as
 * long as there are claims, and counts what it makes meanwhile.
 */
#ifndef ONCE_API_BOUND_H
#define ONCE_API_BOUND_H

#include "api/handle.h"

/*
 * May a claim make a new record? ONCE_OK; ONCE_E_FULL; ONCE_E_UNAVAILABLE: the size is not known yet, ask again soon; else why it
 * cannot be known.
 */
int once__bound_check(once_t *once);

/* The handle has made so many new records, or a response of so many bytes. */
void once__bound_made(once_t *once, uint64_t records, uint64_t bytes);

/* What the handle knows. */
void once__bound_usage(const once_t *once, once_usage_t *usage);

#endif
