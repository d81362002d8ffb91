#include "records.h"

#include <stdio.h>
#include <string.h>

#include "support/testing.h"

once_slice_t slice(const char *text)
{
    once_slice_t bytes = {text, strlen(text)};

    return bytes;
}

once_t *open_store(const char *url)
{
    once_options_t *options = once_options_new();
    once_error_t err = {0};
    once_t *once = NULL;

    assert_non_null(options);
    assert_int_equal(once_options_set(options, "renew", "off", &err), ONCE_OK);
    assert_int_equal(once_options_set(options, "reap", "off", &err), ONCE_OK);
    assert_int_equal(once_open(url, options, &once, &err), ONCE_OK);
    once_options_free(options);
    /* The first answer comes after the secrets. */
    assert_int_equal(once_store_stats_sync(once, NULL), ONCE_OK);
    return once;
}

once_claim_t *claim_bytes(once_t *once, const char *scope, once_slice_t key, const char *policy)
{
    once_policy_t *parsed = once_policy_new();
    once_ask_t ask = ONCE_ASK_INIT;
    once_answer_t *answer = NULL;
    once_claim_t *taken;

    assert_non_null(parsed);
    assert_int_equal(once_policy_parse(parsed, policy, NULL), ONCE_OK);
    ask.scope = slice(scope);
    ask.key = key;
    ask.method = slice("POST");
    ask.target = slice("/orders");
    ask.policy = parsed;
    assert_int_equal(once_begin_sync(once, &ask, &answer), ONCE_OK);
    taken = once_answer_take_claim(answer);
    assert_non_null(taken);
    once_answer_free(answer);
    once_policy_free(parsed);
    return taken;
}

once_claim_t *claim(once_t *once, const char *scope, const char *key, const char *policy)
{
    return claim_bytes(once, scope, slice(key), policy);
}

static once_claim_t *claim_short(once_t *once, const char *scope, const char *key,
                                 const char *recover)
{
    char policy[64];

    snprintf(policy, sizeof(policy), "recover=%s " SHORT_LEASE, recover);
    return claim(once, scope, key, policy);
}

void make_stuck(once_t *once, const char *scope, const char *key, const char *recover)
{
    once_claim_drop(claim_short(once, scope, key, recover));
    wait_for_lease(once, scope, key);
}

void make_unknown(once_t *once, const char *scope, const char *key, const char *recover)
{
    assert_int_equal(
        once_claim_doubt_sync(claim_short(once, scope, key, recover), slice("timeout"), NULL),
        ONCE_OK);
    wait_for_lease(once, scope, key);
}

void make_pending(once_t *once, const char *scope, const char *key)
{
    once_claim_drop(claim(once, scope, key, LONG_LEASE));
}

void make_completed(once_t *once, const char *scope, const char *key, const char *body)
{
    const once_header_t headers[] = {
        {{"Content-Type", 12}, {"text/plain", 10}},
        {{"X-Secret", 8}, {"hunter2", 7}},
    };
    once_response_t response = ONCE_RESPONSE_INIT;

    response.status = 201;
    response.headers = headers;
    response.header_count = 2;
    response.body = slice(body);
    assert_int_equal(once_claim_complete_sync(claim(once, scope, key, LONG_LEASE), &response, NULL),
                     ONCE_OK);
}

void make_unlike(char *body, size_t size, unsigned number)
{
    uint64_t n = number + 1;

    for (size_t i = 0; i + 1 < size; i++) {
        n = n * 6364136223846793005u + 1442695040888963407u;
        body[i] = (char)('a' + (n >> 40) % 26);
    }
    body[size - 1] = '\0';
}

void make_failed(once_t *once, const char *scope, const char *key, const char *note)
{
    assert_int_equal(
        once_claim_release_sync(claim(once, scope, key, LONG_LEASE), 503, slice(note), NULL),
        ONCE_OK);
}

record_id_t id_of(once_t *once, const char *scope, const char *key)
{
    uint8_t id[ONCE_ID_SIZE];
    record_id_t out;

    assert_int_equal(once_record_id_of(once, slice(scope), slice(key), id), ONCE_OK);
    for (size_t i = 0; i < sizeof(id); i++) {
        snprintf(out.hex + 2 * i, 3, "%02x", id[i]);
    }
    return out;
}

once_answer_t *read_record(once_t *once, const char *scope, const char *key)
{
    uint8_t id[ONCE_ID_SIZE];
    once_answer_t *answer = NULL;

    assert_int_equal(once_record_id_of(once, slice(scope), slice(key), id), ONCE_OK);
    (void)!once_record_get_sync(once, id, &answer);
    return answer;
}

once_state_t state_of(once_t *once, const char *scope, const char *key)
{
    once_answer_t *answer = read_record(once, scope, key);
    once_state_t state = ONCE_STATE_NONE;

    if (answer != NULL) {
        state = once_record_state(once_answer_record(answer));
    }
    once_answer_free(answer);
    return state;
}

void wait_for_lease(once_t *once, const char *scope, const char *key)
{
    uint64_t left = 1;

    while (left > 0) {
        once_answer_t *answer = read_record(once, scope, key);
        assert_non_null(answer);
        left = once_record_lease_ms(once_answer_record(answer));
        once_answer_free(answer);
        if (left > 0) {
            assert_true(once_wait(once, (int)left) >= 0);
        }
    }
}
