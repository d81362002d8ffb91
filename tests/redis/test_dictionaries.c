/*
 * Dictionaries in a real store: a program learns one from what it stores, others replay and list what was compressed with it
 * without having seen it before, and a record whose dictionary is gone is an error, never another response. No record names a
 * dictionary that the store has lost. In a cluster none are made.
 */
#include "support/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <once/once.h>

#define RECORDS 300 /* more than enough to learn from */

static once_t *open_store(const char *option)
{
    char url[512];
    const char *text = getenv("ONCE_REDIS_URL");
    once_error_t err;
    once_t *once = NULL;

    (void)snprintf(url, sizeof(url), "%s%cstore_timeout=20s%s", text,
                   strchr(text, '?') != NULL ? '&' : '?', option);
    if (once_open(url, NULL, &once, &err) != ONCE_OK) {
        fail_msg("%s", err.text);
    }
    return once;
}

static void body_of(char out[256], unsigned n)
{
    (void)snprintf(out, 256,
                   "{\"id\":\"ch_%08x\",\"object\":\"charge\",\"currency\":\"eur\",\"status\":"
                   "\"succeeded\",\"customer\":\"cus_%08x\",\"paid\":true}",
                   n * 2654435761u, n * 40503u);
}

static once_ask_t ask_of(char key[16], unsigned n)
{
    once_ask_t ask = ONCE_ASK_INIT;

    ask.key.data = key;
    ask.key.len = (size_t)snprintf(key, 16, "key-%u", n);
    ask.description.data = "POST /v1/payments";
    ask.description.len = 17;
    return ask;
}

static void run(once_t *once, unsigned n)
{
    once_response_t response = ONCE_RESPONSE_INIT;
    once_answer_t *answer = NULL;
    char key[16], body[256];
    once_ask_t ask = ask_of(key, n);

    body_of(body, n);
    response.body.data = body;
    response.body.len = strlen(body);
    assert_int_equal(once_begin_sync(once, &ask, &answer), ONCE_OK);
    assert_int_equal(once_answer_outcome(answer), ONCE_OUTCOME_RUN);
    assert_int_equal(once_claim_complete_sync(once_answer_take_claim(answer), &response, NULL),
                     ONCE_OK);
    once_answer_free(answer);
}

/* ONCE_OK if it is replayed with its own response, or the error. */
static int replay(once_t *once, unsigned n)
{
    once_answer_t *answer = NULL;
    once_response_t response = ONCE_RESPONSE_INIT;
    char key[16], body[256];
    once_ask_t ask = ask_of(key, n);
    int code = once_begin_sync(once, &ask, &answer);

    if (code == ONCE_OK) {
        assert_int_equal(once_answer_outcome(answer), ONCE_OUTCOME_REPLAY);
        assert_int_equal(once_record_response(once_answer_record(answer), &response), ONCE_OK);
        body_of(body, n);
        assert_int_equal(response.body.len, strlen(body));
        assert_memory_equal(response.body.data, body, response.body.len);
        once_answer_free(answer);
    }
    return code;
}

/* What redis-cli says on the server that has the key, one server or a cluster. */
static long cli(const char *command)
{
    char line[256];
    FILE *out;
    long number = -1;

    (void)snprintf(line, sizeof(line), "redis-cli -c -p %s %s", getenv("ONCE_REDIS_PORT"), command);
    out = popen(line, "r"); /* NOLINT: our own command line */
    assert_non_null(out);
    if (fscanf(out, "%ld", &number) != 1) {
        number = -1;
    }
    assert_int_equal(pclose(out), 0);
    return number;
}

static int see(once_t *once, const once_record_t *record, void *data)
{
    once_slice_t text = once_record_description(record);

    *(unsigned *)data += text.len == 17 && memcmp(text.data, "POST /v1/payments", 17) == 0;
    return 0;
}

static unsigned listed(once_t *once)
{
    once_filter_t filter = ONCE_FILTER_INIT;
    unsigned count = 0;

    assert_int_equal(once_record_scan_sync(once, &filter, see, &count, NULL), ONCE_OK);
    return count;
}

static void what_one_learned_others_read(void **state)
{
    once_t *first = open_store(""), *second;

    assert_int_equal(cli("STRLEN once:dictionaries"), 0);
    for (unsigned n = 0; n < RECORDS; n++) {
        run(first, n);
    }
    assert_in_range(cli("STRLEN once:dictionaries"), 50, 5000);
    for (int again = 0; again < 2; again++) {
        second = open_store("");
        if (again) {
            assert_int_equal(listed(second), RECORDS);
        }
        for (unsigned n = 0; n < RECORDS; n++) {
            assert_int_equal(replay(second, n), ONCE_OK);
        }
        assert_int_equal(once_close(second, 1000), ONCE_OK);
    }
    /* Another program finds it good enough, and adds none. */
    second = open_store("");
    for (unsigned n = RECORDS; n < 2 * RECORDS; n++) {
        run(second, n);
        assert_int_equal(replay(first, n), ONCE_OK);
    }
    assert_in_range(cli("STRLEN once:dictionaries"), 50, 5000);
    assert_int_equal(once_close(second, 1000), ONCE_OK);
    assert_int_equal(once_close(first, 1000), ONCE_OK);
}

static void without_its_dictionary_a_record_is_an_error(void **state)
{
    once_t *first = open_store(""), *second;

    assert_int_equal(replay(first, 2 * RECORDS - 1), ONCE_OK); /* which needs it */
    assert_int_equal(cli("DEL once:dictionaries"), 1);
    second = open_store("");
    assert_int_equal(replay(second, 0), ONCE_OK); /* from before there was one */
    assert_int_equal(replay(second, 2 * RECORDS - 1), ONCE_E_CORRUPT);
    assert_int_equal(replay(first, 2 * RECORDS - 1), ONCE_OK);
    assert_int_equal(once_close(second, 1000), ONCE_OK);
    assert_int_equal(once_close(first, 1000), ONCE_OK);
}

static unsigned next_number = 10000;

/* Runs with `once` until it compresses: the list is there, and was seen. */
static void learn(once_t *once)
{
    long before;

    do {
        before = cli("STRLEN once:dictionaries");
        for (unsigned n = 0; n < RECORDS; n++) {
            run(once, next_number++);
        }
    } while (before <= 0);
}

/* A server that is restarted or fails over loses the list together with the records that came after it: DEL takes it alone. */
static void what_is_written_after_the_list_is_lost_is_read(void **state)
{
    once_t *first = open_store(""), *second;
    unsigned from;

    learn(first);
    for (int round = 0; round < 2; round++) {
        assert_int_equal(cli("DEL once:dictionaries"), 1);
        from = next_number;
        for (unsigned n = 0; n < 20; n++) {
            run(first, next_number++);
        }
        second = open_store("");
        for (unsigned n = from; n < next_number; n++) {
            assert_int_equal(replay(second, n), ONCE_OK);
        }
        assert_int_equal(once_close(second, 1000), ONCE_OK);
        /* At the latest a second after the last question it is put back: older records can be read again. */
        for (int i = 0; i < 5000 && cli("STRLEN once:dictionaries") == 0; i++) {
            run(first, next_number++);
        }
        run(first, next_number++);
        second = open_store("");
        assert_int_equal(replay(second, from - 1), ONCE_OK);
        for (unsigned n = from; n < next_number; n++) {
            assert_int_equal(replay(second, n), ONCE_OK);
        }
        assert_int_equal(once_close(second, 1000), ONCE_OK);
    }
    assert_int_equal(once_close(first, 1000), ONCE_OK);
}

/* The same while nobody puts it back, and with another list in its place. */
static void another_list_is_not_taken_for_it(void **state)
{
    once_t *first = open_store(""), *second;
    unsigned from;

    learn(first);
    assert_int_equal(cli("SETRANGE once:dictionaries 2 xxxx") > 0, 1);
    from = next_number;
    for (unsigned n = 0; n < 20; n++) {
        run(first, next_number++);
    }
    assert_int_equal(once_close(first, 1000), ONCE_OK);
    second = open_store("&dictionary=off");
    for (unsigned n = from; n < next_number; n++) {
        assert_int_equal(replay(second, n), ONCE_OK);
    }
    assert_int_equal(once_close(second, 1000), ONCE_OK);
    assert_int_equal(cli("DEL once:dictionaries"), 1);
}

static long calls_of(const char *command)
{
    char line[128];

    (void)snprintf(line, sizeof(line), "INFO commandstats | sed -n 's/^cmdstat_%s:calls=//p'",
                   command);
    return cli(line);
}

static void a_list_that_cannot_be_read_is_asked_for_now_and_then(void **state)
{
    static const char *const others[] = {"SET once:dictionaries garbage",
                                         "RPUSH once:dictionaries list"};
    once_t *once = open_store("");

    learn(once);
    run(once, next_number++);
    assert_int_equal(once_close(once, 1000), ONCE_OK);
    (void)cli("RENAME once:dictionaries once:kept");
    for (int i = 0; i < 2; i++) {
        (void)cli(others[i]);
        (void)cli("CONFIG RESETSTAT");
        once = open_store("");
        for (int again = 0; again < 5; again++) {
            assert_int_equal(replay(once, next_number - 1), ONCE_E_CORRUPT);
        }
        run(once, next_number + 1000 + (unsigned)i); /* what needs none goes on */
        assert_in_range(calls_of("eval"), 1, 20);
        assert_in_range(calls_of("evalsha"), 1, 40);
        assert_int_equal(once_close(once, 1000), ONCE_OK);
        (void)cli("DEL once:dictionaries");
    }
    (void)cli("RENAME once:kept once:dictionaries");
    once = open_store("");
    assert_int_equal(replay(once, next_number - 1), ONCE_OK);
    assert_int_equal(once_close(once, 1000), ONCE_OK);
    assert_int_equal(cli("DEL once:dictionaries"), 1);
}

/* The script that writes a record sees only the slot of its key. */
static void a_cluster_has_none(void **state)
{
    once_t *once = open_store("");

    for (unsigned n = 0; n < RECORDS; n++) {
        run(once, n);
        assert_int_equal(replay(once, n), ONCE_OK);
    }
    assert_int_equal(cli("STRLEN once:dictionaries"), 0);
    assert_int_equal(listed(once), RECORDS);
    assert_int_equal(once_close(once, 1000), ONCE_OK);
}

static void it_can_be_turned_off(void **state)
{
    once_t *once = open_store("&dictionary=off");

    for (unsigned n = 2 * RECORDS; n < 3 * RECORDS; n++) {
        run(once, n);
    }
    assert_int_equal(cli("STRLEN once:dictionaries"), 0);
    assert_int_equal(once_close(once, 1000), ONCE_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_one_learned_others_read),
        cmocka_unit_test(without_its_dictionary_a_record_is_an_error),
        cmocka_unit_test(it_can_be_turned_off),
        cmocka_unit_test(what_is_written_after_the_list_is_lost_is_read),
        cmocka_unit_test(another_list_is_not_taken_for_it),
        cmocka_unit_test(a_list_that_cannot_be_read_is_asked_for_now_and_then),
    };
    const struct CMUnitTest cluster[] = {
        cmocka_unit_test(a_cluster_has_none),
    };

    if (strstr(getenv("ONCE_REDIS_URL"), "cluster") != NULL) {
        return cmocka_run_group_tests(cluster, NULL, NULL);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
