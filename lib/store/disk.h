/*
 * Files: read, written, listed and locked. What the local store asks of the system for the files of its log goes through a table,
 * so that tests can intercept it.
 */
#ifndef ONCE_STORE_DISK_H
#define ONCE_STORE_DISK_H

#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <sys/types.h>
#include <unistd.h>

/* All return 0 (write and read: a count), or -1 and errno. */
typedef struct once__disk {
    int (*sync)(void *data, int fd);                    /* fdatasync of a file in segments/ */
    int (*sync_directory)(void *data, int fd);          /* fsync of segments/ */
    int (*allocate)(void *data, int fd, uint64_t size); /* real room for the whole file */
    void *data;
    /* Like pwrite(2), short writes allowed. NULL: use pwrite. */
    ssize_t (*write)(void *data, int fd, const void *bytes, size_t len, uint64_t offset);
    /* As pread. NULL: the real one. */
    ssize_t (*read)(void *data, int fd, void *bytes, size_t len, uint64_t offset);
} once__disk_t;

extern const once__disk_t once__real_disk;

/* As much of `len` bytes as there is before the end of the file; -1 and errno. */
ssize_t once__disk_read(const once__disk_t *disk, int fd, void *bytes, uint64_t len,
                        uint64_t offset);

/*
 * The same without waiting for the disk: -1 and EAGAIN if the bytes are not in memory (RWF_NOWAIT). Where the filesystem cannot
 * tell, it reads them.
 */
ssize_t once__disk_read_now(const once__disk_t *disk, int fd, void *bytes, uint64_t len,
                            uint64_t offset);

/* All of it. 0, or -1 and errno. */
int once__disk_write(const once__disk_t *disk, int fd, const void *bytes, uint64_t len,
                     uint64_t offset);

/*
 * Makes a file of these bytes, in the place of one that is there (mode 0600, synced; its name is synced with the directory). 0, or
 * -1 and errno.
 */
int once__disk_put(const once__disk_t *disk, int directory_fd, const char *name, const void *bytes,
                   uint64_t len);

/* Closes a descriptor if there is one (-1: none), and leaves errno as it is. */
static inline void once__close(int fd)
{
    int saved = errno;

    if (fd >= 0) {
        (void)close(fd);
    }
    errno = saved;
}

/* Opens a directory to list it; dirfd() is its descriptor. NULL and errno. */
DIR *once__disk_list(int directory_fd, const char *name);

/* flock(), tried for `wait_ms`. ONCE_OK; ONCE_E_CONFLICT: others have it; ONCE_E_IO. */
int once__disk_lock(int fd, int how, unsigned wait_ms);

/* May this process have a file of this size? Beyond RLIMIT_FSIZE a write raises SIGXFSZ. 1 or 0. */
int once__disk_allows(uint64_t size);

/* The code for errno after a failed write: ONCE_E_FULL (ENOSPC, EDQUOT, EFBIG, EMFILE and the like), else ONCE_E_IO. */
int once__disk_code(void);

#endif
