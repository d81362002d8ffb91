/*
 * CRC-32C (Castagnoli), with the processor's instruction where there is one.
 */
#ifndef ONCE_STORE_CRC32C_H
#define ONCE_STORE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Goes on from `crc` (0 at the beginning): once__crc32c(once__crc32c(0, a), b) is that of a followed by b. */
uint32_t once__crc32c(uint32_t crc, const void *data, size_t len);

/* The same without special instructions: for tests. */
uint32_t once__crc32c_portable(uint32_t crc, const void *data, size_t len);

#endif
