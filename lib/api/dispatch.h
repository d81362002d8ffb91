/*
 * Running what is due, and waiting for it.
 */
#ifndef ONCE_API_DISPATCH_H
#define ONCE_API_DISPATCH_H

#include "api/handle.h"

/* Does what once_dispatch does, with the handle entered. Returns the number of callbacks called. */
int once__dispatch_locked(once_t *once);

/*
 * Blocks until `is_done` returns true or the loop's clock reaches `until_ms` (UINT64_MAX: no limit). The handle must be entered,
 * outside of callbacks. Dispatches meanwhile, or lets the handle's thread do so.
 */
typedef int (*once__is_done)(const once_t *once, const void *data);
void once__block(once_t *once, once__is_done is_done, const void *data, uint64_t until_ms);

#endif
