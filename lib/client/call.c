/*
 * The steps of a call (client/internal.h).
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/backoff.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "client/internal.h"
#include "client/judge.h"

#define BUSY_MS ((uint64_t)500) /* how often a call that another process makes is looked at */
#define BUDGET_MS                                                                                  \
    ((uint64_t)1000) /* how long a retry waits, at most, to look at the budget again */

static void ask(once__client_call_t *call);
static void keep(once__client_call_t *call);
static void retry(once__client_call_t *call);
static void send_attempt(once__client_call_t *call);

static uint64_t wall(const once__client_call_t *call)
{
    const once__env_t *env = once__loop_env(call->client->loop);

    return env->wall_ms(env->data);
}

/* ------------------------------------------------------------------------------------------------------------ the end */

static void tell(once__client_call_t *call, const once_client_outcome_t *outcome)
{
    *call->place = call->next;
    if (call->next != NULL) {
        call->next->place = call->place;
    }
    call->cb(call->client, outcome, call->data);
    once__client_call_free(call);
}

/* Tells what `end`, `error` and `text` say, with the last answer if there is one. */
static void finish(once__client_call_t *call)
{
    once_client_outcome_t outcome = {0};
    char problem[32] = "";

    assert(call->claim == NULL);
    if (call->is_problem) {
        once__client_problem(problem, sizeof(problem), call->answer.data, call->answer.len);
    }
    outcome.end = call->end;
    outcome.error = call->error;
    outcome.status = call->status;
    outcome.replayed = call->replayed;
    outcome.reused = call->status == 422 && strcmp(problem, "key-reused") == 0;
    outcome.body_omitted = call->omitted;
    outcome.attempts = call->attempts;
    outcome.name = call->name;
    outcome.key = call->key;
    outcome.text = call->text;
    outcome.until = call->until;
    outcome.headers = call->headers;
    outcome.header_count = call->header_count;
    outcome.body = once__slice(call->answer.len > 0 ? call->answer.data : "", call->answer.len);
    tell(call, &outcome);
}

static void end(once__client_call_t *call, once_client_end_t how, const char *text)
{
    call->end = how;
    snprintf(call->text, sizeof(call->text), "%s", text);
    finish(call);
}

static void journal_failed(once__client_call_t *call, int error)
{
    if (call->client->closing) {
        end(call, ONCE_CLIENT_OPEN, "the client is closed");
        return;
    }
    call->error = error;
    end(call, call->attempts > 0 ? ONCE_CLIENT_OPEN : ONCE_CLIENT_FAILED, once_error_text(error));
}

static void was_released(once_t *journal, once_answer_t *answer, void *data)
{
    finish(data); /* a claim that could not be given back runs out by itself */
}

/* Gives the claim back: the next call need not wait for the lease. */
static void end_open(once__client_call_t *call, once_client_end_t how, const char *text)
{
    once_claim_t *claim = call->claim;
    char note[ONCE__CLIENT_NOTE_SIZE];

    call->end = how;
    snprintf(call->text, sizeof(call->text), "%s", text);
    call->claim = NULL;
    once__client_note(note, once_client_end_name(how), call->expires);
    if (once_claim_release(claim, call->status, once__slice_of(note), was_released, call) !=
        ONCE_OK) {
        once_claim_drop(claim);
        finish(call);
    }
}

/* ------------------------------------------------------------------------------------------------------------- pausing */

static void on_timer(once__timer_t *timer)
{
    once__client_call_t *call = ONCE__CONTAINER(timer, once__client_call_t, timer);

    call->next_step(call);
}

static void pause_for(once__client_call_t *call, uint64_t ms, void (*step)(once__client_call_t *),
                      const char *why)
{
    once_client_t *client = call->client;

    if (client->options.pausing != NULL) {
        once_client_pause_t pause = {call->name, call->attempts, ms, why};
        client->options.pausing(client, &pause, client->options.data);
    }
    call->next_step = step;
    once__timer_set(client->loop, &call->timer, once__loop_now(client->loop) + ms);
}

/* Another process has the claim. */
static void wait_for_other(once__client_call_t *call, uint64_t rest_ms,
                           void (*step)(once__client_call_t *))
{
    uint64_t ms = rest_ms < BUSY_MS ? rest_ms + 1 : BUSY_MS;

    if (once__loop_now(call->client->loop) + ms > call->give_up) {
        end(call, ONCE_CLIENT_OPEN, "another process is making this call");
    } else {
        pause_for(call, ms, step, "another process is making this call");
    }
}

static uint64_t random_below(const once__client_call_t *call, uint64_t end)
{
    const once__env_t *env = once__loop_env(call->client->loop);
    uint64_t bits = 0;

    (void)env->random(env->data, &bits, sizeof(bits));
    return bits % end;
}

/* Full jitter: anything between nothing and the whole pause, which grows. A server that says when to come back is believed. */
static uint64_t next_pause(once__client_call_t *call, uint64_t asked_ms)
{
    const once_client_options_t *options = &call->client->options;
    uint64_t longest = options->pause_ms;

    if (asked_ms == 0) {
        longest = once__backoff(call->failures, longest, options->pause_max_ms, 0);
        call->failures += call->failures < 64;
    }
    return asked_ms + random_below(call, longest + 1);
}

/* The next attempt comes after a pause, if there is still time for it. */
static void retry_after(once__client_call_t *call, uint64_t ms, const char *why)
{
    once_client_end_t how = call->maybe_sent ? ONCE_CLIENT_OPEN : ONCE_CLIENT_UNSENT;

    if (wall(call) + ms >= call->until) {
        end_open(call, ONCE_CLIENT_LATE, why);
    } else if ((call->attempts_max != 0 && call->attempts >= call->attempts_max) ||
               once__loop_now(call->client->loop) + ms > call->give_up) {
        end_open(call, how, why);
    } else {
        pause_for(call, ms, retry, why);
    }
}

/* The attempt has no final answer. */
static void again(once__client_call_t *call, uint64_t asked_ms, const char *why)
{
    retry_after(call, next_pause(call, asked_ms), why);
}

/* After the pause. All calls together must not make too many of them: client/budget.h. */
static void retry(once__client_call_t *call)
{
    once_client_t *client = call->client;

    if (once__client_budget_take(&client->budget, once__loop_now(client->loop))) {
        send_attempt(call);
    } else {
        retry_after(call, 1 + random_below(call, BUDGET_MS), "too many calls fail");
    }
}

/* ------------------------------------------------------------------------------------------------------------- sending */

static void send_attempt(once__client_call_t *call)
{
    if (!once_claim_alive(call->claim)) { /* this process was stopped for longer than a lease */
        once_claim_drop(call->claim);
        call->claim = NULL;
        ask(call);
        return;
    }
    if (wall(call) >= call->until) {
        end_open(call, ONCE_CLIENT_LATE, "the time for it is over");
        return;
    }
    if (call->attempts++ == 0) {
        once__client_budget_earn(&call->client->budget);
    }
    if (once__client_send(call) != 0) {
        again(call, 0, once_error_text(ONCE_E_NOMEM));
    }
}

/* A trouble that time does not heal. */
static int is_hopeless(CURLcode result)
{
    switch (result) {
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_NOT_BUILT_IN:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CLIENTCERT:
    case CURLE_SSL_ISSUER_ERROR:
        return 1;
    default:
        return 0;
    }
}

static void was_recorded(once_t *journal, once_answer_t *answer, void *data)
{
    once__client_call_t *call = data;

    /* Lost, or already: another process has recorded the answer to the same key. */
    call->error = once_answer_error(answer);
    finish(call);
}

/* The final answer: into the journal, then to the caller. */
static void record(once__client_call_t *call)
{
    once_response_t response = ONCE_RESPONSE_INIT;
    once_claim_t *claim = call->claim;
    int code;

    response.status = call->status;
    response.headers = call->headers;
    response.header_count = call->header_count;
    response.body = once__slice(call->answer.data, call->answer.len);
    response.body_omitted = call->omitted;
    call->end = ONCE_CLIENT_ANSWERED;
    call->claim = NULL;
    code = once_claim_complete(claim, &response, was_recorded, call);
    if (code == ONCE_E_HEADER || code == ONCE_E_TOO_BIG) { /* no answer of ours: status and body */
        response.header_count = 0;
        code = once_claim_complete(claim, &response, was_recorded, call);
    }
    if (code != ONCE_OK) {
        once_claim_drop(claim);
        call->error = code;
        finish(call);
    }
}

/* Nothing is sent after the server has forgotten the key. */
static void heed(once__client_call_t *call, uint64_t expires)
{
    call->expires = expires < call->expires ? expires : call->expires;
    call->until = call->expires < call->until ? call->expires : call->until;
}

/* 1: the server forgets the key earlier than was known. */
static int read_expiry(once__client_call_t *call)
{
    once_slice_t text = once__client_header(call, "Idempotency-Expires");
    uint64_t known = call->expires;
    char date[64];
    time_t when;

    snprintf(date, sizeof(date), "%.*s", (int)(text.len < 60 ? text.len : 60),
             (const char *)text.data);
    when = date[0] != '\0' ? curl_getdate(date, NULL) : -1;
    if (when > 0) {
        heed(call, (uint64_t)when * 1000);
    }
    return call->expires < known;
}

static void was_noted(once_t *journal, once_answer_t *answer, void *data)
{
    int code = once_answer_error(answer);

    if (code != ONCE_OK) {
        journal_failed(data, code);
    } else {
        ask(data);
    }
}

/* Puts into the journal when the server forgets the key: the next process knows it then. */
static void note(once__client_call_t *call)
{
    once_claim_t *claim = call->claim;
    char text[ONCE__CLIENT_NOTE_SIZE];
    int code;

    call->claim = NULL;
    once__client_note(text, once_client_end_name(ONCE_CLIENT_OPEN), call->expires);
    code = once_claim_release(claim, call->status, once__slice_of(text), was_noted, call);
    if (code != ONCE_OK) {
        once_claim_drop(claim);
        journal_failed(call, code);
    }
}

static int says(once_slice_t value, const char *text)
{
    return value.len >= strlen(text) && strncasecmp(value.data, text, strlen(text)) == 0;
}

static void was_answered(once__client_call_t *call, uint64_t retry_after_ms)
{
    once__client_reply_t reply = {0};
    once__client_verdict_t verdict;
    char problem[32] = "", why[64];
    int is_earlier;

    call->replayed = says(once__client_header(call, "Idempotent-Replayed"), "true");
    call->is_problem = says(once__client_header(call, "Content-Type"), "application/problem+json");
    call->omitted |= says(once__client_header(call, "Once-Body"), "omitted");
    if (call->is_problem) {
        once__client_problem(problem, sizeof(problem), call->answer.data, call->answer.len);
    }
    reply.status = call->status;
    reply.replayed = call->replayed;
    reply.has_retry_after = once__client_header(call, "Retry-After").len > 0;
    reply.problem = problem;
    snprintf(why, sizeof(why), "the server answers %d%s%s", call->status,
             problem[0] != '\0' ? " " : "", problem);
    verdict = once__client_judge(&reply);
    is_earlier = verdict != ONCE__CLIENT_FINAL && read_expiry(call);
    switch (verdict) {
    case ONCE__CLIENT_FINAL:
        record(call);
        break;
    case ONCE__CLIENT_DENIED:
        end_open(call, ONCE_CLIENT_DENIED, why);
        break;
    case ONCE__CLIENT_UNKNOWN:
        end_open(call, ONCE_CLIENT_UNKNOWN, why);
        break;
    case ONCE__CLIENT_REDIRECTED:
        end_open(call, ONCE_CLIENT_REDIRECTED, why);
        break;
    default:
        if (is_earlier) {
            call->is_noting = 1;
            call->asked_ms = retry_after_ms;
            snprintf(call->why, sizeof(call->why), "%s", why);
            note(call);
        } else {
            again(call, retry_after_ms, why);
        }
        break;
    }
}

void once__client_call_sent(once__client_call_t *call, CURLcode result)
{
    long status = 0, sent = 0;
    curl_off_t after = 0;
    const char *why = call->trouble[0] != '\0' ? call->trouble : curl_easy_strerror(result);

    call->is_sending = 0;
    curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(call->easy, CURLINFO_REQUEST_SIZE, &sent);
    curl_easy_getinfo(call->easy, CURLINFO_RETRY_AFTER, &after);
    /* A server that demands a certificate reads no request before it has one; TLS 1.3 sends it all the same. */
    call->maybe_sent |= sent > 0 && result != CURLE_SSL_CLIENTCERT;
    call->status = result == CURLE_OK ? (int)status : 0;
    if (result != CURLE_OK) {
        call->header_count = 0;
        call->is_problem = call->replayed = 0;
        once__buf_reset(&call->answer, 0);
        if (is_hopeless(result)) {
            end_open(call, call->maybe_sent ? ONCE_CLIENT_OPEN : ONCE_CLIENT_UNSENT, why);
        } else {
            again(call, 0, why);
        }
    } else if (once__client_read_headers(call) != 0) {
        again(call, 0, once_error_text(ONCE_E_NOMEM));
    } else {
        was_answered(call, after > 0 ? (uint64_t)after * 1000 : 0);
    }
}

/* -------------------------------------------------------------------------------------------------------- the journal */

/* An intent that has ended. */
static void remember(once__client_call_t *call, const once_record_t *record)
{
    once_response_t response = ONCE_RESPONSE_INIT;
    once_client_outcome_t outcome = {0};
    char problem[32];
    int code = once_record_response(record, &response);

    if (code != ONCE_OK) {
        journal_failed(call, code);
        return;
    }
    for (size_t i = 0; i < response.header_count; i++) {
        const once_header_t *header = &response.headers[i];
        outcome.replayed |= header->name.len == strlen("Idempotent-Replayed") &&
                            says(header->name, "Idempotent-Replayed");
    }
    once__client_problem(problem, sizeof(problem), response.body.data, response.body.len);
    outcome.end = ONCE_CLIENT_ANSWERED;
    outcome.status = response.status;
    outcome.remembered = 1;
    outcome.reused = response.status == 422 && strcmp(problem, "key-reused") == 0;
    outcome.body_omitted = response.body_omitted;
    outcome.name = call->name;
    outcome.key = call->key;
    outcome.text = "";
    outcome.until = call->until;
    outcome.headers = response.headers;
    outcome.header_count = response.header_count;
    outcome.body = response.body;
    tell(call, &outcome);
}

/* Key and deadline come from the record: they are the same for whoever asks. */
static int identify(once__client_call_t *call, const once_record_t *record)
{
    call->until = once_record_time(record, ONCE_TIME_CREATED) + call->until_ms;
    heed(call, call->expires);
    call->maybe_sent |= once_record_epoch(record) > 1;
    if (call->is_key) {
        snprintf(call->key, sizeof(call->key), "%s", call->name);
        return ONCE_OK;
    }
    return once__client_key_of(record, call->key);
}

/* The claim is there, and what is known of the server's memory is in the journal. */
static void go_on(once__client_call_t *call)
{
    if (call->is_noting) {
        call->is_noting = 0;
        again(call, call->asked_ms, call->why);
    } else {
        send_attempt(call);
    }
}

static void was_read(once_t *journal, once_answer_t *answer, void *data)
{
    once__client_call_t *call = data;
    int code = once_answer_error(answer);
    uint64_t newest = UINT64_MAX;

    call->is_reading = 0;
    if (call->client->closing || code != ONCE_OK) {
        end_open(call, ONCE_CLIENT_OPEN,
                 code != ONCE_OK ? once_error_text(code) : "the client is closed");
        return;
    }
    heed(call, once__client_noted(once_answer_record(answer), &newest));
    if (call->expires < newest) {
        note(call); /* attempts come and go: the newest has it */
    } else {
        go_on(call);
    }
}

/* An earlier attempt may have been told when the server forgets the key. */
static void read_notes(once__client_call_t *call, const uint8_t *id)
{
    int code = once_record_get(call->client->journal, id, was_read, call);

    call->is_reading = code == ONCE_OK;
    if (code != ONCE_OK) {
        end_open(call, ONCE_CLIENT_OPEN, once_error_text(code));
    }
}

static void was_asked(once_t *journal, once_answer_t *answer, void *data)
{
    once__client_call_t *call = data;
    int code = once_answer_error(answer);

    if (code == ONCE_OK && (once_answer_outcome(answer) == ONCE_OUTCOME_RUN ||
                            once_answer_outcome(answer) == ONCE_OUTCOME_REPLAY)) {
        code = identify(call, once_answer_record(answer));
    }
    if (code != ONCE_OK) {
        journal_failed(call, code);
        return;
    }
    switch (once_answer_outcome(answer)) {
    case ONCE_OUTCOME_RUN:
        call->claim = once_answer_take_claim(answer);
        if (once_claim_epoch(call->claim) > 1) {
            read_notes(call, once_record_id(once_answer_record(answer)));
        } else {
            go_on(call);
        }
        break;
    case ONCE_OUTCOME_REPLAY:
        remember(call, once_answer_record(answer));
        break;
    case ONCE_OUTCOME_BUSY:
        wait_for_other(call, once_answer_retry_after_ms(answer), ask);
        break;
    case ONCE_OUTCOME_MISMATCH:
        end(call, ONCE_CLIENT_MISMATCH, "the journal has a different request under this name");
        break;
    default: /* somebody has changed the record by hand */
        end(call, ONCE_CLIENT_UNKNOWN, "the journal does not know what became of it");
        break;
    }
}

static int begin(once__client_call_t *call, int is_request, once_cb cb)
{
    once_ask_t question = once__client_ask(call, is_request);

    return once_begin(call->client->journal, &question, cb, call);
}

static void ask(once__client_call_t *call)
{
    int code = begin(call, 0, was_asked);

    if (code != ONCE_OK) {
        journal_failed(call, code);
    }
}

static void was_kept(once_t *journal, once_answer_t *answer, void *data)
{
    int code = once_answer_error(answer);

    if (code != ONCE_OK) {
        journal_failed(data, code);
    } else {
        ask(data);
    }
}

/* A request that is too large for a record is not kept: the same call goes on with it, as without keep_request. */
static void write_request(once__client_call_t *call, once_claim_t *claim)
{
    once_header_t *headers = calloc(call->line_count + 4, sizeof(*headers));
    once_response_t response = ONCE_RESPONSE_INIT;
    int code = ONCE_E_NOMEM;

    if (headers != NULL) {
        once__client_pack(call, headers, &response);
        code = once_claim_complete(claim, &response, was_kept, call);
        free(headers);
    }
    if (code != ONCE_OK) {
        once_claim_drop(claim);
        ask(call);
    }
}

static void was_keeping(once_t *journal, once_answer_t *answer, void *data)
{
    once__client_call_t *call = data;

    if (once_answer_error(answer) != ONCE_OK) {
        journal_failed(call, once_answer_error(answer));
        return;
    }
    switch (once_answer_outcome(answer)) {
    case ONCE_OUTCOME_RUN:
        write_request(call, once_answer_take_claim(answer));
        break;
    case ONCE_OUTCOME_BUSY:
        wait_for_other(call, once_answer_retry_after_ms(answer), keep);
        break;
    case ONCE_OUTCOME_MISMATCH:
        end(call, ONCE_CLIENT_MISMATCH, "the journal has a different request under this name");
        break;
    default:
        ask(call);
        break;
    }
}

static void keep(once__client_call_t *call)
{
    int code = begin(call, 1, was_keeping);

    if (code != ONCE_OK) {
        journal_failed(call, code);
    }
}

int once__client_call_start(once__client_call_t *call)
{
    call->timer.fire = on_timer;
    return call->keep_request ? begin(call, 1, was_keeping) : begin(call, 0, was_asked);
}

/* The client is being closed. What the journal still answers finds the call as it is. */
void once__client_call_abandon(once__client_call_t *call)
{
    int waits_for_journal = call->is_reading || (call->claim == NULL && call->timer.slot == 0);

    if (call->is_sending) {
        (void)curl_multi_remove_handle(once__http_client_multi(call->client->http), call->easy);
        call->is_sending = 0;
    }
    once__timer_stop(call->client->loop, &call->timer);
    if (call->claim != NULL && !waits_for_journal) {
        end_open(call, ONCE_CLIENT_OPEN, "the client is closed");
    } else if (!waits_for_journal) {
        end(call, ONCE_CLIENT_OPEN, "the client is closed");
    }
}
