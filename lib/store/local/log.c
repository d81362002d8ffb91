#include "store/local/log_inside.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#define FIRST_SIZE ((uint64_t)1 << 20)
#define AHEAD      ((uint64_t)1 << 20)
#define ZEROS      ((uint64_t)64 << 10)
#define CHUNK      ((uint64_t)128 << 10)

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

static ssize_t real_write(void *data, int fd, const void *bytes, size_t len, uint64_t offset)
{
    return pwrite(fd, bytes, len, (off_t)offset);
}

const once__disk_t once__real_disk = {.sync = real_sync,
                                      .sync_directory = real_sync_directory,
                                      .allocate = real_allocate,
                                      .write = real_write};

ssize_t once__disk_read(const once__disk_t *disk, int fd, void *bytes, uint64_t len,
                        uint64_t offset)
{
    uint8_t *to = bytes;
    uint64_t done = 0;

    while (done < len) {
        ssize_t n = disk->read != NULL
                        ? disk->read(disk->data, fd, to + done, (size_t)(len - done), offset + done)
                        : pread(fd, to + done, (size_t)(len - done), (off_t)(offset + done));
        if (n < 0 && errno != EINTR) {
            return -1;
        }
        if (n == 0) {
            break;
        }
        done += n > 0 ? (uint64_t)n : 0;
    }
    return (ssize_t)done;
}

int once__disk_try(const once__disk_t *disk, int fd, uint64_t size)
{
    uint8_t *bytes = malloc(CHUNK);
    uint64_t at = 0;
    int code = bytes != NULL ? 0 : -1;

    while (code == 0 && at < size) {
        uint64_t len = size - at < CHUNK ? size - at : CHUNK;
        ssize_t n = once__disk_read(disk, fd, bytes, len, at);
        if (n != (ssize_t)len) {
            errno = n < 0 ? errno : EIO;
            code = -1;
        }
        at += len;
    }
    free(bytes);
    return code;
}

int once__log_write(const once__log_t *log, int fd, const void *bytes, uint64_t len,
                    uint64_t offset)
{
    const once__disk_t *disk = log->config.disk;
    const uint8_t *from = bytes;
    uint64_t done = 0;

    while (done < len) {
        ssize_t n = (disk->write != NULL ? disk->write : real_write)(
            disk->data, fd, from + done, (size_t)(len - done), offset + done);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            errno = n == 0 ? EIO : errno;
            return -1;
        }
        done += (uint64_t)n;
    }
    return 0;
}

uint64_t once__log_first_size(uint64_t segment_size)
{
    return FIRST_SIZE < segment_size ? FIRST_SIZE : segment_size;
}

once__log_t *once__log_open(const once__log_config_t *config)
{
    once__log_t *log = calloc(1, sizeof(*log));

    if (log != NULL) {
        log->config = *config;
        log->next_size = once__log_first_size(config->segment_size);
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

static int fail(once__log_t *log)
{
    log->failed = 1;
    give_up(log, &log->rolled);
    give_up(log, &log->active);
    return ONCE_E_IO;
}

static int synced(once__log_t *log, int code)
{
    log->syncs++;
    return code == 0 ? ONCE_OK : fail(log);
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
        (void)close(segment->fd); /* and with it the lock */
    }
    memset(segment, 0, sizeof(*segment));
}

/*
 * The last frame says that everything before it is durable; it is written after the sync, or a crash could leave it
 * behind without what it vouches for. It need not be synced itself.
 */
void once__log_write_seal(const once__log_t *log, int fd, once__place_t end, uint64_t size)
{
    uint8_t last[ONCE__FRAME_HEADER];

    if (end.offset + sizeof(last) <= size) {
        once__frame_write(last, end, end.offset, NULL, NULL);
        (void)once__log_write(log, fd, last, sizeof(last), end.offset);
    }
}

/* Everything in it is durable and nobody will append. */
static void seal(once__log_t *log, once__segment_t *segment)
{
    once__segment_info_t *info = once__index_segment(log->config.index, segment->number);
    once__place_t end = {segment->number, segment->tail};

    once__log_write_seal(log, segment->fd, end, segment->size);
    if (segment == &log->active) {
        once__window_detach(log->config.index, segment->number);
        once__window_give(log->config.index, log->window);
        log->window = NULL;
    }
    atomic_store(&info->synced, UINT64_MAX);
    atomic_store(&info->state, ONCE__SEGMENT_SEALED);
    /* Also for a child that was forked meanwhile and still has the descriptor: the file may be used again. */
    (void)flock(segment->fd, LOCK_UN);
    release_segment(segment);
}

/*
 * A sync is dearer when it has to note that blocks are in use that were only promised until now. So zeros go ahead of
 * the frames, many blocks at a time, and nearly all syncs only overwrite. It is no harm if that fails.
 */
static void prepare_blocks(once__log_t *log)
{
    static uint8_t zeros[ZEROS]; /* not const: it need not be in the program's file */
    once__segment_t *active = &log->active;
    uint64_t from = active->tail, to = from + AHEAD < active->size ? from + AHEAD : active->size;

    if (from <= active->ready) {
        return;
    }
    active->ready = to;
    while (from < to) {
        uint64_t len = to - from < ZEROS ? to - from : ZEROS;
        if (once__log_write(log, active->fd, zeros, len, from) != 0) {
            return;
        }
        from += len;
    }
}

/*
 * What only the window has goes to the file. When the disk is full nothing is lost: the window has it still, and all of
 * it is written again. Any other failure is final.
 */
static int flush(once__log_t *log)
{
    const once__segment_t *active = &log->active;
    once__window_t *window = log->window;
    uint64_t written;

    if (active->number == 0) {
        return ONCE_OK;
    }
    written = atomic_load_explicit(&window->written, memory_order_relaxed);
    prepare_blocks(log);
    if (written < active->tail &&
        once__log_write(log, active->fd, window->bytes + (written - atomic_load(&window->from)),
                        active->tail - written, written) != 0) {
        log->stuck = once__log_errno() == ONCE_E_FULL;
        return log->stuck ? ONCE_E_FULL : fail(log);
    }
    atomic_store(&window->written, active->tail);
    log->stuck = 0;
    return ONCE_OK;
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
        int code = flush(log);
        code = code == ONCE_OK ? once__log_sync_fd(log, active->fd) : code;
        if (code != ONCE_OK) {
            return code;
        }
        active->synced = active->tail;
        atomic_store(&once__index_segment(log->config.index, active->number)->synced, active->tail);
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

uint64_t once__log_least(const once__log_t *log)
{
    return once__log_first_size(log->config.segment_size);
}

/* Where the log would go beyond its limit, it does so in small steps. */
static uint64_t within_limit(const once__log_t *log, uint64_t next)
{
    uint64_t records, bytes;

    if (log->config.max_bytes == 0) {
        return next;
    }
    once__index_usage(log->config.index, &records, &bytes);
    return bytes + next <= log->config.max_bytes ? next : once__log_least(log);
}

/* Starts a new segment with room for `size`. The old one is synced with the next sync. */
static int roll(once__log_t *log, uint64_t size, int was_full)
{
    uint64_t next = was_full ? grown(log) : log->next_size;
    uint64_t want = within_limit(log, next);
    int code;

    while (want < size + ONCE__SEGMENT_HEADER + ONCE__SEAL_ROOM) {
        want *= 2;
    }
    /* Two finished ones in one batch: the first is synced now. */
    code = log->rolled.number != 0 ? once__log_sync(log) : flush(log);
    if (code != ONCE_OK) {
        return code;
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
    if (log->stuck) {
        int code = flush(log);
        if (code != ONCE_OK) {
            return code;
        }
    }
    if (active->number == 0 || active->number < not_before || full) {
        return roll(log, size, active->number != 0 && full);
    }
    return ONCE_OK;
}

/* Lets the window begin at `offset`: everything before that is in the file. */
static void move_window(once__window_t *window, uint64_t offset)
{
    atomic_store(&window->staged, offset);
    atomic_store(&window->written, offset);
    atomic_store(&window->from, offset);
}

/*
 * Where a frame of `size` is to be made: in the window, or in memory of its own when it is larger than that. NULL and
 * why.
 */
static uint8_t *begin_frame(once__log_t *log, uint64_t size, uint32_t not_before,
                            once__place_t *place, int *code)
{
    const once__segment_t *active = &log->active;
    uint8_t *large;
    uint64_t from;

    *code = make_room(log, size, not_before);
    if (*code != ONCE_OK) {
        return NULL;
    }
    from = atomic_load_explicit(&log->window->from, memory_order_relaxed);
    if (active->tail + size > from + ONCE__WINDOW_ROOM) {
        *code = flush(log);
        if (*code != ONCE_OK) {
            return NULL;
        }
        move_window(log->window, active->tail);
        from = active->tail;
    }
    place->segment = active->number;
    place->offset = active->tail;
    if (size <= ONCE__WINDOW_ROOM) {
        return log->window->bytes + (active->tail - from);
    }
    large = malloc(size);
    *code = large != NULL ? ONCE_OK : ONCE_E_NOMEM;
    return large;
}

/* The frame is made. A large one goes straight to the file. */
static int end_frame(once__log_t *log, uint8_t *frame, uint64_t size, const once__head_t *head)
{
    once__segment_t *active = &log->active;
    uint64_t end = active->tail + size;

    if (size <= ONCE__WINDOW_ROOM) {
        atomic_store_explicit(&log->window->staged, end, memory_order_release);
    } else {
        int code = once__log_write(log, active->fd, frame, size, active->tail);
        int full = code != 0 && once__log_errno() == ONCE_E_FULL;
        free(frame);
        if (code != 0) {
            return full ? ONCE_E_FULL : fail(log);
        }
        move_window(log->window, end);
    }
    active->tail = end;
    once__index_note_frame(log->config.index, active->number, head);
    return ONCE_OK;
}

int once__log_append(once__log_t *log, const uint8_t *id, const once__record_t *record,
                     uint32_t not_before, once__place_t *place)
{
    uint32_t size = once__frame_size(record);
    int code;
    uint8_t *frame = begin_frame(log, size, not_before, place, &code);

    if (frame != NULL) {
        once__frame_write(frame, *place, log->active.synced, id, record);
        code = end_frame(log, frame, size, record != NULL ? &record->head : NULL);
    }
    return code;
}

int once__log_fits(const once__log_t *log, const once__record_t *record)
{
    const once__segment_t *active = &log->active;

    return active->number != 0 &&
           active->tail + once__frame_size(record) + ONCE__SEAL_ROOM <= active->size;
}

/* Will a frame of this size and the one at `claim` be in the same segment? */
static int is_near(const once__log_t *log, once__place_t claim, uint64_t size, uint32_t not_before)
{
    const once__segment_t *active = &log->active;

    return active->number != 0 && active->number == claim.segment && active->number >= not_before &&
           active->tail + size + ONCE__SEAL_ROOM <= active->size;
}

int once__log_complete(once__log_t *log, const once__record_t *record, once__place_t claim,
                       uint32_t not_before, once__place_t *place)
{
    const once__payload_t *payload = &record->payload;
    once__completion_t completion = {.claim = claim.offset, .len = (uint32_t)payload->len};
    uint64_t most = once__frame_padded(ONCE__COMPLETION_HEADER + payload->len);
    uint8_t *frame, *bytes;
    int code;

    if (most > ONCE__WINDOW_ROOM || !is_near(log, claim, most, not_before)) {
        return once__log_append(log, record->id, record, not_before, place);
    }
    frame = begin_frame(log, most, not_before, place, &code);
    if (frame == NULL) {
        return code;
    }
    bytes = frame + ONCE__FRAME_HEADER + ONCE__COMPLETION_HEADER;
    completion.size =
        once__templates_pack(&log->templates, place->offset, payload, bytes, &completion.template);
    if (completion.size == 0) {
        completion.template = 0;
        completion.size = payload->len;
        memcpy(bytes, payload->data, payload->len);
        once__templates_offer(&log->templates, place->offset, payload);
    }
    return end_frame(log, frame,
                     once__completion_write(frame, *place, log->active.synced, record, &completion),
                     &record->head);
}

int once__log_copy(once__log_t *log, const once__frame_t *frame, const once__head_t *head,
                   uint32_t not_before, once__place_t *place)
{
    uint64_t size = once__frame_padded(frame->len);
    int code;
    uint8_t *copy = begin_frame(log, size, not_before, place, &code);

    if (copy != NULL) {
        once__frame_write_bytes(copy, *place, log->active.synced, frame->id, frame->bytes,
                                frame->len);
        code = end_frame(log, copy, size, head);
    }
    return code;
}

int once__log_lose(once__log_t *log, const uint8_t *id, uint8_t state, uint32_t not_before,
                   once__place_t *place)
{
    uint64_t size = once__frame_padded(1);
    int code;
    uint8_t *frame = begin_frame(log, size, not_before, place, &code);

    if (frame != NULL) {
        once__frame_write_bytes(frame, *place, log->active.synced, id, &state, 1);
        code = end_frame(log, frame, size, NULL);
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
            free(log->readers[i].resident);
        }
    }
    for (unsigned i = 0; i < ONCE__BUFFERS; i++) {
        free(log->buffers[i].bytes);
    }
    once__templates_free(&log->templates);
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
