#include "store/crc32c.h"

#include <pthread.h>

#include "base/bytes.h"

#define POLYNOMIAL 0x82f63b78u /* reflected */

static uint32_t table[256];
static pthread_once_t prepared = PTHREAD_ONCE_INIT;

static void prepare(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        table[byte] = byte;
        for (int bit = 0; bit < 8; bit++) {
            table[byte] = table[byte] >> 1 ^ (table[byte] & 1 ? POLYNOMIAL : 0);
        }
    }
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
        value = __builtin_ia32_crc32di(value, once__get64(p));
    }
    for (; len > 0; len--, p++) {
        value = __builtin_ia32_crc32qi((uint32_t)value, *p);
    }
    return ~(uint32_t)value;
}
#endif

uint32_t once__crc32c(uint32_t crc, const void *data, size_t len)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2")) {
        return by_instruction(crc, data, len);
    }
#endif
    return once__crc32c_portable(crc, data, len);
}
