#include "store/secret_file.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "store/disk.h"

#define PATH_SIZE 4096

static int fail_errno(once_error_t *err, const char *what, const char *path)
{
    return once__fail(err, ONCE_E_IO, "%s %.120s: %s", what, path, strerror(errno));
}

static int check_private(int fd, const char *path, once_error_t *err)
{
    struct stat st;

    if (fstat(fd, &st) != 0) {
        return fail_errno(err, "cannot look at", path);
    }
    if (!S_ISREG(st.st_mode)) {
        return once__fail(err, ONCE_E_SECRET, "%.120s is not a regular file", path);
    }
    if (st.st_uid != geteuid() && st.st_uid != 0) {
        return once__fail(err, ONCE_E_SECRET,
                          "%.120s belongs to another user; chown it to this one", path);
    }
    if ((st.st_mode & 077) != 0) {
        return once__fail(err, ONCE_E_SECRET, "%.120s is open to others; chmod 600 it", path);
    }
    return ONCE_OK;
}

/* Into the caller's memory, which it wipes: a buffer that grows would leave copies of the secrets behind. */
static int read_all(int fd, const char *path, char *text, size_t size, once_error_t *err)
{
    ssize_t len = once__disk_read(&once__real_disk, fd, text, size, 0);

    if (len < 0) {
        return fail_errno(err, "cannot read", path);
    }
    if ((size_t)len == size) {
        return once__fail(err, ONCE_E_SECRET, "%.120s is too long to be a secrets file", path);
    }
    text[len] = '\0';
    return ONCE_OK;
}

int once__secret_file_read(const char *path, char *text, size_t size, once_error_t *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int code;

    if (fd < 0 && errno == ENOENT) {
        return once__fail(err, ONCE_E_NOT_FOUND, "%.120s does not exist", path);
    }
    if (fd < 0) {
        return fail_errno(err, "cannot open", path);
    }
    code = check_private(fd, path, err);
    if (code == ONCE_OK) {
        code = read_all(fd, path, text, size, err);
    }
    (void)close(fd);
    return code;
}

/* A synced private file with `text` beside `path`; its name goes to `temp`. */
static int write_temp(const char *path, const char *text, char temp[PATH_SIZE], once_error_t *err)
{
    int fd;

    if (snprintf(temp, PATH_SIZE, "%s.XXXXXX", path) >= PATH_SIZE) {
        return once__fail(err, ONCE_E_CONFIG, "the secrets file's path is too long");
    }
    fd = mkostemp(temp, O_CLOEXEC); /* mode 0600 */
    if (fd < 0) {
        return fail_errno(err, "cannot create a file beside", path);
    }
    if (once__disk_write(&once__real_disk, fd, text, strlen(text), 0) != 0 || fsync(fd) != 0) {
        int code = fail_errno(err, "cannot write", temp);
        (void)close(fd);
        (void)unlink(temp);
        return code;
    }
    (void)close(fd);
    return ONCE_OK;
}

int once__secret_file_keep(const char *path, once_error_t *err)
{
    char copy[PATH_SIZE];
    int fd, code = ONCE_OK;

    (void)snprintf(copy, sizeof(copy), "%s", path);
    fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return ONCE_OK; /* a directory that only lets through */
    }
    if (fsync(fd) != 0 && (errno == EIO || errno == ENOSPC || errno == EDQUOT)) {
        code = fail_errno(err, "cannot sync the directory of", path);
    }
    (void)close(fd);
    return code;
}

int once__secret_file_create(const char *path, const char *text, once_error_t *err)
{
    char temp[PATH_SIZE];
    int code = write_temp(path, text, temp, err);

    if (code != ONCE_OK) {
        return code;
    }
    /* link() fails when the name exists: of two processes that create it at once, exactly one succeeds. */
    if (link(temp, path) != 0 && errno != EEXIST) {
        code = fail_errno(err, "cannot create", path);
    }
    (void)unlink(temp);
    return code == ONCE_OK ? once__secret_file_keep(path, err) : code;
}

/* Locks the file that the path names now, without waiting; EWOULDBLOCK: another process is changing it. */
static int lock_current(const char *path)
{
    struct stat here, there;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0) {
        if (fstat(fd, &here) == 0 && stat(path, &there) == 0 && here.st_ino == there.st_ino &&
            here.st_dev == there.st_dev) {
            return fd;
        }
        errno = EWOULDBLOCK;
    }
    once__close(fd);
    return -1;
}

int once__secret_file_swap(const char *path, const char *old, const char *text, once_error_t *err)
{
    char real[PATH_MAX], temp[PATH_SIZE], now[2048];
    int lock, code;

    /* The file itself, not a link to it: replacing the link would leave two files that both claim to be the secrets. */
    if (realpath(path, real) == NULL) {
        return fail_errno(err, "cannot find", path);
    }
    path = real;
    lock = lock_current(path);
    if (lock < 0) {
        return errno == EWOULDBLOCK ? once__fail(err, ONCE_E_UNAVAILABLE,
                                                 "%.120s is being changed by another process", path)
                                    : fail_errno(err, "cannot lock", path);
    }
    code = once__secret_file_read(path, now, sizeof(now), err);
    if (code == ONCE_OK && strcmp(now, old) != 0) {
        code = once__fail(err, ONCE_E_CONFLICT, "%.120s was changed by another process", path);
    }
    if (code == ONCE_OK) {
        code = write_temp(path, text, temp, err);
        code = code == ONCE_E_IO ? ONCE_E_UNSUPPORTED : code;
        if (code == ONCE_OK && rename(temp, path) != 0) {
            (void)unlink(temp);
            code = fail_errno(err, "cannot replace", path);
        }
        code = code == ONCE_OK ? once__secret_file_keep(path, err) : code;
    }
    OPENSSL_cleanse(now, sizeof(now));
    (void)close(lock);
    return code;
}
