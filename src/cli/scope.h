/*
 * The scope as an option. It may be a credential: it can come from a file, and is never printed.
 */
#ifndef ONCE_CLI_SCOPE_H
#define ONCE_CLI_SCOPE_H

#include <once/once.h>

#include "cli/cli.h"
#include "cli/file.h"

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

int once__cli_scope_given(const once__cli_scope_t *scope);

/* The scope's bytes. ONCE__CLI_OK, or an exit code after saying what is wrong. Free with once__cli_bytes_free. */
int once__cli_scope_read(const once__cli_command_t *command, const once__cli_scope_t *scope,
                         once__cli_bytes_t *bytes);

/*
 * The scope's keyed hash, and the id of one of its records. Both wait for the store's secrets. ONCE__CLI_OK, or an exit code
 * after saying what is wrong.
 */
int once__cli_scope_hash(once_t *once, once_slice_t scope, uint8_t hash[ONCE_SCOPE_HASH_SIZE]);
int once__cli_id_of(once_t *once, once_slice_t scope, const char *key, uint8_t id[ONCE_ID_SIZE]);

#endif
