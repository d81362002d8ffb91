/* Keys: whatever a header has, a key that is accepted can be written quoted and read again. */
#include <assert.h>
#include <string.h>

#include <once/key.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t quote(const once_key_t *key, char *out)
{
    size_t len = 0;

    out[len++] = '"';
    for (size_t i = 0; i < key->len; i++) {
        if (key->text[i] == '"' || key->text[i] == '\\') {
            out[len++] = '\\';
        }
        out[len++] = key->text[i];
    }
    out[len++] = '"';
    return len;
}

static void check_key(const once_key_t *key)
{
    char quoted[2 * ONCE_KEY_MAX + 2];
    once_slice_t value = {quoted, quote(key, quoted)};
    once_key_t again;

    assert(key->len >= 1 && key->len <= ONCE_KEY_MAX && strlen(key->text) == key->len);
    for (size_t i = 0; i < key->len; i++) {
        assert(key->text[i] >= 0x20 && key->text[i] <= 0x7e);
    }
    assert(once_key_parse(&value, 1, ONCE_KEY_STRICT, &again, NULL) == ONCE_OK);
    assert(again.len == key->len && memcmp(again.text, key->text, key->len) == 0);
}

/* The input as parts of a composite key, cut at line ends. */
static void check_composite(const char *text, size_t size)
{
    once_slice_t parts[8], value;
    size_t count = 0, from = 0, colons = 0;
    once_key_t key, again;

    for (size_t i = 0; i <= size && count < 8; i++) {
        if (i == size || text[i] == '\n') {
            parts[count].data = text + from;
            parts[count++].len = i - from;
            from = i + 1;
        }
    }
    if (once_key_composite(parts, count, &key, NULL) != ONCE_OK) {
        assert(key.len == 0);
        return;
    }
    for (size_t i = 0; i < key.len; i++) {
        colons += key.text[i] == ':';
    }
    assert(colons == count - 1);
    value.data = key.text;
    value.len = key.len;
    assert(once_key_parse(&value, 1, 0, &again, NULL) == ONCE_OK);
    assert(strcmp(again.text, key.text) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    once_slice_t value = {data, size};
    once_key_t key, strict;
    once_error_t err = {ONCE_OK, ""};
    int rc = once_key_parse(&value, 1, 0, &key, &err);
    int strict_rc = once_key_parse(&value, 1, ONCE_KEY_STRICT, &strict, NULL);

    if (rc == ONCE_OK) {
        check_key(&key);
    } else {
        assert(rc == ONCE_E_KEY && key.len == 0 && err.code == rc && err.text[0] != '\0');
    }
    /* Strict accepts less, and nothing else. */
    assert(strict_rc != ONCE_OK || (rc == ONCE_OK && strcmp(strict.text, key.text) == 0));
    check_composite((const char *)data, size);
    return 0;
}
