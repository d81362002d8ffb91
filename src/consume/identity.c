#include "consume/identity.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"

int once__consume_identity_read(once__consume_identity_t *identity, const char *text, char *error,
                                size_t size)
{
    char *at;

    memset(identity, 0, sizeof(*identity));
    identity->is_default = text == NULL;
    identity->memory = strdup(text != NULL ? text : "header:ce_id");
    if (identity->memory == NULL) {
        snprintf(error, size, "out of memory");
        return -1;
    }
    if (strncmp(identity->memory, "header:", 7) == 0 && identity->memory[7] != '\0') {
        identity->header = identity->memory + 7;
        return 0;
    }
    at = strncmp(identity->memory, "json:", 5) == 0 ? identity->memory + 5 : NULL;
    while (at != NULL && *at == '/' && identity->part_count < ONCE__CONSUME_IDENTITY_PARTS_MAX) {
        identity->parts[identity->part_count++] = at + 1;
        at = strstr(at, "+/");
        if (at == NULL) {
            return 0;
        }
        *at++ = '\0';
    }
    snprintf(error, size, "--id is header:NAME, json:/NAME or json:/NAME+/NAME");
    return -1;
}

void once__consume_identity_free(once__consume_identity_t *identity)
{
    free(identity->memory);
    identity->memory = NULL;
}

static int is_plain(unsigned char c, int several)
{
    return c >= 0x20 && c <= 0x7e && c != '%' && !(several && c == ':');
}

#define EACH(byte) (0x0101010101010101u * (byte))

static uint64_t has_zero(uint64_t word)
{
    return (word - EACH(1)) & ~word & EACH(0x80);
}

/* The same for eight bytes at a time. Not 0 if one of them is not plain, or seems so. */
static uint64_t is_odd(const unsigned char *bytes, int several)
{
    uint64_t word;

    memcpy(&word, bytes, sizeof(word));
    return (word & EACH(0x80)) | ((word - EACH(0x20)) & EACH(0x80)) | has_zero(word ^ EACH(0x7f)) |
           has_zero(word ^ EACH('%')) | (several ? has_zero(word ^ EACH(':')) : 0);
}

/* 1 if all bytes are plain, as in nearly every id; 0 if each must be checked. */
static int is_all_plain(const unsigned char *bytes, size_t len, int several)
{
    uint64_t odd = 0;

    if (len < sizeof(odd)) {
        return 0;
    }
    for (size_t i = 0; i + sizeof(odd) < len; i += sizeof(odd)) {
        odd |= is_odd(bytes + i, several);
    }
    return (odd | is_odd(bytes + len - sizeof(odd), several)) == 0;
}

/* Visible ASCII and spaces stay; other bytes, and separators of parts, become %XX: two values never give the same text. */
static int append(once__consume_id_t *key, once_slice_t value, int several)
{
    const unsigned char *bytes = value.data;
    size_t len = key->len;

    if (value.len <= ONCE_KEY_MAX - len && is_all_plain(bytes, value.len, several)) {
        memcpy(key->text + len, bytes, value.len);
        key->len = len + value.len;
        key->text[key->len] = '\0';
        return 0;
    }
    for (size_t i = 0; i < value.len; i++) {
        unsigned char c = bytes[i];
        int plain = is_plain(c, several);
        if (len + (plain ? 1 : 3) > ONCE_KEY_MAX) {
            return -1;
        }
        if (plain) {
            key->text[len++] = (char)c;
        } else {
            len += once__percent_escape(key->text + len, (char)c);
        }
    }
    key->text[len] = '\0';
    key->len = len;
    return 0;
}

/* Follows a JSON pointer without its first slash (RFC 6901). Returns NULL if it leads nowhere. */
static const json_t *follow(const json_t *at, const char *pointer)
{
    char token[256];

    while (at != NULL) {
        size_t len = 0;
        for (; *pointer != '\0' && *pointer != '/' && len + 1 < sizeof(token); pointer++) {
            if (pointer[0] == '~' && (pointer[1] == '0' || pointer[1] == '1')) {
                token[len++] = pointer[1] == '0' ? '~' : '/';
                pointer++;
            } else {
                token[len++] = *pointer;
            }
        }
        token[len] = '\0';
        if (json_is_array(at)) {
            char *end;
            unsigned long place = strtoul(token, &end, 10);
            at = *end == '\0' && len > 0 ? json_array_get(at, place) : NULL;
        } else {
            at = json_object_get(at, token);
        }
        if (*pointer != '/') {
            return *pointer == '\0' ? at : NULL;
        }
        pointer++;
    }
    return NULL;
}

static int add_part(const json_t *value, int several, once__consume_id_t *key)
{
    char number[32];

    if (json_is_string(value) && json_string_length(value) > 0) {
        return append(key, (once_slice_t){json_string_value(value), json_string_length(value)},
                      several);
    }
    if (json_is_integer(value)) {
        snprintf(number, sizeof(number), "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        return append(key, (once_slice_t){number, strlen(number)}, several);
    }
    return -1;
}

static int of_json(const once__consume_identity_t *identity, once__broker_delivery_t *delivery,
                   once__consume_id_t *key, char *why, size_t size)
{
    json_t *body = json_loadb(delivery->payload.data, delivery->payload.len,
                              JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    int bad = body == NULL;

    if (bad) {
        snprintf(why, size, "the payload is not JSON");
    }
    for (size_t i = 0; !bad && i < identity->part_count; i++) {
        bad = (i > 0 && (key->len + 1 > ONCE_KEY_MAX || (key->text[key->len++] = ':') != ':')) ||
              add_part(follow(body, identity->parts[i]), identity->part_count > 1, key) != 0;
        if (bad) {
            snprintf(why, size,
                     "/%.60s is not there, is neither text nor a whole number, or is too long",
                     identity->parts[i]);
        }
    }
    json_decref(body);
    return bad ? -1 : 0;
}

typedef struct search {
    const char *names[4]; /* ends with NULL */
    once_slice_t value;
    int found, differs;
} search_t;

static void look(void *data, once_slice_t name, once_slice_t value)
{
    search_t *search = data;
    size_t i = 0;

    while (search->names[i] != NULL && (strlen(search->names[i]) != name.len ||
                                        strncasecmp(search->names[i], name.data, name.len) != 0)) {
        i++;
    }
    if (search->names[i] == NULL) {
        return;
    }
    search->differs |= search->found &&
                       (value.len != search->value.len ||
                        (value.len > 0 && memcmp(value.data, search->value.data, value.len) != 0));
    search->value = value;
    search->found = 1;
}

/* A message with two ids has neither: otherwise a second header could choose which record decides. */
static int of_header(const once__consume_identity_t *identity, once__broker_delivery_t *delivery,
                     once__consume_id_t *key, char *why, size_t size)
{
    search_t search = {.names = {identity->header}};

    if (identity->is_default) { /* CloudEvents over AMQP */
        search.names[1] = "cloudEvents:id";
        search.names[2] = "cloudEvents_id";
    }
    once__broker_delivery_headers(delivery, look, &search);
    if (!search.found || search.value.len == 0) {
        snprintf(why, size, "the message has no header %.60s", identity->header);
        return -1;
    }
    if (search.differs) {
        snprintf(why, size, "the message has more than one header %.60s, with different ids",
                 identity->header);
        return -1;
    }
    if (append(key, search.value, 0) != 0) {
        snprintf(why, size, "the header %.60s is too long for an id", identity->header);
        return -1;
    }
    return 0;
}

int once__consume_identity_of(const once__consume_identity_t *identity,
                              once__broker_delivery_t *delivery, once__consume_id_t *key, char *why,
                              size_t size)
{
    key->len = 0;
    key->text[0] = '\0';
    return identity->header == NULL ? of_json(identity, delivery, key, why, size)
                                    : of_header(identity, delivery, key, why, size);
}

once_slice_t once__consume_identity_cause(once__broker_delivery_t *delivery)
{
    search_t search = {
        .names = {"ce_idempotencykey", "cloudEvents:idempotencykey", "cloudEvents_idempotencykey"}};

    once__broker_delivery_headers(delivery, look, &search);
    return search.found && !search.differs ? search.value : (once_slice_t){NULL, 0};
}
