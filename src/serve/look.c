/*
 * What a record says: get, recorded, derive.
 */
#include <string.h>

#include "cli/record.h"
#include "serve/internal.h"

/* The record that the request is about. Returns ONCE_OK, or why not. */
static int find_id(once__serve_request_t *request)
{
    const once__serve_input_t *input = &request->input;

    if (input->given & (ONCE__SERVE_CLAIM | ONCE__SERVE_ID)) {
        memcpy(request->id, input->id, ONCE_ID_SIZE);
        return ONCE_OK;
    }
    return once_record_id_of(request->serve->once, input->scope, input->key, request->id);
}

static void look(once__serve_request_t *request, once_cb cb)
{
    int code = find_id(request);

    if (code == ONCE_OK) {
        once__serve_request_ref(request);
        code = once_record_get(request->serve->once, request->id, cb, request);
        if (code == ONCE_OK) {
            return;
        }
        once__serve_request_unref(request);
    }
    once__serve_fail(request, code, NULL);
}

/* Is the record still under the claim of the request? */
static int is_same_claim(const once__serve_request_t *request, const once_record_t *record)
{
    char token[ONCE_TOKEN_SIZE];

    once_record_token(record, token);
    return strcmp(token, request->input.claim) == 0;
}

/* ONCE_OK and the record (NULL: there is none), or the error, which is answered. */
static int looked(once__serve_request_t *request, once_answer_t *answer,
                  const once_record_t **record)
{
    int error = once_answer_error(answer);

    *record = NULL;
    once__serve_report_store(request->serve, error);
    if (error == ONCE_OK) {
        *record = once_answer_record(answer);
    } else if (error != ONCE_E_NOT_FOUND) {
        once__serve_fail(request, error, NULL);
        return error;
    }
    return ONCE_OK;
}

/* Exactly one way to name the record. */
static int check_names(once__serve_request_t *request, unsigned other, const char *wrong)
{
    unsigned given = request->input.given;
    int by_key = (given & (ONCE__SERVE_KEY | ONCE__SERVE_SCOPE)) != 0;

    if (((given & other) != 0) == by_key || (by_key && !(given & ONCE__SERVE_KEY))) {
        once__serve_fail(request, ONCE_E_INVALID, wrong);
        return -1;
    }
    return 0;
}

/* ----------------------------------------------------------------------------------------------------------------- get */

static void got(once_t *once, once_answer_t *answer, void *data)
{
    once__serve_request_t *request = data;
    const once_record_t *record;
    once__cli_json_t json;

    (void)once;
    if (looked(request, answer, &record) == ONCE_OK) {
        if (record == NULL) {
            once__serve_answer(request, json_pack("{s:b}", "found", 0));
        } else {
            (void)once__cli_record_json(record, ONCE__CLI_RESPONSE | ONCE__CLI_CLAIM, &json);
            if (json.broken) {
                json_decref(json.object);
                json.object = NULL;
            }
            once__serve_answer(request, json_pack("{s:b, s:o}", "found", 1, "record", json.object));
        }
    }
    once__serve_request_unref(request);
}

void once__serve_get(once__serve_request_t *request)
{
    if (check_names(request, ONCE__SERVE_ID, "give \"scope\" and \"key\", or \"id\"") == 0) {
        look(request, got);
    }
}

/* ------------------------------------------------------------------------------------------------------------ recorded */

static void answer_recorded(once__serve_request_t *request, const once_record_t *record)
{
    int same = record != NULL && is_same_claim(request, record);
    int recorded = same && once_record_state(record) == ONCE_STATE_COMPLETED;
    json_t *json = json_pack("{s:b}", "recorded", recorded);
    int code = ONCE_OK;

    if (recorded) {
        code = once__serve_put_response(json, record);
    } else {
        const char *state = record == NULL ? once_state_name(ONCE_STATE_NONE)
                            : same         ? once_state_name(once_record_state(record))
                                           : once_outcome_name(ONCE_OUTCOME_LOST);
        (void)json_object_set_new(json, "state", json_string(state));
    }
    if (code != ONCE_OK) {
        json_decref(json);
        once__serve_fail(request, code, NULL);
    } else {
        once__serve_answer(request, json);
    }
}

static void read_recorded(once_t *once, once_answer_t *answer, void *data)
{
    once__serve_request_t *request = data;
    const once_record_t *record;

    (void)once;
    if (looked(request, answer, &record) == ONCE_OK) {
        answer_recorded(request, record);
    }
    once__serve_request_unref(request);
}

void once__serve_recorded(once__serve_request_t *request)
{
    look(request, read_recorded);
}

/* -------------------------------------------------------------------------------------------------------------- derive */

static void derived(once_t *once, once_answer_t *answer, void *data)
{
    once__serve_request_t *request = data;
    const once_record_t *record;
    once_error_t err = {0};
    once_key_t key;
    int code;

    (void)once;
    if (looked(request, answer, &record) == ONCE_OK) {
        if (request->input.claim != NULL && (record == NULL || !is_same_claim(request, record))) {
            once__serve_answer(request, json_pack("{s:s}", "outcome", "lost"));
        } else if (record == NULL) {
            once__serve_answer(request, json_pack("{s:b}", "found", 0));
        } else {
            code = once_record_derive(record, request->input.step, &key, &err);
            if (code == ONCE_OK) {
                once__serve_answer(request, json_pack("{s:s}", "key", key.text));
            } else {
                once__serve_fail(request, code, err.text);
            }
        }
    }
    once__serve_request_unref(request);
}

void once__serve_derive(once__serve_request_t *request)
{
    if (check_names(request, ONCE__SERVE_CLAIM, "give \"claim\", or \"scope\" and \"key\"") == 0) {
        look(request, derived);
    }
}
