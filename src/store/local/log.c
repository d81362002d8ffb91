#include "store/local/log.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define FIRST_SIZE  ((uint64_t)1 << 20)
#define SEAL_ROOM   64 /* kept free at the end, for the frame that seals */
#define READERS     256
#define SPARES_MAX  4
#define BUFFER_KEEP ((size_t)1 << 20)

typedef struct segment {
    uint32_t number; /* 0: none */
    int fd;
    uint8_t *map;
    uint64_t size;
    uint64_t tail;   /* where the next frame goes */
    uint64_t synced; /* up to here */
} segment_t;

typedef struct reader {
    uint32_t number;
    const uint8_t *map;
    uint64_t size;
} reader_t;

struct once__log {
    once__log_config_t config;
    segment_t active;
    segment_t rolled; /* finished since the last sync: must be synced, too */
    uint64_t next_size;
    reader_t readers[READERS]; /* by number */
    uint8_t *buffer;
    size_t buffer_size;
    uint64_t syncs;
    int failed;
};

static int real_sync(void *data, int fd)
{
    return fdatasync(fd);
}

static int real_allocate(void *data, int fd, uint64_t size)
{
    int code = fallocate(fd, 0, 0, (off_t)size);

    if (code != 0 && errno == EOPNOTSUPP) {
        errno = posix_fallocate(fd, 0, (off_t)size);
        code = errno == 0 ? 0 : -1;
    }
    return code;
}

const once__disk_t once__real_disk = {.sync = real_sync, .allocate = real_allocate};

void once__segment_name(char out[ONCE__SEGMENT_NAME], uint32_t number, const char *suffix)
{
    (void)snprintf(out, ONCE__SEGMENT_NAME, "%08x.%s", number, suffix);
}

static int code_of_errno(void)
{
    return errno == ENOSPC || errno == EDQUOT ? ONCE_E_FULL : ONCE_E_IO;
}

once__log_t *once__log_open(const once__log_config_t *config)
{
    once__log_t *log = calloc(1, sizeof(*log));

    if (log != NULL) {
        log->config = *config;
        log->next_size = FIRST_SIZE < config->segment_size ? FIRST_SIZE : config->segment_size;
    }
    return log;
}

/* ---------------------------------------------------------------------------------------------------- our own segment */

static int sync_fd(once__log_t *log, int fd)
{
    int code = log->config.disk->sync(log->config.disk->data, fd);

    log->syncs++;
    if (code != 0) {
        log->failed = 1;
    }
    return code == 0 ? ONCE_OK : ONCE_E_IO;
}

static void release_segment(segment_t *segment)
{
    if (segment->number != 0) {
        (void)munmap(segment->map, segment->size);
        (void)close(segment->fd); /* and with it the lock */
    }
    memset(segment, 0, sizeof(*segment));
}

/* Everything in it is durable and nobody will append. */
static void seal(once__log_t *log, segment_t *segment)
{
    once__segment_info_t *info = once__index_segment(log->config.index, segment->number);

    atomic_store(&info->synced, UINT64_MAX);
    atomic_store(&info->state, ONCE__SEGMENT_SEALED);
    release_segment(segment);
}

static void write_seal(segment_t *segment)
{
    once__place_t place = {segment->number, segment->tail};

    if (segment->tail + ONCE__FRAME_HEADER <= segment->size) {
        once__frame_write(segment->map + segment->tail, place, segment->tail, NULL, NULL);
        segment->tail += once__frame_size(NULL);
    }
}

/* A file that dropping left for reuse, of at least `size`. -1: there is none. Its name goes to `name`. */
static int take_spare(once__log_t *log, uint64_t size, const char *temp)
{
    int fd = -1;
    int copy = dup(log->config.directory_fd);
    DIR *directory = copy >= 0 ? fdopendir(copy) : NULL;
    const struct dirent *entry;

    if (directory == NULL) {
        return -1;
    }
    rewinddir(directory);
    while (fd < 0 && (entry = readdir(directory)) != NULL) {
        const char *dot = strrchr(entry->d_name, '.');
        struct stat st;
        if (dot == NULL || strcmp(dot, ".spare") != 0 ||
            fstatat(log->config.directory_fd, entry->d_name, &st, 0) != 0 ||
            (uint64_t)st.st_size != size ||
            renameat(log->config.directory_fd, entry->d_name, log->config.directory_fd, temp) !=
                0) {
            continue;
        }
        fd = openat(log->config.directory_fd, temp, O_RDWR | O_CLOEXEC);
    }
    (void)closedir(directory);
    return fd;
}

static int make_file(once__log_t *log, uint64_t size, const char *temp)
{
    int fd = take_spare(log, size, temp);

    if (fd >= 0) {
        return fd;
    }
    fd = openat(log->config.directory_fd, temp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0 && log->config.disk->allocate(log->config.disk->data, fd, size) != 0) {
        int saved = errno;
        (void)close(fd);
        (void)unlinkat(log->config.directory_fd, temp, 0);
        errno = saved;
        return -1;
    }
    return fd;
}

/* A number whose file exists was taken by somebody who was killed before he could say so. */
static void skip_taken(once__log_t *log)
{
    char name[ONCE__SEGMENT_NAME];
    uint32_t number = once__index_next_segment(log->config.index);
    struct stat st;

    once__segment_name(name, number, "log");
    if (number != 0 && fstatat(log->config.directory_fd, name, &st, 0) == 0) {
        once__index_add_segment(log->config.index, number, ONCE__SEGMENT_SEALED,
                                (uint64_t)st.st_size, 0);
    }
}

/* Gives the file its number and its header. The segments are locked. */
static int enter_segment(once__log_t *log, segment_t *segment, const char *temp)
{
    once__segment_header_t header = {.size = segment->size};
    char name[ONCE__SEGMENT_NAME];

    header.number = once__index_next_segment(log->config.index);
    if (header.number == 0) {
        return ONCE_E_FULL;
    }
    header.created = once__index_now(log->config.index);
    memcpy(header.boot_id, log->config.boot_id, ONCE__BOOT_ID_SIZE);
    once__segment_header_write(&header, segment->map);
    /* What an earlier use left behind must not look like the end of a damaged range. */
    memset(segment->map + ONCE__SEGMENT_HEADER, 0, ONCE__FRAME_HEADER);
    if (sync_fd(log, segment->fd) != ONCE_OK) {
        return ONCE_E_IO;
    }
    once__segment_name(name, header.number, "log");
    if (renameat(log->config.directory_fd, temp, log->config.directory_fd, name) != 0 ||
        fsync(log->config.directory_fd) != 0) {
        return code_of_errno();
    }
    once__index_add_segment(log->config.index, header.number, ONCE__SEGMENT_ACTIVE, segment->size,
                            0);
    segment->number = header.number;
    segment->tail = segment->synced = ONCE__SEGMENT_HEADER;
    return ONCE_OK;
}

static int start_segment(once__log_t *log, uint64_t size)
{
    segment_t segment = {.size = size};
    char temp[ONCE__SEGMENT_NAME + 24];
    int code;

    (void)snprintf(temp, sizeof(temp), "%d-%p.new", (int)getpid(), (void *)log);
    (void)unlinkat(log->config.directory_fd, temp, 0);
    segment.fd = make_file(log, size, temp);
    if (segment.fd < 0) {
        return code_of_errno();
    }
    segment.map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, segment.fd, 0);
    if (segment.map == MAP_FAILED || flock(segment.fd, LOCK_EX | LOCK_NB) != 0) {
        code = ONCE_E_IO;
    } else {
        if (once__index_lock_segments(log->config.index)) {
            skip_taken(log);
        }
        code = enter_segment(log, &segment, temp);
        once__index_unlock_segments(log->config.index);
    }
    if (code != ONCE_OK) {
        if (segment.map != MAP_FAILED) {
            (void)munmap(segment.map, size);
        }
        (void)close(segment.fd);
        (void)unlinkat(log->config.directory_fd, temp, 0);
        return code;
    }
    log->active = segment;
    return ONCE_OK;
}

/* Starts a new segment with room for `size`. The old one is synced with the next sync. */
static int roll(once__log_t *log, uint64_t size, int was_full)
{
    uint64_t want = log->next_size;
    int code;

    while (want < size + ONCE__SEGMENT_HEADER + SEAL_ROOM) {
        want *= 2;
    }
    /* Two finished ones in one batch: the first is synced now. */
    if (log->rolled.number != 0) {
        code = once__log_sync(log);
        if (code != ONCE_OK) {
            return code;
        }
    }
    log->rolled = log->active;
    memset(&log->active, 0, sizeof(log->active));
    code = start_segment(log, want);
    if (code != ONCE_OK) {
        log->active = log->rolled;
        memset(&log->rolled, 0, sizeof(log->rolled));
        return code;
    }
    if (log->rolled.number != 0) {
        write_seal(&log->rolled);
    }
    if (was_full && log->next_size < log->config.segment_size) {
        log->next_size *= 2;
    }
    return ONCE_OK;
}

int once__log_append(once__log_t *log, const uint8_t *id, const once__record_t *record,
                     uint32_t not_before, once__place_t *place)
{
    uint32_t size = once__frame_size(record);
    segment_t *active = &log->active;

    if (log->failed) {
        return ONCE_E_IO;
    }
    if (size > ONCE__FRAME_MAX) {
        return ONCE_E_TOO_BIG;
    }
    if (active->number == 0 || active->number < not_before ||
        active->tail + size + SEAL_ROOM > active->size) {
        int code = roll(log, size, active->tail + size + SEAL_ROOM > active->size);
        if (code != ONCE_OK) {
            return code;
        }
    }
    place->segment = active->number;
    place->offset = active->tail;
    once__frame_write(active->map + active->tail, *place, active->synced, id, record);
    active->tail += size;
    once__index_note_frame(log->config.index, active->number,
                           record != NULL ? &record->head : NULL);
    return ONCE_OK;
}

int once__log_sync(once__log_t *log)
{
    segment_t *active = &log->active;

    if (log->failed) {
        return ONCE_E_IO;
    }
    if (log->rolled.number != 0) {
        if (sync_fd(log, log->rolled.fd) != ONCE_OK) {
            return ONCE_E_IO;
        }
        seal(log, &log->rolled);
    }
    if (active->number != 0 && active->synced < active->tail) {
        uint64_t tail = active->tail;
        if (sync_fd(log, active->fd) != ONCE_OK) {
            return ONCE_E_IO;
        }
        active->synced = tail;
        atomic_store(&once__index_segment(log->config.index, active->number)->synced, tail);
    }
    return ONCE_OK;
}

int once__log_failed(const once__log_t *log)
{
    return log->failed;
}

uint64_t once__log_syncs(const once__log_t *log)
{
    return log->syncs;
}

int once__log_is_ours(const once__log_t *log, once__place_t place)
{
    return place.segment == log->active.number || place.segment == log->rolled.number;
}

/* ---------------------------------------------------------------------------------------------------------- reading */

/* Maps a segment for reading, or finds it mapped. */
static int find_reader(once__log_t *log, uint32_t number, const reader_t **out)
{
    reader_t *reader = &log->readers[number % READERS];
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
    if (reader->number != 0) {
        (void)munmap((void *)(uintptr_t)reader->map, reader->size);
    }
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
    memcpy(&len, map + place.offset, sizeof(len));
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
    const segment_t *own = place.segment == log->active.number   ? &log->active
                           : place.segment == log->rolled.number ? &log->rolled
                                                                 : NULL;
    const reader_t *reader;
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

/* Takes over what a writer left who is gone: syncs it, so that it counts. 1 when it is sealed now. */
static int seal_dead(once__log_t *log, uint32_t number)
{
    once__segment_info_t *info = once__index_segment(log->config.index, number);
    char name[ONCE__SEGMENT_NAME];
    int sealed = 0, fd;

    once__segment_name(name, number, "log");
    fd = openat(log->config.directory_fd, name, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return 0;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 &&
        log->config.disk->sync(log->config.disk->data, fd) == 0) {
        atomic_store(&info->synced, UINT64_MAX);
        atomic_store(&info->state, ONCE__SEGMENT_SEALED);
        sealed = 1;
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
    return seal_dead(log, place.segment);
}

/* --------------------------------------------------------------------------------------------------------- dropping */

static unsigned count_spares(const once__log_t *log)
{
    unsigned count = 0;
    int copy = dup(log->config.directory_fd);
    DIR *directory = copy >= 0 ? fdopendir(copy) : NULL;
    const struct dirent *entry;

    if (directory == NULL) {
        return SPARES_MAX;
    }
    rewinddir(directory);
    while ((entry = readdir(directory)) != NULL) {
        const char *dot = strrchr(entry->d_name, '.');
        count += dot != NULL && strcmp(dot, ".spare") == 0;
    }
    (void)closedir(directory);
    return count;
}

static void remove_file(const once__log_t *log, uint32_t number, uint64_t size)
{
    char name[ONCE__SEGMENT_NAME], spare[ONCE__SEGMENT_NAME];

    once__segment_name(name, number, "log");
    once__segment_name(spare, number, "spare");
    if (size == log->config.segment_size && count_spares(log) < SPARES_MAX) {
        (void)renameat(log->config.directory_fd, name, log->config.directory_fd, spare);
    } else {
        (void)unlinkat(log->config.directory_fd, name, 0);
    }
}

static void forget_segment(once__log_t *log, uint32_t number)
{
    once__segment_info_t *info = once__index_segment(log->config.index, number);

    (void)once__index_lock_segments(log->config.index);
    if (once__index_first_segment(log->config.index) == number) {
        once__index_set_first_segment(log->config.index, number + 1);
        atomic_store(&info->state, ONCE__SEGMENT_NONE);
        remove_file(log, number, info->size);
    }
    once__index_unlock_segments(log->config.index);
}

/*
 * Can it go? When everything in it has expired; or when so little in it still counts that carrying it on costs less than keeping
 * the rest: one answer that is kept for a month must not keep a month of others. The few records of a finished segment are
 * carried in any case (short-lived processes leave many of those), but not those of our own: they would move for ever.
 */
#define SPARSE 16
#define FEW    64

static int may_go(const once__segment_info_t *info, uint64_t now, int own, int *expired)
{
    uint64_t current = (uint64_t)atomic_load(&info->current);
    uint64_t frames = atomic_load(&info->frames);
    uint64_t last = atomic_load(&info->last_expiry);

    *expired = last != 0 && now >= last;
    return *expired || current * SPARSE <= frames || (!own && current <= FEW);
}

int once__log_drop(once__log_t *log, uint64_t now, once__carry_t carry, void *data, uint64_t *count)
{
    uint32_t number = once__index_first_segment(log->config.index);
    once__segment_info_t *info = once__index_segment(log->config.index, number);
    int expired, code;

    if (log->failed || number >= once__index_end_segment(log->config.index) ||
        !may_go(info, now, number == log->active.number, &expired)) {
        return ONCE_E_NOT_FOUND;
    }
    if (number == log->active.number) {
        /* Our own: a new one, so that it can go. */
        if (atomic_load(&info->frames) == 0 || roll(log, ONCE__FRAME_HEADER, 0) != ONCE_OK ||
            once__log_sync(log) != ONCE_OK) {
            return ONCE_E_NOT_FOUND;
        }
    }
    if (atomic_load(&info->state) == ONCE__SEGMENT_ACTIVE && !seal_dead(log, number)) {
        return ONCE_E_NOT_FOUND;
    }
    *count += expired ? (uint64_t)(atomic_load(&info->current) - atomic_load(&info->held)) : 0;
    if (atomic_load(&info->held) > 0 || (!expired && atomic_load(&info->current) > 0)) {
        code = carry(data, number, !expired);
        if (code != ONCE_OK) {
            return code;
        }
    }
    forget_segment(log, number);
    return ONCE_OK;
}

/* ---------------------------------------------------------------------------------------------------------- closing */

static void free_log(once__log_t *log)
{
    for (unsigned i = 0; i < READERS; i++) {
        if (log->readers[i].number != 0) {
            (void)munmap((void *)(uintptr_t)log->readers[i].map, log->readers[i].size);
        }
    }
    free(log->buffer);
    free(log);
}

void once__log_abandon(once__log_t *log)
{
    if (log == NULL) {
        return;
    }
    release_segment(&log->active);
    release_segment(&log->rolled);
    free_log(log);
}

int once__log_close(once__log_t *log)
{
    int code;

    if (log == NULL) {
        return ONCE_OK;
    }
    if (log->active.number != 0) {
        write_seal(&log->active);
    }
    code = once__log_sync(log);
    if (code == ONCE_OK && log->active.number != 0) {
        seal(log, &log->active);
    }
    once__log_abandon(log);
    return code;
}
