/*
 * One attempt: a transfer of libcurl, and what comes back.
 *
 * libcurl may send a request twice by itself if a kept connection turns out to be closed. That is one more attempt with the same
 * key, like those that the client makes.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/bytes.h"
#include "base/text.h"
#include "client/internal.h"

static size_t take_header(char *bytes, size_t size, size_t count, void *data)
{
    once__client_call_t *call = data;
    size_t len = size * count;

    if (len >= 5 && memcmp(bytes, "HTTP/", 5) == 0) { /* what an interim response said is over */
        once__buf_reset(&call->head, ONCE_HEADERS_MAX);
    } else {
        (void)once__buf_add(&call->head, bytes, len);
    }
    return len;
}

static size_t take_body(char *bytes, size_t size, size_t count, void *data)
{
    once__client_call_t *call = data;

    if (!call->omitted && once__buf_add(&call->answer, bytes, size * count) != ONCE_OK) {
        call->omitted = 1;
        once__buf_reset(&call->answer, 0);
    }
    return size * count;
}

/* ------------------------------------------------------------------------------------------------------- request lines */

static int add(once__client_call_t *call, const char *line)
{
    struct curl_slist *longer = curl_slist_append(call->list, line);

    if (longer != NULL) {
        call->list = longer;
    }
    return longer != NULL ? 0 : -1;
}

/* libcurl takes "Name:" for a header that is not to be sent, and "Name;" for one without a value. */
static int add_line(once__client_call_t *call, const once__client_line_t *line)
{
    char *empty;
    int bad;

    if (line->text[line->name_len + 2] != '\0') {
        return add(call, line->text);
    }
    empty = strndup(line->text, line->name_len + 1);
    if (empty == NULL) {
        return -1;
    }
    empty[line->name_len] = ';';
    bad = add(call, empty);
    free(empty);
    return bad;
}

static int make_list(once__client_call_t *call)
{
    char key[2 * ONCE_KEY_TEXT_SIZE + 32] = "Idempotency-Key: ";
    int has_type = 0, bad;

    curl_slist_free_all(call->list);
    call->list = NULL;
    once__key_field(key + strlen(key), call->key, strlen(call->key));
    bad = add(call, key) | add(call, "Expect:");
    for (size_t i = 0; i < call->line_count; i++) {
        has_type |= strncasecmp(call->lines[i].text, "Content-Type:", 13) == 0;
        bad |= add_line(call, &call->lines[i]);
    }
    return bad | (has_type ? 0 : add(call, "Content-Type:"));
}

/* ------------------------------------------------------------------------------------------------------------- sending */

static void set_method(once__client_call_t *call)
{
    CURL *easy = call->easy;
    int carries = call->body_len > 0 || strcmp(call->method, "POST") == 0 ||
                  strcmp(call->method, "PUT") == 0 || strcmp(call->method, "PATCH") == 0;

    if (carries) {
        curl_easy_setopt(easy, CURLOPT_POST, 1L);
        curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)call->body_len);
        curl_easy_setopt(easy, CURLOPT_POSTFIELDS, call->body_len > 0 ? call->body : "");
    }
    curl_easy_setopt(easy, CURLOPT_NOBODY, strcmp(call->method, "HEAD") == 0 ? 1L : 0L);
    curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, call->method);
}

static void set_connection(const once__client_call_t *call)
{
    const once_client_options_t *options = &call->client->options;
    CURL *easy = call->easy;

    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)options->timeout_ms);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)options->connect_ms);
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION,
                     options->http == ONCE_CLIENT_HTTP_1 ? (long)CURL_HTTP_VERSION_1_1
                     : options->http == ONCE_CLIENT_HTTP_2
                         ? (long)CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE
                         : (long)CURL_HTTP_VERSION_2TLS);
    curl_easy_setopt(easy, CURLOPT_NETRC,
                     options->netrc ? (long)CURL_NETRC_OPTIONAL : (long)CURL_NETRC_IGNORED);
    curl_easy_setopt(easy, CURLOPT_PROXY, options->proxy);
    curl_easy_setopt(easy, CURLOPT_SSLCERT, options->cert_file);
    curl_easy_setopt(easy, CURLOPT_SSLKEY, options->cert_key_file);
    if (options->ca_file != NULL) {
        curl_easy_setopt(easy, CURLOPT_CAINFO, options->ca_file);
    }
}

int once__client_send(once__client_call_t *call)
{
    if (call->easy == NULL) {
        call->easy = curl_easy_init();
    }
    if (call->easy == NULL || make_list(call) != 0) {
        return -1;
    }
    curl_easy_reset(call->easy);
    once__buf_reset(&call->head, ONCE_HEADERS_MAX);
    once__buf_reset(&call->answer, ONCE_HEADERS_MAX);
    call->omitted = 0;
    call->trouble[0] = '\0';
    curl_easy_setopt(call->easy, CURLOPT_URL, call->url);
    curl_easy_setopt(call->easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(call->easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(call->easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(call->easy, CURLOPT_HTTPHEADER, call->list);
    curl_easy_setopt(call->easy, CURLOPT_PRIVATE, call);
    curl_easy_setopt(call->easy, CURLOPT_HEADERFUNCTION, take_header);
    curl_easy_setopt(call->easy, CURLOPT_HEADERDATA, call);
    curl_easy_setopt(call->easy, CURLOPT_WRITEFUNCTION, take_body);
    curl_easy_setopt(call->easy, CURLOPT_WRITEDATA, call);
    curl_easy_setopt(call->easy, CURLOPT_ERRORBUFFER, call->trouble);
    curl_easy_setopt(call->easy, CURLOPT_USERAGENT, "once/" ONCE_VERSION);
    set_method(call);
    set_connection(call);
    if (curl_multi_add_handle(once__http_client_multi(call->client->http), call->easy) !=
        CURLM_OK) {
        return -1;
    }
    call->is_sending = 1;
    return 0;
}

/* ------------------------------------------------------------------------------------------------- headers of the answer */

static void read_line(once__client_call_t *call, char *line, size_t len)
{
    char *colon = memchr(line, ':', len);
    once_header_t *header = &call->headers[call->header_count];

    if (colon == NULL || !once__is_token(line, (size_t)(colon - line)) ||
        call->header_count == ONCE_HEADER_COUNT_MAX) {
        return; /* the empty line, or nothing that a record can keep */
    }
    header->name = once__slice(line, (size_t)(colon - line));
    colon++;
    len -= (size_t)(colon - line);
    while (len > 0 && (*colon == ' ' || *colon == '\t')) {
        colon++;
        len--;
    }
    while (len > 0 && strchr(" \t\r", colon[len - 1]) != NULL) {
        len--;
    }
    header->value = once__slice(colon, len);
    if (memchr(colon, '\0', len) == NULL) {
        call->header_count++;
    }
}

int once__client_read_headers(once__client_call_t *call)
{
    char *line = call->head.data, *end;

    free(call->headers);
    call->header_count = 0;
    call->headers = calloc(ONCE_HEADER_COUNT_MAX + 1, sizeof(call->headers[0]));
    if (call->headers == NULL) {
        return -1;
    }
    for (; line != NULL && (end = strchr(line, '\n')) != NULL; line = end + 1) {
        read_line(call, line, (size_t)(end - line));
    }
    return 0;
}

once_slice_t once__client_header(const once__client_call_t *call, const char *name)
{
    for (size_t i = 0; i < call->header_count; i++) {
        const once_header_t *header = &call->headers[i];
        if (header->name.len == strlen(name) &&
            strncasecmp(header->name.data, name, header->name.len) == 0) {
            return header->value;
        }
    }
    return once__slice("", 0);
}
