#include "core/policy.h"

static int is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* Is the text this lower-case word, in any case? Locales have no say in it. */
static int is_word(const char *text, size_t len, const char *word)
{
    size_t i = 0;

    while (i < len && word[i] != '\0' && (text[i] | 0x20) == word[i]) {
        i++;
    }
    return i == len && word[i] == '\0';
}

once_verdict_t once_verdict_parse(const char *text, size_t len)
{
    while (len > 0 && is_blank(text[0])) {
        text++;
        len--;
    }
    while (len > 0 && is_blank(text[len - 1])) {
        len--;
    }
    if (is_word(text, len, "final")) {
        return ONCE_VERDICT_FINAL;
    }
    if (is_word(text, len, "retry")) {
        return ONCE_VERDICT_RETRY;
    }
    return is_word(text, len, "unknown") ? ONCE_VERDICT_UNKNOWN : ONCE_VERDICT_NONE;
}

/* Proxies in between send these while the application may still run. */
static int is_doubtful(int status)
{
    return status == 408 || status == 502 || status == 503 || status == 504;
}

/* An answer, if a client could be given it. */
static once_judgement_t record(int status)
{
    return status >= ONCE__ANSWER_MIN && status <= ONCE__ANSWER_MAX ? ONCE_JUDGEMENT_RECORD
                                                                    : ONCE_JUDGEMENT_DOUBT;
}

/* The table at once_policy_judge (once/policy.h), row by row. */
once_judgement_t once_policy_judge(const once_policy_t *policy, int status, once_verdict_t said)
{
    switch (said) {
    case ONCE_VERDICT_FINAL:
        return record(status);
    case ONCE_VERDICT_RETRY:
        return ONCE_JUDGEMENT_RELEASE;
    case ONCE_VERDICT_UNKNOWN:
        return ONCE_JUDGEMENT_DOUBT;
    case ONCE_VERDICT_NONE:
        break;
    }
    if (once__statuses_has(&policy->release, status)) {
        return ONCE_JUDGEMENT_EARLY;
    }
    if (once__statuses_has(&policy->record, status)) {
        return record(status);
    }
    if (is_doubtful(status) || status < ONCE__STATUS_MIN || status > ONCE__STATUS_MAX) {
        return ONCE_JUDGEMENT_DOUBT;
    }
    return policy->recover == ONCE_RECOVER_HOLD ? ONCE_JUDGEMENT_DOUBT : ONCE_JUDGEMENT_RELEASE;
}
