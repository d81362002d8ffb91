#include "store/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <once/error.h>

static int real_sync(void *data, int fd)
{
    return fdatasync(fd);
}

static int real_sync_directory(void *data, int fd)
{
    return fsync(fd);
}

/* A file without holes, so that a full disk is noticed here. Filesystems that cannot reserve get zeros (posix_fallocate). */
static int real_allocate(void *data, int fd, uint64_t size)
{
    int code;

    do {
        code = fallocate(fd, 0, 0, (off_t)size);
    } while (code != 0 && errno == EINTR);
    if (code != 0 && errno == EOPNOTSUPP) {
        errno = posix_fallocate(fd, 0, (off_t)size);
        code = errno == 0 ? 0 : -1;
    }
    return code;
}

const once__disk_t once__real_disk = {
    .sync = real_sync, .sync_directory = real_sync_directory, .allocate = real_allocate};

/* preadv2 with RWF_NOWAIT; where the filesystem does not know that, as pread. */
static ssize_t read_now(int fd, void *bytes, size_t len, off_t offset)
{
#ifdef RWF_NOWAIT
    struct iovec all = {bytes, len};
    ssize_t n = preadv2(fd, &all, 1, offset, RWF_NOWAIT);
    if (n >= 0 || (errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL)) {
        return n;
    }
#endif
    return pread(fd, bytes, len, offset);
}

static ssize_t read_all(const once__disk_t *disk, int fd, uint8_t *to, uint64_t len,
                        uint64_t offset, int now)
{
    uint64_t done = 0;

    while (done < len) {
        size_t rest = (size_t)(len - done);
        uint64_t at = offset + done;
        ssize_t n = disk->read != NULL ? disk->read(disk->data, fd, to + done, rest, at)
                    : now              ? read_now(fd, to + done, rest, (off_t)at)
                                       : pread(fd, to + done, rest, (off_t)at);
        if (n < 0 && errno != EINTR) {
            return -1;
        }
        if (n == 0) {
            break;
        }
        done += n > 0 ? (uint64_t)n : 0;
    }
    return (ssize_t)done;
}

ssize_t once__disk_read(const once__disk_t *disk, int fd, void *bytes, uint64_t len,
                        uint64_t offset)
{
    return read_all(disk, fd, bytes, len, offset, 0);
}

ssize_t once__disk_read_now(const once__disk_t *disk, int fd, void *bytes, uint64_t len,
                            uint64_t offset)
{
    return read_all(disk, fd, bytes, len, offset, 1);
}

int once__disk_write(const once__disk_t *disk, int fd, const void *bytes, uint64_t len,
                     uint64_t offset)
{
    const uint8_t *from = bytes;

    while (len > 0) {
        ssize_t n = disk->write != NULL ? disk->write(disk->data, fd, from, (size_t)len, offset)
                                        : pwrite(fd, from, (size_t)len, (off_t)offset);
        if (n < 0 && errno != EINTR) {
            return -1;
        }
        if (n == 0) {
            errno = EIO;
            return -1;
        }
        if (n > 0) {
            from += n;
            len -= (uint64_t)n;
            offset += (uint64_t)n;
        }
    }
    return 0;
}

int once__disk_put(const once__disk_t *disk, int directory_fd, const char *name, const void *bytes,
                   uint64_t len)
{
    int fd, ok;

    (void)unlinkat(directory_fd, name, 0);
    fd = openat(directory_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    ok = fd >= 0 && fchmod(fd, 0600) == 0;
    if (ok && !once__disk_allows(len)) {
        ok = 0;
        errno = EFBIG;
    }
    ok = ok && once__disk_write(disk, fd, bytes, len, 0) == 0 && disk->sync(disk->data, fd) == 0;
    once__close(fd);
    return ok ? 0 : -1;
}

DIR *once__disk_list(int directory_fd, const char *name)
{
    int fd = openat(directory_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    DIR *stream = fd >= 0 ? fdopendir(fd) : NULL;

    if (stream == NULL) {
        once__close(fd);
    }
    return stream;
}

int once__disk_lock(int fd, int how, unsigned wait_ms)
{
    for (unsigned i = 0; flock(fd, how | LOCK_NB) != 0; i++) {
        if (errno != EWOULDBLOCK && errno != EINTR) {
            return ONCE_E_IO;
        }
        if (errno == EWOULDBLOCK && i >= wait_ms) {
            return ONCE_E_CONFLICT;
        }
        (void)poll(NULL, 0, 1);
    }
    return ONCE_OK;
}

int once__disk_allows(uint64_t size)
{
    struct rlimit limit;

    return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
           size <= limit.rlim_cur;
}

int once__disk_code(void)
{
    switch (errno) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMFILE:
    case ENFILE:
        return ONCE_E_FULL;
    default:
        return ONCE_E_IO;
    }
}
