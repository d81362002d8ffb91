/*
 * What `once consume` counts, and how many lines of a kind it writes.
 */
#ifndef ONCE_CONSUME_COUNTERS_H
#define ONCE_CONSUME_COUNTERS_H

#include "service/log.h"
#include "service/metrics.h"

/* Reasons of dead letters. */
#define ONCE__REJECTED        "rejected"
#define ONCE__TRIES           "tries"
#define ONCE__MISMATCH_REASON "mismatch"
#define ONCE__NO_ID           "no-id"

/* Kinds of lines of the log. */
typedef enum once__line {
    ONCE__LINE_HANDLED,
    ONCE__LINE_DUPLICATE,
    ONCE__LINE_RETRY,
    ONCE__LINE_DOUBT,
    ONCE__LINE_BUSY,
    ONCE__LINE_PARKED,
    ONCE__LINE_DEAD,
    ONCE__LINE_STORE,
    ONCE__LINE_UNREACHED,
    ONCE__LINES,
} once__line_t;

typedef struct once__counters {
    once__metrics_t *metrics;
    once__metric_t *lag, *handled, *duplicates, *retries, *busy, *doubts, *parked, *store_errors,
        *lost, *running, *waiting, *paused, *seconds;
    once__metric_t *dead[4];
    struct {
        unsigned written;
        uint64_t left_out;
    } lines[ONCE__LINES];
} once__counters_t;

/* 0, or -1: out of memory. */
int once__counters_start(once__counters_t *counters);
void once__counters_dead(once__counters_t *counters, const char *reason);

/* May a line of this kind be written, or were there enough in this second? */
int once__counters_may_write(once__counters_t *counters, once__line_t line);

/* A second is over: tells what was left out. */
void once__counters_second(once__counters_t *counters, const once__log_t *log);

#endif
