/*
 * The log of `once consume`: every line about a message has its id, its key and where it came from.
 */
#include "broker/dead_letter.h"
#include "consume/internal.h"

static const struct {
    once__service_log_level_t level;
    const char *text;
} lines[ONCE__CONSUME_LINES] = {
    [ONCE__CONSUME_LINE_HANDLED] = {ONCE__SERVICE_LOG_INFO, "handled"},
    [ONCE__CONSUME_LINE_DUPLICATE] = {ONCE__SERVICE_LOG_INFO,
                                      "duplicate: handled before, acknowledged"},
    [ONCE__CONSUME_LINE_RETRY] = {ONCE__SERVICE_LOG_WARN, "failed, will be tried again"},
    [ONCE__CONSUME_LINE_DOUBT] = {ONCE__SERVICE_LOG_WARN, "nobody knows whether it was handled"},
    [ONCE__CONSUME_LINE_BUSY] = {ONCE__SERVICE_LOG_DEBUG, "somebody else holds it"},
    [ONCE__CONSUME_LINE_PARKED] =
        {ONCE__SERVICE_LOG_WARN, "parked: it may have been handled; settle its record (once keys)"},
    [ONCE__CONSUME_LINE_DEAD] = {ONCE__SERVICE_LOG_ERROR, "given up: dead letter"},
    [ONCE__CONSUME_LINE_STORE] = {ONCE__SERVICE_LOG_ERROR, "the store could not be asked"},
    [ONCE__CONSUME_LINE_UNREACHED] = {ONCE__SERVICE_LOG_WARN, "the handler was not reached"},
};

static int is_wanted(once__consume_t *consumer, once__consume_line_t line)
{
    return lines[line].level >= consumer->log->level &&
           once__consume_counters_may_write(&consumer->counters, line);
}

static void write_line(const once__consume_item_t *item, once__consume_line_t line)
{
    const once__consume_t *consumer = item->consumer;
    char source[ONCE__BROKER_DEAD_LETTER_SOURCE_SIZE];

    once__broker_dead_letter_write_source(source, once__broker_subscription_topic(consumer->source),
                                          item->delivery->partition, item->delivery->offset);
    once__service_log(consumer->log, lines[line].level, lines[line].text,
                      ONCE__SERVICE_FIELDS(
                          once__service_field_text("id", item->key.len > 0 ? item->key.text : NULL),
                          once__service_field_slice("key", item->delivery->key),
                          once__service_field_text("source", source),
                          once__service_field_number("tries", item->tries),
                          once__service_field_number("status", item->status),
                          once__service_field_text("reason", item->reason),
                          once__service_field_text("detail", item->detail)));
}

void once__consume_say(once__consume_item_t *item, once__consume_line_t line)
{
    if (is_wanted(item->consumer, line)) {
        write_line(item, line);
    }
}

void once__consume_say_duplicate(once__consume_t *consumer, once__broker_delivery_t *delivery)
{
    const once__consume_arrival_t *arrival = delivery->prepared;

    if (is_wanted(consumer, ONCE__CONSUME_LINE_DUPLICATE)) {
        once__consume_item_t item = {
            .consumer = consumer, .delivery = delivery, .key = arrival->key};
        write_line(&item, ONCE__CONSUME_LINE_DUPLICATE);
    }
}

void once__consume_say_about(once__consume_t *consumer, int is_trouble, const char *sentence)
{
    once__service_log(consumer->log, is_trouble ? ONCE__SERVICE_LOG_WARN : ONCE__SERVICE_LOG_INFO,
                      sentence, NULL);
}
