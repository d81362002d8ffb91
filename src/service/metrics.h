/*
 * The metrics of a program, and a small HTTP server for them.
 *
 * GET /metrics is the text format of Prometheus, /metrics.json the same as one JSON object, /health and /ready are 200 or 503.
 * The server has its own thread; counting is atomic. There is no authentication: the address must not be public, and a port
 * alone means 127.0.0.1.
 */
#ifndef ONCE_SERVICE_METRICS_H
#define ONCE_SERVICE_METRICS_H

#include <stddef.h>
#include <stdint.h>

typedef struct once__service_metrics once__service_metrics_t;
typedef struct once__service_metric once__service_metric_t;

#define ONCE__SERVICE_METRIC_UNKNOWN                                                               \
    INT64_MIN /* the gauge is left out until there is a value; in JSON it is null */

typedef enum once__service_metric_kind {
    ONCE__SERVICE_COUNTER,
    ONCE__SERVICE_GAUGE,
    ONCE__SERVICE_HISTOGRAM,
} once__service_metric_kind_t;

/* `program` is the label of once_build_info, borrowed forever. Returns NULL if memory is short. */
once__service_metrics_t *once__service_metrics_new(const char *program);

/* Stops the server, too. NULL is fine. */
void once__service_metrics_free(once__service_metrics_t *metrics);

/* One metric of a table. All texts are borrowed forever. */
typedef struct once__service_metric_spec {
    size_t offset; /* of the once__service_metric_t * in the struct that is filled */
    once__service_metric_kind_t kind;
    const char *name, *help;
    const char *labels;    /* such as `topic="a",reason="b"`; NULL: none */
    double unit;           /* value * unit is shown: 0.001 shows milliseconds as seconds */
    const int64_t *bounds; /* of a histogram: ascending, in the metric's integers */
    size_t bound_count;
} once__service_metric_spec_t;

/*
 * Adds `count` metrics and stores their addresses in the struct at `into`; to be called before once__service_metrics_serve.
 * Metrics of one name follow each other and differ in their labels. Values are integers. Returns 0, or -1 if memory is short: the
 * functions below ignore a NULL metric.
 */
int once__service_metrics_add(once__service_metrics_t *metrics,
                              const once__service_metric_spec_t *specs, size_t count, void *into);

void once__service_metric_count(once__service_metric_t *metric, uint64_t more);
void once__service_metric_set(once__service_metric_t *metric,
                              int64_t value); /* a gauge may be ONCE__SERVICE_METRIC_UNKNOWN */
int64_t once__service_metric_value(const once__service_metric_t *metric);
void once__service_metric_observe(once__service_metric_t *metric, int64_t value);

/* What /health and /ready answer; 503 until it is set. */
void once__service_metrics_health(once__service_metrics_t *metrics, int good);

/* Listens at `PORT`, `IP:PORT` or `[IPV6]:PORT`. Returns 0, or -1 after writing the reason into `error`. */
int once__service_metrics_serve(once__service_metrics_t *metrics, const char *address, char *error,
                                size_t size);

/* All metrics, allocated with malloc. Returns NULL if memory is short. */
char *once__service_metrics_text(once__service_metrics_t *metrics);
char *once__service_metrics_json(once__service_metrics_t *metrics);

#endif
