/* Log, metrics and progress of a relay. */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "relay/internal.h"

#define PROGRESS_MS 1000
#define SILENT_MS   10000 /* a statement that takes this long counts as unanswered */
/* Between two lines that say that the database is unreachable. */
#define AGAIN_MIN_MS 5000
#define AGAIN_MAX_MS 600000

static const int64_t bounds[] = {1,   2,   5,    10,   20,    50,     100,
                                 200, 500, 1000, 5000, 30000, 120000, 600000};

#define AT(field) offsetof(once__relay_report_t, field)

static const once__service_metric_spec_t specs[] = {
    {AT(published), ONCE__SERVICE_COUNTER, "once_relay_published_total",
     "Events that the destination confirmed.", NULL, 1, NULL, 0},
    {AT(fetched), ONCE__SERVICE_COUNTER, "once_relay_fetched_total", "Events read from the outbox.",
     NULL, 1, NULL, 0},
    {AT(retries), ONCE__SERVICE_COUNTER, "once_relay_retries_total",
     "Failed attempts that are repeated.", NULL, 1, NULL, 0},
    {AT(dead), ONCE__SERVICE_COUNTER, "once_relay_dead_total", "Events given up by this relay.",
     NULL, 1, NULL, 0},
    {AT(dead_now), ONCE__SERVICE_GAUGE, "once_relay_dead_events", "Dead events in the database.",
     NULL, 1, NULL, 0},
    {AT(lag_events), ONCE__SERVICE_GAUGE, "once_relay_lag_events",
     "Events waiting to be published, of all relays.", NULL, 1, NULL, 0},
    {AT(lag_seconds), ONCE__SERVICE_GAUGE, "once_relay_lag_seconds",
     "Age of the oldest waiting event.", NULL, 0.001, NULL, 0},
    {AT(in_flight), ONCE__SERVICE_GAUGE, "once_relay_in_flight", "Events sent and not confirmed.",
     NULL, 1, NULL, 0},
    {AT(groups), ONCE__SERVICE_GAUGE, "once_relay_groups",
     "Groups of the outbox that this relay owns.", NULL, 1, NULL, 0},
    {AT(relays), ONCE__SERVICE_GAUGE, "once_relay_relays", "Relays that are alive.", NULL, 1, NULL,
     0},
    {AT(database), ONCE__SERVICE_GAUGE, "once_relay_database_up", "1 if the database is reachable.",
     NULL, 1, NULL, 0},
    {AT(destination), ONCE__SERVICE_GAUGE, "once_relay_destination_up",
     "1 if the destination accepts events, or nothing to the contrary is known.", NULL, 1, NULL, 0},
    {AT(destinations_well), ONCE__SERVICE_GAUGE, "once_relay_destinations",
     "URLs, topics or queues with events in this relay's memory.", "state=\"well\"", 1, NULL, 0},
    {AT(destinations_suspended), ONCE__SERVICE_GAUGE, "once_relay_destinations",
     "URLs, topics or queues with events in this relay's memory.", "state=\"suspended\"", 1, NULL,
     0},
    {AT(left), ONCE__SERVICE_GAUGE, "once_relay_left_keys",
     "Per-key queues whose events are left in the database for now: "
     "they are long, or their events or destinations fail.",
     NULL, 1, NULL, 0},
    {AT(delay), ONCE__SERVICE_HISTOGRAM, "once_relay_delay_seconds",
     "From emit to the destination's confirmation.", NULL, 0.001, bounds,
     sizeof(bounds) / sizeof(bounds[0])},
};

int once__relay_report_start(once__relay_t *relay)
{
    once__relay_report_t *report = &relay->report;

    report->metrics = once__service_metrics_new("relay");
    if (report->metrics == NULL ||
        once__service_metrics_add(report->metrics, specs, sizeof(specs) / sizeof(specs[0]),
                                  report) != 0) {
        return -1;
    }
    once__service_metric_set(report->destination, 1);
    return 0;
}

void once__relay_report_said(void *data, int is_trouble, const char *sentence)
{
    const once__relay_t *relay = data;

    if (is_trouble) {
        once__service_metric_set(relay->report.destination, 0);
    }
    once__service_log(&relay->log, is_trouble ? ONCE__SERVICE_LOG_WARN : ONCE__SERVICE_LOG_INFO,
                      sentence, NULL);
}

void once__relay_report_database(once__relay_t *relay, const PGresult *result)
{
    const char *text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);

    once__service_log(
        &relay->log, ONCE__SERVICE_LOG_WARN, "the database reports an error",
        ONCE__SERVICE_FIELDS(
            once__service_field_text("reason", text != NULL ? text : PQresultErrorMessage(result)),
            once__service_field_text("sqlstate", PQresultErrorField(result, PG_DIAG_SQLSTATE))));
}

void once__relay_report_event(once__relay_t *relay, once__service_log_level_t level,
                              const char *message, const once__relay_event_t *event,
                              const char *reason)
{
    once__service_log(
        &relay->log, level, message,
        ONCE__SERVICE_FIELDS(once__service_field_text("event", event->id_text),
                             once__service_field_slice("key", event->key),
                             once__service_field_slice("topic", event->topic),
                             once__service_field_slice("idempotency_key", event->cause),
                             once__service_field_number("tries", event->tries),
                             once__service_field_text("reason", reason)));
}

void once__relay_report_published(once__relay_t *relay, const once__relay_event_t *event)
{
    int64_t age_us = once__relay_event_age_us(relay, event);

    once__service_metric_count(relay->report.published, 1);
    once__service_metric_set(relay->report.destination, 1);
    once__service_metric_observe(relay->report.delay, age_us > 0 ? age_us / 1000 : 0);
    if (relay->log.level == ONCE__SERVICE_LOG_DEBUG) {
        once__relay_report_event(relay, ONCE__SERVICE_LOG_DEBUG, "published", event, NULL);
    }
}

/* On a terminal one line that changes, elsewhere a new line each time. */
static void end_line(int is_last)
{
    fputs(!isatty(STDERR_FILENO) ? "\n" : is_last ? "\033[K\n" : "\033[K\r", stderr);
    fflush(stderr);
}

static void tell_progress(once__relay_t *relay)
{
    uint64_t rate = (relay->published - relay->report.progress_published) * 1000 /
                    (relay->now_ms - relay->report.progress_ms);
    int64_t left = relay->lag.events - (int64_t)(relay->published - relay->lag.published);

    left = left > 0 ? left : 0;
    if (left == 0 && rate == 0) {
        fputs(isatty(STDERR_FILENO) ? "\033[K" : "", stderr);
        return;
    }
    fprintf(stderr, "%" PRIu64 " published, %" PRIu64 "/s, %" PRId64 " waiting", relay->published,
            rate, left);
    if (rate > 0 && left > 0) {
        fprintf(stderr, ", %" PRIu64 " s to go", (uint64_t)left / rate + 1);
    }
    end_line(0);
}

void once__relay_report_end(const once__relay_t *relay)
{
    if (relay->options->progress) {
        fprintf(stderr, "%" PRIu64 " published in %" PRIu64 " s", relay->published,
                (relay->now_ms - relay->report.started_ms + 500) / 1000);
        end_line(1);
    }
}

/* A pool may accept a statement and wait for a server. */
static int is_silent(const once__relay_t *relay)
{
    return relay->control.base.state == ONCE__PG_BUSY &&
           relay->now_ms - relay->sharing.turn_sent_ms >= SILENT_MS;
}

/* Logs changes, and while the database is unreachable, also from the start, repeats that less and less often. */
static void tell_database(once__relay_t *relay, int up, const char *trouble)
{
    int changed = up != (int)once__service_metric_value(relay->report.database);

    if (!changed && (up || trouble[0] == '\0' || relay->now_ms < relay->report.database_due_ms)) {
        return;
    }
    relay->report.database_pause_ms = changed || relay->report.database_pause_ms == 0
                                          ? AGAIN_MIN_MS
                                          : 2 * relay->report.database_pause_ms;
    relay->report.database_pause_ms = relay->report.database_pause_ms < AGAIN_MAX_MS
                                          ? relay->report.database_pause_ms
                                          : AGAIN_MAX_MS;
    relay->report.database_due_ms = relay->now_ms + relay->report.database_pause_ms;
    once__service_metric_set(relay->report.database, up);
    once__service_log(
        &relay->log, up ? ONCE__SERVICE_LOG_INFO : ONCE__SERVICE_LOG_WARN,
        up ? "the database is reachable" : "the database is unreachable",
        ONCE__SERVICE_FIELDS(once__service_field_text("reason", up ? NULL : trouble)));
}

void once__relay_report_turn(once__relay_t *relay)
{
    const char *silent = is_silent(relay) ? "it is connected but does not answer" : NULL;
    int up = once__relay_link_is_up(&relay->control) && silent == NULL;

    once__service_metric_set(relay->report.in_flight, (int64_t)relay->sent);
    once__service_metric_set(relay->report.groups, (int64_t)relay->sharing.owned);
    once__service_metric_set(
        relay->report.destinations_well,
        (int64_t)(relay->destinations.table.count - relay->destinations.suspended_count));
    once__service_metric_set(relay->report.destinations_suspended,
                             (int64_t)relay->destinations.suspended_count);
    once__service_metric_set(relay->report.left, (int64_t)relay->queues.left);
    if (relay->outage.is_away) {
        once__service_metric_set(relay->report.destination, 0);
    }
    tell_database(relay, up, silent != NULL ? silent : relay->control.trouble);
    once__service_metrics_health(relay->report.metrics,
                                 up && !relay->outage.is_away &&
                                     relay->now_ms < relay->sharing.lease_over_ms);
    if (relay->options->progress && relay->now_ms - relay->report.progress_ms >= PROGRESS_MS) {
        tell_progress(relay);
        relay->report.progress_ms = relay->now_ms;
        relay->report.progress_published = relay->published;
    }
}
