/*
 * A dictionary: pieces of earlier responses, from which new ones are copied (docs/format.md, "The dictionary"). The local store has
 * one in each segment.
 */
#ifndef ONCE_STORE_DICTIONARY_H
#define ONCE_STORE_DICTIONARY_H

#include "core/record.h"

#define ONCE__DICTIONARY_MAX 16384 /* bytes of a dictionary */

/* Payloads of other sizes are not compressed with it. */
#define ONCE__DICTIONARY_LEAST 16
#define ONCE__DICTIONARY_MOST  16384

typedef struct once__dictionary once__dictionary_t;

/* Copies `len` bytes (1 to ONCE__DICTIONARY_MAX). `writes`: also for compressing. NULL: out of memory. Not changed afterwards. */
once__dictionary_t *once__dictionary_open(const uint8_t *bytes, size_t len, int writes);
void once__dictionary_close(once__dictionary_t *dictionary); /* NULL is allowed */

/* Is it a response of such a size that is neither compressed nor sealed already? 1 or 0. */
int once__dictionary_fits(const once__payload_t *payload);

/* Compresses `len` bytes (at most ONCE__DICTIONARY_MOST) into `out` of `len` bytes. Returns how many; 0: they would not be less. */
size_t once__dictionary_pack(const once__dictionary_t *dictionary, uint8_t *out,
                             const uint8_t *data, size_t len);
/* Gives `out_len` bytes again. 0; -1: `in` is not what gives exactly those. Trusts nothing. */
int once__dictionary_unpack(const once__dictionary_t *dictionary, uint8_t *out, size_t out_len,
                            const uint8_t *in, size_t len);

/* Responses that a writer saw lately: what its next segment's dictionary is made of. Zeroed at first. */
typedef struct once__samples {
    uint8_t bytes[ONCE__DICTIONARY_MAX];
    size_t len; /* used, as a ring */
    size_t at;
    uint32_t skipped; /* since the last one that was taken: not every response is */
} once__samples_t;

/* What it says about itself goes with the response. */
void once__samples_offer(once__samples_t *samples, const once__record_t *record);
/* The dictionary, in `out` of ONCE__DICTIONARY_MAX bytes, newest last. Returns its length; 0: too little was seen. */
size_t once__samples_take(const once__samples_t *samples, uint8_t *out);

#endif
