/*
 * Aligned columns.
 */
#ifndef ONCE_CLI_TABLE_H
#define ONCE_CLI_TABLE_H

#include <stddef.h>

#include "cli/console.h"

typedef struct once__cli_table {
    const char *const *heads; /* one for each column; ">" before it: aligned to the right */
    size_t columns;
    struct once__cli_cell *cells;
    size_t count, room;
    int broken; /* out of memory */
} once__cli_table_t;

void once__cli_table_start(once__cli_table_t *table, const char *const *heads, size_t columns);

/* The next cell, left to right, row after row. Copied. */
void once__cli_table_add(once__cli_table_t *table, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Colours the cell that was added last. */
void once__cli_table_colour(once__cli_table_t *table, once__cli_colour_t colour);

/* Writes it to standard output and frees it. 0, or -1: there was not enough memory, nothing was written. */
int once__cli_table_print(once__cli_table_t *table);

#endif
