/*
 * Commands run on a terminal: a person reads and answers.
 */
#ifndef TESTS_CLI_TERMINAL_H
#define TESTS_CLI_TERMINAL_H

#include "harness.h"

typedef struct terminal_run {
    int code;
    char text[16384]; /* everything that the terminal showed, terminated */
} terminal_run_t;

/*
 * Runs a command whose standard input, output and error are one terminal. When it asks a question ([y/N]), `meanwhile` is
 * called (may be NULL) and then `answer` is typed. NULL as answer: no question is expected.
 */
void run_on_terminal(terminal_run_t *result, const char *answer, void (*meanwhile)(void *data),
                     void *data, const char *const *arguments);

#endif
