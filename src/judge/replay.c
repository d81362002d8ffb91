/*
 * Checks: what a repeated request gets, and a key that is used for another one.
 */
#include "judge/internal.h"

#include <jansson.h>
#include <string.h>
#include <strings.h>
#include <time.h>

typedef const once__judge_exchange_t *seen_t;

/* A first request and its repetition. Returns 0, or -1 after saying that it did not go that far. */
static int twice(once__judge_t *judge, seen_t seen[2])
{
    char key[ONCE__JUDGE_KEY_SIZE];
    once__judge_request_t order;

    once__judge_new_key(judge, key);
    order = once__judge_order(judge, key);
    seen[0] = once__judge_send(judge, &order);
    seen[1] = once__judge_send_until(judge, &order);
    if (!once__judge_is_success(&seen[0]->answer)) {
        (void)NOT_JUDGED("the first request is answered %s", once__judge_status(&seen[0]->answer));
        return -1;
    }
    return 0;
}

static once__judge_verdict_t replay_body(once__judge_t *judge)
{
    seen_t seen[2];

    if (twice(judge, seen) != 0) {
        return ONCE__JUDGE_NOT_JUDGED;
    }
    if (!once__judge_is_same(&seen[0]->answer, &seen[1]->answer)) {
        return FAIL("the first answer is %s with %zu bytes, the second %s with %zu%s",
                    once__judge_status(&seen[0]->answer), seen[0]->answer.body.len,
                    once__judge_status(&seen[1]->answer), seen[1]->answer.body.len,
                    seen[0]->answer.body.len == seen[1]->answer.body.len ? " others" : "");
    }
    return once__judge_one_operation(judge, seen, 2, 1);
}

static once__judge_verdict_t replay_headers(once__judge_t *judge)
{
    char why[400];
    seen_t seen[2];

    if (twice(judge, seen) != 0) {
        return ONCE__JUDGE_NOT_JUDGED;
    }
    if (once__judge_headers_differ(judge, &seen[0]->answer, &seen[1]->answer, why, sizeof(why))) {
        return FAIL("%s", why);
    }
    return PASS("the headers are those of the first answer");
}

static once__judge_verdict_t replay_told(once__judge_t *judge)
{
    const char *mark;
    seen_t seen[2];

    if (twice(judge, seen) != 0) {
        return ONCE__JUDGE_NOT_JUDGED;
    }
    mark = once__judge_mark(&seen[1]->answer);
    if (once__judge_mark(&seen[0]->answer) != NULL) {
        return FAIL("the first answer says that it is a replay");
    }
    if (mark != NULL) {
        return PASS("%s", mark);
    }
    return judge->profile->mark_required
               ? FAIL("no header says that the second answer is a replay")
               : NOT_JUDGED("no known header says it, and this profile does not ask for one");
}

/* ---------------------------------------------------------------------------------------------------------- expiry */

/* A date of HTTP, or a number of seconds. Returns seconds from now; INT64_MIN: it is neither. */
static int64_t seconds_left(once_slice_t value)
{
    char text[64];
    char *end;
    time_t date;
    long long number;

    snprintf(text, sizeof(text), "%.*s", (int)(value.len < 63 ? value.len : 63),
             (const char *)value.data);
    number = strtoll(text, &end, 10);
    if (end != text && *end == '\0') {
        return number;
    }
    date = curl_getdate(text, NULL);
    return date == (time_t)-1 ? INT64_MIN : (int64_t)date - (int64_t)time(NULL);
}

static once__judge_verdict_t expiry_told(once__judge_t *judge)
{
    char key[ONCE__JUDGE_KEY_SIZE];
    once__judge_request_t order;
    once_slice_t value;
    int64_t left;
    seen_t seen;

    once__judge_new_key(judge, key);
    order = once__judge_order(judge, key);
    seen = once__judge_send(judge, &order);
    value = once__judge_header(&seen->answer, "idempotency-expires");
    if (value.data == NULL) {
        return NOT_JUDGED("no Idempotency-Expires: the draft wants it in the documents, which the "
                          "judge cannot read");
    }
    left = seconds_left(value);
    if (left == INT64_MIN) {
        return FAIL("Idempotency-Expires is neither a date nor a number of seconds");
    }
    return left > 0 ? PASS("kept for %lld s more", (long long)left)
                    : FAIL("Idempotency-Expires is over");
}

/* ------------------------------------------------------------------------------------------------------------ reuse */

/* The key of a first request with the other body. Returns 0, or -1 after saying why it cannot be judged. */
static int reuse(once__judge_t *judge, char key[ONCE__JUDGE_KEY_SIZE], seen_t seen[2])
{
    once__judge_request_t order;

    once__judge_new_key(judge, key);
    order = once__judge_order(judge, key);
    seen[0] = once__judge_send(judge, &order);
    order.body = (once_slice_t){judge->other_body.data, judge->other_body.len};
    seen[1] = once__judge_send(judge, &order);
    if (!once__judge_is_success(&seen[0]->answer)) {
        (void)NOT_JUDGED("the first request is answered %s", once__judge_status(&seen[0]->answer));
        return -1;
    }
    return 0;
}

static once__judge_verdict_t reuse_body(once__judge_t *judge)
{
    char key[ONCE__JUDGE_KEY_SIZE];
    int64_t effects;
    seen_t seen[2];

    if (reuse(judge, key, seen) != 0) {
        return ONCE__JUDGE_NOT_JUDGED;
    }
    effects = once__judge_effects(judge, 1);
    if (effects > 1) {
        return FAIL("the other body was processed: %lld effects", (long long)effects);
    }
    if (once__judge_is_refusal(&seen[1]->answer)) {
        return PASS("%s", once__judge_status(&seen[1]->answer));
    }
    return FAIL("another body under the same key is answered %s%s",
                once__judge_status(&seen[1]->answer),
                once__judge_is_same(&seen[0]->answer, &seen[1]->answer)
                    ? " with the answer to the first one: the caller believes that it was done"
                    : "");
}

static once__judge_verdict_t reuse_status(once__judge_t *judge)
{
    char key[ONCE__JUDGE_KEY_SIZE], text[64];
    seen_t seen[2];

    if (reuse(judge, key, seen) != 0) {
        return ONCE__JUDGE_NOT_JUDGED;
    }
    if (once__judge_has_status(judge->profile->reused, seen[1]->answer.status)) {
        return PASS("%s", once__judge_status(&seen[1]->answer));
    }
    return FAIL("%s, not %s", once__judge_status(&seen[1]->answer),
                once__judge_status_text(judge->profile->reused, text));
}

static int has_member(const once__judge_answer_t *answer, const char *name)
{
    json_t *json =
        answer->body.len > 0 ? json_loadb(answer->body.data, answer->body.len, 0, NULL) : NULL;
    int found = json_object_get(json, name) != NULL;

    json_decref(json);
    return found;
}

static once__judge_verdict_t error_told(once__judge_t *judge)
{
    char key[ONCE__JUDGE_KEY_SIZE];
    const char *member = judge->profile->error_member;
    once_slice_t link, type;
    seen_t seen[2];

    if (reuse(judge, key, seen) != 0) {
        return ONCE__JUDGE_NOT_JUDGED;
    }
    if (!once__judge_is_refusal(&seen[1]->answer)) {
        return NOT_JUDGED("a reused key is not an error here: %s",
                          once__judge_status(&seen[1]->answer));
    }
    if (member != NULL) {
        return has_member(&seen[1]->answer, member) ? PASS("its JSON has \"%s\"", member)
                                                    : FAIL("no JSON with \"%s\"", member);
    }
    link = once__judge_header(&seen[1]->answer, "link");
    type = once__judge_header(&seen[1]->answer, "content-type");
    if (link.data != NULL && memmem(link.data, link.len, "describedby", 11) != NULL) {
        return PASS("a Link with rel=\"describedby\"");
    }
    if (type.len >= 24 && strncasecmp(type.data, "application/problem+json", 24) == 0 &&
        has_member(&seen[1]->answer, "type")) {
        return PASS("application/problem+json with a type");
    }
    return FAIL("neither a Link with rel=\"describedby\" nor application/problem+json with a type");
}

static once__judge_verdict_t reuse_harmless(once__judge_t *judge)
{
    char key[ONCE__JUDGE_KEY_SIZE];
    once__judge_request_t order;
    seen_t seen[3];

    if (reuse(judge, key, seen) != 0) {
        return ONCE__JUDGE_NOT_JUDGED;
    }
    order = once__judge_order(judge, key);
    seen[2] = once__judge_send_until(judge, &order);
    if (!once__judge_is_refusal(&seen[1]->answer)) {
        return NOT_JUDGED("a reused key is not an error here: %s",
                          once__judge_status(&seen[1]->answer));
    }
    seen_t both[] = {seen[0], seen[2]};
    return once__judge_one_operation(judge, both, 2, 1);
}

/* clang-format off */
const once__judge_check_t once__judge_checks_replay[] = {
    {"replay-body", "SHOULD", "2.6", "the same request again gets the same status and the same bytes, and has no effect",
     "the body under a new key, and again", 1 + ONCE__JUDGE_TRIES, 0, 0, replay_body},
    {"replay-headers", "SHOULD", "2.6", "it gets the same headers, but for those of the message itself",
     "the body under a new key, and again", 1 + ONCE__JUDGE_TRIES, 0, 0, replay_headers},
    {"replay-told", "rule", "", "a replay says that it is one, and a first answer does not",
     "the body under a new key, and again", 1 + ONCE__JUDGE_TRIES, 0, 0, replay_told},
    {"expiry-told", "SHOULD", "2.3", "the answer says until when the key is kept, and that time is not past",
     "the body under a new key", 1, 0, 0, expiry_told},
    {"reuse-body", "MUST", "2.7", "a key with another body is refused, and has no effect",
     "the body under a new key, then the other body", 2, 0,
     ONCE__JUDGE_NEEDS_OTHER_BODY, reuse_body},
    {"reuse-status", "SHOULD", "2.7", "that refusal is 422",
     "the body under a new key, then the other body", 2, 0,
     ONCE__JUDGE_NEEDS_OTHER_BODY, reuse_status},
    {"error-told", "SHOULD", "2.7", "that refusal says where it is described",
     "the body under a new key, then the other body", 2, 0,
     ONCE__JUDGE_NEEDS_OTHER_BODY, error_told},
    {"reuse-harmless", "SHOULD", "2.6", "after that refusal the first request still gets its answer",
     "the body under a new key, the other body, the body again", 2 + ONCE__JUDGE_TRIES, 0,
     ONCE__JUDGE_NEEDS_OTHER_BODY, reuse_harmless},
    {0},
};
/* clang-format on */
