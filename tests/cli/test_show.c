#include "harness.h"

#include <stdio.h>
#include <string.h>

#include "records.h"
#include "terminal.h"

#define URL "memory:show"

static const char body[] = "hello \033[31mworld\n";

static int fill(void **state)
{
    once_t *once = open_store(URL);

    make_completed(once, "shop", "done-1", body);
    make_failed(once, "shop", "failed-1", "line one\nline two\033[2J");
    make_unknown(once, "shop", "unknown-1", "hold");
    make_stuck(once, "shop", "stuck-1", "retry");
    make_pending(once, "", "no-scope");
    make_failed(once, "shop", "again-1", "not now");
    make_completed(once, "shop", "again-1", body);
    *state = once;
    return 0;
}

static int empty(void **state)
{
    once_close(*state, 0);
    return 0;
}

static void by_id_by_prefix_and_by_key(void **state)
{
    record_id_t id = id_of(*state, "shop", "done-1");
    run_t whole = run("keys", "show", URL, id.hex, NULL);
    run_t by_key = run("keys", "show", URL, "--scope", "shop", "--key", "done-1", NULL);
    run_t prefix, upper;

    assert_run(whole, ONCE__CLI_OK);
    assert_has(whole.out, id.hex);
    assert_has(whole.out, "completed");
    assert_run(by_key, ONCE__CLI_OK);
    assert_has(by_key.out, id.hex);
    id.hex[8] = '\0';
    prefix = run("keys", "show", URL, id.hex, NULL);
    assert_run(prefix, ONCE__CLI_OK);
    assert_has(prefix.out, "done-1");
    for (char *at = id.hex; *at != '\0'; at++) {
        *at = (char)(*at >= 'a' ? *at - 32 : *at);
    }
    upper = run("keys", "show", URL, id.hex, NULL);
    assert_run(upper, ONCE__CLI_OK);
    run_free(&whole);
    run_free(&by_key);
    run_free(&prefix);
    run_free(&upper);
}

/* The earlier ones; a record of one attempt says nothing of them. */
static void attempts(void **state)
{
    run_t text = run("keys", "show", URL, "again-1", NULL), json, first;
    run_t trace = run("trace", URL, "again-1", NULL);
    json_t *record, *attempt;

    assert_run(text, ONCE__CLI_OK);
    assert_has(text.out, "epoch        2\n  attempt    1, failed 2");
    assert_has(text.out, "Z, not now, by ");
    assert_run(trace, ONCE__CLI_OK);
    assert_has(trace.out, "Z, not now, by ");
    json = run("keys", "show", URL, "again-1", "--json", NULL);
    assert_run(json, ONCE__CLI_OK);
    record = json_loads(json.out, 0, NULL);
    attempt = json_array_get(json_object_get(record, "attempts"), 0);
    assert_int_equal(json_array_size(json_object_get(record, "attempts")), 1);
    assert_int_equal(json_integer_value(json_object_get(attempt, "epoch")), 1);
    assert_string_equal(json_string_value(json_object_get(attempt, "state")), "failed");
    assert_string_equal(json_string_value(json_object_get(attempt, "cause")), "not now");
    assert_int_equal(strlen(json_string_value(json_object_get(attempt, "ended"))), 20);
    assert_non_null(strchr(json_string_value(json_object_get(attempt, "holder")), ':'));
    json_decref(record);
    first = run("keys", "show", URL, "done-1", "--json", NULL);
    assert_null(strstr(first.out, "attempt"));
    run_free(&text);
    run_free(&trace);
    run_free(&json);
    run_free(&first);
}

static void empty_scope_and_scope_file(void **state)
{
    run_t none = run("keys", "show", URL, "--scope", "", "--key", "no-scope", NULL);
    run_t file = run_with_input("shop\n", 5, "keys", "show", URL, "--scope-file", "-", "--key",
                                "done-1", NULL);
    run_t both = run("keys", "show", URL, "--scope", "a", "--scope-file", "-", "--key", "k", NULL);
    run_t twice = run("keys", "show", URL, id_of(*state, "shop", "done-1").hex, "--key", "k", NULL);

    assert_run(none, ONCE__CLI_OK);
    assert_has(none.out, "no-scope");
    assert_run(file, ONCE__CLI_OK);
    assert_has(file.out, "done-1");
    assert_lacks(file.out, "shop");
    assert_run(both, ONCE__CLI_USAGE);
    assert_run(twice, ONCE__CLI_USAGE);
    run_free(&none);
    run_free(&file);
    run_free(&both);
    run_free(&twice);
}

static void what_is_not_there(void **state)
{
    run_t key = run("keys", "show", URL, "--scope", "shop", "--key", "nobody", NULL);
    run_t id = run("keys", "show", URL,
                   "00000000000000000000000000000000000000000000000000000000000000ff", NULL);
    run_t prefix = run("keys", "show", URL, "00000000ff", NULL);
    run_t no_key = run("keys", "show", URL, "--scope", "shop", "--key", "", NULL);

    assert_run(key, ONCE__CLI_NOT_FOUND);
    assert_string_equal(key.out, "");
    assert_has(key.err, "no such record");
    assert_run(id, ONCE__CLI_NOT_FOUND);
    assert_run(prefix, ONCE__CLI_NOT_FOUND);
    assert_run(no_key, ONCE__CLI_USAGE);
    run_free(&key);
    run_free(&id);
    run_free(&prefix);
    run_free(&no_key);
}

static void secrets_of_a_response_stay_unseen(void **state)
{
    run_t plain = run("keys", "show", URL, "--scope", "shop", "--key", "done-1", NULL);
    run_t json = run("keys", "show", URL, "--scope", "shop", "--key", "done-1", "--json", NULL);
    run_t headers =
        run("keys", "show", URL, "--scope", "shop", "--key", "done-1", "--headers", NULL);

    assert_has(plain.out, "X-Secret");
    assert_has(plain.out, "17 B");
    assert_lacks(plain.out, "hunter2");
    assert_lacks(plain.out, "hello");
    assert_lacks(json.out, "hunter2");
    assert_lacks(json.out, "hello");
    assert_has(headers.out, "X-Secret: hunter2");
    run_free(&plain);
    run_free(&json);
    run_free(&headers);
}

static void json_of_a_response(void **state)
{
    run_t r =
        run("keys", "show", URL, "--scope", "shop", "--key", "done-1", "--json", "--headers", NULL);
    json_t *record = json_line(r.out, 0);
    const json_t *response = json_object_get(record, "response");
    const json_t *header = json_array_get(json_object_get(response, "headers"), 1);

    assert_run(r, ONCE__CLI_OK);
    assert_int_equal(count_lines(r.out), 1);
    assert_int_equal(json_number_of(response, "status"), 201);
    assert_int_equal(json_number_of(response, "body_bytes"), 17);
    assert_true(json_is_false(json_object_get(response, "body_omitted")));
    assert_string_equal(json_text_of(header, "name"), "X-Secret");
    assert_string_equal(json_text_of(header, "value"), "hunter2");
    assert_null(json_object_get(response, "body_base64"));
    assert_true(strlen(json_text_of(record, "claim")) > 60);
    json_decref(record);
    run_free(&r);
}

static void body_on_request(void **state)
{
    run_t r = run("keys", "show", URL, "--scope", "shop", "--key", "done-1", "--body", NULL);
    run_t failed = run("keys", "show", URL, "--scope", "shop", "--key", "failed-1", "--body", NULL);
    run_t both =
        run("keys", "show", URL, "--scope", "shop", "--key", "done-1", "--body", "--json", NULL);

    assert_run(r, ONCE__CLI_OK);
    assert_int_equal(r.out_len, strlen(body));
    assert_memory_equal(r.out, body, strlen(body));
    assert_run(failed, ONCE__CLI_NOT_FOUND);
    assert_has(failed.err, "no response");
    assert_run(both, ONCE__CLI_USAGE);
    run_free(&r);
    run_free(&failed);
    run_free(&both);
}

static void body_does_not_reach_a_terminal_by_accident(void **state)
{
    const char *const plain[] = {"keys",  "show",   URL,      "--scope", "shop",
                                 "--key", "done-1", "--body", NULL};
    const char *const force[] = {"keys",  "show",   URL,      "--scope", "shop",
                                 "--key", "done-1", "--body", "--force", NULL};
    terminal_run_t r;

    run_on_terminal(&r, NULL, NULL, NULL, plain);
    assert_int_equal(r.code, ONCE__CLI_REFUSED);
    assert_lacks(r.text, "hello");
    assert_has(r.text, "--force");
    run_on_terminal(&r, NULL, NULL, NULL, force);
    assert_int_equal(r.code, ONCE__CLI_OK);
    assert_has(r.text, body);
}

static void a_body_that_was_not_stored(void **state)
{
    once_response_t response = ONCE_RESPONSE_INIT;
    run_t r;

    response.status = 200;
    response.body_omitted = 1;
    assert_int_equal(
        once_claim_complete_sync(claim(*state, "shop", "light", LONG_LEASE), &response, NULL),
        ONCE_OK);
    r = run("keys", "show", URL, "--scope", "shop", "--key", "light", "--body", NULL);
    assert_run(r, ONCE__CLI_NOT_FOUND);
    assert_has(r.err, "was not stored");
    run_free(&r);
    r = run("keys", "show", URL, "--scope", "shop", "--key", "light", NULL);
    assert_run(r, ONCE__CLI_OK);
    assert_has(r.out, "was not stored");
    run_free(&r);
}

static void notes_cannot_control_the_terminal(void **state)
{
    run_t r = run("keys", "show", URL, "--scope", "shop", "--key", "failed-1", NULL);

    assert_run(r, ONCE__CLI_OK);
    assert_true(is_harmless(r.out));
    assert_has(r.out, "line one\\x0aline two\\x1b[2J");
    assert_has(r.out, "503");
    run_free(&r);
}

static void advice_for_stuck_records(void **state)
{
    run_t held = run("keys", "show", URL, "--scope", "shop", "--key", "unknown-1", NULL);
    run_t stuck = run("keys", "show", URL, "--scope", "shop", "--key", "stuck-1", NULL);
    run_t done = run("keys", "show", URL, "--scope", "shop", "--key", "done-1", NULL);

    assert_has(held.out, "once keys settle");
    assert_lacks(held.out, "runs it again");
    assert_has(stuck.out, "the next request with this key runs it again");
    assert_lacks(done.out, "once keys settle");
    run_free(&held);
    run_free(&stuck);
    run_free(&done);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_id_by_prefix_and_by_key),
        cmocka_unit_test(attempts),
        cmocka_unit_test(empty_scope_and_scope_file),
        cmocka_unit_test(what_is_not_there),
        cmocka_unit_test(secrets_of_a_response_stay_unseen),
        cmocka_unit_test(json_of_a_response),
        cmocka_unit_test(body_on_request),
        cmocka_unit_test(body_does_not_reach_a_terminal_by_accident),
        cmocka_unit_test(a_body_that_was_not_stored),
        cmocka_unit_test(notes_cannot_control_the_terminal),
        cmocka_unit_test(advice_for_stuck_records),
    };
    return cmocka_run_group_tests(tests, fill, empty);
}
