#include "store/pieces.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

#define WORD    ((size_t)8)
#define GAP_MAX ((size_t)64)
#define NEWS    8 /* words that a sample must add to be worth its room */

static unsigned wanted(const once__pieces_t *pieces)
{
    return pieces->wanted != 0 ? pieces->wanted : ONCE__PIECES_SAMPLES;
}

void once__pieces_free(once__pieces_t *pieces)
{
    free(pieces->samples);
    memset(pieces, 0, sizeof(*pieces));
}

int once__pieces_enough(const once__pieces_t *pieces)
{
    return pieces->count == wanted(pieces);
}

const uint8_t *once__pieces_sample(const once__pieces_t *pieces, unsigned i)
{
    return pieces->samples + (size_t)i * ONCE__PIECES_SAMPLE_MAX;
}

void once__pieces_offer(once__pieces_t *pieces, const void *data, size_t len, unsigned every)
{
    if (once__pieces_enough(pieces) || len < WORD || pieces->skipped++ % every != 0) {
        return;
    }
    if (pieces->samples == NULL) {
        pieces->samples = malloc((size_t)wanted(pieces) * ONCE__PIECES_SAMPLE_MAX);
        if (pieces->samples == NULL) {
            return;
        }
    }
    len = len < ONCE__PIECES_SAMPLE_MAX ? len : ONCE__PIECES_SAMPLE_MAX;
    memcpy(pieces->samples + (size_t)pieces->count * ONCE__PIECES_SAMPLE_MAX, data, len);
    pieces->lens[pieces->count++] = (uint16_t)len;
}

/* ------------------------------------------------------------------------------------------------------------- words */

/* Eight bytes that occur somewhere in the samples. */
typedef struct word {
    uint64_t bytes;
    uint16_t last;  /* number of the sample that had it last, from 1; 0: the place is empty */
    uint16_t count; /* samples that have it */
    uint8_t is_taken;
} word_t;

typedef struct words {
    word_t *table;
    size_t mask; /* there are twice as many places as words: there is always an empty one */
} words_t;

static word_t *place_of(const words_t *words, uint64_t bytes)
{
    size_t at = (size_t)(bytes * 0x9e3779b97f4a7c15u >> 40) & words->mask;

    while (words->table[at].last != 0 && words->table[at].bytes != bytes) {
        at = (at + 1) & words->mask;
    }
    return &words->table[at];
}

/* Counts in how many samples each word is. Returns 0, or -1: out of memory. */
static int count_words(words_t *words, const once__pieces_t *pieces)
{
    size_t total = 0;

    for (unsigned i = 0; i < pieces->count; i++) {
        total += pieces->lens[i];
    }
    for (words->mask = 1023; words->mask < 2 * total;) {
        words->mask = words->mask * 2 + 1;
    }
    words->table = calloc(words->mask + 1, sizeof(word_t));
    if (words->table == NULL) {
        return -1;
    }
    for (unsigned i = 0; i < pieces->count; i++) {
        const uint8_t *sample = once__pieces_sample(pieces, i);
        for (size_t at = 0; at + WORD <= pieces->lens[i]; at++) {
            word_t *word = place_of(words, once__get64(sample + at));
            if (word->last != i + 1) {
                word->bytes = once__get64(sample + at);
                word->last = (uint16_t)(i + 1);
                word->count++;
            }
        }
    }
    return 0;
}

/* How many words of it are common and in no other sample that was taken. */
static unsigned count_news(const words_t *words, const uint8_t *sample, size_t len)
{
    unsigned news = 0;

    for (size_t at = 0; at + WORD <= len; at++) {
        const word_t *word = place_of(words, once__get64(sample + at));
        news += word->count >= ONCE__PIECES_LEAST && !word->is_taken;
    }
    return news;
}

/* Where the words end that are common from `at` on, one after the other; takes them. */
static size_t take_run(const words_t *words, const uint8_t *sample, size_t at, size_t len)
{
    size_t end = at;

    for (; at + WORD <= len; at++) {
        word_t *word = place_of(words, once__get64(sample + at));
        if (word->count < ONCE__PIECES_LEAST) {
            break;
        }
        word->is_taken = 1;
        end = at + WORD;
    }
    return end;
}

/*
 * Runs of one sample, in order, if enough of them is new. Between two of them there is as much room as there was: where the values
 * of a response are about as long as those of this one, the next run is where the coder expects it.
 */
static size_t take_sample(const words_t *words, const uint8_t *sample, size_t len, uint8_t *out,
                          size_t used, size_t room)
{
    size_t last = SIZE_MAX;

    if (count_news(words, sample, len) < NEWS) {
        return used;
    }
    for (size_t at = 0; at + WORD <= len; at++) {
        size_t end = take_run(words, sample, at, len);
        size_t gap = last < at && at - last <= GAP_MAX ? at - last : 0;
        if (end <= at) {
            continue;
        }
        if (used + gap + (end - at) > room) {
            break;
        }
        memset(out + used, 0, gap);
        memcpy(out + used + gap, sample + at, end - at);
        used += gap + (end - at);
        last = end;
        at = end - WORD; /* words that reach beyond the run are looked at */
    }
    return used;
}

size_t once__pieces_take(const once__pieces_t *pieces, uint8_t *out, size_t room)
{
    words_t words;
    size_t used = 0;

    if (count_words(&words, pieces) != 0) {
        return 0;
    }
    for (unsigned i = 0; i < pieces->count; i++) {
        used =
            take_sample(&words, once__pieces_sample(pieces, i), pieces->lens[i], out, used, room);
    }
    free(words.table);
    return used;
}

int once__pieces_have(const once__pieces_t *pieces, const uint8_t *bytes, size_t len,
                      const uint8_t *touched)
{
    words_t words;
    size_t good = 0; /* up to there */
    int have = 1;

    if (count_words(&words, pieces) != 0) {
        return -1;
    }
    for (size_t at = 0; at < len && have; at++) {
        if (at + WORD <= len &&
            place_of(&words, once__get64(bytes + at))->count >= ONCE__PIECES_LEAST) {
            good = at + WORD;
        }
        have = at < good || bytes[at] == 0 || (touched != NULL && !touched[at]);
    }
    free(words.table);
    return have;
}
