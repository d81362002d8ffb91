/*
 * The n-th allocation fails, for every n, through the public API. Every call says ONCE_E_NOMEM or works; nothing leaks, nothing
 * is left half done, and the same story told again afterwards goes through.
 */
#include "support/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <once/once.h>

#include "base/bytes.h"
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
    code = once_claim_complete_sync(claim, &response, NULL);
    if (code == ONCE_E_NOMEM) {
        code = once_claim_complete_sync(claim, &response, NULL); /* still ours: once more */
    }
    assert_int_equal(code, ONCE_OK);
}

static once_body_t *json_body(void)
{
    static const char text[] = "{\"amount\": 19.99, \"to\": [1, 2, {\"deep\": null}]}";
    once_body_t *body = once_body_new(ONCE_BODY_MODE_JSON, once__slice("", 0));

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

static void judge(once_t *once)
{
    once_answer_t *answer;
    once_settle_t settle = ONCE_SETTLE_INIT;
    once_claim_t *claim, *adopted;
    char token[ONCE_TOKEN_SIZE];
    uint8_t id[ONCE_ID_SIZE] = {0};
    int code = begin(once, "judged", NULL, &answer);

    works_or_says_so(code);
    claim = code == ONCE_OK ? once_answer_take_claim(answer) : NULL;
    if (claim != NULL) {
        once_claim_token(claim, token);
        once_claim_drop(claim);
        code = once_claim_adopt(once, token, 0, &adopted);
        works_or_says_so(code);
        if (code == ONCE_OK &&
            once_claim_doubt_sync(adopted, once__slice("timeout", 7), NULL) == ONCE_E_NOMEM) {
            once_claim_drop(adopted);
        }
        settle.token = token;
        settle.status = 500;
        settle.note = once__slice("never", 5);
        settle.force = 1;
        works_or_says_so(once_record_settle_sync(once, &settle, NULL));
        works_or_says_so(once_record_purge_sync(once, token, 1, NULL));
    }
    if (answer != NULL) {
        once_answer_free(answer);
    }
    code = once_record_get_sync(once, id, &answer);
    assert_true(code == ONCE_E_NOT_FOUND || code == ONCE_E_NOMEM);
}

static void set_up(void)
{
    static const char parts[] = "--b\r\n\r\nx\r\n--b--\r\n";
    once_policy_t *policy = once_policy_new(), *copy;
    once_options_t *options = once_options_new();
    once_body_t *body =
        once_body_new(ONCE_BODY_MODE_MULTIPART, once__slice("multipart/form-data; boundary=b", 31));

    if (policy != NULL) {
        works_or_says_so(once_policy_parse(policy, "ttl=1h recover=hold record=2xx,4xx", NULL));
        copy = once_policy_copy(policy);
        once_policy_free(copy);
    }
    if (options != NULL) {
        works_or_says_so(once_options_set(options, "ttl", "1h", NULL));
    }
    if (body != NULL) {
        works_or_says_so(once_body_add(body, parts, sizeof(parts) - 1));
    }
    once_body_free(body);
    once_options_free(options);
    once_policy_free(policy);
}

static void tell(once_t *once)
{
    once_body_t *body = json_body();
    once_answer_t *answer = NULL;
    unsigned records = 0;
    int code;

    if (begin(once, "pay", body, &answer) == ONCE_OK) {
        complete(answer);
        once_answer_free(answer);
    }
    if (begin(once, "pay", body, &answer) == ONCE_OK) {
        once_response_t response = ONCE_RESPONSE_INIT;
        if (once_answer_outcome(answer) == ONCE_OUTCOME_REPLAY) {
            code = once_record_response(once_answer_record(answer), &response);
            assert_true(code == ONCE_OK || code == ONCE_E_NOMEM);
        }
        once_answer_free(answer);
    }
    if (begin(once, "late", NULL, &answer) == ONCE_OK) {
        once_claim_t *claim = once_answer_take_claim(answer);
        if (claim != NULL) {
            works_or_says_so(once_claim_renew_sync(claim, NULL));
            if (once_claim_release_sync(claim, 429, once__slice("later", 5), NULL) ==
                ONCE_E_NOMEM) {
                assert_int_equal(once_claim_doubt_sync(claim, once__slice("timeout", 7), NULL),
                                 ONCE_OK);
            }
        }
        once_answer_free(answer);
    }
    judge(once);
    works_or_says_so(once_record_scan_sync(once, NULL, count_records, &records, NULL));
    works_or_says_so(once_store_stats_sync(once, NULL));
    works_or_says_so(once_store_reap_sync(once, 0, NULL));
    code = once_secret_rotate_sync(once, 3600000, NULL);
    assert_true(code == ONCE_OK || code == ONCE_E_NOMEM || code == ONCE_E_FULL);
    once_body_free(body);
}

static void run_story(const char *options)
{
    once_error_t err;
    once_t *once;

    set_up();
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

#define SEAL_KEY "1 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n"

static void also_with_files_and_a_thread(void **state)
{
    char directory[] = "/tmp/once-memory-XXXXXX", url[256], keys[64], secrets[64];
    FILE *file;

    assert_non_null(mkdtemp(directory));
    (void)snprintf(keys, sizeof(keys), "%s/keys", directory);
    (void)snprintf(secrets, sizeof(secrets), "%s/secrets", directory);
    file = fopen(keys, "w");
    assert_non_null(file);
    assert_true(fputs(SEAL_KEY, file) >= 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(keys, 0600), 0);
    (void)snprintf(url, sizeof(url), "memory:?secrets=file:%s&encrypt=file:%s", secrets, keys);
    for_every_n(url);
    for_every_n("memory:?thread=on");
    assert_int_equal(unlink(keys) + unlink(secrets) + rmdir(directory), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_fails_once),
        cmocka_unit_test(also_where_a_record_is_kept_by_another_handle),
        cmocka_unit_test(also_with_files_and_a_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
