#include "store/redis/dictionaries.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "store/crc32c.h"
#include "store/varint.h"

/* One of these is a sample, once there is a dictionary. Both kinds of text come in turns: an odd step takes both. */
#define EVERY     65u
#define WORTH_NUM 4 /* a new dictionary must leave less than 4/5 of what the best one leaves */
#define WORTH_DEN 5

/* -------------------------------------------------------------------------------------------------------- compressing */

static size_t compress_with(const once__redis_dictionary_t *dictionary, uint8_t *out,
                            const uint8_t *data, size_t len)
{
    uint8_t *at = once__put_varint(out + ONCE__REDIS_ID_SIZE, len);
    size_t size = once__dictionary_pack(dictionary->coder, at, data, len);

    once__put32(out, dictionary->id);
    size = size > 0 ? (size_t)(at - out) + size : len;
    return size < len ? size : 0;
}

const once__redis_dictionary_t *
once__redis_dictionary_held(const once__redis_dictionaries_t *dictionaries)
{
    const once__redis_dictionary_t *dictionary =
        dictionaries->current != 0 ? &dictionaries->known[dictionaries->current - 1] : NULL;

    return dictionary != NULL && dictionary->place != 0 ? dictionary : NULL;
}

void once__redis_dictionaries_doubt(once__redis_dictionaries_t *dictionaries)
{
    for (unsigned i = 0; i < dictionaries->count; i++) {
        dictionaries->known[i].place = 0;
    }
}

size_t once__redis_compress(const once__redis_dictionaries_t *dictionaries, uint8_t *out,
                            const void *data, size_t len)
{
    const once__redis_dictionary_t *dictionary =
        dictionaries != NULL ? once__redis_dictionary_held(dictionaries) : NULL;

    if (dictionary == NULL || len < ONCE__DICTIONARY_LEAST || len > ONCE__DICTIONARY_MOST) {
        return 0;
    }
    return compress_with(dictionary, out, data, len);
}

const once__redis_dictionary_t *
once__redis_dictionary_of(const once__redis_dictionaries_t *dictionaries, uint32_t id)
{
    for (unsigned i = 0; i < dictionaries->count; i++) {
        if (dictionaries->known[i].id == id) {
            return &dictionaries->known[i];
        }
    }
    return NULL;
}

int once__redis_decompress(once__redis_dictionaries_t *dictionaries, uint8_t *out, size_t most,
                           const uint8_t *in, size_t len, size_t *out_len)
{
    once__input_t input = {in, in + len, 0};
    uint32_t id = once__get32(once__get_bytes(&input, ONCE__REDIS_ID_SIZE));
    const once__redis_dictionary_t *dictionary = once__redis_dictionary_of(dictionaries, id);

    *out_len = once__get_varint(&input, most);
    if (input.is_broken || *out_len < ONCE__DICTIONARY_LEAST || *out_len <= len) {
        return ONCE_E_CORRUPT;
    }
    if (dictionary == NULL) {
        dictionaries->missing = id;
        return ONCE_E_NOT_FOUND;
    }
    dictionaries->met_retired |= dictionary->is_retired;
    return once__dictionary_unpack(dictionary->coder, out, *out_len, input.at,
                                   (size_t)(input.end - input.at)) == 0
               ? ONCE_OK
               : ONCE_E_CORRUPT;
}

/* ------------------------------------------------------------------------------------------------------------ choosing */

int once__redis_dictionaries_offer(once__redis_dictionaries_t *dictionaries, const void *data,
                                   size_t len)
{
    if (len >= ONCE__DICTIONARY_LEAST) {
        once__pieces_offer(&dictionaries->samples, data, len,
                           dictionaries->current != 0 ? EVERY : 1);
    }
    return once__pieces_enough(&dictionaries->samples);
}

/* What the samples become with a dictionary; NULL: as they are. */
static size_t size_with(const once__redis_dictionaries_t *dictionaries,
                        const once__redis_dictionary_t *dictionary)
{
    const once__pieces_t *samples = &dictionaries->samples;
    uint8_t out[ONCE__REDIS_COMPRESS_ROOM(ONCE__PIECES_SAMPLE_MAX)];
    size_t total = 0;

    for (unsigned i = 0; i < samples->count; i++) {
        size_t len = samples->lens[i], size = 0;
        if (dictionary != NULL) {
            size = compress_with(dictionary, out, once__pieces_sample(samples, i), len);
        }
        total += size > 0 ? size : len;
    }
    return total;
}

/* Opens one. Returns 0, or -1: out of memory. */
static int open_dictionary(once__redis_dictionary_t *dictionary, const uint8_t *bytes, size_t len)
{
    dictionary->len = (uint16_t)len;
    dictionary->id = once__crc32c(0, bytes, len);
    dictionary->place = 0;
    dictionary->is_retired = 0;
    dictionary->bytes = calloc(2, len);
    dictionary->touched = dictionary->bytes + len;
    dictionary->coder = once__dictionary_open(bytes, len, 1);
    if (dictionary->bytes == NULL || dictionary->coder == NULL) {
        free(dictionary->bytes);
        once__dictionary_close(dictionary->coder);
        return -1;
    }
    memcpy(dictionary->bytes, bytes, len);
    return 0;
}

static void close_dictionary(const once__redis_dictionary_t *dictionary)
{
    free(dictionary->bytes);
    once__dictionary_close(dictionary->coder);
}

static void set_candidate(once__redis_dictionaries_t *dictionaries,
                          const once__redis_dictionary_t *dictionary)
{
    uint8_t *entry = dictionaries->candidate;

    once__put16(entry, dictionary->len);
    once__put32(entry + 2, dictionary->id);
    memcpy(entry + ONCE__REDIS_ENTRY_SIZE, dictionary->bytes, dictionary->len);
    dictionaries->candidate_len = ONCE__REDIS_ENTRY_SIZE + dictionary->len;
}

void once__redis_dictionaries_touch(once__redis_dictionaries_t *dictionaries, const void *data,
                                    size_t len)
{
    for (unsigned i = 0; i < dictionaries->count; i++) {
        once__redis_dictionary_t *one = &dictionaries->known[i];
        for (size_t at = 0; at + 8 <= one->len; at++) {
            if (len >= 8 && memmem(data, len, one->bytes + at, 8) != NULL) {
                memset(one->touched + at, 1, 8);
            }
        }
    }
}

/* A store that failed over may have lost the current one: it is added again. */
static void put_back(once__redis_dictionaries_t *dictionaries)
{
    if (dictionaries->current != 0 && dictionaries->candidate_len == 0 &&
        once__redis_dictionary_held(dictionaries) == NULL) {
        set_candidate(dictionaries, &dictionaries->known[dictionaries->current - 1]);
    }
}

/* Would a new one be much better than what there is? Then it is the candidate. */
static void consider_new(once__redis_dictionaries_t *dictionaries, size_t best)
{
    uint8_t bytes[ONCE__REDIS_DICTIONARY_MAX];
    size_t len = once__pieces_take(&dictionaries->samples, bytes, sizeof(bytes));
    once__redis_dictionary_t made;

    if (len == 0 || open_dictionary(&made, bytes, len) != 0) {
        return;
    }
    if (size_with(dictionaries, &made) * WORTH_DEN < best * WORTH_NUM &&
        once__redis_dictionary_of(dictionaries, made.id) == NULL) {
        set_candidate(dictionaries, &made);
    }
    close_dictionary(&made);
}

void once__redis_dictionaries_judge(once__redis_dictionaries_t *dictionaries)
{
    size_t plain = size_with(dictionaries, NULL), best = plain;

    dictionaries->candidate_len = 0;
    for (unsigned i = 0; i < dictionaries->count; i++) {
        size_t size = dictionaries->known[i].is_retired
                          ? best
                          : size_with(dictionaries, &dictionaries->known[i]);
        if (size < best) {
            best = size;
            dictionaries->current = i + 1;
        }
    }
    if (best > plain / 2 && dictionaries->count < ONCE__REDIS_DICTIONARIES_MAX) {
        consider_new(dictionaries, best);
    }
    put_back(dictionaries);
    once__pieces_free(&dictionaries->samples);
}

/* ------------------------------------------------------------------------------------------------------------ the list */

static int is_candidate(const once__redis_dictionaries_t *dictionaries, const uint8_t *entry,
                        size_t len)
{
    return dictionaries->candidate_len == len && memcmp(dictionaries->candidate, entry, len) == 0;
}

/* Takes one of the list. Returns its number among the known ones, + 1; 0: there is no room for it, or another has its id. */
static unsigned take(once__redis_dictionaries_t *dictionaries, uint32_t id, const uint8_t *bytes,
                     size_t len)
{
    const once__redis_dictionary_t *known = once__redis_dictionary_of(dictionaries, id);

    if (known != NULL) {
        return known->len == len && memcmp(known->bytes, bytes, len) == 0
                   ? (unsigned)(known - dictionaries->known) + 1
                   : 0;
    }
    return dictionaries->count < ONCE__REDIS_DICTIONARIES_MAX &&
                   open_dictionary(&dictionaries->known[dictionaries->count], bytes, len) == 0
               ? ++dictionaries->count
               : 0;
}

/* Nothing is compressed with it any more, nor is it put back. */
static void retire(once__redis_dictionaries_t *dictionaries, unsigned number)
{
    once__redis_dictionary_t *dictionary = &dictionaries->known[number - 1];

    dictionary->is_retired = 1;
    dictionary->place = 0;
    dictionaries->current = dictionaries->current == number ? 0 : dictionaries->current;
    if (dictionaries->candidate_len > 0 &&
        once__get32(dictionaries->candidate + 2) == dictionary->id) {
        dictionaries->candidate_len = 0;
    }
}

/* It is gone, and so is its text from this process. */
static void forget(once__redis_dictionaries_t *dictionaries, uint32_t id)
{
    const once__redis_dictionary_t *known = once__redis_dictionary_of(dictionaries, id);
    unsigned number = known != NULL ? (unsigned)(known - dictionaries->known) + 1 : 0;

    if (number == 0) {
        return;
    }
    retire(dictionaries, number);
    close_dictionary(known);
    dictionaries->known[number - 1] = dictionaries->known[--dictionaries->count];
    dictionaries->current =
        dictionaries->current == dictionaries->count + 1 ? number : dictionaries->current;
}

/* The entry at `data`. Returns its length; 0: malformed. */
static size_t read_entry(once__redis_dictionaries_t *dictionaries, const uint8_t *data, size_t len,
                         size_t place)
{
    unsigned word = len >= ONCE__REDIS_ENTRY_SIZE ? once__get16(data) : 0, number;
    size_t size = word & ~ONCE__REDIS_RETIRED;
    const uint8_t *bytes = data + ONCE__REDIS_ENTRY_SIZE;
    uint32_t id;

    if (word == 0 || size > ONCE__REDIS_DICTIONARY_MAX || size > len - ONCE__REDIS_ENTRY_SIZE) {
        return 0;
    }
    id = once__get32(data + 2);
    if (size == 0) {
        forget(dictionaries, id);
        return ONCE__REDIS_ENTRY_SIZE;
    }
    if (id != once__crc32c(0, bytes, size)) {
        return 0;
    }
    number = take(dictionaries, id, bytes, size);
    size += ONCE__REDIS_ENTRY_SIZE;
    if (number != 0 && (word & ONCE__REDIS_RETIRED) != 0) {
        retire(dictionaries, number);
    } else if (number != 0) {
        dictionaries->known[number - 1].is_retired = 0;
        dictionaries->known[number - 1].place = (uint32_t)place + 1;
        if (is_candidate(dictionaries, data, size)) {
            dictionaries->candidate_len = 0;
            dictionaries->current = number;
        }
    }
    return size;
}

int once__redis_dictionaries_read(once__redis_dictionaries_t *dictionaries, const uint8_t *data,
                                  size_t len)
{
    size_t size;

    once__redis_dictionaries_doubt(dictionaries);
    for (size_t at = 0; at < len; at += size) {
        size = len <= UINT32_MAX / 2 ? read_entry(dictionaries, data + at, len - at, at) : 0;
        if (size == 0) {
            once__redis_dictionaries_doubt(dictionaries);
            return -1;
        }
    }
    dictionaries->list_len = len;
    put_back(dictionaries);
    return 0;
}

void once__redis_dictionaries_free(once__redis_dictionaries_t *dictionaries)
{
    for (unsigned i = 0; i < dictionaries->count; i++) {
        close_dictionary(&dictionaries->known[i]);
    }
    once__pieces_free(&dictionaries->samples);
}
