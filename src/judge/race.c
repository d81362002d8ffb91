/*
 * Checks: many at once, and one while another is being processed.
 */
#include "judge/internal.h"

#include <stdlib.h>
#include <string.h>

typedef const once__judge_exchange_t *seen_t;

#define AT_ONCE_MAX ONCE__JUDGE_AT_ONCE_MAX
#define WAVES       3

/* The same request from many connections at the same time. Returns how many were sent; 0: the run is broken. */
static size_t race(once__judge_t *judge, const char *key, seen_t *seen)
{
    once__judge_request_t orders[AT_ONCE_MAX];

    for (unsigned i = 0; i < judge->at_once; i++) {
        orders[i] = once__judge_order(judge, key);
    }
    return once__judge_send_all(judge, orders, judge->at_once, seen) == 0 ? judge->at_once : 0;
}

static once__judge_verdict_t concurrent(once__judge_t *judge)
{
    seen_t seen[AT_ONCE_MAX + 1];
    char key[ONCE__JUDGE_KEY_SIZE];
    once__judge_request_t order;
    once__judge_verdict_t verdict;
    size_t count, unexpected = 0;

    once__judge_new_key(judge, key);
    count = race(judge, key, seen);
    if (count == 0) {
        return NOT_JUDGED("the requests could not be sent");
    }
    order = once__judge_order(judge, key);
    seen[count] = once__judge_send_until(judge, &order);
    verdict = once__judge_one_operation(judge, seen, count + 1, 1);
    if (verdict != ONCE__JUDGE_PASS) {
        return verdict;
    }
    for (size_t i = 0; i < count; i++) {
        unexpected += seen[i]->answer.status >= 500 || seen[i]->answer.status == 0;
    }
    if (unexpected > 0) {
        return FAIL("%zu of %zu got a 5xx or no answer", unexpected, count);
    }
    return PASS("%zu at once: one result%s", count, judge->counted ? ", one effect" : "");
}

static once__judge_verdict_t storm(once__judge_t *judge)
{
    seen_t seen[1 + WAVES * AT_ONCE_MAX];
    char key[ONCE__JUDGE_KEY_SIZE];
    once__judge_request_t order;
    size_t count = 1;

    once__judge_new_key(judge, key);
    order = once__judge_order(judge, key);
    seen[0] = once__judge_send(judge, &order);
    for (int wave = 0; wave < WAVES && !judge->broken; wave++) {
        count += race(judge, key, seen + count);
    }
    for (size_t i = 1; i < count; i++) {
        if (seen[i]->answer.status >= 500 || seen[i]->answer.status == 0) {
            return FAIL("a repetition is answered %s", once__judge_status(&seen[i]->answer));
        }
    }
    return once__judge_one_operation(judge, seen, count, 1);
}

/* ------------------------------------------------------------------------------------------------------- in flight */

/*
 * Two requests at the same time, the second of which may have another body. `first` becomes the one that was processed, `late` the
 * other one. Returns 0 if the late one was answered while the first was being processed, or waited for it; -1 after saying
 * that it cannot be known.
 */
static int overlap(once__judge_t *judge, int other_body, seen_t *first, seen_t *late)
{
    once_slice_t slow = {judge->slow_body.data, judge->slow_body.len};
    char key[ONCE__JUDGE_KEY_SIZE];
    once__judge_request_t orders[2];
    seen_t seen[2];

    once__judge_new_key(judge, key);
    orders[0] = orders[1] = once__judge_order(judge, key);
    if (slow.data != NULL) {
        orders[0].body = orders[1].body = slow;
    }
    if (other_body) {
        orders[1].body = (once_slice_t){judge->other_body.data, judge->other_body.len};
    }
    if (once__judge_send_all(judge, orders, 2, seen) != 0) {
        (void)NOT_JUDGED("the requests could not be sent");
        return -1;
    }
    /* Which of them came first is the server's to say. */
    *first = seen[once__judge_is_success(&seen[0]->answer) ? 0 : 1];
    *late = seen[*first == seen[0] ? 1 : 0];
    if (!once__judge_is_success(&(*first)->answer)) {
        (void)NOT_JUDGED("neither was processed: %s and %s", once__judge_status(&seen[0]->answer),
                         once__judge_status(&seen[1]->answer));
        return -1;
    }
    return 0;
}

static once__judge_verdict_t in_flight(once__judge_t *judge)
{
    char text[64];
    seen_t first, late;

    if (overlap(judge, 0, &first, &late) != 0) {
        return ONCE__JUDGE_NOT_JUDGED;
    }
    if (once__judge_has_status(judge->profile->in_flight, late->answer.status)) {
        return PASS("%s", once__judge_status(&late->answer));
    }
    if (once__judge_is_success(&late->answer)) {
        seen_t both[] = {first, late};
        once__judge_verdict_t verdict = once__judge_one_operation(judge, both, 2, 1);
        return verdict == ONCE__JUDGE_PASS ? PASS("it got the answer of the first one: it waited, "
                                                  "or came too late to be in its way; "
                                                  "--slow-body makes sure")
                                           : verdict;
    }
    return FAIL("answered %s, not %s", once__judge_status(&late->answer),
                once__judge_status_text(judge->profile->in_flight, text));
}

static once__judge_verdict_t in_flight_reuse(once__judge_t *judge)
{
    int64_t effects;
    seen_t first, late;

    if (overlap(judge, 1, &first, &late) != 0) {
        return ONCE__JUDGE_NOT_JUDGED;
    }
    effects = once__judge_effects(judge, 1);
    if (effects > 1) {
        return FAIL("both bodies were processed under one key: %lld effects", (long long)effects);
    }
    return once__judge_is_refusal(&late->answer)
               ? PASS("%s", once__judge_status(&late->answer))
               : FAIL("two bodies under one key at the same time: %s and %s",
                      once__judge_status(&first->answer), once__judge_status(&late->answer));
}

/* clang-format off */
const once__judge_check_t once__judge_checks_race[] = {
    {"concurrent", "SHOULD", "2.6", "of many equal requests at once one is processed, and no other result is answered",
     "the body under one new key from several connections at once, and again", ONCE__JUDGE_TRIES, 1, 0, concurrent},
    {"in-flight", "SHOULD", "2.7", "a repetition while the first is being processed is answered 409, or waits and is replayed",
     "the body (--slow-body) under one new key, twice at the same time", 2, 0, 0, in_flight},
    {"in-flight-reuse", "MUST", "2.7", "another body while the first is being processed is refused",
     "the body (--slow-body) and the other body under one new key, at the same time", 2, 0,
     ONCE__JUDGE_NEEDS_OTHER_BODY, in_flight_reuse},
    {"retry-storm", "SHOULD", "2.6", "however often a request is repeated, it gets its answer or \"not now\", never a 5xx",
     "the body under a new key, and three times from several connections at once", 1, WAVES, 0, storm},
    {0},
};
/* clang-format on */
