#include "broker/http_headers.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "broker/publisher.h"

#define LINE_MAX_LEN  8192 /* of a header; longer ones are left out */
#define SIGNATURE_MAX 512

static int is_token(once_slice_t name)
{
    const char *at = name.data;

    for (size_t i = 0; i < name.len; i++) {
        if (strchr("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ",
                   at[i]) == NULL ||
            at[i] == '\0') {
            return 0;
        }
    }
    return name.len > 0;
}

/* What describes the request itself is ours to say. */
static int is_ours(once_slice_t name)
{
    static const char *const names[] = {"content-type",
                                        "content-length",
                                        "host",
                                        "transfer-encoding",
                                        "connection",
                                        "expect",
                                        "upgrade",
                                        "te",
                                        "trailer",
                                        "keep-alive",
                                        "idempotency-key",
                                        "once-signature",
                                        "proxy-authorization",
                                        "proxy-connection"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (name.len == strlen(names[i]) && strncasecmp(name.data, names[i], name.len) == 0) {
            return 1;
        }
    }
    return 0;
}

/* Control bytes, and those that are no ASCII, are percent-encoded. */
static void add_line(struct curl_slist **headers, once_slice_t name, once_slice_t value)
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
    longer = curl_slist_append(*headers, line);
    *headers = longer != NULL ? longer : *headers;
}

static void add_named(struct curl_slist **headers, const char *name, once_slice_t value)
{
    add_line(headers, (once_slice_t){name, strlen(name)}, value);
}

static void add_header(void *data, once_slice_t name, once_slice_t value)
{
    if (is_token(name) && !is_ours(name)) {
        add_line(data, name, value);
    }
}

struct curl_slist *once__http_headers(const once__message_t *message, const once__signer_t *signer)
{
    struct curl_slist *headers = NULL;
    char signature[SIGNATURE_MAX];

    if (signer != NULL && once__sign(signer, message->payload, signature, sizeof(signature)) != 0) {
        return NULL;
    }
    add_named(&headers, "Content-Type", once__message_content_type(message));
    if (message->id.data != NULL) {
        add_named(&headers, "Idempotency-Key", message->id);
    }
    once__message_headers(message, "ce-", add_header, &headers);
    add_named(&headers, "Expect", (once_slice_t){"", 0});
    if (signer != NULL) {
        add_named(&headers, "Once-Signature", (once_slice_t){signature, strlen(signature)});
    }
    return headers;
}
