/*
 * What all publishers make of a message: names from templates, and headers.
 */
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"
#include "broker/internal.h"

/* -------------------------------------------------------------------------------------------------------- templates */

static const struct {
    const char *name;
    size_t offset; /* of the slice in once__broker_message_t */
} holes[] = {
    {"{topic}", offsetof(once__broker_message_t, topic)},
    {"{type}", offsetof(once__broker_message_t, type)},
    {"{key}", offsetof(once__broker_message_t, key)},
};

#define HOLES (sizeof(holes) / sizeof(holes[0]))

static size_t hole_at(const char *text)
{
    size_t i = 0;

    while (i < HOLES && strncmp(text, holes[i].name, strlen(holes[i].name)) != 0) {
        i++;
    }
    return i;
}

const char *once__broker_template_wrong(const char *template_text)
{
    for (const char *at = template_text; *at != '\0'; at++) {
        size_t hole = hole_at(at);
        if (hole < HOLES) {
            at += strlen(holes[hole].name) - 1;
        } else if (*at == '{' || *at == '}') {
            return "a template may contain {topic}, {type} and {key}, and no other braces";
        }
    }
    return NULL;
}

static int append(char *out, size_t size, size_t *len, once_slice_t value, int escape)
{
    for (size_t i = 0; i < value.len; i++) {
        char c = ((const char *)value.data)[i];
        if (c == '\0' || *len + 4 > size) {
            return -1;
        }
        if (escape) {
            *len += once__percent_encode(out + *len, c);
        } else {
            out[(*len)++] = c;
        }
    }
    return 0;
}

int once__broker_template_fill(const char *template_text, const once__broker_message_t *message,
                               int escape, char *out, size_t size)
{
    size_t len = 0;

    while (*template_text != '\0') {
        size_t hole = hole_at(template_text);
        once_slice_t value = {template_text, 1};
        if (hole < HOLES) {
            memcpy(&value, (const char *)message + holes[hole].offset, sizeof(value));
        }
        if (append(out, size, &len, value, escape && hole < HOLES) != 0) {
            return -1;
        }
        template_text += hole < HOLES ? strlen(holes[hole].name) : 1;
    }
    if (len >= size) {
        return -1;
    }
    out[len] = '\0';
    return 0;
}

/* ---------------------------------------------------------------------------------------------------------- headers */

static once_slice_t slice(const char *text)
{
    return (once_slice_t){text, strlen(text)};
}

/*
 * Headers that the publishers set themselves, in any spelling that a server on the way could take for them: to CGI a `_` is a
 * `-`.
 */
static const char *const reserved[] = {
    "ce-*",      "cloudevents-*", "cloudevents:*",   "once-*",
    "webhook-*", "message-id",    "idempotency-key", NULL,
};

static char folded(char c)
{
    return (char)(c == '_' ? '-' : c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
}

int once__broker_header_is_one_of(once_slice_t name, const char *const *patterns)
{
    const char *text = name.data;

    for (; *patterns != NULL; patterns++) {
        const char *at = *patterns;
        size_t i = 0;
        while (i < name.len && *at != '*' && *at == folded(text[i])) {
            at++;
            i++;
        }
        if (*at == '*' || (*at == '\0' && i == name.len)) {
            return 1;
        }
    }
    return 0;
}

void once__broker_message_headers(const once__broker_message_t *message, const char *prefix,
                                  void (*each)(void *data, once_slice_t name, once_slice_t value),
                                  void *data)
{
    const struct {
        const char *name;
        once_slice_t value;
    } attributes[] = {
        {"specversion", slice("1.0")}, {"id", message->id},     {"type", message->type},
        {"source", message->source},   {"time", message->time}, {"idempotencykey", message->cause},
    };
    char name[64];

    for (size_t i = 0; message->id.data != NULL && i < sizeof(attributes) / sizeof(attributes[0]);
         i++) {
        if (attributes[i].value.data != NULL) {
            snprintf(name, sizeof(name), "%s%s", prefix, attributes[i].name);
            each(data, slice(name), attributes[i].value);
        }
    }
    for (size_t i = 0; i < message->header_count; i++) {
        once_slice_t own = message->headers[i].name;
        if (message->id.data == NULL || !once__broker_header_is_one_of(own, reserved)) {
            each(data, own, message->headers[i].value);
        }
    }
}

once_slice_t once__broker_message_content_type(const once__broker_message_t *message)
{
    const char *at = message->payload.data;
    size_t left = message->payload.len;

    for (size_t i = 0; i < message->header_count; i++) {
        once_slice_t name = message->headers[i].name;
        if (name.len == 12 && strncasecmp(name.data, "content-type", 12) == 0) {
            return message->headers[i].value;
        }
    }
    while (left > 0 && strchr(" \t\r\n", *at) != NULL && *at != '\0') {
        at++;
        left--;
    }
    return slice(left > 0 && (*at == '{' || *at == '[') ? "application/json"
                                                        : "application/octet-stream");
}
