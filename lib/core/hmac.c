#include "core/hmac.h"

#include <string.h>

#include <openssl/crypto.h>

#include "base/bytes.h"

#define BLOCK 64

void once__sha256_init(once__sha256_t *ctx)
{
    SHA256_Init(ctx);
}

void once__sha256_add(once__sha256_t *ctx, const void *data, size_t len)
{
    if (len > 0) {
        SHA256_Update(ctx, data, len);
    }
}

void once__sha256_end(once__sha256_t *ctx, uint8_t out[ONCE__SHA256_SIZE])
{
    SHA256_Final(out, ctx);
}

void once__hmac_key_set(once__hmac_key_t *key, const uint8_t *secret, size_t len)
{
    uint8_t block[BLOCK] = {0};

    if (len > BLOCK) {
        once__sha256_t ctx;
        once__sha256_init(&ctx);
        once__sha256_add(&ctx, secret, len);
        once__sha256_end(&ctx, block);
    } else if (len > 0) {
        memcpy(block, secret, len);
    }
    for (size_t i = 0; i < BLOCK; i++) {
        block[i] ^= 0x36;
    }
    once__sha256_init(&key->inner);
    once__sha256_add(&key->inner, block, BLOCK);
    for (size_t i = 0; i < BLOCK; i++) {
        block[i] ^= 0x36 ^ 0x5c;
    }
    once__sha256_init(&key->outer);
    once__sha256_add(&key->outer, block, BLOCK);
    OPENSSL_cleanse(block, sizeof(block));
}

void once__hmac_init(once__hmac_t *ctx, const once__hmac_key_t *key)
{
    ctx->inner = key->inner;
    ctx->key = key;
}

void once__hmac_add(once__hmac_t *ctx, const void *data, size_t len)
{
    once__sha256_add(&ctx->inner, data, len);
}

void once__hmac_add_parts(once__hmac_t *ctx, const once_slice_t *parts, size_t count)
{
    uint8_t together[256];
    size_t len = 0;

    for (size_t i = 0; i < count; i++) {
        if (len + 8 + parts[i].len > sizeof(together)) {
            once__hmac_add(ctx, together, len);
            len = 0;
        }
        once__put64(together + len, parts[i].len);
        len += 8;
        if (parts[i].len > sizeof(together) - 8) {
            once__hmac_add(ctx, together, len);
            once__hmac_add(ctx, parts[i].data, parts[i].len);
            len = 0;
        } else if (parts[i].len > 0) {
            memcpy(together + len, parts[i].data, parts[i].len);
            len += parts[i].len;
        }
    }
    once__hmac_add(ctx, together, len);
}

void once__hmac_add_part(once__hmac_t *ctx, once_slice_t part)
{
    once__hmac_add_parts(ctx, &part, 1);
}

void once__hmac_end(once__hmac_t *ctx, uint8_t out[ONCE__SHA256_SIZE])
{
    once__sha256_t outer = ctx->key->outer;

    once__sha256_end(&ctx->inner, out);
    once__sha256_add(&outer, out, ONCE__SHA256_SIZE);
    once__sha256_end(&outer, out);
}
