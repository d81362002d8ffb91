/*
 * Answers: JSON objects, and problems (RFC 9457).
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "serve/internal.h"

/* ----------------------------------------------------------------------------------------------------------- responses */

/* Header values can have any byte; those that are not UTF-8 are taken as ISO 8859-1, as HTTP once defined them. */
static json_t *header_text(once_slice_t bytes)
{
    json_t *text = json_stringn(bytes.len > 0 ? bytes.data : "", bytes.len);
    const unsigned char *from = bytes.data;
    size_t len = 0;
    char *utf8;

    if (text != NULL) {
        return text;
    }
    utf8 = calloc(2, bytes.len + 1);
    for (size_t i = 0; utf8 != NULL && i < bytes.len; i++) {
        if (from[i] < 0x80) {
            utf8[len++] = (char)from[i];
        } else {
            utf8[len++] = (char)(0xc0 | from[i] >> 6);
            utf8[len++] = (char)(0x80 | (from[i] & 0x3f));
        }
    }
    text = utf8 != NULL ? json_stringn(utf8, len) : NULL;
    free(utf8);
    return text;
}

/* A text if it is one, else its base64. */
static int put_body(json_t *json, once_slice_t body)
{
    json_t *text = json_stringn(body.len > 0 ? body.data : "", body.len);
    char *base64;
    int failed;

    if (text != NULL) {
        return json_object_set_new(json, "body", text);
    }
    base64 = malloc((body.len + 2) / 3 * 4 + 1);
    if (base64 == NULL) {
        return -1;
    }
    once__base64(base64, body.data, body.len);
    failed = json_object_set_new(json, "body_base64", json_string_nocheck(base64));
    free(base64);
    return failed;
}

static int put_omitted(json_t *json, int omitted)
{
    return json_object_set_new(json, "body_omitted",
                               omitted == ONCE_BODY_ERASED ? json_string("erased") : json_true());
}

static json_t *response_json(const once_response_t *response)
{
    json_t *headers = json_array();
    json_t *json = json_pack("{s:i, s:o}", "status", response->status, "headers", headers);
    int failed = json == NULL;

    for (size_t i = 0; !failed && i < response->header_count; i++) {
        failed = json_array_append_new(headers,
                                       json_pack("[o, o]", header_text(response->headers[i].name),
                                                 header_text(response->headers[i].value)));
    }
    if (!failed) {
        failed = response->body_omitted ? put_omitted(json, response->body_omitted)
                                        : put_body(json, response->body);
    }
    if (failed) {
        json_decref(json);
        return NULL;
    }
    return json;
}

int once__serve_put_response(json_t *json, const once_record_t *record)
{
    once_response_t response = ONCE_RESPONSE_INIT;
    json_t *inner;
    int code = record != NULL ? once_record_response(record, &response) : ONCE_E_NOT_FOUND;

    if (code == ONCE_E_NOT_FOUND) {
        return ONCE_OK;
    }
    if (code != ONCE_OK) {
        return code;
    }
    inner = response_json(&response);
    return json_object_set_new(json, "response", inner) == 0 ? ONCE_OK : ONCE_E_NOMEM;
}

/* ------------------------------------------------------------------------------------------------------------- answers */

char *once__serve_text(json_t *json)
{
    char *text = json != NULL ? json_dumps(json, JSON_COMPACT) : NULL;

    json_decref(json);
    return text;
}

static void set_answer(once__serve_request_t *request, unsigned status, char *text)
{
    once__serve_t *serve = request->serve;

    if (request->status != 0) {
        free(text);
        return;
    }
    request->status = status;
    request->text = text;
    if (request->is_suspended) {
        request->is_suspended = 0;
        serve->has_answers = 1;
        MHD_resume_connection(request->line->connection);
    }
}

void once__serve_answer_text(once__serve_request_t *request, char *text)
{
    if (text == NULL) {
        once__serve_fail(request, ONCE_E_NOMEM, NULL);
        return;
    }
    set_answer(request, MHD_HTTP_OK, text);
}

void once__serve_answer(once__serve_request_t *request, json_t *json)
{
    once__serve_answer_text(request, once__serve_text(json));
}

static unsigned status_of(int code)
{
    switch (code) {
    case ONCE_E_INVALID:
    case ONCE_E_KEY:
    case ONCE_E_HEADER:
        return MHD_HTTP_BAD_REQUEST;
    case ONCE_E_TOO_BIG:
        return MHD_HTTP_CONTENT_TOO_LARGE;
    case ONCE_E_UNAVAILABLE:
    case ONCE_E_NOREPLY:
    case ONCE_E_FULL:
    case ONCE_E_NOMEM:
    case ONCE_E_CLOSED:
    case ONCE_E_CONFLICT:
        return MHD_HTTP_SERVICE_UNAVAILABLE;
    default:
        return MHD_HTTP_INTERNAL_SERVER_ERROR;
    }
}

static const char *title_of(unsigned status)
{
    switch (status) {
    case MHD_HTTP_BAD_REQUEST:
        return "The request is malformed";
    case MHD_HTTP_UNAUTHORIZED:
        return "A token is needed";
    case MHD_HTTP_NOT_FOUND:
        return "There is no such operation";
    case MHD_HTTP_METHOD_NOT_ALLOWED:
        return "The operation needs another method";
    case MHD_HTTP_CONTENT_TOO_LARGE:
        return "The request is too big";
    case MHD_HTTP_SERVICE_UNAVAILABLE:
        return "The operation cannot be done now";
    default:
        return "The operation failed";
    }
}

void once__serve_problem(once__serve_request_t *request, unsigned status, int code,
                         const char *detail)
{
    const char *name = once_error_name(code);
    char type[64];
    size_t len;
    json_t *json;

    len = (size_t)snprintf(type, sizeof(type), "urn:once:serve:%s",
                           strncmp(name, "ONCE_E_", 7) == 0 ? name + 7 : name);
    for (size_t i = strlen("urn:once:serve:"); i < len; i++) {
        type[i] = type[i] == '_' ? '-' : (char)tolower((unsigned char)type[i]);
    }
    json =
        json_pack("{s:s, s:s, s:i, s:s, s:s, s:b}", "type", type, "title", title_of(status),
                  "status", (int)status, "detail", detail != NULL ? detail : once_error_text(code),
                  "code", name, "retryable", status == MHD_HTTP_SERVICE_UNAVAILABLE);
    request->is_problem = 1;
    request->retry_after_s = status == MHD_HTTP_SERVICE_UNAVAILABLE;
    once__service_metric_count(
        status < 500 ? request->serve->counters.refused : request->serve->counters.failed, 1);
    set_answer(request, status, once__serve_text(json)); /* without a text the connection ends */
}

void once__serve_fail(once__serve_request_t *request, int code, const char *detail)
{
    once__serve_problem(request, status_of(code), code, detail);
}
