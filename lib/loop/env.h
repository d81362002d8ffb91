/*
 * The world outside: clocks and randomness. The real one by default; the simulation brings its own.
 */
#ifndef ONCE_LOOP_ENV_H
#define ONCE_LOOP_ENV_H

#include <stddef.h>
#include <stdint.h>

typedef struct once__env {
    uint64_t (*monotonic_ms)(void *data); /* never goes back, counts through suspend */
    uint64_t (*wall_ms)(void *data);      /* Unix time, for stores without a clock of their own */
    int (*random)(void *data, void *out, size_t len); /* 0, or -1 when there is none */
    int simulated; /* no descriptors: the owner asks for the next due time */
    void *data;
} once__env_t;

/* CLOCK_BOOTTIME, a wall clock that was read once and then follows it, and getrandom(). */
extern const once__env_t once__real_env;

#endif
