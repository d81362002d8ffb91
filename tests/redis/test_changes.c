/*
 * Servers that change while they are used: a master becomes a replica, replicas go, rights are taken away and given back. What is
 * completed is replayed where that is safe, nothing is granted, and it heals by itself.
 */
#include "support/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <once/once.h>

#include "raw.h"

static once_t *open_as(const char *user, const char *options)
{
    char url[512];
    once_error_t err;
    once_t *once = NULL;

    (void)snprintf(url, sizeof(url), "redis://%s127.0.0.1:%s%s", user, getenv("ONCE_REDIS_PORT"),
                   options);
    if (once_open(url, NULL, &once, &err) != ONCE_OK) {
        fail_msg("%s", err.text);
    }
    return once;
}

/* The outcome, or the error. What is granted is given back. */
static int ask(once_t *once, const char *key)
{
    once_ask_t question = ONCE_ASK_INIT;
    once_answer_t *answer = NULL;
    int code;

    question.key.data = key;
    question.key.len = strlen(key);
    code = once_begin_sync(once, &question, &answer);
    if (code == ONCE_OK) {
        code = (int)once_answer_outcome(answer);
        once_answer_free(answer);
    }
    return code;
}

static void run_once(once_t *once, const char *key)
{
    once_response_t response = ONCE_RESPONSE_INIT;
    once_ask_t question = ONCE_ASK_INIT;
    once_answer_t *answer = NULL;

    question.key.data = key;
    question.key.len = strlen(key);
    assert_int_equal(once_begin_sync(once, &question, &answer), ONCE_OK);
    assert_int_equal(once_answer_outcome(answer), ONCE_OUTCOME_RUN);
    assert_int_equal(once_claim_complete_sync(once_answer_take_claim(answer), &response, NULL),
                     ONCE_OK);
    once_answer_free(answer);
}

static size_t trouble(once_t *once, const char *part)
{
    char text[300] = "";
    size_t len = once_store_trouble(once, text, sizeof(text));

    if (strstr(text, part) == NULL) {
        fail_msg("\"%s\" has no \"%s\"", text, part);
    }
    return len;
}

/* A replica may know less than the master by now: not even a replay comes from it. */
static void a_replica_answers_nothing(void **state)
{
    redisContext *raw = raw_connect();
    once_t *once = open_as("", "?prefix=replica:&store_timeout=700ms");

    run_once(once, "done");
    freeReplyObject(raw_call(raw, "REPLICAOF 127.0.0.1 1"));
    assert_int_equal(ask(once, "done"), ONCE_E_UNAVAILABLE);
    assert_int_equal(ask(once, "new"), ONCE_E_UNAVAILABLE);
    assert_true(trouble(once, "is a replica") > 0);
    freeReplyObject(raw_call(raw, "REPLICAOF NO ONE"));
    while (ask(once, "done") == ONCE_E_UNAVAILABLE) {
    }
    assert_int_equal(ask(once, "done"), ONCE_OUTCOME_REPLAY);
    assert_int_equal(ask(once, "new"), ONCE_OUTCOME_RUN);
    assert_int_equal(trouble(once, ""), 0);
    assert_int_equal(once_close(once, 1000), ONCE_OK);
    redisFree(raw);
}

static void a_master_without_its_replicas_takes_nothing_new(void **state)
{
    redisContext *raw = raw_connect();
    once_t *once = open_as("", "?prefix=alone:&store_timeout=500ms");

    run_once(once, "done");
    freeReplyObject(raw_call(raw, "CONFIG SET min-replicas-to-write 1"));
    assert_int_equal(ask(once, "new"), ONCE_E_UNAVAILABLE);
    assert_int_equal(ask(once, "done"), ONCE_OUTCOME_REPLAY);
    freeReplyObject(raw_call(raw, "CONFIG SET min-replicas-to-write 0"));
    assert_int_equal(ask(once, "new"), ONCE_OUTCOME_RUN);
    assert_int_equal(once_close(once, 1000), ONCE_OK);
    redisFree(raw);
}

static void rights_that_are_taken_away_are_named(void **state)
{
    redisContext *raw = raw_connect();
    once_t *once;

    freeReplyObject(raw_call(
        raw, "ACL SETUSER less on >secret ~less:* -@all +evalsha +eval +get +getrange +set "
             "+setrange +pexpireat +del +time +scan +info +client|setname"));
    once = open_as("less:secret@", "?prefix=less:&store_timeout=500ms");
    run_once(once, "done");
    freeReplyObject(raw_call(raw, "ACL SETUSER less -set"));
    assert_int_equal(ask(once, "new"), ONCE_E_CONFIG);
    assert_true(trouble(once, "The user executing the script") > 0);
    freeReplyObject(raw_call(raw, "ACL SETUSER less +set -evalsha"));
    assert_int_equal(ask(once, "done"), ONCE_E_CONFIG);
    assert_true(trouble(once, "NOPERM") > 0);
    freeReplyObject(raw_call(raw, "ACL SETUSER less +evalsha"));
    assert_int_equal(ask(once, "done"), ONCE_OUTCOME_REPLAY);
    assert_int_equal(trouble(once, ""), 0);
    /* A new password: existing connections stay, new ones are refused. */
    freeReplyObject(raw_call(raw, "ACL SETUSER less resetpass >other"));
    assert_int_equal(ask(once, "done"), ONCE_OUTCOME_REPLAY);
    freeReplyObject(raw_call(raw, "CLIENT KILL USER less"));
    assert_int_equal(ask(once, "done"), ONCE_E_CONFIG);
    assert_true(trouble(once, "WRONGPASS") > 0);
    assert_int_equal(once_close(once, 1000), ONCE_OK);
    redisFree(raw);
}

static uint64_t count(once_t *once)
{
    once_answer_t *answer = NULL;
    uint64_t completed;

    assert_int_equal(once_store_stats_sync(once, &answer), ONCE_OK);
    completed = once_answer_stats(answer)->completed;
    once_answer_free(answer);
    return completed;
}

/* Prefixes that begin alike, that hold what SCAN takes for a pattern, and the empty one: no store sees the records of another. */
static void prefixes_do_not_meet(void **state)
{
    static const char *const prefixes[] = {
        "p:", "p:p:", "%5Bp%5D*:", "%3F:", "", "p:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"};
    enum { COUNT = sizeof(prefixes) / sizeof(prefixes[0]) };
    once_t *handles[COUNT];

    for (int i = 0; i < COUNT; i++) {
        char options[200];
        (void)snprintf(options, sizeof(options), "/7?prefix=%s", prefixes[i]);
        handles[i] = open_as("", options);
        for (int k = 0; k <= i; k++) {
            char key[20];
            (void)snprintf(key, sizeof(key), "key-%d", k);
            run_once(handles[i], key);
        }
    }
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(count(handles[i]), i + 1);
        assert_int_equal(once_close(handles[i], 1000), ONCE_OK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_replica_answers_nothing),
        cmocka_unit_test(a_master_without_its_replicas_takes_nothing_new),
        cmocka_unit_test(rights_that_are_taken_away_are_named),
        cmocka_unit_test(prefixes_do_not_meet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
