#include "core/sha256_many.h"

#include <string.h>

#include "base/bytes.h"

#define BLOCK    64
#define TOGETHER 16

typedef void compress_fn(uint32_t *a, const uint8_t *block_a, uint32_t *b, const uint8_t *block_b);

/* ------------------------------------------------------------------------------------------------------- compressing */

static void by_libcrypto(uint32_t *state, const uint8_t *block)
{
    SHA256_CTX ctx;

    SHA256_Init(&ctx);
    memcpy(ctx.h, state, sizeof(ctx.h));
    SHA256_Transform(&ctx, block);
    memcpy(state, ctx.h, sizeof(ctx.h));
}

/* `b` NULL: only one. */
static void portable(uint32_t *a, const uint8_t *block_a, uint32_t *b, const uint8_t *block_b)
{
    by_libcrypto(a, block_a);
    if (b != NULL) {
        by_libcrypto(b, block_b);
    }
}

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

#define WITH_SHA __attribute__((target("sha,sse4.1,ssse3")))

static const uint32_t constants[64] __attribute__((aligned(16))) = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

/* The state as the instructions want it: the words a b e f, and c d g h. */
typedef struct lane {
    __m128i abef, cdgh;
    __m128i words[4]; /* the last 16 of the schedule */
} lane_t;

WITH_SHA static inline void load(lane_t *lane, const uint32_t *state, const uint8_t *block)
{
    const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    __m128i low = _mm_loadu_si128((const __m128i *)(const void *)state);
    __m128i high = _mm_loadu_si128((const __m128i *)(const void *)(state + 4));

    low = _mm_shuffle_epi32(low, 0xb1);
    high = _mm_shuffle_epi32(high, 0x1b);
    lane->abef = _mm_alignr_epi8(low, high, 8);
    lane->cdgh = _mm_blend_epi16(high, low, 0xf0);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        lane->words[i] = _mm_shuffle_epi8(
            _mm_loadu_si128((const __m128i *)(const void *)(block + 16 * i)), swap);
    }
}

/* Adds the result to the state. */
WITH_SHA static inline void store(const lane_t *lane, uint32_t *state)
{
    __m128i low = _mm_shuffle_epi32(lane->abef, 0x1b);
    __m128i high = _mm_shuffle_epi32(lane->cdgh, 0xb1);
    __m128i *out = (__m128i *)(void *)state;

    _mm_storeu_si128(out, _mm_add_epi32(_mm_loadu_si128(out), _mm_blend_epi16(low, high, 0xf0)));
    _mm_storeu_si128(out + 1,
                     _mm_add_epi32(_mm_loadu_si128(out + 1), _mm_alignr_epi8(high, low, 8)));
}

/* Of four rounds, which `at` counts from 0 to 15: the words that they need, and the constants added. */
WITH_SHA static inline __attribute__((always_inline)) __m128i next_words(lane_t *lane, int at)
{
    __m128i *w = lane->words;

    if (at >= 4) {
        __m128i next = _mm_add_epi32(_mm_sha256msg1_epu32(w[at % 4], w[(at + 1) % 4]),
                                     _mm_alignr_epi8(w[(at + 3) % 4], w[(at + 2) % 4], 4));
        w[at % 4] = _mm_sha256msg2_epu32(next, w[(at + 3) % 4]);
    }
    return _mm_add_epi32(w[at % 4],
                         _mm_load_si128((const __m128i *)(const void *)(constants + 4 * at)));
}

WITH_SHA static inline __attribute__((always_inline)) void two_rounds(lane_t *lane, __m128i words)
{
    __m128i before = lane->abef;

    lane->abef = _mm_sha256rnds2_epu32(lane->cdgh, lane->abef, words);
    lane->cdgh = before;
}

WITH_SHA static void one_by_instruction(uint32_t *state, const uint8_t *block)
{
    lane_t lane;

    load(&lane, state, block);
#pragma GCC unroll 16
    for (int at = 0; at < 16; at++) {
        __m128i words = next_words(&lane, at);
        two_rounds(&lane, words);
        two_rounds(&lane, _mm_shuffle_epi32(words, 0x0e));
    }
    store(&lane, state);
}

/* Keeps the compiler from grouping the instructions of a lane: interleaved, the lanes hide each other's latency. */
#define SIDE_BY_SIDE(a, b) __asm__("" : "+x"(a), "+x"(b))

WITH_SHA static void two_by_instruction(uint32_t *a, const uint8_t *block_a, uint32_t *b,
                                        const uint8_t *block_b)
{
    lane_t one, two;

    load(&one, a, block_a);
    load(&two, b, block_b);
#pragma GCC unroll 16
    for (int at = 0; at < 16; at++) {
        __m128i words_one = next_words(&one, at), words_two = next_words(&two, at);
        SIDE_BY_SIDE(words_one, words_two);
        two_rounds(&one, words_one);
        two_rounds(&two, words_two);
        SIDE_BY_SIDE(one.abef, two.abef);
        two_rounds(&one, _mm_shuffle_epi32(words_one, 0x0e));
        two_rounds(&two, _mm_shuffle_epi32(words_two, 0x0e));
        SIDE_BY_SIDE(one.abef, two.abef);
    }
    store(&one, a);
    store(&two, b);
}

static void by_instruction(uint32_t *a, const uint8_t *block_a, uint32_t *b, const uint8_t *block_b)
{
    if (b == NULL) {
        one_by_instruction(a, block_a);
    } else {
        two_by_instruction(a, block_a, b, block_b);
    }
}
#endif

static compress_fn *chosen; /* NULL: not chosen yet. Every thread chooses the same */

static compress_fn *detect(void)
{
#if defined(__x86_64__)
    unsigned eax, ebx, ecx, edx;

    if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (ebx >> 29 & 1) &&
        __builtin_cpu_supports("ssse3") && __builtin_cpu_supports("sse4.1")) {
        return by_instruction;
    }
#endif
    return portable;
}

static compress_fn *best(void)
{
    compress_fn *found = __atomic_load_n(&chosen, __ATOMIC_RELAXED);

    if (found == NULL) {
        found = detect();
        __atomic_store_n(&chosen, found, __ATOMIC_RELAXED);
    }
    return found;
}

void once__sha256_many_portable(int only_portable)
{
    __atomic_store_n(&chosen, only_portable ? portable : detect(), __ATOMIC_RELAXED);
}

/* ---------------------------------------------------------------------------------------------------------- messages */

/* Blocks that follow each other in up to two pieces of memory, and the state that they are added to. */
typedef struct chain {
    uint32_t state[8];
    const uint8_t *first, *second;
    size_t first_blocks, blocks; /* of the first piece; of both */
} chain_t;

static const uint8_t *block_of(const chain_t *chain, size_t number)
{
    return number < chain->first_blocks ? chain->first + number * BLOCK
                                        : chain->second + (number - chain->first_blocks) * BLOCK;
}

static void hash_one(compress_fn *compress, chain_t *chain, size_t from)
{
    for (size_t i = from; i < chain->blocks; i++) {
        compress(chain->state, block_of(chain, i), NULL, NULL);
    }
}

static void hash_chains(chain_t *chains, size_t count)
{
    compress_fn *compress = best();
    size_t i = 0;

    for (; i + 1 < count; i += 2) {
        chain_t *a = &chains[i], *b = &chains[i + 1];
        size_t at = 0;
        for (; at < a->blocks && at < b->blocks; at++) {
            compress(a->state, block_of(a, at), b->state, block_of(b, at));
        }
        hash_one(compress, a, at);
        hash_one(compress, b, at);
    }
    if (i < count) {
        hash_one(compress, &chains[i], 0);
    }
}

static void put_big32(uint8_t *out, uint32_t value)
{
    const uint8_t bytes[4] = {(uint8_t)(value >> 24), (uint8_t)(value >> 16), (uint8_t)(value >> 8),
                              (uint8_t)value};

    memcpy(out, bytes, 4);
}

/* What follows the last bytes of a message of `total` bytes. `end` has room for two blocks behind them. Returns the blocks. */
static size_t pad(uint8_t *end, size_t left, uint64_t total)
{
    static const uint8_t zeros[BLOCK + 8];
    size_t size = left + 9 > BLOCK ? 2 * BLOCK : BLOCK;

    memcpy(end + left, zeros, sizeof(zeros)); /* faster than memset, which would be a call */
    end[left] = 0x80;
    put_big32(end + size - 8, (uint32_t)(total >> 29));
    put_big32(end + size - 4, (uint32_t)(total << 3));
    return size / BLOCK;
}

static void put_sum(const uint32_t state[8], uint8_t *out)
{
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; i++) {
        put_big32(out + 4 * i, state[i]);
    }
}

static void sum_some(const once_slice_t *messages, size_t count, uint8_t (*sums)[ONCE__SHA256_SIZE])
{
    static const uint32_t first[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    uint8_t ends[TOGETHER][3 * BLOCK];
    chain_t chains[TOGETHER];

    for (size_t i = 0; i < count; i++) {
        chain_t *chain = &chains[i];
        size_t len = messages[i].len, left = len % BLOCK;
        memcpy(chain->state, first, sizeof(first));
        chain->first = messages[i].data;
        chain->first_blocks = len / BLOCK;
        chain->second = ends[i];
        if (left > 0) {
            memcpy(ends[i], chain->first + len - left, left);
        }
        chain->blocks = chain->first_blocks + pad(ends[i], left, len);
    }
    hash_chains(chains, count);
    for (size_t i = 0; i < count; i++) {
        put_sum(chains[i].state, sums[i]);
    }
}

void once__sha256_many(const once_slice_t *messages, size_t count,
                       uint8_t (*sums)[ONCE__SHA256_SIZE])
{
    for (size_t i = 0; i < count; i += TOGETHER) {
        sum_some(messages + i, count - i < TOGETHER ? count - i : TOGETHER, sums + i);
    }
}

/* ------------------------------------------------------------------------------------------------------------- HMACs */

static void chain_of(chain_t *chain, const uint32_t *state, const uint8_t *bytes, size_t blocks)
{
    memcpy(chain->state, state, sizeof(chain->state));
    chain->first = bytes;
    chain->first_blocks = chain->blocks = blocks;
}

/* The text after its first block, if that equals the previous text's first block: its state is already known. */
static void begin_inner(chain_t *chain, once__text_t *text, const once__text_t *before,
                        const uint32_t *inner, uint32_t *shared)
{
    size_t whole = text->len / BLOCK;
    size_t blocks = whole + pad(text->bytes + whole * BLOCK, text->len % BLOCK, BLOCK + text->len);

    if (blocks == 1) {
        chain_of(chain, inner, text->bytes, 1);
        return;
    }
    if (before == NULL || before->len < BLOCK || memcmp(before->bytes, text->bytes, BLOCK) != 0) {
        memcpy(shared, inner, sizeof(chain->state));
        best()(shared, text->bytes, NULL, NULL);
    }
    chain_of(chain, shared, text->bytes + BLOCK, blocks - 1);
}

static void hmac_some(const once__hmac_key_t *key, once__text_t *texts, size_t count)
{
    /* Behind the inner sum, of which the outer one is made, with a block of the key before it. */
    static const uint8_t padding[BLOCK - ONCE__SHA256_SIZE] = {
        0x80, [sizeof(padding) - 2] = (BLOCK + ONCE__SHA256_SIZE) * 8 >> 8};
    uint8_t outer[TOGETHER][BLOCK];
    chain_t chains[TOGETHER];
    uint32_t shared[8];

    for (size_t i = 0; i < count; i++) {
        begin_inner(&chains[i], &texts[i], i > 0 ? &texts[i - 1] : NULL, key->inner.h, shared);
    }
    hash_chains(chains, count);
    for (size_t i = 0; i < count; i++) {
        put_sum(chains[i].state, outer[i]);
        memcpy(outer[i] + ONCE__SHA256_SIZE, padding, sizeof(padding));
        chain_of(&chains[i], key->outer.h, outer[i], 1);
    }
    hash_chains(chains, count);
    for (size_t i = 0; i < count; i++) {
        put_sum(chains[i].state, texts[i].out);
    }
}

void once__hmac_many(const once__hmac_key_t *key, once__text_t *texts, size_t count)
{
    for (size_t i = 0; i < count; i += TOGETHER) {
        hmac_some(key, texts + i, count - i < TOGETHER ? count - i : TOGETHER);
    }
}
