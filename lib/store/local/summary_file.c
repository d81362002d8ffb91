/*
 * Summaries as files: XXXXXXXX.sum beside the segment.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "store/local/log.h"
#include "store/local/summary.h"

#define SIZE_MAX_FILE ((off_t)1 << 31)
#define AT_SEGMENT    16
#define HEADER_CRC_AT 12

/* ---------------------------------------------------------------------------------------------------------- reading */

static int read_all(int fd, uint8_t *out, size_t len, off_t offset)
{
    size_t done = 0;

    while (done < len) {
        ssize_t n = pread(fd, out + done, len - done, offset + (off_t)done);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return ONCE_E_IO;
        }
        done += (size_t)n;
    }
    return ONCE_OK;
}

static int load(once__summary_t *summary, int fd)
{
    struct stat st;

    if (fstat(fd, &st) != 0) {
        return ONCE_E_IO;
    }
    if (st.st_size < ONCE__SUMMARY_HEADER || st.st_size > SIZE_MAX_FILE) {
        return ONCE_E_CORRUPT;
    }
    summary->size = summary->room = (size_t)st.st_size;
    summary->bytes = malloc(summary->size);
    return summary->bytes == NULL ? ONCE_E_NOMEM : read_all(fd, summary->bytes, summary->size, 0);
}

/* Is there a frame where the summary says that there is none? */
static int has_more(int fd, uint32_t number, uint64_t end, uint64_t size)
{
    once__place_t place = {number, end};
    once__frame_t frame;
    uint8_t head[8], *bytes;
    uint32_t len;
    int more = 0;

    if (end + ONCE__FRAME_HEADER > size ||
        read_all(fd, head, sizeof(head), (off_t)end) != ONCE_OK) {
        return end > size;
    }
    len = once__get32(head);
    if (len < ONCE__FRAME_HEADER || len > ONCE__FRAME_MAX || len > size - end) {
        return 0;
    }
    bytes = malloc(len);
    if (bytes == NULL || read_all(fd, bytes, len, (off_t)end) != ONCE_OK) {
        more = 1; /* the segment will tell */
    } else {
        more = once__frame_read(&frame, place, bytes, len) && frame.kind != ONCE__FRAME_SEALED;
    }
    free(bytes);
    return more;
}

/* Is it of the very segment that is there now, and of all of it? */
static int is_of(const once__summary_t *summary, int segments_fd, uint32_t number)
{
    uint8_t header[ONCE__SEGMENT_HEADER];
    char name[ONCE__SEGMENT_NAME];
    struct stat st;
    int fd, is;

    once__segment_name(name, number, "log");
    fd = openat(segments_fd, name, O_RDONLY | O_CLOEXEC);
    is = fd >= 0 && fstat(fd, &st) == 0 && read_all(fd, header, sizeof(header), 0) == ONCE_OK &&
         once__get32(header + HEADER_CRC_AT) == once__get32(summary->bytes + AT_SEGMENT) &&
         !has_more(fd, number, summary->end, (uint64_t)st.st_size);
    if (fd >= 0) {
        (void)close(fd);
    }
    return is;
}

int once__summary_read(once__summary_t *summary, int segments_fd, uint32_t number)
{
    char name[ONCE__SEGMENT_NAME];
    int code, fd;

    memset(summary, 0, sizeof(*summary));
    once__segment_name(name, number, "sum");
    fd = openat(segments_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        return errno == ENOENT ? ONCE_E_NOT_FOUND : ONCE_E_IO;
    }
    code = load(summary, fd);
    (void)close(fd);
    if (code == ONCE_OK && !once__summary_parse(summary, number)) {
        code = ONCE_E_CORRUPT;
    }
    if (code == ONCE_OK && !is_of(summary, segments_fd, number)) {
        code = ONCE_E_CONFLICT;
    }
    if (code != ONCE_OK) {
        once__summary_free(summary);
    }
    return code;
}

void once__summary_remove(int segments_fd, uint32_t number)
{
    char name[ONCE__SEGMENT_NAME];

    once__segment_name(name, number, "sum");
    (void)unlinkat(segments_fd, name, 0);
}

/* ---------------------------------------------------------------------------------------------------------- writing */

/* Nobody waits for it to be durable: after a crash it is sound, or it is none. */
static int write_file(const once__summary_t *summary, int segments_fd, const char *temp,
                      const char *name, int fd)
{
    size_t done = 0;

    while (done < summary->size) {
        ssize_t n = write(fd, summary->bytes + done, summary->size - done);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return n < 0 && (errno == ENOSPC || errno == EDQUOT) ? ONCE_E_FULL : ONCE_E_IO;
        }
        done += (size_t)n;
    }
    return renameat(segments_fd, temp, segments_fd, name) == 0 ? ONCE_OK : ONCE_E_IO;
}

static int build_from(once__summary_t *summary, int segments_fd, uint32_t number)
{
    char name[ONCE__SEGMENT_NAME];
    int code = ONCE_E_IO, fd;
    struct stat st;
    void *map = MAP_FAILED;

    once__segment_name(name, number, "log");
    fd = openat(segments_fd, name, O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &st) == 0 && st.st_size >= ONCE__SEGMENT_HEADER &&
        once__disk_try(&once__real_disk, fd, (uint64_t)st.st_size) == 0) {
        map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    }
    if (map != MAP_FAILED) {
        (void)madvise(map, (size_t)st.st_size, MADV_SEQUENTIAL);
        code = once__summary_build(summary, number, map, (uint64_t)st.st_size);
        (void)munmap(map, (size_t)st.st_size);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return code;
}

/* The file that it is written to is locked meanwhile: others leave it to us, and know when we were killed. */
int once__summary_make(int segments_fd, uint32_t number)
{
    char temp[2 * ONCE__SEGMENT_NAME], name[ONCE__SEGMENT_NAME];
    once__summary_t summary;
    struct stat st;
    int fd, code;

    once__segment_name(name, number, "sum");
    if (fstatat(segments_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        return ONCE_OK;
    }
    (void)snprintf(temp, sizeof(temp), "%08x-sum.new", number);
    fd = openat(segments_fd, temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) {
        return errno == EEXIST ? ONCE_E_CONFLICT : ONCE_E_IO;
    }
    code = flock(fd, LOCK_EX | LOCK_NB) == 0 ? build_from(&summary, segments_fd, number)
                                             : ONCE_E_CONFLICT;
    if (code == ONCE_OK) {
        code = write_file(&summary, segments_fd, temp, name, fd);
        once__summary_free(&summary);
    }
    if (code != ONCE_OK) {
        (void)unlinkat(segments_fd, temp, 0);
    }
    (void)close(fd);
    return code;
}

static int exists(int segments_fd, uint32_t number)
{
    char name[ONCE__SEGMENT_NAME];
    struct stat st;

    once__segment_name(name, number, "sum");
    return fstatat(segments_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

uint32_t once__summaries_next(int segments_fd, const once__index_t *index, uint32_t *from)
{
    uint32_t first = once__index_first_segment(index), end = once__index_end_segment(index);
    int settled = 1; /* nothing before it has a writer */

    *from = *from > first ? *from : first;
    for (uint32_t n = *from; n < end; n++) {
        if (atomic_load(&once__index_segment(index, n)->state) != ONCE__SEGMENT_SEALED) {
            settled = 0;
        } else if (!exists(segments_fd, n)) {
            *from = settled ? n + 1 : *from;
            return n;
        }
        *from = settled ? n + 1 : *from;
    }
    return 0;
}

int once__summaries_wanted(int segments_fd, const once__index_t *index, uint32_t from)
{
    return once__summaries_next(segments_fd, index, &from) != 0;
}

void once__summaries_make(int segments_fd, const once__index_t *index, uint32_t *from,
                          const _Atomic int *stop)
{
    uint32_t number, last = 0;

    /* Behind a writer's segment it may be the same one again, when it cannot have a summary. */
    while (!atomic_load(stop) && (number = once__summaries_next(segments_fd, index, from)) > last) {
        (void)once__summary_make(segments_fd, number);
        if (number < once__index_first_segment(index)) { /* dropped meanwhile */
            once__summary_remove(segments_fd, number);
        }
        last = number;
    }
}
