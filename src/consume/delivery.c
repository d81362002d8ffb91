/*
 * Messages as they arrive. Those that are certainly duplicates are found many at a time, before anything is claimed, and
 * acknowledged at once: they run nothing, so no order has to be kept. The others become items, and the record decides about
 * each (item.c). Finding them takes most of the time; it is part of preparing, which other threads do, too.
 */
#include <stdatomic.h>
#include <string.h>

#include "consume/internal.h"

#define TOGETHER  128
#define PAUSE_MAX 63 /* batches in a row without looking for duplicates, after none were found */

static void digest(once__broker_delivery_t *const *deliveries, size_t count)
{
    uint8_t digests[TOGETHER][ONCE_DIGEST_SIZE];
    once_slice_t payloads[TOGETHER];

    for (size_t i = 0; i < count; i++) {
        payloads[i] = deliveries[i]->payload;
    }
    once_digest(payloads, count, digests);
    for (size_t i = 0; i < count; i++) {
        once__consume_arrival_t *arrival = deliveries[i]->prepared;
        memcpy(arrival->digest, digests[i], ONCE_DIGEST_SIZE);
    }
}

/*
 * Looking for duplicates costs a little, and gains nothing if all messages are new. If two threads count at once, one count may
 * be lost.
 */
static int is_worthwhile(once__consume_t *consumer)
{
    unsigned pause = atomic_load(&consumer->recall_pause);

    if (pause > 0) {
        atomic_store(&consumer->recall_pause, pause - 1);
    }
    return pause == 0;
}

static void learn(once__consume_t *consumer, int found)
{
    unsigned wait = 2 * atomic_load(&consumer->recall_wait) + 1;

    wait = found ? 0 : wait < PAUSE_MAX ? wait : PAUSE_MAX;
    atomic_store(&consumer->recall_wait, wait);
    atomic_store(&consumer->recall_pause, wait);
}

/* `count` is at most TOGETHER. */
static void recall(once__consume_t *consumer, once__broker_delivery_t *const *deliveries,
                   size_t count)
{
    once_ask_t asks[TOGETHER], ask = once__consume_ask(consumer);
    const uint8_t *digests[TOGETHER];
    unsigned char found[TOGETHER];
    once__consume_arrival_t *arrivals[TOGETHER];
    size_t asked = 0;
    int any = 0;

    for (size_t i = 0; i < count; i++) {
        once__consume_arrival_t *arrival = deliveries[i]->prepared;
        if (arrival->has_id) {
            asks[asked] = ask;
            asks[asked].key = (once_slice_t){arrival->key.text, arrival->key.len};
            digests[asked] = arrival->digest;
            arrivals[asked++] = arrival;
        }
    }
    if (once_recall(consumer->once, asks, digests, asked, found) != ONCE_OK) {
        return; /* each of them is asked for, and meets the same error */
    }
    for (size_t i = 0; i < asked; i++) {
        arrivals[i]->is_duplicate = found[i];
        any |= found[i];
    }
    learn(consumer, any);
}

/* Thread-safe: reads only members that are fixed before the first delivery, and atomic ones. */
void once__consume_prepare(void *data, once__broker_delivery_t *const *deliveries, size_t count)
{
    once__consume_t *consumer = data;

    for (size_t i = 0; i < count; i++) {
        once__consume_arrival_t *arrival = deliveries[i]->prepared;
        arrival->has_id =
            once__consume_identity_of(&consumer->identity, deliveries[i], &arrival->key,
                                      arrival->why, sizeof(arrival->why)) == 0;
        arrival->is_duplicate = 0;
    }
    if (consumer->settings->fingerprint != ONCE_BODY_MODE_EXACT) {
        return;
    }
    for (size_t i = 0; i < count; i += TOGETHER) {
        size_t some = count - i < TOGETHER ? count - i : TOGETHER;
        digest(deliveries + i, some);
        if (is_worthwhile(consumer)) {
            recall(consumer, deliveries + i, some);
        }
    }
}

static void acknowledge(once__consume_t *consumer, once__broker_delivery_t *delivery)
{
    once__consume_report_duplicate(consumer, delivery);
    if (once__broker_delivery_revoked(delivery)) {
        once__service_metric_count(consumer->counters.revoked, 1);
    }
    once__broker_delivery_done(delivery);
}

void once__consume_deliver(void *data, once__broker_delivery_t *const *deliveries, size_t count)
{
    once__consume_t *consumer = data;
    size_t duplicates = 0;

    for (size_t i = 0; i < count; i++) {
        const once__consume_arrival_t *arrival = deliveries[i]->prepared;
        if (arrival->is_duplicate) {
            acknowledge(consumer, deliveries[i]);
            duplicates++;
        } else {
            once__consume_item_new(consumer, deliveries[i]);
        }
    }
    once__service_metric_count(consumer->counters.duplicates, duplicates);
}
