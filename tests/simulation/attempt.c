/*
 * What a gateway does with one request: the HTTP contract, step by step, over the real library.
 *
 *     ask --> run --> connect --> forward --> response --> complete | release | doubt --> answer
 *       \--> replay, busy, mismatch, unknown, error ----------------------------------------^
 *
 * After every step that waits the gateway may crash. It answers a client from what the library told it, and with the
 * operation's own response only when the library said done.
 */
#include <assert.h>
#include <string.h>

#include "attempt.h"
#include "backend.h"
#include "check.h"
#include "base/bytes.h"
#include "script.h"

static void forward(attempt_t *attempt);
static void forward_late(void *data);

/* ---------------------------------------------------------------------------------------------------------- backend */

static void judge(attempt_t *attempt)
{
    int own = world_is_broken(attempt->world, BROKEN_OWN_POLICY);
    int status = attempt->response.status;
    once_verdict_t said = attempt->response.said;
    once_judgement_t judgement =
        own ? once_policy_judge(attempt->policy, status, said)
            : once_claim_judge(attempt->claim, attempt->policy, status, said);
    int reason = judgement == ONCE_JUDGEMENT_EARLY ? REASON_BEFORE_EFFECT
                 : said == ONCE_VERDICT_RETRY      ? REASON_ASKED
                                                   : REASON_5XX;

    if (judgement == ONCE_JUDGEMENT_RECORD) {
        if (world_is_broken(attempt->world, BROKEN_EARLY_ANSWER)) {
            attempt->answered = 1;
            check_answer(attempt->request, ANSWER_RECORDED, &attempt->response);
            request_answer(attempt->request, ANSWER_RECORDED, &attempt->response);
        }
        attempt_end(attempt, COMPLETES, REASON_NONE);
    } else if (judgement == ONCE_JUDGEMENT_RELEASE || judgement == ONCE_JUDGEMENT_EARLY) {
        attempt_end(attempt, RELEASES, reason);
    } else {
        attempt_end(attempt, DOUBTS, REASON_NONE);
    }
}

/* No response, and none will be waited for. */
static void no_response(attempt_t *attempt)
{
    attempt->waiting = 0;
    if (world_is_broken(attempt->world, BROKEN_NEXT_UPSTREAM) && !attempt->resent) {
        attempt->resent = 1;
        forward(attempt);
    } else if (world_is_broken(attempt->world, BROKEN_TIMEOUT_RELEASES)) {
        attempt_end(attempt, RELEASES, REASON_NOT_SENT);
    } else {
        attempt_end(attempt, DOUBTS, REASON_NONE);
    }
}

static void response_seen(void *data)
{
    attempt_t *attempt = data;

    if (!attempt->waiting || !process_acts(attempt->process, response_seen, attempt) ||
        !attempt_survives(attempt)) {
        return;
    }
    attempt->waiting = 0;
    if (attempt->grant == NULL) {
        attempt_answer(attempt, attempt->has_response ? ANSWER_PASSED : ANSWER_DOUBT,
                       attempt->has_response ? &attempt->response : NULL);
    } else if (attempt->has_response) {
        judge(attempt);
    } else {
        no_response(attempt);
    }
}

static void on_response(void *data, const response_t *response)
{
    attempt_t *attempt = data;

    if (!attempt->waiting) {
        return;
    }
    attempt->has_response = response != NULL;
    if (response != NULL) {
        attempt->response = *response;
    }
    response_seen(attempt);
}

static void upstream_timeout(void *data)
{
    attempt_t *attempt = data;

    if (!attempt->waiting || !process_acts(attempt->process, upstream_timeout, attempt)) {
        return;
    }
    world_say(attempt->world, attempt->key->number, "%s: no response in time",
              attempt->process->name);
    attempt->waiting = 0;
    if (attempt->grant == NULL) {
        attempt_answer(attempt, ANSWER_DOUBT, NULL);
    } else {
        no_response(attempt);
    }
}

/* BROKEN_HANGUP_RELEASES */
static void client_hung_up(void *data)
{
    attempt_t *attempt = data;

    if (attempt->waiting && attempt->process->alive && attempt->grant != NULL &&
        attempt->request->over) {
        attempt->waiting = 0;
        attempt_end(attempt, RELEASES, REASON_NOT_SENT);
    }
}

static void forward(attempt_t *attempt)
{
    world_t *world = attempt->world;
    job_t *job = world_alloc(world, sizeof(*job));

    job->course = attempt->course;

    attempt_stop_asking(attempt);
    job->world = world;
    job->key = attempt->key;
    job->variant = attempt->request->variant;
    job->grant = attempt->grant;
    job->answered = on_response;
    job->data = attempt;
    if (attempt->claim != NULL) {
        once_claim_token(attempt->claim, job->token);
        check_forward(world, attempt->key, attempt->grant, attempt->request->variant);
    }
    world_say(world, attempt->key->number, "%s: forwards epoch %u", attempt->process->name,
              attempt->grant != NULL ? attempt->grant->ref.epoch : 0);
    attempt->waiting = 1;
    world_after(world, world->plan.upstream_timeout, upstream_timeout, attempt);
    if (world_is_broken(world, BROKEN_HANGUP_RELEASES)) {
        world_after(world, world->plan.client_timeout + 1, client_hung_up, attempt);
    }
    backend_deliver(job);
    (void)attempt_survives(attempt);
}

/* The connection is there. It took time, and a claim that has become old must not be used. */
static void forward_late(void *data)
{
    attempt_t *attempt = data;
    uint64_t passed;

    if (!process_acts(attempt->process, forward_late, attempt) || !attempt_survives(attempt)) {
        return;
    }
    passed = process_clock(attempt->process) - attempt->asked_clock;
    if ((passed * 2 >= attempt->world->plan.lease || !once_claim_alive(attempt->claim)) &&
        !world_is_broken(attempt->world, BROKEN_LATE_FORWARD)) {
        world_say(attempt->world, attempt->key->number, "%s: too late to forward",
                  attempt->process->name);
        world_count(attempt->world, COUNT_TOO_LATE);
        attempt_end(attempt, RELEASES, REASON_NOT_SENT);
        return;
    }
    forward(attempt);
}

static void no_connection(attempt_t *attempt)
{
    world_say(attempt->world, attempt->key->number, "%s: no connection, nothing sent",
              attempt->process->name);
    world_count(attempt->world, COUNT_NOT_SENT);
    attempt_end(attempt, RELEASES, REASON_NOT_SENT);
}

static void connect_scripted(attempt_t *attempt)
{
    attempt->course = script_next_course(attempt->world);
    if (attempt->course->refused) {
        no_connection(attempt);
    } else if (attempt->course->connect_ms > 0) {
        world_after(attempt->world, attempt->course->connect_ms, forward_late, attempt);
    } else {
        forward(attempt);
    }
}

static void forget(attempt_t *attempt)
{
    world_count(attempt->world, COUNT_DROPPED);
    attempt->grant->dropped = 1;
    once_claim_drop(attempt->claim);
    attempt_answer(attempt, ANSWER_ERROR, NULL);
}

static void connect_upstream(attempt_t *attempt)
{
    world_t *world = attempt->world;

    if (world->script != NULL) {
        connect_scripted(attempt);
    } else if (world_chance(world, world->plan.no_connection)) {
        no_connection(attempt);
    } else if (world_chance(world, world->plan.forget)) {
        forget(attempt);
    } else if (world_chance(world, world->plan.slow_connection)) {
        world_after(world, prng_between(&world->prng, 1, world->plan.lease), forward_late, attempt);
    } else {
        forward(attempt);
    }
}

/* ----------------------------------------------------------------------------------------------------------- asking */

static void on_run(attempt_t *attempt, once_answer_t *told)
{
    const once_record_t *record = once_answer_record(told);
    char token[ONCE_TOKEN_SIZE];

    if (record == NULL) {
        world_violate(attempt->world, attempt->key->number, "run: with its record",
                      "run is answered without the record");
        return;
    }
    attempt->claim = once_answer_take_claim(told);
    assert(attempt->claim != NULL);
    once_claim_token(attempt->claim, token);
    attempt->grant = check_run(attempt->world, attempt->key, token);
    if (attempt->grant != NULL && attempt_survives(attempt)) {
        connect_upstream(attempt);
    }
}

static void on_asked(once_answer_t *told, void *data)
{
    attempt_t *attempt = data;
    world_t *world = attempt->world;

    if (!attempt_survives(attempt)) {
        return;
    }
    switch (once_answer_outcome(told)) {
    case ONCE_OUTCOME_RUN:
        on_run(attempt, told);
        break;
    case ONCE_OUTCOME_REPLAY:
        attempt_answer_from_record(attempt, told);
        break;
    case ONCE_OUTCOME_MISMATCH:
        attempt_answer(attempt, ANSWER_MISMATCH, NULL);
        break;
    case ONCE_OUTCOME_UNKNOWN:
        attempt_answer(attempt, ANSWER_UNKNOWN, NULL);
        break;
    case ONCE_OUTCOME_BUSY:
        if (world_is_broken(world, BROKEN_BOLD_409)) {
            forward(attempt);
            break;
        }
        if (once_answer_retry_after_ms(told) < 1 ||
            once_answer_retry_after_ms(told) > world->plan.lease) {
            world_violate(world, attempt->key->number, "busy: when to ask again",
                          "in %llu ms, with a lease of %llu ms",
                          (unsigned long long)once_answer_retry_after_ms(told),
                          (unsigned long long)world->plan.lease);
        }
        attempt_answer(attempt, ANSWER_BUSY, NULL);
        break;
    default:
        if (world_is_broken(world, BROKEN_FAIL_OPEN)) {
            forward(attempt);
            break;
        }
        attempt_answer(attempt, ANSWER_ERROR, NULL);
        break;
    }
}

void attempt_start(gateway_t *gateway, request_t *request)
{
    world_t *world = gateway->world;
    attempt_t *attempt = world_alloc(world, sizeof(*attempt));
    const char *body = ledger_body(request->variant);
    once_ask_t ask = ONCE_ASK_INIT;
    call_t *call;

    attempt->world = world;
    attempt->gateway = gateway;
    attempt->process = gateway->process;
    attempt->request = request;
    attempt->key = request->key;
    attempt->policy = world->plan.mixed && gateway->number % 2 == 1
                          ? world->policies[ONCE_RECOVER_HOLD]
                          : request->key->policy;
    attempt->asked_clock = process_clock(attempt->process);
    attempt->asking = 1;
    attempt->process->asking[attempt->key->number]++;
    if (!world_is_broken(world, BROKEN_NO_SCOPE)) {
        ask.scope = once__slice(request->key->scope, strlen(request->key->scope));
    }
    ask.key = once__slice(request->key->key, strlen(request->key->key));
    ask.method = once__slice("POST", 4);
    ask.target = once__slice("/payments", 9);
    ask.bytes = once__slice(body, world_is_broken(world, BROKEN_NO_BODY) ? 4 : strlen(body));
    ask.policy = attempt->policy;
    call = call_new(attempt->process, "ask", on_asked, attempt);
    if (call_accepted(call, once_begin(attempt->process->handle, &ask, call_back, call))) {
        (void)attempt_survives(attempt);
    } else {
        attempt_answer(attempt, ANSWER_ERROR, NULL);
    }
}
