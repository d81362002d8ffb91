/*
 * The metrics of `once consume`, and the kinds of lines in its log.
 */
#ifndef ONCE_CONSUME_REPORT_H
#define ONCE_CONSUME_REPORT_H

#include "service/log.h"
#include "service/metrics.h"

/* Reasons of dead letters. */
#define ONCE__CONSUME_REASON_REJECTED "rejected"
#define ONCE__CONSUME_REASON_TRIES    "tries"
#define ONCE__CONSUME_REASON_MISMATCH "mismatch"
#define ONCE__CONSUME_REASON_NO_ID    "no-id"

/* Kinds of lines of the log. */
typedef enum once__consume_line {
    ONCE__CONSUME_LINE_HANDLED,
    ONCE__CONSUME_LINE_DUPLICATE,
    ONCE__CONSUME_LINE_RETRY,
    ONCE__CONSUME_LINE_DOUBT,
    ONCE__CONSUME_LINE_BUSY,
    ONCE__CONSUME_LINE_PARKED,
    ONCE__CONSUME_LINE_DEAD,
    ONCE__CONSUME_LINE_STORE,
    ONCE__CONSUME_LINE_UNREACHED,
    ONCE__CONSUME_LINES,
} once__consume_line_t;

typedef struct once__consume_counters {
    once__service_metrics_t *metrics;
    once__service_metric_t *lag, *handled, *duplicates, *retries, *busy, *doubts, *parked,
        *store_errors, *behind, *messages_behind, *revoked, *running, *waiting, *paused, *seconds;
    once__service_metric_t *dead_letters[4];
    struct { /* in this second */
        unsigned written;
        uint64_t left_out;
    } lines[ONCE__CONSUME_LINES];
} once__consume_counters_t;

/* Returns 0, or -1 if memory is short. */
int once__consume_counters_start(once__consume_counters_t *counters);
void once__consume_counters_dead_letter(once__consume_counters_t *counters, const char *reason);

/* To be called every second: logs how many lines of each kind were left out. */
void once__consume_counters_second(once__consume_counters_t *counters,
                                   const once__service_log_t *log);

#endif
