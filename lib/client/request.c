/*
 * A call out of a request: checked, copied, with the text that its fingerprint is made of.
 */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/text.h"
#include "client/internal.h"

#define LINES_MAX  ((size_t)200)
#define TARGET_MAX ((size_t)60 * 1024) /* what once_begin takes is 64 KiB */
#define UNTIL_MS   ((uint64_t)24 * 3600 * 1000)
#define KEEP_MS    ((uint64_t)7 * 24 * 3600 * 1000)
#define TIME_MAX   ((uint64_t)3650 * 24 * 3600 * 1000 / 2) /* two of them are a policy's longest */

/* What the client itself says about the request. */
static const char *const ours[] = {"Idempotency-Key", "Content-Length", "Transfer-Encoding",
                                   "Expect"};

static int check_header(const once_header_t *header, once_error_t *err)
{
    if (!once__is_token(header->name.data, header->name.len) || header->name.len > 200 ||
        !once__is_field_value(header->value.data, header->value.len)) {
        return once__fail(err, ONCE_E_HEADER,
                          "a header has an invalid name, or control characters in its value");
    }
    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++) {
        if (header->name.len == strlen(ours[i]) &&
            strncasecmp(header->name.data, ours[i], header->name.len) == 0) {
            return once__fail(err, ONCE_E_HEADER, "the client sets %s itself%s", ours[i],
                              i == 0 ? "; give the key as the key" : "");
        }
    }
    return ONCE_OK;
}

static int check_url(const char *url, once_error_t *err)
{
    CURLU *parts = curl_url();
    char *scheme = NULL, *user = NULL;
    int code = ONCE_OK;

    if (parts == NULL) {
        return once__fail(err, ONCE_E_NOMEM, "%s", once_error_text(ONCE_E_NOMEM));
    }
    if (curl_url_set(parts, CURLUPART_URL, url, 0) != CURLUE_OK ||
        curl_url_get(parts, CURLUPART_SCHEME, &scheme, 0) != CURLUE_OK ||
        (strcmp(scheme, "http") != 0 && strcmp(scheme, "https") != 0)) {
        code =
            once__fail(err, ONCE_E_CONFIG, "the URL must be http://HOST/... or https://HOST/...");
    } else if (curl_url_get(parts, CURLUPART_USER, &user, 0) == CURLUE_OK) {
        code = once__fail(err, ONCE_E_CONFIG,
                          "the URL has credentials, which would be kept; send them as a header");
    }
    curl_free(scheme);
    curl_free(user);
    curl_url_cleanup(parts);
    return code;
}

/* What the journal compares besides the body: method, URL, and the lines that make_target() writes. */
static size_t target_len(const once_client_request_t *request)
{
    size_t len = strlen(request->url) + (request->method != NULL ? strlen(request->method) : 4);

    for (size_t i = 0; i < request->header_count; i++) {
        len += request->headers[i].name.len + request->headers[i].value.len + 3;
    }
    return len;
}

int once_client_check(const once_client_request_t *request, once_error_t *err)
{
    const char *name;
    int code = ONCE_OK;

    if (request == NULL || request->size < sizeof(*request)) {
        return once__fail(err, ONCE_E_INVALID, "%s", once_error_text(ONCE_E_INVALID));
    }
    name = request->key != NULL ? request->key : request->name;
    if (request->url == NULL || (request->name != NULL && request->key != NULL)) {
        return once__fail(err, ONCE_E_INVALID, "a request has a URL, and a name or a key");
    }
    if (name != NULL && (name[0] == '\0' || strlen(name) > ONCE_KEY_MAX)) {
        return once__fail(err, ONCE_E_KEY, "a name or key has 1 to %d bytes", ONCE_KEY_MAX);
    }
    for (const char *at = request->key; at != NULL && *at != '\0'; at++) {
        if (*at < 0x20 || *at > 0x7e) {
            return once__fail(err, ONCE_E_KEY, "a key is printable ASCII");
        }
    }
    if (request->method != NULL && !once__is_token(request->method, strlen(request->method))) {
        return once__fail(err, ONCE_E_INVALID, "the method is no token of HTTP");
    }
    if (request->until_ms > TIME_MAX || request->keep_ms > TIME_MAX) {
        return once__fail(err, ONCE_E_INVALID, "a time is over five years");
    }
    if (request->header_count + request->credential_count > LINES_MAX) {
        return once__fail(err, ONCE_E_TOO_BIG, "at most %zu headers can be sent", LINES_MAX);
    }
    for (size_t i = 0; code == ONCE_OK && i < request->header_count; i++) {
        code = check_header(&request->headers[i], err);
    }
    for (size_t i = 0; code == ONCE_OK && i < request->credential_count; i++) {
        code = check_header(&request->credentials[i], err);
    }
    if (code == ONCE_OK && target_len(request) > TARGET_MAX) {
        return once__fail(err, ONCE_E_TOO_BIG, "URL and headers are over 60 KiB");
    }
    return code == ONCE_OK ? check_url(request->url, err) : code;
}

/* ------------------------------------------------------------------------------------------------------------ copying */

static void add_line(once__client_call_t *call, const once_header_t *header, int is_credential)
{
    once__client_line_t *line = &call->lines[call->line_count];
    size_t room = header->name.len + header->value.len + 3;

    line->text = malloc(room);
    if (line->text != NULL) {
        memcpy(line->text, header->name.data, header->name.len);
        memcpy(line->text + header->name.len, ": ", 2);
        if (header->value.len > 0) {
            memcpy(line->text + header->name.len + 2, header->value.data, header->value.len);
        }
        line->text[room - 1] = '\0';
        line->name_len = header->name.len;
        line->is_credential = is_credential;
        call->line_count++;
    }
}

static int by_text(const void *a, const void *b)
{
    const once__client_line_t *x = a, *y = b;
    int order = strcasecmp(x->text, y->text);

    return order != 0 ? order : strcmp(x->text, y->text);
}

/* The URL and the headers that count, sorted, names in lower case. */
static char *make_target(const once__client_call_t *call)
{
    once__client_line_t *sorted = calloc(call->line_count + 1, sizeof(*sorted));
    once__buf_t text = ONCE__BUF(TARGET_MAX);
    size_t count = 0;

    if (sorted == NULL) {
        return NULL;
    }
    for (size_t i = 0; i < call->line_count; i++) {
        if (!call->lines[i].is_credential) {
            sorted[count++] = call->lines[i];
        }
    }
    qsort(sorted, count, sizeof(*sorted), by_text);
    (void)once__buf_add(&text, call->url, strlen(call->url));
    for (size_t i = 0; i < count; i++) {
        (void)once__buf_add(&text, "\n", 1);
        for (size_t k = 0; sorted[i].text[k] != '\0'; k++) {
            char c = sorted[i].text[k];
            c = k < sorted[i].name_len ? (char)tolower((unsigned char)c) : c;
            (void)once__buf_add(&text, &c, 1);
        }
    }
    free(sorted);
    return once__buf_take(&text);
}

/* The name of a request that has none: what it is. */
static char *name_of_itself(const once__client_call_t *call)
{
    once_key_parts_t parts = ONCE_KEY_PARTS_INIT;
    once_key_t key;

    parts.principal = once__slice_of(call->method);
    parts.action = once__slice_of(call->target);
    parts.payload = once__slice(call->body, call->body_len);
    return once_key_deterministic(&parts, &key, NULL) == ONCE_OK ? strdup(key.text) : NULL;
}

static once_policy_t *make_policy(const once__client_call_t *call)
{
    once_policy_t *policy = once_policy_new();
    char text[96];

    /* From its last change, so that it outlives its deadline in every state. */
    snprintf(text, sizeof(text), "recover=retry lease=" ONCE__CLIENT_LEASE " ttl=%" PRIu64 "ms",
             call->until_ms + call->keep_ms);
    if (policy != NULL && once_policy_parse(policy, text, NULL) != ONCE_OK) {
        once_policy_free(policy);
        policy = NULL;
    }
    return policy;
}

static void copy(once__client_call_t *call, const once_client_request_t *request)
{
    const char *name = request->key != NULL ? request->key : request->name;

    call->is_key = request->key != NULL;
    call->method = strdup(request->method != NULL ? request->method : "POST");
    call->url = strdup(request->url);
    call->body = malloc(request->body.len + 1);
    call->lines =
        calloc(request->header_count + request->credential_count + 1, sizeof(call->lines[0]));
    if (call->method == NULL || call->url == NULL || call->body == NULL || call->lines == NULL) {
        return;
    }
    if (request->body.len > 0) {
        memcpy(call->body, request->body.data, request->body.len);
    }
    call->body_len = request->body.len;
    for (size_t i = 0; i < request->header_count; i++) {
        add_line(call, &request->headers[i], 0);
    }
    for (size_t i = 0; i < request->credential_count; i++) {
        add_line(call, &request->credentials[i], 1);
    }
    call->target = make_target(call);
    if (call->target != NULL) {
        call->name = name != NULL ? strdup(name) : name_of_itself(call);
    }
    /* Without the query, which may have what should not be listed. */
    if (asprintf(&call->what, "%s %.*s", call->method, (int)strcspn(call->url, "?#"), call->url) <
        0) {
        call->what = NULL;
    }
    call->until_ms = request->until_ms != 0 ? request->until_ms : UNTIL_MS;
    call->keep_ms = request->keep_ms != 0 ? request->keep_ms : KEEP_MS;
    snprintf(call->until_text, sizeof(call->until_text), "%" PRIu64, call->until_ms);
    snprintf(call->keep_text, sizeof(call->keep_text), "%" PRIu64, call->keep_ms);
    call->attempts_max = request->attempts;
    call->keep_request = request->keep_request;
    call->policy = make_policy(call);
}

int once__client_call_new(once_client_t *client, const once_client_request_t *request,
                          once__client_call_t **out, once_error_t *err)
{
    int code = once_client_check(request, err);
    once__client_call_t *call;

    *out = NULL;
    if (code != ONCE_OK) {
        return code;
    }
    call = calloc(1, sizeof(*call));
    if (call == NULL) {
        return once__fail(err, ONCE_E_NOMEM, "%s", once_error_text(ONCE_E_NOMEM));
    }
    call->head.max = ONCE_HEADERS_MAX;
    call->answer.max = ONCE_BODY_STORE_MAX;
    call->client = client;
    call->expires = UINT64_MAX;
    copy(call, request);
    call->give_up =
        request->try_ms != 0 ? once__loop_now(client->loop) + request->try_ms : UINT64_MAX;
    if (call->name == NULL || call->what == NULL || call->policy == NULL ||
        call->line_count != request->header_count + request->credential_count ||
        once__timers_reserve(client->loop) != 0) {
        call->client = NULL;
        once__client_call_free(call);
        return once__fail(err, ONCE_E_NOMEM, "%s", once_error_text(ONCE_E_NOMEM));
    }
    *out = call;
    return ONCE_OK;
}

void once__client_call_free(once__client_call_t *call)
{
    if (call->client != NULL) {
        once__timer_stop(call->client->loop, &call->timer);
        once__timers_release(call->client->loop);
    }
    for (size_t i = 0; i < call->line_count; i++) {
        free(call->lines[i].text);
    }
    free(call->lines);
    free(call->name);
    free(call->method);
    free(call->url);
    free(call->target);
    free(call->what);
    free(call->body);
    free(call->headers);
    once_policy_free(call->policy);
    once__buf_free(&call->head);
    once__buf_free(&call->answer);
    curl_easy_cleanup(call->easy);
    curl_slist_free_all(call->list);
    free(call);
}
