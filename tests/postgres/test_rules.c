/*
 * The SQL functions decide what once__step decides: every situation that a record can be in, every event that can meet it,
 * once through the database and once through the table of rules, compared in every field, as answered and as stored.
 */
#include "support/testing.h"

#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/url.h"
#include "pg/values.h"
#include "support/situations.h"

#define IN_FLIGHT 500

typedef struct walk {
    PGconn *conn;
    once__loop_t *loop;
    once__store_t *store;
    situation_t *cases;
    size_t count;
    size_t answered;
    uint64_t base; /* about now */
    unsigned char rules_seen[256];
} walk_t;

static walk_t walk;

/* ------------------------------------------------------------------------------------------------------------ database */

static void hex(char *out, const void *data, size_t len)
{
    memcpy(out, "\\\\x", 3);
    once__hex(out + 3, data, len);
}

static void print_bytes(uint8_t out[37], const once__fingerprint_t *print)
{
    once__put32(out, print->secret);
    out[4] = print->mode;
    memcpy(out + 5, print->mac, 32);
}

static void insert_row(const situation_t *s)
{
    const once__head_t *h = &s->before;
    once__record_t record = situation_record(s);
    const once__payload_t *payload = &record.payload;
    char id[48], tail[48], claim[48], print[96], line[2048];
    char about[64], cause[2 * ONCE__WHY_MAX + 4], body[128] = "";
    uint8_t bytes[37];
    long long ttl =
        h->ttl_ms <= INT32_MAX ? (long long)h->ttl_ms : -(long long)((h->ttl_ms + 999) / 1000);
    int len;

    print_bytes(bytes, &h->fingerprint);
    once__hex(id, s->op.id, ONCE_ID_SIZE / 2);
    hex(tail, s->op.id + ONCE_ID_SIZE / 2, ONCE_ID_SIZE / 2);
    hex(claim, h->claim.id, ONCE_CLAIM_ID_SIZE);
    hex(print, bytes, sizeof(bytes));
    hex(about, record.about.len > 0 ? record.about.data : "", record.about.len);
    hex(cause, record.cause.len > 0 ? record.cause.data : "", record.cause.len);
    if (payload->len > 0) {
        hex(body, payload->data, payload->len);
    }
    len = snprintf(line, sizeof(line),
                   "%llu\t%llu\t%llu\t%llu\t%llu\t%lld\t%u\t%u\t%u\t%u\t%u\t%u\t%u\t%s\t%s\t%"
                   "s\t%s\t\\\\x00\t%s\t%s\t%s\t%s\n",
                   (unsigned long long)h->created, (unsigned long long)h->changed,
                   (unsigned long long)h->lease_until, (unsigned long long)h->lease_ms,
                   (unsigned long long)h->expires, ttl, h->claim.epoch, h->schema, h->state,
                   h->recover, h->flags, payload->kind, payload->status, id, tail, claim, print,
                   record.key_len > 0 ? "k" : "", body, about, cause);
    assert_int_equal(PQputCopyData(walk.conn, line, len), 1);
}

static void run_sql(const char *text)
{
    PGresult *result = PQexec(walk.conn, text);
    ExecStatusType status = PQresultStatus(result);

    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) {
        print_error("%s\n", PQerrorMessage(walk.conn));
    }
    assert_true(status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK);
    PQclear(result);
}

static void insert_rows(int reaped)
{
    PGresult *result =
        PQexec(walk.conn,
               "COPY once.keys (created, changed, lease_until, lease_ms, expires, ttl, epoch, "
               "schema, state, recover, flags, kind, status, id, tail, claim, fingerprint, scope, "
               "key, payload, about, cause) FROM STDIN");

    assert_int_equal(PQresultStatus(result), PGRES_COPY_IN);
    PQclear(result);
    for (size_t i = 0; i < walk.count; i++) {
        const situation_t *s = &walk.cases[i];
        if (s->before.state != ONCE_STATE_NONE && (s->op.event.kind == ONCE__REAP) == reaped) {
            insert_row(s);
        }
    }
    assert_int_equal(PQputCopyEnd(walk.conn, NULL), 1);
    while ((result = PQgetResult(walk.conn)) != NULL) {
        assert_int_equal(PQresultStatus(result), PGRES_COMMAND_OK);
        PQclear(result);
    }
}

/* ------------------------------------------------------------------------------------------------------------- compare */

static void expect(const situation_t *s, once__step_t *step)
{
    situation_expect(s, step);
    walk.rules_seen[step->rule - once__rules.rows] = 1;
}

static void compare_answer(const situation_t *s)
{
    once__step_t step;
    int good;

    expect(s, &step);
    good = s->op.error == ONCE_OK && s->op.outcome == step.outcome && s->op.now == step.now &&
           situation_same_head(&s->op.head, &step.next);
    if (!good) {
        situation_describe(s, &step, walk.base);
    }
    assert_int_equal(s->op.error, ONCE_OK);
    assert_true(good);
}

static void stored_head(once__head_t *head, const PGresult *result, int row, size_t *payload)
{
    const uint8_t *print;
    size_t len;

    memset(head, 0, sizeof(*head));
    head->state = (uint8_t)once__pg_int(result, row, 1);
    head->schema = (uint8_t)once__pg_int(result, row, 2);
    head->recover = (uint8_t)once__pg_int(result, row, 3);
    head->flags = (uint8_t)once__pg_int(result, row, 4);
    head->claim.epoch = (uint32_t)once__pg_int(result, row, 5);
    head->lease_until = (uint64_t)once__pg_int(result, row, 6);
    head->lease_ms = (uint64_t)once__pg_int(result, row, 7);
    head->changed = (uint64_t)once__pg_int(result, row, 8);
    head->expires = (uint64_t)once__pg_int(result, row, 9);
    head->ttl_ms = (uint64_t)once__pg_int(result, row, 10);
    head->created = (uint64_t)once__pg_int(result, row, 11);
    assert_int_equal(once__pg_copy(result, row, 12, head->claim.id, ONCE_CLAIM_ID_SIZE), 0);
    print = once__pg_bytes(result, row, 13, &len);
    assert_int_equal(len, 37);
    head->fingerprint.secret = once__get32(print);
    head->fingerprint.mode = print[4];
    memcpy(head->fingerprint.mac, print + 5, 32);
    (void)once__pg_bytes(result, row, 14, payload);
}

static int is_stored(const PGresult *result, int row, int column, once_slice_t text)
{
    size_t len;
    const uint8_t *bytes = once__pg_bytes(result, row, column, &len);

    return len == text.len && (len == 0 || memcmp(bytes, text.data, len) == 0);
}

/* What it says about itself, and why. */
static int is_explained(const situation_t *s, const once__step_t *step, const PGresult *result,
                        int row)
{
    once__record_t old = situation_record(s);
    once_slice_t about = old.about, cause = old.cause, key = once__slice(old.key, old.key_len);
    uint8_t out[ONCE__WHY_MAX];

    if (step->changed) {
        about = once__about_after(step->rule, &s->op, about);
        cause = once__cause_after(out, step, &s->op, &old);
        key = once__key_after(step->rule, &s->op, key);
    } else if (s->before.state == ONCE_STATE_NONE) {
        return 1;
    }
    return is_stored(result, row, 15, about) && is_stored(result, row, 16, cause) &&
           is_stored(result, row, 17, key);
}

/* What the row must be now: as the rules left it, or as it was. */
static void compare_stored(const situation_t *s, const PGresult *result, int row)
{
    once__record_t old = situation_record(s);
    once__head_t stored;
    once__payload_t payload;
    once__step_t step;
    size_t len;
    int good;

    expect(s, &step);
    stored_head(&stored, result, row, &len);
    payload = once__payload_after(step.rule, &s->op, &old.payload);
    good = situation_same_head(&stored, step.changed ? &step.next : &s->before) &&
           (payload.kind == ONCE__PAYLOAD_ERASED) ==
               (once__pg_int(result, row, 18) == ONCE__PAYLOAD_ERASED) &&
           len == payload.len && is_explained(s, &step, result, row);
    if (!good) {
        situation_describe(s, &step, walk.base);
    }
    assert_true(good);
}

static int should_be_there(const situation_t *s)
{
    once__step_t step;

    expect(s, &step);
    return step.changed ? step.next.state != ONCE_STATE_NONE : s->before.state != ONCE_STATE_NONE;
}

/* By the number in the last bytes of the id. */
static void compare_table(int reaped)
{
    PGresult *result = PQexecParams(
        walk.conn,
        "SELECT once._full_id(id, tail), state, schema, recover, flags, epoch, lease_until, "
        "lease_ms, changed, expires, once._ttl_ms(ttl), created, claim, fingerprint, payload, "
        "about, cause, key, kind "
        "FROM once.keys",
        0, NULL, NULL, NULL, NULL, 1);
    char *there = calloc(walk.count + 1, 1);

    assert_int_equal(PQresultStatus(result), PGRES_TUPLES_OK);
    for (int row = 0; row < PQntuples(result); row++) {
        size_t len;
        const uint8_t *id = once__pg_bytes(result, row, 0, &len);
        uint64_t n = once__get64(id + 24);
        assert_in_range(n, 1, walk.count);
        there[n] = 1;
        compare_stored(&walk.cases[n - 1], result, row);
    }
    for (size_t i = 0; i < walk.count; i++) {
        situation_t *s = &walk.cases[i];
        if ((s->op.event.kind == ONCE__REAP) == reaped && should_be_there(s) != there[i + 1]) {
            once__step_t step;
            expect(s, &step);
            situation_describe(s, &step, walk.base);
            fail_msg("a row %s", there[i + 1] ? "is still there" : "is gone");
        }
    }
    free(there);
    PQclear(result);
}

/* --------------------------------------------------------------------------------------------------------------- tests */

static void done(once__op_t *op)
{
    walk.answered++;
    if (op->record != NULL) {
        free(op->record);
        op->record = NULL;
    }
}

static void run_until(size_t answered)
{
    while (walk.answered < answered) {
        (void)once__loop_wait(walk.loop, 1000);
        once__loop_enter(walk.loop);
        (void)once__loop_run(walk.loop);
        (void)walk.store->vt->dispatch(walk.store);
        once__loop_leave(walk.loop);
    }
}

static void events_are_decided_as_the_rules_say(void **state)
{
    size_t submitted = 0;

    insert_rows(0);
    walk.answered = 0;
    for (size_t i = 0; i < walk.count; i++) {
        if (walk.cases[i].op.event.kind == ONCE__REAP) {
            continue;
        }
        walk.cases[i].op.done = done;
        walk.store->vt->submit(walk.store, &walk.cases[i].op);
        submitted++;
        if (submitted - walk.answered >= IN_FLIGHT) {
            run_until(submitted - IN_FLIGHT / 2);
        }
    }
    run_until(submitted);
    for (size_t i = 0; i < walk.count; i++) {
        if (walk.cases[i].op.event.kind != ONCE__REAP) {
            compare_answer(&walk.cases[i]);
        }
    }
    compare_table(0);
    print_message("%zu situations\n", submitted);
}

static void the_reaper_takes_what_the_rules_say(void **state)
{
    once__op_t op = {.kind = ONCE__OP_REAP, .done = done, .thorough = 1};

    run_sql("TRUNCATE once.keys");
    insert_rows(1);
    walk.answered = 0;
    walk.store->vt->submit(walk.store, &op);
    run_until(1);
    assert_int_equal(op.error, ONCE_OK);
    for (size_t i = 0; i < walk.count; i++) {
        walk.cases[i].op.now = walk.base;
    }
    compare_table(1);
    assert_true(op.count > 0);
}

static void every_rule_was_met(void **state)
{
    for (size_t i = 0; i < once__rules.count; i++) {
        if (!walk.rules_seen[i]) {
            print_error("never met: %s\n", once__rules.rows[i].name);
        }
        assert_true(walk.rules_seen[i]);
    }
}

static uint64_t server_now(void)
{
    PGresult *result = PQexec(walk.conn, "SELECT once._now_ms()");
    uint64_t now;

    assert_int_equal(PQresultStatus(result), PGRES_TUPLES_OK);
    now = strtoull(PQgetvalue(result, 0, 0), NULL, 10);
    PQclear(result);
    return now;
}

static int set_up(void **state)
{
    const char *url_text = getenv("ONCE_PG_URL");
    once_error_t err;
    once__url_t url;
    int code;

    assert_non_null(url_text);
    walk.conn = PQconnectdb(url_text);
    assert_int_equal(PQstatus(walk.conn), CONNECTION_OK);
    walk.loop = once__loop_new(&once__real_env, &code);
    assert_non_null(walk.loop);
    assert_int_equal(once__url_parse(&url, "store URL", url_text, 0, &err), ONCE_OK);
    once__store_config_t config = {
        .path = url.path, .timeout_ms = 20000, .loop = walk.loop, .url = &url};
    code = once__store_find("postgres", 8)->open(&config, &walk.store, &err);
    assert_int_equal(code, ONCE_OK);
    once__url_free(&url);
    walk.base = server_now();
    walk.cases = situations_make(walk.base, &walk.count);
    return 0;
}

static int tear_down(void **state)
{
    walk.store->vt->close(walk.store);
    once__loop_free(walk.loop);
    PQfinish(walk.conn);
    free(walk.cases);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_are_decided_as_the_rules_say),
        cmocka_unit_test(the_reaper_takes_what_the_rules_say),
        cmocka_unit_test(every_rule_was_met),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
