/*
 * The segments of everybody: frames are read from mappings, and what a dead writer left is made durable.
 */
#include "store/local/log_inside.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/bytes.h"

#define BUFFER_KEEP ((size_t)1 << 20)
#define PAGE        4096u

/* ---------------------------------------------------------------------------------------------------------- reading */

static void release_reader(once__reader_t *reader)
{
    if (reader->number != 0) {
        (void)munmap((void *)(uintptr_t)reader->map, reader->size);
        reader->number = 0;
    }
}

void once__log_forget_readers(once__log_t *log)
{
    uint32_t first = once__index_first_segment(log->config.index);

    for (unsigned i = 0; i < ONCE__READERS; i++) {
        if (log->readers[i].number < first) {
            release_reader(&log->readers[i]);
        }
    }
}

/* Maps a segment for reading, or finds it mapped. */
static int find_reader(once__log_t *log, uint32_t number, const once__reader_t **out)
{
    once__reader_t *reader = &log->readers[number % ONCE__READERS];
    char name[ONCE__SEGMENT_NAME];
    struct stat st;
    int fd;
    void *map;

    *out = reader;
    if (reader->number == number) {
        return ONCE_OK;
    }
    once__segment_name(name, number, "log");
    fd = openat(log->config.directory_fd, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0 || st.st_size < ONCE__SEGMENT_HEADER) {
        int code = fd < 0 && errno == ENOENT ? ONCE_E_NOT_FOUND : ONCE_E_IO;
        if (fd >= 0) {
            (void)close(fd);
        }
        return code;
    }
    map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    (void)close(fd);
    if (map == MAP_FAILED) {
        return ONCE_E_NOMEM;
    }
    release_reader(reader);
    reader->number = number;
    reader->map = map;
    reader->size = (uint64_t)st.st_size;
    return ONCE_OK;
}

static int grow_buffer(once__log_t *log, size_t size)
{
    if (log->buffer_size < size || (log->buffer_size > BUFFER_KEEP && size <= BUFFER_KEEP)) {
        size_t want = size < 4096 ? 4096 : size;
        uint8_t *buffer = realloc(log->buffer, want);
        if (buffer == NULL) {
            return ONCE_E_NOMEM;
        }
        log->buffer = buffer;
        log->buffer_size = want;
    }
    return ONCE_OK;
}

/*
 * Copies first and checks the copy: the segment may be dropped, and its file used again, while we read.
 */
static int copy_frame(once__log_t *log, const uint8_t *map, uint64_t size, once__place_t place,
                      once__frame_t *frame)
{
    uint32_t len;
    int code;

    if (place.offset + ONCE__FRAME_HEADER > size) {
        return ONCE_E_CORRUPT;
    }
    len = once__get32(map + place.offset);
    if (len < ONCE__FRAME_HEADER || len > ONCE__FRAME_MAX || len > size - place.offset) {
        return ONCE_E_CORRUPT;
    }
    code = grow_buffer(log, len);
    if (code != ONCE_OK) {
        return code;
    }
    memcpy(log->buffer, map + place.offset, len);
    return once__frame_read(frame, place, log->buffer, len) ? ONCE_OK : ONCE_E_CORRUPT;
}

int once__log_read(once__log_t *log, once__place_t place, once__frame_t *frame)
{
    const once__segment_t *own = place.segment == log->active.number   ? &log->active
                                 : place.segment == log->rolled.number ? &log->rolled
                                                                       : NULL;
    const once__reader_t *reader;
    int code;

    if (own != NULL && own->number != 0) {
        return copy_frame(log, own->map, own->size, place, frame);
    }
    code = find_reader(log, place.segment, &reader);
    if (code == ONCE_OK) {
        code = copy_frame(log, reader->map, reader->size, place, frame);
    }
    if (code != ONCE_OK && place.segment < once__index_first_segment(log->config.index)) {
        return ONCE_E_NOT_FOUND;
    }
    return code == ONCE_E_NOT_FOUND ? ONCE_E_CORRUPT : code;
}

/* ------------------------------------------------------------------------------------------------- others' segments */

/*
 * After a failed sync the kernel may take pages for written that are not. Changing them makes it write them again.
 */
static int write_again(int fd, uint64_t from)
{
    struct stat st;
    volatile uint8_t *map;

    if (fstat(fd, &st) != 0) {
        return -1;
    }
    map = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) {
        return -1;
    }
    for (uint64_t at = from / PAGE * PAGE; at < (uint64_t)st.st_size; at += PAGE) {
        uint8_t same = map[at];
        map[at] = same; /* dirty again, so that the next sync writes it */
    }
    return munmap((void *)(uintptr_t)map, (size_t)st.st_size);
}

int once__log_seal_dead(once__log_t *log, uint32_t number)
{
    once__segment_info_t *info = once__index_segment(log->config.index, number);
    const once__disk_t *disk = log->config.disk;
    char name[ONCE__SEGMENT_NAME];
    int sealed = 0, fd;

    once__segment_name(name, number, "log");
    fd = openat(log->config.directory_fd, name, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return 0;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
        uint64_t synced = atomic_load(&info->synced);
        sealed = synced == UINT64_MAX ||
                 ((!atomic_load(&info->suspect) || write_again(fd, synced) == 0) &&
                  disk->sync(disk->data, fd) == 0);
        if (sealed) {
            atomic_store(&info->synced, UINT64_MAX);
            atomic_store(&info->state, ONCE__SEGMENT_SEALED);
        } else {
            atomic_store(&info->suspect, 1);
        }
    }
    (void)close(fd);
    return sealed;
}

int once__log_is_durable(once__log_t *log, once__place_t place)
{
    const once__segment_info_t *info = once__index_segment(log->config.index, place.segment);

    if (place.offset < atomic_load(&info->synced)) {
        return 1;
    }
    if (once__log_is_ours(log, place)) {
        return 0;
    }
    return once__log_seal_dead(log, place.segment);
}
