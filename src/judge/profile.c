#include "judge/internal.h"

#include <string.h>

/* docs/judge.md has them as a table. */
static const once__judge_profile_t profiles[] = {
    {
        .name = "draft07",
        .what = "draft-ietf-httpapi-idempotency-key-header-07",
        .quoted = 1,
        .malformed_refused = 1,
        .missing_refused = 1,
        .key_max = 0,
        .reused = {422},
        .in_flight = {409},
        .failures_stored = 0,
        .mark_required = 0,
        .error_member = NULL,
    },
    {
        .name = "stripe",
        .what = "APIs in the manner of Stripe's v1",
        .quoted = 0,
        .malformed_refused = 0,
        .missing_refused = 0,
        .key_max = 255,
        .reused = {400},
        .in_flight = {409},
        .failures_stored = 1,
        .mark_required = 1,
        .error_member = "error",
    },
};

#define PROFILES (sizeof(profiles) / sizeof(profiles[0]))

const once__judge_profile_t *once__judge_profile_find(const char *name)
{
    for (size_t i = 0; i < PROFILES; i++) {
        if (name == NULL || strcmp(name, profiles[i].name) == 0) {
            return &profiles[i];
        }
    }
    return NULL;
}

const char *once__judge_profile_names(void)
{
    static char names[64];

    names[0] = '\0';
    for (size_t i = 0; i < PROFILES; i++) {
        snprintf(names + strlen(names), sizeof(names) - strlen(names), "%s%s", i > 0 ? ", " : "",
                 profiles[i].name);
    }
    return names;
}

int once__judge_has_status(const int list[ONCE__JUDGE_STATUSES], int status)
{
    for (size_t i = 0; i < ONCE__JUDGE_STATUSES && list[i] != 0; i++) {
        if (list[i] == status) {
            return 1;
        }
    }
    return 0;
}

const char *once__judge_status_text(const int list[ONCE__JUDGE_STATUSES], char text[64])
{
    text[0] = '\0';
    for (size_t i = 0; i < ONCE__JUDGE_STATUSES && list[i] != 0; i++) {
        snprintf(text + strlen(text), 64 - strlen(text), "%s%d", i > 0 ? " or " : "", list[i]);
    }
    return text;
}
