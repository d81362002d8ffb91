/*
 * Arguments that are wrong, strange or hostile: every function refuses them with its code, and never takes a missing argument for
 * a weaker question.
 */
#include "sql.h"

#include <stdio.h>
#include <string.h>

static PGconn *shop, *owner;

/* Each fails with ON004. CLAIM stands for a claim that holds. */
static const char *const refused[] = {
    /* A fingerprint of nothing must not fit everything. */
    "SELECT once.claim('shop', 'done', 'POST', '/', NULL)",
    "SELECT once.claim('shop', 'done', NULL)",
    "SELECT once.claim('shop', 'done', 'POST', NULL)",
    "SELECT once.claim(NULL, 'x')",
    "SELECT once.claim('shop', NULL)",
    "SELECT once.claim('shop', '')",
    "SELECT once.claim('shop', repeat('x', 256))",
    "SELECT once.claim('shop', repeat(chr(228), 128))",
    "SELECT once.claim('shop', 'x', recover => NULL)",
    "SELECT once.claim('shop', 'x', recover => 'never')",
    "SELECT once.claim('shop', 'x', lease => NULL)",
    "SELECT once.claim('shop', 'x', lease => '0')",
    "SELECT once.claim('shop', 'x', lease => '-1 s')",
    "SELECT once.claim('shop', 'x', lease => '25 hours')",
    "SELECT once.claim('shop', 'x', ttl => NULL)",
    "SELECT once.claim('shop', 'x', ttl => '-1 day')",
    "SELECT once.claim('shop', 'x', ttl => '178000000 years')",
    "SELECT once.claim('shop', 'x', wait => NULL)",
    "SELECT once.claim('shop', 'x', claim_id => NULL)",
    "SELECT once.complete(NULL, 200)",
    "SELECT once.complete('', 200)",
    "SELECT once.complete('nonsense', 200)",
    "SELECT once.complete('CLAIM=', 200)",
    "SELECT once.complete(E'CLAIM\\n', 200)",
    "SELECT once.complete('CLAIM', NULL)",
    "SELECT once.complete('CLAIM', 99)",
    "SELECT once.complete('CLAIM', 100)",
    "SELECT once.complete('CLAIM', 199)",
    "SELECT once.complete('CLAIM', 600)",
    "SELECT once.complete('CLAIM', 1000)",
    "SELECT once.complete('CLAIM', 65736)",
    "SELECT once.complete('CLAIM', 200, '5')",
    "SELECT once.complete('CLAIM', 200, 'null')",
    "SELECT once.complete('CLAIM', 200, '[5]')",
    "SELECT once.complete('CLAIM', 200, '[[\"X\"]]')",
    "SELECT once.complete('CLAIM', 200, '[[\"\", \"x\"]]')",
    "SELECT once.complete('CLAIM', 200, '{\"X\": null}')",
    "SELECT once.complete('CLAIM', 200, '{\"X Y\": \"x\"}')",
    "SELECT once.complete('CLAIM', 200, '{\"X: y\\r\\nZ\": \"x\"}')",
    "SELECT once.complete('CLAIM', 200, '{\"X\": \"a\\r\\nSet-Cookie: b\"}')",
    "SELECT once.complete('CLAIM', 200, '{\"X\": \"a\\nb\"}')",
    "SELECT once.complete('CLAIM', 200, jsonb_build_object('X', repeat('x', 262144)))",
    "SELECT once.complete('CLAIM', 200, jsonb_object_agg(n, n)) FROM generate_series(1, 501) n",
    "SELECT once.complete('CLAIM', 200, '{}', decode(repeat('00', 16777217), 'hex'))",
    /* A completion that is forgotten at once would let the next request run. */
    "SELECT once.complete('CLAIM', 200, retain => '0')",
    "SELECT once.complete('CLAIM', 200, retain => '-1 day')",
    "SELECT once.complete('CLAIM', 200, retain => '178000000 years')",
    "SELECT once.release('CLAIM', -1)",
    "SELECT once.release('CLAIM', 70000)",
    "SELECT once.doubt('CLAIM', '-1 s')",
    "SELECT once.doubt('CLAIM', '100 years')",
    "SELECT once.renew('CLAIM', '-1 s')",
    "SELECT once.renew('CLAIM', '100 years')",
    "SELECT once.checkpoint('CLAIM', NULL)",
    "SELECT once.checkpoint(NULL, 'x')",
    "SELECT * FROM once.resume(NULL)",
    "SELECT once.lock(NULL)",
};

/* The same, by a gateway's user or an operator. */
static const char *const refused_operator[] = {
    "SELECT once.settle('CLAIM', NULL)",
    "SELECT once.settle('CLAIM', 'maybe')",
    "SELECT once.settle('CLAIM', 'completed')",
    "SELECT once.settle('CLAIM', 'completed', NULL)",
    "SELECT once.settle('CLAIM', 'completed', 100)",
    "SELECT once.settle('CLAIM', 'completed', 600)",
    "SELECT once.settle('CLAIM', 'failed', 70000)",
    "SELECT once.purge(NULL)",
};

/* The statement's SQLSTATE, with the claim in its place. */
static const char *state_of(PGconn *conn, const char *statement, const char *token)
{
    const char *at = strstr(statement, "CLAIM");

    return at == NULL
               ? sql_state(conn, "%s", statement)
               : sql_state(conn, "%.*s%s%s", (int)(at - statement), statement, token, at + 5);
}

static void expect_refused(PGconn *conn, const char *const *statements, size_t count,
                           const char *token)
{
    for (size_t i = 0; i < count; i++) {
        const char *state = state_of(conn, statements[i], token);
        if (strcmp(state, "ON004") != 0) {
            print_error("%s: %s\n", statements[i], state);
        }
        assert_string_equal(state, "ON004");
    }
}

static void wrong_arguments_have_their_code(void **state)
{
    const char *token;

    sql_run(shop, "SELECT once.complete(claim, 200, '{}', 'secret') FROM "
                  "once.claim('shop', 'done', 'POST', '/', 'body')");
    token = sql_one(shop, "SELECT claim FROM once.claim('shop', 'arguments')");
    expect_refused(shop, refused, sizeof(refused) / sizeof(refused[0]), token);
    expect_refused(owner, refused_operator, sizeof(refused_operator) / sizeof(refused_operator[0]),
                   token);
    /* None of it changed anything. */
    assert_string_equal(sql_one(owner, "SELECT state FROM once.get('shop', 'arguments')"),
                        "pending");
    assert_string_equal(sql_one(owner, "SELECT count(*) FROM once.keys"), "2");
}

/* What may be left out may be NULL, too. */
static void missing_choices_have_defaults(void **state)
{
    const char *token = sql_one(shop, "SELECT claim FROM once.claim('shop', 'choices')");

    sql_run(shop, "SELECT once.renew('%s', NULL)", token);
    sql_run(shop, "SELECT once.doubt('%s', NULL)", token);
    sql_run(shop, "SELECT once.release('%s', NULL, NULL, NULL)", token);
    assert_string_equal(sql_state(owner, "SELECT once.purge('%s', NULL)", token), "00000");
    token = sql_one(shop, "SELECT claim FROM once.claim('shop', 'choices')");
    assert_string_equal(sql_state(owner, "SELECT once.purge('%s', NULL)", token), "ON006");
    sql_run(shop, "SELECT once.complete('%s', 200, NULL, NULL, NULL)", token);
    assert_string_equal(sql_one(owner, "SELECT once.reap(-1)"), "0");
    assert_string_equal(sql_one(shop, "SELECT count(*) FROM once.get(NULL, NULL)"), "0");
}

/* A forged claim: another record, another epoch, another id. */
static void forged_claims_are_stale(void **state)
{
    const char *token = sql_one(shop, "SELECT claim FROM once.claim('shop', 'forged')");
    char forged[71];

    for (size_t at = 0; at < 69; at += 4) {
        snprintf(forged, sizeof(forged), "%s", token);
        forged[at] = forged[at] == 'A' ? 'B' : 'A';
        assert_string_equal(sql_state(shop, "SELECT once.complete('%s', 200)", forged), "ON001");
        assert_string_equal(sql_state(shop, "SELECT once.checkpoint('%s', 'x')", forged), "ON001");
    }
    assert_string_equal(sql_state(shop, "SELECT once.complete('%s', 200)", token), "00000");
}

/*
 * Every function that outsiders may call has a search path of its own (tests/postgres/test_hostile tries all of them), and every
 * procedure, which cannot have one, sets it.
 */
static void nothing_is_looked_up_by_the_callers_path(void **state)
{
    assert_string_equal(
        sql_one(owner,
                "SELECT coalesce(string_agg(p.proname, ' '), 'none') FROM pg_proc p "
                "WHERE p.pronamespace = 'once'::regnamespace "
                "AND (has_function_privilege('shop', p.oid, 'EXECUTE') "
                "     OR has_function_privilege('gateway', p.oid, 'EXECUTE')) "
                "AND NOT 'search_path=pg_catalog, pg_temp' = ANY (coalesce(p.proconfig, '{}')) "
                "AND NOT (p.prokind = 'p' AND NOT p.prosecdef "
                "         AND p.prosrc LIKE '%%set_config(''search_path''%%')"),
        "none");
}

static int set_up(void **state)
{
    owner = sql_connect(NULL);
    sql_open_store(owner);
    sql_run(owner, "CREATE ROLE shop LOGIN; GRANT once_application TO shop");
    shop = sql_connect("shop");
    return 0;
}

static int tear_down(void **state)
{
    PQfinish(owner);
    PQfinish(shop);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_arguments_have_their_code),
        cmocka_unit_test(missing_choices_have_defaults),
        cmocka_unit_test(forged_claims_are_stale),
        cmocka_unit_test(nothing_is_looked_up_by_the_callers_path),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
