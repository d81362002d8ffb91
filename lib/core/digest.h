/*
 * The end of a streamed body (once/body.h): what of it goes into the fingerprint.
 */
#ifndef ONCE_CORE_DIGEST_H
#define ONCE_CORE_DIGEST_H

#include <once/once.h>

#include "core/hmac.h"

typedef struct once__digest {
    uint8_t mode; /* as applied: a body that does not fit its mode is digested exactly */
    uint8_t sum[ONCE__SHA256_SIZE];
} once__digest_t;

/* Digests what was added so far; the body can be added to afterwards. ONCE_E_NOMEM: now, or when an earlier add failed. */
int once__body_digest(const once_body_t *body, once__digest_t *digest);

/* The digest of a whole body in memory, exact. */
void once__bytes_digest(once_slice_t bytes, once__digest_t *digest);

/* The digest of the body of an ask, which is `known` unless that is NULL. ONCE_E_NOMEM. */
int once__ask_digest(const once_ask_t *ask, const uint8_t *known, once__digest_t *digest);

#endif
