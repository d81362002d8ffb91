/*
 * Reading a key from its header.
 *
 * A comma in the raw form is refused. Proxies and servers may join several header lines into one, `a, b`: that is two keys,
 * and taking them for one would hide the error of a request with two header lines. A key that has a comma can be quoted:
 * inside quotes there is no doubt what belongs to it.
 */
#include <once/key.h>

#include <string.h>

#include "base/bytes.h"
#include "base/error.h"

static once_slice_t trim(once_slice_t value)
{
    const char *text = value.data;
    size_t start = 0, end = value.len;

    while (start < end && (text[start] == ' ' || text[start] == '\t')) {
        start++;
    }
    while (end > start && (text[end - 1] == ' ' || text[end - 1] == '\t')) {
        end--;
    }
    return start == end ? once__slice("", 0) : once__slice(text + start, end - start);
}

/* Adds a byte to the key. */
static int add(once_key_t *key, char byte, once_error_t *err)
{
    unsigned char c = (unsigned char)byte;

    if (c >= 0x80) {
        return once__fail(
            err, ONCE_E_KEY,
            "the key has a byte that is not ASCII; use visible ASCII characters only");
    }
    if (c < 0x20 || c == 0x7f) {
        return once__fail(err, ONCE_E_KEY,
                          "the key has a control character; use visible ASCII characters only");
    }
    if (key->len == ONCE_KEY_MAX) {
        return once__fail(err, ONCE_E_KEY, "the key is longer than %d bytes; send a shorter one",
                          ONCE_KEY_MAX);
    }
    key->text[key->len++] = byte;
    return ONCE_OK;
}

/* What is between the closing quote and the end of the value. */
static int refuse_rest(once_slice_t rest, once_error_t *err)
{
    once_slice_t trimmed = trim(rest);
    const char *text = trimmed.data;

    if (text[0] == ',') {
        return once__fail(err, ONCE_E_KEY,
                          "the key header has several keys, separated by commas; send exactly one");
    }
    if (text[0] == ';') {
        return once__fail(err, ONCE_E_KEY,
                          "the key has parameters after its closing quote; send the key alone");
    }
    return once__fail(
        err, ONCE_E_KEY,
        "there is text after the key's closing quote; write a quote inside a key as \\\"");
}

static int parse_quoted(once_slice_t value, once_key_t *key, once_error_t *err)
{
    const char *text = value.data;

    for (size_t i = 1; i < value.len; i++) {
        char c = text[i];
        if (c == '"') {
            return i + 1 == value.len
                       ? ONCE_OK
                       : refuse_rest(once__slice(text + i + 1, value.len - i - 1), err);
        }
        if (c == '\\') {
            i++;
            if (i == value.len || (text[i] != '"' && text[i] != '\\')) {
                return once__fail(err, ONCE_E_KEY,
                                  "the key has a backslash that escapes nothing; inside quotes "
                                  "only \\\" and \\\\ are escapes");
            }
            c = text[i];
        }
        int rc = add(key, c, err);
        if (rc != ONCE_OK) {
            return rc;
        }
    }
    return once__fail(err, ONCE_E_KEY, "the key's closing quote is missing; add it");
}

/* Nothing that needs a closer look. */
static int is_plain(once_slice_t value)
{
    const unsigned char *text = value.data;

    for (size_t i = 0; i < value.len; i++) {
        if (text[i] < 0x20 || text[i] >= 0x7f || text[i] == ',') {
            return 0;
        }
    }
    return value.len <= ONCE_KEY_MAX;
}

static int parse_raw(once_slice_t value, unsigned flags, once_key_t *key, once_error_t *err)
{
    const char *text = value.data;

    if (flags & ONCE_KEY_STRICT) {
        return once__fail(err, ONCE_E_KEY,
                          "the key is not quoted; send it in double quotes, as an RFC 8941 string");
    }
    if (is_plain(value)) {
        memcpy(key->text, text, value.len);
        key->len = value.len;
        return ONCE_OK;
    }
    for (size_t i = 0; i < value.len; i++) {
        if (text[i] == ',') {
            return once__fail(err, ONCE_E_KEY,
                              "the key has a comma, as if several were joined; send exactly one, "
                              "in double quotes if the comma belongs to it");
        }
        int rc = add(key, text[i], err);
        if (rc != ONCE_OK) {
            return rc;
        }
    }
    return ONCE_OK;
}

static int parse(once_slice_t value, unsigned flags, once_key_t *key, once_error_t *err)
{
    const char *text = value.data;
    int rc = ONCE_OK;

    if (value.len > 0) {
        rc = text[0] == '"' ? parse_quoted(value, key, err) : parse_raw(value, flags, key, err);
    }
    if (rc == ONCE_OK && key->len == 0) {
        rc = once__fail(err, ONCE_E_KEY, "the key is empty; send 1 to %d characters", ONCE_KEY_MAX);
    }
    return rc;
}

int once_key_parse(const once_slice_t *values, size_t count, unsigned flags, once_key_t *key,
                   once_error_t *err)
{
    key->len = 0;
    key->text[0] = '\0';
    if (count == 0) {
        return once__fail(err, ONCE_E_KEY, "the key is missing; send the key header once");
    }
    if (count > 1) {
        return once__fail(err, ONCE_E_KEY, "the key header was sent %zu times; send it once",
                          count);
    }
    int rc = parse(trim(values[0]), flags, key, err);
    if (rc != ONCE_OK) {
        key->len = 0;
    }
    key->text[key->len] = '\0';
    return rc;
}
