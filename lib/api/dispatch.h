/*
 * Running what is due, and waiting for it: by the host's calls, or in the handle's own thread (option `thread=on`), which waits for
 * the loop and dispatches. All other threads take the lock of the handle.
 */
#ifndef ONCE_API_DISPATCH_H
#define ONCE_API_DISPATCH_H

#include "api/handle.h"

/*
 * Blocks until `is_done` returns true or the loop's clock reaches `until_ms` (UINT64_MAX: no limit). The handle must be entered,
 * outside of callbacks. Dispatches meanwhile, or lets the handle's thread do so.
 */
typedef int (*once__is_done)(const once_t *once, const void *data);
void once__dispatch_until(once_t *once, once__is_done is_done, const void *data, uint64_t until_ms);

int once__dispatch_thread_start(once_t *once, once_error_t *err);

/* Stops and joins it. The caller holds the lock once, and has it again afterwards. */
void once__dispatch_thread_end(once_t *once);

#endif
