#include "support/testing.h"

#include <stdlib.h>
#include <string.h>

#include "store/crc32c.h"

typedef uint32_t (*crc_t)(uint32_t crc, const void *data, size_t len);

static const crc_t both[] = {once__crc32c, once__crc32c_portable};

/* What RFC 3720 (appendix B.4) gives, and the usual check value. */
static void test_known_values(void **state)
{
    uint8_t bytes[32];

    for (size_t i = 0; i < 2; i++) {
        crc_t crc = both[i];
        memset(bytes, 0, sizeof(bytes));
        assert_int_equal(crc(0, bytes, sizeof(bytes)), 0x8a9136aa);
        memset(bytes, 0xff, sizeof(bytes));
        assert_int_equal(crc(0, bytes, sizeof(bytes)), 0x62a8ab43);
        for (uint8_t n = 0; n < 32; n++) {
            bytes[n] = n;
        }
        assert_int_equal(crc(0, bytes, sizeof(bytes)), 0x46dd794e);
        for (uint8_t n = 0; n < 32; n++) {
            bytes[n] = (uint8_t)(31 - n);
        }
        assert_int_equal(crc(0, bytes, sizeof(bytes)), 0x113fdb5c);
        assert_int_equal(crc(0, "123456789", 9), 0xe3069283);
        assert_int_equal(crc(0, "", 0), 0);
    }
}

/* Every length and alignment, so that whole words and what is left of them are both tried. */
static void test_instruction_and_table_agree(void **state)
{
    uint8_t bytes[300];

    srand(1);
    for (size_t i = 0; i < sizeof(bytes); i++) {
        bytes[i] = (uint8_t)rand();
    }
    for (size_t from = 0; from < 9; from++) {
        for (size_t len = 0; from + len <= sizeof(bytes); len++) {
            assert_int_equal(once__crc32c(0, bytes + from, len),
                             once__crc32c_portable(0, bytes + from, len));
        }
    }
}

static void test_goes_on(void **state)
{
    const char *text = "a sum of parts is the sum of the whole";
    size_t len = strlen(text);

    for (size_t cut = 0; cut <= len; cut++) {
        uint32_t crc = once__crc32c(0, text, cut);
        assert_int_equal(once__crc32c(crc, text + cut, len - cut), once__crc32c(0, text, len));
        crc = once__crc32c_portable(0, text, cut);
        assert_int_equal(once__crc32c_portable(crc, text + cut, len - cut),
                         once__crc32c(0, text, len));
    }
}

static void test_every_bit_counts(void **state)
{
    uint8_t bytes[64] = {0};
    uint32_t crc = once__crc32c(0, bytes, sizeof(bytes));

    for (size_t bit = 0; bit < sizeof(bytes) * 8; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_not_equal(once__crc32c(0, bytes, sizeof(bytes)), crc);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_values),
        cmocka_unit_test(test_instruction_and_table_agree),
        cmocka_unit_test(test_goes_on),
        cmocka_unit_test(test_every_bit_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
