/*
 * What the record says about a message, before the handler sees it.
 *
 * Claims are asked for as long as the handler has room, and beyond that while the answers are duplicates: then many asks travel
 * together. Under hold there is no beyond: a claim that is not about to be sent could only become an unknown that never ran.
 */
#include <stdio.h>
#include <string.h>

#include "consume/internal.h"

#define LOOKAHEAD_MAX 2048
#define BUSY_MS       100 /* first pause; a claim that was left by a rebalance ends soon */
#define BUSY_MAX_MS   5000
#define PARKED_MS     10000 /* how often a parked message is asked about again */

static void look_further(once__consume_t *consumer)
{
    if (consumer->lookahead < LOOKAHEAD_MAX &&
        once_policy_recover(consumer->policy) != ONCE_RECOVER_HOLD) {
        consumer->lookahead += 4;
    }
}

static void granted(once__consume_item_t *item, once_answer_t *answer)
{
    once__consume_t *consumer = item->consumer;

    item->claim = once_answer_take_claim(answer);
    item->pauses = 0;
    consumer->lookahead /= 2;
    once__consume_item_stage(item, ONCE__CONSUME_GRANTED);
    if (consumer->stopping || once__broker_delivery_lost(item->delivery)) {
        once__consume_end_release_early(item, ONCE__CONSUME_NEXT_DROP);
    }
}

static void replayed(once__consume_item_t *item)
{
    look_further(item->consumer);
    item->consumer->recall_pause = 0;
    if (item->handled) { /* by us, when the store was away */
        once__service_metric_count(item->consumer->counters.handled, 1);
        once__consume_say(item, ONCE__CONSUME_LINE_HANDLED);
    } else {
        once__service_metric_count(item->consumer->counters.duplicates, 1);
        once__consume_say(item, ONCE__CONSUME_LINE_DUPLICATE);
    }
    once__consume_item_done(item);
}

static void busy(once__consume_item_t *item, uint64_t lease_left)
{
    uint64_t ms = (uint64_t)BUSY_MS << (item->pauses < 6 ? item->pauses : 6);

    item->pauses++;
    ms = ms < BUSY_MAX_MS ? ms : BUSY_MAX_MS;
    once__service_metric_count(item->consumer->counters.busy, 1);
    once__consume_say(item, ONCE__CONSUME_LINE_BUSY);
    once__consume_item_pause(item, ONCE__CONSUME_PAUSED, lease_left < ms ? lease_left + 1 : ms);
}

static void parked(once__consume_item_t *item)
{
    uint64_t lease = once_policy_lease_ms(item->consumer->policy);

    if (!item->parked) {
        item->parked = 1;
        item->consumer->parked++;
        once__consume_say(item, ONCE__CONSUME_LINE_PARKED);
    }
    once__consume_item_pause(item, ONCE__CONSUME_PARKED, lease < PARKED_MS ? lease : PARKED_MS);
}

static void store_failed(once__consume_item_t *item, int error)
{
    once__consume_t *consumer = item->consumer;

    consumer->store_trouble = 1;
    item->pauses++;
    snprintf(item->detail, sizeof(item->detail), "%s", once_error_text(error));
    once__service_metric_count(consumer->counters.store_errors, 1);
    once__consume_say(item, ONCE__CONSUME_LINE_STORE);
    once__consume_item_pause(item, ONCE__CONSUME_PAUSED,
                             once__consume_item_backoff(item, item->pauses));
}

static void answered(once_t *once, once_answer_t *answer, void *data)
{
    once__consume_item_t *item = data;

    if (once_answer_error(answer) == ONCE_OK) {
        item->consumer->store_trouble = 0;
        if (item->parked && once_answer_outcome(answer) != ONCE_OUTCOME_UNKNOWN) {
            item->parked = 0;
            item->consumer->parked--;
        }
    }
    switch (once_answer_outcome(answer)) {
    case ONCE_OUTCOME_RUN:
        granted(item, answer);
        break;
    case ONCE_OUTCOME_REPLAY:
        replayed(item);
        break;
    case ONCE_OUTCOME_MISMATCH:
        item->reason = ONCE__CONSUME_REASON_MISMATCH;
        strcpy(item->detail, "the id was used with another payload");
        once__consume_dead_letter_send(item);
        break;
    case ONCE_OUTCOME_UNKNOWN:
        parked(item);
        break;
    case ONCE_OUTCOME_BUSY:
        busy(item, once_answer_retry_after_ms(answer));
        break;
    default:
        store_failed(item, once_answer_error(answer));
        break;
    }
}

once_ask_t once__consume_ask_in_common(const once__consume_t *consumer)
{
    once_ask_t ask = ONCE_ASK_INIT;

    ask.scope = (once_slice_t){consumer->subscriber, strlen(consumer->subscriber)};
    ask.method = (once_slice_t){"message", 7};
    return ask;
}

void once__consume_ask_about(const once__consume_t *consumer,
                             const once__consume_arrival_t *arrival, once_ask_t *ask)
{
    ask->key = (once_slice_t){arrival->key.text, arrival->key.len};
    if (consumer->settings->fingerprint == ONCE_BODY_EXACT) {
        ask->digest = arrival->digest;
    }
}

static int begin(once__consume_item_t *item)
{
    once__consume_t *consumer = item->consumer;
    once_ask_t ask = once__consume_ask_in_common(consumer);
    once_body_t *body = NULL;
    once_slice_t none = {"", 0};
    int error = ONCE_OK;

    once__consume_ask_about(consumer, item->delivery->prepared, &ask);
    if (ask.digest == NULL) {
        body = once_body_new(consumer->settings->fingerprint, none);
        error = body == NULL ? ONCE_E_NOMEM
                             : once_body_add(body, item->delivery->payload.data,
                                             item->delivery->payload.len);
        ask.body = body;
    }
    if (error == ONCE_OK) {
        error = once_begin(consumer->once, &ask, answered, item);
    }
    once_body_free(body);
    return error;
}

static void ask_about(once__consume_item_t *item)
{
    int error;

    if (once__broker_delivery_lost(item->delivery)) {
        once__consume_item_drop(item);
        return;
    }
    if (item->reason != NULL) {
        once__consume_dead_letter_send(item);
        return;
    }
    once__consume_item_stage(item, ONCE__CONSUME_ASKING);
    error = begin(item);
    if (error != ONCE_OK) {
        store_failed(item, error);
    }
}

/* What is dropped makes the next one of its queue ready: the list may grow at its end. Nobody is looked at twice in a turn. */
void once__consume_ask_ready(once__consume_t *consumer)
{
    once__consume_items_t *ready = &consumer->stages[ONCE__CONSUME_READY];
    const size_t limit = consumer->settings->concurrency + consumer->lookahead;
    size_t held = consumer->stages[ONCE__CONSUME_GRANTED].count +
                  consumer->stages[ONCE__CONSUME_RUNNING].count;

    for (size_t left = consumer->open; left > 0 && ready->first != NULL && !consumer->stopping &&
                                       held + consumer->stages[ONCE__CONSUME_ASKING].count < limit;
         left--) {
        ask_about(ready->first);
    }
}
