/*
 * A histogram of durations: constant memory, values exact to 1/32.
 */
#ifndef ONCE_CLI_HISTOGRAM_H
#define ONCE_CLI_HISTOGRAM_H

#include <stdint.h>

#define ONCE__CLI_HISTOGRAM_SIZE (60 * 32)

typedef struct once__cli_histogram {
    uint64_t counts[ONCE__CLI_HISTOGRAM_SIZE];
    uint64_t total;
    uint64_t max;
} once__cli_histogram_t;

void once__cli_histogram_add(once__cli_histogram_t *histogram, uint64_t value);

/* A value that at least `share` (0 to 1) of all values do not exceed; 0: there are none. */
uint64_t once__cli_histogram_at(const once__cli_histogram_t *histogram, double share);

#endif
