#include "store/local/look.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/error.h"
#include "store/local/format.h"

static void close_fd(int *fd)
{
    if (*fd >= 0) {
        (void)close(*fd);
    }
    *fd = -1;
}

/* ---------------------------------------------------------------------------------------------------------- opening */

/* Is there a directory above it? Some that there are take no new ones, and say that they do not exist (/proc). */
static int has_parent(const char *path)
{
    char above[PATH_MAX];
    char *end;
    struct stat found;

    if (snprintf(above, sizeof(above), "%s", path) >= (int)sizeof(above)) {
        return 0;
    }
    for (end = above + strlen(above); end > above && end[-1] == '/';) {
        *--end = '\0';
    }
    end = strrchr(above, '/');
    if (end != NULL) {
        end[end == above] = '\0';
    }
    return stat(end != NULL ? above : ".", &found) == 0;
}

static int open_top(once__directory_t *directory, const char *path, int make, once_error_t *err)
{
    if (make && mkdir(path, 0700) != 0 && errno != EEXIST) {
        if (errno == ENOENT) {
            return once__fail(err, ONCE_E_CONFIG, "local store: cannot make %.120s: %s", path,
                              has_parent(path)
                                  ? "no directories can be made there; name another place"
                                  : "the directory above it does not exist; make that first");
        }
        return once__local_errno(err, "cannot make", path);
    }
    directory->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory->fd < 0 && errno == ENOENT) {
        return once__fail(err, ONCE_E_NOT_FOUND, "local store: there is no %.120s", path);
    }
    return directory->fd < 0 ? once__local_errno(err, "cannot open", path) : ONCE_OK;
}

/* A wrong directory is told from a wrong mode first: nobody should be advised to chmod /tmp. */
static int check_top(const once__directory_t *directory, const char *path, once_error_t *err)
{
    once__format_t format = once__format_look(directory->fd);
    int code = ONCE_OK;

    if (format != ONCE__FORMAT_FOREIGN) {
        int saved = errno;
        code = once__format_admit(directory->fd, path, err);
        errno = saved;
    }
    return code == ONCE_OK ? once__format_check(format, path, err) : code;
}

static int read_boot_id(uint8_t boot_id[ONCE__BOOT_ID_SIZE], once_error_t *err)
{
    static const char path[] = "/proc/sys/kernel/random/boot_id";
    char text[64] = "", hex[33];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t len = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
    size_t n = 0;

    if (len < 0) {
        int code = once__local_errno(err, "cannot read", path);
        close_fd(&fd);
        return code;
    }
    close_fd(&fd);
    for (ssize_t i = 0; i < len && n < 32; i++) {
        if (text[i] != '-' && text[i] != '\n') {
            hex[n++] = text[i];
        }
    }
    if (n != 32 || once__unhex(boot_id, ONCE__BOOT_ID_SIZE, hex, 32) != 0) {
        return once__fail(err, ONCE_E_IO, "local store: the kernel does not tell its boot id");
    }
    return ONCE_OK;
}

int once__directory_start(once__directory_t *directory, const char *path, int make,
                          once_error_t *err)
{
    int code;

    memset(directory, 0, sizeof(*directory));
    directory->fd = directory->segments_fd = directory->lock_fd = -1;
    code = read_boot_id(directory->boot_id, err);
    code = code == ONCE_OK ? open_top(directory, path, make, err) : code;
    return code == ONCE_OK ? check_top(directory, path, err) : code;
}

int once__segment_foreign(uint32_t number, once_error_t *err)
{
    return once__fail(err, ONCE_E_CONFIG,
                      "local store: segments/%08x.log belongs to another user; run as that one, or "
                      "chown everything in the directory",
                      number);
}

int once__segments_missing(const char *path, once_error_t *err)
{
    return once__fail(err, ONCE_E_CORRUPT,
                      "local store: %.120s/segments is missing; restore it from a backup, or "
                      "make an empty one to accept the loss of all records",
                      path);
}

int once__directory_open_segments(once__directory_t *directory, const char *path, once_error_t *err)
{
    directory->segments_fd = openat(directory->fd, "segments", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory->segments_fd < 0 && errno == ENOENT) {
        return once__segments_missing(path, err);
    }
    return directory->segments_fd < 0 ? once__local_errno(err, "cannot open the segments of", path)
                                      : ONCE_OK;
}

/* ---------------------------------------------------------------------------------------------- which index is meant */

void once__directory_identify(const once__directory_t *directory, char out[ONCE__IDENTITY_SIZE])
{
    struct statx st;

    out[0] = '\0';
    if (statx(directory->fd, "index", AT_SYMLINK_NOFOLLOW, STATX_INO | STATX_BTIME, &st) == 0) {
        int known = (st.stx_mask & STATX_BTIME) != 0;
        (void)snprintf(out, ONCE__IDENTITY_SIZE, "index %llu %lld.%09u\n",
                       (unsigned long long)st.stx_ino, known ? (long long)st.stx_btime.tv_sec : 0,
                       known ? (unsigned)st.stx_btime.tv_nsec : 0);
    }
}

int once__directory_is_known(const once__directory_t *directory)
{
    char identity[ONCE__IDENTITY_SIZE], known[ONCE__IDENTITY_SIZE] = "";

    once__directory_identify(directory, identity);
    return pread(directory->lock_fd, known, sizeof(known) - 1, 0) > 0 &&
           strcmp(identity, known) == 0;
}

int once__directory_has_index(const once__directory_t *directory)
{
    return directory->lock_fd >= 0 && once__directory_is_known(directory) &&
           once__index_is_current(directory->fd, directory->boot_id);
}

/* ---------------------------------------------------------------------------------------------------------- looking */

static int exists(const once__directory_t *directory, const char *name)
{
    struct stat st;

    return fstatat(directory->fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Somebody is making it just now, or was killed over that: the format comes first, then segments/, then the rest. */
static int is_unfinished(const once__directory_t *directory)
{
    return once__format_look(directory->fd) == ONCE__FORMAT_NONE ||
           (!exists(directory, "index") && !exists(directory, "secrets") &&
            !exists(directory, "segments"));
}

int once__directory_look(once__directory_t *directory, const char *path, once_error_t *err)
{
    int code = once__directory_start(directory, path, 0, err);

    if (code == ONCE_OK && is_unfinished(directory)) {
        code = once__fail(err, ONCE_E_NOT_FOUND, "local store: there is no store in %.120s", path);
    }
    code = code == ONCE_OK ? once__directory_open_segments(directory, path, err) : code;
    if (code != ONCE_OK) {
        once__directory_abandon(directory);
    }
    return code;
}

int once__lock_shared(int fd)
{
    int code;

    do {
        code = flock(fd, LOCK_SH);
    } while (code != 0 && errno == EINTR);
    return code;
}

int once__directory_lock(once__directory_t *directory, int how)
{
    int flags = how == LOCK_EX ? O_RDWR | O_CREAT : O_RDONLY;

    close_fd(&directory->lock_fd);
    directory->lock_fd = openat(directory->fd, "lock", flags | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (directory->lock_fd < 0) {
        return errno == ENOENT ? ONCE_E_NOT_FOUND : ONCE_E_IO;
    }
    if (how == LOCK_SH) {
        return once__lock_shared(directory->lock_fd) == 0 ? ONCE_OK : ONCE_E_IO;
    }
    if (flock(directory->lock_fd, LOCK_EX | LOCK_NB) != 0) {
        return errno == EWOULDBLOCK ? ONCE_E_CONFLICT : ONCE_E_IO;
    }
    return ONCE_OK;
}

/* Adds up the files of a directory whose name ends with `suffix`. */
static void add_files(int parent_fd, const char *name, const char *suffix, uint64_t *count,
                      uint64_t *bytes)
{
    int fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = fd >= 0 ? fdopendir(fd) : NULL;
    const struct dirent *entry;

    if (stream == NULL) {
        close_fd(&fd);
        return;
    }
    while ((entry = readdir(stream)) != NULL) {
        size_t len = strlen(entry->d_name), tail = strlen(suffix);
        struct stat st;
        if (entry->d_name[0] != '.' && len >= tail &&
            strcmp(entry->d_name + len - tail, suffix) == 0 &&
            fstatat(fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
            (*count)++;
            *bytes += (uint64_t)st.st_size;
        }
    }
    (void)closedir(stream);
}

void once__directory_sizes(const once__directory_t *directory, once__sizes_t *sizes)
{
    struct stat st;

    memset(sizes, 0, sizeof(*sizes));
    add_files(directory->fd, "segments", ".spare", &sizes->spares, &sizes->spare_bytes);
    add_files(directory->fd, "segments", ".sum", &sizes->summaries, &sizes->summary_bytes);
    add_files(directory->fd, "quarantine", "", &sizes->quarantined, &sizes->quarantine_bytes);
    if (fstatat(directory->fd, "index", &st, AT_SYMLINK_NOFOLLOW) == 0) {
        sizes->index_bytes = (uint64_t)st.st_blocks * 512;
    }
}
