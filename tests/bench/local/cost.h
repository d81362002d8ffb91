/*
 * What something cost this process: time, CPU of all threads, syncs, bytes through system calls, pages touched.
 */
#ifndef TESTS_BENCH_LOCAL_COST_H
#define TESTS_BENCH_LOCAL_COST_H

#include <stdint.h>

typedef struct cost {
    double seconds;
    double cpu;     /* seconds, user and system */
    uint64_t syncs; /* fdatasync calls of libonce and of the limit */
    uint64_t bytes; /* read and written by system calls */
    uint64_t pages; /* faulted in: how a mapping is read and written */
} cost_t;

/* Now; and what came since `start`. */
cost_t cost_now(void);
cost_t cost_since(const cost_t *start);

/* Sorts, and gives the middle one. */
double median(double *values, unsigned count);

/* Bytes written to the files of a directory, up to the last that is not zero. For files that were never used before. */
uint64_t bytes_in(const char *directory);

/* Bytes of disk that a file takes. 0: there is none. */
uint64_t blocks_of(const char *path);

/* Removes a directory with what is in it. */
void remove_tree(const char *path);

#endif
