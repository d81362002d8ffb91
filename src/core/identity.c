#include "core/identity.h"

#include <string.h>

#include "core/bytes.h"

static void mac(const once__hmac_key_t *key, const once_slice_t *parts, size_t count,
                uint8_t out[ONCE__SHA256_SIZE])
{
    once__hmac_t ctx;

    once__hmac_init(&ctx, key);
    once__hmac_add_parts(&ctx, parts, count);
    once__hmac_end(&ctx, out);
}

void once__record_id(const once__secrets_t *secrets, once_slice_t scope, once_slice_t key,
                     uint8_t id[ONCE_ID_SIZE])
{
    const once_slice_t parts[] = {once__slice("id", 2), scope, key};

    mac(&secrets->record, parts, 3, id);
}

void once__scope_hash(const once__secrets_t *secrets, once_slice_t scope,
                      uint8_t hash[ONCE_SCOPE_HASH_SIZE])
{
    const once_slice_t parts[] = {once__slice("scope", 5), scope};
    uint8_t full[ONCE__SHA256_SIZE];

    mac(&secrets->record, parts, 2, full);
    memcpy(hash, full, ONCE_SCOPE_HASH_SIZE);
}

unsigned once__fingerprints(const once__secrets_t *secrets, const once__request_t *request,
                            once__fingerprint_t out[ONCE__FINGERPRINTS_MAX])
{
    const once_slice_t parts[] = {once__slice("fingerprint", 11),
                                  once__slice(&request->body.mode, 1),
                                  request->scope,
                                  request->method,
                                  request->target,
                                  once__slice(request->body.sum, sizeof(request->body.sum))};

    for (unsigned i = 0; i < secrets->count; i++) {
        const once__secret_t *secret = &secrets->fingerprints[secrets->count - 1 - i];
        mac(&secret->key, parts, 6, out[i].mac);
        out[i].secret = secret->id;
        out[i].mode = request->body.mode;
    }
    return secrets->count;
}
