/*
 * The directory of a local store: made, checked, locked, and its index opened or made anew.
 */
#ifndef ONCE_STORE_LOCAL_DIRECTORY_H
#define ONCE_STORE_LOCAL_DIRECTORY_H

#include "store/local/index.h"

struct once__disk;

typedef struct once__directory {
    const struct once__disk *disk; /* under the segments */
    int fd;
    int segments_fd;
    int lock_fd;
    uint8_t boot_id[ONCE__BOOT_ID_SIZE];
    once__index_t *index;
    char *secrets_path;
} once__directory_t;

/*
 * Opens the store at `path`, making it when there is nothing (the parent must exist). A directory that is something else is
 * left as it is. Every error names the path and says what to do: ONCE_E_CONFIG (not a once directory, foreign owner, open to
 * others, no directory), ONCE_E_NEWER, ONCE_E_CORRUPT (missing segment), ONCE_E_SECRET, ONCE_E_CONFLICT (others use it, and its
 * index cannot be used), ONCE_E_FULL, ONCE_E_IO, ONCE_E_NOMEM.
 */
int once__directory_open(once__directory_t *directory, const char *path, once_error_t *err);

/* The same with another disk under it, which must live as long. */
int once__directory_open_on(once__directory_t *directory, const char *path,
                            const struct once__disk *disk, once_error_t *err);

/* The last one out leaves a clean index. Everything was appended and sealed before. */
void once__directory_close(once__directory_t *directory);

/* Without a clean end: the index stays as it is. */
void once__directory_leave(once__directory_t *directory);

/* Memory and descriptors only: in a child of fork(), whose parent goes on with the lock. */
void once__directory_abandon(once__directory_t *directory);

#endif
