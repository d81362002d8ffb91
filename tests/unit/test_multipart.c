#include "support/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "core/multipart.h"

/* ------------------------------------------------------------------------------------------------------- the boundary */

static void finds(const char *content_type, const char *expected)
{
    char boundary[ONCE__BOUNDARY_MAX];
    size_t len;

    assert_int_equal(
        once__multipart_boundary(once__slice(content_type, strlen(content_type)), boundary, &len),
        0);
    assert_int_equal(len, strlen(expected));
    assert_memory_equal(boundary, expected, len);
}

static void finds_none(const char *content_type)
{
    char boundary[ONCE__BOUNDARY_MAX];
    size_t len;

    if (once__multipart_boundary(once__slice(content_type, strlen(content_type)), boundary, &len) !=
        -1) {
        fail_msg("%s: has no usable boundary", content_type);
    }
}

#define TEN     "0123456789"
#define SEVENTY TEN TEN TEN TEN TEN TEN TEN

static void the_boundary_is_found(void **state)
{
    finds("multipart/form-data; boundary=abc", "abc");
    finds("multipart/mixed;boundary=abc", "abc");
    finds("  Multipart/Form-Data ;\tBOUNDARY=aBc ", "aBc");
    finds("multipart/form-data; charset=utf-8; boundary=abc; x=\"y;boundary=z\"", "abc");
    finds("multipart/form-data; x=\"\\\"; boundary=z\"; boundary=abc", "abc");
    finds("multipart/form-data; boundary=\"a b:c/d=(e)?,\"", "a b:c/d=(e)?,");
    finds("multipart/form-data; boundary=----WebKitFormBoundary7MA4YWxkTrZu0gW",
          "----WebKitFormBoundary7MA4YWxkTrZu0gW");
    finds("multipart/form-data; ; boundary=abc;", "abc");
    finds("multipart/form-data; boundary=" SEVENTY, SEVENTY);
}

static void unusable_boundaries_are_refused(void **state)
{
    finds_none("");
    finds_none("multipart/form-data");
    finds_none("multipart/; boundary=abc");
    finds_none("multipart; boundary=abc");
    finds_none("multiparty/form-data; boundary=abc");
    finds_none("application/json; boundary=abc");
    finds_none("multipart/form-data, boundary=abc");
    finds_none("multipart/form-data; boundary=");
    finds_none("multipart/form-data; boundary=\"\"");
    finds_none("multipart/form-data; boundary=\"abc");
    finds_none("multipart/form-data; boundary=\"abc\"d");
    finds_none("multipart/form-data; boundary=\"abc \"");
    finds_none("multipart/form-data; boundary=\"a\\bc\"");
    finds_none("multipart/form-data; boundary=\"a*c\"");
    finds_none("multipart/form-data; boundary=a*c");
    finds_none("multipart/form-data; boundary=a=c");
    finds_none("multipart/form-data; boundary= abc");
    finds_none("multipart/form-data; boundary");
    finds_none("multipart/form-data; =abc");
    finds_none("multipart/form-data; boundary=abc; boundary=abc");
    finds_none("multipart/form-data; boundary=abc; Boundary=def");
    finds_none("multipart/form-data; boundary=abc def");
    finds_none("multipart/form-data; boundary=" SEVENTY "0");
}

/* ----------------------------------------------------------------------------------------------------------- the body */

static int digest(const char *boundary, const void *body, size_t len, size_t piece, uint8_t sum[32])
{
    static once__multipart_t multipart;
    const char *bytes = body;

    once__multipart_init(&multipart, boundary, strlen(boundary));
    for (size_t at = 0; at < len; at += piece) {
        once__multipart_add(&multipart, bytes + at, len - at < piece ? len - at : piece);
    }
    return once__multipart_end(&multipart, sum);
}

/* The digest by its definition. */
static void expect(uint8_t sum[32], const char *const *parts, size_t count)
{
    once__sha256_t total, part;
    uint8_t part_sum[32], number[8];

    once__sha256_init(&total);
    for (size_t i = 0; i < count; i++) {
        once__sha256_init(&part);
        once__sha256_add(&part, parts[i], strlen(parts[i]));
        once__sha256_end(&part, part_sum);
        once__sha256_add(&total, part_sum, sizeof(part_sum));
    }
    once__put64(number, count);
    once__sha256_add(&total, number, sizeof(number));
    once__sha256_end(&total, sum);
}

/* However the body is cut, it has these parts; NULL for none: it is not a body of the form. */
static void has_parts(const char *boundary, const char *body, const char *const *parts,
                      size_t count)
{
    uint8_t sum[32], expected[32];
    size_t len = strlen(body);

    for (size_t piece = 1; piece <= len; piece++) {
        int rc = digest(boundary, body, len, piece, sum);
        if (rc != (parts != NULL ? 0 : -1)) {
            fail_msg("in pieces of %zu: %s", piece, body);
        }
        if (parts != NULL) {
            expect(expected, parts, count);
            assert_memory_equal(sum, expected, sizeof(sum));
        }
    }
}

#define NAME_A "Content-Disposition: form-data; name=\"a\"\r\n\r\n"

static void a_body_is_cut_at_its_delimiters(void **state)
{
    const char *two[] = {NAME_A "one", NAME_A "two"};
    const char *empty[] = {""}, *lines[] = {NAME_A "\r\n\r\n--\r\n--BB\r\n-"};

    has_parts("B", "--B\r\n" NAME_A "one\r\n--B\r\n" NAME_A "two\r\n--B--\r\n", two, 2);
    has_parts("B", "--B\r\n" NAME_A "one\r\n--B\r\n" NAME_A "two\r\n--B--", two, 2);
    has_parts("----x", "------x\r\n" NAME_A "one\r\n------x\r\n" NAME_A "two\r\n------x--\r\n", two,
              2);
    has_parts(SEVENTY,
              "--" SEVENTY "\r\n" NAME_A "one\r\n--" SEVENTY "\r\n" NAME_A "two\r\n--" SEVENTY
              "--\r\n",
              two, 2);
    has_parts("B", "--B\r\n\r\n--B--\r\n", empty, 1);
    has_parts("B", "--B--\r\n", empty, 0);
    has_parts("Bx", "--Bx\r\n" NAME_A "\r\n\r\n--\r\n--BB\r\n-\r\n--Bx--\r\n", lines, 1);
}

static void doubtful_bodies_are_none(void **state)
{
    static const char *const bodies[] = {
        "",
        "-",
        "--B",
        "--B\r\n",
        "--B\r\nx",
        "--B\r\nx\r\n--B",
        "--B\r\nx\r\n--B\r\n",
        "--B\r\nx\r\n--B-",
        "--B\r\nx\r\n--B--\r",
        "--B\r\nx\r\n--B--\n",
        "--B\r\nx\r\n--B--\r\n\r\n",  /* an epilogue */
        "--B\r\nx\r\n--B--\r\nbye",   /* an epilogue */
        "--B\r\nx\r\n--B--x",         /* an epilogue without a line of its own */
        "--B--\r\n--B\r\nx\r\n--B--", /* an epilogue that looks like parts */
        "hello\r\n--B\r\nx\r\n--B--", /* a preamble */
        "\r\n--B\r\nx\r\n--B--",      /* an empty preamble */
        "--B\r\n--B--\r\n",           /* one CRLF for two delimiters */
        "--B \r\nx\r\n--B--",         /* spaces after the boundary */
        "--B\r\nx\r\n--B \r\ny\r\n--B--",
        "--B\nx\n--B--\n",                /* lines that end in LF */
        "--B\r\nx\n--B\r\ny\r\n--B--",    /* one that does, before a delimiter */
        "--B\r\nx--B\r\ny\r\n--B--",      /* the delimiter within a line */
        "--B\r\nx\r\n--Bx\r\ny\r\n--B--", /* a line that only begins like the delimiter */
        "--B\r\nx\r\n---B\r\ny\r\n--B--",
        "--C\r\nx\r\n--C--",
    };

    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
        uint8_t sum[32];
        has_parts("B", bodies[i], NULL, 0);
        assert_int_equal(digest("B", bodies[i], strlen(bodies[i]), 1000, sum), -1);
    }
}

static size_t write_body(char *out, const char *boundary, const char *const *parts, size_t count)
{
    size_t len = 0;

    for (size_t i = 0; i < count; i++) {
        len += (size_t)sprintf(out + len, "--%s\r\n%s\r\n", boundary, parts[i]);
    }
    return len + (size_t)sprintf(out + len, "--%s--\r\n", boundary);
}

static void sum_of(uint8_t sum[32], const char *boundary, const char *const *parts, size_t count)
{
    char body[1000];
    size_t len = write_body(body, boundary, parts, count);

    assert_int_equal(digest(boundary, body, len, len, sum), 0);
}

static void only_the_parts_count(void **state)
{
    const char *parts[] = {NAME_A "one", NAME_A "two"}, *swapped[] = {NAME_A "two", NAME_A "one"};
    const char *joined[] = {NAME_A "oneContent-Disposition: form-data; name=\"a\"\r\n\r\ntwo"};
    const char *header[] = {"content-disposition: form-data; name=\"a\"\r\n\r\none", NAME_A "two"};
    uint8_t sum[32], other[32];

    sum_of(sum, "B", parts, 2);
    sum_of(other, "another-boundary", parts, 2);
    assert_memory_equal(sum, other, 32);
    sum_of(other, "B", swapped, 2);
    assert_memory_not_equal(sum, other, 32);
    sum_of(other, "B", joined, 1);
    assert_memory_not_equal(sum, other, 32);
    sum_of(other, "B", header, 2);
    assert_memory_not_equal(sum, other, 32);
    sum_of(other, "B", parts, 1);
    assert_memory_not_equal(sum, other, 32);
}

/* Contents longer than the buffer, so that the delimiter falls on every place of it; full of false beginnings. */
static void large_parts_are_cut_right(void **state)
{
    static const char noise[] = "\r\n--boundarx\r\r\n\r\n-\r\n--boundar";
    size_t room = 3 * (size_t)ONCE__MULTIPART_BUFFER;
    char *content = malloc(room), *body = malloc(room + 100);
    uint8_t sum[32], expected[32];

    for (size_t i = 0; i < room; i++) {
        content[i] = noise[i % (sizeof(noise) - 1)];
    }
    for (size_t len = ONCE__MULTIPART_BUFFER - 40; len < ONCE__MULTIPART_BUFFER + 40; len++) {
        const char *parts[] = {content};
        content[len] = '\0';
        size_t size = write_body(body, "boundary", parts, 1);
        expect(expected, parts, 1);
        for (size_t piece = 1; piece <= size; piece = piece * 3 + 1) {
            assert_int_equal(digest("boundary", body, size, piece, sum), 0);
            assert_memory_equal(sum, expected, 32);
        }
        content[len] = noise[len % (sizeof(noise) - 1)];
    }
    free(content);
    free(body);
}

static void the_end_can_be_asked_at_any_time(void **state)
{
    static once__multipart_t multipart;
    uint8_t sum[32], again[32];

    once__multipart_init(&multipart, "B", 1);
    once__multipart_add(&multipart, "--B\r\nx\r\n", 8);
    assert_int_equal(once__multipart_end(&multipart, sum), -1);
    once__multipart_add(&multipart, "--B--", 5);
    assert_int_equal(once__multipart_end(&multipart, sum), 0);
    once__multipart_add(&multipart, "\r", 1);
    assert_int_equal(once__multipart_end(&multipart, again), -1);
    once__multipart_add(&multipart, "\n", 1);
    assert_int_equal(once__multipart_end(&multipart, again), 0);
    assert_memory_equal(sum, again, 32);
    once__multipart_add(&multipart, "\n", 1);
    assert_int_equal(once__multipart_end(&multipart, again), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_boundary_is_found),
        cmocka_unit_test(unusable_boundaries_are_refused),
        cmocka_unit_test(a_body_is_cut_at_its_delimiters),
        cmocka_unit_test(doubtful_bodies_are_none),
        cmocka_unit_test(only_the_parts_count),
        cmocka_unit_test(large_parts_are_cut_right),
        cmocka_unit_test(the_end_can_be_asked_at_any_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
