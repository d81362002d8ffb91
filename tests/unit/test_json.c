#include "support/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <once/body.h>

#include "base/bytes.h"
#include "core/json.h"

static once__json_fault_t canonical(const char *document, size_t len, char **text, size_t *text_len)
{
    /* A copy of its own size, so that a sanitizer sees every byte read beyond it. */
    char *copy = malloc(len > 0 ? len : 1);
    memcpy(copy, document, len);
    once__json_fault_t fault = once__json_canonical(once__slice(copy, len), text, text_len);
    free(copy);
    assert_int_equal(fault != ONCE__JSON_FINE, *text == NULL);
    return fault;
}

static void becomes(const char *document, const char *expected)
{
    char *text;
    size_t len;
    once__json_fault_t fault = canonical(document, strlen(document), &text, &len);

    if (fault != ONCE__JSON_FINE || len != strlen(expected) || memcmp(text, expected, len) != 0) {
        fail_msg("%s: fault %d, '%.*s' instead of '%s'", document, fault, (int)len, text, expected);
    }
    free(text);
}

static void refuses(const char *document, size_t len, once__json_fault_t expected)
{
    char *text;
    size_t text_len;
    once__json_fault_t fault = canonical(document, len, &text, &text_len);

    if (fault != expected) {
        fail_msg("%.*s: fault %d instead of %d", (int)len, document, fault, expected);
    }
}

static void all_refused(const char *const *documents, size_t count, once__json_fault_t fault)
{
    for (size_t i = 0; i < count; i++) {
        refuses(documents[i], strlen(documents[i]), fault);
    }
}
#define ALL_REFUSED(list, fault) all_refused(list, sizeof(list) / sizeof((list)[0]), fault)

/* ------------------------------------------------------------------------------------------------------------ examples */

static void values_have_one_form(void **state)
{
    becomes("null", "null");
    becomes(" true\r\n\t", "true");
    becomes("false", "false");
    becomes("[ ]", "[]");
    becomes("{ }", "{}");
    becomes("[ 1 , [ ] , { } , \"\" ]", "[1,[],{},\"\"]");
    becomes("{\"a\" : {\"c\":[{\"e\":1,\"d\":2}],\"b\":3}}",
            "{\"a\":{\"b\":3,\"c\":[{\"d\":2,\"e\":1}]}}");
    becomes("[[[[\"deep\"]]]]", "[[[[\"deep\"]]]]");
}

static void strings_have_one_form(void **state)
{
    becomes("\"\\b\\f\\n\\r\\t\\\"\\\\\\/\"", "\"\\b\\f\\n\\r\\t\\\"\\\\/\"");
    becomes("\"\\u0008\\u000c\\u000a\\u000D\\u0009\\u0022\\u005C\\u002f\"",
            "\"\\b\\f\\n\\r\\t\\\"\\\\/\"");
    becomes("\"\\u0000\\u0001\\u000b\\u001F\\u0020\\u007f\"",
            "\"\\u0000\\u0001\\u000b\\u001f \x7f\"");
    becomes("\"\\u0041\\u00e9\\u20AC\\ud83d\\ude00\"", "\"A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"");
    becomes("\"\xc2\x80\xdf\xbf\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf\"",
            "\"\xc2\x80\xdf\xbf\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf\"");
    becomes("\"\\udbff\\udfff\\ud800\\udc00\"", "\"\xf4\x8f\xbf\xbf\xf0\x90\x80\x80\"");
}

static void members_are_ordered_by_utf16(void **state)
{
    becomes("{\"b\":1,\"a\":2,\"\":3,\"ab\":4,\"B\":5}",
            "{\"\":3,\"B\":5,\"a\":2,\"ab\":4,\"b\":1}");
    /* A character beyond U+FFFF is a surrogate pair, which comes before U+E000 to U+FFFF. */
    becomes("{\"\\uffff\":1,\"\\ue000\":2,\"\\ud800\\udc00\":3,\"\\udbff\\udfff\":4,\"\\ud7ff\":5}",
            "{\"\xed\x9f\xbf\":5,\"\xf0\x90\x80\x80\":3,\"\xf4\x8f\xbf\xbf\":4,\"\xee\x80\x80\":2,"
            "\"\xef\xbf\xbf\":1}");
    /* Escaped characters are ordered by what they are, not by the backslash: 01 08 0a 1f 20 " 5b \ ] a */
    becomes(
        "{\"a\":0,\"]\":1,\"\\\\\":2,\"[\":3,\"\\\"\":4,\" \":5,\"\\u001f\":6,\"\\n\":7,\"\\b\":8,"
        "\"\\u0001\":9}",
        "{\"\\u0001\":9,\"\\b\":8,\"\\n\":7,\"\\u001f\":6,\" \":5,\"\\\"\":4,\"[\":3,\"\\\\\":2,"
        "\"]\":1,\"a\":0}");
    becomes("{\"\\\\a\":1,\"\\\\\":2}", "{\"\\\\\":2,\"\\\\a\":1}");
    /* In order but for the last one, and the other way round. */
    becomes("{\"b\":1,\"c\":2,\"d\":3,\"a\":4}", "{\"a\":4,\"b\":1,\"c\":2,\"d\":3}");
    becomes("{\"d\":1,\"c\":2,\"b\":3,\"a\":4}", "{\"a\":4,\"b\":3,\"c\":2,\"d\":1}");
}

static void what_is_not_json_is_refused(void **state)
{
    static const char *const documents[] = {
        "",
        " ",
        "[",
        "]",
        "{",
        "}",
        "[1",
        "[1,",
        "[1,]",
        "[,1]",
        "[1 2]",
        "[1}",
        "{]",
        "{\"a\"",
        "{\"a\":",
        "{\"a\":1",
        "{\"a\":1,",
        "{\"a\":1,}",
        "{\"a\" 1}",
        "{\"a\",1}",
        "{a:1}",
        "{1:1}",
        "{\"a\":1]",
        "{,}",
        "{\"a\":1 \"b\":2}",
        "{\"a\":}",
        "{null:1}",
        "1 2",
        "[] []",
        "{}x",
        "nul",
        "nulll",
        "True",
        "tru",
        "fals",
        "NaN",
        "Infinity",
        "-Infinity",
        "'a'",
        "\"",
        "\"a",
        "\"\\\"",
        "\"\\",
        "\"\\x41\"",
        "\"\\u",
        "\"\\u12\"",
        "\"\\u123g\"",
        "\"\\U0041\"",
        "\"a\nb\"",
        "\"\t\"",
        "// c\n1",
        "/* c */1",
        "[1]\v",
        "[1]\f",
        "\xef\xbb\xbf[]",
        "\xc2\xa0[]",
        "-",
        "+1",
        "--1",
        "01",
        "-01",
        "1.",
        ".5",
        "1.e5",
        "1e",
        "1e+",
        "1e-",
        "1e1.5",
        "0x10",
        "1_000",
        "00",
        "1a",
        "\"a\":1",
        ":",
        ",",
        "[\"a\":1]",
        "{\"a\":1,\"b\"}",
    };
    const char zero[] = "[1]\0", inside[] = "[\0]", text[] = "\"\0\"", word[] = "nul\0";

    ALL_REFUSED(documents, ONCE__JSON_SYNTAX);
    refuses(zero, sizeof(zero) - 1, ONCE__JSON_SYNTAX);
    refuses(inside, sizeof(inside) - 1, ONCE__JSON_SYNTAX);
    refuses(text, sizeof(text) - 1, ONCE__JSON_SYNTAX);
    refuses(word, sizeof(word) - 1, ONCE__JSON_SYNTAX);
}

static void what_is_not_utf8_is_refused(void **state)
{
    static const char *const documents[] = {
        "\"\x80\"",
        "\"\xbf\"",
        "\"\xc0\x80\"",
        "\"\xc1\xbf\"",
        "\"\xc2\"",
        "\"\xc2\xc2\"",
        "\"\xe0\x9f\xbf\"",
        "\"\xe1\x80\"",
        "\"\xe1\x80\xc0\"",
        "\"\xed\xa0\x80\"",
        "\"\xed\xbf\xbf\"",
        "\"\xf0\x8f\xbf\xbf\"",
        "\"\xf4\x90\x80\x80\"",
        "\"\xf5\x80\x80\x80\"",
        "\"\xf1\x80\x80\"",
        "\"\xf1\x80\x80\xc0\"",
        "\"\xff\"",
        "\"\xfe\"",
        "{\"\xff\":1}",
        "\"\xe2\x82",
    };

    ALL_REFUSED(documents, ONCE__JSON_UTF8);
}

static void what_is_not_i_json_is_refused(void **state)
{
    static const char *const surrogates[] = {
        "\"\\ud800\"",        "\"\\udc00\"",        "\"\\ud800x\"",
        "\"\\ud800\\ud800\"", "\"\\udc00\\ud800\"", "\"\\udc00\\udc00\"",
        "\"\\ud800\\u0041\"", "\"\\udbff\\n\"",     "{\"\\ud800\":1}"};
    static const char *const duplicates[] = {
        "{\"a\":1,\"a\":1}",
        "{\"a\":1,\"b\":2,\"a\":3}",
        "{\"b\":1,\"a\":2,\"b\":3}",
        "{\"a\":1,\"\\u0061\":2}",
        "{\"c\":0,\"\\n\":1,\"b\":0,\"\\u000A\":2}",
        "{\"\":1,\"\":2}",
        "{\"z\":1,\"y\":2,\"x\":3,\"w\":4,\"z\":5}",
        "[{\"x\":{\"a\":1,\"c\":2,\"b\":3,\"c\":4}}]",
    };
    static const char *const numbers[] = {"9007199254740993",
                                          "1e400",
                                          "-1e309",
                                          "1e-400",
                                          "0.1000000000000000055511151231257827",
                                          "333333333.33333329",
                                          "3.0000000000000001"};

    ALL_REFUSED(surrogates, ONCE__JSON_SURROGATE);
    ALL_REFUSED(duplicates, ONCE__JSON_DUPLICATE);
    ALL_REFUSED(numbers, ONCE__JSON_NUMBER);
    /* The same name in another object is another name. */
    becomes("{\"b\":{\"a\":1},\"a\":{\"a\":1}}", "{\"a\":{\"a\":1},\"b\":{\"a\":1}}");
}

/* ------------------------------------------------------------------------------------------------------------- limits */

/* Writes `depth` arrays (or objects) around a 1. */
static size_t write_nested(char *out, unsigned depth, int objects)
{
    char *at = out;

    for (unsigned i = 0; i < depth; i++) {
        at += sprintf(at, "%s", objects ? "{\"b\":" : "[");
    }
    *at++ = '1';
    for (unsigned i = 0; i < depth; i++) {
        at += sprintf(at, "%s", objects ? ",\"a\":0}" : "]");
    }
    return (size_t)(at - out);
}

static void nesting_ends_at_64(void **state)
{
    char document[2000], *text;
    size_t len;

    for (int objects = 0; objects < 2; objects++) {
        assert_int_equal(canonical(document, write_nested(document, 64, objects), &text, &len),
                         ONCE__JSON_FINE);
        free(text);
        refuses(document, write_nested(document, 65, objects), ONCE__JSON_NESTING);
    }
}

static void size_ends_at_the_limit(void **state)
{
    size_t len = ONCE_BODY_JSON_MAX;
    char *document = malloc(len + 1), *text;

    memset(document, '[', len + 1);
    refuses(document, len, ONCE__JSON_NESTING);
    refuses(document, len + 1, ONCE__JSON_SIZE);
    memset(document, 'x', len);
    document[0] = document[len - 1] = '"';
    assert_int_equal(canonical(document, len, &text, &len), ONCE__JSON_FINE);
    assert_int_equal(len, ONCE_BODY_JSON_MAX);
    free(text);
    free(document);
}

/* As many members as fit, in some order: step 1 is rising, count - 1 falling, others are mixed. */
static void many_members(uint32_t step)
{
    enum { COUNT = 99991 }; /* a prime: every step reaches every member */
    char *document = malloc(ONCE_BODY_JSON_MAX), *at = document, *text;
    size_t len;

    for (uint32_t i = 0; i < COUNT; i++) {
        uint32_t name = (uint32_t)((uint64_t)i * step % COUNT);
        at += sprintf(at, "%c\"%05x\":0", i == 0 ? '{' : ',', name);
    }
    *at++ = '}';
    assert_int_equal(canonical(document, (size_t)(at - document), &text, &len), ONCE__JSON_FINE);
    at = text;
    for (uint32_t i = 0; i < COUNT; i++) {
        char member[16];
        int size = sprintf(member, "%c\"%05x\":0", i == 0 ? '{' : ',', i);
        assert_memory_equal(at, member, size);
        at += size;
    }
    free(text);
    free(document);
}

static void many_members_are_sorted(void **state)
{
    many_members(1);
    many_members(99990);
    many_members(2);
    many_members(31337);
}

/* A document of the largest size, an array of one value. */
static size_t repeated(char *document, const char *value)
{
    size_t len = strlen(value);
    char *at = document;

    for (*at++ = '['; (size_t)(at - document) + len + 1 < ONCE_BODY_JSON_MAX; at += len + 1) {
        memcpy(at, value, len);
        at[len] = ',';
    }
    at[-1] = ']';
    return (size_t)(at - document);
}

/* Of this thread alone, the best of some: what else runs on the machine does not count. */
static double cpu_time(const char *document, size_t len)
{
    double best = 1e9;

    for (int i = 0; i < 5; i++) {
        struct timespec start, end;
        char *text;
        size_t text_len;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
        once__json_fault_t fault =
            once__json_canonical(once__slice(document, len), &text, &text_len);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
        assert_int_equal(fault, ONCE__JSON_FINE);
        free(text);
        double took =
            (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) / 1e9;
        best = took < best ? took : best;
    }
    return best;
}

/* A host reads documents of strangers in its loop: nothing that can be written into one may take much longer than the rest. */
static void no_number_makes_a_document_slow(void **state)
{
    static const char *const hard[] = {"1e-320",
                                       "1e-323",
                                       "5e-324",
                                       "1.5e-323",
                                       "1e308",
                                       "9007199254740992",
                                       "0.1234567890123456",
                                       "2.2250738585072014e-308",
                                       "1.7976931348623157e308"};
    char *document = malloc(ONCE_BODY_JSON_MAX);
    (void)state;

    assert_non_null(document);
    double plain = cpu_time(document, repeated(document, "1"));
    for (size_t i = 0; i < sizeof(hard) / sizeof(hard[0]); i++) {
        double took = cpu_time(document, repeated(document, hard[i]));
        if (took > 4 * plain) {
            fail_msg("%s: %.1f ms, %.1f times what ones take", hard[i], took * 1e3, took / plain);
        }
    }
    free(document);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_have_one_form),
        cmocka_unit_test(strings_have_one_form),
        cmocka_unit_test(members_are_ordered_by_utf16),
        cmocka_unit_test(what_is_not_json_is_refused),
        cmocka_unit_test(what_is_not_utf8_is_refused),
        cmocka_unit_test(what_is_not_i_json_is_refused),
        cmocka_unit_test(nesting_ends_at_64),
        cmocka_unit_test(size_ends_at_the_limit),
        cmocka_unit_test(many_members_are_sorted),
        cmocka_unit_test(no_number_makes_a_document_slow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
