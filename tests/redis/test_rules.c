/*
 * The scripts decide what once__step decides: every situation that a record can be in, every event that can meet it, once
 * through Redis and once through the table of rules, compared in every field, as answered and as stored; and what Redis receives
 * to forget is what has ended, when it is over.
 */
#include "support/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "core/codec.h"
#include "raw.h"
#include "store/redis/command.h"
#include "support/situations.h"

#define IN_FLIGHT 500

static struct {
    redisContext *redis;
    raw_store_t raw;
    situation_t *cases;
    size_t count, answered;
    uint64_t base;   /* about now */
    int is_old;      /* records are put as schema 1 */
    const char *key; /* of the records that are put */
    once__redis_dictionaries_t dictionaries;
    unsigned char rules_seen[256];
} walk;

static const once_slice_t new_about = {"\1new", 4};
static const once_slice_t none = {NULL, 0}, why = {"why", 3};

/* The record before. Those of schema 1 say nothing about themselves. */
static once__record_t old_record(const situation_t *s)
{
    once__record_t record = situation_record(s);

    if (record.key_len > 0) {
        record.key = walk.key;
        record.key_len = strlen(walk.key);
    }
    if (walk.is_old) {
        record.about = record.cause = none;
    }
    return record;
}

static void expect(const situation_t *s, once__step_t *step)
{
    situation_expect(s, step);
    walk.rules_seen[step->rule - once__rules.rows] = 1;
}

/* -------------------------------------------------------------------------------------------------------------- Redis */

static void drain(size_t count)
{
    for (size_t i = 0; i < count; i++) {
        void *reply = NULL;
        assert_int_equal(redisGetReply(walk.redis, &reply), REDIS_OK);
        assert_int_not_equal(((redisReply *)reply)->type, REDIS_REPLY_ERROR);
        freeReplyObject(reply);
    }
}

static void put_record(const situation_t *s)
{
    once__record_t record = old_record(s);
    uint8_t bytes[1024];
    char key[64];
    size_t size;

    record.head.schema = ONCE__SCHEMA; /* no other is written */
    if (walk.is_old) {
        size = once__record_size(&record);
        assert_true(size <= sizeof(bytes));
        once__record_encode(&record, bytes);
    } else {
        assert_true(once__redis_pack_bound(&record) <= sizeof(bytes));
        size = once__redis_pack(bytes, &record, NULL);
    }
    bytes[1] = (uint8_t)(s->before.schema > ONCE__SCHEMA ? ONCE__REDIS_SCHEMA + 1 : bytes[1]);
    raw_key(key, s->op.id);
    assert_int_equal(redisAppendCommand(walk.redis, "SET %s %b", key, bytes, size), REDIS_OK);
}

static void put_records(int reaped)
{
    size_t waiting = 0;

    freeReplyObject(raw_call(walk.redis, "FLUSHALL"));
    for (size_t i = 0; i < walk.count; i++) {
        const situation_t *s = &walk.cases[i];
        if (s->before.state == ONCE_STATE_NONE || (s->op.event.kind == ONCE__REAP) != reaped) {
            continue;
        }
        put_record(s);
        if (++waiting == IN_FLIGHT) {
            drain(waiting);
            waiting = 0;
        }
    }
    drain(waiting);
}

/* ------------------------------------------------------------------------------------------------------------- compare */

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

static int same(once_slice_t a, once_slice_t b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

/* The bytes must be the record as the rules left it, or as it was; a newer one's rest is not ours to compare. */
static int same_record(const situation_t *s, const once__step_t *step, const redisReply *bytes)
{
    once__record_t record = {.key = NULL}, old = old_record(s);
    once__payload_t payload = once__payload_after(step->rule, &s->op, &old.payload);
    once_slice_t about = old.about, cause = old.cause, key;
    uint8_t out[ONCE__WHY_MAX];
    int code = once__redis_unpack(&record, &walk.dictionaries, (const uint8_t *)bytes->str,
                                  (size_t)bytes->len);

    if (s->before.schema > ONCE__SCHEMA) {
        return code == ONCE_E_NEWER && record.head.lease_until == s->before.lease_until &&
               record.head.state == s->before.state;
    }
    key = s->before.state == ONCE_STATE_NONE ? once__slice(s->op.key, s->op.key_len)
                                             : once__slice(old.key, old.key_len);
    if (step->changed) {
        about = once__about_after(step->rule, &s->op, about);
        cause = once__cause_after(out, step, &s->op, &old);
        key = once__key_after(step->rule, &s->op, key);
    }
    return code == ONCE_OK &&
           situation_same_head(&record.head, step->changed ? &step->next : &s->before) &&
           record.payload.kind == payload.kind && record.payload.status == payload.status &&
           same(once__slice(record.payload.data, record.payload.len),
                once__slice(payload.data, payload.len)) &&
           same(once__slice(record.key, record.key_len), key) && same(record.about, about) &&
           same(record.cause, cause);
}

static void compare_stored(const situation_t *s, const redisReply *bytes, long long expires)
{
    once__step_t step;
    int should_be_there, should_expire;

    expect(s, &step);
    should_be_there =
        step.changed ? step.next.state != ONCE_STATE_NONE : s->before.state != ONCE_STATE_NONE;
    /* The records are put without an end, and erasing leaves it as it is. */
    should_expire =
        step.changed && s->op.event.kind != ONCE__ERASE &&
        (step.next.state == ONCE_STATE_COMPLETED || step.next.state == ONCE_STATE_FAILED);
    if ((bytes->type == REDIS_REPLY_STRING) != should_be_there ||
        (should_be_there && !same_record(s, &step, bytes)) ||
        (should_be_there && expires != (should_expire ? (long long)step.next.expires : -1))) {
        situation_describe(s, &step, walk.base);
        fail_msg("stored: %s, expires %lld", bytes->type == REDIS_REPLY_STRING ? "a record" : "-",
                 expires);
    }
}

static void compare_some(size_t from, size_t to, int reaped)
{
    char key[64];

    for (size_t i = from; i < to; i++) {
        raw_key(key, walk.cases[i].op.id);
        (void)redisAppendCommand(walk.redis, "GET %s", key);
        (void)redisAppendCommand(walk.redis, "PEXPIRETIME %s", key);
    }
    for (size_t i = from; i < to; i++) {
        void *bytes = NULL, *expires = NULL;
        assert_int_equal(redisGetReply(walk.redis, &bytes), REDIS_OK);
        assert_int_equal(redisGetReply(walk.redis, &expires), REDIS_OK);
        if ((walk.cases[i].op.event.kind == ONCE__REAP) == reaped) {
            compare_stored(&walk.cases[i], bytes, ((redisReply *)expires)->integer);
        }
        freeReplyObject(bytes);
        freeReplyObject(expires);
    }
}

static void compare_all_stored(int reaped)
{
    for (size_t i = 0; i < walk.count; i += IN_FLIGHT) {
        compare_some(i, i + IN_FLIGHT < walk.count ? i + IN_FLIGHT : walk.count, reaped);
    }
}

/* --------------------------------------------------------------------------------------------------------------- tests */

static void done(once__op_t *op)
{
    walk.answered++;
    free(op->record);
    op->record = NULL;
}

static void run_until(size_t answered)
{
    while (walk.answered < answered) {
        raw_turn(&walk.raw);
    }
}

static void events_are_decided(void)
{
    size_t submitted = 0;

    put_records(0);
    walk.answered = 0;
    for (size_t i = 0; i < walk.count; i++) {
        if (walk.cases[i].op.event.kind == ONCE__REAP) {
            continue;
        }
        walk.cases[i].op.done = done;
        walk.raw.store->vt->submit(walk.raw.store, &walk.cases[i].op);
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
    compare_all_stored(0);
    print_message("%zu situations\n", submitted);
}

static void events_are_decided_as_the_rules_say(void **state)
{
    walk.is_old = 0;
    walk.key = "k";
    events_are_decided();
}

/* What an earlier version wrote is read, and written anew when it changes. */
static void records_of_schema_1_are_decided_in_the_same_way(void **state)
{
    static const char *const keys[] = {"k", "11111111-2222-4333-8444-555555555555"};

    walk.is_old = 1;
    for (size_t i = 0; i < 2; i++) {
        walk.key = keys[i];
        events_are_decided();
    }
    walk.is_old = 0;
}

static void the_reaper_takes_what_the_rules_say(void **state)
{
    once__op_t op = {.kind = ONCE__OP_REAP, .done = done, .thorough = 1};

    put_records(1);
    walk.answered = 0;
    walk.raw.store->vt->submit(walk.raw.store, &op);
    run_until(1);
    assert_int_equal(op.error, ONCE_OK);
    for (size_t i = 0; i < walk.count; i++) {
        walk.cases[i].op.now = walk.base;
    }
    compare_all_stored(1);
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

static int set_up(void **state)
{
    redisReply *clock;

    walk.redis = raw_connect();
    walk.raw = raw_open("");
    clock = raw_call(walk.redis, "TIME");
    walk.base = strtoull(clock->element[0]->str, NULL, 10) * 1000;
    freeReplyObject(clock);
    walk.cases = situations_make(walk.base, &walk.count);
    for (size_t i = 0; i < walk.count; i++) {
        situation_t *s = &walk.cases[i];
        if (s->before.schema > ONCE__SCHEMA) {
            s->before.schema = ONCE__REDIS_SCHEMA + 1;
        }
        s->op.about = s->op.event.kind == ONCE__CLAIM ? new_about : none;
        s->op.cause =
            s->op.event.kind == ONCE__CLAIM || s->op.event.kind == ONCE__RENEW ? none : why;
    }
    return 0;
}

static int tear_down(void **state)
{
    raw_close(&walk.raw);
    redisFree(walk.redis);
    free(walk.cases);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_are_decided_as_the_rules_say),
        cmocka_unit_test(records_of_schema_1_are_decided_in_the_same_way),
        cmocka_unit_test(the_reaper_takes_what_the_rules_say),
        cmocka_unit_test(every_rule_was_met),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
