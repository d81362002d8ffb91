/*
 * Items and lanes: the order of messages, from their delivery to their acknowledgement.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "consume/internal.h"

/* ------------------------------------------------------------------------------------------------------------- lists */

static void list_remove(once__items_t *list, once__item_t *item)
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

static void list_append(once__items_t *list, once__item_t *item)
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

void once__item_stage(once__item_t *item, once__stage_t stage)
{
    once__consumer_t *consumer = item->consumer;

    list_remove(&consumer->stages[item->stage], item);
    item->stage = stage;
    list_append(&consumer->stages[stage], item);
}

/* ------------------------------------------------------------------------------------------------------------- lanes */

size_t once__lane_share(const once__consumer_t *consumer)
{
    return consumer->settings->window / 8 + 1;
}

/* Two keys with one hash share a lane: they wait for each other without need, and nothing else happens. */
static uint64_t lane_hash(const once__delivery_t *delivery, once__order_t order)
{
    const unsigned char *bytes = delivery->key.data;
    uint64_t hash = 14695981039346656037u ^ (uint32_t)delivery->partition;

    hash *= 1099511628211u;
    for (size_t i = 0; order == ONCE__ORDER_KEY && i < delivery->key.len; i++) {
        hash = (hash ^ bytes[i]) * 1099511628211u;
    }
    return hash ^ hash >> 29;
}

static once__lane_t *enter_lane(once__consumer_t *consumer, uint64_t hash)
{
    once__lane_t **bucket = &consumer->buckets[hash & consumer->bucket_mask];
    once__lane_t *lane = *bucket;

    while (lane != NULL && lane->hash != hash) {
        lane = lane->next;
    }
    if (lane != NULL) {
        return lane;
    }
    lane = consumer->free_lanes;
    if (lane != NULL) {
        consumer->free_lanes = lane->next;
    } else {
        lane = malloc(sizeof(*lane));
        if (lane == NULL) {
            return NULL;
        }
    }
    *lane = (once__lane_t){.next = *bucket, .hash = hash};
    *bucket = lane;
    return lane;
}

static void close_lane(once__consumer_t *consumer, once__lane_t *lane)
{
    once__lane_t **link = &consumer->buckets[lane->hash & consumer->bucket_mask];

    while (*link != lane) {
        link = &(*link)->next;
    }
    *link = lane->next;
    lane->next = consumer->free_lanes;
    consumer->free_lanes = lane;
}

/* The item is the first of its lane, unless everything is being given up. */
static void leave_lane(once__item_t *item)
{
    once__lane_t *lane = item->lane;

    if (lane == NULL || item->consumer->stopping) {
        return;
    }
    lane->first = item->next;
    item->consumer->crowd -= lane->count-- > once__lane_share(item->consumer);
    if (lane->first == NULL) {
        close_lane(item->consumer, lane);
    } else {
        once__item_stage(lane->first, ONCE__READY);
    }
}

/* ----------------------------------------------------------------------------------------------------- begin and end */

static once__item_t *make_item(once__consumer_t *consumer)
{
    once__item_t *item = consumer->free_items;

    if (item == NULL) {
        item = malloc(sizeof(*item));
    } else {
        consumer->free_items = item->next;
    }
    if (item != NULL) {
        memset(item, 0, offsetof(once__item_t, key));
        item->consumer = consumer;
    }
    return item;
}

static void end(once__item_t *item)
{
    once__consumer_t *consumer = item->consumer;

    once__poller_unset(consumer->poller, &item->timer);
    consumer->parked -= (size_t)item->parked;
    leave_lane(item);
    list_remove(&consumer->stages[item->stage], item);
    consumer->open--;
    once__letter_free(item->letter);
    item->next = consumer->free_items;
    consumer->free_items = item;
}

static void count_lost(once__item_t *item)
{
    if (once__delivery_lost(item->delivery)) {
        once__metric_count(item->consumer->counters.lost, 1);
    }
}

void once__item_done(once__item_t *item)
{
    count_lost(item);
    item->consumer->open_bytes -= item->delivery->payload.len;
    once__delivery_done(item->delivery);
    end(item);
}

void once__item_drop(once__item_t *item)
{
    count_lost(item);
    item->consumer->open_bytes -= item->delivery->payload.len;
    once__delivery_drop(item->delivery);
    end(item);
}

static void give_up_id(once__item_t *item, const char *why)
{
    item->reason = ONCE__NO_ID;
    item->key.len = 0;
    item->key.text[0] = '\0';
    snprintf(item->detail, sizeof(item->detail), "%s", why);
}

static void place(once__item_t *item)
{
    once__consumer_t *consumer = item->consumer;
    once__order_t order = consumer->settings->order;
    once__lane_t *lane = NULL;

    if (order == ONCE__ORDER_PARTITION ||
        (order == ONCE__ORDER_KEY && item->delivery->key.data != NULL)) {
        lane = enter_lane(consumer, lane_hash(item->delivery, order));
    }
    item->lane = lane;
    item->stage = ONCE__READY;
    if (lane != NULL && lane->first != NULL) {
        item->stage = ONCE__QUEUED;
        lane->last->next = item;
        lane->last = item;
    } else if (lane != NULL) {
        lane->first = lane->last = item;
    }
    if (lane != NULL) {
        consumer->crowd += ++lane->count > once__lane_share(consumer);
    }
    list_append(&consumer->stages[item->stage], item);
}

void once__item_new(once__consumer_t *consumer, once__delivery_t *delivery)
{
    const once__arrival_t *arrival = delivery->prepared;
    once__item_t *item = make_item(consumer);

    if (item == NULL) { /* not acknowledged: it comes again after a restart */
        once__delivery_drop(delivery);
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

static void free_list(once__item_t *item)
{
    while (item != NULL) {
        once__item_t *next = item->next;
        free(item);
        item = next;
    }
}

/* Nothing calls back any more by now. */
void once__items_free(once__consumer_t *consumer)
{
    for (size_t i = 0; i <= ONCE__PARKED; i++) {
        while (consumer->stages[i].first != NULL) {
            once__item_t *item = consumer->stages[i].first;
            once__item_drop(item);
        }
    }
    free_list(consumer->free_items);
    for (size_t i = 0; consumer->buckets != NULL && i <= consumer->bucket_mask; i++) {
        while (consumer->buckets[i] != NULL) {
            close_lane(consumer, consumer->buckets[i]);
        }
    }
    while (consumer->free_lanes != NULL) {
        once__lane_t *lane = consumer->free_lanes;
        consumer->free_lanes = lane->next;
        free(lane);
    }
    free(consumer->buckets);
}

/* ------------------------------------------------------------------------------------------------------------ pauses */

static uint64_t jitter(uint64_t ms)
{
    return ms / 2 + (uint64_t)random() % (ms / 2 + 1);
}

uint64_t once__item_backoff(const once__item_t *item, unsigned times)
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
    once__item_stage(data, ONCE__READY);
}

static void pause_exactly(once__item_t *item, once__stage_t stage, uint64_t ms)
{
    if (item->consumer->stopping) {
        once__item_drop(item);
        return;
    }
    once__item_stage(item, stage);
    item->timer.fire = go_on;
    item->timer.data = item;
    if (once__poller_set(item->consumer->poller, &item->timer, ms) != 0) {
        once__item_stage(item, ONCE__READY);
    }
}

void once__item_pause(once__item_t *item, once__stage_t stage, uint64_t ms)
{
    pause_exactly(item, stage, jitter(ms));
}

/* At most a tenth more than `least`, so that not all who were told the same come back together. */
void once__item_pause_after(once__item_t *item, uint64_t ms, uint64_t least)
{
    uint64_t wait = jitter(ms), asked = least + (uint64_t)random() % (least / 10 + 1);

    pause_exactly(item, ONCE__PAUSED, wait > asked ? wait : asked);
}
