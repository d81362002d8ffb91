/*
 * Files that hold secrets: regular, private to their owner, written whole or not at all.
 */
#ifndef ONCE_STORE_SECRET_FILE_H
#define ONCE_STORE_SECRET_FILE_H

#include <stddef.h>

#include <once/error.h>

/*
 * Reads a private file into `text` (terminated). ONCE_E_NOT_FOUND; ONCE_E_SECRET: not a regular file, of a foreign owner,
 * open to others, too long; ONCE_E_IO. The error message names the file and says what to do.
 */
int once__secret_file_read(const char *path, char *text, size_t size, once_error_t *err);

/*
 * Syncs the file's directory: the process that created the file may have ended before it did so, and a power failure would then
 * remove the file. Call it before anything is recorded with its secrets. Returns ONCE_OK or ONCE_E_IO.
 */
int once__secret_file_keep(const char *path, once_error_t *err);

/* Creates the file with `text` (mode 0600, synced) unless it exists, which is not an error: another process was first. */
int once__secret_file_create(const char *path, const char *text, once_error_t *err);

/*
 * Replaces the contents if they are still `old`. ONCE_E_CONFLICT if not, ONCE_E_UNAVAILABLE while another process is doing it,
 * ONCE_E_UNSUPPORTED if the file cannot be written. Never waits for a lock.
 */
int once__secret_file_swap(const char *path, const char *old, const char *text, once_error_t *err);

#endif
