/*
 * The end of a claim, and its renewal by the caller. A claim that the server keeps is ended as it is; any other is adopted by its
 * text, whichever server or program was granted it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "serve/internal.h"

/* ------------------------------------------------------------------------------------------------------------- the end */

static void answer_end(once__serve_request_t *request, once_answer_t *answer)
{
    static const char *const judgements[] = {[ONCE_JUDGEMENT_RECORD] = "record",
                                             [ONCE_JUDGEMENT_RELEASE] = "release",
                                             [ONCE_JUDGEMENT_DOUBT] = "doubt",
                                             [ONCE_JUDGEMENT_EARLY] = "release"};
    once_outcome_t outcome = once_answer_outcome(answer);
    json_t *json;
    int code = ONCE_OK;

    if (outcome != ONCE_OUTCOME_DONE && outcome != ONCE_OUTCOME_ALREADY &&
        outcome != ONCE_OUTCOME_LOST) {
        once__serve_fail(request, ONCE_E_NEWER, NULL);
        return;
    }
    json = json_pack("{s:s}", "outcome", once_outcome_name(outcome));
    if (request->judgement != 0) {
        (void)json_object_set_new(json, "judgement", json_string(judgements[request->judgement]));
    }
    if (outcome != ONCE_OUTCOME_DONE) {
        code = once__serve_put_response(json, once_answer_record(answer));
    }
    if (code != ONCE_OK) {
        json_decref(json);
        once__serve_fail(request, code, NULL);
        return;
    }
    once__serve_answer(request, json);
}

static void ended(once_t *once, once_answer_t *answer, void *data)
{
    once__serve_request_t *request = data;
    int error = once_answer_error(answer);

    (void)once;
    once__serve_report_store(request->serve, error);
    if (error != ONCE_OK) { /* the write goes on: asked again, it is done or already */
        once__serve_fail(request, error, NULL);
    } else {
        answer_end(request, answer);
    }
    once__serve_wake(request->serve, request->id);
    once__serve_request_unref(request);
}

static int end_claim(once__serve_request_t *request, once_claim_t *claim, once_judgement_t how,
                     int status, once_slice_t text)
{
    once_response_t response = request->input.response;

    switch (how) {
    case ONCE_JUDGEMENT_RECORD:
        response.retain_ms = request->input.retain_ms;
        return once_claim_complete(claim, &response, ended, request);
    case ONCE_JUDGEMENT_RELEASE:
        return once_claim_release(claim, status, text, ended, request);
    case ONCE_JUDGEMENT_EARLY:
        return once_claim_release_early(claim, status, text, ended, request);
    default:
        return once_claim_doubt(claim, text, ended, request);
    }
}

/* `kept` is the claim if the server keeps it; NULL: it is adopted. A request that is refused leaves the claim as it was. */
static void submit(once__serve_request_t *request, once__serve_kept_t *kept, once_judgement_t how,
                   int status, once_slice_t text)
{
    once_claim_t *adopted = NULL;
    int code = ONCE_OK;

    memcpy(request->id, request->input.id, ONCE_ID_SIZE);
    if (kept == NULL) {
        code = once_claim_adopt(request->serve->once, request->input.claim, ONCE_LEASE_GRANTED,
                                &adopted);
    }
    once__serve_request_ref(request);
    if (code == ONCE_OK) {
        code = end_claim(request, kept != NULL ? kept->claim : adopted, how, status, text);
    }
    if (code == ONCE_OK) {
        if (kept != NULL) {
            (void)once__serve_kept_take(kept); /* the claim is the library's now */
        }
        return;
    }
    once_claim_drop(adopted);
    once__serve_fail(request, code, NULL);
    once__serve_request_unref(request);
}

static void end_as(once__serve_request_t *request, once_judgement_t how, once_slice_t text)
{
    submit(request, once__serve_kept_find(request->serve, request->input.claim), how,
           (int)request->input.status, text);
}

void once__serve_complete(once__serve_request_t *request)
{
    end_as(request, ONCE_JUDGEMENT_RECORD, request->input.note);
}

void once__serve_release(once__serve_request_t *request)
{
    end_as(request, request->input.early ? ONCE_JUDGEMENT_EARLY : ONCE_JUDGEMENT_RELEASE,
           request->input.note);
}

void once__serve_doubt(once__serve_request_t *request)
{
    end_as(request, ONCE_JUDGEMENT_DOUBT, request->input.cause);
}

/* -------------------------------------------------------------------------------------------------------------- finish */

/* The same words as the gateway's, for operators. */
static void submit_judged(once__serve_request_t *request, once__serve_kept_t *kept,
                          once_judgement_t how)
{
    int status = request->input.response.status;
    char why[40];

    request->judgement = how;
    (void)snprintf(why, sizeof(why), "status %d", status);
    if (how == ONCE_JUDGEMENT_EARLY) {
        (void)snprintf(why, sizeof(why), "refused before any effect");
    } else if (request->input.verdict == ONCE_VERDICT_UNKNOWN) {
        (void)snprintf(why, sizeof(why), "verdict unknown");
    }
    submit(request, kept, how, status, once__slice_of(why));
}

/* The claim's own policy is in its record. If there is none, the claim is lost, whatever is judged. */
static void judge_by_record(once_t *once, once_answer_t *answer, void *data)
{
    once__serve_request_t *request = data;
    const once__serve_settings_t *set = request->serve->settings;
    int error = once_answer_error(answer);
    const once_record_t *record = error == ONCE_OK ? once_answer_record(answer) : NULL;

    (void)once;
    once__serve_report_store(request->serve, error);
    if (error != ONCE_OK && error != ONCE_E_NOT_FOUND) {
        once__serve_fail(request, error, NULL);
    } else {
        int is_hold = record == NULL || once_record_recover(record) == ONCE_RECOVER_HOLD;
        submit_judged(request, NULL,
                      once_policy_judge(is_hold ? set->hold : set->retry,
                                        request->input.response.status,
                                        (once_verdict_t)request->input.verdict));
    }
    once__serve_request_unref(request);
}

void once__serve_finish(once__serve_request_t *request)
{
    const once__serve_settings_t *set = request->serve->settings;
    int status = request->input.response.status;
    once_verdict_t verdict = (once_verdict_t)request->input.verdict;
    once_judgement_t strict = once_policy_judge(set->hold, status, verdict);
    once__serve_kept_t *kept = once__serve_kept_find(request->serve, request->input.claim);
    int code;

    if (kept != NULL) {
        submit_judged(request, kept, once_claim_judge(kept->claim, set->retry, status, verdict));
        return;
    }
    if (strict == once_policy_judge(set->retry, status, verdict)) {
        submit_judged(request, NULL, strict);
        return;
    }
    memcpy(request->id, request->input.id, ONCE_ID_SIZE);
    once__serve_request_ref(request);
    code = once_record_get(request->serve->once, request->id, judge_by_record, request);
    if (code != ONCE_OK) {
        once__serve_fail(request, code, NULL);
        once__serve_request_unref(request);
    }
}

/* --------------------------------------------------------------------------------------------------------------- renew */

/* One of the claims of a request. */
typedef struct once__serve_renewal {
    once__serve_request_t *request;
    once_claim_t *adopted; /* NULL: the claim is kept */
    once_outcome_t outcome;
} once__serve_renewal_t;

static void answer_renewals(once__serve_request_t *request)
{
    size_t count = json_array_size(request->input.claims);
    json_t *list = json_array();

    if (request->renew_error != ONCE_OK) {
        json_decref(list);
        once__serve_fail(request, request->renew_error, NULL);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        int done = request->renewals[i].outcome == ONCE_OUTCOME_DONE;
        (void)json_array_append_new(list, json_string(done ? "done" : "lost"));
    }
    once__serve_answer(request, json_pack("{s:o}", "outcomes", list));
}

/* One is over; when it is the last, the request is answered. */
static void renewal_over(once__serve_request_t *request, int error)
{
    if (error != ONCE_OK) {
        request->renew_error = error;
    }
    if (--request->renewing == 0) {
        answer_renewals(request);
    }
    once__serve_request_unref(request);
}

static void renewed(once_t *once, once_answer_t *answer, void *data)
{
    once__serve_renewal_t *renewal = data;
    int error = once_answer_error(answer);

    (void)once;
    renewal->outcome = once_answer_outcome(answer);
    once_claim_drop(renewal->adopted);
    renewal->adopted = NULL;
    once__serve_report_store(renewal->request->serve, error);
    renewal_over(renewal->request, error);
}

static int renew_one(once__serve_renewal_t *renewal, const char *token)
{
    once__serve_request_t *request = renewal->request;
    once__serve_kept_t *kept = once__serve_kept_find(request->serve, token);
    int code;

    if (kept != NULL && request->input.lease_ms == 0) {
        return once_claim_renew(kept->claim, renewed, renewal);
    }
    code = once_claim_adopt(request->serve->once, token,
                            request->input.lease_ms != 0 ? request->input.lease_ms
                                                         : ONCE_LEASE_GRANTED,
                            &renewal->adopted);
    if (code == ONCE_OK) {
        code = once_claim_renew(renewal->adopted, renewed, renewal);
    }
    if (code != ONCE_OK) {
        once_claim_drop(renewal->adopted);
        renewal->adopted = NULL;
    }
    return code;
}

void once__serve_renew(once__serve_request_t *request)
{
    size_t count = json_array_size(request->input.claims);

    request->renewals = calloc(count + 1, sizeof(*request->renewals));
    if (request->renewals == NULL) {
        once__serve_fail(request, ONCE_E_NOMEM, NULL);
        return;
    }
    request->renewing = 1; /* until all are begun */
    once__serve_request_ref(request);
    for (size_t i = 0; i < count; i++) {
        const char *token = json_string_value(json_array_get(request->input.claims, i));
        int code;
        request->renewals[i].request = request;
        request->renewing++;
        once__serve_request_ref(request);
        code = renew_one(&request->renewals[i], token);
        if (code != ONCE_OK) {
            renewal_over(request, code);
        }
    }
    renewal_over(request, ONCE_OK);
}
