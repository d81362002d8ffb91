/*
 * A stopwatch for benchmarks: CPU time of this thread, because the machine is shared.
 */
#ifndef TESTS_BENCH_BENCH_H
#define TESTS_BENCH_BENCH_H

#include <stdint.h>
#include <time.h>

static inline double bench_seconds(clockid_t clock)
{
    struct timespec t;

    (void)clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

#define bench_cpu()  bench_seconds(CLOCK_THREAD_CPUTIME_ID)
#define bench_wall() bench_seconds(CLOCK_MONOTONIC)

/* Best of several rounds: noise only ever adds. */
static inline void bench_keep_best(double *best, double value)
{
    if (*best == 0 || value < *best) {
        *best = value;
    }
}

#endif
