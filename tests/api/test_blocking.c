/*
 * Blocking calls, with and without the handle's own thread, on the memory store.
 */
#include "support/testing.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <once/once.h>

#include "base/bytes.h"

static once_t *open_store(const char *url)
{
    once_error_t err = {0, ""};
    once_t *once;

    if (once_open(url, NULL, &once, &err) != ONCE_OK) {
        fail_msg("%s: %s", url, err.text);
    }
    return once;
}

static once_answer_t *ask(once_t *once, const char *key)
{
    once_ask_t asked = ONCE_ASK_INIT;
    once_answer_t *answer;

    asked.key = once__slice(key, strlen(key));
    assert_int_equal(once_begin_sync(once, &asked, &answer), ONCE_OK);
    return answer;
}

static void complete(once_claim_t *claim, const char *body)
{
    once_response_t response = ONCE_RESPONSE_INIT;

    response.body = once__slice(body, strlen(body));
    assert_int_equal(once_claim_complete_sync(claim, &response, NULL), ONCE_OK);
}

static void run_then_replay(void **state)
{
    once_t *once = open_store("memory:");
    once_answer_t *answer = ask(once, "k");
    once_response_t response = ONCE_RESPONSE_INIT;

    assert_int_equal(once_answer_outcome(answer), ONCE_OUTCOME_RUN);
    complete(once_answer_take_claim(answer), "hello");
    once_answer_free(answer);
    answer = ask(once, "k");
    assert_int_equal(once_answer_outcome(answer), ONCE_OUTCOME_REPLAY);
    assert_int_equal(once_record_response(once_answer_record(answer), &response), ONCE_OK);
    assert_int_equal(response.body.len, 5);
    assert_memory_equal(response.body.data, "hello", 5);
    once_answer_free(answer);
    assert_int_equal(once_close(once, -1), ONCE_OK);
}

static void an_answer_freed_with_its_claim_releases_it(void **state)
{
    once_t *once = open_store("memory:");
    once_answer_t *answer = ask(once, "k");

    once_answer_free(answer);
    answer = ask(once, "k");
    assert_int_equal(once_answer_outcome(answer), ONCE_OUTCOME_RUN);
    assert_int_equal(once_record_epoch(once_answer_record(answer)), 2);
    once_answer_free(answer);
    assert_int_equal(once_close(once, -1), ONCE_OK);
}

static void block_inside(once_t *once, once_answer_t *answer, void *data)
{
    once_answer_t *stats;

    *(int *)data = once_store_stats_sync(once, &stats);
}

static void blocking_inside_a_callback_is_refused(void **state)
{
    once_t *once = open_store("memory:");
    int code = 1;

    assert_int_equal(once_store_stats(once, block_inside, &code), ONCE_OK);
    while (code == 1) {
        assert_true(once_wait(once, -1) >= 0);
    }
    assert_int_equal(code, ONCE_E_REENTRANT);
    assert_int_equal(once_close(once, -1), ONCE_OK);
}

static void count_call(once_t *once, once_answer_t *answer, void *data)
{
    (*(int *)data)++;
}

/* A host that watches the descriptor edge-triggered must not miss anything either. */
static void the_descriptor_serves_level_and_edge_triggered_hosts(void **state)
{
    const uint32_t modes[] = {EPOLLIN, EPOLLIN | EPOLLET};

    for (int mode = 0; mode < 2; mode++) {
        once_t *once = open_store("memory:");
        int host = epoll_create1(0), calls = 0;
        struct epoll_event event = {.events = modes[mode]};

        assert_int_equal(epoll_ctl(host, EPOLL_CTL_ADD, once_fd(once), &event), 0);
        for (int i = 0; i < 100; i++) {
            assert_int_equal(once_store_stats(once, count_call, &calls), ONCE_OK);
            assert_int_equal(once_store_stats(once, count_call, &calls), ONCE_OK);
            while (calls < 2 * i + 2) {
                assert_int_equal(epoll_wait(host, &event, 1, 5000), 1);
                assert_true(once_dispatch(once) >= 0);
            }
        }
        /* Drained: not readable any more. */
        assert_int_equal(poll(&(struct pollfd){.fd = once_fd(once), .events = POLLIN}, 1, 0), 0);
        (void)close(host);
        assert_int_equal(once_close(once, -1), ONCE_OK);
    }
}

#define THREADS 8
#define KEYS    200

static once_t *shared_handle;
static atomic_int runs[KEYS];

static void *ask_for_all(void *data)
{
    for (int i = 0; i < KEYS; i++) {
        once_answer_t *answer;
        once_claim_t *claim;
        char key[16];

        (void)snprintf(key, sizeof(key), "key-%d", i);
        answer = ask(shared_handle, key);
        claim = once_answer_take_claim(answer);
        if (claim != NULL) {
            atomic_fetch_add(&runs[i], 1);
            complete(claim, key);
        }
        once_answer_free(answer);
    }
    return NULL;
}

static void many_threads_share_a_handle_with_a_thread_of_its_own(void **state)
{
    pthread_t threads[THREADS];

    shared_handle = open_store("memory:?thread=on");
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, ask_for_all, NULL), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    for (int i = 0; i < KEYS; i++) {
        assert_int_equal(atomic_load(&runs[i]), 1);
    }
    assert_int_equal(once_wait(shared_handle, 0), ONCE_E_UNSUPPORTED);
    assert_int_equal(once_close(shared_handle, -1), ONCE_OK);
}

/* The renewal thread: a claim outlives its lease while its holder works without calling us. */
static void the_thread_renews_for_a_busy_holder(void **state)
{
    once_t *once = open_store("memory:renewed?thread=on&lease=600ms");
    once_t *other = open_store("memory:renewed?lease=600ms&renew=off");
    once_answer_t *mine = ask(once, "k"), *theirs;
    once_claim_t *claim = once_answer_take_claim(mine);

    once_answer_free(mine);
    for (int i = 0; i < 12; i++) {
        (void)poll(NULL, 0, 100); /* the work: longer than the lease in all */
        theirs = ask(other, "k");
        assert_int_equal(once_answer_outcome(theirs), ONCE_OUTCOME_BUSY);
        assert_true(once_answer_retry_after_ms(theirs) >= 1);
        once_answer_free(theirs);
    }
    assert_int_equal(once_claim_alive(claim), 1);
    complete(claim, "done");
    assert_int_equal(once_close(once, -1), ONCE_OK);
    assert_int_equal(once_close(other, -1), ONCE_OK);
}

static void closing_with_a_thread_waits_for_completions(void **state)
{
    once_t *once = open_store("memory:closing?thread=on");
    once_t *other = open_store("memory:closing");
    once_response_t response = ONCE_RESPONSE_INIT;
    once_answer_t *answer = ask(once, "k");

    assert_int_equal(once_claim_complete(once_answer_take_claim(answer), &response, NULL, NULL),
                     ONCE_OK);
    once_answer_free(answer);
    assert_int_equal(once_close(once, -1), ONCE_OK);
    answer = ask(other, "k");
    assert_int_equal(once_answer_outcome(answer), ONCE_OUTCOME_REPLAY);
    once_answer_free(answer);
    assert_int_equal(once_close(other, -1), ONCE_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(run_then_replay),
        cmocka_unit_test(an_answer_freed_with_its_claim_releases_it),
        cmocka_unit_test(blocking_inside_a_callback_is_refused),
        cmocka_unit_test(the_descriptor_serves_level_and_edge_triggered_hosts),
        cmocka_unit_test(many_threads_share_a_handle_with_a_thread_of_its_own),
        cmocka_unit_test(the_thread_renews_for_a_busy_holder),
        cmocka_unit_test(closing_with_a_thread_waits_for_completions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
