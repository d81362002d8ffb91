/*
 * The file `format`, and whether a directory may be used at all: owner, mode, filesystem.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/units.h"
#include "store/local/directory.h"

#define FORMAT_NAME   "once-local "
#define FORMAT_NUMBER 2
#define FORMAT_TEXT   "once-local 2\nid "
#define FORMAT_BEFORE "once-local 1\n"
#define FORMAT_SIZE   (sizeof(FORMAT_TEXT) - 1 + 2 * (size_t)ONCE__STORE_ID_SIZE + 1)

static const char *advice(int error)
{
    switch (error) {
    case ENOSPC:
    case EDQUOT:
        return "; make some room, then try again";
    case EFBIG:
        return "; raise the limit of file sizes (ulimit -f)";
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
    int code = saved == ENOSPC || saved == EDQUOT || saved == EFBIG ? ONCE_E_FULL
               : saved == ENOTDIR                                   ? ONCE_E_CONFIG
               : saved == ENOMEM                                    ? ONCE_E_NOMEM
                                                                    : ONCE_E_IO;

    return once__fail(err, code, "local store: %s %.120s: %s%s", what, path, strerror(saved),
                      advice(saved));
}

/* ---------------------------------------------------------------------------------------------------------- reading */

/* Is there nothing in the directory but what `allowed` accepts? 1, 0, or -1 and errno. */
static int has_only(int directory_fd, const char *name, int (*allowed)(int fd, const char *name))
{
    int fd = openat(directory_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW), only = 1;
    DIR *stream = fd >= 0 ? fdopendir(fd) : NULL;
    const struct dirent *entry;

    if (stream == NULL) {
        if (fd >= 0) {
            (void)close(fd);
        }
        return -1;
    }
    while (only > 0 && (entry = readdir(stream)) != NULL) {
        only = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0
                   ? 1
                   : allowed(fd, entry->d_name);
    }
    (void)closedir(stream);
    return only;
}

/* What segments/ of a new store has before the store has its format. */
static int is_early_segments(int fd, const char *name)
{
    struct stat st;

    return strcmp(name, "manifest.new") == 0 ||
           (strcmp(name, "manifest") == 0 && fstatat(fd, name, &st, 0) == 0 && st.st_size == 0);
}

static int is_early(int fd, const char *name)
{
    return strcmp(name, "format.new") == 0 ||
           (strcmp(name, "segments") == 0 && has_only(fd, name, is_early_segments) == 1);
}

/* "once-local NUMBER\n" with a greater number than ours, whatever follows. */
static int is_newer(const char *text)
{
    size_t name = strlen(FORMAT_NAME);
    const char *end = strchr(text, '\n');
    uint64_t number;

    return end != NULL && strncmp(text, FORMAT_NAME, name) == 0 &&
           once__number_parse(text + name, (size_t)(end - text) - name, &number) == 0 &&
           number > FORMAT_NUMBER;
}

static once__format_t read_file(int directory_fd, uint8_t store_id[ONCE__STORE_ID_SIZE])
{
    char text[128] = "";
    size_t head = strlen(FORMAT_TEXT);
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
    if (len == (ssize_t)FORMAT_SIZE && memcmp(text, FORMAT_TEXT, head) == 0 &&
        text[FORMAT_SIZE - 1] == '\n' &&
        once__unhex(store_id, ONCE__STORE_ID_SIZE, text + head, 2 * (size_t)ONCE__STORE_ID_SIZE) ==
            0) {
        return ONCE__FORMAT_OURS;
    }
    return strcmp(text, FORMAT_BEFORE) == 0 ? ONCE__FORMAT_BEFORE
           : is_newer(text)                 ? ONCE__FORMAT_NEWER
                                            : ONCE__FORMAT_DAMAGED;
}

once__format_t once__format_read(int fd, uint8_t store_id[ONCE__STORE_ID_SIZE])
{
    once__format_t format = read_file(fd, store_id);
    int early;

    if (format != ONCE__FORMAT_NONE) {
        return format;
    }
    early = has_only(fd, ".", is_early);
    if (early != 0) {
        return early > 0 ? ONCE__FORMAT_NONE : ONCE__FORMAT_UNREADABLE;
    }
    /* Another process may have made a store here between the two looks. */
    format = read_file(fd, store_id);
    return format == ONCE__FORMAT_NONE ? ONCE__FORMAT_OTHER : format;
}

int once__format_check(once__format_t format, const char *path, once_error_t *err)
{
    switch (format) {
    case ONCE__FORMAT_OTHER:
        return once__fail(err, ONCE_E_CONFIG,
                          "local store: %.120s is not a once directory, and not empty; name "
                          "another place",
                          path);
    case ONCE__FORMAT_BEFORE:
        return once__fail(err, ONCE_E_CONFIG,
                          "local store: %.90s has the format of an earlier version; stop every "
                          "program that uses it, then: once convert local:%.90s",
                          path, path);
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
    case ONCE__FORMAT_OURS:
    case ONCE__FORMAT_NONE:
        break;
    }
    return ONCE_OK;
}

/* ---------------------------------------------------------------------------------------------------------- writing */

int once__format_keep(int fd)
{
    int above, code;

    if (fsync(fd) != 0) {
        return -1;
    }
    above = openat(fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (above < 0) {
        return errno == EACCES ? syncfs(fd) : -1;
    }
    code = fsync(above);
    (void)close(above);
    return code;
}

int once__format_write(int fd, const uint8_t store_id[ONCE__STORE_ID_SIZE])
{
    char text[FORMAT_SIZE + 1], id[2 * ONCE__STORE_ID_SIZE + 1];
    int file = openat(fd, "format.new", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int ok, saved;

    once__hex(id, store_id, ONCE__STORE_ID_SIZE);
    (void)snprintf(text, sizeof(text), "%s%s\n", FORMAT_TEXT, id);
    ok = file >= 0 && fchmod(file, 0600) == 0 &&
         write(file, text, FORMAT_SIZE) == (ssize_t)FORMAT_SIZE && fsync(file) == 0;
    saved = errno;
    if (file >= 0) {
        (void)close(file);
    }
    errno = saved;
    /* What was made before has its name on the disk before the format has: with the format it is a store. */
    return ok && fsync(fd) == 0 && renameat(fd, "format.new", fd, "format") == 0
               ? once__format_keep(fd)
               : -1;
}

/* --------------------------------------------------------------------------------------------------------- admission */

int once__format_filesystem(int fd, const once__directory_config_t *config, once_error_t *err)
{
    static const uint32_t tried[] = {
        0xef53,     /* ext2, ext3, ext4 */
        0x58465342, /* xfs */
        0x9123683e, /* btrfs */
        0x01021994, /* tmpfs */
        0x794c7630, /* overlayfs */
    };
    struct statfs fs;

    if (fstatfs(fd, &fs) != 0) {
        return once__local_errno(err, "cannot look at", config->path);
    }
    for (size_t i = 0; i < sizeof(tried) / sizeof(tried[0]); i++) {
        if ((uint32_t)fs.f_type == tried[i]) {
            return ONCE_OK;
        }
    }
    if (config->any_filesystem) {
        return ONCE_OK;
    }
    return once__fail(
        err, ONCE_E_CONFIG,
        "local store: %.100s is on a filesystem of type 0x%x, which was not tried; name "
        "a place on a disk of this machine (ext4, xfs, btrfs), or add "
        "filesystem=any if one machine alone uses it",
        config->path, (unsigned)fs.f_type);
}

static int admit(int fd, const once__directory_config_t *config, once_error_t *err)
{
    struct stat st;

    if (fstat(fd, &st) != 0) {
        return once__local_errno(err, "cannot look at", config->path);
    }
    if (st.st_uid != geteuid()) {
        return once__fail(err, ONCE_E_CONFIG,
                          "local store: %.120s belongs to another user; run as that user, or "
                          "chown -R it",
                          config->path);
    }
    if ((st.st_mode & 0777) != 0700) {
        return once__fail(err, ONCE_E_CONFIG, "local store: %.120s is %s; chmod 700 it",
                          config->path,
                          (st.st_mode & 077) != 0 ? "open to others" : "closed to its owner");
    }
    return once__format_filesystem(fd, config, err);
}

/* Is there a directory above it? Some take no new ones, and report that as if they did not exist (/proc). */
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

static int read_boot_id(uint8_t boot_id[ONCE__BOOT_ID_SIZE], once_error_t *err)
{
    static const char path[] = "/proc/sys/kernel/random/boot_id";
    char text[64] = "", hex[33];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t len = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
    int code = len < 0 ? once__local_errno(err, "cannot read", path) : ONCE_OK;
    size_t n = 0;

    if (fd >= 0) {
        (void)close(fd);
    }
    for (ssize_t i = 0; i < len && n < 32; i++) {
        if (text[i] != '-' && text[i] != '\n') {
            hex[n++] = text[i];
        }
    }
    if (code == ONCE_OK && (n != 32 || once__unhex(boot_id, ONCE__BOOT_ID_SIZE, hex, 32) != 0)) {
        code = once__fail(err, ONCE_E_IO, "local store: the kernel does not tell its boot id");
    }
    return code;
}

int once__directory_start(once__directory_t *directory, const once__directory_config_t *config,
                          once__start_t how, once_error_t *err)
{
    once__format_t format;
    int code, saved;

    memset(directory, 0, sizeof(*directory));
    directory->fd = directory->segments_fd = -1;
    directory->disk = config->disk != NULL ? config->disk : &once__real_disk;
    code = read_boot_id(directory->boot_id, err);
    code = code == ONCE_OK ? open_top(directory, config->path, how == ONCE__START_MAKE, err) : code;
    if (code != ONCE_OK) {
        return code;
    }
    /* A wrong directory comes before a wrong mode: nobody should be advised to chmod /tmp. */
    format = once__format_read(directory->fd, directory->store_id);
    saved = errno;
    if (format != ONCE__FORMAT_OTHER) {
        code = admit(directory->fd, config, err);
    }
    if (code != ONCE_OK || (how == ONCE__START_CONVERT && format == ONCE__FORMAT_BEFORE)) {
        return code;
    }
    errno = saved;
    return once__format_check(format, config->path, err);
}
