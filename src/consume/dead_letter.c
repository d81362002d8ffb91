/*
 * Dead letters: a message that is given up, with the reason. It is acknowledged when the broker has confirmed the dead letter.
 *
 * With the added headers a message that just fitted the broker's limit may be too large. Then the dead letter is sent without the
 * message's larger headers, and then without its payload, if the broker keeps the message itself.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "broker/dead_letter.h"
#include "consume/internal.h"

#define HEADERS_MAX    (256 + ONCE__BROKER_DEAD_LETTER_HEADERS)
#define KEPT_MAX       1024  /* of a header of the message, after a dead letter was too large */
#define KEPT_TOTAL_MAX 16384 /* of all these headers */

typedef enum size_class {
    WHOLE,
    FEWER_HEADERS,
    NO_PAYLOAD,
} size_class_t;

struct once__consume_dead_letter {
    size_class_t size;
    once__broker_pair_t headers[HEADERS_MAX];
    size_t count;
    size_t kept; /* bytes of the message's own headers */
    char status[16], tries[16], source[ONCE__BROKER_DEAD_LETTER_SOURCE_SIZE], time[32], bytes[24];
};

static once_slice_t slice(const char *text)
{
    return (once_slice_t){text, strlen(text)};
}

static void add(once__consume_dead_letter_t *dead, once_slice_t name, once_slice_t value)
{
    if (dead->count < HEADERS_MAX) {
        dead->headers[dead->count++] = (once__broker_pair_t){name, value};
    }
}

static int is_kept(once__consume_dead_letter_t *dead, size_t size)
{
    if (dead->size == WHOLE) {
        return 1;
    }
    dead->kept += size <= KEPT_MAX ? size : 0;
    return dead->size == FEWER_HEADERS && size <= KEPT_MAX && dead->kept <= KEPT_TOTAL_MAX;
}

/* The message's own headers, without those of an earlier dead letter. */
static void keep(void *data, once_slice_t name, once_slice_t value)
{
    once__consume_dead_letter_t *dead = data;

    if (!once__broker_dead_letter_owns(name) &&
        dead->count < HEADERS_MAX - ONCE__BROKER_DEAD_LETTER_HEADERS &&
        is_kept(dead, name.len + value.len)) {
        add(dead, name, value);
    }
}

static void add_text(once__consume_dead_letter_t *dead, const char *name, const char *value)
{
    add(dead, slice(name), slice(value));
}

static void write_headers(once__consume_dead_letter_t *dead, once__consume_item_t *item)
{
    const once__consume_t *consumer = item->consumer;
    time_t now = time(NULL);
    struct tm parts;

    dead->count = dead->kept = 0;
    once__broker_delivery_headers(item->delivery, keep, dead);
    once__broker_dead_letter_write_source(dead->source,
                                          once__broker_subscription_topic(consumer->subscription),
                                          item->delivery->partition, item->delivery->offset);
    snprintf(dead->tries, sizeof(dead->tries), "%u", item->tries);
    strftime(dead->time, sizeof(dead->time), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &parts));
    add_text(dead, ONCE__BROKER_DEAD_LETTER_REASON, item->reason);
    add_text(dead, ONCE__BROKER_DEAD_LETTER_DETAIL, item->detail);
    add_text(dead, ONCE__BROKER_DEAD_LETTER_SUBSCRIBER, consumer->subscriber);
    add_text(dead, ONCE__BROKER_DEAD_LETTER_SOURCE, dead->source);
    add_text(dead, ONCE__BROKER_DEAD_LETTER_TRIES, dead->tries);
    add_text(dead, ONCE__BROKER_DEAD_LETTER_TIME, dead->time);
    if (item->key.len > 0) {
        add_text(dead, ONCE__BROKER_DEAD_LETTER_ID, item->key.text);
    }
    if (item->status != 0) {
        snprintf(dead->status, sizeof(dead->status), "%d", item->status);
        add_text(dead, ONCE__BROKER_DEAD_LETTER_STATUS, dead->status);
    }
    if (dead->size == FEWER_HEADERS) {
        add_text(dead, ONCE__BROKER_DEAD_LETTER_OMITTED, "headers");
    } else if (dead->size == NO_PAYLOAD) {
        snprintf(dead->bytes, sizeof(dead->bytes), "%zu", item->delivery->payload.len);
        add_text(dead, ONCE__BROKER_DEAD_LETTER_OMITTED, "payload, headers");
        add_text(dead, ONCE__BROKER_DEAD_LETTER_BYTES, dead->bytes);
    }
}

void once__consume_dead_letter_send(once__consume_item_t *item)
{
    once__broker_message_t message = {
        .topic = slice(item->consumer->dead_letter_topic),
        .key = item->delivery->key,
        .payload = item->delivery->payload,
    };

    once__consume_item_set_stage(item, ONCE__CONSUME_DEAD_LETTER);
    if (item->consumer->dead_letters == NULL) { /* the store answers while all is being closed */
        once__consume_item_repeat(item);
        return;
    }
    if (item->dead_letter == NULL) {
        item->dead_letter = calloc(1, sizeof(*item->dead_letter));
        if (item->dead_letter == NULL) {
            once__consume_item_repeat(item);
            return;
        }
        write_headers(item->dead_letter, item);
    }
    message.headers = item->dead_letter->headers;
    message.header_count = item->dead_letter->count;
    if (item->dead_letter->size == NO_PAYLOAD) {
        message.payload = slice("");
        message.key = message.key.len <= KEPT_MAX ? message.key : (once_slice_t){NULL, 0};
    }
    if (once__broker_publish(item->consumer->dead_letters, &message, item) != 0) {
        once__consume_item_repeat(item);
    }
}

/* Makes a dead letter that the broker refuses smaller, as long as nothing is lost. Returns 0 if it is as small as it may be. */
static int shrink(once__consume_item_t *item)
{
    size_class_t last =
        once__broker_subscription_keeps(item->consumer->subscription) ? NO_PAYLOAD : FEWER_HEADERS;

    if (item->dead_letter->size >= last) {
        return 0;
    }
    item->dead_letter->size++;
    write_headers(item->dead_letter, item);
    return 1;
}

void once__consume_dead_letter_sent(void *consumer, void *tag, once__broker_verdict_t verdict,
                                    const char *reason, uint64_t retry_after_ms)
{
    once__consume_item_t *item = tag;
    char sentence[600];

    once__consume_assert_item_state(item, ONCE__CONSUME_DEAD_LETTER);
    if (verdict == ONCE__BROKER_PUBLISHED) {
        once__consume_counters_dead_letter(&item->consumer->counters, item->reason);
        once__consume_report_item(item, ONCE__CONSUME_LINE_DEAD);
        once__consume_item_done(item);
        return;
    }
    snprintf(sentence, sizeof(sentence), "the broker did not accept the dead letter of %s%s: %s",
             item->dead_letter->source,
             item->dead_letter->size == WHOLE ? "" : ", although it is smaller than the message",
             reason);
    once__consume_report(consumer, 1, sentence);
    if (verdict == ONCE__BROKER_REFUSED && shrink(item)) {
        once__consume_dead_letter_send(item);
    } else {
        once__consume_item_repeat(item); /* not acknowledged before the broker has it */
    }
}
