#include "support/testing.h"

#include <string.h>

#include <openssl/hmac.h>

#include "base/bytes.h"
#include "core/hmac.h"

static void assert_hex(const uint8_t *bytes, const char *expected)
{
    char text[2 * ONCE__SHA256_SIZE + 1];
    once__hex(text, bytes, ONCE__SHA256_SIZE);
    assert_string_equal(text, expected);
}

static void sha256_of(const char *data, size_t len, uint8_t out[ONCE__SHA256_SIZE])
{
    once__sha256_t ctx;

    once__sha256_init(&ctx);
    once__sha256_add(&ctx, data, len);
    once__sha256_end(&ctx, out);
}

/* FIPS 180-4 examples. */
static void sha256_known_answers(void **state)
{
    uint8_t out[ONCE__SHA256_SIZE];

    sha256_of("", 0, out);
    assert_hex(out, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    sha256_of(NULL, 0, out);
    assert_hex(out, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    sha256_of("abc", 3, out);
    assert_hex(out, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    sha256_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56, out);
    assert_hex(out, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

/* RFC 4231, test cases 1 to 4, 6 and 7: short, odd and long keys. */
static void hmac_known_answers(void **state)
{
    static const struct {
        const char *key; /* or NULL: `fill`, `key_len` times */
        uint8_t fill;
        size_t key_len;
        const char *data; /* or NULL: `data_fill`, 50 times */
        uint8_t data_fill;
        const char *mac;
    } cases[] = {
        {NULL, 0x0b, 20, "Hi There", 0,
         "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
        {"Jefe", 0, 4, "what do ya want for nothing?", 0,
         "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
        {NULL, 0xaa, 20, NULL, 0xdd,
         "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"},
        {"\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10\x11\x12\x13\x14\x15\x16"
         "\x17\x18\x19",
         0, 25, NULL, 0xcd, "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b"},
        {NULL, 0xaa, 131, "Test Using Larger Than Block-Size Key - Hash Key First", 0,
         "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"},
        {NULL, 0xaa, 131,
         "This is a test using a larger than block-size key and a larger than block-size data. "
         "The key needs to be hashed before being used by the HMAC algorithm.",
         0, "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint8_t secret[131], data[200], out[ONCE__SHA256_SIZE];
        size_t len = cases[i].data != NULL ? strlen(cases[i].data) : 50;
        once__hmac_key_t key;
        once__hmac_t ctx;

        memset(secret, cases[i].fill, sizeof(secret));
        memset(data, cases[i].data_fill, sizeof(data));
        if (cases[i].key != NULL) {
            memcpy(secret, cases[i].key, cases[i].key_len);
        }
        if (cases[i].data != NULL) {
            memcpy(data, cases[i].data, len);
        }
        once__hmac_key_set(&key, secret, cases[i].key_len);
        for (size_t cut = 0; cut <= len;
             cut++) { /* wherever it is cut, and however often the key is used */
            once__hmac_init(&ctx, &key);
            once__hmac_add(&ctx, data, cut);
            once__hmac_add(&ctx, data + cut, len - cut);
            once__hmac_end(&ctx, out);
            assert_hex(out, cases[i].mac);
        }
    }
}

static void keys_of_every_length_are_as_libcrypto_has_them(void **state)
{
    uint8_t secret[200], expected[ONCE__SHA256_SIZE], out[ONCE__SHA256_SIZE];

    memset(secret, 0x5e, sizeof(secret));
    for (size_t len = 0; len <= sizeof(secret); len++) {
        once__hmac_key_t key;
        once__hmac_t ctx;

        assert_non_null(HMAC(EVP_sha256(), secret, (int)len, secret, 100, expected, NULL));
        once__hmac_key_set(&key, secret, len);
        once__hmac_init(&ctx, &key);
        once__hmac_add(&ctx, secret, 100);
        once__hmac_end(&ctx, out);
        assert_memory_equal(out, expected, sizeof(out));
    }
}

static void a_key_can_be_copied(void **state)
{
    uint8_t out[ONCE__SHA256_SIZE];
    once__hmac_key_t key, copy;
    once__hmac_t ctx;

    once__hmac_key_set(&key, (const uint8_t *)"Jefe", 4);
    copy = key;
    memset(&key, 0, sizeof(key));
    once__hmac_init(&ctx, &copy);
    once__hmac_add(&ctx, "what do ya want for nothing?", 28);
    once__hmac_end(&ctx, out);
    assert_hex(out, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

static void a_part_is_its_length_and_its_bytes(void **state)
{
    uint8_t parts[ONCE__SHA256_SIZE], bytes[ONCE__SHA256_SIZE];
    once__hmac_key_t key;
    once__hmac_t ctx;

    once__hmac_key_set(&key, (const uint8_t *)"k", 1);
    once__hmac_init(&ctx, &key);
    once__hmac_add_part(&ctx, once__slice("abc", 3));
    once__hmac_add_part(&ctx, once__slice(NULL, 0));
    once__hmac_end(&ctx, parts);
    once__hmac_init(&ctx, &key);
    once__hmac_add(&ctx, "\x03\0\0\0\0\0\0\0abc\0\0\0\0\0\0\0\0", 19);
    once__hmac_end(&ctx, bytes);
    assert_memory_equal(parts, bytes, sizeof(parts));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sha256_known_answers),
        cmocka_unit_test(hmac_known_answers),
        cmocka_unit_test(keys_of_every_length_are_as_libcrypto_has_them),
        cmocka_unit_test(a_key_can_be_copied),
        cmocka_unit_test(a_part_is_its_length_and_its_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
