/*
 * What a person at a terminal sees: colours, questions, progress.
 */
#ifndef ONCE_CLI_CONSOLE_H
#define ONCE_CLI_CONSOLE_H

#include <stdint.h>
#include <stdio.h>

#include "cli/cli.h"

typedef enum once__cli_colour {
    ONCE__CLI_PLAIN, /* ends the others */
    ONCE__CLI_BOLD,
    ONCE__CLI_RED,
    ONCE__CLI_GREEN,
    ONCE__CLI_YELLOW,
} once__cli_colour_t;

/* The escape sequence; "" if the stream is not a terminal, the terminal is dumb, or NO_COLOR is set. */
const char *once__cli_colour(FILE *stream, once__cli_colour_t colour);

/*
 * Asks "QUESTION [y/N]" on the terminal. Returns ONCE__CLI_OK if the answer is yes or the option `yes` is given, ONCE__CLI_REFUSED
 * if it is not yes, ONCE__CLI_USAGE if standard input is not a terminal (the message says to add --yes).
 */
int once__cli_confirm(const once__cli_command_t *command, int yes, const char *question);

/* How far a long command is: on standard error, if that is a terminal. */
typedef struct once__cli_progress {
    int on;
    int shown; /* percent; -1: nothing is shown */
} once__cli_progress_t;

void once__cli_progress_start(once__cli_progress_t *progress);
void once__cli_progress_show(once__cli_progress_t *progress, uint64_t done, uint64_t total);

/* Takes it off the line: something else is to be written, or it is over. */
void once__cli_progress_clear(once__cli_progress_t *progress);

#endif
