#include "cli/histogram.h"

/*
 * Values below 32 have a bucket each. Above, every power of two is split into 32 buckets: five bits after the leading one
 * say which.
 */
static unsigned bucket_of(uint64_t value)
{
    unsigned exponent;

    if (value < 32) {
        return (unsigned)value;
    }
    exponent = 63u - (unsigned)__builtin_clzll(value);
    return (exponent - 4) * 32 + (unsigned)(value >> (exponent - 5) & 31);
}

/* The greatest value of a bucket. */
static uint64_t bucket_end(unsigned bucket)
{
    unsigned shift;

    if (bucket < 32) {
        return bucket;
    }
    shift = bucket / 32 - 1;
    return ((UINT64_C(32) + bucket % 32) << shift) + ((UINT64_C(1) << shift) - 1);
}

void once__cli_histogram_add(once__cli_histogram_t *histogram, uint64_t value)
{
    histogram->counts[bucket_of(value)]++;
    histogram->total++;
    histogram->max = value > histogram->max ? value : histogram->max;
}

uint64_t once__cli_histogram_at(const once__cli_histogram_t *histogram, double share)
{
    double wanted = share * (double)histogram->total;
    uint64_t seen = 0;

    for (unsigned i = 0; i < ONCE__CLI_HISTOGRAM_SIZE && histogram->total > 0; i++) {
        seen += histogram->counts[i];
        if (histogram->counts[i] > 0 && (double)seen >= wanted) {
            uint64_t end = bucket_end(i);
            return end < histogram->max ? end : histogram->max;
        }
    }
    return histogram->max;
}
