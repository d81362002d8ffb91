/*
 * Decisions: about records, with the rules of `once keys settle`, and about dead events, with those of `once outbox`.
 */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "cli/record.h"
#include "cli/settle.h"
#include "cli/store.h"
#include "cli/text.h"
#include "ui/ui.h"
#if ONCE_WITH_POSTGRES
#include "cli/outbox.h"
#endif

#define ITEMS_MAX    100
#define EVENTS_LIMIT 200

static const char *text_in(const json_t *object, const char *name)
{
    return json_string_value(json_object_get(object, name));
}

/* A field of another type is no wish: a dry run that is not understood must not become a decision. 0, or -1 after refusing. */
static int check_types(once__ui_request_t *request)
{
    static const struct {
        const char *name, *type;
        json_type types[2];
    } fields[] = {
        {"dry_run", "true or false", {JSON_TRUE, JSON_FALSE}},
        {"force", "true or false", {JSON_TRUE, JSON_FALSE}},
        {"status", "an integer", {JSON_INTEGER, JSON_INTEGER}},
        {"headers", "a list", {JSON_ARRAY, JSON_ARRAY}},
        {"body", "a text", {JSON_STRING, JSON_STRING}},
    };

    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        const json_t *value = json_object_get(request->body, fields[i].name);
        if (value != NULL && json_typeof(value) != fields[i].types[0] &&
            json_typeof(value) != fields[i].types[1]) {
            (void)once__ui_refuse(request, MHD_HTTP_BAD_REQUEST, "%s is %s", fields[i].name,
                                  fields[i].type);
            return -1;
        }
    }
    return 0;
}

int once__ui_operator(once__ui_request_t *request, once__cli_operator_t *operator)
{
    operator->as = request->who.name;
    operator->note = text_in(request->body, "note");
    if (operator->note == NULL || operator->note[strspn(operator->note, " \t\r\n")] == '\0') {
        (void)once__ui_refuse(request, MHD_HTTP_BAD_REQUEST,
                              "a note is missing: why? It is kept in the audit trail");
        return -1;
    }
    if (strlen(operator->note) > ONCE_NOTE_MAX) {
        (void)once__ui_refuse(request, MHD_HTTP_BAD_REQUEST, "the note is longer than %d bytes",
                              ONCE_NOTE_MAX);
        return -1;
    }
    return 0;
}

/* ---------------------------------------------------------------------------------------------------------- records */

/* {outcome, status, headers: ["Name: value"], body, force}. It borrows from the request. 0, or -1 after refusing. */
static int read_verdict(once__ui_request_t *request, once__cli_verdict_t *verdict)
{
    static const once_response_t empty = ONCE_RESPONSE_INIT;
    const json_t *headers = json_object_get(request->body, "headers"), *line;
    const json_t *body = json_object_get(request->body, "body");
    const char *outcome = text_in(request->body, "outcome");
    json_int_t status = json_integer_value(json_object_get(request->body, "status"));
    size_t i;

    memset(verdict, 0, sizeof(*verdict));
    verdict->response = empty;
    verdict->completed = outcome != NULL && strcmp(outcome, "completed") == 0;
    verdict->force = json_is_true(json_object_get(request->body, "force"));
    if (!verdict->completed) {
        if (outcome == NULL || strcmp(outcome, "failed") != 0) {
            (void)once__ui_refuse(request, MHD_HTTP_BAD_REQUEST, "outcome is completed or failed");
            return -1;
        }
        return 0;
    }
    verdict->response.headers = verdict->headers;
    verdict->response.body = once__slice(json_string_value(body), json_string_length(body));
    if (status < 200 || status > 599) {
        (void)once__ui_refuse(request, MHD_HTTP_BAD_REQUEST,
                              "what completed has a response: its status is between 200 and 599");
        return -1;
    }
    verdict->response.status = (int)status;
    json_array_foreach(headers, i, line)
    {
        const char *text = json_string_value(line);
        if (i == ONCE__CLI_LIST_MAX || text == NULL || strlen(text) != json_string_length(line) ||
            once__cli_verdict_header(text, &verdict->headers[i]) != 0) {
            (void)once__ui_refuse(
                request, MHD_HTTP_BAD_REQUEST,
                "a header is 'Name: value' without control characters (%d at most)",
                ONCE__CLI_LIST_MAX);
            return -1;
        }
        verdict->response.header_count = i + 1;
    }
    return 0;
}

/* The record is the one that was judged, or nothing is done. Returns once__cli_exit; why not was said. */
static int judge(once__ui_request_t *request, const json_t *item, once_answer_t **answer)
{
    const char *text = text_in(item, "id"), *claim = text_in(item, "claim");
    char token[ONCE_TOKEN_SIZE];
    uint8_t id[ONCE_ID_SIZE];
    int error;

    if (text == NULL || claim == NULL || once__unhex(id, sizeof(id), text, strlen(text)) != 0) {
        once__cli_say("a record is named by its id and the claim that was judged");
        return ONCE__CLI_USAGE;
    }
    error = once_record_get_sync(request->ui->once, id, answer);
    if (error != ONCE_OK) {
        return once__cli_store_failed("read the record", error);
    }
    once_record_token(once_answer_record(*answer), token);
    if (strcmp(token, claim) != 0) {
        once__cli_say("refused: the record moved on after you looked at it; look again");
        return ONCE__CLI_REFUSED;
    }
    return ONCE__CLI_OK;
}

static int settle_one(once__ui_request_t *request, const json_t *item,
                      const once__cli_operator_t *operator, const once__cli_verdict_t * verdict,
                      json_t *results)
{
    int dry = json_is_true(json_object_get(request->body, "dry_run"));
    once_answer_t *answer = NULL;
    once_state_t state = ONCE_STATE_NONE;
    const char *id = text_in(item, "id");
    char said[600];
    int code;

    once__cli_hear(said, sizeof(said));
    code = judge(request, item, &answer);
    if (code == ONCE__CLI_OK) {
        code = once__cli_settle_check(verdict, once_answer_record(answer));
    }
    if (code == ONCE__CLI_OK && !dry) {
        code = once__cli_settle(request->ui->once, operator, verdict, once_answer_record(answer),
                                &state);
    }
    once__cli_hear(NULL, 0);
    once_answer_free(answer);
    (void)json_array_append_new(results,
                                json_pack("{s:s, s:b, s:s?, s:s?}", "id", id != NULL ? id : "",
                                          "done", code == ONCE__CLI_OK, "state",
                                          state != ONCE_STATE_NONE ? once_state_name(state) : NULL,
                                          "why", code == ONCE__CLI_OK ? NULL : said));
    return code;
}

/*
 * {items: [{id, claim}], outcome, ..., note, dry_run}: each by itself, in order; one that is refused does not stop the others. A
 * dry run says what would be refused. 409 if none was, or could be, done.
 */
json_t *once__ui_settle(once__ui_request_t *request)
{
    const json_t *items = json_object_get(request->body, "items"), *item;
    once__cli_verdict_t verdict;
    once__cli_operator_t operator;
    json_t *results;
    size_t i, done = 0;

    if (!json_is_array(items) || json_array_size(items) == 0 ||
        json_array_size(items) > ITEMS_MAX) {
        return once__ui_refuse(request, MHD_HTTP_BAD_REQUEST, "items: 1 to %d records", ITEMS_MAX);
    }
    if (check_types(request) != 0 || once__ui_operator(request, &operator) != 0 ||
        read_verdict(request, &verdict) != 0) {
        return NULL;
    }
    if (verdict.completed && json_array_size(items) > 1) {
        return once__ui_refuse(request, MHD_HTTP_BAD_REQUEST,
                               "each completed operation has its own response: one at a time");
    }
    results = json_array();
    (void)pthread_mutex_lock(&request->ui->deciding);
    json_array_foreach(items, i, item)
    {
        done += settle_one(request, item, &operator, & verdict, results) == ONCE__CLI_OK;
    }
    (void)pthread_mutex_unlock(&request->ui->deciding);
    once__ui_watch_stale(request->ui->watch);
    request->status = done > 0 ? MHD_HTTP_OK : MHD_HTTP_CONFLICT;
    return json_pack("{s:o, s:I}", "results", results, "done", (json_int_t)done);
}

static int erase(once__ui_request_t *request, const once__cli_operator_t *operator,
                 const once_record_t * record)
{
    char token[ONCE_TOKEN_SIZE];
    once_answer_t *answer = NULL;
    int code = once__cli_operator_act(request->ui->once, operator), error;

    if (code != ONCE__CLI_OK) {
        return code;
    }
    once_record_token(record, token);
    error = once_record_erase_sync(request->ui->once, token, &answer);
    if (error != ONCE_OK) {
        code = once__cli_store_failed("erase the record", error);
        code = error == ONCE_E_UNSUPPORTED ? ONCE__CLI_NO : code;
    } else if (once_answer_outcome(answer) != ONCE_OUTCOME_DONE) {
        once__cli_say("refused: the record is pending or unknown, or moved on; look again");
        code = ONCE__CLI_REFUSED;
    }
    once_answer_free(answer);
    return code;
}

/* {id, claim, note}: the texts of one record that is completed or failed. */
json_t *once__ui_erase(once__ui_request_t *request)
{
    once__cli_operator_t operator;
    once_answer_t *answer = NULL;
    int code;

    if (once__ui_operator(request, &operator) != 0) {
        return NULL;
    }
    (void)pthread_mutex_lock(&request->ui->deciding);
    code = judge(request, request->body, &answer);
    if (code == ONCE__CLI_OK) {
        code = erase(request, &operator, once_answer_record(answer));
    }
    (void)pthread_mutex_unlock(&request->ui->deciding);
    once_answer_free(answer);
    return code == ONCE__CLI_OK ? json_pack("{s:i}", "done", 1) : once__ui_failed(request, code);
}

/* ----------------------------------------------------------------------------------------------------------- events */

static int has_outbox(once__ui_request_t *request)
{
    if (strncmp(request->ui->url, "postgres", 8) == 0) {
        return 1;
    }
    (void)once__ui_refuse(request, MHD_HTTP_NOT_FOUND, "events are in PostgreSQL stores only");
    return 0;
}

#if ONCE_WITH_POSTGRES
json_t *once__ui_outbox(once__ui_request_t *request)
{
    int waiting = once__ui_parameter(request, "waiting") != NULL;
    json_t *events;
    int code;

    if (!has_outbox(request)) {
        return NULL;
    }
    code = once__cli_outbox_json(request->ui->url, waiting, EVENTS_LIMIT, &events);
    if (code != ONCE__CLI_OK) {
        json_decref(events);
        return once__ui_failed(request, code);
    }
    return json_pack("{s:o, s:i}", "events", events, "limit", EVENTS_LIMIT);
}

/* {ids, note, dry_run}: those that are still dead. The answer says how many that were, or are. */
static json_t *change(once__ui_request_t *request, int drop)
{
    const json_t *list = json_object_get(request->body, "ids"), *item;
    const char *ids[ITEMS_MAX];
    once__cli_operator_t operator;
    size_t i, count = json_array_size(list);
    int64_t changed = 0;
    int code;

    if (!has_outbox(request) || check_types(request) != 0 ||
        once__ui_operator(request, &operator) != 0) {
        return NULL;
    }
    if (count == 0 || count > ITEMS_MAX) {
        return once__ui_refuse(request, MHD_HTTP_BAD_REQUEST, "ids: 1 to %d events", ITEMS_MAX);
    }
    json_array_foreach(list, i, item)
    {
        ids[i] = json_is_string(item) ? json_string_value(item) : "";
    }
    (void)pthread_mutex_lock(&request->ui->deciding);
    code = json_is_true(json_object_get(request->body, "dry_run"))
               ? once__cli_outbox_count(request->ui->url, ids, count, &changed)
               : once__cli_outbox_decide(request->ui->url, drop, ids, count, &operator, & changed);
    (void)pthread_mutex_unlock(&request->ui->deciding);
    if (code != ONCE__CLI_OK) {
        return once__ui_failed(request, code);
    }
    return json_pack("{s:I}", "done", (json_int_t)changed);
}

json_t *once__ui_retry(once__ui_request_t *request)
{
    return change(request, 0);
}

json_t *once__ui_drop(once__ui_request_t *request)
{
    return change(request, 1);
}
#else
json_t *once__ui_outbox(once__ui_request_t *request)
{
    (void)has_outbox(request);
    return NULL;
}

json_t *once__ui_retry(once__ui_request_t *request)
{
    return once__ui_outbox(request);
}

json_t *once__ui_drop(once__ui_request_t *request)
{
    return once__ui_outbox(request);
}
#endif
