#include "cli/confirm.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "cli/text.h"

/* Reads one line, without stdio: nothing that follows it is swallowed. What does not fit is read and dropped. */
static void read_line(char *line, size_t size)
{
    size_t len = 0;
    char byte;

    while (read(STDIN_FILENO, &byte, 1) == 1 && byte != '\n') {
        if (len + 1 < size) {
            line[len++] = byte;
        }
    }
    line[len] = '\0';
}

int once__cli_confirm(const once__cli_command_t *command, int yes, const char *question)
{
    char line[16];

    if (yes) {
        return ONCE__CLI_OK;
    }
    if (!isatty(STDIN_FILENO)) {
        return once__cli_usage(command, "standard input is not a terminal: add --yes to do it "
                                        "without asking");
    }
    fflush(stdout);
    fprintf(stderr, "%s [y/N] ", question);
    fflush(stderr);
    read_line(line, sizeof(line));
    if (strcasecmp(line, "y") == 0 || strcasecmp(line, "yes") == 0) {
        return ONCE__CLI_OK;
    }
    once__cli_note("nothing was changed");
    return ONCE__CLI_REFUSED;
}
