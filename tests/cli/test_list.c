#include "harness.h"

#include <stdio.h>
#include <string.h>

#include "records.h"

#define URL "memory:list"

static int fill(void **state)
{
    once_t *once = open_store(URL);

    make_stuck(once, "shop", "stuck-1", "hold");
    make_unknown(once, "shop", "unknown-1", "hold");
    make_pending(once, "shop", "pending-1");
    make_completed(once, "bank", "completed-1", "body");
    make_failed(once, "bank", "failed-1", "no connection");
    *state = once;
    return 0;
}

static int empty(void **state)
{
    once_close(*state, 0);
    return 0;
}

/* The keys that a listing with these options has, in any order. */
static void expect_keys(run_t r, const char *const *keys)
{
    size_t count = 0;

    assert_run(r, ONCE__CLI_OK);
    for (; keys[count] != NULL; count++) {
        char member[64];
        snprintf(member, sizeof(member), "\"key\":\"%s\"", keys[count]);
        assert_has(r.out, member);
    }
    assert_int_equal(count_lines(r.out), count);
    run_free(&r);
}

#define KEYS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void filters(void **state)
{
    const char *const none[] = {NULL};
    run_t r;

    expect_keys(run("keys", "list", URL, "--json", NULL),
                KEYS("stuck-1", "unknown-1", "pending-1", "completed-1", "failed-1"));
    expect_keys(run("keys", "list", URL, "--json", "--state", "pending", NULL),
                KEYS("stuck-1", "pending-1"));
    expect_keys(run("keys", "list", URL, "--json", "--state", "failed,completed", NULL),
                KEYS("failed-1", "completed-1"));
    expect_keys(run("keys", "list", URL, "--json", "--stuck", NULL), KEYS("stuck-1", "unknown-1"));
    expect_keys(run("keys", "list", URL, "--json", "--stuck", "--state", "unknown", NULL),
                KEYS("unknown-1"));
    expect_keys(run("keys", "list", URL, "--json", "--scope", "bank", NULL),
                KEYS("completed-1", "failed-1"));
    expect_keys(run("keys", "list", URL, "--json", "--older", "1d", NULL), none);
    expect_keys(run("keys", "list", URL, "--json", "--younger", "1d", "--state", "failed", NULL),
                KEYS("failed-1"));
    expect_keys(run("keys", "list", URL, "--json", "--scope", "nobody", NULL), none);
    r = run_with_input("bank\n", 5, "keys", "list", URL, "--json", "--scope-file", "-", NULL);
    expect_keys(r, KEYS("completed-1", "failed-1"));
}

/* A key without its scope: all that have it, and what it took. */
static void find(void **state)
{
    run_t r = run("keys", "find", URL, "unknown-1", NULL), bank, none, usage;

    assert_run(r, ONCE__CLI_OK);
    assert_has(r.err, "looking at about 5 records");
    assert_has(r.err, "1 found among 5 in ");
    assert_has(r.out, id_of(*state, "shop", "unknown-1").hex);
    assert_has(r.out, "timeout");
    run_free(&r);
    expect_keys(run("keys", "find", URL, "--json", "unknown-1", NULL), KEYS("unknown-1"));
    bank = run("keys", "find", URL, "unknown-1", "--scope", "bank", NULL);
    assert_run(bank, ONCE__CLI_NOT_FOUND);
    assert_has(bank.err, "0 found among 2");
    none = run("keys", "find", URL, "unknown", NULL);
    assert_run(none, ONCE__CLI_NOT_FOUND);
    usage = run("keys", "find", URL, NULL);
    assert_run(usage, ONCE__CLI_USAGE);
    run_free(&bank);
    run_free(&none);
    run_free(&usage);
}

static void scope_hash(void **state)
{
    run_t all = run("keys", "list", URL, "--json", "--scope", "bank", NULL);
    json_t *first = json_line(all.out, 0);
    char hash[33];

    snprintf(hash, sizeof(hash), "%s", json_text_of(first, "scope_hash"));
    assert_int_equal(strlen(hash), 32);
    expect_keys(run("keys", "list", URL, "--json", "--scope-hash", hash, NULL),
                KEYS("completed-1", "failed-1"));
    hash[8] = '\0';
    expect_keys(run("keys", "list", URL, "--json", "--scope-hash", hash, NULL),
                KEYS("completed-1", "failed-1"));
    json_decref(first);
    run_free(&all);
}

static void json_members(void **state)
{
    run_t r = run("keys", "list", URL, "--json", "--state", "failed", NULL);
    json_t *record = json_line(r.out, 0);

    assert_string_equal(json_text_of(record, "id"), id_of(*state, "bank", "failed-1").hex);
    assert_string_equal(json_text_of(record, "state"), "failed");
    assert_string_equal(json_text_of(record, "note"), "no connection");
    assert_string_equal(json_text_of(record, "policy"), "retry");
    assert_int_equal(json_number_of(record, "status"), 503);
    assert_int_equal(json_number_of(record, "epoch"), 1);
    assert_true(json_is_false(json_object_get(record, "stuck")));
    assert_true(json_number_of(record, "expires_ms") > 0);
    assert_int_equal(json_number_of(record, "lease_ms"), 0);
    assert_int_equal(strlen(json_text_of(record, "claim_id")), 32);
    assert_null(json_object_get(record, "claim"));
    assert_null(json_object_get(record, "key_base64"));
    assert_null(json_object_get(record, "response"));
    json_decref(record);
    run_free(&r);

    r = run("keys", "list", URL, "--json", "--state", "unknown", NULL);
    record = json_line(r.out, 0);
    assert_true(json_is_true(json_object_get(record, "stuck")));
    assert_true(json_is_null(json_object_get(record, "expires_ms")));
    assert_string_equal(json_text_of(record, "policy"), "hold");
    json_decref(record);
    run_free(&r);
}

static void limits(void **state)
{
    run_t two = run("keys", "list", URL, "--json", "--limit", "2", NULL);
    run_t exact = run("keys", "list", URL, "--json", "--limit", "5", NULL);
    run_t all = run("keys", "list", URL, "--json", "--limit", "0", NULL);

    assert_run(two, ONCE__CLI_OK);
    assert_int_equal(count_lines(two.out), 2);
    assert_has(two.err, "more than these 2");
    assert_int_equal(count_lines(exact.out), 5);
    assert_string_equal(exact.err, "");
    assert_int_equal(count_lines(all.out), 5);
    assert_string_equal(all.err, "");
    run_free(&two);
    run_free(&exact);
    run_free(&all);
}

/* Every line is as long as its columns say: KEY begins at the same place everywhere. */
static void table_is_aligned(void **state)
{
    run_t r = run("keys", "list", URL, NULL);
    const char *head = strstr(r.out, "KEY");
    const char *line = r.out;
    size_t column;

    assert_run(r, ONCE__CLI_OK);
    assert_non_null(head);
    column = (size_t)(head - r.out);
    assert_int_equal(count_lines(r.out), 6);
    for (int i = 0; i < 5; i++) {
        line = strchr(line, '\n') + 1;
        assert_true(strcspn(line, "\n") > column);
        assert_int_equal(line[column - 1], ' ');
        assert_int_not_equal(line[column], ' ');
    }
    assert_has(r.out, "over");  /* the lease of stuck-1 */
    assert_has(r.out, "never"); /* pending does not expire */
    assert_lacks(r.out, id_of(*state, "bank", "failed-1").hex);
    run_free(&r);
}

static void wide_table(void **state)
{
    run_t r = run("keys", "list", URL, "--wide", NULL);

    assert_run(r, ONCE__CLI_OK);
    assert_has(r.out, id_of(*state, "bank", "failed-1").hex);
    assert_has(r.out, "SCOPE");
    assert_has(r.out, "IDLE");
    run_free(&r);
}

static void nothing_to_list(void **state)
{
    run_t text = run("keys", "list", "memory:", NULL);
    run_t json = run("keys", "list", "memory:", "--json", NULL);

    assert_run(text, ONCE__CLI_OK);
    assert_string_equal(text.out, "no records\n");
    assert_run(json, ONCE__CLI_OK);
    assert_string_equal(json.out, "");
    run_free(&text);
    run_free(&json);
}

/* A key is what a client sent, or worse: it must not control the terminal, break the table or the JSON. */
static void hostile_keys(void **state)
{
    static const char evil[] = "\033[2J\r\n\t\"\\\x7f\x80\xff\0key";
    once_t *once = open_store("memory:hostile");
    once_slice_t key = {evil, sizeof(evil) - 1};
    run_t r;
    json_t *record;

    once_claim_drop(claim_bytes(once, "s", key, LONG_LEASE));
    r = run("keys", "list", "memory:hostile", NULL);
    assert_run(r, ONCE__CLI_OK);
    assert_true(is_harmless(r.out));
    assert_int_equal(count_lines(r.out), 2);
    assert_has(r.out, "\\x1b[2J\\x0d\\x0a");
    run_free(&r);

    r = run("keys", "list", "memory:hostile", "--wide", NULL);
    assert_true(is_harmless(r.out));
    assert_has(r.out, "\\x00key");
    run_free(&r);

    r = run("keys", "list", "memory:hostile", "--json", NULL);
    assert_true(is_harmless(r.out));
    record = json_line(r.out, 0);
    assert_null(json_object_get(record, "key")); /* it is not UTF-8 */
    assert_string_equal(json_text_of(record, "key_base64"), "G1sySg0KCSJcf4D/AGtleQ==");
    json_decref(record);
    run_free(&r);
    once_close(once, 0);
}

static void long_keys_are_cut(void **state)
{
    once_t *once = open_store("memory:long");
    char key[ONCE_KEY_MAX + 1];
    run_t r;

    memset(key, 'k', ONCE_KEY_MAX);
    key[ONCE_KEY_MAX] = '\0';
    make_pending(once, "s", key);
    r = run("keys", "list", "memory:long", NULL);
    assert_has(r.out, "kkk...\n");
    assert_lacks(r.out, key);
    run_free(&r);
    r = run("keys", "list", "memory:long", "--wide", NULL);
    assert_has(r.out, key);
    run_free(&r);
    once_close(once, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(filters),      cmocka_unit_test(find),
        cmocka_unit_test(scope_hash),   cmocka_unit_test(json_members),
        cmocka_unit_test(limits),       cmocka_unit_test(table_is_aligned),
        cmocka_unit_test(wide_table),   cmocka_unit_test(nothing_to_list),
        cmocka_unit_test(hostile_keys), cmocka_unit_test(long_keys_are_cut),
    };
    return cmocka_run_group_tests(tests, fill, empty);
}
