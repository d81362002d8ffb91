/* The growing buffer; its source is compiled into this test with an allocator that fails on demand. */
#include "support/testing.h"

#include <stdlib.h>
#include <string.h>

static int memory_is_short;
static size_t allocations;

static void *counted_realloc(void *memory, size_t size)
{
    allocations++;
    return memory_is_short ? NULL : realloc(memory, size);
}

#define realloc counted_realloc
#include "../../lib/base/buf.c"
#undef realloc

static int add_text(once__buf_t *buf, const char *text)
{
    return once__buf_add(buf, text, strlen(text));
}

static int add_byte(once__buf_t *buf, char byte)
{
    return once__buf_add(buf, &byte, 1);
}

static int setup(void **state)
{
    memory_is_short = 0;
    allocations = 0;
    return 0;
}

static void text_is_terminated(void **state)
{
    once__buf_t buf = ONCE__BUF(100);

    assert_null(buf.data);
    assert_int_equal(add_text(&buf, "abc"), ONCE_OK);
    assert_int_equal(once__buf_add(&buf, NULL, 0), ONCE_OK);
    assert_int_equal(add_byte(&buf, 'd'), ONCE_OK);
    assert_int_equal(once__buf_add(&buf, "\0x", 2), ONCE_OK);
    assert_int_equal(buf.len, 6);
    assert_memory_equal(buf.data, "abcd\0x", 7);
    once__buf_free(&buf);
    assert_null(buf.data);
    assert_int_equal(buf.len, 0);
    assert_int_equal(buf.max, 100);
}

static void the_maximum_is_exact(void **state)
{
    char bytes[1000];
    once__buf_t buf = ONCE__BUF(sizeof(bytes));

    memset(bytes, 'x', sizeof(bytes));
    assert_int_equal(once__buf_add(&buf, bytes, 999), ONCE_OK);
    assert_int_equal(add_byte(&buf, 'y'), ONCE_OK);
    assert_true(buf.room <= 1001);
    assert_int_equal(once__buf_add(&buf, NULL, 0), ONCE_OK);
    assert_int_equal(add_byte(&buf, 'z'), ONCE_E_TOO_BIG);
    assert_int_equal(buf.len, 1000);
    assert_int_equal(buf.data[999], 'y');
    once__buf_free(&buf);
    assert_int_equal(once__buf_add(&buf, bytes, SIZE_MAX), ONCE_E_TOO_BIG);
    buf.max = SIZE_MAX;
    once__buf_reset(&buf, 0);
    assert_int_equal(add_byte(&buf, 'a'), ONCE_OK);
    assert_null(once__buf_reserve(&buf, SIZE_MAX - 1));
    assert_int_equal(buf.error, ONCE_E_TOO_BIG);
    once__buf_free(&buf);
    buf.max = 0;
    assert_int_equal(add_byte(&buf, 'a'), ONCE_E_TOO_BIG);
}

static void errors_stick_until_reset(void **state)
{
    once__buf_t buf = ONCE__BUF(4);

    assert_int_equal(add_text(&buf, "ab"), ONCE_OK);
    assert_int_equal(add_text(&buf, "cde"), ONCE_E_TOO_BIG);
    assert_int_equal(add_text(&buf, "c"), ONCE_E_TOO_BIG);
    assert_int_equal(buf.error, ONCE_E_TOO_BIG);
    assert_string_equal(buf.data, "ab");
    once__buf_reset(&buf, 4096);
    assert_int_equal(buf.error, ONCE_OK);
    assert_string_equal(buf.data, "");
    assert_int_equal(add_text(&buf, "c"), ONCE_OK);
    once__buf_free(&buf);
}

static void memory_may_be_short(void **state)
{
    once__buf_t buf = ONCE__BUF(1000);

    assert_int_equal(add_text(&buf, "ab"), ONCE_OK);
    memory_is_short = 1;
    assert_null(once__buf_reserve(&buf, 500));
    assert_int_equal(buf.error, ONCE_E_NOMEM);
    memory_is_short = 0;
    assert_int_equal(add_text(&buf, "c"), ONCE_E_NOMEM);
    assert_string_equal(buf.data, "ab");
    assert_null(once__buf_take(&buf));
    assert_int_equal(buf.error, ONCE_E_NOMEM);
    assert_null(buf.data);
}

static void growing_is_rare(void **state)
{
    once__buf_t buf = ONCE__BUF(1 << 20);

    for (size_t i = 0; i < 1 << 20; i++) {
        assert_int_equal(add_byte(&buf, (char)i), ONCE_OK);
    }
    for (size_t i = 0; i < 1 << 20; i++) {
        assert_int_equal(buf.data[i], (char)i);
    }
    assert_true(allocations <= 16);
    once__buf_reset(&buf, 1 << 10);
    assert_null(buf.data); /* a rare giant does not stay */
}

static void room_is_filled_in_place(void **state)
{
    once__buf_t buf = ONCE__BUF(100);
    char *at = once__buf_reserve(&buf, 10);

    assert_non_null(at);
    memcpy(at, "0123456789", 10);
    once__buf_added(&buf, 7);
    assert_string_equal(buf.data, "0123456");
    once__buf_free(&buf);
}

static void what_is_taken_is_the_callers(void **state)
{
    once__buf_t buf = ONCE__BUF(100);
    char *text = once__buf_take(&buf);

    assert_string_equal(text, "");
    free(text);
    assert_int_equal(add_text(&buf, "abc"), ONCE_OK);
    text = once__buf_take(&buf);
    assert_string_equal(text, "abc");
    free(text);
    assert_null(buf.data);
    assert_int_equal(buf.len, 0);
}

static void arrays_grow_to_their_maximum(void **state)
{
    uint32_t *items = NULL;
    size_t room = 0;

    for (uint32_t i = 0; i < 1000; i++) {
        items = once__grow(items, &room, i + 1, sizeof(*items), 1000);
        assert_non_null(items);
        assert_true(room > i && room <= 1000);
        items[i] = i;
    }
    assert_true(allocations <= 8);
    assert_null(once__grow(items, &room, 1001, sizeof(*items), 1000));
    assert_null(once__grow(items, &room, 1001, sizeof(*items), SIZE_MAX));
    memory_is_short = 1;
    assert_null(once__grow(items, &room, 1001, sizeof(*items), 2000));
    assert_int_equal(room, 1000);
    for (uint32_t i = 0; i < 1000; i++) {
        assert_int_equal(items[i], i);
    }
    free(items);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(text_is_terminated, setup),
        cmocka_unit_test_setup(the_maximum_is_exact, setup),
        cmocka_unit_test_setup(errors_stick_until_reset, setup),
        cmocka_unit_test_setup(memory_may_be_short, setup),
        cmocka_unit_test_setup(growing_is_rare, setup),
        cmocka_unit_test_setup(room_is_filled_in_place, setup),
        cmocka_unit_test_setup(what_is_taken_is_the_callers, setup),
        cmocka_unit_test_setup(arrays_grow_to_their_maximum, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
