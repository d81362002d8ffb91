/*
 * Expired records and messages are removed as fast as they come: by a handle, by the procedure for pg_cron, by once_store_reap.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <once/once.h>

#include "sql.h"

#define HOUR_MS 3600000

static PGconn *a, *b;

static uint64_t now_ms(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000u + (uint64_t)t.tv_nsec / 1000000u;
}

static long number(PGconn *conn, const char *query)
{
    return atol(sql_one(conn, "%s", query));
}

/* Completed records that expire in `ms`; less than 0: they have. */
static void add_records(unsigned count, long ms)
{
    sql_run(a,
            "INSERT INTO once.keys (created, changed, lease_until, lease_ms, expires, ttl, "
            "epoch, schema, state, recover, flags, id, tail, claim, fingerprint, scope, key, "
            "payload) "
            "SELECT t, t, t, 1, t + %ld, 1, 1, 1, 2, 0, 0, gen_random_uuid(), '', "
            "'', '', '', '', decode(repeat('ab', 300), 'hex') "
            "FROM generate_series(1, %u), once._now_ms() AS t",
            ms, count);
}

/* Messages that were handled `ms` ago. */
static void add_messages(unsigned count, long ms)
{
    sql_run(a,
            "INSERT INTO once.inbox SELECT clock_timestamp() - interval '%ld ms', 'them', "
            "gen_random_uuid()::text FROM generate_series(1, %u)",
            ms, count);
}

static long records(void)
{
    return number(a, "SELECT count(*) FROM once.keys");
}

static long messages(void)
{
    return number(a, "SELECT count(*) FROM once.inbox");
}

static once_t *open_handle(const char *reap)
{
    once_options_t *options = once_options_new();
    once_t *once = NULL;
    once_error_t err;

    assert_non_null(options);
    assert_int_equal(once_options_set(options, "reap", reap, &err), ONCE_OK);
    assert_int_equal(once_open(getenv("ONCE_PG_GATEWAY_URL"), options, &once, &err), ONCE_OK);
    once_options_free(options);
    return once;
}

/* A schedule that nothing has happened in. */
static int start_anew(void **state)
{
    sql_run(a, "TRUNCATE once.keys, once.inbox");
    sql_run(a, "UPDATE once.settings SET value = '1 second' WHERE name = 'inbox_retention'");
    sql_run(a, "UPDATE once.sweeps SET block = 0, began = 0, seen = 0, removed = 0, late = 0, "
               "last_late = 0, period = 1000, due = once._now_ms()");
    return 0;
}

/* ----------------------------------------------------------------------------------------------------------- handles */

/*
 * 500 new records and messages in each tenth of a second, all of which are over after a second, for ten: a fixed number of them a
 * minute would be left behind. The handle has the interval of every gateway.
 */
static void a_handle_follows_the_load(void **state)
{
    once_t *once = open_handle("1m");
    uint64_t start = now_ms();
    long added = 0;

    while (now_ms() - start < 10000) {
        add_records(500, 1000);
        add_messages(500, 0);
        added += 500;
        assert_true(once_wait(once, 100) >= 0);
    }
    print_message("%ld added; %ld records and %ld messages are left\n", added, records(),
                  messages());
    assert_true(records() < added / 2);
    assert_true(messages() < added / 2);
    /* And what is left goes, too, when nothing comes any more. */
    while (records() + messages() > 0) {
        assert_true(now_ms() - start < 120000);
        assert_true(once_wait(once, 100) >= 0);
    }
    assert_int_equal(once_close(once, 1000), ONCE_OK);
}

/* What a gateway shows as its metric. */
static void a_handle_says_how_far_behind_it_is(void **state)
{
    once_usage_t usage = ONCE_USAGE_INIT;
    once_t *once = open_handle("1m");
    uint64_t start = now_ms();

    add_records(10, -HOUR_MS);
    add_messages(10, 2 * HOUR_MS);
    while (usage.behind_ms == 0 || usage.messages_behind_ms == 0) {
        assert_true(now_ms() - start < 60000);
        assert_true(once_wait(once, 100) >= 0);
        assert_int_equal(once_store_usage(once, &usage), ONCE_OK);
    }
    assert_in_range(usage.behind_ms, HOUR_MS, HOUR_MS + 60000);
    assert_in_range(usage.messages_behind_ms, 2 * HOUR_MS - 1000, 2 * HOUR_MS + 60000);
    assert_int_equal(once_close(once, 1000), ONCE_OK);
}

static uint64_t reap_all(once_t *once, uint64_t limit)
{
    once_answer_t *answer = NULL;
    uint64_t count;

    assert_int_equal(once_store_reap_sync(once, limit, &answer), ONCE_OK);
    count = once_answer_count(answer);
    once_answer_free(answer);
    return count;
}

/* once reap: everything that is over, whatever the schedule says, and not more than was asked for. */
static void an_explicit_reaping_takes_messages_too(void **state)
{
    once_t *once = open_handle("off");

    add_records(100, -1000);
    add_records(3, HOUR_MS);
    add_messages(25000, HOUR_MS);
    add_messages(2, -HOUR_MS);
    sql_run(a, "UPDATE once.sweeps SET due = due + 3600000");
    assert_int_equal(reap_all(once, 150), 150);
    assert_int_equal(records(), 3);
    assert_int_equal(reap_all(once, 0), 24950);
    assert_int_equal(records(), 3);
    assert_int_equal(messages(), 2);
    assert_int_equal(reap_all(once, 0), 0);
    assert_int_equal(once_close(once, 1000), ONCE_OK);
}

/* ----------------------------------------------------------------------------------------------------------- pg_cron */

/* More than once.reap() removes in a minute, which was all that pg_cron called. */
static void the_procedure_for_pg_cron_removes_all(void **state)
{
    PGconn *gateway = sql_connect("gateway");

    sql_run(gateway, "SET statement_timeout = 0");
    add_records(30000, -1000);
    add_messages(30000, HOUR_MS);
    for (int i = 0; i < 20 && records() + messages() > 0; i++) {
        sql_run(gateway, "CALL once.reap_for('3 s')");
    }
    assert_int_equal(records() + messages(), 0);
    /* Each turn is a transaction: none has to be as long as the call. */
    sql_run(a, "UPDATE once.sweeps SET due = once._now_ms(), period = 1000");
    assert_string_equal(sql_state(gateway, "BEGIN; CALL once.reap_for('3 s')"), "2D000");
    sql_run(gateway, "ROLLBACK");
    assert_string_equal(sql_one(gateway, "SHOW search_path"), "\"$user\", public");
    PQfinish(gateway);
}

/* ---------------------------------------------------------------------------------------------------------- schedule */

static void one_session_reaps_at_a_time(void **state)
{
    add_records(5000, -1000);
    sql_run(a, "BEGIN");
    assert_true(number(a, "SELECT removed FROM once.reap_turn()") > 0);
    assert_string_equal(
        sql_one(b, "SELECT removed = 0 AND pause_ms >= 10000 FROM once.reap_turn()"), "t");
    sql_run(a, "COMMIT");
    /* It was its turn, and it learns when it is again; another one does not come along each time. */
    sql_run(a, "UPDATE once.sweeps SET due = once._now_ms() + 2000");
    assert_string_equal(
        sql_one(b, "SELECT removed = 0 AND pause_ms BETWEEN 10000 AND 11000 FROM once.reap_turn()"),
        "t");
    sql_run(a, "UPDATE once.sweeps SET due = once._now_ms()");
    assert_string_equal(sql_one(a, "SELECT pause_ms < 10000 FROM once.reap_turn()"), "t");
}

static void the_period_follows_what_is_found(void **state)
{
    static const struct {
        long period, seen, removed, late, blocks, next;
    } cases[] = {
        {8000, 100000, 20000, 8000, 10000, 8000},         /* a fifth: as it should be */
        {8000, 100000, 40000, 8000, 10000, 4000},         /* two fifths: twice as often */
        {8000, 100000, 40000, 90000, 10000, 4000},        /* also if nobody came for long */
        {8000, 100000, 100000, 8000, 10000, 2000},        /* all: at most four times as often */
        {60000, 300000, 15000, 3000, 30000, 15000},       /* it has just begun, 5,000/s: in time */
        {8000, 100000, 2000, 8000, 10000, 16000},         /* few: less often */
        {8000, 100000, 0, 0, 10000, 16000},               /* none */
        {8000, 999, 999, 8000, 10000, 16000},             /* all of nothing much */
        {1000, 100000, 100000, 1000, 10000, 1000},        /* once a second at most */
        {60000, 100, 0, 0, 10, 60000},                    /* a small table once a minute at least */
        {60000, 10000000, 0, 0, 819200, 120000},          /* a large one more seldom */
        {10000000, 10000000, 0, 0, 819200, 6000000},      /* 64 MB a minute */
        {21600000, 1000000000, 0, 0, 90000000, 21600000}, /* but four times a day */
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(
            atol(sql_one(a, "SELECT once._next_period(%ld, %ld, %ld, %ld, %ld)", cases[i].period,
                         cases[i].seen, cases[i].removed, cases[i].late, cases[i].blocks)),
            cases[i].next);
    }
}

/* Takes every turn at once until the pass through the table is over. */
static void pass(void)
{
    sql_run(b, "UPDATE once.sweeps SET due = once._now_ms()");
    do {
        sql_run(b, "UPDATE once.sweeps SET due = once._now_ms() WHERE block <> 0");
        sql_run(b, "SELECT once.reap_turn()");
    } while (number(b, "SELECT sum(block) FROM once.sweeps") > 0);
}

/* Neither its snapshot nor its locks are in the way of what it does not hold. */
static void an_open_transaction_does_not_stop_it(void **state)
{
    add_records(2000, -1000);
    add_messages(2000, HOUR_MS);
    sql_run(a, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM once.keys LIMIT 1 FOR UPDATE");
    sql_run(a, "SELECT FROM once.inbox LIMIT 1 FOR UPDATE");
    pass();
    assert_int_equal(number(b, "SELECT count(*) FROM once.keys"), 1);
    assert_int_equal(number(b, "SELECT count(*) FROM once.inbox"), 1);
    assert_int_equal(records(), 2000); /* as it sees it */
    sql_run(a, "COMMIT");
    pass();
    assert_int_equal(records() + messages(), 0);
}

static void it_is_known_how_far_behind_it_is(void **state)
{
    assert_string_equal(sql_one(a, "SELECT e::text FROM once.expiry() AS e"), "(0,0,0)");
    add_records(10, -HOUR_MS);
    add_messages(10, HOUR_MS);
    add_messages(5, 0);
    assert_true(number(a, "SELECT behind_ms FROM once.stats()") >= HOUR_MS);
    pass();
    assert_string_equal(sql_one(a, "SELECT behind_ms >= 3600000 AND messages = 5 AND "
                                   "messages_behind_ms >= 3599000 FROM once.expiry()"),
                        "t");
    assert_int_equal(number(a, "SELECT behind_ms FROM once.stats()"), 0);
    sql_run(a, "UPDATE once.settings SET value = '7 days' WHERE name = 'inbox_retention'");
    pass(); /* with nothing to remove */
    assert_string_equal(sql_one(a, "SELECT e::text FROM once.expiry() AS e"), "(0,5,0)");
    sql_run(a, "UPDATE once.sweeps SET due = once._now_ms() - 7200000"); /* nobody came */
    assert_string_equal(
        sql_one(a,
                "SELECT behind_ms >= 7200000 AND messages_behind_ms >= 7200000 FROM once.expiry()"),
        "t");
}

static int set_up(void **state)
{
    a = sql_connect(NULL);
    b = sql_connect(NULL);
    sql_open_store(a);
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
        cmocka_unit_test_setup(a_handle_follows_the_load, start_anew),
        cmocka_unit_test_setup(a_handle_says_how_far_behind_it_is, start_anew),
        cmocka_unit_test_setup(an_explicit_reaping_takes_messages_too, start_anew),
        cmocka_unit_test_setup(the_procedure_for_pg_cron_removes_all, start_anew),
        cmocka_unit_test_setup(one_session_reaps_at_a_time, start_anew),
        cmocka_unit_test_setup(the_period_follows_what_is_found, start_anew),
        cmocka_unit_test_setup(an_open_transaction_does_not_stop_it, start_anew),
        cmocka_unit_test_setup(it_is_known_how_far_behind_it_is, start_anew),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
