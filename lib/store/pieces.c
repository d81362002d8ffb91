#include "store/pieces.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

#define EVERY      4u /* one of four is taken */
#define SAMPLE_MAX ((size_t)512)
#define WORD       ((size_t)8)
#define GAP_MAX    ((size_t)64)
#define BITS       17 /* of the table: twice as many places as words */
#define PLACES     ((size_t)1 << BITS)
#define WORDS_MAX  (ONCE__PIECES_SAMPLES * SAMPLE_MAX)

static_assert(WORDS_MAX * 2 <= PLACES, "there is always an empty place");

void once__pieces_free(once__pieces_t *pieces)
{
    free(pieces->samples);
    memset(pieces, 0, sizeof(*pieces));
}

int once__pieces_enough(const once__pieces_t *pieces)
{
    return pieces->count == ONCE__PIECES_SAMPLES;
}

void once__pieces_offer(once__pieces_t *pieces, const uint8_t *data, size_t len)
{
    if (once__pieces_enough(pieces) || len < WORD || pieces->skipped++ % EVERY != 0) {
        return;
    }
    if (pieces->samples == NULL) {
        pieces->samples = malloc(WORDS_MAX);
        if (pieces->samples == NULL) {
            return;
        }
    }
    len = len < SAMPLE_MAX ? len : SAMPLE_MAX;
    memcpy(pieces->samples + pieces->count * SAMPLE_MAX, data, len);
    pieces->lens[pieces->count++] = (uint16_t)len;
}

/* ------------------------------------------------------------------------------------------------------------- words */

/* Eight bytes that stand somewhere in the samples. */
typedef struct word {
    uint64_t bytes;
    uint8_t last;  /* number of the sample that had it last, from 1; 0: the place is empty */
    uint8_t count; /* samples that have it */
    uint8_t is_taken;
} word_t;

static word_t *place_of(word_t *table, uint64_t bytes)
{
    size_t at = (size_t)(bytes * 0x9e3779b97f4a7c15u >> (64 - BITS));

    while (table[at].last != 0 && table[at].bytes != bytes) {
        at = (at + 1) % PLACES;
    }
    return &table[at];
}

static void count_words(const once__pieces_t *pieces, word_t *table)
{
    for (unsigned i = 0; i < pieces->count; i++) {
        const uint8_t *sample = pieces->samples + i * SAMPLE_MAX;
        for (size_t at = 0; at + WORD <= pieces->lens[i]; at++) {
            word_t *word = place_of(table, once__get64(sample + at));
            if (word->last != i + 1) {
                word->bytes = once__get64(sample + at);
                word->last = (uint8_t)(i + 1);
                word->count++;
            }
        }
    }
}

/* How many bytes from `at` on are common and not taken yet; takes them. */
static size_t take_run(word_t *table, const uint8_t *sample, size_t at, size_t len)
{
    size_t end = at;

    for (; at + WORD <= len; at++) {
        word_t *word = place_of(table, once__get64(sample + at));
        if (word->count < ONCE__PIECES_LEAST || word->is_taken) {
            break;
        }
        word->is_taken = 1;
        end = at + WORD;
    }
    return end;
}

/*
 * Runs of one sample, in order. Between two of them there is as much room as there was: where the values of a response are about as
 * long as those of this one, the next run is where the coder expects it.
 */
static size_t take_sample(word_t *table, const uint8_t *sample, size_t len, uint8_t *out,
                          size_t used)
{
    size_t last = SIZE_MAX;

    for (size_t at = 0; at + WORD <= len; at++) {
        size_t end = take_run(table, sample, at, len);
        size_t gap = last < at && at - last <= GAP_MAX ? at - last : 0;
        if (end <= at) {
            continue;
        }
        if (used + gap + (end - at) > ONCE__DICTIONARY_MAX) {
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

size_t once__pieces_take(const once__pieces_t *pieces, uint8_t *out)
{
    word_t *table = calloc(PLACES, sizeof(*table));
    size_t used = 0;

    if (table == NULL) {
        return 0;
    }
    count_words(pieces, table);
    for (unsigned i = 0; i < pieces->count; i++) {
        used = take_sample(table, pieces->samples + i * SAMPLE_MAX, pieces->lens[i], out, used);
    }
    free(table);
    return used;
}
