/*
 * Questions before something is changed.
 */
#ifndef ONCE_CLI_CONFIRM_H
#define ONCE_CLI_CONFIRM_H

#include "cli/cli.h"

/*
 * Asks "QUESTION [y/N]" on the terminal. ONCE__CLI_OK: yes, or `yes` was given as an option. ONCE__CLI_REFUSED: the person did
 * not say yes. ONCE__CLI_USAGE: standard input is no terminal, so nobody can be asked; says to add --yes.
 */
int once__cli_confirm(const once__cli_command_t *command, int yes, const char *question);

#endif
