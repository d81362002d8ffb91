#include "broker/http/headers.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/text.h"
#include "broker/internal.h"

#define LINE_MAX_LEN 8192 /* of a header; longer ones are left out */

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
            len += (size_t)sprintf(line + len, "%%%02X", (unsigned)bytes[i]);
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

struct curl_slist *once__http_headers(const once__broker_message_t *message,
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
