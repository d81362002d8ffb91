/*
 * Compression of stored responses. Making a zstd context costs more than compressing a small response with it, so a handle
 * keeps one of these (docs/decisions/response-packing.md).
 */
#ifndef ONCE_CORE_ZSTD_H
#define ONCE_CORE_ZSTD_H

#include <stddef.h>
#include <stdint.h>

/* Zeroed is ready to use; what it needs is made at the first use. One user at a time. */
typedef struct once__zstd {
    struct ZSTD_CCtx_s *compress;
    struct ZSTD_DCtx_s *decompress;
} once__zstd_t;

/* Frees what it holds; it can be used again afterwards. */
void once__zstd_end(once__zstd_t *zstd);

/* Below, `zstd` may be NULL: then the call makes what it needs, and frees it. */

/* Compresses into at most `size` bytes. How many they are; 0: they are not enough (or memory is short). */
size_t once__zstd_pack(once__zstd_t *zstd, uint8_t *out, size_t size, const uint8_t *data,
                       size_t len);

/* Is this one whole frame that says it holds exactly `size` bytes? Asked before memory is set aside for them. */
int once__zstd_holds(const uint8_t *data, size_t len, size_t size);

/* Unpacks exactly `size` bytes. ONCE_OK, ONCE_E_CORRUPT, ONCE_E_NOMEM. Never writes or needs more than `size`. */
int once__zstd_unpack(once__zstd_t *zstd, uint8_t *out, size_t size, const uint8_t *data,
                      size_t len);

#endif
