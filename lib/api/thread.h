/*
 * The handle's own thread (option `thread=on`): waits for the loop and dispatches. All other threads take the lock of the handle.
 */
#ifndef ONCE_API_THREAD_H
#define ONCE_API_THREAD_H

#include "api/handle.h"

int once__thread_start(once_t *once, once_error_t *err);

/* Stops and joins it. The caller holds the lock once, and has it again afterwards. */
void once__thread_end(once_t *once);

/* Wakes blocked callers: what they wait for may have happened. */
void once__thread_notify(once_t *once);

/* Waits for that, at most until `until_ms` of the loop's clock (UINT64_MAX: no limit). Releases the lock meanwhile. */
void once__thread_await(once_t *once, uint64_t until_ms);

#endif
