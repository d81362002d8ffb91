#include "store/redis/command.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/units.h"
#include "core/codec.h"

#define FINGERPRINT_SIZE 37
#define WRITE_SIZE       33
#define COMPRESSED       4 /* beside the kind of a payload */
#define GROUPED_MAX                                                                                \
    16384 /* a larger payload is sent alone: others neither wait for it nor fail with it */

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

static void add_script(once__redis_command_t *command, const once__redis_text_t *script,
                       int with_text)
{
    if (with_text) {
        once__redis_add_text(command, "EVAL");
        once__redis_add(command, script->text, script->len);
    } else {
        once__redis_add_text(command, "EVALSHA");
        once__redis_add(command, script->sha, ONCE__REDIS_SHA_SIZE - 1);
    }
}

size_t once__redis_record_key(const once__redis_settings_t *settings, const uint8_t *id,
                              char key[ONCE__REDIS_KEY_SIZE])
{
    size_t len = strlen(settings->prefix);

    memcpy(key, settings->prefix, len);
    once__base64url(key + len, id, ONCE_ID_SIZE);
    return len + ONCE__REDIS_NAME_LEN;
}

static int is_audit(const once__op_t *op)
{
    return op->kind == ONCE__OP_AUDIT_READ || op->kind == ONCE__OP_AUDIT_ADD;
}

size_t once__redis_key(const once__redis_settings_t *settings, const once__op_t *op,
                       char key[ONCE__REDIS_KEY_SIZE])
{
    if (op->kind == ONCE__OP_SECRETS_LOAD || op->kind == ONCE__OP_SECRETS_SWAP) {
        return (size_t)snprintf(key, ONCE__REDIS_KEY_SIZE, "%ssecrets", settings->prefix);
    }
    if (is_audit(op)) {
        return (size_t)snprintf(key, ONCE__REDIS_KEY_SIZE, "%saudit", settings->prefix);
    }
    return once__redis_record_key(settings, op->id, key);
}

/* In the slot of the secrets, even if the prefix determines that slot. */
size_t once__redis_mark_key(const once__redis_settings_t *settings, char key[ONCE__REDIS_MARK_SIZE])
{
    return (size_t)snprintf(key, ONCE__REDIS_MARK_SIZE, "%smark{%ssecrets}", settings->prefix,
                            settings->prefix);
}

size_t once__redis_dictionaries_key(const once__redis_settings_t *settings,
                                    char key[ONCE__REDIS_MARK_SIZE])
{
    return (size_t)snprintf(key, ONCE__REDIS_MARK_SIZE, "%sdictionaries", settings->prefix);
}

/* --------------------------------------------------------------------------------------------------------- operations */

int once__redis_is_simple(const once__op_t *op)
{
    return op->kind != ONCE__OP_SCAN && op->kind != ONCE__OP_STATS && op->kind != ONCE__OP_REAP;
}

/* Whether the script itself compares the mark of the secrets. It cannot if the mark may be on another server. */
static int compares(const once__op_t *op, int apart)
{
    return op->kind == ONCE__OP_EVENT && op->event.kind == ONCE__CLAIM && op->mark != NULL &&
           !apart;
}

static once__redis_script_t script_of(const once__op_t *op)
{
    if (op->kind == ONCE__OP_SECRETS_LOAD || op->kind == ONCE__OP_SECRETS_SWAP) {
        return ONCE__REDIS_SECRETS;
    }
    if (is_audit(op)) {
        return op->kind == ONCE__OP_AUDIT_ADD ? ONCE__REDIS_AUDIT_ADD : ONCE__REDIS_AUDIT_READ;
    }
    return op->kind == ONCE__OP_GET || op->event.kind == ONCE__CLAIM ? ONCE__REDIS_CLAIM
                                                                     : ONCE__REDIS_CHANGE;
}

/* The name of the event in record.lua. */
static const char *event_of(const once__op_t *op)
{
    static const char *const events[ONCE__EVENT_COUNT] = {
        [ONCE__CLAIM] = "claim",
        [ONCE__COMPLETE] = "complete",
        [ONCE__RELEASE] = "release",
        [ONCE__DOUBT] = "doubt",
        [ONCE__RENEW] = "renew",
        [ONCE__SETTLE_COMPLETED] = "settle_completed",
        [ONCE__SETTLE_FAILED] = "settle_failed",
        [ONCE__REAP] = "reap",
        [ONCE__PURGE] = "purge",
        [ONCE__ERASE] = "erase",
    };

    return op->kind == ONCE__OP_GET ? "get" : events[op->event.kind];
}

static uint64_t shorter(uint64_t ms)
{
    return ms < ONCE__REDIS_MS_MAX ? ms
                                   : ONCE__REDIS_MS_MAX; /* Lua counts in doubles: sums are exact */
}

/* The record after a first claim, by the rules. */
static once__head_t first_head(const once__op_t *op, uint64_t now)
{
    once__event_t event = op->event;
    once__step_t step;

    event.lease_ms = shorter(event.lease_ms);
    event.ttl_ms = shorter(event.ttl_ms);
    once__step(&once__rules, NULL, &event, now, &step);
    return step.next;
}

/* What record.lua calls ASKED. */
static void add_record(once__redis_command_t *command, const once__op_t *op,
                       const once__redis_dictionaries_t *dictionaries, int waits)
{
    once__record_t record = {.head = first_head(op, 0),
                             .key = op->key,
                             .key_len = op->key_len,
                             .about = op->about,
                             .cause = op->cause};
    uint8_t *bytes = room(command, once__redis_pack_bound(&record));
    size_t size;

    memcpy(record.scope_hash, op->scope_hash, ONCE_SCOPE_HASH_SIZE);
    size = once__redis_pack(bytes, &record, dictionaries);
    once__put64(bytes + ONCE__AT_LEASE_UNTIL, shorter(op->event.lease_ms));
    once__put64(bytes + ONCE__AT_CHANGED, waits ? 1 : 0);
    once__redis_add(command, bytes, size);
}

static void add_claim(once__redis_command_t *command, const once__op_t *op,
                      const once__redis_dictionaries_t *dictionaries, int waits)
{
    const once__event_t *event = &op->event;
    size_t others = event->fingerprint_count > 1 ? event->fingerprint_count - 1u : 0;
    uint8_t *bytes;

    add_record(command, op, dictionaries, waits);
    if (others == 0) {
        return;
    }
    bytes = room(command, others * FINGERPRINT_SIZE);
    for (size_t i = 0; i < others; i++) {
        uint8_t *to = bytes + i * FINGERPRINT_SIZE;
        once__put32(to, event->fingerprints[i + 1].secret);
        to[4] = event->fingerprints[i + 1].mode;
        memcpy(to + 5, event->fingerprints[i + 1].mac, sizeof(event->fingerprints[i + 1].mac));
    }
    once__redis_add(command, bytes, others * FINGERPRINT_SIZE);
}

/* The payload as it is stored. Returns 1 if it is compressed. */
static int compress(once__redis_dictionaries_t *dictionaries, const once__payload_t *payload,
                    once_slice_t *stored)
{
    size_t size = 0;

    *stored = once__slice(payload->data, payload->len);
    if (dictionaries != NULL && once__dictionary_fits(payload) &&
        ONCE__REDIS_COMPRESS_ROOM(payload->len) <=
            sizeof(dictionaries->packed) - dictionaries->packed_len) {
        uint8_t *out = dictionaries->packed + dictionaries->packed_len;
        size = once__redis_compress(dictionaries, out, payload->data, payload->len);
        *stored = size > 0 ? once__slice(out, size) : *stored;
        dictionaries->packed_len += size;
    }
    return size > 0;
}

/* What record.lua calls GIVEN. */
static void add_write(once__redis_command_t *command, const once__op_t *op,
                      once__redis_dictionaries_t *dictionaries, int waits)
{
    const once__event_t *event = &op->event;
    int has_lease = event->kind == ONCE__DOUBT || event->kind == ONCE__RENEW;
    uint8_t *bytes = room(command, WRITE_SIZE + op->cause.len);
    once_slice_t payload;

    bytes[0] = (uint8_t)((waits ? 1 : 0) | (event->force ? 2 : 0));
    bytes[1] = ONCE__REDIS_SCHEMA;
    bytes[2] = op->payload.kind;
    once__put16(bytes + 3, op->payload.status);
    once__put32(bytes + 5, event->claim.epoch);
    memcpy(bytes + 9, event->claim.id, ONCE_CLAIM_ID_SIZE);
    once__put64(bytes + 25, shorter(has_lease ? event->lease_ms : event->ttl_ms));
    if (op->cause.len > 0) {
        memcpy(bytes + WRITE_SIZE, op->cause.data, op->cause.len);
    }
    once__redis_add(command, bytes, WRITE_SIZE + op->cause.len);
    if (!has_lease && event->kind != ONCE__PURGE && event->kind != ONCE__ERASE) {
        bytes[2] |= compress(dictionaries, &op->payload, &payload) ? COMPRESSED : 0;
        once__redis_add(command, payload.data, payload.len);
    }
}

void once__redis_command_reap(once__redis_command_t *command, const once__redis_texts_t texts,
                              int with_text, const char *key, size_t key_len)
{
    static const uint8_t given[2] = {0, ONCE__REDIS_SCHEMA};

    command->argc = 0;
    add_script(command, &texts[ONCE__REDIS_CHANGE], with_text);
    once__redis_add_text(command, "1");
    once__redis_add(command, key, key_len);
    once__redis_add_text(command, "reap");
    once__redis_add(command, given, sizeof(given));
}

int once__redis_is_groupable(const once__op_t *op)
{
    if (op->kind != ONCE__OP_EVENT) {
        return 0;
    }
    return (op->event.kind == ONCE__CLAIM && op->event.fingerprint_count <= 1) ||
           (op->event.kind == ONCE__COMPLETE && op->payload.len <= GROUPED_MAX);
}

static void add_audit(once__redis_command_t *command, const once__op_t *op)
{
    if (op->place == UINT64_MAX) {
        once__redis_add_text(command, "last");
    } else {
        once__redis_add_number(command, op->place);
    }
    if (op->kind == ONCE__OP_AUDIT_ADD) {
        once__redis_add(command, op->payload.data, op->payload.len);
    }
}

static void add_arguments(once__redis_command_t *command, const once__op_t *op,
                          once__redis_dictionaries_t *dictionaries, int waits)
{
    if (op->kind == ONCE__OP_EVENT && op->event.kind == ONCE__CLAIM) {
        add_claim(command, op, dictionaries, waits);
    } else if (op->kind == ONCE__OP_EVENT) {
        add_write(command, op, dictionaries, waits);
    } else if (is_audit(op)) {
        add_audit(command, op);
    } else if (op->kind != ONCE__OP_GET) {
        /* Secrets: the first caller stores its own, the others get those. */
        once__redis_add_text(command, op->kind == ONCE__OP_SECRETS_SWAP ? op->secrets_old : "");
        once__redis_add_text(command, op->secrets_new);
    }
}

/* Whether something of it may be compressed. */
static int is_compressible(const once__op_t *op)
{
    return op->kind == ONCE__OP_EVENT &&
           (op->event.kind == ONCE__CLAIM ? op->about.len >= ONCE__DICTIONARY_LEAST
                                          : once__dictionary_fits(&op->payload));
}

/* The dictionary that the records may name; NULL: none. */
static const once__redis_dictionary_t *
dictionary_for(const once__redis_dictionaries_t *dictionaries, once__op_t *const *ops,
               unsigned count)
{
    for (unsigned i = 0; dictionaries != NULL && i < count; i++) {
        if (is_compressible(ops[i])) {
            return once__redis_dictionary_held(dictionaries);
        }
    }
    return NULL;
}

/* What record.lua calls PLACE. */
static void add_place(once__redis_command_t *command, const once__redis_dictionary_t *dictionary)
{
    uint8_t *bytes = room(command, 4 + ONCE__REDIS_ENTRY_SIZE);

    once__put32(bytes, dictionary->place - 1);
    once__put16(bytes + 4, dictionary->len);
    once__put32(bytes + 6, dictionary->id);
    once__redis_add_text(command, "with");
    once__redis_add(command, bytes, 4 + ONCE__REDIS_ENTRY_SIZE);
}

void once__redis_command_of(once__redis_command_t *command, once__op_t *const *ops, unsigned count,
                            const once__redis_settings_t *settings, const once__redis_texts_t texts,
                            once__redis_dictionaries_t *dictionaries, int with_text, int apart)
{
    once__redis_script_t script = script_of(ops[0]);
    int has_mark = script == ONCE__REDIS_SECRETS || compares(ops[0], apart);
    const once__redis_dictionary_t *dictionary = dictionary_for(dictionaries, ops, count);

    assert(dictionaries == NULL || !apart);
    command->argc = 0;
    command->used = 0;
    if (dictionary == NULL) {
        dictionaries = NULL;
    } else {
        dictionaries->packed_len = 0;
    }
    add_script(command, &texts[script], with_text);
    once__redis_add_number(command, count + (has_mark ? 1 : 0) + (dictionary != NULL ? 1 : 0));
    for (unsigned i = 0; i < count; i++) {
        char *key = room(command, ONCE__REDIS_KEY_SIZE);
        once__redis_add(command, key, once__redis_key(settings, ops[i], key));
    }
    if (has_mark) {
        char *key = room(command, ONCE__REDIS_MARK_SIZE);
        once__redis_add(command, key, once__redis_mark_key(settings, key));
    }
    if (dictionary != NULL) {
        char *key = room(command, ONCE__REDIS_MARK_SIZE);
        once__redis_add(command, key, once__redis_dictionaries_key(settings, key));
        add_place(command, dictionary);
    }
    if (script == ONCE__REDIS_CLAIM || script == ONCE__REDIS_CHANGE) {
        once__redis_add_text(command, event_of(ops[0]));
    }
    for (unsigned i = 0; i < count; i++) {
        add_arguments(command, ops[i], dictionaries, settings->wait > 0);
    }
    if (has_mark) {
        once__redis_add(command, ops[0]->mark, ONCE__MARK_SIZE);
    } else if (ops[0]->kind == ONCE__OP_EVENT && ops[0]->event.kind == ONCE__CLAIM) {
        once__redis_add_text(command, "");
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
        {"SECRET", ONCE_E_SECRET},
        {"NOPERM", ONCE_E_CONFIG},
        {"NOAUTH", ONCE_E_CONFIG},
        {"WRONGTYPE", ONCE_E_CORRUPT},
        /* proto-max-bulk-len: the server closes the connection, and would do so each time. */
        {"ERR Protocol error: invalid bulk length", ONCE_E_TOO_BIG},
    };

    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        if (strncmp(text, errors[i].word, strlen(errors[i].word)) == 0) {
            return errors[i].code;
        }
    }
    /* The error of a command inside a script may come wrapped. */
    if (strstr(text, "OOM command not allowed") != NULL) {
        return ONCE_E_FULL;
    }
    return strstr(text, "ACL failure") != NULL ||
                   strstr(text, "The user executing the script") != NULL
               ? ONCE_E_CONFIG
               : ONCE_E_IO;
}

/* Returns 1 if it needs a dictionary that is not known, else 0. */
static int keep_record(once__op_t *op, once__redis_dictionaries_t *dictionaries, const void *data,
                       size_t len)
{
    once__record_t record = {.key = NULL};
    int code;

    memcpy(record.id, op->id, ONCE_ID_SIZE);
    code = once__redis_unpack(&record, dictionaries, data, len);
    if (code == ONCE_E_CORRUPT || code == ONCE_E_NOT_FOUND) {
        op->error = ONCE_E_CORRUPT;
        return code == ONCE_E_NOT_FOUND;
    }
    op->head = record.head;
    op->record = once__record_clone(&record);
    /* It was applied: if memory is short for the copy, the reply counts as lost, and it is asked for again. */
    op->error = op->record != NULL ? ONCE_OK : ONCE_E_NOREPLY;
    return 0;
}

/* The record as it was: the caller gets its head, which has not changed, and the dictionaries what they have of its texts. */
static int read_erased(once__op_t *op, once__redis_dictionaries_t *dictionaries,
                       const redisReply *bytes)
{
    once__record_t record = {.key = NULL};
    int code =
        once__redis_unpack(&record, dictionaries, (const uint8_t *)bytes->str, (size_t)bytes->len);

    dictionaries->has_erased = 1;
    dictionaries->is_unsure |= code != ONCE_OK || record.payload.kind == ONCE__PAYLOAD_ERASED;
    if (code == ONCE_OK) {
        once__redis_dictionaries_touch(dictionaries, record.payload.data, record.payload.len);
        once__redis_dictionaries_touch(dictionaries, record.about.data, record.about.len);
    } else {
        code = once__redis_unpack_head(&record, (const uint8_t *)bytes->str, (size_t)bytes->len);
    }
    op->head = record.head;
    op->error = code == ONCE_E_CORRUPT ? code : ONCE_OK;
    return 0;
}

/* A head alone: the answer to a change, or a record without payload. */
static int is_head(const redisReply *bytes)
{
    return bytes->len == ONCE__ENVELOPE_SIZE ||
           (bytes->len == ONCE__REDIS_HEAD_SIZE &&
            bytes->str[ONCE__AT_STATE] != ONCE_STATE_COMPLETED);
}

/* Returns 0, -1 if this cannot be the answer, 1 if a dictionary is needed. */
static int read_event(once__op_t *op, once__redis_dictionaries_t *dictionaries,
                      const redisReply *bytes, int is_change)
{
    const uint8_t *data = (const uint8_t *)bytes->str;
    once__record_t record = {.key = NULL};
    int granted = op->event.kind == ONCE__CLAIM && op->outcome == ONCE_OUTCOME_RUN, code;

    if (bytes->len == 0) {
        return granted || op->outcome == ONCE_OUTCOME_REPLAY ? -1 : 0; /* there is none */
    }
    if (op->event.kind == ONCE__ERASE && op->outcome == ONCE_OUTCOME_DONE) {
        return read_erased(op, dictionaries, bytes);
    }
    if (is_change || is_head(bytes)) {
        code = bytes->len == ONCE__REDIS_HEAD_SIZE
                   ? once__redis_unpack_answer(&record, data)
                   : once__redis_unpack_head(&record, data, (size_t)bytes->len);
        op->head = record.head;
        op->error = code == ONCE_E_CORRUPT ? code : ONCE_OK;
    } else if (keep_record(op, dictionaries, data, (size_t)bytes->len)) {
        return 1;
    }
    return granted && op->error == ONCE_OK &&
                   memcmp(op->head.claim.id, op->event.claim.id, ONCE_CLAIM_ID_SIZE) != 0
               ? -1
               : 0;
}

static int read_get(once__op_t *op, once__redis_dictionaries_t *dictionaries,
                    const redisReply *bytes)
{
    static const once_filter_t all = ONCE_FILTER_INIT;

    if (bytes->len == 0) {
        op->error = ONCE_E_NOT_FOUND;
        return 0;
    }
    if (keep_record(op, dictionaries, bytes->str, (size_t)bytes->len)) {
        return 1;
    }
    if (op->error == ONCE_OK && !once__filter_passes(&all, op->record, op->now)) {
        free(op->record);
        op->record = NULL;
        memset(&op->head, 0, sizeof(op->head));
        op->error = ONCE_E_NOT_FOUND;
    }
    return 0;
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
    /* A swap that finds its own text was applied before, and its reply was lost. */
    if (op->kind == ONCE__OP_SECRETS_SWAP && strcmp(op->secrets, op->secrets_new) != 0) {
        op->error = ONCE_E_CONFLICT;
    }
}

static int is_outcome_of(const once__op_t *op, long long outcome)
{
    if (op->kind == ONCE__OP_GET) {
        return outcome == 0;
    }
    if (op->event.kind == ONCE__CLAIM) {
        return (outcome >= ONCE_OUTCOME_RUN && outcome <= ONCE_OUTCOME_UNKNOWN) ||
               outcome == ONCE_OUTCOME_LOST || outcome == ONCE__MINE;
    }
    return outcome == ONCE_OUTCOME_BUSY ||
           (outcome >= ONCE_OUTCOME_DONE && outcome <= ONCE_OUTCOME_REFUSED);
}

static int read_answer(once__op_t *op, once__redis_dictionaries_t *dictionaries,
                       const redisReply *reply)
{
    long long outcome;

    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 3 ||
        reply->element[0]->type != REDIS_REPLY_INTEGER ||
        reply->element[1]->type != REDIS_REPLY_INTEGER || reply->element[1]->integer <= 0 ||
        reply->element[2]->type != REDIS_REPLY_STRING) {
        return -1;
    }
    outcome = reply->element[0]->integer;
    op->now = (uint64_t)reply->element[1]->integer;
    if (outcome == -1) {
        op->error = ONCE_E_CORRUPT;
        return 0;
    }
    if (!is_outcome_of(op, outcome)) {
        return -1;
    }
    op->outcome = (uint8_t)outcome;
    return op->kind == ONCE__OP_GET ? read_get(op, dictionaries, reply->element[2])
                                    : read_event(op, dictionaries, reply->element[2], 0);
}

/* The lines of the trail, each with its end. Returns 0, or -1 if it is something else. */
static int read_lines(once__op_t *op, const redisReply *reply)
{
    size_t bytes = 0;
    char *at;

    if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 1) {
        return -1;
    }
    for (size_t i = 0; i < reply->elements; i++) {
        if (reply->element[i]->type != REDIS_REPLY_STRING) {
            return -1;
        }
        bytes += i > 0 ? reply->element[i]->len + 1 : 0;
    }
    if (once__number_parse(reply->element[0]->str, reply->element[0]->len, &op->end) != 0) {
        return -1;
    }
    if (bytes == 0) {
        return 0;
    }
    op->lines = at = malloc(bytes);
    if (at == NULL) {
        op->error = ONCE_E_NOMEM;
        return 0;
    }
    for (size_t i = 1; i < reply->elements; i++) {
        memcpy(at, reply->element[i]->str, reply->element[i]->len);
        at += reply->element[i]->len;
        *at++ = '\n';
    }
    op->count = bytes;
    return 0;
}

static int read_added(once__op_t *op, const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_INTEGER || reply->integer == 0) {
        return -1;
    }
    if (reply->integer < 0) {
        op->error = ONCE_E_CONFLICT;
    } else {
        op->end = (uint64_t)reply->integer;
    }
    return 0;
}

int once__redis_read(once__op_t *op, once__redis_dictionaries_t *dictionaries,
                     const redisReply *reply)
{
    op->error = ONCE_OK;
    if (is_audit(op)) {
        return op->kind == ONCE__OP_AUDIT_ADD ? read_added(op, reply) : read_lines(op, reply);
    }
    if (op->kind == ONCE__OP_SECRETS_LOAD || op->kind == ONCE__OP_SECRETS_SWAP) {
        if (reply->type != REDIS_REPLY_STRING) {
            return -1;
        }
        read_secrets(op, reply);
        return 0;
    }
    if (op->kind == ONCE__OP_EVENT && op->event.kind == ONCE__CLAIM &&
        reply->type == REDIS_REPLY_INTEGER && reply->integer > 0) {
        op->outcome = ONCE_OUTCOME_RUN;
        op->now = (uint64_t)reply->integer;
        op->head = first_head(op, op->now);
        return 0;
    }
    if (op->kind == ONCE__OP_EVENT && reply->type == REDIS_REPLY_STRING &&
        reply->len == ONCE__REDIS_HEAD_SIZE) {
        op->outcome = op->event.kind == ONCE__CLAIM ? ONCE_OUTCOME_RUN : ONCE_OUTCOME_DONE;
        if (read_event(op, dictionaries, reply, 1) != 0) {
            return -1;
        }
        op->now = op->head.changed;
        return 0;
    }
    return read_answer(op, dictionaries, reply);
}
