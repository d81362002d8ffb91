/*
 * Whole files in memory.
 */
#ifndef ONCE_CLI_FILE_H
#define ONCE_CLI_FILE_H

#include <stddef.h>

typedef struct once__cli_bytes {
    char *data; /* malloc'd; never NULL after success; terminated, the terminator is not counted */
    size_t len;
} once__cli_bytes_t;

/*
 * Reads a file, or standard input for "-", of at most `limit` bytes. Returns ONCE__CLI_OK, or an exit code after an error message.
 * Free with once__cli_bytes_free.
 */
int once__cli_read_file(const char *path, size_t limit, once__cli_bytes_t *bytes);
void once__cli_bytes_free(once__cli_bytes_t *bytes);

/* Takes one line end (\n or \r\n) from the end: what an editor or echo adds. */
void once__cli_chomp(once__cli_bytes_t *bytes);

#endif
