#include "core/multipart.h"

#include <assert.h>
#include <string.h>

#include "base/bytes.h"
#include "base/text.h"

/* ------------------------------------------------------------------------------------------ the body, cut at delimiters */

enum state {
    START,     /* so far only the beginning of the first "--" boundary */
    DELIMITED, /* after "--" boundary: CRLF or "--" decides */
    PART,
    CLOSED,
    CLOSED_CR,
    CLOSED_CRLF,
    NONE, /* not a body of the form */
};

void once__multipart_init(once__multipart_t *multipart, const char *boundary, size_t len)
{
    assert(len > 0 && len <= ONCE__BOUNDARY_MAX);
    memset(multipart, 0, offsetof(once__multipart_t, buffer));
    multipart->state = START;
    memcpy(multipart->dash_boundary, "--", 2);
    memcpy(multipart->dash_boundary + 2, boundary, len);
    multipart->dash_len = (uint8_t)(len + 2);
    once__sha256_init(&multipart->total);
}

static void drop(once__multipart_t *multipart, size_t len)
{
    assert(len <= multipart->buffered);
    multipart->buffered -= len;
    memmove(multipart->buffer, multipart->buffer + len, multipart->buffered);
}

/* Each step returns 1 if it made progress, 0 if it needs more bytes. */
static int step_start(once__multipart_t *multipart)
{
    if (multipart->buffered < multipart->dash_len) {
        return 0;
    }
    if (memcmp(multipart->buffer, multipart->dash_boundary, multipart->dash_len) != 0) {
        multipart->state = NONE;
        return 1;
    }
    drop(multipart, multipart->dash_len);
    multipart->state = DELIMITED;
    return 1;
}

static int step_mark(once__multipart_t *multipart)
{
    if (multipart->buffered < 2) {
        return 0;
    }
    if (memcmp(multipart->buffer, "\r\n", 2) == 0) {
        multipart->state = PART;
        once__sha256_init(&multipart->part);
    } else if (memcmp(multipart->buffer, "--", 2) == 0) {
        multipart->state = CLOSED;
    } else {
        multipart->state = NONE;
    }
    drop(multipart, 2);
    return 1;
}

static void end_part(once__multipart_t *multipart)
{
    uint8_t sum[ONCE__SHA256_SIZE];

    once__sha256_end(&multipart->part, sum);
    once__sha256_add(&multipart->total, sum, sizeof(sum));
    multipart->parts++;
}

static int step_part(once__multipart_t *multipart)
{
    const uint8_t *buffer = multipart->buffer;
    const uint8_t *found =
        memmem(buffer, multipart->buffered, multipart->dash_boundary, multipart->dash_len);

    if (found != NULL) {
        size_t at = (size_t)(found - buffer);
        if (at < 2 || memcmp(found - 2, "\r\n", 2) != 0) {
            multipart->state = NONE;
            return 1;
        }
        once__sha256_add(&multipart->part, buffer, at - 2);
        end_part(multipart);
        drop(multipart, at + multipart->dash_len);
        multipart->state = DELIMITED;
        return 1;
    }
    /* What may still become CRLF "--" boundary stays; so the CRLF before a boundary is always in the buffer with it. */
    size_t keep = (size_t)multipart->dash_len + 1;
    if (multipart->buffered > keep) {
        once__sha256_add(&multipart->part, buffer, multipart->buffered - keep);
        drop(multipart, multipart->buffered - keep);
    }
    return 0;
}

static int step_closed(once__multipart_t *multipart)
{
    if (multipart->buffered == 0) {
        return 0;
    }
    if (multipart->state == CLOSED && multipart->buffer[0] == '\r') {
        multipart->state = CLOSED_CR;
    } else if (multipart->state == CLOSED_CR && multipart->buffer[0] == '\n') {
        multipart->state = CLOSED_CRLF;
    } else {
        multipart->state = NONE;
    }
    drop(multipart, 1);
    return 1;
}

static int step(once__multipart_t *multipart)
{
    switch ((enum state)multipart->state) {
    case START:
        return step_start(multipart);
    case DELIMITED:
        return step_mark(multipart);
    case PART:
        return step_part(multipart);
    case CLOSED:
    case CLOSED_CR:
    case CLOSED_CRLF:
        return step_closed(multipart);
    case NONE:
        break;
    }
    return 0;
}

void once__multipart_add(once__multipart_t *multipart, const void *data, size_t len)
{
    const uint8_t *bytes = data;

    while (len > 0 && multipart->state != NONE) {
        size_t room = sizeof(multipart->buffer) - multipart->buffered;
        size_t take = len < room ? len : room;
        memcpy(multipart->buffer + multipart->buffered, bytes, take);
        multipart->buffered += take;
        bytes += take;
        len -= take;
        while (step(multipart)) {
        }
    }
}

int once__multipart_end(const once__multipart_t *multipart, uint8_t sum[ONCE__SHA256_SIZE])
{
    once__sha256_t total = multipart->total;
    uint8_t parts[8];

    if (multipart->state != CLOSED && multipart->state != CLOSED_CRLF) {
        return -1;
    }
    once__put64(parts, multipart->parts);
    once__sha256_add(&total, parts, sizeof(parts));
    once__sha256_end(&total, sum);
    return 0;
}

/* -------------------------------------------------------------------------------------------- the boundary's parameter */

typedef struct reader {
    const char *at;
    const char *end;
} reader_t;

static int is_alphanumeric(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

static int is_boundary(char c)
{
    return is_alphanumeric(c) || (c != '\0' && strchr("'()+_,-./:=? ", c) != NULL);
}

static void skip_spaces(reader_t *reader)
{
    while (reader->at < reader->end && (*reader->at == ' ' || *reader->at == '\t')) {
        reader->at++;
    }
}

static int skip(reader_t *reader, char c)
{
    if (reader->at == reader->end || *reader->at != c) {
        return 0;
    }
    reader->at++;
    return 1;
}

static once_slice_t read_token(reader_t *reader)
{
    const char *start = reader->at;

    while (reader->at < reader->end && once__is_token(reader->at, 1)) {
        reader->at++;
    }
    return once__slice(start, (size_t)(reader->at - start));
}

/* The inside of a quoted string, including escapes; 0 bytes if it does not end. */
static once_slice_t read_quoted(reader_t *reader)
{
    const char *start = ++reader->at;

    for (; reader->at < reader->end && *reader->at != '"'; reader->at++) {
        if (*reader->at == '\\' && reader->at + 1 < reader->end) {
            reader->at++;
        }
    }
    size_t len = (size_t)(reader->at - start);
    return once__slice(start, skip(reader, '"') ? len : 0);
}

/* `text` is lower-case. */
static int is_word(once_slice_t slice, const char *text)
{
    const char *word = slice.data;

    if (slice.len != strlen(text)) {
        return 0;
    }
    for (size_t i = 0; i < slice.len; i++) {
        char c = word[i] >= 'A' && word[i] <= 'Z' ? (char)(word[i] + 'a' - 'A') : word[i];
        if (c != text[i]) {
            return 0;
        }
    }
    return 1;
}

static int is_usable(once_slice_t value)
{
    const char *text = value.data;

    for (size_t i = 0; i < value.len; i++) {
        if (!is_boundary(text[i])) {
            return 0;
        }
    }
    return value.len > 0 && value.len <= ONCE__BOUNDARY_MAX && text[value.len - 1] != ' ';
}

/* One "name=value"; returns -1 if it is malformed or a second boundary. */
static int read_parameter(reader_t *reader, once_slice_t *boundary)
{
    once_slice_t name = read_token(reader), value;

    if (name.len == 0 || !skip(reader, '=')) {
        return -1;
    }
    if (reader->at < reader->end && *reader->at == '"') {
        value = read_quoted(reader);
    } else {
        value = read_token(reader);
    }
    if (!is_word(name, "boundary")) {
        return 0;
    }
    if (boundary->len > 0 || !is_usable(value)) {
        return -1;
    }
    *boundary = value;
    return 0;
}

int once__multipart_boundary(once_slice_t content_type, char boundary[ONCE__BOUNDARY_MAX],
                             size_t *len)
{
    once_slice_t found = {NULL, 0};

    if (content_type.len == 0) {
        return -1;
    }
    const char *text = content_type.data;
    reader_t reader = {text, text + content_type.len};
    skip_spaces(&reader);
    if (!is_word(read_token(&reader), "multipart") || !skip(&reader, '/') ||
        read_token(&reader).len == 0) {
        return -1;
    }
    for (skip_spaces(&reader); reader.at < reader.end; skip_spaces(&reader)) {
        if (!skip(&reader, ';')) {
            return -1;
        }
        skip_spaces(&reader);
        int empty = reader.at == reader.end || *reader.at == ';';
        if (!empty && read_parameter(&reader, &found) != 0) {
            return -1;
        }
    }
    if (found.len == 0) {
        return -1;
    }
    memcpy(boundary, found.data, found.len);
    *len = found.len;
    return 0;
}
