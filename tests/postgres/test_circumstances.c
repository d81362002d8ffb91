/*
 * The store and the functions under settings and events that a server can come up with: other isolation levels, errors at commit,
 * connections that are cut, servers that take no writes, savepoints, prepared transactions.
 */
#include "sql.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <once/once.h>

#define MANY 40

static PGconn *owner, *other;

typedef struct tally {
    int outcomes[16];
    int errors[32]; /* by -code */
    int answered;
} tally_t;

static once_slice_t slice(const char *text)
{
    once_slice_t s = {text, strlen(text)};

    return s;
}

static once_t *open_gateway(const char *options)
{
    char url[512];
    once_error_t err;
    once_t *gateway = NULL;

    snprintf(url, sizeof(url), "%s%s", getenv("ONCE_PG_GATEWAY_URL"), options);
    assert_int_equal(once_open(url, NULL, &gateway, &err), ONCE_OK);
    return gateway;
}

static void count(once_t *once, once_answer_t *answer, void *data)
{
    tally_t *tally = data;
    int code = once_answer_error(answer);

    if (code == ONCE_OK) {
        tally->outcomes[once_answer_outcome(answer)]++;
    } else {
        tally->errors[-code]++;
    }
    tally->answered++;
}

static void begin(once_t *gateway, const char *key, tally_t *tally)
{
    once_ask_t question = ONCE_ASK_INIT;

    question.scope = slice("shop");
    question.key = slice(key);
    assert_int_equal(once_begin(gateway, &question, count, tally), ONCE_OK);
}

/* Asks for many new keys at once and waits for the answers. */
static tally_t begin_many(once_t *gateway, const char *name)
{
    tally_t tally = {0};

    for (int i = 0; i < MANY; i++) {
        char key[64];
        snprintf(key, sizeof(key), "%s-%d", name, i);
        begin(gateway, key, &tally);
    }
    while (tally.answered < MANY) {
        assert_true(once_wait(gateway, 1000) >= 0);
    }
    return tally;
}

/* One new key after the other until one is granted. */
static void heals(once_t *gateway, const char *name)
{
    for (int i = 0; i < 200; i++) {
        tally_t tally = {0};
        char key[64];
        snprintf(key, sizeof(key), "%s-heals-%d", name, i);
        begin(gateway, key, &tally);
        while (tally.answered < 1) {
            assert_true(once_wait(gateway, 1000) >= 0);
        }
        if (tally.outcomes[ONCE_OUTCOME_RUN] == 1) {
            return;
        }
    }
    fail_msg("%s: it does not heal", name);
}

static int complains_about(once_t *gateway, const char *word)
{
    char text[256];

    once_store_trouble(gateway, text, sizeof(text));
    return strstr(text, word) != NULL;
}

static void cut_connections(void)
{
    sql_run(owner, "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
                   "WHERE usename = 'gateway'");
}

/* ------------------------------------------------------------------------------------------------------------ the store */

/* Made for READ COMMITTED: under other levels two batches that meet would fail instead of being told `busy`. */
static void batches_choose_their_isolation_level(void **state)
{
    once_t *gateway;

    sql_run(owner, "CREATE TABLE levels (level text); GRANT ALL ON levels TO PUBLIC; "
                   "CREATE FUNCTION note_level() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
                   "INSERT INTO public.levels VALUES (current_setting('transaction_isolation')); "
                   "RETURN NEW; END $$; CREATE TRIGGER note_level BEFORE INSERT ON once.keys "
                   "FOR EACH ROW EXECUTE FUNCTION note_level(); "
                   "ALTER ROLE gateway SET default_transaction_isolation = 'serializable'");
    gateway = open_gateway("");
    assert_int_equal(begin_many(gateway, "first").outcomes[ONCE_OUTCOME_RUN], MANY);
    sql_run(owner, "TRUNCATE levels");
    assert_int_equal(begin_many(gateway, "level").outcomes[ONCE_OUTCOME_RUN], MANY);
    assert_string_equal(sql_one(owner, "SELECT string_agg(DISTINCT level, ' ') FROM levels"),
                        "read committed");
    sql_run(owner, "ALTER ROLE gateway RESET default_transaction_isolation; "
                   "DROP TRIGGER note_level ON once.keys");
    assert_int_equal(once_close(gateway, 5000), ONCE_OK);
}

/* The statements went well, and then the commit fails: nothing of it counts. */
static void an_error_at_commit_is_an_abort(void **state)
{
    once_t *gateway = open_gateway("");
    tally_t tally;

    sql_run(owner,
            "CREATE FUNCTION refuse_late() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "RAISE division_by_zero; END $$; CREATE CONSTRAINT TRIGGER refuse_late AFTER INSERT "
            "ON once.keys DEFERRABLE INITIALLY DEFERRED FOR EACH ROW "
            "WHEN (NEW.key = 'late-7') EXECUTE FUNCTION refuse_late()");
    tally = begin_many(gateway, "late");
    assert_int_equal(tally.outcomes[ONCE_OUTCOME_RUN], MANY - 1);
    assert_int_equal(tally.errors[-ONCE_E_INVALID], 1);
    assert_string_equal(sql_one(owner, "SELECT count(*) FROM once.keys WHERE key LIKE 'late-%%'"),
                        "39");
    sql_run(owner, "DROP TRIGGER refuse_late ON once.keys");
    assert_int_equal(once_close(gateway, 5000), ONCE_OK);
}

/* Idle connections are cut, and busy ones in the middle of a batch: what was asked is asked again with the same claims. */
static void cut_connections_are_replaced(void **state)
{
    once_t *gateway = open_gateway("&store_timeout=20s");
    tally_t tally = {0};

    heals(gateway, "before");
    cut_connections();
    assert_int_equal(begin_many(gateway, "idle").outcomes[ONCE_OUTCOME_RUN], MANY);
    sql_run(other, "BEGIN; LOCK TABLE once.keys IN EXCLUSIVE MODE");
    for (int i = 0; i < MANY; i++) {
        char key[64];
        snprintf(key, sizeof(key), "busy-%d", i);
        begin(gateway, key, &tally);
    }
    while (strcmp(sql_one(owner, "SELECT count(*) > 0 FROM pg_stat_activity WHERE "
                                 "usename = 'gateway' AND wait_event_type = 'Lock'"),
                  "t") != 0) {
        assert_true(once_wait(gateway, 10) >= 0);
    }
    cut_connections();
    sql_run(other, "ROLLBACK");
    while (tally.answered < MANY) {
        assert_true(once_wait(gateway, 1000) >= 0);
    }
    assert_int_equal(tally.outcomes[ONCE_OUTCOME_RUN], MANY);
    assert_string_equal(sql_one(owner, "SELECT count(*) || ' ' || max(epoch) FROM once.keys WHERE "
                                       "key LIKE 'busy-%%'"),
                        "40 1");
    assert_int_equal(once_close(gateway, 5000), ONCE_OK);
}

/* A table that is locked as a whole: an error in time, and nothing is left behind. */
static void a_statement_does_not_wait_for_ever(void **state)
{
    once_t *gateway = open_gateway("&store_timeout=1s");
    tally_t tally;

    heals(gateway, "unlocked");
    sql_run(other, "BEGIN; LOCK TABLE once.keys IN EXCLUSIVE MODE");
    tally = begin_many(gateway, "locked");
    assert_int_equal(tally.errors[-ONCE_E_UNAVAILABLE], MANY);
    sql_run(other, "ROLLBACK");
    heals(gateway, "locked");
    assert_int_equal(once_close(gateway, 10000), ONCE_OK);
}

static void a_server_without_writes_is_told(void **state)
{
    once_t *gateway = open_gateway("&store_timeout=1s");
    tally_t tally;

    heals(gateway, "writable");
    sql_run(owner, "ALTER ROLE gateway SET default_transaction_read_only = on");
    cut_connections();
    tally = begin_many(gateway, "read-only");
    assert_int_equal(tally.errors[-ONCE_E_UNAVAILABLE], MANY);
    assert_true(complains_about(gateway, "read-only"));
    sql_run(owner, "ALTER ROLE gateway RESET default_transaction_read_only");
    heals(gateway, "read-only");
    assert_int_equal(once_close(gateway, 10000), ONCE_OK);
}

/* ------------------------------------------------------------------------------------------------- callers' transactions */

static void a_savepoint_that_is_rolled_back_completes_nothing(void **state)
{
    const char *token = sql_one(owner, "SELECT claim FROM once.claim('shop', 'savepoint')");

    sql_run(owner, "BEGIN; SAVEPOINT s");
    sql_run(owner, "SELECT once.complete('%s', 200)", token);
    sql_run(owner, "ROLLBACK TO s");
    sql_run(owner, "COMMIT");
    assert_string_equal(sql_one(owner, "SELECT state FROM once.get('shop', 'savepoint')"),
                        "pending");
    sql_run(owner, "BEGIN");
    sql_run(owner, "SELECT once.complete('%s', 201)", token);
    sql_run(owner, "SAVEPOINT s");
    assert_string_equal(sql_state(owner, "SELECT once.complete('%s', 202)", token), "ON002");
    sql_run(owner, "ROLLBACK TO s");
    sql_run(owner, "COMMIT");
    assert_string_equal(sql_one(owner, "SELECT status FROM once.get('shop', 'savepoint')"), "201");
}

/* Between PREPARE and COMMIT PREPARED there is no connection; the record is held all the same, and the server may restart. */
static void a_prepared_transaction_holds_its_record(void **state)
{
    const char *token = sql_one(owner, "SELECT claim FROM once.claim('shop', 'prepared')");
    once_t *gateway = open_gateway("");
    tally_t tally;

    sql_run(owner, "BEGIN");
    sql_run(owner, "SELECT once.complete('%s', 200, '{}', 'two phases')", token);
    sql_run(owner, "SELECT outcome FROM once.claim('shop', 'beside-3')");
    sql_run(owner, "PREPARE TRANSACTION 'p'");
    tally = begin_many(gateway, "beside");
    assert_int_equal(tally.outcomes[ONCE_OUTCOME_RUN], MANY - 1);
    assert_int_equal(tally.outcomes[ONCE_OUTCOME_BUSY], 1);
    assert_string_equal(
        sql_one(owner, "SELECT outcome FROM once.claim('shop', 'prepared', wait => false)"),
        "busy");
    sql_run(owner, "COMMIT PREPARED 'p'");
    assert_string_equal(
        sql_one(owner, "SELECT convert_from(body, 'UTF8') FROM once.claim('shop', 'prepared')"),
        "two phases");
    assert_int_equal(once_close(gateway, 5000), ONCE_OK);
}

/* A relay that sleeps is notified, and what has notified cannot be prepared; once.notify is the way out. */
static void a_transaction_that_emits_can_be_prepared_beside_a_relay(void **state)
{
    sql_run(owner, "SELECT once.relay_turn('00000000-0000-4000-8000-000000000001', 'asleep', "
                   "'nowhere', 60000, true, '{}')");
    sql_run(owner, "BEGIN; SELECT once.emit('t', 'k', 'x', 'told')");
    assert_string_equal(sql_state(owner, "PREPARE TRANSACTION 'told'"), "0A000");
    sql_run(owner, "BEGIN; SET LOCAL once.notify = off; SELECT once.emit('t', 'k', 'x', 'local')");
    sql_run(owner, "PREPARE TRANSACTION 'local'");
    sql_run(owner, "COMMIT PREPARED 'local'");
    sql_run(owner,
            "BEGIN; SELECT once.emit('t', 'k', 'x', 'told')"); /* it ended with its transaction */
    assert_string_equal(sql_state(owner, "PREPARE TRANSACTION 'told'"), "0A000");
    sql_run(owner, "ALTER ROLE owner SET once.notify = off");
    PQreset(owner);
    sql_run(owner, "BEGIN; SELECT once.emit('t', 'k', 'x', 'role')");
    sql_run(owner, "PREPARE TRANSACTION 'role'");
    sql_run(owner, "COMMIT PREPARED 'role'");
    sql_run(owner, "ALTER ROLE owner RESET once.notify");
    PQreset(owner);
    assert_string_equal(sql_one(other, "SELECT string_agg(convert_from(payload, 'UTF8'), ' ' "
                                       "ORDER BY seq) FROM once.outbox"),
                        "local role");
    sql_run(owner, "SELECT once.relay_end('00000000-0000-4000-8000-000000000001'); "
                   "TRUNCATE once.outbox");
}

/* A lock for each: one transaction must not leave none for the others. */
static void one_transaction_does_not_fill_the_lock_table(void **state)
{
    const char *most = sql_one(owner, "SELECT current_setting('max_locks_per_transaction')::int * "
                                      "(current_setting('max_connections')::int + 2) * 3 / 4");

    sql_run(owner, "BEGIN");
    assert_string_equal(sql_one(owner,
                                "SELECT count(c.claim) FROM generate_series(1, %s) AS n, "
                                "once.claim('shop', 'lock ' || n) AS c",
                                most),
                        most);
    sql_run(other, "SELECT once.complete(claim, 200) FROM once.claim('shop', 'beside locks')");
    assert_string_equal(sql_state(owner, "SELECT once.claim('shop', 'one lock more')"), "53200");
    sql_run(owner, "ROLLBACK");
    sql_run(owner, "SELECT once.claim('shop', 'one lock more')");
}

/* Its snapshot is older than what others committed since: it must fail, whatever it believes to see. */
static void an_old_snapshot_grants_nothing(const char *level)
{
    const char *stale;

    sql_run(owner, "BEGIN ISOLATION LEVEL %s", level);
    sql_run(owner, "SELECT 1 FROM once.keys LIMIT 1"); /* the snapshot */
    sql_run(other, "SELECT once.complete(claim, 200) FROM once.claim('shop', 'new in %s')", level);
    assert_string_equal(
        sql_state(owner, "SELECT outcome FROM once.claim('shop', 'new in %s')", level), "40001");
    sql_run(owner, "ROLLBACK");

    stale =
        sql_one(other, "SELECT claim FROM once.claim('shop', 'old in %s', lease => '1 ms')", level);
    sql_run(owner, "BEGIN ISOLATION LEVEL %s", level);
    sql_run(owner, "SELECT 1 FROM once.keys LIMIT 1");
    sql_run(other, "SELECT pg_sleep(0.01)");
    assert_string_equal(
        sql_one(other, "SELECT outcome FROM once.claim('shop', 'old in %s')", level),
        "run"); /* it took over */
    assert_string_equal(sql_state(owner, "SELECT once.complete('%s', 200)", stale), "40001");
    sql_run(owner, "ROLLBACK");
    assert_string_equal(sql_state(owner, "SELECT once.complete('%s', 200)", stale), "ON001");

    sql_run(owner, "BEGIN ISOLATION LEVEL %s", level);
    sql_run(owner, "SELECT once.complete(claim, 200) FROM once.claim('shop', 'good in %s')", level);
    sql_run(owner, "COMMIT");
    assert_string_equal(
        sql_one(other, "SELECT outcome FROM once.claim('shop', 'good in %s')", level), "replay");
}

static void stricter_levels_fail_instead_of_acting_twice(void **state)
{
    an_old_snapshot_grants_nothing("repeatable read");
    an_old_snapshot_grants_nothing("serializable");
}

/* Settings of the caller's session that change how SQL is read or shown. */
static void strange_settings_change_nothing(void **state)
{
    PGconn *strange = sql_connect(NULL);

    sql_run(strange,
            "SET standard_conforming_strings = off; SET escape_string_warning = off; "
            "SET bytea_output = escape; SET IntervalStyle = sql_standard; SET DateStyle = German; "
            "SET TimeZone = 'Asia/Kathmandu'; SET transform_null_equals = on; "
            "SET enable_indexscan = off; SET enable_nestloop = off; SET client_encoding = LATIN1");
    sql_run(strange, "SELECT once.complete(claim, 200, '{\"A\": \"b\"}', 'x', '1 day') FROM "
                     "once.claim('shop', 'strange', 'POST', '/', 'body')");
    assert_string_equal(sql_one(strange, "SELECT outcome || headers || body FROM "
                                         "once.claim('shop', 'strange', 'POST', '/', 'body')"),
                        "replay[[\"A\", \"b\"]]x");
    assert_string_equal(sql_one(strange, "SELECT outcome FROM once.claim('shop', 'strange')"),
                        "mismatch");
    sql_run(strange, "SELECT once.emit('t', 'k', 'x', 'p', '{}', claim) FROM "
                     "once.claim('shop', 'strange event')");
    PQfinish(strange);
}

static int set_up(void **state)
{
    owner = sql_connect(NULL);
    other = sql_connect(NULL);
    sql_open_store(owner);
    return 0;
}

static int tear_down(void **state)
{
    PQfinish(owner);
    PQfinish(other);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_choose_their_isolation_level),
        cmocka_unit_test(an_error_at_commit_is_an_abort),
        cmocka_unit_test(cut_connections_are_replaced),
        cmocka_unit_test(a_statement_does_not_wait_for_ever),
        cmocka_unit_test(a_server_without_writes_is_told),
        cmocka_unit_test(a_savepoint_that_is_rolled_back_completes_nothing),
        cmocka_unit_test(a_prepared_transaction_holds_its_record),
        cmocka_unit_test(a_transaction_that_emits_can_be_prepared_beside_a_relay),
        cmocka_unit_test(one_transaction_does_not_fill_the_lock_table),
        cmocka_unit_test(stricter_levels_fail_instead_of_acting_twice),
        cmocka_unit_test(strange_settings_change_nothing),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
