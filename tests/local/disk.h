/*
 * A disk under the test's control. It counts, fails on command, and knows what would be left after a crash: what each file held
 * at its last sync, and which names the directory had at its own.
 *
 * The hooks are called from the store's writer thread: nothing here uses the assertions of the test's thread.
 */
#ifndef TESTS_LOCAL_DISK_H
#define TESTS_LOCAL_DISK_H

#include "content.h"
#include "place.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#define DISK_FILES 256
#define DISK_NAME  32

typedef struct disk_file {
    ino_t inode;
    uint8_t *synced; /* as it was at its last sync; NULL: never */
    size_t size;
    char name[DISK_NAME]; /* when the directory was synced; empty: none */
} disk_file_t;

typedef struct disk disk_t;
struct disk {
    once__disk_t hooks; /* what a store is opened with */
    char store[PLACE_SIZE];
    pthread_mutex_t lock;
    disk_file_t files[DISK_FILES];
    size_t file_count;

    _Atomic unsigned syncs, directory_syncs;
    _Atomic int fail_sync;        /* errno of every sync; 0: they work */
    _Atomic int full;             /* no new room */
    _Atomic int fail_write;       /* errno of every write to a segment; 0: they work */
    _Atomic unsigned writes_left; /* that work before that */
    /* reads that touch this byte of the first segment fail with EIO; 0: none do */
    _Atomic uint64_t fail_read;
    _Atomic unsigned short_write; /* bytes that a write takes at most; 0: all of them */

    /* Called before a sync, and before a sync of the directory, with the disk locked: now a crash would hurt most. */
    void (*boundary)(disk_t *disk, void *data);
    void *data;
};

/* For the store at `path`, which must be closed and whole. */
void disk_init(disk_t *disk, const char *path);
void disk_free(disk_t *disk);

/* From now on every read of a segment is asked of this disk. Before the store is opened. */
void disk_read_by_hook(disk_t *disk);

/*
 * Builds at `to` the store as a crash now would leave it: each sector that was written since the last sync is there, is not, or is
 * torn; each file whose size changed has the old one or the new one; each file whose name changed since the last sync of the
 * directory has the old name or the new one. The disk is locked.
 */
void disk_crash(disk_t *disk, survival_t survival, dice_t *dice, const char *to);

#endif
