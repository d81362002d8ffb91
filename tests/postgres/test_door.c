/*
 * The gateway and the application share one row: what libonce claims, SQL completes, and the other way round. And an open
 * business transaction delays only its own key.
 */
#include "sql.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <once/once.h>

#define OPEN_S 10.0

static PGconn *app;
static once_t *gateway;

static once_slice_t slice(const char *text)
{
    once_slice_t s = {text, strlen(text)};

    return s;
}

static once_answer_t *ask(const char *key)
{
    once_ask_t question = ONCE_ASK_INIT;
    once_answer_t *answer = NULL;

    question.scope = slice("shop");
    question.key = slice(key);
    question.method = slice("POST");
    question.target = slice("/orders?x=1");
    question.bytes = slice("{\"n\": 1}");
    assert_int_equal(once_begin_sync(gateway, &question, &answer), ONCE_OK);
    return answer;
}

static once_claim_t *claim(const char *key, char token[ONCE_TOKEN_SIZE])
{
    once_answer_t *answer = ask(key);
    once_claim_t *taken;

    assert_int_equal(once_answer_outcome(answer), ONCE_OUTCOME_RUN);
    taken = once_answer_take_claim(answer);
    once_claim_token(taken, token);
    once_answer_free(answer);
    return taken;
}

static int complete(once_claim_t *taken, const char *body, once_answer_t **answer)
{
    once_response_t response = ONCE_RESPONSE_INIT;
    once_header_t header = {{"X-From", 6}, {"library", 7}};

    response.status = 202;
    response.headers = &header;
    response.header_count = 1;
    response.body = slice(body);
    return once_claim_complete_sync(taken, &response, answer);
}

static void expect_body(const once_answer_t *answer, int status, const char *body)
{
    once_response_t response = ONCE_RESPONSE_INIT;

    assert_non_null(once_answer_record(answer));
    assert_int_equal(once_record_response(once_answer_record(answer), &response), ONCE_OK);
    assert_int_equal(response.status, status);
    assert_int_equal(response.body.len, strlen(body));
    assert_memory_equal(response.body.data, body, strlen(body));
}

/* ----------------------------------------------------------------------------------------------------------- the row */

static void the_application_completes_what_the_gateway_claimed(void **state)
{
    char token[ONCE_TOKEN_SIZE];
    once_claim_t *taken = claim("shared", token);
    once_answer_t *answer = NULL;

    sql_run(app, "BEGIN");
    sql_run(app, "SELECT once.complete('%s', 201, '[[\"A\", \"1\"], [\"A\", \"2\"]]', 'from SQL')",
            token);
    sql_run(app, "COMMIT");
    /* The gateway's own completion comes too late, and gets what is recorded. */
    assert_int_equal(complete(taken, "from the gateway", &answer), ONCE_OK);
    assert_int_equal(once_answer_outcome(answer), ONCE_OUTCOME_ALREADY);
    expect_body(answer, 201, "from SQL");
    once_answer_free(answer);
    answer = ask("shared");
    assert_int_equal(once_answer_outcome(answer), ONCE_OUTCOME_REPLAY);
    expect_body(answer, 201, "from SQL");
    once_answer_free(answer);
}

static void sql_replays_what_the_gateway_recorded(void **state)
{
    char token[ONCE_TOKEN_SIZE];
    once_claim_t *taken = claim("recorded", token);

    assert_int_equal(complete(taken, "short", NULL), ONCE_OK);
    assert_string_equal(
        sql_one(app, "SELECT outcome || ' ' || status || ' ' || (headers -> 0 ->> 1) || ' ' || "
                     "convert_from(body, 'UTF8') FROM "
                     "once.claim('shop', 'recorded', 'POST', '/orders?x=1', '{\"n\": 1}')"),
        "replay 202 library short");
    assert_string_equal(
        sql_one(app,
                "SELECT outcome FROM once.claim('shop', 'recorded', 'POST', '/orders?x=2', '')"),
        "mismatch");
}

static void the_gateway_replays_what_sql_recorded(void **state)
{
    once_answer_t *answer;

    sql_run(app, "SELECT once.complete(claim, 200, '{}', 'all in SQL') FROM "
                 "once.claim('shop', 'all-sql', 'POST', '/orders?x=1', '{\"n\": 1}')");
    answer = ask("all-sql");
    assert_int_equal(once_answer_outcome(answer), ONCE_OUTCOME_REPLAY);
    expect_body(answer, 200, "all in SQL");
    once_answer_free(answer);
}

/* ------------------------------------------------------------------------------------------------ an open transaction */

static double now(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void pair(const char *key)
{
    char token[ONCE_TOKEN_SIZE];

    assert_int_equal(complete(claim(key, token), "x", NULL), ONCE_OK);
}

static void count_answer(once_t *once, once_answer_t *answer, void *data)
{
    int *counts = data;

    assert_int_equal(once_answer_error(answer), ONCE_OK);
    counts[once_answer_outcome(answer)]++;
}

/* Held keys and free ones in one batch. Returns how long it took. */
static double ask_mixed(int round)
{
    static const char *const held[] = {"held-row", "held-insert", "held-failed"};
    int counts[16] = {0};
    double begun = now();

    for (int i = 0; i < 32; i++) {
        once_ask_t question = ONCE_ASK_INIT;
        char key[40];
        if (i < 3) {
            snprintf(key, sizeof(key), "%s", held[i]);
        } else {
            snprintf(key, sizeof(key), "free-%d-%d", round, i);
        }
        question.scope = slice("shop");
        question.key = slice(key);
        question.method = slice("POST");
        question.target = slice("/orders?x=1");
        question.bytes = slice("{\"n\": 1}");
        assert_int_equal(once_begin(gateway, &question, count_answer, counts), ONCE_OK);
    }
    while (counts[ONCE_OUTCOME_RUN] + counts[ONCE_OUTCOME_BUSY] < 32) {
        assert_true(once_wait(gateway, 1000) >= 0);
    }
    assert_int_equal(counts[ONCE_OUTCOME_RUN], 29);
    assert_int_equal(counts[ONCE_OUTCOME_BUSY], 3);
    return now() - begun;
}

static void an_open_transaction_stalls_nobody_else(void **state)
{
    char token[ONCE_TOKEN_SIZE], doomed[ONCE_TOKEN_SIZE];
    once_claim_t *taken = claim("held-row", token);
    once_claim_t *other = claim("held-too", doomed);
    once_answer_t *answer = NULL;
    double begun = now(), slowest = 0;
    char key[32];
    int rounds = 0;

    /* A row changed, a new key, a failed one that is claimed again, none of it committed. */
    sql_run(app, "SELECT once.release(claim) FROM once.claim('shop', 'held-failed', 'POST', "
                 "'/orders?x=1', '{\"n\": 1}')");
    sql_run(app, "BEGIN");
    sql_run(app, "SELECT outcome FROM once.claim('shop', 'held-failed', 'POST', '/orders?x=1', "
                 "'{\"n\": 1}')");
    sql_run(app, "SELECT once.complete('%s', 201, '{}', 'committed late')", token);
    sql_run(app, "SELECT once.release('%s')", doomed);
    sql_run(app, "SELECT outcome FROM once.claim('shop', 'held-insert', 'POST', '/orders?x=1', "
                 "'{\"n\": 1}')");
    while (now() - begun < OPEN_S) {
        double took = ask_mixed(rounds++);
        slowest = took > slowest ? took : slowest;
        snprintf(key, sizeof(key), "beside-%d", rounds);
        pair(key);
    }
    /* A renewal of what the application holds counts as alive. */
    assert_int_equal(once_claim_renew_sync(taken, &answer), ONCE_OK);
    assert_int_equal(once_answer_outcome(answer), ONCE_OUTCOME_DONE);
    once_answer_free(answer);
    sql_run(app, "COMMIT");
    print_message("%d batches beside it, the slowest took %.0f ms\n", rounds, slowest * 1e3);
    assert_true(slowest < OPEN_S / 3);
    assert_int_equal(complete(taken, "too late", &answer), ONCE_OK);
    assert_int_equal(once_answer_outcome(answer), ONCE_OUTCOME_ALREADY);
    expect_body(answer, 201, "committed late");
    once_answer_free(answer);
    assert_int_equal(complete(other, "x", &answer), ONCE_OK);
    assert_int_equal(once_answer_outcome(answer), ONCE_OUTCOME_LOST);
    once_answer_free(answer);
}

/* A completion that meets the lock is repeated until it is through. */
static void a_completion_outlasts_a_lock(void **state)
{
    char token[ONCE_TOKEN_SIZE];
    once_claim_t *taken = claim("locked", token);
    once_response_t response = ONCE_RESPONSE_INIT;
    int counts[16] = {0};
    double begun = now();

    sql_run(app, "BEGIN");
    sql_run(app, "SELECT FROM once.keys WHERE key = 'locked' FOR UPDATE");
    assert_int_equal(once_claim_complete(taken, &response, count_answer, counts), ONCE_OK);
    while (now() - begun < 0.3) {
        assert_true(once_wait(gateway, 50) >= 0);
    }
    assert_int_equal(counts[ONCE_OUTCOME_DONE], 0);
    sql_run(app, "ROLLBACK");
    while (counts[ONCE_OUTCOME_DONE] == 0) {
        assert_true(once_wait(gateway, 1000) >= 0);
    }
}

static void count_any(once_t *once, once_answer_t *answer, void *data)
{
    int *counts = data;

    counts[once_answer_error(answer) == ONCE_OK ? 0 : 1]++;
    if (once_answer_error(answer) != ONCE_OK) {
        assert_int_equal(once_answer_error(answer), ONCE_E_INVALID);
    }
}

/* Something that the server refuses must not take along what travels with it. */
static void one_refused_key_spoils_no_batch(void **state)
{
    int counts[2] = {0};

    sql_run(
        app,
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN RAISE division_by_zero; END'; "
        "CREATE TRIGGER refuse BEFORE INSERT ON once.keys FOR EACH ROW WHEN (NEW.key = 'refused') "
        "EXECUTE FUNCTION refuse(); GRANT EXECUTE ON FUNCTION refuse() TO PUBLIC");
    for (int i = 0; i < 20; i++) {
        once_ask_t question = ONCE_ASK_INIT;
        char key[32];
        snprintf(key, sizeof(key), "with-it-%d", i);
        question.scope = slice("shop");
        question.key = slice(i == 7 ? "refused" : key);
        assert_int_equal(once_begin(gateway, &question, count_any, counts), ONCE_OK);
    }
    while (counts[0] + counts[1] < 20) {
        assert_true(once_wait(gateway, 1000) >= 0);
    }
    assert_int_equal(counts[0], 19);
    sql_run(app, "DROP TRIGGER refuse ON once.keys");
}

static void pair_of_new_keys_only(void **state)
{
    for (int i = 0; i < 20; i++) {
        char key[32];
        snprintf(key, sizeof(key), "pair-%d", i);
        pair(key);
    }
}

static int set_up(void **state)
{
    once_error_t err;

    app = sql_connect(NULL);
    return once_open(getenv("ONCE_PG_GATEWAY_URL"), NULL, &gateway, &err);
}

static int tear_down(void **state)
{
    PQfinish(app);
    return once_close(gateway, 5000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pair_of_new_keys_only),
        cmocka_unit_test(the_application_completes_what_the_gateway_claimed),
        cmocka_unit_test(sql_replays_what_the_gateway_recorded),
        cmocka_unit_test(the_gateway_replays_what_sql_recorded),
        cmocka_unit_test(a_completion_outlasts_a_lock),
        cmocka_unit_test(one_refused_key_spoils_no_batch),
        cmocka_unit_test(an_open_transaction_stalls_nobody_else),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
