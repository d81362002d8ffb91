/*
 * The only source of chance in a schedule: xoshiro256**, seeded through splitmix64. The same seed gives the same numbers on
 * every machine, so a seed is a schedule.
 */
#ifndef SIMULATION_RANDOM_H
#define SIMULATION_RANDOM_H

#include <stddef.h>
#include <stdint.h>

typedef struct prng {
    uint64_t s[4];
} prng_t;

void prng_seed(prng_t *prng, uint64_t seed);
uint64_t prng_next(prng_t *prng);

/* low to high, both included. */
uint64_t prng_between(prng_t *prng, uint64_t low, uint64_t high);

/* True with this probability, in thousandths. */
int prng_chance(prng_t *prng, unsigned per_mille);

/* Which of the weights: an index below `count`. */
unsigned prng_pick(prng_t *prng, const unsigned *weights, unsigned count);

void prng_fill(prng_t *prng, void *out, size_t len);

#endif
