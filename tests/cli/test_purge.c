#include "harness.h"

#include <stdio.h>
#include <string.h>

#include <once/audit.h>

#include "records.h"
#include "terminal.h"

#define URL "memory:purge"

static int fill(void **state)
{
    once_t *once = open_store(URL);

    make_completed(once, "shop", "done-1", "x");
    make_completed(once, "shop", "done-2", "x");
    make_failed(once, "shop", "failed-1", "x");
    make_failed(once, "bank", "failed-2", "x");
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

static uint64_t count(once_t *once)
{
    once_answer_t *answer = NULL;
    const once_stats_t *stats;
    uint64_t sum;

    assert_int_equal(once_store_stats_sync(once, &answer), ONCE_OK);
    stats = once_answer_stats(answer);
    sum = stats->pending + stats->completed + stats->failed + stats->unknown;
    once_answer_free(answer);
    return sum;
}

static void dry_run_only_counts(void **state)
{
    run_t r = run("keys", "purge", URL, "--all", "--dry-run", NULL);

    assert_run(r, ONCE__CLI_OK);
    assert_string_equal(r.out, "6 records: 1 pending, 2 completed, 2 failed, 1 unknown\n");
    run_free(&r);
    assert_int_equal(count(*state), 6);
}

static void one_record_by_key(void **state)
{
    run_t r = run("keys", "purge", URL, "--scope", "shop", "--key", "done-1", "--yes", "--note",
                  "test", NULL);

    assert_run(r, ONCE__CLI_OK);
    assert_has(r.out, "purged 1\n");
    run_free(&r);
    assert_int_equal(state_of(*state, "shop", "done-1"), ONCE_STATE_NONE);
    assert_int_equal(count(*state), 5);
    r = run("keys", "purge", URL, "--scope", "shop", "--key", "done-1", "--yes", "--note", "test",
            NULL);
    assert_run(r, ONCE__CLI_NOT_FOUND);
    run_free(&r);
}

static void one_record_by_id(void **state)
{
    run_t r = run("keys", "purge", URL, id_of(*state, "shop", "done-2").hex, "--yes", "--note",
                  "test", NULL);

    assert_run(r, ONCE__CLI_OK);
    run_free(&r);
    assert_int_equal(state_of(*state, "shop", "done-2"), ONCE_STATE_NONE);
    assert_int_equal(count(*state), 5);
}

static void by_filter(void **state)
{
    run_t r = run("keys", "purge", URL, "--state", "failed", "--yes", "--note", "test", NULL);

    assert_run(r, ONCE__CLI_OK);
    assert_has(r.out, "2 records");
    assert_has(r.out, "purged 2\n");
    run_free(&r);
    assert_int_equal(count(*state), 4);
    assert_int_equal(state_of(*state, "shop", "done-1"), ONCE_STATE_COMPLETED);
}

static void by_scope(void **state)
{
    run_t r = run("keys", "purge", URL, "--scope", "shop", "--yes", "--note", "test", NULL);

    assert_run(r, ONCE__CLI_OK);
    assert_has(r.out, "purged 3\n");
    run_free(&r);
    assert_int_equal(state_of(*state, "bank", "failed-2"), ONCE_STATE_FAILED);
}

static void limited(void **state)
{
    run_t r = run("keys", "purge", URL, "--state", "completed", "--limit", "1", "--yes", "--note",
                  "test", NULL);

    assert_run(r, ONCE__CLI_OK);
    assert_has(r.out, "purged 1\n");
    run_free(&r);
    assert_int_equal(count(*state), 5);
}

/* Nothing at all is removed when some of them must not be. */
static void undecided_ones_need_force(void **state)
{
    run_t r = run("keys", "purge", URL, "--all", "--yes", "--note", "test", NULL);

    assert_run(r, ONCE__CLI_REFUSED);
    assert_has(r.err, "2 of them are pending or unknown");
    run_free(&r);
    assert_int_equal(count(*state), 6);
    r = run("keys", "purge", URL, "--all", "--yes", "--note", "test", "--force", NULL);
    assert_run(r, ONCE__CLI_OK);
    assert_has(r.out, "purged 6\n");
    run_free(&r);
    assert_int_equal(count(*state), 0);
}

static void without_a_terminal_yes_is_needed(void **state)
{
    run_t r =
        run_with_input("y\n", 2, "keys", "purge", URL, "--state", "failed", "--note", "test", NULL);

    assert_run(r, ONCE__CLI_USAGE);
    assert_has(r.out, "2 records"); /* counted first */
    assert_has(r.err, "--yes");
    run_free(&r);
    assert_int_equal(count(*state), 6);
}

static void nothing_to_purge(void **state)
{
    run_t r = run("keys", "purge", URL, "--older", "9d", "--note", "test", NULL);

    assert_run(r, ONCE__CLI_OK);
    assert_has(r.out, "0 records");
    run_free(&r);
}

static void claim_failed_1(void *data)
{
    once_claim_drop(claim(data, "shop", "failed-1", LONG_LEASE));
}

/* One of two failed records is claimed while the person thinks: it is kept, the other one goes. */
static void moved_on_while_the_person_thinks(void **state)
{
    const char *const arguments[] = {"keys",   "purge",  URL,    "--state",
                                     "failed", "--note", "test", NULL};
    const char *const refused[] = {"keys",      "purge",  URL,    "--state",
                                   "completed", "--note", "test", NULL};
    terminal_run_t r;

    run_on_terminal(&r, "n\n", NULL, NULL, refused);
    assert_int_equal(r.code, ONCE__CLI_REFUSED);
    assert_int_equal(count(*state), 6);
    run_on_terminal(&r, "y\n", claim_failed_1, *state, arguments);
    assert_int_equal(r.code, ONCE__CLI_REFUSED);
    assert_has(r.text, "purged 1");
    assert_has(r.text, "kept 1");
    assert_int_equal(state_of(*state, "shop", "failed-1"), ONCE_STATE_PENDING);
    assert_int_equal(state_of(*state, "bank", "failed-2"), ONCE_STATE_NONE);
}

static void another_claim_than_the_one_looked_at(void **state)
{
    run_t r = run("keys", "purge", URL, "--scope", "shop", "--key", "failed-1", "--claim", "x",
                  "--yes", "--note", "test", NULL);

    assert_run(r, ONCE__CLI_REFUSED);
    run_free(&r);
    assert_int_equal(count(*state), 6);
}

static int count_entry(once_t *once, const once_audit_entry_t *entry, void *data)
{
    char *texts = data;

    assert_int_equal(entry->fault, ONCE_AUDIT_FINE);
    strncat(texts, entry->json.data, entry->json.len);
    strcat(texts, "\n");
    return 0;
}

/* Of very many records the trail has what was chosen, and what became of it: two entries. */
static void many_records_are_two_entries(void **state)
{
    static char texts[1 << 16];
    char key[16];
    run_t r;

    for (int i = 0; i < 1100; i++) {
        snprintf(key, sizeof(key), "many-%d", i);
        make_failed(*state, "many", key, "x");
    }
    r = run("keys", "purge", URL, "--state", "failed", "--older", "0s", "--yes", "--note", "test",
            NULL);
    assert_run(r, ONCE__CLI_OK);
    assert_has(r.out, "purged 1102\n");
    run_free(&r);
    assert_int_equal(count(*state), 4);
    assert_int_equal(once_audit_scan_sync(*state, count_entry, texts, NULL), ONCE_OK);
    assert_int_equal(count_lines(texts), 2);
    assert_has(texts,
               "\"act\":\"purge\",\"step\":\"intent\",\"object\":\"1102 records: 0 pending, 0 "
               "completed, 1102 failed, 0 unknown, --state failed");
    assert_has(texts, "\"result\":\"purged 1102\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(many_records_are_two_entries, fill, empty),
        cmocka_unit_test_setup_teardown(dry_run_only_counts, fill, empty),
        cmocka_unit_test_setup_teardown(one_record_by_key, fill, empty),
        cmocka_unit_test_setup_teardown(one_record_by_id, fill, empty),
        cmocka_unit_test_setup_teardown(by_filter, fill, empty),
        cmocka_unit_test_setup_teardown(by_scope, fill, empty),
        cmocka_unit_test_setup_teardown(limited, fill, empty),
        cmocka_unit_test_setup_teardown(undecided_ones_need_force, fill, empty),
        cmocka_unit_test_setup_teardown(without_a_terminal_yes_is_needed, fill, empty),
        cmocka_unit_test_setup_teardown(nothing_to_purge, fill, empty),
        cmocka_unit_test_setup_teardown(moved_on_while_the_person_thinks, fill, empty),
        cmocka_unit_test_setup_teardown(another_claim_than_the_one_looked_at, fill, empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
