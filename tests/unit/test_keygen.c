#include "support/testing.h"

#include <string.h>

#include <once/key.h>

#include "base/uuid.h"
#include "core/keygen.h"

static once_slice_t slice(const char *text)
{
    once_slice_t value = {text, strlen(text)};
    return value;
}

static void uuids_are_read_again(void **state)
{
    static const char *const others[] = {
        "0123456A-89ab-cdef-0123-456789abcdef", "01234567-89ab-cdef-0123-456789abcdeg",
        "01234567-89ab-cdef-0123+456789abcdef", "01234567-89ab-cdef-0123-456789abcde"};
    static const char text[] = "01234567-89ab-cdef-fedc-ba9876543210";
    char again[ONCE_UUID_SIZE];
    uint8_t bytes[16];

    assert_int_equal(once__uuid_read(bytes, text, strlen(text)), 1);
    assert_int_equal(bytes[0], 0x01);
    assert_int_equal(bytes[15], 0x10);
    once__uuid_text(again, bytes);
    assert_string_equal(again, text);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        assert_int_equal(once__uuid_read(bytes, others[i], strlen(others[i])), 0);
    }
}

static void uuids_have_version_and_variant(void **state)
{
    uint8_t random[16];
    char out[ONCE_UUID_SIZE];

    for (uint8_t i = 0; i < 16; i++) {
        random[i] = (uint8_t)(i << 4 | i);
    }
    once__uuid4(out, random);
    assert_string_equal(out, "00112233-4455-4677-8899-aabbccddeeff");
    memset(random, 0xff, sizeof(random));
    once__uuid4(out, random);
    assert_string_equal(out, "ffffffff-ffff-4fff-bfff-ffffffffffff");
    /* The time of the example in RFC 9562: 2022-02-22 14:22:22 -0500. */
    once__uuid7(out, (uint64_t)0x017f22e279b0 << 12 | 0xabc, random);
    assert_string_equal(out, "017f22e2-79b0-7abc-bfff-ffffffffffff");
}

static void stamps_only_go_up(void **state)
{
    uint64_t first = once__uuid7_next(0, 1000), second = once__uuid7_next(first, 1000);

    assert_int_equal(first, (uint64_t)1000 << 12);
    assert_int_equal(second, first + 1);
    assert_int_equal(once__uuid7_next(second, 999), second + 1);
    assert_int_equal(once__uuid7_next(second, 1001), (uint64_t)1001 << 12);
}

static void uuid7s_of_a_process_come_in_order(void **state)
{
    char last[ONCE_UUID_SIZE] = "", next[ONCE_UUID_SIZE];

    for (int i = 0; i < 10000; i++) {
        assert_int_equal(once_key_uuid7(next), ONCE_OK);
        assert_true(strcmp(last, next) < 0);
        assert_int_equal(next[14], '7');
        memcpy(last, next, sizeof(last));
    }
}

static void uuid4s_differ(void **state)
{
    char a[ONCE_UUID_SIZE], b[ONCE_UUID_SIZE];

    assert_int_equal(once_key_uuid4(a), ONCE_OK);
    assert_int_equal(once_key_uuid4(b), ONCE_OK);
    assert_string_not_equal(a, b);
    assert_int_equal(strlen(a), ONCE_UUID_SIZE - 1);
}

static once_key_parts_t parts_of(once_slice_t principal, once_slice_t action, once_slice_t payload)
{
    once_key_parts_t parts = ONCE_KEY_PARTS_INIT;

    parts.principal = principal;
    parts.action = action;
    parts.payload = payload;
    return parts;
}

/* These texts are sent to third parties and stored: they must never change. Computed apart from this code. */
static void keys_from_contents_stay_the_same(void **state)
{
    once_key_parts_t parts = parts_of(slice("user-7"), slice("transfer"), slice("{\"amount\":1}"));
    once_key_t key;

    parts.when_ms = 1700000000000;
    parts.bucket_ms = 60000;
    assert_int_equal(once_key_deterministic(&parts, &key, NULL), ONCE_OK);
    assert_string_equal(key.text, "h1-xg4p7j7tyl3c6apuawifx5cpx36fme6xrghb6smfqahy2zcrrhkq");
    assert_int_equal(key.len, strlen(key.text));
    parts.payload = slice("");
    parts.bucket_ms = 0;
    assert_int_equal(once_key_deterministic(&parts, &key, NULL), ONCE_OK);
    assert_string_equal(key.text, "h1-3uu3wan2evqfo357lbeftnl5xx4bdaegym452ojt2j3wdieztc2q");
    assert_int_equal(once_key_derive(slice("order-1"), slice("charge"), &key, NULL), ONCE_OK);
    assert_string_equal(key.text, "d1-iakoipsazgouv7ukswhc3mdsx5lzm6bxnotngghy6ma2xtrxglcq");
    assert_int_equal(key.len, strlen(key.text));
}

static void deterministic(const char *principal, const char *action, const char *payload,
                          uint64_t when, uint64_t bucket, once_key_t *key)
{
    once_key_parts_t parts = parts_of(slice(principal), slice(action), slice(payload));

    parts.when_ms = when;
    parts.bucket_ms = bucket;
    assert_int_equal(once_key_deterministic(&parts, key, NULL), ONCE_OK);
}

static void deterministic_keys_depend_on_everything(void **state)
{
    once_key_t base, other;

    deterministic("ab", "c", "d", 5000, 1000, &base);
    deterministic("ab", "c", "d", 5999, 1000, &other);
    assert_string_equal(base.text, other.text);
    deterministic("ab", "c", "d", 6000, 1000, &other);
    assert_string_not_equal(base.text, other.text);
    deterministic("ab", "c", "d", 5000, 1001, &other);
    assert_string_not_equal(base.text, other.text);
    deterministic("ab", "c", "d", 5000, 0, &other);
    assert_string_not_equal(base.text, other.text);
    deterministic("a", "bc", "d", 5000, 1000, &other);
    assert_string_not_equal(base.text, other.text);
    deterministic("ab", "c", "", 5000, 1000, &other);
    assert_string_not_equal(base.text, other.text);
    /* Without a bucket the time does not matter. */
    deterministic("ab", "c", "d", 1, 0, &base);
    deterministic("ab", "c", "d", UINT64_MAX, 0, &other);
    assert_string_equal(base.text, other.text);
}

/* What once.derive gives in SQL for the same record: tests/serve compares both on a real one. */
static void the_key_of_a_step_is_known(void **state)
{
    uint8_t id[ONCE_ID_SIZE];
    once_key_t key, other;
    once_error_t err;

    for (size_t i = 0; i < sizeof(id); i++) {
        id[i] = (uint8_t)i;
    }
    assert_int_equal(once__key_of_step(id, 1700000000123, slice("charge"), &key, NULL), ONCE_OK);
    assert_string_equal(key.text, "d2-almcbsavmwstrcgwmdx6jx3xut2comtaxgyxptx263venbifl34a");
    assert_int_equal(once__key_of_step(id, 1700000000124, slice("charge"), &other, NULL), ONCE_OK);
    assert_string_not_equal(key.text, other.text);
    assert_int_equal(once__key_of_step(id, 1, slice(""), &key, &err), ONCE_E_INVALID);
    assert_int_equal(key.len, 0);
}

static void derived_keys_depend_on_parent_and_step(void **state)
{
    once_key_t base, other;

    assert_int_equal(once_key_derive(slice("ab"), slice("c"), &base, NULL), ONCE_OK);
    assert_int_equal(once_key_derive(slice("a"), slice("bc"), &other, NULL), ONCE_OK);
    assert_string_not_equal(base.text, other.text);
}

static void empty_inputs_are_named(void **state)
{
    once_slice_t nothing = {NULL, 0};
    once_key_parts_t no_principal = parts_of(nothing, slice("a"), nothing);
    once_key_parts_t no_action = parts_of(slice("p"), nothing, nothing);
    once_key_t key;
    once_error_t err;

    assert_int_equal(once_key_deterministic(&no_principal, &key, &err), ONCE_E_INVALID);
    assert_non_null(strstr(err.text, "the principal is empty"));
    assert_int_equal(once_key_deterministic(&no_action, &key, &err), ONCE_E_INVALID);
    assert_non_null(strstr(err.text, "the action is empty"));
    assert_int_equal(once_key_derive(nothing, slice("s"), &key, &err), ONCE_E_INVALID);
    assert_non_null(strstr(err.text, "the parent is empty"));
    assert_int_equal(once_key_derive(slice("p"), nothing, &key, &err), ONCE_E_INVALID);
    assert_non_null(strstr(err.text, "the step is empty"));
    assert_int_equal(key.len, 0);
}

static void composite_keys_join_their_parts(void **state)
{
    const once_slice_t parts[] = {slice("invoice"), slice("2024-07"), slice("A.b_c~9")};
    once_key_t key;

    assert_int_equal(once_key_composite(parts, 3, &key, NULL), ONCE_OK);
    assert_string_equal(key.text, "invoice:2024-07:A.b_c~9");
    assert_int_equal(once_key_composite(parts, 1, &key, NULL), ONCE_OK);
    assert_string_equal(key.text, "invoice");
}

static void composite_keys_name_the_bad_part(void **state)
{
    static const char *const bad[] = {"a:b", "a b", "", "a,b", "\xc3\xa4", "a/b", "a\n"};
    once_key_t key;
    once_error_t err;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        const once_slice_t parts[] = {slice("fine"), slice(bad[i])};
        assert_int_equal(once_key_composite(parts, 2, &key, &err), ONCE_E_KEY);
        assert_non_null(strstr(err.text, "part 2"));
        assert_int_equal(key.len, 0);
    }
    const once_slice_t zero = {"a\0b", 3};
    assert_int_equal(once_key_composite(&zero, 1, &key, &err), ONCE_E_KEY);
    assert_int_equal(once_key_composite(NULL, 0, &key, &err), ONCE_E_KEY);
}

static void composite_keys_have_the_limit_of_keys(void **state)
{
    char text[ONCE_KEY_MAX + 1];
    once_slice_t parts[] = {{text, 100}, {text, 154}, {text, 1}};
    once_key_t key;
    once_error_t err;

    memset(text, 'p', sizeof(text));
    assert_int_equal(once_key_composite(parts, 2, &key, &err), ONCE_OK);
    assert_int_equal(key.len, ONCE_KEY_MAX);
    /* The key is full: not even a colon fits. */
    assert_int_equal(once_key_composite(parts, 3, &key, &err), ONCE_E_TOO_BIG);
    assert_int_equal(key.len, 0);
    parts[1].len++;
    assert_int_equal(once_key_composite(parts, 2, &key, &err), ONCE_E_TOO_BIG);
    assert_non_null(strstr(err.text, "part 2"));
    parts[0].len = ONCE_KEY_MAX + 1;
    assert_int_equal(once_key_composite(parts, 1, &key, &err), ONCE_E_TOO_BIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(uuids_are_read_again),
        cmocka_unit_test(uuids_have_version_and_variant),
        cmocka_unit_test(stamps_only_go_up),
        cmocka_unit_test(uuid7s_of_a_process_come_in_order),
        cmocka_unit_test(uuid4s_differ),
        cmocka_unit_test(keys_from_contents_stay_the_same),
        cmocka_unit_test(deterministic_keys_depend_on_everything),
        cmocka_unit_test(derived_keys_depend_on_parent_and_step),
        cmocka_unit_test(the_key_of_a_step_is_known),
        cmocka_unit_test(empty_inputs_are_named),
        cmocka_unit_test(composite_keys_join_their_parts),
        cmocka_unit_test(composite_keys_name_the_bad_part),
        cmocka_unit_test(composite_keys_have_the_limit_of_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
