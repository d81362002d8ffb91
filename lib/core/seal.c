#include "core/seal.h"

#include <assert.h>
#include <limits.h>
#include <string.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/units.h"

static int parse_key(once__seal_keys_t *keys, const char *line, size_t len, const char **wrong)
{
    const char *space = memchr(line, ' ', len);
    size_t digits = space != NULL ? (size_t)(space - line) : len;
    uint8_t bytes[ONCE__SEAL_KEY_SIZE];
    uint64_t id;

    if (once__number_parse(line, digits, &id) != 0 || id == 0 || id > UINT32_MAX) {
        *wrong = "it must begin with an id from 1 to 4294967295";
        return -1;
    }
    if (space == NULL || once__unhex(bytes, sizeof(bytes), space + 1, len - digits - 1) != 0) {
        *wrong = "one space and 64 hex digits must follow the id";
        return -1;
    }
    if (once__seal_keys_find(keys, (uint32_t)id) != NULL) {
        *wrong = "this id is on an earlier line";
    } else if (keys->count == ONCE__SEAL_KEYS_MAX) {
        *wrong = "more than 16 keys";
    } else {
        once__seal_key_t *key = &keys->keys[keys->count++];
        key->id = (uint32_t)id;
        once__hmac_key_set(&key->key, bytes, sizeof(bytes));
        *wrong = NULL;
    }
    OPENSSL_cleanse(bytes, sizeof(bytes));
    return *wrong == NULL ? 0 : -1;
}

int once__seal_keys_parse(once__seal_keys_t *keys, const char *text, size_t len, once_error_t *err)
{
    size_t at = 0;

    memset(keys, 0, sizeof(*keys));
    for (unsigned number = 1; at < len; number++) {
        const char *line = text + at;
        const char *end = memchr(line, '\n', len - at);
        size_t line_len = end != NULL ? (size_t)(end - line) : len - at;
        const char *wrong;

        at += line_len + 1;
        if (line_len == 0 || line[0] == '#') {
            continue;
        }
        if (parse_key(keys, line, line_len, &wrong) != 0) {
            once__seal_keys_wipe(keys);
            return once__fail(err, ONCE_E_SECRET, "encryption keys, line %u: %s", number, wrong);
        }
    }
    if (keys->count == 0) {
        return once__fail(err, ONCE_E_SECRET, "encryption keys, line 1: no key; write ID HEX64");
    }
    return ONCE_OK;
}

void once__seal_keys_wipe(once__seal_keys_t *keys)
{
    OPENSSL_cleanse(keys, sizeof(*keys));
}

const once__seal_key_t *once__seal_keys_find(const once__seal_keys_t *keys, uint32_t id)
{
    for (unsigned i = 0; keys != NULL && i < keys->count; i++) {
        if (keys->keys[i].id == id) {
            return &keys->keys[i];
        }
    }
    return NULL;
}

static void record_key(const once__sealing_t *sealing, uint8_t key[ONCE__SEAL_KEY_SIZE])
{
    once__hmac_t ctx;

    once__hmac_init(&ctx, &sealing->key->key);
    once__hmac_add_part(&ctx, once__slice("seal", 4));
    once__hmac_add_part(&ctx, once__slice(sealing->record_id, ONCE_ID_SIZE));
    once__hmac_end(&ctx, key);
}

/* Sets up `ctx` with the record's key and feeds it what is covered. 1, or 0 as libcrypto says it. */
static int begin(EVP_CIPHER_CTX *ctx, const once__sealing_t *sealing, int encrypt)
{
    uint8_t key[ONCE__SEAL_KEY_SIZE];
    int len, ok;

    record_key(sealing, key);
    ok = EVP_CipherInit_ex(ctx, EVP_aes_256_gcm(), NULL, key, sealing->nonce, encrypt);
    OPENSSL_cleanse(key, sizeof(key));
    return ok && EVP_CipherUpdate(ctx, NULL, &len, sealing->also.data, (int)sealing->also.len);
}

int once__seal(const once__sealing_t *sealing, uint8_t *bytes, size_t len,
               uint8_t tag[ONCE__SEAL_TAG_SIZE])
{
    EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    uint8_t end[1];
    int done, ok;

    assert(len <= INT_MAX);
    ok = ctx != NULL && begin(ctx, sealing, 1) &&
         EVP_CipherUpdate(ctx, bytes, &done, bytes, (int)len) &&
         EVP_CipherFinal_ex(ctx, end, &done) &&
         EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, ONCE__SEAL_TAG_SIZE, tag);
    EVP_CIPHER_CTX_free(ctx);
    return ok ? ONCE_OK : ONCE_E_NOMEM;
}

int once__unseal(const once__sealing_t *sealing, uint8_t *out, const uint8_t *data, size_t len,
                 const uint8_t tag[ONCE__SEAL_TAG_SIZE])
{
    EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    uint8_t expected[ONCE__SEAL_TAG_SIZE], end[1];
    int rc = ONCE_E_NOMEM;
    int done;

    assert(len <= INT_MAX);
    memcpy(expected, tag, sizeof(expected)); /* libcrypto takes it through a pointer to non-const */
    if (ctx != NULL && begin(ctx, sealing, 0) &&
        EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_TAG, ONCE__SEAL_TAG_SIZE, expected) &&
        EVP_CipherUpdate(ctx, out, &done, data, (int)len)) {
        rc = EVP_CipherFinal_ex(ctx, end, &done) ? ONCE_OK : ONCE_E_SEALED;
    }
    EVP_CIPHER_CTX_free(ctx);
    return rc;
}
