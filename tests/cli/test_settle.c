#include "harness.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "records.h"
#include "terminal.h"

#define URL     "memory:settle"
#define OF(key) "--scope", "shop", "--key", key

static int open_it(void **state)
{
    *state = open_store(URL);
    return 0;
}

static int close_it(void **state)
{
    once_close(*state, 0);
    return 0;
}

static once_outcome_t ask_again(once_t *once, const char *key)
{
    once_ask_t ask = ONCE_ASK_INIT;
    once_answer_t *answer = NULL;
    once_outcome_t outcome;

    ask.scope = slice("shop");
    ask.key = slice(key);
    ask.method = slice("POST");
    ask.target = slice("/orders");
    assert_int_equal(once_begin_sync(once, &ask, &answer), ONCE_OK);
    outcome = once_answer_outcome(answer);
    once_answer_free(answer);
    return outcome;
}

static void completed_with_a_response(void **state)
{
    char path[] = "/tmp/once-cli-body-XXXXXX";
    once_response_t response = ONCE_RESPONSE_INIT;
    once_answer_t *answer;
    int fd = mkstemp(path);
    run_t r;

    assert_int_equal(write(fd, "{\"id\":7}\n", 9), 9);
    close(fd);
    make_unknown(*state, "shop", "paid", "hold");
    r = run("keys", "settle", URL, OF("paid"), "--completed", "--status", "201", "--header",
            "Content-Type: application/json", "--header", "Location:/orders/7 ", "--body-file",
            path, "--yes", "--note", "test", NULL);
    assert_run(r, ONCE__CLI_OK);
    assert_has(r.out, "unknown");
    assert_has(r.out, "status 201, 2 headers and a body of 9 B");
    assert_has(r.out, "settled: the record is now completed");
    run_free(&r);
    unlink(path);
    make_unknown(*state, "shop", "one", "hold");
    r = run("keys", "settle", URL, OF("one"), "--completed", "--status", "200", "--header", "A: b",
            "--yes", "--note", "test", NULL);
    assert_has(r.out, "status 200, 1 header and a body of 0 B");
    run_free(&r);

    answer = read_record(*state, "shop", "paid");
    assert_int_equal(once_record_response(once_answer_record(answer), &response), ONCE_OK);
    assert_int_equal(response.status, 201);
    assert_int_equal(response.header_count, 2);
    assert_int_equal(response.headers[1].value.len, strlen("/orders/7"));
    assert_memory_equal(response.headers[1].value.data, "/orders/7", 9);
    assert_int_equal(response.body.len, 9);
    once_answer_free(answer);
    assert_int_equal(ask_again(*state, "paid"), ONCE_OUTCOME_REPLAY);
}

static void failed_runs_again(void **state)
{
    run_t r;

    make_unknown(*state, "shop", "lost", "hold");
    assert_int_equal(ask_again(*state, "lost"), ONCE_OUTCOME_UNKNOWN);
    r = run("keys", "settle", URL, OF("lost"), "--failed", "--note", "never left the queue",
            "--yes", NULL);
    assert_run(r, ONCE__CLI_OK);
    assert_has(r.out, "it has not happened and no longer can");
    run_free(&r);
    assert_int_equal(state_of(*state, "shop", "lost"), ONCE_STATE_FAILED);

    r = run("keys", "show", URL, OF("lost"), NULL);
    assert_has(r.out, "settled by ");
    assert_has(r.out, ": never left the queue");
    run_free(&r);
    r = run("keys", "settle", URL, OF("lost"), "--failed", "--yes", "--note", "test",
            NULL); /* again: as asked */
    assert_run(r, ONCE__CLI_OK);
    run_free(&r);
    r = run("keys", "settle", URL, OF("lost"), "--completed", "--status", "200", "--yes", "--note",
            "test", NULL);
    assert_run(r, ONCE__CLI_REFUSED);
    run_free(&r);
    assert_int_equal(ask_again(*state, "lost"), ONCE_OUTCOME_RUN);
}

static void release_is_settle_failed(void **state)
{
    run_t r;

    make_stuck(*state, "shop", "stuck", "hold");
    r = run("keys", "release", URL, OF("stuck"), "--note", "worker killed", "-y", NULL);
    assert_run(r, ONCE__CLI_OK);
    assert_has(r.out, "no longer can");
    run_free(&r);
    assert_int_equal(state_of(*state, "shop", "stuck"), ONCE_STATE_FAILED);
    r = run("keys", "release", URL, OF("stuck"), "--completed", NULL);
    assert_run(r, ONCE__CLI_USAGE);
    run_free(&r);
}

static void completed_is_never_changed(void **state)
{
    run_t r;

    make_completed(*state, "shop", "done", "x");
    r = run("keys", "settle", URL, OF("done"), "--failed", "--force", "--yes", "--note", "test",
            NULL);
    assert_run(r, ONCE__CLI_REFUSED);
    assert_has(r.err, "a response that was sent is never changed");
    run_free(&r);
    assert_int_equal(state_of(*state, "shop", "done"), ONCE_STATE_COMPLETED);
}

static void a_live_lease_needs_force(void **state)
{
    run_t r;

    make_pending(*state, "shop", "busy");
    r = run("keys", "release", URL, OF("busy"), "--yes", "--note", "test", NULL);
    assert_run(r, ONCE__CLI_REFUSED);
    assert_has(r.err, "lease is live");
    assert_has(r.err, "--force");
    run_free(&r);
    assert_int_equal(state_of(*state, "shop", "busy"), ONCE_STATE_PENDING);
    r = run("keys", "release", URL, OF("busy"), "--force", "--yes", "--note", "test", NULL);
    assert_run(r, ONCE__CLI_OK);
    run_free(&r);
    assert_int_equal(state_of(*state, "shop", "busy"), ONCE_STATE_FAILED);
}

static void without_a_terminal_yes_is_needed(void **state)
{
    run_t r;

    make_unknown(*state, "shop", "script", "hold");
    r = run_with_input("y\n", 2, "keys", "release", URL, OF("script"), "--note", "test", NULL);
    assert_run(r, ONCE__CLI_USAGE);
    assert_has(r.err, "--yes");
    run_free(&r);
    assert_int_equal(state_of(*state, "shop", "script"), ONCE_STATE_UNKNOWN);
}

static void a_person_is_asked(void **state)
{
    const char *const arguments[] = {"keys", "release", URL, OF("asked"), "--note", "test", NULL};
    const char *const no[] = {"n\n", "\n", "yess\n", "\004",
                              "yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\n"};
    terminal_run_t r;

    make_unknown(*state, "shop", "asked", "hold");
    for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++) {
        run_on_terminal(&r, no[i], NULL, NULL, arguments);
        assert_int_equal(r.code, ONCE__CLI_REFUSED);
        assert_has(r.text, "nothing was changed");
        assert_int_equal(state_of(*state, "shop", "asked"), ONCE_STATE_UNKNOWN);
    }
    run_on_terminal(&r, "yes\n", NULL, NULL, arguments);
    assert_int_equal(r.code, ONCE__CLI_OK);
    assert_int_equal(state_of(*state, "shop", "asked"), ONCE_STATE_FAILED);
}

/* The holder was alive after all and finishes while the person thinks. */
static void finish_it(void *data)
{
    once_response_t response = ONCE_RESPONSE_INIT;

    (void)!once_claim_complete_sync(data, &response, NULL);
}

static void completed_while_the_person_thinks(void **state)
{
    const char *const arguments[] = {"keys", "release", URL, OF("race-1"), "--note", "test", NULL};
    once_claim_t *held = claim(*state, "shop", "race-1", "recover=hold " SHORT_LEASE);
    terminal_run_t r;

    wait_for_lease(*state, "shop", "race-1");
    run_on_terminal(&r, "y\n", finish_it, held, arguments);
    assert_int_equal(r.code, ONCE__CLI_REFUSED);
    assert_has(r.text, "its holder has completed it meanwhile");
    assert_int_equal(state_of(*state, "shop", "race-1"), ONCE_STATE_COMPLETED);
}

/* Somebody else claims it while the person thinks: the decision was about another attempt. */
static void claim_it(void *data)
{
    once_claim_drop(claim(data, "shop", "race-2", SHORT_LEASE));
}

static void moved_on_while_the_person_thinks(void **state)
{
    const char *const arguments[] = {"keys",        "settle",   URL,   OF("race-2"),
                                     "--completed", "--status", "200", "--force",
                                     "--note",      "test",     NULL};
    terminal_run_t r;

    make_stuck(*state, "shop", "race-2", "retry");
    run_on_terminal(&r, "y\n", claim_it, *state, arguments);
    assert_int_equal(r.code, ONCE__CLI_REFUSED);
    assert_has(r.text, "has changed meanwhile");
    assert_int_equal(state_of(*state, "shop", "race-2"), ONCE_STATE_PENDING);
}

/* Looked at with show, settled later by script: --claim says what was looked at. */
static void moved_on_between_show_and_settle(void **state)
{
    char token[ONCE_TOKEN_SIZE];
    json_t *record;
    run_t r;

    make_stuck(*state, "shop", "race-3", "retry");
    r = run("keys", "show", URL, OF("race-3"), "--json", NULL);
    record = json_line(r.out, 0);
    snprintf(token, sizeof(token), "%s", json_text_of(record, "claim"));
    json_decref(record);
    run_free(&r);

    once_claim_drop(claim(*state, "shop", "race-3", SHORT_LEASE)); /* epoch 2 */
    wait_for_lease(*state, "shop", "race-3");
    r = run("keys", "release", URL, OF("race-3"), "--claim", token, "--yes", "--note", "test",
            NULL);
    assert_run(r, ONCE__CLI_REFUSED);
    assert_has(r.err, "another claim");
    run_free(&r);
    assert_int_equal(state_of(*state, "shop", "race-3"), ONCE_STATE_PENDING);

    r = run("keys", "show", URL, OF("race-3"), "--json", NULL);
    record = json_line(r.out, 0);
    snprintf(token, sizeof(token), "%s", json_text_of(record, "claim"));
    json_decref(record);
    run_free(&r);
    r = run("keys", "release", URL, OF("race-3"), "--claim", token, "--yes", "--note", "test",
            NULL);
    assert_run(r, ONCE__CLI_OK);
    run_free(&r);
}

static void mistakes(void **state)
{
    static const char *const wrong[][6] = {
        {"--completed", "--failed", NULL},
        {"--completed", "--status", "99", NULL},
        {"--completed", "--status", "1000", NULL},
        {"--completed", "--status", "199", NULL},
        {"--completed", "--status", "600", NULL},
        {"--completed", "--status", "200", "--note", "", NULL},
        {"--failed", "--as", "", NULL},
        {"--failed", "--header", "A: b", NULL},
        {"--failed", "--body-file", "/dev/null", NULL},
        {"--completed", "--status", "200", "--header", "no colon", NULL},
        {"--completed", "--status", "200", "--header", ": empty", NULL},
        {"--completed", "--status", "200", "--header", "A: b\r\nInjected: c", NULL},
        {"--completed", "--status", "200", "--header", "A b: c", NULL},
    };

    make_unknown(*state, "shop", "mistake", "hold");
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        const char *const *w = wrong[i];
        run_t r = run("keys", "settle", URL, OF("mistake"), "--yes", "--note", "test", w[0], w[1],
                      w[2], w[3], w[4], NULL);
        assert_run(r, ONCE__CLI_USAGE);
        run_free(&r);
    }
    assert_int_equal(state_of(*state, "shop", "mistake"), ONCE_STATE_UNKNOWN);
}

static void body_files(void **state)
{
    size_t size = ONCE_BODY_STORE_MAX + 1;
    char *large = calloc(1, size);
    run_t r;

    assert_non_null(large);
    make_unknown(*state, "shop", "body", "hold");
    r = run("keys", "settle", URL, OF("body"), "--completed", "--status", "200", "--body-file",
            "/nonexistent", "--yes", "--note", "test", NULL);
    assert_run(r, ONCE__CLI_STORE);
    assert_has(r.err, "No such file");
    run_free(&r);
    r = run_with_input(large, size, "keys", "settle", URL, OF("body"), "--completed", "--status",
                       "200", "--body-file", "-", "--yes", "--note", "test", NULL);
    assert_run(r, ONCE__CLI_USAGE);
    assert_has(r.err, "larger than");
    run_free(&r);
    r = run_with_input(large, size - 1, "keys", "settle", URL, OF("body"), "--completed",
                       "--status", "200", "--body-file", "-", "--yes", "--note", "test", NULL);
    assert_run(r, ONCE__CLI_OK);
    run_free(&r);
    free(large);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(completed_with_a_response),
        cmocka_unit_test(failed_runs_again),
        cmocka_unit_test(release_is_settle_failed),
        cmocka_unit_test(completed_is_never_changed),
        cmocka_unit_test(a_live_lease_needs_force),
        cmocka_unit_test(without_a_terminal_yes_is_needed),
        cmocka_unit_test(a_person_is_asked),
        cmocka_unit_test(completed_while_the_person_thinks),
        cmocka_unit_test(moved_on_while_the_person_thinks),
        cmocka_unit_test(moved_on_between_show_and_settle),
        cmocka_unit_test(mistakes),
        cmocka_unit_test(body_files),
    };
    return cmocka_run_group_tests(tests, open_it, close_it);
}
