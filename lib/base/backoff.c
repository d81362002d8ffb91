#include "base/backoff.h"

uint64_t once__backoff_jitter(uint64_t ms, uint64_t random_bits)
{
    return ms - random_bits % (ms / 2 + 1);
}

uint64_t once__backoff(unsigned attempt, uint64_t min_ms, uint64_t max_ms, uint64_t random_bits)
{
    uint64_t ms = max_ms;

    if (attempt < 64 && min_ms <= max_ms >> attempt) {
        ms = min_ms << attempt;
    }
    return once__backoff_jitter(ms, random_bits);
}
