#include "harness.h"

#include <stdio.h>
#include <string.h>

#include <once/audit.h>

#include "records.h"

#define URL "memory:erase"

static int fill(void **state)
{
    once_t *once = open_store(URL);

    make_completed(once, "shop", "done-1", "the account of grete");
    make_completed(once, "shop", "done-2", "x");
    make_failed(once, "shop", "failed-1", "grete was away");
    make_unknown(once, "bank", "unknown-1", "hold");
    make_pending(once, "bank", "pending-1");
    *state = once;
    return 0;
}

static int empty(void **state)
{
    once_close(*state, 0);
    return 0;
}

static int is_erased(once_t *once, const char *scope, const char *key)
{
    once_answer_t *answer = read_record(once, scope, key);
    int erased;

    assert_non_null(answer);
    erased = once_record_is_erased(once_answer_record(answer));
    once_answer_free(answer);
    return erased;
}

static void dry_run_only_counts(void **state)
{
    run_t r = run("keys", "erase", URL, "--all", "--dry-run", NULL);

    assert_run(r, ONCE__CLI_OK);
    assert_string_equal(r.out, "5 records: 1 pending, 2 completed, 1 failed, 1 unknown\n");
    run_free(&r);
    assert_false(is_erased(*state, "shop", "done-1"));
}

static void one_record_by_key(void **state)
{
    run_t r = run("keys", "erase", URL, "done-1", "--yes", "--note", "test", NULL);

    assert_run(r, ONCE__CLI_OK);
    assert_has(r.out, "Backups, snapshots and replicas");
    assert_has(r.out, "erased 1\n");
    run_free(&r);
    assert_true(is_erased(*state, "shop", "done-1"));
    assert_false(is_erased(*state, "shop", "done-2"));
    assert_int_equal(state_of(*state, "shop", "done-1"), ONCE_STATE_COMPLETED);
    /* Its key is not there to be found by; who knows the scope finds it. */
    r = run("keys", "erase", URL, "done-1", "--yes", "--note", "test", NULL);
    assert_run(r, ONCE__CLI_NOT_FOUND);
    run_free(&r);
    r = run("keys", "erase", URL, "--scope", "shop", "--key", "done-1", "--yes", "--note", "test",
            "--json", NULL);
    assert_run(r, ONCE__CLI_OK);
    assert_has(r.out, "\"erased\":0,\"already_erased\":1,");
    run_free(&r);
    r = run("keys", "show", URL, id_of(*state, "shop", "done-1").hex, NULL);
    assert_run(r, ONCE__CLI_OK);
    assert_has(r.out, "key          (erased)\n");
    assert_has(r.out, "response     201, erased\n");
    run_free(&r);
    r = run("keys", "list", URL, NULL);
    assert_run(r, ONCE__CLI_OK);
    assert_has(r.out, "(erased)");
    run_free(&r);
}

static void by_scope(void **state)
{
    run_t r = run("keys", "erase", URL, "--scope", "shop", "--yes", "--note", "test", NULL);

    assert_run(r, ONCE__CLI_OK);
    assert_has(r.out, "erased 3\n");
    run_free(&r);
    assert_true(is_erased(*state, "shop", "failed-1"));
    assert_int_equal(state_of(*state, "shop", "failed-1"), ONCE_STATE_FAILED);
}

/* The others are erased all the same: to wait for an operator would keep them. */
static void undecided_ones_are_left(void **state)
{
    run_t r = run("keys", "erase", URL, "--all", "--yes", "--note", "test", "--json", NULL);

    assert_run(r, ONCE__CLI_REFUSED);
    assert_has(r.err, "2 of them are pending or unknown, and not erased");
    assert_string_equal(r.out, "{\"records\":5,\"erased\":3,\"already_erased\":0,\"undecided\":2,"
                               "\"changed\":0,\"segments_cleared\":0,\"segments_left\":0,"
                               "\"segments_damaged\":0}\n");
    run_free(&r);
    assert_true(is_erased(*state, "shop", "done-2"));
    assert_false(is_erased(*state, "bank", "unknown-1"));
}

static int collect(once_t *once, const once_audit_entry_t *entry, void *data)
{
    char *texts = data;
    size_t len = strlen(texts);

    snprintf(texts + len, 8192 - len, "%.*s\n", (int)entry->json.len,
             (const char *)entry->json.data);
    return 0;
}

static void the_trail_has_no_texts(void **state)
{
    static char texts[8192];
    run_t r = run("keys", "erase", URL, "--scope", "shop", "--key", "done-1", "--yes", "--note",
                  "asked for", NULL);

    assert_run(r, ONCE__CLI_OK);
    run_free(&r);
    assert_int_equal(once_audit_scan_sync(*state, collect, texts, NULL), ONCE_OK);
    assert_has(texts, "\"act\":\"erase\",\"step\":\"intent\"");
    assert_has(texts, "\"note\":\"asked for\"");
    assert_has(texts, "\"to\":\"completed\",\"result\":\"done\"");
    assert_null(strstr(texts, "done-1"));
    assert_null(strstr(texts, "grete"));
}

static void what_is_missing_or_too_much(void **state)
{
    run_t r = run("keys", "erase", URL, "--all", "--yes", NULL);

    assert_run(r, ONCE__CLI_USAGE);
    assert_has(r.err, "--note");
    run_free(&r);
    r = run("keys", "erase", URL, "--yes", "--note", "test", NULL);
    assert_run(r, ONCE__CLI_USAGE);
    run_free(&r);
    r = run("keys", "erase", URL, "--finish", "--all", NULL);
    assert_run(r, ONCE__CLI_USAGE);
    assert_has(r.err, "--finish");
    run_free(&r);
    r = run("keys", "erase", URL, "--finish", NULL);
    assert_run(r, ONCE__CLI_OK);
    run_free(&r);
    assert_false(is_erased(*state, "shop", "done-1"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(dry_run_only_counts, fill, empty),
        cmocka_unit_test_setup_teardown(one_record_by_key, fill, empty),
        cmocka_unit_test_setup_teardown(by_scope, fill, empty),
        cmocka_unit_test_setup_teardown(undecided_ones_are_left, fill, empty),
        cmocka_unit_test_setup_teardown(the_trail_has_no_texts, fill, empty),
        cmocka_unit_test_setup_teardown(what_is_missing_or_too_much, fill, empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
