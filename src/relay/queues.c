/*
 * Events in memory, in the order of their keys.
 *
 * A queue is ready when its first event may be sent: the publisher allows more of this key under way, and the queue is not held
 * after a failure. It then stands in line at the destination (destinations.c) of that event. A queue that has too many events waiting leaves the
 * rest in the database, so that others go on; it is read again when it is nearly through. Of one that fails again and again
 * only the first event stays in memory, and of one that waits for a sick destination perhaps nothing.
 */
#include <stdlib.h>
#include <string.h>

#include "relay/internal.h"

#define QUEUE_MAX 512 /* events that wait in one queue; the rest stays in the database */
#define QUEUE_LOW 64  /* so few: read on */
#define LEFT_PART 4   /* queues with events left in the database: so many windows of them */

uint32_t once__relay_hash_bytes(const char *bytes, size_t len, uint32_t hash)
{
    for (size_t i = 0; i < len; i++) {
        hash = (hash ^ (unsigned char)bytes[i]) * 16777619U;
    }
    return hash ^ hash >> 15;
}

static size_t event_slot(const once__relay_t *relay, int64_t seq)
{
    uint64_t mixed = (uint64_t)seq * 0x9e3779b97f4a7c15ULL;

    return (size_t)(mixed >> 32) & relay->table_mask;
}

int once__relay_queues_start(once__relay_t *relay)
{
    size_t size = 1024;

    while (size < 2 * (size_t)relay->options->window) {
        size *= 2;
    }
    relay->table_mask = size - 1;
    relay->queue_table = calloc(size, sizeof(void *));
    relay->event_table = calloc(size, sizeof(void *));
    relay->destination_table = calloc(size, sizeof(void *));
    relay->ring_end = &relay->ring_first;
    relay->held.end = &relay->held.first;
    return relay->queue_table != NULL && relay->event_table != NULL &&
                   relay->destination_table != NULL
               ? 0
               : -1;
}

/* ----------------------------------------------------------------------------------------------------------- lists of queues */

static int may_send(const once__relay_t *relay, const once__relay_queue_t *queue)
{
    size_t window = queue->careful ? 1 : once__broker_publisher_key_window(relay->publisher);

    return queue->first != NULL && queue->held_ms == 0 && queue->sent < window;
}

/* `at`: its beginning, or its end. */
void once__relay_queue_enlist(once__relay_queue_list_t *list, once__relay_queue_t **at,
                              once__relay_queue_t *queue)
{
    queue->list = list;
    queue->list_at = at;
    queue->list_next = *at;
    if (*at != NULL) {
        (*at)->list_at = &queue->list_next;
    } else {
        list->end = &queue->list_next;
    }
    *at = queue;
}

/* Queues can be many, and all of a group's may go at once: nothing is searched. */
void once__relay_queue_unlist(once__relay_queue_t *queue)
{
    if (queue->list == NULL) {
        return;
    }
    *queue->list_at = queue->list_next;
    if (queue->list_next != NULL) {
        queue->list_next->list_at = queue->list_at;
    } else {
        queue->list->end = queue->list_at;
    }
    queue->list = NULL;
}

void once__relay_queue_ready(once__relay_t *relay, once__relay_queue_t *queue)
{
    once__relay_destination_t *destination =
        queue->first != NULL ? queue->first->destination : NULL;

    if (queue->list != NULL || !may_send(relay, queue) ||
        (once__relay_destination_parks(relay, destination) &&
         once__relay_queue_park(relay, queue))) {
        return;
    }
    once__relay_queue_enlist(&destination->ready, destination->ready.end, queue);
    once__relay_destination_rings(relay, destination, 0);
}

void once__relay_queue_first(once__relay_t *relay, once__relay_queue_t *queue)
{
    if (queue->list == NULL) {
        once__relay_destination_t *destination = queue->first->destination;
        once__relay_queue_enlist(&destination->ready, &destination->ready.first, queue);
        once__relay_destination_rings(relay, destination, 1);
    }
}

/* The next queue of a destination. Events of another destination may have come before those for which it stood in line here. */
static once__relay_queue_t *take_ready(once__relay_t *relay, once__relay_destination_t *destination)
{
    once__relay_queue_t *queue;

    while ((queue = destination->ready.first) != NULL) {
        once__relay_queue_unlist(queue);
        if (may_send(relay, queue) && queue->first->destination == destination) {
            return queue;
        }
        once__relay_queue_ready(relay, queue);
    }
    return NULL;
}

once__relay_queue_t *once__relay_queue_next(once__relay_t *relay)
{
    once__relay_queue_t *queue = NULL;
    once__relay_destination_t *destination;

    while (queue == NULL && (destination = once__relay_destination_turn(relay)) != NULL) {
        queue = take_ready(relay, destination);
        if (destination->ready.first != NULL) {
            once__relay_destination_rings(relay, destination, 0);
        }
        once__relay_destination_release(relay, destination);
    }
    return queue;
}

void once__relay_queue_hold(once__relay_t *relay, once__relay_queue_t *queue, uint64_t until_ms)
{
    once__relay_queue_unlist(queue);
    queue->held_ms = until_ms > 0 ? until_ms : 1;
    once__relay_queue_enlist(&relay->held, &relay->held.first, queue);
}

uint64_t once__relay_queues_wake(once__relay_t *relay)
{
    uint64_t soonest = UINT64_MAX;
    once__relay_queue_t *next;

    for (once__relay_queue_t *queue = relay->held.first; queue != NULL; queue = next) {
        next = queue->list_next;
        if (queue->held_ms > relay->now_ms) {
            soonest = queue->held_ms < soonest ? queue->held_ms : soonest;
            continue;
        }
        once__relay_queue_unlist(queue);
        queue->held_ms = 0;
        once__relay_queue_ready(relay, queue);
    }
    return soonest;
}

/* ----------------------------------------------------------------------------------------------------------- queues */

static once__relay_queue_t *find_queue(const once__relay_t *relay, const once__relay_event_t *event,
                                       uint32_t hash)
{
    once__relay_queue_t *queue = relay->queue_table[hash & relay->table_mask];

    while (queue != NULL && (queue->group != event->group || queue->key_len != event->key.len ||
                             memcmp(queue->key, event->key.data, queue->key_len) != 0)) {
        queue = queue->hash_next;
    }
    return queue;
}

static once__relay_queue_t *queue_for(once__relay_t *relay, const once__relay_event_t *event)
{
    size_t len = event->key.data != NULL ? event->key.len : 0;
    uint32_t hash =
        once__relay_hash_bytes(event->key.data, len, 2166136261U ^ (uint32_t)event->group);
    once__relay_queue_t *queue = event->key.data != NULL ? find_queue(relay, event, hash) : NULL;

    if (queue != NULL) {
        return queue;
    }
    queue = calloc(1, sizeof(*queue) + len + 1);
    if (queue == NULL) {
        return NULL;
    }
    queue->group = event->group;
    queue->hash = hash;
    queue->key_len = len;
    if (event->key.data != NULL) {
        memcpy(queue->key, event->key.data, len);
        queue->hashed = 1;
        queue->hash_next = relay->queue_table[hash & relay->table_mask];
        relay->queue_table[hash & relay->table_mask] = queue;
    }
    queue->next = relay->all;
    if (queue->next != NULL) {
        queue->next->prev = queue;
    }
    relay->all = queue;
    return queue;
}

static void free_queue(once__relay_t *relay, once__relay_queue_t *queue)
{
    once__relay_queue_t **at = &relay->queue_table[queue->hash & relay->table_mask];

    while (queue->hashed && *at != queue) {
        at = &(*at)->hash_next;
    }
    if (queue->hashed) {
        *at = queue->hash_next;
    }
    if (queue->list != NULL) {
        once__relay_destination_t *destination = queue->list->destination;
        once__relay_queue_unlist(queue);
        once__relay_destination_release(relay, destination);
    }
    relay->left -= queue->low != 0;
    *(queue->prev != NULL ? &queue->prev->next : &relay->all) = queue->next;
    if (queue->next != NULL) {
        queue->next->prev = queue->prev;
    }
    free(queue);
}

/* What was left in the database is read again: the group goes back to where it begins. */
static void read_back(once__relay_t *relay, once__relay_queue_t *queue)
{
    once__relay_fetch_back(relay, queue->group, queue->low);
    queue->low = 0;
    relay->left--;
}

/* Not while it would only wait in memory: its key or its destination fails. */
static void read_on(once__relay_t *relay, once__relay_queue_t *queue)
{
    if (queue->low != 0 && queue->waiting <= QUEUE_LOW && queue->held_ms == 0 &&
        queue->backoff == 0 && queue->parked == NULL &&
        (queue->first == NULL || !queue->first->destination->is_open)) {
        read_back(relay, queue);
    }
}

/* ----------------------------------------------------------------------------------------------------------- events */

once__relay_event_t *once__relay_event_known(once__relay_t *relay, int64_t seq,
                                             const unsigned char *id)
{
    once__relay_event_t *event = relay->event_table[event_slot(relay, seq)];

    while (event != NULL && (event->seq != seq || memcmp(event->id, id, sizeof(event->id)) != 0)) {
        event = event->hash_next;
    }
    return event;
}

static void insert_waiting(once__relay_queue_t *queue, once__relay_event_t *event)
{
    once__relay_event_t **at = &queue->first;

    if (queue->first != NULL && queue->last->seq < event->seq) {
        at = &queue->last->next;
    }
    while (*at != NULL && (*at)->seq < event->seq) {
        at = &(*at)->next;
    }
    event->next = *at;
    *at = event;
    queue->last = event->next == NULL ? event : queue->last;
    event->state = ONCE__RELAY_EVENT_WAITING;
    queue->waiting++;
}

void once__relay_queue_sent(once__relay_t *relay, once__relay_queue_t *queue)
{
    once__relay_event_t *event = queue->first;

    queue->first = event->next;
    queue->waiting--;
    queue->sent++;
    relay->sent++;
    event->state = ONCE__RELAY_EVENT_SENT;
    event->published_before = relay->published;
    once__relay_destination_sent(relay, event);
    read_on(relay, queue);
}

/* Where any number of one key may be under way, only a failure makes events pile up. */
static size_t queue_max(const once__relay_t *relay, const once__relay_queue_t *queue)
{
    return queue->careful || once__broker_publisher_key_window(relay->publisher) == 1 ? QUEUE_MAX
                                                                                      : SIZE_MAX;
}

static int may_leave(const once__relay_t *relay, const once__relay_queue_t *queue)
{
    return queue->low != 0 || relay->left < LEFT_PART * (size_t)relay->options->window;
}

static void leave_in_database(once__relay_t *relay, once__relay_queue_t *queue, int64_t seq)
{
    relay->left += queue->low == 0;
    queue->low = queue->low == 0 || seq < queue->low ? seq : queue->low;
}

/* Until the destination takes events again. */
static void stand_at(once__relay_destination_t *destination, once__relay_queue_t *queue)
{
    once__relay_queue_unlist(queue);
    queue->held_ms = 0;
    queue->parked = destination;
    once__relay_queue_enlist(&destination->parked, destination->parked.end, queue);
}

/* 1: the event was left in the database. */
static int is_left(once__relay_t *relay, once__relay_queue_t *queue,
                   const once__relay_event_t *event)
{
    int is_empty = queue->waiting + queue->sent == 0;
    const once__relay_destination_t *destination = is_empty ? event->destination
                                                   : queue->first != NULL
                                                       ? queue->first->destination
                                                       : NULL;

    if (queue->low != 0) {
        leave_in_database(relay, queue, event->seq);
        return 1;
    }
    if (!may_leave(relay, queue) ||
        (is_empty ? !once__relay_destination_parks(relay, destination)
                  : queue->waiting < queue_max(relay, queue) &&
                        (destination == NULL || !destination->is_open))) {
        return 0;
    }
    leave_in_database(relay, queue, event->seq);
    if (is_empty) {
        stand_at(event->destination, queue);
    }
    return 1;
}

/* Drops events that wait, from `event` on: they are read again. */
static void drop_from(once__relay_t *relay, once__relay_queue_t *queue, once__relay_event_t **at)
{
    once__relay_event_t *event = *at;

    if (event != NULL) {
        leave_in_database(relay, queue, event->seq);
    }
    *at = NULL;
    queue->last = NULL;
    for (once__relay_event_t *left = queue->first; left != NULL; left = left->next) {
        queue->last = left;
    }
    queue->known++; /* keeps it */
    while (event != NULL) {
        once__relay_event_t *after = event->next;
        queue->waiting--;
        once__relay_event_forget(relay, event);
        event = after;
    }
    queue->known--;
}

void once__relay_queue_trim(once__relay_t *relay, once__relay_queue_t *queue)
{
    if (queue->first != NULL && may_leave(relay, queue)) {
        drop_from(relay, queue, &queue->first->next);
    }
}

int once__relay_queue_park(once__relay_t *relay, once__relay_queue_t *queue)
{
    once__relay_destination_t *destination = queue->first->destination;

    if (queue->sent > 0 || !may_leave(relay, queue)) {
        return 0;
    }
    if (!queue->hashed) {
        once__relay_event_t *event = queue->first;
        if (!once__relay_destination_leave(destination, event)) {
            return 0;
        }
        queue->first = queue->last = NULL;
        queue->waiting = 0;
        once__relay_event_forget(relay, event);
        return 1;
    }
    stand_at(destination, queue);
    drop_from(relay, queue, &queue->first);
    return 1;
}

void once__relay_queue_unpark(once__relay_t *relay, once__relay_queue_t *queue)
{
    once__relay_queue_unlist(queue);
    queue->parked = NULL;
    queue->backoff = 0;
    read_back(relay, queue);
    if (queue->known == 0) {
        free_queue(relay, queue);
    }
}

static int add(once__relay_t *relay, once__relay_event_t *event)
{
    once__relay_queue_t *queue;
    size_t slot = event_slot(relay, event->seq);

    if (event->key.data == NULL && once__relay_destination_parks(relay, event->destination) &&
        once__relay_destination_leave(event->destination, event)) {
        return 1;
    }
    queue = queue_for(relay, event);
    if (queue == NULL) {
        return -1;
    }
    if (queue->hashed && is_left(relay, queue, event)) {
        return 1;
    }
    event->queue = queue;
    queue->known++;
    event->hash_next = relay->event_table[slot];
    relay->event_table[slot] = event;
    relay->groups[event->group].events++;
    relay->events++;
    event->destination->events++;
    relay->bytes += event->payload.len;
    insert_waiting(queue, event);
    once__relay_queue_ready(relay, queue);
    return 0;
}

int once__relay_queue_add(once__relay_t *relay, once__relay_event_t *event)
{
    int added = -1;

    event->destination = once__relay_destination_for(relay, event);
    if (event->destination != NULL) {
        added = add(relay, event);
        once__relay_destination_release(relay, event->destination);
    }
    return added;
}

void once__relay_queue_over(once__relay_t *relay, once__relay_event_t *event)
{
    event->queue->sent--;
    event->destination->sent--;
    relay->sent--;
}

void once__relay_queue_back(once__relay_t *relay, once__relay_event_t *event)
{
    once__relay_queue_over(relay, event);
    insert_waiting(event->queue, event);
}

static void release_batch(once__relay_batch_t *batch)
{
    if (--batch->refs == 0) {
        PQclear(batch->result);
        free(batch->events);
        free(batch);
    }
}

void once__relay_event_forget(once__relay_t *relay, once__relay_event_t *event)
{
    once__relay_event_t **at = &relay->event_table[event_slot(relay, event->seq)];
    once__relay_queue_t *queue = event->queue;

    while (*at != event) {
        at = &(*at)->hash_next;
    }
    *at = event->hash_next;
    relay->groups[event->group].events--;
    relay->events--;
    relay->bytes -= event->payload.len;
    event->destination->events--;
    once__relay_destination_release(relay, event->destination);
    json_decref(event->json);
    free(event->pairs);
    free(event->reason);
    release_batch(event->batch);
    queue->known--;
    read_on(relay, queue);
    if (queue->known == 0 && queue->low == 0) {
        free_queue(relay, queue);
    }
}

void once__relay_group_drop(once__relay_t *relay, int16_t group)
{
    once__relay_queue_t *next;

    for (once__relay_queue_t *queue = relay->all; queue != NULL; queue = next) {
        once__relay_event_t *event = queue->first;
        next = queue->next;
        if (queue->group != group) {
            continue;
        }
        relay->left -= queue->low != 0;
        queue->low = 0;
        queue->known++; /* keeps it until the end of the loop */
        if (queue->list != NULL && queue->list->destination != NULL) {
            once__relay_destination_t *destination = queue->list->destination;
            once__relay_queue_unlist(queue);
            queue->parked = NULL;
            once__relay_destination_release(relay, destination);
        }
        queue->first = queue->last = NULL;
        queue->waiting = 0;
        while (event != NULL) {
            once__relay_event_t *after = event->next;
            once__relay_event_forget(relay, event);
            event = after;
        }
        if (--queue->known == 0) {
            free_queue(relay, queue);
        }
    }
}

void once__relay_queues_end(once__relay_t *relay)
{
    for (int16_t group = 0; relay->queue_table != NULL && group < ONCE__RELAY_GROUPS; group++) {
        once__relay_group_drop(relay, group);
    }
    /* What is left was under way. */
    for (size_t i = 0; relay->event_table != NULL && i <= relay->table_mask; i++) {
        while (relay->event_table[i] != NULL) {
            once__relay_event_forget(relay, relay->event_table[i]);
        }
    }
    for (size_t i = 0; relay->destination_table != NULL && i <= relay->table_mask; i++) {
        for (once__relay_destination_t *next, *destination = relay->destination_table[i];
             destination != NULL; destination = next) {
            next = destination->hash_next;
            free(destination->keyless);
            free(destination);
        }
    }
    free(relay->queue_table);
    free(relay->event_table);
    free(relay->destination_table);
}
