/*
 * A new segment. Its file has its final size and a synced header before it gets its name, and its name is synced before
 * anything is written to it: whatever happens in between leaves either no segment or an empty one.
 */
#include "store/local/log_inside.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/local/extent.h"

#define TEMP_SIZE 48

void once__segment_name(char out[ONCE__SEGMENT_NAME], uint32_t number, const char *suffix)
{
    (void)snprintf(out, ONCE__SEGMENT_NAME, "%08x.%s", number, suffix);
}

int once__log_errno(void)
{
    return errno == ENOSPC || errno == EDQUOT ? ONCE_E_FULL : ONCE_E_IO;
}

/* ---------------------------------------------------------------------------------------------------------- its file */

/* A file that nobody finished: its maker was killed. Whoever makes one holds its lock. */
static void remove_abandoned(int directory_fd, const char *name)
{
    int fd = openat(directory_fd, name, O_RDWR | O_CLOEXEC);

    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0) {
        (void)unlinkat(directory_fd, name, 0);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
}

/* Makes a file and locks it. Between the two somebody may take it for abandoned: then once more. */
static int create_locked(int directory_fd, const char *temp)
{
    for (;;) {
        int fd = openat(directory_fd, temp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        struct stat st;
        if (fd < 0) {
            return -1;
        }
        while (flock(fd, LOCK_EX) != 0 && errno == EINTR) {
        }
        if (fstat(fd, &st) == 0 && st.st_nlink > 0) {
            return fd;
        }
        (void)close(fd);
    }
}

/* A file that dropping left for reuse, of this size, and locked. -1: there is none. It may have holes: a copy often has. */
static int take_spare(const once__log_t *log, uint64_t size, const char *temp)
{
    int directory_fd = log->config.directory_fd, fd = -1;
    int copy = dup(directory_fd);
    DIR *directory = copy >= 0 ? fdopendir(copy) : NULL;
    const struct dirent *entry;

    if (directory == NULL) {
        if (copy >= 0) {
            (void)close(copy);
        }
        return -1;
    }
    rewinddir(directory);
    while (fd < 0 && (entry = readdir(directory)) != NULL) {
        const char *dot = strrchr(entry->d_name, '.');
        struct stat st;
        if (dot != NULL && strcmp(dot, ".new") == 0) {
            remove_abandoned(directory_fd, entry->d_name);
        }
        if (dot == NULL || strcmp(dot, ".spare") != 0 ||
            fstatat(directory_fd, entry->d_name, &st, 0) != 0 || (uint64_t)st.st_size != size ||
            renameat(directory_fd, entry->d_name, directory_fd, temp) != 0) {
            continue;
        }
        fd = openat(directory_fd, temp, O_RDWR | O_CLOEXEC);
        if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0) { /* somebody is not done with it */
            (void)close(fd);
            (void)unlinkat(directory_fd, temp, 0);
            fd = -1;
        }
    }
    (void)closedir(directory);
    return fd;
}

/* A new file, or a spare one, with real room for all of it; locked, which says that its writer lives. */
static int make_file(once__log_t *log, uint64_t size, const char *temp, int *used)
{
    int fd;

    /* Locked: whoever made a spare has synced its new name, so it cannot come back as the segment that it was. */
    once__log_lock_segments(log);
    fd = take_spare(log, size, temp);
    once__index_unlock_segments(log->config.index);
    *used = fd >= 0;
    if (fd < 0) {
        fd = create_locked(log->config.directory_fd, temp);
    }
    if (fd >= 0 && log->config.disk->allocate(log->config.disk->data, fd, size) != 0) {
        int saved = errno;
        (void)close(fd);
        (void)unlinkat(log->config.directory_fd, temp, 0);
        errno = saved;
        return -1;
    }
    return fd;
}

/* -------------------------------------------------------------------------------------------------------- its number */

void once__log_lock_segments(once__log_t *log)
{
    once__index_t *index = log->config.index;
    uint32_t next, gone;
    char name[ONCE__SEGMENT_NAME];
    struct stat st;

    if (!once__index_lock_segments(index)) {
        return;
    }
    next = once__index_next_segment(index);
    once__segment_name(name, next, "log");
    if (next != 0 && fstatat(log->config.directory_fd, name, &st, 0) == 0) {
        (void)once__log_sync_directory(log);
        once__index_add_segment(index, next, ONCE__SEGMENT_SEALED, (uint64_t)st.st_size, 0);
    }
    gone = once__index_first_segment(index) - 1;
    once__segment_name(name, gone, "log");
    if (gone != 0) {
        /* Synced also when it is gone already: it may be a spare, and nobody knows whether the disk has that name by now. */
        (void)unlinkat(log->config.directory_fd, name, 0);
        (void)once__log_sync_directory(log);
    }
}

int once__log_set_extent(once__log_t *log, uint32_t first, uint32_t last)
{
    once__extent_t extent = {first, last};
    int fd = once__extent_write(log->config.disk, log->config.directory_fd, &extent);
    int code = fd >= 0 ? once__log_sync_fd(log, fd) : once__log_errno();

    if (fd >= 0) {
        (void)close(fd);
    }
    return code;
}

/* renameat() that never replaces a file: then EEXIST. */
static int rename_new(int directory_fd, const char *from, const char *to)
{
    int code = renameat2(directory_fd, from, directory_fd, to, RENAME_NOREPLACE);

    if (code != 0 && (errno == EINVAL || errno == ENOSYS)) { /* not every filesystem has it */
        code = linkat(directory_fd, from, directory_fd, to, 0);
        code = code == 0 ? unlinkat(directory_fd, from, 0) : code;
    }
    return code;
}

/*
 * Puts the file over one that has its name already, if that has no frame and no writer: one whose name could not be synced.
 * Otherwise the index is older than the log, and the frames are records that it does not know: ONCE_E_CORRUPT, and nothing is
 * changed.
 */
static int replace_empty(once__log_t *log, const char *temp, const char *name)
{
    static const uint8_t nothing[ONCE__FRAME_HEADER];
    uint8_t first[ONCE__FRAME_HEADER];
    int directory_fd = log->config.directory_fd;
    int fd = openat(directory_fd, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    int code = ONCE_OK;

    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) != 0 ||
        pread(fd, first, sizeof(first), ONCE__SEGMENT_HEADER) != (ssize_t)sizeof(first) ||
        memcmp(first, nothing, sizeof(first)) != 0) {
        atomic_store(&log->outdated, 1);
        code = ONCE_E_CORRUPT;
    } else if (renameat(directory_fd, temp, directory_fd, name) != 0) {
        code = once__log_errno();
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return code;
}

/* The name of the file, which makes it the segment, and from then on it must exist. */
static int name_segment(once__log_t *log, uint32_t number, const char *temp)
{
    int directory_fd = log->config.directory_fd, code;
    char name[ONCE__SEGMENT_NAME];

    once__segment_name(name, number, "log");
    if (once__extent_make(directory_fd) != 0) {
        return once__log_errno();
    }
    if (rename_new(directory_fd, temp, name) != 0) {
        code = errno == EEXIST ? replace_empty(log, temp, name) : once__log_errno();
        if (code != ONCE_OK) {
            return code;
        }
    }
    /* If this fails, the file stays: it is empty, it may have to exist already, and who begins a segment next takes its name. */
    code = once__log_sync_directory(log);
    return code == ONCE_OK
               ? once__log_set_extent(log, once__index_first_segment(log->config.index), number)
               : code;
}

/* Gives the file its number and its header. The segments are locked. */
static int enter_segment(once__log_t *log, once__segment_t *segment, const char *temp)
{
    once__segment_header_t header = {.size = segment->size};
    once__index_t *index = log->config.index;
    int code;
    /* What an earlier use left behind should not look like a torn tail: zeros behind the header. */
    uint8_t begin[ONCE__SEGMENT_HEADER + ONCE__FRAME_HEADER] = {0};

    header.number = once__index_next_segment(index);
    if (header.number == 0) {
        return ONCE_E_FULL;
    }
    header.created = once__index_now(index);
    memcpy(header.boot_id, log->config.boot_id, ONCE__BOOT_ID_SIZE);
    once__segment_header_write(&header, begin);
    if (once__log_write(log, segment->fd, begin, sizeof(begin), 0) != 0) {
        return once__log_errno();
    }
    if (once__log_sync_fd(log, segment->fd) != ONCE_OK) {
        return ONCE_E_IO;
    }
    code = name_segment(log, header.number, temp);
    if (code != ONCE_OK) {
        return code;
    }
    once__index_add_segment(index, header.number, ONCE__SEGMENT_ACTIVE, segment->size, 0);
    once__window_assign(index, log->window, log->rolled.number, header.number,
                        ONCE__SEGMENT_HEADER);
    segment->number = header.number;
    segment->tail = segment->synced = ONCE__SEGMENT_HEADER;
    return ONCE_OK;
}

static int start(once__log_t *log, uint64_t size)
{
    once__segment_t segment = {.size = size};
    char temp[TEMP_SIZE];
    int code, used;

    if (atomic_load(&log->outdated)) {
        return ONCE_E_CORRUPT;
    }
    if (once__index_mark_used(log->config.index) != ONCE_OK) {
        return ONCE_E_IO;
    }
    (void)snprintf(temp, sizeof(temp), "%d-%p.new", (int)getpid(), (void *)log);
    (void)unlinkat(log->config.directory_fd, temp, 0);
    segment.fd = make_file(log, size, temp, &used);
    if (segment.fd < 0) {
        return once__log_errno();
    }
    segment.ready = used ? size : 0;
    once__log_lock_segments(log);
    code = enter_segment(log, &segment, temp);
    once__index_unlock_segments(log->config.index);
    if (code != ONCE_OK) {
        (void)close(segment.fd);
        (void)unlinkat(log->config.directory_fd, temp, 0);
        return code;
    }
    log->active = segment;
    once__templates_clear(&log->templates);
    return ONCE_OK;
}

int once__log_is_outdated(const once__log_t *log)
{
    return atomic_load(&log->outdated);
}

int once__log_start(once__log_t *log, uint64_t size)
{
    int anew = log->window == NULL, code;

    if (anew) {
        log->window = once__window_take(log->config.index);
    }
    code = log->window != NULL ? start(log, size) : ONCE_E_FULL;
    if (code != ONCE_OK && anew && log->window != NULL) {
        once__window_give(log->config.index, log->window);
        log->window = NULL;
    }
    return code;
}
