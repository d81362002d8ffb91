/*
 * A response as a payload: packed, compressed above a threshold, sealed when there is a key. docs/format.md has the bytes.
 *
 *     packed = flags u8 | seal key id u32 (0: not sealed) | plain length u32 | bytes
 *     bytes  = plain, or zstd(plain), or nonce 12 | AES-256-GCM(plain or zstd(plain)) | tag 16
 *     plain  = header count u32 | { name length u32 | name | value length u32 | value }* | body to the end
 * The tag also covers the record id, the status and the three fields before the bytes: a payload cannot be moved to another
 * record or be given another status.
 */
#ifndef ONCE_CORE_RESPONSE_H
#define ONCE_CORE_RESPONSE_H

#include "core/record.h"
#include "core/seal.h"
#include "core/zstd.h"

typedef struct once__packing {
    const once__seal_keys_t *seal; /* NULL or count 0: not sealed */
    once__zstd_t *zstd;            /* of the handle; NULL: one for the call */
    uint64_t compress_from;        /* plain bytes from which zstd is tried; UINT64_MAX: never */
    uint8_t nonce
        [ONCE__SEAL_NONCE_SIZE]; /* fresh random bytes for every call; used only when sealing */
} once__packing_t;

/*
 * What a replay would write out as headers: ONCE_E_HEADER for one without a name, with a blank, colon or control character in the
 * name, or a line break or NUL in the value, because a client would read other headers than were recorded; ONCE_E_TOO_BIG
 * (ONCE_HEADERS_MAX, ONCE_HEADER_COUNT_MAX). What is read is held to the same. `*bytes`: of all names and values.
 */
int once__headers_check(const once_response_t *response, size_t *bytes);

/*
 * Packs into one allocation (free()). A compressed form that is not smaller is not used. ONCE_E_INVALID (status outside 200
 * to 599, a body that is omitted and yet there), ONCE_E_TOO_BIG (ONCE_BODY_STORE_MAX, or by the headers),
 * ONCE_E_HEADER, ONCE_E_NOMEM. On an error `*data` is NULL.
 */
int once__response_pack(const once_response_t *response, const uint8_t id[ONCE_ID_SIZE],
                        const once__packing_t *packing, uint8_t **data, size_t *len);

/* An unpacked response. A body that is stored as it is is not copied: the payload must then live as long. */
typedef struct once__unpacked {
    once_response_t response;
    void *memory;   /* the headers, and what was compressed; never NULL */
    void *unsealed; /* what was sealed, and not compressed besides */
    int in_place;   /* `response` points into the payload */
} once__unpacked_t;

/*
 * Trusts nothing of `payload`. ONCE_E_CORRUPT (also a status or header that could not have been recorded), ONCE_E_SEALED,
 * ONCE_E_UNSEALED (there are keys, and it was sealed with none), ONCE_E_NEWER (unknown flags), ONCE_E_NOMEM; then `out` is zeroed.
 * `seal` and `zstd` may be NULL.
 */
int once__response_unpack(const once__payload_t *payload, const uint8_t id[ONCE_ID_SIZE],
                          const once__seal_keys_t *seal, once__zstd_t *zstd, once__unpacked_t *out);
void once__unpacked_free(once__unpacked_t *unpacked);

#endif
