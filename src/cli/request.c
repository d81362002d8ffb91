#include "cli/request.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/bytes.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/cli.h"
#include "cli/file.h"
#include "cli/text.h"

#define HEADERS_MAX ((size_t)200)
#define LINES_MAX   ((size_t)256 * 1024) /* of a file of headers */

/* ------------------------------------------------------------------------------------------------------------ headers */

int once__cli_is_credential(const char *name, size_t len)
{
    static const char *const parts[] = {"authorization", "cookie",   "token",     "secret",
                                        "api-key",       "password", "signature", "credential"};
    char text[80];

    snprintf(text, sizeof(text), "%.*s", (int)(len < 79 ? len : 79), name);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (strcasestr(text, parts[i]) != NULL) {
            return 1;
        }
    }
    return 0;
}

static int no_memory(void)
{
    once__cli_say("out of memory, or more than %zu headers", HEADERS_MAX);
    return ONCE__CLI_STORE;
}

static int add(once__cli_headers_t *list, once_slice_t name, once_slice_t value)
{
    once_header_t *items =
        once__grow(list->items, &list->room, list->count + 1, sizeof(*items), HEADERS_MAX);
    char *text = items != NULL ? malloc(name.len + value.len + 1) : NULL;

    list->items = items != NULL ? items : list->items;
    if (text == NULL) {
        return no_memory();
    }
    memcpy(text, name.data, name.len);
    if (value.len > 0) {
        memcpy(text + name.len, value.data, value.len);
    }
    items[list->count].name = once__slice(text, name.len);
    items[list->count++].value = once__slice(text + name.len, value.len);
    return ONCE__CLI_OK;
}

int once__cli_request_add(once__cli_request_t *request, once_slice_t name, once_slice_t value)
{
    int is_credential = once__cli_is_credential(name.data, name.len);

    return add(is_credential ? &request->credentials : &request->headers, name, value);
}

static int add_line(once__cli_request_t *request, const char *line, size_t len, int is_credential)
{
    size_t name = 0, at;

    while (name < len && line[name] != ':' && line[name] != ';') {
        name++;
    }
    at = name + 1;
    while (at < len && (line[at] == ' ' || line[at] == '\t')) {
        at++;
    }
    if (!once__is_token(line, name) || name >= len || (line[name] == ';' && at < len) ||
        (line[name] == ':' && at >= len) || !once__is_field_value(line, len)) {
        once__cli_say("a header is not \"Name: value\", or \"Name;\" for one without a value");
        return ONCE__CLI_USAGE;
    }
    is_credential |= once__cli_is_credential(line, name);
    return add(is_credential ? &request->credentials : &request->headers, once__slice(line, name),
               once__slice(line + at, at < len ? len - at : 0));
}

static int add_file(once__cli_request_t *request, const char *path)
{
    once__cli_bytes_t bytes;
    int code = once__cli_read_file(path, LINES_MAX, &bytes);
    char *rest = bytes.data, *line;

    while (code == ONCE__CLI_OK && (line = strsep(&rest, "\n")) != NULL) {
        size_t len = strcspn(line, "\r");
        if (len > 0) {
            code = add_line(request, line, len, 1);
        }
    }
    once__cli_bytes_free(&bytes);
    return code;
}

int once__cli_request_header(once__cli_request_t *request, const char *line)
{
    return line[0] == '@' ? add_file(request, line + 1) : add_line(request, line, strlen(line), 0);
}

int once__cli_request_expand(once__cli_request_t *request, const char *line)
{
    once__buf_t text = ONCE__BUF(LINES_MAX);
    const char *open;
    int code = ONCE__CLI_OK;

    while (code == ONCE__CLI_OK && (open = strstr(line, "{{")) != NULL) {
        const char *close = strstr(open, "}}");
        char name[128];
        const char *value;
        if (close == NULL || (size_t)(close - open) - 2 >= sizeof(name)) {
            break;
        }
        snprintf(name, sizeof(name), "%.*s", (int)(close - open - 2), open + 2);
        value = getenv(name);
        if (value == NULL || value[0] == '\0') {
            once__cli_say("the variable %s of --expand-header is not set",
                          once__cli_shown(name).text);
            code = ONCE__CLI_USAGE;
        } else {
            (void)once__buf_add(&text, line, (size_t)(open - line));
            (void)once__buf_add(&text, value, strlen(value));
            line = close + 2;
        }
    }
    (void)once__buf_add(&text, line, strlen(line));
    if (code == ONCE__CLI_OK) {
        code = text.error == ONCE_OK ? add_line(request, text.data, text.len, 1) : no_memory();
    }
    once__buf_free(&text);
    return code;
}

static int has(const once__cli_headers_t *list, once_slice_t name)
{
    for (size_t i = 0; i < list->count; i++) {
        if (list->items[i].name.len == name.len &&
            strncasecmp(list->items[i].name.data, name.data, name.len) == 0) {
            return 1;
        }
    }
    return 0;
}

int once__cli_request_default(once__cli_request_t *request, const char *name, const char *value)
{
    if (has(&request->headers, once__slice_of(name)) ||
        has(&request->credentials, once__slice_of(name))) {
        return ONCE__CLI_OK;
    }
    return add(&request->headers, once__slice_of(name), once__slice_of(value));
}

/* `own`: how many were there before. */
static int join(once__cli_headers_t *list, size_t own, const once__cli_headers_t *others)
{
    int code = ONCE__CLI_OK;

    for (size_t i = 0; code == ONCE__CLI_OK && i < others->count; i++) {
        once__cli_headers_t before = {list->items, own, 0};
        if (!has(&before, others->items[i].name)) {
            code = add(list, others->items[i].name, others->items[i].value);
        }
    }
    return code;
}

int once__cli_request_join(once__cli_request_t *request, const once__cli_request_t *common)
{
    int code = join(&request->headers, request->headers.count, &common->headers);

    return code == ONCE__CLI_OK
               ? join(&request->credentials, request->credentials.count, &common->credentials)
               : code;
}

static void free_headers(once__cli_headers_t *list)
{
    for (size_t i = 0; i < list->count; i++) {
        free((void *)(uintptr_t)list->items[i].name.data);
    }
    free(list->items);
    memset(list, 0, sizeof(*list));
}

void once__cli_request_free(once__cli_request_t *request)
{
    free_headers(&request->headers);
    free_headers(&request->credentials);
    once__buf_free(&request->body);
}

/* --------------------------------------------------------------------------------------------------------------- body */

int once__cli_request_data(once__cli_request_t *request, const char *text, int is_form)
{
    once__cli_bytes_t bytes = {0};
    int code = ONCE__CLI_OK;

    if (is_form && request->body.len > 0) {
        (void)once__buf_add(&request->body, "&", 1);
    }
    if (text[0] == '@') {
        code = once__cli_read_file(text + 1, ONCE__CLI_BODY_MAX, &bytes);
        for (size_t i = 0; code == ONCE__CLI_OK && i < bytes.len; i++) {
            if (!is_form || (bytes.data[i] != '\n' && bytes.data[i] != '\r')) {
                (void)once__buf_add(&request->body, &bytes.data[i], 1);
            }
        }
        once__cli_bytes_free(&bytes);
    } else {
        (void)once__buf_add(&request->body, text, strlen(text));
    }
    if (code == ONCE__CLI_OK && request->body.error != ONCE_OK) {
        once__cli_say("the body is too large, or out of memory");
        return ONCE__CLI_USAGE;
    }
    return code;
}

/* ------------------------------------------------------------------------------------------------------------ outcomes */

int once__cli_outcome_exit(const once_client_outcome_t *outcome)
{
    switch (outcome->end) {
    case ONCE_CLIENT_ANSWERED:
        if (outcome->status < 400) {
            return outcome->status < 300 ? ONCE__CLI_OK : ONCE__CLI_REDIRECTED;
        }
        if (outcome->reused) {
            return ONCE__CLI_REFUSED;
        }
        return outcome->status < 500 ? ONCE__CLI_NO : ONCE__CLI_SERVER;
    case ONCE_CLIENT_UNKNOWN:
        return ONCE__CLI_UNKNOWN;
    case ONCE_CLIENT_DENIED:
        return ONCE__CLI_DENIED;
    case ONCE_CLIENT_REDIRECTED:
        return ONCE__CLI_REDIRECTED;
    case ONCE_CLIENT_UNSENT:
        return ONCE__CLI_UNSENT;
    case ONCE_CLIENT_OPEN:
        return ONCE__CLI_OPEN;
    case ONCE_CLIENT_LATE:
        return ONCE__CLI_LATE;
    case ONCE_CLIENT_MISMATCH:
        return ONCE__CLI_REFUSED;
    default:
        return ONCE__CLI_STORE;
    }
}

int once__cli_worse_exit(int a, int b)
{
    static const int order[] = {ONCE__CLI_OK,         ONCE__CLI_NO,      ONCE__CLI_SERVER,
                                ONCE__CLI_REDIRECTED, ONCE__CLI_DENIED,  ONCE__CLI_REFUSED,
                                ONCE__CLI_USAGE,      ONCE__CLI_UNSENT,  ONCE__CLI_OPEN,
                                ONCE__CLI_LATE,       ONCE__CLI_UNKNOWN, ONCE__CLI_STORE};
    int worst = ONCE__CLI_OK;

    for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
        worst = order[i] == a || order[i] == b ? order[i] : worst;
    }
    return worst;
}

static json_t *headers_json(const once_client_outcome_t *outcome)
{
    json_t *list = json_array();

    for (size_t i = 0; list != NULL && i < outcome->header_count; i++) {
        const once_header_t *header = &outcome->headers[i];
        json_t *value = json_stringn(header->value.data, header->value.len);
        if (value == NULL) { /* not UTF-8: a header that says so little is left out */
            continue;
        }
        if (json_array_append_new(list, json_pack("[o, o]",
                                                  json_stringn(header->name.data, header->name.len),
                                                  value)) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

void once__cli_outcome_json(once__cli_json_t *json, const once_client_outcome_t *outcome)
{
    char until[ONCE__TIME_SIZE];

    once__cli_json_bytes(json, "name", once__slice_of(outcome->name));
    once__cli_json_text(json, "end", once_client_end_name(outcome->end));
    once__cli_json_number(json, "exit", (uint64_t)once__cli_outcome_exit(outcome));
    once__cli_json_number(json, "attempts", outcome->attempts);
    if (outcome->key[0] != '\0') {
        once__cli_json_text(json, "key", outcome->key);
        once__time_format(until, outcome->until);
        once__cli_json_text(json, "until", until);
    }
    if (outcome->text[0] != '\0') {
        once__cli_json_bytes(json, "text", once__slice_of(outcome->text));
    }
    if (outcome->error != ONCE_OK) {
        once__cli_json_text(json, "error", once_error_name(outcome->error));
    }
    if (outcome->status != 0) {
        once__cli_json_number(json, "status", (uint64_t)outcome->status);
        once__cli_json_bool(json, "replayed", outcome->replayed);
        once__cli_json_bool(json, "remembered", outcome->remembered);
        once__cli_json_bool(json, "body_omitted", outcome->body_omitted != 0);
        once__cli_json_put(json, "headers", headers_json(outcome));
        once__cli_json_bytes(json, "body", outcome->body);
    }
}
