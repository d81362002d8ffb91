/*
 * What rows have in a shorter form: keys, descriptions and responses. Every way to read them gives what was stored.
 */
#include "sql.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <once/once.h>

#define MANY 800 /* enough for a dictionary, and for responses after it */

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
    return snprintf(out, 400,
                    "{\"object\":\"charge\",\"id\":\"ch_%08x\",\"amount\":%u,\"currency\":\"eur\","
                    "\"status\":\"succeeded\",\"customer\":\"canary-%08x\",\"livemode\":true}",
                    n * 40503u, n, n * 7919u);
}

typedef struct tally {
    unsigned answered, done;
    unsigned number; /* of the record that is asked for */
    int is_right;
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
                "SELECT convert_from(substr(once._unpack_payload(payload), 50), 'UTF8') FROM "
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

/* A row whose dictionary is gone is damaged; others are not. */
static void a_lost_dictionary_is_damage(void **state)
{
    tally_t tally = {0};
    once_t *gateway = open_gateway("");

    sql_run(owner, "DELETE FROM once.dictionaries");
    ask(gateway, MANY - 1, replayed, &tally);
    assert_false(tally.is_right);
    ask(gateway, 0, replayed, &tally);
    assert_true(tally.is_right);
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
        cmocka_unit_test(off_is_off),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
