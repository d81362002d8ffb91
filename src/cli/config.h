/*
 * Options of a long-running command in a file: `once gate --config /etc/once/gate.conf`.
 *
 * A line is the name of an option, without dashes, and its value; a flag stands alone. Operands have the names of the usage in
 * lower case (`from`, `to`); the URL of a store is `store`. Empty lines and lines that begin with # count for nothing. What the
 * command line says wins; lists of both are joined.
 *
 *     upstream  http://127.0.0.1:3000
 *     route     POST /payments recover=hold
 *     log-json
 *
 * A value `@FILE` is the first line of that file: for URLs with a password. ${CREDENTIALS_DIRECTORY} is replaced in every value,
 * and a FILE that is no path is looked for there, which is where systemd's LoadCredential= puts files.
 */
#ifndef ONCE_CLI_CONFIG_H
#define ONCE_CLI_CONFIG_H

#include <stddef.h>

#include "cli/cli.h"

/* The option that makes a command read a file; its field is a const char *. */
#define ONCE__CLI_CONFIG_OPTION(offset)                                                            \
    {                                                                                              \
        "config", 'c', ONCE__CLI_TEXT, "FILE",                                                     \
            "read options from FILE: a NAME and its VALUE on each line", (offset)                  \
    }

#define ONCE__CLI_CONFIG_OPERANDS 4

/* A file as arguments. */
typedef struct once__cli_config {
    struct {
        char *text;    /* `--name=value`, owned */
        unsigned line; /* of the file */
    } * words;
    size_t count, room;
    char
        *operands[ONCE__CLI_CONFIG_OPERANDS]; /* in the order of the usage; NULL: not in the file */
} once__cli_config_t;

/* The FILE of --config in a command line, or NULL. */
const char *once__cli_config_named(const once__cli_command_t *command, int argc, char **argv);

/* Returns 0, or an exit code after an error message. Free it in both cases. */
int once__cli_config_read(const once__cli_command_t *command, const char *path,
                          once__cli_config_t *config);
void once__cli_config_free(once__cli_config_t *config);

#endif
