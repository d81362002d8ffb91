/*
 * claim: may the operation run? A request that finds another attempt at work can wait for its end: an end that passes through this
 * server wakes it, for others it asks again, less often each time.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "serve/internal.h"

#define POLL_MIN_MS 50
#define POLL_MAX_MS 1000
#define TRIES_MAX   3 /* claims that are lost before they are answered */

static void ask(once__serve_request_t *request);

/* ------------------------------------------------------------------------------------------------------------- waiting */

/* The first bytes of an id, which is a keyed hash. */
static uint64_t hash_of(const uint8_t id[ONCE_ID_SIZE])
{
    return once__get64(id);
}

static void stop_waiting(once__serve_request_t *request)
{
    if (request->is_waiting) {
        request->is_waiting = 0;
        once__timer_stop(request->serve->loop, &request->timer);
        once__hash_remove(&request->serve->waiting, &request->waiting_node);
        once__service_metric_set(request->serve->counters.waiting,
                                 (int64_t)request->serve->waiting.count);
    }
}

static void ask_again(once__serve_request_t *request)
{
    stop_waiting(request);
    if (once__serve_line_is_gone(request->line)) {
        once__serve_fail(request, ONCE_E_CLOSED, "the connection was closed");
    } else {
        ask(request);
    }
    once__serve_request_unref(request);
}

static void pause_over(once__timer_t *timer)
{
    ask_again(ONCE__CONTAINER(timer, once__serve_request_t, timer));
}

void once__serve_wake(once__serve_t *serve, const uint8_t id[ONCE_ID_SIZE])
{
    once__hash_node_t *node = once__hash_first(&serve->waiting, hash_of(id)), *next;

    for (; node != NULL; node = next) {
        once__serve_request_t *request = ONCE__CONTAINER(node, once__serve_request_t, waiting_node);
        next = once__hash_next(node);
        if (memcmp(request->id, id, ONCE_ID_SIZE) == 0) {
            ask_again(request);
        }
    }
}

/* Waits for the other attempt if there is time. Returns whether it does. */
static int wait_for_end(once__serve_request_t *request)
{
    once__serve_t *serve = request->serve;
    const once__serve_input_t *input = &request->input;
    uint64_t now = once__loop_now(serve->loop), pause;

    if (request->wait_until == 0) {
        request->wait_until = now + input->wait_ms;
        request->pause_ms = POLL_MIN_MS;
    }
    if (serve->stopping || request->status != 0 || now >= request->wait_until ||
        once_record_id_of(serve->once, input->scope, input->key, request->id) != ONCE_OK) {
        return 0;
    }
    if (!request->has_timer) {
        if (once__timers_reserve(serve->loop) != 0) {
            return 0;
        }
        request->has_timer = 1;
        request->timer.fire = pause_over;
    }
    if (once__hash_add(&serve->waiting, &request->waiting_node, hash_of(request->id)) != 0) {
        return 0;
    }
    request->is_waiting = 1;
    once__serve_request_ref(request);
    pause = request->pause_ms / 2 + (uint64_t)random() % request->pause_ms; /* not in step */
    request->pause_ms = request->pause_ms < POLL_MAX_MS / 2 ? 2 * request->pause_ms : POLL_MAX_MS;
    once__timer_set(serve->loop, &request->timer,
                    now + pause < request->wait_until ? now + pause : request->wait_until);
    once__service_metric_set(serve->counters.waiting, (int64_t)serve->waiting.count);
    return 1;
}

/* The server stops: the last answer of the store counts. */
void once__serve_wait_over(once__serve_request_t *request)
{
    if (request->is_waiting) {
        request->wait_until = 1;
        ask_again(request);
    }
}

/* ------------------------------------------------------------------------------------------------------------- answers */

static uint64_t lease_of(const once__serve_request_t *request)
{
    const once__serve_settings_t *set = request->serve->settings;

    return request->input.given & ONCE__SERVE_LEASE ? request->input.lease_ms
                                                    : once_policy_lease_ms(set->hold);
}

/* The library may have claimed under another id than the caller's, which was used up. */
static int is_callers_id(const once__serve_request_t *request, const once_claim_t *claim)
{
    char token[ONCE_TOKEN_SIZE];
    uint8_t id[ONCE_ID_SIZE], claim_id[ONCE_CLAIM_ID_SIZE];

    once_claim_token(claim, token);
    return (request->input.given & ONCE__SERVE_CLAIM_ID) != 0 &&
           once__serve_claim_read(token, id, claim_id) == 0 &&
           memcmp(claim_id, request->input.claim_id, sizeof(claim_id)) == 0;
}

/*
 * The answer will not arrive, so nothing is run under this claim. If the id is the caller's, it may ask again with the same one, or
 * have done so: then the claim must not be released.
 */
static void give_back(once__serve_request_t *request, once_claim_t *claim, int code)
{
    static const char note[] = "the caller is gone";

    if (is_callers_id(request, claim) ||
        once_claim_release_early(claim, 0, once__slice(note, sizeof(note) - 1), NULL, NULL) !=
            ONCE_OK) {
        once_claim_drop(claim);
    }
    once__serve_fail(request, code, NULL);
}

/* The claim is the caller's from here on, or, renewed by the server, the connection's. */
static void answer_run(once__serve_request_t *request, once_claim_t *claim)
{
    char token[ONCE_TOKEN_SIZE];
    char *text;

    once_claim_token(claim, token);
    if (request->status != 0 || once__serve_line_is_gone(request->line)) {
        give_back(request, claim, ONCE_E_CLOSED);
        return;
    }
    text = once__serve_text(json_pack("{s:s, s:s, s:I, s:I}", "outcome", "run", "claim", token,
                                      "epoch", (json_int_t)once_claim_epoch(claim), "lease_ms",
                                      (json_int_t)lease_of(request)));
    if (text == NULL) {
        give_back(request, claim, ONCE_E_NOMEM);
        return;
    }
    if (request->input.by_connection) {
        once__serve_kept_t *kept = once__serve_kept_find(request->serve, token);
        if (kept != NULL) { /* it was asked for before, on a connection whose reply was lost */
            once_claim_drop(once__serve_kept_take(kept));
        }
        if (once__serve_keep(request->line, claim) != 0) {
            free(text);
            give_back(request, claim, ONCE_E_NOMEM);
            return;
        }
    } else {
        once_claim_drop(claim);
    }
    once__serve_answer_text(request, text);
}

/* What was judged while its lease was over is not run: it may have been settled meanwhile, or be about to. */
static void answer_renewed(once__serve_request_t *request, once_claim_t *claim,
                           const once_record_t *record)
{
    if (record != NULL && once_record_state(record) == ONCE_STATE_PENDING) {
        answer_run(request, claim);
    } else {
        once_claim_drop(claim);
        once__serve_answer(request, json_pack("{s:s}", "outcome", "unknown"));
    }
}

static void renewed(once_t *once, once_answer_t *answer, void *data)
{
    once__serve_request_t *request = data;
    once_claim_t *claim = request->claim;
    int error = once_answer_error(answer);

    (void)once;
    request->claim = NULL;
    once__serve_report_store(request->serve, error);
    if (error == ONCE_OK && once_answer_outcome(answer) == ONCE_OUTCOME_DONE) {
        answer_renewed(request, claim, once_answer_record(answer));
    } else {
        once_claim_drop(claim);
        if (error != ONCE_OK || request->tries++ >= TRIES_MAX) {
            once__serve_fail(request, error != ONCE_OK ? error : ONCE_E_CONFLICT, NULL);
        } else {
            ask(request);
        }
    }
    once__serve_request_unref(request);
}

/* What is left of the lease, by the record and by the time that the answer took. */
static uint64_t left_of(const once__serve_request_t *request, const once_record_t *record)
{
    uint64_t passed = once__loop_now(request->serve->loop) - request->asked_ms;
    uint64_t left = record != NULL ? once_record_lease_ms(record) : 0;

    return left > passed ? left - passed : 0;
}

/* Asked again with the id of an earlier ask, the lease has run since then: what the answer promises must be true. */
static void granted(once__serve_request_t *request, once_answer_t *answer)
{
    const once_record_t *record = once_answer_record(answer);
    once_claim_t *claim = once_answer_take_claim(answer);

    if ((request->input.given & ONCE__SERVE_CLAIM_ID) &&
        left_of(request, record) < lease_of(request) / 2) {
        request->claim = claim;
        once__serve_request_ref(request);
        if (once_claim_renew(claim, renewed, request) == ONCE_OK) {
            return;
        }
        request->claim = NULL;
        once__serve_request_unref(request);
        give_back(request, claim, ONCE_E_NOMEM);
        return;
    }
    answer_run(request, claim);
}

static void answer_replay(once__serve_request_t *request, once_answer_t *answer)
{
    const once_record_t *record = once_answer_record(answer);
    json_t *json = json_pack("{s:s, s:I, s:I}", "outcome", "replay", "epoch",
                             (json_int_t)once_record_epoch(record), "expires_ms",
                             (json_int_t)once_record_expires_ms(record));
    int code = json != NULL ? once__serve_put_response(json, record) : ONCE_E_NOMEM;

    if (code != ONCE_OK) {
        json_decref(json);
        once__serve_fail(request, code, NULL);
        return;
    }
    once__serve_answer(request, json);
}

static void count_claim(once__serve_request_t *request, once_outcome_t outcome)
{
    if (outcome <= ONCE_OUTCOME_LOST) {
        once__service_metric_count(request->serve->counters.claims[outcome], 1);
    }
}

static void answer_outcome(once__serve_request_t *request, once_answer_t *answer)
{
    once_outcome_t outcome = once_answer_outcome(answer);

    if (outcome == ONCE_OUTCOME_BUSY && wait_for_end(request)) {
        return;
    }
    count_claim(request, outcome);
    switch (outcome) {
    case ONCE_OUTCOME_RUN:
        granted(request, answer);
        return;
    case ONCE_OUTCOME_REPLAY:
        answer_replay(request, answer);
        return;
    case ONCE_OUTCOME_BUSY:
        once__serve_answer(request, json_pack("{s:s, s:I}", "outcome", "busy", "retry_after_ms",
                                              (json_int_t)once_answer_retry_after_ms(answer)));
        return;
    default:
        once__serve_answer(request, json_pack("{s:s}", "outcome", once_outcome_name(outcome)));
    }
}

static void asked(once_t *once, once_answer_t *answer, void *data)
{
    once__serve_request_t *request = data;
    int error = once_answer_error(answer);

    (void)once;
    once__serve_report_store(request->serve, error);
    if (error != ONCE_OK) {
        once__serve_fail(request, error, NULL);
    } else {
        answer_outcome(request, answer);
    }
    once__serve_request_unref(request);
}

/* ----------------------------------------------------------------------------------------------------------------- ask */

/* The server's policy with what the request says. NULL: memory is short, or the times do not fit: `err` says why. */
static once_policy_t *own_policy(const once__serve_request_t *request, const once_policy_t *base,
                                 once_error_t *err)
{
    const once__serve_input_t *input = &request->input;
    once_policy_t *policy = once_policy_copy(base);
    char text[32];
    int code = ONCE_OK;

    if (policy != NULL && (input->given & ONCE__SERVE_LEASE)) {
        (void)snprintf(text, sizeof(text), "%llums", (unsigned long long)input->lease_ms);
        code = once_policy_set(policy, "lease", text, err);
    }
    if (policy != NULL && code == ONCE_OK && (input->given & ONCE__SERVE_TTL)) {
        (void)snprintf(text, sizeof(text), "%llums", (unsigned long long)input->ttl_ms);
        code = once_policy_set(policy, "ttl", text, err);
    }
    if (code != ONCE_OK) {
        once_policy_free(policy);
        return NULL;
    }
    return policy;
}

static void ask(once__serve_request_t *request)
{
    const once__serve_input_t *input = &request->input;
    const once__serve_settings_t *set = request->serve->settings;
    once_ask_t ask = ONCE_ASK_INIT;
    once_policy_t *own = NULL;
    once_error_t err = {0};
    int code;

    ask.scope = input->scope;
    ask.key = input->key;
    ask.method = input->method;
    ask.target = input->target;
    ask.bytes = input->body;
    ask.description = input->description;
    ask.subject = input->subject;
    ask.claim_id = input->given & ONCE__SERVE_CLAIM_ID ? input->claim_id : NULL;
    ask.policy = input->recover == ONCE_RECOVER_HOLD ? set->hold : set->retry;
    if (input->given & (ONCE__SERVE_LEASE | ONCE__SERVE_TTL)) {
        ask.policy = own = own_policy(request, ask.policy, &err);
        if (own == NULL) {
            once__serve_fail(request, err.text[0] != '\0' ? ONCE_E_INVALID : ONCE_E_NOMEM,
                             err.text[0] != '\0' ? err.text : NULL);
            return;
        }
    }
    request->asked_ms = once__loop_now(request->serve->loop);
    once__serve_request_ref(request);
    code = once_begin(request->serve->once, &ask, asked, request);
    once_policy_free(own);
    if (code != ONCE_OK) {
        once__serve_fail(request, code, NULL);
        once__serve_request_unref(request);
    }
}

void once__serve_claim(once__serve_request_t *request)
{
    if (request->input.by_connection && !once__serve_may_keep(request->serve, request->line)) {
        once__serve_problem(request, MHD_HTTP_SERVICE_UNAVAILABLE, ONCE_E_FULL,
                            "too many claims are renewed by the server: end some, or renew them "
                            "with /v1/renew");
        return;
    }
    ask(request);
}
