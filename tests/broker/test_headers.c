/*
 * Headers that were copied: they come back as they were, in their order.
 */
#include "support/testing.h"

#include <string.h>

#include "broker/kafka/headers.h"

#define MANY 300

typedef struct seen {
    size_t count;
    char names[MANY][16];
    char values[MANY][32];
    size_t lens[MANY];
} seen_t;

static once_slice_t slice(const char *text)
{
    return (once_slice_t){text, strlen(text)};
}

static void see(void *data, once_slice_t name, once_slice_t value)
{
    seen_t *seen = data;

    assert_true(seen->count < MANY && name.len < 16 && value.len <= 32);
    memcpy(seen->names[seen->count], name.data, name.len);
    seen->names[seen->count][name.len] = '\0';
    memcpy(seen->values[seen->count], value.data, value.len);
    seen->lens[seen->count++] = value.len;
}

static const seen_t *all_of(const once__kafka_headers_t *headers)
{
    static seen_t seen;

    seen.count = 0;
    once__kafka_headers_each(headers, see, &seen);
    return &seen;
}

static void they_come_back_in_order(void **state)
{
    once__kafka_headers_t headers = {0};
    const seen_t *seen;

    assert_int_equal(all_of(&headers)->count, 0);
    assert_int_equal(once__kafka_headers_add(&headers, slice("a"), slice("one")), 0);
    assert_int_equal(once__kafka_headers_add(&headers, slice("b"), (once_slice_t){NULL, 0}), 0);
    assert_int_equal(once__kafka_headers_add(&headers, slice("a"), (once_slice_t){"t\0o", 3}), 0);
    assert_int_equal(once__kafka_headers_add(&headers, slice(""), slice("nameless")), 0);
    seen = all_of(&headers);
    assert_int_equal(seen->count, 4);
    assert_string_equal(seen->names[0], "a");
    assert_memory_equal(seen->values[0], "one", 3);
    assert_string_equal(seen->names[1], "b");
    assert_int_equal(seen->lens[1], 0);
    assert_string_equal(seen->names[2], "a");
    assert_int_equal(seen->lens[2], 3);
    assert_memory_equal(seen->values[2], "t\0o", 3);
    assert_string_equal(seen->names[3], "");
    assert_memory_equal(seen->values[3], "nameless", 8);
    once__kafka_headers_free(&headers);
}

/* As librdkafka keeps them: they are copied in one piece. */
static void a_value_behind_its_name_is_the_same(void **state)
{
    static const char memory[] = "ce_id\0event-7";
    once__kafka_headers_t headers = {0};
    const seen_t *seen;

    assert_int_equal(
        once__kafka_headers_add(&headers, (once_slice_t){memory, 5}, (once_slice_t){memory + 6, 7}),
        0);
    assert_int_equal(once__kafka_headers_add(&headers, slice("x"), slice("y")), 0);
    seen = all_of(&headers);
    assert_int_equal(seen->count, 2);
    assert_string_equal(seen->names[0], "ce_id");
    assert_int_equal(seen->lens[0], 7);
    assert_memory_equal(seen->values[0], "event-7", 7);
    assert_string_equal(seen->names[1], "x");
    assert_memory_equal(seen->values[1], "y", 1);
    once__kafka_headers_free(&headers);
}

static void there_is_room_for_many_and_they_can_be_used_again(void **state)
{
    once__kafka_headers_t headers = {0};

    for (size_t round = 1; round <= MANY; round += 13) {
        const seen_t *seen;
        for (size_t i = 0; i < round; i++) {
            char value[32];
            memset(value, (int)('a' + i % 26), sizeof(value));
            assert_int_equal(once__kafka_headers_add(&headers, slice("name"),
                                                     (once_slice_t){value, sizeof(value)}),
                             0);
        }
        seen = all_of(&headers);
        assert_int_equal(seen->count, round);
        for (size_t i = 0; i < round; i++) {
            assert_int_equal(seen->values[i][31], (int)('a' + i % 26));
        }
        once__kafka_headers_clear(&headers);
        assert_int_equal(all_of(&headers)->count, 0);
    }
    once__kafka_headers_free(&headers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(they_come_back_in_order),
        cmocka_unit_test(a_value_behind_its_name_is_the_same),
        cmocka_unit_test(there_is_room_for_many_and_they_can_be_used_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
