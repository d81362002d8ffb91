/*
 * A response header on the command line: 'Name: value'.
 */
#ifndef ONCE_CLI_HEADER_H
#define ONCE_CLI_HEADER_H

#include <once/once.h>

#include "cli/cli.h"

/* `header` borrows from `text`. ONCE__CLI_OK, or ONCE__CLI_USAGE after saying what is wrong. */
int once__cli_header_read(const once__cli_command_t *command, const char *text,
                          once_header_t *header);

#endif
