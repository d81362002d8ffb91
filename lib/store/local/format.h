/*
 * What a directory is: a local store, a place for a new one, or something else. Looking changes nothing.
 */
#ifndef ONCE_STORE_LOCAL_FORMAT_H
#define ONCE_STORE_LOCAL_FORMAT_H

#include <once/error.h>

typedef enum once__format {
    ONCE__FORMAT_OK, /* a store of this version */
    ONCE__FORMAT_NONE, /* empty, or what a killed process left of a new store: a store can be made here */
    ONCE__FORMAT_FOREIGN, /* something else is in it */
    ONCE__FORMAT_NEWER,
    ONCE__FORMAT_DAMAGED,
    ONCE__FORMAT_UNREADABLE, /* errno says why */
} once__format_t;

once__format_t once__format_look(int directory_fd);

/* The error that belongs to what was seen; ONCE_OK with the first two. */
int once__format_check(once__format_t format, const char *path, once_error_t *err);

/* Makes the directory a store, durably. The caller has it to himself. ONCE_OK, ONCE_E_FULL, ONCE_E_IO. */
int once__format_write(int directory_fd, const char *path, once_error_t *err);
/* Makes the names in the directory durable, and its own. */
int once__format_keep(int directory_fd, const char *path, once_error_t *err);

/* May this user and this machine use it? ONCE_E_CONFIG: foreign owner, open to others, on a network filesystem. */
int once__format_admit(int directory_fd, const char *path, once_error_t *err);

/* "local store: WHAT PATH: REASON; what to do", by errno. ONCE_E_FULL, ONCE_E_CONFIG or ONCE_E_IO. */
int once__local_errno(once_error_t *err, const char *what, const char *path);

#endif
