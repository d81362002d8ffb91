/*
 * Three things to do with the bytes, by the first one: unpack them as a payload; wrap them as the plain form of one and
 * unpack that; build a response from them, pack and unpack it, and change a bit of it. Nothing may ask for more memory than
 * the largest payload needs.
 */
#include <stdlib.h>
#include <string.h>

#include <sanitizer/allocator_interface.h>

#include "base/bytes.h"
#include "core/codec.h"
#include "core/response.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint8_t id[ONCE_ID_SIZE] = {1, 2, 3};
static once__seal_keys_t keys;
static once__zstd_t zstd;

static void check(int holds)
{
    if (!holds) {
        abort();
    }
}

static void on_malloc(const volatile void *memory, size_t size)
{
    check(size <= ONCE__PAYLOAD_MAX + ONCE_HEADER_COUNT_MAX * sizeof(once_header_t));
}

static void on_free(const volatile void *memory)
{
}

static void set_up(void)
{
    static const char text[] =
        "1 0101010101010101010101010101010101010101010101010101010101010101\n"
        "2 0202020202020202020202020202020202020202020202020202020202020202\n";

    check(once__seal_keys_parse(&keys, text, strlen(text), NULL) == ONCE_OK);
    keys.plain_too = 1;
    __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
}

/* Touches every byte that the response points to. */
static void read_all(const once_response_t *response)
{
    size_t total = response->body.len;
    uint8_t sum = 0;

    for (size_t i = 0; i < response->header_count; i++) {
        const uint8_t *name = response->headers[i].name.data;
        const uint8_t *value = response->headers[i].value.data;
        check(response->headers[i].name.len > 0);
        for (size_t j = 0; j < response->headers[i].name.len; j++) {
            sum ^= name[j];
        }
        for (size_t j = 0; j < response->headers[i].value.len; j++) {
            sum ^= value[j];
        }
        total += response->headers[i].name.len + response->headers[i].value.len;
    }
    for (size_t j = 0; j < response->body.len; j++) {
        sum ^= ((const uint8_t *)response->body.data)[j];
    }
    check(total <= ONCE_BODY_STORE_MAX + ONCE_HEADERS_MAX && sum <= UINT8_MAX);
}

static void unpack(const uint8_t *data, size_t size, uint16_t status)
{
    once__payload_t payload = {ONCE__PAYLOAD_RESPONSE, status, data, size};
    once__unpacked_t out;

    if (once__response_unpack(&payload, id, &keys, &zstd, &out) == ONCE_OK) {
        check(out.response.status == status);
        read_all(&out.response);
    }
    once__unpacked_free(&out);
}

/* The bytes as a plain form, compressed when asked: behind the wrapping that random bytes hardly ever have. */
static void unpack_plain(const uint8_t *data, size_t size, int compressed)
{
    uint8_t *payload = malloc(9 + size + 1);
    size_t len = size;

    check(payload != NULL);
    memset(payload, 0, 9);
    payload[0] = (uint8_t)compressed;
    once__put32(payload + 5, (uint32_t)size);
    if (compressed) {
        len = once__zstd_pack(&zstd, payload + 9, size, data, size);
    } else {
        memcpy(payload + 9, data, size);
    }
    unpack(payload, 9 + len, 200);
    free(payload);
}

static int same(once_slice_t a, once_slice_t b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

static void check_same(const once_response_t *a, const once_response_t *b)
{
    check(a->status == b->status && a->body_omitted == b->body_omitted);
    check(same(a->body, b->body) && a->header_count == b->header_count);
    for (size_t i = 0; i < a->header_count; i++) {
        check(same(a->headers[i].name, b->headers[i].name));
        check(same(a->headers[i].value, b->headers[i].value));
    }
}

/* Takes a length byte and that many bytes, or what is left. */
static once_slice_t take(once_slice_t *rest)
{
    const uint8_t *data = rest->data;
    size_t len = rest->len > 0 ? data[0] : 0;
    once_slice_t bytes;

    if (rest->len == 0) {
        return *rest;
    }
    len = len < rest->len - 1 ? len : rest->len - 1;
    bytes = once__slice(data + 1, len);
    *rest = once__slice(data + 1 + len, rest->len - 1 - len);
    return bytes;
}

static void build(const uint8_t *data, size_t size, once_response_t *response,
                  once_header_t *headers)
{
    once_slice_t rest = once__slice(data + 4, size - 4);

    response->status = data[1] * 4;
    response->header_count = data[2] % 8;
    response->body_omitted = data[3] >> 7;
    response->headers = headers;
    for (size_t i = 0; i < response->header_count; i++) {
        headers[i].name = take(&rest);
        headers[i].value = take(&rest);
    }
    response->body = rest;
}

static void round_trip(const uint8_t *data, size_t size)
{
    once_response_t response = ONCE_RESPONSE_INIT;
    once_header_t headers[8];
    once__packing_t packing = {.zstd = &zstd, .nonce = {data[3]}};
    once__payload_t payload = {.kind = ONCE__PAYLOAD_RESPONSE};
    once__unpacked_t out;
    uint8_t *packed;
    size_t len;

    build(data, size, &response, headers);
    packing.seal = data[3] & 1 ? &keys : NULL;
    packing.compress_from = data[3] & 2 ? 0 : UINT64_MAX;
    if (once__response_pack(&response, id, &packing, &packed, &len) != ONCE_OK) {
        check(packed == NULL);
        return;
    }
    payload.status = (uint16_t)response.status;
    payload.data = packed;
    payload.len = len;
    check(once__response_unpack(&payload, id, &keys, NULL, &out) == ONCE_OK);
    check_same(&response, &out.response);
    once__unpacked_free(&out);
    keys.plain_too = 0; /* where everything is sealed, what is not is refused */
    check(once__response_unpack(&payload, id, &keys, NULL, &out) ==
          (packing.seal != NULL ? ONCE_OK : ONCE_E_UNSEALED));
    once__unpacked_free(&out);
    keys.plain_too = 1;

    packed[size % len] ^= (uint8_t)(1 << data[3] % 8);
    if (once__response_unpack(&payload, id, &keys, &zstd, &out) == ONCE_OK) {
        check(packing.seal == NULL); /* what is sealed does not change unseen */
        read_all(&out.response);
        once__unpacked_free(&out);
    }
    free(packed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (keys.count == 0) {
        set_up();
    }
    if (size < 4) {
        return 0;
    }
    switch (data[0] % 4) {
    case 0:
        unpack(data + 2, size - 2, (uint16_t)(data[1] * 4));
        break;
    case 1:
        unpack_plain(data + 1, size - 1, 0);
        break;
    case 2:
        unpack_plain(data + 1, size - 1, 1);
        break;
    default:
        round_trip(data, size);
    }
    return 0;
}
