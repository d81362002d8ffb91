/*
 * The metrics and the log of `once serve`. Nothing of a request is in either, except the name of its operation.
 */
#include <stddef.h>
#include <string.h>

#include "serve/internal.h"

#define AT(field) offsetof(once__serve_counters_t, field)

static const int64_t bounds[] = {100,   250,    500,    1000,    2500,    5000,     10000,   25000,
                                 50000, 100000, 250000, 1000000, 5000000, 30000000, 60000000};

/* clang-format off */
static const once__service_metric_spec_t specs[] = {
    {AT(requests), ONCE__SERVICE_COUNTER, "once_serve_requests_total", "Requests for an operation.", NULL, 1, NULL, 0},
    {AT(refused), ONCE__SERVICE_COUNTER, "once_serve_refused_total", "Requests that were answered with a 4xx.", NULL, 1, NULL, 0},
    {AT(failed), ONCE__SERVICE_COUNTER, "once_serve_failed_total", "Requests that were answered with a 5xx.", NULL, 1, NULL, 0},
    {AT(claims[ONCE_OUTCOME_RUN]), ONCE__SERVICE_COUNTER, "once_serve_claims_total", "Claims by outcome.",
     "outcome=\"run\"", 1, NULL, 0},
    {AT(claims[ONCE_OUTCOME_REPLAY]), ONCE__SERVICE_COUNTER, "once_serve_claims_total", "Claims by outcome.",
     "outcome=\"replay\"", 1, NULL, 0},
    {AT(claims[ONCE_OUTCOME_BUSY]), ONCE__SERVICE_COUNTER, "once_serve_claims_total", "Claims by outcome.",
     "outcome=\"busy\"", 1, NULL, 0},
    {AT(claims[ONCE_OUTCOME_MISMATCH]), ONCE__SERVICE_COUNTER, "once_serve_claims_total", "Claims by outcome.",
     "outcome=\"mismatch\"", 1, NULL, 0},
    {AT(claims[ONCE_OUTCOME_UNKNOWN]), ONCE__SERVICE_COUNTER, "once_serve_claims_total", "Claims by outcome.",
     "outcome=\"unknown\"", 1, NULL, 0},
    {AT(claims[ONCE_OUTCOME_LOST]), ONCE__SERVICE_COUNTER, "once_serve_claims_total", "Claims by outcome.",
     "outcome=\"lost\"", 1, NULL, 0},
    {AT(connections), ONCE__SERVICE_GAUGE, "once_serve_connections", "Open connections.", NULL, 1, NULL, 0},
    {AT(kept), ONCE__SERVICE_GAUGE, "once_serve_kept_claims", "Claims that the server renews for their connections.", NULL, 1, NULL, 0},
    {AT(waiting), ONCE__SERVICE_GAUGE, "once_serve_waiting", "Claims that wait for the end of another attempt.", NULL, 1, NULL, 0},
    {AT(duration), ONCE__SERVICE_HISTOGRAM, "once_serve_request_seconds", "From the end of a request to the end of its answer.",
     NULL, 0.000001, bounds, sizeof(bounds) / sizeof(bounds[0])},
};
/* clang-format on */

int once__serve_counters_start(once__serve_counters_t *counters)
{
    counters->metrics = once__service_metrics_new("serve");
    if (counters->metrics == NULL) {
        return -1;
    }
    return once__service_metrics_add(counters->metrics, specs, sizeof(specs) / sizeof(specs[0]),
                                     counters);
}

void once__serve_report(const once__serve_t *serve, int is_trouble, const char *sentence)
{
    once__service_log(serve->log, is_trouble ? ONCE__SERVICE_LOG_WARN : ONCE__SERVICE_LOG_INFO,
                      sentence, NULL);
}

/* The store as a whole cannot be used. A full one can: it still answers for the keys that it has. */
static int is_store_error(int error)
{
    switch (error) {
    case ONCE_E_UNAVAILABLE:
    case ONCE_E_NOREPLY:
    case ONCE_E_IO:
    case ONCE_E_CONFIG:
    case ONCE_E_SECRET:
        return 1;
    default:
        return 0;
    }
}

/* Errors of this process, which the store was not asked about. */
static int is_own_error(int error)
{
    return error == ONCE_E_NOMEM || error == ONCE_E_CLOSED;
}

void once__serve_report_store(once__serve_t *serve, int error)
{
    int failed = is_store_error(error), before = serve->store_error != ONCE_OK;
    char trouble[300] = "";

    if (is_own_error(error)) {
        return;
    }
    serve->store_error = failed ? error : ONCE_OK;
    if (failed == before) {
        return;
    }
    once__service_metrics_health(serve->counters.metrics, !failed && !serve->stopping);
    if (!failed) {
        once__serve_report(serve, 0, "the store works again");
        return;
    }
    (void)once_store_trouble(serve->once, trouble, sizeof(trouble));
    once__service_log(
        serve->log, ONCE__SERVICE_LOG_WARN, "the store cannot be used",
        ONCE__SERVICE_FIELDS(once__service_field_text("code", once_error_name(error)),
                             once__service_field_text(
                                 "reason", trouble[0] != '\0' ? trouble : once_error_text(error))));
}
