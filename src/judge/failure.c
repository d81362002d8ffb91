/*
 * Checks: after an error, and after a connection that was cut.
 */
#include "judge/internal.h"

#include <string.h>

typedef const once__judge_exchange_t *seen_t;

static once_slice_t slice(const once__judge_bytes_t *bytes)
{
    return (once_slice_t){bytes->data, bytes->len};
}

static once__judge_verdict_t after_4xx(once__judge_t *judge)
{
    char key[ONCE__JUDGE_KEY_SIZE];
    once__judge_request_t order;
    seen_t seen[2];

    once__judge_new_key(judge, key);
    order = once__judge_order(judge, key);
    order.body = slice(&judge->refused_body);
    seen[0] = once__judge_send(judge, &order);
    if (!once__judge_is_refusal(&seen[0]->answer)) {
        return NOT_JUDGED("--refused-body is answered %s, not 4xx",
                          once__judge_status(&seen[0]->answer));
    }
    seen[1] = once__judge_send_until(judge, &order);
    if (once__judge_effects(judge, 0) > 0) {
        return FAIL("a request that was answered %s took effect when it was repeated",
                    once__judge_status(&seen[0]->answer));
    }
    return once__judge_is_same(&seen[0]->answer, &seen[1]->answer)
               ? PASS("%s again", once__judge_status(&seen[1]->answer))
               : FAIL("first %s, then %s%s", once__judge_status(&seen[0]->answer),
                      once__judge_status(&seen[1]->answer),
                      seen[0]->answer.status == seen[1]->answer.status ? " with another body" : "");
}

/* The same 5xx again is its result; anything else must not be a second effect. */
static once__judge_verdict_t judge_after_5xx(once__judge_t *judge, seen_t first, seen_t again)
{
    int64_t effects = once__judge_effects(judge, 0);

    if (effects > 1) {
        return FAIL("the request that was answered %s had taken effect, and its repetition did so "
                    "again: %lld effects",
                    once__judge_status(&first->answer), (long long)effects);
    }
    if (once__judge_is_same(&first->answer, &again->answer) && effects >= 0) {
        return PASS("%s again, and %lld effects", once__judge_status(&again->answer),
                    (long long)effects);
    }
    if (judge->profile->failures_stored) {
        return once__judge_is_same(&first->answer, &again->answer)
                   ? PASS("%s again", once__judge_status(&again->answer))
                   : FAIL("first %s, then %s: this profile stores failures, too",
                          once__judge_status(&first->answer), once__judge_status(&again->answer));
    }
    if (effects >= 0) {
        return PASS("%s, and then %s; %lld effects", once__judge_status(&first->answer),
                    once__judge_status(&again->answer), (long long)effects);
    }
    return again->answer.status == 409
               ? PASS("409: it is not run again")
               : NOT_JUDGED(
                     "%s, and then %s: without --effect-url nobody can say whether it ran twice",
                     once__judge_status(&first->answer), once__judge_status(&again->answer));
}

static once__judge_verdict_t after_5xx(once__judge_t *judge)
{
    char key[ONCE__JUDGE_KEY_SIZE];
    once__judge_request_t order;
    seen_t first;

    once__judge_new_key(judge, key);
    order = once__judge_order(judge, key);
    order.body = slice(&judge->failing_body);
    first = once__judge_send(judge, &order);
    if (first->answer.status < 500) {
        return NOT_JUDGED("--failing-body is answered %s, not 5xx",
                          once__judge_status(&first->answer));
    }
    return judge_after_5xx(judge, first, once__judge_send(judge, &order));
}

/* Both cuts: what was sent is repeated whole until it has a result. */
static once__judge_verdict_t after_cut(once__judge_t *judge, once__judge_cut_t cut)
{
    char key[ONCE__JUDGE_KEY_SIZE];
    once__judge_request_t order;
    seen_t seen[3];

    once__judge_new_key(judge, key);
    order = once__judge_order(judge, key);
    order.cut = cut;
    seen[0] = once__judge_send(judge, &order);
    order.cut = ONCE__JUDGE_WHOLE;
    seen[1] = once__judge_send_until(judge, &order);
    if (once__judge_is_not_now(&seen[1]->answer)) {
        return FAIL("the repetition is still answered %s when the time of --patience is over: the "
                    "key is stuck",
                    once__judge_status(&seen[1]->answer));
    }
    if (!once__judge_is_success(&seen[1]->answer)) {
        return FAIL("the repetition is answered %s", once__judge_status(&seen[1]->answer));
    }
    seen[2] = once__judge_send_until(judge, &order);
    return once__judge_one_operation(judge, seen, 3, 1);
}

static once__judge_verdict_t cut_answer(once__judge_t *judge)
{
    return after_cut(judge, ONCE__JUDGE_CUT_ANSWER);
}

static once__judge_verdict_t cut_request(once__judge_t *judge)
{
    return after_cut(judge, ONCE__JUDGE_CUT_REQUEST);
}

/* clang-format off */
const once__judge_check_t once__judge_checks_failure[] = {
    {"after-4xx", "SHOULD", "2.6", "a request that was refused is refused again in the same words",
     "--refused-body under a new key, and again", 1 + ONCE__JUDGE_TRIES, 0,
     ONCE__JUDGE_NEEDS_REFUSED_BODY, after_4xx},
    {"after-5xx", "rule", "", "a request that failed is repeated without a second effect",
     "--failing-body under a new key, and again", 2, 0, ONCE__JUDGE_NEEDS_FAILING_BODY, after_5xx},
    {"cut-answer", "SHOULD", "2.6", "after a lost answer the repetition gets a result, and there is one effect",
     "the body under a new key, the connection closed before the answer; then the same, twice",
     1 + 2 * ONCE__JUDGE_TRIES, 0, ONCE__JUDGE_NEEDS_BODY, cut_answer},
    {"cut-request", "rule", "", "after half a request the whole one gets a result, and there is one effect",
     "half of the body under a new key; then all of it, twice", 1 + 2 * ONCE__JUDGE_TRIES, 0,
     ONCE__JUDGE_NEEDS_BODY, cut_request},
    {0},
};
/* clang-format on */
