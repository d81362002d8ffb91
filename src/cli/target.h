/*
 * One record, as a person names it: by its id, the beginning of its id, its key, or scope and key.
 */
#ifndef ONCE_CLI_TARGET_H
#define ONCE_CLI_TARGET_H

#include <once/once.h>

#include "cli/cli.h"
#include "cli/scope.h"

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
