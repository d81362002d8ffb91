/*
 * What many responses have in common: a dictionary for a store whose records outlive those that it was made of. Every eight bytes
 * of it occur in at least ONCE__PIECES_LEAST of the samples, so that what only one record has, or one customer's few, is not in it.
 */
#ifndef ONCE_STORE_PIECES_H
#define ONCE_STORE_PIECES_H

#include "store/dictionary.h"

#define ONCE__PIECES_SAMPLES    128  /* to make a dictionary */
#define ONCE__PIECES_MOST       512  /* to judge one */
#define ONCE__PIECES_SAMPLE_MAX 1024 /* of a longer one its beginning */
#define ONCE__PIECES_LEAST      8

/* Zeroed at first. */
typedef struct once__pieces {
    uint8_t *samples; /* ONCE__PIECES_SAMPLE_MAX bytes for each; NULL: there are none yet */
    uint16_t lens[ONCE__PIECES_MOST];
    unsigned count;
    unsigned wanted;  /* set before the first is offered; 0: ONCE__PIECES_SAMPLES */
    unsigned skipped; /* since the last one that was taken: not every one is */
} once__pieces_t;

void once__pieces_free(once__pieces_t *pieces); /* it can be used again afterwards */

/* May be taken as a sample, until there are enough: one of `every`. */
void once__pieces_offer(once__pieces_t *pieces, const void *data, size_t len, unsigned every);
int once__pieces_enough(const once__pieces_t *pieces);

/* One of the samples; `pieces->lens` has its length. */
const uint8_t *once__pieces_sample(const once__pieces_t *pieces, unsigned i);

/*
 * Is every byte of a dictionary, but for gaps, in eight bytes that ONCE__PIECES_LEAST samples have? 1, 0, or -1: out of memory.
 * Only those bytes count at whose place `touched` is not 0; NULL: all do.
 */
int once__pieces_have(const once__pieces_t *pieces, const uint8_t *bytes, size_t len,
                      const uint8_t *touched);

/* The dictionary, in `out` of `room` bytes. Returns its length; 0: nothing is common, or memory is short. */
size_t once__pieces_take(const once__pieces_t *pieces, uint8_t *out, size_t room);

#endif
