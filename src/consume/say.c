/*
 * The log of `once consume`: every line about a message has its id, its key and where it came from.
 */
#include "broker/dead_letter.h"
#include "consume/internal.h"

static const struct {
    once__log_level_t level;
    const char *text;
} lines[ONCE__LINES] = {
    [ONCE__LINE_HANDLED] = {ONCE__LOG_INFO, "handled"},
    [ONCE__LINE_DUPLICATE] = {ONCE__LOG_INFO, "duplicate: handled before, acknowledged"},
    [ONCE__LINE_RETRY] = {ONCE__LOG_WARN, "failed, will be tried again"},
    [ONCE__LINE_DOUBT] = {ONCE__LOG_WARN, "nobody knows whether it was handled"},
    [ONCE__LINE_BUSY] = {ONCE__LOG_DEBUG, "somebody else holds it"},
    [ONCE__LINE_PARKED] = {ONCE__LOG_WARN,
                           "parked: it may have been handled; settle its record (once keys)"},
    [ONCE__LINE_DEAD] = {ONCE__LOG_ERROR, "given up: dead letter"},
    [ONCE__LINE_STORE] = {ONCE__LOG_ERROR, "the store could not be asked"},
    [ONCE__LINE_UNREACHED] = {ONCE__LOG_WARN, "the handler was not reached"},
};

static int is_wanted(once__consumer_t *consumer, once__line_t line)
{
    return lines[line].level >= consumer->log->level &&
           once__counters_may_write(&consumer->counters, line);
}

static void write_line(const once__item_t *item, once__line_t line)
{
    const once__consumer_t *consumer = item->consumer;
    char source[ONCE__LETTER_SOURCE_SIZE];

    once__letter_write_source(source, once__subscription_topic(consumer->source),
                              item->delivery->partition, item->delivery->offset);
    once__log(
        consumer->log, lines[line].level, lines[line].text,
        ONCE__FIELDS(
            once__field_text("id", item->key.len > 0 ? item->key.text : NULL),
            once__field_slice("key", item->delivery->key), once__field_text("source", source),
            once__field_number("tries", item->tries), once__field_number("status", item->status),
            once__field_text("reason", item->reason), once__field_text("detail", item->detail)));
}

void once__say(once__item_t *item, once__line_t line)
{
    if (is_wanted(item->consumer, line)) {
        write_line(item, line);
    }
}

void once__say_duplicate(once__consumer_t *consumer, once__delivery_t *delivery)
{
    const once__arrival_t *arrival = delivery->prepared;

    if (is_wanted(consumer, ONCE__LINE_DUPLICATE)) {
        once__item_t item = {.consumer = consumer, .delivery = delivery, .key = arrival->key};
        write_line(&item, ONCE__LINE_DUPLICATE);
    }
}

void once__say_about(once__consumer_t *consumer, int is_trouble, const char *sentence)
{
    once__log(consumer->log, is_trouble ? ONCE__LOG_WARN : ONCE__LOG_INFO, sentence, NULL);
}
