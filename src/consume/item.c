/*
 * Items and queues: the order of messages, from their delivery to their acknowledgement.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "consume/internal.h"

/* ------------------------------------------------------------------------------------------------------------- lists */

static void list_remove(once__consume_items_t *list, once__consume_item_t *item)
{
    if (item->before != NULL) {
        item->before->after = item->after;
    } else {
        list->first = item->after;
    }
    if (item->after != NULL) {
        item->after->before = item->before;
    } else {
        list->last = item->before;
    }
    list->count--;
}

static void list_append(once__consume_items_t *list, once__consume_item_t *item)
{
    item->after = NULL;
    item->before = list->last;
    if (list->last != NULL) {
        list->last->after = item;
    } else {
        list->first = item;
    }
    list->last = item;
    list->count++;
}

void once__consume_item_stage(once__consume_item_t *item, once__consume_stage_t stage)
{
    once__consume_t *consumer = item->consumer;

    list_remove(&consumer->stages[item->stage], item);
    item->stage = stage;
    list_append(&consumer->stages[stage], item);
}

/* ------------------------------------------------------------------------------------------------------------- queues */

size_t once__consume_queue_share(const once__consume_t *consumer)
{
    return consumer->settings->window / 8 + 1;
}

/* Two keys with one hash share a queue: they wait for each other without need, and nothing else happens. */
static uint64_t queue_hash(const once__broker_delivery_t *delivery, once__consume_order_t order)
{
    const unsigned char *bytes = delivery->key.data;
    uint64_t hash = 14695981039346656037u ^ (uint32_t)delivery->partition;

    hash *= 1099511628211u;
    for (size_t i = 0; order == ONCE__CONSUME_ORDER_KEY && i < delivery->key.len; i++) {
        hash = (hash ^ bytes[i]) * 1099511628211u;
    }
    return hash ^ hash >> 29;
}

static once__consume_queue_t *enter_queue(once__consume_t *consumer, uint64_t hash)
{
    once__consume_queue_t **bucket = &consumer->buckets[hash & consumer->bucket_mask];
    once__consume_queue_t *queue = *bucket;

    while (queue != NULL && queue->hash != hash) {
        queue = queue->next;
    }
    if (queue != NULL) {
        return queue;
    }
    queue = consumer->free_queues;
    if (queue != NULL) {
        consumer->free_queues = queue->next;
    } else {
        queue = malloc(sizeof(*queue));
        if (queue == NULL) {
            return NULL;
        }
    }
    *queue = (once__consume_queue_t){.next = *bucket, .hash = hash};
    *bucket = queue;
    return queue;
}

static void close_queue(once__consume_t *consumer, once__consume_queue_t *queue)
{
    once__consume_queue_t **link = &consumer->buckets[queue->hash & consumer->bucket_mask];

    while (*link != queue) {
        link = &(*link)->next;
    }
    *link = queue->next;
    queue->next = consumer->free_queues;
    consumer->free_queues = queue;
}

/* The item is the first of its queue, unless everything is being given up. */
static void leave_queue(once__consume_item_t *item)
{
    once__consume_queue_t *queue = item->queue;

    if (queue == NULL || item->consumer->stopping) {
        return;
    }
    queue->first = item->next;
    item->consumer->crowd -= queue->count-- > once__consume_queue_share(item->consumer);
    if (queue->first == NULL) {
        close_queue(item->consumer, queue);
    } else {
        once__consume_item_stage(queue->first, ONCE__CONSUME_READY);
    }
}

/* ----------------------------------------------------------------------------------------------------- begin and end */

static once__consume_item_t *make_item(once__consume_t *consumer)
{
    once__consume_item_t *item = consumer->free_items;

    if (item == NULL) {
        item = malloc(sizeof(*item));
    } else {
        consumer->free_items = item->next;
    }
    if (item != NULL) {
        memset(item, 0, offsetof(once__consume_item_t, key));
        item->consumer = consumer;
    }
    return item;
}

static void end(once__consume_item_t *item)
{
    once__consume_t *consumer = item->consumer;

    once__consume_poller_unset(consumer->poller, &item->timer);
    consumer->parked -= (size_t)item->parked;
    leave_queue(item);
    list_remove(&consumer->stages[item->stage], item);
    consumer->open--;
    once__consume_dead_letter_free(item->letter);
    item->next = consumer->free_items;
    consumer->free_items = item;
}

static void count_lost(once__consume_item_t *item)
{
    if (once__broker_delivery_lost(item->delivery)) {
        once__service_metric_count(item->consumer->counters.lost, 1);
    }
}

void once__consume_item_done(once__consume_item_t *item)
{
    count_lost(item);
    item->consumer->open_bytes -= item->delivery->payload.len;
    once__broker_delivery_done(item->delivery);
    end(item);
}

void once__consume_item_drop(once__consume_item_t *item)
{
    count_lost(item);
    item->consumer->open_bytes -= item->delivery->payload.len;
    once__broker_delivery_drop(item->delivery);
    end(item);
}

static void give_up_id(once__consume_item_t *item, const char *why)
{
    item->reason = ONCE__CONSUME_REASON_NO_ID;
    item->key.len = 0;
    item->key.text[0] = '\0';
    snprintf(item->detail, sizeof(item->detail), "%s", why);
}

static void place(once__consume_item_t *item)
{
    once__consume_t *consumer = item->consumer;
    once__consume_order_t order = consumer->settings->order;
    once__consume_queue_t *queue = NULL;

    if (order == ONCE__CONSUME_ORDER_PARTITION ||
        (order == ONCE__CONSUME_ORDER_KEY && item->delivery->key.data != NULL)) {
        queue = enter_queue(consumer, queue_hash(item->delivery, order));
    }
    item->queue = queue;
    item->stage = ONCE__CONSUME_READY;
    if (queue != NULL && queue->first != NULL) {
        item->stage = ONCE__CONSUME_QUEUED;
        queue->last->next = item;
        queue->last = item;
    } else if (queue != NULL) {
        queue->first = queue->last = item;
    }
    if (queue != NULL) {
        consumer->crowd += ++queue->count > once__consume_queue_share(consumer);
    }
    list_append(&consumer->stages[item->stage], item);
}

void once__consume_item_new(once__consume_t *consumer, once__broker_delivery_t *delivery)
{
    const once__consume_arrival_t *arrival = delivery->prepared;
    once__consume_item_t *item = make_item(consumer);

    if (item == NULL) { /* not acknowledged: it comes again after a restart */
        once__broker_delivery_drop(delivery);
        return;
    }
    item->delivery = delivery;
    if (arrival->has_id) {
        item->key.len = arrival->key.len;
        memcpy(item->key.text, arrival->key.text, arrival->key.len + 1);
    } else {
        give_up_id(item, arrival->why);
    }
    place(item);
    consumer->open++;
    consumer->open_bytes += delivery->payload.len;
}

static void free_list(once__consume_item_t *item)
{
    while (item != NULL) {
        once__consume_item_t *next = item->next;
        free(item);
        item = next;
    }
}

/* Nothing calls back any more by now. */
void once__consume_items_free(once__consume_t *consumer)
{
    for (size_t i = 0; i <= ONCE__CONSUME_PARKED; i++) {
        while (consumer->stages[i].first != NULL) {
            once__consume_item_t *item = consumer->stages[i].first;
            once__consume_item_drop(item);
        }
    }
    free_list(consumer->free_items);
    for (size_t i = 0; consumer->buckets != NULL && i <= consumer->bucket_mask; i++) {
        while (consumer->buckets[i] != NULL) {
            close_queue(consumer, consumer->buckets[i]);
        }
    }
    while (consumer->free_queues != NULL) {
        once__consume_queue_t *queue = consumer->free_queues;
        consumer->free_queues = queue->next;
        free(queue);
    }
    free(consumer->buckets);
}

/* ------------------------------------------------------------------------------------------------------------ pauses */

static uint64_t jitter(uint64_t ms)
{
    return ms / 2 + (uint64_t)random() % (ms / 2 + 1);
}

uint64_t once__consume_item_backoff(const once__consume_item_t *item, unsigned times)
{
    const once__consume_settings_t *set = item->consumer->settings;
    uint64_t ms = set->backoff_ms;

    for (unsigned i = 1; i < times && ms < set->backoff_max_ms; i++) {
        ms *= 2;
    }
    return ms < set->backoff_max_ms ? ms : set->backoff_max_ms;
}

static void go_on(void *data)
{
    once__consume_item_stage(data, ONCE__CONSUME_READY);
}

static void pause_exactly(once__consume_item_t *item, once__consume_stage_t stage, uint64_t ms)
{
    if (item->consumer->stopping) {
        once__consume_item_drop(item);
        return;
    }
    once__consume_item_stage(item, stage);
    item->timer.fire = go_on;
    item->timer.data = item;
    if (once__consume_poller_set(item->consumer->poller, &item->timer, ms) != 0) {
        once__consume_item_stage(item, ONCE__CONSUME_READY);
    }
}

void once__consume_item_pause(once__consume_item_t *item, once__consume_stage_t stage, uint64_t ms)
{
    pause_exactly(item, stage, jitter(ms));
}

/* At most a tenth more than `least`, so that not all who were told the same come back together. */
void once__consume_item_pause_after(once__consume_item_t *item, uint64_t ms, uint64_t least)
{
    uint64_t wait = jitter(ms), asked = least + (uint64_t)random() % (least / 10 + 1);

    pause_exactly(item, ONCE__CONSUME_PAUSED, wait > asked ? wait : asked);
}
