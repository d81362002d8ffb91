/*
 * A record as bytes, for the stores that keep bytes. docs/format.md has the layout: a frozen envelope of
 * ONCE__ENVELOPE_SIZE bytes (schema, state, policy, flags, claim, lease, times) that every version can read, then the rest
 * by schema. The record id is not part of the bytes: it is what the store finds them by.
 */
#ifndef ONCE_CORE_CODEC_H
#define ONCE_CORE_CODEC_H

#include "core/record.h"

#define ONCE__ENVELOPE_SIZE 64
#define ONCE__PAYLOAD_MAX   (ONCE_BODY_STORE_MAX + ONCE_HEADERS_MAX + 4096)

/* Offsets in the envelope. Frozen. */
enum {
    ONCE__AT_MAGIC = 0,
    ONCE__AT_SCHEMA = 1,
    ONCE__AT_STATE = 2,
    ONCE__AT_RECOVER = 3,
    ONCE__AT_FLAGS = 4,
    ONCE__AT_RESERVED = 5,
    ONCE__AT_EPOCH = 8,
    ONCE__AT_LEASE_MS = 12,
    ONCE__AT_CLAIM_ID = 16,
    ONCE__AT_LEASE_UNTIL = 32,
    ONCE__AT_CHANGED = 40,
    ONCE__AT_EXPIRES = 48,
    ONCE__AT_CREATED = 56,
};

/* Offsets in the rest of schema 1. */
enum {
    ONCE__AT_SECRET = 64,
    ONCE__AT_MODE = 68,
    ONCE__AT_KIND = 69,
    ONCE__AT_STATUS = 70,
    ONCE__AT_MAC = 72,
    ONCE__AT_SCOPE = 104,
    ONCE__AT_TTL = 120,
    ONCE__AT_PAYLOAD_LEN = 128,
    ONCE__AT_KEY_LEN = 132,
    ONCE__AT_KEY = 133,
};

/* The size that once__record_encode needs. */
size_t once__record_size(const once__record_t *record);

/*
 * Encodes into `out` of exactly once__record_size bytes. The record must be valid (asserted): an impossible state must
 * not reach a store. A lease length over 32 bits is stored as the largest value that fits; nothing else is changed.
 */
void once__record_encode(const once__record_t *record, uint8_t *out);

/*
 * Decodes; pointers point into `data`, the id is zeroed (set it afterwards). Trusts nothing. Returns ONCE_OK;
 * ONCE_E_NEWER: only the envelope's part of `head` was filled in (schema says which version), the rest is zero; ONCE_E_CORRUPT:
 * not a record, `record` is zeroed.
 */
int once__record_decode(once__record_t *record, const uint8_t *data, size_t len);

/* The envelope alone, ONCE__ENVELOPE_SIZE bytes; the other members of `head` become zero. Returns as once__record_decode. */
void once__envelope_encode(const once__head_t *head, uint8_t *out);
int once__envelope_decode(once__head_t *head, const uint8_t *data);

/* Could it be stored? The envelope: by what holds in every schema. The record: by what holds in this one; not its bytes. */
int once__envelope_is_valid(const once__head_t *head);
int once__record_is_valid(const once__record_t *record);

#endif
