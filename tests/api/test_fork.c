/*
 * A handle belongs to the process that opened it.
 */
#include "support/testing.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <once/once.h>

static void never(once_t *once, once_answer_t *answer, void *data)
{
    *(int *)data = 1;
}

static int never_each(once_t *once, const once_record_t *record, void *data)
{
    *(int *)data = 1;
    return 0;
}

/* A child can open a store of its own, whatever its parent's threads were doing. */
static int child_opens_its_own(void)
{
    once_ask_t ask = ONCE_ASK_INIT;
    once_answer_t *answer;
    once_t *once;

    ask.key.data = "k";
    ask.key.len = 1;
    if (once_open("memory:shared", NULL, &once, NULL) != ONCE_OK ||
        once_begin_sync(once, &ask, &answer) != ONCE_OK ||
        once_answer_outcome(answer) != ONCE_OUTCOME_RUN) {
        return 3;
    }
    once_answer_free(answer);
    return once_close(once, -1) == ONCE_OK ? 0 : 4;
}

/* In the child. Returns 0 when every call was refused and the parent's handle was left alone. */
static int child_is_refused(once_t *once, once_claim_t *claim)
{
    once_ask_t ask = ONCE_ASK_INIT;
    once_response_t response = ONCE_RESPONSE_INIT;
    once_settle_t settle = ONCE_SETTLE_INIT;
    once_slice_t note = {"x", 1};
    once_claim_t *adopted;
    once_answer_t *answer;
    uint8_t id[ONCE_ID_SIZE] = {0};
    int called = 0;

    settle.token = "x";
    ask.key.data = "k";
    ask.key.len = 1;
    if (once_begin(once, &ask, never, &called) != ONCE_E_FORKED ||
        once_begin_sync(once, &ask, &answer) != ONCE_E_FORKED ||
        once_claim_complete(claim, &response, never, &called) != ONCE_E_FORKED ||
        once_claim_renew(claim, never, &called) != ONCE_E_FORKED ||
        once_record_get(once, id, never, &called) != ONCE_E_FORKED ||
        once_claim_release(claim, 0, note, never, &called) != ONCE_E_FORKED ||
        once_claim_doubt(claim, note, never, &called) != ONCE_E_FORKED ||
        once_record_settle(once, &settle, never, &called) != ONCE_E_FORKED ||
        once_record_purge(once, "x", 0, never, &called) != ONCE_E_FORKED ||
        once_record_scan(once, NULL, never_each, never, &called) != ONCE_E_FORKED ||
        once_store_stats(once, never, &called) != ONCE_E_FORKED ||
        once_store_reap(once, 0, never, &called) != ONCE_E_FORKED ||
        once_secret_rotate(once, 0, never, &called) != ONCE_E_FORKED ||
        once_claim_adopt(once, "x", 0, &adopted) != ONCE_E_FORKED ||
        once_record_id_of(once, note, note, id) != ONCE_E_FORKED ||
        once_scope_hash_of(once, note, id) != ONCE_E_FORKED || once_claim_alive(claim) ||
        once_dispatch(once) != ONCE_E_FORKED || once_wait(once, 0) != ONCE_E_FORKED ||
        once_shutdown(once, NULL, NULL) != ONCE_E_FORKED || called) {
        return 1;
    }
    once_claim_drop(claim);
    return once_close(once, -1) == ONCE_OK ? child_opens_its_own() : 2;
}

static void check(const char *url)
{
    once_ask_t ask = ONCE_ASK_INIT;
    once_response_t response = ONCE_RESPONSE_INIT;
    once_answer_t *answer;
    once_claim_t *claim;
    once_t *once;
    int status;
    pid_t pid;

    assert_int_equal(once_open(url, NULL, &once, NULL), ONCE_OK);
    ask.key.data = "k";
    ask.key.len = 1;
    assert_int_equal(once_begin_sync(once, &ask, &answer), ONCE_OK);
    claim = once_answer_take_claim(answer);
    once_answer_free(answer);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        _exit(child_is_refused(once, claim));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    /* The parent goes on as if nothing had been. */
    assert_int_equal(once_claim_complete_sync(claim, &response, &answer), ONCE_OK);
    assert_int_equal(once_answer_outcome(answer), ONCE_OUTCOME_DONE);
    once_answer_free(answer);
    assert_int_equal(once_close(once, -1), ONCE_OK);
}

static void a_child_cannot_use_its_parents_handle(void **state)
{
    check("memory:");
}

static void nor_one_with_a_thread(void **state)
{
    check("memory:?thread=on");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_cannot_use_its_parents_handle),
        cmocka_unit_test(nor_one_with_a_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
