#include "cli/console.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "cli/text.h"

const char *once__cli_colour(FILE *stream, once__cli_colour_t colour)
{
    static const char *const sequences[] = {[ONCE__CLI_PLAIN] = "\033[0m",
                                            [ONCE__CLI_BOLD] = "\033[1m",
                                            [ONCE__CLI_RED] = "\033[1;31m",
                                            [ONCE__CLI_GREEN] = "\033[32m",
                                            [ONCE__CLI_YELLOW] = "\033[33m"};
    const char *refused = getenv("NO_COLOR");
    const char *terminal = getenv("TERM");

    if ((refused != NULL && refused[0] != '\0') ||
        (terminal != NULL && strcmp(terminal, "dumb") == 0) || !isatty(fileno(stream))) {
        return "";
    }
    return sequences[colour];
}

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

void once__cli_progress_start(once__cli_progress_t *progress)
{
    progress->on = isatty(STDERR_FILENO);
    progress->shown = -1;
}

void once__cli_progress_show(once__cli_progress_t *progress, uint64_t done, uint64_t total)
{
    int percent = done < total ? (int)((double)done * 100 / (double)total) : 100;

    if (progress->on && percent != progress->shown) {
        fflush(stdout);
        fprintf(stderr, "\r%3d %%", percent);
        fflush(stderr);
        progress->shown = percent;
    }
}

void once__cli_progress_clear(once__cli_progress_t *progress)
{
    if (progress->shown >= 0) {
        fputs("\r     \r", stderr);
        fflush(stderr);
        progress->shown = -1;
    }
}
