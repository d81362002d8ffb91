/*
 * Per-key queues: the events in memory, in the order of their keys.
 *
 * A queue is ready when its first event may be sent: the publisher allows one more event of this key in flight, and the queue
 * is not paused after a failure. It then waits in line at the destination of that event (destinations.c). A queue with too many
 * events leaves the rest in the database, so that other keys go on; it reads on when it is nearly through. Of a queue that
 * fails again and again only the first event stays in memory, and of one that waits for a failing destination perhaps none: it
 * is evicted.
 *
 * Invariants, which assert_queue_state() checks whenever a queue has changed:
 *
 *   I-1  `waiting` is the length of the list from `first` to `last`, which is in the order of seq.
 *   I-2  Every waiting and every sent event is known; known events beyond these are in the lists of removals.c.
 *   I-3  A queue has a time before which it is paused if and only if it is in the list of paused queues.
 *   I-4  An evicted queue is in the list of its destination, has no event in memory, and has events left in the database.
 *   I-5  What is counted for a queue is counted for its group and for the relay.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "loop/env.h"
#include "relay/internal.h"

#define QUEUE_MAX 512 /* events that wait in one queue; the rest stays in the database */
#define QUEUE_LOW 64  /* reads on when it has no more than these */
#define LEFT_MAX  4   /* windows: queues that may have events left in the database */

int once__relay_queues_start(once__relay_t *relay)
{
    const once__env_t *env = &once__real_env;
    once__relay_queues_t *queues = &relay->queues;

    queues->paused.end = &queues->paused.first;
    return env->random(env->data, &queues->seed, sizeof(queues->seed)) != 0 ||
                   once__hash_init(&queues->table, SIZE_MAX) != 0 ||
                   once__hash_init(&relay->event_table, SIZE_MAX) != 0
               ? -1
               : 0;
}

/* ------------------------------------------------------------------------------------------------------- invariants */

static void assert_queue_state(const once__relay_t *relay, const once__relay_queue_t *queue)
{
    assert((queue->first == NULL) == (queue->waiting == 0)); /* I-1 */
    assert(queue->first == NULL ||
           (queue->last->next == NULL && queue->first->seq <= queue->last->seq));
    assert(queue->known >= queue->waiting + queue->sent);                      /* I-2 */
    assert((queue->paused_ms != 0) == (queue->list == &relay->queues.paused)); /* I-3 */
    assert(queue->evicted == NULL || (queue->list == &queue->evicted->evicted && queue->low != 0 &&
                                      queue->waiting + queue->sent == 0)); /* I-4 */
    assert(relay->events >= relay->sent && relay->sent >= queue->sent);    /* I-5 */
    assert(relay->groups[queue->group].events >= queue->known || queue->known == 0);
}

/* --------------------------------------------------------------------------------------------------------------- lists */

static int may_send(const once__relay_t *relay, const once__relay_queue_t *queue)
{
    size_t limit = queue->careful ? 1 : once__broker_publisher_key_limit(relay->publisher);

    return queue->first != NULL && queue->paused_ms == 0 && queue->sent < limit;
}

/* `at`: the beginning of the list, or its end. */
static void enlist(once__relay_queue_list_t *list, once__relay_queue_t **at,
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

/* Without a search: there can be many queues, and all of a group's may go at once. */
static void unlist(once__relay_queue_t *queue)
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
        (once__relay_destination_evicts(relay, destination) &&
         once__relay_queue_evict(relay, queue))) {
        return;
    }
    enlist(&destination->ready, destination->ready.end, queue);
    once__relay_destination_rings(relay, destination, 0);
}

void once__relay_queue_first(once__relay_t *relay, once__relay_queue_t *queue)
{
    if (queue->list == NULL) {
        once__relay_destination_t *destination = queue->first->destination;
        enlist(&destination->ready, &destination->ready.first, queue);
        once__relay_destination_rings(relay, destination, 1);
    }
}

/*
 * The next queue of a destination. Since it stood in line here, events for another destination may have been inserted in front.
 */
static once__relay_queue_t *take_ready(once__relay_t *relay, once__relay_destination_t *destination)
{
    once__relay_queue_t *queue;

    while ((queue = destination->ready.first) != NULL) {
        unlist(queue);
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

void once__relay_queue_pause(once__relay_t *relay, once__relay_queue_t *queue, uint64_t until_ms)
{
    unlist(queue);
    queue->paused_ms = until_ms > 0 ? until_ms : 1;
    enlist(&relay->queues.paused, &relay->queues.paused.first, queue);
    assert_queue_state(relay, queue);
}

uint64_t once__relay_queues_wake(once__relay_t *relay)
{
    uint64_t soonest = UINT64_MAX;
    once__relay_queue_t *next;

    for (once__relay_queue_t *queue = relay->queues.paused.first; queue != NULL; queue = next) {
        next = queue->list_next;
        if (queue->paused_ms > relay->now_ms) {
            soonest = queue->paused_ms < soonest ? queue->paused_ms : soonest;
            continue;
        }
        unlist(queue);
        queue->paused_ms = 0;
        once__relay_queue_ready(relay, queue);
    }
    return soonest;
}

/* ----------------------------------------------------------------------------------------------------------- queues */

static once__relay_queue_t *find_queue(const once__relay_t *relay, const once__relay_event_t *event,
                                       uint64_t hash)
{
    once__hash_node_t *node = once__hash_first(&relay->queues.table, hash);

    for (; node != NULL; node = once__hash_next(node)) {
        once__relay_queue_t *queue = ONCE__CONTAINER(node, once__relay_queue_t, node);
        if (queue->group == event->group && queue->key_len == event->key.len &&
            memcmp(queue->key, event->key.data, queue->key_len) == 0) {
            return queue;
        }
    }
    return NULL;
}

static once__relay_queue_t *make_queue(once__relay_t *relay, const once__relay_event_t *event)
{
    size_t len = event->key.data != NULL ? event->key.len : 0;
    once__relay_queue_t *queue = calloc(1, sizeof(*queue) + len + 1);

    if (queue == NULL) {
        return NULL;
    }
    queue->group = event->group;
    queue->key_len = len;
    queue->next = relay->queues.all;
    if (queue->next != NULL) {
        queue->next->prev = queue;
    }
    relay->queues.all = queue;
    return queue;
}

static once__relay_queue_t *queue_for(once__relay_t *relay, const once__relay_event_t *event)
{
    once__relay_queue_t *queue;
    uint64_t hash;

    if (event->key.data == NULL) {
        return make_queue(relay, event);
    }
    hash = once__hash_data(&relay->queues.seed, event->key.data, event->key.len);
    queue = find_queue(relay, event, hash);
    if (queue == NULL && (queue = make_queue(relay, event)) != NULL) {
        queue->has_key = 1;
        memcpy(queue->key, event->key.data, queue->key_len);
        (void)once__hash_add(&relay->queues.table, &queue->node, hash);
    }
    return queue;
}

static void free_queue(once__relay_t *relay, once__relay_queue_t *queue)
{
    if (queue->has_key) {
        once__hash_remove(&relay->queues.table, &queue->node);
    }
    if (queue->list != NULL) {
        once__relay_destination_t *destination = queue->list->destination;
        unlist(queue);
        once__relay_destination_release(relay, destination);
    }
    relay->queues.left -= queue->low != 0;
    *(queue->prev != NULL ? &queue->prev->next : &relay->queues.all) = queue->next;
    if (queue->next != NULL) {
        queue->next->prev = queue->prev;
    }
    free(queue);
}

/* Reads again what was left in the database: the group goes back to its first event. */
static void read_back(once__relay_t *relay, once__relay_queue_t *queue)
{
    once__relay_fetch_back(relay, queue->group, queue->low);
    queue->low = 0;
    relay->queues.left--;
}

/* Reads on, unless its key or its destination fails: then the events would only wait in memory. */
static void read_on(once__relay_t *relay, once__relay_queue_t *queue)
{
    if (queue->low != 0 && queue->waiting <= QUEUE_LOW && queue->paused_ms == 0 &&
        queue->backoff == 0 && queue->evicted == NULL &&
        (queue->first == NULL || !queue->first->destination->is_suspended)) {
        read_back(relay, queue);
    }
}

/* ----------------------------------------------------------------------------------------------------------- events */

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
    assert_queue_state(relay, queue);
    read_on(relay, queue);
}

/* If any number of events of a key may be in flight, they pile up only after a failure. */
static size_t queue_max(const once__relay_t *relay, const once__relay_queue_t *queue)
{
    return queue->careful || once__broker_publisher_key_limit(relay->publisher) == 1 ? QUEUE_MAX
                                                                                     : SIZE_MAX;
}

static int may_leave(const once__relay_t *relay, const once__relay_queue_t *queue)
{
    return queue->low != 0 || relay->queues.left < LEFT_MAX * (size_t)relay->options->window;
}

static void leave_in_database(once__relay_t *relay, once__relay_queue_t *queue, int64_t seq)
{
    relay->queues.left += queue->low == 0;
    queue->low = queue->low == 0 || seq < queue->low ? seq : queue->low;
}

/* Until the destination accepts events again. */
static void stand_at(once__relay_destination_t *destination, once__relay_queue_t *queue)
{
    unlist(queue);
    queue->paused_ms = 0;
    queue->evicted = destination;
    enlist(&destination->evicted, destination->evicted.end, queue);
}

/* Returns 1 if the event was left in the database. */
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
        (is_empty ? !once__relay_destination_evicts(relay, destination)
                  : queue->waiting < queue_max(relay, queue) &&
                        (destination == NULL || !destination->is_suspended))) {
        return 0;
    }
    leave_in_database(relay, queue, event->seq);
    if (is_empty) {
        stand_at(event->destination, queue);
    }
    return 1;
}

/* Drops waiting events from `at` on: they will be read again. */
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
    queue->known++; /* keeps the queue alive */
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

int once__relay_queue_evict(once__relay_t *relay, once__relay_queue_t *queue)
{
    once__relay_destination_t *destination = queue->first->destination;

    if (queue->sent > 0 || !may_leave(relay, queue)) {
        return 0;
    }
    if (!queue->has_key) {
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
    assert_queue_state(relay, queue);
    return 1;
}

void once__relay_queue_readmit(once__relay_t *relay, once__relay_queue_t *queue)
{
    unlist(queue);
    queue->evicted = NULL;
    queue->backoff = 0;
    read_back(relay, queue);
    if (queue->known == 0) {
        free_queue(relay, queue);
    }
}

static int add(once__relay_t *relay, once__relay_event_t *event)
{
    once__relay_queue_t *queue;

    if (event->key.data == NULL && once__relay_destination_evicts(relay, event->destination) &&
        once__relay_destination_leave(event->destination, event)) {
        return 1;
    }
    queue = queue_for(relay, event);
    if (queue == NULL) {
        return -1;
    }
    if (queue->has_key && is_left(relay, queue, event)) {
        assert_queue_state(relay, queue);
        return 1;
    }
    once__relay_event_keep(relay, event, queue);
    queue->known++;
    insert_waiting(queue, event);
    assert_queue_state(relay, queue);
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
    once__relay_destination_over(event);
    relay->sent--;
}

void once__relay_queue_back(once__relay_t *relay, once__relay_event_t *event)
{
    once__relay_queue_over(relay, event);
    insert_waiting(event->queue, event);
    assert_queue_state(relay, event->queue);
}

void once__relay_queue_known(once__relay_t *relay, once__relay_queue_t *queue)
{
    queue->known--;
    read_on(relay, queue);
    if (queue->known == 0 && queue->low == 0) {
        free_queue(relay, queue);
    }
}

void once__relay_queues_drop(once__relay_t *relay, int16_t group)
{
    once__relay_queue_t *next;

    for (once__relay_queue_t *queue = relay->queues.all; queue != NULL; queue = next) {
        once__relay_event_t *event = queue->first;
        next = queue->next;
        if (queue->group != group) {
            continue;
        }
        relay->queues.left -= queue->low != 0;
        queue->low = 0;
        queue->known++; /* keeps it until the end of the loop */
        if (queue->list != NULL && queue->list->destination != NULL) {
            once__relay_destination_t *destination = queue->list->destination;
            unlist(queue);
            queue->evicted = NULL;
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
    once__hash_node_t *node;

    for (int16_t group = 0; group < ONCE__RELAY_GROUPS; group++) {
        once__relay_queues_drop(relay, group);
    }
    node = once__hash_each(&relay->event_table, NULL); /* what is left was at the publisher */
    while (node != NULL) {
        once__relay_event_t *event = ONCE__CONTAINER(node, once__relay_event_t, node);
        node = once__hash_each(&relay->event_table, node);
        once__relay_event_forget(relay, event);
    }
    once__hash_free(&relay->event_table);
    once__hash_free(&relay->queues.table);
}
