#include "harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void new_keys(void **state)
{
    run_t one = run("key", "new", NULL);
    run_t many = run("key", "new", "-n", "100", NULL);
    run_t seven = run("key", "new", "--v7", "--count=2", NULL);

    assert_run(one, ONCE__CLI_OK);
    assert_int_equal(strlen(one.out), 37);
    assert_int_equal(one.out[14], '4');
    assert_int_equal(count_lines(many.out), 100);
    for (const char *line = many.out; *line != '\0'; line += 37) {
        char key[38];
        snprintf(key, sizeof(key), "%.37s", line);
        assert_null(strstr(line + 37, key)); /* no two are the same */
    }
    assert_int_equal(count_lines(seven.out), 2);
    assert_int_equal(seven.out[14], '7');
    assert_true(strncmp(seven.out, seven.out + 37, 36) < 0); /* in order */
    run_free(&one);
    run_free(&many);
    run_free(&seven);
}

static void derived_keys(void **state)
{
    run_t a = run("key", "derive", "--parent", "order-1", "--step", "charge", NULL);
    run_t same = run("key", "derive", "--step=charge", "--parent=order-1", NULL);
    run_t other = run("key", "derive", "--parent", "order-1", "--step", "mail", NULL);
    run_t none = run("key", "derive", "--parent", "", "--step", "mail", NULL);

    assert_run(a, ONCE__CLI_OK);
    assert_int_equal(strncmp(a.out, "d1-", 3), 0);
    assert_int_equal(strlen(a.out), 56);
    assert_string_equal(a.out, same.out);
    assert_string_not_equal(a.out, other.out);
    assert_run(none, ONCE__CLI_USAGE);
    run_free(&a);
    run_free(&same);
    run_free(&other);
    run_free(&none);
}

static run_t hash(const char *at, const char *bucket, const char *payload)
{
    return run_with_input(payload, strlen(payload), "key", "hash", "--principal", "user-7",
                          "--action", "pay", "--payload-file", "-", "--at", at, "--bucket", bucket,
                          NULL);
}

static void hashed_keys(void **state)
{
    run_t a = hash("2024-05-01T12:00:00Z", "1h", "{}");
    run_t same_bucket = hash("1714568399", "1h", "{}"); /* 12:59:59 */
    run_t next_bucket = hash("1714568400", "1h", "{}");
    run_t other_payload = hash("2024-05-01T12:00:00Z", "1h", "{ }");
    run_t now = run("key", "hash", "--principal", "a", "--action", "b", NULL);
    run_t later = run("key", "hash", "--principal", "a", "--action", "b", "--at", "1", NULL);
    run_t bad = run("key", "hash", "--principal", "a", "--action", "b", "--at", "noon", NULL);
    run_t missing = run("key", "hash", "--principal", "a", NULL);

    assert_run(a, ONCE__CLI_OK);
    assert_int_equal(strncmp(a.out, "h1-", 3), 0);
    assert_string_equal(a.out, same_bucket.out);
    assert_string_not_equal(a.out, next_bucket.out);
    assert_string_not_equal(a.out, other_payload.out);
    assert_string_equal(now.out, later.out); /* no bucket: the same for ever */
    assert_run(bad, ONCE__CLI_USAGE);
    assert_run(missing, ONCE__CLI_USAGE);
    run_free(&a);
    run_free(&same_bucket);
    run_free(&next_bucket);
    run_free(&other_payload);
    run_free(&now);
    run_free(&later);
    run_free(&bad);
    run_free(&missing);
}

static void composed_keys(void **state)
{
    run_t r = run("key", "compose", "order", "42", "refund", NULL);
    run_t colon = run("key", "compose", "order:42", "refund", NULL);
    run_t dash = run("key", "compose", "--", "-a", "--b", NULL);

    assert_run(r, ONCE__CLI_OK);
    assert_string_equal(r.out, "order:42:refund\n");
    assert_run(colon, ONCE__CLI_USAGE);
    assert_has(colon.err, "part 1");
    assert_run(dash, ONCE__CLI_OK);
    assert_string_equal(dash.out, "-a:--b\n");
    run_free(&r);
    run_free(&colon);
    run_free(&dash);
}

static void checked_keys(void **state)
{
    run_t quoted = run("key", "check", "\"a b\"", NULL);
    run_t raw = run("key", "check", "  abc  ", NULL);
    run_t strict = run("key", "check", "--strict", "abc", NULL);
    run_t bad = run("key", "check", "\"a", NULL);
    run_t none = run("key", "check", "", NULL);
    run_t input = run_with_input("\"abc\"\r\n", 7, "key", "check", NULL);
    run_t nul = run_with_input("ab\0c", 4, "key", "check", NULL);

    assert_run(quoted, ONCE__CLI_OK);
    assert_string_equal(quoted.out, "a b\n");
    assert_string_equal(raw.out, "abc\n");
    assert_run(strict, ONCE__CLI_NO);
    assert_string_equal(strict.out, "");
    assert_has(strict.err, "not a key");
    assert_run(bad, ONCE__CLI_NO);
    assert_run(none, ONCE__CLI_NO);
    assert_run(input, ONCE__CLI_OK);
    assert_string_equal(input.out, "abc\n");
    assert_run(nul, ONCE__CLI_NO);
    run_free(&quoted);
    run_free(&raw);
    run_free(&strict);
    run_free(&bad);
    run_free(&none);
    run_free(&input);
    run_free(&nul);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(new_keys),     cmocka_unit_test(derived_keys),
        cmocka_unit_test(hashed_keys),  cmocka_unit_test(composed_keys),
        cmocka_unit_test(checked_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
