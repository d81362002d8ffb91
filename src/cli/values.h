/*
 * Values of options that make no sense for any of the long-running commands: better refused at the start than met later.
 */
#ifndef ONCE_CLI_VALUES_H
#define ONCE_CLI_VALUES_H

#include "cli/cli.h"

/*
 * All options of a call: texts are not empty and have no control characters, numbers have 32 bits, durations are 30 days at most.
 * ONCE__CLI_OK, or ONCE__CLI_USAGE after saying which one is wrong.
 */
int once__cli_check_values(const once__cli_call_t *call);

/* Can the file that an option names be read? NULL is fine. */
int once__cli_check_file(const once__cli_call_t *call, const char *option, const char *path);

#endif
