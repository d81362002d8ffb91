/*
 * SHA-256 and HMAC-SHA-256 without allocation: contexts are plain values, and an HMAC key is hashed once when it is set up,
 * so that a decision does not pay for the set-up (docs/decisions/hmac.md has the numbers). The hashing itself is libcrypto's.
 */
#ifndef ONCE_CORE_HMAC_H
#define ONCE_CORE_HMAC_H

#include <stddef.h>
#include <stdint.h>

#include <openssl/sha.h>

#include <once/key.h>

#define ONCE__SHA256_SIZE 32

typedef SHA256_CTX once__sha256_t;

void once__sha256_init(once__sha256_t *ctx);
void once__sha256_add(once__sha256_t *ctx, const void *data, size_t len);
void once__sha256_end(once__sha256_t *ctx, uint8_t out[ONCE__SHA256_SIZE]);

/* A key ready for use; copy it freely. Wipe it with OPENSSL_cleanse when done. */
typedef struct once__hmac_key {
    once__sha256_t inner;
    once__sha256_t outer;
} once__hmac_key_t;

typedef struct once__hmac {
    once__sha256_t inner;
    const once__hmac_key_t *key; /* must outlive the computation */
} once__hmac_t;

void once__hmac_key_set(once__hmac_key_t *key, const uint8_t *secret, size_t len);

void once__hmac_init(once__hmac_t *ctx, const once__hmac_key_t *key);
void once__hmac_add(once__hmac_t *ctx, const void *data, size_t len);
/* Adds a length (8 bytes, little-endian) and then the bytes, so that adjacent parts cannot be confused. */
void once__hmac_add_part(once__hmac_t *ctx, once_slice_t part);
/* The same for several parts in a row, in fewer steps. */
void once__hmac_add_parts(once__hmac_t *ctx, const once_slice_t *parts, size_t count);
void once__hmac_end(once__hmac_t *ctx, uint8_t out[ONCE__SHA256_SIZE]);

#endif
