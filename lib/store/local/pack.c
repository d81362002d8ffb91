#include "store/local/pack.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

/*
 * Packed bytes are the length of the payload, and steps. Each of those begins with a byte: the upper four bits are the
 * number of literal bytes, the lower four that of bytes to copy; 15 means that the rest of the number follows (first
 * that of the literals). Then the literals. Then, when there is something to copy, how far the copy begins from where
 * it would if the literals had only replaced as many bytes of the template, as a signed number.
 */
#define NIBBLE   15u
#define COPY_MIN 4u

/* Two fifths, and a few bytes to begin with: what does not get below that soon is not alike, and not worth the time. */
#define WORTH(len) ((len) / 5 * 2 + 50)

/* ---------------------------------------------------------------------------------------------------------- pattern */

static uint32_t hash(uint32_t word)
{
    return word * 2654435761u >> 21;
}

static_assert(ONCE__PACK_HEADS == 1u << (32 - 21), "a hash is an index of heads");
static_assert(ONCE__PACK_MAX < UINT16_MAX, "places fit");

int once__pattern_set(once__pattern_t *pattern, const uint8_t *bytes, size_t len)
{
    uint8_t *copy;

    if (len < ONCE__PACK_MIN || len > ONCE__PACK_MAX) {
        return -1;
    }
    copy = realloc(pattern->bytes, len);
    if (copy == NULL) {
        return -1;
    }
    memcpy(copy, bytes, len);
    pattern->bytes = copy;
    pattern->len = (uint32_t)len;
    memset(pattern->heads, 0, sizeof(pattern->heads));
    /* From the end: of several places the first one stays. */
    for (uint32_t at = (uint32_t)len - COPY_MIN + 1; at-- > 0;) {
        pattern->heads[hash(once__get32(copy + at))] = (uint16_t)at;
    }
    return 0;
}

void once__pattern_free(once__pattern_t *pattern)
{
    free(pattern->bytes);
    memset(pattern, 0, sizeof(*pattern));
}

unsigned once__pattern_likeness(const once__pattern_t *pattern, const uint8_t *data, size_t len)
{
    size_t step = len / ONCE__SAMPLES;
    unsigned hits = 0;

    for (size_t i = 0; i < ONCE__SAMPLES && i * step + COPY_MIN <= len; i++) {
        uint32_t sample = once__get32(data + i * step);
        hits += once__get32(pattern->bytes + pattern->heads[hash(sample)]) == sample;
    }
    return hits;
}

/* ---------------------------------------------------------------------------------------------------------- packing */

typedef struct writer {
    uint8_t *at, *end;
    int full;
} writer_t;

static void put_byte(writer_t *writer, uint32_t byte)
{
    if (writer->at == writer->end) {
        writer->full = 1;
        return;
    }
    *writer->at++ = (uint8_t)byte;
}

static void put_number(writer_t *writer, uint32_t number)
{
    while (number >= 0x80) {
        put_byte(writer, number | 0x80);
        number >>= 7;
    }
    put_byte(writer, number);
}

static void put_bytes(writer_t *writer, const uint8_t *bytes, uint32_t count)
{
    if ((size_t)(writer->end - writer->at) < count) {
        writer->full = 1;
        return;
    }
    memcpy(writer->at, bytes, count);
    writer->at += count;
}

static void put_step(writer_t *writer, const uint8_t *literals, uint32_t count, uint32_t copy,
                     int32_t shift)
{
    uint32_t high = count < NIBBLE ? count : NIBBLE, low = copy < NIBBLE ? copy : NIBBLE;

    put_byte(writer, high << 4 | low);
    if (high == NIBBLE) {
        put_number(writer, count - NIBBLE);
    }
    if (low == NIBBLE) {
        put_number(writer, copy - NIBBLE);
    }
    put_bytes(writer, literals, count);
    if (copy > 0) {
        put_number(writer, shift < 0 ? ((uint32_t)-shift << 1) - 1 : (uint32_t)shift << 1);
    }
}

static uint32_t common(const uint8_t *a, const uint8_t *b, uint32_t most)
{
    uint32_t len = 0;

    while (len + 8 <= most) {
        uint64_t different = once__get64(a + len) ^ once__get64(b + len);
        if (different != 0) {
            return len + (uint32_t)__builtin_ctzll(different) / 8;
        }
        len += 8;
    }
    while (len < most && a[len] == b[len]) {
        len++;
    }
    return len;
}

/*
 * Looks from `at` on for what the template has, too: where it is to be expected, or anywhere. Where in `data` that is,
 * or behind its last place. Hardly any branch here goes another way than the time before: that is what this costs.
 */
static uint32_t match(const once__pattern_t *pattern, const uint8_t *data, uint32_t at,
                      uint32_t end, uint32_t expected, uint32_t *place)
{
    uint32_t last = pattern->len - COPY_MIN;

    for (; at <= end; at++, expected++) {
        uint32_t word = once__get32(data + at), there = expected <= last ? expected : last;
        uint32_t anywhere = pattern->heads[hash(word)];
        int same = once__get32(pattern->bytes + there) == word;
        if (same | (once__get32(pattern->bytes + anywhere) == word)) {
            *place = same ? there : anywhere;
            break;
        }
    }
    return at;
}

size_t once__pack(const once__pattern_t *pattern, const uint8_t *data, size_t len, uint8_t *out)
{
    writer_t writer = {out, out + (WORTH(len) < len ? WORTH(len) : len), 0};
    uint32_t begin = 0, at = 0,
             next = 0; /* literals begin; we are; the template's byte behind the last copy */

    put_number(&writer, (uint32_t)len);
    while (at + COPY_MIN <= len && !writer.full) {
        uint32_t place = 0, size;
        at = match(pattern, data, at, (uint32_t)len - COPY_MIN, next, &place);
        if (at + COPY_MIN > len) {
            break;
        }
        while (at > begin && place > 0 && data[at - 1] == pattern->bytes[place - 1]) {
            at--;
            place--;
        }
        size = pattern->len - place < len - at ? pattern->len - place : (uint32_t)len - at;
        size = common(data + at, pattern->bytes + place, size);
        put_step(&writer, data + begin, at - begin, size,
                 (int32_t)place - (int32_t)(next + (at - begin)));
        at += size;
        next = place + size;
        begin = at;
        writer.full |= (size_t)(writer.at - out) > WORTH(at);
    }
    if (begin < len) {
        put_step(&writer, data + begin, (uint32_t)len - begin, 0, 0);
    }
    return writer.full ? 0 : (size_t)(writer.at - out);
}

/* -------------------------------------------------------------------------------------------------------- unpacking */

typedef struct reader {
    const uint8_t *at, *end;
    int broken;
} reader_t;

static uint32_t get_byte(reader_t *reader)
{
    if (reader->at == reader->end) {
        reader->broken = 1;
        return 0;
    }
    return *reader->at++;
}

/* At most three bytes: more than any size here. */
static uint32_t get_number(reader_t *reader)
{
    uint32_t number = 0;

    for (unsigned shift = 0; shift < 21; shift += 7) {
        uint32_t byte = get_byte(reader);
        number |= (byte & 0x7f) << shift;
        if (byte < 0x80) {
            return number;
        }
    }
    reader->broken = 1;
    return 0;
}

static int32_t get_signed(reader_t *reader)
{
    uint32_t number = get_number(reader);

    return number & 1 ? -(int32_t)((number + 1) >> 1) : (int32_t)(number >> 1);
}

uint32_t once__packed_length(const uint8_t *packed, size_t len)
{
    reader_t reader = {packed, packed + len, 0};
    uint32_t length = get_number(&reader);

    return !reader.broken && length <= ONCE__PACK_MAX ? length : 0;
}

int once__unpack(const uint8_t *template_bytes, size_t template_len, const uint8_t *packed,
                 size_t len, uint8_t *out)
{
    reader_t reader = {packed, packed + len, 0};
    size_t done = 0, out_len = once__packed_length(packed, len);
    int64_t next = 0;

    (void)get_number(&reader);
    while (reader.at < reader.end) {
        uint32_t head = get_byte(&reader), literals = head >> 4, copy = head & NIBBLE;
        literals += literals == NIBBLE ? get_number(&reader) : 0;
        copy += copy == NIBBLE ? get_number(&reader) : 0;
        if (reader.broken || literals > (size_t)(reader.end - reader.at) ||
            (size_t)literals + copy > out_len - done) {
            return -1;
        }
        memcpy(out + done, reader.at, literals);
        reader.at += literals;
        done += literals;
        if (copy > 0) {
            next += (int64_t)literals + get_signed(&reader);
            if (reader.broken || next < 0 || (uint64_t)next + copy > template_len) {
                return -1;
            }
            memcpy(out + done, template_bytes + next, copy);
            done += copy;
            next += copy;
        }
    }
    return out_len != 0 && done == out_len ? 0 : -1;
}
