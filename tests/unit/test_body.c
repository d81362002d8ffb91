#include "support/testing.h"

#include <stdlib.h>
#include <string.h>

#include <once/experimental.h>

#include "base/bytes.h"
#include "core/digest.h"

static const once_slice_t no_type = {NULL, 0};

static void digest_in_pieces(once_body_mode_t mode, const char *type, const void *data, size_t len,
                             size_t piece, once__digest_t *digest)
{
    once_body_t *body = once_body_new(mode, once__slice(type, strlen(type)));
    const char *bytes = data;
    uint8_t sum[ONCE_DIGEST_SIZE];

    assert_non_null(body);
    for (size_t at = 0; at < len; at += piece) {
        assert_int_equal(once_body_add(body, bytes + at, len - at < piece ? len - at : piece), 0);
    }
    assert_int_equal(once__body_digest(body, digest), ONCE_OK);
    assert_int_equal(once_body_digest(body, sum), ONCE_OK);
    assert_memory_equal(sum, digest->sum, sizeof(sum));
    once_body_free(body);
}

static void digest_of(once_body_mode_t mode, const char *type, const char *text,
                      once__digest_t *digest)
{
    size_t len = strlen(text);

    digest_in_pieces(mode, type, text, len, len + 1, digest);
    for (size_t piece = 1; piece < len; piece++) {
        once__digest_t cut;
        digest_in_pieces(mode, type, text, len, piece, &cut);
        assert_int_equal(cut.mode, digest->mode);
        assert_memory_equal(cut.sum, digest->sum, sizeof(cut.sum));
    }
}

static int same(const once__digest_t *a, const once__digest_t *b)
{
    return a->mode == b->mode && memcmp(a->sum, b->sum, sizeof(a->sum)) == 0;
}

static int same_json(const char *a, const char *b)
{
    once__digest_t x, y;

    digest_of(ONCE_BODY_MODE_JSON, "application/json", a, &x);
    digest_of(ONCE_BODY_MODE_JSON, "application/json", b, &y);
    return same(&x, &y);
}

static void sha256(const void *data, size_t len, uint8_t sum[32])
{
    once__sha256_t ctx;

    once__sha256_init(&ctx);
    once__sha256_add(&ctx, data, len);
    once__sha256_end(&ctx, sum);
}

static void modes_have_names(void **state)
{
    for (int mode = ONCE_BODY_MODE_NONE; mode <= ONCE_BODY_MODE_MULTIPART; mode++) {
        assert_int_equal(once_body_mode_parse(once_body_mode_name((once_body_mode_t)mode)), mode);
    }
    assert_string_equal(once_body_mode_name(ONCE_BODY_MODE_JSON), "json");
    assert_int_equal(once_body_mode_parse("JSON"), -1);
    assert_int_equal(once_body_mode_parse(""), -1);
    assert_int_equal(once_body_mode_parse("?"), -1);
    assert_string_equal(once_body_mode_name((once_body_mode_t)4), "?");
    assert_null(once_body_new((once_body_mode_t)4, no_type));
    once_body_free(NULL);
}

static void exact_is_the_sha256_of_the_bytes(void **state)
{
    once__digest_t digest, bytes;
    uint8_t sum[32];

    sha256("{\"a\": 1}", 8, sum);
    digest_of(ONCE_BODY_MODE_EXACT, "application/json", "{\"a\": 1}", &digest);
    assert_int_equal(digest.mode, ONCE_BODY_MODE_EXACT);
    assert_memory_equal(digest.sum, sum, 32);
    once__bytes_digest(once__slice("{\"a\": 1}", 8), &bytes);
    assert_true(same(&digest, &bytes));
    once__bytes_digest(no_type, &bytes);
    digest_of(ONCE_BODY_MODE_EXACT, "", "", &digest);
    assert_true(same(&digest, &bytes));
}

static void none_does_not_look(void **state)
{
    const uint8_t zeros[32] = {0};
    once__digest_t digest;

    digest_of(ONCE_BODY_MODE_NONE, "", "anything", &digest);
    assert_int_equal(digest.mode, ONCE_BODY_MODE_NONE);
    assert_memory_equal(digest.sum, zeros, 32);
}

static void json_is_the_sha256_of_the_canonical_form(void **state)
{
    static const char canonical[] = "{\"a\":[1,\"x\"],\"b\":true}";
    once__digest_t digest;
    uint8_t sum[32];

    sha256(canonical, sizeof(canonical) - 1, sum);
    digest_of(ONCE_BODY_MODE_JSON, "", " {\"b\" : true,\n\"a\":[1.0, \"\\u0078\"]} ", &digest);
    assert_int_equal(digest.mode, ONCE_BODY_MODE_JSON);
    assert_memory_equal(digest.sum, sum, 32);
}

static void json_that_means_the_same_is_the_same(void **state)
{
    assert_true(same_json("{\"a\":1,\"b\":2}", "{\"b\":2,\"a\":1}"));
    assert_true(same_json("[1, 1.0, 1e0]", "[1,1,1]"));
    assert_true(same_json("\"\\u00e9\\/\"", "\"\xc3\xa9/\""));
    assert_false(same_json("[1,2]", "[2,1]"));
    assert_false(same_json("{\"a\":1}", "{\"a\":\"1\"}"));
    assert_false(same_json("{\"a\":null}", "{}"));
    assert_false(same_json("9007199254740993", "9007199254740992"));
}

static void json_falls_back_to_exact(void **state)
{
    static const char *const bodies[] = {"",
                                         "{",
                                         "{\"a\":1,\"a\":1}",
                                         "\"\\ud800\"",
                                         "\"\xff\"",
                                         "[1] x",
                                         "9007199254740993",
                                         "1e400",
                                         "{\"a\":01}",
                                         "\xef\xbb\xbf{}"};

    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
        once__digest_t digest, exact;
        digest_of(ONCE_BODY_MODE_JSON, "application/json", bodies[i], &digest);
        once__bytes_digest(once__slice(bodies[i], strlen(bodies[i])), &exact);
        assert_int_equal(digest.mode, ONCE_BODY_MODE_EXACT);
        assert_true(same(&digest, &exact));
    }
    assert_false(same_json("{\"a\":1,\"a\":1}", "{\"a\":1, \"a\":1}"));
}

static void json_over_the_limit_is_exact(void **state)
{
    size_t len = ONCE_BODY_JSON_MAX;
    char *text = malloc(len + 1);
    once__digest_t digest, exact;

    memset(text, ' ', len + 1);
    text[0] = '[';
    text[1] = ']';
    for (size_t piece = 1000; piece < 3 * len; piece *= 7) {
        uint8_t sum[32];
        sha256("[]", 2, sum);
        digest_in_pieces(ONCE_BODY_MODE_JSON, "", text, len, piece, &digest);
        assert_int_equal(digest.mode, ONCE_BODY_MODE_JSON);
        assert_memory_equal(digest.sum, sum, 32);

        once__bytes_digest(once__slice(text, len + 1), &exact);
        digest_in_pieces(ONCE_BODY_MODE_JSON, "", text, len + 1, piece, &digest);
        assert_true(same(&digest, &exact));
    }
    free(text);
}

#define FORM(b, content)                                                                           \
    "--" b "\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n" content "\r\n--" b "--\r\n"

static void multipart_does_not_depend_on_the_boundary(void **state)
{
    once__digest_t one, two, other;

    digest_of(ONCE_BODY_MODE_MULTIPART, "multipart/form-data; boundary=xx", FORM("xx", "1"), &one);
    digest_of(ONCE_BODY_MODE_MULTIPART, "multipart/form-data; boundary=\"y z\"", FORM("y z", "1"),
              &two);
    digest_of(ONCE_BODY_MODE_MULTIPART, "multipart/form-data; boundary=xx", FORM("xx", "2"),
              &other);
    assert_int_equal(one.mode, ONCE_BODY_MODE_MULTIPART);
    assert_true(same(&one, &two));
    assert_false(same(&one, &other));
}

static void multipart_falls_back_to_exact(void **state)
{
    static const struct {
        const char *type;
        const char *body;
    } cases[] = {
        {"multipart/form-data", FORM("xx", "1")},
        {"", FORM("xx", "1")},
        {"application/json", "{}"},
        {"multipart/form-data; boundary=xy", FORM("xx", "1")},
        {"multipart/form-data; boundary=xx", "preamble\r\n" FORM("xx", "1")},
        {"multipart/form-data; boundary=xx", FORM("xx", "1") "epilogue"},
        {"multipart/form-data; boundary=xx", ""},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        once__digest_t digest, exact;
        digest_of(ONCE_BODY_MODE_MULTIPART, cases[i].type, cases[i].body, &digest);
        once__bytes_digest(once__slice(cases[i].body, strlen(cases[i].body)), &exact);
        assert_int_equal(digest.mode, ONCE_BODY_MODE_EXACT);
        assert_true(same(&digest, &exact));
    }
}

static void a_digest_can_be_taken_at_any_time(void **state)
{
    static const struct {
        once_body_mode_t mode;
        const char *text;
    } cases[] = {{ONCE_BODY_MODE_EXACT, "some text"},
                 {ONCE_BODY_MODE_JSON, "[1,2,{\"b\":3,\"a\":4}] "},
                 {ONCE_BODY_MODE_MULTIPART, FORM("xx", "1")}};
    const once_slice_t type = {"multipart/form-data; boundary=xx", 32};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        once_body_t *body = once_body_new(cases[i].mode, type);
        size_t len = strlen(cases[i].text);
        once__digest_t before, after, whole;
        for (size_t at = 0; at < len; at++) {
            assert_int_equal(once__body_digest(body, &before), ONCE_OK);
            assert_int_equal(once__body_digest(body, &after), ONCE_OK);
            assert_true(same(&before, &after));
            assert_int_equal(once_body_add(body, cases[i].text + at, 1), ONCE_OK);
            assert_int_equal(once_body_add(body, NULL, 0), ONCE_OK);
        }
        assert_int_equal(once__body_digest(body, &after), ONCE_OK);
        digest_of(cases[i].mode, type.data, cases[i].text, &whole);
        assert_true(same(&after, &whole));
        assert_int_equal(after.mode, cases[i].mode);
        once_body_free(body);
    }
}

static void bad_arguments_are_refused(void **state)
{
    once_body_t *body = once_body_new(ONCE_BODY_MODE_EXACT, no_type);

    assert_int_equal(once_body_add(NULL, "a", 1), ONCE_E_INVALID);
    assert_int_equal(once_body_add(body, NULL, 1), ONCE_E_INVALID);
    once_body_free(body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(modes_have_names),
        cmocka_unit_test(exact_is_the_sha256_of_the_bytes),
        cmocka_unit_test(none_does_not_look),
        cmocka_unit_test(json_is_the_sha256_of_the_canonical_form),
        cmocka_unit_test(json_that_means_the_same_is_the_same),
        cmocka_unit_test(json_falls_back_to_exact),
        cmocka_unit_test(json_over_the_limit_is_exact),
        cmocka_unit_test(multipart_does_not_depend_on_the_boundary),
        cmocka_unit_test(multipart_falls_back_to_exact),
        cmocka_unit_test(a_digest_can_be_taken_at_any_time),
        cmocka_unit_test(bad_arguments_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
