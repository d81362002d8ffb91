/*
 * What a string becomes: bodies, payloads and headers as drivers send them arrive byte for byte, or are refused loudly. A literal
 * here is what most drivers send for a string: a value without a type.
 */
#include "sql.h"

#include <stdio.h>
#include <string.h>

static PGconn *owner, *shop;

/* In UTF-8: 35 bytes. As bytea's escape syntax it would lose a backslash, or be refused. */
#define TRICKY "{\"p\": \"C:\\\\temp\", \"t\": \"a\\\"b\\n\xc3\xa9\"}"

static const char *body_of(const char *key)
{
    return sql_one(shop, "SELECT encode(body, 'hex') FROM once.claim('values', '%s')", key);
}

static const char *hex_of(const char *text)
{
    return sql_one(shop, "SELECT encode(convert_to($$%s$$, 'UTF8'), 'hex')", text);
}

/* `value` is an SQL expression. */
static void settles_as(const char *key, const char *value, const char *hex)
{
    sql_run(owner,
            "SELECT once.settle((once.claim('values', '%s')).claim, 'completed', 201, "
            "'{\"X-A\": \"b\"}', %s, force => true)",
            key, value);
    assert_string_equal(body_of(key), hex);
}

static void claims_as(const char *key, const char *value, const char *hex)
{
    sql_run(shop, "SELECT once.complete((once.claim('values', '%s', 'POST', '/', %s)).claim, 201)",
            key, value);
    for (int i = 0; i < 2; i++) {
        assert_string_equal(
            sql_one(shop,
                    "SELECT outcome FROM once.claim('values', '%s', 'POST', '/', '\\x%s%s'::bytea)",
                    key, hex, i == 0 ? "" : "20"),
            i == 0 ? "replay" : "mismatch");
    }
    assert_string_equal(sql_one(shop,
                                "SELECT outcome FROM once.claim('values', '%s', 'POST', '/', %s)",
                                key, value),
                        "replay");
}

static void arrives_as(const char *value, const char *hex)
{
    static int n;
    char key[20];

    snprintf(key, sizeof(key), "value-%d", n++);
    sql_run(shop,
            "SELECT once.complete((once.claim('values', '%s')).claim, 201, '{\"X-A\": \"b\"}', %s)",
            key, value);
    assert_string_equal(body_of(key), hex);
    sql_run(shop, "SELECT once.emit('values', '%s', 'made', %s)", key, value);
    assert_string_equal(
        sql_one(owner, "SELECT encode(payload, 'hex') FROM once.outbox WHERE key = '%s'", key),
        hex);
    sql_run(shop, "SELECT once.emit('values', '%s', 'made', %s, '{\"a\": \"b\"}')", key, value);
    assert_string_equal(sql_one(owner,
                                "SELECT encode(payload, 'hex') FROM once.outbox WHERE key = '%s' "
                                "AND headers ->> 'a' = 'b'",
                                key),
                        hex);
    snprintf(key, sizeof(key), "settled-%d", n);
    settles_as(key, value, hex);
    snprintf(key, sizeof(key), "claimed-%d", n);
    claims_as(key, value, hex);
}

static void values_arrive_byte_for_byte(void **state)
{
    arrives_as("'" TRICKY "'", hex_of(TRICKY));
    arrives_as("'" TRICKY "'::text", hex_of(TRICKY));
    arrives_as("'" TRICKY "'::varchar", hex_of(TRICKY));
    arrives_as("'" TRICKY "'::json", hex_of(TRICKY));
    arrives_as("convert_to('" TRICKY "', 'UTF8')", hex_of(TRICKY));
    arrives_as("jsonb_build_object('n', 1)", hex_of("{\"n\": 1}"));
    arrives_as("'" TRICKY "'::jsonb", hex_of(TRICKY));
    arrives_as("'\\x00ff5c'::bytea", "00ff5c");
    arrives_as("''", "");
}

static void what_is_not_sure_is_refused(void **state)
{
    static const char *const values[] = {"'\\x00ff'", "5", "ARRAY['a']", "now()"};

    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        assert_string_equal(
            sql_state(shop,
                      "SELECT once.complete((once.claim('values', 'odd')).claim, 201, '{}', %s)",
                      values[i]),
            "ON004");
        assert_string_equal(
            sql_state(shop, "SELECT once.emit('values', 'odd', 'made', %s)", values[i]), "ON004");
        assert_string_equal(
            sql_state(shop, "SELECT once.claim('values', 'odd', 'POST', '/', %s)", values[i]),
            "ON004");
        assert_string_equal(sql_state(owner,
                                      "SELECT once.settle((once.claim('values', 'odd')).claim, "
                                      "'completed', 200, '{}', %s, force => true)",
                                      values[i]),
                            "ON004");
    }
    assert_string_equal(
        sql_state(
            shop,
            "SELECT once.complete((once.claim('values', 'odd')).claim, 201, '{no json', 'x')"),
        "22P02");
    assert_string_equal(sql_state(shop, "SELECT once.emit('values', 'odd', 'made', NULL)"),
                        "ON004");
    assert_string_equal(sql_one(owner, "SELECT count(*) FROM once.records WHERE key = 'odd'"), "0");
}

/* The same bytes are the same request, whatever type they came in. */
static void a_fingerprint_is_of_bytes(void **state)
{
    sql_run(shop, "SELECT once.complete((once.claim('values', 'print', 'POST', '/', '" TRICKY
                  "')).claim, 201)");
    assert_string_equal(
        sql_one(shop,
                "SELECT outcome FROM once.claim('values', 'print', 'POST', '/', convert_to('" TRICKY
                "', 'UTF8'))"),
        "replay");
    assert_string_equal(
        sql_one(shop,
                "SELECT outcome FROM once.claim('values', 'print', 'POST', '/', body => '" TRICKY
                "'::varchar)"),
        "replay");
    assert_string_equal(
        sql_one(shop, "SELECT outcome FROM once.claim('values', 'print', 'POST', '/', 'another')"),
        "mismatch");
}

static void every_way_to_call(void **state)
{
    sql_run(shop, "SELECT once.complete((once.claim(scope => 'values', key => 'named', body => "
                  "'x')).claim, 201)");
    sql_run(shop, "SELECT once.complete(claim => (once.claim('values', 'n2')).claim, status => "
                  "201, body => 'é')");
    assert_string_equal(body_of("n2"), "c3a9");
    sql_run(shop, "SELECT once.complete((once.claim('values', 'n3')).claim, 201, '[[\"A\", \"1\"], "
                  "[\"A\", \"2\"]]'::varchar, NULL)");
    assert_string_equal(sql_one(shop, "SELECT headers FROM once.claim('values', 'n3')"),
                        "[[\"A\", \"1\"], [\"A\", \"2\"]]");
    sql_run(shop, "SELECT once.complete((once.claim('values', 'n4')).claim, 201, NULL, NULL)");
    sql_run(shop, "SELECT once.complete((once.claim('values', 'n5')).claim, 201, "
                  "jsonb_build_object('A', 'b'), to_jsonb('x'::text), '1 day')");
    assert_string_equal(body_of("n5"), "227822");
    sql_run(
        shop,
        "SELECT once.checkpoint((once.claim('values', 'n6')).claim, 'a', '{\"b\": 1}'::varchar)");
    sql_run(owner, "SELECT once.settle((once.claim('values', 'n7', lease => '1 ms')).claim, "
                   "'completed', 200, '{}', 'C:\\temp', force => true)");
    assert_string_equal(body_of("n7"), hex_of("C:\\temp"));
    sql_run(owner,
            "SELECT once.settle((once.claim('values', 'n8')).claim, 'failed', force => true)");
}

/* Drivers ask what type a parameter has: it is text. */
static void parameters_without_a_type_are_text(void **state)
{
    sql_run(shop, "PREPARE c AS SELECT once.complete($1, $2, $3, $4); PREPARE e AS SELECT "
                  "once.emit($1, $2, $3, $4, $5)");
    assert_string_equal(
        sql_one(shop, "SELECT parameter_types FROM pg_prepared_statements WHERE name = 'c'"),
        "{text,integer,text,text}");
    assert_string_equal(
        sql_one(shop, "SELECT parameter_types FROM pg_prepared_statements WHERE name = 'e'"),
        "{text,text,text,text,text}");
}

static void errors_say_what_to_do(void **state)
{
    PGresult *result = PQexec(shop, "SELECT once.complete('', 200)");

    assert_string_equal(PQresultErrorField(result, PG_DIAG_SQLSTATE), "ON004");
    assert_non_null(strstr(PQresultErrorField(result, PG_DIAG_MESSAGE_HINT), "through once gate"));
    PQclear(result);
    /* As where the secrets are in a file: nothing is found from SQL, and that is said. */
    sql_run(owner, "BEGIN; DELETE FROM once.secrets; DELETE FROM once.secret_pads");
    result = PQexec(owner, "SELECT once.claim('values', 'lost')");
    assert_string_equal(PQresultErrorField(result, PG_DIAG_SQLSTATE), "ON005");
    assert_non_null(strstr(PQresultErrorField(result, PG_DIAG_MESSAGE_HINT), "secrets=file:"));
    PQclear(result);
    sql_run(owner, "ROLLBACK");
}

static void functions_are_described(void **state)
{
    assert_string_equal(
        sql_one(owner,
                "SELECT coalesce(string_agg(p.oid::regprocedure::text, ' '), 'all') FROM pg_proc p "
                "WHERE p.pronamespace = 'once'::regnamespace AND obj_description(p.oid, 'pg_proc') "
                "IS NULL "
                "AND has_function_privilege('once_application', p.oid, 'EXECUTE')"),
        "all");
}

/* No program has opened the store: installing made the secrets. */
static int set_up(void **state)
{
    owner = sql_connect(NULL);
    sql_run(owner, "CREATE ROLE shop LOGIN; GRANT once_application TO shop");
    shop = sql_connect("shop");
    assert_string_equal(sql_one(shop, "SELECT outcome FROM once.claim('values', 'first')"), "run");
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
        cmocka_unit_test(values_arrive_byte_for_byte),
        cmocka_unit_test(what_is_not_sure_is_refused),
        cmocka_unit_test(a_fingerprint_is_of_bytes),
        cmocka_unit_test(every_way_to_call),
        cmocka_unit_test(parameters_without_a_type_are_text),
        cmocka_unit_test(errors_say_what_to_do),
        cmocka_unit_test(functions_are_described),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
