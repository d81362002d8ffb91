#include "store/local/frame.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/bytes.h"
#include "base/uuid.h"
#include "core/about.h"
#include "core/attempts.h"
#include "store/crc32c.h"
#include "store/varint.h"

static const uint8_t magic[8] = {'O', 'N', 'C', 'E', 'L', 'O', 'G', '3'};
static const uint8_t zeros[64];

/* Where things are in the header of a segment. */
enum {
    AT_SEGMENT_CRC = 8,
    AT_DICTIONARY_LEN = 12,
    AT_NUMBER = 16,
    AT_WORD = 24,
    AT_SIZE = 32,
    AT_CREATED = 40,
    AT_CLOCK = 48,
    AT_BOOT_ID = 56,
    AT_STORE_ID = 72,
    AT_DICTIONARY_CRC = 88,
    AT_RESERVED = 92,
};

/* Where things are in the head of a frame. */
enum {
    AT_LENGTH = 0,
    AT_HEAD_CRC = 4,
    AT_BODY_CRC = 8,
    AT_KIND = 12,
    AT_STATE = 13,
    AT_FLAGS = 14,
    AT_ZERO = 15,
    AT_VERSION = 16,
    AT_WATERMARK = 24,
    AT_ID = 28,
    SINCE_SIZE = 8,
};

static_assert(AT_ID + ONCE_ID_SIZE == ONCE__FRAME_HEADER, "the head is full");
static_assert(ONCE__FRAME_HEADER <= ONCE__SEAL_ROOM, "the frame that seals has room");

/* ------------------------------------------------------------------------------------------------- segment header */

static uint64_t padded(uint64_t len)
{
    return (len + 7) & ~(uint64_t)7;
}

uint64_t once__segment_start(uint32_t dictionary_len)
{
    return padded(ONCE__SEGMENT_HEADER + (uint64_t)dictionary_len);
}

static uint32_t header_crc(const uint8_t *in)
{
    uint32_t crc = once__crc32c(once__crc32c(0, in, AT_SEGMENT_CRC), zeros, 4);

    return once__crc32c(crc, in + AT_DICTIONARY_LEN, ONCE__SEGMENT_HEADER - AT_DICTIONARY_LEN);
}

void once__segment_header_write(const once__segment_header_t *header, const uint8_t *dictionary,
                                uint8_t *out)
{
    uint32_t len = header->dictionary_len;

    assert(len <= ONCE__DICTIONARY_MAX && header->number != 0);
    memset(out, 0, once__segment_start(len));
    memcpy(out, magic, sizeof(magic));
    once__put32(out + AT_DICTIONARY_LEN, len);
    once__put64(out + AT_NUMBER, header->number);
    once__put64(out + AT_WORD, header->word);
    once__put64(out + AT_SIZE, header->size);
    once__put64(out + AT_CREATED, header->created);
    once__put64(out + AT_CLOCK, (uint64_t)header->clock_offset);
    memcpy(out + AT_BOOT_ID, header->boot_id, ONCE__BOOT_ID_SIZE);
    memcpy(out + AT_STORE_ID, header->store_id, ONCE__STORE_ID_SIZE);
    if (len > 0) {
        memcpy(out + ONCE__SEGMENT_HEADER, dictionary, len);
        once__put32(out + AT_DICTIONARY_CRC, once__crc32c(0, dictionary, len));
    }
    once__put32(out + AT_SEGMENT_CRC, header_crc(out));
}

int once__segment_header_read(once__segment_header_t *header, const uint8_t *in, size_t len)
{
    memset(header, 0, sizeof(*header));
    if (len < ONCE__SEGMENT_HEADER || memcmp(in, magic, sizeof(magic) - 1) != 0 ||
        in[7] < magic[7]) {
        return ONCE_E_CORRUPT;
    }
    if (in[7] > magic[7]) {
        return ONCE_E_NEWER;
    }
    header->dictionary_len = once__get32(in + AT_DICTIONARY_LEN);
    header->number = once__get64(in + AT_NUMBER);
    header->word = once__get64(in + AT_WORD);
    header->size = once__get64(in + AT_SIZE);
    header->created = once__get64(in + AT_CREATED);
    header->clock_offset = (int64_t)once__get64(in + AT_CLOCK);
    memcpy(header->boot_id, in + AT_BOOT_ID, ONCE__BOOT_ID_SIZE);
    memcpy(header->store_id, in + AT_STORE_ID, ONCE__STORE_ID_SIZE);
    if (header->dictionary_len > ONCE__DICTIONARY_MAX || header->number == 0 ||
        header->size > ONCE__SEGMENT_MAX || header->size % 8 != 0 ||
        header->size < once__segment_start(header->dictionary_len) ||
        memcmp(in + AT_RESERVED, zeros, ONCE__SEGMENT_HEADER - AT_RESERVED) != 0 ||
        header_crc(in) != once__get32(in + AT_SEGMENT_CRC)) {
        return ONCE_E_CORRUPT;
    }
    return ONCE_OK;
}

const uint8_t *once__segment_dictionary(const uint8_t *in, size_t len)
{
    uint32_t dictionary_len = once__get32(in + AT_DICTIONARY_LEN);
    const uint8_t *dictionary = in + ONCE__SEGMENT_HEADER;

    return dictionary_len > 0 && len >= once__segment_start(dictionary_len) &&
                   once__crc32c(0, dictionary, dictionary_len) ==
                       once__get32(in + AT_DICTIONARY_CRC)
               ? dictionary
               : NULL;
}

/* ---------------------------------------------------------------------------------------------------------- frames */

uint32_t once__frame_size(size_t len, int has_since)
{
    return (uint32_t)padded(ONCE__FRAME_HEADER + (has_since ? SINCE_SIZE : 0) + len);
}

uint8_t *once__frame_body(uint8_t *out, int has_since)
{
    return out + ONCE__FRAME_HEADER + (has_since ? SINCE_SIZE : 0);
}

/* Everything that it covers in a row, so that it is one short sum. */
static uint32_t head_crc(const uint8_t *head, uint64_t word, uint64_t offset, uint32_t len)
{
    uint8_t bytes[8 + 8 + 4 + ONCE__FRAME_HEADER - AT_BODY_CRC];

    once__put64(bytes, word);
    once__put64(bytes + 8, offset);
    once__put32(bytes + 16, len);
    memcpy(bytes + 20, head + AT_BODY_CRC, ONCE__FRAME_HEADER - AT_BODY_CRC);
    return once__crc32c(0, bytes, sizeof(bytes));
}

/* The halves of the word are exchanged: a body is not valid as a head. */
static uint32_t body_crc(const uint8_t *body, size_t len, uint64_t word, uint64_t offset)
{
    uint8_t bytes[16];

    once__put64(bytes, word >> 32 | word << 32);
    once__put64(bytes + 8, offset);
    return once__crc32c(once__crc32c(0, bytes, sizeof(bytes)), body, len);
}

uint32_t once__frame_write(uint8_t *out, uint64_t word, uint64_t offset, const once__frame_t *frame)
{
    int has_since = frame->since != 0;
    uint8_t *body = once__frame_body(out, has_since);
    uint32_t len = (uint32_t)((size_t)(body - out) + frame->len);
    uint32_t size = (uint32_t)padded(len);

    assert(offset % 8 == 0 && frame->watermark % 8 == 0 && frame->watermark <= offset);
    if (has_since) {
        once__put64(out + ONCE__FRAME_HEADER, frame->since);
    }
    if (frame->len > 0 && frame->body != body) {
        memcpy(body, frame->body, frame->len);
    }
    memset(out + len, 0, size - len);
    out[AT_KIND] = frame->kind;
    out[AT_STATE] = frame->state;
    out[AT_FLAGS] =
        (uint8_t)((frame->flags & ~ONCE__FRAME_SINCE) | (has_since ? ONCE__FRAME_SINCE : 0));
    out[AT_ZERO] = 0;
    once__put64(out + AT_VERSION, frame->version);
    once__put32(out + AT_WATERMARK, (uint32_t)(frame->watermark / 8));
    memcpy(out + AT_ID, frame->id != NULL ? frame->id : zeros, ONCE_ID_SIZE);
    once__put32(out + AT_BODY_CRC,
                body_crc(out + ONCE__FRAME_HEADER, len - ONCE__FRAME_HEADER, word, offset));
    once__put32(out + AT_HEAD_CRC, head_crc(out, word, offset, len));
    once__put32(out + AT_LENGTH, len);
    return size;
}

void once__frame_write_filler(uint8_t *out, uint64_t word, uint64_t offset, uint64_t len,
                              uint64_t watermark)
{
    assert(len % 8 == 0 && len >= ONCE__SEAL_ROOM);
    memset(out, 0, len);
    while (len > 0) {
        /* What is left must not be too short for another one. */
        uint64_t part = len <= ONCE__FILLER_MAX ? len : ONCE__FILLER_MAX - ONCE__SEAL_ROOM;
        once__frame_t frame = {.kind = ONCE__FRAME_FILLER,
                               .watermark = watermark < offset ? watermark : offset,
                               .body = once__frame_body(out, 0),
                               .len = part - ONCE__FRAME_HEADER};
        (void)once__frame_write(out, word, offset, &frame);
        out += part;
        offset += part;
        len -= part;
    }
}

/* Can a frame of this kind be like that? Asked before anything is summed up. */
static int is_plausible(const uint8_t *data, uint64_t offset, uint32_t len)
{
    uint8_t flags = data[AT_FLAGS], state = data[AT_STATE];
    uint32_t least = ONCE__FRAME_HEADER + (flags & ONCE__FRAME_SINCE ? SINCE_SIZE : 0);

    if (len < least || len > ONCE__FRAME_MAX || data[AT_ZERO] != 0 ||
        (uint64_t)once__get32(data + AT_WATERMARK) * 8 > offset) {
        return 0;
    }
    switch (data[AT_KIND]) {
    case ONCE__FRAME_RECORD:
        return (flags & ~(ONCE__FRAME_SINCE | ONCE__FRAME_COMPRESSED | ONCE__FRAME_SHORT_ABOUT)) ==
                   0 &&
               len > least && state >= ONCE_STATE_PENDING && state <= ONCE_STATE_UNKNOWN;
    case ONCE__FRAME_REMOVED:
        return (flags & ~ONCE__FRAME_SINCE) == 0 && len == least && state == 0;
    case ONCE__FRAME_SEALED:
    case ONCE__FRAME_FILLER:
        return flags == 0 && state == 0 && memcmp(data + AT_ID, zeros, ONCE_ID_SIZE) == 0 &&
               (data[AT_KIND] == ONCE__FRAME_SEALED ? len == least : len <= ONCE__FILLER_MAX);
    default:
        return 0;
    }
}

int once__frame_read_head(once__frame_t *frame, uint64_t word, uint64_t offset, const uint8_t *data)
{
    uint32_t len = once__get32(data + AT_LENGTH);

    if (!is_plausible(data, offset, len) ||
        head_crc(data, word, offset, len) != once__get32(data + AT_HEAD_CRC)) {
        return 0;
    }
    frame->kind = data[AT_KIND];
    frame->state = data[AT_STATE];
    frame->flags = data[AT_FLAGS];
    frame->version = once__get64(data + AT_VERSION);
    frame->since = 0;
    frame->watermark = (uint64_t)once__get32(data + AT_WATERMARK) * 8;
    frame->id = data + AT_ID;
    frame->body = NULL;
    frame->len = len - ONCE__FRAME_HEADER - (frame->flags & ONCE__FRAME_SINCE ? SINCE_SIZE : 0);
    frame->size = (uint32_t)padded(len);
    return 1;
}

once__frame_code_t once__frame_read(once__frame_t *frame, uint64_t word, uint64_t offset,
                                    const uint8_t *data, size_t room)
{
    int has_since;
    uint32_t len;

    if (room < ONCE__FRAME_HEADER || once__get32(data + AT_LENGTH) > room ||
        !once__frame_read_head(frame, word, offset, data)) {
        return ONCE__FRAME_NONE;
    }
    has_since = (frame->flags & ONCE__FRAME_SINCE) != 0;
    len = once__get32(data + AT_LENGTH);
    if (body_crc(data + ONCE__FRAME_HEADER, len - ONCE__FRAME_HEADER, word, offset) !=
        once__get32(data + AT_BODY_CRC)) {
        return ONCE__FRAME_DAMAGED;
    }
    frame->since = has_since ? once__get64(data + ONCE__FRAME_HEADER) : 0;
    frame->body = data + ONCE__FRAME_HEADER + (has_since ? SINCE_SIZE : 0);
    return ONCE__FRAME_OK;
}

uint64_t once__frame_find(once__frame_t *frame, uint64_t word, uint64_t offset, const uint8_t *data,
                          uint64_t size)
{
    for (; offset + ONCE__FRAME_HEADER <= size; offset += 8) {
        if (once__frame_read_head(frame, word, offset, data + offset)) {
            return offset;
        }
    }
    return size;
}

/* --------------------------------------------------------------------------------------------------------- records */

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
    record->cause.len = once__get_varint(input, ONCE__WHY_MAX);
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
