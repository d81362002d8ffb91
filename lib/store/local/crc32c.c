#include "store/local/crc32c.h"

#include <pthread.h>
#include <string.h>

#define POLYNOMIAL 0x82f63b78u /* reflected */

static uint32_t table[256];
static int has_instruction;
static pthread_once_t prepared = PTHREAD_ONCE_INIT;

static void prepare(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t value = byte;
        for (int bit = 0; bit < 8; bit++) {
            value = value >> 1 ^ (value & 1 ? POLYNOMIAL : 0);
        }
        table[byte] = value;
    }
#if defined(__x86_64__)
    has_instruction = __builtin_cpu_supports("sse4.2");
#endif
}

uint32_t once__crc32c_portable(uint32_t crc, const void *data, size_t len)
{
    const uint8_t *p = data;

    (void)pthread_once(&prepared, prepare);
    crc = ~crc;
    while (len-- > 0) {
        crc = crc >> 8 ^ table[(crc ^ *p++) & 0xff];
    }
    return ~crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t by_instruction(uint32_t crc, const uint8_t *p,
                                                                 size_t len)
{
    uint64_t value = ~crc;

    for (; len >= 8; len -= 8, p += 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        value = __builtin_ia32_crc32di(value, word);
    }
    if (len >= 4) {
        uint32_t word;
        memcpy(&word, p, 4);
        value = __builtin_ia32_crc32si((uint32_t)value, word);
        len -= 4;
        p += 4;
    }
    for (; len > 0; len--, p++) {
        value = __builtin_ia32_crc32qi((uint32_t)value, *p);
    }
    return ~(uint32_t)value;
}
#endif

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t of_twelve(const uint8_t first[12])
{
    uint64_t word;
    uint32_t rest;

    memcpy(&word, first, 8);
    memcpy(&rest, first + 8, 4);
    return __builtin_ia32_crc32si((uint32_t)__builtin_ia32_crc32di(~(uint32_t)0, word), rest);
}

/* Each instruction waits for the one before; those of the other sum do not. */
__attribute__((target("sse4.2"))) static void both_by_instruction(uint32_t crcs[2],
                                                                  const uint8_t first[2][12],
                                                                  const uint8_t *const data[2],
                                                                  const size_t lens[2])
{
    uint64_t one = of_twelve(first[0]), two = of_twelve(first[1]);
    size_t both = (lens[0] < lens[1] ? lens[0] : lens[1]) & ~(size_t)7;

    for (size_t at = 0; at < both; at += 8) {
        uint64_t words[2];
        memcpy(&words[0], data[0] + at, 8);
        memcpy(&words[1], data[1] + at, 8);
        one = __builtin_ia32_crc32di(one, words[0]);
        two = __builtin_ia32_crc32di(two, words[1]);
    }
    crcs[0] = by_instruction(~(uint32_t)one, data[0] + both, lens[0] - both);
    crcs[1] = by_instruction(~(uint32_t)two, data[1] + both, lens[1] - both);
}
#endif

void once__crc32c_two(uint32_t crcs[2], const uint8_t first[2][12], const uint8_t *const data[2],
                      const size_t lens[2])
{
    (void)pthread_once(&prepared, prepare);
#if defined(__x86_64__)
    if (has_instruction) {
        both_by_instruction(crcs, first, data, lens);
        return;
    }
#endif
    for (size_t i = 0; i < 2; i++) {
        crcs[i] = once__crc32c_portable(once__crc32c_portable(0, first[i], 12), data[i], lens[i]);
    }
}

uint32_t once__crc32c(uint32_t crc, const void *data, size_t len)
{
    (void)pthread_once(&prepared, prepare);
#if defined(__x86_64__)
    if (has_instruction) {
        return by_instruction(crc, data, len);
    }
#endif
    return once__crc32c_portable(crc, data, len);
}
