#include "support/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <once/body.h>

#include "base/bytes.h"
#include "core/json.h"

static uint64_t next_random(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

/*
 * A random document. What it means depends on `tree` only; how it is written (order of members, spaces, escapes, spelling of
 * numbers) on `style`. The leaf whose seed is `changed` has another value.
 */
typedef struct writer {
    char *at;
    uint64_t style;
    uint64_t changed;
    uint64_t leaves[2000];
    size_t leaf_count;
} writer_t;

static uint64_t child_seed(uint64_t seed, uint64_t index)
{
    uint64_t mixed = (seed + index * 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;

    return (mixed ^ mixed >> 29) | 1;
}

static void write_space(writer_t *writer)
{
    static const char spaces[] = " \t\r\n";

    while (next_random(&writer->style) % 4 == 0) {
        *writer->at++ = spaces[next_random(&writer->style) % 4];
    }
}

/* A string of a few characters from a small set; `index` makes it unique. */
static void write_string(writer_t *writer, uint64_t seed, uint64_t index)
{
    static const struct {
        const char *plain;
        const char *escaped;
    } characters[] = {{"a", "\\u0061"},
                      {"B", "\\u0042"},
                      {"/", "\\/"},
                      {"\\\"", "\\u0022"},
                      {"\\\\", "\\u005c"},
                      {"\\n", "\\u000A"},
                      {"\\u001f", "\\u001F"},
                      {"\xc3\xa9", "\\u00e9"},
                      {"\xef\xbf\xbd", "\\ufffd"},
                      {"\xf0\x9f\x98\x80", "\\ud83d\\ude00"}};
    size_t kinds = sizeof(characters) / sizeof(characters[0]);

    *writer->at++ = '"';
    for (uint64_t left = seed % 6; left > 0; left--) {
        size_t kind = next_random(&seed) % kinds;
        int escape = next_random(&writer->style) % 3 == 0;
        writer->at +=
            sprintf(writer->at, "%s", escape ? characters[kind].escaped : characters[kind].plain);
    }
    writer->at += sprintf(writer->at, "%u\"", (unsigned)index);
}

static void write_number(writer_t *writer, uint64_t seed)
{
    int number = (int)(seed % 1000) + 1;

    number = seed % 7 < 3 ? -number : number;

    switch (next_random(&writer->style) % 4) {
    case 0:
        writer->at += sprintf(writer->at, "%d", number);
        break;
    case 1:
        writer->at += sprintf(writer->at, "%d.00", number);
        break;
    case 2:
        writer->at += sprintf(writer->at, "%de0", number);
        break;
    default:
        writer->at += sprintf(writer->at, "%d00E-2", number);
        break;
    }
}

static void write_leaf(writer_t *writer, uint64_t seed)
{
    writer->leaves[writer->leaf_count++] = seed;
    assert_true(writer->leaf_count < 2000);
    if (seed == writer->changed) {
        writer->at += sprintf(writer->at, "\"changed\"");
    } else if (seed % 3 == 0) {
        write_string(writer, seed, 7);
    } else if (seed % 3 == 1) {
        write_number(writer, seed);
    } else {
        writer->at += sprintf(writer->at, "%s", seed & 8 ? "true" : "null");
    }
}

static void write_value(writer_t *writer, uint64_t seed, unsigned depth);

static void write_container(writer_t *writer, uint64_t seed, unsigned depth, int object)
{
    uint64_t count = child_seed(seed, 0) % 9, order[9];

    for (uint64_t i = 0; i < count; i++) {
        uint64_t j = object ? next_random(&writer->style) % (i + 1) : i;
        order[i] = order[j];
        order[j] = i;
    }
    *writer->at++ = object ? '{' : '[';
    for (uint64_t i = 0; i < count; i++) {
        uint64_t child = child_seed(seed, order[i] + 1);
        if (i > 0) {
            *writer->at++ = ',';
        }
        write_space(writer);
        if (object) {
            write_string(writer, child, order[i]);
            write_space(writer);
            *writer->at++ = ':';
        }
        write_value(writer, child, depth + 1);
    }
    write_space(writer);
    *writer->at++ = object ? '}' : ']';
}

static void write_value(writer_t *writer, uint64_t seed, unsigned depth)
{
    uint64_t kind = child_seed(seed, 100) >> 8;

    write_space(writer);
    if (depth == 0 || (depth < 4 && kind % 3 != 0)) {
        write_container(writer, seed, depth, kind % 2 == 0);
    } else {
        write_leaf(writer, seed);
    }
    write_space(writer);
}

static char *canonical_of(uint64_t tree, uint64_t style, uint64_t changed, writer_t *writer,
                          size_t *len)
{
    static char document[ONCE_BODY_JSON_MAX];
    char *text;

    *writer = (writer_t){.at = document, .style = style, .changed = changed};
    write_value(writer, tree, 0);
    size_t size = (size_t)(writer->at - document);
    if (once__json_canonical(once__slice(document, size), &text, len) != ONCE__JSON_FINE) {
        fail_msg("refused: %.*s", (int)size, document);
    }
    return text;
}

static int same(const char *a, size_t a_len, const char *b, size_t b_len)
{
    return a_len == b_len && memcmp(a, b, a_len) == 0;
}

static void only_the_meaning_counts(void **state)
{
    static writer_t writer, other;

    for (uint64_t tree = 1; tree < 300; tree++) {
        size_t len, again_len;
        char *text = canonical_of(child_seed(tree, 5), 1, 0, &writer, &len), *again;
        /* It is its own canonical form. */
        assert_int_equal(once__json_canonical(once__slice(text, len), &again, &again_len),
                         ONCE__JSON_FINE);
        assert_true(same(text, len, again, again_len));
        free(again);
        for (uint64_t style = 2; style < 6; style++) {
            again =
                canonical_of(child_seed(tree, 5), child_seed(style, tree), 0, &other, &again_len);
            assert_true(same(text, len, again, again_len));
            free(again);
        }
        for (size_t i = 0; i < writer.leaf_count; i++) {
            again = canonical_of(child_seed(tree, 5), 1, writer.leaves[i], &other, &again_len);
            assert_false(same(text, len, again, again_len));
            free(again);
        }
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_meaning_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
