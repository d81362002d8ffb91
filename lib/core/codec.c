#include "core/codec.h"

#include <assert.h>

#include "base/bytes.h"
#include "core/about.h"
#include "core/attempts.h"

#define MAGIC         0x4f
#define FLAGS         (ONCE__BY_LEASE | ONCE__TAINTED | ONCE__TOUCHED)
#define RESERVED_SIZE (ONCE__AT_EPOCH - ONCE__AT_RESERVED)
#define REST_SIZE     69 /* of schema 1, before key and payload */

static_assert(ONCE__AT_CREATED + 8 == ONCE__ENVELOPE_SIZE, "the envelope is full");
static_assert(ONCE__AT_KEY == ONCE__ENVELOPE_SIZE + REST_SIZE, "the rest has its size");
static_assert(ONCE__PAYLOAD_MAX <= UINT32_MAX, "a payload's length fits its field");
static_assert(ONCE_KEY_MAX <= UINT8_MAX, "a key's length fits its field");

int once__envelope_is_valid(const once__head_t *head)
{
    return head->schema >= 1 && head->state >= ONCE_STATE_PENDING &&
           head->state <= ONCE_STATE_UNKNOWN && head->recover <= ONCE_RECOVER_HOLD &&
           head->claim.epoch >= 1;
}

static int payload_fits_state(const once__payload_t *payload, uint8_t state)
{
    switch (payload->kind) {
    case ONCE__PAYLOAD_NONE:
        return state != ONCE_STATE_COMPLETED && payload->status == 0 && payload->len == 0;
    case ONCE__PAYLOAD_RESPONSE:
        return state == ONCE_STATE_COMPLETED && payload->status != 0 &&
               payload->len <= ONCE__PAYLOAD_MAX;
    case ONCE__PAYLOAD_NOTE:
        return (state == ONCE_STATE_FAILED || state == ONCE_STATE_UNKNOWN) &&
               payload->len <= ONCE_NOTE_MAX;
    case ONCE__PAYLOAD_ERASED:
        return (state == ONCE_STATE_FAILED ||
                (state == ONCE_STATE_COMPLETED && payload->status != 0)) &&
               payload->len == 0;
    default:
        return 0;
    }
}

/* What was erased has no text left; anything else has a key. */
static int texts_fit_payload(const once__record_t *record)
{
    if (record->payload.kind == ONCE__PAYLOAD_ERASED) {
        return record->key_len == 0 && record->about.len == 0 && record->cause.len == 0;
    }
    return record->key_len >= 1 && record->key_len <= ONCE_KEY_MAX &&
           record->about.len <= ONCE__ABOUT_MAX && record->cause.len <= ONCE__WHY_MAX;
}

/* Asserted before writing, checked after reading. */
int once__record_is_valid(const once__record_t *record)
{
    const once__head_t *head = &record->head;
    uint16_t status = record->payload.status;

    if (!once__envelope_is_valid(head) || head->schema != ONCE__SCHEMA ||
        (head->flags & ~FLAGS) != 0) {
        return 0;
    }
    if ((head->flags & ONCE__BY_LEASE) && head->state != ONCE_STATE_UNKNOWN) {
        return 0;
    }
    if (head->fingerprint.mode > ONCE_BODY_MODE_MULTIPART) {
        return 0;
    }
    if (status != 0 && (status < 100 || status > 999)) {
        return 0;
    }
    return texts_fit_payload(record) && payload_fits_state(&record->payload, head->state);
}

static void put_envelope(uint8_t *out, const once__head_t *head)
{
    out[ONCE__AT_MAGIC] = MAGIC;
    out[ONCE__AT_SCHEMA] = head->schema;
    out[ONCE__AT_STATE] = head->state;
    out[ONCE__AT_RECOVER] = head->recover;
    out[ONCE__AT_FLAGS] = head->flags;
    memset(out + ONCE__AT_RESERVED, 0, RESERVED_SIZE);
    once__put32(out + ONCE__AT_EPOCH, head->claim.epoch);
    once__put32(out + ONCE__AT_LEASE_MS,
                head->lease_ms < UINT32_MAX ? (uint32_t)head->lease_ms : UINT32_MAX);
    memcpy(out + ONCE__AT_CLAIM_ID, head->claim.id, ONCE_CLAIM_ID_SIZE);
    once__put64(out + ONCE__AT_LEASE_UNTIL, head->lease_until);
    once__put64(out + ONCE__AT_CHANGED, head->changed);
    once__put64(out + ONCE__AT_EXPIRES, head->expires);
    once__put64(out + ONCE__AT_CREATED, head->created);
}

static void get_envelope(once__head_t *head, const uint8_t *data)
{
    head->schema = data[ONCE__AT_SCHEMA];
    head->state = data[ONCE__AT_STATE];
    head->recover = data[ONCE__AT_RECOVER];
    head->flags = data[ONCE__AT_FLAGS];
    head->claim.epoch = once__get32(data + ONCE__AT_EPOCH);
    head->lease_ms = once__get32(data + ONCE__AT_LEASE_MS);
    memcpy(head->claim.id, data + ONCE__AT_CLAIM_ID, ONCE_CLAIM_ID_SIZE);
    head->lease_until = once__get64(data + ONCE__AT_LEASE_UNTIL);
    head->changed = once__get64(data + ONCE__AT_CHANGED);
    head->expires = once__get64(data + ONCE__AT_EXPIRES);
    head->created = once__get64(data + ONCE__AT_CREATED);
}

void once__envelope_encode(const once__head_t *head, uint8_t *out)
{
    put_envelope(out, head);
}

int once__envelope_decode(once__head_t *head, const uint8_t *data)
{
    head->ttl_ms = 0;
    memset(&head->fingerprint, 0, sizeof(head->fingerprint));
    if (data[ONCE__AT_MAGIC] == MAGIC) {
        get_envelope(head, data);
        if (once__envelope_is_valid(head)) {
            return head->schema > ONCE__SCHEMA ? ONCE_E_NEWER : ONCE_OK;
        }
    }
    memset(head, 0, sizeof(*head));
    return ONCE_E_CORRUPT;
}

size_t once__record_size(const once__record_t *record)
{
    return ONCE__AT_KEY + record->key_len + record->payload.len;
}

void once__record_encode(const once__record_t *record, uint8_t *out)
{
    const once__fingerprint_t *fingerprint = &record->head.fingerprint;
    const once__payload_t *payload = &record->payload;

    assert(once__record_is_valid(record));
    put_envelope(out, &record->head);
    once__put32(out + ONCE__AT_SECRET, fingerprint->secret);
    out[ONCE__AT_MODE] = fingerprint->mode;
    out[ONCE__AT_KIND] = payload->kind;
    once__put16(out + ONCE__AT_STATUS, payload->status);
    memcpy(out + ONCE__AT_MAC, fingerprint->mac, sizeof(fingerprint->mac));
    memcpy(out + ONCE__AT_SCOPE, record->scope_hash, ONCE_SCOPE_HASH_SIZE);
    once__put64(out + ONCE__AT_TTL, record->head.ttl_ms);
    once__put32(out + ONCE__AT_PAYLOAD_LEN, (uint32_t)payload->len);
    out[ONCE__AT_KEY_LEN] = (uint8_t)record->key_len;
    if (record->key_len > 0) {
        memcpy(out + ONCE__AT_KEY, record->key, record->key_len);
    }
    if (payload->len > 0) {
        memcpy(out + ONCE__AT_KEY + record->key_len, payload->data, payload->len);
    }
}

/* Fills in what schema 1 has after the envelope. Returns 0, or -1 if the lengths do not match. */
static int get_rest(once__record_t *record, const uint8_t *data, size_t len)
{
    static const uint8_t zero[RESERVED_SIZE];
    once__fingerprint_t *fingerprint = &record->head.fingerprint;
    once__payload_t *payload = &record->payload;

    if (len < ONCE__AT_KEY || memcmp(data + ONCE__AT_RESERVED, zero, RESERVED_SIZE) != 0) {
        return -1;
    }
    fingerprint->secret = once__get32(data + ONCE__AT_SECRET);
    fingerprint->mode = data[ONCE__AT_MODE];
    memcpy(fingerprint->mac, data + ONCE__AT_MAC, sizeof(fingerprint->mac));
    memcpy(record->scope_hash, data + ONCE__AT_SCOPE, ONCE_SCOPE_HASH_SIZE);
    record->head.ttl_ms = once__get64(data + ONCE__AT_TTL);
    record->key_len = data[ONCE__AT_KEY_LEN];
    record->key = (const char *)data + ONCE__AT_KEY;
    record->about = record->cause = (once_slice_t){NULL, 0};
    payload->kind = data[ONCE__AT_KIND];
    payload->status = once__get16(data + ONCE__AT_STATUS);
    payload->len = once__get32(data + ONCE__AT_PAYLOAD_LEN);
    if (len - ONCE__AT_KEY < record->key_len ||
        len - ONCE__AT_KEY - record->key_len != payload->len) {
        return -1;
    }
    payload->data = data + ONCE__AT_KEY + record->key_len;
    return 0;
}

/* What is right is not zeroed before it is filled in: that would take longer than all the rest. */
int once__record_decode(once__record_t *record, const uint8_t *data, size_t len)
{
    if (len >= ONCE__ENVELOPE_SIZE && data[ONCE__AT_MAGIC] == MAGIC) {
        get_envelope(&record->head, data);
        if (once__envelope_is_valid(&record->head) && record->head.schema > ONCE__SCHEMA) {
            memset(record, 0, sizeof(*record));
            get_envelope(&record->head, data);
            return ONCE_E_NEWER;
        }
        if (get_rest(record, data, len) == 0 && once__record_is_valid(record)) {
            memset(record->id, 0, sizeof(record->id));
            return ONCE_OK;
        }
    }
    memset(record, 0, sizeof(*record));
    return ONCE_E_CORRUPT;
}
