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

/* Eight digits of hex in lower case, all at once. 1 and four bytes, or 0: they are not. */
static int get_hex(uint64_t digits, uint8_t out[4])
{
    const uint64_t each = 0x0101010101010101;
    uint64_t values = (digits & each * 15) + (digits >> 6 & each) * 9; /* letters have bit 6 */
    uint64_t letters = (values + each * 6) >> 4 & each;

    if (values + each * '0' + letters * ('a' - '0' - 10) != digits || (values & each * 0xf0) != 0) {
        return 0;
    }
    values = (values << 4 | values >> 8) & 0x00ff00ff00ff00ff;
    values = (values | values >> 8) & 0x0000ffff0000ffff;
    once__put32(out, (uint32_t)(values | values >> 16));
    return 1;
}

int once__uuid_read(uint8_t out[16], const char *text, size_t len)
{
    uint8_t digits[32];

    if (len != ONCE_UUID_SIZE - 1 || text[8] != '-' || text[13] != '-' || text[18] != '-' ||
        text[23] != '-') {
        return 0;
    }
    memcpy(digits, text, 8);
    memcpy(digits + 8, text + 9, 4);
    memcpy(digits + 12, text + 14, 4);
    memcpy(digits + 16, text + 19, 4);
    memcpy(digits + 20, text + 24, 12);
    return get_hex(once__get64(digits), out) && get_hex(once__get64(digits + 8), out + 4) &&
           get_hex(once__get64(digits + 16), out + 8) &&
           get_hex(once__get64(digits + 24), out + 12);
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
