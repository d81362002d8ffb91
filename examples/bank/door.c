#include "door.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <once/postgres.h>

/* What an error of once means for the transaction. Those of the server begin with its SQLSTATE. */
static db_end_t end_of(db_t *db, int code, const once_error_t *error)
{
    char state[6] = "";

    if (code == ONCE_OK) {
        return DB_OK;
    }
    if (error->text[5] == ':') {
        memcpy(state, error->text, 5);
        return db_judge(db, state, error->text + 5 + strspn(error->text + 5, ": "));
    }
    if (code == ONCE_E_UNAVAILABLE) {
        return DB_AGAIN;
    }
    fprintf(stderr, "bank: once says: %s\n", error->text);
    return DB_FAILED;
}

static once_slice_t slice(const char *text)
{
    once_slice_t s = {text, strlen(text)};

    return s;
}

/* --------------------------------------------------------------------------------------------------------------- claim */

/* The recorded answer, as it was given the first time. */
static void replay(const once_pg_answer_t *reply, answer_t *answer)
{
    once_response_t response = ONCE_RESPONSE_INIT;

    if (once_pg_response(reply, &response) != ONCE_OK) {
        answer_problem(answer, 409, "answered", "this request was answered before");
        return;
    }
    answer_bytes(answer, response.status, NULL, response.body.data, response.body.len);
    for (size_t i = 0; i < response.header_count; i++) {
        const once_header_t *h = &response.headers[i];
        answer_header_bytes(answer, h->name.data, h->name.len, h->value.data, h->value.len);
    }
    answer_header(answer, "Idempotent-Replayed", "true");
}

static void tell_busy(uint64_t after_ms, answer_t *answer)
{
    answer_later(answer, 409, "in-flight", "a request with this key is being worked on", NULL,
                 (unsigned)(after_ms / 1000) + 1);
}

static void not_run(const once_pg_answer_t *reply, answer_t *answer)
{
    switch (once_pg_outcome(reply)) {
    case ONCE_OUTCOME_REPLAY:
        replay(reply, answer);
        break;
    case ONCE_OUTCOME_MISMATCH:
        answer_problem(answer, 422, "key-reused", "this key was used for another request");
        break;
    case ONCE_OUTCOME_BUSY:
        tell_busy(once_pg_retry_after_ms(reply), answer);
        break;
    default:
        answer_problem(answer, 409, "outcome-unknown", "nobody knows what became of this key");
    }
}

static db_end_t ask(bank_t *bank, db_t *db, const request_t *request, once_pg_answer_t **reply)
{
    once_ask_t question = ONCE_ASK_INIT;
    once_error_t error = {0};

    question.scope = slice(request->customer);
    question.key = slice(request->key->text);
    question.method = slice(request->method);
    question.target = slice(request->target);
    question.bytes.data = request->body;
    question.bytes.len = request->body_len;
    question.policy = bank->policy;
    question.claim_id = request->claim_id;
    return end_of(db, once_pg_claim(db_conn(db), &question, 0, reply, &error), &error);
}

db_end_t door_claim(bank_t *bank, db_t *db, const request_t *request, char claim[BANK_CLAIM_MAX],
                    answer_t *answer)
{
    once_pg_answer_t *reply = NULL;
    db_end_t end;

    snprintf(claim, BANK_CLAIM_MAX, "%s", request->claim);
    if (claim[0] != '\0') {
        return DB_OK;
    }
    end = ask(bank, db, request, &reply);
    if (end == DB_BUSY) { /* another transaction has had the key for all that time */
        tell_busy(0, answer);
        return DB_OK;
    }
    if (end == DB_OK) {
        snprintf(claim, BANK_CLAIM_MAX, "%s", once_pg_token(reply));
        if (claim[0] == '\0') {
            not_run(reply, answer);
        }
    }
    once_pg_answer_free(reply);
    return end;
}

db_end_t door_recorded(db_t *db, const char *claim, answer_t *answer)
{
    once_pg_answer_t *reply = NULL;
    once_error_t error = {0};
    db_end_t end;

    db_rollback(db);
    end = end_of(db, once_pg_recorded(db_conn(db), claim, &reply, &error), &error);
    if (end == DB_OK) {
        replay(reply, answer);
    }
    once_pg_answer_free(reply);
    return end;
}

/* ---------------------------------------------------------------------------------------------- in the transaction */

db_end_t door_complete(db_t *db, const char *claim, const answer_t *answer)
{
    once_response_t response = ONCE_RESPONSE_INIT;
    once_header_t headers[ANSWER_HEADERS_MAX];
    once_error_t error = {0};

    for (size_t i = 0; i < answer->header_count; i++) {
        headers[i].name = slice(answer->headers[i].name);
        headers[i].value = slice(answer->headers[i].value);
    }
    response.status = answer->status;
    response.headers = headers;
    response.header_count = answer->header_count;
    response.body.data = answer->body;
    response.body.len = answer->body_len;
    return end_of(db, once_pg_complete(db_conn(db), claim, &response, &error), &error);
}

db_end_t door_emit(db_t *db, once_pg_event_t *event, const char *traceparent, json_t *payload)
{
    json_t *headers =
        traceparent[0] != '\0' ? json_pack("{s:s}", "traceparent", traceparent) : NULL;
    char *of_headers = json_dumps(headers, JSON_COMPACT);
    char *text = json_dumps(payload, JSON_COMPACT);
    once_error_t error = {0};
    db_end_t end = DB_FAILED;

    if (text != NULL) {
        event->payload = slice(text);
        event->headers = of_headers;
        end = end_of(db, once_pg_emit(db_conn(db), event, NULL, &error), &error);
    }
    free(text);
    free(of_headers);
    json_decref(headers);
    json_decref(payload);
    return end;
}

db_end_t door_lock(db_t *db, const char *natural_key)
{
    once_error_t error = {0};

    return end_of(db, once_pg_lock(db_conn(db), natural_key, &error), &error);
}

/* --------------------------------------------------------------------------------------------- work in several steps */

db_end_t door_resume(db_t *db, const char *claim, char name[32], json_t **state)
{
    once_pg_step_t *step = NULL;
    once_error_t error = {0};
    db_end_t end = end_of(db, once_pg_resume(db_conn(db), claim, &step, &error), &error);

    name[0] = '\0';
    *state = NULL;
    if (end == DB_OK && step != NULL) {
        snprintf(name, 32, "%s", step->name);
        *state = step->state != NULL ? json_loads(step->state, 0, NULL) : NULL;
    }
    once_pg_step_free(step);
    return end;
}

db_end_t door_checkpoint(db_t *db, const char *claim, const char *name, const json_t *state)
{
    char *text = json_dumps(state, JSON_COMPACT);
    once_error_t error = {0};
    db_end_t end = DB_FAILED;

    if (text != NULL) {
        end = end_of(db, once_pg_checkpoint(db_conn(db), claim, name, text, &error), &error);
    }
    free(text);
    return end;
}

db_end_t door_renew(db_t *db, const char *claim)
{
    once_error_t error = {0};

    return end_of(db, once_pg_renew(db_conn(db), claim, 0, &error), &error);
}

db_end_t door_doubt(db_t *db, const char *claim)
{
    once_error_t error = {0};

    return end_of(db, once_pg_doubt(db_conn(db), claim, 0, &error), &error);
}
