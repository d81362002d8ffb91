#include "store/dictionary.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "store/varint.h"

#define HASH_BITS 12
#define HEADS     ((size_t)1 << HASH_BITS)
#define SPARE     8 /* zeros behind the bytes, so that eight can be read anywhere */

/* A step (docs/format.md): a number of two bytes, what does not fit there, literals, where the copy begins. */
#define COPY_MASK     0xffu
#define LITERAL_SHIFT 8
#define LITERAL_MASK  0x3fu
#define HEX           0x4000u
#define ELSEWHERE     0x8000u

#define STEP_MAX (2 + 3 + 3 + 3)
#define COPY_MIN                                                                                   \
    4 /* bytes that are worth a copy from the expected place; from elsewhere eight are */

struct once__dictionary {
    size_t len;
    uint16_t *heads; /* by a hash of eight bytes: where those are last; NULL: only for reading */
    uint8_t bytes[];
};

/* ---------------------------------------------------------------------------------------------------------- opening */

static size_t hash(uint64_t word)
{
    return (size_t)(word * 0x9e3779b97f4a7c15u >> (64 - HASH_BITS));
}

static_assert(ONCE__DICTIONARY_MAX <= UINT16_MAX, "places fit");

once__dictionary_t *once__dictionary_open(const uint8_t *bytes, size_t len, int writes)
{
    size_t size = (sizeof(once__dictionary_t) + len + SPARE + 1) & ~(size_t)1;
    once__dictionary_t *dictionary = calloc(1, size + (writes ? HEADS * sizeof(uint16_t) : 0));

    assert(len > 0 && len <= ONCE__DICTIONARY_MAX);
    if (dictionary == NULL) {
        return NULL;
    }
    dictionary->len = len;
    memcpy(dictionary->bytes, bytes, len);
    if (writes) {
        dictionary->heads = (uint16_t *)(void *)((uint8_t *)dictionary + size);
        for (size_t at = 0; at + 8 <= len; at++) {
            dictionary->heads[hash(once__get64(dictionary->bytes + at))] = (uint16_t)at;
        }
    }
    return dictionary;
}

void once__dictionary_close(once__dictionary_t *dictionary)
{
    free(dictionary);
}

int once__dictionary_fits(const once__payload_t *payload)
{
    return payload->kind == ONCE__PAYLOAD_RESPONSE && payload->len >= ONCE__DICTIONARY_LEAST &&
           payload->len <= ONCE__DICTIONARY_MOST && (payload->data[0] & 3) == 0;
}

/* ------------------------------------------------------------------------------------------------------ compressing */

/* Of lower case only: they come back as that. */
static int hex_value(uint8_t c)
{
    return c >= 'A' && c <= 'F' ? -1 : once__hex_digit((char)c);
}

/* Puts them as half bytes if all are digits of hex. Where they end, or NULL: they are not. */
static uint8_t *put_hex(uint8_t *out, const uint8_t *data, size_t count)
{
    for (size_t i = 0; i < count; i += 2) {
        int high = hex_value(data[i]);
        int low = i + 1 < count ? hex_value(data[i + 1]) : 0;
        if (high < 0 || low < 0) {
            return NULL;
        }
        *out++ = (uint8_t)(high << 4 | low);
    }
    return out;
}

static uint8_t *put_step(uint8_t *out, const uint8_t *literals, size_t count, size_t copy,
                         uint64_t shift)
{
    size_t low = copy < COPY_MASK ? copy : COPY_MASK;
    size_t high = count < LITERAL_MASK ? count : LITERAL_MASK;
    uint8_t *step = out, *hex;

    out += 2;
    if (low == COPY_MASK) {
        out = once__put_varint(out, copy - COPY_MASK);
    }
    if (high == LITERAL_MASK) {
        out = once__put_varint(out, count - LITERAL_MASK);
    }
    hex = count > 1 ? put_hex(out, literals, count) : NULL;
    if (hex == NULL) {
        memcpy(out, literals, count);
    }
    out = hex != NULL ? hex : out + count;
    once__put16(step, (uint16_t)(low | high << LITERAL_SHIFT | (hex != NULL ? HEX : 0) |
                                 (shift != 0 ? ELSEWHERE : 0)));
    return shift != 0 ? once__put_signed(out, shift) : out;
}

static size_t common(const uint8_t *a, const uint8_t *b, size_t most)
{
    size_t len = 0;

    for (; len + 8 <= most; len += 8) {
        uint64_t different = once__get64(a + len) ^ once__get64(b + len);
        if (different != 0) {
            return len + (size_t)__builtin_ctzll(different) / 8;
        }
    }
    while (len < most && a[len] == b[len]) {
        len++;
    }
    return len;
}

/* What has been done of a payload: literals from `begin` on wait; the copy before them ended at `next` of the dictionary. */
typedef struct progress {
    const uint8_t *data;
    size_t len, begin, next;
} progress_t;

/*
 * Looks from *at on for bytes that the dictionary has: where they are expected, or anywhere. Returns how many, and where in the
 * data (*at) and in the dictionary (*place); 0 and the end: there are none. Goes on in longer steps when nothing is found.
 */
static size_t find(const once__dictionary_t *dictionary, const progress_t *progress, size_t *at,
                   size_t *place)
{
    const uint8_t *bytes = dictionary->bytes, *data = progress->data;

    for (; *at + 8 <= progress->len; *at += 1 + ((*at - progress->begin) >> 7)) {
        uint64_t word = once__get64(data + *at);
        size_t expected = progress->next + (*at - progress->begin);
        size_t there = expected < dictionary->len ? expected : dictionary->len;
        size_t elsewhere = dictionary->heads[hash(word)], most, size;
        int same = (uint32_t)once__get64(bytes + there) == (uint32_t)word;
        if (!same && once__get64(bytes + elsewhere) != word) {
            continue;
        }
        *place = same ? there : elsewhere;
        most = dictionary->len - *place;
        most = most < progress->len - *at ? most : progress->len - *at;
        size = common(data + *at, bytes + *place, most);
        if (size >= COPY_MIN) {
            return size;
        }
    }
    *at = progress->len;
    return 0;
}

size_t once__dictionary_pack(const once__dictionary_t *dictionary, uint8_t *out,
                             const uint8_t *data, size_t len)
{
    progress_t progress = {data, len, 0, 0};
    uint8_t *to = out;
    size_t at = 0, place = 0;

    while (at < len) {
        size_t size = find(dictionary, &progress, &at, &place), count;
        while (size > 0 && at > progress.begin && place > 0 &&
               data[at - 1] == dictionary->bytes[place - 1]) {
            at--;
            place--;
            size++;
        }
        count = at - progress.begin;
        if ((size_t)(out + len - to) <= STEP_MAX + count) {
            return 0;
        }
        to = put_step(to, data + progress.begin, count, size,
                      size > 0 ? place - (progress.next + count) : 0);
        at += size;
        progress.begin = at;
        progress.next = place + size;
    }
    return (size_t)(to - out);
}

/* ---------------------------------------------------------------------------------------------------- decompressing */

static void get_hex(uint8_t *out, const uint8_t *in, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        out[i] = (uint8_t)once__to_hex_digit(i % 2 == 0 ? in[i / 2] >> 4 : in[i / 2] & 15);
    }
}

int once__dictionary_unpack(const once__dictionary_t *dictionary, uint8_t *out, size_t out_len,
                            const uint8_t *in, size_t len)
{
    once__input_t input = {in, in + len, 0};
    size_t done = 0, next = 0;

    while (input.at < input.end) {
        unsigned step = once__get16(once__get_bytes(&input, 2));
        size_t copy = step & COPY_MASK, count = step >> LITERAL_SHIFT & LITERAL_MASK, bytes;
        copy += copy == COPY_MASK ? once__get_varint(&input, out_len) : 0;
        count += count == LITERAL_MASK ? once__get_varint(&input, out_len) : 0;
        bytes = step & HEX ? (count + 1) / 2 : count;
        if (input.is_broken || bytes > (size_t)(input.end - input.at) ||
            count + copy > out_len - done) {
            return -1;
        }
        if (step & HEX) {
            get_hex(out + done, input.at, count);
        } else {
            memcpy(out + done, input.at, count);
        }
        input.at += bytes;
        done += count;
        next += count;
        next +=
            step & ELSEWHERE ? once__get_signed(&input) : 0; /* may wrap: then it is too large */
        if (copy > 0 && (next > dictionary->len || copy > dictionary->len - next)) {
            return -1;
        }
        memcpy(out + done, dictionary->bytes + (copy > 0 ? next : 0), copy);
        done += copy;
        next += copy;
    }
    return !input.is_broken && done == out_len ? 0 : -1;
}

/* ---------------------------------------------------------------------------------------------------------- samples */

#define EVERY      16u            /* one of sixteen is taken */
#define SAMPLE_MAX ((size_t)2048) /* of a longer one its beginning */
#define ENOUGH     ((size_t)256)

static void add_sample(once__samples_t *samples, const uint8_t *data, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        samples->bytes[(samples->at + i) % ONCE__DICTIONARY_MAX] = data[i];
    }
    samples->at = (samples->at + len) % ONCE__DICTIONARY_MAX;
    samples->len += len;
    samples->len = samples->len < ONCE__DICTIONARY_MAX ? samples->len : ONCE__DICTIONARY_MAX;
}

void once__samples_offer(once__samples_t *samples, const once__record_t *record)
{
    const once__payload_t *payload = &record->payload;

    if (!once__dictionary_fits(payload) || (samples->len >= ENOUGH && ++samples->skipped < EVERY)) {
        return;
    }
    samples->skipped = 0;
    add_sample(samples, record->about.data, record->about.len);
    add_sample(samples, payload->data, payload->len < SAMPLE_MAX ? payload->len : SAMPLE_MAX);
}

size_t once__samples_take(const once__samples_t *samples, uint8_t *out)
{
    size_t from = samples->at + ONCE__DICTIONARY_MAX - samples->len;

    for (size_t i = 0; i < samples->len; i++) {
        out[i] = samples->bytes[(from + i) % ONCE__DICTIONARY_MAX];
    }
    return samples->len < ENOUGH ? 0 : samples->len;
}
