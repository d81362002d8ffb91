/*
 * The parts that decision pages give figures of (docs/decisions: hmac, json-canonical, response-packing): CPU time of one call,
 * best of several rounds. Nothing is required of them: what matters is how the rows compare on one machine.
 */
#include "bench.h"

#include <assert.h>
#include <jansson.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/params.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "core/json.h"
#include "core/response.h"

#define ROUNDS 7

static const uint8_t secret[32] = "a secret of an installation";
static uint8_t message[1024];
static volatile unsigned sink; /* what is computed is used */

/* ------------------------------------------------------------------------------------------------------------- hmac */

static once__hmac_key_t keyed;
static EVP_MAC_CTX *kept;

static void hmac_ours(size_t len)
{
    uint8_t out[ONCE__SHA256_SIZE];
    once__hmac_t hmac;

    once__hmac_init(&hmac, &keyed);
    once__hmac_add(&hmac, message, len);
    once__hmac_end(&hmac, out);
    sink += out[0];
}

static void hmac_kept(size_t len)
{
    uint8_t out[ONCE__SHA256_SIZE];
    size_t size;
    int ok = EVP_MAC_init(kept, NULL, 0, NULL) && EVP_MAC_update(kept, message, len) &&
             EVP_MAC_final(kept, out, &size, sizeof(out));

    assert(ok);
    sink += out[0] + (unsigned)ok;
}

static void hmac_plain(size_t len)
{
    uint8_t out[ONCE__SHA256_SIZE];

    (void)HMAC(EVP_sha256(), secret, sizeof(secret), message, len, out, NULL);
    sink += out[0];
}

/* Nanoseconds of a call. */
static double time_hmac(void (*call)(size_t), size_t len)
{
    enum { CALLS = 50000 };
    double best = 0;

    for (int round = 0; round < ROUNDS; round++) {
        double start = bench_cpu();
        for (int i = 0; i < CALLS; i++) {
            call(len);
        }
        bench_keep_best(&best, (bench_cpu() - start) / CALLS * 1e9);
    }
    return best;
}

static void show_hmac(const char *name, void (*call)(size_t))
{
    (void)printf("  %-52s %6.0f ns %6.0f ns\n", name, time_hmac(call, 64), time_hmac(call, 1024));
}

static void bench_hmac(void)
{
    char digest[] = "SHA256";
    OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string("digest", digest, 0),
                           OSSL_PARAM_construct_end()};
    EVP_MAC *mac = EVP_MAC_fetch(NULL, "HMAC", NULL);
    int ok;

    once__hmac_key_set(&keyed, secret, sizeof(secret));
    kept = EVP_MAC_CTX_new(mac);
    ok = EVP_MAC_init(kept, secret, sizeof(secret), params);
    assert(ok);
    sink += (unsigned)ok;
    (void)printf("HMAC-SHA-256                                             64 bytes     1 KiB\n");
    show_hmac("low-level, keyed once", hmac_ours);
    show_hmac("EVP_MAC, kept context, EVP_MAC_init without a key", hmac_kept);
    show_hmac("HMAC()", hmac_plain);
    EVP_MAC_CTX_free(kept);
    EVP_MAC_free(mac);
}

/* ------------------------------------------------------------------------------------------------------------- JSON */

/* An order of this many bytes or a little less; the caller's. */
static char *make_order(size_t size, size_t *len)
{
    char *text = malloc(size + 256);
    unsigned line = 0;

    assert(text != NULL);
    *len = (size_t)snprintf(text, size + 256,
                            "{\"order\":{\"id\":\"ord_8f14e45f\",\"currency\":\"EUR\",\"lines\":[");
    while (*len + 180 < size || line == 0) {
        *len += (size_t)snprintf(
            text + *len, size + 256 - *len,
            "%s{\"sku\":\"SKU-%05u\",\"quantity\":%u,\"name\":\"Caf\xc3\xa9 cr\xc3\xa8me "
            "no. %u\",\"unit_price\":%u.%02u,\"tax\":{\"rate\":19,\"included\":true}}",
            line > 0 ? "," : "", line * 7919 % 100000, line % 9 + 1, line, line * 31 % 900,
            line % 100);
        line++;
    }
    *len += (size_t)snprintf(text + *len, size + 256 - *len, "]},\"customer\":\"c-1001\"}");
    return text;
}

static void canonical(const char *text, size_t len)
{
    char *out = NULL;
    size_t size;
    once__json_fault_t fault = once__json_canonical(once__slice(text, len), &out, &size);

    assert(fault == ONCE__JSON_FINE);
    sink += (unsigned)fault + (unsigned char)out[0];
    free(out);
}

static void with_jansson(const char *text, size_t len)
{
    json_t *document = json_loadb(text, len, 0, NULL);
    char *out = json_dumps(document, JSON_COMPACT | JSON_SORT_KEYS);

    assert(out != NULL);
    sink += (unsigned char)out[0];
    free(out);
    json_decref(document);
}

static void bare_hash(const char *text, size_t len)
{
    uint8_t out[ONCE__SHA256_SIZE];
    once__sha256_t hash;

    once__sha256_init(&hash);
    once__sha256_add(&hash, text, len);
    once__sha256_end(&hash, out);
    sink += out[0];
}

/* Microseconds of a call. */
static double time_json(void (*call)(const char *, size_t), const char *text, size_t len)
{
    unsigned calls = (unsigned)(4000000 / len) + 1;
    double best = 0;

    for (int round = 0; round < ROUNDS; round++) {
        double start = bench_cpu();
        for (unsigned i = 0; i < calls; i++) {
            call(text, len);
        }
        bench_keep_best(&best, (bench_cpu() - start) / calls * 1e6);
    }
    return best;
}

static void bench_json(void)
{
    static const size_t sizes[] = {1024, 64 * 1024, 1024 * 1024};

    (void)printf("canonical JSON                    ours        jansson      SHA-256 of it\n");
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        size_t len;
        char *text = make_order(sizes[i], &len);
        (void)printf("  %7zu bytes           %10.1f us %10.1f us %10.1f us\n", len,
                     time_json(canonical, text, len), time_json(with_jansson, text, len),
                     time_json(bare_hash, text, len));
        free(text);
    }
}

/* --------------------------------------------------------------------------------------------------------- packing */

typedef struct form {
    const char *name;
    int compressed, sealed;
    int kept; /* the contexts of zstd */
} form_t;

typedef struct work {
    const once_response_t *response;
    once__packing_t packing;
    once__seal_keys_t keys;
    size_t stored;
} work_t;

static void pack_once(work_t *work, int unpack)
{
    static const uint8_t id[ONCE_ID_SIZE] = {1};
    once__payload_t payload = {.kind = ONCE__PAYLOAD_RESPONSE, .status = 201};
    once__unpacked_t out = {0};
    uint8_t *data;
    int code = once__response_pack(work->response, id, &work->packing, &data, &work->stored);

    payload.data = data;
    payload.len = work->stored;
    if (code == ONCE_OK && unpack) {
        code = once__response_unpack(&payload, id, &work->keys, work->packing.zstd, &out);
    }
    assert(code == ONCE_OK);
    sink += (unsigned)code;
    once__unpacked_free(&out);
    free(data);
}

/* Microseconds of packing, or of packing and unpacking. */
static double time_pack(work_t *work, int unpack, unsigned calls)
{
    double start = bench_cpu();

    for (unsigned i = 0; i < calls; i++) {
        pack_once(work, unpack);
    }
    return (bench_cpu() - start) / calls * 1e6;
}

static void show_packing(const form_t *form, const once_response_t *response)
{
    unsigned calls = (unsigned)(4000000 / response->body.len) + 1;
    once__zstd_t zstd = {0};
    work_t work = {.response = response};
    double pack = 0, both = 0;

    work.keys.count = 1;
    work.keys.keys[0].id = 1;
    once__hmac_key_set(&work.keys.keys[0].key, secret, sizeof(secret));
    work.packing.seal = form->sealed ? &work.keys : NULL;
    work.packing.zstd = form->kept ? &zstd : NULL;
    work.packing.compress_from = form->compressed ? 0 : UINT64_MAX;
    for (int round = 0; round < 2 * ROUNDS; round++) { /* in turn: the processor's clock changes */
        bench_keep_best(&pack, time_pack(&work, 0, calls));
        bench_keep_best(&both, time_pack(&work, 1, calls));
    }
    (void)printf("  %7zu bytes  %-48s %7zu %8.2f us %8.2f us\n", response->body.len, form->name,
                 work.stored, pack, both - pack);
    once__zstd_end(&zstd);
}

static void bench_packing(void)
{
    static const form_t forms[] = {{"plain", 0, 0, 1},
                                   {"sealed", 0, 1, 1},
                                   {"compressed", 1, 0, 1},
                                   {"compressed, sealed", 1, 1, 1},
                                   {"compressed, sealed, contexts made for the call", 1, 1, 0}};
    static const size_t sizes[] = {512, 2048, 16384, 262144};
    static const once_header_t headers[] = {{{"Content-Type", 12}, {"application/json", 16}},
                                            {{"Location", 8}, {"/orders/8f14e45f", 16}},
                                            {{"Cache-Control", 13}, {"no-store", 8}},
                                            {{"ETag", 4}, {"\"33a64df5\"", 10}},
                                            {{"X-Request-Id", 12}, {"7b1c2d3e4f5a", 12}},
                                            {{"Vary", 4}, {"Accept", 6}}};

    (void)printf("stored responses of six headers                            stored        pack    "
                 "  unpack\n");
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        once_response_t response = ONCE_RESPONSE_INIT;
        size_t len;
        char *text = make_order(sizes[i], &len);
        response.status = 201;
        response.headers = headers;
        response.header_count = 6;
        response.body = once__slice(text, len);
        for (size_t j = 0; j < sizeof(forms) / sizeof(forms[0]); j++) {
            show_packing(&forms[j], &response);
        }
        free(text);
    }
}

int main(void)
{
    memset(message, 'x', sizeof(message));
    bench_hmac();
    bench_json();
    bench_packing();
    return 0;
}
