/*
 * Signatures of webhooks, after Standard Webhooks (https://www.standardwebhooks.com): `v1,` and the base64 of HMAC-SHA-256 over
 * "ID.SECONDS.BODY".
 */
#ifndef ONCE_BROKER_HTTP_SIGNATURE_H
#define ONCE_BROKER_HTTP_SIGNATURE_H

#include <stddef.h>
#include <stdint.h>

#include <once/key.h>

#define ONCE__HTTP_SIGNATURE_SIZE   256 /* of a header's value, for as many secrets as there may be */
#define ONCE__HTTP_SECRET_TEXT_SIZE 96 /* of a secret as text */

typedef struct once__http_signer once__http_signer_t;

/*
 * A secret is a line of the file: `whsec_` and the base64 of 24 to 64 bytes. While secrets are being changed there may be up to
 * four; each gives a signature, in their order. Only the owner may have access to the file. Returns NULL after writing the
 * reason into `error`.
 */
once__http_signer_t *once__http_signer_open(const char *path, char *error, size_t size);
void once__http_signer_free(once__http_signer_t *signer); /* NULL is fine */

/*
 * Writes the value of webhook-signature, the signatures separated by spaces, into `out` of ONCE__HTTP_SIGNATURE_SIZE bytes.
 * Returns 0 or -1.
 */
int once__http_sign(const once__http_signer_t *signer, once_slice_t id, int64_t seconds,
                    once_slice_t body, char *out);

/*
 * Writes a new secret as text into `out` of ONCE__HTTP_SECRET_TEXT_SIZE bytes. Returns 0, or -1 if there are no random bytes.
 */
int once__http_secret_new(char *out);

#endif
