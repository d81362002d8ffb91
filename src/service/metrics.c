#include "service/metrics.h"

#include <assert.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "service/internal.h"

#define BOUNDS_MAX 24

struct once__service_metric {
    once__service_metric_t *next;
    const once__service_metric_spec_t *spec;
    _Atomic int64_t value; /* the sum of a histogram */
    _Atomic uint64_t buckets[BOUNDS_MAX + 1];
};

struct once__service_metrics {
    ONCE__LIST(once__service_metric_t);
    _Atomic int good;
    once__service_metrics_server_t *server;
};

once__service_metrics_t *once__service_metrics_new(void)
{
    once__service_metrics_t *metrics = calloc(1, sizeof(*metrics));

    if (metrics != NULL) {
        once__list_init(metrics);
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
        once__list_drop(metrics);
        free(metric);
    }
    free(metrics);
}

int once__service_metrics_add(once__service_metrics_t *metrics,
                              const once__service_metric_spec_t *specs, size_t count, void *into)
{
    for (size_t i = 0; i < count; i++) {
        once__service_metric_t *metric = calloc(1, sizeof(*metric));

        if (metric == NULL) {
            return -1;
        }
        assert(specs[i].bound_count <= BOUNDS_MAX);
        metric->spec = &specs[i];
        once__list_add(metrics, metric);
        *(once__service_metric_t **)(void *)((char *)into + specs[i].offset) = metric;
    }
    return 0;
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
    while (i < metric->spec->bound_count && value > metric->spec->bounds[i]) {
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

static double shown(const once__service_metric_spec_t *spec, int64_t value)
{
    return (double)value * spec->unit;
}

static void write_histogram(FILE *out, const once__service_metric_t *metric)
{
    const once__service_metric_spec_t *spec = metric->spec;
    uint64_t total = 0;

    for (size_t i = 0; i < spec->bound_count; i++) {
        total += atomic_load_explicit(&metric->buckets[i], memory_order_relaxed);
        fprintf(out, "%s_bucket{le=\"%.12g\"} %" PRIu64 "\n", spec->name,
                shown(spec, spec->bounds[i]), total);
    }
    total += atomic_load_explicit(&metric->buckets[spec->bound_count], memory_order_relaxed);
    fprintf(out, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n%s_sum %.12g\n%s_count %" PRIu64 "\n",
            spec->name, total, spec->name, shown(spec, once__service_metric_value(metric)),
            spec->name, total);
}

char *once__service_metrics_text(once__service_metrics_t *metrics)
{
    static const char *const types[] = {"counter", "gauge", "histogram"};
    const char *before = "";
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);

    if (out == NULL) {
        return NULL;
    }
    for (const once__service_metric_t *metric = metrics->first; metric != NULL;
         metric = metric->next) {
        const once__service_metric_spec_t *spec = metric->spec;
        int64_t value = once__service_metric_value(metric);

        if (value == ONCE__SERVICE_METRIC_UNKNOWN) {
            continue;
        }
        if (strcmp(before, spec->name) != 0) {
            fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", spec->name, spec->help, spec->name,
                    types[spec->kind]);
        }
        before = spec->name;
        if (spec->kind == ONCE__SERVICE_HISTOGRAM) {
            write_histogram(out, metric);
        } else if (spec->labels != NULL) {
            fprintf(out, "%s{%s} %.15g\n", spec->name, spec->labels, shown(spec, value));
        } else {
            fprintf(out, "%s %.15g\n", spec->name, shown(spec, value));
        }
    }
    if (fclose(out) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

/* Only quotes in labels need to be escaped: names and labels are constants of the programs. */
static void write_name(FILE *out, const once__service_metric_spec_t *spec, const char *suffix)
{
    fprintf(out, "\"%s%s", spec->name, suffix);
    if (spec->labels != NULL) {
        fputc('{', out);
        for (const char *at = spec->labels; *at != '\0'; at++) {
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
        const once__service_metric_spec_t *spec = metric->spec;
        int64_t value = once__service_metric_value(metric);
        int is_histogram = spec->kind == ONCE__SERVICE_HISTOGRAM;

        if (is_histogram) {
            uint64_t count = 0;

            for (size_t i = 0; i <= spec->bound_count; i++) {
                count += atomic_load_explicit(&metric->buckets[i], memory_order_relaxed);
            }
            write_name(out, spec, "_count");
            fprintf(out, "%" PRIu64 ",", count);
        }
        write_name(out, spec, is_histogram ? "_sum" : "");
        if (value == ONCE__SERVICE_METRIC_UNKNOWN) {
            fputs("null", out);
        } else {
            fprintf(out, "%.15g", shown(spec, value));
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
