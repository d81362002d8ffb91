/*
 * Sealing of stored responses: AES-256-GCM with a key of its own for each record, derived from the installation's key and the
 * record id, so that random nonces never wear a key out. docs/format.md has the bytes.
 */
#ifndef ONCE_CORE_SEAL_H
#define ONCE_CORE_SEAL_H

#include <once/once.h>

#include "core/hmac.h"

#define ONCE__SEAL_KEY_SIZE   32
#define ONCE__SEAL_KEYS_MAX   16
#define ONCE__SEAL_NONCE_SIZE 12
#define ONCE__SEAL_TAG_SIZE   16

typedef struct once__seal_key {
    uint32_t id; /* 1 or more */
    once__hmac_key_t key;
} once__seal_key_t;

/* The last one seals, all of them open. count 0: nothing is sealed, and what is not is read. */
typedef struct once__seal_keys {
    once__seal_key_t keys[ONCE__SEAL_KEYS_MAX];
    unsigned count;
    int plain_too; /* what is not sealed is read, too */
} once__seal_keys_t;

/*
 * Lines `ID HEX64`; blank lines and lines that begin with `#` are fine. ONCE_E_SECRET names the line (never its contents):
 * a line that is not that, id 0, an id twice, too many keys, no key at all. On an error `keys` is wiped.
 */
int once__seal_keys_parse(once__seal_keys_t *keys, const char *text, size_t len, once_error_t *err);
void once__seal_keys_wipe(once__seal_keys_t *keys);

/* The key with this id, or NULL. `keys` may be NULL. */
const once__seal_key_t *once__seal_keys_find(const once__seal_keys_t *keys, uint32_t id);

/* What a seal is made with, and what it is bound to. */
typedef struct once__sealing {
    const once__seal_key_t *key;
    const uint8_t *record_id; /* ONCE_ID_SIZE bytes */
    const uint8_t *nonce;     /* ONCE__SEAL_NONCE_SIZE bytes, never twice for one record id */
    once_slice_t also;        /* not hidden, but covered by the tag */
} once__sealing_t;

/* Encrypts `bytes` where they are and gives the tag. ONCE_OK or ONCE_E_NOMEM. */
int once__seal(const once__sealing_t *sealing, uint8_t *bytes, size_t len,
               uint8_t tag[ONCE__SEAL_TAG_SIZE]);

/*
 * Decrypts `len` bytes from `data` to `out` (which may be `data`). ONCE_OK; ONCE_E_SEALED: something is not as it was sealed,
 * `out` holds nothing of use; ONCE_E_NOMEM.
 */
int once__unseal(const once__sealing_t *sealing, uint8_t *out, const uint8_t *data, size_t len,
                 const uint8_t tag[ONCE__SEAL_TAG_SIZE]);

#endif
