#include "harness.h"

#include <stdio.h>
#include <string.h>

#include "records.h"

static void counts(void **state)
{
    once_t *once = open_store("memory:stats?max_records=77");
    json_t *stats;
    run_t r;

    make_stuck(once, "s", "a", "hold");
    make_unknown(once, "s", "b", "hold");
    make_pending(once, "s", "c");
    make_completed(once, "s", "d", "x");
    make_failed(once, "s", "e", "x");
    r = run("stats", "memory:stats?max_records=77", "--json", NULL);
    assert_run(r, ONCE__CLI_OK);
    assert_int_equal(count_lines(r.out), 1);
    stats = json_line(r.out, 0);
    assert_int_equal(json_number_of(stats, "pending"), 2);
    assert_int_equal(json_number_of(stats, "unknown"), 1);
    assert_int_equal(json_number_of(stats, "completed"), 1);
    assert_int_equal(json_number_of(stats, "failed"), 1);
    assert_int_equal(json_number_of(stats, "stuck"), 2);
    assert_int_equal(json_number_of(stats, "expired"), 0);
    assert_int_equal(json_number_of(stats, "records"), 5);
    assert_int_equal(json_number_of(stats, "max_records"), 77);
    assert_true(json_number_of(stats, "bytes") > 0);
    json_decref(stats);
    run_free(&r);

    r = run("stats", "memory:stats?max_records=77", NULL);
    assert_run(r, ONCE__CLI_OK);
    assert_has(r.out, "5  of 77 at most");
    assert_has(r.out, "2  pending with the lease over");
    run_free(&r);
    once_close(once, 0);
}

static void too_many_stuck(void **state)
{
    once_t *once = open_store("memory:monitor");
    run_t r;

    r = run("stats", "memory:monitor", "--max-stuck", "0", NULL);
    assert_run(r, ONCE__CLI_OK);
    run_free(&r);
    make_unknown(once, "s", "a", "hold");
    r = run("stats", "memory:monitor", "--max-stuck", "0", NULL);
    assert_run(r, ONCE__CLI_NO);
    assert_has(r.out, "stuck"); /* the numbers are there all the same */
    assert_has(r.err, "once keys list --stuck");
    run_free(&r);
    r = run("stats", "memory:monitor", "--max-stuck", "1", "--json", NULL);
    assert_run(r, ONCE__CLI_OK);
    run_free(&r);
    once_close(once, 0);
}

static void wait_until_expired(once_t *once, const char *key)
{
    while (state_of(once, "s", key) != ONCE_STATE_NONE) {
        assert_true(once_wait(once, 50) >= 0);
    }
}

static void expired_ones_are_reaped(void **state)
{
    once_t *once = open_store("memory:reap");
    run_t r;

    for (int i = 0; i < 3; i++) {
        char key[8];
        snprintf(key, sizeof(key), "k%d", i);
        assert_int_equal(
            once_claim_release_sync(claim(once, "s", key, "ttl=1s"), 0, slice(""), NULL), ONCE_OK);
    }
    make_unknown(once, "s", "stays", "hold");
    wait_until_expired(once, "k2");
    wait_until_expired(once, "k0");
    wait_until_expired(once, "k1");
    r = run("stats", "memory:reap", NULL); /* looking removes nothing */
    assert_has(r.out, "expired             3");
    run_free(&r);
    r = run("reap", "memory:reap", "--limit", "1", NULL);
    assert_run(r, ONCE__CLI_OK);
    assert_string_equal(r.out, "removed 1\n");
    run_free(&r);
    r = run("reap", "memory:reap", NULL);
    assert_string_equal(r.out, "removed 2\n");
    run_free(&r);
    assert_int_equal(state_of(once, "s", "stays"), ONCE_STATE_UNKNOWN);
    once_close(once, 0);
}

static once_outcome_t ask(once_t *once, const char *key)
{
    once_ask_t request = ONCE_ASK_INIT;
    once_answer_t *answer = NULL;
    once_outcome_t outcome;

    request.scope = slice("s");
    request.key = slice(key);
    request.method = slice("POST");
    request.target = slice("/orders");
    assert_int_equal(once_begin_sync(once, &request, &answer), ONCE_OK);
    outcome = once_answer_outcome(answer);
    once_answer_free(answer);
    return outcome;
}

static void rotation(void **state)
{
    once_t *once = open_store("memory:rotate");
    run_t r;

    make_completed(once, "s", "k", "x");
    r = run("secret", "rotate", "memory:rotate", NULL);
    assert_run(r, ONCE__CLI_OK);
    assert_has(r.out, "secret 2");
    assert_has(r.out, "2d ago");
    run_free(&r);
    assert_int_equal(ask(once, "k"), ONCE_OUTCOME_REPLAY); /* the earlier secret still counts */
    r = run("secret", "rotate", "memory:rotate", "--keep", "72h", NULL);
    assert_has(r.out, "secret 3");
    assert_has(r.out, "3d ago");
    run_free(&r);
    assert_int_equal(ask(once, "k"), ONCE_OUTCOME_REPLAY);
    once_close(once, 0);
}

/* What is known at once is not waited for. To wait, put it in the URL. */
static void a_store_that_is_away(void **state)
{
    static const char *const urls[][2] = {
        {"postgres://127.0.0.1:1/x", "cannot be reached: connection to server at \"127.0.0.1\", "
                                     "port 1 failed: Connection refused"},
        {"postgres://once.invalid/x",
         "cannot be reached: could not translate host name \"once.invalid\""},
        {"redis://127.0.0.1:1",
         "cannot be reached: 127.0.0.1:1: no connection: Connection refused"},
        {"redis://once.invalid",
         "cannot be reached: once.invalid:6379: no connection: there is no such host"},
        {"redis+sentinel://127.0.0.1:1,127.0.0.1:2/m", "cannot be reached: 127.0.0.1:"},
        {"redis+cluster://127.0.0.1:1", "cannot be reached: 127.0.0.1:1: no connection"},
        {"postgres://127.0.0.1:1/x?store_timeout=20ms",
         "did not answer in time; the server: connection"},
    };

    for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); i++) {
        run_t r = run("stats", urls[i][0], NULL);
        assert_run(r, ONCE__CLI_STORE);
        assert_has(r.err, urls[i][1]);
        run_free(&r);
    }
    for (size_t i = 0; i < 3; i++) {
        static const char *const commands[][2] = {
            {"keys", "list"}, {"bench", "store"}, {"conformance", "--stop"}};
        run_t r = run(commands[i][0], commands[i][1], "postgres://127.0.0.1:1/x", NULL);
        assert_run(r, ONCE__CLI_STORE);
        assert_has(r.err, "the store cannot be reached: connection to server");
        run_free(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts),
        cmocka_unit_test(too_many_stuck),
        cmocka_unit_test(expired_ones_are_reaped),
        cmocka_unit_test(rotation),
        cmocka_unit_test(a_store_that_is_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
