/*
 * Events and messages in transactions: they are there if the transaction commits, and an event has the same id in every attempt.
 */
#include "sql.h"

#include <string.h>

static PGconn *a, *b;

static const char *claim_of(const char *key)
{
    return sql_one(a, "SELECT claim FROM once.claim('shop', '%s', recover => 'retry')", key);
}

static const char *emit(const char *type, const char *token)
{
    return sql_one(a, "SELECT once.emit('orders', '7', '%s', 'payload', '{}', '%s')", type, token);
}

static void events_exist_if_the_transaction_commits(void **state)
{
    const char *id;

    sql_run(a, "BEGIN");
    sql_run(a, "SELECT once.emit('plain', '7', 'made', 'payload')");
    sql_run(a, "ROLLBACK");
    assert_string_equal(sql_one(b, "SELECT count(*) FROM once.outbox WHERE topic = 'plain'"), "0");
    id = sql_one(a, "SELECT once.emit('plain', '7', 'made', 'payload', '{\"trace\": \"x\"}')");
    assert_string_equal(
        sql_one(b, "SELECT id FROM once.outbox WHERE topic = 'plain' AND xid IS NOT NULL"), id);
    assert_string_not_equal(sql_one(a, "SELECT once.emit('plain', '7', 'made', 'payload')"), id);
}

/* The transaction is repeated: after a deadlock, say, or because the server went away before the commit. */
static void a_repeated_transaction_emits_the_same_events(void **state)
{
    const char *token = claim_of("repeated"), *ids[2][3];

    for (int attempt = 0; attempt < 2; attempt++) {
        sql_run(a, "BEGIN");
        ids[attempt][0] = emit("made", token);
        ids[attempt][1] = emit("made", token);
        ids[attempt][2] = emit("paid", token);
        sql_run(a, attempt == 0 ? "ROLLBACK" : "COMMIT");
    }
    for (int i = 0; i < 3; i++) {
        assert_string_equal(ids[0][i], ids[1][i]);
        assert_string_not_equal(ids[0][i], ids[0][(i + 1) % 3]);
    }
    assert_string_equal(
        sql_one(b, "SELECT count(*) FROM once.outbox o JOIN once.get('shop', 'repeated') r "
                   "ON r.id = o.record"),
        "3");
}

/* A holder committed its event and died before it could say so; the next one does the step again. */
static void the_next_claim_emits_the_same_event(void **state)
{
    const char *first, *second, *id;

    first = sql_one(
        a, "SELECT claim FROM once.claim('shop', 'taken', recover => 'retry', lease => '1 ms')");
    id = emit("made", first);
    sql_run(a, "SELECT pg_sleep(0.01)");
    second = claim_of("taken");
    assert_string_not_equal(first, second);
    assert_string_equal(emit("made", second), id);
    assert_string_equal(sql_one(a, "SELECT once.accept('mailer', '%s')", id), "t");
    assert_string_equal(sql_one(a, "SELECT once.accept('mailer', '%s')", id), "f");
}

/* Steps in transactions of their own: what they emit is not the same event, however alike it looks. */
static void every_step_has_its_own_events(void **state)
{
    const char *token = claim_of("steps"), *first, *second;

    sql_run(a, "BEGIN");
    first = emit("step", token);
    sql_run(a, "SELECT once.checkpoint('%s', 'one')", token);
    sql_run(a, "COMMIT");
    second = emit("step", token);
    assert_string_not_equal(first, second);
    assert_string_equal(emit("step", token), second); /* the same step again */
}

/* A claim whose lease is over at once, by which the next one takes over. */
static const char *short_claim_of(const char *key)
{
    const char *token = sql_one(
        a, "SELECT claim FROM once.claim('shop', '%s', recover => 'retry', lease => '1 ms')", key);

    sql_run(a, "SELECT pg_sleep(0.01)");
    return token;
}

static const char *emit_line(const char *token, int line)
{
    return sql_one(a, "SELECT once.emit('lines', '7', 'line', '%d', '{}', '%s')", line, token);
}

/* A loop over line items that commits each: three events, not one of which two are dropped as repetitions. */
static void events_in_transactions_of_their_own_are_several(void **state)
{
    const char *ids[3], *token = short_claim_of("lines");

    for (int i = 0; i < 3; i++) {
        ids[i] = emit_line(token, i);
        assert_string_equal(sql_one(a, "SELECT once.accept('warehouse', '%s')", ids[i]), "t");
    }
    for (int i = 0; i < 3; i++) { /* the same claim says the same again */
        assert_string_equal(emit_line(token, i), ids[i]);
    }
    /* the next one: all of it, with payloads that may differ (a time, say) */
    token = claim_of("lines");
    for (int i = 0; i < 3; i++) {
        assert_string_equal(emit_line(token, 10 + i), ids[i]);
    }
    assert_string_equal(sql_one(a, "SELECT once.accept('warehouse', '%s')", emit_line(token, 13)),
                        "t"); /* a fourth one */
}

/* Also those of the same payload, if they were in one transaction; its COMMIT was not seen. */
static void a_committed_transaction_that_is_repeated_emits_the_same_events(void **state)
{
    const char *token = claim_of("unseen"), *ids[2][3];

    for (int attempt = 0; attempt < 2; attempt++) {
        sql_run(a, "BEGIN");
        for (int i = 0; i < 3; i++) {
            ids[attempt][i] = emit_line(token, i / 2);
        }
        sql_run(a, "COMMIT");
    }
    for (int i = 0; i < 3; i++) {
        assert_string_equal(ids[0][i], ids[1][i]);
        assert_string_not_equal(ids[0][i], ids[0][(i + 1) % 3]);
    }
}

/* Another order of what is not alike changes nothing, nor does an event of another claim in between. */
static void other_events_do_not_matter(void **state)
{
    const char *token = short_claim_of("beside"), *next, *other = claim_of("other"), *made, *paid;

    sql_run(a, "BEGIN");
    made = emit("made", token);
    paid = emit("paid", token);
    sql_run(a, "COMMIT");
    next = claim_of("beside");
    sql_run(a, "BEGIN");
    (void)emit("made", other);
    assert_string_equal(emit("paid", next), paid);
    assert_string_equal(emit("made", next), made);
    sql_run(a, "COMMIT");
}

/* Its snapshot does not show what the claim emitted meanwhile. */
static void an_old_snapshot_does_not_give_an_id_twice(void **state)
{
    const char *token = claim_of("snapshot");

    sql_run(b, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM once.keys LIMIT 1");
    (void)emit_line(token, 1);
    assert_string_equal(
        sql_state(b, "SELECT once.emit('lines', '7', 'line', '2', '{}', '%s')", token), "40001");
    sql_run(b, "ROLLBACK");
}

static const char *remembered(const char *key)
{
    return sql_one(a,
                   "SELECT count(*) FROM once.emitted WHERE record = (SELECT id FROM "
                   "once.records WHERE key = '%s')",
                   key);
}

/* What was emitted is remembered for as long as the claim can emit. */
static void what_was_emitted_is_forgotten_with_the_claim(void **state)
{
    const char *token = claim_of("forgotten"), *ids[3];

    ids[0] = emit_line(token, 1);
    assert_string_equal(remembered("forgotten"), "1");
    sql_run(a, "BEGIN");
    sql_run(a, "SELECT once.complete('%s', 200, retain => '1 ms')", token);
    ids[1] = emit_line(token, 1); /* the transaction that completes may go on: these are others */
    ids[2] = emit_line(token, 1);
    sql_run(a, "COMMIT");
    for (int i = 0; i < 3; i++) {
        assert_string_not_equal(ids[i], ids[(i + 1) % 3]);
    }
    assert_string_equal(remembered("forgotten"), "0");

    token = claim_of("purged");
    (void)emit_line(token, 1);
    sql_run(a, "SELECT once.purge('%s', true)", token);
    token = sql_one(a, "SELECT claim FROM once.claim('shop', 'swept', ttl => '1 ms')");
    (void)emit_line(token, 1);
    sql_run(a, "SELECT once.release('%s')", token);
    sql_run(a, "SELECT pg_sleep(0.01)");
    sql_run(a, "SELECT once.reap()");
    assert_string_equal(
        sql_one(a, "SELECT count(*) FROM once.emitted e WHERE NOT EXISTS (SELECT FROM once.keys k "
                   "WHERE k.id = once._short_id(e.record))"),
        "0");
    assert_string_equal(sql_one(a, "SELECT count(*) FROM once.keys WHERE key = 'swept'"), "0");
}

/* A later life of the key is another operation: its events must not be taken for repetitions. */
static void a_later_life_has_other_events(void **state)
{
    const char *token = claim_of("lives"), *first = emit("made", token);

    sql_run(a, "SELECT once.complete('%s', 200, retain => '1 ms')", token);
    sql_run(a, "SELECT pg_sleep(0.01)");
    token = claim_of("lives");
    assert_string_not_equal(emit("made", token), first);
}

static void a_savepoint_takes_its_numbers_along(void **state)
{
    const char *token = claim_of("savepoint"), *gone, *kept;

    sql_run(a, "BEGIN; SAVEPOINT s");
    gone = emit("made", token);
    sql_run(a, "ROLLBACK TO s");
    kept = emit("made", token);
    assert_string_equal(gone, kept);
    assert_string_not_equal(emit("made", token), kept);
    sql_run(a, "COMMIT");
}

static void an_id_may_be_given(void **state)
{
    static const char id[] = "00000000-0000-4000-8000-000000000007";

    assert_string_equal(
        sql_one(a, "SELECT once.emit('given', NULL, 'made', '', event_id => '%s')", id), id);
    assert_string_equal(sql_one(b, "SELECT id FROM once.outbox WHERE topic = 'given'"), id);
}

/* Completing first and emitting then is one way to write it; emitting for what others completed is none. */
static void only_the_completing_transaction_emits_after_it(void **state)
{
    const char *token = claim_of("order");

    sql_run(a, "BEGIN");
    sql_run(a, "SELECT once.complete('%s', 200)", token);
    (void)emit("made", token);
    sql_run(a, "COMMIT");
    assert_string_equal(sql_state(b, "SELECT once.emit('orders', '7', 'x', '', '{}', '%s')", token),
                        "ON002");
    token = claim_of("order in a savepoint");
    sql_run(a, "BEGIN; SAVEPOINT s");
    sql_run(a, "SELECT once.complete('%s', 200)", token);
    sql_run(a, "RELEASE s");
    (void)emit("made", token);
    sql_run(a, "COMMIT");
    assert_string_equal(sql_state(a, "SELECT once.emit('orders', '7', 'x', '', '{}', '%s')", token),
                        "ON002");
}

static void wrong_events_have_their_code(void **state)
{
    assert_string_equal(sql_state(a, "SELECT once.emit(NULL, 'k', 'x', '')"), "ON004");
    assert_string_equal(sql_state(a, "SELECT once.emit('', 'k', 'x', '')"), "ON004");
    assert_string_equal(sql_state(a, "SELECT once.emit('t', 'k', NULL, '')"), "ON004");
    assert_string_equal(sql_state(a, "SELECT once.emit('t', 'k', 'x', NULL)"), "ON004");
    assert_string_equal(sql_state(a, "SELECT once.emit('t', 'k', 'x', '', '[1]')"), "ON004");
    assert_string_equal(sql_state(a, "SELECT once.emit('t', 'k', 'x', '', '{}', 'no claim')"),
                        "ON004");
    assert_string_equal(sql_state(a, "SELECT once.accept(NULL, 'm')"), "ON004");
    assert_string_equal(sql_state(a, "SELECT once.accept('mailer', NULL)"), "ON004");
    assert_string_equal(sql_state(a, "SELECT once.accept('mailer', '')"), "ON004");
    assert_string_equal(sql_state(a, "SELECT once.accept('mailer', repeat('x', 1001))"), "ON004");
    assert_string_equal(sql_state(a, "SELECT once.accept('mailer', repeat('x', 1000))"), "00000");
}

/* An event that passes on the headers of the message that caused it must not take over that message's identity. */
static void headers_that_are_the_relays_are_refused(void **state)
{
    static const char *const reserved[] = {
        "ce_id",       "CE-ID",           "ce-type",    "cloudEvents:id",    "cloudEvents_id",
        "once-source", "Once-Signature",  "webhook-id", "Webhook-Signature", "message-id",
        "Message_Id",  "Idempotency-Key",
    };
    static const char *const free_ones[] = {"traceparent", "content-type", "cell",
                                            "oncer",       "x-message-id", "reply-message-id"};

    for (size_t i = 0; i < sizeof(reserved) / sizeof(reserved[0]); i++) {
        const char *code = sql_state(
            a, "SELECT once.emit('t', 'k', 'x', '', '{\"a\": 1, \"%s\": \"y\"}')", reserved[i]);
        if (strcmp(code, "ON004") != 0) {
            print_error("%s\n", reserved[i]);
        }
        assert_string_equal(code, "ON004");
    }
    for (size_t i = 0; i < sizeof(free_ones) / sizeof(free_ones[0]); i++) {
        sql_run(a, "SELECT once.emit('t', 'k', 'x', '', '{\"%s\": \"y\"}')", free_ones[i]);
    }
}

/* ------------------------------------------------------------------------------------------------------------ inbox */

static void a_message_is_accepted_once(void **state)
{
    assert_string_equal(sql_one(a, "SELECT once.accept('mailer', 'm1')"), "t");
    assert_string_equal(sql_one(a, "SELECT once.accept('mailer', 'm1')"), "f");
    assert_string_equal(sql_one(a, "SELECT once.accept('printer', 'm1')"), "t");
    sql_run(a, "BEGIN");
    assert_string_equal(sql_one(a, "SELECT once.accept('mailer', 'm2')"), "t");
    sql_start(b, "SELECT once.accept('mailer', 'm2')");
    assert_true(sql_waits(b, 200));
    sql_run(a, "ROLLBACK"); /* it was not handled after all */
    assert_string_equal(sql_end(b), "t");
}

static void old_messages_are_forgotten(void **state)
{
    sql_run(
        a,
        "INSERT INTO once.inbox SELECT clock_timestamp() - interval '8 days', 'old', n::text FROM "
        "generate_series(1, 100) AS n");
    sql_run(a, "SELECT once.reap()");
    assert_string_equal(sql_one(a, "SELECT count(*) FROM once.inbox WHERE subscriber = 'old'"),
                        "0");
    assert_string_equal(sql_one(a, "SELECT count(*) FROM once.inbox WHERE subscriber = 'printer'"),
                        "1");
}

/* Messages cannot be forgotten by a wrong span, or all at once; records are, all the same. */
static void a_wrong_retention_stops_nothing_else(void **state)
{
    sql_run(a, "ALTER TABLE once.settings DROP CONSTRAINT IF EXISTS inbox_retention");
    sql_run(a, "SELECT once.complete(claim, 200, retain => '1 ms') FROM "
               "once.claim('shop', 'wrong retention')");
    sql_run(a, "SELECT pg_sleep(0.01)");
    sql_run(a, "UPDATE once.settings SET value = 'a week' WHERE name = 'inbox_retention'");
    assert_string_equal(sql_state(a, "SELECT once.reap()"), "00000");
    assert_string_equal(sql_one(a, "SELECT count(*) FROM once.keys WHERE key = 'wrong retention'"),
                        "0");
    sql_run(a, "UPDATE once.settings SET value = '-7 days' WHERE name = 'inbox_retention'");
    sql_run(a, "SELECT once.reap()");
    assert_string_equal(sql_one(a, "SELECT count(*) FROM once.inbox WHERE subscriber = 'printer'"),
                        "1");
    sql_run(a, "UPDATE once.settings SET value = '7 days' WHERE name = 'inbox_retention'");
}

static void a_wrong_retention_is_refused(void **state)
{
    static const char *const wrong[] = {"a week", "-7 days", "0"};

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_string_not_equal(
            sql_state(a, "UPDATE once.settings SET value = '%s' WHERE name = 'inbox_retention'",
                      wrong[i]),
            "00000");
    }
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
        cmocka_unit_test(events_exist_if_the_transaction_commits),
        cmocka_unit_test(a_repeated_transaction_emits_the_same_events),
        cmocka_unit_test(the_next_claim_emits_the_same_event),
        cmocka_unit_test(every_step_has_its_own_events),
        cmocka_unit_test(events_in_transactions_of_their_own_are_several),
        cmocka_unit_test(a_committed_transaction_that_is_repeated_emits_the_same_events),
        cmocka_unit_test(other_events_do_not_matter),
        cmocka_unit_test(an_old_snapshot_does_not_give_an_id_twice),
        cmocka_unit_test(what_was_emitted_is_forgotten_with_the_claim),
        cmocka_unit_test(a_later_life_has_other_events),
        cmocka_unit_test(a_savepoint_takes_its_numbers_along),
        cmocka_unit_test(an_id_may_be_given),
        cmocka_unit_test(only_the_completing_transaction_emits_after_it),
        cmocka_unit_test(wrong_events_have_their_code),
        cmocka_unit_test(headers_that_are_the_relays_are_refused),
        cmocka_unit_test(a_message_is_accepted_once),
        cmocka_unit_test(old_messages_are_forgotten),
        cmocka_unit_test(a_wrong_retention_is_refused),
        cmocka_unit_test(a_wrong_retention_stops_nothing_else),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
