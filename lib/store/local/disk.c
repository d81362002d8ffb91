#include "store/local/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
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

ssize_t once__disk_read(const once__disk_t *disk, int fd, void *bytes, uint64_t len,
                        uint64_t offset)
{
    uint8_t *to = bytes;
    uint64_t done = 0;

    while (done < len) {
        ssize_t n = disk->read != NULL
                        ? disk->read(disk->data, fd, to + done, (size_t)(len - done), offset + done)
                        : pread(fd, to + done, (size_t)(len - done), (off_t)(offset + done));
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

ssize_t once__disk_read_now(const once__disk_t *disk, int fd, void *bytes, uint64_t len,
                            uint64_t offset)
{
    uint8_t *to = bytes;
    uint64_t done = 0;

#ifdef RWF_NOWAIT
    while (disk->read == NULL && done < len) {
        struct iovec rest = {to + done, (size_t)(len - done)};
        ssize_t n = preadv2(fd, &rest, 1, (off_t)(offset + done), RWF_NOWAIT);
        if (n < 0 && (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL)) {
            break;
        }
        if (n < 0 && errno != EINTR) {
            return -1;
        }
        if (n == 0) {
            return (ssize_t)done;
        }
        done += n > 0 ? (uint64_t)n : 0;
    }
#endif
    if (done < len) {
        ssize_t n = once__disk_read(disk, fd, to + done, len - done, offset + done);
        return n < 0 ? -1 : (ssize_t)(done + (uint64_t)n);
    }
    return (ssize_t)done;
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
