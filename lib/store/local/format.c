/*
 * Whether a directory may be used as a store, and how: the file `format`, owner, mode, filesystem; the options of the URL.
 */
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/units.h"
#include "base/uuid.h"
#include "store/local/directory.h"

#define FORMAT_NAME   "once-local "
#define FORMAT_NUMBER 2
#define FORMAT_TEXT   "once-local 2\nid "
#define FORMAT_BEFORE "once-local 1\n"
#define FORMAT_SIZE   (sizeof(FORMAT_TEXT) - 1 + 2 * (size_t)ONCE__STORE_ID_SIZE + 1)

#define SEGMENT_SIZE     ((uint64_t)64 << 20)
#define SEGMENT_SIZE_MIN ((uint64_t)64 << 10)
#define SEGMENT_SIZE_MAX ((uint64_t)1 << 30)

/* ----------------------------------------------------------------------------------------------------------- errors */

int once__local_fail(once_error_t *err, int code, const char *before, const char *path,
                     const char *after)
{
    int room = (int)(sizeof(err->text) - sizeof("local store:  ") - strlen(before) - strlen(after));

    assert(room > 20);
    return once__fail(err, code, "local store: %s%s%.*s%s", before, before[0] != '\0' ? " " : "",
                      room, path, after);
}

int once__local_errno(once_error_t *err, const char *what, const char *path)
{
    static const struct {
        int error, code;
        const char *advice;
    } known[] = {
        {ENOSPC, ONCE_E_FULL, "make some room, then try again"},
        {EDQUOT, ONCE_E_FULL, "make some room, then try again"},
        {EFBIG, ONCE_E_FULL, "raise the limit of file sizes (ulimit -f)"},
        {EROFS, ONCE_E_IO, "mount it writable, or name another place"},
        {EACCES, ONCE_E_IO, "run as its owner, or chown -R it"},
        {EPERM, ONCE_E_IO, "run as its owner, or chown -R it"},
        {EMFILE, ONCE_E_IO, "raise the limit of open files (ulimit -n)"},
        {ENFILE, ONCE_E_IO, "raise the limit of open files (ulimit -n)"},
        {ENOTDIR, ONCE_E_CONFIG, "name a directory"},
        {ENOMEM, ONCE_E_NOMEM, ""},
    };
    const char *reason = strerror(errno), *advice = "";
    int error = errno, code = ONCE_E_IO;
    char after[128];

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (known[i].error == error) {
            code = known[i].code;
            advice = known[i].advice;
        }
    }
    (void)snprintf(after, sizeof(after), ": %s%s%s", reason, advice[0] != '\0' ? "; " : "", advice);
    return once__local_fail(err, code, what, path, after);
}

/* ---------------------------------------------------------------------------------------------------------- options */

static int is_one_of(const char *value, const char *one, const char *other)
{
    return value == NULL || strcmp(value, one) == 0 || strcmp(value, other) == 0;
}

int once__local_settings_take(once__local_settings_t *settings, once__url_t *url, once_error_t *err)
{
    const char *size = once__url_take(url, "segment");
    const char *durability = once__url_take(url, "durability");
    const char *filesystem = once__url_take(url, "filesystem");
    const char *index = once__url_take(url, "index");
    uint64_t segment_size = SEGMENT_SIZE, least;
    int code;

    if (url->path[0] == '\0') {
        return once__fail(err, ONCE_E_CONFIG, "local store: name a directory: local:PATH");
    }
    if (size != NULL &&
        (once__size_parse(size, &segment_size) != 0 || segment_size < SEGMENT_SIZE_MIN ||
         segment_size > SEGMENT_SIZE_MAX || segment_size % 4096 != 0)) {
        return once__fail(err, ONCE_E_CONFIG,
                          "segment: \"%.40s\" is not a size from 64k to 1g in steps of 4k", size);
    }
    if (!is_one_of(durability, "full", "claims-relaxed")) {
        return once__fail(err, ONCE_E_CONFIG,
                          "durability: \"%.40s\" is neither full nor claims-relaxed", durability);
    }
    if (index != NULL && index[0] != '/') {
        return once__fail(err, ONCE_E_CONFIG,
                          "index: \"%.40s\" is not the absolute path of a directory", index);
    }
    if (!is_one_of(filesystem, "any", "any")) {
        return once__fail(err, ONCE_E_CONFIG, "filesystem: \"%.40s\" is not any", filesystem);
    }
    *settings = (once__local_settings_t){
        .segment_size = segment_size,
        .relaxed_claims = durability != NULL && strcmp(durability, "claims-relaxed") == 0,
        .directory = {
            .path = url->path, .index_directory = index, .any_filesystem = filesystem != NULL}};
    code = once__limits_take(&settings->limits, url, err);
    least = once__log_first_size(segment_size);
    if (code == ONCE_OK && settings->limits.max_bytes != 0 && settings->limits.max_bytes < least) {
        code = once__fail(err, ONCE_E_CONFIG,
                          "max_bytes: there would be no room for the first file of the log, which "
                          "takes %lluk; raise it, or make \"segment\" smaller",
                          (unsigned long long)least >> 10);
    }
    return code;
}

/* --------------------------------------------------------------------------------------------------- the file `format` */

/*
 * Is there nothing in the directory but what a new store has before its format: format.new, and segments/ with manifest.new and an
 * empty manifest? 1, 0, or -1 and errno.
 */
static int is_early(int directory_fd, const char *name, int is_segments)
{
    DIR *stream = once__disk_list(directory_fd, name);
    const struct dirent *entry;
    int early = 1;

    if (stream == NULL) {
        return -1;
    }
    while (early > 0 && (entry = readdir(stream)) != NULL) {
        const char *file = entry->d_name;
        struct stat st;
        if (strcmp(file, is_segments ? "manifest" : "segments") == 0) {
            early = is_segments ? fstatat(dirfd(stream), file, &st, 0) == 0 && st.st_size == 0
                                : is_early(dirfd(stream), file, 1) > 0;
        } else {
            early = strcmp(file, ".") == 0 || strcmp(file, "..") == 0 ||
                    strcmp(file, is_segments ? "manifest.new" : "format.new") == 0;
        }
    }
    (void)closedir(stream);
    return early;
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
    size_t head = strlen(FORMAT_TEXT), id_len = 2 * (size_t)ONCE__STORE_ID_SIZE;
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
        once__unhex(store_id, ONCE__STORE_ID_SIZE, text + head, id_len) == 0) {
        return ONCE__FORMAT_OURS;
    }
    return strcmp(text, FORMAT_BEFORE) == 0 ? ONCE__FORMAT_BEFORE
           : is_newer(text)                 ? ONCE__FORMAT_NEWER
                                            : ONCE__FORMAT_DAMAGED;
}

once__format_t once__format_read(int fd, uint8_t store_id[ONCE__STORE_ID_SIZE])
{
    once__format_t format = read_file(fd, store_id);
    int early = format == ONCE__FORMAT_NONE ? is_early(fd, ".", 0) : 1;

    if (early != 0) {
        return early > 0 ? format : ONCE__FORMAT_UNREADABLE;
    }
    /* Another process may have made a store here between the two looks. */
    format = read_file(fd, store_id);
    return format == ONCE__FORMAT_NONE ? ONCE__FORMAT_OTHER : format;
}

int once__format_check(once__format_t format, const char *path, once_error_t *err)
{
    static const struct {
        int code;
        const char *after;
    } wrong[] = {
        [ONCE__FORMAT_OTHER] = {ONCE_E_CONFIG,
                                " is not a once directory, and not empty; name another place"},
        [ONCE__FORMAT_NEWER] = {ONCE_E_NEWER,
                                " was made by a newer version of once; upgrade this program"},
        [ONCE__FORMAT_DAMAGED] = {ONCE_E_CORRUPT, "/format is damaged; restore it from a backup"},
    };

    if (format == ONCE__FORMAT_UNREADABLE) {
        return once__local_errno(err, "cannot read the format of", path);
    }
    if (format == ONCE__FORMAT_BEFORE) {
        return once__fail(err, ONCE_E_CONFIG,
                          "local store: %.90s has the format of an earlier version; stop every "
                          "program that uses it, then: once convert local:%.90s",
                          path, path);
    }
    return wrong[format].after == NULL
               ? ONCE_OK
               : once__local_fail(err, wrong[format].code, "", path, wrong[format].after);
}

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

    once__hex(id, store_id, ONCE__STORE_ID_SIZE);
    (void)snprintf(text, sizeof(text), "%s%s\n", FORMAT_TEXT, id);
    /* What was made before has its name on the disk before the format has: with the format it is a store. */
    return once__disk_put(&once__real_disk, fd, "format.new", text, FORMAT_SIZE) == 0 &&
                   fsync(fd) == 0 && renameat(fd, "format.new", fd, "format") == 0
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
    int allowed = config->any_filesystem;
    struct statfs fs;
    char after[192];

    if (fstatfs(fd, &fs) != 0) {
        return once__local_errno(err, "cannot look at", config->path);
    }
    for (size_t i = 0; i < sizeof(tried) / sizeof(tried[0]); i++) {
        allowed |= (uint32_t)fs.f_type == tried[i];
    }
    (void)snprintf(after, sizeof(after),
                   " is on a filesystem of type 0x%x, which was not tried; name a place on a disk "
                   "of this machine (ext4, xfs, btrfs), or add filesystem=any if one machine alone "
                   "uses it",
                   (unsigned)fs.f_type);
    return allowed ? ONCE_OK : once__local_fail(err, ONCE_E_CONFIG, "", config->path, after);
}

static int admit(int fd, const once__directory_config_t *config, once_error_t *err)
{
    struct stat st;

    if (fstat(fd, &st) != 0) {
        return once__local_errno(err, "cannot look at", config->path);
    }
    if (st.st_uid != geteuid()) {
        return once__local_fail(err, ONCE_E_CONFIG, "", config->path,
                                " belongs to another user; run as that user, or chown -R it");
    }
    if ((st.st_mode & 0777) != 0700) {
        return once__local_fail(err, ONCE_E_CONFIG, "", config->path,
                                (st.st_mode & 077) != 0 ? " is open to others; chmod 700 it"
                                                        : " is closed to its owner; chmod 700 it");
    }
    return once__format_filesystem(fd, config, err);
}

static int open_top(once__directory_t *directory, const char *path, int make, once_error_t *err)
{
    if (make && mkdir(path, 0700) != 0 && errno != EEXIST) {
        char above[PATH_MAX];
        struct stat st;
        if (errno != ENOENT) {
            return once__local_errno(err, "cannot make", path);
        }
        /* Some directories take no new ones, and report that as if they did not exist (/proc). */
        (void)snprintf(above, sizeof(above), "%s", path);
        return once__local_fail(err, ONCE_E_CONFIG, "cannot make", path,
                                stat(dirname(above), &st) == 0
                                    ? ": no directories can be made there; name another place"
                                    : ": the directory above it does not exist; make that first");
    }
    directory->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory->fd < 0 && errno == ENOENT) {
        return once__local_fail(err, ONCE_E_NOT_FOUND, "there is no", path, "");
    }
    return directory->fd < 0 ? once__local_errno(err, "cannot open", path) : ONCE_OK;
}

/* A UUID in a line. */
static int read_boot_id(uint8_t boot_id[ONCE__BOOT_ID_SIZE], once_error_t *err)
{
    static const char path[] = "/proc/sys/kernel/random/boot_id";
    char text[ONCE_UUID_SIZE - 1];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t len = fd >= 0 ? read(fd, text, sizeof(text)) : -1;

    once__close(fd);
    if (len < 0) {
        return once__local_errno(err, "cannot read", path);
    }
    return once__uuid_read(boot_id, text, (size_t)len)
               ? ONCE_OK
               : once__fail(err, ONCE_E_IO, "local store: the kernel does not tell its boot id");
}

int once__directory_start(once__directory_t *directory, const once__directory_config_t *config,
                          once__start_t how, once_error_t *err)
{
    once__log_config_t *log = &directory->log;
    once__format_t format;
    int code, saved;

    *directory = (once__directory_t){.fd = -1, .log = {.segments_fd = -1}};
    log->disk = config->disk != NULL ? config->disk : &once__real_disk;
    code = read_boot_id(log->boot_id, err);
    code = code == ONCE_OK ? open_top(directory, config->path, how == ONCE__START_MAKE, err) : code;
    if (code != ONCE_OK) {
        return code;
    }
    /* A wrong directory comes before a wrong mode: nobody should be advised to chmod /tmp. */
    format = once__format_read(directory->fd, log->store_id);
    saved = errno;
    if (format != ONCE__FORMAT_OTHER) {
        code = admit(directory->fd, config, err);
    }
    if (code != ONCE_OK || (how == ONCE__START_CONVERT && format == ONCE__FORMAT_BEFORE)) {
        return code;
    }
    if (how != ONCE__START_MAKE && format == ONCE__FORMAT_NONE) {
        return once__local_fail(err, ONCE_E_NOT_FOUND, "there is no store in", config->path, "");
    }
    errno = saved;
    return once__format_check(format, config->path, err);
}
