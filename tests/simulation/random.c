#include "random.h"

#include <string.h>

static uint64_t splitmix(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

void prng_seed(prng_t *prng, uint64_t seed)
{
    for (unsigned i = 0; i < 4; i++) {
        prng->s[i] = splitmix(&seed);
    }
}

static uint64_t rotate(uint64_t x, unsigned by)
{
    return x << by | x >> (64 - by);
}

uint64_t prng_next(prng_t *prng)
{
    uint64_t *s = prng->s;
    uint64_t result = rotate(s[1] * 5, 7) * 9;
    uint64_t t = s[1] << 17;

    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate(s[3], 45);
    return result;
}

uint64_t prng_between(prng_t *prng, uint64_t low, uint64_t high)
{
    return high <= low ? low : low + prng_next(prng) % (high - low + 1);
}

int prng_chance(prng_t *prng, unsigned per_mille)
{
    return per_mille > 0 && prng_next(prng) % 1000 < per_mille;
}

unsigned prng_pick(prng_t *prng, const unsigned *weights, unsigned count)
{
    uint64_t sum = 0, at;

    for (unsigned i = 0; i < count; i++) {
        sum += weights[i];
    }
    at = prng_next(prng) % sum;
    for (unsigned i = 0; i < count; i++) {
        if (at < weights[i]) {
            return i;
        }
        at -= weights[i];
    }
    return count - 1;
}

void prng_fill(prng_t *prng, void *out, size_t len)
{
    unsigned char *p = out;

    while (len > 0) {
        uint64_t word = prng_next(prng);
        size_t n = len < sizeof(word) ? len : sizeof(word);
        memcpy(p, &word, n);
        p += n;
        len -= n;
    }
}
