/*
 * A store's directory from outside: what can be told of it, and the parts of its opening that change nothing.
 */
#ifndef ONCE_STORE_LOCAL_LOOK_H
#define ONCE_STORE_LOCAL_LOOK_H

#include "store/local/directory.h"

/*
 * Opens what there is for looking only, without a lock: `fd`, `segments_fd`, `boot_id`. Ended by once__directory_abandon.
 * Errors as once__directory_open, and ONCE_E_NOT_FOUND: there is no store.
 */
int once__directory_look(once__directory_t *directory, const char *path, once_error_t *err);

/*
 * Locks the store: for the one who wants it for himself (LOCK_EX; ONCE_E_CONFLICT: others are there), or along with others
 * (LOCK_SH; waits for one who is alone with it; ONCE_E_NOT_FOUND: nobody has ever opened it).
 */
int once__directory_lock(once__directory_t *directory, int how);

/* Waits for a shared lock of a file. 0, or -1 and errno. */
int once__lock_shared(int fd);

/* What is on the disk beside the segments in use. */
typedef struct once__sizes {
    uint64_t summaries, summary_bytes;
    uint64_t spares, spare_bytes;
    uint64_t quarantined, quarantine_bytes;
    uint64_t index_bytes; /* that take room */
} once__sizes_t;

void once__directory_sizes(const once__directory_t *directory, once__sizes_t *sizes);

/* ---- steps of opening ---- */

/* Opens `path` (`make`: also when there is nothing yet) and looks whether it may be used. Leaves a wrong directory as it is. */
int once__directory_start(once__directory_t *directory, const char *path, int make,
                          once_error_t *err);
/* The error of a segment that belongs to another user, as after a restore by root: that user could change it. */
int once__segment_foreign(uint32_t number, once_error_t *err);

/* The error of a store whose segments/ is gone. */
int once__segments_missing(const char *path, once_error_t *err);
int once__directory_open_segments(once__directory_t *directory, const char *path,
                                  once_error_t *err);

/*
 * Which file the index is: empty when there is none. A copy of the directory has another one. Its index would look like one of
 * this boot, but was copied while it changed, and not at one moment with the segments: the file `lock` knows the right one.
 */
#define ONCE__IDENTITY_SIZE 80
void once__directory_identify(const once__directory_t *directory, char out[ONCE__IDENTITY_SIZE]);

/* Is the index the one that `lock` knows? 1 or 0. */
int once__directory_is_known(const once__directory_t *directory);

/* Is there an index that can be used along with others: known, complete, of this boot? 1 or 0. */
int once__directory_has_index(const once__directory_t *directory);

#endif
