/*
 * How often something took effect: a number in a JSON document of the API. Where there is none, a second execution is seen in the
 * answers, if answers to two operations differ.
 */
#include "judge/internal.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"

#define LATE_MS    2000 /* an effect may be counted a little after the answer */
#define PAUSE_MS   50
#define DEPTH_MAX  64
#define MEMBER_MAX 256

/* One step of a JSON pointer (RFC 6901) without its escapes. Returns what follows it. */
static const char *read_step(const char *at, char name[MEMBER_MAX])
{
    size_t len = 0;

    for (; *at != '\0' && *at != '/'; at++) {
        char byte = *at;
        if (byte == '~' && (at[1] == '0' || at[1] == '1')) {
            at++;
            byte = *at == '0' ? '~' : '/';
        }
        if (len + 1 < MEMBER_MAX) {
            name[len++] = byte;
        }
    }
    name[len] = '\0';
    return at;
}

static const json_t *find(const json_t *value, const char *pointer)
{
    char name[MEMBER_MAX];

    for (int depth = 0; *pointer == '/' && depth < DEPTH_MAX; depth++) {
        uint64_t number;
        pointer = read_step(pointer + 1, name);
        if (json_is_array(value) && once__number_parse(name, strlen(name), &number) == 0) {
            value = json_array_get(value, (size_t)number);
        } else {
            value = json_object_get(value, name);
        }
    }
    return *pointer == '\0' ? value : NULL;
}

/* A number, or the length of an array. -1: it is something else. */
static int64_t number_of(const json_t *value)
{
    if (json_is_array(value)) {
        return (int64_t)json_array_size(value);
    }
    return json_is_integer(value) && json_integer_value(value) >= 0
               ? (int64_t)json_integer_value(value)
               : -1;
}

int64_t once__judge_count(once__judge_t *judge, char *why, size_t size)
{
    const char *pointer =
        judge->options->effect_pointer != NULL ? judge->options->effect_pointer : "";
    char *body = once__judge_get(judge, judge->effect_url, judge->effect_is_foreign, why, size);
    json_t *json = body != NULL ? json_loads(body, JSON_DECODE_ANY, NULL) : NULL;
    int64_t number = json != NULL ? number_of(find(json, pointer)) : -1;

    if (body != NULL && json == NULL) {
        snprintf(why, size, "its answer is not JSON");
    } else if (body != NULL && number < 0) {
        snprintf(why, size, "its answer has no whole number and no array at \"%s\"", pointer);
    }
    json_decref(json);
    free(body);
    return number;
}

int64_t once__judge_effects(once__judge_t *judge, int64_t wanted)
{
    uint64_t end = once__judge_clock(judge) + LATE_MS;
    char why[200];

    if (!judge->counted) {
        return -1;
    }
    for (;;) {
        int64_t now = once__judge_count(judge, why, sizeof(why));
        int64_t made = now < 0 || judge->effects_before < 0 ? -1 : now - judge->effects_before;
        judge->now->effects = made;
        if (made < 0 || made >= wanted || once__judge_clock(judge) > end) {
            return made;
        }
        once__judge_wait(judge, PAUSE_MS);
    }
}

once__judge_verdict_t once__judge_one_operation(once__judge_t *judge,
                                                const once__judge_exchange_t *const *exchanges,
                                                size_t count, int64_t wanted)
{
    const once__judge_answer_t *first = NULL;
    int64_t effects = once__judge_effects(judge, wanted);

    if (judge->counted && effects < 0) {
        return NOT_JUDGED("the effects could not be counted");
    }
    if (effects > wanted) {
        return FAIL("%lld effects, not %lld", (long long)effects, (long long)wanted);
    }
    for (size_t i = 0; i < count; i++) {
        const once__judge_answer_t *answer = &exchanges[i]->answer;
        if (once__judge_is_not_now(answer)) {
            continue;
        }
        first = first != NULL ? first : answer;
        if (!once__judge_is_same(first, answer)) {
            return FAIL("two results for one operation: %s and %s%s", once__judge_status(first),
                        once__judge_status(answer),
                        first->status == answer->status ? " with another body" : "");
        }
    }
    if (first == NULL) {
        return FAIL("no request got a result: the last answer was %s",
                    count > 0 ? once__judge_status(&exchanges[count - 1]->answer) : "none");
    }
    if (effects >= 0 && effects < wanted) {
        return FAIL("%lld effects, not %lld: the result was answered, and nothing was done",
                    (long long)effects, (long long)wanted);
    }
    if (effects < 0 && !judge->distinct) {
        return NOT_JUDGED(
            "a second execution could not be seen: answers to two operations are equal, and "
            "there is no --effect-url");
    }
    return PASS("%s", effects >= 0 ? "one result, and as many effects as there should be"
                                   : "one result; effects are not counted");
}
