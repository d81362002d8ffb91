/*
 * The end of a request in a gateway: the claim is completed, released or doubted, and the client is answered from what the
 * library says then. With the operation's own response only when that is done; after lost or already from the record.
 */
#include <string.h>

#include "attempt.h"
#include "check.h"
#include "base/bytes.h"
#include "core/token.h"

int attempt_survives(attempt_t *attempt)
{
    world_t *world = attempt->world;

    if (!attempt->process->alive) {
        return 0;
    }
    if (world_chance(world, world->plan.crash)) {
        gateway_crash(attempt->gateway);
    } else if (world_chance(world, world->plan.stall)) {
        process_pause(attempt->process, prng_between(&world->prng, 1, 3 * world->plan.lease));
    }
    return attempt->process->alive;
}

void attempt_stop_asking(attempt_t *attempt)
{
    if (attempt->asking) {
        attempt->asking = 0;
        attempt->process->asking[attempt->key->number]--;
    }
}

void attempt_answer(attempt_t *attempt, answer_kind_t kind, const response_t *response)
{
    attempt_stop_asking(attempt);
    if (!attempt->answered) {
        attempt->answered = 1;
        check_answer(attempt->request, kind, response);
        request_answer(attempt->request, kind, response);
    }
    gateway_attempt_over(attempt->gateway);
}

void attempt_answer_from_record(attempt_t *attempt, const once_answer_t *told)
{
    const once_record_t *record = once_answer_record(told);
    once_response_t stored = ONCE_RESPONSE_INIT;
    response_t response;
    size_t len;

    if (record == NULL || once_record_state(record) != ONCE_STATE_COMPLETED) {
        if (once_answer_outcome(told) != ONCE_OUTCOME_LOST) {
            world_violate(attempt->world, attempt->key->number, "replay",
                          "%s is answered without a completed record",
                          once_outcome_name(once_answer_outcome(told)));
        }
        attempt_answer(attempt, ANSWER_BUSY, NULL);
        return;
    }
    memset(&response, 0, sizeof(response));
    if (once_record_response(record, &stored) != ONCE_OK) {
        world_violate(attempt->world, attempt->key->number, "replay",
                      "the stored response cannot be read");
        return;
    }
    response.status = stored.status;
    len = stored.body.len < sizeof(response.body) ? stored.body.len : sizeof(response.body) - 1;
    memcpy(response.body, stored.body.data, len);
    attempt_answer(attempt, ANSWER_REPLAYED, &response);
}

static void answer_done(attempt_t *attempt)
{
    switch (attempt->ending) {
    case COMPLETES:
        attempt_answer(attempt, ANSWER_RECORDED, &attempt->response);
        break;
    case RELEASES:
        attempt_answer(attempt, attempt->has_response ? ANSWER_PASSED : ANSWER_ERROR,
                       attempt->has_response ? &attempt->response : NULL);
        break;
    case DOUBTS:
        attempt_answer(attempt, ANSWER_DOUBT, NULL);
        break;
    }
}

/* BROKEN_ERROR_RELEASES */
static void release_after_error(attempt_t *attempt)
{
    char token[ONCE_TOKEN_SIZE];
    once_claim_t *claim = NULL;
    once_slice_t note = {NULL, 0};

    once__token_write(token, attempt->key->id, &attempt->grant->ref);
    if (once_claim_adopt(attempt->process->handle, token, 0, &claim) == ONCE_OK &&
        once_claim_release(claim, 0, note, NULL, NULL) != ONCE_OK) {
        once_claim_drop(claim);
    }
}

static void on_ended(once_answer_t *told, void *data)
{
    attempt_t *attempt = data;
    int own = world_is_broken(attempt->world, BROKEN_OWN_ANSWER);

    if (!attempt_survives(attempt)) {
        return;
    }
    if (once_answer_error(told) != ONCE_OK) {
        if (world_is_broken(attempt->world, BROKEN_ERROR_RELEASES)) {
            release_after_error(attempt);
        }
        attempt_answer(attempt, ANSWER_ERROR, NULL);
    } else if (once_answer_outcome(told) == ONCE_OUTCOME_DONE || own) {
        answer_done(attempt);
    } else {
        attempt_answer_from_record(attempt, told);
    }
}

static int release(const attempt_t *attempt, int reason, call_t *call)
{
    int early = reason == REASON_NOT_SENT || reason == REASON_BEFORE_EFFECT ||
                world_is_broken(attempt->world, BROKEN_ALWAYS_EARLY);

    return (early ? once_claim_release_early : once_claim_release)(
        attempt->claim, attempt->response.status, once__slice("released", 8), call_back, call);
}

void attempt_end(attempt_t *attempt, ending_t ending, int reason)
{
    call_t *call = call_new(attempt->process, "end of a claim", on_ended, attempt);
    once_response_t response = ONCE_RESPONSE_INIT;
    once_header_t header = {once__slice("Content-Type", 12), once__slice("text/plain", 10)};
    int code = ONCE_OK;

    attempt_stop_asking(attempt);
    attempt->ending = ending;
    attempt->gateway->wrote = 1;
    attempt->grant->reason = reason;
    switch (ending) {
    case COMPLETES:
        response.status = attempt->response.status;
        response.headers = &header;
        response.header_count = 1;
        response.body = once__slice(attempt->response.body, strlen(attempt->response.body));
        response.retain_ms = attempt->response.retain_ms;
        code = once_claim_complete(attempt->claim, &response, call_back, call);
        break;
    case RELEASES:
        code = release(attempt, reason, call);
        break;
    case DOUBTS:
        code = once_claim_doubt(attempt->claim, once__slice("timeout", 7), call_back, call);
        break;
    }
    attempt->claim = NULL;
    if (!call_accepted(call, code)) {
        world_violate(attempt->world, attempt->key->number, "calls",
                      "the end of a claim is refused: %s", once_error_name(code));
    }
    (void)attempt_survives(attempt);
}
