/*
 * SHA-256 of many messages, two at a time: an instruction of SHA-256 takes several cycles, in which the processor can work on
 * another message. Without such instructions it is libcrypto's, one after the other. The same sums in both cases.
 */
#ifndef ONCE_CORE_SHA256_MANY_H
#define ONCE_CORE_SHA256_MANY_H

#include <stddef.h>
#include <stdint.h>

#include "core/hmac.h"

/* The sums of `count` messages. */
void once__sha256_many(const once_slice_t *messages, size_t count,
                       uint8_t (*sums)[ONCE__SHA256_SIZE]);

/* A short message, for HMACs of many: what it is padded with stands behind it. */
#define ONCE__TEXT_MAX 256
typedef struct once__text {
    uint8_t bytes[ONCE__TEXT_MAX + 128];
    size_t len;   /* ONCE__TEXT_MAX at most */
    uint8_t *out; /* ONCE__SHA256_SIZE bytes */
} once__text_t;

/* The HMACs of `count` texts with one key. First blocks that are the same are hashed once. */
void once__hmac_many(const once__hmac_key_t *key, once__text_t *texts, size_t count);

/* For tests: from now on without the instructions, or with them again where there are. */
void once__sha256_many_portable(int portable);

#endif
