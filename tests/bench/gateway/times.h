/*
 * How long answers took, each of them.
 */
#ifndef TESTS_BENCH_GATEWAY_TIMES_H
#define TESTS_BENCH_GATEWAY_TIMES_H

#include <stddef.h>

typedef struct times {
    float *values;
    size_t count, room;
} times_t;

void times_add(times_t *times, double value);
double times_percentile(times_t *times, double percent); /* 0 without any; sorts */
void times_free(times_t *times);

#endif
