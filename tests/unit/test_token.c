#include "support/testing.h"

#include <string.h>

#include "core/token.h"

#define TOKEN "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8EAwIBoKGio6SlpqeoqaqrrK2urw"

static void make(uint8_t id[ONCE_ID_SIZE], once__claim_ref_t *claim)
{
    for (size_t i = 0; i < ONCE_ID_SIZE; i++) {
        id[i] = (uint8_t)i;
    }
    for (size_t i = 0; i < ONCE_CLAIM_ID_SIZE; i++) {
        claim->id[i] = (uint8_t)(0xa0 + i);
    }
    claim->epoch = 0x01020304;
}

/* SQL functions take this text: its form is part of the contract. */
static void a_claim_as_text(void **state)
{
    char text[ONCE_TOKEN_SIZE];
    uint8_t id[ONCE_ID_SIZE];
    once__claim_ref_t claim;

    make(id, &claim);
    memset(text, 'x', sizeof(text));
    once__token_write(text, id, &claim);
    assert_string_equal(text, TOKEN);
}

static void and_back(void **state)
{
    uint8_t id[ONCE_ID_SIZE], read_id[ONCE_ID_SIZE];
    once__claim_ref_t claim, read;

    make(id, &claim);
    assert_int_equal(once__token_read(TOKEN, read_id, &read), 0);
    assert_memory_equal(read_id, id, sizeof(id));
    assert_int_equal(read.epoch, claim.epoch);
    assert_memory_equal(read.id, claim.id, sizeof(claim.id));
}

static void nothing_else_is_a_claim(void **state)
{
    static const char *const texts[] = {
        "",
        " ",
        "A",
        TOKEN "A",
        TOKEN "=",
        TOKEN " ",
        " " TOKEN,
        "\"" TOKEN "\"",
        "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8EAwIBoKGio6SlpqeoqaqrrK2ur",  /* cut */
        "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8EAwIBoKGio6SlpqeoqaqrrK2urx", /* spare bits */
        "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8EAwIBoKGio6Slpqeoqaqrr+2urw",
    };

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        uint8_t id[ONCE_ID_SIZE];
        once__claim_ref_t claim;
        assert_int_equal(once__token_read(texts[i], id, &claim), -1);
    }
}

/* Each character stands for something: any other one is another claim or none. */
static void every_character_counts(void **state)
{
    uint8_t id[ONCE_ID_SIZE], other_id[ONCE_ID_SIZE];
    once__claim_ref_t claim, other;
    char text[] = TOKEN;

    make(id, &claim);
    for (size_t i = 0; i < sizeof(text) - 1; i++) {
        char right = text[i];
        text[i] = right == 'Q' ? 'g' : 'Q';
        if (once__token_read(text, other_id, &other) == 0) {
            assert_true(memcmp(id, other_id, sizeof(id)) != 0 || claim.epoch != other.epoch ||
                        memcmp(claim.id, other.id, sizeof(claim.id)) != 0);
        }
        text[i] = right;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_claim_as_text),
        cmocka_unit_test(and_back),
        cmocka_unit_test(nothing_else_is_a_claim),
        cmocka_unit_test(every_character_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
