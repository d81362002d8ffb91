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

#include "base/bytes.h"

#define BUFFER_KEEP ((size_t)1 << 20)
#define CHUNK       ((uint64_t)64 << 10)
#define PAGE        ((uint64_t)4096)
#define RESIDENT_MS 1000
#define LOOK_PAGES  64u

/* ---------------------------------------------------------------------------------------------------------- reading */

static void release_reader(once__reader_t *reader)
{
    if (reader->number != 0) {
        (void)munmap((void *)(uintptr_t)reader->map, reader->size);
        free(reader->resident);
        reader->resident = NULL;
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
        log->readers[i].resident_at = 0; /* we look again what is in memory */
    }
}

int once__log_find_reader(once__log_t *log, uint32_t number, once__reader_t **out)
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

static uint8_t *grow_buffer(once__log_t *log, unsigned which, size_t size)
{
    size_t has = log->buffers[which].size;

    if (has < size || (has > BUFFER_KEEP && size <= BUFFER_KEEP)) {
        size_t want = size < 4096 ? 4096 : size;
        uint8_t *bytes = realloc(log->buffers[which].bytes, want);
        if (bytes == NULL) {
            return NULL;
        }
        log->buffers[which].bytes = bytes;
        log->buffers[which].size = want;
    }
    return log->buffers[which].bytes;
}

/* Notes which pages around this one are in memory: to ask for many costs hardly more than for one. */
static void look_around(once__reader_t *reader, uint64_t page)
{
    unsigned char in_memory[LOOK_PAGES];
    uint64_t first = page / LOOK_PAGES * LOOK_PAGES, all = (reader->size + PAGE - 1) / PAGE;
    uint64_t count = all - first < LOOK_PAGES ? all - first : LOOK_PAGES;

    if (mincore((void *)(uintptr_t)(reader->map + first * PAGE), count * PAGE, in_memory) != 0) {
        return;
    }
    for (uint64_t i = 0; i < count; i++) {
        reader->resident[(first + i) / 8] |= (uint8_t)((in_memory[i] & 1u) << (first + i) % 8);
    }
}

/*
 * Are these bytes of the file in memory, so that touching them does not wait for the disk? What was there a moment ago is taken to
 * be there still: asking the kernel costs more than reading.
 */
static int is_resident(const once__log_t *log, once__reader_t *reader, uint64_t from, uint64_t to)
{
    uint64_t now = log->never_wait != 0 ? log->never_wait : once__index_now(log->config.index);
    size_t bytes = (size_t)(reader->size / PAGE + 8) / 8;

    if (reader->resident == NULL || now - reader->resident_at > RESIDENT_MS) {
        free(reader->resident);
        reader->resident = calloc(bytes, 1);
        reader->resident_at = now;
    }
    for (uint64_t page = from / PAGE; page * PAGE < to; page++) {
        if (reader->resident == NULL) {
            return 0;
        }
        if (!(reader->resident[page / 8] >> page % 8 & 1)) {
            look_around(reader, page);
        }
        if (!(reader->resident[page / 8] >> page % 8 & 1)) {
            return 0;
        }
    }
    return 1;
}

void once__log_never_wait(once__log_t *log, uint64_t now)
{
    log->never_wait = now;
}

/* How long the frame is, is known only from its first page. */
uint64_t once__log_at_hand(const once__log_t *log, once__reader_t *reader, uint64_t offset)
{
    uint64_t len, room;

    if (log->config.disk->read != NULL || reader->size < ONCE__FRAME_HEADER ||
        offset > reader->size - ONCE__FRAME_HEADER ||
        !is_resident(log, reader, offset, offset + ONCE__FRAME_HEADER)) {
        return 0;
    }
    len = once__get32(reader->map + offset);
    room = reader->size - offset;
    if (len <= ONCE__FRAME_HEADER || len > room) {
        return ONCE__FRAME_HEADER; /* a whole frame, or none that could be read */
    }
    return (offset + len - 1) / PAGE == offset / PAGE ||
                   is_resident(log, reader, offset, offset + len)
               ? len
               : 0;
}

/*
 * Copies first and checks the copy: the segment may be dropped and its file used again while we read, and so may a
 * window. `data` begins at the frame and has `room` bytes.
 */
static int copy_frame(once__log_t *log, unsigned which, const uint8_t *data, uint64_t room,
                      once__place_t place, once__frame_t *frame)
{
    uint8_t *copy;
    uint32_t len;

    if (room < ONCE__FRAME_HEADER) {
        return ONCE_E_CORRUPT;
    }
    len = once__get32(data);
    if (len < ONCE__FRAME_HEADER || len > ONCE__FRAME_MAX || len > room) {
        return ONCE_E_CORRUPT;
    }
    copy = grow_buffer(log, which, len);
    if (copy == NULL) {
        return ONCE_E_NOMEM;
    }
    memcpy(copy, data, len);
    return once__frame_read(frame, place, copy, len) ? ONCE_OK : ONCE_E_CORRUPT;
}

/* Bytes of a segment's file: `least` at least, up to `most` if there are so many. ONCE_E_CORRUPT: it ends before. */
static int read_bytes(once__log_t *log, once__place_t place, uint8_t *out, uint64_t least,
                      uint64_t most, uint64_t *got)
{
    char name[ONCE__SEGMENT_NAME];
    ssize_t n;
    int fd;

    once__segment_name(name, place.segment, "log");
    fd = openat(log->config.directory_fd, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return errno == ENOENT ? ONCE_E_NOT_FOUND : ONCE_E_IO;
    }
    n = once__disk_read(log->config.disk, fd, out, most, place.offset);
    (void)close(fd);
    if (n < 0) {
        return ONCE_E_IO;
    }
    *got = (uint64_t)n;
    return *got < least ? ONCE_E_CORRUPT : ONCE_OK;
}

static int fetch_frame(once__log_t *log, unsigned which, once__place_t place, once__frame_t *frame)
{
    uint8_t *bytes = grow_buffer(log, which, PAGE);
    uint64_t got = 0;
    uint32_t len;
    int code = bytes != NULL ? read_bytes(log, place, bytes, ONCE__FRAME_HEADER, PAGE, &got)
                             : ONCE_E_NOMEM;

    if (code != ONCE_OK) {
        return code;
    }
    len = once__get32(bytes);
    if (len < ONCE__FRAME_HEADER || len > ONCE__FRAME_MAX) {
        return ONCE_E_CORRUPT;
    }
    if (len > got) {
        bytes = grow_buffer(log, which, len);
        code = bytes != NULL ? read_bytes(log, place, bytes, len, len, &got) : ONCE_E_NOMEM;
    }
    if (code != ONCE_OK) {
        return code;
    }
    return once__frame_read(frame, place, bytes, len) ? ONCE_OK : ONCE_E_CORRUPT;
}

/*
 * The window that has the frame: our own as far back as it goes; another's only for what the file does not have. NULL:
 * none, and then the file has it.
 */
static const once__window_t *window_with(const once__log_t *log, once__place_t place, uint64_t *at)
{
    const once__window_t *window = log->window;
    uint64_t from, end;

    if (log->active.number == 0 || place.segment != log->active.number) {
        window = once__window_of(log->config.index, place.segment);
        if (window == NULL || atomic_load(&window->segment) != place.segment ||
            place.offset < atomic_load(&window->written)) {
            return NULL;
        }
    }
    from = atomic_load(&window->from);
    end = atomic_load(&window->staged);
    *at = place.offset - from;
    return place.offset >= from && place.offset < end && *at < ONCE__WINDOW_ROOM ? window : NULL;
}

/* In this order: what is not in the window any more is in the file. */
static int read_frame(once__log_t *log, unsigned which, once__place_t place, once__frame_t *frame)
{
    uint64_t at = 0, room;
    const once__window_t *window = window_with(log, place, &at);
    once__reader_t *reader;
    int code = ONCE_E_CORRUPT;

    if (window != NULL) {
        code = copy_frame(log, which, window->bytes + at, ONCE__WINDOW_ROOM - at, place, frame);
    }
    if (code != ONCE_E_CORRUPT) {
        return code;
    }
    code = once__log_find_reader(log, place.segment, &reader);
    if (code != ONCE_OK) {
        return code;
    }
    if (place.offset > reader->size) {
        return ONCE_E_CORRUPT;
    }
    room = once__log_at_hand(log, reader, place.offset);
    if (room > 0) {
        return copy_frame(log, which, reader->map + place.offset, room, place, frame);
    }
    return log->never_wait != 0 ? ONCE_E_UNAVAILABLE : fetch_frame(log, which, place, frame);
}

/* Puts together what the frame says and what it refers to. */
static int complete(once__log_t *log, once__place_t place, once__frame_t *frame)
{
    once__completion_t completion;
    once__frame_t claim, template;
    once__place_t at = {place.segment, 0};
    int code = once__completion_read(&completion, frame, place.offset);
    uint8_t *whole;

    if (code == ONCE_OK) {
        at.offset = completion.claim;
        code = read_frame(log, ONCE__BUFFER_CLAIM, at, &claim);
    }
    if (code == ONCE_OK && completion.template != 0) {
        at.offset = completion.template;
        code = read_frame(log, ONCE__BUFFER_TEMPLATE, at, &template);
    }
    if (code != ONCE_OK) {
        return code;
    }
    whole = grow_buffer(log, ONCE__BUFFER_WHOLE, ONCE__RECORD_REST + (size_t)completion.len);
    if (whole == NULL) {
        return ONCE_E_NOMEM;
    }
    code = once__completion_expand(&completion, frame->id, &claim,
                                   completion.template != 0 ? &template : NULL, whole, &frame->len);
    frame->bytes = whole;
    frame->kind = ONCE__FRAME_RECORD;
    return code;
}

int once__log_read(once__log_t *log, once__place_t place, once__frame_t *frame)
{
    int code = read_frame(log, ONCE__BUFFER_FRAME, place, frame);

    if (code == ONCE_OK && frame->kind == ONCE__FRAME_COMPLETION) {
        code = complete(log, place, frame);
    } else if (code == ONCE_OK && frame->kind == ONCE__FRAME_SEALED) {
        code = ONCE_E_CORRUPT; /* no record ends up here */
    }
    if (code != ONCE_OK && place.segment < once__index_first_segment(log->config.index)) {
        return ONCE_E_NOT_FOUND;
    }
    return code == ONCE_E_NOT_FOUND ? ONCE_E_CORRUPT : code;
}

int once__log_read_raw(once__log_t *log, once__place_t place, const uint8_t **bytes, uint64_t *len)
{
    uint8_t *copy = grow_buffer(log, ONCE__BUFFER_FRAME, PAGE);
    uint64_t want;
    int code =
        copy != NULL ? read_bytes(log, place, copy, ONCE__FRAME_HEADER, PAGE, len) : ONCE_E_NOMEM;

    if (code != ONCE_OK) {
        return code;
    }
    want = once__get32(copy);
    if (want >= ONCE__FRAME_HEADER && want <= ONCE__FRAME_MAX) {
        copy = grow_buffer(log, ONCE__BUFFER_FRAME, (size_t)want);
        code = copy != NULL ? read_bytes(log, place, copy, 1, want, len) : ONCE_E_NOMEM;
    }
    *bytes = copy;
    return code;
}

/* ------------------------------------------------------------------------------------------------- others' segments */

/*
 * After a failed sync the kernel may take pages for written that are not. Writing them once more makes it write them
 * again.
 */
static int write_again(const once__log_t *log, int fd, uint64_t from, uint64_t to)
{
    uint8_t *bytes = malloc(CHUNK);
    int code = bytes != NULL ? 0 : -1;

    while (code == 0 && from < to) {
        uint64_t len = to - from < CHUNK ? to - from : CHUNK;
        ssize_t n = pread(fd, bytes, len, (off_t)from);
        code = n > 0 ? once__log_write(log, fd, bytes, (uint64_t)n, from) : -1;
        from += n > 0 ? (uint64_t)n : 0;
    }
    free(bytes);
    return code;
}

/*
 * Up to where a dead writer's window holds valid frames from `offset` on. It is believed nothing that could spoil the
 * file.
 */
static uint64_t valid_until(const once__window_t *window, uint32_t number, uint64_t offset)
{
    uint64_t from = atomic_load(&window->from), staged = atomic_load(&window->staged);
    once__place_t place = {number, offset};
    once__frame_t frame;

    while (place.offset < staged && place.offset - from < ONCE__WINDOW_ROOM &&
           once__frame_read(&frame, place, window->bytes + (place.offset - from),
                            (size_t)(ONCE__WINDOW_ROOM - (place.offset - from)))) {
        place.offset += frame.size;
    }
    return place.offset;
}

/*
 * Brings to the file what only the window of a dead writer has, and what a failed sync left in doubt. `*tail`: where its
 * frames end; 0: there is no window to tell; UINT64_MAX: it has something else than frames.
 */
static int finish_file(const once__log_t *log, uint32_t number, int fd, uint64_t *tail)
{
    const once__segment_info_t *info = once__index_segment(log->config.index, number);
    const once__window_t *window = once__window_of(log->config.index, number);
    uint64_t synced = atomic_load(&info->synced), from, end;
    int suspect = atomic_load(&info->suspect);

    *tail = 0;
    if (window == NULL || atomic_load(&window->segment) != number) {
        return suspect ? write_again(log, fd, synced, info->size) : 0;
    }
    from = suspect ? synced : atomic_load(&window->written);
    if (from < atomic_load(&window->from)) {
        if (write_again(log, fd, from, atomic_load(&window->from)) != 0) {
            return -1;
        }
        from = atomic_load(&window->from);
    }
    end = valid_until(window, number, from);
    *tail = end == atomic_load(&window->staged) ? end : UINT64_MAX;
    return end > info->size
               ? -1
               : once__log_write(log, fd, window->bytes + (from - atomic_load(&window->from)),
                                 end - from, from);
}

/* Nobody needs the window any more; the caller has the lock of the segment's file. */
static void drop_window(const once__log_t *log, uint32_t number)
{
    once__window_t *window = once__window_of(log->config.index, number);

    if (window != NULL) {
        once__window_detach(log->config.index, number);
        once__window_give(log->config.index, window);
    }
}

/* The same from the file, for a segment that its writer had left already. 0: it is sealed, or it cannot be told. */
static uint64_t find_tail(uint32_t number, int fd, uint64_t synced, uint64_t size)
{
    uint8_t *data = synced < size ? malloc(size) : NULL;
    once__place_t place = {number, synced};
    once__frame_t frame = {0};
    uint64_t next = 0;
    int ended = 0;

    if (data == NULL ||
        pread(fd, data + synced, size - synced, (off_t)synced) != (ssize_t)(size - synced)) {
        free(data);
        return 0;
    }
    while (frame.kind != ONCE__FRAME_SEALED && place.offset + ONCE__FRAME_HEADER <= size &&
           once__frame_read(&frame, place, data + place.offset, size - place.offset)) {
        place.offset += frame.size;
    }
    if (frame.kind != ONCE__FRAME_SEALED && place.offset + ONCE__FRAME_HEADER <= size) {
        once__gap_t gap = once__frame_gap(data, size, place, &next);
        ended = gap == ONCE__GAP_END || (gap == ONCE__GAP_TORN && next == 0);
    }
    free(data);
    return ended ? place.offset : 0;
}

/* So that damage to its last batch is never taken for a torn tail. The caller has the lock of the file, which is synced. */
static void seal(const once__log_t *log, uint32_t number, int fd, uint64_t tail)
{
    const once__segment_info_t *info = once__index_segment(log->config.index, number);
    once__place_t end = {number, tail};

    if (tail == 0) {
        end.offset = find_tail(number, fd, atomic_load(&info->synced), info->size);
    }
    if (end.offset != 0 && end.offset != UINT64_MAX) {
        once__log_write_seal(log, fd, end, info->size);
    }
}

int once__log_seal_dead(once__log_t *log, uint32_t number)
{
    once__segment_info_t *info = once__index_segment(log->config.index, number);
    const once__disk_t *disk = log->config.disk;
    char name[ONCE__SEGMENT_NAME];
    uint64_t tail = 0;
    int sealed = 0, fd;

    once__segment_name(name, number, "log");
    fd = openat(log->config.directory_fd, name, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return 0;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
        int done = atomic_load(&info->synced) == UINT64_MAX;
        sealed =
            done || (finish_file(log, number, fd, &tail) == 0 && disk->sync(disk->data, fd) == 0);
        if (sealed && !done) {
            seal(log, number, fd, tail);
        }
        if (sealed) {
            atomic_store(&info->synced, UINT64_MAX);
            atomic_store(&info->state, ONCE__SEGMENT_SEALED);
            drop_window(log, number);
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
