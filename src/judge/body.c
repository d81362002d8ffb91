/*
 * Checks: whose key it is, and bodies that are large or not text.
 */
#include "judge/internal.h"

#include <string.h>

typedef const once__judge_exchange_t *seen_t;

/* ----------------------------------------------------------------------------------------------------------- scope */

/* The key of one caller from another one. Returns 0, or -1 after saying why it cannot be judged. */
static int from_another(once__judge_t *judge, int other_body, seen_t seen[2])
{
    char key[ONCE__JUDGE_KEY_SIZE];
    once__judge_request_t order;

    once__judge_new_key(judge, key);
    order = once__judge_order(judge, key);
    seen[0] = once__judge_send(judge, &order);
    order.other = 1;
    if (other_body) {
        order.body = (once_slice_t){judge->other_body.data, judge->other_body.len};
    }
    seen[1] = once__judge_send(judge, &order);
    if (seen[1]->answer.status == 401 || seen[1]->answer.status == 403) {
        (void)NOT_JUDGED("the second credential is answered %s",
                         once__judge_status(&seen[1]->answer));
        return -1;
    }
    return 0;
}

static once__judge_verdict_t scope_replay(once__judge_t *judge)
{
    int64_t effects;
    seen_t seen[2];

    if (from_another(judge, 0, seen) != 0) {
        return ONCE__JUDGE_NOT_JUDGED;
    }
    effects = once__judge_mark(&seen[1]->answer) == NULL ? once__judge_effects(judge, 2) : 1;
    if (effects == 1 || (judge->distinct && once__judge_is_success(&seen[1]->answer) &&
                         once__judge_is_same(&seen[0]->answer, &seen[1]->answer))) {
        return FAIL("another caller got the stored answer of the first one");
    }
    if (!once__judge_is_success(&seen[1]->answer)) {
        return FAIL("another caller with the same key is answered %s",
                    once__judge_status(&seen[1]->answer));
    }
    if (effects < 0 && !judge->distinct) {
        return NOT_JUDGED("two operations look like one: there is no --effect-url");
    }
    return PASS("two operations");
}

static once__judge_verdict_t scope_reuse(once__judge_t *judge)
{
    char key[ONCE__JUDGE_KEY_SIZE];
    once__judge_request_t order;
    seen_t seen[2], unused;

    if (from_another(judge, 1, seen) != 0) {
        return ONCE__JUDGE_NOT_JUDGED;
    }
    if (once__judge_mark(&seen[1]->answer) != NULL ||
        (judge->distinct && once__judge_is_same(&seen[0]->answer, &seen[1]->answer))) {
        return FAIL("another caller got the stored answer of the first one");
    }
    /* What that caller gets for the same body under a key that nobody has used. */
    once__judge_new_key(judge, key);
    order = once__judge_order(judge, key);
    order.body = (once_slice_t){judge->other_body.data, judge->other_body.len};
    order.other = 1;
    unused = once__judge_send(judge, &order);
    if (unused->answer.status != seen[1]->answer.status) {
        return FAIL("another caller is told that the key is used: %s, and %s for an unused one",
                    once__judge_status(&seen[1]->answer), once__judge_status(&unused->answer));
    }
    return PASS("%s, as for an unused key", once__judge_status(&seen[1]->answer));
}

/* ----------------------------------------------------------------------------------------------------- large, binary */

/* Two bodies, the second of which differs in its last part; each sent twice. */
static once__judge_verdict_t pair(once__judge_t *judge, const once__judge_request_t *order,
                                  once_slice_t other, const char *what)
{
    once__judge_request_t changed = *order;
    once__judge_verdict_t verdict;
    seen_t seen[2], late;

    seen[0] = once__judge_send(judge, order);
    if (once__judge_is_refusal(&seen[0]->answer)) {
        return NOT_JUDGED("the API does not take %s: %s", what,
                          once__judge_status(&seen[0]->answer));
    }
    if (!once__judge_is_success(&seen[0]->answer)) {
        return FAIL("%s is answered %s", what, once__judge_status(&seen[0]->answer));
    }
    seen[1] = once__judge_send_until(judge, order);
    verdict = once__judge_one_operation(judge, seen, 2, 1);
    if (verdict != ONCE__JUDGE_PASS) {
        return verdict;
    }
    changed.body = other;
    late = once__judge_send(judge, &changed);
    if (!once__judge_is_refusal(&late->answer)) {
        return FAIL("the same key with %s that differs at its end is answered %s", what,
                    once__judge_status(&late->answer));
    }
    return PASS("replayed; and %s for one that differs at its end",
                once__judge_status(&late->answer));
}

static once__judge_verdict_t large(once__judge_t *judge)
{
    char key[ONCE__JUDGE_KEY_SIZE];
    once__judge_request_t order;

    once__judge_new_key(judge, key);
    order = once__judge_order(judge, key);
    order.body = (once_slice_t){judge->large_body.data, judge->large_body.len};
    return pair(judge, &order,
                (once_slice_t){judge->large_other_body.data, judge->large_other_body.len},
                "a large body");
}

static once__judge_verdict_t binary(once__judge_t *judge)
{
    static char bytes[512], others[512]; /* static: the report looks at them after the check */
    char key[ONCE__JUDGE_KEY_SIZE];
    once__judge_request_t order;

    for (size_t i = 0; i < sizeof(bytes); i++) {
        bytes[i] = others[i] = (char)(unsigned char)i;
    }
    others[sizeof(others) - 1] = 0;
    once__judge_new_key(judge, key);
    order = once__judge_order(judge, key);
    order.type = "application/octet-stream";
    order.body = (once_slice_t){bytes, sizeof(bytes)};
    return pair(judge, &order, (once_slice_t){others, sizeof(others)}, "a binary body");
}

/* clang-format off */
const once__judge_check_t once__judge_checks_body[] = {
    {"scope-replay", "SHOULD", "5", "a key of one caller is another key when another caller sends it",
     "the body under a new key, and again with the second credential", 2, 0, ONCE__JUDGE_NEEDS_CALLER, scope_replay},
    {"scope-reuse", "SHOULD", "5", "an answer does not reveal which keys other callers use",
     "the body under a new key, then the other body with the second credential; that under a new key", 3, 0,
     ONCE__JUDGE_NEEDS_CALLER | ONCE__JUDGE_NEEDS_OTHER_BODY, scope_reuse},
    {"large-body", "MUST", "2.7", "a large body is distinguished from one that differs only at its end",
     "a body of --large bytes under a new key, again, and one that differs in its last letter",
     2 + ONCE__JUDGE_TRIES, 0, ONCE__JUDGE_NEEDS_LARGE_BODY, large},
    {"binary-body", "MUST", "2.7", "a body with zero bytes and no text is distinguished from one that differs only at its end",
     "512 bytes of every value under a new key, again, and others (only with --binary)",
     2 + ONCE__JUDGE_TRIES, 0, ONCE__JUDGE_NEEDS_BINARY, binary},
    {0},
};
/* clang-format on */
