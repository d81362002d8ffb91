/*
 * The request to the handler. Of the message's headers only its CloudEvents attributes, its content type, its trace and those that
 * --header names are passed on: a producer must not be able to write credentials into a request.
 */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"
#include "consume/internal.h"

#define VALUE_MAX 1024

typedef struct passing {
    once__consume_item_t *item;
    once__consume_handler_headers_t *headers;
    int has_type;
} passing_t;

static int is_named(const once__consume_settings_t *set, once_slice_t name)
{
    for (size_t i = 0; i < set->header_count; i++) {
        if (strlen(set->headers[i]) == name.len &&
            strncasecmp(set->headers[i], name.data, name.len) == 0) {
            return 1;
        }
    }
    return 0;
}

static int is(once_slice_t name, const char *text)
{
    return name.len == strlen(text) && strncasecmp(name.data, text, name.len) == 0;
}

/* Whether the name is a token of HTTP, and the value stays on its line. */
static int is_plain(once_slice_t name, once_slice_t value)
{
    return name.len < 100 && once__is_token(name.data, name.len) && value.len > 0 &&
           value.len < VALUE_MAX && once__is_field_value(value.data, value.len);
}

static void pass_on(void *data, once_slice_t name, once_slice_t value)
{
    passing_t *passing = data;
    const char *text = name.data;

    if (!is_plain(name, value)) {
        return;
    }
    if (name.len > 3 && strncasecmp(text, "ce_", 3) == 0) {
        once__consume_handler_headers_add(passing->headers, "ce-%.*s: %.*s", (int)name.len - 3,
                                          text + 3, (int)value.len, (const char *)value.data);
    } else if (is(name, "content-type")) {
        passing->has_type = 1;
        once__consume_handler_headers_add(passing->headers, "Content-Type: %.*s", (int)value.len,
                                          (const char *)value.data);
    } else if (is(name, "traceparent") || is(name, "tracestate") ||
               is_named(passing->item->consumer->settings, name)) {
        once__consume_handler_headers_add(passing->headers, "%.*s: %.*s", (int)name.len, text,
                                          (int)value.len, (const char *)value.data);
    }
}

/* A key that is not a plain token is sent as a quoted string, as the draft of Idempotency-Key has it. */
static void add_key(once__consume_handler_headers_t *headers, const once__consume_id_t *key)
{
    char field[2 * ONCE_KEY_TEXT_SIZE + 3];

    once__key_field(field, key->text, key->len);
    once__consume_handler_headers_add(headers, "Idempotency-Key: %s", field);
}

static void add_message_key(once__consume_handler_headers_t *headers, once_slice_t key)
{
    char text[3 * 256 + 1];
    size_t len = 0;

    if (key.data == NULL || key.len > 256) {
        return;
    }
    for (size_t i = 0; i < key.len; i++) {
        unsigned char c = ((const unsigned char *)key.data)[i];
        if (c > 0x20 && c < 0x7f && c != '%') {
            text[len++] = (char)c;
        } else {
            len += once__percent_escape(text + len, (char)c);
        }
    }
    once__consume_handler_headers_add(headers, "Once-Message-Key: %.*s", (int)len, text);
}

once__consume_handler_headers_t *once__consume_request_headers(once__consume_item_t *item)
{
    const once__consume_t *consumer = item->consumer;
    once__consume_handler_headers_t *headers = once__consume_handler_headers_new();
    passing_t passing = {item, headers, 0};
    char token[ONCE_TOKEN_SIZE];

    once_claim_token(item->claim, token);
    once__consume_handler_headers_add(headers, "Expect:");
    once__consume_handler_headers_add(headers, "Accept:");
    add_key(headers, &item->key);
    once__consume_handler_headers_add(headers, "Once-Claim: %s", token);
    once__consume_handler_headers_add(headers, "Once-Subscriber: %s", consumer->subscriber);
    once__consume_handler_headers_add(headers, "Once-Tries: %u", item->tries);
    add_message_key(headers, item->delivery->key);
    once__broker_delivery_headers(item->delivery, pass_on, &passing);
    if (!passing.has_type) {
        once__consume_handler_headers_add(headers, "Content-Type: %s",
                                          consumer->settings->content_type);
    }
    return headers;
}
