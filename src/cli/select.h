/*
 * Which records a command is about: one record as a person names it, or all that match a filter.
 */
#ifndef ONCE_CLI_SELECT_H
#define ONCE_CLI_SELECT_H

#include <once/once.h>

#include "cli/cli.h"
#include "cli/file.h"

/* The scope as an option. It may be a credential: it can come from a file, and is never printed. */
typedef struct once__cli_scope {
    const char *text; /* --scope */
    const char *file; /* --scope-file */
} once__cli_scope_t;

/* Rows of an option table; `base` is the offset of a once__cli_scope_t in the settings. */
/* clang-format off */
#define ONCE__CLI_SCOPE_OPTIONS(base)                                                                                  \
    {"scope", 0, ONCE__CLI_TEXT, "SCOPE", "in this scope (\"\": the empty one)",                                       \
     (base) + offsetof(once__cli_scope_t, text)},                                                                      \
    {"scope-file", 0, ONCE__CLI_TEXT, "FILE", "in the scope that FILE contains (-: stdin)",                            \
     (base) + offsetof(once__cli_scope_t, file)}
/* clang-format on */

/* Which records: the options that list, purge and export share. */
typedef struct once__cli_filter {
    const char *state;
    int stuck;
    once__cli_number_t older;
    once__cli_number_t younger;
    once__cli_scope_t scope;
    const char *scope_hash;
    const char *subject;
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
    {"subject", 0, ONCE__CLI_TEXT, "SUBJECT", "of this person, as once_subject names it",                               \
     (base) + offsetof(once__cli_filter_t, subject)},                                                                  \
    {"limit", 0, ONCE__CLI_NUMBER, "N", "at most N records (0: no limit)", (base) + offsetof(once__cli_filter_t, limit)}
/* clang-format on */

/* A filter for the store. `filter` points into itself: do not copy it. */
typedef struct once__cli_chosen {
    once_filter_t filter;
    uint8_t scope_hash[ONCE_SCOPE_HASH_SIZE];
    uint8_t subject_hash[ONCE_SUBJECT_SIZE];
} once__cli_chosen_t;

/* Is anything asked for but the limit? */
int once__cli_filter_given(const once__cli_filter_t *settings);

/* Returns ONCE__CLI_OK, or an exit code after an error message. */
int once__cli_filter(const once__cli_command_t *command, const once__cli_filter_t *settings,
                     once_t *once, once__cli_chosen_t *chosen);

/* One record: by its id, the beginning of its id, its key, or scope and key. */
typedef struct once__cli_target {
    const char *id; /* the operand: an id, its beginning, or a key; NULL: by scope and key */
    once__cli_scope_t scope;
    const char *key;
    const char *claim; /* the claim that the record must still have; NULL: any */
} once__cli_target_t;

#define ONCE__CLI_ID_MIN 8 /* hex digits that the beginning of an id has at least */

/* Rows of an option table; `offset` is that of a text in the settings. */
/* clang-format off */
#define ONCE__CLI_KEY_OPTION(offset)                                                                                   \
    {"key", 0, ONCE__CLI_TEXT, "KEY", "the record with this key; needs the scope", (offset)}
#define ONCE__CLI_CLAIM_OPTION(offset)                                                                                 \
    {"claim", 0, ONCE__CLI_TEXT, "CLAIM", "only if its claim is still this one (from keys show)", (offset)}
/* clang-format on */

/*
 * Reads the record into `*answer`; free it with once_answer_free. Returns ONCE__CLI_OK, or an exit code after an error message:
 * not found, several records fit, or its claim is not `target->claim`.
 */
int once__cli_target_read(const once__cli_command_t *command, const once__cli_target_t *target,
                          once_t *once, once_answer_t **answer);

#endif
