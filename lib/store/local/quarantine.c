#include "store/local/quarantine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static int close_after(int fd, int code)
{
    int saved = errno;

    if (fd >= 0) {
        (void)close(fd);
    }
    errno = saved;
    return code;
}

/* Its name is durable when it is there. */
static int open_folder(int directory_fd)
{
    int made = mkdirat(directory_fd, "quarantine", 0700) == 0;

    if (made && fsync(directory_fd) != 0) {
        return -1;
    }
    return openat(directory_fd, "quarantine", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
}

static int write_all(int fd, const uint8_t *data, uint64_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, data, len);
        if (n < 0 && errno != EINTR) {
            return -1;
        }
        data += n > 0 ? n : 0;
        len -= n > 0 ? (uint64_t)n : 0;
    }
    return fsync(fd);
}

int once__quarantine_keep(int directory_fd, once__place_t place, const uint8_t *data, uint64_t len)
{
    int folder = open_folder(directory_fd), fd = -1, kept;
    char name[64];

    (void)snprintf(name, sizeof(name), "%08x-%llu", place.segment,
                   (unsigned long long)place.offset);
    if (folder >= 0) {
        fd = openat(folder, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    }
    kept = fd >= 0 && write_all(fd, data, len) == 0 && fsync(folder) == 0;
    kept = close_after(fd, kept);
    if (close_after(folder, kept)) {
        return ONCE_OK;
    }
    return errno == ENOSPC || errno == EDQUOT ? ONCE_E_FULL : ONCE_E_IO;
}
