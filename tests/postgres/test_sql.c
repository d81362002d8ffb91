/*
 * The functions for applications, in their own transactions, on several connections.
 */
#include "sql.h"

#include <stdlib.h>
#include <string.h>

static PGconn *a, *b;

/* The claim of a new key, for the rest of the transaction. */
static const char *claim_of(PGconn *conn, const char *key)
{
    const char *token =
        sql_one(conn, "SELECT claim FROM once.claim('shop', '%s', 'POST', '/orders', 'body')", key);

    assert_int_equal(strlen(token), 70);
    return token;
}

static const char *outcome_of(PGconn *conn, const char *key)
{
    return sql_one(
        conn,
        "SELECT outcome FROM once.claim('shop', '%s', 'POST', '/orders', 'body', wait => false)",
        key);
}

/* ------------------------------------------------------------------------------------------------ claim and complete */

static void effect_and_record_commit_together(void **state)
{
    const char *token;

    sql_run(a, "BEGIN");
    token = claim_of(a, "together");
    sql_run(a, "INSERT INTO orders VALUES ('together')");
    sql_run(a, "SELECT once.complete('%s', 201, '{\"Content-Type\": \"text/plain\"}', 'made')",
            token);
    sql_run(a, "COMMIT");
    assert_string_equal(sql_one(b,
                                "SELECT outcome || ' ' || status || ' ' || headers || ' ' || "
                                "convert_from(body, 'UTF8') || ' ' || stored "
                                "FROM once.claim('shop', 'together', 'POST', '/orders', 'body')"),
                        "replay 201 [[\"Content-Type\", \"text/plain\"]] made plain");
    assert_string_equal(
        sql_one(b,
                "SELECT bool_and(abs(extract(epoch FROM expires - now()) - 86400) < 600) FROM "
                "(SELECT expires FROM once.claim('shop', 'together', 'POST', '/orders', 'body') "
                "UNION ALL SELECT expires FROM once.recorded('%s')) AS kept",
                token),
        "t");
    assert_string_equal(
        sql_one(
            b,
            "SELECT outcome FROM once.claim('shop', 'together', 'POST', '/orders', 'other body')"),
        "mismatch");
}

static void a_rollback_takes_the_claim_along(void **state)
{
    sql_run(a, "BEGIN");
    (void)claim_of(a, "rolled-back");
    sql_run(a, "ROLLBACK");
    assert_string_equal(sql_one(b, "SELECT count(*) FROM once.get('shop', 'rolled-back')"), "0");
    assert_string_equal(outcome_of(b, "rolled-back"), "run");
}

static void a_second_transaction_waits_and_is_told(void **state)
{
    const char *token;

    sql_run(a, "BEGIN");
    token = claim_of(a, "waits");
    assert_string_equal(outcome_of(b, "waits"), "busy");
    sql_start(b, "SELECT outcome FROM once.claim('shop', 'waits', 'POST', '/orders', 'body')");
    assert_true(sql_waits(b, 200));
    sql_run(a, "SELECT once.complete('%s', 200)", token);
    sql_run(a, "COMMIT");
    assert_string_equal(sql_end(b), "replay");
}

static void a_second_transaction_runs_when_the_first_gives_up(void **state)
{
    sql_run(a, "BEGIN");
    (void)claim_of(a, "gives-up");
    sql_start(b, "SELECT outcome FROM once.claim('shop', 'gives-up', 'POST', '/orders', 'body')");
    assert_true(sql_waits(b, 200));
    sql_run(a, "ROLLBACK");
    assert_string_equal(sql_end(b), "run");
}

static void completing_twice_fails_and_rolls_back(void **state)
{
    const char *token;

    sql_run(a, "BEGIN");
    token = claim_of(a, "twice");
    sql_run(a, "SELECT once.complete('%s', 201)", token);
    sql_run(a, "COMMIT");
    /* The reply to COMMIT was lost, say, and the transaction is repeated. */
    sql_run(a, "BEGIN");
    sql_run(a, "INSERT INTO orders VALUES ('twice')");
    assert_string_equal(sql_state(a, "SELECT once.complete('%s', 201)", token), "ON002");
    sql_run(a, "COMMIT"); /* is a rollback by now */
    assert_string_equal(sql_one(b, "SELECT count(*) FROM orders WHERE name = 'twice'"), "0");
}

static void a_stale_claim_cannot_commit(void **state)
{
    const char *old, *fresh;

    old = sql_one(a, "SELECT claim FROM once.claim('shop', 'stale', 'POST', '/orders', 'body', "
                     "lease => '1 ms')");
    sql_run(a, "SELECT pg_sleep(0.01)");
    fresh = claim_of(b, "stale");
    sql_run(a, "BEGIN");
    sql_run(a, "INSERT INTO orders VALUES ('stale')");
    assert_string_equal(sql_state(a, "SELECT once.complete('%s', 201)", old), "ON001");
    sql_run(a, "ROLLBACK");
    assert_string_equal(sql_state(a, "SELECT once.renew('%s')", old), "ON001");
    assert_string_equal(sql_state(a, "SELECT once.release('%s')", old), "ON001");
    assert_string_equal(sql_state(a, "SELECT once.emit('t', 'k', 'x', '', '{}', '%s')", old),
                        "ON001");
    assert_string_equal(sql_state(b, "SELECT once.complete('%s', 201)", fresh), "00000");
}

static void release_and_doubt_may_be_repeated(void **state)
{
    const char *token = claim_of(a, "released");

    sql_run(a, "SELECT once.release('%s', 503, 'not now')", token);
    sql_run(a, "SELECT once.release('%s', 503, 'not now')", token);
    assert_string_equal(
        sql_one(a,
                "SELECT state || ' ' || status || ' ' || note FROM once.get('shop', 'released')"),
        "failed 503 not now");
    token = claim_of(a, "doubted");
    sql_run(a, "SELECT once.doubt('%s', '1 hour')", token);
    sql_run(a, "SELECT once.doubt('%s', '1 hour')", token);
    assert_string_equal(sql_one(a, "SELECT state FROM once.get('shop', 'doubted')"), "unknown");
    assert_string_equal(sql_state(a, "SELECT once.settle('%s', 'failed')", token), "ON006");
    sql_run(a, "SELECT once.settle('%s', 'completed', 200, force => true)", token);
    assert_string_equal(outcome_of(b, "doubted"), "replay");
}

static void purged_keys_are_new(void **state)
{
    const char *token = claim_of(a, "purged");

    assert_string_equal(sql_state(a, "SELECT once.purge('%s')", token), "ON006");
    sql_run(a, "SELECT once.purge('%s', true)", token);
    assert_string_equal(
        sql_one(a, "SELECT epoch FROM once.claim('shop', 'purged', 'POST', '/orders', 'body')"),
        "1");
}

/* What a table has of the words that were erased. */
static const char *canaries(PGconn *conn)
{
    return sql_one(conn, "SELECT coalesce(string_agg(t.name, ' '), '') FROM (SELECT 'keys' AS "
                         "name, k::text FROM once.keys k "
                         "UNION ALL SELECT 'outbox', o::text FROM once.outbox o UNION ALL SELECT "
                         "'dead', d::text FROM "
                         "once.outbox_dead d UNION ALL SELECT 'checkpoint', c::text FROM "
                         "once.checkpoints c UNION ALL SELECT 'audit', "
                         "u::text FROM once.audit u) AS t (name, text) WHERE t.text LIKE "
                         "'%%canary%%' OR t.text LIKE "
                         "'%%' || encode('canary', 'hex') || '%%'");
}

/* The texts of a record are gone, also from the events that it emitted; what it answers stays. */
static void erased_keys_are_used(void **state)
{
    const char *token =
        sql_one(a, "SELECT claim FROM once.claim('shop', 'canary-key', 'POST', '/canary', 'body')");

    assert_string_equal(sql_state(a, "SELECT once.erase('%s')", token),
                        "ON006"); /* it is at work */
    sql_run(a, "SELECT once.checkpoint('%s', 'canary')", token);
    sql_run(a, "SELECT once.emit('orders', NULL, 'made', 'payload', claim => '%s')", token);
    sql_run(a, "SELECT once.relay_dead(grp, seq, id, 1, 'test') FROM once.outbox WHERE record IS "
               "NOT NULL");
    sql_run(a, "SELECT once.emit('orders', NULL, 'made again', 'payload', claim => '%s')", token);
    sql_run(a, "SELECT once.complete('%s', 201, '{\"X\": \"canary\"}'::jsonb, 'canary')", token);
    assert_string_equal(canaries(a), "keys outbox dead checkpoint");
    sql_run(a, "SELECT once.erase('%s', 'as she asked')", token);
    sql_run(a, "SELECT once.erase('%s', 'again')", token);
    assert_string_equal(canaries(a), "");
    assert_string_equal(sql_one(a,
                                "SELECT concat_ws('|', outcome, status, headers, body, stored) "
                                "FROM once.claim('shop', 'canary-key', 'POST', '/canary', 'body')"),
                        "replay|201|[]|\\x|erased");
    assert_string_equal(
        sql_one(a,
                "SELECT outcome FROM once.claim('shop', 'canary-key', 'POST', '/other', 'body')"),
        "mismatch");
    assert_string_equal(sql_state(a, "SELECT once.complete('%s', 200)", token), "ON002");
    assert_string_equal(
        sql_one(a, "SELECT concat_ws('|', outcome, status, stored) FROM once.recorded('%s')",
                token),
        "replay|201|erased");
    assert_string_equal(sql_one(a, "SELECT concat_ws('|', state, status, key, description, holder, "
                                   "cause, note, payload_bytes, erased) FROM "
                                   "once.get('shop', 'canary-key')"),
                        "completed|201|t");
    assert_string_equal(
        sql_one(a, "SELECT string_agg(concat_ws(' ', e ->> 'act', e ->> 'from', e ->> 'to', e ->> "
                   "'note'), '|') FROM "
                   "(SELECT entry::jsonb FROM once.audit ORDER BY number DESC LIMIT 2) AS t (e)"),
        "erase completed completed again|erase completed completed as she asked");
    sql_run(a, "DELETE FROM once.outbox_dead");
    sql_run(a, "DELETE FROM once.outbox");
}

/* A failed operation is claimed again, with its key, from its checkpoint. */
static void what_failed_and_was_erased_can_run(void **state)
{
    const char *token = claim_of(a, "erased");

    sql_run(a, "SELECT once.checkpoint('%s', 'first')", token);
    sql_run(a, "SELECT once.release('%s', 503, 'not now')", token);
    sql_run(a, "SELECT once.erase('%s')", token);
    assert_string_equal(
        sql_one(a,
                "SELECT concat_ws('|', state, status, key, note) FROM once.get('shop', 'erased')"),
        "failed|503");
    token = claim_of(a, "erased");
    assert_string_equal(sql_one(a, "SELECT name FROM once.resume('%s')", token), "first");
    assert_string_equal(
        sql_one(a,
                "SELECT concat_ws('|', key, description, erased) FROM once.get('shop', 'erased')"),
        "erased|POST /orders|f");
}

static void a_newer_record_is_left_alone(void **state)
{
    const char *token = claim_of(a, "newer");

    sql_run(a, "UPDATE once.keys SET schema = 9 WHERE key = 'newer'");
    assert_string_equal(sql_state(a, "SELECT once.complete('%s', 200)", token), "ON003");
    assert_string_equal(outcome_of(b, "newer"), "busy");
}

/* --------------------------------------------------------------------------------------------------- steps and locks */

static void work_resumes_where_it_stopped(void **state)
{
    const char *first, *second;

    first = sql_one(
        a, "SELECT claim FROM once.claim('shop', 'steps', recover => 'retry', lease => '1 ms')");
    assert_string_equal(sql_one(a, "SELECT name FROM once.resume('%s')", first), "(none)");
    sql_run(a, "SELECT once.checkpoint('%s', 'charged', '{\"charge\": 7}')", first);
    sql_run(a, "SELECT once.checkpoint('%s', 'shipped', '{\"parcel\": 9}')", first);
    sql_run(a, "SELECT pg_sleep(0.01)");
    second = sql_one(b, "SELECT claim FROM once.claim('shop', 'steps', recover => 'retry')");
    assert_string_equal(
        sql_one(b, "SELECT name || ' ' || (state ->> 'parcel') FROM once.resume('%s')", second),
        "shipped 9");
    assert_string_equal(sql_state(a, "SELECT once.checkpoint('%s', 'too late')", first), "ON001");
    assert_string_equal(sql_state(a, "SELECT * FROM once.resume('%s')", first), "ON001");
    sql_run(b, "SELECT once.complete('%s', 200, retain => '1 ms')", second);
    assert_string_equal(sql_state(b, "SELECT once.checkpoint('%s', 'after the end')", second),
                        "ON002");
    /* A later life of the key begins at the beginning. */
    sql_run(b, "SELECT pg_sleep(0.01)");
    second = sql_one(b, "SELECT claim FROM once.claim('shop', 'steps', recover => 'retry')");
    assert_string_equal(sql_one(b, "SELECT name FROM once.resume('%s')", second), "(none)");
}

static void a_natural_key_is_locked_until_the_end(void **state)
{
    sql_run(a, "BEGIN");
    sql_run(a, "SELECT once.lock('account 7')");
    sql_run(b, "SELECT once.lock('account 8')");
    sql_start(b, "SELECT once.lock('account 7')");
    assert_true(sql_waits(b, 200));
    sql_run(a, "COMMIT");
    (void)sql_end(b);
}

/* ----------------------------------------------------------------------------------------------------------- rights */

static void roles_have_what_they_need(void **state)
{
    PGconn *shop = sql_connect("shop"), *gateway = sql_connect("gateway"),
           *nobody = sql_connect("stranger");
    const char *token = claim_of(shop, "roles");

    sql_run(shop, "SELECT once.complete('%s', 200)", token);
    assert_string_equal(sql_state(shop, "SELECT count(*) FROM once.keys"), "42501");
    assert_string_equal(sql_state(shop, "SELECT count(*) FROM once.secrets"), "42501");
    assert_string_equal(sql_state(shop, "SELECT once.store_secrets_load('x')"), "42501");
    assert_string_equal(sql_state(shop, "SELECT once.settle('%s', 'failed')", token), "42501");
    assert_string_equal(sql_state(shop, "SELECT once._hmac('record', 0, '')"), "42501");
    assert_string_equal(sql_state(gateway, "SELECT * FROM once.stats()"), "00000");
    assert_string_equal(sql_state(gateway, "SELECT once.reap()"), "00000");
    assert_string_equal(sql_state(gateway, "SELECT count(*) FROM once.records"), "00000");
    assert_string_equal(sql_state(gateway, "SELECT count(*) FROM once.secrets"), "42501");
    assert_string_equal(sql_state(gateway, "SELECT once.claim('shop', 'x')"), "42501");
    assert_string_equal(sql_state(nobody, "SELECT once.version()"), "42501");
    PQfinish(shop);
    PQfinish(gateway);
    PQfinish(nobody);
}

/* \df+ once.* is the manual: what a role may call or read has a comment, and nothing private is granted to anybody. */
static void everything_public_has_a_comment(void **state)
{
    static const char granted[] =
        "SELECT coalesce(string_agg(p.oid::regprocedure::text, ' '), '') FROM pg_proc p "
        "WHERE p.pronamespace = 'once'::regnamespace AND EXISTS (SELECT FROM aclexplode("
        "coalesce(p.proacl, acldefault('f', p.proowner))) AS a WHERE a.grantee <> p.proowner) ";

    assert_true(atol(sql_one(a, "SELECT count(*) FROM pg_proc WHERE proname LIKE E'\\\\_%%' AND "
                                "pronamespace = 'once'::regnamespace")) > 40);
    assert_string_equal(sql_one(a, "%s AND p.proname LIKE E'\\\\_%%'", granted), "");
    assert_string_equal(sql_one(a, "%s AND obj_description(p.oid, 'pg_proc') IS NULL", granted),
                        "");
    /* Those that are not granted begin with an underscore. */
    assert_string_equal(
        sql_one(a, "SELECT coalesce(string_agg(p.oid::regprocedure::text, ' '), '') FROM pg_proc p "
                   "WHERE p.pronamespace = 'once'::regnamespace AND p.proname NOT LIKE E'\\\\_%%' "
                   "AND NOT EXISTS (SELECT FROM aclexplode(p.proacl) AS a WHERE a.grantee <> "
                   "p.proowner)"),
        "");
    assert_string_equal(
        sql_one(a, "SELECT coalesce(string_agg(c.oid::regclass::text, ' '), '') FROM pg_class c "
                   "WHERE c.relnamespace = 'once'::regnamespace AND c.relkind IN ('r', 'v', 'c') "
                   "AND obj_description(CASE c.relkind WHEN 'c' THEN c.reltype ELSE c.oid END) IS "
                   "NULL"),
        "");
}

/* A caller's own objects and search_path must not come between a function and its tables. */
static void callers_cannot_redirect_functions(void **state)
{
    PGconn *shop = sql_connect("shop");

    sql_run(shop, "CREATE TEMP TABLE keys AS SELECT 1 AS id");
    sql_run(shop, "CREATE FUNCTION pg_temp.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS "
                  "'SELECT NULL::timestamptz'");
    sql_run(shop, "SET search_path = pg_temp, pg_catalog, once");
    assert_string_equal(sql_one(shop, "SELECT outcome FROM once.claim('shop', 'redirect')"), "run");
    assert_string_equal(
        sql_one(a,
                "SELECT created > now() - interval '1 minute' FROM once.get('shop', 'redirect')"),
        "t");
    PQfinish(shop);
}

/* Of a record: state, description, holder, cause, and whether it has times. */
#define EXPLAINED(key)                                                                             \
    sql_one(a,                                                                                     \
            "SELECT concat_ws('|', state, description, regexp_replace(holder, '[0-9]+$', 'N'), "   \
            "cause, lease_until > created, expires > changed) FROM once.get('shop', '%s')",        \
            key)

static void records_explain_themselves(void **state)
{
    const char *token = sql_one(a, "SELECT claim FROM once.claim('shop', 'explained', 'POST', "
                                   "'/orders/7?secret=1', recover => 'retry')");

    assert_string_equal(EXPLAINED("explained"), "pending|POST /orders/7|localhost:N|t");
    sql_run(a, "SELECT once.renew('%s')", token);
    sql_run(a, "SELECT once.doubt('%s', '1 ms', E'time\\nout')", token);
    assert_string_equal(EXPLAINED("explained"), "unknown|POST /orders/7|localhost:N|time?out|t");
    sql_run(a, "SELECT once.renew('%s', '1 ms')", token); /* keeps it */
    assert_string_equal(EXPLAINED("explained"), "unknown|POST /orders/7|localhost:N|time?out|t");
    sql_run(a, "SELECT pg_sleep(0.01)");
    token = sql_one(a, "SELECT claim FROM once.claim('shop', 'explained', 'POST', "
                       "'/orders/7?secret=1', recover => 'retry', description => 'second')");
    assert_string_equal(EXPLAINED("explained"), "pending|second|localhost:N|t");
    sql_run(a,
            "SELECT once.settle('%s', 'completed', 200, note => 'seen at the bank', "
            "force => true)",
            token);
    assert_string_equal(EXPLAINED("explained"),
                        sql_one(a, "SELECT 'completed|second|localhost:N|settled by ' "
                                   "|| session_user || ': seen at the bank|t|t'"));
    token = sql_one(a, "SELECT claim FROM once.claim('shop', 'quiet', description => '')");
    sql_run(a, "SELECT once.release('%s', 503, 'the bank is closed')", token);
    assert_string_equal(EXPLAINED("quiet"), "failed|localhost:N|the bank is closed|t|t");
    token = sql_one(
        a, "SELECT claim FROM once.claim('shop', 'long', description => repeat('\u00e9', 300))");
    assert_string_equal(
        sql_one(a, "SELECT description = repeat('\u00e9', 128) FROM once.get('shop', 'long')"),
        "t");
    sql_run(a, "SELECT once.claim('shop', 'lapsed', recover => 'hold', lease => '1 ms'); SELECT "
               "pg_sleep(0.01); "
               "SELECT once.claim('shop', 'lapsed', recover => 'hold')");
    assert_string_equal(sql_one(a, "SELECT cause FROM once.get('shop', 'lapsed')"), "lease over");
}

static long size_of(const char *column)
{
    /* What this session did is in the statistics after this call. */
    sql_run(a, "SELECT pg_stat_force_next_flush()");
    return atol(sql_one(a, "SELECT %s FROM once.size()", column));
}

/* Those of a large table are not counted: it says about how many, also when most are gone and their room is still there. */
static void the_size_of_many_records_is_estimated(void **state)
{
    sql_run(a, "INSERT INTO once.keys (created, changed, lease_until, lease_ms, expires, ttl, "
               "epoch, schema, state, recover, flags, kind, status, id, tail, claim, fingerprint, "
               "scope, key, payload) SELECT 1, 1, 1, 1, 0, 1, 1, 1, 2, 0, 0, 1, 200, "
               "('feed' || substr(md5(n::text), 1, 28))::uuid, sha256(int4send(n)), '', '', '', "
               "'many', "
               "decode(repeat('ab', 496), 'hex') FROM generate_series(1, 20000) AS n");
    assert_true(atol(sql_one(a, "SELECT pg_relation_size('once.keys') / 8192")) > 1024);
    assert_in_range(size_of("records"), 19000, 21000);
    assert_in_range(size_of("bytes"), 19000 * 600L, 21000 * 750L);
    sql_run(a, "DELETE FROM once.keys WHERE key = 'many' AND get_byte(uuid_send(id), 2) >= 16");
    assert_true(atol(sql_one(a, "SELECT pg_relation_size('once.keys') / 8192")) > 1024);
    assert_in_range(size_of("records"), 500, 3000);
    assert_in_range(size_of("bytes"), 500 * 400L, 3000 * 750L);
    sql_run(a, "DELETE FROM once.keys WHERE key = 'many'");
}

static int set_up(void **state)
{
    a = sql_connect(NULL);
    b = sql_connect(NULL);
    sql_open_store(a);
    sql_run(a, "CREATE TABLE orders (name text)");
    sql_run(a, "CREATE ROLE shop LOGIN; CREATE ROLE stranger LOGIN; "
               "GRANT once_application TO shop");
    return 0;
}

static int tear_down(void **state)
{
    PQfinish(a);
    PQfinish(b);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(effect_and_record_commit_together),
        cmocka_unit_test(a_rollback_takes_the_claim_along),
        cmocka_unit_test(a_second_transaction_waits_and_is_told),
        cmocka_unit_test(a_second_transaction_runs_when_the_first_gives_up),
        cmocka_unit_test(completing_twice_fails_and_rolls_back),
        cmocka_unit_test(a_stale_claim_cannot_commit),
        cmocka_unit_test(release_and_doubt_may_be_repeated),
        cmocka_unit_test(purged_keys_are_new),
        cmocka_unit_test(erased_keys_are_used),
        cmocka_unit_test(what_failed_and_was_erased_can_run),
        cmocka_unit_test(a_newer_record_is_left_alone),
        cmocka_unit_test(work_resumes_where_it_stopped),
        cmocka_unit_test(a_natural_key_is_locked_until_the_end),
        cmocka_unit_test(roles_have_what_they_need),
        cmocka_unit_test(everything_public_has_a_comment),
        cmocka_unit_test(callers_cannot_redirect_functions),
        cmocka_unit_test(records_explain_themselves),
        cmocka_unit_test(the_size_of_many_records_is_estimated),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
