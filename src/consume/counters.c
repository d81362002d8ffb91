#include "consume/counters.h"

#include <string.h>

#define LINES_A_SECOND 50

static const char *const reasons[] = {ONCE__CONSUME_REASON_REJECTED, ONCE__CONSUME_REASON_TRIES,
                                      ONCE__CONSUME_REASON_MISMATCH, ONCE__CONSUME_REASON_NO_ID};
static const char *const labels[] = {"reason=\"rejected\"", "reason=\"tries\"",
                                     "reason=\"mismatch\"", "reason=\"no-id\""};

static const char *const line_names[ONCE__CONSUME_LINES] = {
    [ONCE__CONSUME_LINE_HANDLED] = "handled",
    [ONCE__CONSUME_LINE_DUPLICATE] = "duplicate",
    [ONCE__CONSUME_LINE_RETRY] = "tried again",
    [ONCE__CONSUME_LINE_DOUBT] = "doubt",
    [ONCE__CONSUME_LINE_BUSY] = "busy",
    [ONCE__CONSUME_LINE_PARKED] = "parked",
    [ONCE__CONSUME_LINE_DEAD] = "dead letter",
    [ONCE__CONSUME_LINE_STORE] = "store error",
    [ONCE__CONSUME_LINE_UNREACHED] = "not reached",
};

int once__consume_counters_start(once__consume_counters_t *c)
{
    static const int64_t bounds[] = {1000,   2500,   5000,    10000,   25000,    50000,
                                     100000, 250000, 1000000, 5000000, 30000000, 60000000};
    once__service_metrics_t *m = once__service_metrics_new();

    c->metrics = m;
    if (m == NULL) {
        return -1;
    }
    c->lag = once__service_metrics_add(m, ONCE__SERVICE_GAUGE, "once_consume_lag",
                                       "Messages that are not done.", NULL, 1);
    c->handled = once__service_metrics_add(m, ONCE__SERVICE_COUNTER, "once_consume_handled_total",
                                           "Messages that the handler completed.", NULL, 1);
    c->duplicates =
        once__service_metrics_add(m, ONCE__SERVICE_COUNTER, "once_consume_duplicates_total",
                                  "Messages that had been handled before.", NULL, 1);
    c->retries = once__service_metrics_add(m, ONCE__SERVICE_COUNTER, "once_consume_retries_total",
                                           "Tries after the first.", NULL, 1);
    for (size_t i = 0; i < 4; i++) {
        c->dead[i] =
            once__service_metrics_add(m, ONCE__SERVICE_COUNTER, "once_consume_dead_letters_total",
                                      "Messages that were given up.", labels[i], 1);
    }
    c->busy = once__service_metrics_add(m, ONCE__SERVICE_COUNTER, "once_consume_busy_total",
                                        "Answers that somebody else holds the claim.", NULL, 1);
    c->doubts = once__service_metrics_add(m, ONCE__SERVICE_COUNTER, "once_consume_doubts_total",
                                          "Requests of which nobody knows what became.", NULL, 1);
    c->parked =
        once__service_metrics_add(m, ONCE__SERVICE_GAUGE, "once_consume_parked",
                                  "Messages that wait until their record is settled.", NULL, 1);
    c->store_errors =
        once__service_metrics_add(m, ONCE__SERVICE_COUNTER, "once_consume_store_errors_total",
                                  "Asks that the store could not answer.", NULL, 1);
    c->lost =
        once__service_metrics_add(m, ONCE__SERVICE_COUNTER, "once_consume_lost_total",
                                  "Messages of partitions or connections that were lost.", NULL, 1);
    c->running = once__service_metrics_add(m, ONCE__SERVICE_GAUGE, "once_consume_running",
                                           "Requests that are under way.", NULL, 1);
    c->paused = once__service_metrics_add(m, ONCE__SERVICE_GAUGE, "once_consume_paused",
                                          "1 while nothing is read for want of room.", NULL, 1);
    c->waiting =
        once__service_metrics_add(m, ONCE__SERVICE_GAUGE, "once_consume_waiting",
                                  "Messages in memory, those under way included.", NULL, 1);
    c->seconds = once__service_metrics_add_histogram(m, "once_consume_handler_seconds",
                                                     "How long the handler took.", bounds,
                                                     sizeof(bounds) / sizeof(bounds[0]), 1e-6);
    once__service_metric_set(c->lag, ONCE__SERVICE_METRIC_UNKNOWN);
    return 0;
}

void once__consume_counters_dead(once__consume_counters_t *counters, const char *reason)
{
    for (size_t i = 0; i < 4; i++) {
        if (strcmp(reason, reasons[i]) == 0) {
            once__service_metric_count(counters->dead[i], 1);
        }
    }
}

int once__consume_counters_may_write(once__consume_counters_t *counters, once__consume_line_t line)
{
    if (counters->lines[line].written < LINES_A_SECOND) {
        counters->lines[line].written++;
        return 1;
    }
    counters->lines[line].left_out++;
    return 0;
}

void once__consume_counters_second(once__consume_counters_t *counters,
                                   const once__service_log_t *log)
{
    for (int i = 0; i < ONCE__CONSUME_LINES; i++) {
        if (counters->lines[i].left_out > 0) {
            once__service_log(
                log, ONCE__SERVICE_LOG_INFO, "lines were left out",
                ONCE__SERVICE_FIELDS(
                    once__service_field_text("kind", line_names[i]),
                    once__service_field_number("count", (int64_t)counters->lines[i].left_out)));
        }
        counters->lines[i].written = 0;
        counters->lines[i].left_out = 0;
    }
}
