#include "core/response.h"

#include <assert.h>
#include <stdlib.h>

#include "base/bytes.h"
#include "core/codec.h"
#include "core/policy.h"

/* Flags. Stored: never renumber. */
enum {
    COMPRESSED = 1,
    SEALED = 2,
    BODY_OMITTED = 4,
    KNOWN_FLAGS = COMPRESSED | SEALED | BODY_OMITTED,
};

#define FIELDS_SIZE  9 /* flags, seal key id, plain length */
#define SEAL_SIZE    (ONCE__SEAL_NONCE_SIZE + ONCE__SEAL_TAG_SIZE)
#define PLAIN_MIN    4 /* the header count */
#define HEADER_MIN   9 /* two lengths and a name */
#define PLAIN_MAX    (PLAIN_MIN + 8 * ONCE_HEADER_COUNT_MAX + ONCE_HEADERS_MAX + ONCE_BODY_STORE_MAX)
#define COVERED_SIZE (ONCE_ID_SIZE + 2 + FIELDS_SIZE)

static_assert(FIELDS_SIZE + SEAL_SIZE + PLAIN_MAX <= ONCE__PAYLOAD_MAX, "a response is a payload");

static int status_is_valid(int status)
{
    return status >= ONCE__ANSWER_MIN && status <= ONCE__ANSWER_MAX;
}

/* What the tag covers besides the bytes. `fields` are the first FIELDS_SIZE bytes of the payload. */
static void put_covered(uint8_t out[COVERED_SIZE], const uint8_t *id, int status,
                        const uint8_t *fields)
{
    memcpy(out, id, ONCE_ID_SIZE);
    once__put16(out + ONCE_ID_SIZE, (uint16_t)status);
    memcpy(out + ONCE_ID_SIZE + 2, fields, FIELDS_SIZE);
}

/* --------------------------------------------------------------------------------------------------------- packing */

static int has(once_slice_t bytes, char byte)
{
    return bytes.len > 0 && memchr(bytes.data, byte, bytes.len) != NULL;
}

static int breaks_out(once_slice_t bytes)
{
    return has(bytes, '\n') || has(bytes, '\r') || has(bytes, '\0');
}

/* A name with a colon or a blank in it would be read as another name. */
static int is_name(once_slice_t name)
{
    const uint8_t *bytes = name.data;

    for (size_t i = 0; i < name.len; i++) {
        if (bytes[i] <= ' ' || bytes[i] == ':' || bytes[i] == 0x7f) {
            return 0;
        }
    }
    return name.len > 0;
}

/* As it may be written out, whether it comes from a caller or from a store. */
static int is_sound(const once_header_t *header)
{
    return is_name(header->name) && !breaks_out(header->value);
}

int once__headers_check(const once_response_t *response, size_t *bytes)
{
    *bytes = 0;
    if (response->header_count > ONCE_HEADER_COUNT_MAX) {
        return ONCE_E_TOO_BIG;
    }
    for (size_t i = 0; i < response->header_count; i++) {
        const once_header_t *header = &response->headers[i];
        if (header->name.len > ONCE_HEADERS_MAX - *bytes ||
            header->value.len > ONCE_HEADERS_MAX - *bytes - header->name.len) {
            return ONCE_E_TOO_BIG;
        }
        if (!is_sound(header)) {
            return ONCE_E_HEADER;
        }
        *bytes += header->name.len + header->value.len;
    }
    return ONCE_OK;
}

static int check(const once_response_t *response, size_t *plain_len)
{
    size_t headers;
    int rc;

    if (!status_is_valid(response->status) || (response->body_omitted && response->body.len > 0)) {
        return ONCE_E_INVALID;
    }
    if (response->body.len > ONCE_BODY_STORE_MAX) {
        return ONCE_E_TOO_BIG;
    }
    rc = once__headers_check(response, &headers);
    *plain_len = PLAIN_MIN + 8 * response->header_count + headers + response->body.len;
    return rc;
}

static uint8_t *put_bytes(uint8_t *out, once_slice_t bytes)
{
    if (bytes.len > 0) {
        memcpy(out, bytes.data, bytes.len);
    }
    return out + bytes.len;
}

static uint8_t *put_sized(uint8_t *out, once_slice_t bytes)
{
    once__put32(out, (uint32_t)bytes.len);
    return put_bytes(out + 4, bytes);
}

static void put_plain(uint8_t *out, const once_response_t *response)
{
    once__put32(out, (uint32_t)response->header_count);
    out += PLAIN_MIN;
    for (size_t i = 0; i < response->header_count; i++) {
        out = put_sized(out, response->headers[i].name);
        out = put_sized(out, response->headers[i].value);
    }
    put_bytes(out, response->body);
}

/* Compresses `bytes` where they are. The new length, or 0 when that would not make them smaller. */
static size_t compress(uint8_t *bytes, size_t len, once__zstd_t *zstd)
{
    uint8_t *smaller = malloc(len);
    size_t size = 0;

    if (smaller != NULL) {
        size = once__zstd_pack(zstd, smaller, len - 1, bytes, len);
        memcpy(bytes, smaller, size);
    }
    free(smaller);
    return size;
}

/* Seals the `len` bytes after the fields and the nonce, and puts the tag behind them. */
static int seal(uint8_t *packed, size_t len, int status, const uint8_t *id,
                const once__seal_key_t *key, const uint8_t *nonce)
{
    uint8_t covered[COVERED_SIZE];
    uint8_t *bytes = packed + FIELDS_SIZE + ONCE__SEAL_NONCE_SIZE;
    once__sealing_t sealing = {
        .key = key,
        .record_id = id,
        .nonce = nonce,
        .also = {covered, sizeof(covered)},
    };

    put_covered(covered, id, status, packed);
    memcpy(packed + FIELDS_SIZE, nonce, ONCE__SEAL_NONCE_SIZE);
    return once__seal(&sealing, bytes, len, bytes + len);
}

/* Gives back what compression saved. */
static uint8_t *shrink(uint8_t *memory, size_t len)
{
    uint8_t *smaller = realloc(memory, len);
    return smaller != NULL ? smaller : memory;
}

int once__response_pack(const once_response_t *response, const uint8_t id[ONCE_ID_SIZE],
                        const once__packing_t *packing, uint8_t **data, size_t *len)
{
    const once__seal_keys_t *keys = packing->seal;
    const once__seal_key_t *key =
        keys != NULL && keys->count > 0 ? &keys->keys[keys->count - 1] : NULL;
    size_t before = FIELDS_SIZE + (key != NULL ? ONCE__SEAL_NONCE_SIZE : 0);
    size_t after = key != NULL ? ONCE__SEAL_TAG_SIZE : 0;
    size_t plain_len, stored, smaller = 0;
    uint8_t *packed;
    int rc = check(response, &plain_len);

    *data = NULL;
    if (rc != ONCE_OK) {
        return rc;
    }
    packed = malloc(before + plain_len + after);
    if (packed == NULL) {
        return ONCE_E_NOMEM;
    }
    put_plain(packed + before, response);
    if (plain_len >= packing->compress_from) {
        smaller = compress(packed + before, plain_len, packing->zstd);
    }
    stored = smaller > 0 ? smaller : plain_len;
    packed[0] = (uint8_t)((smaller > 0 ? COMPRESSED : 0) | (key != NULL ? SEALED : 0) |
                          (response->body_omitted ? BODY_OMITTED : 0));
    once__put32(packed + 1, key != NULL ? key->id : 0);
    once__put32(packed + 5, (uint32_t)plain_len);
    if (key != NULL) {
        rc = seal(packed, stored, response->status, id, key, packing->nonce);
    }
    if (rc != ONCE_OK) {
        free(packed);
        return rc;
    }
    *len = before + stored + after;
    *data = smaller > 0 ? shrink(packed, *len) : packed;
    return ONCE_OK;
}

/* ------------------------------------------------------------------------------------------------------- unpacking */

/* A payload's fields, and the bytes behind them. */
typedef struct packed {
    unsigned flags;
    uint32_t key_id;
    size_t plain_len;
    const uint8_t *bytes;
    size_t len;
    uint8_t *unsealed; /* owned; NULL: `bytes` are the payload's own */
} packed_t;

static int read_fields(packed_t *packed, const once__payload_t *payload)
{
    if (payload->kind != ONCE__PAYLOAD_RESPONSE || !status_is_valid(payload->status) ||
        payload->len < FIELDS_SIZE || payload->len > ONCE__PAYLOAD_MAX) {
        return ONCE_E_CORRUPT;
    }
    packed->flags = payload->data[0];
    packed->key_id = once__get32(payload->data + 1);
    packed->plain_len = once__get32(payload->data + 5);
    packed->bytes = payload->data + FIELDS_SIZE;
    packed->len = payload->len - FIELDS_SIZE;
    packed->unsealed = NULL;
    if ((packed->flags & ~(unsigned)KNOWN_FLAGS) != 0) {
        return ONCE_E_NEWER;
    }
    if (((packed->flags & SEALED) != 0) != (packed->key_id != 0) || packed->plain_len < PLAIN_MIN ||
        packed->plain_len > PLAIN_MAX) {
        return ONCE_E_CORRUPT;
    }
    return ONCE_OK;
}

/* Replaces the sealed bytes by what they hide. */
static int unseal(packed_t *packed, const once__payload_t *payload, const uint8_t *id,
                  const once__seal_keys_t *keys)
{
    uint8_t covered[COVERED_SIZE];
    once__sealing_t sealing = {
        .key = once__seal_keys_find(keys, packed->key_id),
        .record_id = id,
        .nonce = packed->bytes,
        .also = {covered, sizeof(covered)},
    };
    size_t len;
    int rc;

    if (packed->len <= SEAL_SIZE) {
        return ONCE_E_CORRUPT;
    }
    if (sealing.key == NULL) {
        return ONCE_E_SEALED;
    }
    len = packed->len - SEAL_SIZE;
    packed->unsealed = malloc(len);
    if (packed->unsealed == NULL) {
        return ONCE_E_NOMEM;
    }
    put_covered(covered, id, payload->status, payload->data);
    rc = once__unseal(&sealing, packed->unsealed, packed->bytes + ONCE__SEAL_NONCE_SIZE, len,
                      packed->bytes + ONCE__SEAL_NONCE_SIZE + len);
    packed->bytes = packed->unsealed;
    packed->len = len;
    return rc;
}

/* Takes a length and that many bytes off the front of `rest`. Returns 0, or -1 if `rest` is shorter. */
static int take_sized(once_slice_t *rest, once_slice_t *bytes)
{
    const uint8_t *data = rest->data;

    if (rest->len < 4 || once__get32(data) > rest->len - 4) {
        return -1;
    }
    *bytes = once__slice(data + 4, once__get32(data));
    *rest = once__slice(data + 4 + bytes->len, rest->len - 4 - bytes->len);
    return 0;
}

static int read_plain(once_response_t *response, once_header_t *headers, size_t room,
                      once_slice_t plain)
{
    const uint8_t *data = plain.data;
    once_slice_t rest = once__slice(data + PLAIN_MIN, plain.len - PLAIN_MIN);
    size_t count = once__get32(data), total = 0;

    if (count > room) {
        return ONCE_E_CORRUPT;
    }
    for (size_t i = 0; i < count; i++) {
        if (take_sized(&rest, &headers[i].name) != 0 || take_sized(&rest, &headers[i].value) != 0 ||
            !is_sound(&headers[i])) {
            return ONCE_E_CORRUPT;
        }
        total += headers[i].name.len + headers[i].value.len;
    }
    if (total > ONCE_HEADERS_MAX || rest.len > ONCE_BODY_STORE_MAX ||
        (response->body_omitted && rest.len > 0)) {
        return ONCE_E_CORRUPT;
    }
    response->headers = headers;
    response->header_count = count;
    response->body = rest;
    return ONCE_OK;
}

/* How many headers there may be: the plain form says so, and read_plain refuses more than that. */
static size_t header_room(const packed_t *packed)
{
    size_t room = (packed->plain_len - PLAIN_MIN) / HEADER_MIN;

    if (!(packed->flags & COMPRESSED) && once__get32(packed->bytes) < room) {
        room = once__get32(packed->bytes);
    }
    return room < ONCE_HEADER_COUNT_MAX ? room : ONCE_HEADER_COUNT_MAX;
}

/* Headers and body are in the plain form; only what is compressed gets memory for it. */
static int unpack_plain(packed_t *packed, once__zstd_t *zstd, once__unpacked_t *out)
{
    int compressed = (packed->flags & COMPRESSED) != 0;
    const uint8_t *plain = packed->bytes;
    once_header_t *headers;
    size_t room;
    int rc = ONCE_OK;

    if (compressed ? !once__zstd_holds(packed->bytes, packed->len, packed->plain_len)
                   : packed->len != packed->plain_len) {
        return ONCE_E_CORRUPT;
    }
    room = header_room(packed);
    headers = malloc((room + 1) * sizeof(*headers) + (compressed ? packed->plain_len : 0));
    if (headers == NULL) {
        return ONCE_E_NOMEM;
    }
    out->memory = headers;
    if (compressed) {
        uint8_t *unpacked = (uint8_t *)(headers + room + 1);
        rc = once__zstd_unpack(zstd, unpacked, packed->plain_len, packed->bytes, packed->len);
        plain = unpacked;
    } else {
        out->unsealed = packed->unsealed;
        packed->unsealed = NULL;
    }
    out->in_place = !compressed && out->unsealed == NULL;
    if (rc == ONCE_OK) {
        rc = read_plain(&out->response, headers, room, once__slice(plain, packed->plain_len));
    }
    return rc;
}

int once__response_unpack(const once__payload_t *payload, const uint8_t id[ONCE_ID_SIZE],
                          const once__seal_keys_t *seal, once__zstd_t *zstd, once__unpacked_t *out)
{
    packed_t packed;
    int rc = read_fields(&packed, payload);

    memset(out, 0, sizeof(*out));
    if (rc != ONCE_OK) {
        return rc;
    }
    out->response.size = sizeof(out->response);
    out->response.status = payload->status;
    out->response.body_omitted = (packed.flags & BODY_OMITTED) != 0;
    if (packed.flags & SEALED) {
        rc = unseal(&packed, payload, id, seal);
    } else if (seal != NULL && seal->count > 0 && !seal->plain_too) {
        rc = ONCE_E_UNSEALED; /* anyone who can write to the store could have put it there */
    }
    if (rc == ONCE_OK) {
        rc = unpack_plain(&packed, zstd, out);
    }
    free(packed.unsealed);
    if (rc != ONCE_OK) {
        once__unpacked_free(out);
    }
    return rc;
}

void once__unpacked_free(once__unpacked_t *unpacked)
{
    free(unpacked->memory);
    free(unpacked->unsealed);
    memset(unpacked, 0, sizeof(*unpacked));
}
