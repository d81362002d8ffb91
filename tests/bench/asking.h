/*
 * Claims that are completed as soon as they are granted, a number of them in flight at a time, through the public API.
 */
#ifndef TESTS_BENCH_ASKING_H
#define TESTS_BENCH_ASKING_H

#include <once/once.h>

typedef struct asking {
    once_t *once;
    unsigned in_flight, pairs;
    const char *body; /* of the request */
    once_response_t response;
    unsigned keys;   /* made so far: no key is used twice */
    unsigned failed; /* pairs that did not come to their end */
    unsigned started, finished;
} asking_t;

/* All pairs; returns when the last one is completed. */
void asking_run(asking_t *asking);

/* A body that does not compress well. */
void asking_fill(char *body, size_t size);

#endif
