#include "cli/record.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/bytes.h"
#include "cli/text.h"

int once__cli_record_stuck(const once_record_t *record)
{
    once_state_t state = once_record_state(record);

    return state == ONCE_STATE_UNKNOWN ||
           (state == ONCE_STATE_PENDING && once_record_lease_ms(record) == 0);
}

once__cli_colour_t once__cli_record_colour(const once_record_t *record)
{
    switch (once_record_state(record)) {
    case ONCE_STATE_COMPLETED:
        return ONCE__CLI_GREEN;
    case ONCE_STATE_UNKNOWN:
        return ONCE__CLI_RED;
    default:
        return once__cli_record_stuck(record) ? ONCE__CLI_YELLOW : ONCE__CLI_PLAIN;
    }
}

static int has_lease(const once_record_t *record)
{
    once_state_t state = once_record_state(record);

    return state == ONCE_STATE_PENDING || state == ONCE_STATE_UNKNOWN;
}

once__cli_unit_text_t once__cli_record_lease(const once_record_t *record)
{
    once__cli_unit_text_t over = {"over"};
    once__cli_unit_text_t none = {"-"};
    uint64_t left = once_record_lease_ms(record);

    if (!has_lease(record)) {
        return none;
    }
    return left == 0 ? over : once__cli_duration(left);
}

once__cli_unit_text_t once__cli_record_expires(const once_record_t *record)
{
    once__cli_unit_text_t never = {"never"};
    uint64_t left = once_record_expires_ms(record);

    return left == 0 ? never : once__cli_duration(left);
}

static once__cli_unit_text_t time_text(uint64_t ms)
{
    once__cli_unit_text_t text = {"-"};
    time_t then = (time_t)(ms / 1000);
    struct tm utc;

    if (ms != 0 && gmtime_r(&then, &utc) != NULL) {
        strftime(text.text, sizeof(text.text), "%Y-%m-%dT%H:%M:%SZ", &utc);
    }
    return text;
}

once__cli_unit_text_t once__cli_record_time(const once_record_t *record, once_time_t which)
{
    return time_text(once_record_time(record, which));
}

/* -------------------------------------------------------------------------------------------------------------- JSON */

static void json_headers(const once_response_t *response, unsigned parts, once__cli_json_t *json)
{
    json_t *headers = json_array();

    for (size_t i = 0; i < response->header_count; i++) {
        once__cli_json_t header;
        once__cli_json_start(&header);
        once__cli_json_bytes(&header, "name", response->headers[i].name);
        if (parts & ONCE__CLI_HEADERS) {
            once__cli_json_bytes(&header, "value", response->headers[i].value);
        }
        json->broken |= header.broken || json_array_append_new(headers, header.object) != 0;
    }
    once__cli_json_put(json, "headers", headers);
}

static int json_response(const once_record_t *record, unsigned parts, once__cli_json_t *json)
{
    once_response_t response = ONCE_RESPONSE_INIT;
    once__cli_json_t inner;
    int code = once_record_response(record, &response);

    if (code == ONCE_E_NOT_FOUND) {
        return ONCE_OK;
    }
    if (code != ONCE_OK) {
        once__cli_json_text(json, "response_error", once_error_name(code));
        return code;
    }
    once__cli_json_start(&inner);
    once__cli_json_number(&inner, "status", (uint64_t)response.status);
    json_headers(&response, parts, &inner);
    once__cli_json_bool(&inner, "body_omitted", response.body_omitted);
    once__cli_json_number(&inner, "body_bytes", response.body.len);
    if (parts & ONCE__CLI_BODY) {
        once__cli_json_base64(&inner, "body_base64", response.body);
    }
    once__cli_json_nest(json, "response", &inner);
    return ONCE_OK;
}

static void json_time(once__cli_json_t *json, const char *name, const once_record_t *record,
                      once_time_t which)
{
    if (once_record_time(record, which) != 0) {
        once__cli_json_text(json, name, once__cli_record_time(record, which).text);
    } else {
        once__cli_json_put(json, name, json_null());
    }
}

static void json_times(const once_record_t *record, once__cli_json_t *json)
{
    uint64_t expires = once_record_expires_ms(record);

    once__cli_json_number(json, "age_ms", once_record_age_ms(record));
    once__cli_json_number(json, "idle_ms", once_record_idle_ms(record));
    json_time(json, "created", record, ONCE_TIME_CREATED);
    json_time(json, "changed", record, ONCE_TIME_CHANGED);
    json_time(json, "lease_until", record, ONCE_TIME_LEASE);
    json_time(json, "expires", record, ONCE_TIME_EXPIRES);
    once__cli_json_number(json, "lease_ms", has_lease(record) ? once_record_lease_ms(record) : 0);
    once__cli_json_put(json, "expires_ms", json_null());
    if (expires != 0) {
        once__cli_json_number(json, "expires_ms", expires);
    }
}

/* Earlier ones, if any are known. */
static void json_attempts(const once_record_t *record, once__cli_json_t *json)
{
    json_t *attempts = json_array();
    once_attempt_t attempt = ONCE_ATTEMPT_INIT;

    for (unsigned n = 0; once_record_attempt(record, n, &attempt) == ONCE_OK; n++) {
        once__cli_json_t inner;
        once__cli_json_start(&inner);
        once__cli_json_number(&inner, "epoch", attempt.epoch);
        once__cli_json_text(&inner, "state", once_state_name(attempt.state));
        once__cli_json_text(&inner, "ended", time_text(attempt.ended).text);
        once__cli_json_bytes(&inner, "cause", attempt.cause);
        once__cli_json_bytes(&inner, "holder", attempt.holder);
        json->broken |= inner.broken || json_array_append_new(attempts, inner.object) != 0;
    }
    if (json_array_size(attempts) > 0) {
        once__cli_json_put(json, "attempts", attempts);
    } else {
        json_decref(attempts);
    }
}

int once__cli_record_json(const once_record_t *record, unsigned parts, once__cli_json_t *json)
{
    char token[ONCE_TOKEN_SIZE];

    once__cli_json_start(json);
    once__cli_json_hex(json, "id", once_record_id(record), ONCE_ID_SIZE);
    once__cli_json_text(json, "state", once_state_name(once_record_state(record)));
    once__cli_json_bool(json, "stuck", once__cli_record_stuck(record));
    once__cli_json_bytes(json, "key", once_record_key(record));
    if (once_record_is_erased(record)) {
        once__cli_json_bool(json, "erased", 1);
    }
    once__cli_json_hex(json, "scope_hash", once_record_scope_hash(record), ONCE_SCOPE_HASH_SIZE);
    once__cli_json_bytes(json, "description", once_record_description(record));
    once__cli_json_bytes(json, "holder", once_record_holder(record));
    once__cli_json_bytes(json, "cause", once_record_cause(record));
    once__cli_json_put(json, "subject_hash", json_null());
    if (once_record_subject(record) != NULL) {
        once__cli_json_hex(json, "subject_hash", once_record_subject(record), ONCE_SUBJECT_SIZE);
    }
    once__cli_json_number(json, "epoch", once_record_epoch(record));
    json_attempts(record, json);
    once__cli_json_hex(json, "claim_id", once_record_claim_id(record), ONCE_CLAIM_ID_SIZE);
    once__cli_json_text(json, "policy", once_recover_name(once_record_recover(record)));
    once__cli_json_number(json, "status", (uint64_t)once_record_status(record));
    once__cli_json_bytes(json, "note", once_record_note(record));
    json_times(record, json);
    once__cli_json_number(json, "bytes", once_record_bytes(record));
    if (parts & ONCE__CLI_CLAIM) {
        once_record_token(record, token);
        once__cli_json_text(json, "claim", token);
    }
    return parts & ONCE__CLI_RESPONSE ? json_response(record, parts, json) : ONCE_OK;
}

/* -------------------------------------------------------------------------------------------------------------- text */

static void field(const char *name, const char *value)
{
    printf("%-12s %s\n", name, value);
}

static void field_bytes(const char *name, once_slice_t bytes)
{
    char text[ONCE__CLI_ESCAPED_SIZE(ONCE_DESCRIPTION_MAX)];

    once__cli_escape(text, sizeof(text), bytes);
    field(name, text);
}

static void field_hex(const char *name, const uint8_t *bytes, size_t len)
{
    char text[2 * ONCE_ID_SIZE + 1];

    once__hex(text, bytes, len);
    field(name, text);
}

/* A line only if it is known. */
static void field_known(const char *name, once_slice_t bytes)
{
    if (bytes.len > 0) {
        field_bytes(name, bytes);
    }
}

static void field_time(const char *name, const char *text, const once_record_t *record,
                       once_time_t which)
{
    if (once_record_time(record, which) == 0) {
        field(name, text);
    } else {
        printf("%-12s %s (%s)\n", name, text, once__cli_record_time(record, which).text);
    }
}

static const char *meaning(const once_record_t *record)
{
    switch (once_record_state(record)) {
    case ONCE_STATE_PENDING:
        return once__cli_record_stuck(record) ? "claimed, but its holder went silent"
                                              : "claimed; its holder is working";
    case ONCE_STATE_COMPLETED:
        return "took effect; the response is replayed";
    case ONCE_STATE_FAILED:
        return "did not take effect; can be claimed again";
    case ONCE_STATE_UNKNOWN:
        return "may or may not have taken effect";
    default:
        return "?";
    }
}

static void text_state(const once_record_t *record)
{
    printf("%-12s %s%s%s (%s)\n", "state",
           once__cli_colour(stdout, once__cli_record_colour(record)),
           once_state_name(once_record_state(record)), once__cli_colour(stdout, ONCE__CLI_PLAIN),
           meaning(record));
}

static void text_header(const once_header_t *header, unsigned parts)
{
    char name[256];
    char value[1024];

    once__cli_escape(name, sizeof(name), header->name);
    once__cli_escape(value, sizeof(value), header->value);
    printf("%-12s %s%s%s\n", "  header", name, parts & ONCE__CLI_HEADERS ? ": " : "",
           parts & ONCE__CLI_HEADERS ? value : "");
}

static int text_response(const once_record_t *record, unsigned parts)
{
    once_response_t response = ONCE_RESPONSE_INIT;
    int code = once_record_response(record, &response);

    if (code == ONCE_E_NOT_FOUND) {
        return ONCE_OK;
    }
    if (code != ONCE_OK) {
        field("response", once_error_text(code));
        return code;
    }
    printf("%-12s %d, %s\n", "response", response.status,
           response.body_omitted == ONCE_BODY_ERASED ? "erased"
           : response.body_omitted                   ? "its body was not stored"
                                                     : "with this body and these headers:");
    if (!response.body_omitted) {
        field("  body", once__cli_size(response.body.len).text);
    }
    for (size_t i = 0; i < response.header_count; i++) {
        text_header(&response.headers[i], parts);
    }
    return ONCE_OK;
}

static void text_failure(const once_record_t *record)
{
    if (once_record_state(record) != ONCE_STATE_COMPLETED && once_record_status(record) != 0) {
        printf("%-12s %d\n", "status", once_record_status(record));
    }
}

static void field_key(const once_record_t *record)
{
    if (once_record_is_erased(record)) {
        field("key", "(erased)");
    } else {
        field_bytes("key", once_record_key(record));
    }
}

/* Earlier ones, the newest first, as far as they are kept. */
static void text_attempts(const once_record_t *record)
{
    once_attempt_t attempt = ONCE_ATTEMPT_INIT;

    for (unsigned n = 0; once_record_attempt(record, n, &attempt) == ONCE_OK; n++) {
        char cause[ONCE__CLI_ESCAPED_SIZE(ONCE_CAUSE_MAX)], holder[ONCE__CLI_ESCAPED_SIZE(64)];
        once__cli_escape(cause, sizeof(cause), attempt.cause);
        once__cli_escape(holder, sizeof(holder), attempt.holder);
        printf("%-12s %" PRIu32 ", %s %s%s%s%s%s\n", "  attempt", attempt.epoch,
               once_state_name(attempt.state), time_text(attempt.ended).text,
               cause[0] != '\0' ? ", " : "", cause, holder[0] != '\0' ? ", by " : "", holder);
    }
}

int once__cli_record_text(const once_record_t *record, unsigned parts)
{
    char token[ONCE_TOKEN_SIZE];

    field_hex("record", once_record_id(record), ONCE_ID_SIZE);
    text_state(record);
    field_known("cause", once_record_cause(record));
    field_known("what", once_record_description(record));
    field_known("holder", once_record_holder(record));
    field_key(record);
    field_hex("scope hash", once_record_scope_hash(record), ONCE_SCOPE_HASH_SIZE);
    if (once_record_subject(record) != NULL) {
        field_hex("subject hash", once_record_subject(record), ONCE_SUBJECT_SIZE);
    }
    printf("%-12s %" PRIu32 "\n", "epoch", once_record_epoch(record));
    text_attempts(record);
    field_hex("claim id", once_record_claim_id(record), ONCE_CLAIM_ID_SIZE);
    if (parts & ONCE__CLI_CLAIM) {
        once_record_token(record, token);
        field("claim", token);
    }
    field("policy", once_recover_name(once_record_recover(record)));
    field_time("age", once__cli_duration(once_record_age_ms(record)).text, record,
               ONCE_TIME_CREATED);
    field_time("last change", once__cli_duration(once_record_idle_ms(record)).text, record,
               ONCE_TIME_CHANGED);
    field_time("lease", once__cli_record_lease(record).text, record, ONCE_TIME_LEASE);
    field_time("expires in", once__cli_record_expires(record).text, record, ONCE_TIME_EXPIRES);
    field("size", once__cli_size(once_record_bytes(record)).text);
    text_failure(record);
    return parts & ONCE__CLI_RESPONSE ? text_response(record, parts) : ONCE_OK;
}

void once__cli_record_brief(const once_record_t *record)
{
    field_hex("record", once_record_id(record), ONCE_ID_SIZE);
    field_key(record);
    text_state(record);
    field_known("cause", once_record_cause(record));
    field_known("what", once_record_description(record));
    printf("%-12s %" PRIu32 ", policy %s, age %s, last change %s ago, lease %s\n", "epoch",
           once_record_epoch(record), once_recover_name(once_record_recover(record)),
           once__cli_duration(once_record_age_ms(record)).text,
           once__cli_duration(once_record_idle_ms(record)).text,
           once__cli_record_lease(record).text);
    text_failure(record);
}
