/*
 * Any text as secrets and as a key file: what is read can be written and read again, and what is not read leaves nothing
 * behind.
 */
#include <stdlib.h>
#include <string.h>

#include "core/seal.h"
#include "core/secrets.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int holds)
{
    if (!holds) {
        abort();
    }
}

static void check_round_trip(const once__secrets_t *secrets)
{
    char text[ONCE__SECRETS_TEXT_SIZE];
    once__secrets_t again;
    size_t len = once__secrets_format(secrets, text);

    check(len == strlen(text));
    check(once__secrets_parse(&again, text, len, NULL) == ONCE_OK);
    check(memcmp(&again, secrets, sizeof(again)) == 0);
}

static void check_secrets(const char *text, size_t size)
{
    static const once__secrets_t zero;
    static const uint8_t random[ONCE__SECRET_SIZE];
    once__secrets_t secrets;
    once_error_t err = {0};
    int rc = once__secrets_parse(&secrets, text, size, &err);

    if (rc != ONCE_OK) {
        check((rc == ONCE_E_SECRET || rc == ONCE_E_NEWER) && err.code == rc);
        check(memcmp(&secrets, &zero, sizeof(zero)) == 0);
        return;
    }
    check(secrets.count >= 1 && secrets.count <= ONCE__FINGERPRINTS_MAX);
    check_round_trip(&secrets);
    for (uint64_t i = 0; i < 6; i++) {
        once__secrets_rotate(&secrets, random, i * size, i);
        check_round_trip(&secrets);
    }
}

static void check_keys(const char *text, size_t size)
{
    static const once__seal_keys_t zero;
    once__seal_keys_t keys;
    once_error_t err = {0};
    int rc = once__seal_keys_parse(&keys, text, size, &err);

    if (rc != ONCE_OK) {
        check(rc == ONCE_E_SECRET && err.code == rc);
        check(memcmp(&keys, &zero, sizeof(zero)) == 0);
        return;
    }
    check(keys.count >= 1 && keys.count <= ONCE__SEAL_KEYS_MAX);
    for (unsigned i = 0; i < keys.count; i++) {
        check(once__seal_keys_find(&keys, keys.keys[i].id) == &keys.keys[i]); /* no id twice */
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_secrets((const char *)data, size);
    check_keys((const char *)data, size);
    return 0;
}
