/* Counters, for GET /metrics. */
#ifndef EXAMPLES_NOTIFY_METRICS_H
#define EXAMPLES_NOTIFY_METRICS_H

#include <stdatomic.h>

#include "channel.h"

/* What became of a notification. */
typedef enum outcome {
    OUTCOME_SENT,
    OUTCOME_DUPLICATE, /* was sent before */
    OUTCOME_BUSY,      /* another process is sending it */
    OUTCOME_FAILED,    /* not sent; may be tried again */
    OUTCOME_DOUBT,     /* may have been sent; is tried again when the lease is over */
    OUTCOME_HELD,      /* may have been sent; is not tried again */
    OUTCOME_REFUSED,   /* not sent; trying again will not help */
    OUTCOMES,
} outcome_t;

typedef struct metrics {
    atomic_ulong notifications[CHANNELS][OUTCOMES];
    atomic_ulong events, bad_events;
} metrics_t;

const char *outcome_name(outcome_t outcome);

/* In the text format of Prometheus; to be freed. */
char *metrics_text(const metrics_t *metrics);

#endif
