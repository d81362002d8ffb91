/*
 * max_records and max_bytes of a store, whichever it is:
 *
 *     conformance_limits URL MAX_RECORDS [MAX_BYTES]
 *
 * At a bound new keys are refused. What is there is replayed, renewed and completed, also by handles that come later; and what
 * is removed or expires makes room by itself.
 */
#include "support/testing.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <once/once.h>

#define PATIENCE_S   60
#define BODY_LEN     30000
#define RECORDS_MOST 2000
#define SHORT_MS     200

static const char *url;
static const char *max_records, *max_bytes;

static once_t *open_with(const char *name, const char *value)
{
    char text[600];
    once_error_t err;
    once_t *once = NULL;

    (void)snprintf(text, sizeof(text), "%s%c%s=%s&compress=off", url,
                   strchr(url, '?') != NULL ? '&' : '?', name, value);
    if (once_open(text, NULL, &once, &err) != ONCE_OK) {
        fail_msg("%s", err.text);
    }
    return once;
}

/* The outcome, or the error; with `token`, of the record. */
static int ask(once_t *once, const char *name, unsigned number, once_claim_t **claim, char *token)
{
    once_ask_t question = ONCE_ASK_INIT;
    once_answer_t *answer = NULL;
    char key[40];
    int code;

    question.key = (once_slice_t){key, (size_t)snprintf(key, sizeof(key), "%s-%u", name, number)};
    code = once_begin_sync(once, &question, &answer);
    if (code != ONCE_OK) {
        return code;
    }
    code = (int)once_answer_outcome(answer);
    if (claim != NULL) {
        *claim = once_answer_take_claim(answer);
    }
    if (token != NULL) {
        once_record_token(once_answer_record(answer), token);
    }
    once_answer_free(answer);
    return code;
}

static void complete(once_claim_t *claim, size_t len, uint64_t retain_ms)
{
    static uint8_t body[BODY_LEN];
    once_response_t response = ONCE_RESPONSE_INIT;
    once_answer_t *answer = NULL;

    for (size_t i = 0; i < len; i++) {
        body[i] = (uint8_t)rand();
    }
    response.status = 201;
    response.body = (once_slice_t){(const char *)body, len};
    response.retain_ms = retain_ms;
    assert_int_equal(once_claim_complete_sync(claim, &response, &answer), ONCE_OK);
    assert_int_equal(once_answer_outcome(answer), ONCE_OUTCOME_DONE);
    once_answer_free(answer);
}

/* Makes and completes records until a new key is refused; how many there are. */
static unsigned fill(once_t *once, const char *name, size_t len, uint64_t retain_ms)
{
    unsigned number = 0;
    once_claim_t *claim;
    int code;

    while ((code = ask(once, name, number, &claim, NULL)) == ONCE_OUTCOME_RUN) {
        complete(claim, len, retain_ms);
        assert_true(++number < RECORDS_MOST);
    }
    assert_int_equal(code, ONCE_E_FULL);
    return number;
}

/* Asks for a new key until there is room, and removes what expired meanwhile as a program's reaper does. */
static void await_room(once_t *once, const char *name, unsigned number, once_claim_t **claim)
{
    time_t end = time(NULL) + PATIENCE_S;
    int code;

    while ((code = ask(once, name, number, claim, NULL)) == ONCE_E_FULL && time(NULL) < end) {
        once_answer_t *answer = NULL;
        assert_int_equal(once_store_reap_sync(once, 0, &answer), ONCE_OK);
        once_answer_free(answer);
        (void)poll(NULL, 0, 20);
    }
    assert_int_equal(code, ONCE_OUTCOME_RUN);
}

static void records_are_bounded(void **state)
{
    once_t *once = open_with("max_records", max_records), *other;
    unsigned max = (unsigned)atoi(max_records), made;
    once_claim_t *running, *claim;
    char token[ONCE_TOKEN_SIZE];
    once_answer_t *answer = NULL;
    once_usage_t usage = ONCE_USAGE_INIT;

    assert_int_equal(ask(once, "running", 0, &running, NULL), ONCE_OUTCOME_RUN);
    made = fill(once, "key", 10, 0) + 1;
    assert_in_range(made, max - 2, max); /* the secrets and their mark may be among them */

    assert_int_equal(ask(once, "key", 0, NULL, token), ONCE_OUTCOME_REPLAY);
    assert_int_equal(ask(once, "running", 0, NULL, NULL), ONCE_OUTCOME_BUSY);
    assert_int_equal(once_claim_renew_sync(running, NULL), ONCE_OK);
    complete(running, 10, 0);
    assert_int_equal(ask(once, "running", 0, NULL, NULL), ONCE_OUTCOME_REPLAY);
    other = open_with("max_records", max_records);
    assert_int_equal(ask(other, "new", 0, NULL, NULL), ONCE_E_FULL);
    assert_int_equal(ask(other, "key", 0, NULL, NULL), ONCE_OUTCOME_REPLAY);

    assert_int_equal(once_store_usage(other, &usage), ONCE_OK);
    assert_int_equal(usage.max_records, max);
    assert_int_equal(usage.records, max);
    assert_int_equal(once_store_stats_sync(other, &answer), ONCE_OK);
    assert_int_equal(once_answer_stats(answer)->max_records, max);
    assert_int_equal(once_answer_stats(answer)->completed, made);
    once_answer_free(answer);
    assert_int_equal(once_close(other, 5000), ONCE_OK);

    /* One goes, and one may come. */
    assert_int_equal(once_record_purge_sync(once, token, 0, NULL), ONCE_OK);
    await_room(once, "new", 1, &claim);
    assert_int_equal(ask(once, "new", 2, NULL, NULL), ONCE_E_FULL);
    complete(claim, 10, SHORT_MS);
    await_room(once, "new", 3, &claim);
    assert_int_equal(once_claim_release_sync(claim, 0, (once_slice_t){"", 0}, NULL), ONCE_OK);
    assert_int_equal(once_close(once, 5000), ONCE_OK);
}

static void purge(once_t *once, const char *name, unsigned number)
{
    char token[ONCE_TOKEN_SIZE];

    assert_int_equal(ask(once, name, number, NULL, token), ONCE_OUTCOME_REPLAY);
    assert_int_equal(once_record_purge_sync(once, token, 0, NULL), ONCE_OK);
}

static void bytes_are_bounded(void **state)
{
    once_t *once = open_with("max_bytes", max_bytes);
    once_claim_t *running, *claim;
    once_usage_t usage = ONCE_USAGE_INIT;
    unsigned made;

    assert_int_equal(ask(once, "large running", 0, &running, NULL), ONCE_OUTCOME_RUN);
    made = fill(once, "large", BODY_LEN, 0);
    assert_true(made > 3);
    assert_int_equal(once_store_usage(once, &usage), ONCE_OK);
    assert_true(usage.max_bytes > 0);
    assert_true(usage.bytes + 3 * BODY_LEN >= usage.max_bytes);
    assert_true(usage.bytes < usage.max_bytes + usage.max_bytes / 4);
    complete(running, BODY_LEN, 0);
    assert_int_equal(ask(once, "large new", 0, NULL, NULL), ONCE_E_FULL);

    purge(once, "large running", 0);
    for (unsigned i = 0; i < made; i++) {
        purge(once, "large", i);
    }
    await_room(once, "large new", 1, &claim);
    complete(claim, 10, 0);
    purge(once, "large new", 1);
    assert_int_equal(once_close(once, 5000), ONCE_OK);
}

int main(int argc, char **argv)
{
    /* In this order: one leaves nothing behind, the other does. */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_bounded),
        cmocka_unit_test(records_are_bounded),
    };

    if (argc < 3 || argc > 4) {
        (void)fprintf(stderr, "usage: conformance_limits URL MAX_RECORDS [MAX_BYTES]\n");
        return 2;
    }
    url = argv[1];
    max_records = argv[2];
    max_bytes = argv[3];
    return argc == 4 ? cmocka_run_group_tests(tests, NULL, NULL)
                     : _cmocka_run_group_tests("records", &tests[1], 1, NULL, NULL);
}
