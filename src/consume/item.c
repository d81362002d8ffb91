/*
 * The life of an item: one message, from its delivery to its acknowledgement.
 *
 *   stage         what ends it                                         what follows
 *   -----------   --------------------------------------------------   ------------------------------------------------------
 *   QUEUED        the item before it in its queue is done or dropped   READY
 *   READY         its turn to be asked for                             ASKING; DEAD_LETTER if it has no id or is given up;
 *                                                                      dropped if its partition was lost
 *   ASKING        the record says run                                  GRANTED
 *                                 replay                               done: a duplicate
 *                                 busy, or the store fails             PAUSED
 *                                 unknown                              PARKED
 *                                 mismatch                             DEAD_LETTER
 *   GRANTED       the handler has room                                 RUNNING
 *                 the claim or the partition was lost                  ENDING (release), then PAUSED
 *   RUNNING       the handler answered, or will not                    ENDING (complete, release or doubt), then `then`
 *   ENDING        the end of the claim is written                      done, PAUSED, DEAD_LETTER or dropped: `then`
 *                 it cannot be written                                 PAUSED: the record decides when it is asked for again
 *   DEAD_LETTER   the broker has the dead letter                       done
 *                 it does not take it                                  DEAD_LETTER with a smaller one, or PAUSED
 *   PAUSED        its timer fires                                      READY
 *   PARKED        its timer fires                                      READY
 *
 * Done acknowledges the message, dropped does not. Both free the item and make the next one of its queue ready. While the
 * consumer is stopping, what would pause is dropped.
 *
 * Invariants, which once__consume_assert_item_state() checks when an event reaches an item:
 *
 *   I-1  The item is in the list of its stage, and only there.
 *   I-2  It has a claim in GRANTED and RUNNING, and in no other stage.
 *   I-3  Its timer is set in PAUSED and PARKED, and in no other stage.
 *   I-4  It is QUEUED if and only if it is in a queue and not its first item.
 *   I-5  In DEAD_LETTER it has a reason.
 *
 * And of the consumer, which assert_items_state() checks once in every turn:
 *
 *   I-6  `open` is the number of items in all stages; `parked` is a part of it, and `crowd`, which is not kept while stopping.
 *   I-7  At most `concurrency` items are RUNNING.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/backoff.h"
#include "broker/dead_letter.h"
#include "consume/internal.h"

#define LOOKAHEAD_MAX   2048
#define BUSY_MS         100 /* first pause: a claim left behind by a rebalance ends soon */
#define BUSY_MAX_MS     5000
#define PARKED_MS       10000 /* how often the record of a parked message is asked for */
#define RETRY_AFTER_MAX 300000

/* ------------------------------------------------------------------------------------------------------------ stages */

static int holds_claim(once__consume_stage_t stage)
{
    return stage == ONCE__CONSUME_GRANTED || stage == ONCE__CONSUME_RUNNING;
}

void once__consume_assert_item_state(const once__consume_item_t *item, once__consume_stage_t stage)
{
    const once__consume_items_t *list = &item->consumer->stages[item->stage];
    int is_waiting = stage == ONCE__CONSUME_PAUSED || stage == ONCE__CONSUME_PARKED;

    assert(item->stage == stage);
    assert(item->before != NULL ? item->before->after == item : list->first == item); /* I-1 */
    assert(item->after != NULL ? item->after->before == item : list->last == item);
    assert((item->claim != NULL) == holds_claim(stage)); /* I-2 */
    assert((item->timer.slot != 0) == is_waiting);       /* I-3 */
    assert(item->consumer->stopping ||
           (stage == ONCE__CONSUME_QUEUED) ==
               (item->queue != NULL && item->queue->first != item));    /* I-4 */
    assert(stage != ONCE__CONSUME_DEAD_LETTER || item->reason != NULL); /* I-5 */
}

static void assert_items_state(const once__consume_t *consumer)
{
    size_t count = 0;

    for (int stage = 0; stage < ONCE__CONSUME_STAGES; stage++) {
        count += consumer->stages[stage].count;
    }
    assert(count == consumer->open && consumer->parked <= count); /* I-6 */
    assert(consumer->crowd <= count || consumer->stopping);
    assert(consumer->stages[ONCE__CONSUME_RUNNING].count <=
           consumer->settings->concurrency); /* I-7 */
}

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

void once__consume_item_set_stage(once__consume_item_t *item, once__consume_stage_t stage)
{
    once__consume_t *consumer = item->consumer;

    list_remove(&consumer->stages[item->stage], item);
    item->stage = stage;
    list_append(&consumer->stages[stage], item);
}

/* ------------------------------------------------------------------------------------------------------ done, dropped */

static void set_parked(once__consume_item_t *item, int is_parked)
{
    item->consumer->parked += (size_t)is_parked;
    item->consumer->parked -= (size_t)item->is_parked;
    item->is_parked = is_parked;
}

static void end(once__consume_item_t *item, int is_done)
{
    once__consume_t *consumer = item->consumer;

    if (once__broker_delivery_revoked(item->delivery)) {
        once__service_metric_count(consumer->counters.revoked, 1);
    }
    consumer->open_bytes -= item->delivery->payload.len;
    if (is_done) {
        once__broker_delivery_done(item->delivery);
    } else {
        once__broker_delivery_drop(item->delivery);
    }
    once__timer_stop(consumer->loop, &item->timer);
    set_parked(item, 0);
    once__consume_queue_leave(item);
    list_remove(&consumer->stages[item->stage], item);
    consumer->open--;
    free(item->dead_letter);
    item->next = consumer->free_items;
    consumer->free_items = item;
}

void once__consume_item_done(once__consume_item_t *item)
{
    end(item, 1);
}

static void drop(once__consume_item_t *item)
{
    end(item, 0);
}

/* ------------------------------------------------------------------------------------------------------------ pauses */

static void timer_fired(once__timer_t *timer)
{
    once__consume_item_t *item = ONCE__CONTAINER(timer, once__consume_item_t, timer);

    once__consume_item_set_stage(item, ONCE__CONSUME_READY);
    once__consume_assert_item_state(item, ONCE__CONSUME_READY);
}

static void pause_in(once__consume_item_t *item, once__consume_stage_t stage, uint64_t ms)
{
    const once__loop_t *loop = item->consumer->loop;

    if (item->consumer->stopping) {
        drop(item);
        return;
    }
    once__consume_item_set_stage(item, stage);
    item->timer.fire = timer_fired;
    once__timer_set(item->consumer->loop, &item->timer, once__loop_now(loop) + ms);
    once__consume_assert_item_state(item, stage);
}

static uint64_t backoff(const once__consume_item_t *item, unsigned attempt)
{
    const once__consume_settings_t *set = item->consumer->settings;

    return once__backoff(attempt, set->backoff_ms, set->backoff_max_ms, (uint64_t)random());
}

void once__consume_item_repeat(once__consume_item_t *item)
{
    pause_in(item, ONCE__CONSUME_PAUSED, backoff(item, item->pauses++));
}

/* Up to a tenth longer than the handler asks for, so that not all messages that it sent away come back together. */
static void pause_after_failure(once__consume_item_t *item)
{
    uint64_t wait = backoff(item, item->failed++), least = item->retry_after;

    least += (uint64_t)random() % (least / 10 + 1);
    item->retry_after = 0;
    pause_in(item, ONCE__CONSUME_PAUSED, wait > least ? wait : least);
}

/* ------------------------------------------------------------------------------------------------- the end of a claim */

static void go_on(once__consume_item_t *item)
{
    switch (item->then) {
    case ONCE__CONSUME_NEXT_DONE:
        once__service_metric_count(item->consumer->counters.handled, 1);
        once__consume_report_item(item, ONCE__CONSUME_LINE_HANDLED);
        once__consume_item_done(item);
        break;
    case ONCE__CONSUME_NEXT_DEAD_LETTER:
        once__consume_dead_letter_send(item);
        break;
    case ONCE__CONSUME_NEXT_DROP:
        drop(item);
        break;
    default:
        pause_after_failure(item);
        break;
    }
}

/* The record decides when it is asked for again. */
static void not_written(once__consume_item_t *item)
{
    if (item->then != ONCE__CONSUME_NEXT_DROP) {
        item->then = ONCE__CONSUME_NEXT_PAUSE;
        item->reason = NULL;
    }
    go_on(item);
}

/* Lost: another consumer holds the record now and may have completed it. After an error the library goes on writing without us. */
static void written(once_t *once, once_answer_t *answer, void *data)
{
    once__consume_item_t *item = data;
    once_outcome_t outcome = once_answer_outcome(answer);
    int error = once_answer_error(answer);

    once__consume_assert_item_state(item, ONCE__CONSUME_ENDING);
    if (error != ONCE_OK) {
        item->consumer->store_failed = 1;
        once__service_metric_count(item->consumer->counters.store_errors, 1);
        item->is_handled = item->then == ONCE__CONSUME_NEXT_DONE;
        not_written(item);
        return;
    }
    if (outcome == ONCE_OUTCOME_DONE || outcome == ONCE_OUTCOME_ALREADY) {
        item->consumer->store_failed = 0;
        if (outcome == ONCE_OUTCOME_ALREADY) { /* completed in the handler's own transaction */
            item->then = ONCE__CONSUME_NEXT_DONE;
            item->reason = NULL;
        }
        go_on(item);
        return;
    }
    not_written(item);
}

typedef enum claim_end {
    COMPLETE,
    RELEASE,
    RELEASE_EARLY, /* before any effect */
    DOUBT,
} claim_end_t;

static int write_end(once__consume_item_t *item, claim_end_t how)
{
    once_slice_t note = {item->detail, strlen(item->detail)};
    once_response_t response = ONCE_RESPONSE_INIT;

    switch (how) {
    case COMPLETE:
        response.status = item->status;
        response.body_omitted = 1;
        return once_claim_complete(item->claim, &response, written, item);
    case RELEASE:
        return once_claim_release(item->claim, item->status, note, written, item);
    case RELEASE_EARLY:
        return once_claim_release_early(item->claim, item->status, note, written, item);
    default:
        return once_claim_doubt(item->claim, note, written, item);
    }
}

/* A refusal leaves the claim as if this process had died: its lease runs out. */
static void end_claim(once__consume_item_t *item, claim_end_t how, once__consume_next_t then)
{
    once_claim_t *claim = item->claim;
    int error;

    item->then = then;
    once__consume_item_set_stage(item, ONCE__CONSUME_ENDING);
    error = write_end(item, how);
    item->claim = NULL;
    if (error != ONCE_OK) {
        once_claim_drop(claim);
        not_written(item);
    }
}

/* ----------------------------------------------------------------------------------------------- what the record says */

/*
 * Claims are asked for while the handler has room, and beyond that while the answers are duplicates: then many asks travel
 * together. Not under hold: a claim that is not about to be sent could become an unknown record of a message that never ran.
 */
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
    once__consume_item_set_stage(item, ONCE__CONSUME_GRANTED);
    if (consumer->stopping || once__broker_delivery_revoked(item->delivery)) {
        end_claim(item, RELEASE_EARLY, ONCE__CONSUME_NEXT_DROP);
    }
}

static void replayed(once__consume_item_t *item)
{
    look_further(item->consumer);
    item->consumer->recall_pause = 0;
    if (item->is_handled) {
        once__service_metric_count(item->consumer->counters.handled, 1);
        once__consume_report_item(item, ONCE__CONSUME_LINE_HANDLED);
    } else {
        once__service_metric_count(item->consumer->counters.duplicates, 1);
        once__consume_report_item(item, ONCE__CONSUME_LINE_DUPLICATE);
    }
    once__consume_item_done(item);
}

static void busy(once__consume_item_t *item, uint64_t lease_left)
{
    uint64_t ms = once__backoff(item->pauses++, BUSY_MS, BUSY_MAX_MS, (uint64_t)random());

    once__service_metric_count(item->consumer->counters.busy, 1);
    once__consume_report_item(item, ONCE__CONSUME_LINE_BUSY);
    pause_in(item, ONCE__CONSUME_PAUSED, lease_left < ms ? lease_left + 1 : ms);
}

static void unknown(once__consume_item_t *item)
{
    uint64_t lease = once_policy_lease_ms(item->consumer->policy);
    uint64_t ms = lease < PARKED_MS ? lease : PARKED_MS;

    if (!item->is_parked) {
        set_parked(item, 1);
        once__consume_report_item(item, ONCE__CONSUME_LINE_PARKED);
    }
    pause_in(item, ONCE__CONSUME_PARKED, once__backoff_jitter(ms, (uint64_t)random()));
}

static void mismatch(once__consume_item_t *item)
{
    item->reason = ONCE__CONSUME_REASON_MISMATCH;
    strcpy(item->detail, "the id was used with another payload");
    once__consume_dead_letter_send(item);
}

static void store_failed(once__consume_item_t *item, int error)
{
    once__consume_t *consumer = item->consumer;

    consumer->store_failed = 1;
    snprintf(item->detail, sizeof(item->detail), "%s", once_error_text(error));
    once__service_metric_count(consumer->counters.store_errors, 1);
    once__consume_report_item(item, ONCE__CONSUME_LINE_STORE);
    once__consume_item_repeat(item);
}

static void answered(once_t *once, once_answer_t *answer, void *data)
{
    once__consume_item_t *item = data;

    once__consume_assert_item_state(item, ONCE__CONSUME_ASKING);
    if (once_answer_error(answer) == ONCE_OK) {
        item->consumer->store_failed = 0;
        if (once_answer_outcome(answer) != ONCE_OUTCOME_UNKNOWN) {
            set_parked(item, 0);
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
        mismatch(item);
        break;
    case ONCE_OUTCOME_UNKNOWN:
        unknown(item);
        break;
    case ONCE_OUTCOME_BUSY:
        busy(item, once_answer_retry_after_ms(answer));
        break;
    default:
        store_failed(item, once_answer_error(answer));
        break;
    }
}

once_ask_t once__consume_ask(const once__consume_t *consumer)
{
    once_ask_t ask = ONCE_ASK_INIT;

    ask.scope = (once_slice_t){consumer->subscriber, strlen(consumer->subscriber)};
    ask.method = (once_slice_t){"message", 7};
    return ask;
}

static int begin(once__consume_item_t *item)
{
    once__consume_t *consumer = item->consumer;
    const once__consume_arrival_t *arrival = item->delivery->prepared;
    once_ask_t ask = once__consume_ask(consumer);
    once_slice_t none = {"", 0};
    char source[ONCE__BROKER_DEAD_LETTER_SOURCE_SIZE];
    once_body_t *body;
    int error;

    once__broker_dead_letter_write_source(source,
                                          once__broker_subscription_topic(consumer->subscription),
                                          item->delivery->partition, item->delivery->offset);
    ask.description = (once_slice_t){source, strlen(source)};
    ask.key = (once_slice_t){arrival->key.text, arrival->key.len};
    if (consumer->settings->fingerprint == ONCE_BODY_MODE_EXACT) {
        return once_begin_digested(consumer->once, &ask, arrival->digest, answered, item);
    }
    body = once_body_new(consumer->settings->fingerprint, none);
    error = body == NULL
                ? ONCE_E_NOMEM
                : once_body_add(body, item->delivery->payload.data, item->delivery->payload.len);
    ask.body = body;
    if (error == ONCE_OK) {
        error = once_begin(consumer->once, &ask, answered, item);
    }
    once_body_free(body);
    return error;
}

static void ask_for(once__consume_item_t *item)
{
    int error;

    once__consume_assert_item_state(item, ONCE__CONSUME_READY);
    if (once__broker_delivery_revoked(item->delivery)) {
        drop(item);
        return;
    }
    if (item->reason != NULL) {
        once__consume_dead_letter_send(item);
        return;
    }
    once__consume_item_set_stage(item, ONCE__CONSUME_ASKING);
    error = begin(item);
    if (error != ONCE_OK) {
        store_failed(item, error);
    }
}

/* A dropped item makes the next one of its queue ready: the list may grow at its end. No item is visited twice in one turn. */
void once__consume_items_ask(once__consume_t *consumer)
{
    once__consume_items_t *ready = &consumer->stages[ONCE__CONSUME_READY];
    const size_t limit = consumer->settings->concurrency + consumer->lookahead;
    size_t held = consumer->stages[ONCE__CONSUME_GRANTED].count +
                  consumer->stages[ONCE__CONSUME_RUNNING].count;

    for (size_t left = consumer->open; left > 0 && ready->first != NULL && !consumer->stopping &&
                                       held + consumer->stages[ONCE__CONSUME_ASKING].count < limit;
         left--) {
        ask_for(ready->first);
    }
    assert_items_state(consumer);
}

/* ---------------------------------------------------------------------------------------------- what the handler says */

/* The request failed and may succeed another time, unless that was the last try. */
static once__consume_next_t try_again(once__consume_item_t *item)
{
    if (item->tries < item->consumer->settings->tries) {
        once__consume_report_item(item, ONCE__CONSUME_LINE_RETRY);
        return ONCE__CONSUME_NEXT_PAUSE;
    }
    item->reason = ONCE__CONSUME_REASON_TRIES;
    return ONCE__CONSUME_NEXT_DEAD_LETTER;
}

static void in_doubt(once__consume_item_t *item)
{
    once__consume_next_t next = ONCE__CONSUME_NEXT_PAUSE; /* under hold: the next ask parks it */

    once__service_metric_count(item->consumer->counters.doubts, 1);
    once__consume_report_item(item, ONCE__CONSUME_LINE_DOUBT);
    if (once_policy_recover(item->consumer->policy) != ONCE_RECOVER_HOLD) {
        next = try_again(item);
    }
    end_claim(item, DOUBT, next);
}

static void judge(once__consume_item_t *item, int status, once_verdict_t said)
{
    switch (once_claim_judge(item->claim, item->consumer->policy, status, said)) {
    case ONCE_JUDGEMENT_RECORD:
        end_claim(item, COMPLETE, ONCE__CONSUME_NEXT_DONE);
        break;
    case ONCE_JUDGEMENT_RELEASE:
        end_claim(item, RELEASE, try_again(item));
        break;
    case ONCE_JUDGEMENT_EARLY:
        end_claim(item, RELEASE_EARLY, try_again(item));
        break;
    default:
        in_doubt(item);
        break;
    }
}

static void describe(once__consume_item_t *item, const once__consume_reply_t *reply)
{
    if (reply->status != 0) {
        snprintf(item->detail, sizeof(item->detail), "the handler answered %d%s%s", reply->status,
                 reply->words[0] != '\0' ? ": " : "", reply->words);
    } else {
        snprintf(item->detail, sizeof(item->detail), "%s: %.160s",
                 reply->sent ? "no complete answer" : "the handler was not reached",
                 reply->trouble);
    }
}

/* docs/consume.md has this as a table. */
static void replied(void *data, const once__consume_reply_t *reply)
{
    once__consume_item_t *item = data;
    int status = reply->status;

    once__consume_assert_item_state(item, ONCE__CONSUME_RUNNING);
    item->status = status;
    item->retry_after = reply->retry_after < RETRY_AFTER_MAX ? reply->retry_after : RETRY_AFTER_MAX;
    describe(item, reply);
    once__service_metric_observe(item->consumer->counters.seconds, (int64_t)reply->took);
    if (status == 0 && !reply->sent) {
        item->tries--;
        once__consume_report_item(item, ONCE__CONSUME_LINE_UNREACHED);
        end_claim(item, RELEASE_EARLY, ONCE__CONSUME_NEXT_PAUSE);
    } else if (status == 0) {
        in_doubt(item);
    } else if (reply->said != ONCE_VERDICT_NONE || status < 300 || status >= 500 || status == 408) {
        judge(item, status, reply->said);
    } else if (status == 409 || status == 425 || status == 429) {
        end_claim(item, RELEASE, try_again(item));
    } else {
        item->reason = ONCE__CONSUME_REASON_REJECTED;
        end_claim(item, RELEASE, ONCE__CONSUME_NEXT_DEAD_LETTER);
    }
}

static void send_request(once__consume_item_t *item)
{
    once__consume_t *consumer = item->consumer;

    once__consume_assert_item_state(item, ONCE__CONSUME_GRANTED);
    if (once__broker_delivery_revoked(item->delivery) || !once_claim_alive(item->claim)) {
        end_claim(item, RELEASE_EARLY, ONCE__CONSUME_NEXT_PAUSE);
        return;
    }
    once__consume_item_set_stage(item, ONCE__CONSUME_RUNNING);
    item->tries++;
    if (item->tries > 1) {
        once__service_metric_count(consumer->counters.retries, 1);
    }
    if (once__consume_handler_post(consumer->handler, once__consume_request_headers(item),
                                   item->delivery->payload, replied, item) != 0) {
        item->tries--;
        end_claim(item, RELEASE_EARLY, ONCE__CONSUME_NEXT_PAUSE);
    }
}

void once__consume_items_send(once__consume_t *consumer)
{
    once__consume_items_t *waiting = &consumer->stages[ONCE__CONSUME_GRANTED];

    while (waiting->first != NULL &&
           consumer->stages[ONCE__CONSUME_RUNNING].count < consumer->settings->concurrency) {
        send_request(waiting->first);
    }
}

/* ----------------------------------------------------------------------------------------------------- begin and end */

/* Returns NULL if memory is short. An item reserves its timer for as long as it exists, so that a pause cannot fail. */
static once__consume_item_t *make_item(once__consume_t *consumer)
{
    once__consume_item_t *item = consumer->free_items;

    if (item != NULL) {
        consumer->free_items = item->next;
    } else if (once__timers_reserve(consumer->loop) == 0) {
        item = malloc(sizeof(*item));
        if (item == NULL) {
            once__timers_release(consumer->loop);
        }
    }
    if (item != NULL) {
        memset(item, 0, offsetof(once__consume_item_t, key));
        item->consumer = consumer;
    }
    return item;
}

/* A message without an id waits for its turn like any other, and is then given up. */
static void set_key(once__consume_item_t *item, const once__consume_arrival_t *arrival)
{
    if (arrival->has_id) {
        item->key.len = arrival->key.len;
        memcpy(item->key.text, arrival->key.text, arrival->key.len + 1);
        return;
    }
    item->key.len = 0;
    item->key.text[0] = '\0';
    item->reason = ONCE__CONSUME_REASON_NO_ID;
    snprintf(item->detail, sizeof(item->detail), "%s", arrival->why);
}

void once__consume_item_new(once__consume_t *consumer, once__broker_delivery_t *delivery)
{
    once__consume_item_t *item = make_item(consumer);

    if (item == NULL) { /* not acknowledged: the message is delivered again after a restart */
        once__broker_delivery_drop(delivery);
        return;
    }
    item->delivery = delivery;
    set_key(item, delivery->prepared);
    once__consume_queue_enter(item);
    list_append(&consumer->stages[item->stage], item);
    consumer->open++;
    consumer->open_bytes += delivery->payload.len;
    once__consume_assert_item_state(item, item->stage);
}

static void drop_all(once__consume_t *consumer, once__consume_stage_t stage)
{
    while (consumer->stages[stage].first != NULL) {
        drop(consumer->stages[stage].first);
    }
}

void once__consume_items_stop(once__consume_t *consumer)
{
    drop_all(consumer, ONCE__CONSUME_QUEUED);
    drop_all(consumer, ONCE__CONSUME_READY);
    drop_all(consumer, ONCE__CONSUME_PAUSED);
    drop_all(consumer, ONCE__CONSUME_PARKED);
    while (consumer->stages[ONCE__CONSUME_GRANTED].first != NULL) {
        end_claim(consumer->stages[ONCE__CONSUME_GRANTED].first, RELEASE_EARLY,
                  ONCE__CONSUME_NEXT_DROP);
    }
}

/* Nothing calls back any more by now. */
void once__consume_items_free(once__consume_t *consumer)
{
    for (int stage = 0; stage < ONCE__CONSUME_STAGES; stage++) {
        drop_all(consumer, (once__consume_stage_t)stage);
    }
    while (consumer->free_items != NULL) {
        once__consume_item_t *item = consumer->free_items;
        consumer->free_items = item->next;
        once__timers_release(consumer->loop);
        free(item);
    }
}
