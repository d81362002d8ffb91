/*
 * Requests to the handler, over libcurl (http/client.h).
 *
 * The body comes from a callback that cannot rewind. When a kept connection turns out to be closed after a part of the body
 * was sent, libcurl would otherwise send the request again on a new connection, and the handler might get it twice under one
 * claim.
 *
 * What holds for a request, which is one of `all`:
 *   H-1  It has headers exactly while it is under way; then it is not in the list of idle ones.
 *   H-2  No more of the payload was given to libcurl than there is.
 *   H-3  What is kept of the answer fits.
 */
#include "consume/handler.h"

#include <assert.h>
#include <curl/curl.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "broker/tls.h"
#include "http/client.h"

#define HEADER_MAX 4096
#define WORDS_MAX  160
#define PROBLEM_MAX                                                                                \
    4096 /* bytes of an answer that are read for what the handler says about its refusal */

struct once__consume_handler_headers {
    struct curl_slist *list;
    int broken;
};

typedef struct request {
    struct request *next;
    once__consume_handler_t *handler;
    CURL *easy;
    once__consume_handler_headers_t *headers;
    once_slice_t payload;
    size_t given;
    once__consume_reply_cb *cb;
    void *data;
    once_verdict_t said;
    uint64_t retry_after;
    char trouble[CURL_ERROR_SIZE];
    int problem; /* the answer explains the refusal: its beginning is kept */
    size_t kept;
    char answer[PROBLEM_MAX];
} request_t;

struct once__consume_handler {
    once__consume_handler_options_t options;
    once__http_client_t *client;
    request_t *idle, *all; /* `all` is an array */
};

/* ------------------------------------------------------------------------------------------------------------ headers */

once__consume_handler_headers_t *once__consume_handler_headers_new(void)
{
    return calloc(1, sizeof(once__consume_handler_headers_t));
}

void once__consume_handler_headers_add(once__consume_handler_headers_t *headers, const char *format,
                                       ...)
{
    char line[HEADER_MAX];
    struct curl_slist *longer = NULL;
    va_list values;
    int len;

    va_start(values, format);
    len = vsnprintf(line, sizeof(line), format, values);
    va_end(values);
    /* A header that does not fit, or could end the line, is left out: those that a handler needs are short. */
    if (headers == NULL || len < 0 || (size_t)len >= sizeof(line) ||
        strpbrk(line, "\r\n") != NULL) {
        return;
    }
    longer = curl_slist_append(headers->list, line);
    if (longer == NULL) {
        headers->broken = 1;
    } else {
        headers->list = longer;
    }
}

static void headers_free(once__consume_handler_headers_t *headers)
{
    if (headers != NULL) {
        curl_slist_free_all(headers->list);
        free(headers);
    }
}

/* ---------------------------------------------------------------------------------------------------------- requests */

static size_t give_body(char *out, size_t size, size_t count, void *data)
{
    request_t *request = data;
    size_t left = request->payload.len - request->given;
    size_t len = size * count < left ? size * count : left;

    assert(request->given <= request->payload.len); /* H-2 */
    memcpy(out, (const char *)request->payload.data + request->given, len);
    request->given += len;
    return len;
}

static size_t take_body(char *bytes, size_t size, size_t count, void *data)
{
    request_t *request = data;
    size_t len = size * count, room = sizeof(request->answer) - request->kept;

    assert(request->kept <= sizeof(request->answer)); /* H-3 */
    if (request->problem) {
        memcpy(request->answer + request->kept, bytes, len < room ? len : room);
        request->kept += len < room ? len : room;
    }
    return len;
}

static uint64_t read_retry_after(const char *text)
{
    time_t when;

    if (text[0] >= '0' && text[0] <= '9') {
        unsigned long seconds = strtoul(text, NULL, 10);
        return seconds < 86400 ? seconds * 1000 : 86400000;
    }
    when = curl_getdate(text, NULL);
    return when > time(NULL) ? (uint64_t)(when - time(NULL)) * 1000 : 0;
}

static size_t take_header(char *bytes, size_t size, size_t count, void *data)
{
    request_t *request = data;
    size_t len = size * count;
    char text[64];

    if (len >= 5 && strncmp(bytes, "HTTP/", 5) == 0) { /* discards what an interim response said */
        request->said = ONCE_VERDICT_NONE;
        request->retry_after = 0;
        request->problem = 0;
    } else if (len > 13 && strncasecmp(bytes, "Once-Outcome:", 13) == 0) {
        request->said = once_verdict_parse(bytes + 13, strcspn(bytes + 13, "\r\n"));
    } else if (len > 12 && strncasecmp(bytes, "Retry-After:", 12) == 0) {
        snprintf(text, sizeof(text), "%.*s", (int)(len - 12), bytes + 12);
        request->retry_after = read_retry_after(text + strspn(text, " \t"));
    } else if (len > 13 && strncasecmp(bytes, "Content-Type:", 13) == 0) {
        snprintf(text, sizeof(text), "%.*s", (int)(len - 13), bytes + 13);
        request->problem = strcasestr(text, "application/problem+json") != NULL;
    }
    return len;
}

static int prepare(request_t *request, once__consume_handler_t *handler)
{
    CURL *easy = curl_easy_init();
    int bad;

    if (easy == NULL) {
        return -1;
    }
    request->easy = easy;
    request->handler = handler;
    bad = curl_easy_setopt(easy, CURLOPT_URL, handler->options.url) != CURLE_OK ||
          curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https") != CURLE_OK ||
          (handler->options.ca_file != NULL &&
           curl_easy_setopt(easy, CURLOPT_CAINFO, handler->options.ca_file) != CURLE_OK);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, request);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
    curl_easy_setopt(easy, CURLOPT_POST, 1L);
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)handler->options.timeout_ms);
    curl_easy_setopt(easy, CURLOPT_READFUNCTION, give_body);
    curl_easy_setopt(easy, CURLOPT_READDATA, request);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, request);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, take_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, request);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, request->trouble);
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "once/" ONCE_VERSION);
    return bad ? -1 : 0;
}

static void give_back(request_t *request)
{
    headers_free(request->headers);
    request->headers = NULL;
    request->next = request->handler->idle;
    request->handler->idle = request;
}

int once__consume_handler_post(once__consume_handler_t *handler,
                               once__consume_handler_headers_t *headers, once_slice_t payload,
                               once__consume_reply_cb *cb, void *data)
{
    request_t *request = handler->idle;

    if (headers == NULL || headers->broken || request == NULL) {
        headers_free(headers);
        return -1;
    }
    assert(request->headers == NULL && request->handler == handler); /* H-1 */
    handler->idle = request->next;
    request->headers = headers;
    request->payload = payload;
    request->given = 0;
    request->cb = cb;
    request->data = data;
    request->said = ONCE_VERDICT_NONE;
    request->retry_after = 0;
    request->problem = 0;
    request->kept = 0;
    request->trouble[0] = '\0';
    curl_easy_setopt(request->easy, CURLOPT_HTTPHEADER, headers->list);
    curl_easy_setopt(request->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)payload.len);
    /* An empty body could be sent again: only on a fresh connection libcurl never repeats the request. */
    curl_easy_setopt(request->easy, CURLOPT_FRESH_CONNECT, payload.len == 0 ? 1L : 0L);
    if (curl_multi_add_handle(once__http_client_multi(handler->client), request->easy) !=
        CURLM_OK) {
        give_back(request);
        return -1;
    }
    return 0;
}

static void describe_trouble(request_t *request, CURLcode result, char *text, size_t size)
{
    if (result == CURLE_PEER_FAILED_VERIFICATION) {
        once__broker_tls_explain_curl(request->easy, request->trouble, "--cacert FILE", text, size);
    } else {
        snprintf(text, size, "%s",
                 request->trouble[0] != '\0' ? request->trouble : curl_easy_strerror(result));
    }
}

/*
 * What a handler says about its refusal (RFC 9457): the member `detail`, else `title`, as one line of printable ASCII, because it
 * becomes a header of a message and a line of a log. "" if there is none.
 */
static void problem_words(const char *body, size_t len, char *out, size_t size)
{
    json_t *problem = json_loadb(body, len, 0, NULL);
    const char *text = json_string_value(json_object_get(problem, "detail"));
    size_t used = 0;

    if (text == NULL) {
        text = json_string_value(json_object_get(problem, "title"));
    }
    for (; text != NULL && *text != '\0' && used + 1 < size; text++) {
        out[used++] = *text >= 0x20 && *text < 0x7f ? *text : '?';
    }
    out[used] = '\0';
    json_decref(problem);
}

static void finish(void *data, CURL *easy, CURLcode result)
{
    request_t *request = NULL;
    once__consume_reply_t reply = {0};
    long status = 0, sent = 0;
    curl_off_t took = 0;
    char trouble[CURL_ERROR_SIZE], words[WORDS_MAX];

    curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&request);
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(easy, CURLINFO_REQUEST_SIZE, &sent);
    curl_easy_getinfo(easy, CURLINFO_TOTAL_TIME_T, &took);
    assert(request->headers != NULL && request->handler == data); /* H-1 */
    reply.said = request->said;
    reply.retry_after = request->retry_after;
    reply.status = result == CURLE_OK ? (int)status : 0;
    reply.sent = sent > 0;
    reply.took = (uint64_t)took;
    describe_trouble(request, result, trouble, sizeof(trouble));
    reply.trouble = trouble;
    words[0] = '\0';
    if (request->kept > 0) {
        problem_words(request->answer, request->kept, words, sizeof(words));
    }
    reply.words = words;
    give_back(request);
    request->cb(request->data, &reply);
}

void once__consume_handler_turn_over(once__consume_handler_t *handler)
{
    once__http_client_turn_over(handler->client);
}

/* ---------------------------------------------------------------------------------------------------- begin and end */

static int check_url(const char *url, char *error, size_t size)
{
    CURLU *parsed = curl_url();
    char *scheme = NULL;
    int bad = parsed == NULL || curl_url_set(parsed, CURLUPART_URL, url, 0) != CURLUE_OK ||
              curl_url_get(parsed, CURLUPART_SCHEME, &scheme, 0) != CURLUE_OK ||
              (strcmp(scheme, "http") != 0 && strcmp(scheme, "https") != 0);

    curl_free(scheme);
    curl_url_cleanup(parsed);
    if (bad) {
        snprintf(error, size, "--to must be http://HOST[:PORT]/PATH or https://...");
    }
    return bad ? -1 : 0;
}

once__consume_handler_t *once__consume_handler_new(once__loop_t *loop,
                                                   const once__consume_handler_options_t *options,
                                                   char *error, size_t size)
{
    once__consume_handler_t *handler;

    if (check_url(options->url, error, size) != 0) {
        return NULL;
    }
    snprintf(error, size, "the HTTP client cannot be set up");
    handler = calloc(1, sizeof(*handler));
    if (handler == NULL) {
        return NULL;
    }
    handler->options = *options;
    handler->client = once__http_client_new(loop, finish, handler);
    handler->all = calloc(options->concurrency, sizeof(*handler->all));
    if (handler->client == NULL || handler->all == NULL) {
        once__consume_handler_free(handler);
        return NULL;
    }
    curl_multi_setopt(once__http_client_multi(handler->client), CURLMOPT_MAXCONNECTS,
                      (long)options->concurrency);
    for (size_t i = 0; i < options->concurrency; i++) {
        if (prepare(&handler->all[i], handler) != 0) {
            once__consume_handler_free(handler);
            return NULL;
        }
        give_back(&handler->all[i]);
    }
    return handler;
}

void once__consume_handler_free(once__consume_handler_t *handler)
{
    if (handler == NULL) {
        return;
    }
    for (size_t i = 0; handler->all != NULL && i < handler->options.concurrency; i++) {
        if (handler->all[i].easy != NULL) {
            curl_multi_remove_handle(once__http_client_multi(handler->client),
                                     handler->all[i].easy);
            curl_easy_cleanup(handler->all[i].easy);
            headers_free(handler->all[i].headers);
        }
    }
    once__http_client_free(handler->client);
    free(handler->all);
    free(handler);
}
