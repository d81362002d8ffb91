#include "store/redis/pack.h"

#include <assert.h>
#include <string.h>

#include "base/bytes.h"
#include "base/uuid.h"
#include "core/codec.h"
#include "store/varint.h"

/* The form. */
#define MODE_MASK  0x0fu
#define KIND_SHIFT 4
#define KIND_MASK  3u
#define COMPRESSED 0x40u /* the payload */
#define HAS_TTL    0x80u

#define ABOUT_COMPRESSED 0x8000u /* in the length of what the record says about itself */
#define TTL_SIZE         6
#define MAC_SIZE         32
#define UUID_LEN         (ONCE_UUID_SIZE - 1)
#define UUID_BYTES       16

/* ------------------------------------------------------------------------------------------------------------ packing */

static uint8_t *put_bytes(uint8_t *out, const void *bytes, size_t len)
{
    if (len > 0) {
        memcpy(out, bytes, len);
    }
    return out + len;
}

static uint8_t *put48(uint8_t *out, uint64_t number)
{
    once__put32(out, (uint32_t)number);
    once__put16(out + 4, (uint16_t)(number >> 32));
    return out + TTL_SIZE;
}

static uint64_t get48(const uint8_t *in)
{
    return (uint64_t)once__get32(in) | (uint64_t)once__get16(in + 4) << 32;
}

size_t once__redis_pack_bound(const once__record_t *record)
{
    return ONCE__REDIS_HEAD_SIZE + 1 + record->key_len + 2 + 1 + record->about.len +
           record->cause.len + record->payload.len + 2 * ONCE__REDIS_COMPRESS_ROOM(0);
}

size_t once__redis_pack(uint8_t *out, const once__record_t *record,
                        const once__redis_dictionaries_t *dictionaries)
{
    const once__head_t *head = &record->head;
    const once__payload_t *payload = &record->payload;
    int has_ttl =
        head->state != ONCE_STATE_COMPLETED || head->expires - head->changed != head->ttl_ms;
    uint8_t uuid[UUID_BYTES], *at = out + ONCE__REDIS_AT_TTL, *lengths;
    int has_uuid = once__uuid_read(uuid, record->key, record->key_len);
    size_t about, packed;

    assert(once__record_is_valid(record) && record->about.len <= ONCE__REDIS_ABOUT_MAX &&
           record->cause.len <= UINT8_MAX);
    once__envelope_encode(head, out);
    out[ONCE__AT_SCHEMA] = ONCE__REDIS_SCHEMA;
    once__put16(out + ONCE__REDIS_AT_STATUS, payload->status);
    once__put32(out + ONCE__REDIS_AT_SECRET, head->fingerprint.secret);
    memcpy(out + ONCE__REDIS_AT_SCOPE, record->scope_hash, ONCE_SCOPE_HASH_SIZE);
    memcpy(out + ONCE__REDIS_AT_MAC, head->fingerprint.mac, MAC_SIZE);
    if (has_ttl) {
        at = put48(at, head->ttl_ms < ONCE__REDIS_MS_MAX ? head->ttl_ms : ONCE__REDIS_MS_MAX);
    }
    *at++ = (uint8_t)(has_uuid ? 0 : record->key_len);
    at = has_uuid ? put_bytes(at, uuid, sizeof(uuid)) : put_bytes(at, record->key, record->key_len);
    lengths = at;
    at += 3;
    about = once__redis_compress(dictionaries, at, record->about.data, record->about.len);
    once__put16(lengths, (uint16_t)(about > 0 ? about | ABOUT_COMPRESSED : record->about.len));
    lengths[2] = (uint8_t)record->cause.len;
    at = about > 0 ? at + about : put_bytes(at, record->about.data, record->about.len);
    at = put_bytes(at, record->cause.data, record->cause.len);
    packed = once__dictionary_fits(payload)
                 ? once__redis_compress(dictionaries, at, payload->data, payload->len)
                 : 0;
    out[ONCE__REDIS_AT_FORM] =
        (uint8_t)(head->fingerprint.mode | (unsigned)payload->kind << KIND_SHIFT |
                  (packed > 0 ? COMPRESSED : 0) | (has_ttl ? HAS_TTL : 0));
    at = packed > 0 ? at + packed : put_bytes(at, payload->data, payload->len);
    return (size_t)(at - out);
}

/* ---------------------------------------------------------------------------------------------------------- unpacking */

/* The envelope. A record of this schema counts as one that this version knows, whatever the other stores number theirs. */
static int get_envelope(once__head_t *head, const uint8_t *data)
{
    uint8_t envelope[ONCE__ENVELOPE_SIZE];

    memcpy(envelope, data, sizeof(envelope));
    if (envelope[ONCE__AT_SCHEMA] == 1 || envelope[ONCE__AT_SCHEMA] == ONCE__REDIS_SCHEMA) {
        envelope[ONCE__AT_SCHEMA] = ONCE__SCHEMA;
    }
    return once__envelope_decode(head, envelope);
}

/* Behind the envelope, up to the key. Returns where that begins; NULL: it is shorter. */
static const uint8_t *get_head(once__record_t *record, const uint8_t *data, size_t len, int whole)
{
    once__head_t *head = &record->head;
    int has_ttl = (data[ONCE__REDIS_AT_FORM] & HAS_TTL) != 0 || whole;
    size_t size = ONCE__REDIS_AT_TTL + (has_ttl ? TTL_SIZE : 0);

    if (len < size || (!has_ttl && head->state != ONCE_STATE_COMPLETED)) {
        return NULL;
    }
    head->fingerprint.secret = once__get32(data + ONCE__REDIS_AT_SECRET);
    head->fingerprint.mode = data[ONCE__REDIS_AT_FORM] & MODE_MASK;
    memcpy(head->fingerprint.mac, data + ONCE__REDIS_AT_MAC, MAC_SIZE);
    memcpy(record->scope_hash, data + ONCE__REDIS_AT_SCOPE, ONCE_SCOPE_HASH_SIZE);
    head->ttl_ms = has_ttl ? get48(data + size - TTL_SIZE) : head->expires - head->changed;
    return data + size;
}

/* The text at `in` before it was compressed: in `memory`, or where it is. */
static int get_text(once_slice_t *out, once__redis_dictionaries_t *dictionaries, uint8_t *memory,
                    size_t most, once_slice_t in, int is_compressed)
{
    *out = in;
    if (!is_compressed) {
        return ONCE_OK;
    }
    out->data = memory;
    return once__redis_decompress(dictionaries, memory, most, in.data, in.len, &out->len);
}

/* A UUID may also be there as text: record.lua takes the key of a record of schema 1 as it is. What was erased has none. */
static void get_key(once__record_t *record, uint8_t *memory, once__input_t *input)
{
    size_t len = *once__get_bytes(input, 1);
    int is_uuid = len == 0 && record->payload.kind != ONCE__PAYLOAD_ERASED;

    record->key = (const char *)once__get_bytes(input, is_uuid ? UUID_BYTES : len);
    record->key_len = is_uuid ? UUID_LEN : len;
    if (is_uuid) {
        once__uuid_text((char *)memory, (const uint8_t *)record->key);
        record->key = (const char *)memory;
    }
}

static int get_rest(once__record_t *record, once__redis_dictionaries_t *dictionaries,
                    once__input_t *input, unsigned form)
{
    uint8_t *memory = dictionaries->memory;
    once__payload_t *payload = &record->payload;
    once_slice_t text;
    const uint8_t *lengths;
    size_t about_len;
    int code;

    get_key(record, memory, input);
    lengths = once__get_bytes(input, 3);
    about_len = once__get16(lengths) & (ABOUT_COMPRESSED - 1);
    if (input->is_broken || about_len > ONCE__REDIS_ABOUT_MAX ||
        about_len + lengths[2] > (size_t)(input->end - input->at)) {
        return ONCE_E_CORRUPT;
    }
    code =
        get_text(&record->about, dictionaries, memory + ONCE__REDIS_KEY_ROOM, ONCE__REDIS_ABOUT_MAX,
                 once__slice(input->at, about_len), (once__get16(lengths) & ABOUT_COMPRESSED) != 0);
    input->at += about_len;
    record->cause = once__slice(input->at, lengths[2]);
    input->at += lengths[2];
    code = code != ONCE_OK ? code
                           : get_text(&text, dictionaries,
                                      memory + ONCE__REDIS_KEY_ROOM + ONCE__REDIS_ABOUT_MAX,
                                      ONCE__DICTIONARY_MOST,
                                      once__slice(input->at, (size_t)(input->end - input->at)),
                                      (form & COMPRESSED) != 0);
    if (code != ONCE_OK) {
        return code;
    }
    payload->data = text.data;
    payload->len = text.len;
    return (form & COMPRESSED) == 0 || once__dictionary_fits(payload) ? ONCE_OK : ONCE_E_CORRUPT;
}

static int unpack(once__record_t *record, once__redis_dictionaries_t *dictionaries,
                  const uint8_t *data, size_t len)
{
    unsigned form = data[ONCE__REDIS_AT_FORM];
    once__input_t input = {get_head(record, data, len, 0), data + len, 0};
    int code;

    if (input.at == NULL) {
        return ONCE_E_CORRUPT;
    }
    record->payload.kind = form >> KIND_SHIFT & KIND_MASK;
    record->payload.status = once__get16(data + ONCE__REDIS_AT_STATUS);
    code = get_rest(record, dictionaries, &input, form);
    return code != ONCE_OK || once__record_is_valid(record) ? code : ONCE_E_CORRUPT;
}

int once__redis_unpack(once__record_t *record, once__redis_dictionaries_t *dictionaries,
                       const uint8_t *data, size_t len)
{
    once__record_t read = {.key = NULL};
    int code = len < ONCE__ENVELOPE_SIZE ? ONCE_E_CORRUPT : get_envelope(&read.head, data);

    if (code == ONCE_OK && data[ONCE__AT_SCHEMA] == ONCE__REDIS_SCHEMA) {
        code = unpack(&read, dictionaries, data, len);
    } else if (code == ONCE_OK) {
        code = once__record_decode(&read, data, len);
    }
    memcpy(read.id, record->id, ONCE_ID_SIZE);
    *record = read;
    return code;
}

int once__redis_unpack_head(once__record_t *record, const uint8_t *data, size_t len)
{
    int code = len < ONCE__ENVELOPE_SIZE ? ONCE_E_CORRUPT : get_envelope(&record->head, data);

    if (code != ONCE_OK) {
        return code;
    }
    if (data[ONCE__AT_SCHEMA] == ONCE__REDIS_SCHEMA) {
        return get_head(record, data, len, 0) != NULL ? ONCE_OK : ONCE_E_CORRUPT;
    }
    if (len < ONCE__AT_PAYLOAD_LEN) {
        return ONCE_E_CORRUPT;
    }
    record->head.fingerprint.secret = once__get32(data + ONCE__AT_SECRET);
    record->head.fingerprint.mode = data[ONCE__AT_MODE];
    memcpy(record->head.fingerprint.mac, data + ONCE__AT_MAC, MAC_SIZE);
    memcpy(record->scope_hash, data + ONCE__AT_SCOPE, ONCE_SCOPE_HASH_SIZE);
    record->head.ttl_ms = once__get64(data + ONCE__AT_TTL);
    return ONCE_OK;
}

int once__redis_unpack_answer(once__record_t *record, const uint8_t *data)
{
    int code = get_envelope(&record->head, data);

    if (code == ONCE_OK && get_head(record, data, ONCE__REDIS_HEAD_SIZE, 1) == NULL) {
        code = ONCE_E_CORRUPT;
    }
    return code;
}
