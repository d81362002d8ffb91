#include "core/json_io.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/text.h"

once__json_fault_t once__json_reserve(once__json_io_t *io, size_t more)
{
    if (io->room - io->len >= more) {
        return ONCE__JSON_FINE;
    }
    size_t room = io->room + io->room / 2;
    room = room < io->len + more ? io->len + more : room;
    char *text = realloc(io->text, room);
    if (text == NULL) {
        return ONCE__JSON_MEMORY;
    }
    io->text = text;
    io->room = room;
    return ONCE__JSON_FINE;
}

once__json_fault_t once__json_put(once__json_io_t *io, const void *data, size_t len)
{
    once__json_fault_t fault = once__json_reserve(io, len);

    if (fault == ONCE__JSON_FINE) {
        memcpy(io->text + io->len, data, len);
        io->len += len;
    }
    return fault;
}

static size_t utf8_write(char out[4], uint32_t code)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xc0 | code >> 6);
        out[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (char)(0xe0 | code >> 12);
        out[1] = (char)(0x80 | (code >> 6 & 0x3f));
        out[2] = (char)(0x80 | (code & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | code >> 18);
    out[1] = (char)(0x80 | (code >> 12 & 0x3f));
    out[2] = (char)(0x80 | (code >> 6 & 0x3f));
    out[3] = (char)(0x80 | (code & 0x3f));
    return 4;
}

/* Writes a character that the document escaped, in the only form that RFC 8785 allows. */
static once__json_fault_t put_character(once__json_io_t *io, uint32_t code)
{
    int escaped = code < 0x20 || code == '"' || code == '\\';
    char out[6];
    size_t len = escaped ? once__json_escape(out, (char)code) : utf8_write(out, code);

    return once__json_put(io, out, len);
}

/* Reads "\uXXXX"; returns -1 if it is malformed. */
static int32_t read_unit(once__json_io_t *io)
{
    const unsigned char *p = io->at;
    int32_t unit = 0;

    if (io->end - p < 6 || p[0] != '\\' || p[1] != 'u') {
        return -1;
    }
    for (int i = 2; i < 6; i++) {
        int digit = once__hex_digit((char)p[i]);
        if (digit < 0) {
            return -1;
        }
        unit = unit << 4 | digit;
    }
    io->at += 6;
    return unit;
}

static once__json_fault_t put_long_escape(once__json_io_t *io)
{
    int32_t unit = read_unit(io);

    if (unit < 0) {
        return ONCE__JSON_SYNTAX;
    }
    if (unit < 0xd800 || unit > 0xdfff) {
        return put_character(io, (uint32_t)unit);
    }
    int32_t low = unit < 0xdc00 ? read_unit(io) : -1;
    if (low < 0xdc00 || low > 0xdfff) {
        return ONCE__JSON_SURROGATE;
    }
    return put_character(io,
                         0x10000u + ((uint32_t)(unit - 0xd800) << 10) + (uint32_t)(low - 0xdc00));
}

static once__json_fault_t put_escape(once__json_io_t *io)
{
    static const char letters[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";

    if (io->end - io->at < 2) {
        return ONCE__JSON_SYNTAX;
    }
    if (io->at[1] == 'u') {
        return put_long_escape(io);
    }
    const char *letter = memchr(letters, io->at[1], sizeof(letters) - 1);
    if (letter == NULL) {
        return ONCE__JSON_SYNTAX;
    }
    io->at += 2;
    return put_character(io, (uint32_t)values[letter - letters]);
}

/* Characters that need no escape, from `p` on. */
static const unsigned char *skip_plain(const unsigned char *p, const unsigned char *end)
{
    while (p < end && *p >= 0x20 && *p != '"' && *p != '\\') {
        size_t len = *p < 0x80 ? 1 : once__utf8_len(p, (size_t)(end - p));
        if (len == 0) {
            break;
        }
        p += len;
    }
    return p;
}

/* From the quote at io->at to the one that ends the string. */
once__json_fault_t once__json_put_string(once__json_io_t *io)
{
    const unsigned char *start = io->at++; /* the first run is copied with the quote */

    for (;;) {
        const unsigned char *stop = skip_plain(io->at, io->end);
        int quote = stop < io->end && *stop == '"';
        once__json_fault_t fault =
            once__json_put(io, start, (size_t)(stop - start) + (unsigned)quote);
        if (fault != ONCE__JSON_FINE) {
            return fault;
        }
        io->at = stop + quote;
        if (quote) {
            return ONCE__JSON_FINE;
        }
        if (stop == io->end || *stop < 0x20) {
            return ONCE__JSON_SYNTAX;
        }
        if (*stop != '\\') {
            return ONCE__JSON_UTF8;
        }
        fault = put_escape(io);
        if (fault != ONCE__JSON_FINE) {
            return fault;
        }
        start = io->at;
    }
}
