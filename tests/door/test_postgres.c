/*
 * once/postgres.h on connections of a user that is only an once_application: what each call promises, and what its errors mean.
 */
#include "sql.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <once/postgres.h>

static PGconn *owner, *shop, *other;
static once_error_t err;

static once_slice_t slice(const char *text)
{
    once_slice_t s = {text, strlen(text)};

    return s;
}

static once_ask_t ask_for(const char *key)
{
    once_ask_t ask = ONCE_ASK_INIT;

    ask.scope = slice("shop");
    ask.key = slice(key);
    ask.method = slice("POST");
    ask.target = slice("/payments");
    ask.bytes = slice("{\"amount\": 5}");
    return ask;
}

static once_pg_answer_t *claim(PGconn *conn, const char *key, unsigned flags)
{
    once_ask_t ask = ask_for(key);
    once_pg_answer_t *answer = NULL;

    if (once_pg_claim(conn, &ask, flags, &answer, &err) != ONCE_OK) {
        print_error("%s\n", err.text);
    }
    assert_non_null(answer);
    return answer;
}

/* A claim that is committed. */
static void claimed(const char *key, char token[ONCE_TOKEN_SIZE])
{
    once_pg_answer_t *answer = claim(shop, key, 0);

    assert_int_equal(once_pg_outcome(answer), ONCE_OUTCOME_RUN);
    snprintf(token, ONCE_TOKEN_SIZE, "%s", once_pg_token(answer));
    once_pg_answer_free(answer);
}

static int complete(PGconn *conn, const char *token, const char *body)
{
    static const once_header_t headers[] = {
        {{"Content-Type", 12}, {"text/plain", 10}},
        {{"X-Odd", 5}, {"a\"b\\c\td \xc3\xa4", 10}},
        {{"X-Odd", 5}, {"", 0}},
    };
    once_response_t response = ONCE_RESPONSE_INIT;

    response.status = 201;
    response.headers = headers;
    response.header_count = 3;
    response.body = slice(body);
    return once_pg_complete(conn, token, &response, &err);
}

/* A program that was built against a longer struct, and one whose struct is too short. */
static void expect_sizes_are_kept(const once_pg_answer_t *answer)
{
    struct {
        once_response_t response;
        uint64_t added, behind;
    } newer = {ONCE_RESPONSE_INIT, 7, 7};

    newer.response.size = sizeof(newer.response) + sizeof(newer.added);
    assert_int_equal(once_pg_response(answer, &newer.response), ONCE_OK);
    assert_int_equal(newer.response.size, sizeof(newer.response) + sizeof(newer.added));
    assert_int_equal(newer.response.status, 201);
    assert_int_equal(newer.added, 0);
    assert_int_equal(newer.behind, 7);
    newer.response.size = sizeof(newer.response) - 1;
    newer.response.status = 7;
    assert_int_equal(once_pg_response(answer, &newer.response), ONCE_E_INVALID);
    assert_int_equal(newer.response.status, 7);
}

static void expect_response(const once_pg_answer_t *answer, const char *body)
{
    once_response_t response = ONCE_RESPONSE_INIT;

    assert_int_equal(once_pg_outcome(answer), ONCE_OUTCOME_REPLAY);
    expect_sizes_are_kept(answer);
    assert_int_equal(once_pg_response(answer, &response), ONCE_OK);
    assert_int_equal(response.status, 201);
    assert_int_equal(response.header_count, 3);
    assert_int_equal(response.headers[1].value.len, 10);
    assert_memory_equal(response.headers[1].value.data, "a\"b\\c\td \xc3\xa4", 10);
    assert_int_equal(response.headers[2].value.len, 0);
    assert_int_equal(response.body.len, strlen(body));
    assert_memory_equal(response.body.data, body, strlen(body));
}

static void expect_error(int code, int expected, const char *words)
{
    if (code != expected || strstr(err.text, words) == NULL) {
        print_error("%s, not %s: %s\n", once_error_name(code), once_error_name(expected), err.text);
        fail();
    }
    assert_int_equal(err.code, expected);
}

static void make_effect(PGconn *conn, const char *what)
{
    sql_run(conn, "INSERT INTO effects VALUES ('%s')", what);
}

static const char *effects(const char *what)
{
    return sql_one(owner, "SELECT count(*) FROM effects WHERE what = '%s'", what);
}

/* ------------------------------------------------------------------------------------------------------ one transaction */

static void effect_and_record_commit_together(void **state)
{
    once_pg_answer_t *answer;

    sql_run(shop, "BEGIN");
    answer = claim(shop, "together", 0);
    assert_int_equal(once_pg_outcome(answer), ONCE_OUTCOME_RUN);
    assert_int_equal(once_pg_epoch(answer), 1);
    make_effect(shop, "together");
    assert_int_equal(complete(shop, once_pg_token(answer), "paid"), ONCE_OK);
    once_pg_answer_free(answer);
    sql_run(shop, "COMMIT");

    answer = claim(shop, "together", 0);
    expect_response(answer, "paid");
    assert_string_equal(once_pg_token(answer), "");
    once_pg_answer_free(answer);
    assert_string_equal(effects("together"), "1");
}

static void rolled_back_is_as_if_never_asked(void **state)
{
    once_pg_answer_t *answer;

    sql_run(shop, "BEGIN");
    answer = claim(shop, "undone", 0);
    make_effect(shop, "undone");
    assert_int_equal(complete(shop, once_pg_token(answer), "paid"), ONCE_OK);
    once_pg_answer_free(answer);
    sql_run(shop, "ROLLBACK");
    answer = claim(shop, "undone", 0);
    assert_int_equal(once_pg_outcome(answer), ONCE_OUTCOME_RUN);
    assert_int_equal(once_pg_epoch(answer), 1);
    once_pg_answer_free(answer);
    assert_string_equal(effects("undone"), "0");
}

static void the_other_outcomes(void **state)
{
    once_ask_t ask = ask_for("outcomes");
    once_policy_t *policy = once_policy_new();
    once_pg_answer_t *answer;
    once_response_t response = ONCE_RESPONSE_INIT;

    sql_run(shop, "BEGIN");
    once_pg_answer_free(claim(shop, "outcomes", 0));
    answer = claim(other, "outcomes", ONCE_PG_NOWAIT);
    assert_int_equal(once_pg_outcome(answer), ONCE_OUTCOME_BUSY);
    once_pg_answer_free(answer);
    sql_run(shop, "COMMIT");
    answer = claim(other, "outcomes", 0);
    assert_int_equal(once_pg_outcome(answer), ONCE_OUTCOME_BUSY);
    assert_in_range(once_pg_retry_after_ms(answer), 1, 30000);
    assert_int_equal(once_pg_response(answer, &response), ONCE_E_NOT_FOUND);
    once_pg_answer_free(answer);
    ask.bytes = slice("{\"amount\": 6}");
    assert_int_equal(once_pg_claim(other, &ask, 0, &answer, &err), ONCE_OK);
    assert_int_equal(once_pg_outcome(answer), ONCE_OUTCOME_MISMATCH);
    once_pg_answer_free(answer);

    /* A policy of one's own, and a claim id. */
    ask = ask_for("held");
    assert_int_equal(once_policy_parse(policy, "lease=10ms ttl=1h recover=hold", &err), ONCE_OK);
    ask.policy = policy;
    ask.claim_id = (const uint8_t *)"sixteen bytes...";
    assert_int_equal(once_pg_claim(shop, &ask, 0, &answer, &err), ONCE_OK);
    assert_int_equal(once_pg_outcome(answer), ONCE_OUTCOME_RUN);
    once_pg_answer_free(answer);
    assert_int_equal(once_pg_claim(shop, &ask, 0, &answer, &err), ONCE_OK);
    assert_int_equal(once_pg_outcome(answer), ONCE_OUTCOME_RUN); /* the same claim again */
    once_pg_answer_free(answer);
    sql_run(owner, "SELECT pg_sleep(0.02)"); /* the lease, by the server's clock */
    ask.claim_id = NULL;
    assert_int_equal(once_pg_claim(shop, &ask, 0, &answer, &err), ONCE_OK);
    assert_int_equal(once_pg_outcome(answer), ONCE_OUTCOME_UNKNOWN);
    once_pg_answer_free(answer);
    once_policy_free(policy);
}

/* --------------------------------------------------------------------------------------------------- twice, and too late */

static void a_repeated_transaction_is_refused_and_reads_its_response(void **state)
{
    char token[ONCE_TOKEN_SIZE];
    once_pg_answer_t *answer = NULL;

    claimed("twice", token);
    assert_int_equal(once_pg_recorded(shop, token, &answer, &err), ONCE_E_NOT_FOUND);
    for (int i = 0; i < 2; i++) {
        sql_run(shop, "BEGIN");
        make_effect(shop, "twice");
        if (i == 0) {
            assert_int_equal(complete(shop, token, "first"), ONCE_OK);
            sql_run(shop, "COMMIT");
        } else {
            expect_error(complete(shop, token, "second"), ONCE_E_COMPLETED, "ON002");
            assert_int_equal(once_pg_recorded(shop, token, &answer, &err), ONCE_E_SQL);
            sql_run(shop, "ROLLBACK");
        }
    }
    assert_int_equal(once_pg_recorded(shop, token, &answer, &err), ONCE_OK);
    expect_response(answer, "first");
    once_pg_answer_free(answer);
    assert_string_equal(effects("twice"), "1");
}

/* How long the record of a key is kept since its last change, in leases. */
static const char *kept(const char *key)
{
    return sql_one(owner,
                   "SELECT CASE expires - changed WHEN once._ttl_ms(ttl) THEN 'ttl' ELSE "
                   "((expires - changed)::numeric / lease_ms)::integer::text END "
                   "FROM once.keys WHERE key = '%s'",
                   key);
}

/* What ended before any effect binds its key briefly; not after a release that may have come later. */
static void an_early_release_is_brief(void **state)
{
    char token[ONCE_TOKEN_SIZE];

    for (int i = 0; i < 2; i++) {
        claimed("early", token);
        assert_int_equal(once_pg_release_early(shop, token, 401, slice("no"), &err), ONCE_OK);
        assert_int_equal(once_pg_release_early(shop, token, 401, slice("no"), &err), ONCE_OK);
        assert_string_equal(kept("early"), "2");
    }
    claimed("early", token);
    assert_int_equal(once_pg_release(shop, token, 500, slice(""), &err), ONCE_OK);
    assert_string_equal(kept("early"), "ttl");
    claimed("early", token);
    assert_int_equal(once_pg_release_early(shop, token, 401, slice(""), &err), ONCE_OK);
    assert_string_equal(kept("early"), "ttl");
    expect_error(once_pg_release_early(shop, token, 1000, slice(""), &err), ONCE_E_INVALID, "999");
}

static void a_zombie_is_refused(void **state)
{
    char token[ONCE_TOKEN_SIZE], taken[ONCE_TOKEN_SIZE];
    once_pg_answer_t *answer = NULL;

    claimed("zombie", token);
    assert_int_equal(once_pg_release(shop, token, 503, slice("not done"), &err), ONCE_OK);
    assert_int_equal(once_pg_release(shop, token, 503, slice("not done"), &err), ONCE_OK);
    claimed("zombie", taken);
    sql_run(other, "BEGIN");
    make_effect(other, "zombie");
    expect_error(complete(other, token, "late"), ONCE_E_STALE, "ON001");
    sql_run(other, "ROLLBACK");
    expect_error(once_pg_renew(other, token, 0, &err), ONCE_E_STALE, "ON001");
    expect_error(once_pg_doubt(other, token, 0, &err), ONCE_E_STALE, "ON001");
    expect_error(once_pg_checkpoint(other, token, "a", NULL, &err), ONCE_E_STALE, "ON001");
    assert_int_equal(complete(shop, taken, "in time"), ONCE_OK);
    /* The outcome of the claim that took over is not readable here. */
    assert_int_equal(once_pg_recorded(other, token, &answer, &err), ONCE_E_NOT_FOUND);
    assert_string_equal(effects("zombie"), "0");
}

static void renew_and_doubt(void **state)
{
    char token[ONCE_TOKEN_SIZE];

    claimed("renewed", token);
    assert_int_equal(once_pg_renew(shop, token, 3600000, &err), ONCE_OK);
    assert_string_equal(sql_one(owner, "SELECT lease_until > now() + interval '50 minutes' FROM "
                                       "once.records WHERE key = 'renewed'"),
                        "t");
    assert_int_equal(once_pg_doubt(shop, token, 1500, &err), ONCE_OK);
    assert_int_equal(once_pg_doubt(shop, token, 0, &err), ONCE_OK);
    assert_string_equal(sql_one(owner, "SELECT state FROM once.records WHERE key = 'renewed'"),
                        "unknown");
    assert_int_equal(complete(shop, token, "after all"), ONCE_OK);
}

/* ------------------------------------------------------------------------------------------------------------ the rest */

static void steps_are_resumed_by_the_next_claim(void **state)
{
    char token[ONCE_TOKEN_SIZE], taken[ONCE_TOKEN_SIZE];
    once_pg_step_t *step = NULL;

    claimed("steps", token);
    assert_int_equal(once_pg_resume(shop, token, &step, &err), ONCE_OK);
    assert_null(step);
    assert_int_equal(once_pg_checkpoint(shop, token, "bare", NULL, &err), ONCE_OK);
    assert_int_equal(once_pg_resume(shop, token, &step, &err), ONCE_OK);
    assert_string_equal(step->name, "bare");
    assert_null(step->state);
    once_pg_step_free(step);
    assert_int_equal(once_pg_checkpoint(shop, token, "reserved", "{\"hold\": \"h-1\"}", &err),
                     ONCE_OK);
    expect_error(once_pg_checkpoint(shop, token, "x", "{no json", &err), ONCE_E_INVALID, "22P02");
    assert_int_equal(once_pg_release(shop, token, 0, slice(""), &err), ONCE_OK);
    claimed("steps", taken);
    assert_int_equal(once_pg_resume(shop, taken, &step, &err), ONCE_OK);
    assert_string_equal(step->name, "reserved");
    assert_string_equal(step->state, "{\"hold\": \"h-1\"}");
    once_pg_step_free(step);
}

static void derive(const char *token, const char *step, once_key_t *key)
{
    assert_int_equal(once_pg_derive(shop, token, step, key, &err), ONCE_OK);
    assert_int_equal(key->len, 55);
    assert_int_equal(strlen(key->text), 55);
}

static void a_third_party_gets_one_key_for_all_attempts(void **state)
{
    char token[ONCE_TOKEN_SIZE], again[ONCE_TOKEN_SIZE], alien[ONCE_TOKEN_SIZE];
    once_key_t first, key;

    claimed("derived", token);
    claimed("derived-too", alien);
    derive(token, "transfer", &first);
    assert_int_equal(once_pg_release(shop, token, 0, slice(""), &err), ONCE_OK);
    claimed("derived", again);
    assert_string_not_equal(token, again);
    derive(again, "transfer", &key);
    assert_string_equal(first.text, key.text);
    derive(again, "notify", &key);
    assert_string_not_equal(first.text, key.text);
    derive(alien, "transfer", &key);
    assert_string_not_equal(first.text, key.text);
    expect_error(once_pg_derive(shop, token, "transfer", &key, &err), ONCE_E_STALE, "ON001");
    expect_error(once_pg_derive(shop, "x", "y", &key, &err), ONCE_E_INVALID, "not a claim");
    expect_error(once_pg_derive(shop, again, NULL, &key, &err), ONCE_E_INVALID, "ON004");

    /* Forgotten, and used again: another operation. A third party may remember longer than we do. */
    assert_int_equal(complete(shop, again, "done"), ONCE_OK);
    sql_run(owner, "UPDATE once.keys SET expires = changed, created = created - 1000, changed = "
                   "changed - 1000 WHERE key = 'derived'");
    claimed("derived", again);
    derive(again, "transfer", &key);
    assert_string_not_equal(first.text, key.text);
}

static void one_at_a_time_for_a_natural_key(void **state)
{
    expect_error(once_pg_lock(shop, "account-1", &err), ONCE_E_INVALID, "none is open");
    sql_run(shop, "BEGIN");
    sql_run(other, "BEGIN; SET LOCAL lock_timeout = '50ms'");
    assert_int_equal(once_pg_lock(shop, "account-1", &err), ONCE_OK);
    assert_int_equal(once_pg_lock(other, "account-2", &err), ONCE_OK);
    expect_error(once_pg_lock(other, "account-1", &err), ONCE_E_CONFLICT, "55P03");
    sql_run(other, "ROLLBACK");
    sql_run(shop, "COMMIT");
    sql_run(other, "BEGIN; SET LOCAL lock_timeout = '50ms'");
    assert_int_equal(once_pg_lock(other, "account-1", &err), ONCE_OK);
    sql_run(other, "COMMIT");
}

static void events_and_messages(void **state)
{
    once_pg_event_t event = ONCE_PG_EVENT_INIT;
    char token[ONCE_TOKEN_SIZE], id[ONCE_UUID_SIZE];
    int is_new = -1;

    claimed("event", token);
    event.topic = "payments";
    event.key = "account-1";
    event.type = "payment.made";
    event.payload = slice("{}");
    event.headers = "{\"a\": \"b\"}";
    event.claim = token;
    sql_run(shop, "BEGIN");
    assert_int_equal(once_pg_emit(shop, &event, id, &err), ONCE_OK);
    assert_int_equal(complete(shop, token, "x"), ONCE_OK);
    sql_run(shop, "COMMIT");
    assert_int_equal(strlen(id), 36);
    assert_string_equal(sql_one(owner,
                                "SELECT topic || key || type || (headers ->> 'a') FROM once.outbox "
                                "WHERE id = '%s'",
                                id),
                        "paymentsaccount-1payment.madeb");
    event.key = event.headers = event.claim = NULL;
    assert_int_equal(once_pg_emit(shop, &event, NULL, &err), ONCE_OK);

    expect_error(once_pg_accept(shop, "mailer", id, &is_new, &err), ONCE_E_INVALID, "none is open");
    for (int i = 0; i < 2; i++) {
        sql_run(shop, "BEGIN");
        assert_int_equal(once_pg_accept(shop, "mailer", id, &is_new, &err), ONCE_OK);
        sql_run(shop, "COMMIT");
        assert_int_equal(is_new, i == 0);
    }
}

static void arguments_are_checked_before_anything_is_sent(void **state)
{
    once_ask_t ask = ask_for("");
    once_header_t broken = {slice("Location"), slice("/\r\nSet-Cookie: a=b")};
    once_response_t response = ONCE_RESPONSE_INIT;
    once_pg_event_t event = ONCE_PG_EVENT_INIT;
    once_pg_answer_t *answer;
    once_pg_step_t *step;
    char token[ONCE_TOKEN_SIZE];

    claimed("arguments", token);
    sql_run(shop, "BEGIN");
    expect_error(once_pg_claim(shop, &ask, 0, &answer, &err), ONCE_E_KEY, "1 to 255");
    ask.size = 1;
    expect_error(once_pg_claim(shop, &ask, 0, &answer, &err), ONCE_E_INVALID, "ONCE_ASK_INIT");
    expect_error(complete(shop, "no claim", ""), ONCE_E_INVALID, "not a claim");
    expect_error(once_pg_renew(shop, NULL, 0, &err), ONCE_E_INVALID, "not a claim");
    expect_error(once_pg_recorded(shop, "", &answer, &err), ONCE_E_INVALID, "not a claim");
    expect_error(once_pg_resume(shop, "'; DROP", &step, &err), ONCE_E_INVALID, "not a claim");
    expect_error(once_pg_checkpoint(shop, token, "", NULL, &err), ONCE_E_INVALID, "a name");
    expect_error(once_pg_release(shop, token, 1000, slice(""), &err), ONCE_E_INVALID, "0 to 999");
    expect_error(once_pg_emit(shop, &event, NULL, &err), ONCE_E_INVALID, "topic");
    response.status = 99;
    expect_error(once_pg_complete(shop, token, &response, &err), ONCE_E_INVALID, "200 to 599");
    response.status = 200;
    response.body.data = token;
    response.body.len = ONCE_BODY_STORE_MAX + 1;
    expect_error(once_pg_complete(shop, token, &response, &err), ONCE_E_TOO_BIG, "16 MiB");
    response.body.len = 0;
    response.headers = &broken;
    response.header_count = 1;
    expect_error(once_pg_complete(shop, token, &response, &err), ONCE_E_HEADER, "line break");
    response.body_omitted = 1;
    expect_error(once_pg_complete(shop, token, &response, &err), ONCE_E_UNSUPPORTED, "body");
    /* The transaction is as it was. */
    assert_int_equal(PQtransactionStatus(shop), PQTRANS_INTRANS);
    sql_run(shop, "COMMIT");
}

static void large_bodies_with_every_byte(void **state)
{
    const size_t size = 3 * 1024 * 1024;
    once_response_t response = ONCE_RESPONSE_INIT, got = ONCE_RESPONSE_INIT;
    once_pg_answer_t *answer = NULL;
    char token[ONCE_TOKEN_SIZE], *body = malloc(size);

    for (size_t i = 0; i < size; i++) {
        body[i] = (char)(i * 7 + i / 256);
    }
    claimed("large", token);
    response.body.data = body;
    response.body.len = size;
    assert_int_equal(once_pg_complete(shop, token, &response, &err), ONCE_OK);
    assert_int_equal(once_pg_recorded(shop, token, &answer, &err), ONCE_OK);
    assert_int_equal(once_pg_response(answer, &got), ONCE_OK);
    assert_int_equal(got.header_count, 0);
    assert_int_equal(got.body.len, size);
    assert_memory_equal(got.body.data, body, size);
    once_pg_answer_free(answer);
    free(body);
}

static void errors_of_the_server(void **state)
{
    PGconn *doomed = sql_connect("shop"), *stranger = sql_connect("stranger");
    char token[ONCE_TOKEN_SIZE];

    claimed("server", token);
    expect_error(complete(stranger, token, "x"), ONCE_E_CONFIG, "42501");
    sql_run(doomed, "BEGIN");
    make_effect(doomed, "doomed");
    sql_run(owner, "SELECT pg_terminate_backend(%d)", PQbackendPID(doomed));
    expect_error(complete(doomed, token, "x"), ONCE_E_UNAVAILABLE, "");
    PQfinish(doomed);
    PQfinish(stranger);
    assert_string_equal(effects("doomed"), "0");
}

/* Strangers have a function, an operator and a type for every name of the system, and the search_path leads to them. */
static void no_call_goes_by_the_search_path(void **state)
{
    once_pg_event_t event = ONCE_PG_EVENT_INIT;
    PGconn *lured = sql_connect("shop");
    once_pg_answer_t *answer;
    once_pg_step_t *step;
    once_key_t key;
    int is_new = 0;

    assert_int_equal(system("psql -X -q -f " ONCE_TEST_DECOYS), 0);
    sql_run(lured, "SET search_path = public, pg_catalog");
    assert_string_equal(sql_state(lured, "SELECT lower('A')"), "P0001");
    sql_run(lured, "BEGIN");
    answer = claim(lured, "lured", 0);
    event.topic = "payments";
    event.type = "made";
    event.payload = slice("{}");
    event.headers = "{\"a\": \"b\"}";
    event.claim = once_pg_token(answer);
    assert_int_equal(once_pg_lock(lured, "account-1", &err), ONCE_OK);
    assert_int_equal(once_pg_accept(lured, "shop", "m-1", &is_new, &err), ONCE_OK);
    assert_int_equal(once_pg_emit(lured, &event, NULL, &err), ONCE_OK);
    assert_int_equal(once_pg_renew(lured, event.claim, 60000, &err), ONCE_OK);
    assert_int_equal(once_pg_checkpoint(lured, event.claim, "a", "{\"b\": 1}", &err), ONCE_OK);
    assert_int_equal(once_pg_resume(lured, event.claim, &step, &err), ONCE_OK);
    assert_string_equal(step->state, "{\"b\": 1}");
    once_pg_step_free(step);
    assert_int_equal(once_pg_derive(lured, event.claim, "transfer", &key, &err), ONCE_OK);
    assert_int_equal(once_pg_doubt(lured, event.claim, 1000, &err), ONCE_OK);
    assert_int_equal(complete(lured, event.claim, "paid"), ONCE_OK);
    sql_run(lured, "COMMIT");
    once_pg_answer_free(answer);
    answer = claim(lured, "lured", 0);
    expect_response(answer, "paid");
    once_pg_answer_free(answer);
    PQfinish(lured);
}

static int set_up(void **state)
{
    once_t *gateway;
    once_answer_t *answer = NULL;

    owner = sql_connect(NULL);
    sql_run(owner,
            "CREATE ROLE shop LOGIN; GRANT once_application TO shop; CREATE ROLE stranger LOGIN; "
            "CREATE TABLE effects (what text); GRANT INSERT ON effects TO shop");
    shop = sql_connect("shop");
    other = sql_connect("shop");
    /* The first handle that opens the store makes its secrets. */
    if (once_open(getenv("ONCE_PG_GATEWAY_URL"), NULL, &gateway, &err) != ONCE_OK ||
        once_store_stats_sync(gateway, &answer) != ONCE_OK) {
        return -1;
    }
    once_answer_free(answer);
    return once_close(gateway, 5000);
}

static int tear_down(void **state)
{
    PQfinish(owner);
    PQfinish(shop);
    PQfinish(other);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(effect_and_record_commit_together),
        cmocka_unit_test(rolled_back_is_as_if_never_asked),
        cmocka_unit_test(the_other_outcomes),
        cmocka_unit_test(a_repeated_transaction_is_refused_and_reads_its_response),
        cmocka_unit_test(an_early_release_is_brief),
        cmocka_unit_test(a_zombie_is_refused),
        cmocka_unit_test(renew_and_doubt),
        cmocka_unit_test(steps_are_resumed_by_the_next_claim),
        cmocka_unit_test(a_third_party_gets_one_key_for_all_attempts),
        cmocka_unit_test(one_at_a_time_for_a_natural_key),
        cmocka_unit_test(events_and_messages),
        cmocka_unit_test(arguments_are_checked_before_anything_is_sent),
        cmocka_unit_test(large_bodies_with_every_byte),
        cmocka_unit_test(errors_of_the_server),
        cmocka_unit_test(no_call_goes_by_the_search_path),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
