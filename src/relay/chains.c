/*
 * Events in memory, in the order of their keys.
 *
 * A chain is ready when its first event may be sent: the publisher allows more of this key under way, and the chain is not held
 * after a failure. It then stands in line at the lane (lanes.c) of that event. A chain that has too many events waiting leaves the
 * rest in the database, so that others go on; it is read again when it is nearly through. Of one that fails again and again
 * only the first event stays in memory, and of one that waits for a sick destination perhaps nothing.
 */
#include <stdlib.h>
#include <string.h>

#include "relay/internal.h"

#define CHAIN_MAX 512 /* events that wait in one chain; the rest stays in the database */
#define CHAIN_LOW 64  /* so few: read on */
#define LEFT_PART 4   /* chains with events left in the database: so many windows of them */

uint32_t once__hash_bytes(const char *bytes, size_t len, uint32_t hash)
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

int once__chains_start(once__relay_t *relay)
{
    size_t size = 1024;

    while (size < 2 * (size_t)relay->options->window) {
        size *= 2;
    }
    relay->table_mask = size - 1;
    relay->chain_table = calloc(size, sizeof(void *));
    relay->event_table = calloc(size, sizeof(void *));
    relay->lane_table = calloc(size, sizeof(void *));
    relay->ring_end = &relay->ring_first;
    relay->held.end = &relay->held.first;
    return relay->chain_table != NULL && relay->event_table != NULL && relay->lane_table != NULL
               ? 0
               : -1;
}

/* ----------------------------------------------------------------------------------------------------------- queues */

static int may_send(const once__relay_t *relay, const once__chain_t *chain)
{
    size_t window = chain->careful ? 1 : once__publisher_key_window(relay->publisher);

    return chain->first != NULL && chain->held_ms == 0 && chain->sent < window;
}

/* `at`: its beginning, or its end. */
void once__chain_enqueue(once__chain_queue_t *queue, once__chain_t **at, once__chain_t *chain)
{
    chain->queue = queue;
    chain->queue_at = at;
    chain->queue_next = *at;
    if (*at != NULL) {
        (*at)->queue_at = &chain->queue_next;
    } else {
        queue->end = &chain->queue_next;
    }
    *at = chain;
}

/* Chains can be many, and all of a group's may go at once: nothing is searched. */
void once__chain_unqueue(once__chain_t *chain)
{
    if (chain->queue == NULL) {
        return;
    }
    *chain->queue_at = chain->queue_next;
    if (chain->queue_next != NULL) {
        chain->queue_next->queue_at = chain->queue_at;
    } else {
        chain->queue->end = chain->queue_at;
    }
    chain->queue = NULL;
}

void once__chain_ready(once__relay_t *relay, once__chain_t *chain)
{
    once__lane_t *lane = chain->first != NULL ? chain->first->lane : NULL;

    if (chain->queue != NULL || !may_send(relay, chain) ||
        (once__lane_parks(relay, lane) && once__chain_park(relay, chain))) {
        return;
    }
    once__chain_enqueue(&lane->ready, lane->ready.end, chain);
    once__lane_rings(relay, lane, 0);
}

void once__chain_first(once__relay_t *relay, once__chain_t *chain)
{
    if (chain->queue == NULL) {
        once__lane_t *lane = chain->first->lane;
        once__chain_enqueue(&lane->ready, &lane->ready.first, chain);
        once__lane_rings(relay, lane, 1);
    }
}

/* The next chain of a lane. Events of another lane may have come before those for which it stood in line here. */
static once__chain_t *take_ready(once__relay_t *relay, once__lane_t *lane)
{
    once__chain_t *chain;

    while ((chain = lane->ready.first) != NULL) {
        once__chain_unqueue(chain);
        if (may_send(relay, chain) && chain->first->lane == lane) {
            return chain;
        }
        once__chain_ready(relay, chain);
    }
    return NULL;
}

once__chain_t *once__chain_next(once__relay_t *relay)
{
    once__chain_t *chain = NULL;
    once__lane_t *lane;

    while (chain == NULL && (lane = once__lane_turn(relay)) != NULL) {
        chain = take_ready(relay, lane);
        if (lane->ready.first != NULL) {
            once__lane_rings(relay, lane, 0);
        }
        once__lane_release(relay, lane);
    }
    return chain;
}

void once__chain_hold(once__relay_t *relay, once__chain_t *chain, uint64_t until_ms)
{
    once__chain_unqueue(chain);
    chain->held_ms = until_ms > 0 ? until_ms : 1;
    once__chain_enqueue(&relay->held, &relay->held.first, chain);
}

uint64_t once__chains_wake(once__relay_t *relay)
{
    uint64_t soonest = UINT64_MAX;
    once__chain_t *next;

    for (once__chain_t *chain = relay->held.first; chain != NULL; chain = next) {
        next = chain->queue_next;
        if (chain->held_ms > relay->now_ms) {
            soonest = chain->held_ms < soonest ? chain->held_ms : soonest;
            continue;
        }
        once__chain_unqueue(chain);
        chain->held_ms = 0;
        once__chain_ready(relay, chain);
    }
    return soonest;
}

/* ----------------------------------------------------------------------------------------------------------- chains */

static once__chain_t *find_chain(const once__relay_t *relay, const once__event_t *event,
                                 uint32_t hash)
{
    once__chain_t *chain = relay->chain_table[hash & relay->table_mask];

    while (chain != NULL && (chain->group != event->group || chain->key_len != event->key.len ||
                             memcmp(chain->key, event->key.data, chain->key_len) != 0)) {
        chain = chain->hash_next;
    }
    return chain;
}

static once__chain_t *chain_for(once__relay_t *relay, const once__event_t *event)
{
    size_t len = event->key.data != NULL ? event->key.len : 0;
    uint32_t hash = once__hash_bytes(event->key.data, len, 2166136261U ^ (uint32_t)event->group);
    once__chain_t *chain = event->key.data != NULL ? find_chain(relay, event, hash) : NULL;

    if (chain != NULL) {
        return chain;
    }
    chain = calloc(1, sizeof(*chain) + len + 1);
    if (chain == NULL) {
        return NULL;
    }
    chain->group = event->group;
    chain->hash = hash;
    chain->key_len = len;
    if (event->key.data != NULL) {
        memcpy(chain->key, event->key.data, len);
        chain->hashed = 1;
        chain->hash_next = relay->chain_table[hash & relay->table_mask];
        relay->chain_table[hash & relay->table_mask] = chain;
    }
    chain->next = relay->all;
    if (chain->next != NULL) {
        chain->next->prev = chain;
    }
    relay->all = chain;
    return chain;
}

static void free_chain(once__relay_t *relay, once__chain_t *chain)
{
    once__chain_t **at = &relay->chain_table[chain->hash & relay->table_mask];

    while (chain->hashed && *at != chain) {
        at = &(*at)->hash_next;
    }
    if (chain->hashed) {
        *at = chain->hash_next;
    }
    if (chain->queue != NULL) {
        once__lane_t *lane = chain->queue->lane;
        once__chain_unqueue(chain);
        once__lane_release(relay, lane);
    }
    relay->left -= chain->low != 0;
    *(chain->prev != NULL ? &chain->prev->next : &relay->all) = chain->next;
    if (chain->next != NULL) {
        chain->next->prev = chain->prev;
    }
    free(chain);
}

/* What was left in the database is read again: the group goes back to where it begins. */
static void read_back(once__relay_t *relay, once__chain_t *chain)
{
    once__fetch_back(relay, chain->group, chain->low);
    chain->low = 0;
    relay->left--;
}

/* Not while it would only wait in memory: its key or its destination fails. */
static void read_on(once__relay_t *relay, once__chain_t *chain)
{
    if (chain->low != 0 && chain->waiting <= CHAIN_LOW && chain->held_ms == 0 &&
        chain->backoff == 0 && chain->parked == NULL &&
        (chain->first == NULL || !chain->first->lane->is_open)) {
        read_back(relay, chain);
    }
}

/* ----------------------------------------------------------------------------------------------------------- events */

once__event_t *once__event_known(once__relay_t *relay, int64_t seq, const unsigned char *id)
{
    once__event_t *event = relay->event_table[event_slot(relay, seq)];

    while (event != NULL && (event->seq != seq || memcmp(event->id, id, sizeof(event->id)) != 0)) {
        event = event->hash_next;
    }
    return event;
}

static void insert_waiting(once__chain_t *chain, once__event_t *event)
{
    once__event_t **at = &chain->first;

    if (chain->first != NULL && chain->last->seq < event->seq) {
        at = &chain->last->next;
    }
    while (*at != NULL && (*at)->seq < event->seq) {
        at = &(*at)->next;
    }
    event->next = *at;
    *at = event;
    chain->last = event->next == NULL ? event : chain->last;
    event->state = ONCE__EVENT_WAITING;
    chain->waiting++;
}

void once__chain_sent(once__relay_t *relay, once__chain_t *chain)
{
    once__event_t *event = chain->first;

    chain->first = event->next;
    chain->waiting--;
    chain->sent++;
    relay->sent++;
    event->state = ONCE__EVENT_SENT;
    event->published_before = relay->published;
    once__lane_sent(relay, event);
    read_on(relay, chain);
}

/* Where any number of one key may be under way, only a failure makes events pile up. */
static size_t chain_max(const once__relay_t *relay, const once__chain_t *chain)
{
    return chain->careful || once__publisher_key_window(relay->publisher) == 1 ? CHAIN_MAX
                                                                               : SIZE_MAX;
}

static int may_leave(const once__relay_t *relay, const once__chain_t *chain)
{
    return chain->low != 0 || relay->left < LEFT_PART * (size_t)relay->options->window;
}

static void leave_in_database(once__relay_t *relay, once__chain_t *chain, int64_t seq)
{
    relay->left += chain->low == 0;
    chain->low = chain->low == 0 || seq < chain->low ? seq : chain->low;
}

/* Until the lane takes events again. */
static void stand_at(once__lane_t *lane, once__chain_t *chain)
{
    once__chain_unqueue(chain);
    chain->held_ms = 0;
    chain->parked = lane;
    once__chain_enqueue(&lane->parked, lane->parked.end, chain);
}

/* 1: the event was left in the database. */
static int is_left(once__relay_t *relay, once__chain_t *chain, const once__event_t *event)
{
    int is_empty = chain->waiting + chain->sent == 0;
    const once__lane_t *lane = is_empty               ? event->lane
                               : chain->first != NULL ? chain->first->lane
                                                      : NULL;

    if (chain->low != 0) {
        leave_in_database(relay, chain, event->seq);
        return 1;
    }
    if (!may_leave(relay, chain) ||
        (is_empty ? !once__lane_parks(relay, lane)
                  : chain->waiting < chain_max(relay, chain) && (lane == NULL || !lane->is_open))) {
        return 0;
    }
    leave_in_database(relay, chain, event->seq);
    if (is_empty) {
        stand_at(event->lane, chain);
    }
    return 1;
}

/* Drops events that wait, from `event` on: they are read again. */
static void drop_from(once__relay_t *relay, once__chain_t *chain, once__event_t **at)
{
    once__event_t *event = *at;

    if (event != NULL) {
        leave_in_database(relay, chain, event->seq);
    }
    *at = NULL;
    chain->last = NULL;
    for (once__event_t *left = chain->first; left != NULL; left = left->next) {
        chain->last = left;
    }
    chain->known++; /* keeps it */
    while (event != NULL) {
        once__event_t *after = event->next;
        chain->waiting--;
        once__event_forget(relay, event);
        event = after;
    }
    chain->known--;
}

void once__chain_trim(once__relay_t *relay, once__chain_t *chain)
{
    if (chain->first != NULL && may_leave(relay, chain)) {
        drop_from(relay, chain, &chain->first->next);
    }
}

int once__chain_park(once__relay_t *relay, once__chain_t *chain)
{
    once__lane_t *lane = chain->first->lane;

    if (chain->sent > 0 || !may_leave(relay, chain)) {
        return 0;
    }
    if (!chain->hashed) {
        once__event_t *event = chain->first;
        if (!once__lane_leave(lane, event)) {
            return 0;
        }
        chain->first = chain->last = NULL;
        chain->waiting = 0;
        once__event_forget(relay, event);
        return 1;
    }
    stand_at(lane, chain);
    drop_from(relay, chain, &chain->first);
    return 1;
}

void once__chain_unpark(once__relay_t *relay, once__chain_t *chain)
{
    once__chain_unqueue(chain);
    chain->parked = NULL;
    chain->backoff = 0;
    read_back(relay, chain);
    if (chain->known == 0) {
        free_chain(relay, chain);
    }
}

static int add(once__relay_t *relay, once__event_t *event)
{
    once__chain_t *chain;
    size_t slot = event_slot(relay, event->seq);

    if (event->key.data == NULL && once__lane_parks(relay, event->lane) &&
        once__lane_leave(event->lane, event)) {
        return 1;
    }
    chain = chain_for(relay, event);
    if (chain == NULL) {
        return -1;
    }
    if (chain->hashed && is_left(relay, chain, event)) {
        return 1;
    }
    event->chain = chain;
    chain->known++;
    event->hash_next = relay->event_table[slot];
    relay->event_table[slot] = event;
    relay->groups[event->group].events++;
    relay->events++;
    event->lane->events++;
    relay->bytes += event->payload.len;
    insert_waiting(chain, event);
    once__chain_ready(relay, chain);
    return 0;
}

int once__chain_add(once__relay_t *relay, once__event_t *event)
{
    int added = -1;

    event->lane = once__lane_for(relay, event);
    if (event->lane != NULL) {
        added = add(relay, event);
        once__lane_release(relay, event->lane);
    }
    return added;
}

void once__chain_over(once__relay_t *relay, once__event_t *event)
{
    event->chain->sent--;
    event->lane->sent--;
    relay->sent--;
}

void once__chain_back(once__relay_t *relay, once__event_t *event)
{
    once__chain_over(relay, event);
    insert_waiting(event->chain, event);
}

static void release_batch(once__batch_t *batch)
{
    if (--batch->refs == 0) {
        PQclear(batch->result);
        free(batch->events);
        free(batch);
    }
}

void once__event_forget(once__relay_t *relay, once__event_t *event)
{
    once__event_t **at = &relay->event_table[event_slot(relay, event->seq)];
    once__chain_t *chain = event->chain;

    while (*at != event) {
        at = &(*at)->hash_next;
    }
    *at = event->hash_next;
    relay->groups[event->group].events--;
    relay->events--;
    relay->bytes -= event->payload.len;
    event->lane->events--;
    once__lane_release(relay, event->lane);
    json_decref(event->json);
    free(event->pairs);
    free(event->reason);
    release_batch(event->batch);
    chain->known--;
    read_on(relay, chain);
    if (chain->known == 0 && chain->low == 0) {
        free_chain(relay, chain);
    }
}

void once__group_drop(once__relay_t *relay, int16_t group)
{
    once__chain_t *next;

    for (once__chain_t *chain = relay->all; chain != NULL; chain = next) {
        once__event_t *event = chain->first;
        next = chain->next;
        if (chain->group != group) {
            continue;
        }
        relay->left -= chain->low != 0;
        chain->low = 0;
        chain->known++; /* keeps it until the end of the loop */
        if (chain->queue != NULL && chain->queue->lane != NULL) {
            once__lane_t *lane = chain->queue->lane;
            once__chain_unqueue(chain);
            chain->parked = NULL;
            once__lane_release(relay, lane);
        }
        chain->first = chain->last = NULL;
        chain->waiting = 0;
        while (event != NULL) {
            once__event_t *after = event->next;
            once__event_forget(relay, event);
            event = after;
        }
        if (--chain->known == 0) {
            free_chain(relay, chain);
        }
    }
}

void once__chains_end(once__relay_t *relay)
{
    for (int16_t group = 0; relay->chain_table != NULL && group < ONCE__RELAY_GROUPS; group++) {
        once__group_drop(relay, group);
    }
    /* What is left was under way. */
    for (size_t i = 0; relay->event_table != NULL && i <= relay->table_mask; i++) {
        while (relay->event_table[i] != NULL) {
            once__event_forget(relay, relay->event_table[i]);
        }
    }
    for (size_t i = 0; relay->lane_table != NULL && i <= relay->table_mask; i++) {
        for (once__lane_t *next, *lane = relay->lane_table[i]; lane != NULL; lane = next) {
            next = lane->hash_next;
            free(lane->keyless);
            free(lane);
        }
    }
    free(relay->chain_table);
    free(relay->event_table);
    free(relay->lane_table);
}
