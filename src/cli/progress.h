/*
 * How far a long command is: on standard error, when that is a terminal.
 */
#ifndef ONCE_CLI_PROGRESS_H
#define ONCE_CLI_PROGRESS_H

#include <stdint.h>

typedef struct once__cli_progress {
    int on;
    int shown; /* percent; -1: nothing is shown */
} once__cli_progress_t;

void once__cli_progress_start(once__cli_progress_t *progress);
void once__cli_progress_show(once__cli_progress_t *progress, uint64_t done, uint64_t total);

/* Takes it off the line: something else is to be written, or it is over. */
void once__cli_progress_clear(once__cli_progress_t *progress);

#endif
