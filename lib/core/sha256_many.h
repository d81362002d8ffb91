/*
 * SHA-256 of many messages, two at a time: each of the processor's SHA-256 instructions takes several cycles, during which it can
 * work on another message. On processors without them libcrypto hashes one message after another, with the same results.
 */
#ifndef ONCE_CORE_SHA256_MANY_H
#define ONCE_CORE_SHA256_MANY_H

#include <stddef.h>
#include <stdint.h>

#include "core/hmac.h"

/* The sums of `count` messages. */
void once__sha256_many(const once_slice_t *messages, size_t count,
                       uint8_t (*sums)[ONCE__SHA256_SIZE]);

/* A short message for once__hmac_many, with room for its padding. */
#define ONCE__TEXT_MAX 256
typedef struct once__text {
    uint8_t bytes[ONCE__TEXT_MAX + 128];
    size_t len;   /* ONCE__TEXT_MAX at most */
    uint8_t *out; /* ONCE__SHA256_SIZE bytes */
} once__text_t;

/* The HMACs of `count` texts with one key. Equal first blocks are hashed once. */
void once__hmac_many(const once__hmac_key_t *key, once__text_t *texts, size_t count);

/* For tests: do without the instructions from now on, or use them again if the processor has them. */
void once__sha256_many_portable(int portable);

#endif
