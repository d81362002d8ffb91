#include "store/local/directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/bytes.h"
#include "core/units.h"
#include "store/local/rebuild.h"

#define FORMAT_TEXT "once-local 1\n"

static int fail_errno(once_error_t *err, const char *what, const char *path)
{
    int code = errno == ENOSPC || errno == EDQUOT ? ONCE_E_FULL : ONCE_E_IO;

    return once__fail(err, code, "local store: %s %.120s: %s", what, path, strerror(errno));
}

/* ----------------------------------------------------------------------------------------------------------- format */

static int is_empty(int fd)
{
    int copy = dup(fd), empty = 1;
    DIR *stream = copy >= 0 ? fdopendir(copy) : NULL;
    const struct dirent *entry;

    if (stream == NULL) {
        return 0;
    }
    rewinddir(stream);
    while ((entry = readdir(stream)) != NULL) {
        /* `lock` is made before the format, and by everybody who comes. */
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            strcmp(entry->d_name, "lock") != 0) {
            empty = 0;
        }
    }
    (void)closedir(stream);
    return empty;
}

static int write_format(int fd, const char *path, once_error_t *err)
{
    int file = openat(fd, "format.new", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int ok = file >= 0 &&
             write(file, FORMAT_TEXT, strlen(FORMAT_TEXT)) == (ssize_t)strlen(FORMAT_TEXT) &&
             fsync(file) == 0;

    if (file >= 0) {
        (void)close(file);
    }
    if (!ok || renameat(fd, "format.new", fd, "format") != 0 || fsync(fd) != 0) {
        return fail_errno(err, "cannot write to", path);
    }
    return ONCE_OK;
}

static int check_format(int fd, const char *path, once_error_t *err)
{
    char text[64] = "";
    int file = openat(fd, "format", O_RDONLY | O_CLOEXEC);
    ssize_t len;

    if (file < 0 && errno == ENOENT) {
        return is_empty(fd)
                   ? write_format(fd, path, err)
                   : once__fail(err, ONCE_E_CONFIG,
                                "local store: %.120s is not a once directory, and not empty; "
                                "name another place",
                                path);
    }
    if (file < 0) {
        return fail_errno(err, "cannot read the format of", path);
    }
    len = read(file, text, sizeof(text) - 1);
    (void)close(file);
    if (len <= 0 || strncmp(text, "once-local ", 11) != 0) {
        return once__fail(err, ONCE_E_CORRUPT, "local store: %.120s/format is damaged", path);
    }
    if (strcmp(text, FORMAT_TEXT) != 0) {
        return once__fail(
            err, ONCE_E_NEWER,
            "local store: %.120s was made by a newer version of once; upgrade this program", path);
    }
    return ONCE_OK;
}

/* --------------------------------------------------------------------------------------------------------- directory */

static int check_owner(int fd, const char *path, once_error_t *err)
{
    struct stat st;

    if (fstat(fd, &st) != 0) {
        return fail_errno(err, "cannot look at", path);
    }
    if (st.st_uid != geteuid()) {
        return once__fail(
            err, ONCE_E_CONFIG,
            "local store: %.120s belongs to another user; run as that user, or chown -R it", path);
    }
    if ((st.st_mode & 077) != 0) {
        return once__fail(err, ONCE_E_CONFIG, "local store: %.120s is open to others; chmod 700 it",
                          path);
    }
    return ONCE_OK;
}

static int open_top(once__directory_t *directory, const char *path, once_error_t *err)
{
    if (mkdir(path, 0700) != 0 && errno != EEXIST) {
        return fail_errno(err, "cannot make", path);
    }
    directory->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory->fd < 0) {
        return fail_errno(err, "cannot open", path);
    }
    return check_owner(directory->fd, path, err);
}

static int open_rest(once__directory_t *directory, const char *path, once_error_t *err)
{
    if (mkdirat(directory->fd, "segments", 0700) != 0 && errno != EEXIST) {
        return fail_errno(err, "cannot write to", path);
    }
    directory->segments_fd = openat(directory->fd, "segments", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory->segments_fd < 0) {
        return fail_errno(err, "cannot open the segments of", path);
    }
    if (asprintf(&directory->secrets_path, "%s/secrets", path) < 0) {
        directory->secrets_path = NULL;
        return once__fail(err, ONCE_E_NOMEM, "%s", once_error_text(ONCE_E_NOMEM));
    }
    return ONCE_OK;
}

static int read_boot_id(uint8_t boot_id[ONCE__BOOT_ID_SIZE])
{
    char text[64] = "", hex[33];
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t len = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
    size_t n = 0;

    if (fd >= 0) {
        (void)close(fd);
    }
    for (ssize_t i = 0; i < len && n < 32; i++) {
        if (text[i] != '-' && text[i] != '\n') {
            hex[n++] = text[i];
        }
    }
    return n == 32 && once__unhex(boot_id, ONCE__BOOT_ID_SIZE, hex, 32) == 0 ? 0 : -1;
}

/* Alone with the store: makes sure that there is an index that can be used. */
static int prepare_index(once__directory_t *directory, const char *path, once_error_t *err)
{
    once__rebuilt_t rebuilt;
    int code = once__index_open(&directory->index, directory->fd, directory->boot_id, 0, err);

    if (code == ONCE_E_CORRUPT) {
        code = once__index_open(&directory->index, directory->fd, directory->boot_id, 1, err);
        if (code == ONCE_OK) {
            code = once__rebuild(directory, &rebuilt, err);
        }
    }
    if (code == ONCE_OK) {
        code = once__index_mark_used(directory->index);
    }
    return code;
}

/*
 * The lock: exclusive for whoever finds nobody else, to make the index right; then shared. Somebody else may be exclusive for a
 * moment between the two: he finds a right index and changes nothing.
 */
static int open_index(once__directory_t *directory, const char *path, once_error_t *err)
{
    directory->lock_fd = openat(directory->fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (directory->lock_fd < 0) {
        return fail_errno(err, "cannot write to", path);
    }
    for (;;) {
        int code;
        if (flock(directory->lock_fd, LOCK_EX | LOCK_NB) == 0) {
            code = check_format(directory->fd, path, err);
            code = code == ONCE_OK ? open_rest(directory, path, err) : code;
            code = code == ONCE_OK ? prepare_index(directory, path, err) : code;
            if (code != ONCE_OK || flock(directory->lock_fd, LOCK_SH) == 0) {
                return code;
            }
        } else if (flock(directory->lock_fd, LOCK_SH) == 0) {
            /* Waits for one who is exclusive. Whoever is there has the store in order. */
            code = check_format(directory->fd, path, err);
            code = code == ONCE_OK ? open_rest(directory, path, err) : code;
            if (code == ONCE_OK) {
                code =
                    once__index_open(&directory->index, directory->fd, directory->boot_id, 0, err);
            }
            if (code != ONCE_E_CORRUPT) {
                return code;
            }
            once__directory_abandon(directory); /* the one we waited for failed: our turn */
            return ONCE_E_CONFLICT;
        }
        if (errno != EINTR) {
            return fail_errno(err, "cannot lock", path);
        }
    }
}

int once__directory_open(once__directory_t *directory, const char *path, once_error_t *err)
{
    int code;

    for (int tries = 0;; tries++) {
        memset(directory, 0, sizeof(*directory));
        directory->fd = directory->segments_fd = directory->lock_fd = -1;
        if (read_boot_id(directory->boot_id) != 0) {
            return once__fail(err, ONCE_E_IO, "local store: the kernel does not tell its boot id");
        }
        code = open_top(directory, path, err);
        if (code == ONCE_OK) {
            code = open_index(directory, path, err);
        }
        if (code != ONCE_E_CONFLICT || tries == 10) {
            break;
        }
    }
    if (code != ONCE_OK) {
        once__directory_abandon(directory);
    }
    return code;
}

static void close_fd(int *fd)
{
    if (*fd >= 0) {
        (void)close(*fd);
    }
    *fd = -1;
}

void once__directory_abandon(once__directory_t *directory)
{
    once__index_close(directory->index);
    directory->index = NULL;
    free(directory->secrets_path);
    directory->secrets_path = NULL;
    close_fd(&directory->segments_fd);
    close_fd(&directory->lock_fd);
    close_fd(&directory->fd);
}

void once__directory_close(once__directory_t *directory)
{
    if (flock(directory->lock_fd, LOCK_EX | LOCK_NB) == 0) {
        (void)once__index_mark_clean(directory->index);
    }
    once__directory_abandon(directory);
}
