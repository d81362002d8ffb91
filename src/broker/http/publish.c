/*
 * The publisher for HTTP endpoints: one POST for each message, many at once.
 *
 * Certificates are verified, redirects are not followed, and proxies of the environment are not used. judge() decides what an
 * answer means.
 */
#include <assert.h>
#include <curl/curl.h>
#include <inttypes.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/bytes.h"
#include "base/text.h"
#include "broker/http/signature.h"
#include "broker/internal.h"
#include "broker/tls.h"
#include "http/client.h"

#define URL_MAX      4096
#define CONNECT_MS   10000L
#define LINE_MAX_LEN 8192 /* of a header; longer ones are left out */

typedef struct request {
    struct request *next; /* free ones */
    CURL *easy;
    struct curl_slist *headers;
    void *tag;
    char why[CURL_ERROR_SIZE];
} request_t;

typedef struct http {
    once__broker_publisher_t base;
    once__loop_t *loop; /* its descriptor is the publisher's */
    once__http_client_t *client;
    request_t *requests, *free;  /* options.connections of them */
    once__http_signer_t *signer; /* NULL: unsigned */
    char template_text[URL_MAX];
} http_t;

static size_t ignore_body(char *bytes, size_t size, size_t count, void *data)
{
    return size * count;
}

/* --------------------------------------------------------------------------------------------------------- headers */

typedef struct lines {
    struct curl_slist *list;
    int broken; /* out of memory: without one of the headers it would be a different request */
} lines_t;

/* A message must not set headers that describe the request itself, identify its sender, or change how it is processed. */
static const char *const ours[] = {
    "content-type",
    "content-length",
    "transfer-encoding",
    "host",
    "authorization",
    "cookie",
    "cookie2",
    "connection",
    "keep-alive",
    "expect",
    "upgrade",
    "http2-settings",
    "te",
    "trailer",
    "proxy-*",
    "forwarded",
    "x-forwarded-*",
    "x-real-ip",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    NULL,
};

/* Control bytes and bytes outside ASCII are percent-encoded. */
static void add_line(lines_t *lines, once_slice_t name, once_slice_t value)
{
    char line[LINE_MAX_LEN];
    const unsigned char *bytes = value.data;
    struct curl_slist *longer;
    size_t len = 0;

    if (name.len + 3 * value.len + 4 > sizeof(line)) {
        return;
    }
    memcpy(line, name.data, name.len);
    len = name.len;
    line[len++] = ':';
    line[len++] = ' ';
    for (size_t i = 0; i < value.len; i++) {
        if (bytes[i] < 0x20 || bytes[i] >= 0x7f) {
            len += once__percent_escape(line + len, (char)bytes[i]);
        } else {
            line[len++] = (char)bytes[i];
        }
    }
    line[len] = '\0';
    longer = curl_slist_append(lines->list, line);
    if (longer == NULL) {
        lines->broken = 1;
    } else {
        lines->list = longer;
    }
}

static void add_named(lines_t *lines, const char *name, once_slice_t value)
{
    add_line(lines, (once_slice_t){name, strlen(name)}, value);
}

static void add_header(void *data, once_slice_t name, once_slice_t value)
{
    if (once__is_token(name.data, name.len) && !once__broker_header_is_one_of(name, ours)) {
        add_line(data, name, value);
    }
}

/* Signs with the time of this attempt. The id is the event's, the same in every attempt. */
static void add_signature(lines_t *lines, const once__broker_message_t *message,
                          const once__http_signer_t *signer)
{
    char stamp[24], signature[ONCE__HTTP_SIGNATURE_SIZE];
    int64_t now = (int64_t)time(NULL);

    snprintf(stamp, sizeof(stamp), "%" PRId64, now);
    if (once__http_sign(signer, message->id, now, message->payload, signature) != 0) {
        lines->broken = 1;
        return;
    }
    add_named(lines, "webhook-id", message->id);
    add_named(lines, "webhook-timestamp", (once_slice_t){stamp, strlen(stamp)});
    add_named(lines, "webhook-signature", (once_slice_t){signature, strlen(signature)});
}

/* The headers of a webhook, with a signature if `signer` is not NULL. NULL if memory is short. */
static struct curl_slist *make_headers(const once__broker_message_t *message,
                                       const once__http_signer_t *signer)
{
    lines_t lines = {NULL, 0};

    add_named(&lines, "Content-Type", once__broker_message_content_type(message));
    if (message->id.data != NULL) {
        add_named(&lines, "Idempotency-Key", message->id);
    }
    once__broker_message_headers(message, "ce-", add_header, &lines);
    add_named(&lines, "Expect", (once_slice_t){"", 0});
    if (signer != NULL) {
        add_signature(&lines, message, signer);
    }
    if (lines.broken) {
        curl_slist_free_all(lines.list);
        return NULL;
    }
    return lines.list;
}

/* ------------------------------------------------------------------------------------------------------------- URLs */

/*
 * Decodes in place, one escape at a time: a bad one (or an encoded zero byte) stays as it is and the others are decoded, as a
 * lenient server would. Returns 0 if there was nothing to decode.
 */
static int decode(char *text)
{
    int changed = 0;

    for (char *at = strchr(text, '%'); at != NULL; at = strchr(at + 1, '%')) {
        char byte[2];
        if (once__percent_decode(byte, sizeof(byte), at, strnlen(at, 3)) == 0) {
            *at = byte[0];
            memmove(at + 1, at + 3, strlen(at + 3) + 1);
            changed = 1;
        }
    }
    return changed;
}

/*
 * Whether any server on the way could read a segment `.` or `..` in the path. Servers decode paths (nginx also `%2F`), some of
 * them twice or with `\` for `/`, and some cut off what follows a `;`.
 */
static int climbs(const char *url)
{
    char path[URL_MAX];

    snprintf(path, sizeof(path), "%.*s", (int)strcspn(url, "?#"), url);
    while (decode(path)) {
    }
    for (const char *at = path;; at++) {
        size_t dots = strspn(at, ".");
        if ((dots == 1 || dots == 2) && strchr("/\\;", at[dots]) != NULL) {
            return 1;
        }
        at += strcspn(at, "/\\");
        if (*at == '\0') {
            return 0;
        }
    }
}

/* ---------------------------------------------------------------------------------------------------------- sending */

static void set_options(http_t *http, request_t *request, const char *url, once_slice_t body)
{
    CURL *easy = request->easy;

    curl_easy_reset(easy);
    curl_easy_setopt(easy, CURLOPT_URL, url);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
    curl_easy_setopt(easy, CURLOPT_POST, 1L);
    curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body.len);
    curl_easy_setopt(easy, CURLOPT_POSTFIELDS, body.len > 0 ? body.data : "");
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, request->headers);
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)http->base.options.timeout_ms);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, ignore_body);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, request->why);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, request);
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "once-relay");
    if (http->base.options.ca_file != NULL) {
        curl_easy_setopt(easy, CURLOPT_CAINFO, http->base.options.ca_file);
    }
    if (http->base.url.user != NULL) {
        curl_easy_setopt(easy, CURLOPT_USERNAME, http->base.url.user);
        curl_easy_setopt(easy, CURLOPT_PASSWORD,
                         http->base.url.password != NULL ? http->base.url.password : "");
    }
}

static void http_wake(once__broker_publisher_t *base)
{
    once__loop_wake(((http_t *)base)->loop);
}

static int http_publish(once__broker_publisher_t *base, const once__broker_message_t *message,
                        void *tag)
{
    http_t *http = (http_t *)base;
    request_t *request = http->free;
    char url[URL_MAX];

    if (request == NULL) {
        return -1;
    }
    request->why[0] = '\0';
    if (once__broker_template_fill(http->template_text, message, 1, url, sizeof(url)) != 0) {
        return once__broker_publisher_tell_soon(base, tag, ONCE__BROKER_REFUSED,
                                                "its topic, type or key makes the URL too long");
    }
    if (climbs(url)) {
        return once__broker_publisher_tell_soon(
            base, tag, ONCE__BROKER_REFUSED,
            "its topic, type or key would lead to another path: . or ..");
    }
    curl_slist_free_all(request->headers);
    request->headers = make_headers(message, http->signer);
    if (request->headers == NULL) {
        return -1;
    }
    set_options(http, request, url, message->payload);
    if (curl_multi_add_handle(once__http_client_multi(http->client), request->easy) != CURLM_OK) {
        return -1;
    }
    request->tag = tag;
    http->free = request->next;
    base->pending++;
    return 0;
}

/* --------------------------------------------------------------------------------------------------------- verdicts */

static once__broker_verdict_t judge_status(long status)
{
    if (status >= 200 && status < 300) {
        return ONCE__BROKER_PUBLISHED;
    }
    switch (status) {
    case 408: /* these say nothing about the message */
    case 409: /* another attempt of this message is being handled */
    case 425:
    case 429:
    case 502:
    case 503:
    case 504:
        return ONCE__BROKER_LATER;
    default:
        return status >= 400 && status < 500 ? ONCE__BROKER_REFUSED : ONCE__BROKER_FAILED;
    }
}

static once__broker_verdict_t judge(CURLcode code, long status)
{
    switch (code) {
    case CURLE_OK:
        return judge_status(status);
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_GOT_NOTHING:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_PARTIAL_FILE:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
    case CURLE_WEIRD_SERVER_REPLY:
        return ONCE__BROKER_LATER; /* this message may be what crashes the endpoint */
    case CURLE_URL_MALFORMAT:
        return ONCE__BROKER_REFUSED;
    default:
        return ONCE__BROKER_AWAY;
    }
}

static void finish(void *data, CURL *easy, CURLcode code)
{
    http_t *http = data;
    request_t *request = NULL;
    char reason[CURL_ERROR_SIZE + 32] = "";
    curl_off_t after = 0;
    long status = 0, sent = 0;
    once__broker_verdict_t verdict;

    curl_easy_getinfo(easy, CURLINFO_PRIVATE, &request);
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(easy, CURLINFO_RETRY_AFTER, &after);
    curl_easy_getinfo(easy, CURLINFO_REQUEST_SIZE, &sent);
    verdict = judge(code, status);
    if (code == CURLE_OPERATION_TIMEDOUT && sent == 0) {
        verdict = ONCE__BROKER_AWAY; /* the endpoint was not reached */
    }
    if (code == CURLE_PEER_FAILED_VERIFICATION) {
        snprintf(reason, sizeof(reason), "the endpoint is not trusted: ");
        once__broker_tls_explain_curl(request->easy, request->why, "--cacert FILE",
                                      reason + strlen(reason), sizeof(reason) - strlen(reason));
    } else if (code != CURLE_OK) {
        snprintf(reason, sizeof(reason), "%s",
                 request->why[0] != '\0' ? request->why : curl_easy_strerror(code));
    } else if (verdict != ONCE__BROKER_PUBLISHED) {
        snprintf(reason, sizeof(reason), "the endpoint answers %ld", status);
    }
    assert(request >= http->requests && request < http->requests + http->base.options.connections);
    request->next = http->free;
    http->free = request;
    once__broker_publisher_tell(&http->base, request->tag, verdict, reason,
                                after > 0 ? (uint64_t)after * 1000 : 0);
}

static void http_turn(once__broker_publisher_t *base)
{
    http_t *http = (http_t *)base;

    once__loop_enter(http->loop);
    (void)once__loop_run(http->loop);
    once__loop_leave(http->loop);
    once__http_client_turn_over(http->client);
}

/* -------------------------------------------------------------------------------------------------------- begin, end */

static void http_close(once__broker_publisher_t *base)
{
    http_t *http = (http_t *)base;

    for (unsigned i = 0; http->requests != NULL && i < base->options.connections; i++) {
        if (http->client != NULL && http->requests[i].easy != NULL) {
            curl_multi_remove_handle(once__http_client_multi(http->client), http->requests[i].easy);
        }
        curl_easy_cleanup(http->requests[i].easy);
        curl_slist_free_all(http->requests[i].headers);
    }
    once__http_client_free(http->client);
    once__loop_free(http->loop);
    free(http->requests);
    once__http_signer_free(http->signer);
    free(http);
}

static const once__broker_publisher_ops_t ops = {http_publish, NULL, http_turn, http_wake,
                                                 http_close};

static int prepare(http_t *http)
{
    unsigned count = http->base.options.connections;
    int code;

    curl_global_init(CURL_GLOBAL_DEFAULT);
    http->loop = once__loop_new(&once__real_env, &code);
    http->client = http->loop != NULL ? once__http_client_new(http->loop, finish, http) : NULL;
    http->requests = calloc(count, sizeof(http->requests[0]));
    if (http->client == NULL || http->requests == NULL) {
        return -1;
    }
    http->base.fd = once__loop_fd(http->loop);
    for (unsigned i = 0; i < count; i++) {
        http->requests[i].easy = curl_easy_init();
        if (http->requests[i].easy == NULL) {
            return -1;
        }
        http->requests[i].next = http->free;
        http->free = &http->requests[i];
    }
    curl_multi_setopt(once__http_client_multi(http->client), CURLMOPT_MAX_TOTAL_CONNECTIONS,
                      (long)count);
    return 0;
}

/* A URL that libcurl does not accept is found now, not with the first event. */
static const char *url_wrong(const http_t *http)
{
    const once__broker_message_t example = {.topic = {"x", 1}, .key = {"x", 1}, .type = {"x", 1}};
    const char *wrong = once__broker_template_wrong(http->template_text);
    char url[URL_MAX];
    CURLU *parsed;

    if (wrong != NULL) {
        return wrong;
    }
    parsed = curl_url();
    if (parsed == NULL ||
        once__broker_template_fill(http->template_text, &example, 1, url, sizeof(url)) ||
        curl_url_set(parsed, CURLUPART_URL, url, 0) != CURLUE_OK) {
        wrong = "the URL must be http[s]://HOST[:PORT]/TEMPLATE";
    } else if (climbs(url)) {
        wrong = "the path of the URL must not contain . or ..";
    }
    curl_url_cleanup(parsed);
    return wrong;
}

/* The path and the query belong to the endpoint: they stay as they are written. */
static int make_template(http_t *http, const once__url_t *address)
{
    int len = snprintf(http->template_text, sizeof(http->template_text), "%s://%s/%s%s%s",
                       address->scheme, address->hosts, address->raw_path,
                       address->raw_query != NULL ? "?" : "",
                       address->raw_query != NULL ? address->raw_query : "");

    return len < URL_MAX && strchr(address->hosts, '{') == NULL ? 0 : -1;
}

/* The path is often a secret, so a hash replaces it: two endpoints still have different names. */
static void make_name(http_t *http, const once__url_t *address)
{
    unsigned char hash[SHA256_DIGEST_LENGTH];

    SHA256((const unsigned char *)address->raw_path, strlen(address->raw_path), hash);
    snprintf(http->base.name, sizeof(http->base.name), "%s://%s#%02x%02x%02x%02x", address->scheme,
             address->hosts, (unsigned)hash[0], (unsigned)hash[1], (unsigned)hash[2],
             (unsigned)hash[3]);
}

once__broker_publisher_t *once__http_publisher(const once__url_t *address,
                                               const once__broker_publisher_options_t *options,
                                               char *error, size_t size)
{
    http_t *http = calloc(1, sizeof(*http));
    const char *wrong = http == NULL ? "out of memory"
                        : make_template(http, address) != 0
                            ? "the URL is too long, or its host is a template"
                            : url_wrong(http);

    if (wrong != NULL) {
        snprintf(error, size, "%s", wrong);
        free(http);
        return NULL;
    }
    http->base.ops = &ops;
    http->base.options = *options;
    http->base.key_limit = 1;
    http->base.most = options->connections;
    http->base.target = http->template_text;
    make_name(http, address);
    if (prepare(http) != 0) {
        snprintf(error, size, "libcurl cannot be used");
        http_close(&http->base);
        return NULL;
    }
    if (options->secret_file != NULL) {
        http->signer = once__http_signer_open(options->secret_file, error, size);
        if (http->signer == NULL) {
            http_close(&http->base);
            return NULL;
        }
    }
    return &http->base;
}
