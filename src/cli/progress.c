#include "cli/progress.h"

#include <stdio.h>
#include <unistd.h>

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
