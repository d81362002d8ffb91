/*
 * Running what is due, and waiting for it.
 */
#ifndef ONCE_API_DISPATCH_H
#define ONCE_API_DISPATCH_H

#include "api/handle.h"

/* What once_dispatch does, with the handle entered. Returns how many callbacks were called. */
int once__dispatch_locked(once_t *once);

/*
 * Blocks until `is_done` or until `until_ms` of the loop's clock is reached (UINT64_MAX: never). The handle is entered, and not
 * inside a callback. Dispatches meanwhile, or lets the handle's thread do it.
 */
typedef int (*once__is_done)(const once_t *once, const void *data);
void once__block(once_t *once, once__is_done is_done, const void *data, uint64_t until_ms);

#endif
