/*
 * The record id of (scope, key), the hash of a scope, and the fingerprint of a request.
 *
 * All are HMAC-SHA-256 over length-prefixed parts, each with a label of its own, so that no value of one kind can be taken
 * for another:
 *     id          = HMAC(record secret, "id"          | scope | key)
 *     scope hash  = HMAC(record secret, "scope"       | scope), the first 16 bytes
 *     subject     = HMAC(record secret, "subject"     | subject), the first 16 bytes
 *     fingerprint = HMAC(fingerprint secret, "fingerprint" | mode | scope | method | target | SHA-256 of the body)
 * The body enters as its digest, so that one pass over it serves every live secret.
 */
#ifndef ONCE_CORE_IDENTITY_H
#define ONCE_CORE_IDENTITY_H

#include "core/digest.h"
#include "core/secrets.h"

void once__record_id(const once__secrets_t *secrets, once_slice_t scope, once_slice_t key,
                     uint8_t id[ONCE_ID_SIZE]);
void once__scope_hash(const once__secrets_t *secrets, once_slice_t scope,
                      uint8_t hash[ONCE_SCOPE_HASH_SIZE]);
void once__subject_hash(const once__secrets_t *secrets, once_slice_t subject,
                        uint8_t hash[ONCE_SUBJECT_SIZE]);

typedef struct once__request {
    once_slice_t scope;
    once_slice_t method;
    once_slice_t target;
    once__digest_t body;
} once__request_t;

/* The request under each live secret, the newest first. Returns how many: 1 to ONCE__FINGERPRINTS_MAX. */
unsigned once__fingerprints(const once__secrets_t *secrets, const once__request_t *request,
                            once__fingerprint_t out[ONCE__FINGERPRINTS_MAX]);

/* One of many: what is asked, and where its id and its fingerprints go. */
typedef struct once__identified {
    once__request_t request;
    once_slice_t key;
    uint8_t *id;
    once__fingerprint_t *fingerprints;
} once__identified_t;

/* once__record_id and once__fingerprints of each, two at a time. Returns how many fingerprints each has. */
unsigned once__identify_many(const once__secrets_t *secrets, const once__identified_t *many,
                             size_t count);

#endif
