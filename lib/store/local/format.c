#include "store/local/format.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/error.h"
#include "base/units.h"

#define FORMAT_NAME   "once-local "
#define FORMAT_NUMBER 1
#define FORMAT_TEXT   "once-local 1\n"

static const char *advice(int error)
{
    switch (error) {
    case ENOSPC:
    case EDQUOT:
        return "; make some room, then try again";
    case EROFS:
        return "; mount it writable, or name another place";
    case EACCES:
    case EPERM:
        return "; run as its owner, or chown -R it";
    case EMFILE:
    case ENFILE:
        return "; raise the limit of open files (ulimit -n)";
    case ENOTDIR:
        return "; name a directory";
    default:
        return "";
    }
}

int once__local_errno(once_error_t *err, const char *what, const char *path)
{
    int saved = errno;
    int code = saved == ENOSPC || saved == EDQUOT ? ONCE_E_FULL
               : saved == ENOTDIR                 ? ONCE_E_CONFIG
                                                  : ONCE_E_IO;

    return once__fail(err, code, "local store: %s %.120s: %s%s", what, path, strerror(saved),
                      advice(saved));
}

/* ---------------------------------------------------------------------------------------------------------- looking */

/* What a new store has before it has its format. */
static int is_beginning(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strcmp(name, "lock") == 0 ||
           strcmp(name, "format.new") == 0;
}

/* 1, 0, or -1 and errno. */
static int is_empty(int directory_fd)
{
    int fd = openat(directory_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), empty = 1;
    DIR *stream = fd >= 0 ? fdopendir(fd) : NULL;
    const struct dirent *entry;

    if (stream == NULL) {
        if (fd >= 0) {
            (void)close(fd);
        }
        return -1;
    }
    while (empty && (entry = readdir(stream)) != NULL) {
        empty = is_beginning(entry->d_name);
    }
    (void)closedir(stream);
    return empty;
}

/* "once-local NUMBER\n" with a greater number than ours. */
static int is_newer(const char *text)
{
    size_t name = strlen(FORMAT_NAME), len = strlen(text);
    uint64_t number;

    return len > name + 1 && strncmp(text, FORMAT_NAME, name) == 0 && text[len - 1] == '\n' &&
           once__number_parse(text + name, len - name - 1, &number) == 0 && number > FORMAT_NUMBER;
}

/* Reads the file `format`. ONCE__FORMAT_NONE: there is none. */
static once__format_t read_format(int directory_fd)
{
    char text[64] = "";
    int fd = openat(directory_fd, "format", O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    ssize_t len;

    if (fd < 0) {
        return errno == ENOENT ? ONCE__FORMAT_NONE : ONCE__FORMAT_UNREADABLE;
    }
    len = read(fd, text, sizeof(text) - 1);
    (void)close(fd);
    if (len < 0 && errno != EISDIR) {
        return ONCE__FORMAT_UNREADABLE;
    }
    if (strcmp(text, FORMAT_TEXT) == 0) {
        return ONCE__FORMAT_OK;
    }
    return is_newer(text) ? ONCE__FORMAT_NEWER : ONCE__FORMAT_DAMAGED;
}

once__format_t once__format_look(int directory_fd)
{
    once__format_t format = read_format(directory_fd);
    int empty;

    if (format != ONCE__FORMAT_NONE) {
        return format;
    }
    empty = is_empty(directory_fd);
    if (empty < 0) {
        return ONCE__FORMAT_UNREADABLE;
    }
    if (empty) {
        return ONCE__FORMAT_NONE;
    }
    /* Somebody may have made a store here between the two looks; its format comes before everything else. */
    format = read_format(directory_fd);
    return format == ONCE__FORMAT_NONE ? ONCE__FORMAT_FOREIGN : format;
}

int once__format_check(once__format_t format, const char *path, once_error_t *err)
{
    switch (format) {
    case ONCE__FORMAT_FOREIGN:
        return once__fail(err, ONCE_E_CONFIG,
                          "local store: %.120s is not a once directory, and not empty; name "
                          "another place",
                          path);
    case ONCE__FORMAT_NEWER:
        return once__fail(err, ONCE_E_NEWER,
                          "local store: %.120s was made by a newer version of once; upgrade this "
                          "program",
                          path);
    case ONCE__FORMAT_DAMAGED:
        return once__fail(err, ONCE_E_CORRUPT,
                          "local store: %.120s/format is damaged; restore it from a backup", path);
    case ONCE__FORMAT_UNREADABLE:
        return once__local_errno(err, "cannot read the format of", path);
    case ONCE__FORMAT_OK:
    case ONCE__FORMAT_NONE:
        break;
    }
    return ONCE_OK;
}

/* ----------------------------------------------------------------------------------------------------------- making */

/* The directory itself is a name in the one above, which must not be lost either. */
static int sync_parent(int directory_fd)
{
    int fd = openat(directory_fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int code;

    if (fd < 0) {
        return errno == EACCES ? syncfs(directory_fd) : -1;
    }
    code = fsync(fd);
    (void)close(fd);
    return code;
}

int once__format_keep(int directory_fd, const char *path, once_error_t *err)
{
    return fsync(directory_fd) == 0 && sync_parent(directory_fd) == 0
               ? ONCE_OK
               : once__local_errno(err, "cannot write to", path);
}

int once__format_write(int directory_fd, const char *path, once_error_t *err)
{
    size_t len = strlen(FORMAT_TEXT);
    int fd = openat(directory_fd, "format.new", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int ok = fd >= 0 && write(fd, FORMAT_TEXT, len) == (ssize_t)len && fsync(fd) == 0;
    int saved = errno;

    if (fd >= 0) {
        (void)close(fd);
    }
    errno = saved;
    if (!ok || renameat(directory_fd, "format.new", directory_fd, "format") != 0) {
        return once__local_errno(err, "cannot write to", path);
    }
    return once__format_keep(directory_fd, path, err);
}

/* --------------------------------------------------------------------------------------------------------- admission */

/* Files that several machines may change: a mapping and a lock of ours mean nothing there. */
static int is_network(const struct statfs *fs)
{
    static const unsigned types[] = {
        0x6969,     /* nfs */
        0x517b,     /* smb */
        0xff534d42, /* cifs */
        0xfe534d42, /* smb2 */
        0x5346414f, /* afs */
        0x00c36400, /* ceph */
        0x01021997, /* 9p */
        0x47504653, /* gpfs */
        0x0bd00bd0, /* lustre */
    };

    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        if ((unsigned)fs->f_type == types[i]) {
            return 1;
        }
    }
    return 0;
}

int once__format_admit(int directory_fd, const char *path, once_error_t *err)
{
    struct stat st;
    struct statfs fs;

    if (fstat(directory_fd, &st) != 0 || fstatfs(directory_fd, &fs) != 0) {
        return once__local_errno(err, "cannot look at", path);
    }
    if (st.st_uid != geteuid()) {
        return once__fail(err, ONCE_E_CONFIG,
                          "local store: %.120s belongs to another user; run as that user, or "
                          "chown -R it",
                          path);
    }
    if ((st.st_mode & 0777) != 0700) {
        return once__fail(err, ONCE_E_CONFIG, "local store: %.120s is %s; chmod 700 it", path,
                          (st.st_mode & 077) != 0 ? "open to others" : "closed to its owner");
    }
    if (is_network(&fs)) {
        return once__fail(err, ONCE_E_CONFIG,
                          "local store: %.120s is on a network filesystem; name a place on a "
                          "disk of this machine",
                          path);
    }
    return ONCE_OK;
}
