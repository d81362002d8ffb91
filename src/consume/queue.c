/*
 * Per-key queues. Items with the same partition and key, or of the same partition (--order partition), follow each other. A queue
 * exists while it has items; an item without a key has none.
 *
 * So that one key with many messages does not fill the window, a queue counts up to its share of the window only: what it has
 * beyond that is the `crowd`, and messages of other keys are read on behind it.
 *
 * What holds between calls (assert_queue_state):
 *   I-1  a queue in the table has items, and its last one has no successor
 *   I-2  only the first item of a queue may be worked on; the others are QUEUED
 */
#include <assert.h>
#include <stdlib.h>

#include "consume/internal.h"

static void assert_queue_state(const once__consume_queue_t *queue)
{
    assert(queue->first != NULL && queue->count > 0 && queue->last->next == NULL); /* I-1 */
    assert((queue->first == queue->last) == (queue->count == 1));
    assert(queue->first == queue->last || queue->last->stage == ONCE__CONSUME_QUEUED); /* I-2 */
}

static size_t share(const once__consume_t *consumer)
{
    return consumer->settings->window / 8 + 1;
}

/* Keys with the same hash share a queue: they wait for each other without need, and nothing else happens. */
static uint64_t hash_of(const once__consume_t *consumer, const once__broker_delivery_t *delivery)
{
    uint64_t hash = once__hash_number((uint32_t)delivery->partition);

    if (consumer->settings->order == ONCE__CONSUME_ORDER_KEY) {
        hash ^= once__hash_data(&consumer->seed, delivery->key.data, delivery->key.len);
    }
    return hash;
}

/* Returns NULL if memory is short. The message then has no order, as without a key. */
static once__consume_queue_t *find_or_make(once__consume_t *consumer, uint64_t hash)
{
    once__hash_node_t *node = once__hash_first(&consumer->queues, hash);
    once__consume_queue_t *queue = consumer->free_queues;

    if (node != NULL) {
        return ONCE__CONTAINER(node, once__consume_queue_t, node);
    }
    if (queue != NULL) {
        consumer->free_queues = queue->next_free;
    } else {
        queue = malloc(sizeof(*queue));
        if (queue == NULL) {
            return NULL;
        }
    }
    *queue = (once__consume_queue_t){.count = 0};
    (void)once__hash_add(&consumer->queues, &queue->node, hash);
    return queue;
}

void once__consume_queue_enter(once__consume_item_t *item)
{
    once__consume_t *consumer = item->consumer;
    once__consume_order_t order = consumer->settings->order;
    once__consume_queue_t *queue = NULL;

    if (order == ONCE__CONSUME_ORDER_PARTITION ||
        (order == ONCE__CONSUME_ORDER_KEY && item->delivery->key.data != NULL)) {
        queue = find_or_make(consumer, hash_of(consumer, item->delivery));
    }
    item->queue = queue;
    item->stage = ONCE__CONSUME_READY;
    if (queue == NULL) {
        return;
    }
    if (queue->first != NULL) {
        item->stage = ONCE__CONSUME_QUEUED;
        queue->last->next = item;
    } else {
        queue->first = item;
    }
    queue->last = item;
    consumer->crowd += ++queue->count > share(consumer);
    assert_queue_state(queue);
}

static void close_queue(once__consume_t *consumer, once__consume_queue_t *queue)
{
    once__hash_remove(&consumer->queues, &queue->node);
    queue->next_free = consumer->free_queues;
    consumer->free_queues = queue;
}

void once__consume_queue_leave(once__consume_item_t *item)
{
    once__consume_queue_t *queue = item->queue;

    if (queue == NULL || item->consumer->stopping) { /* then all items go, in any order */
        return;
    }
    assert_queue_state(queue);
    assert(queue->first == item);
    queue->first = item->next;
    item->consumer->crowd -= queue->count-- > share(item->consumer);
    if (queue->first == NULL) {
        close_queue(item->consumer, queue);
    } else {
        once__consume_item_set_stage(queue->first, ONCE__CONSUME_READY);
    }
}

void once__consume_queues_free(once__consume_t *consumer)
{
    once__hash_node_t *node = once__hash_each(&consumer->queues, NULL);

    while (node != NULL) {
        once__consume_queue_t *queue = ONCE__CONTAINER(node, once__consume_queue_t, node);
        node = once__hash_each(&consumer->queues, node);
        free(queue);
    }
    while (consumer->free_queues != NULL) {
        once__consume_queue_t *queue = consumer->free_queues;
        consumer->free_queues = queue->next_free;
        free(queue);
    }
    once__hash_free(&consumer->queues);
}
