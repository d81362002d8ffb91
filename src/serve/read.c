#include "serve/read.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

#define PART_MAX (64 * 1024) /* of scope, method, target and subject, as in libonce */
#define DAY_MS   (24ull * 60 * 60 * 1000)
#define TTL_MAX  (3650 * DAY_MS)
#define VALUES_MAX                                                                                 \
    10000 /* far more than the headers of a response or the claims of a renewal are */
#define CLAIM_RAW (ONCE_ID_SIZE + 4 + ONCE_CLAIM_ID_SIZE)

typedef enum kind {
    TEXT,     /* at most `max` bytes */
    NUMBER,   /* a whole one between `min` and `max` */
    SWITCH,   /* true or false */
    WORD,     /* one of `words`; the number of its place counts */
    HEX,      /* of `max` bytes */
    BASE64,   /* bytes */
    CLAIM,    /* the text of one */
    CLAIMS,   /* an array of them */
    RESPONSE, /* an object */
} kind_t;

typedef struct member {
    const char *name;
    kind_t kind;
    size_t offset;
    uint64_t min, max;
    const char *words[5];
} member_t;

#define AT(field) offsetof(once__serve_input_t, field)

/* In the order of the bits. */
/* clang-format off */
static const member_t members[] = {
    {"scope", TEXT, AT(scope), 0, PART_MAX, {NULL}},
    {"key", TEXT, AT(key), 0, PART_MAX, {NULL}},
    {"method", TEXT, AT(method), 0, PART_MAX, {NULL}},
    {"target", TEXT, AT(target), 0, PART_MAX, {NULL}},
    {"body", TEXT, AT(body), 0, UINT64_MAX, {NULL}},
    {"body_base64", BASE64, AT(body), 0, 0, {NULL}},
    {"recover", WORD, AT(recover), 0, 0, {"retry", "", "hold"}},
    {"ttl_ms", NUMBER, AT(ttl_ms), 1000, TTL_MAX, {NULL}},
    {"lease_ms", NUMBER, AT(lease_ms), 10, DAY_MS, {NULL}},
    {"description", TEXT, AT(description), 0, PART_MAX, {NULL}},
    {"subject", TEXT, AT(subject), 0, PART_MAX, {NULL}},
    {"claim_id", HEX, AT(claim_id), 0, ONCE_CLAIM_ID_SIZE, {NULL}},
    {"renew", WORD, AT(by_connection), 0, 0, {"caller", "connection"}},
    {"wait_ms", NUMBER, AT(wait_ms), 0, ONCE__SERVE_WAIT_MAX, {NULL}},
    {"claim", CLAIM, AT(claim), 0, 0, {NULL}},
    {"response", RESPONSE, AT(response), 0, 0, {NULL}},
    {"verdict", WORD, AT(verdict), 0, 0, {"", "final", "retry", "unknown"}},
    {"retain_ms", NUMBER, AT(retain_ms), 1, TTL_MAX, {NULL}},
    {"status", NUMBER, AT(status), 100, 999, {NULL}},
    {"note", TEXT, AT(note), 0, PART_MAX, {NULL}},
    {"early", SWITCH, AT(early), 0, 0, {NULL}},
    {"cause", TEXT, AT(cause), 0, PART_MAX, {NULL}},
    {"claims", CLAIMS, AT(claims), 0, ONCE__SERVE_CLAIMS_MAX, {NULL}},
    {"id", HEX, AT(id), 0, ONCE_ID_SIZE, {NULL}},
    {"step", TEXT, AT(step), 1, PART_MAX, {NULL}},
};
/* clang-format on */

#define MEMBERS (sizeof(members) / sizeof(members[0]))

static int refuse(once__serve_wrong_t *wrong, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static int refuse(once__serve_wrong_t *wrong, int code, const char *format, ...)
{
    va_list values;

    va_start(values, format);
    (void)vsnprintf(wrong->text, sizeof(wrong->text), format, values);
    va_end(values);
    wrong->code = code;
    return -1;
}

/* --------------------------------------------------------------------------------------------------------- values */

static once_slice_t text_of(const json_t *value)
{
    return once__slice(json_string_value(value), json_string_length(value));
}

static int read_text(const char *name, const json_t *value, uint64_t min, uint64_t max,
                     once_slice_t *out, once__serve_wrong_t *wrong)
{
    if (!json_is_string(value)) {
        return refuse(wrong, ONCE_E_INVALID, "\"%s\" must be a string", name);
    }
    *out = text_of(value);
    if (out->len < min) {
        return refuse(wrong, ONCE_E_INVALID, "\"%s\" must not be empty", name);
    }
    if (out->len > max) {
        return refuse(wrong, ONCE_E_TOO_BIG, "\"%s\" has more than %llu bytes", name,
                      (unsigned long long)max);
    }
    return 0;
}

static int read_number(const char *name, const json_t *value, uint64_t min, uint64_t max,
                       uint64_t *out, once__serve_wrong_t *wrong)
{
    double real = json_number_value(value);

    /* Some writers of JSON have only one kind of number: 30000.0 is a whole one. */
    if (!json_is_number(value) || real < (double)min || real > (double)max || real != floor(real)) {
        return refuse(wrong, ONCE_E_INVALID, "\"%s\" must be a whole number from %llu to %llu",
                      name, (unsigned long long)min, (unsigned long long)max);
    }
    *out = json_is_integer(value) ? (uint64_t)json_integer_value(value) : (uint64_t)real;
    return 0;
}

static int read_word(const member_t *member, const json_t *value, uint64_t *out,
                     once__serve_wrong_t *wrong)
{
    char list[100] = "";

    for (size_t i = 0; member->words[i] != NULL; i++) {
        const char *word = member->words[i];
        if (word[0] == '\0') {
            continue;
        }
        if (json_is_string(value) && strlen(word) == json_string_length(value) &&
            strcmp(word, json_string_value(value)) == 0) {
            *out = i;
            return 0;
        }
        (void)snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s\"%s\"",
                       list[0] != '\0' ? ", " : "", word);
    }
    return refuse(wrong, ONCE_E_INVALID, "\"%s\" must be one of %s", member->name, list);
}

static int base64_digit(char c)
{
    if (c >= 'A' && c <= 'Z') {
        return c - 'A';
    }
    if (c >= 'a' && c <= 'z') {
        return c - 'a' + 26;
    }
    if (c >= '0' && c <= '9') {
        return c - '0' + 52;
    }
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* The bytes of base64 with its padding; spare bits must be zero, so that no bytes have two texts. Returns their number or -1. */
static long long decode(uint8_t *out, const char *text, size_t len)
{
    size_t padding = 0, written = 0;
    uint32_t bits = 0;

    if (len % 4 != 0) {
        return -1;
    }
    while (len > 0 && padding < 2 && text[len - 1] == '=') {
        padding++;
        len--;
    }
    for (size_t i = 0; i < len; i++) {
        int digit = base64_digit(text[i]);
        if (digit < 0) {
            return -1;
        }
        bits = bits << 6 | (uint32_t)digit;
        if (i % 4 == 3) {
            out[written++] = (uint8_t)(bits >> 16);
            out[written++] = (uint8_t)(bits >> 8);
            out[written++] = (uint8_t)bits;
            bits = 0;
        }
    }
    if (padding == 1) {
        out[written++] = (uint8_t)(bits >> 10);
        out[written++] = (uint8_t)(bits >> 2);
    } else if (padding == 2) {
        out[written++] = (uint8_t)(bits >> 4);
    }
    return (bits & (padding == 1 ? 3u : padding == 2 ? 15u : 0u)) != 0 ? -1 : (long long)written;
}

static int read_base64(const char *name, const json_t *value, once_slice_t *out, uint8_t **memory,
                       once__serve_wrong_t *wrong)
{
    once_slice_t text = {NULL, 0};
    long long len;

    if (read_text(name, value, 0, UINT64_MAX, &text, wrong) != 0) {
        return -1;
    }
    *memory = malloc(text.len / 4 * 3 + 1);
    if (*memory == NULL) {
        return refuse(wrong, ONCE_E_NOMEM, "out of memory");
    }
    len = decode(*memory, text.data, text.len);
    if (len < 0) {
        return refuse(wrong, ONCE_E_INVALID,
                      "\"%s\" is not base64 (RFC 4648, section 4, with padding)", name);
    }
    *out = once__slice(*memory, (size_t)len);
    return 0;
}

static int read_hex(const member_t *member, const json_t *value, uint8_t *out,
                    once__serve_wrong_t *wrong)
{
    const char *text = json_string_value(value);

    if (text == NULL ||
        once__unhex(out, (size_t)member->max, text, json_string_length(value)) != 0) {
        return refuse(wrong, ONCE_E_INVALID, "\"%s\" must be %llu hex digits", member->name,
                      2 * (unsigned long long)member->max);
    }
    return 0;
}

int once__serve_claim_read(const char *claim, uint8_t id[ONCE_ID_SIZE],
                           uint8_t claim_id[ONCE_CLAIM_ID_SIZE])
{
    uint8_t raw[CLAIM_RAW];

    if (once__unbase64url(raw, sizeof(raw), claim, strlen(claim)) != 0) {
        return -1;
    }
    memcpy(id, raw, ONCE_ID_SIZE);
    memcpy(claim_id, raw + CLAIM_RAW - ONCE_CLAIM_ID_SIZE, ONCE_CLAIM_ID_SIZE);
    return 0;
}

static int is_claim(const json_t *value, uint8_t id[ONCE_ID_SIZE])
{
    const char *text = json_string_value(value);
    uint8_t claim_id[ONCE_CLAIM_ID_SIZE];

    return text != NULL && strlen(text) == json_string_length(value) &&
           once__serve_claim_read(text, id, claim_id) == 0;
}

static int read_claims(const member_t *member, const json_t *value, const json_t **out,
                       once__serve_wrong_t *wrong)
{
    size_t count = json_array_size(value);
    uint8_t id[ONCE_ID_SIZE];

    if (!json_is_array(value) || count > member->max) {
        return refuse(wrong, ONCE_E_INVALID, "\"%s\" must be an array of at most %llu claims",
                      member->name, (unsigned long long)member->max);
    }
    for (size_t i = 0; i < count; i++) {
        if (!is_claim(json_array_get(value, i), id)) {
            return refuse(wrong, ONCE_E_INVALID, "\"%s\"[%zu] is not a claim", member->name, i);
        }
    }
    *out = value;
    return 0;
}

/* ------------------------------------------------------------------------------------------------------- responses */

static int read_headers(once__serve_input_t *input, const json_t *value, once__serve_wrong_t *wrong)
{
    size_t count = json_array_size(value);

    if (!json_is_array(value)) {
        return refuse(wrong, ONCE_E_INVALID,
                      "\"headers\" must be an array of [\"name\", \"value\"]");
    }
    if (count > ONCE_HEADER_COUNT_MAX) {
        return refuse(wrong, ONCE_E_TOO_BIG, "a response has at most %d headers",
                      ONCE_HEADER_COUNT_MAX);
    }
    input->headers = calloc(count > 0 ? count : 1, sizeof(*input->headers));
    if (input->headers == NULL) {
        return refuse(wrong, ONCE_E_NOMEM, "out of memory");
    }
    for (size_t i = 0; i < count; i++) {
        const json_t *pair = json_array_get(value, i);
        const json_t *name = json_array_get(pair, 0), *text = json_array_get(pair, 1);
        if (json_array_size(pair) != 2 || !json_is_string(name) || !json_is_string(text)) {
            return refuse(wrong, ONCE_E_INVALID, "\"headers\"[%zu] must be [\"name\", \"value\"]",
                          i);
        }
        input->headers[i].name = text_of(name);
        input->headers[i].value = text_of(text);
    }
    input->response.headers = input->headers;
    input->response.header_count = count;
    return 0;
}

static int read_response_member(once__serve_input_t *input, const char *name, const json_t *value,
                                once__serve_wrong_t *wrong)
{
    once_response_t *response = &input->response;
    uint64_t number;

    if (strcmp(name, "status") == 0) {
        if (read_number("status", value, 100, 999, &number, wrong) != 0) {
            return -1;
        }
        response->status = (int)number;
        return 0;
    }
    if (strcmp(name, "headers") == 0) {
        return read_headers(input, value, wrong);
    }
    if (strcmp(name, "body") == 0) {
        return read_text("body", value, 0, UINT64_MAX, &response->body, wrong);
    }
    if (strcmp(name, "body_base64") == 0) {
        return read_base64("body_base64", value, &response->body, &input->response_decoded, wrong);
    }
    if (strcmp(name, "body_omitted") == 0 && json_is_boolean(value)) {
        response->body_omitted = json_is_true(value);
        return 0;
    }
    return refuse(wrong, ONCE_E_INVALID,
                  strcmp(name, "body_omitted") == 0
                      ? "\"body_omitted\" must be true or false"
                      : "\"response\" has status, headers, body or body_base64, and "
                        "body_omitted, and nothing else");
}

static int read_response(once__serve_input_t *input, const json_t *value,
                         once__serve_wrong_t *wrong)
{
    const char *name;
    const json_t *member;

    if (!json_is_object(value) || json_object_get(value, "status") == NULL) {
        return refuse(wrong, ONCE_E_INVALID, "\"response\" must be an object with a \"status\"");
    }
    if (json_object_get(value, "body") != NULL && json_object_get(value, "body_base64") != NULL) {
        return refuse(wrong, ONCE_E_INVALID, "give \"body\" or \"body_base64\", not both");
    }
    for (void *at = json_object_iter((json_t *)(uintptr_t)value); at != NULL;
         at = json_object_iter_next((json_t *)(uintptr_t)value, at)) {
        name = json_object_iter_key(at);
        member = json_object_iter_value(at);
        if (read_response_member(input, name, member, wrong) != 0) {
            return -1;
        }
    }
    if (input->response.body_omitted && input->response.body.len > 0) {
        return refuse(wrong, ONCE_E_INVALID, "a body that is omitted is not sent");
    }
    return 0;
}

/* --------------------------------------------------------------------------------------------------------- requests */

static int read_member(once__serve_input_t *input, const member_t *member, const json_t *value,
                       once__serve_wrong_t *wrong)
{
    void *out = (char *)input + member->offset;

    switch (member->kind) {
    case TEXT:
        return read_text(member->name, value, member->min, member->max, out, wrong);
    case NUMBER:
        return read_number(member->name, value, member->min, member->max, out, wrong);
    case SWITCH:
        if (!json_is_boolean(value)) {
            return refuse(wrong, ONCE_E_INVALID, "\"%s\" must be true or false", member->name);
        }
        *(uint64_t *)out = json_is_true(value);
        return 0;
    case WORD:
        return read_word(member, value, out, wrong);
    case HEX:
        return read_hex(member, value, out, wrong);
    case BASE64:
        return read_base64(member->name, value, out, &input->decoded, wrong);
    case CLAIM:
        if (!is_claim(value, input->id)) {
            return refuse(wrong, ONCE_E_INVALID, "\"%s\" is not a claim", member->name);
        }
        *(const char **)out = json_string_value(value);
        return 0;
    case CLAIMS:
        return read_claims(member, value, out, wrong);
    default:
        return read_response(input, value, wrong);
    }
}

/* The place of a member that the request may have; MEMBERS: there is none. */
static size_t find_member(const char *name, unsigned allowed)
{
    for (size_t i = 0; i < MEMBERS; i++) {
        if ((allowed >> i & 1) != 0 && strcmp(members[i].name, name) == 0) {
            return i;
        }
    }
    return MEMBERS;
}

static int read_members(once__serve_input_t *input, unsigned allowed, once__serve_wrong_t *wrong)
{
    for (void *at = json_object_iter(input->json); at != NULL;
         at = json_object_iter_next(input->json, at)) {
        size_t i = find_member(json_object_iter_key(at), allowed);
        if (i == MEMBERS) { /* its name may be anything: it is not repeated */
            return refuse(wrong, ONCE_E_INVALID,
                          "the request has a member that this operation does not know");
        }
        if (read_member(input, &members[i], json_object_iter_value(at), wrong) != 0) {
            return -1;
        }
        input->given |= 1u << i;
    }
    return 0;
}

/* A key is shown to people and kept by every store. */
static int check_key(const once__serve_input_t *input, once__serve_wrong_t *wrong)
{
    const unsigned char *text = input->key.data;

    if (input->key.len == 0 || input->key.len > ONCE_KEY_MAX) {
        return refuse(wrong, ONCE_E_KEY, "\"key\" must have 1 to %d bytes", ONCE_KEY_MAX);
    }
    for (size_t i = 0; i < input->key.len; i++) {
        if (text[i] < 0x20 || text[i] == 0x7f) {
            return refuse(wrong, ONCE_E_KEY, "\"key\" has a control character");
        }
    }
    return 0;
}

static int check_members(const once__serve_input_t *input, unsigned needed,
                         once__serve_wrong_t *wrong)
{
    for (size_t i = 0; i < MEMBERS; i++) {
        if (((needed & ~input->given) >> i & 1) != 0) {
            return refuse(wrong, ONCE_E_INVALID, "\"%s\" is missing", members[i].name);
        }
    }
    if ((input->given & ONCE__SERVE_BODY) && (input->given & ONCE__SERVE_BODY_BASE64)) {
        return refuse(wrong, ONCE_E_INVALID, "give \"body\" or \"body_base64\", not both");
    }
    return input->given & ONCE__SERVE_KEY ? check_key(input, wrong) : 0;
}

/*
 * Has the text more values than any request? Read, each takes many times the memory of its text: "[]," becomes over 100 bytes.
 * Up to the first error, where the parser stops, what begins a value or separates two is found as the parser finds it.
 */
static int has_many_values(const char *text, size_t len)
{
    size_t count = 0;
    int in_string = 0;

    for (size_t i = 0; i < len && count <= VALUES_MAX; i++) {
        if (text[i] == '"') {
            in_string = !in_string;
        } else if (in_string) {
            i += text[i] == '\\'; /* and what it escapes */
        } else {
            count += text[i] == ',' || text[i] == '[' || text[i] == '{';
        }
    }
    return count > VALUES_MAX;
}

int once__serve_read(once__serve_input_t *input, const char *text, size_t len, unsigned allowed,
                     unsigned needed, once__serve_wrong_t *wrong)
{
    const once_response_t none = ONCE_RESPONSE_INIT;
    json_error_t error;

    memset(input, 0, sizeof(*input));
    input->response = none;
    input->recover = ONCE_RECOVER_HOLD;
    if (has_many_values(text, len)) {
        return refuse(wrong, ONCE_E_INVALID, "the body has more than %d values", VALUES_MAX);
    }
    input->json = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (input->json == NULL) { /* jansson's own words may repeat what was sent */
        return refuse(wrong, ONCE_E_INVALID, "the body is not JSON (line %d, column %d)",
                      error.line, error.column);
    }
    if (!json_is_object(input->json)) {
        return refuse(wrong, ONCE_E_INVALID, "the body must be a JSON object");
    }
    if (read_members(input, allowed, wrong) != 0) {
        return -1;
    }
    return check_members(input, needed, wrong);
}

void once__serve_input_free(once__serve_input_t *input)
{
    json_decref(input->json);
    free(input->headers);
    free(input->decoded);
    free(input->response_decoded);
    memset(input, 0, sizeof(*input));
}
