/*
 * Deliveries that come. Those that are duplicates beyond doubt are told from the others at once, many at a time, and
 * acknowledged: they run nothing, so no order has to be kept, and nobody claims anything. The others become items, and the
 * record decides about each.
 */
#include <string.h>

#include "consume/inside.h"

#define TOGETHER  128
#define PAUSE_MAX 63 /* batches without a look, where there are no duplicates */

static void digest(once__delivery_t *const *deliveries, size_t count)
{
    uint8_t digests[TOGETHER][ONCE_DIGEST_SIZE];
    once_slice_t payloads[TOGETHER];

    for (size_t i = 0; i < count; i++) {
        payloads[i] = deliveries[i]->payload;
    }
    once_digest(payloads, count, digests);
    for (size_t i = 0; i < count; i++) {
        once__arrival_t *arrival = deliveries[i]->prepared;
        memcpy(arrival->digest, digests[i], ONCE_DIGEST_SIZE);
    }
}

/* Reads of the consumer only what is settled before the first message comes. */
void once__arrivals_prepare(const void *data, once__delivery_t *const *deliveries, size_t count)
{
    const once__consumer_t *consumer = data;

    for (size_t i = 0; i < count; i++) {
        once__arrival_t *arrival = deliveries[i]->prepared;
        arrival->has_id = once__identity_of(&consumer->identity, deliveries[i], &arrival->key,
                                            arrival->why, sizeof(arrival->why)) == 0;
    }
    if (consumer->settings->fingerprint != ONCE_BODY_EXACT) {
        return;
    }
    for (size_t i = 0; i < count; i += TOGETHER) {
        digest(deliveries + i, count - i < TOGETHER ? count - i : TOGETHER);
    }
}

static void acknowledge(once__consumer_t *consumer, once__delivery_t *delivery)
{
    once__say_duplicate(consumer, delivery);
    if (once__delivery_lost(delivery)) {
        once__metric_count(consumer->counters.lost, 1);
    }
    once__delivery_done(delivery);
}

/* A look costs a little, and brings nothing where everything is new. */
static int is_worth_while(once__consumer_t *consumer)
{
    if (consumer->settings->fingerprint != ONCE_BODY_EXACT) {
        return 0;
    }
    if (consumer->recall_pause > 0) {
        consumer->recall_pause--;
        return 0;
    }
    return 1;
}

static void learn(once__consumer_t *consumer, size_t found)
{
    unsigned wait = 2 * consumer->recall_wait + 1;

    consumer->recall_wait = found > 0 ? 0 : wait < PAUSE_MAX ? wait : PAUSE_MAX;
    consumer->recall_pause = consumer->recall_wait;
    once__metric_count(consumer->counters.duplicates, found);
}

/* found[i] is 1 for those that are duplicates. At most TOGETHER. */
static void recall(once__consumer_t *consumer, once__delivery_t *const *deliveries, size_t count,
                   unsigned char *found)
{
    once_ask_t asks[TOGETHER];
    unsigned char of_asks[TOGETHER];
    size_t places[TOGETHER], asked = 0, all = 0;

    for (size_t i = 0; i < count; i++) {
        const once__arrival_t *arrival = deliveries[i]->prepared;
        if (arrival->has_id) {
            once__ask_as(consumer, deliveries[i], &asks[asked]);
            places[asked++] = i;
        }
    }
    if (once_recall(consumer->once, asks, asked, of_asks) != ONCE_OK) {
        return; /* each of them is asked about, and meets the same error */
    }
    for (size_t i = 0; i < asked; i++) {
        found[places[i]] = of_asks[i];
        all += of_asks[i];
    }
    learn(consumer, all);
}

static void arrive(once__consumer_t *consumer, once__delivery_t *const *deliveries, size_t count)
{
    unsigned char found[TOGETHER] = {0};

    if (is_worth_while(consumer)) {
        recall(consumer, deliveries, count, found);
    }
    for (size_t i = 0; i < count; i++) {
        if (found[i]) {
            acknowledge(consumer, deliveries[i]);
        } else {
            once__item_new(consumer, deliveries[i]);
        }
    }
}

void once__arrivals(void *consumer, once__delivery_t *const *deliveries, size_t count)
{
    for (size_t i = 0; i < count; i += TOGETHER) {
        arrive(consumer, deliveries + i, count - i < TOGETHER ? count - i : TOGETHER);
    }
}
