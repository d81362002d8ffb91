/*
 * One schedule: a seed, from its first event to the last check.
 *
 *   trouble   clients work, everything that the plan holds goes wrong
 *   drain     nothing goes wrong any more, and what is on its way arrives
 *   quiet     every key is asked for until it has an end
 *   reap      the store's clock goes past every ttl, and the gateways clean up
 */
#ifndef SIMULATION_SCHEDULE_H
#define SIMULATION_SCHEDULE_H

#include "world.h"

typedef struct verdict {
    char property[64]; /* empty: all properties held */
    char violation[400];
    int key;
    uint64_t trace_hash; /* only when traced */
} verdict_t;

typedef struct schedule {
    uint64_t seed;
    const broken_t *broken;
    counters_t *counters;
    const struct script *script; /* NULL: the seed decides */
    int local;     /* one machine with a local store, instead of a table behind a network */
    int harm_only; /* single answers of the table are not checked, only what becomes of them */
    int tracing;   /* the trace is hashed, and written to `out` unless that is NULL */
    FILE *out;
} schedule_t;

verdict_t schedule_run(const schedule_t *schedule);

#endif
