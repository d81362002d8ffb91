/*
 * A dictionary of what many responses have in common: it has that, and nothing that only some have.
 */
#include "support/testing.h"

#include <stdio.h>
#include <string.h>

#include "store/pieces.h"

static uint8_t dictionary[ONCE__DICTIONARY_MAX];

static int has(const uint8_t *bytes, size_t len, const char *text)
{
    return memmem(bytes, len, text, strlen(text)) != NULL;
}

/* Offers until there are enough; `rare` of the samples have a text of their own that no other has. */
static void offer_all(once__pieces_t *pieces, unsigned rare)
{
    char text[200];

    for (unsigned i = 0; !once__pieces_enough(pieces); i++) {
        unsigned taken = pieces->count;
        int len =
            snprintf(text, sizeof(text), "{\"object\":\"charge\",\"id\":\"%08x\",\"%s\":true}",
                     i * 2654435761u, taken < rare ? "rarely seen" : "paid");
        assert_true(i < 10000);
        once__pieces_offer(pieces, text, (size_t)len, 4);
    }
}

static void what_many_have_is_in_it(void **state)
{
    once__pieces_t pieces = {0};
    size_t len;

    offer_all(&pieces, ONCE__PIECES_LEAST);
    len = once__pieces_take(&pieces, dictionary, sizeof(dictionary));
    assert_in_range(len, 30, 200);
    assert_true(has(dictionary, len, "{\"object\":\"charge\",\"id\":\""));
    assert_true(has(dictionary, len, "\"rarely seen\":true}"));
    once__pieces_free(&pieces);
}

static void what_few_have_is_not(void **state)
{
    once__pieces_t pieces = {0};
    size_t len;

    offer_all(&pieces, ONCE__PIECES_LEAST - 1);
    len = once__pieces_take(&pieces, dictionary, sizeof(dictionary));
    assert_true(has(dictionary, len, "\"charge\""));
    assert_false(has(dictionary, len, "seen"));
    once__pieces_free(&pieces);
}

/* The same text again and again in one sample is still one sample's. */
static void samples_are_counted_not_places(void **state)
{
    once__pieces_t pieces = {0};
    char text[400] = "";

    for (unsigned i = 0; !once__pieces_enough(&pieces); i++) {
        memset(text, (int)('0' + i % 10), 64); /* each byte of it in a tenth of the samples */
        (void)snprintf(text + 64, sizeof(text) - 64, "%s",
                       pieces.count == 3 ? "canary-1canary-1canary-1canary-1canary-1canary-1"
                                           "canary-1canary-1canary-1canary-1"
                                         : "");
        once__pieces_offer(&pieces, text, strlen(text), 4);
    }
    assert_false(
        has(dictionary, once__pieces_take(&pieces, dictionary, sizeof(dictionary)), "canary"));
    once__pieces_free(&pieces);
}

static void nothing_in_common_gives_none(void **state)
{
    once__pieces_t pieces = {0};

    for (unsigned i = 0; !once__pieces_enough(&pieces); i++) {
        char text[64];
        int len = snprintf(text, sizeof(text), "%08x%08x%08x", i * 2654435761u, i * 40503u + 7,
                           i * i * 97u);
        once__pieces_offer(&pieces, text, (size_t)len, 4);
    }
    assert_int_equal(once__pieces_take(&pieces, dictionary, sizeof(dictionary)), 0);
    once__pieces_free(&pieces);
}

/* Of a dictionary that was made of others: what these samples have is vouched for, and what was not touched need not be. */
static void a_dictionary_is_judged(void **state)
{
    static const char text[] = "{\"object\":\"charge\",\0\0\0\"name\":\"canary\"}";
    uint8_t touched[sizeof(text)] = {0};
    once__pieces_t pieces = {.wanted = ONCE__PIECES_MOST};

    offer_all(&pieces, 0);
    assert_int_equal(pieces.count, ONCE__PIECES_MOST);
    assert_int_equal(once__pieces_have(&pieces, (const uint8_t *)text, 19, NULL), 1);
    assert_int_equal(once__pieces_have(&pieces, (const uint8_t *)text, 22, NULL), 1); /* a gap */
    assert_int_equal(once__pieces_have(&pieces, (const uint8_t *)text, sizeof(text) - 1, NULL), 0);
    memset(touched, 1, 22);
    assert_int_equal(once__pieces_have(&pieces, (const uint8_t *)text, sizeof(text) - 1, touched),
                     1);
    touched[32] = 1;
    assert_int_equal(once__pieces_have(&pieces, (const uint8_t *)text, sizeof(text) - 1, touched),
                     0);
    once__pieces_free(&pieces);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_many_have_is_in_it),
        cmocka_unit_test(what_few_have_is_not),
        cmocka_unit_test(samples_are_counted_not_places),
        cmocka_unit_test(nothing_in_common_gives_none),
        cmocka_unit_test(a_dictionary_is_judged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
