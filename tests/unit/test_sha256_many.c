/*
 * Many sums at a time are the same as those one by one, with and without the processor's instructions.
 */
#include "support/testing.h"

#include <string.h>

#include "core/sha256_many.h"

#define MESSAGES 37
#define SIZE     512

static uint8_t data[MESSAGES][SIZE];

static int fill(void **state)
{
    uint32_t value = 1;

    for (size_t i = 0; i < sizeof(data); i++) {
        value = value * 1664525 + 1013904223;
        ((uint8_t *)data)[i] = (uint8_t)(value >> 24);
    }
    return 0;
}

static void sum_one(const uint8_t *bytes, size_t len, uint8_t *out)
{
    once__sha256_t ctx;

    once__sha256_init(&ctx);
    once__sha256_add(&ctx, bytes, len);
    once__sha256_end(&ctx, out);
}

static void compare_sums(size_t count, size_t step)
{
    uint8_t sums[MESSAGES][ONCE__SHA256_SIZE], sum[ONCE__SHA256_SIZE];
    once_slice_t messages[MESSAGES];

    for (size_t len = 0; len < SIZE; len++) {
        for (size_t i = 0; i < count; i++) {
            messages[i] = (once_slice_t){data[i], (len + i * step) % SIZE};
        }
        once__sha256_many(messages, count, sums);
        for (size_t i = 0; i < count; i++) {
            sum_one(data[i], messages[i].len, sum);
            assert_memory_equal(sums[i], sum, sizeof(sum));
        }
    }
}

static void sums_are_those_of_each_alone(void **state)
{
    for (int portable = 0; portable < 2; portable++) {
        once__sha256_many_portable(portable);
        compare_sums(1, 0);
        compare_sums(2, 1);
        compare_sums(MESSAGES, 0);
        compare_sums(MESSAGES, 61);
    }
    once__sha256_many_portable(0);
}

static void compare_macs(const once__hmac_key_t *key, size_t len, size_t alike)
{
    uint8_t macs[MESSAGES][ONCE__SHA256_SIZE], mac[ONCE__SHA256_SIZE];
    once__text_t texts[MESSAGES];
    once__hmac_t ctx;

    for (size_t i = 0; i < MESSAGES; i++) {
        texts[i].len = (len + i / 5) % (ONCE__TEXT_MAX + 1);
        memset(texts[i].bytes, 0xee, sizeof(texts[i].bytes));
        memcpy(texts[i].bytes, data[i / alike], texts[i].len);
        texts[i].out = macs[i];
    }
    once__hmac_many(key, texts, MESSAGES);
    for (size_t i = 0; i < MESSAGES; i++) {
        once__hmac_init(&ctx, key);
        once__hmac_add(&ctx, data[i / alike], (len + i / 5) % (ONCE__TEXT_MAX + 1));
        once__hmac_end(&ctx, mac);
        assert_memory_equal(macs[i], mac, sizeof(mac));
    }
}

/* Texts that begin alike share their first block: also where one of them is too short to have one. */
static void macs_are_those_of_each_alone(void **state)
{
    once__hmac_key_t key;

    once__hmac_key_set(&key, data[7], 32);
    for (int portable = 0; portable < 2; portable++) {
        once__sha256_many_portable(portable);
        for (size_t len = 0; len <= ONCE__TEXT_MAX; len++) {
            compare_macs(&key, len, 1);
            compare_macs(&key, len, 3);
            compare_macs(&key, len, MESSAGES);
        }
    }
    once__sha256_many_portable(0);
}

/* A text whose first block is that of a shorter one with what that is padded with: it does not begin as the other ended. */
static void a_text_like_a_padded_one(void **state)
{
    uint8_t macs[2][ONCE__SHA256_SIZE], mac[ONCE__SHA256_SIZE];
    once__hmac_key_t key;
    once__hmac_t ctx;

    once__hmac_key_set(&key, (const uint8_t *)"a secret", 8);
    for (size_t len = 0; len < 56; len++) {
        once__text_t texts[2] = {{.len = len, .out = macs[0]}, {.len = 64, .out = macs[1]}};
        memcpy(texts[0].bytes, data[0], len);
        memcpy(texts[1].bytes, data[0], len);
        texts[1].bytes[len] = 0x80;
        texts[1].bytes[62] = (uint8_t)((64 + len) * 8 >> 8);
        texts[1].bytes[63] = (uint8_t)((64 + len) * 8);
        once__hmac_many(&key, texts, 2);
        for (size_t i = 0; i < 2; i++) {
            once__hmac_init(&ctx, &key);
            once__hmac_add(&ctx, texts[i].bytes, texts[i].len);
            once__hmac_end(&ctx, mac);
            assert_memory_equal(macs[i], mac, sizeof(mac));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_those_of_each_alone),
        cmocka_unit_test(macs_are_those_of_each_alone),
        cmocka_unit_test(a_text_like_a_padded_one),
    };

    return cmocka_run_group_tests(tests, fill, NULL);
}
