/*
 * Dead letters: the message as it was, and why it was given up. It is acknowledged when the broker has the letter.
 *
 * A message that the broker just took can be too large with that: then the letter goes without the message's larger headers, and
 * then without its payload, if the message stays where it came from.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "broker/dead_letter.h"
#include "consume/internal.h"

#define HEADERS_MAX    (256 + ONCE__BROKER_DEAD_LETTER_HEADERS)
#define KEPT_MAX       1024  /* of a header of the message, in a letter that was too large */
#define KEPT_TOTAL_MAX 16384 /* of all of them */

typedef enum letter_size {
    WHOLE,
    FEWER_HEADERS,
    NO_PAYLOAD,
} letter_size_t;

struct once__consume_dead_letter {
    letter_size_t size;
    once__broker_pair_t headers[HEADERS_MAX];
    size_t count;
    size_t kept; /* bytes of the message's own headers */
    char status[16], tries[16], source[ONCE__BROKER_DEAD_LETTER_SOURCE_SIZE], time[32], bytes[24];
};

typedef struct once__consume_dead_letter letter_t;

static once_slice_t slice(const char *text)
{
    return (once_slice_t){text, strlen(text)};
}

static void add(letter_t *letter, once_slice_t name, once_slice_t value)
{
    if (letter->count < HEADERS_MAX) {
        letter->headers[letter->count++] = (once__broker_pair_t){name, value};
    }
}

static int is_kept(letter_t *letter, size_t size)
{
    if (letter->size == WHOLE) {
        return 1;
    }
    letter->kept += size <= KEPT_MAX ? size : 0;
    return letter->size == FEWER_HEADERS && size <= KEPT_MAX && letter->kept <= KEPT_TOTAL_MAX;
}

/* The message's own, without what an earlier letter said. */
static void keep(void *data, once_slice_t name, once_slice_t value)
{
    letter_t *letter = data;

    if (!once__broker_dead_letter_owns(name) &&
        letter->count < HEADERS_MAX - ONCE__BROKER_DEAD_LETTER_HEADERS &&
        is_kept(letter, name.len + value.len)) {
        add(letter, name, value);
    }
}

static void add_text(letter_t *letter, const char *name, const char *value)
{
    add(letter, slice(name), slice(value));
}

static void write_letter(letter_t *letter, once__consume_item_t *item)
{
    const once__consume_t *consumer = item->consumer;
    time_t now = time(NULL);
    struct tm parts;

    letter->count = letter->kept = 0;
    once__broker_delivery_headers(item->delivery, keep, letter);
    once__broker_dead_letter_write_source(letter->source,
                                          once__broker_subscription_topic(consumer->source),
                                          item->delivery->partition, item->delivery->offset);
    snprintf(letter->tries, sizeof(letter->tries), "%u", item->tries);
    strftime(letter->time, sizeof(letter->time), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &parts));
    add_text(letter, ONCE__BROKER_DEAD_LETTER_REASON, item->reason);
    add_text(letter, ONCE__BROKER_DEAD_LETTER_DETAIL, item->detail);
    add_text(letter, ONCE__BROKER_DEAD_LETTER_SUBSCRIBER, consumer->subscriber);
    add_text(letter, ONCE__BROKER_DEAD_LETTER_SOURCE, letter->source);
    add_text(letter, ONCE__BROKER_DEAD_LETTER_TRIES, letter->tries);
    add_text(letter, ONCE__BROKER_DEAD_LETTER_TIME, letter->time);
    if (item->key.len > 0) {
        add_text(letter, ONCE__BROKER_DEAD_LETTER_ID, item->key.text);
    }
    if (item->status != 0) {
        snprintf(letter->status, sizeof(letter->status), "%d", item->status);
        add_text(letter, ONCE__BROKER_DEAD_LETTER_STATUS, letter->status);
    }
    if (letter->size == FEWER_HEADERS) {
        add_text(letter, ONCE__BROKER_DEAD_LETTER_OMITTED, "headers");
    } else if (letter->size == NO_PAYLOAD) {
        snprintf(letter->bytes, sizeof(letter->bytes), "%zu", item->delivery->payload.len);
        add_text(letter, ONCE__BROKER_DEAD_LETTER_OMITTED, "payload, headers");
        add_text(letter, ONCE__BROKER_DEAD_LETTER_BYTES, letter->bytes);
    }
}

static void try_later(once__consume_item_t *item)
{
    item->pauses++;
    once__consume_item_pause(item, ONCE__CONSUME_PAUSED,
                             once__consume_item_backoff(item, item->pauses));
}

void once__consume_dead_letter_send(once__consume_item_t *item)
{
    once__broker_message_t message = {
        .topic = slice(item->consumer->dead_letter),
        .key = item->delivery->key,
        .payload = item->delivery->payload,
    };

    once__consume_item_stage(item, ONCE__CONSUME_DEAD_LETTER);
    if (item->consumer->letters == NULL) { /* the store answers while everything is being closed */
        try_later(item);
        return;
    }
    if (item->letter == NULL) {
        item->letter = calloc(1, sizeof(*item->letter));
        if (item->letter == NULL) {
            try_later(item);
            return;
        }
        write_letter(item->letter, item);
    }
    message.headers = item->letter->headers;
    message.header_count = item->letter->count;
    if (item->letter->size == NO_PAYLOAD) {
        message.payload = slice("");
        message.key = message.key.len <= KEPT_MAX ? message.key : (once_slice_t){NULL, 0};
    }
    if (once__broker_publish(item->consumer->letters, &message, item) != 0) {
        try_later(item);
    }
}

/* The broker will never take the letter as it is: one that is smaller, if nothing is lost by that. 0: there is none. */
static int shrink(once__consume_item_t *item)
{
    letter_size_t last =
        once__broker_subscription_keeps(item->consumer->source) ? NO_PAYLOAD : FEWER_HEADERS;

    if (item->letter->size >= last) {
        return 0;
    }
    item->letter->size++;
    write_letter(item->letter, item);
    return 1;
}

void once__consume_dead_letter_sent(void *consumer, void *tag, once__broker_verdict_t verdict,
                                    const char *reason, uint64_t retry_after_ms)
{
    once__consume_item_t *item = tag;
    char sentence[600];

    if (verdict == ONCE__BROKER_PUBLISHED) {
        once__consume_counters_dead(&item->consumer->counters, item->reason);
        once__consume_say(item, ONCE__CONSUME_LINE_DEAD);
        once__consume_item_done(item);
        return;
    }
    snprintf(sentence, sizeof(sentence), "the dead letter of %s was not taken%s: %s",
             item->letter->source,
             item->letter->size == WHOLE ? "" : ", although it is smaller than the message",
             reason);
    once__consume_say_about(consumer, 1, sentence);
    if (verdict == ONCE__BROKER_REFUSED && shrink(item)) {
        once__consume_dead_letter_send(item);
    } else {
        try_later(item); /* it is not acknowledged before somebody has it */
    }
}

void once__consume_dead_letter_free(struct once__consume_dead_letter *letter)
{
    free(letter);
}
