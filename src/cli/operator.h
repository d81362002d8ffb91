/*
 * Who decides, and why: what the audit trail says about every command that changes what an operation is known to have done.
 */
#ifndef ONCE_CLI_OPERATOR_H
#define ONCE_CLI_OPERATOR_H

#include <once/audit.h>

#include "cli/cli.h"

typedef struct once__cli_operator {
    const char *as;   /* --as; NULL: USER@HOST */
    const char *note; /* --note */
} once__cli_operator_t;

/* Rows of an option table; `base` is the offset of a once__cli_operator_t in the settings. */
/* clang-format off */
#define ONCE__CLI_OPERATOR_OPTIONS(base)                                                                               \
    {"note", 0, ONCE__CLI_TEXT, "TEXT", "why, for the audit trail: required; no personal data",                        \
     (base) + offsetof(once__cli_operator_t, note)},                                                                   \
    {"as", 0, ONCE__CLI_TEXT, "NAME", "who decides (default: USER@HOST)", (base) + offsetof(once__cli_operator_t, as)}
/* clang-format on */

typedef struct once__cli_name {
    char text[ONCE_AUDIT_BY_MAX + 1];
} once__cli_name_t;

/* Is there a note, and do both fit? Returns ONCE__CLI_OK, or ONCE__CLI_USAGE after an error message. */
int once__cli_operator_check(const once__cli_command_t *command,
                             const once__cli_operator_t *operator);

/* The name to record: --as, or the user of this process at this host. */
once__cli_name_t once__cli_operator_name(const once__cli_operator_t *operator);

/* Has the handle record what it decides from now on. The settings were checked. */
int once__cli_operator_act(once_t *once, const once__cli_operator_t *operator);

/*
 * Adds an entry about more than one thing: the intent (`of` 0, `result` ""), or its result. Returns its number; 0 after saying why
 * it could not be added.
 */
uint64_t once__cli_operator_add(once_t *once, const char *act, const char *object, uint64_t of,
                                const char *result);

/* The decisions that follow are covered by such an entry: they leave none of their own. */
void once__cli_operator_covered(once_t *once);

#endif
