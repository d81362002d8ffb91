#include "store/local/log_inside.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#define FIRST_SIZE ((uint64_t)1 << 20)

/* ------------------------------------------------------------------------------------------------------------- disk */

static int real_sync(void *data, int fd)
{
    return fdatasync(fd);
}

static int real_sync_directory(void *data, int fd)
{
    return fsync(fd);
}

static int real_allocate(void *data, int fd, uint64_t size)
{
    int code;

    do {
        code = fallocate(fd, 0, 0, (off_t)size);
    } while (code != 0 && errno == EINTR);
    if (code != 0 && errno == EOPNOTSUPP) {
        errno = posix_fallocate(fd, 0, (off_t)size);
        code = errno == 0 ? 0 : -1;
    }
    return code;
}

const once__disk_t once__real_disk = {
    .sync = real_sync, .sync_directory = real_sync_directory, .allocate = real_allocate};

once__log_t *once__log_open(const once__log_config_t *config)
{
    once__log_t *log = calloc(1, sizeof(*log));

    if (log != NULL) {
        log->config = *config;
        log->next_size = FIRST_SIZE < config->segment_size ? FIRST_SIZE : config->segment_size;
    }
    return log;
}

/* ---------------------------------------------------------------------------------------------------------- syncing */

/* Nobody may take for durable what is behind the last good sync. Without our lock others can see to it. */
static void give_up(once__log_t *log, const once__segment_t *segment)
{
    if (segment->number != 0) {
        atomic_store(&once__index_segment(log->config.index, segment->number)->suspect, 1);
        (void)flock(segment->fd, LOCK_UN);
    }
}

static int synced(once__log_t *log, int code)
{
    log->syncs++;
    if (code == 0) {
        return ONCE_OK;
    }
    log->failed = 1;
    give_up(log, &log->rolled);
    give_up(log, &log->active);
    return ONCE_E_IO;
}

int once__log_sync_fd(once__log_t *log, int fd)
{
    return synced(log, log->config.disk->sync(log->config.disk->data, fd));
}

int once__log_sync_directory(once__log_t *log)
{
    const once__disk_t *disk = log->config.disk;

    return synced(log, disk->sync_directory(disk->data, log->config.directory_fd));
}

static void release_segment(once__segment_t *segment)
{
    if (segment->number != 0) {
        (void)munmap(segment->map, segment->size);
        (void)close(segment->fd); /* and with it the lock */
    }
    memset(segment, 0, sizeof(*segment));
}

/*
 * Everything in it is durable and nobody will append. The last frame says so; it is written after the sync, or a crash could leave
 * it behind without what it vouches for. It need not be synced itself.
 */
static void seal(once__log_t *log, once__segment_t *segment)
{
    once__segment_info_t *info = once__index_segment(log->config.index, segment->number);
    once__place_t place = {segment->number, segment->tail};

    if (segment->tail + ONCE__FRAME_HEADER <= segment->size) {
        once__frame_write(segment->map + segment->tail, place, segment->tail, NULL, NULL);
    }
    atomic_store(&info->synced, UINT64_MAX);
    atomic_store(&info->state, ONCE__SEGMENT_SEALED);
    /* Also for a child that was forked meanwhile and still has the descriptor: the file may be used again. */
    (void)flock(segment->fd, LOCK_UN);
    release_segment(segment);
}

int once__log_sync(once__log_t *log)
{
    once__segment_t *active = &log->active;

    if (log->failed) {
        return ONCE_E_IO;
    }
    if (log->rolled.number != 0) {
        if (once__log_sync_fd(log, log->rolled.fd) != ONCE_OK) {
            return ONCE_E_IO;
        }
        seal(log, &log->rolled);
    }
    if (active->number != 0 && active->synced < active->tail) {
        uint64_t tail = active->tail;
        if (once__log_sync_fd(log, active->fd) != ONCE_OK) {
            return ONCE_E_IO;
        }
        active->synced = tail;
        atomic_store(&once__index_segment(log->config.index, active->number)->synced, tail);
    }
    return ONCE_OK;
}

int once__log_retire(once__log_t *log)
{
    int code = once__log_sync(log);

    if (code == ONCE_OK && log->active.number != 0) {
        seal(log, &log->active);
    }
    return code;
}

int once__log_failed(const once__log_t *log)
{
    return log->failed;
}

uint64_t once__log_syncs(const once__log_t *log)
{
    return log->syncs;
}

/* -------------------------------------------------------------------------------------------------------- appending */

static uint64_t grown(const once__log_t *log)
{
    uint64_t size = log->next_size * 2;

    return size < log->config.segment_size ? size : log->config.segment_size;
}

/* Starts a new segment with room for `size`. The old one is synced with the next sync. */
static int roll(once__log_t *log, uint64_t size, int was_full)
{
    uint64_t next = was_full ? grown(log) : log->next_size;
    uint64_t want = next;
    int code;

    while (want < size + ONCE__SEGMENT_HEADER + ONCE__SEAL_ROOM) {
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
    code = once__log_start(log, want);
    if (code != ONCE_OK) {
        log->active = log->rolled;
        memset(&log->rolled, 0, sizeof(log->rolled));
        return code;
    }
    log->next_size = next;
    return ONCE_OK;
}

/* Makes sure that the active segment has room for a frame and a number of at least `not_before`. */
static int make_room(once__log_t *log, uint64_t size, uint32_t not_before)
{
    const once__segment_t *active = &log->active;
    int full = active->tail + size + ONCE__SEAL_ROOM > active->size;

    if (log->failed) {
        return ONCE_E_IO;
    }
    if (size > ONCE__FRAME_MAX) {
        return ONCE_E_TOO_BIG;
    }
    if (active->number == 0 || active->number < not_before || full) {
        return roll(log, size, active->number != 0 && full);
    }
    return ONCE_OK;
}

static void appended(once__log_t *log, uint64_t size, const once__head_t *head)
{
    log->active.tail += size;
    once__index_note_frame(log->config.index, log->active.number, head);
}

int once__log_append(once__log_t *log, const uint8_t *id, const once__record_t *record,
                     uint32_t not_before, once__place_t *place)
{
    uint32_t size = once__frame_size(record);
    const once__segment_t *active = &log->active;
    int code = make_room(log, size, not_before);

    if (code == ONCE_OK) {
        place->segment = active->number;
        place->offset = active->tail;
        once__frame_write(active->map + active->tail, *place, active->synced, id, record);
        appended(log, size, record != NULL ? &record->head : NULL);
    }
    return code;
}

int once__log_copy(once__log_t *log, const once__frame_t *frame, const once__head_t *head,
                   uint32_t not_before, once__place_t *place)
{
    const once__segment_t *active = &log->active;
    int code = make_room(log, frame->size, not_before);

    if (code == ONCE_OK) {
        place->segment = active->number;
        place->offset = active->tail;
        once__frame_write_bytes(active->map + active->tail, *place, active->synced, frame->id,
                                frame->bytes, frame->len);
        appended(log, frame->size, head);
    }
    return code;
}

int once__log_is_ours(const once__log_t *log, once__place_t place)
{
    return place.segment == log->active.number || place.segment == log->rolled.number;
}

/* ---------------------------------------------------------------------------------------------------------- closing */

void once__log_abandon(once__log_t *log)
{
    if (log == NULL) {
        return;
    }
    release_segment(&log->active);
    release_segment(&log->rolled);
    for (unsigned i = 0; i < ONCE__READERS; i++) {
        if (log->readers[i].number != 0) {
            (void)munmap((void *)(uintptr_t)log->readers[i].map, log->readers[i].size);
        }
    }
    free(log->buffer);
    free(log);
}

/* Who leaves also sees to what others left who were killed: a clean end needs everything on the disk. */
int once__log_close(once__log_t *log)
{
    once__index_t *index;
    int code;

    if (log == NULL) {
        return ONCE_OK;
    }
    index = log->config.index;
    code = once__log_retire(log);
    for (uint32_t n = once__index_first_segment(index);
         code == ONCE_OK && n < once__index_end_segment(index); n++) {
        if (atomic_load(&once__index_segment(index, n)->state) == ONCE__SEGMENT_ACTIVE) {
            (void)once__log_seal_dead(log, n);
        }
    }
    once__log_abandon(log);
    return code;
}
