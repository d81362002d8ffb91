#include "core/zstd.h"

#include <zstd.h>

#include <once/error.h>

#include "base/bytes.h"

/* Level 3 saves 2 % of the bytes for 10 to 80 % more time and twice the memory (docs/decisions/response-packing.md). */
#define LEVEL 1

void once__zstd_end(once__zstd_t *zstd)
{
    ZSTD_freeCCtx(zstd->compress);
    ZSTD_freeDCtx(zstd->decompress);
    zstd->compress = NULL;
    zstd->decompress = NULL;
}

size_t once__zstd_pack(once__zstd_t *zstd, uint8_t *out, size_t size, const uint8_t *data,
                       size_t len)
{
    once__zstd_t own = {NULL, NULL};
    once__zstd_t *used = zstd != NULL ? zstd : &own;
    size_t packed = 0;

    if (used->compress == NULL) {
        used->compress = ZSTD_createCCtx();
    }
    if (used->compress != NULL) {
        packed = ZSTD_compressCCtx(used->compress, out, size, data, len, LEVEL);
    }
    once__zstd_end(&own);
    return ZSTD_isError(packed) ? 0 : packed;
}

int once__zstd_holds(const uint8_t *data, size_t len, size_t size)
{
    /* Frames of other magics (skippable ones, old formats that a libzstd may still read) are none of ours. */
    return len >= 4 && once__get32(data) == ZSTD_MAGICNUMBER &&
           ZSTD_getFrameContentSize(data, len) == size &&
           ZSTD_findFrameCompressedSize(data, len) == len;
}

int once__zstd_unpack(once__zstd_t *zstd, uint8_t *out, size_t size, const uint8_t *data,
                      size_t len)
{
    once__zstd_t own = {NULL, NULL};
    once__zstd_t *used = zstd != NULL ? zstd : &own;
    int rc = ONCE_OK;

    if (!once__zstd_holds(data, len, size)) {
        return ONCE_E_CORRUPT;
    }
    if (used->decompress == NULL) {
        used->decompress = ZSTD_createDCtx();
    }
    if (used->decompress == NULL) {
        rc = ONCE_E_NOMEM;
    } else if (ZSTD_decompressDCtx(used->decompress, out, size, data, len) != size) {
        rc = ONCE_E_CORRUPT;
    }
    once__zstd_end(&own);
    return rc;
}
