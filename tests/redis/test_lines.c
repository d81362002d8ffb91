/*
 * Bad lines to a good server: replies that come byte by byte, connections that are cut after every byte, large responses over slow
 * lines, a server that falls silent, one that drops its clients in the middle of a pipeline.
 */
#include "support/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <once/once.h>

#include "proxy.h"
#include "raw.h"

static proxy_line_t line;
static proxy_t *proxy;

static once_t *open_through(const char *path_and_options)
{
    char url[300];
    once_error_t err = {0};
    once_t *once = NULL;

    (void)snprintf(url, sizeof(url), "redis://127.0.0.1:%u%s", proxy_port(proxy), path_and_options);
    if (once_open(url, NULL, &once, &err) != ONCE_OK) {
        fail_msg("%s", err.text);
    }
    return once;
}

static once_outcome_t ask(once_t *once, const char *key, once_claim_t **claim,
                          once_answer_t **answer)
{
    once_ask_t question = ONCE_ASK_INIT;
    once_outcome_t outcome;
    int code;

    question.key.data = key;
    question.key.len = strlen(key);
    code = once_begin_sync(once, &question, answer);
    if (code != ONCE_OK) {
        fail_msg("%s: %s", key, once_error_name(code));
    }
    outcome = once_answer_outcome(*answer);
    *claim = once_answer_take_claim(*answer);
    return outcome;
}

/* Nothing that could be compressed. */
static void fill(char *body, size_t size)
{
    uint64_t x = 88172645463325252u;

    for (size_t i = 0; i < size; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        body[i] = (char)x;
    }
}

/* Runs and completes a key, and sees it replayed; always the first epoch: nothing was granted twice. */
static void run_once(once_t *once, const char *key, size_t size)
{
    once_response_t response = ONCE_RESPONSE_INIT, stored = ONCE_RESPONSE_INIT;
    once_answer_t *answer = NULL;
    once_claim_t *claim;
    char *body = malloc(size);

    assert_non_null(body);
    fill(body, size);
    response.body.data = body;
    response.body.len = size;
    assert_int_equal(ask(once, key, &claim, &answer), ONCE_OUTCOME_RUN);
    assert_int_equal(once_claim_epoch(claim), 1);
    once_answer_free(answer);
    assert_int_equal(once_claim_complete_sync(claim, &response, NULL), ONCE_OK);
    assert_int_equal(ask(once, key, &claim, &answer), ONCE_OUTCOME_REPLAY);
    assert_int_equal(once_record_response(once_answer_record(answer), &stored), ONCE_OK);
    assert_int_equal(stored.body.len, size);
    assert_memory_equal(stored.body.data, body, size);
    once_answer_free(answer);
    free(body);
}

/* ------------------------------------------------------------------------------------------------------------- in pieces */

#define TOGETHER 32

static once_claim_t *claims[TOGETHER];
static unsigned answers;

static void granted(once_t *once, once_answer_t *answer, void *data)
{
    assert_int_equal(once_answer_outcome(answer), ONCE_OUTCOME_RUN);
    claims[answers++] = once_answer_take_claim(answer);
}

static void completed(once_t *once, once_answer_t *answer, void *data)
{
    assert_int_equal(once_answer_outcome(answer), ONCE_OUTCOME_DONE);
    answers++;
}

static void replies_byte_by_byte(void **state)
{
    once_response_t response = ONCE_RESPONSE_INIT;
    once_t *once = open_through("?prefix=pieces:");

    atomic_store(&line.piece, 1);
    for (int i = 0; i < TOGETHER; i++) {
        once_ask_t question = ONCE_ASK_INIT;
        char key[16];
        question.key.data = key;
        question.key.len = (size_t)snprintf(key, sizeof(key), "piece-%d", i);
        assert_int_equal(once_begin(once, &question, granted, NULL), ONCE_OK);
    }
    while (answers < TOGETHER) {
        (void)once_wait(once, -1);
    }
    answers = 0;
    for (int i = 0; i < TOGETHER; i++) {
        assert_int_equal(once_claim_epoch(claims[i]), 1);
        assert_int_equal(once_claim_complete(claims[i], &response, completed, NULL), ONCE_OK);
    }
    while (answers < TOGETHER) {
        (void)once_wait(once, -1);
    }
    run_once(once, "one more", 700);
    atomic_store(&line.piece, 0);
    assert_int_equal(once_close(once, 1000), ONCE_OK);
    assert_int_equal(atomic_load(&line.accepted), 1);
}

/* --------------------------------------------------------------------------------------------------------------- cut off */

/* A session of one claim, completion and replay is cut at byte `at`, in one direction. 0: it was over before that. */
static int cut_at(long at, int up, unsigned number)
{
    unsigned cuts = atomic_load(&line.cuts);
    char key[40];
    once_t *once;

    atomic_store(up ? &line.cut_up : &line.cut_down, at);
    once = open_through("/2?prefix=cut:&recover=hold");
    (void)snprintf(key, sizeof(key), "cut-%s-%u", up ? "up" : "down", number);
    run_once(once, key, 40);
    assert_int_equal(once_close(once, 1000), ONCE_OK);
    return atomic_load(&line.cuts) > cuts;
}

/* How many bytes come before anything is asked: where cutting begins to be interesting. */
static long length_of_info(redisContext *raw)
{
    redisReply *info = raw_call(raw, "INFO");
    long len = info->len;

    freeReplyObject(info);
    return len;
}

static void cut_after_any_byte(void **state)
{
    redisContext *raw = raw_connect();
    long info = length_of_info(raw);
    unsigned number = 0;

    for (long at = info - 200; cut_at(at, 0, number); at += 13) {
        number++;
    }
    assert_in_range(number, 20, 500);
    number = 0;
    for (long at = 1; cut_at(at, 1, number); at += 53) {
        number++;
    }
    assert_in_range(number, 10, 500);
    /* However often connections were made again: everything is in database 2, the secrets and their mark too. */
    assert_int_equal(raw_integer(raw, "DBSIZE"), TOGETHER + 3);
    redisFree(raw);
}

/* ------------------------------------------------------------------------------------------------------------------ slow */

/*
 * As long as bytes move no connection is given up; a response takes many times the time that a silent server is given. On a machine
 * that is busy the line itself may be silent for so long: then it is tried again.
 */
static void a_large_response_over_a_slow_line(void **state)
{
    once_t *once = open_through("?prefix=slow:&reply_timeout=2s&store_timeout=60s");
    unsigned accepted = 0, tries = 0;

    run_once(once, "warm", 1);
    do {
        char key[16];
        (void)snprintf(key, sizeof(key), "large %u", tries);
        accepted = atomic_load(&line.accepted);
        atomic_store(&line.pause_us, 75000);
        run_once(once, key, 1 << 20);
        atomic_store(&line.pause_us, 0);
    } while (atomic_load(&line.accepted) != accepted && ++tries < 3);
    assert_int_equal(atomic_load(&line.accepted), accepted);
    assert_int_equal(once_close(once, 1000), ONCE_OK);
}

/* Asks until there is an answer: the timeout for silent servers may be too short for a busy machine. */
static once_outcome_t ask_patiently(once_t *once, const char *key, once_claim_t **claim)
{
    time_t started = time(NULL);
    once_ask_t question = ONCE_ASK_INIT;
    once_answer_t *answer = NULL;
    once_outcome_t outcome = ONCE_OUTCOME_NONE;

    question.key.data = key;
    question.key.len = strlen(key);
    while ((outcome == ONCE_OUTCOME_NONE || outcome == ONCE_OUTCOME_BUSY) &&
           started + 20 > time(NULL)) {
        if (once_begin_sync(once, &question, &answer) == ONCE_OK) {
            outcome = once_answer_outcome(answer);
            *claim = once_answer_take_claim(answer);
            once_answer_free(answer);
        }
        (void)once_wait(once, 20);
    }
    return outcome;
}

static void a_silent_server_is_given_up(void **state)
{
    once_t *once = open_through(
        "?prefix=silent:&reply_timeout=300ms&connect_timeout=300ms&store_timeout=900ms");
    once_ask_t question = ONCE_ASK_INIT;
    once_claim_t *claim = NULL;

    assert_int_equal(ask_patiently(once, "warm", &claim), ONCE_OUTCOME_RUN);
    once_claim_drop(claim);
    atomic_store(&line.is_deaf, 1);
    question.key.data = "k";
    question.key.len = 1;
    assert_int_equal(once_begin_sync(once, &question, NULL), ONCE_E_UNAVAILABLE);
    atomic_store(&line.is_deaf, 0);
    /* It was granted, and the reply was lost: the library notices and releases it long before its lease is over. */
    assert_int_equal(ask_patiently(once, "k", &claim), ONCE_OUTCOME_RUN);
    assert_true(once_claim_epoch(claim) >= 2);
    once_claim_drop(claim);
    assert_int_equal(once_close(once, 5000), ONCE_OK);
}

/* ------------------------------------------------------------------------------------------------- the server's own bounds */

/* A response that is larger than the server takes ends its connection, each time: it must not be sent for ever. */
static void what_the_server_does_not_take_is_told(void **state)
{
    redisContext *raw = raw_connect();
    once_t *once = open_through("?prefix=bulk:&store_timeout=20s");
    once_response_t response = ONCE_RESPONSE_INIT;
    once_answer_t *answer = NULL;
    once_claim_t *claim;
    char *body = calloc(1, 2 << 20);
    int code;

    assert_non_null(body);
    fill(body, 2 << 20);
    freeReplyObject(raw_call(raw, "CONFIG SET proto-max-bulk-len 1mb"));
    assert_int_equal(ask(once, "big", &claim, &answer), ONCE_OUTCOME_RUN);
    once_answer_free(answer);
    response.body.data = body;
    response.body.len = 2 << 20;
    code = once_claim_complete_sync(claim, &response, NULL);
    freeReplyObject(raw_call(raw, "CONFIG SET proto-max-bulk-len 512mb"));
    assert_int_equal(code, ONCE_E_UNSUPPORTED);
    run_once(once, "small", 1);
    assert_int_equal(once_close(once, 1000), ONCE_OK);
    free(body);
    redisFree(raw);
}

static int is_held_up(redisContext *raw)
{
    redisReply *info = raw_call(raw, "INFO clients");
    int yes = strstr(info->str, "blocked_clients:0\r") == NULL;

    freeReplyObject(info);
    return yes;
}

/* The server has the commands, and loses the connection before it gets to them; and then its scripts. */
static void killed_in_the_middle_of_a_pipeline(void **state)
{
    redisContext *raw = raw_connect();
    once_t *once = open_through("/5?prefix=killed:&recover=hold&store_timeout=20s");
    unsigned accepted;

    run_once(once, "warm", 1);
    answers = 0;
    accepted = atomic_load(&line.accepted);
    freeReplyObject(raw_call(raw, "CLIENT PAUSE 20000 WRITE"));
    for (int i = 0; i < TOGETHER; i++) {
        once_ask_t question = ONCE_ASK_INIT;
        char key[16];
        question.key.data = key;
        question.key.len = (size_t)snprintf(key, sizeof(key), "killed-%d", i);
        assert_int_equal(once_begin(once, &question, granted, NULL), ONCE_OK);
    }
    while (!is_held_up(raw)) {
        (void)once_wait(once, 5);
    }
    freeReplyObject(raw_call(raw, "CLIENT KILL TYPE normal SKIPME yes"));
    freeReplyObject(raw_call(raw, "CLIENT UNPAUSE"));
    freeReplyObject(raw_call(raw, "SCRIPT FLUSH"));
    while (answers < TOGETHER) {
        (void)once_wait(once, -1);
    }
    assert_true(atomic_load(&line.accepted) > accepted);
    for (int i = 0; i < TOGETHER; i++) {
        assert_int_equal(once_claim_epoch(claims[i]), 1);
        once_claim_drop(claims[i]);
    }
    assert_int_equal(once_close(once, 5000), ONCE_OK);
    redisFree(raw);
}

static int set_up(void **state)
{
    atomic_store(&line.cut_down, -1);
    atomic_store(&line.cut_up, -1);
    proxy = proxy_start((unsigned)atoi(getenv("ONCE_REDIS_PORT")), &line);
    return 0;
}

static int tear_down(void **state)
{
    proxy_stop(proxy);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replies_byte_by_byte),
        cmocka_unit_test(cut_after_any_byte),
        cmocka_unit_test(a_large_response_over_a_slow_line),
        cmocka_unit_test(a_silent_server_is_given_up),
        cmocka_unit_test(what_the_server_does_not_take_is_told),
        cmocka_unit_test(killed_in_the_middle_of_a_pipeline),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
