#include "service/metrics.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <microhttpd.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <once/once.h>

#include "base/list.h"
#include "service/http.h"

#define BOUNDS_MAX      24
#define CONNECTIONS_MAX 16 /* of the server */
#define TIMEOUT_S       10 /* of an idle connection */

struct once__service_metric {
    once__service_metric_t *next;
    const once__service_metric_spec_t *spec;
    _Atomic int64_t value; /* the sum of a histogram */
    _Atomic uint64_t buckets[BOUNDS_MAX + 1];
};

struct once__service_metrics {
    const char *program;
    ONCE__LIST(once__service_metric_t);
    _Atomic int good;
    struct MHD_Daemon *server; /* with one thread; NULL: not served */
};

once__service_metrics_t *once__service_metrics_new(const char *program)
{
    once__service_metrics_t *metrics = calloc(1, sizeof(*metrics));

    if (metrics != NULL) {
        metrics->program = program;
        once__list_init(metrics);
    }
    return metrics;
}

void once__service_metrics_free(once__service_metrics_t *metrics)
{
    if (metrics == NULL) {
        return;
    }
    if (metrics->server != NULL) {
        MHD_stop_daemon(metrics->server);
    }
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
        assert((specs[i].kind == ONCE__SERVICE_HISTOGRAM) == (specs[i].bound_count > 0));
        for (size_t b = 1; b < specs[i].bound_count; b++) {
            assert(specs[i].bounds[b - 1] < specs[i].bounds[b]);
        }
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

/* The kinds of stores are those of once_build_info of the gateway. */
static void write_build(FILE *out, const char *program)
{
    static const char *const kinds[] = {"memory", "local", "postgres", "redis"};
    const char *comma = "";

    fprintf(out,
            "# HELP once_build_info Version of the program.\n"
            "# TYPE once_build_info gauge\n"
            "once_build_info{program=\"%s\",version=\"%s\",stores=\"",
            program, once_version());
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (once_store_is_built_in(kinds[i])) {
            fprintf(out, "%s%s", comma, kinds[i]);
            comma = ",";
        }
    }
    fputs("\"} 1\n", out);
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
    write_build(out, metrics->program);
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

/* ------------------------------------------------------------------------------------------------------ the server */

static enum MHD_Result handle(void *data, struct MHD_Connection *connection, const char *path,
                              const char *method, const char *version, const char *upload,
                              size_t *upload_len, void **state)
{
    once__service_metrics_t *metrics = data;

    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0) {
        *upload_len = 0;
        return once__service_http_answer(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "text/plain",
                                         strdup("GET\n"));
    }
    if (strcmp(path, "/metrics") == 0) {
        return once__service_http_answer(connection, MHD_HTTP_OK,
                                         "text/plain; version=0.0.4; charset=utf-8",
                                         once__service_metrics_text(metrics));
    }
    if (strcmp(path, "/metrics.json") == 0) {
        return once__service_http_answer(connection, MHD_HTTP_OK, "application/json",
                                         once__service_metrics_json(metrics));
    }
    if (strcmp(path, "/health") == 0 || strcmp(path, "/ready") == 0) {
        int good = atomic_load(&metrics->good);
        return once__service_http_answer(connection,
                                         good ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE,
                                         "text/plain", strdup(good ? "ok\n" : "not working\n"));
    }
    return once__service_http_answer(connection, MHD_HTTP_NOT_FOUND, "text/plain",
                                     strdup("/metrics, /metrics.json, /health, /ready\n"));
}

int once__service_metrics_serve(once__service_metrics_t *metrics, const char *address, char *error,
                                size_t size)
{
    struct sockaddr_storage storage;
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD;

    if (once__service_http_address(address, &storage) != 0) {
        snprintf(error, size, "the address of metrics must be PORT, IP:PORT or [IPV6]:PORT");
        return -1;
    }
    flags |= storage.ss_family == AF_INET6 ? MHD_USE_IPv6 : 0;
    errno = 0;
    metrics->server = MHD_start_daemon(flags, 0, NULL, NULL, handle, metrics, MHD_OPTION_SOCK_ADDR,
                                       (struct sockaddr *)&storage, MHD_OPTION_CONNECTION_LIMIT,
                                       (unsigned)CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT,
                                       (unsigned)TIMEOUT_S, MHD_OPTION_END);
    if (metrics->server == NULL) {
        snprintf(error, size, "cannot serve metrics at %s: %s", address,
                 errno != 0 ? strerror(errno) : "libmicrohttpd refuses");
        return -1;
    }
    return 0;
}
