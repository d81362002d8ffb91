#include "relay/relay.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/uuid.h"
#include "relay/internal.h"
#include "service/notify.h"
#include "service/signals.h"

#define PATIENCE_MS 60000 /* for a statement */
#define TURN_MAX_MS 1000

static uint64_t clock_ms(void)
{
    return once__real_env.monotonic_ms(once__real_env.data);
}

/* ------------------------------------------------------------------------------------------------------------- begin */

static int make_id(char *out)
{
    uint8_t bytes[16];

    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes)) {
        return -1;
    }
    once__uuid4(out, bytes);
    srandom(once__get32(bytes));
    return 0;
}

static void make_names(once__relay_t *relay)
{
    PQconninfoOption *options = PQconninfoParse(relay->options->from, NULL);
    const char *database = "";
    char host[64] = "";

    gethostname(host, sizeof(host) - 1);
    snprintf(relay->name, sizeof(relay->name), "%s:%ld", host, (long)getpid());
    for (const PQconninfoOption *option = options; option != NULL && option->keyword != NULL;
         option++) {
        if (strcmp(option->keyword, "dbname") == 0 && option->val != NULL) {
            database = option->val;
        }
    }
    if (relay->options->source != NULL) {
        snprintf(relay->source, sizeof(relay->source), "%s", relay->options->source);
    } else {
        snprintf(relay->source, sizeof(relay->source), "urn:once:%s", database);
    }
    PQconninfoFree(options);
}

/* Returns 0, or -1 if memory or descriptors are short. */
static int open_links(once__relay_t *relay)
{
    once__relay_link_t *links[] = {&relay->fetch, &relay->remove, &relay->control, &relay->watch};
    int code;

    relay->loop = once__loop_new(&once__real_env, &code);
    for (size_t i = 0; relay->loop != NULL && i < sizeof(links) / sizeof(links[0]); i++) {
        if (once__relay_link_open(links[i], relay->loop, relay->options->from,
                                  i == 0 ? "LISTEN once_outbox" : NULL, PATIENCE_MS) != 0) {
            return -1;
        }
    }
    return relay->loop != NULL ? 0 : -1;
}

static once__relay_end_t begin(once__relay_t *relay)
{
    const once__relay_options_t *options = relay->options;
    once__broker_publisher_options_t with = {
        .published = once__relay_send_verdict,
        .said = once__relay_report_said,
        .data = relay,
        .secret_file = options->secret_file,
        .ca_file = options->ca_file,
        .timeout_ms = options->timeout_ms,
        .connections = options->connections,
    };

    once__relay_removals_start(relay);
    relay->now_ms = clock_ms();
    relay->reading.wait_ms = 1;
    relay->reading.share = 128;
    relay->report.started_ms = relay->report.progress_ms = relay->reading.idle_since_ms =
        relay->now_ms;
    make_names(relay);
    if (make_id(relay->id) != 0 || once__relay_queues_start(relay) != 0 ||
        once__relay_destinations_start(relay) != 0 || once__relay_report_start(relay) != 0) {
        snprintf(relay->error, relay->error_size, "out of memory");
        return ONCE__RELAY_UNUSABLE;
    }
    relay->publisher =
        once__broker_publisher_open(options->to, &with, relay->error, relay->error_size);
    if (relay->publisher == NULL ||
        (options->metrics != NULL &&
         once__service_metrics_serve(relay->report.metrics, options->metrics, relay->error,
                                     relay->error_size) != 0)) {
        return ONCE__RELAY_USAGE;
    }
    if (open_links(relay) != 0) {
        snprintf(relay->error, relay->error_size, "out of memory or of descriptors");
        return ONCE__RELAY_UNUSABLE;
    }
    return ONCE__RELAY_DONE;
}

/* ---------------------------------------------------------------------------------------------------------- the loop */

static void on_signal(once__source_t *source, uint32_t events)
{
    once__relay_t *relay = ONCE__CONTAINER(source, once__relay_t, signals_source);
    int number = once__service_signals_take(source->fd);

    if (number == 0 || number == SIGHUP) {
        return;
    }
    if (relay->stopping) {
        relay->stop_by_ms = 0; /* the second signal does not wait */
        return;
    }
    relay->stopping = 1;
    once__service_notify_stopping();
    relay->stop_by_ms = relay->now_ms + relay->options->drain_ms;
    once__service_log(
        &relay->log, ONCE__SERVICE_LOG_INFO, "stopping: waiting for events in flight",
        ONCE__SERVICE_FIELDS(once__service_field_number("under_way", (int64_t)relay->sent)));
}

/* Its turn comes in every turn of the relay. */
static void on_publisher(once__source_t *source, uint32_t events)
{
}

static void take_notifications(once__relay_t *relay)
{
    PGnotify *notification;

    if (!once__relay_link_is_up(&relay->fetch)) {
        return;
    }
    while ((notification = PQnotifies(relay->fetch.base.conn)) != NULL) {
        relay->reading.notified = 1;
        PQfreemem(notification);
    }
}

static uint64_t sooner(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Does all that can be done now; returns when the next thing is due. */
static uint64_t turn(once__relay_t *relay)
{
    uint64_t due;

    relay->now_ms = clock_ms();
    (void)once__loop_run(relay->loop);
    due = once__relay_link_turn(&relay->fetch);
    due = sooner(due, once__relay_link_turn(&relay->remove));
    due = sooner(due, once__relay_link_turn(&relay->control));
    due = sooner(due, once__relay_link_turn(&relay->watch));
    take_notifications(relay);
    once__broker_publisher_turn(relay->publisher);
    once__relay_groups_turn(relay);
    once__relay_removals_turn(relay);
    once__relay_fetch_turn(relay); /* the server reads while we send */
    once__relay_send_turn(relay);
    once__relay_report_turn(relay);
    due = sooner(due, sooner(once__relay_groups_due(relay), once__relay_fetch_due(relay)));
    return sooner(due, once__relay_send_due(relay));
}

static int is_over(const once__relay_t *relay)
{
    return relay->stopping && relay->now_ms >= relay->stop_by_ms;
}

static void loop(once__relay_t *relay, int signals)
{
    relay->signals_source.ready = on_signal;
    relay->publisher_source.ready = on_publisher;
    if (once__source_set(relay->loop, &relay->signals_source, signals, EPOLLIN) != 0 ||
        once__source_set(relay->loop, &relay->publisher_source,
                         once__broker_publisher_fd(relay->publisher), EPOLLIN) != 0) {
        once__relay_stop(relay, ONCE__RELAY_UNUSABLE, "out of descriptors");
    }
    while (!is_over(relay)) {
        uint64_t due = turn(relay), now = clock_ms(), wait = due > now ? due - now : 0;
        (void)once__service_notify_turn(); /* TURN_MAX_MS is soon enough */
        if (!is_over(relay)) {
            (void)once__loop_wait(relay->loop, (int)sooner(wait, TURN_MAX_MS));
        }
    }
}

static void end(once__relay_t *relay)
{
    size_t left = relay->sent + relay->removals.done.count + relay->removals.removing.count;

    if (relay->end == ONCE__RELAY_DONE && relay->publisher != NULL && relay->stopping) {
        once__service_log(
            &relay->log, left > 0 ? ONCE__SERVICE_LOG_WARN : ONCE__SERVICE_LOG_INFO,
            left > 0 ? "ended: events in flight may be published twice" : "ended",
            ONCE__SERVICE_FIELDS(once__service_field_number("published", (int64_t)relay->published),
                                 once__service_field_number("under_way", (int64_t)left)));
    }
    once__broker_publisher_close(relay->publisher);
    once__relay_link_close(&relay->fetch);
    once__relay_link_close(&relay->remove);
    once__relay_link_close(&relay->control);
    once__relay_link_close(&relay->watch);
    once__loop_free(relay->loop);
    once__relay_removals_fetched(relay);
    once__relay_queues_end(relay);
    once__relay_destinations_end(relay);
    once__pg_params_free(&relay->params);
    free(relay->reading.snapshot);
    once__service_metrics_free(relay->report.metrics);
}

once__relay_end_t once__relay_run(const once__relay_options_t *options, char *error, size_t size)
{
    once__relay_t *relay = calloc(1, sizeof(*relay));
    int signals = once__service_signals_open();
    once__relay_end_t result;

    if (relay == NULL || signals < 0) {
        snprintf(error, size, "out of memory");
        free(relay);
        return ONCE__RELAY_UNUSABLE;
    }
    relay->options = options;
    relay->error = error;
    relay->error_size = size;
    relay->log =
        (once__service_log_t){.program = "relay", .level = options->level, .fd = STDOUT_FILENO};
    relay->end = begin(relay);
    if (relay->end == ONCE__RELAY_DONE) {
        once__service_log(&relay->log, ONCE__SERVICE_LOG_INFO, "started",
                          ONCE__SERVICE_FIELDS(
                              once__service_field_text("relay", relay->id),
                              once__service_field_text("name", relay->name),
                              once__service_field_text(
                                  "destination", once__broker_publisher_name(relay->publisher))));
        loop(relay, signals);
        once__relay_report_end(relay);
    }
    end(relay);
    result = relay->end;
    close(signals);
    free(relay);
    return result;
}
