/*
 * Checks: a first request, and what is a key.
 */
#include "judge/internal.h"

#include <string.h>

#define LONG_KEY 300 /* longer than any published limit that is known */

typedef const once__judge_exchange_t *seen_t;

/* Also what tells the judge whether it can see executions at all. judge.c runs it before all others. */
static once__judge_verdict_t first_request(once__judge_t *judge)
{
    char key[ONCE__JUDGE_KEY_SIZE];
    once__judge_request_t order;
    seen_t seen;
    int64_t effects;

    once__judge_new_key(judge, key);
    order = once__judge_order(judge, key);
    seen = once__judge_send(judge, &order);
    if (!once__judge_is_success(&seen->answer)) {
        return FAIL("a first request with a new key is answered %s: nothing can be judged",
                    once__judge_status(&seen->answer));
    }
    if (once__judge_mark(&seen->answer) != NULL) {
        return FAIL("the answer to a new key says that it is a replay: %s",
                    once__judge_mark(&seen->answer));
    }
    effects = once__judge_effects(judge, 1);
    if (judge->counted && effects != 1) {
        return FAIL("--effect-url counts %lld effects of one request", (long long)effects);
    }
    return PASS("%s%s", once__judge_status(&seen->answer), effects == 1 ? ", one effect" : "");
}

/* The same body under two keys: two operations. Whether their answers differ is kept for other checks. */
static once__judge_verdict_t other_key(once__judge_t *judge)
{
    char keys[2][ONCE__JUDGE_KEY_SIZE];
    seen_t seen[2];
    int64_t effects;

    for (int i = 0; i < 2; i++) {
        once__judge_request_t order;
        once__judge_new_key(judge, keys[i]);
        order = once__judge_order(judge, keys[i]);
        seen[i] = once__judge_send(judge, &order);
        if (!once__judge_is_success(&seen[i]->answer)) {
            return FAIL("the same body under a new key is answered %s",
                        once__judge_status(&seen[i]->answer));
        }
    }
    judge->distinct = !once__judge_is_same(&seen[0]->answer, &seen[1]->answer);
    effects = once__judge_effects(judge, 2);
    if (effects >= 0 && effects != 2) {
        return FAIL("two keys had %lld effects, not 2", (long long)effects);
    }
    if (once__judge_mark(&seen[1]->answer) != NULL) {
        return FAIL("the answer to a new key says that it is a replay: %s",
                    once__judge_mark(&seen[1]->answer));
    }
    if (effects < 0 && !judge->distinct) {
        return NOT_JUDGED(
            "the answers are equal, and there is no --effect-url: two operations look like one");
    }
    return PASS("two operations");
}

static once__judge_verdict_t key_missing(once__judge_t *judge)
{
    once__judge_request_t order = once__judge_order(judge, NULL);
    seen_t seen = once__judge_send(judge, &order);
    int required = judge->options->require;

    if (once__judge_is_success(&seen->answer)) {
        if (required) {
            return FAIL(
                "a request without a key is processed, although --require says that one is needed");
        }
        return judge->profile->missing_refused
                   ? NOT_JUDGED("requests without a key are processed; if the API's documents "
                                "demand one, say "
                                "--require")
                   : PASS("the key is optional");
    }
    if (seen->answer.status != 400) {
        return FAIL("answered %s, not 400", once__judge_status(&seen->answer));
    }
    if (once__judge_effects(judge, 0) > 0) {
        return FAIL("answered 400, and yet it took effect");
    }
    return PASS("400");
}

/* A value that is no key must be refused, without effect. */
static once__judge_verdict_t refused(once__judge_t *judge, const char *key, const char *again,
                                     const char *what)
{
    once__judge_request_t order = once__judge_order(judge, key);
    seen_t seen;

    order.key_again = again;
    seen = once__judge_send(judge, &order);
    if (!once__judge_is_refusal(&seen->answer)) {
        return FAIL("%s is answered %s, not with an error of the client", what,
                    once__judge_status(&seen->answer));
    }
    if (once__judge_effects(judge, 0) > 0) {
        return FAIL("%s is answered %s, and yet it took effect", what,
                    once__judge_status(&seen->answer));
    }
    return PASS("%s", once__judge_status(&seen->answer));
}

static once__judge_verdict_t key_empty(once__judge_t *judge)
{
    if (!judge->profile->malformed_refused && !judge->options->require) {
        return NOT_JUDGED("in this profile an empty key may count as none");
    }
    return refused(judge, "", NULL, "an empty key");
}

static once__judge_verdict_t key_malformed(once__judge_t *judge)
{
    char bare[ONCE__JUDGE_KEY_SIZE / 2], key[ONCE__JUDGE_KEY_SIZE];

    if (!judge->profile->malformed_refused) {
        return NOT_JUDGED("in this profile a key is any text");
    }
    once__judge_new_bare_key(judge, key);
    snprintf(bare, sizeof(bare), "%.100s", key);
    snprintf(key, sizeof(key), "\"%s", bare);
    return refused(judge, key, NULL, "a string without its closing quote");
}

static once__judge_verdict_t key_twice(once__judge_t *judge)
{
    char one[ONCE__JUDGE_KEY_SIZE], other[ONCE__JUDGE_KEY_SIZE];

    if (!judge->profile->malformed_refused) {
        return NOT_JUDGED("this profile does not say what two keys are");
    }
    once__judge_new_key(judge, one);
    once__judge_new_key(judge, other);
    return refused(judge, one, other, "a request with two keys");
}

/* Two long keys that differ in their last character: both are refused, or they are two operations. */
static once__judge_verdict_t key_long(once__judge_t *judge)
{
    char bare[ONCE__JUDGE_KEY_SIZE], keys[2][ONCE__JUDGE_KEY_SIZE];
    const char *quote = judge->profile->quoted ? "\"" : "";
    seen_t seen[2];

    once__judge_new_bare_key(judge, bare);
    for (int i = 0; i < 2; i++) {
        once__judge_request_t order;
        int len = snprintf(keys[i], sizeof(keys[i]), "%s%.60s", quote, bare);
        memset(keys[i] + len, 'x', LONG_KEY - (size_t)len);
        snprintf(keys[i] + LONG_KEY, sizeof(keys[i]) - LONG_KEY, "%c%s", 'a' + i, quote);
        order = once__judge_order(judge, keys[i]);
        seen[i] = once__judge_send(judge, &order);
    }
    if (once__judge_is_refusal(&seen[0]->answer) && once__judge_is_refusal(&seen[1]->answer)) {
        return PASS("keys of %d characters are refused: %s", LONG_KEY + 1,
                    once__judge_status(&seen[0]->answer));
    }
    if (judge->profile->key_max != 0) {
        return FAIL("keys of %d characters are answered %s; this profile refuses more than %zu",
                    LONG_KEY + 1, once__judge_status(&seen[0]->answer), judge->profile->key_max);
    }
    if (!once__judge_is_success(&seen[0]->answer) || !once__judge_is_success(&seen[1]->answer)) {
        return FAIL("keys of %d characters are answered %s and %s", LONG_KEY + 1,
                    once__judge_status(&seen[0]->answer), once__judge_status(&seen[1]->answer));
    }
    if (once__judge_mark(&seen[1]->answer) != NULL || once__judge_effects(judge, 2) == 1 ||
        (judge->distinct && once__judge_is_same(&seen[0]->answer, &seen[1]->answer))) {
        return FAIL("two keys that differ in character %d are one operation: keys are cut off",
                    LONG_KEY + 1);
    }
    return PASS("keys of %d characters are taken whole", LONG_KEY + 1);
}

/* A request twice under one key. */
static once__judge_verdict_t repeated(once__judge_t *judge, const char *key, int may_refuse)
{
    once__judge_request_t order = once__judge_order(judge, key);
    seen_t seen[2];

    seen[0] = once__judge_send(judge, &order);
    if (may_refuse && once__judge_is_refusal(&seen[0]->answer)) {
        return PASS("refused: %s", once__judge_status(&seen[0]->answer));
    }
    if (!once__judge_is_success(&seen[0]->answer)) {
        return FAIL("answered %s", once__judge_status(&seen[0]->answer));
    }
    seen[1] = once__judge_send_until(judge, &order);
    seen_t both[] = {seen[0], seen[1]};
    return once__judge_one_operation(judge, both, 2, 1);
}

static void quote_key(once__judge_t *judge, char bare[ONCE__JUDGE_KEY_SIZE],
                      char quoted[ONCE__JUDGE_KEY_SIZE])
{
    once__judge_new_bare_key(judge, bare);
    snprintf(quoted, ONCE__JUDGE_KEY_SIZE, "\"%.100s\"", bare);
}

static once__judge_verdict_t key_quoted(once__judge_t *judge)
{
    char bare[ONCE__JUDGE_KEY_SIZE], quoted[ONCE__JUDGE_KEY_SIZE];

    quote_key(judge, bare, quoted);
    return repeated(judge, quoted, !judge->profile->quoted);
}

static once__judge_verdict_t key_raw(once__judge_t *judge)
{
    char bare[ONCE__JUDGE_KEY_SIZE];

    once__judge_new_bare_key(judge, bare);
    return repeated(judge, bare, judge->profile->quoted);
}

static once__judge_verdict_t key_forms(once__judge_t *judge)
{
    char bare[ONCE__JUDGE_KEY_SIZE], quoted[ONCE__JUDGE_KEY_SIZE];
    once__judge_request_t order;
    seen_t seen[2];

    if (!judge->profile->quoted) {
        return NOT_JUDGED("in this profile quotes are a part of the key");
    }
    quote_key(judge, bare, quoted);
    order = once__judge_order(judge, quoted);
    seen[0] = once__judge_send(judge, &order);
    order = once__judge_order(judge, bare);
    seen[1] = once__judge_send_until(judge, &order);
    if (once__judge_is_refusal(&seen[0]->answer) || once__judge_is_refusal(&seen[1]->answer)) {
        return PASS("one of the forms is refused");
    }
    return once__judge_one_operation(judge, seen, 2, 1);
}

/* clang-format off */
const once__judge_check_t once__judge_checks_key[] = {
    {"first-request", "SHOULD", "2.6", "a request with a new key is processed, once",
     "the body under a new key", 1, 0, 0, first_request},
    {"other-key", "SHOULD", "2.6", "the same body under another key is another operation",
     "the body under two new keys", 2, 0, 0, other_key},
    {"key-missing", "SHOULD", "2.7", "a request without a key is answered 400, where one is required",
     "the body without a key", 1, 0, 0, key_missing},
    {"key-empty", "MUST", "2.1", "an empty key is refused",
     "the body with an empty key", 1, 0, 0, key_empty},
    {"key-malformed", "MUST", "2.1", "a key that is no string of structured fields is refused: \"abc",
     "the body under a key without its closing quote", 1, 0, 0, key_malformed},
    {"key-twice", "MUST", "2.1", "two keys in one request are refused",
     "the body with two key headers", 1, 0, 0, key_twice},
    {"key-long", "SHOULD", "5", "a key of 301 characters is refused, or taken whole",
     "the body under two long keys that differ in their last character", 2, 0, 0, key_long},
    {"key-quoted", "MUST", "2.1", "a quoted key is recognised when it is repeated",
     "the body under a quoted key, and again", 1 + ONCE__JUDGE_TRIES, 0, 0, key_quoted},
    {"key-raw", "rule", "", "a key without quotes is refused, or recognised when it is repeated",
     "the body under a key without quotes, and again", 1 + ONCE__JUDGE_TRIES, 0, 0, key_raw},
    {"key-forms", "rule", "", "a key with and without quotes is one key, where both are taken",
     "the body under a quoted key, and under the same without quotes", 1 + ONCE__JUDGE_TRIES, 0, 0, key_forms},
    {0},
};
/* clang-format on */
