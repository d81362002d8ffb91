/*
 * The n-th allocation fails, for every n, through the public API. Every call says ONCE_E_NOMEM or works; nothing leaks, nothing
 * is left half done, and the same story told again afterwards goes through.
 */
#include "support/testing.h"

#include <stdio.h>
#include <string.h>

#include <once/once.h>

#include "core/bytes.h"
#include "support/memory.h"

static int count_records(once_t *once, const once_record_t *record, void *data)
{
    (*(unsigned *)data)++;
    return 0;
}

static int begin(once_t *once, const char *key, once_body_t *body, once_answer_t **answer)
{
    once_ask_t ask = ONCE_ASK_INIT;

    ask.key = once__slice(key, strlen(key));
    ask.body = body;
    return once_begin_sync(once, &ask, answer);
}

static void complete(once_answer_t *answer)
{
    once_header_t header = {once__slice("Content-Type", 12), once__slice("text/plain", 10)};
    once_response_t response = ONCE_RESPONSE_INIT;
    once_claim_t *claim = once_answer_take_claim(answer);
    char body[4096];
    int code;

    if (claim == NULL) {
        return;
    }
    memset(body, 'b', sizeof(body));
    response.headers = &header;
    response.header_count = 1;
    response.body = once__slice(body, sizeof(body));
    code = once_complete_sync(claim, &response, NULL);
    if (code == ONCE_E_NOMEM) {
        code = once_complete_sync(claim, &response, NULL); /* still ours: once more */
    }
    assert_int_equal(code, ONCE_OK);
}

static once_body_t *json_body(void)
{
    static const char text[] = "{\"amount\": 19.99, \"to\": [1, 2, {\"deep\": null}]}";
    once_body_t *body = once_body_new(ONCE_BODY_JSON, once__slice("", 0));

    if (body != NULL && once_body_add(body, text, sizeof(text) - 1) != ONCE_OK) {
        once_body_free(body);
        return NULL;
    }
    return body;
}

static void works_or_says_so(int code)
{
    assert_true(code == ONCE_OK || code == ONCE_E_NOMEM);
}

static void tell(once_t *once)
{
    once_body_t *body = json_body();
    once_answer_t *answer;
    unsigned records = 0;
    int code;

    if (begin(once, "pay", body, &answer) == ONCE_OK) {
        complete(answer);
        once_answer_free(answer);
    }
    if (begin(once, "pay", body, &answer) == ONCE_OK) {
        once_response_t response;
        if (once_answer_outcome(answer) == ONCE_REPLAY) {
            code = once_record_response(once_answer_record(answer), &response);
            assert_true(code == ONCE_OK || code == ONCE_E_NOMEM);
        }
        once_answer_free(answer);
    }
    if (begin(once, "late", NULL, &answer) == ONCE_OK) {
        once_claim_t *claim = once_answer_take_claim(answer);
        if (claim != NULL) {
            works_or_says_so(once_renew_sync(claim, NULL));
            if (once_release_sync(claim, 429, once__slice("later", 5), NULL) == ONCE_E_NOMEM) {
                assert_int_equal(once_doubt_sync(claim, NULL), ONCE_OK);
            }
        }
        once_answer_free(answer);
    }
    works_or_says_so(once_scan_sync(once, NULL, count_records, &records, NULL));
    works_or_says_so(once_stats_sync(once, NULL));
    works_or_says_so(once_reap_sync(once, 0, NULL));
    code = once_rotate_sync(once, 3600000, NULL);
    assert_true(code == ONCE_OK || code == ONCE_E_NOMEM || code == ONCE_E_FULL);
    once_body_free(body);
}

static void run_story(const char *options)
{
    once_error_t err;
    once_t *once;

    if (once_open(options, NULL, &once, &err) != ONCE_OK) {
        assert_int_equal(err.code, ONCE_E_NOMEM);
        return;
    }
    tell(once);
    assert_int_equal(once_close(once, -1), ONCE_OK);
}

static void for_every_n(const char *url)
{
    unsigned n = 0;

    do {
        n++;
        memory_fail_at(n);
        run_story(url);
        assert_true(n < 5000);
    } while (memory_failed());
    memory_fail_at(0);
    (void)printf("          %s: %u allocations\n", url, n - 1);
    assert_true(n > 20);
}

static void every_allocation_fails_once(void **state)
{
    for_every_n("memory:");
}

static void also_where_a_record_is_kept_by_another_handle(void **state)
{
    once_t *keeper;

    assert_int_equal(once_open("memory:kept", NULL, &keeper, NULL), ONCE_OK);
    tell(keeper);
    for_every_n("memory:kept?compress=off");
    assert_int_equal(once_close(keeper, -1), ONCE_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_fails_once),
        cmocka_unit_test(also_where_a_record_is_kept_by_another_handle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
