/*
 * A directory tree on a disk that loses its power. The linker sends every call of the program that changes files through here
 * (--wrap, see CMakeLists.txt), and before each of them the tree is written down as a power failure at that moment would leave it:
 *
 *   a file       has what it held at its last sync; what was written since is there, is not, or is torn
 *   a directory  has the names that it had at its last sync, or those of now, each for itself
 *
 * That is all that POSIX promises. Most filesystems keep more, but nothing here relies on it. Works from any thread.
 */
#ifndef TESTS_LOCAL_VOLUME_H
#define TESTS_LOCAL_VOLUME_H

#include "content.h"

#define VOLUME_REMAINS_MAX 4000

/* What a power failure left, in a directory of its own. */
typedef struct volume_remains {
    char path[PLACE_SIZE];
    int promised; /* the number that volume_promise was last told */
} volume_remains_t;

/* From now on, with all that is below `root` as it is; what failures leave is written below `below`, which must exist. */
void volume_start(const char *root, const char *below);
/* What was done was acknowledged: failures from now on must not undo it. */
void volume_promise(int number);
/* The next sync of this directory fails with EIO. */
void volume_fail_sync(const char *directory);
/* The power fails once more, and no more after that. */
void volume_end(void);

extern volume_remains_t volume_remains[VOLUME_REMAINS_MAX];
extern unsigned volume_remains_count;

#endif
