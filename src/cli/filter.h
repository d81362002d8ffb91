/*
 * Which records: the options that list, purge and export share.
 */
#ifndef ONCE_CLI_FILTER_H
#define ONCE_CLI_FILTER_H

#include <once/once.h>

#include "cli/cli.h"
#include "cli/scope.h"

typedef struct once__cli_filter {
    const char *state;
    int stuck;
    once__cli_number_t older;
    once__cli_number_t younger;
    once__cli_scope_t scope;
    const char *scope_hash;
    once__cli_number_t limit;
} once__cli_filter_t;

/* Rows of an option table; `base` is the offset of a once__cli_filter_t in the settings. */
/* clang-format off */
#define ONCE__CLI_FILTER_OPTIONS(base)                                                                                 \
    {"state", 0, ONCE__CLI_TEXT, "LIST", "in one of these states: pending,completed,failed,unknown",                   \
     (base) + offsetof(once__cli_filter_t, state)},                                                                    \
    {"stuck", 0, ONCE__CLI_FLAG, NULL, "pending with the lease over, or unknown",                                      \
     (base) + offsetof(once__cli_filter_t, stuck)},                                                                    \
    {"older", 0, ONCE__CLI_DURATION, "AGE", "first claimed at least this long ago",                                     \
     (base) + offsetof(once__cli_filter_t, older)},                                                                    \
    {"younger", 0, ONCE__CLI_DURATION, "AGE", "first claimed less than this long ago",                                  \
     (base) + offsetof(once__cli_filter_t, younger)},                                                                  \
    ONCE__CLI_SCOPE_OPTIONS((base) + offsetof(once__cli_filter_t, scope)),                                             \
    {"scope-hash", 0, ONCE__CLI_TEXT, "HEX", "in scopes whose keyed hash begins with HEX",                             \
     (base) + offsetof(once__cli_filter_t, scope_hash)},                                                               \
    {"limit", 0, ONCE__CLI_NUMBER, "N", "at most N records (0: no limit)", (base) + offsetof(once__cli_filter_t, limit)}
/* clang-format on */

/* A filter for the store. `filter` points into itself: do not copy it. */
typedef struct once__cli_chosen {
    once_filter_t filter;
    uint8_t scope_hash[ONCE_SCOPE_HASH_SIZE];
} once__cli_chosen_t;

/* Is anything asked for but the limit? */
int once__cli_filter_given(const once__cli_filter_t *settings);

/* ONCE__CLI_OK, or an exit code after saying what is wrong. */
int once__cli_filter(const once__cli_command_t *command, const once__cli_filter_t *settings,
                     once_t *once, once__cli_chosen_t *chosen);

#endif
