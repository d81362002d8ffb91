/*
 * The metrics of `once consume`, and its log, in which every line about a message has its id, its key, the idempotency key of the
 * request that caused it, and its source. At most LINES_A_SECOND lines of each kind are written; the counters count all.
 */
#include "consume/report.h"

#include <stddef.h>
#include <string.h>

#include "broker/dead_letter.h"
#include "consume/internal.h"

#define LINES_A_SECOND 50

static const char *const reasons[] = {ONCE__CONSUME_REASON_REJECTED, ONCE__CONSUME_REASON_TRIES,
                                      ONCE__CONSUME_REASON_MISMATCH, ONCE__CONSUME_REASON_NO_ID};

static const struct {
    once__service_log_level_t level;
    const char *kind, *text;
} lines[ONCE__CONSUME_LINES] = {
    [ONCE__CONSUME_LINE_HANDLED] = {ONCE__SERVICE_LOG_INFO, "handled", "handled"},
    [ONCE__CONSUME_LINE_DUPLICATE] = {ONCE__SERVICE_LOG_INFO, "duplicate",
                                      "duplicate: handled before, acknowledged"},
    [ONCE__CONSUME_LINE_RETRY] = {ONCE__SERVICE_LOG_WARN, "tried again",
                                  "failed, will be tried again"},
    [ONCE__CONSUME_LINE_DOUBT] = {ONCE__SERVICE_LOG_WARN, "doubt",
                                  "it is unknown whether it was handled"},
    [ONCE__CONSUME_LINE_BUSY] = {ONCE__SERVICE_LOG_DEBUG, "busy",
                                 "another consumer holds its claim"},
    [ONCE__CONSUME_LINE_PARKED] = {ONCE__SERVICE_LOG_WARN, "parked",
                                   "parked: it may have been handled; settle its record "
                                   "(once keys)"},
    [ONCE__CONSUME_LINE_DEAD] = {ONCE__SERVICE_LOG_ERROR, "dead letter", "given up: dead letter"},
    [ONCE__CONSUME_LINE_STORE] = {ONCE__SERVICE_LOG_ERROR, "store error", "the store failed"},
    [ONCE__CONSUME_LINE_UNREACHED] = {ONCE__SERVICE_LOG_WARN, "not reached",
                                      "the handler was not reached"},
};

static const int64_t bounds[] = {1000,   2500,   5000,    10000,   25000,    50000,
                                 100000, 250000, 1000000, 5000000, 30000000, 60000000};

#define AT(field) offsetof(once__consume_counters_t, field)

static const once__service_metric_spec_t specs[] = {
    {AT(lag), ONCE__SERVICE_GAUGE, "once_consume_lag", "Messages that have not been acknowledged.",
     NULL, 1, NULL, 0},
    {AT(handled), ONCE__SERVICE_COUNTER, "once_consume_handled_total",
     "Messages handled successfully.", NULL, 1, NULL, 0},
    {AT(duplicates), ONCE__SERVICE_COUNTER, "once_consume_duplicates_total",
     "Messages acknowledged because they had been handled before.", NULL, 1, NULL, 0},
    {AT(retries), ONCE__SERVICE_COUNTER, "once_consume_retries_total", "Tries after the first.",
     NULL, 1, NULL, 0},
    {AT(dead_letters[0]), ONCE__SERVICE_COUNTER, "once_consume_dead_letters_total",
     "Messages given up.", "reason=\"rejected\"", 1, NULL, 0},
    {AT(dead_letters[1]), ONCE__SERVICE_COUNTER, "once_consume_dead_letters_total",
     "Messages given up.", "reason=\"tries\"", 1, NULL, 0},
    {AT(dead_letters[2]), ONCE__SERVICE_COUNTER, "once_consume_dead_letters_total",
     "Messages given up.", "reason=\"mismatch\"", 1, NULL, 0},
    {AT(dead_letters[3]), ONCE__SERVICE_COUNTER, "once_consume_dead_letters_total",
     "Messages given up.", "reason=\"no-id\"", 1, NULL, 0},
    {AT(busy), ONCE__SERVICE_COUNTER, "once_consume_busy_total",
     "Asks answered busy: another consumer holds the claim.", NULL, 1, NULL, 0},
    {AT(doubts), ONCE__SERVICE_COUNTER, "once_consume_doubts_total",
     "Requests without a complete answer.", NULL, 1, NULL, 0},
    {AT(parked), ONCE__SERVICE_GAUGE, "once_consume_parked",
     "Messages waiting for their record to be settled.", NULL, 1, NULL, 0},
    {AT(store_errors), ONCE__SERVICE_COUNTER, "once_consume_store_errors_total",
     "Asks that failed in the store.", NULL, 1, NULL, 0},
    {AT(behind), ONCE__SERVICE_GAUGE, "once_consume_store_behind_seconds",
     "How late expired records are removed.", NULL, 0.001, NULL, 0},
    {AT(messages_behind), ONCE__SERVICE_GAUGE, "once_consume_store_messages_behind_seconds",
     "How late old messages of the inbox are removed.", NULL, 0.001, NULL, 0},
    {AT(revoked), ONCE__SERVICE_COUNTER, "once_consume_lost_total",
     "Messages whose partition or connection was lost.", NULL, 1, NULL, 0},
    {AT(running), ONCE__SERVICE_GAUGE, "once_consume_running", "Requests in flight.", NULL, 1, NULL,
     0},
    {AT(paused), ONCE__SERVICE_GAUGE, "once_consume_paused",
     "1 while reading is paused because there is no room.", NULL, 1, NULL, 0},
    {AT(waiting), ONCE__SERVICE_GAUGE, "once_consume_waiting",
     "Messages in memory, including those in flight.", NULL, 1, NULL, 0},
    {AT(seconds), ONCE__SERVICE_HISTOGRAM, "once_consume_handler_seconds",
     "Response time of the handler.", NULL, 1e-6, bounds, sizeof(bounds) / sizeof(bounds[0])},
};

int once__consume_counters_start(once__consume_counters_t *counters)
{
    counters->metrics = once__service_metrics_new("consume");
    if (counters->metrics == NULL ||
        once__service_metrics_add(counters->metrics, specs, sizeof(specs) / sizeof(specs[0]),
                                  counters) != 0) {
        return -1;
    }
    once__service_metric_set(counters->lag, ONCE__SERVICE_METRIC_UNKNOWN);
    return 0;
}

void once__consume_counters_dead_letter(once__consume_counters_t *counters, const char *reason)
{
    for (size_t i = 0; i < 4; i++) {
        if (strcmp(reason, reasons[i]) == 0) {
            once__service_metric_count(counters->dead_letters[i], 1);
        }
    }
}

static int may_write(once__consume_counters_t *counters, once__consume_line_t line)
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
                log, ONCE__SERVICE_LOG_INFO, "log lines were left out",
                ONCE__SERVICE_FIELDS(
                    once__service_field_text("kind", lines[i].kind),
                    once__service_field_number("count", (int64_t)counters->lines[i].left_out)));
        }
        counters->lines[i].written = 0;
        counters->lines[i].left_out = 0;
    }
}

static int is_wanted(once__consume_t *consumer, once__consume_line_t line)
{
    return lines[line].level >= consumer->log->level && may_write(&consumer->counters, line);
}

static void write_line(const once__consume_item_t *item, once__consume_line_t line)
{
    const once__consume_t *consumer = item->consumer;
    char source[ONCE__BROKER_DEAD_LETTER_SOURCE_SIZE];

    once__broker_dead_letter_write_source(source,
                                          once__broker_subscription_topic(consumer->subscription),
                                          item->delivery->partition, item->delivery->offset);
    once__service_log(consumer->log, lines[line].level, lines[line].text,
                      ONCE__SERVICE_FIELDS(
                          once__service_field_text("id", item->key.len > 0 ? item->key.text : NULL),
                          once__service_field_slice("key", item->delivery->key),
                          once__service_field_slice("idempotency_key",
                                                    once__consume_identity_cause(item->delivery)),
                          once__service_field_text("source", source),
                          once__service_field_number("tries", item->tries),
                          once__service_field_number("status", item->status),
                          once__service_field_text("reason", item->reason),
                          once__service_field_text("detail", item->detail)));
}

void once__consume_report_item(once__consume_item_t *item, once__consume_line_t line)
{
    if (is_wanted(item->consumer, line)) {
        write_line(item, line);
    }
}

void once__consume_report_duplicate(once__consume_t *consumer, once__broker_delivery_t *delivery)
{
    const once__consume_arrival_t *arrival = delivery->prepared;

    if (is_wanted(consumer, ONCE__CONSUME_LINE_DUPLICATE)) {
        once__consume_item_t item = {
            .consumer = consumer, .delivery = delivery, .key = arrival->key};
        write_line(&item, ONCE__CONSUME_LINE_DUPLICATE);
    }
}

void once__consume_report(once__consume_t *consumer, int is_trouble, const char *sentence)
{
    once__service_log(consumer->log, is_trouble ? ONCE__SERVICE_LOG_WARN : ONCE__SERVICE_LOG_INFO,
                      sentence, NULL);
}
