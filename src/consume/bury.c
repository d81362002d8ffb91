/*
 * Dead letters: the message as it was, and why it was given up. It is acknowledged when the broker has the letter.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "consume/inside.h"

#define OWN_MAX     8
#define HEADERS_MAX (256 + OWN_MAX)

struct once__letter {
    once__pair_t headers[HEADERS_MAX];
    size_t count;
    char status[16], tries[16], source[320], time[32];
};

typedef struct once__letter letter_t;

static once_slice_t slice(const char *text)
{
    return (once_slice_t){text, strlen(text)};
}

static void add(letter_t *letter, once_slice_t name, once_slice_t value)
{
    if (letter->count < HEADERS_MAX) {
        letter->headers[letter->count++] = (once__pair_t){name, value};
    }
}

/* The message's own, without what an earlier letter said. */
static void keep(void *data, once_slice_t name, once_slice_t value)
{
    static const char *const ours[] = {"once-reason",     "once-status", "once-detail",
                                       "once-id",         "once-tries",  "once-source",
                                       "once-subscriber", "once-time"};
    letter_t *letter = data;

    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++) {
        if (strlen(ours[i]) == name.len && strncasecmp(ours[i], name.data, name.len) == 0) {
            return;
        }
    }
    if (letter->count < HEADERS_MAX - OWN_MAX) {
        add(letter, name, value);
    }
}

static void write_letter(letter_t *letter, once__item_t *item)
{
    const once__consumer_t *consumer = item->consumer;
    time_t now = time(NULL);
    struct tm parts;

    once__delivery_headers(item->delivery, keep, letter);
    snprintf(letter->source, sizeof(letter->source), "%s/%" PRId32 "@%" PRId64,
             once__subscription_topic(consumer->source), item->delivery->partition,
             item->delivery->offset);
    snprintf(letter->tries, sizeof(letter->tries), "%u", item->tries);
    strftime(letter->time, sizeof(letter->time), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &parts));
    add(letter, slice("once-reason"), slice(item->reason));
    add(letter, slice("once-detail"), slice(item->detail));
    add(letter, slice("once-subscriber"), slice(consumer->subscriber));
    add(letter, slice("once-source"), slice(letter->source));
    add(letter, slice("once-tries"), slice(letter->tries));
    add(letter, slice("once-time"), slice(letter->time));
    if (item->key.len > 0) {
        add(letter, slice("once-id"), slice(item->key.text));
    }
    if (item->status != 0) {
        snprintf(letter->status, sizeof(letter->status), "%d", item->status);
        add(letter, slice("once-status"), slice(letter->status));
    }
}

static void try_later(once__item_t *item)
{
    item->pauses++;
    once__item_pause(item, ONCE__PAUSED, once__item_backoff(item, item->pauses));
}

void once__bury(once__item_t *item)
{
    once__message_t message = {
        .topic = slice(item->consumer->dead_letter),
        .key = item->delivery->key,
        .payload = item->delivery->payload,
    };

    once__item_stage(item, ONCE__BURYING);
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
    if (once__publish(item->consumer->letters, &message, item) != 0) {
        try_later(item);
    }
}

void once__buried(void *consumer, void *tag, once__verdict_t verdict, const char *reason,
                  uint64_t retry_after_ms)
{
    once__item_t *item = tag;

    if (verdict == ONCE__PUBLISHED) {
        once__counters_dead(&item->consumer->counters, item->reason);
        once__say(item, ONCE__LINE_DEAD);
        once__item_done(item);
        return;
    }
    once__say_about(consumer, 1, reason);
    try_later(item); /* it is not acknowledged before somebody has it */
}

void once__letter_free(struct once__letter *letter)
{
    free(letter);
}
