/*
 * Any bytes as a template and a packed payload, and as a template and a payload to pack: unpacking never leaves its memory, and
 * what is packed comes back.
 *
 * The first byte says where the template ends, in steps of a 256th.
 */
#include <stdlib.h>
#include <string.h>

#include "store/local/pack.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int holds)
{
    if (!holds) {
        abort();
    }
}

static void unpack(const uint8_t *base, size_t base_len, const uint8_t *packed, size_t len)
{
    uint32_t out_len = once__packed_length(packed, len);
    uint8_t *out = malloc(out_len == 0 ? 1 : out_len);

    check(out != NULL && out_len <= ONCE__PACK_MAX);
    (void)once__unpack(base, base_len, packed, len, out);
    free(out);
}

static void round_trip(const uint8_t *base, size_t base_len, const uint8_t *data, size_t len)
{
    once__pattern_t pattern = {0};
    uint8_t *packed = malloc(len + 1), *back = malloc(len + 1);
    size_t size;

    check(packed != NULL && back != NULL);
    if (len <= ONCE__PACK_MAX && once__pattern_set(&pattern, base, base_len) == 0) {
        check(once__pattern_likeness(&pattern, data, len) <= ONCE__SAMPLES);
        size = once__pack(&pattern, data, len, packed);
        check(size <= len);
        if (size != 0) {
            check(once__packed_length(packed, size) == len);
            check(once__unpack(base, base_len, packed, size, back) == 0);
            check(memcmp(back, data, len) == 0);
        }
    }
    once__pattern_free(&pattern);
    free(packed);
    free(back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t cut;

    if (size < 1) {
        return 0;
    }
    cut = (size - 1) * data[0] / 256;
    unpack(data + 1, cut, data + 1 + cut, size - 1 - cut);
    round_trip(data + 1, cut, data + 1 + cut, size - 1 - cut);
    return 0;
}
