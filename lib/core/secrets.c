#include "core/secrets.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include <openssl/crypto.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/units.h"

#define FIRST_LINE "once-secrets "
#define VERSION    "1"

/* What is left of the text, and where we are in it. */
typedef struct reader {
    const char *at;
    const char *end;
    unsigned line; /* of the line read last */
    once_error_t *err;
} reader_t;

static int fail(const reader_t *reader, const char *what)
{
    return once__fail(reader->err, ONCE_E_SECRET, "secrets, line %u: %s", reader->line, what);
}

/* The next line without its end. 0 when there is none. */
static int next_line(reader_t *reader, once_slice_t *line)
{
    const char *end;

    if (reader->at == reader->end) {
        return 0;
    }
    reader->line++;
    end = memchr(reader->at, '\n', (size_t)(reader->end - reader->at));
    *line = once__slice(reader->at, (size_t)((end != NULL ? end : reader->end) - reader->at));
    reader->at = end != NULL ? end + 1 : reader->end;
    return 1;
}

/* Takes the word before the next space (or the end) off the line. */
static once_slice_t next_word(once_slice_t *line)
{
    const char *text = line->data;
    const char *space = line->len > 0 ? memchr(text, ' ', line->len) : NULL;
    once_slice_t word = *line;

    if (space == NULL) {
        *line = once__slice(NULL, 0);
        return word;
    }
    word.len = (size_t)(space - text);
    *line = once__slice(space + 1, line->len - word.len - 1);
    return word;
}

static int word_is(once_slice_t word, const char *text)
{
    return word.len == strlen(text) && memcmp(word.data, text, word.len) == 0;
}

static int parse_first(reader_t *reader)
{
    once_slice_t line = {"", 0};
    size_t len = strlen(FIRST_LINE);
    uint64_t version;

    if (!next_line(reader, &line) || line.len <= len || memcmp(line.data, FIRST_LINE, len) != 0 ||
        once__number_parse((const char *)line.data + len, line.len - len, &version) != 0) {
        reader->line = 1;
        return fail(reader, "\"once-secrets 1\" expected");
    }
    if (line.len != len + strlen(VERSION) ||
        memcmp((const char *)line.data + len, VERSION, strlen(VERSION)) != 0) {
        return once__fail(reader->err, ONCE_E_NEWER,
                          "the secrets are of another version than this program's; upgrade it");
    }
    return ONCE_OK;
}

static int parse_record(once__secrets_t *secrets, reader_t *reader)
{
    once_slice_t line = {"", 0};

    if (!next_line(reader, &line) || !word_is(next_word(&line), "record") ||
        once__unhex(secrets->record_bytes, ONCE__SECRET_SIZE, line.data, line.len) != 0) {
        reader->line = 2;
        return fail(reader, "\"record\" and 64 hex digits expected");
    }
    once__hmac_key_set(&secrets->record, secrets->record_bytes, ONCE__SECRET_SIZE);
    return ONCE_OK;
}

static int parse_numbers(once__secret_t *secret, once_slice_t *line)
{
    uint64_t numbers[3];

    for (int i = 0; i < 3; i++) {
        once_slice_t word = next_word(line);
        if (once__number_parse(word.data, word.len, &numbers[i]) != 0) {
            return -1;
        }
    }
    if (numbers[0] > UINT32_MAX) {
        return -1;
    }
    secret->id = (uint32_t)numbers[0];
    secret->created_ms = numbers[1];
    secret->retired_ms = numbers[2];
    return 0;
}

static int parse_fingerprint(once__secrets_t *secrets, reader_t *reader, once_slice_t line)
{
    once__secret_t *secret = &secrets->fingerprints[secrets->count];
    uint32_t last_id = 0;

    if (secrets->count == ONCE__FINGERPRINTS_MAX) {
        return fail(reader, "more fingerprint secrets than this version can hold");
    }
    if (secrets->count > 0) {
        last_id = secret[-1].id;
        if (secret[-1].retired_ms == 0) {
            return fail(reader, "a secret after the one in use (the one before has RETIRED_MS 0)");
        }
    }
    if (!word_is(next_word(&line), "fingerprint") || parse_numbers(secret, &line) != 0 ||
        once__unhex(secret->bytes, ONCE__SECRET_SIZE, line.data, line.len) != 0) {
        return fail(reader, "\"fingerprint ID CREATED_MS RETIRED_MS HEX64\" expected");
    }
    if (secret->id <= last_id) {
        return fail(reader, "ids must count up from 1");
    }
    once__hmac_key_set(&secret->key, secret->bytes, ONCE__SECRET_SIZE);
    secrets->count++;
    return ONCE_OK;
}

static int parse_all(once__secrets_t *secrets, reader_t *reader)
{
    once_slice_t line;
    int rc = parse_first(reader);

    if (rc == ONCE_OK) {
        rc = parse_record(secrets, reader);
    }
    while (rc == ONCE_OK && next_line(reader, &line)) {
        rc = parse_fingerprint(secrets, reader, line);
    }
    if (rc != ONCE_OK) {
        return rc;
    }
    if (secrets->count == 0) {
        reader->line++;
        return fail(reader, "a fingerprint secret expected");
    }
    if (secrets->fingerprints[secrets->count - 1].retired_ms != 0) {
        return fail(reader, "the last secret must be the one in use (RETIRED_MS 0)");
    }
    return ONCE_OK;
}

int once__secrets_parse(once__secrets_t *secrets, const char *text, size_t len, once_error_t *err)
{
    reader_t reader = {.at = text, .end = text + len, .err = err};
    int rc;

    memset(secrets, 0, sizeof(*secrets));
    rc = parse_all(secrets, &reader);
    if (rc != ONCE_OK) {
        once__secrets_wipe(secrets);
    }
    return rc;
}

size_t once__secrets_format(const once__secrets_t *secrets, char text[ONCE__SECRETS_TEXT_SIZE])
{
    char hex[2 * ONCE__SECRET_SIZE + 1];
    size_t len = 0;

    once__hex(hex, secrets->record_bytes, ONCE__SECRET_SIZE);
    len += (size_t)snprintf(text, ONCE__SECRETS_TEXT_SIZE, FIRST_LINE VERSION "\nrecord %s\n", hex);
    for (unsigned i = 0; i < secrets->count; i++) {
        const once__secret_t *secret = &secrets->fingerprints[i];
        once__hex(hex, secret->bytes, ONCE__SECRET_SIZE);
        len += (size_t)snprintf(
            text + len, ONCE__SECRETS_TEXT_SIZE - len, "fingerprint %u %llu %llu %s\n", secret->id,
            (unsigned long long)secret->created_ms, (unsigned long long)secret->retired_ms, hex);
    }
    OPENSSL_cleanse(hex, sizeof(hex));
    assert(len < ONCE__SECRETS_TEXT_SIZE);
    return len;
}

static void append(once__secrets_t *secrets, uint32_t id, const uint8_t *random, uint64_t now_ms)
{
    once__secret_t *secret = &secrets->fingerprints[secrets->count++];

    secret->id = id;
    secret->created_ms = now_ms;
    secret->retired_ms = 0;
    memcpy(secret->bytes, random, ONCE__SECRET_SIZE);
    once__hmac_key_set(&secret->key, secret->bytes, ONCE__SECRET_SIZE);
}

void once__secrets_make(once__secrets_t *secrets, const uint8_t *random, uint64_t now_ms)
{
    memset(secrets, 0, sizeof(*secrets));
    memcpy(secrets->record_bytes, random, ONCE__SECRET_SIZE);
    once__hmac_key_set(&secrets->record, secrets->record_bytes, ONCE__SECRET_SIZE);
    append(secrets, 1, random + ONCE__SECRET_SIZE, now_ms);
}

static void forget_oldest(once__secrets_t *secrets)
{
    once__secret_t *fingerprints = secrets->fingerprints;

    secrets->count--;
    memmove(fingerprints, fingerprints + 1, secrets->count * sizeof(*fingerprints));
    OPENSSL_cleanse(&fingerprints[secrets->count], sizeof(*fingerprints));
}

/* The clock may have gone back since: then the secret is young. */
static int is_forgotten(const once__secret_t *secret, uint64_t now_ms, uint64_t keep_ms)
{
    return now_ms > secret->retired_ms && now_ms - secret->retired_ms > keep_ms;
}

uint32_t once__secrets_rotate(once__secrets_t *secrets, const uint8_t *random, uint64_t now_ms,
                              uint64_t keep_ms)
{
    once__secret_t *current = &secrets->fingerprints[secrets->count - 1];
    uint32_t id = current->id + 1;

    if (id == 0) {
        return 0;
    }
    current->retired_ms = now_ms > 0 ? now_ms : 1; /* 0 means in use */
    while (secrets->count == ONCE__FINGERPRINTS_MAX ||
           (secrets->count > 0 && is_forgotten(&secrets->fingerprints[0], now_ms, keep_ms))) {
        forget_oldest(secrets);
    }
    append(secrets, id, random, now_ms);
    return id;
}

void once__secrets_mark(const once__secrets_t *secrets, uint8_t mark[ONCE__MARK_SIZE])
{
    const once_slice_t part = once__slice("mark", 4);
    uint8_t full[ONCE__SHA256_SIZE];
    once__hmac_t ctx;

    once__hmac_init(&ctx, &secrets->record);
    once__hmac_add_parts(&ctx, &part, 1);
    once__hmac_end(&ctx, full);
    memcpy(mark, full, ONCE__MARK_SIZE);
}

void once__secrets_wipe(once__secrets_t *secrets)
{
    OPENSSL_cleanse(secrets, sizeof(*secrets));
}
