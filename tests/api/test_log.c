/*
 * Messages for the host: what no return value can say, each once, and nothing that is secret.
 */
#include "support/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "support/world.h"

#define MESSAGES 16

typedef struct heard {
    unsigned count;
    struct {
        once_log_level_t level;
        char text[400];
    } messages[MESSAGES];
} heard_t;

static void hear(once_log_level_t level, const char *message, void *data)
{
    heard_t *heard = data;

    assert_true(heard->count < MESSAGES);
    assert_true(strlen(message) < sizeof(heard->messages[0].text));
    assert_null(strchr(message, '\n'));
    heard->messages[heard->count].level = level;
    strcpy(heard->messages[heard->count++].text, message);
}

static void expect_last(const heard_t *heard, unsigned count, once_log_level_t level,
                        const char *part)
{
    assert_int_equal(heard->count, count);
    assert_int_equal(heard->messages[count - 1].level, level);
    if (strstr(heard->messages[count - 1].text, part) == NULL) {
        fail_msg("\"%s\" is not in \"%s\"", part, heard->messages[count - 1].text);
    }
}

static once_t *open_heard(world_t *world, const char *options, once_log_level_t level,
                          heard_t *heard)
{
    once_t *once;

    world_init(world);
    once = world_open(world, options);
    heard->count = 0;
    once_options_set_log(&once->options, level, hear, heard);
    return once;
}

static world_fault_t all_away(world_t *world, const once__op_t *op)
{
    return WORLD_AWAY;
}

static void a_store_that_is_away_is_reported_once_and_when_it_is_back(void **state)
{
    heard_t heard;
    world_t world;
    once_t *once = open_heard(&world, "store_timeout=1s&renew=off", ONCE_LOG_NOTICE, &heard);
    seen_t seen;

    world_run(&world, once);
    world.plan = all_away;
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(world_ask(once, "secret-key", NULL, NULL, &seen), ONCE_OK);
        world_pass(&world, once, 5000);
        assert_int_equal(seen.error, ONCE_E_UNAVAILABLE);
        expect_last(&heard, 1, ONCE_LOG_WARNING, "store: the store did not answer in time");
    }
    world.plan = NULL;
    assert_int_equal(world_ask(once, "secret-key", NULL, NULL, &seen), ONCE_OK);
    world_pass(&world, once, 5000);
    assert_int_equal(seen.outcome, ONCE_OUTCOME_RUN);
    expect_last(&heard, 2, ONCE_LOG_NOTICE, "store: it can be used again");
    once_claim_drop(seen.claim);
    assert_int_equal(once_close(once, 0), ONCE_OK);
    assert_int_equal(heard.count, 2);
    world_free(&world);
}

static void nothing_above_the_level_is_said(void **state)
{
    heard_t heard;
    world_t world;
    once_t *once = open_heard(&world, "store_timeout=1s", ONCE_LOG_ERROR, &heard);
    once_response_t response = world_response(201, "made");
    seen_t seen;

    assert_int_equal(world_ask(once, "k", NULL, NULL, &seen), ONCE_OK);
    world_run(&world, once);
    world.plan = all_away;
    assert_int_equal(once_claim_complete(seen.claim, &response, NULL, NULL), ONCE_OK);
    world_pass(&world, once, 3000);
    assert_int_equal(heard.count, 0);
    assert_int_equal(once_close(once, 0), ONCE_E_UNAVAILABLE);
    expect_last(&heard, 1, ONCE_LOG_ERROR, "closed with 1 writes");
    world_free(&world);
}

static void a_lost_claim_is_reported_with_its_record(void **state)
{
    char token[ONCE_TOKEN_SIZE], id[2 * ONCE_ID_SIZE + 1];
    once_settle_t settle = ONCE_SETTLE_INIT;
    heard_t heard;
    world_t world;
    once_t *once = open_heard(&world, NULL, ONCE_LOG_NOTICE, &heard);
    seen_t seen, settled = {.calls = 0};

    assert_int_equal(world_ask(once, "secret-key", "lease=3s", NULL, &seen), ONCE_OK);
    world_run(&world, once);
    once_claim_token(seen.claim, token);
    settle.token = token;
    settle.force = 1;
    assert_int_equal(once_record_settle(once, &settle, seen_cb, &settled), ONCE_OK);
    world_pass(&world, once, 5000);
    assert_int_equal(once_claim_alive(seen.claim), 0);
    once__hex(id, world_record(&world, once, "secret-key")->id, ONCE_ID_SIZE);
    expect_last(&heard, 1, ONCE_LOG_NOTICE, id);
    assert_null(strstr(heard.messages[0].text, "secret-key"));
    once_claim_drop(seen.claim);
    assert_int_equal(once_close(once, 0), ONCE_OK);
    world_free(&world);
}

/* The path of the file may be in a message; what is in the file may not. */
static void secrets_that_cannot_be_read_and_rotations_are_reported(void **state)
{
    char path[] = "/tmp/once-log-XXXXXX", url[64];
    once_options_t *options = once_options_new();
    heard_t heard = {.count = 0};
    once_t *once;
    FILE *file;

    assert_int_equal(close(mkstemp(path)), 0);
    assert_int_equal(unlink(path), 0);
    (void)snprintf(url, sizeof(url), "memory:?secrets=file:%s", path);
    once_options_set_log(options, ONCE_LOG_NOTICE, hear, &heard);
    assert_int_equal(once_open(url, options, &once, NULL), ONCE_OK);
    once_options_free(options);
    assert_int_equal(heard.count, 0);
    assert_int_equal(once_secret_rotate_sync(once, 0, NULL), ONCE_OK);
    expect_last(&heard, 1, ONCE_LOG_NOTICE, "secrets: new fingerprints are made with secret 2");
    file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs("once-secrets 1\nrecord deadbeef\n", file) >= 0);
    assert_int_equal(fclose(file), 0);
    assert_int_not_equal(once_secret_rotate_sync(once, 0, NULL), ONCE_OK); /* reads what is there */
    assert_true(heard.count > 1);
    assert_non_null(strstr(heard.messages[1].text, "secrets: "));
    for (unsigned i = 0; i < heard.count; i++) {
        assert_null(strstr(heard.messages[i].text, "deadbeef"));
    }
    assert_int_equal(once_close(once, 0), ONCE_OK);
    assert_int_equal(unlink(path), 0);
}

/* For the thread sanitizer: one thread at a time looks at what is wrong with a store, also while the handle is being opened. */
static void a_handle_with_a_thread_is_opened_with_a_log(void **state)
{
    once_options_t *options = once_options_new();
    heard_t heard = {0};

    once_options_set_log(options, ONCE_LOG_NOTICE, hear, &heard);
    for (int i = 0; i < 20; i++) {
        once_t *once = NULL;
        assert_int_equal(once_open("memory:heard?thread=on", options, &once, NULL), ONCE_OK);
        assert_int_equal(once_close(once, 1000), ONCE_OK);
    }
    assert_int_equal(heard.count, 0);
    once_options_free(options);
}

static void the_build_says_what_is_in_it(void **state)
{
    assert_int_equal(once_version_number(), ONCE_VERSION_NUMBER);
    assert_int_equal(once_version_number(), 0x000200);
    assert_int_equal(once_store_is_built_in("memory"), 1);
    assert_int_equal(once_store_is_built_in("local"), 1);
    assert_int_equal(once_store_is_built_in("redis+cluster"), 1);
    assert_int_equal(once_store_is_built_in("postgres"), 1);
    assert_int_equal(once_store_is_built_in("mysql"), 0);
    assert_int_equal(once_store_is_built_in(""), 0);
    assert_int_equal(once_store_is_built_in(NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_store_that_is_away_is_reported_once_and_when_it_is_back),
        cmocka_unit_test(nothing_above_the_level_is_said),
        cmocka_unit_test(a_lost_claim_is_reported_with_its_record),
        cmocka_unit_test(secrets_that_cannot_be_read_and_rotations_are_reported),
        cmocka_unit_test(a_handle_with_a_thread_is_opened_with_a_log),
        cmocka_unit_test(the_build_says_what_is_in_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
