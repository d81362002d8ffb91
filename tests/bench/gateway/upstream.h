/*
 * The upstream: a process of its own that answers every request at once with 201 and a JSON body, or keeps all of them
 * waiting until it may answer.
 */
#ifndef TESTS_BENCH_GATEWAY_UPSTREAM_H
#define TESTS_BENCH_GATEWAY_UPSTREAM_H

#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

/* Shared by both processes. */
typedef struct upstream_board {
    _Atomic uint64_t executed; /* requests that came in */
    _Atomic unsigned waiting;  /* of those: not answered yet */
    _Atomic unsigned hold;     /* set: none is answered */
    _Atomic unsigned body;     /* bytes of the next responses' bodies */
} upstream_board_t;

typedef struct upstream {
    pid_t pid;
    unsigned port;
    upstream_board_t *board;
} upstream_t;

void upstream_start(upstream_t *upstream);
void upstream_stop(upstream_t *upstream);

#endif
