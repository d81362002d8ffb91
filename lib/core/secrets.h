/*
 * The secrets of an installation: one permanent secret for record ids, and rotating ones for fingerprints.
 *
 * Kept as text, in the store or in a file, created by the first process that needs them:
 *     once-secrets 1
 *     record HEX64
 *     fingerprint ID CREATED_MS RETIRED_MS HEX64
 * The last fingerprint line is the one in use (RETIRED_MS 0). Ids count up from 1 and never repeat. At most
 * ONCE__FINGERPRINTS_MAX fingerprint lines.
 */
#ifndef ONCE_CORE_SECRETS_H
#define ONCE_CORE_SECRETS_H

#include "core/hmac.h"
#include "core/rules.h"

#define ONCE__SECRET_SIZE       32
#define ONCE__SECRETS_TEXT_SIZE 1024 /* holds any secrets text and its terminator */
#define ONCE__MARK_SIZE         16

typedef struct once__secret {
    uint32_t id;
    uint64_t created_ms;
    uint64_t retired_ms;
    uint8_t bytes[ONCE__SECRET_SIZE];
    once__hmac_key_t key;
} once__secret_t;

typedef struct once__secrets {
    uint8_t record_bytes[ONCE__SECRET_SIZE];
    once__hmac_key_t record;
    once__secret_t fingerprints[ONCE__FINGERPRINTS_MAX]; /* oldest first */
    unsigned count;
} once__secrets_t;

/* Fresh secrets from 2 * ONCE__SECRET_SIZE random bytes. */
void once__secrets_make(once__secrets_t *secrets, const uint8_t *random, uint64_t now_ms);

/*
 * Adds a fingerprint secret from ONCE__SECRET_SIZE random bytes; forgets those retired longer than keep_ms ago, and the oldest
 * when there is no room. Returns its id; 0: all ids are used up, nothing changed.
 */
uint32_t once__secrets_rotate(once__secrets_t *secrets, const uint8_t *random, uint64_t now_ms,
                              uint64_t keep_ms);

/*
 * Text and back. The text is terminated. Parsing trusts nothing: ONCE_E_SECRET names the line (never its contents);
 * ONCE_E_NEWER another version. On an error `secrets` is wiped.
 */
size_t once__secrets_format(const once__secrets_t *secrets, char text[ONCE__SECRETS_TEXT_SIZE]);
int once__secrets_parse(once__secrets_t *secrets, const char *text, size_t len, once_error_t *err);

/*
 * The mark of the record secret: differs for every secret, and reveals nothing about it. Handles that work on the same records have
 * the same, however often the fingerprint secrets rotate. SQL computes it as well (once._secrets_store).
 */
void once__secrets_mark(const once__secrets_t *secrets, uint8_t mark[ONCE__MARK_SIZE]);

void once__secrets_wipe(once__secrets_t *secrets);

#endif
