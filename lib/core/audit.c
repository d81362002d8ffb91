#include "core/audit.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/bytes.h"
#include "base/text.h"
#include "base/units.h"

#define HEX  (2 * ONCE__SHA256_SIZE)
#define HEAD (20 + 1 + HEX + 1 + HEX + 1) /* what precedes the JSON, at most */

/* The JSON of an entry. All of its texts are bounded, so that it fits. */
typedef struct json {
    char text[ONCE__AUDIT_LINE_MAX - HEAD + 1];
    size_t len;
} json_t;

static void put(json_t *json, const char *text, size_t len)
{
    size_t room = sizeof(json->text) - 1 - json->len;

    len = len < room ? len : room;
    memcpy(json->text + json->len, text, len);
    json->len += len;
    json->text[json->len] = '\0';
}

static void put_name(json_t *json, const char *name)
{
    put(json, json->len == 0 ? "{\"" : ",\"", 2);
    put(json, name, strlen(name));
    put(json, "\":", 2);
}

/* Bytes that are not UTF-8 become question marks: a reader of the trail must be able to read all of it. */
static void put_string(json_t *json, const char *name, once_slice_t text)
{
    const char *bytes = text.data;
    char escaped[6];

    if (text.len == 0) {
        return;
    }
    put_name(json, name);
    put(json, "\"", 1);
    for (size_t i = 0; i < text.len;) {
        size_t len = once__utf8_len(bytes + i, text.len - i);
        if (len > 1) {
            put(json, bytes + i, len);
        } else if (len == 1) {
            put(json, escaped, once__json_escape(escaped, bytes[i]));
        } else {
            put(json, "?", 1);
        }
        i += len > 0 ? len : 1;
    }
    put(json, "\"", 1);
}

static void put_text(json_t *json, const char *name, const char *text)
{
    put_string(json, name, once__slice_of(text != NULL ? text : ""));
}

static void put_number(json_t *json, const char *name, uint64_t number)
{
    char text[24];
    int len = snprintf(text, sizeof(text), "%" PRIu64, number);

    if (number != 0) {
        put_name(json, name);
        put(json, text, (size_t)len);
    }
}

static void put_hex(json_t *json, const char *name, const uint8_t *bytes, size_t len)
{
    char text[2 * ONCE_ID_SIZE + 1];

    if (bytes != NULL) {
        once__hex(text, bytes, len);
        put_text(json, name, text);
    }
}

static void put_words(json_t *json, const once__audit_words_t *words)
{
    char time[ONCE__TIME_SIZE];

    once__time_format(time, words->time_ms);
    put_text(json, "time", time);
    put_string(json, "by", words->by);
    put_text(json, "act", words->act);
    put_text(json, "step", words->step);
    put_number(json, "of", words->of);
    put_hex(json, "record", words->record, ONCE_ID_SIZE);
    put_hex(json, "scope", words->scope_hash, ONCE_SCOPE_HASH_SIZE);
    if (words->claim != NULL) {
        put_hex(json, "claim", words->claim->id, ONCE_CLAIM_ID_SIZE);
        put_number(json, "epoch", words->claim->epoch);
    }
    put_text(json, "from", words->from);
    put_text(json, "to", words->to);
    put_string(json, "object", words->object);
    put_string(json, "result", words->result);
    put_string(json, "note", words->note);
    put(json, "}", 1);
}

static void hash(const once__audit_link_t *link, once_slice_t json, uint8_t out[ONCE__SHA256_SIZE])
{
    char head[HEAD], prev[HEX + 1];
    once__sha256_t sum;
    int len;

    once__hex(prev, link->prev, ONCE__SHA256_SIZE);
    len = snprintf(head, sizeof(head), "%" PRIu64 " %s ", link->number, prev);
    once__sha256_init(&sum);
    once__sha256_add(&sum, head, (size_t)len);
    once__sha256_add(&sum, json.data, json.len);
    once__sha256_end(&sum, out);
}

size_t once__audit_write(char line[ONCE__AUDIT_LINE_MAX + 1], const once__audit_words_t *words,
                         const once__audit_link_t *last, once__audit_link_t *link)
{
    json_t json = {.len = 0};
    char prev[HEX + 1], own[HEX + 1];

    put_words(&json, words);
    link->number = last->number + 1;
    memcpy(link->prev, last->hash, ONCE__SHA256_SIZE);
    hash(link, once__slice(json.text, json.len), link->hash);
    once__hex(prev, link->prev, ONCE__SHA256_SIZE);
    once__hex(own, link->hash, ONCE__SHA256_SIZE);
    return (size_t)snprintf(line, ONCE__AUDIT_LINE_MAX + 1, "%" PRIu64 " %s %s %s", link->number,
                            prev, own, json.text);
}

/* The number that a line begins with, and how many digits it has. 0: none. */
static uint64_t read_number(const char *line, size_t len, size_t *digits)
{
    uint64_t number = 0;
    size_t at = 0;

    while (at < len && at < 18 && line[at] >= '0' && line[at] <= '9') {
        number = number * 10 + (uint64_t)(line[at++] - '0');
    }
    *digits = at;
    return at < len && line[at] == ' ' && line[0] != '0' ? number : 0;
}

int once__audit_read(const char *line, size_t len, once__audit_link_t *link, once_slice_t *json)
{
    size_t at;

    link->number = read_number(line, len, &at);
    if (link->number == 0 || len > ONCE__AUDIT_LINE_MAX || len < at + 2 * (HEX + 1) + 3 ||
        line[at + 1 + HEX] != ' ' || line[at + 2 + 2 * HEX] != ' ' ||
        line[at + 3 + 2 * HEX] != '{' || line[len - 1] != '}' ||
        once__unhex(link->prev, ONCE__SHA256_SIZE, line + at + 1, HEX) != 0 ||
        once__unhex(link->hash, ONCE__SHA256_SIZE, line + at + 2 + HEX, HEX) != 0) {
        return -1;
    }
    at += 3 + 2 * HEX;
    *json = once__slice(line + at, len - at);
    return 0;
}

int once__audit_follow(const char *line, size_t len, once__audit_link_t *link, once_slice_t *json)
{
    uint64_t next = link->number + 1, number;
    once__sha256_t sum;
    size_t digits;

    if (once__audit_read(line, len, link, json) == 0) {
        return 0;
    }
    number = read_number(line, len, &digits);
    link->number = number > next ? number : next;
    once__sha256_init(&sum);
    once__sha256_add(&sum, line, len);
    once__sha256_end(&sum, link->hash);
    *json = once__slice(line, len);
    return -1;
}

int once__audit_is_whole(const once__audit_link_t *link, once_slice_t json)
{
    uint8_t sum[ONCE__SHA256_SIZE];

    hash(link, json, sum);
    return once__equal(sum, link->hash, ONCE__SHA256_SIZE);
}

size_t once__audit_whole_lines(const char *text, size_t len)
{
    while (len > 0 && text[len - 1] != '\n') {
        len--;
    }
    return len;
}

size_t once__audit_last_line(const char *text, size_t len)
{
    size_t end = once__audit_whole_lines(text, len);

    return end > 0 ? once__audit_whole_lines(text, end - 1) : 0;
}
