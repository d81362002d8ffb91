/*
 * The end of a claim, and what follows when it is written. When it cannot be, the record is asked again: it decides.
 */
#include <string.h>

#include "consume/internal.h"

static void pause_then_ask(once__consume_item_t *item)
{
    once__consume_item_pause_after(item, once__consume_item_backoff(item, ++item->failed),
                                   item->retry_after);
    item->retry_after = 0;
}

static void go_on(once__consume_item_t *item)
{
    switch (item->then) {
    case ONCE__CONSUME_NEXT_DONE:
        once__service_metric_count(item->consumer->counters.handled, 1);
        once__consume_say(item, ONCE__CONSUME_LINE_HANDLED);
        once__consume_item_done(item);
        break;
    case ONCE__CONSUME_NEXT_DEAD_LETTER:
        once__consume_dead_letter_send(item);
        break;
    case ONCE__CONSUME_NEXT_DROP:
        once__consume_item_drop(item);
        break;
    default:
        pause_then_ask(item);
        break;
    }
}

/* Lost: somebody else has the record now, and may have completed it. An error: the write goes on without us. */
static void written(once_t *once, once_answer_t *answer, void *data)
{
    once__consume_item_t *item = data;
    once_outcome_t outcome = once_answer_outcome(answer);

    if (once_answer_error(answer) == ONCE_OK &&
        (outcome == ONCE_OUTCOME_DONE || outcome == ONCE_OUTCOME_ALREADY)) {
        item->consumer->store_trouble = 0;
        if (outcome ==
            ONCE_OUTCOME_ALREADY) { /* the backend completed it in its transaction, whatever it answered */
            item->then = ONCE__CONSUME_NEXT_DONE;
            item->reason = NULL;
        }
        go_on(item);
        return;
    }
    if (once_answer_error(answer) != ONCE_OK) {
        item->consumer->store_trouble = 1;
        once__service_metric_count(item->consumer->counters.store_errors, 1);
        item->handled = item->then == ONCE__CONSUME_NEXT_DONE;
    }
    if (item->then != ONCE__CONSUME_NEXT_DROP) {
        item->then = ONCE__CONSUME_NEXT_PAUSE;
        item->reason = NULL;
    }
    go_on(item);
}

static void begin_end(once__consume_item_t *item, once__consume_next_t then)
{
    item->then = then;
    once__consume_item_stage(item, ONCE__CONSUME_ENDING);
}

/* Refused at once: as if we had died. The lease runs out. */
static void check(once__consume_item_t *item, int error)
{
    once_claim_t *claim = item->claim;

    item->claim = NULL;
    if (error != ONCE_OK) {
        once_claim_drop(claim);
        item->reason = NULL;
        item->then = item->then == ONCE__CONSUME_NEXT_DROP ? ONCE__CONSUME_NEXT_DROP
                                                           : ONCE__CONSUME_NEXT_PAUSE;
        go_on(item);
    }
}

void once__consume_end_complete(once__consume_item_t *item)
{
    once_response_t response = ONCE_RESPONSE_INIT;

    response.status = item->status;
    response.body_omitted = 1;
    begin_end(item, ONCE__CONSUME_NEXT_DONE);
    check(item, once_claim_complete(item->claim, &response, written, item));
}

void once__consume_end_release(once__consume_item_t *item, once__consume_next_t then)
{
    once_slice_t note = {item->detail, strlen(item->detail)};

    begin_end(item, then);
    check(item, once_claim_release(item->claim, item->status, note, written, item));
}

void once__consume_end_release_early(once__consume_item_t *item, once__consume_next_t then)
{
    once_slice_t note = {item->detail, strlen(item->detail)};

    begin_end(item, then);
    check(item, once_claim_release_early(item->claim, item->status, note, written, item));
}

void once__consume_end_doubt(once__consume_item_t *item, once__consume_next_t then)
{
    begin_end(item, then);
    check(item, once_claim_doubt(item->claim, written, item));
}
