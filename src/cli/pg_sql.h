/*
 * The files of sql/, built into the program: in the order in which they are applied.
 */
#ifndef ONCE_CLI_PG_SQL_H
#define ONCE_CLI_PG_SQL_H

#include <stddef.h>

typedef struct once__cli_pg_file {
    const char *name; /* below sql/ */
    const char *text;
} once__cli_pg_file_t;

extern const once__cli_pg_file_t once__cli_pg_files[];
extern const size_t once__cli_pg_files_count;

#endif
