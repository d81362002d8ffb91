#include "core/identity.h"

#include <string.h>

#include "base/bytes.h"
#include "core/sha256_many.h"

#define TOGETHER 16
#define BLOCK    64 /* bytes that are copied at a time: nothing is called for that */

#define FINGERPRINT_PARTS 6

static void mac(const once__hmac_key_t *key, const once_slice_t *parts, size_t count,
                uint8_t out[ONCE__SHA256_SIZE])
{
    once__hmac_t ctx;

    once__hmac_init(&ctx, key);
    once__hmac_add_parts(&ctx, parts, count);
    once__hmac_end(&ctx, out);
}

void once__record_id(const once__secrets_t *secrets, once_slice_t scope, once_slice_t key,
                     uint8_t id[ONCE_ID_SIZE])
{
    const once_slice_t parts[] = {once__slice("id", 2), scope, key};

    mac(&secrets->record, parts, 3, id);
}

static void short_hash(const once__secrets_t *secrets, const char *label, once_slice_t text,
                       uint8_t *hash, size_t size)
{
    const once_slice_t parts[] = {once__slice_of(label), text};
    uint8_t full[ONCE__SHA256_SIZE];

    mac(&secrets->record, parts, 2, full);
    memcpy(hash, full, size);
}

void once__scope_hash(const once__secrets_t *secrets, once_slice_t scope,
                      uint8_t hash[ONCE_SCOPE_HASH_SIZE])
{
    short_hash(secrets, "scope", scope, hash, ONCE_SCOPE_HASH_SIZE);
}

void once__subject_hash(const once__secrets_t *secrets, once_slice_t subject,
                        uint8_t hash[ONCE_SUBJECT_SIZE])
{
    short_hash(secrets, "subject", subject, hash, ONCE_SUBJECT_SIZE);
}

static void fingerprint_parts(const once__request_t *request, once_slice_t parts[FINGERPRINT_PARTS])
{
    parts[0] = once__slice("fingerprint", 11);
    parts[1] = once__slice(&request->body.mode, 1);
    parts[2] = request->scope;
    parts[3] = request->method;
    parts[4] = request->target;
    parts[5] = once__slice(request->body.sum, sizeof(request->body.sum));
}

unsigned once__fingerprints(const once__secrets_t *secrets, const once__request_t *request,
                            once__fingerprint_t out[ONCE__FINGERPRINTS_MAX])
{
    once_slice_t parts[FINGERPRINT_PARTS];

    fingerprint_parts(request, parts);
    for (unsigned i = 0; i < secrets->count; i++) {
        const once__secret_t *secret = &secrets->fingerprints[secrets->count - 1 - i];
        mac(&secret->key, parts, FINGERPRINT_PARTS, out[i].mac);
        out[i].secret = secret->id;
        out[i].mode = request->body.mode;
    }
    return secrets->count;
}

/* ------------------------------------------------------------------------------------------------------------- many */

/* The parts as once__hmac_add_parts has them. 0, or -1: they are too long for that. */
static int write_text(once__text_t *text, const once_slice_t *parts, size_t count, uint8_t *out)
{
    size_t len = 0;

    for (size_t i = 0; i < count; i++) {
        if (parts[i].len > ONCE__TEXT_MAX || len + 8 + parts[i].len > ONCE__TEXT_MAX) {
            return -1;
        }
        once__put64(text->bytes + len, parts[i].len);
        if (parts[i].len > 0) {
            memcpy(text->bytes + len + 8, parts[i].data, parts[i].len);
        }
        len += 8 + parts[i].len;
    }
    text->len = len;
    text->out = out;
    return 0;
}

static int same_slice(once_slice_t a, once_slice_t b)
{
    return a.data == b.data && a.len == b.len;
}

/* A text like the one before as far as `same`, and then these bytes. In whole blocks: there is room behind, and it is quicker. */
static void write_like(once__text_t *text, const once__text_t *before, size_t same,
                       once_slice_t rest, uint8_t *out)
{
    for (size_t at = 0; at < same; at += BLOCK) {
        memcpy(text->bytes + at, before->bytes + at, BLOCK);
    }
    memcpy(text->bytes + same, rest.data, rest.len);
    text->len = same + rest.len;
    text->out = out;
}

/* The id of a key of the same scope: everything in front of the key is the same, but for its length. */
static int write_next_id(once__text_t *text, const once__text_t *before,
                         const once__identified_t *one, const once__identified_t *last)
{
    size_t same = before->len - last->key.len;

    if (!same_slice(one->request.scope, last->request.scope) ||
        one->key.len > ONCE__TEXT_MAX - same) {
        return 0;
    }
    write_like(text, before, same, one->key, one->id);
    once__put64(text->bytes + same - 8, one->key.len);
    return 1;
}

static void identify_ids(const once__secrets_t *secrets, const once__identified_t *many,
                         size_t count)
{
    once__text_t texts[TOGETHER];
    size_t n = 0;

    for (size_t i = 0; i < count; i++) {
        const once_slice_t parts[] = {once__slice("id", 2), many[i].request.scope, many[i].key};
        if ((n > 0 && n == i && write_next_id(&texts[n], &texts[n - 1], &many[i], &many[i - 1])) ||
            write_text(&texts[n], parts, 3, many[i].id) == 0) {
            n++;
        } else {
            mac(&secrets->record, parts, 3, many[i].id);
        }
    }
    once__hmac_many(&secrets->record, texts, n);
}

/* The text of a request that differs from the one before only in the body: everything in front of its sum is the same. */
static int write_next(once__text_t *text, const once__text_t *before,
                      const once__request_t *request, const once__request_t *last, uint8_t *out)
{
    once_slice_t sum = once__slice(request->body.sum, sizeof(request->body.sum));

    if (!same_slice(request->scope, last->scope) || !same_slice(request->method, last->method) ||
        !same_slice(request->target, last->target) || request->body.mode != last->body.mode) {
        return 0;
    }
    write_like(text, before, before->len - sum.len, sum, out);
    return 1;
}

/* With one of the secrets; `at` says which of the fingerprints that is. */
static void identify_bodies(const once__secret_t *secret, unsigned at,
                            const once__identified_t *many, size_t count)
{
    once__text_t texts[TOGETHER];
    size_t n = 0;

    for (size_t i = 0; i < count; i++) {
        once__fingerprint_t *out = &many[i].fingerprints[at];
        once_slice_t parts[FINGERPRINT_PARTS];
        out->secret = secret->id;
        out->mode = many[i].request.body.mode;
        if (n > 0 && n == i &&
            write_next(&texts[n], &texts[n - 1], &many[i].request, &many[i - 1].request,
                       out->mac)) {
            n++;
            continue;
        }
        fingerprint_parts(&many[i].request, parts);
        if (write_text(&texts[n], parts, FINGERPRINT_PARTS, out->mac) == 0) {
            n++;
        } else {
            mac(&secret->key, parts, FINGERPRINT_PARTS, out->mac);
        }
    }
    once__hmac_many(&secret->key, texts, n);
}

unsigned once__identify_many(const once__secrets_t *secrets, const once__identified_t *many,
                             size_t count)
{
    for (size_t i = 0; i < count; i += TOGETHER) {
        size_t some = count - i < TOGETHER ? count - i : TOGETHER;
        identify_ids(secrets, many + i, some);
        for (unsigned at = 0; at < secrets->count; at++) {
            identify_bodies(&secrets->fingerprints[secrets->count - 1 - at], at, many + i, some);
        }
    }
    return secrets->count;
}
