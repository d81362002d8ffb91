#include "base/uuid.h"

#include <string.h>

#include "base/bytes.h"

#define COUNTER_BITS 12

void once__uuid_text(char out[ONCE_UUID_SIZE], const uint8_t bytes[16])
{
    static const uint8_t groups[] = {4, 2, 2, 2, 6};

    for (size_t i = 0; i < sizeof(groups); i++) {
        once__hex(out, bytes, groups[i]);
        out += (size_t)2 * groups[i];
        *out++ = '-';
        bytes += groups[i];
    }
    out[-1] = '\0';
}

static void mark_and_write(char out[ONCE_UUID_SIZE], uint8_t bytes[16], unsigned version)
{
    bytes[6] = (uint8_t)(version << 4 | (bytes[6] & 0x0f));
    bytes[8] = (uint8_t)(0x80 | (bytes[8] & 0x3f));
    once__uuid_text(out, bytes);
}

void once__uuid4(char out[ONCE_UUID_SIZE], const uint8_t random[16])
{
    uint8_t bytes[16];

    memcpy(bytes, random, sizeof(bytes));
    mark_and_write(out, bytes, 4);
}

void once__uuid7(char out[ONCE_UUID_SIZE], uint64_t stamp, const uint8_t random[8])
{
    uint64_t ms = stamp >> COUNTER_BITS;
    uint8_t bytes[16];

    for (int i = 0; i < 6; i++) {
        bytes[i] = (uint8_t)(ms >> (40 - 8 * i));
    }
    bytes[6] = (uint8_t)(stamp >> 8 & 0x0f);
    bytes[7] = (uint8_t)stamp;
    memcpy(bytes + 8, random, 8);
    mark_and_write(out, bytes, 7);
}

uint64_t once__uuid7_next(uint64_t last, uint64_t now_ms)
{
    uint64_t now = now_ms << COUNTER_BITS;

    return now > last ? now : last + 1;
}
