#include "store/postgres/packing.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/uuid.h"
#include "core/about.h"
#include "core/hmac.h"
#include "store/varint.h"

#define PACKED        0x80u /* in the first byte: which has the number of the dictionary besides */
#define PAYLOAD_LEAST 24    /* shorter ones are left as they are */
#define ABOUT_LEAST   16
#define PAUSE_LEAST   ((uint64_t)1024)
#define PAUSE_MOST    ((uint64_t)1 << 20)
#define EVERY         4u /* one of four is a sample */
#define REST          64 /* payloads, after the store refused a dictionary */
#define CHECK_SIZE    4  /* of the SHA-256 of what is packed */

static_assert(ONCE__ABOUT_MAX == 512, "about_bytes have room");

void once__postgres_packing_free(once__postgres_packing_t *packing)
{
    for (unsigned i = 0; i < ONCE__POSTGRES_DICTIONARIES; i++) {
        once__dictionary_close(packing->known[i].payload);
        once__dictionary_close(packing->known[i].about);
    }
    once__pieces_free(&packing->payloads);
    once__pieces_free(&packing->abouts);
    free(packing->proposal);
}

/* ----------------------------------------------------------------------------------------------------------- packing */

static once_slice_t slice(const void *data, size_t len)
{
    return (once_slice_t){data, len};
}

once_slice_t once__postgres_pack_key(once__postgres_packing_t *packing, once_slice_t key)
{
    packing->key_bytes[0] = 0;
    return once__uuid_read(packing->key_bytes + 1, key.data, key.len)
               ? slice(packing->key_bytes, ONCE__POSTGRES_SHORT_KEY)
               : key;
}

static void check_of(uint8_t out[CHECK_SIZE], const void *data, size_t len)
{
    uint8_t hash[ONCE__SHA256_SIZE];
    once__sha256_t ctx;

    once__sha256_init(&ctx);
    once__sha256_add(&ctx, data, len);
    once__sha256_end(&ctx, hash);
    memcpy(out, hash, CHECK_SIZE);
}

/* Number, check, length, steps; or what was given, if that is not longer. `out` has room for as much and 16 bytes. */
static once_slice_t pack(const once__dictionary_t *dictionary, unsigned number, uint8_t *out,
                         once_slice_t given)
{
    uint8_t *at = out;
    size_t len;

    if (dictionary == NULL) {
        return given;
    }
    *at++ = (uint8_t)(PACKED | number);
    check_of(at, given.data, given.len);
    at += CHECK_SIZE;
    at = once__put_varint(at, given.len);
    len = once__dictionary_pack(dictionary, at, (const uint8_t *)given.data, given.len);
    return len > 0 && (size_t)(at - out) + len < given.len ? slice(out, (size_t)(at - out) + len)
                                                           : given;
}

once_slice_t once__postgres_pack_about(once__postgres_packing_t *packing, once_slice_t about)
{
    if (about.len < ABOUT_LEAST || about.len > ONCE__ABOUT_MAX) {
        return about;
    }
    return pack(packing->known[packing->number].about, packing->number, packing->about_bytes,
                about);
}

/* A sample if it was stored. A request that was only asked about is not: a refused claim may name what was erased. */
void once__postgres_packing_granted(once__postgres_packing_t *packing, once_slice_t about)
{
    if (packing->is_sampling && about.len >= ABOUT_LEAST && about.len <= ONCE__ABOUT_MAX) {
        once__pieces_offer(&packing->abouts, about.data, about.len, EVERY);
    }
}

/* Samples are wanted if the dictionary, after some payloads, has not made half of them; each time after a longer pause. */
static void judge(once__postgres_packing_t *packing)
{
    if (packing->is_sampling || !packing->is_asked || packing->count < packing->pause) {
        return;
    }
    packing->is_sampling = packing->packed * 2 > packing->plain;
    packing->plain = packing->packed = packing->count = 0;
}

once_slice_t once__postgres_pack_payload(once__postgres_packing_t *packing,
                                         const once__payload_t *payload)
{
    once_slice_t given = slice(payload->data, payload->len), packed;

    /* What is compressed or sealed has nothing in common with anything. */
    if (payload->kind != ONCE__PAYLOAD_RESPONSE || payload->len < PAYLOAD_LEAST ||
        payload->len > ONCE__DICTIONARY_MOST || (payload->data[0] & 3) != 0) {
        return given;
    }
    packed = pack(packing->known[packing->number].payload, packing->number, packing->bytes, given);
    if (packing->is_sampling) {
        once__pieces_offer(&packing->payloads, payload->data, payload->len, EVERY);
    }
    packing->plain += given.len;
    packing->packed += packed.len;
    packing->count++;
    packing->rest -= packing->rest > 0;
    judge(packing);
    return packed;
}

/* --------------------------------------------------------------------------------------------------------- unpacking */

static int unpack(const once__dictionary_t *dictionary, uint8_t *out, size_t most,
                  once_slice_t *bytes)
{
    const uint8_t *check = (const uint8_t *)bytes->data + 1, *end = check - 1 + bytes->len;
    once__input_t input = {check + CHECK_SIZE, end, 0};
    uint8_t found[CHECK_SIZE];
    size_t len;

    if (dictionary == NULL || bytes->len <= 1 + CHECK_SIZE) {
        return ONCE_E_CORRUPT;
    }
    len = (size_t)once__get_varint(&input, most);
    if (input.is_broken || once__dictionary_unpack(dictionary, out, len, input.at,
                                                   (size_t)(input.end - input.at)) != 0) {
        return ONCE_E_CORRUPT;
    }
    check_of(found, out, len);
    if (memcmp(found, check, CHECK_SIZE) != 0) {
        return ONCE_E_CORRUPT; /* packed with another dictionary of this number */
    }
    *bytes = slice(out, len);
    return ONCE_OK;
}

/* The number of the dictionary; 0: it is not packed. */
static unsigned number_of(const void *data, size_t len)
{
    const uint8_t *bytes = data;

    return len > 0 && (bytes[0] & PACKED) != 0 ? bytes[0] & ~PACKED : 0;
}

int once__postgres_unpack(once__postgres_packing_t *packing, once__record_t *record)
{
    once__payload_t *payload = &record->payload;
    unsigned number = number_of(record->about.data, record->about.len);
    once_slice_t bytes = slice(payload->data, payload->len);
    int code = ONCE_OK;

    if (record->key_len == ONCE__POSTGRES_SHORT_KEY && record->key[0] == '\0') {
        once__uuid_text((char *)packing->key_bytes, (const uint8_t *)record->key + 1);
        record->key = (const char *)packing->key_bytes;
        record->key_len = ONCE_UUID_SIZE - 1;
    }
    if (number != 0 && unpack(packing->known[number].about, packing->about_bytes, ONCE__ABOUT_MAX,
                              &record->about) != ONCE_OK) {
        record->about = slice(NULL, 0); /* a description must not cost a response */
    }
    number = payload->kind == ONCE__PAYLOAD_RESPONSE ? number_of(payload->data, payload->len) : 0;
    if (number != 0) {
        code =
            unpack(packing->known[number].payload, packing->bytes, ONCE__DICTIONARY_MOST, &bytes);
        payload->data = (const uint8_t *)bytes.data;
        payload->len = bytes.len;
    }
    return code;
}

/* ---------------------------------------------------------------------------------------------------------- learning */

static void asked(once__op_t *op)
{
    once__postgres_packing_t *packing = ONCE__CONTAINER(op, once__postgres_packing_t, op);

    packing->is_asking = 0;
    packing->is_asked |= op->error == ONCE_OK;
    packing->is_refused |= op->error == ONCE_E_CONFIG;
    free(packing->proposal);
    packing->proposal = packing->about_proposal = NULL;
    packing->proposal_len = packing->about_proposal_len = 0;
}

static void stop_sampling(once__postgres_packing_t *packing)
{
    once__pieces_free(&packing->payloads);
    once__pieces_free(&packing->abouts);
    packing->plain = packing->packed = packing->count = 0;
    packing->is_sampling = 0;
}

static void propose(once__postgres_packing_t *packing)
{
    packing->proposal = malloc((size_t)2 * ONCE__DICTIONARY_MAX);
    if (packing->proposal != NULL) {
        packing->about_proposal = packing->proposal + ONCE__DICTIONARY_MAX;
        packing->proposal_len =
            once__pieces_take(&packing->payloads, packing->proposal, ONCE__DICTIONARY_MAX);
        packing->about_proposal_len =
            once__pieces_take(&packing->abouts, packing->about_proposal, ONCE__DICTIONARY_MAX);
    }
    stop_sampling(packing);
    packing->pause = packing->pause < PAUSE_LEAST  ? PAUSE_LEAST
                     : packing->pause < PAUSE_MOST ? packing->pause * 2
                                                   : packing->pause;
}

/* A completion, or a scan that goes on: its first step has shown that this role may read responses. */
static int has_use(const once__op_t *op)
{
    static const uint8_t beginning[ONCE_ID_SIZE];

    return (op->kind == ONCE__OP_EVENT && op->payload.kind == ONCE__PAYLOAD_RESPONSE) ||
           (op->kind == ONCE__OP_SCAN && !op->bare &&
            memcmp(op->cursor.bytes, beginning, sizeof(beginning)) != 0);
}

once__op_t *once__postgres_packing_ask(once__postgres_packing_t *packing, const once__op_t *next)
{
    if (packing->is_asking || packing->is_refused || packing->rest > 0 || !has_use(next) ||
        (packing->is_asked && !once__pieces_enough(&packing->payloads))) {
        return NULL;
    }
    if (packing->is_asked) {
        propose(packing);
    }
    packing->is_asking = 1;
    memset(&packing->op, 0, sizeof(packing->op));
    packing->op.kind = ONCE__OP_STATS; /* it has a batch to itself; what it asks is its own */
    packing->op.done = asked;
    return &packing->op;
}

static once__dictionary_t *open_dictionary(once_slice_t bytes)
{
    return bytes.len > 0 && bytes.len <= ONCE__DICTIONARY_MAX
               ? once__dictionary_open((const uint8_t *)bytes.data, bytes.len, 1)
               : NULL;
}

static void close_dictionaries(once__postgres_packing_t *packing, unsigned number)
{
    once__dictionary_close(packing->known[number].payload);
    once__dictionary_close(packing->known[number].about);
    packing->known[number].payload = packing->known[number].about = NULL;
}

void once__postgres_packing_learn(once__postgres_packing_t *packing, once_slice_t name,
                                  once_slice_t payload, once_slice_t about)
{
    unsigned number = name.len == sizeof(packing->name) ? ((const uint8_t *)name.data)[0] : 0;

    if (number <= packing->number || number >= ONCE__POSTGRES_DICTIONARIES) {
        return;
    }
    close_dictionaries(packing,
                       number); /* it may have been forgotten, and have other content now */
    packing->known[number].payload = open_dictionary(payload);
    packing->known[number].about = open_dictionary(about);
    if ((payload.len > 0 && packing->known[number].payload == NULL) ||
        (about.len > 0 && packing->known[number].about == NULL)) {
        close_dictionaries(packing, number);
        return; /* memory is short: the one before goes on */
    }
    packing->number = number;
    memcpy(packing->name, name.data, name.len);
    packing->name_len = name.len;
    packing->pause = PAUSE_LEAST;
    stop_sampling(packing);
}

void once__postgres_packing_forget(once__postgres_packing_t *packing)
{
    packing->number = 0;
    packing->name_len = 0;
    packing->is_asked = 0;
    packing->rest = REST;
    packing->pause = 0;
    stop_sampling(packing);
}
