#include "core/identity.h"

#include <string.h>

#include "core/bytes.h"

static void begin(once__hmac_t *ctx, const once__hmac_key_t *key, const char *label)
{
    once__hmac_init(ctx, key);
    once__hmac_add_part(ctx, once__slice(label, strlen(label)));
}

void once__record_id(const once__secrets_t *secrets, once_slice_t scope, once_slice_t key,
                     uint8_t id[ONCE_ID_SIZE])
{
    once__hmac_t ctx;

    begin(&ctx, &secrets->record, "id");
    once__hmac_add_part(&ctx, scope);
    once__hmac_add_part(&ctx, key);
    once__hmac_end(&ctx, id);
}

void once__scope_hash(const once__secrets_t *secrets, once_slice_t scope,
                      uint8_t hash[ONCE_SCOPE_HASH_SIZE])
{
    uint8_t full[ONCE__SHA256_SIZE];
    once__hmac_t ctx;

    begin(&ctx, &secrets->record, "scope");
    once__hmac_add_part(&ctx, scope);
    once__hmac_end(&ctx, full);
    memcpy(hash, full, ONCE_SCOPE_HASH_SIZE);
}

unsigned once__fingerprints(const once__secrets_t *secrets, const once__request_t *request,
                            once__fingerprint_t out[ONCE__FINGERPRINTS_MAX])
{
    for (unsigned i = 0; i < secrets->count; i++) {
        const once__secret_t *secret = &secrets->fingerprints[secrets->count - 1 - i];
        once__hmac_t ctx;

        begin(&ctx, &secret->key, "fingerprint");
        once__hmac_add_part(&ctx, once__slice(&request->body.mode, 1));
        once__hmac_add_part(&ctx, request->scope);
        once__hmac_add_part(&ctx, request->method);
        once__hmac_add_part(&ctx, request->target);
        once__hmac_add_part(&ctx, once__slice(request->body.sum, sizeof(request->body.sum)));
        once__hmac_end(&ctx, out[i].mac);
        out[i].secret = secret->id;
        out[i].mode = request->body.mode;
    }
    return secrets->count;
}
