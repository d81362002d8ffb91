/*
 * "Did you mean": the known word nearest to a mistyped one.
 */
#ifndef ONCE_CLI_NEAREST_H
#define ONCE_CLI_NEAREST_H

#include <stddef.h>

typedef struct once__cli_nearest {
    const char *word; /* what was typed */
    const char *best; /* the nearest so far, not terminated; NULL: none is near enough */
    int best_len;
    unsigned distance;
} once__cli_nearest_t;

void once__cli_nearest_start(once__cli_nearest_t *nearest, const char *word);
void once__cli_nearest_try(once__cli_nearest_t *nearest, const char *candidate, size_t len);

#endif
