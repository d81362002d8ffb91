/*
 * Servers that are full, that would forget, that are not what the URL says, that have too few replicas, and what is found under a
 * record's name that is no record.
 */
#include "support/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <once/once.h>

#include "base/bytes.h"
#include "raw.h"

static once_t *open_with(const char *options)
{
    char url[512];
    once_error_t err;
    once_t *once = NULL;

    (void)snprintf(url, sizeof(url), "%s?%s", getenv("ONCE_REDIS_URL"), options);
    if (once_open(url, NULL, &once, &err) != ONCE_OK) {
        fail_msg("%s", err.text);
    }
    return once;
}

/* Asks; the outcome, or the error. */
static int ask(once_t *once, const char *key, once_claim_t **claim)
{
    once_ask_t question = ONCE_ASK_INIT;
    once_answer_t *answer = NULL;
    once_claim_t *taken;
    int code;

    question.key.data = key;
    question.key.len = strlen(key);
    code = once_begin_sync(once, &question, &answer);
    if (code != ONCE_OK) {
        return code;
    }
    code = (int)once_answer_outcome(answer);
    taken = once_answer_take_claim(answer);
    if (claim != NULL) {
        *claim = taken;
    } else if (taken != NULL) {
        once_claim_drop(taken);
    }
    once_answer_free(answer);
    return code;
}

static void full_refuses_claims_and_lets_the_others_end(void **state)
{
    redisContext *raw = raw_connect();
    once_t *once = open_with("store_timeout=1s&prefix=full:"), *other;
    once_response_t response = ONCE_RESPONSE_INIT;
    once_claim_t *claim = NULL;

    assert_int_equal(ask(once, "running", &claim), ONCE_OUTCOME_RUN);
    freeReplyObject(raw_call(raw, "CONFIG SET maxmemory 1"));
    assert_int_equal(ask(once, "new", NULL), ONCE_E_FULL);
    /* What runs is renewed and completed, and what is completed is replayed. */
    assert_int_equal(once_claim_renew_sync(claim, NULL), ONCE_OK);
    assert_int_equal(once_claim_complete_sync(claim, &response, NULL), ONCE_OK);
    assert_int_equal(ask(once, "running", NULL), ONCE_OUTCOME_REPLAY);
    /* Also by a new handle. */
    other = open_with("store_timeout=1s&prefix=full:");
    assert_int_equal(ask(other, "running", NULL), ONCE_OUTCOME_REPLAY);
    assert_int_equal(once_close(other, 1000), ONCE_OK);
    freeReplyObject(raw_call(raw, "CONFIG SET maxmemory 0"));
    assert_int_equal(ask(once, "new", NULL), ONCE_OUTCOME_RUN);
    assert_int_equal(once_close(once, 1000), ONCE_OK);
    redisFree(raw);
}

static void a_server_that_would_forget_is_refused(void **state)
{
    redisContext *raw = raw_connect();
    char trouble[200];
    once_t *once;

    freeReplyObject(raw_call(raw, "CONFIG SET maxmemory 100mb maxmemory-policy volatile-ttl"));
    once = open_with("store_timeout=1s");
    assert_int_equal(ask(once, "evicted", NULL), ONCE_E_CONFIG);
    assert_true(once_store_trouble(once, trouble, sizeof(trouble)) > 0);
    assert_non_null(strstr(trouble, "volatile-ttl"));
    (void)once_close(once, 0);
    /* Unless the caller overrides it. */
    once = open_with("eviction=accept");
    assert_int_equal(ask(once, "evicted", NULL), ONCE_OUTCOME_RUN);
    assert_int_equal(once_close(once, 1000), ONCE_OK);
    /* Without a bound nothing is evicted, whatever the policy. */
    freeReplyObject(raw_call(raw, "CONFIG SET maxmemory 0"));
    once = open_with("store_timeout=1s");
    assert_int_equal(ask(once, "not evicted", NULL), ONCE_OUTCOME_RUN);
    /* What is set while the server is used is noticed by the reaper. */
    freeReplyObject(raw_call(raw, "CONFIG SET maxmemory 100mb"));
    assert_int_equal(once_store_reap_sync(once, 0, NULL), ONCE_E_CONFIG);
    assert_int_equal(ask(once, "evicted, too", NULL), ONCE_E_CONFIG);
    freeReplyObject(raw_call(raw, "CONFIG SET maxmemory 0"));
    assert_int_equal(once_close(once, 1000), ONCE_OK);
    freeReplyObject(raw_call(raw, "CONFIG SET maxmemory-policy noeviction"));
    redisFree(raw);
}

static void the_wrong_user_is_refused(void **state)
{
    redisContext *raw = raw_connect();
    char url[256];
    once_t *once = NULL;

    freeReplyObject(raw_call(raw, "ACL SETUSER gate on >secret ~mine:* +@all"));
    (void)snprintf(
        url, sizeof(url),
        "redis://gate:wrong@127.0.0.1:%s?store_timeout=1s&prefix=mine:", getenv("ONCE_REDIS_PORT"));
    assert_int_equal(once_open(url, NULL, &once, NULL), ONCE_OK);
    assert_int_equal(ask(once, "k", NULL), ONCE_E_CONFIG);
    (void)once_close(once, 0);
    (void)snprintf(url, sizeof(url),
                   "redis://gate:secret@127.0.0.1:%s/3?prefix=mine:", getenv("ONCE_REDIS_PORT"));
    assert_int_equal(once_open(url, NULL, &once, NULL), ONCE_OK);
    assert_int_equal(ask(once, "k", NULL), ONCE_OUTCOME_RUN);
    assert_int_equal(once_close(once, 1000), ONCE_OK);
    freeReplyObject(raw_call(raw, "SELECT 3"));
    assert_int_equal(raw_integer(raw, "EXISTS mine:secrets"), 1);
    freeReplyObject(raw_call(raw, "SELECT 0"));
    redisFree(raw);
}

/* No replica is there: nothing may be granted, and what was asked is not forgotten either. */
static void missing_replicas_are_missed(void **state)
{
    once_t *once = open_with("wait=1&wait_timeout=50ms&store_timeout=500ms&prefix=wait:");

    assert_int_equal(ask(once, "k", NULL), ONCE_E_UNAVAILABLE);
    (void)once_close(once, 2000);
}

static int is_done;

static void done(once__op_t *op)
{
    is_done = 1;
}

/* Redis waits for what was written: so a repeated request causes a write, although nothing changes. */
static void an_answer_that_is_repeated_waits_for_replicas_too(void **state)
{
    raw_store_t store = raw_open("?prefix=repeated:&wait=1&wait_timeout=50ms");
    redisContext *raw = raw_connect();
    once__op_t op = {.kind = ONCE__OP_EVENT, .done = done, .key = "k", .key_len = 1};
    redisReply *stats;

    op.event.kind = ONCE__CLAIM;
    op.event.lease_ms = op.event.ttl_ms = 60000;
    op.event.fingerprint_count = 1;
    freeReplyObject(raw_call(raw, "CONFIG RESETSTAT"));
    for (int i = 0; i < 2; i++) {
        is_done = 0;
        store.store->vt->submit(store.store, &op);
        while (!is_done) {
            raw_turn(&store);
        }
        assert_int_equal(op.error, ONCE_E_NOREPLY); /* there are no replicas */
        stats = raw_call(raw, "INFO commandstats");
        assert_int_equal(strstr(stats->str, "cmdstat_setrange:") != NULL, i == 1);
        freeReplyObject(stats);
    }
    raw_close(&store);
    redisFree(raw);
}

static void what_is_no_record_is_corrupt(void **state)
{
    raw_store_t raw_store = raw_open("?prefix=once:");
    redisContext *raw = raw_connect();
    const uint8_t id[ONCE_ID_SIZE] = "something that is not a record.";
    char key[64];
    once_t *once = open_with("");
    once_answer_t *answer = NULL;

    raw_key(key, id);
    freeReplyObject(raw_call(raw, "SET %s %s", key, "rubbish"));
    assert_int_equal(once_record_get_sync(once, id, &answer), ONCE_E_CORRUPT);
    freeReplyObject(raw_call(raw, "DEL %s", key));
    freeReplyObject(raw_call(raw, "LPUSH %s %s", key, "rubbish"));
    assert_int_equal(once_record_get_sync(once, id, &answer), ONCE_E_CORRUPT);
    /* A pass through all records is not held up by it. */
    assert_int_equal(once_store_stats_sync(once, NULL), ONCE_OK);
    assert_int_equal(once_record_scan_sync(once, NULL, NULL, NULL, NULL), ONCE_E_INVALID);
    freeReplyObject(raw_call(raw, "DEL %s", key));
    assert_int_equal(once_close(once, 1000), ONCE_OK);
    raw_close(&raw_store);
    redisFree(raw);
}

/* ------------------------------------------------------------------------------------------ several of one turn */

#define TOGETHER 20

typedef struct asked {
    int is_done, error;
    once_claim_t *claim;
} asked_t;

static void answered(once_t *once, once_answer_t *answer, void *data)
{
    asked_t *asked = data;

    asked->is_done = 1;
    asked->error = once_answer_error(answer);
    asked->claim = once_answer_take_claim(answer);
}

static void await(once_t *once, asked_t *asked, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        while (!asked[i].is_done) {
            assert_true(once_wait(once, 1000) >= 0);
        }
        asked[i].is_done = 0;
    }
}

/* The Redis key of the only record with this prefix becomes that of a list. */
static void spoil(redisContext *raw, const char *prefix)
{
    redisReply *keys = raw_call(raw, "KEYS %s???????????????????????????????????????????", prefix);

    assert_int_equal(keys->elements, 1);
    freeReplyObject(raw_call(raw, "DEL %s", keys->element[0]->str));
    freeReplyObject(raw_call(raw, "LPUSH %s rubbish", keys->element[0]->str));
    freeReplyObject(keys);
}

/* What share a call share nothing else. */
static void one_that_is_refused_does_not_harm_the_others(void **state)
{
    redisContext *raw = raw_connect();
    once_t *once = open_with("prefix=together:");
    once_response_t response = ONCE_RESPONSE_INIT;
    static asked_t asked[TOGETHER];
    once_claim_t *claim = NULL;

    assert_int_equal(ask(once, "5", &claim), ONCE_OUTCOME_RUN);
    spoil(raw, "together:");
    for (unsigned i = 0; i < TOGETHER; i++) {
        once_ask_t question = ONCE_ASK_INIT;
        char key[8];
        question.key.data = key;
        question.key.len = (size_t)snprintf(key, sizeof(key), "%u", i);
        assert_int_equal(once_begin(once, &question, answered, &asked[i]), ONCE_OK);
    }
    await(once, asked, TOGETHER);
    for (unsigned i = 0; i < TOGETHER; i++) {
        assert_int_equal(asked[i].error, i == 5 ? ONCE_E_CORRUPT : ONCE_OK);
        assert_int_equal(asked[i].claim != NULL, i != 5);
    }
    asked[5].claim = claim;
    for (unsigned i = 0; i < TOGETHER; i++) {
        assert_int_equal(once_claim_complete(asked[i].claim, &response, answered, &asked[i]),
                         ONCE_OK);
    }
    await(once, asked, TOGETHER);
    for (unsigned i = 0; i < TOGETHER; i++) {
        char key[8];
        assert_int_equal(asked[i].error, i == 5 ? ONCE_E_CORRUPT : ONCE_OK);
        (void)snprintf(key, sizeof(key), "%u", i);
        assert_int_equal(ask(once, key, NULL), i == 5 ? ONCE_E_CORRUPT : ONCE_OUTCOME_REPLAY);
    }
    assert_int_equal(once_close(once, 1000), ONCE_OK);
    redisFree(raw);
}

static int not_shown(once_t *once, const once_record_t *record, void *data)
{
    fail_msg("a damaged record is shown");
    return 0;
}

static uint64_t damaged_in_a_scan(once_t *once)
{
    once_filter_t filter = ONCE_FILTER_INIT;
    once_answer_t *answer = NULL;
    uint64_t damaged;

    assert_int_equal(once_record_scan_sync(once, &filter, not_shown, NULL, &answer), ONCE_OK);
    damaged = once_answer_damaged(answer);
    once_answer_free(answer);
    return damaged;
}

/* Of what is stored no byte is believed: what cannot be is no reason to run again. */
static void damaged_envelopes_are_granted_to_nobody(void **state)
{
    static const struct {
        int at;
        uint8_t bytes[1];
    } damages[] = {
        {0, {0}}, {1, {0}}, {2, {0}}, {2, {5}}, {2, {0x82}}, {2, {255}},
        {2, {1}}, {2, {3}}, {2, {4}}, {3, {3}}, {8, {0}},
    };
    redisContext *raw = raw_connect();
    once_t *once = open_with("prefix=damaged:");
    once_response_t response = ONCE_RESPONSE_INIT;
    once_claim_t *claim = NULL;
    redisReply *keys, *whole;

    assert_int_equal(ask(once, "k", &claim), ONCE_OUTCOME_RUN);
    assert_int_equal(once_claim_complete_sync(claim, &response, NULL), ONCE_OK);
    keys = raw_call(raw, "KEYS damaged:???????????????????????????????????????????");
    assert_int_equal(keys->elements, 1);
    whole = raw_call(raw, "GET %s", keys->element[0]->str);
    for (size_t i = 0; i < sizeof(damages) / sizeof(damages[0]); i++) {
        const char *key = keys->element[0]->str;
        freeReplyObject(raw_call(raw, "SET %s %b", key, whole->str, whole->len));
        freeReplyObject(
            raw_call(raw, "SETRANGE %s %d %b", key, damages[i].at, damages[i].bytes, (size_t)1));
        assert_int_equal(ask(once, "k", NULL), ONCE_E_CORRUPT);
        assert_int_equal(damaged_in_a_scan(once), 1);
    }
    freeReplyObject(raw_call(raw, "SET %s %b", keys->element[0]->str, whole->str, whole->len));
    assert_int_equal(ask(once, "k", NULL), ONCE_OUTCOME_REPLAY);
    freeReplyObject(whole);
    freeReplyObject(keys);
    assert_int_equal(once_close(once, 1000), ONCE_OK);
    redisFree(raw);
}

/* The time of the last change, of the only record that there is besides that of `but`. */
static uint64_t changed_besides(redisContext *raw, const char *but)
{
    redisReply *keys = raw_call(raw, "KEYS times:???????????????????????????????????????????");
    redisReply *bytes;
    uint64_t changed;

    assert_int_equal(keys->elements, 2);
    bytes = raw_call(raw, "GETRANGE %s 40 47",
                     keys->element[strcmp(keys->element[0]->str, but) == 0]->str);
    assert_int_equal(bytes->len, 8);
    changed = once__get64((const uint8_t *)bytes->str);
    freeReplyObject(bytes);
    freeReplyObject(keys);
    return changed;
}

/* A record that a clock ahead of its time has changed counts by that time; what is decided after it in the same call does not. */
static void each_record_has_its_own_time(void **state)
{
    redisContext *raw = raw_connect();
    once_t *once = open_with("prefix=times:");
    redisReply *keys, *bytes;
    static asked_t asked[2];
    uint8_t ahead[8];
    uint64_t changed;

    assert_int_equal(ask(once, "0", NULL), ONCE_OUTCOME_RUN);
    keys = raw_call(raw, "KEYS times:???????????????????????????????????????????");
    bytes = raw_call(raw, "GETRANGE %s 40 47", keys->element[0]->str);
    changed = once__get64((const uint8_t *)bytes->str);
    once__put64(ahead, changed + 3600000);
    freeReplyObject(
        raw_call(raw, "SETRANGE %s 40 %b", keys->element[0]->str, ahead, sizeof(ahead)));
    for (unsigned i = 0; i < 2; i++) {
        once_ask_t question = ONCE_ASK_INIT;
        question.key.data = i == 0 ? "0" : "1";
        question.key.len = 1;
        assert_int_equal(once_begin(once, &question, answered, &asked[i]), ONCE_OK);
    }
    await(once, asked, 2);
    assert_in_range(changed_besides(raw, keys->element[0]->str), changed, changed + 1800000);
    for (unsigned i = 0; i < 2; i++) {
        once_claim_drop(asked[i].claim);
    }
    freeReplyObject(bytes);
    freeReplyObject(keys);
    assert_int_equal(once_close(once, 1000), ONCE_OK);
    redisFree(raw);
}

static void pending_never_expires_in_redis(void **state)
{
    redisContext *raw = raw_connect();
    once_t *once = open_with("prefix=expiry:&ttl=1h");
    once_response_t response = ONCE_RESPONSE_INIT;
    once_claim_t *claim = NULL;
    redisReply *keys;

    assert_int_equal(ask(once, "k", &claim), ONCE_OUTCOME_RUN);
    keys = raw_call(raw, "KEYS expiry:%s", "???????????????????????????????????????????");
    assert_int_equal(keys->elements, 1);
    assert_int_equal(raw_integer(raw, "PTTL %s", keys->element[0]->str), -1);
    assert_int_equal(once_claim_complete_sync(claim, &response, NULL), ONCE_OK);
    assert_in_range(raw_integer(raw, "PTTL %s", keys->element[0]->str), 3500000, 3600000);
    freeReplyObject(keys);
    assert_int_equal(once_close(once, 1000), ONCE_OK);
    redisFree(raw);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_refuses_claims_and_lets_the_others_end),
        cmocka_unit_test(a_server_that_would_forget_is_refused),
        cmocka_unit_test(the_wrong_user_is_refused),
        cmocka_unit_test(missing_replicas_are_missed),
        cmocka_unit_test(what_is_no_record_is_corrupt),
        cmocka_unit_test(damaged_envelopes_are_granted_to_nobody),
        cmocka_unit_test(an_answer_that_is_repeated_waits_for_replicas_too),
        cmocka_unit_test(one_that_is_refused_does_not_harm_the_others),
        cmocka_unit_test(each_record_has_its_own_time),
        cmocka_unit_test(pending_never_expires_in_redis),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
