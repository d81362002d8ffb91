/*
 * What goes over the wire: a first request is two commands, a replay one, each a single round trip; what is asked in one turn
 * goes out in few writes and few calls. Counted by MONITOR.
 */
#include "support/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <once/once.h>

#include "raw.h"

typedef struct counts {
    unsigned commands, evalsha;
} counts_t;

/* Commands of clients since the last marker; what scripts call does not travel. */
static counts_t read_until_marker(redisContext *monitor, redisContext *raw, const char *marker)
{
    counts_t counts = {0, 0};

    freeReplyObject(raw_call(raw, "ECHO %s", marker));
    for (;;) {
        redisReply *line = NULL;
        int is_marker;
        assert_int_equal(redisGetReply(monitor, (void **)&line), REDIS_OK);
        is_marker = strstr(line->str, marker) != NULL;
        if (!is_marker && strstr(line->str, " lua]") == NULL) {
            counts.commands++;
            counts.evalsha += strstr(line->str, "\"EVALSHA\"") != NULL;
        }
        freeReplyObject(line);
        if (is_marker) {
            return counts;
        }
    }
}

static once_outcome_t ask(once_t *once, const char *key, once_claim_t **claim)
{
    once_ask_t question = ONCE_ASK_INIT;
    once_answer_t *answer = NULL;
    once_outcome_t outcome;

    question.key.data = key;
    question.key.len = strlen(key);
    assert_int_equal(once_begin_sync(once, &question, &answer), ONCE_OK);
    outcome = once_answer_outcome(answer);
    *claim = once_answer_take_claim(answer);
    once_answer_free(answer);
    return outcome;
}

static void run_once(once_t *once, const char *key)
{
    once_response_t response = ONCE_RESPONSE_INIT;
    once_claim_t *claim;

    response.body.data = "body";
    response.body.len = 4;
    assert_int_equal(ask(once, key, &claim), ONCE_OUTCOME_RUN);
    assert_int_equal(once_claim_complete_sync(claim, &response, NULL), ONCE_OK);
}

static void two_for_a_first_request_and_one_for_a_replay(void **state)
{
    redisContext *raw = raw_connect(), *monitor = raw_connect();
    once_t *once = NULL;
    once_claim_t *claim;
    counts_t counts;

    assert_int_equal(once_open(getenv("ONCE_REDIS_URL"), NULL, &once, NULL), ONCE_OK);
    run_once(once, "warm"); /* the connection is made, Redis has the scripts */
    freeReplyObject(raw_call(monitor, "MONITOR"));
    (void)read_until_marker(monitor, raw, "marker-0");

    run_once(once, "first");
    counts = read_until_marker(monitor, raw, "marker-1");
    assert_int_equal(counts.commands, 2);
    assert_int_equal(counts.evalsha, 2);

    assert_int_equal(ask(once, "first", &claim), ONCE_OUTCOME_REPLAY);
    counts = read_until_marker(monitor, raw, "marker-2");
    assert_int_equal(counts.commands, 1);
    assert_int_equal(counts.evalsha, 1);

    /* Redis forgets the scripts: each is sent once more, and everything goes on. */
    freeReplyObject(raw_call(raw, "SCRIPT FLUSH"));
    (void)read_until_marker(monitor, raw, "marker-3");
    run_once(once, "after a flush");
    counts = read_until_marker(monitor, raw, "marker-4");
    assert_int_equal(counts.commands, 4); /* EVALSHA and EVAL, twice */
    run_once(once, "and again");
    counts = read_until_marker(monitor, raw, "marker-5");
    assert_int_equal(counts.commands, 2);

    assert_int_equal(once_close(once, 1000), ONCE_OK);
    redisFree(raw);
    redisFree(monitor);
}

/* -------------------------------------------------------------------------------------------------- few writes and calls */

#define TOGETHER 64

static once_claim_t *claims[TOGETHER]; /* kept: a release would be a write, too */
static unsigned answered;

static void count(once_t *once, once_answer_t *answer, void *data)
{
    assert_int_equal(once_answer_outcome(answer), ONCE_OUTCOME_RUN);
    claims[answered++] = once_answer_take_claim(answer);
}

static long long reads_of_server(redisContext *raw)
{
    redisReply *info = raw_call(raw, "INFO stats");
    const char *line = strstr(info->str, "total_reads_processed:");
    long long number;

    assert_non_null(line);
    number = atoll(line + strlen("total_reads_processed:"));
    freeReplyObject(info);
    return number;
}

static void what_one_turn_asks_travels_together(void **state)
{
    redisContext *raw = raw_connect(), *monitor = raw_connect();
    once_t *once = NULL;
    long long reads;

    assert_int_equal(once_open(getenv("ONCE_REDIS_URL"), NULL, &once, NULL), ONCE_OK);
    run_once(once, "warm too");
    freeReplyObject(raw_call(monitor, "MONITOR"));
    (void)read_until_marker(monitor, raw, "marker-6");
    reads = reads_of_server(raw);
    for (int i = 0; i < TOGETHER; i++) {
        once_ask_t question = ONCE_ASK_INIT;
        char key[16];
        question.key.data = key;
        question.key.len = (size_t)snprintf(key, sizeof(key), "together-%d", i);
        assert_int_equal(once_begin(once, &question, count, NULL), ONCE_OK);
    }
    while (answered < TOGETHER) {
        /* The host is not kept for all of them. */
        assert_in_range(once_wait(once, -1), 0, 16);
    }
    /* The claims are about 16 kB in two writes, Redis reads 16 kB at a time; the INFO is a read, too. */
    assert_in_range(reads_of_server(raw) - reads, 2, 5);
    /* 16 of them in a call. */
    assert_int_equal(read_until_marker(monitor, raw, "marker-7").evalsha, TOGETHER / 16);
    for (int i = 0; i < TOGETHER; i++) {
        once_claim_drop(claims[i]);
    }
    assert_int_equal(once_close(once, 1000), ONCE_OK);
    redisFree(raw);
    redisFree(monitor);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_for_a_first_request_and_one_for_a_replay),
        cmocka_unit_test(what_one_turn_asks_travels_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
