/*
 * From the command line to a run: files read, bodies derived, URLs resolved, secrets remembered.
 */
#include "judge/internal.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"
#include "cli/file.h"
#include "cli/text.h"

#define BODY_MAX      (16 * 1024 * 1024)
#define HEADERS_MAX   65536
#define LINE_MAX_LEN  4000
#define LARGE_DEFAULT (256 * 1024)
#define TIMEOUT_MS    10000
#define PATIENCE_MS   10000
#define DEADLINE_MS   120000
#define REQUESTS_MAX  300
#define AT_ONCE       8
#define LONGEST_MS    3600000
#define SECRET_MIN    4 /* shorter ones would hide half of what is printed */
#define EXTRA_MEMBER  "once_conformance"

/* ---------------------------------------------------------------------------------------------------------- bodies */

/* "@FILE", "@-" or the text itself. */
static int read_text(const char *text, size_t max, once__judge_bytes_t *bytes)
{
    once__cli_bytes_t file;
    int code;

    if (text == NULL) {
        return ONCE__CLI_OK;
    }
    if (text[0] == '@') {
        code = once__cli_read_file(text + 1, max, &file);
        bytes->data = file.data;
        bytes->len = file.len;
        return code;
    }
    bytes->data = strdup(text);
    bytes->len = strlen(text);
    if (bytes->data == NULL) {
        once__cli_say("out of memory");
    }
    return bytes->data != NULL ? ONCE__CLI_OK : ONCE__CLI_STORE;
}

static const char *type_of(const once__judge_t *judge)
{
    for (char **line = judge->header_lines; line != NULL && *line != NULL; line++) {
        if (once__judge_line_is(*line, "content-type")) {
            return *line + strlen("content-type:");
        }
    }
    return judge->type != NULL ? judge->type : "";
}

/*
 * The body with one more member, whose value is `fill` letters and `last`: in a JSON object or a form. The bytes that are there
 * stay as they are. Leaves `out` empty if the body is neither.
 */
static int extend(const once__judge_t *judge, size_t fill, char last, once__judge_bytes_t *out)
{
    int form = strcasestr(type_of(judge), "x-www-form-urlencoded") != NULL;
    json_t *json =
        json_loadb(judge->body.data != NULL ? judge->body.data : "", judge->body.len, 0, NULL);
    int is_object = json_is_object(json), has_members = json_object_size(json) > 0;
    size_t at = judge->body.len;
    int len;

    json_decref(json);
    if (judge->body.len == 0 || (!form && !is_object)) {
        return ONCE__CLI_OK;
    }
    while (!form && judge->body.data[at - 1] != '}') {
        at--;
    }
    at -= form ? 0 : 1;
    out->data = malloc(judge->body.len + fill + 64);
    if (out->data == NULL) {
        once__cli_say("out of memory");
        return ONCE__CLI_STORE;
    }
    memcpy(out->data, judge->body.data, at);
    len = snprintf(out->data + at, 64, form ? "&" EXTRA_MEMBER "=" : "%s\"" EXTRA_MEMBER "\":\"",
                   has_members ? "," : "");
    memset(out->data + at + len, 'x', fill);
    out->len = at + (size_t)len + fill;
    out->data[out->len++] = last;
    if (!form) {
        memcpy(out->data + out->len, "\"}", 2);
        out->len += 2;
    }
    return ONCE__CLI_OK;
}

static int derive_bodies(once__judge_t *judge)
{
    const once__judge_options_t *set = judge->options;
    uint64_t large = set->large.given ? set->large.value : LARGE_DEFAULT;
    json_t *json;
    int code = ONCE__CLI_OK;

    if (judge->body.len > 0 && type_of(judge)[0] == '\0') {
        json = json_loadb(judge->body.data, judge->body.len, JSON_DECODE_ANY, NULL);
        judge->type = json != NULL ? "application/json" : "application/octet-stream";
        json_decref(json);
    }
    if (judge->other_body.data == NULL) {
        code = extend(judge, 4, 'y', &judge->other_body);
    }
    if (code == ONCE__CLI_OK && large > 0) {
        code = extend(judge, (size_t)large, 'a', &judge->large_body);
    }
    if (code == ONCE__CLI_OK && large > 0) {
        code = extend(judge, (size_t)large, 'b', &judge->large_other_body);
    }
    return code;
}

static int read_bodies(once__judge_t *judge)
{
    const once__judge_options_t *set = judge->options;
    const struct {
        const char *text;
        once__judge_bytes_t *bytes;
    } bodies[] = {{set->body, &judge->body},
                  {set->other_body, &judge->other_body},
                  {set->refused_body, &judge->refused_body},
                  {set->failing_body, &judge->failing_body},
                  {set->slow_body, &judge->slow_body}};
    int code = ONCE__CLI_OK;

    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]) && code == ONCE__CLI_OK; i++) {
        code = read_text(bodies[i].text, BODY_MAX, bodies[i].bytes);
    }
    return code == ONCE__CLI_OK ? derive_bodies(judge) : code;
}

/* --------------------------------------------------------------------------------------------------------- headers */

/* Headers of the judge's own, and those that would make the request another one. */
static const char *const own[] = {
    "content-length", "transfer-encoding", "connection", "expect", "host", NULL};

static int check_line(const once__judge_t *judge, const once__cli_command_t *command,
                      const char *line)
{
    size_t len = strcspn(line, ":");

    if (line[len] != ':' || strlen(line) > LINE_MAX_LEN || !once__is_token(line, len) ||
        !once__is_field_value(line + len + 1, strlen(line + len + 1))) {
        return once__cli_usage(command,
                               "a header must be \"NAME: VALUE\", or @FILE with such lines");
    }
    for (const char *const *name = own; *name != NULL; name++) {
        if (once__judge_line_is(line, *name)) {
            return once__cli_usage(command, "the header %s is the judge's own", *name);
        }
    }
    if (once__judge_line_is(line, judge->key_header)) {
        return once__cli_usage(command, "the judge makes the keys: leave out the header %s",
                               judge->key_header);
    }
    return ONCE__CLI_OK;
}

static int add_line(char ***lines, size_t *count, const char *text, size_t len)
{
    char **longer = realloc(*lines, (*count + 2) * sizeof(*longer));
    char *copy = strndup(text, len);

    if (longer != NULL) {
        *lines = longer;
    }
    if (longer == NULL || copy == NULL) {
        free(copy);
        once__cli_say("out of memory");
        return ONCE__CLI_STORE;
    }
    longer[(*count)++] = copy;
    longer[*count] = NULL;
    return ONCE__CLI_OK;
}

/* The lines of a header option: itself, or those of a file. */
static int add_lines(const char *item, char ***lines, size_t *count)
{
    once__judge_bytes_t bytes = {NULL, 0};
    int code = read_text(item, HEADERS_MAX, &bytes);

    for (char *at = bytes.data; code == ONCE__CLI_OK && at != NULL && *at != '\0';) {
        size_t len = strcspn(at, "\r\n");
        if (*count == ONCE__CLI_LIST_MAX) {
            once__cli_say("more than %d headers", ONCE__CLI_LIST_MAX);
            code = ONCE__CLI_USAGE;
        } else if (len > 0) {
            code = add_line(lines, count, at, len);
        }
        at += len;
        at += strspn(at, "\r\n");
    }
    free(bytes.data);
    return code;
}

static int read_headers(once__judge_t *judge, const once__cli_command_t *command,
                        const once__cli_list_t *list, char ***lines)
{
    size_t count = 0;
    int code = ONCE__CLI_OK;

    for (size_t i = 0; i < list->count && code == ONCE__CLI_OK; i++) {
        code = add_lines(list->items[i], lines, &count);
    }
    for (size_t i = 0; i < count && code == ONCE__CLI_OK; i++) {
        code = check_line(judge, command, (*lines)[i]);
    }
    return code;
}

/* --------------------------------------------------------------------------------------------------------- secrets */

static void remember(once__judge_t *judge, const char *secret)
{
    if (secret != NULL && strlen(secret) >= SECRET_MIN &&
        judge->secret_count < ONCE__JUDGE_SECRETS_MAX) {
        judge->secrets[judge->secret_count++] = secret;
    }
}

/* The value, and its last word: the token of "Bearer TOKEN". */
static void remember_values(once__judge_t *judge, char *const *lines)
{
    for (; lines != NULL && *lines != NULL; lines++) {
        const char *value = *lines + strcspn(*lines, ":");
        const char *word = strrchr(*lines, ' ');

        value += strspn(value, ": \t");
        if (!once__judge_line_is(*lines, "content-type") &&
            !once__judge_line_is(*lines, "accept")) {
            remember(judge, value);
            if (word != NULL && word + 1 > value) {
                remember(judge, word + 1);
            }
        }
    }
}

/* ------------------------------------------------------------------------------------------------------------- URLs */

static char *part(CURLU *url, CURLUPart which)
{
    char *text = NULL;

    return curl_url_get(url, which, &text, CURLU_DEFAULT_PORT) == CURLUE_OK ? text : NULL;
}

static int same(CURLU *a, CURLU *b, CURLUPart which)
{
    char *one = part(a, which), *other = part(b, which);
    int equal = one != NULL && other != NULL && strcasecmp(one, other) == 0;

    curl_free(one);
    curl_free(other);
    return equal;
}

static int is_http(CURLU *url)
{
    char *scheme = part(url, CURLUPART_SCHEME);
    int yes =
        scheme != NULL && (strcasecmp(scheme, "http") == 0 || strcasecmp(scheme, "https") == 0);

    curl_free(scheme);
    return yes;
}

/* Without credentials, and without the query, which may hold some. */
static char *make_shown(CURLU *url)
{
    CURLU *copy = curl_url_dup(url);
    char *query = part(url, CURLUPART_QUERY), *text = NULL, *shown = NULL;

    if (copy != NULL) {
        curl_url_set(copy, CURLUPART_USER, NULL, 0);
        curl_url_set(copy, CURLUPART_PASSWORD, NULL, 0);
        curl_url_set(copy, CURLUPART_QUERY, NULL, 0);
        curl_url_set(copy, CURLUPART_FRAGMENT, NULL, 0);
        if (curl_url_get(copy, CURLUPART_URL, &text, 0) == CURLUE_OK) {
            shown = malloc(strlen(text) + 8);
        }
    }
    if (shown != NULL) {
        snprintf(shown, strlen(text) + 8, "%s%s", text, query != NULL ? "?..." : "");
    }
    curl_free(text);
    curl_free(query);
    curl_url_cleanup(copy);
    return shown;
}

static int resolve_effects(once__judge_t *judge, const once__cli_command_t *command, CURLU *url)
{
    CURLU *there = curl_url_dup(url);
    char *text = NULL;
    int ok = there != NULL &&
             curl_url_set(there, CURLUPART_URL, judge->options->effect_url, 0) == CURLUE_OK &&
             is_http(there) && curl_url_get(there, CURLUPART_URL, &text, 0) == CURLUE_OK;

    if (ok) {
        judge->effect_url = strdup(text);
        judge->effect_is_foreign = !same(url, there, CURLUPART_SCHEME) ||
                                   !same(url, there, CURLUPART_HOST) ||
                                   !same(url, there, CURLUPART_PORT);
    }
    curl_free(text);
    curl_url_cleanup(there);
    return judge->effect_url != NULL
               ? ONCE__CLI_OK
               : once__cli_usage(command, "--effect-url must be a path or an http:// URL");
}

static int read_urls(once__judge_t *judge, const once__cli_command_t *command)
{
    CURLU *url = curl_url();
    int code = ONCE__CLI_OK;

    if (url == NULL || curl_url_set(url, CURLUPART_URL, judge->url, 0) != CURLUE_OK ||
        !is_http(url)) {
        code = once__cli_usage(command,
                               "the API's address must be http://HOST/PATH or https://HOST/PATH");
    }
    if (code == ONCE__CLI_OK) {
        judge->shown_url = make_shown(url);
        judge->password = part(url, CURLUPART_PASSWORD);
        remember(judge, judge->password);
        if (judge->options->effect_url != NULL) {
            code = resolve_effects(judge, command, url);
        }
    }
    curl_url_cleanup(url);
    if (code == ONCE__CLI_OK && judge->shown_url == NULL) {
        once__cli_say("out of memory");
        return ONCE__CLI_STORE;
    }
    return code;
}

/* ----------------------------------------------------------------------------------------------------------- numbers */

static int read_numbers(once__judge_t *judge, const once__cli_command_t *command)
{
    const once__judge_options_t *set = judge->options;

    judge->timeout_ms = set->timeout.given ? set->timeout.value : TIMEOUT_MS;
    judge->patience_ms = set->patience.given ? set->patience.value : PATIENCE_MS;
    judge->deadline_ms = set->deadline.given ? set->deadline.value : DEADLINE_MS;
    judge->requests_max = set->requests.given ? set->requests.value : REQUESTS_MAX;
    judge->at_once = set->at_once != 0 ? (unsigned)set->at_once : AT_ONCE;
    if (judge->timeout_ms == 0 || judge->timeout_ms > LONGEST_MS || judge->deadline_ms == 0 ||
        judge->deadline_ms > LONGEST_MS) {
        return once__cli_usage(command, "--timeout and --deadline must be between 1ms and 1h");
    }
    if (set->large.given && set->large.value > BODY_MAX) {
        return once__cli_usage(command, "--large must be at most 16m");
    }
    if (set->at_once > ONCE__JUDGE_AT_ONCE_MAX || set->at_once == 1) {
        return once__cli_usage(command, "--threads must be between 2 and %d for an API",
                               ONCE__JUDGE_AT_ONCE_MAX);
    }
    if (set->effect_pointer != NULL && set->effect_url == NULL) {
        return once__cli_usage(command, "--effect-pointer needs --effect-url");
    }
    if (set->effect_pointer != NULL && set->effect_pointer[0] != '/') {
        return once__cli_usage(command, "--effect-pointer must be a JSON pointer such as /count");
    }
    return ONCE__CLI_OK;
}

int once__judge_set_up(once__judge_t *judge, const once__cli_command_t *command, const char *url,
                       const once__judge_options_t *options)
{
    char uuid[ONCE_UUID_SIZE];
    int code;

    judge->options = options;
    judge->url = url;
    judge->method = options->method != NULL ? options->method : "POST";
    judge->key_header = options->key_header != NULL ? options->key_header : "Idempotency-Key";
    judge->profile = once__judge_profile_find(options->profile);
    if (judge->profile == NULL) {
        return once__cli_usage(command, "--profile must be one of %s", once__judge_profile_names());
    }
    if (!once__is_token(judge->method, strlen(judge->method)) ||
        !once__is_token(judge->key_header, strlen(judge->key_header))) {
        return once__cli_usage(command, "--method and --key-header must be names without spaces");
    }
    if (once_key_uuid4(uuid) != ONCE_OK) {
        once__cli_say("there is no randomness for keys");
        return ONCE__CLI_STORE;
    }
    snprintf(judge->prefix, sizeof(judge->prefix), "judge-%.13s", uuid);
    code = read_numbers(judge, command);
    code = code == ONCE__CLI_OK ? read_urls(judge, command) : code;
    code = code == ONCE__CLI_OK
               ? read_headers(judge, command, &options->headers, &judge->header_lines)
               : code;
    code = code == ONCE__CLI_OK
               ? read_headers(judge, command, &options->other_headers, &judge->other_lines)
               : code;
    remember_values(judge, judge->header_lines);
    remember_values(judge, judge->other_lines);
    return code == ONCE__CLI_OK ? read_bodies(judge) : code;
}

static void free_lines(char **lines)
{
    for (char **line = lines; line != NULL && *line != NULL; line++) {
        free(*line);
    }
    free(lines);
}

void once__judge_free(once__judge_t *judge)
{
    once__judge_bytes_t *const bodies[] = {
        &judge->body,      &judge->other_body, &judge->refused_body,    &judge->failing_body,
        &judge->slow_body, &judge->large_body, &judge->large_other_body};

    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
        free(bodies[i]->data);
    }
    free_lines(judge->header_lines);
    free_lines(judge->other_lines);
    free(judge->shown_url);
    free(judge->effect_url);
    curl_free(judge->password);
}
