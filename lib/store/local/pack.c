#include "store/local/pack.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/bytes.h"
#include "base/uuid.h"
#include "core/about.h"
#include "core/codec.h"
#include "store/varint.h"

/* The byte with state and policy. */
#define STATE_MASK   7u
#define POLICY_SHIFT 3
#define POLICY_MASK  3u
#define UUID_KEY     0x20u
#define HAS_EXPIRES  0x40u
#define HAS_TEXTS    0x80u /* about or cause */

#define UUID_LEN (ONCE_UUID_SIZE - 1)
#define KEY_ROOM ((size_t)40) /* of a UUID in the scratch memory */
#define SHORTEN  16           /* bytes of about that are worth a look into the dictionary */

#define SCRATCH_MAX (KEY_ROOM + ONCE__ABOUT_MAX + ONCE__DICTIONARY_MOST)

static uint8_t *put_bytes(uint8_t *out, const void *bytes, size_t len)
{
    memcpy(out, bytes, len);
    return out + len;
}

/* ---------------------------------------------------------------------------------------------------------- packing */

size_t once__pack_bound(const once__record_t *record)
{
    return 3 + 5 + 5 + ONCE_CLAIM_ID_SIZE + 8 + 3 * ONCE__VARINT_MAX + 5 + 1 + 32 +
           ONCE_SCOPE_HASH_SIZE + ONCE__VARINT_MAX + 1 + record->key_len + 3 * 2 +
           record->about.len + record->cause.len + 3 + 5 + record->payload.len;
}

/* About and cause. *flags gets ONCE__FRAME_SHORT_ABOUT if about was compressed. */
static uint8_t *put_texts(uint8_t *out, const once__record_t *record,
                          const once__dictionary_t *dictionary, uint8_t *flags)
{
    uint8_t packed[ONCE__ABOUT_MAX];
    once_slice_t about = record->about;

    out = once__put_varint(once__put_varint(out, about.len), record->cause.len);
    if (dictionary != NULL && about.len >= SHORTEN) {
        size_t len = once__dictionary_pack(dictionary, packed, about.data, about.len);
        if (len > 0) {
            *flags |= ONCE__FRAME_SHORT_ABOUT;
            out = once__put_varint(out, len);
            about = once__slice(packed, len);
        }
    }
    out = about.len > 0 ? put_bytes(out, about.data, about.len) : out;
    return record->cause.len > 0 ? put_bytes(out, record->cause.data, record->cause.len) : out;
}

size_t once__pack(uint8_t *out, const once__record_t *record, const once__dictionary_t *dictionary,
                  uint8_t *flags)
{
    const once__head_t *head = &record->head;
    const once__payload_t *payload = &record->payload;
    uint8_t uuid[16], *at = out;
    int has_uuid = once__uuid_read(uuid, record->key, record->key_len);
    int has_texts = record->about.len + record->cause.len > 0;
    size_t packed = 0;

    assert(once__record_is_valid(record));
    *flags = 0;
    *at++ = head->schema;
    *at++ = (uint8_t)(head->state | head->recover << POLICY_SHIFT | (has_uuid ? UUID_KEY : 0) |
                      (head->expires != 0 ? HAS_EXPIRES : 0) | (has_texts ? HAS_TEXTS : 0));
    *at++ = head->flags;
    at = once__put_varint(at, head->claim.epoch);
    at = once__put_varint(at, head->lease_ms < UINT32_MAX ? head->lease_ms : UINT32_MAX);
    at = put_bytes(at, head->claim.id, ONCE_CLAIM_ID_SIZE);
    once__put64(at, head->changed);
    at = once__put_signed(at + 8, head->lease_until - head->changed);
    if (head->expires != 0) {
        at = once__put_signed(at, head->expires - head->changed);
    }
    at = once__put_signed(at, head->changed - head->created);

    at = once__put_varint(at, head->fingerprint.secret);
    *at++ = (uint8_t)(head->fingerprint.mode | payload->kind << 4);
    at = put_bytes(at, head->fingerprint.mac, sizeof(head->fingerprint.mac));
    at = put_bytes(at, record->scope_hash, ONCE_SCOPE_HASH_SIZE);
    at = once__put_varint(at, head->ttl_ms);
    if (!has_uuid) {
        *at++ = (uint8_t)record->key_len;
    }
    at = has_uuid ? put_bytes(at, uuid, sizeof(uuid)) : put_bytes(at, record->key, record->key_len);
    at = has_texts ? put_texts(at, record, dictionary, flags) : at;
    if (payload->kind != ONCE__PAYLOAD_NONE) {
        at = once__put_varint(once__put_varint(at, payload->status), payload->len);
    }
    if (dictionary != NULL && once__dictionary_fits(payload)) {
        packed = once__dictionary_pack(dictionary, at, payload->data, payload->len);
    }
    *flags |= packed > 0 ? ONCE__FRAME_COMPRESSED : 0;
    at = packed > 0 || payload->len == 0 ? at + packed : put_bytes(at, payload->data, payload->len);
    return (size_t)(at - out);
}

/* -------------------------------------------------------------------------------------------------------- unpacking */

static void get_envelope(once__input_t *input, once__head_t *head, uint8_t *bits)
{
    head->schema = *once__get_bytes(input, 1);
    *bits = *once__get_bytes(input, 1);
    head->state = *bits & STATE_MASK;
    head->recover = *bits >> POLICY_SHIFT & POLICY_MASK;
    head->flags = *once__get_bytes(input, 1);
    head->claim.epoch = (uint32_t)once__get_varint(input, UINT32_MAX);
    head->lease_ms = once__get_varint(input, UINT32_MAX);
    memcpy(head->claim.id, once__get_bytes(input, ONCE_CLAIM_ID_SIZE), ONCE_CLAIM_ID_SIZE);
    head->changed = once__get64(once__get_bytes(input, 8));
    head->lease_until = head->changed + once__get_signed(input);
    head->expires = *bits & HAS_EXPIRES ? head->changed + once__get_signed(input) : 0;
    input->is_broken |= (*bits & HAS_EXPIRES) != 0 && head->expires == 0;
    head->created = head->changed - once__get_signed(input);
    head->ttl_ms = 0;
    memset(&head->fingerprint, 0, sizeof(head->fingerprint));
}

/* How things stand in the frame that the record does not say. */
typedef struct stored {
    uint8_t bits;
    size_t about_len;   /* as it is stored: compressed or not */
    size_t payload_len; /* likewise */
} stored_t;

static const uint8_t *get_run(once__input_t *input, size_t len)
{
    const uint8_t *at = input->at;

    input->is_broken |= (size_t)(input->end - at) < len;
    input->at = input->is_broken ? input->end : at + len;
    return at;
}

static void get_texts(once__input_t *input, once__record_t *record, int is_short, stored_t *stored)
{
    record->about.len = once__get_varint(input, ONCE__ABOUT_MAX);
    record->cause.len = once__get_varint(input, ONCE_CAUSE_MAX);
    input->is_broken |= record->about.len + record->cause.len == 0;
    stored->about_len = is_short ? once__get_varint(input, ONCE__ABOUT_MAX) : record->about.len;
    input->is_broken |=
        is_short && (record->about.len < SHORTEN || stored->about_len >= record->about.len);
    record->about.data = get_run(input, stored->about_len);
    record->cause.data = get_run(input, record->cause.len);
}

static void get_rest(once__input_t *input, once__record_t *record, int is_short, stored_t *stored)
{
    uint8_t bits = stored->bits;
    once__fingerprint_t *fingerprint = &record->head.fingerprint;
    once__payload_t *payload = &record->payload;
    uint8_t uuid[16], both;

    fingerprint->secret = (uint32_t)once__get_varint(input, UINT32_MAX);
    both = *once__get_bytes(input, 1);
    fingerprint->mode = both & 15;
    memcpy(fingerprint->mac, once__get_bytes(input, sizeof(fingerprint->mac)),
           sizeof(fingerprint->mac));
    memcpy(record->scope_hash, once__get_bytes(input, ONCE_SCOPE_HASH_SIZE), ONCE_SCOPE_HASH_SIZE);
    record->head.ttl_ms = once__get_varint(input, UINT64_MAX);
    record->key_len = bits & UUID_KEY ? UUID_LEN : *once__get_bytes(input, 1);
    record->key =
        (const char *)once__get_bytes(input, bits & UUID_KEY ? sizeof(uuid) : record->key_len);
    input->is_broken |=
        (bits & UUID_KEY) == 0 && once__uuid_read(uuid, record->key, record->key_len);
    record->about = record->cause = (once_slice_t){NULL, 0};
    if (bits & HAS_TEXTS) {
        get_texts(input, record, is_short, stored);
    } else {
        input->is_broken |= is_short;
    }
    payload->kind = both >> 4;
    payload->status = 0;
    payload->len = 0;
    if (payload->kind != ONCE__PAYLOAD_NONE) {
        payload->status = (uint16_t)once__get_varint(input, UINT16_MAX);
        payload->len = once__get_varint(input, ONCE__PAYLOAD_MAX);
    }
    payload->data = input->at;
}

/* The record as it stands in its frame: a key that is a UUID is its bytes, payload and about may be compressed. */
static int parse(once__record_t *record, const once__frame_t *frame, stored_t *stored)
{
    once__input_t input = {frame->body, frame->body + frame->len, 0};
    const once__payload_t *payload = &record->payload;

    if (frame->kind != ONCE__FRAME_RECORD) {
        return ONCE_E_CORRUPT;
    }
    get_envelope(&input, &record->head, &stored->bits);
    if (input.is_broken || !once__envelope_is_valid(&record->head) ||
        record->head.state != frame->state) {
        return ONCE_E_CORRUPT;
    }
    if (record->head.schema > ONCE__SCHEMA) {
        return ONCE_E_NEWER;
    }
    get_rest(&input, record, (frame->flags & ONCE__FRAME_SHORT_ABOUT) != 0, stored);
    stored->payload_len = (size_t)(input.end - input.at);
    if (input.is_broken || !once__record_is_valid(record)) {
        return ONCE_E_CORRUPT;
    }
    if (frame->flags & ONCE__FRAME_COMPRESSED) {
        return payload->kind == ONCE__PAYLOAD_RESPONSE && payload->len >= ONCE__DICTIONARY_LEAST &&
                       payload->len <= ONCE__DICTIONARY_MOST && stored->payload_len < payload->len
                   ? ONCE_OK
                   : ONCE_E_CORRUPT;
    }
    return stored->payload_len == payload->len ? ONCE_OK : ONCE_E_CORRUPT;
}

/* Replaces what stands in the frame in another form. */
static int unfold(once__record_t *record, const stored_t *stored, uint8_t flags,
                  const once__dictionary_t *dictionary, once__scratch_t *scratch)
{
    int has_uuid = stored->bits & UUID_KEY, is_packed = flags & ONCE__FRAME_COMPRESSED;
    int is_short = flags & ONCE__FRAME_SHORT_ABOUT;
    size_t about = KEY_ROOM, payload = about + (is_short ? record->about.len : 0);
    size_t size = payload + (is_packed ? record->payload.len : 0);

    if (has_uuid || is_packed || is_short) {
        uint8_t *bytes = once__grow(scratch->bytes, &scratch->size, size, 1, SCRATCH_MAX);
        if (bytes == NULL) {
            return ONCE_E_NOMEM;
        }
        scratch->bytes = bytes;
    }
    if (has_uuid) {
        once__uuid_text((char *)scratch->bytes, (const uint8_t *)record->key);
        record->key = (const char *)scratch->bytes;
    }
    if (is_short && dictionary == NULL) {
        record->about = once__slice(NULL, 0);
    } else if (is_short) {
        if (once__dictionary_unpack(dictionary, scratch->bytes + about, record->about.len,
                                    record->about.data, stored->about_len) != 0) {
            return ONCE_E_CORRUPT;
        }
        record->about.data = scratch->bytes + about;
    }
    if (is_packed) {
        if (dictionary == NULL ||
            once__dictionary_unpack(dictionary, scratch->bytes + payload, record->payload.len,
                                    record->payload.data, stored->payload_len) != 0) {
            return ONCE_E_CORRUPT;
        }
        record->payload.data = scratch->bytes + payload;
    }
    return ONCE_OK;
}

int once__unpack(once__record_t *record, const once__frame_t *frame,
                 const once__dictionary_t *dictionary, once__scratch_t *scratch)
{
    stored_t stored = {0};
    int code = parse(record, frame, &stored);

    if (code == ONCE_OK) {
        code = unfold(record, &stored, frame->flags, dictionary, scratch);
    }
    if (code == ONCE_E_NEWER) {
        once__head_t head = record->head;
        *record = (once__record_t){.head = head};
    } else if (code != ONCE_OK) {
        memset(record, 0, sizeof(*record));
    }
    memcpy(record->id, frame->id, ONCE_ID_SIZE);
    return code;
}

int once__unpack_head(once__head_t *head, const once__frame_t *frame)
{
    once__record_t record;
    stored_t stored = {0};
    int code = parse(&record, frame, &stored);

    if (code == ONCE_OK || code == ONCE_E_NEWER) {
        *head = record.head;
    } else {
        memset(head, 0, sizeof(*head));
    }
    return code;
}
