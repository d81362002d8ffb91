/*
 * Records, one or many, and what people decided about them.
 */
#include <stdlib.h>
#include <string.h>

#include <once/experimental.h>

#include "base/bytes.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/record.h"
#include "cli/select.h"
#include "cli/store.h"
#include "cli/trace.h"
#include "ui/ui.h"

#define PAGE       50   /* rows that end a view */
#define STEP       128  /* looks of one step, at first; and at most, where they go over a network */
#define STEP_LOCAL 1000 /* at most, where a look is cheap */
#define QUICK_MS   5    /* a step that takes no longer may be followed by a larger one */
#define BUDGET_MS                                                                                  \
    50 /* after which no further step begins; on a busy machine the last one takes its time */
#define BODY_MAX (256 * 1024) /* of a response's body that is shown */

/* ------------------------------------------------------------------------------------------------------------- many */

typedef struct listing {
    json_t *rows;
    const char *key, *route; /* parts of them, in either case; NULL: any */
    unsigned parts;
    int broken;
} listing_t;

static int contains(once_slice_t text, const char *part)
{
    size_t len = part != NULL ? strlen(part) : 0;

    for (size_t i = 0; len > 0 && i + len <= text.len; i++) {
        if (strncasecmp((const char *)text.data + i, part, len) == 0) {
            return 1;
        }
    }
    return len == 0;
}

static int take_row(once_t *once, const once_record_t *record, void *data)
{
    listing_t *listing = data;
    once__cli_json_t json;

    (void)once;
    if (contains(once_record_key(record), listing->key) &&
        contains(once_record_description(record), listing->route)) {
        (void)once__cli_record_json(record, listing->parts, &json);
        listing->broken |= json.broken || json_array_append_new(listing->rows, json.object) != 0;
    }
    return 0;
}

static int read_duration(once__ui_request_t *request, const char *name, once__cli_number_t *number)
{
    const char *text = once__ui_parameter(request, name);

    if (text == NULL) {
        return 0;
    }
    number->given = 1;
    if (once__duration_parse(text, &number->value) != 0 || number->value == 0) {
        (void)once__ui_refuse(request, MHD_HTTP_BAD_REQUEST, "%s is not a time such as 5m or 2h",
                              name);
        return -1;
    }
    return 0;
}

/* What the store is asked for. 0, or -1 after refusing. */
static int read_filter(once__ui_request_t *request, once__cli_chosen_t *chosen)
{
    static const once__cli_command_t command = {.name = "ui"};
    once__cli_filter_t filter = {.state = once__ui_parameter(request, "state"),
                                 .stuck = once__ui_parameter(request, "stuck") != NULL,
                                 .scope_hash = once__ui_parameter(request, "scope_hash")};
    int code;

    if (read_duration(request, "older", &filter.older) != 0 ||
        read_duration(request, "younger", &filter.younger) != 0) {
        return -1;
    }
    code = once__cli_filter(&command, &filter, request->ui->once, chosen);
    if (code != ONCE__CLI_OK) {
        (void)once__ui_refuse(request, MHD_HTTP_BAD_REQUEST, "the filter is not understood");
        return -1;
    }
    return 0;
}

static int read_cursor(once__ui_request_t *request, once_page_t *page)
{
    const char *text = once__ui_parameter(request, "cursor");

    if (text != NULL && once__unhex(page->cursor, sizeof(page->cursor), text, strlen(text)) != 0) {
        (void)once__ui_refuse(request, MHD_HTTP_BAD_REQUEST, "the cursor is not one of ours");
        return -1;
    }
    return 0;
}

/* As many as should find the rest of a page, by what was found so far. */
static uint64_t looks_for(size_t rows, uint64_t looked, uint64_t step)
{
    uint64_t looks = rows > 0 ? (PAGE - rows) * (looked / rows) : looked > 0 ? step : PAGE;

    return looks > step ? step : looks > PAGE - rows ? looks : PAGE - rows;
}

/* Steps until there is a page of rows, the end, or no time left: the next request goes on. */
static int look(once__ui_request_t *request, once_page_t *page, listing_t *listing,
                uint64_t *looked, uint64_t *damaged)
{
    uint64_t begun = once__ui_now(), now = begun, before, step = STEP;
    uint64_t most = strstr(request->ui->url, "://") != NULL ? STEP : STEP_LOCAL;
    int error = ONCE_OK;

    *looked = *damaged = 0;
    do {
        once_answer_t *answer = NULL;

        page->looks = looks_for(json_array_size(listing->rows), *looked, step);
        error = once_record_page_sync(request->ui->once, page, take_row, listing, &answer);
        *looked += page->looked;
        *damaged += error == ONCE_OK ? once_answer_damaged(answer) : 0;
        once_answer_free(answer);
        before = now;
        now = once__ui_now();
        step = now - before > QUICK_MS ? STEP : 2 * step < most ? 2 * step : most;
    } while (error == ONCE_OK && !page->end && json_array_size(listing->rows) < PAGE &&
             now - begun < BUDGET_MS);
    return error;
}

json_t *once__ui_records(once__ui_request_t *request)
{
    listing_t listing = {.key = once__ui_parameter(request, "key"),
                         .route = once__ui_parameter(request, "route"),
                         .parts = request->who.role == ONCE__UI_OPERATE ? ONCE__CLI_CLAIM : 0};
    char next[2 * ONCE_CURSOR_SIZE + 1] = "";
    once__cli_chosen_t chosen;
    once_page_t page = {.filter = &chosen.filter};
    uint64_t looked, damaged;
    int error;

    if (read_filter(request, &chosen) != 0 || read_cursor(request, &page) != 0) {
        return NULL;
    }
    listing.rows = json_array();
    error = look(request, &page, &listing, &looked, &damaged);
    if (error == ONCE_OK && listing.broken) {
        error = ONCE_E_NOMEM;
    }
    if (error != ONCE_OK) {
        json_decref(listing.rows);
        if (error == ONCE_E_NOT_FOUND) {
            return once__ui_refuse(request, MHD_HTTP_GONE,
                                   "this list is no longer open: begin again");
        }
        return once__ui_failed(request, once__cli_store_failed("list the records", error));
    }
    if (!page.end) {
        once__hex(next, page.cursor, sizeof(page.cursor));
    }
    return json_pack("{s:o, s:s?, s:I, s:I}", "records", listing.rows, "cursor",
                     page.end ? NULL : next, "looked", (json_int_t)looked, "damaged",
                     (json_int_t)damaged);
}

/* -------------------------------------------------------------------------------------------------------------- one */

/* By its id, or by a key and the empty scope's or any other: the id is what the page has. */
static int read_record(once__ui_request_t *request, once_answer_t **answer)
{
    const char *text = once__ui_parameter(request, "id");
    uint8_t id[ONCE_ID_SIZE];
    int error;

    *answer = NULL;
    if (text == NULL || once__unhex(id, sizeof(id), text, strlen(text)) != 0) {
        (void)once__ui_refuse(request, MHD_HTTP_BAD_REQUEST, "a record's id has %d hex digits",
                              2 * ONCE_ID_SIZE);
        return -1;
    }
    error = once_record_get_sync(request->ui->once, id, answer);
    if (error == ONCE_E_NOT_FOUND) {
        (void)once__ui_refuse(request, MHD_HTTP_NOT_FOUND,
                              "there is no such record: it was removed, or has expired");
    } else if (error != ONCE_OK) {
        (void)once__ui_failed(request, once__cli_store_failed("read the record", error));
    }
    return error == ONCE_OK ? 0 : -1;
}

json_t *once__ui_record(once__ui_request_t *request)
{
    unsigned parts =
        ONCE__CLI_RESPONSE | (request->who.role == ONCE__UI_OPERATE ? ONCE__CLI_CLAIM : 0);
    once_answer_t *answer;
    once__cli_json_t json;
    int code;

    if (read_record(request, &answer) != 0) {
        return NULL;
    }
    code = once__cli_trace_json(request->ui->url, request->ui->once, once_answer_record(answer),
                                parts, &json);
    once_answer_free(answer);
    if (json.broken) {
        json_decref(json.object);
        return NULL;
    }
    once__cli_json_bool(&json, "incomplete", code != ONCE__CLI_OK);
    return json.object;
}

/* Bytes that are not text become U+FFFD, one each. */
static json_t *text_of(once_slice_t bytes)
{
    size_t len = bytes.len < BODY_MAX ? bytes.len : BODY_MAX, at = 0, out = 0;
    char *text = malloc(3 * len + 1);
    json_t *json;

    while (text != NULL && at < len) {
        size_t one = once__utf8_len((const char *)bytes.data + at, len - at);
        memcpy(text + out, one > 0 ? (const char *)bytes.data + at : "\xef\xbf\xbd",
               one > 0 ? one : 3);
        out += one > 0 ? one : 3;
        at += one > 0 ? one : 1;
    }
    json = text != NULL ? json_stringn(text, out) : NULL;
    free(text);
    return json;
}

json_t *once__ui_response(once__ui_request_t *request)
{
    once_response_t response = ONCE_RESPONSE_INIT;
    once_answer_t *answer;
    json_t *headers, *json = NULL;
    int error;

    if (read_record(request, &answer) != 0) {
        return NULL;
    }
    error = once_record_response(once_answer_record(answer), &response);
    if (error == ONCE_OK) {
        headers = json_array();
        for (size_t i = 0; i < response.header_count; i++) {
            (void)json_array_append_new(
                headers, json_pack("{s:o, s:o}", "name", text_of(response.headers[i].name), "value",
                                   text_of(response.headers[i].value)));
        }
        json = json_pack("{s:i, s:o, s:o, s:I, s:b, s:b}", "status", response.status, "headers",
                         headers, "body", text_of(response.body), "body_bytes",
                         (json_int_t)response.body.len, "cut", response.body.len > BODY_MAX,
                         "body_omitted", response.body_omitted);
    } else {
        (void)once__ui_refuse(request, MHD_HTTP_NOT_FOUND, "%s",
                              error == ONCE_E_NOT_FOUND ? "the record has no response"
                                                        : once_error_text(error));
    }
    once_answer_free(answer);
    return json;
}

/* ------------------------------------------------------------------------------------------------------------ audit */

typedef struct trail {
    json_t *entries;
    uint64_t faults;
} trail_t;

static int take_entry(once_t *once, const once_audit_entry_t *entry, void *data)
{
    trail_t *trail = data;
    json_t *words = json_loadb(entry->json.data, entry->json.len, 0, NULL);

    (void)once;
    trail->faults += entry->fault != ONCE_AUDIT_FINE;
    if (!json_is_object(words)) {
        json_decref(words);
        words = json_object();
    }
    (void)json_object_set_new(words, "number", json_integer((json_int_t)entry->number));
    (void)json_object_set_new(words, "fault", json_string(once_audit_fault_name(entry->fault)));
    (void)json_array_append_new(trail->entries, words);
    return 0;
}

/* A step back from the end of the trail, or from a cursor. */
json_t *once__ui_audit(once__ui_request_t *request)
{
    trail_t trail = {.entries = NULL};
    char next[2 * ONCE_CURSOR_SIZE + 1] = "";
    once_page_t page = {.end = 0};
    int error;

    if (read_cursor(request, &page) != 0) {
        return NULL;
    }
    trail.entries = json_array();
    error = once_audit_page_sync(request->ui->once, &page, take_entry, &trail, NULL);
    if (error != ONCE_OK) {
        json_decref(trail.entries);
        return once__ui_failed(request, once__cli_store_failed("read the audit trail", error));
    }
    if (!page.end) {
        once__hex(next, page.cursor, sizeof(page.cursor));
    }
    return json_pack("{s:o, s:s?, s:I}", "entries", trail.entries, "cursor", page.end ? NULL : next,
                     "faults", (json_int_t)trail.faults);
}
