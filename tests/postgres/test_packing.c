/*
 * What rows have in a shorter form: keys, descriptions and responses. Every way to read them gives what was stored.
 */
#include "sql.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <once/once.h>

#define MANY  800    /* enough for a dictionary, and for responses after it */
#define OTHER 100000 /* records from this number on have other responses */

static PGconn *owner;

static once_t *open_gateway(const char *options)
{
    char url[512];
    once_error_t err;
    once_t *gateway = NULL;

    snprintf(url, sizeof(url), "%s%s", getenv("ONCE_PG_GATEWAY_URL"), options);
    assert_int_equal(once_open(url, NULL, &gateway, &err), ONCE_OK);
    return gateway;
}

static void key_of(char out[40], unsigned n)
{
    snprintf(out, 40, "%08x-89ab-4cde-8f01-23456789abcd", n * 2654435761u);
}

static int body_of(char out[400], unsigned n)
{
    if (n >= OTHER) {
        return snprintf(out, 400,
                        "{\"ref\":\"%08x\",\"kind\":\"refund_of_a_card\",\"result\":"
                        "\"declined_by_bank\",\"currency\":\"usd\",\"retry_after\":%u}",
                        n * 40503u, n * 7919u);
    }
    return snprintf(out, 400,
                    "{\"object\":\"charge\",\"id\":\"ch_%08x\",\"amount\":%u,\"currency\":\"eur\","
                    "\"status\":\"succeeded\",\"customer\":\"canary-%08x\",\"livemode\":true}",
                    n * 40503u, n, n * 7919u);
}

typedef struct tally {
    unsigned answered, done;
    unsigned number; /* of the record that is asked for */
    int is_right;
    int is_wrong; /* it was answered, with another text */
} tally_t;

static void completed(once_t *once, once_answer_t *answer, void *data)
{
    tally_t *tally = data;

    tally->answered++;
    tally->done += once_answer_outcome(answer) == ONCE_OUTCOME_DONE;
}

static void granted(once_t *once, once_answer_t *answer, void *data)
{
    static const once_header_t header = {{"content-type", 12}, {"application/json", 16}};
    once_response_t response = ONCE_RESPONSE_INIT;
    tally_t *tally = data;
    char body[400];

    response.status = 201;
    response.headers = &header;
    response.header_count = 1;
    response.body.data = body;
    response.body.len = (size_t)body_of(body, tally->number);
    assert_int_equal(once_answer_outcome(answer), ONCE_OUTCOME_RUN);
    assert_int_equal(
        once_claim_complete(once_answer_take_claim(answer), &response, completed, tally), ONCE_OK);
}

static void replayed(once_t *once, once_answer_t *answer, void *data)
{
    tally_t *tally = data;
    const once_record_t *record = once_answer_record(answer);
    once_response_t response = ONCE_RESPONSE_INIT;
    char body[400];
    size_t len = (size_t)body_of(body, tally->number);

    tally->answered++;
    tally->is_right = once_answer_outcome(answer) == ONCE_OUTCOME_REPLAY && record != NULL &&
                      once_record_response(record, &response) == ONCE_OK &&
                      response.status == 201 && response.header_count == 1 &&
                      response.body.len == len && memcmp(response.body.data, body, len) == 0;
    tally->is_wrong = response.body.len > 0 && !tally->is_right;
}

static void ask(once_t *gateway, unsigned n, once_cb cb, tally_t *tally)
{
    once_ask_t question = ONCE_ASK_INIT;
    char key[40];

    key_of(key, n);
    tally->number = n;
    tally->answered = 0;
    question.scope = (once_slice_t){"shop", 4};
    question.key = (once_slice_t){key, strlen(key)};
    question.description = (once_slice_t){"POST /v1/payments", 17};
    assert_int_equal(once_begin(gateway, &question, cb, tally), ONCE_OK);
    while (tally->answered == 0) {
        assert_true(once_wait(gateway, 1000) >= 0);
    }
}

static void fill(once_t *gateway, unsigned from, unsigned to)
{
    tally_t tally = {0};

    for (unsigned n = from; n < to; n++) {
        ask(gateway, n, granted, &tally);
    }
    assert_int_equal(tally.done, to - from);
}

static void expect_replays(once_t *gateway, unsigned to)
{
    tally_t tally = {0};

    for (unsigned n = 0; n < to; n += 37) {
        ask(gateway, n, replayed, &tally);
        assert_true(tally.is_right);
    }
}

static void handles_make_a_dictionary(void **state)
{
    once_t *gateway = open_gateway("");

    fill(gateway, 0, MANY);
    assert_string_equal(
        sql_one(owner, "SELECT string_agg(number::text, ' ') FROM once.dictionaries"), "1");
    assert_true(
        atol(sql_one(owner, "SELECT count(*) FROM once.keys WHERE get_byte(payload, 0) = 129 "
                            "AND get_byte(about, 0) = 129 AND length(payload) < 60 AND "
                            "length(about) < 24 AND length(key) = 17")) > 100);
    assert_true(atol(sql_one(
                    owner, "SELECT count(*) FROM once.keys WHERE get_byte(payload, 0) < 128")) > 0);
    expect_replays(gateway, MANY);
    assert_int_equal(once_close(gateway, 5000), ONCE_OK);
}

/* The server unpacks for those that have no dictionary: at first, and old programs always. */
static void everyone_reads_it(void **state)
{
    once_t *gateway = open_gateway("");
    char key[40], body[400];

    expect_replays(gateway, MANY);
    assert_int_equal(once_close(gateway, 5000), ONCE_OK);
    key_of(key, MANY - 1);
    (void)body_of(body, MANY - 1);
    assert_string_equal(
        sql_one(owner,
                "SELECT convert_from(substr(once._unpack(payload, 'bytes'), 50), 'UTF8') FROM "
                "once.keys WHERE id = (SELECT half FROM once.get('shop', '%s')) AND "
                "get_byte(payload, 0) > 128",
                key),
        body);
    assert_string_equal(
        sql_one(owner,
                "SELECT description || ' ' || (holder ~ '^[^:]+:[0-9]+$') || ' ' || key "
                "FROM once.get('shop', '%s')",
                key),
        (snprintf(body, sizeof(body), "POST /v1/payments true %s", key), body));
    /* As gateways of version 3 ask: without naming a dictionary. */
    assert_string_equal(
        sql_one(owner,
                "SELECT convert_from(key, 'UTF8') || ' ' || (get_byte(payload, 0) = 0) FROM "
                "once.store_get(ARRAY[(SELECT id FROM once.get('shop', '%s'))])",
                key),
        (snprintf(body, sizeof(body), "%s true", key), body));
}

static void a_second_handle_uses_it(void **state)
{
    once_t *gateway = open_gateway("");

    fill(gateway, MANY, MANY + 50);
    assert_true(
        atol(sql_one(owner, "SELECT count(*) FROM (SELECT payload FROM once.keys ORDER BY "
                            "created DESC LIMIT 40) AS s WHERE get_byte(payload, 0) = 129")) > 30);
    assert_string_equal(sql_one(owner, "SELECT count(*) FROM once.dictionaries"), "1");
    assert_int_equal(once_close(gateway, 5000), ONCE_OK);
}

/* Nothing that only one response has is in it. */
static void a_dictionary_tells_nothing_about_one(void **state)
{
    assert_string_equal(sql_one(owner,
                                "SELECT bool_and(position('canary-'::bytea IN bytes) > 0) FROM "
                                "once.dictionaries"),
                        "t");
    assert_string_equal(
        sql_one(owner,
                "SELECT count(*) FROM once.dictionaries, generate_series(0, %u) AS n WHERE "
                "position(convert_to('canary-' || lpad(to_hex(n * 7919), 8, '0'), 'UTF8') IN "
                "bytes) > 0",
                MANY),
        "0");
}

static int seen(once_t *once, const once_record_t *record, void *data)
{
    ++*(unsigned *)data;
    return 0;
}

/* A row whose dictionary is gone is damaged, and counted once; others are not. */
static void a_lost_dictionary_is_damage(void **state)
{
    tally_t tally = {0};
    once_answer_t *answer;
    unsigned count = 0;
    once_t *gateway = open_gateway("");

    sql_run(owner, "DELETE FROM once.dictionaries");
    ask(gateway, MANY - 1, replayed, &tally);
    assert_false(tally.is_right);
    ask(gateway, 0, replayed, &tally);
    assert_true(tally.is_right);
    assert_int_equal(once_record_scan_sync(gateway, NULL, seen, &count, &answer), ONCE_OK);
    assert_int_equal(once_answer_damaged(answer),
                     atol(sql_one(owner, "SELECT count(*) FROM once.keys WHERE get_byte(payload, "
                                         "0) >= 128")));
    assert_int_equal(count + once_answer_damaged(answer), MANY + 50);
    once_answer_free(answer);
    assert_int_equal(once_close(gateway, 5000), ONCE_OK);
}

/* How many of the last records are packed. */
static long packed_of(unsigned count)
{
    return atol(sql_one(owner,
                        "SELECT count(*) FROM (SELECT payload FROM once.keys ORDER BY changed DESC "
                        "LIMIT %u) AS s WHERE get_byte(payload, 0) >= 128",
                        count));
}

/* As after a failover to a standby that has not got the dictionary: one handle has it still, another makes one of its own. */
static void no_dictionary_is_taken_for_another(void **state)
{
    once_t *first, *second;
    tally_t tally = {0};
    unsigned right = 0;

    sql_run(owner, "TRUNCATE once.keys, once.dictionaries");
    first = open_gateway("");
    fill(first, 0, MANY);
    assert_true(packed_of(20) == 20);
    sql_run(owner, "DELETE FROM once.dictionaries");
    fill(first, MANY, MANY + 30);
    assert_int_equal(packed_of(30), 0);
    for (unsigned n = MANY; n < MANY + 30; n++) {
        ask(first, n, replayed, &tally);
        assert_true(tally.is_right);
    }
    sql_run(owner, "TRUNCATE once.keys"); /* and once more, now with all of it packed */
    assert_int_equal(once_close(first, 5000), ONCE_OK);

    first = open_gateway("");
    fill(first, 0, MANY);
    assert_true(packed_of(20) == 20);
    sql_run(owner, "DELETE FROM once.dictionaries");
    second = open_gateway("");
    fill(second, OTHER, OTHER + MANY);
    assert_true(packed_of(20) == 20);
    assert_string_equal(
        sql_one(owner, "SELECT string_agg(number::text, ' ') FROM once.dictionaries"), "1");
    for (unsigned n = OTHER; n < OTHER + MANY; n += 7) { /* reading before writing */
        ask(first, n, replayed, &tally);
        assert_true(tally.is_right);
    }
    fill(first, MANY, MANY + 200);
    for (unsigned n = MANY; n < MANY + 200; n++) {
        ask(n % 2 == 0 ? first : second, n, replayed, &tally);
        assert_true(tally.is_right);
    }
    for (unsigned n = 0; n < MANY; n++) { /* packed with what is gone, or not at all */
        ask(n % 2 == 0 ? first : second, n, replayed, &tally);
        assert_false(tally.is_wrong);
        right += tally.is_right != 0;
    }
    assert_true(right > 0 && right < MANY);
    assert_int_equal(once_close(first, 5000), ONCE_OK);
    assert_int_equal(once_close(second, 5000), ONCE_OK);
}

/* A caller that names no dictionary, or not exactly the store's, stores nothing that is packed. */
static void the_store_refuses_what_it_could_not_unpack(void **state)
{
    static const char *const names[] = {"NULL", "''", "'\\x0100000000'",
                                        "(SELECT name || '\\x00' FROM once.dictionaries)"};
    const char *right = "(SELECT name FROM once.dictionaries WHERE number = 1)";

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        assert_string_equal(
            sql_one(owner,
                    "SELECT count(*) || ' ' || max(outcome) || ' ' || count(id) FROM "
                    "once.store_apply(2::smallint, ARRAY[sha256('1')], '{2}', '{1}', "
                    "ARRAY[decode(repeat('00', 16), 'hex')], '{f}', '{0}', '{0}', '{1}', '{200}', "
                    "ARRAY['\\x8100000000'::bytea], NULL, %s)",
                    names[i]),
            "1 34 0");
    }
    assert_string_equal(
        sql_one(owner,
                "SELECT count(*) || ' ' || count(id) FROM once.store_apply(2::smallint, "
                "ARRAY[sha256('1')], '{2}', '{1}', ARRAY[decode(repeat('00', 16), 'hex')], '{f}', "
                "'{0}', '{0}', '{1}', '{200}', ARRAY['\\x8100000000'::bytea], NULL, %s)",
                right),
        "1 1");
}

/* Whatever stands in a row is unpacked in bounded time and room, or not at all. */
static void unpacking_is_bounded(void **state)
{
    static const char *const hostile[] = {
        "'8100000000ffffff7f1400' || repeat('148027', 100000)", /* says 268 MB: copies of 20 bytes */
        "'81000000000a1400' || repeat('148027', 20)",           /* more than it says */
        "'8100000000808001' || repeat('0000', 4000)",           /* less */
        "'8100000000ffffffffffffffffffff7f'",
        "'81'",
        "'8100000000'",
        "'8100000000050180ffff7f'",
        "'8100000000050a0a'",
        "'8100000000053f3f'",
        "'81000000000501800b'"};

    sql_run(owner, "SET statement_timeout = '30s'");
    for (size_t i = 0; i < sizeof(hostile) / sizeof(hostile[0]); i++) {
        assert_string_equal(
            sql_one(owner, "SELECT once._unpack(decode(%s, 'hex'), 'bytes') IS NULL", hostile[i]),
            "t");
        assert_string_equal(
            sql_one(owner, "SELECT once._unpack(decode(%s, 'hex'), 'about') IS NULL", hostile[i]),
            "t");
    }
    /* Nor is any other text made of it: each byte of one that is right is changed. */
    assert_string_equal(
        sql_one(owner, "SELECT count(once._unpack(k.payload, 'bytes')) || ' ' || "
                       "count(nullif(once._unpack(set_byte(k.payload, n, get_byte(k.payload, n) "
                       "# 1), 'bytes'), once._unpack(k.payload, 'bytes'))) FROM "
                       "(SELECT payload FROM once.keys WHERE get_byte(payload, 0) = 129 AND "
                       "once._unpack(payload, 'bytes') IS NOT NULL LIMIT 1) AS k, "
                       "generate_series(0, 20) AS n"),
        "21 0");
    sql_run(owner, "RESET statement_timeout");
}

/* A description that cannot be read costs neither the response, nor what SQL shows of other records. */
static void a_bad_description_is_left_out(void **state)
{
    static const char *const bad[] = {"8503aaaa", "81000000000aaaaa", "0100ff", "01", "0105", "00"};
    once_t *gateway = open_gateway("");
    tally_t tally = {0};

    for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char key[40];
        key_of(key, OTHER + i);
        sql_run(owner,
                "UPDATE once.keys SET about = decode('%s', 'hex') WHERE id = (SELECT half FROM "
                "once.get('shop', '%s'))",
                bad[i], key);
        assert_string_equal(
            sql_one(owner,
                    "SELECT count(*) FROM (SELECT description, holder FROM once.records WHERE key "
                    "= '%s' OFFSET 0) AS r",
                    key),
            "1");
        ask(gateway, OTHER + i, replayed, &tally);
        assert_true(tally.is_right);
    }
    assert_true(atol(sql_one(owner, "SELECT count(description) FROM once.records")) > 100);
    assert_int_equal(once_close(gateway, 5000), ONCE_OK);
}

static void off_is_off(void **state)
{
    once_t *gateway = open_gateway("&dictionary=off");

    sql_run(owner, "TRUNCATE once.keys, once.dictionaries");
    fill(gateway, 0, MANY);
    assert_string_equal(sql_one(owner, "SELECT count(*) FROM once.dictionaries"), "0");
    assert_string_equal(
        sql_one(owner, "SELECT count(*) FROM once.keys WHERE get_byte(payload, 0) < 128"),
        (const char *)"800");
    assert_int_equal(once_close(gateway, 5000), ONCE_OK);
}

static int set_up(void **state)
{
    owner = sql_connect(NULL);
    sql_open_store(owner);
    return 0;
}

static int tear_down(void **state)
{
    PQfinish(owner);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(handles_make_a_dictionary),
        cmocka_unit_test(everyone_reads_it),
        cmocka_unit_test(a_second_handle_uses_it),
        cmocka_unit_test(a_dictionary_tells_nothing_about_one),
        cmocka_unit_test(a_lost_dictionary_is_damage),
        cmocka_unit_test(no_dictionary_is_taken_for_another),
        cmocka_unit_test(the_store_refuses_what_it_could_not_unpack),
        cmocka_unit_test(unpacking_is_bounded),
        cmocka_unit_test(a_bad_description_is_left_out),
        cmocka_unit_test(off_is_off),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
