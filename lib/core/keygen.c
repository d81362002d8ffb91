#include <once/key.h>

#include "base/bytes.h"
#include "core/hmac.h"
#include "core/keygen.h"
#include "base/error.h"
#include "core/sized.h"

static void add_part(once__sha256_t *ctx, once_slice_t part)
{
    uint8_t len[8];

    once__put64(len, part.len);
    once__sha256_add(ctx, len, sizeof(len));
    once__sha256_add(ctx, part.data, part.len);
}

static void begin(once__sha256_t *ctx, const char *label)
{
    once__sha256_init(ctx);
    add_part(ctx, once__slice(label, strlen(label)));
}

static void end(once__sha256_t *ctx, const char prefix[4], once_key_t *key)
{
    uint8_t sum[ONCE__SHA256_SIZE];

    once__sha256_end(ctx, sum);
    memcpy(key->text, prefix, 3);
    once__base32(key->text + 3, sum, sizeof(sum));
    key->len = 3 + ONCE__BASE32_SIZE(sizeof(sum)) - 1;
}

static void clear(once_key_t *key)
{
    key->len = 0;
    key->text[0] = '\0';
}

int once_key_deterministic(const once_key_parts_t *given, once_key_t *key, once_error_t *err)
{
    uint8_t bucket[16] = {0};
    once_key_parts_t parts;
    once__sha256_t ctx;

    clear(key);
    if (once__sized_read(&parts, sizeof(parts), ONCE__KEY_PARTS_V1, given) != ONCE_OK) {
        return once__fail(err, ONCE_E_INVALID,
                          "the parts were not set up with ONCE_KEY_PARTS_INIT");
    }
    if (parts.principal.len == 0 || parts.action.len == 0) {
        return once__fail(err, ONCE_E_INVALID,
                          "a deterministic key needs a principal and an action; the %s is empty",
                          parts.principal.len == 0 ? "principal" : "action");
    }
    if (parts.bucket_ms > 0) {
        once__put64(bucket, parts.bucket_ms);
        once__put64(bucket + 8, parts.when_ms / parts.bucket_ms);
    }
    begin(&ctx, "once key deterministic 1");
    add_part(&ctx, parts.principal);
    add_part(&ctx, parts.action);
    add_part(&ctx, parts.payload);
    add_part(&ctx, once__slice(bucket, sizeof(bucket)));
    end(&ctx, "h1-", key);
    return ONCE_OK;
}

int once_key_derive(once_slice_t parent, once_slice_t step, once_key_t *key, once_error_t *err)
{
    once__sha256_t ctx;

    clear(key);
    if (parent.len == 0 || step.len == 0) {
        return once__fail(err, ONCE_E_INVALID,
                          "a derived key needs a parent key and a step; the %s is empty",
                          parent.len == 0 ? "parent" : "step");
    }
    begin(&ctx, "once key derive 1");
    add_part(&ctx, parent);
    add_part(&ctx, step);
    end(&ctx, "d1-", key);
    return ONCE_OK;
}

int once__key_of_step(const uint8_t id[ONCE_ID_SIZE], uint64_t created, once_slice_t step,
                      once_key_t *key, once_error_t *err)
{
    uint8_t
        moment[8]; /* big-endian, as PostgreSQL sends a bigint: once.derive makes the same key */
    once__sha256_t ctx;

    clear(key);
    if (step.len == 0) {
        return once__fail(err, ONCE_E_INVALID, "a derived key needs a step; the step is empty");
    }
    for (int i = 0; i < 8; i++) {
        moment[i] = (uint8_t)(created >> (56 - 8 * i));
    }
    begin(&ctx, "once derive 2");
    add_part(&ctx, once__slice(id, ONCE_ID_SIZE));
    add_part(&ctx, once__slice(moment, sizeof(moment)));
    add_part(&ctx, step);
    end(&ctx, "d2-", key);
    return ONCE_OK;
}

static int is_part_character(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           (c != '\0' && strchr("._~-", c) != NULL);
}

static int is_part(once_slice_t part)
{
    const char *text = part.data;

    for (size_t i = 0; i < part.len; i++) {
        if (!is_part_character(text[i])) {
            return 0;
        }
    }
    return part.len > 0;
}

int once_key_composite(const once_slice_t *parts, size_t count, once_key_t *key, once_error_t *err)
{
    clear(key);
    if (count == 0) {
        return once__fail(err, ONCE_E_KEY, "a composite key needs at least one part");
    }
    for (size_t i = 0; i < count; i++) {
        if (!is_part(parts[i])) {
            clear(key);
            return once__fail(
                err, ONCE_E_KEY,
                "part %zu of the key %s; a part is 1 or more of A-Z a-z 0-9 . _ ~ -", i + 1,
                parts[i].len == 0 ? "is empty" : "has a character that is not allowed");
        }
        size_t colon = i > 0;
        if (parts[i].len > ONCE_KEY_MAX || key->len + colon + parts[i].len > ONCE_KEY_MAX) {
            clear(key);
            return once__fail(err, ONCE_E_TOO_BIG,
                              "the key is over %d bytes from part %zu on; use shorter parts",
                              ONCE_KEY_MAX, i + 1);
        }
        if (colon) {
            key->text[key->len++] = ':';
        }
        memcpy(key->text + key->len, parts[i].data, parts[i].len);
        key->len += parts[i].len;
    }
    key->text[key->len] = '\0';
    return ONCE_OK;
}
