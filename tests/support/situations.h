/*
 * Every situation that a record can be in, before every event that can meet it: for stores that decide in another language.
 */
#ifndef TESTS_SUPPORT_SITUATIONS_H
#define TESTS_SUPPORT_SITUATIONS_H

#include "store/store.h"

typedef struct situation {
    /* first: found from it. The last 8 bytes of its id are its number, counted from 1 */
    once__op_t op;
    once__head_t before; /* state NONE: no record */
} situation_t;

/* All of them, around the time `base`; free() them. */
situation_t *situations_make(uint64_t base, size_t *count);

/* What the rules say, by the time that the store answered. */
void situation_expect(const situation_t *s, once__step_t *step);

/* The record before: with a response or a note, a cause, and earlier attempts, as many as fit; some are erased. */
once__record_t situation_record(const situation_t *s);

int situation_same_head(const once__head_t *a, const once__head_t *b);

/* Prints the situation, what the store decided and what the rules say. */
void situation_describe(const situation_t *s, const once__step_t *step, uint64_t base);

#endif
