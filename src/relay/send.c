/*
 * Publishing, and what verdicts mean for an event and its key.
 *
 *   published   the event is removed from the outbox
 *   away        the broker is down: everything waits, and one event at a time probes whether it is back
 *   later       the key waits; it counts as a try if other events were published meanwhile and the destination is not suspended
 *   failed      the key waits; it counts as a try, and after the last one the event is dead
 *   refused     the event is dead
 *
 * In any case: when a destination has taken nothing for --give-up, events of that age that fail are dead.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/backoff.h"
#include "relay/internal.h"

#define AWAY_MIN_MS  100
#define AWAY_MAX_MS  10000
#define HOLD_MIN_MS  100
#define HOLD_MAX_MS  60000
#define LATER_MAX_MS 3600000 /* the longest pause that the other side may ask for */
#define TRIM_AFTER   3 /* failures of a key in a row; then its later events stay in the database */

/* ---------------------------------------------------------------------------------------------------------- verdicts */

static void published(once__relay_t *relay, once__relay_event_t *event)
{
    once__relay_queue_t *queue = event->queue;

    if (relay->outage.is_away) {
        once__relay_report_said(relay, 0, "the destination accepts events again");
    }
    relay->outage.is_away = 0;
    relay->outage.attempts = 0;
    relay->published++;
    queue->confirmed = event->seq > queue->confirmed ? event->seq : queue->confirmed;
    queue->backoff = 0;
    once__relay_queue_over(relay, event);
    queue->careful = queue->careful && queue->first != NULL && queue->first->tries > 0;
    once__relay_report_published(relay, event);
    once__relay_removals_add(relay, event);
    once__relay_queue_ready(relay, queue);
}

static void give_up(once__relay_t *relay, once__relay_event_t *event, const char *reason)
{
    once__relay_queue_over(relay, event);
    event->queue->backoff = 0;
    once__relay_removals_give_up(relay, event, reason);
    once__relay_queue_ready(relay, event->queue);
}

/* May free the event, if it is left in the database: it must not be used after this. */
static void wait_in_line(once__relay_t *relay, once__relay_event_t *event)
{
    once__relay_queue_t *queue = event->queue;

    once__relay_queue_back(relay, event);
    once__relay_queue_ready(relay, queue);
}

static void went_away(once__relay_t *relay, once__relay_event_t *event, const char *reason,
                      uint64_t after_ms)
{
    uint64_t wait;

    if (relay->outage.is_away && relay->now_ms < relay->outage.until_ms) {
        wait_in_line(relay, event);
        return; /* it was sent together with one whose verdict was the same */
    }
    wait = once__backoff(relay->outage.attempts++, AWAY_MIN_MS, AWAY_MAX_MS, (uint64_t)random());
    if (!relay->outage.is_away) {
        once__relay_report_event(relay, ONCE__SERVICE_LOG_WARN, "the destination is unavailable",
                                 event, reason);
    }
    relay->outage.is_away = 1;
    wait = after_ms > wait ? after_ms : wait;
    relay->outage.until_ms = relay->now_ms + (wait < LATER_MAX_MS ? wait : LATER_MAX_MS);
    wait_in_line(relay, event);
}

static void try_again(once__relay_t *relay, once__relay_event_t *event, const char *reason,
                      uint64_t after_ms)
{
    once__relay_queue_t *queue = event->queue;
    uint64_t wait = once__backoff(queue->backoff++, HOLD_MIN_MS, HOLD_MAX_MS, (uint64_t)random());

    wait = after_ms > wait ? after_ms : wait;
    queue->careful = 1;
    once__service_metric_count(relay->report.retries, 1);
    once__relay_report_event(relay, ONCE__SERVICE_LOG_WARN, "event failed, will be tried again",
                             event, reason);
    if (event->destination->is_suspended) { /* all of its keys wait together */
        wait_in_line(relay, event);
        return;
    }
    once__relay_queue_back(relay, event);
    once__relay_queue_pause(relay, queue,
                            relay->now_ms + (wait < LATER_MAX_MS ? wait : LATER_MAX_MS));
    if (queue->backoff >= TRIM_AFTER) {
        once__relay_queue_trim(relay, queue);
    }
}

/*
 * Nothing was accepted for longer than --give-up: whatever the reason, an operator has to look at it. The next event is tried
 * at once.
 */
static void is_over(once__relay_t *relay, once__relay_event_t *event, const char *reason)
{
    char why[300];

    snprintf(why, sizeof(why),
             "%s (and its destination accepted nothing for longer than --give-up)", reason);
    event->tries++;
    event->destination->until_ms = relay->now_ms;
    give_up(relay, event, why);
}

static void failed(once__relay_t *relay, once__relay_event_t *event, const char *reason,
                   uint64_t after_ms)
{
    char why[300];

    event->tries++;
    if (event->tries >= relay->options->tries) {
        give_up(relay, event, reason);
    } else if (event->seq < event->queue->confirmed) {
        snprintf(why, sizeof(why), "%s (and a later event of its key has been published)", reason);
        give_up(relay, event, why);
    } else {
        try_again(relay, event, reason, after_ms);
    }
}

/* The group belongs to another relay, or soon will: that relay reads the event again. */
static int abandoned(once__relay_t *relay, once__relay_event_t *event)
{
    const once__relay_group_t *group = &relay->groups[event->group];

    if (group->owned && !group->giving && !relay->stopping) {
        return 0;
    }
    once__relay_queue_over(relay, event);
    once__relay_event_forget(relay, event);
    return 1;
}

void once__relay_send_verdict(void *data, void *tag, once__broker_verdict_t verdict,
                              const char *reason, uint64_t retry_after_ms)
{
    once__relay_t *relay = data;
    once__relay_event_t *event = tag;

    relay->outage.is_probing = 0;
    once__relay_destination_verdict(relay, event, verdict, reason, retry_after_ms);
    if (verdict != ONCE__BROKER_PUBLISHED && verdict != ONCE__BROKER_REFUSED &&
        abandoned(relay, event)) {
        return;
    }
    switch (verdict) {
    case ONCE__BROKER_PUBLISHED:
        published(relay, event);
        break;
    case ONCE__BROKER_AWAY:
        went_away(relay, event, reason, retry_after_ms);
        break;
    case ONCE__BROKER_LATER:
        if (once__relay_destination_is_over(relay, event)) {
            is_over(relay, event, reason);
        } else if (!event->destination->is_suspended &&
                   relay->published > event->published_before) {
            failed(relay, event, reason, retry_after_ms);
        } else {
            try_again(relay, event, reason, retry_after_ms);
        }
        break;
    case ONCE__BROKER_FAILED:
        failed(relay, event, reason, retry_after_ms);
        break;
    case ONCE__BROKER_REFUSED:
        event->tries++;
        give_up(relay, event, reason);
        break;
    }
}

/* ----------------------------------------------------------------------------------------------------------- sending */

static int send_first(once__relay_t *relay, once__relay_queue_t *queue)
{
    once__relay_event_t *event = queue->first;
    once__broker_message_t message = {
        .topic = event->topic,
        .key = event->key,
        .payload = event->payload,
        .id = {event->id_text, 36},
        .type = event->type,
        .source = {relay->source, strlen(relay->source)},
        .time = {event->time_text, strlen(event->time_text)},
        .cause = event->cause,
        .headers = event->pairs,
        .header_count = event->pair_count,
    };

    if (once__broker_publish(relay->publisher, &message, event) != 0) {
        return -1;
    }
    once__relay_queue_sent(relay, queue);
    return 0;
}

/* A failed event that was overtaken while it waited is not published behind the others. */
static int overtaken(once__relay_t *relay, once__relay_queue_t *queue)
{
    once__relay_event_t *event = queue->first;

    if (event->tries == 0 || event->seq > queue->confirmed) {
        return 0;
    }
    once__relay_queue_sent(relay, queue);
    once__relay_destination_verdict(relay, event, ONCE__BROKER_REFUSED, "", 0);
    give_up(relay, event, "it failed, and a later event of its key has been published");
    return 1;
}

static int may_send(const once__relay_t *relay)
{
    if (relay->stopping || relay->now_ms >= relay->sharing.lease_over_ms) {
        return 0;
    }
    return !relay->outage.is_away ||
           (relay->now_ms >= relay->outage.until_ms && !relay->outage.is_probing);
}

void once__relay_send_turn(once__relay_t *relay)
{
    once__relay_queue_t *queue;

    (void)once__relay_queues_wake(relay);
    (void)once__relay_destinations_wake(relay);
    while (may_send(relay) && (queue = once__relay_queue_next(relay)) != NULL) {
        if (overtaken(relay, queue)) {
            continue;
        }
        if (send_first(relay, queue) != 0) {
            /* It keeps its turn: otherwise a message that must be sent alone would never find the publisher idle. */
            once__relay_queue_first(relay, queue);
            break;
        }
        relay->outage.is_probing = relay->outage.is_away;
        once__relay_queue_ready(relay, queue);
    }
    once__broker_publisher_push(relay->publisher);
}

uint64_t once__relay_send_due(once__relay_t *relay)
{
    uint64_t due = once__relay_destinations_wake(relay);

    for (const once__relay_queue_t *queue = relay->queues.paused.first; queue != NULL;
         queue = queue->list_next) {
        due = queue->paused_ms < due ? queue->paused_ms : due;
    }
    if (relay->outage.is_away && !relay->outage.is_probing &&
        relay->destinations.ring_first != NULL && relay->outage.until_ms < due) {
        due = relay->outage.until_ms;
    }
    return due;
}
