/*
 * What nothing can beat that keeps the same bytes durable: they are appended to a file beside those of the store and synced, and
 * cannot be found again. The figures of a store mean something only beside those of its disk.
 */
#ifndef ONCE_CLI_CMD_BENCH_LIMIT_H
#define ONCE_CLI_CMD_BENCH_LIMIT_H

#include <stdint.h>

typedef struct once__cli_limit {
    double pairs_per_second;
    double cpu_us_per_pair;
    double latency_us; /* of a pair: two syncs; the median */
} once__cli_limit_t;

/*
 * Measures it for about a second, with `inflight` claims in one sync and then as many completions of `value_size` bytes in another.
 * Leaves nothing behind. 1; or 0: the URL is not that of a local store, or its filesystem has no files without a name.
 */
int once__cli_bench_limit(const char *url, uint64_t inflight, uint64_t value_size,
                          once__cli_limit_t *limit);

#endif
