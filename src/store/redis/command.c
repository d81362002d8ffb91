#include "store/redis/command.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/bytes.h"
#include "core/codec.h"

#define TIME_MAX         ((uint64_t)1 << 50) /* Lua counts in doubles; sums of these are exact */
#define FINGERPRINT_SIZE 37

/* Where things are in a record after its envelope (docs/format.md). */
enum {
    AT_SECRET = 64,
    AT_MODE = 68,
    AT_KIND = 69,
    AT_STATUS = 70,
    AT_MAC = 72,
    AT_SCOPE = 104,
    AT_TTL = 120,
};

/* ---------------------------------------------------------------------------------------------------------- arguments */

void once__redis_add(once__redis_command_t *command, const void *data, size_t len)
{
    assert(command->argc < ONCE__REDIS_ARGS_MAX);
    command->argv[command->argc] = len > 0 ? data : "";
    command->lengths[command->argc] = len;
    command->argc++;
}

void once__redis_add_text(once__redis_command_t *command, const char *text)
{
    once__redis_add(command, text, strlen(text));
}

static void *room(once__redis_command_t *command, size_t len)
{
    char *place = command->texts + command->used;

    assert(len <= sizeof(command->texts) - command->used);
    command->used += len;
    return place;
}

void once__redis_add_number(once__redis_command_t *command, uint64_t number)
{
    char *text = room(command, 24);

    (void)snprintf(text, 24, "%llu", (unsigned long long)number);
    once__redis_add_text(command, text);
}

static void add_time(once__redis_command_t *command, uint64_t ms)
{
    once__redis_add_number(command, ms < TIME_MAX ? ms : TIME_MAX);
}

void once__redis_add_script(once__redis_command_t *command, once__redis_script_t script,
                            const once__redis_shas_t shas, int text, const char *key,
                            size_t key_len)
{
    if (text) {
        once__redis_add_text(command, "EVAL");
        once__redis_add(command, once__redis_texts[script].text, once__redis_texts[script].len);
    } else {
        once__redis_add_text(command, "EVALSHA");
        once__redis_add(command, shas[script], ONCE__REDIS_SHA_SIZE - 1);
    }
    once__redis_add_text(command, "1");
    once__redis_add(command, key, key_len);
}

size_t once__redis_record_key(const once__redis_settings_t *settings, const uint8_t *id,
                              char key[ONCE__REDIS_KEY_SIZE])
{
    size_t len = strlen(settings->prefix);

    memcpy(key, settings->prefix, len);
    once__base64url(key + len, id, ONCE_ID_SIZE);
    return len + ONCE__REDIS_NAME_LEN;
}

size_t once__redis_key(const once__redis_settings_t *settings, const once__op_t *op,
                       char key[ONCE__REDIS_KEY_SIZE])
{
    if (op->kind == ONCE__OP_SECRETS_LOAD || op->kind == ONCE__OP_SECRETS_SWAP) {
        return (size_t)snprintf(key, ONCE__REDIS_KEY_SIZE, "%ssecrets", settings->prefix);
    }
    return once__redis_record_key(settings, op->id, key);
}

/* --------------------------------------------------------------------------------------------------------- operations */

int once__redis_is_simple(const once__op_t *op)
{
    return op->kind != ONCE__OP_SCAN && op->kind != ONCE__OP_STATS && op->kind != ONCE__OP_REAP;
}

static once__redis_script_t script_of(const once__op_t *op)
{
    static const once__redis_script_t scripts[ONCE__EVENT_COUNT] = {
        [ONCE__CLAIM] = ONCE__REDIS_CLAIM,
        [ONCE__COMPLETE] = ONCE__REDIS_COMPLETE,
        [ONCE__RELEASE] = ONCE__REDIS_RELEASE,
        [ONCE__DOUBT] = ONCE__REDIS_DOUBT,
        [ONCE__RENEW] = ONCE__REDIS_RENEW,
        [ONCE__SETTLE_COMPLETED] = ONCE__REDIS_SETTLE_COMPLETED,
        [ONCE__SETTLE_FAILED] = ONCE__REDIS_SETTLE_FAILED,
        [ONCE__REAP] = ONCE__REDIS_REAP,
        [ONCE__PURGE] = ONCE__REDIS_PURGE,
    };

    if (op->kind == ONCE__OP_EVENT) {
        return scripts[op->event.kind];
    }
    return op->kind == ONCE__OP_GET ? ONCE__REDIS_GET : ONCE__REDIS_SWAP;
}

static void add_fingerprints(once__redis_command_t *command, const once__event_t *event)
{
    unsigned count = event->fingerprint_count > 0 ? event->fingerprint_count : 1;
    uint8_t *bytes = room(command, (size_t)count * FINGERPRINT_SIZE);

    for (unsigned i = 0; i < count; i++) {
        uint8_t *to = bytes + (size_t)i * FINGERPRINT_SIZE;
        once__put32(to, event->fingerprints[i].secret);
        to[4] = event->fingerprints[i].mode;
        memcpy(to + 5, event->fingerprints[i].mac, sizeof(event->fingerprints[i].mac));
    }
    once__redis_add(command, bytes, (size_t)count * FINGERPRINT_SIZE);
}

/* The record as a first claim leaves it: what stands behind the envelope, which the script writes. */
static void add_rest(once__redis_command_t *command, const once__op_t *op)
{
    once__record_t record = {.key = op->key, .key_len = op->key_len};
    uint8_t *bytes;

    record.head.schema = ONCE__SCHEMA;
    record.head.state = ONCE_STATE_PENDING;
    record.head.claim.epoch = 1;
    record.head.ttl_ms = op->event.ttl_ms < TIME_MAX ? op->event.ttl_ms : TIME_MAX;
    record.head.fingerprint = op->event.fingerprints[0];
    memcpy(record.scope_hash, op->scope_hash, ONCE_SCOPE_HASH_SIZE);
    bytes = room(command, once__record_size(&record));
    once__record_encode(&record, bytes);
    once__redis_add(command, bytes + ONCE__ENVELOPE_SIZE,
                    once__record_size(&record) - ONCE__ENVELOPE_SIZE);
}

static void add_event(once__redis_command_t *command, const once__op_t *op, int waits)
{
    const once__event_t *event = &op->event;
    int has_lease = event->kind == ONCE__DOUBT || event->kind == ONCE__RENEW;

    once__redis_add_number(command, ONCE__SCHEMA);
    once__redis_add(command, event->claim.id, ONCE_CLAIM_ID_SIZE);
    if (event->kind == ONCE__CLAIM) {
        once__redis_add_number(command, event->recover);
        add_time(command, event->lease_ms);
        add_fingerprints(command, event);
        add_rest(command, op);
        once__redis_add_text(command, waits ? "1" : "0");
        return;
    }
    once__redis_add_number(command, event->claim.epoch);
    if (event->kind == ONCE__PURGE) {
        once__redis_add_text(command, event->force ? "1" : "0");
        return;
    }
    once__redis_add_text(command, waits ? "1" : "0");
    add_time(command, has_lease ? event->lease_ms : event->ttl_ms);
    if (has_lease) {
        return;
    }
    once__redis_add_number(command, op->payload.kind);
    once__redis_add_number(command, op->payload.status);
    once__redis_add(command, op->payload.data, op->payload.len);
    once__redis_add_text(command, event->force ? "1" : "0");
}

void once__redis_command_of(once__redis_command_t *command, const once__op_t *op, const char *key,
                            size_t key_len, const once__redis_settings_t *settings,
                            const once__redis_shas_t shas, int text)
{
    command->argc = 0;
    command->used = 0;
    once__redis_add_script(command, script_of(op), shas, text, key, key_len);
    if (op->kind == ONCE__OP_EVENT) {
        add_event(command, op, settings->wait > 0);
    } else if (op->kind != ONCE__OP_GET) {
        /* Secrets. Who comes first brings them, the others are told what is there. */
        once__redis_add_text(command, op->kind == ONCE__OP_SECRETS_SWAP ? op->secrets_old : "");
        once__redis_add_text(command, op->secrets_new);
    }
}

/* ------------------------------------------------------------------------------------------------------------ replies */

int once__redis_error_of(const char *text)
{
    static const struct {
        const char *word;
        int code;
    } errors[] = {
        {"OOM", ONCE_E_FULL},
        {"READONLY", ONCE_E_UNAVAILABLE},
        {"LOADING", ONCE_E_UNAVAILABLE},
        {"BUSY", ONCE_E_UNAVAILABLE},
        {"MASTERDOWN", ONCE_E_UNAVAILABLE},
        {"CLUSTERDOWN", ONCE_E_UNAVAILABLE},
        {"TRYAGAIN", ONCE_E_UNAVAILABLE},
        {"NOREPLICAS", ONCE_E_UNAVAILABLE},
        {"MISCONF", ONCE_E_UNAVAILABLE},
        {"MOVED", ONCE_E_UNAVAILABLE},
        {"ASK", ONCE_E_UNAVAILABLE},
        {"NOSCRIPT", ONCE_E_UNAVAILABLE},
        {"NOPERM", ONCE_E_CONFIG},
        {"NOAUTH", ONCE_E_CONFIG},
        {"WRONGTYPE", ONCE_E_CORRUPT},
    };

    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        if (strncmp(text, errors[i].word, strlen(errors[i].word)) == 0) {
            return errors[i].code;
        }
    }
    /* What a command of a script ran into may come wrapped. */
    return strstr(text, "OOM command not allowed") != NULL ? ONCE_E_FULL : ONCE_E_IO;
}

int once__redis_read_head(once__record_t *record, const void *data, size_t len)
{
    const uint8_t *bytes = data;
    int code;

    memset(&record->head, 0, sizeof(record->head));
    if (len < ONCE__ENVELOPE_SIZE) {
        return ONCE_E_CORRUPT;
    }
    code = once__envelope_decode(&record->head, bytes);
    if (code != ONCE_OK) {
        return code;
    }
    if (len < ONCE__REDIS_HEAD_SIZE) {
        memset(&record->head, 0, sizeof(record->head));
        return ONCE_E_CORRUPT;
    }
    record->head.fingerprint.secret = once__get32(bytes + AT_SECRET);
    record->head.fingerprint.mode = bytes[AT_MODE];
    memcpy(record->head.fingerprint.mac, bytes + AT_MAC, sizeof(record->head.fingerprint.mac));
    memcpy(record->scope_hash, bytes + AT_SCOPE, ONCE_SCOPE_HASH_SIZE);
    record->head.ttl_ms = once__get64(bytes + AT_TTL);
    return ONCE_OK;
}

int once__redis_read_record(once__record_t *record, const void *data, size_t len)
{
    uint8_t id[ONCE_ID_SIZE];
    int code;

    memcpy(id, record->id, sizeof(id));
    code = once__record_decode(record, data, len);
    memcpy(record->id, id, sizeof(id));
    return code;
}

static void keep_record(once__op_t *op, const void *data, size_t len)
{
    once__record_t record = {.key = NULL};
    int code;

    memcpy(record.id, op->id, ONCE_ID_SIZE);
    code = once__redis_read_record(&record, data, len);
    if (code == ONCE_E_CORRUPT) {
        op->error = code;
        return;
    }
    op->head = record.head;
    op->record = once__record_clone(&record);
    /* What was done is done: a copy that could not be made is a lost reply, and is asked for again. */
    op->error = op->record != NULL ? ONCE_OK : ONCE_E_NOREPLY;
}

static void read_event(once__op_t *op, const redisReply *bytes)
{
    const uint8_t *data = (const uint8_t *)bytes->str;
    once__record_t record = {.key = NULL};
    int code = ONCE_OK;

    if (bytes->len == 0) {
        return; /* there is none */
    }
    /* More than a head is a whole record: the script saw a payload. */
    if (bytes->len > ONCE__REDIS_HEAD_SIZE) {
        keep_record(op, data, (size_t)bytes->len);
        return;
    }
    code = once__redis_read_head(&record, data, (size_t)bytes->len);
    op->head = record.head;
    op->error = code == ONCE_E_CORRUPT ? code : ONCE_OK;
}

static void read_get(once__op_t *op, const redisReply *bytes)
{
    static const once_filter_t all = ONCE_FILTER_INIT;

    if (bytes->len == 0) {
        op->error = ONCE_E_NOT_FOUND;
        return;
    }
    keep_record(op, bytes->str, (size_t)bytes->len);
    if (op->error == ONCE_OK && !once__filter_passes(&all, op->record, op->now)) {
        free(op->record);
        op->record = NULL;
        memset(&op->head, 0, sizeof(op->head));
        op->error = ONCE_E_NOT_FOUND;
    }
}

static void read_secrets(once__op_t *op, const redisReply *reply)
{
    const char *text = reply->str;
    size_t len = (size_t)reply->len;

    if (len == 0 || len >= ONCE__SECRETS_TEXT_SIZE || memchr(text, '\0', len) != NULL) {
        op->error = ONCE_E_SECRET;
        return;
    }
    memcpy(op->secrets, text, len);
    op->secrets[len] = '\0';
    /* A swap that finds its own text was applied before: its reply was lost. */
    if (op->kind == ONCE__OP_SECRETS_SWAP && strcmp(op->secrets, op->secrets_new) != 0) {
        op->error = ONCE_E_CONFLICT;
    }
}

void once__redis_read(once__op_t *op, const redisReply *reply)
{
    op->error = ONCE_OK;
    if (op->kind == ONCE__OP_SECRETS_LOAD || op->kind == ONCE__OP_SECRETS_SWAP) {
        if (reply->type != REDIS_REPLY_STRING) {
            op->error = ONCE_E_IO;
            return;
        }
        read_secrets(op, reply);
        return;
    }
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 3 ||
        reply->element[0]->type != REDIS_REPLY_INTEGER ||
        reply->element[1]->type != REDIS_REPLY_INTEGER ||
        reply->element[2]->type != REDIS_REPLY_STRING) {
        op->error = ONCE_E_IO;
        return;
    }
    op->now = (uint64_t)reply->element[1]->integer;
    if (reply->element[0]->integer < 0) {
        op->error = ONCE_E_CORRUPT;
        return;
    }
    op->outcome = (uint8_t)reply->element[0]->integer;
    if (op->kind == ONCE__OP_GET) {
        read_get(op, reply->element[2]);
    } else {
        read_event(op, reply->element[2]);
    }
}
