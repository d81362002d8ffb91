#include "service/metrics.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "service/internal.h"

#define BOUNDS_MAX 24

struct once__service_metric {
    once__service_metric_t *next;
    once__service_metric_kind_t kind;
    const char *name, *help, *labels;
    double unit;
    _Atomic int64_t value; /* the sum of a histogram */
    size_t bound_count;    /* 0: not a histogram */
    int64_t bounds[BOUNDS_MAX];
    _Atomic uint64_t buckets[BOUNDS_MAX + 1];
};

struct once__service_metrics {
    once__service_metric_t *first, **end;
    _Atomic int good;
    once__service_metrics_server_t *server;
};

once__service_metrics_t *once__service_metrics_new(void)
{
    once__service_metrics_t *metrics = calloc(1, sizeof(*metrics));

    if (metrics != NULL) {
        metrics->end = &metrics->first;
    }
    return metrics;
}

void once__service_metrics_free(once__service_metrics_t *metrics)
{
    if (metrics == NULL) {
        return;
    }
    once__service_metrics_server_stop(metrics->server);
    while (metrics->first != NULL) {
        once__service_metric_t *metric = metrics->first;
        metrics->first = metric->next;
        free(metric);
    }
    free(metrics);
}

once__service_metric_t *once__service_metrics_add(once__service_metrics_t *metrics,
                                                  once__service_metric_kind_t kind,
                                                  const char *name, const char *help,
                                                  const char *labels, double unit)
{
    once__service_metric_t *metric = calloc(1, sizeof(*metric));

    if (metric != NULL) {
        metric->kind = kind;
        metric->name = name;
        metric->help = help;
        metric->labels = labels != NULL ? labels : "";
        metric->unit = unit;
        *metrics->end = metric;
        metrics->end = &metric->next;
    }
    return metric;
}

once__service_metric_t *once__service_metrics_add_histogram(once__service_metrics_t *metrics,
                                                            const char *name, const char *help,
                                                            const int64_t *bounds, size_t count,
                                                            double unit)
{
    once__service_metric_t *metric =
        once__service_metrics_add(metrics, ONCE__SERVICE_COUNTER, name, help, NULL, unit);

    if (metric != NULL) {
        metric->bound_count = count < BOUNDS_MAX ? count : BOUNDS_MAX;
        memcpy(metric->bounds, bounds, metric->bound_count * sizeof(bounds[0]));
    }
    return metric;
}

void once__service_metric_count(once__service_metric_t *metric, uint64_t more)
{
    if (metric != NULL) {
        atomic_fetch_add_explicit(&metric->value, (int64_t)more, memory_order_relaxed);
    }
}

void once__service_metric_set(once__service_metric_t *metric, int64_t value)
{
    if (metric != NULL) {
        atomic_store_explicit(&metric->value, value, memory_order_relaxed);
    }
}

int64_t once__service_metric_value(const once__service_metric_t *metric)
{
    return metric != NULL ? atomic_load_explicit(&metric->value, memory_order_relaxed) : 0;
}

void once__service_metric_observe(once__service_metric_t *metric, int64_t value)
{
    size_t i = 0;

    if (metric == NULL) {
        return;
    }
    while (i < metric->bound_count && value > metric->bounds[i]) {
        i++;
    }
    atomic_fetch_add_explicit(&metric->buckets[i], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&metric->value, value, memory_order_relaxed);
}

void once__service_metrics_health(once__service_metrics_t *metrics, int good)
{
    if (metrics != NULL) {
        atomic_store(&metrics->good, good);
    }
}

int once__service_metrics_serve(once__service_metrics_t *metrics, const char *address, char *error,
                                size_t size)
{
    metrics->server = once__service_metrics_server_start(metrics, address, error, size);
    return metrics->server != NULL ? 0 : -1;
}

int once__service_metrics_good(once__service_metrics_t *metrics)
{
    return atomic_load(&metrics->good);
}

/* ------------------------------------------------------------------------------------------------------------ text */

static const char *type_of(const once__service_metric_t *metric)
{
    if (metric->bound_count > 0) {
        return "histogram";
    }
    return metric->kind == ONCE__SERVICE_COUNTER ? "counter" : "gauge";
}

static void write_histogram(FILE *out, const once__service_metric_t *metric)
{
    uint64_t total = 0;

    for (size_t i = 0; i < metric->bound_count; i++) {
        total += atomic_load_explicit(&metric->buckets[i], memory_order_relaxed);
        fprintf(out, "%s_bucket{le=\"%.12g\"} %" PRIu64 "\n", metric->name,
                (double)metric->bounds[i] * metric->unit, total);
    }
    total += atomic_load_explicit(&metric->buckets[metric->bound_count], memory_order_relaxed);
    fprintf(out, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n%s_sum %.12g\n%s_count %" PRIu64 "\n",
            metric->name, total, metric->name,
            (double)once__service_metric_value(metric) * metric->unit, metric->name, total);
}

char *once__service_metrics_text(once__service_metrics_t *metrics)
{
    const char *before = "";
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);

    if (out == NULL) {
        return NULL;
    }
    for (const once__service_metric_t *metric = metrics->first; metric != NULL;
         metric = metric->next) {
        if (once__service_metric_value(metric) == ONCE__SERVICE_METRIC_UNKNOWN) {
            continue;
        }
        if (strcmp(before, metric->name) != 0) {
            fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", metric->name, metric->help, metric->name,
                    type_of(metric));
        }
        before = metric->name;
        if (metric->bound_count > 0) {
            write_histogram(out, metric);
        } else {
            fprintf(out, metric->labels[0] != '\0' ? "%s{%s} %.15g\n" : "%s%s %.15g\n",
                    metric->name, metric->labels,
                    (double)once__service_metric_value(metric) * metric->unit);
        }
    }
    if (fclose(out) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

/* Only quotes in labels need to be escaped: names and labels are constants of the programs. */
static void write_name(FILE *out, const once__service_metric_t *metric, const char *suffix)
{
    fprintf(out, "\"%s%s", metric->name, suffix);
    if (metric->labels[0] != '\0') {
        fputc('{', out);
        for (const char *at = metric->labels; *at != '\0'; at++) {
            fprintf(out, *at == '"' ? "\\%c" : "%c", *at);
        }
        fputc('}', out);
    }
    fputs("\":", out);
}

char *once__service_metrics_json(once__service_metrics_t *metrics)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);

    if (out == NULL) {
        return NULL;
    }
    fputc('{', out);
    for (const once__service_metric_t *metric = metrics->first; metric != NULL;
         metric = metric->next) {
        double value = (double)once__service_metric_value(metric) * metric->unit;
        uint64_t count = 0;
        for (size_t i = 0; i <= metric->bound_count; i++) {
            count += atomic_load_explicit(&metric->buckets[i], memory_order_relaxed);
        }
        if (metric->bound_count > 0) {
            write_name(out, metric, "_count");
            fprintf(out, "%" PRIu64 ",", count);
        }
        write_name(out, metric, metric->bound_count > 0 ? "_sum" : "");
        if (once__service_metric_value(metric) == ONCE__SERVICE_METRIC_UNKNOWN) {
            fputs("null", out);
        } else {
            fprintf(out, "%.15g", value);
        }
        fputs(metric->next != NULL ? "," : "", out);
    }
    fputs("}\n", out);
    if (fclose(out) != 0) {
        free(text);
        return NULL;
    }
    return text;
}
