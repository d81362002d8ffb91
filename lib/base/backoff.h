/*
 * How long to wait before the next attempt: exponential back-off with jitter, a pure function.
 */
#ifndef ONCE_BASE_BACKOFF_H
#define ONCE_BASE_BACKOFF_H

#include <stdint.h>

/*
 * The pause after an attempt that failed; the first attempt is number 0. It is min_ms * 2^attempt, at most max_ms, and of that a
 * part between one half and all, chosen by the random bits, so that clients that failed together do not return together.
 */
uint64_t once__backoff(unsigned attempt, uint64_t min_ms, uint64_t max_ms, uint64_t random_bits);

/* Between one half of `ms` and `ms`. */
uint64_t once__backoff_jitter(uint64_t ms, uint64_t random_bits);

#endif
