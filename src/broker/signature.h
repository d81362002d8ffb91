/*
 * Signatures of webhooks: `t=SECONDS,v1=HEX`, HEX being HMAC-SHA-256 over "SECONDS.BODY".
 */
#ifndef ONCE_BROKER_SIGNATURE_H
#define ONCE_BROKER_SIGNATURE_H

#include <stddef.h>

#include <once/key.h>

typedef struct once__signer once__signer_t;

/*
 * A secret is a line of the file, at least 16 bytes. Several ones, for a change: each gives a v1 of its own, in their order.
 * Nobody but the owner may read the file. NULL after writing into `error` what is wrong.
 */
once__signer_t *once__signer_open(const char *path, char *error, size_t size);
void once__signer_free(once__signer_t *signer); /* NULL is fine */

/* Signs with the time of now. 0 or -1. */
int once__sign(const once__signer_t *signer, once_slice_t body, char *out, size_t size);

#endif
