/*
 * Appending: the segments of one writer.
 */
#include <assert.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "store/local/log.h"

#define FIRST_SIZE ((uint64_t)1 << 20)
#define ROLL_PAUSE_MS                                                                              \
    1000 /* after an attempt that took a second for a lock: operations wait for it one after the other */
#define KEPT (ONCE__BUFFER_ROOM / 2)

struct once__log {
    once__log_config_t config;
    once__own_t own;    /* that is appended to; fd -1: none */
    uint64_t next_size; /* of the segments that are made now */
    int stuck;          /* the disk was full: the buffer has what it did not take */
    int failed;
    uint64_t roll_at; /* no segment is made before, because a lock could not be had */
    once__samples_t samples;
    uint64_t sampled_from; /* since when */
};

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
        log->sampled_from = once__index_now(config->index);
        log->own.fd = -1;
    }
    return log;
}

static once__segment_t *segment_of(const once__log_t *log)
{
    return once__index_segment(log->config.index, log->own.slot);
}

int once__log_failed(const once__log_t *log)
{
    return log->failed;
}

uint32_t once__log_slot(const once__log_t *log)
{
    return log->own.fd >= 0 ? log->own.slot : UINT32_MAX;
}

/* -------------------------------------------------------------------------------------------------- writing, syncing */

/* L-4: what is behind the last good sync may or may not be on the disk. Without our lock, others can try again. */
static int fail(once__log_t *log)
{
    log->failed = 1;
    once__own_release(&log->own);
    return ONCE_E_IO;
}

/* When the disk is full nothing is lost: the buffer has it still, and all of it is written again. Any other failure is final. */
static int write_failed(once__log_t *log)
{
    log->stuck = once__disk_code() == ONCE_E_FULL;
    return log->stuck ? ONCE_E_FULL : fail(log);
}

static int sync_file(once__log_t *log)
{
    const once__disk_t *disk = log->config.disk;

    if (disk->sync(disk->data, log->own.fd) != 0) {
        return fail(log);
    }
    log->own.ready = log->own.zeros;
    return ONCE_OK;
}

/* Before frames are written that end at `to`. Nearly always an earlier sync has made the zeros durable that are there. */
static int prepare(once__log_t *log, uint64_t to)
{
    if (once__own_prepare(&log->config, &log->own, to) != 0) {
        return write_failed(log);
    }
    return log->own.ready < to ? sync_file(log) : ONCE_OK;
}

/* What only the buffer has goes to the file. There is a segment. */
static int flush(once__log_t *log)
{
    const once__own_t *own = &log->own;
    int code = prepare(log, own->tail);
    uint64_t written;

    if (code != ONCE_OK) {
        return code;
    }
    written = once__load(&own->buffer->written);
    if (written < own->tail &&
        once__disk_write(log->config.disk, own->fd,
                         own->buffer->bytes + (written - atomic_load(&own->buffer->from)),
                         own->tail - written, written) != 0) {
        return write_failed(log);
    }
    once__store(&own->buffer->written, own->tail);
    log->stuck = 0;
    return ONCE_OK;
}

/*
 * Both marks are stored behind the sync, `last` first: a process that is killed between the two leaves a `last` at or behind
 * `synced`, whose frame is durable all the same.
 */
int once__log_sync(once__log_t *log)
{
    once__own_t *own = &log->own;
    int code = ONCE_OK;

    if (own->fd < 0 || own->synced == own->tail) {
        return log->failed ? ONCE_E_IO : ONCE_OK;
    }
    code = flush(log);
    code = code == ONCE_OK ? sync_file(log) : code;
    if (code == ONCE_OK) {
        own->synced = own->tail;
        once__store(&segment_of(log)->last, own->last);
        once__store(&segment_of(log)->synced, own->tail);
        if (own->room > 2 * ONCE__BUFFER_ROOM) { /* others may need it; what fails is tried again */
            (void)once__own_buffer(log->config.index, own, 0);
        }
    }
    return code;
}

/* Everything in it is durable. One without frames would only be in the way. */
static void end_segment(const once__log_t *log, once__own_t *own)
{
    assert(own->synced == own->tail);
    if (own->tail == own->start &&
        once__segment_drop(&log->config, own->slot, own->number) != ONCE_E_CONFLICT) {
        once__own_release(own);
    } else {
        once__segment_seal(&log->config, own);
    }
}

int once__log_retire(once__log_t *log)
{
    int code = once__log_sync(log);

    if (code == ONCE_OK && log->own.fd >= 0) {
        end_segment(log, &log->own);
    }
    return code;
}

/* ----------------------------------------------------------------------------------------------------- new segments */

static uint64_t grown(const once__log_t *log)
{
    uint64_t size = log->next_size * 2;

    return size < log->config.segment_size ? size : log->config.segment_size;
}

/* How many bytes the log could grow without going beyond its limit. */
static uint64_t left(const once__log_t *log)
{
    uint64_t records, bytes, most = log->config.max_bytes;

    if (most == 0) {
        return UINT64_MAX;
    }
    once__index_usage(log->config.index, &records, &bytes);
    return bytes < most ? most - bytes : 0;
}

/* The dictionary of the next segment, and when it was taken. Nothing that was erased since is in it. */
static size_t take_samples(once__log_t *log, uint8_t *out, uint64_t *sampled)
{
    *sampled = once__index_now(log->config.index);
    if (log->sampled_from <= atomic_load(&log->config.index->map->erased_until)) {
        memset(&log->samples, 0, sizeof(log->samples));
        log->sampled_from = *sampled;
    }
    return once__samples_take(&log->samples, out);
}

/* A new one, of a size that the limit and the disk allow. */
static int make(once__log_t *log, uint64_t size, uint64_t bytes, once__own_t *own)
{
    uint8_t dictionary[ONCE__DICTIONARY_MAX];
    uint64_t sampled;
    size_t len = take_samples(log, dictionary, &sampled);
    uint64_t least = once__log_first_size(log->config.segment_size);
    int code;

    if (once__index_now(log->config.index) < log->roll_at) {
        return ONCE_E_NOREPLY;
    }
    bytes += once__segment_start((uint32_t)len) + ONCE__SEAL_ROOM;
    while (least < bytes) {
        least *= 2;
    }
    size = size < least || size > left(log) ? least : size;
    code = once__segment_make(&log->config, size, dictionary, len, sampled, own);
    if (code == ONCE_E_FULL && least < size) {
        code = once__segment_make(&log->config, least, dictionary, len, sampled, own);
    }
    if (code == ONCE_E_NOREPLY) {
        log->roll_at = once__index_now(log->config.index) + ROLL_PAUSE_MS;
    }
    return code == ONCE_E_IO || code == ONCE_E_CORRUPT ? fail(log) : code;
}

/* Goes on in a new segment with room for `bytes`. The old one stays if there is none to be had: smaller frames may fit. */
static int roll(once__log_t *log, uint64_t bytes)
{
    uint64_t size = log->own.fd >= 0 ? grown(log) : log->next_size;
    once__own_t own;
    int code = make(log, size, bytes, &own);

    if (code != ONCE_OK) {
        return code;
    }
    code = once__log_retire(log);
    if (code != ONCE_OK) {
        end_segment(log, &own);
        return code;
    }
    log->own = own;
    log->next_size = size;
    return ONCE_OK;
}

void once__log_renew(once__log_t *log)
{
    if (log->own.fd >= 0 && once__erasing_concerns(log->config.index, segment_of(log))) {
        (void)once__log_retire(log);
    }
}

/* -------------------------------------------------------------------------------------------------------- appending */

/*
 * Makes room for `size` bytes in the buffer, all of which is in the file. The newest frames stay if they can: most claims are
 * completed soon, and are then read from here. A reader that sees the bytes move finds no valid frame, and reads the file.
 */
static void slide_buffer(const once__own_t *own, uint64_t size)
{
    once__buffer_t *buffer = own->buffer;
    uint64_t from = atomic_load(&buffer->from), keep = from;

    assert(atomic_load(&buffer->written) == own->tail);
    while (keep < own->tail && (own->tail - keep > KEPT || own->tail - keep + size > own->room)) {
        keep += ((uint64_t)once__get32(buffer->bytes + (keep - from)) + 7) / 8 * 8;
    }
    memmove(buffer->bytes, buffer->bytes + (keep - from), (size_t)(own->tail - keep));
    atomic_store(&buffer->from, keep);
}

static int fits_segment(const once__own_t *own, uint64_t size)
{
    return own->fd >= 0 && own->tail + size + ONCE__SEAL_ROOM <= own->size;
}

static int has_room(const once__log_t *log, uint64_t size)
{
    const once__own_t *own = &log->own;

    return !log->stuck && fits_segment(own, size) &&
           own->tail + size <= once__load(&own->buffer->from) + own->room;
}

int once__log_reserve(once__log_t *log, uint64_t bytes)
{
    int code = ONCE_OK;

    if (has_room(log, bytes)) {
        return ONCE_OK;
    }
    if (log->failed) {
        return ONCE_E_IO;
    }
    if (bytes > ONCE__FRAME_MAX + 8) {
        return ONCE_E_TOO_BIG;
    }
    if (log->own.fd >= 0) {
        code = flush(log);
    }
    if (code == ONCE_OK && !fits_segment(&log->own, bytes)) {
        code = roll(log, bytes);
    }
    if (code == ONCE_OK && bytes > log->own.room) {
        code = once__own_buffer(log->config.index, &log->own, bytes);
    }
    if (code == ONCE_OK && !has_room(log, bytes)) {
        slide_buffer(&log->own, bytes);
    }
    return code;
}

static uint64_t bound_of(const once__record_t *record, uint64_t since)
{
    return once__frame_size(record != NULL ? once__pack_bound(record) : 0, since != 0);
}

/* Makes the frame at `out`, where there is room for its bound. Returns its size. */
static uint32_t make_frame(once__log_t *log, uint8_t *out, const uint8_t *id,
                           const once__record_t *record, uint64_t version, uint64_t since)
{
    const once__own_t *own = &log->own;
    once__frame_t frame = {.kind = ONCE__FRAME_REMOVED,
                           .version = version,
                           .since = since,
                           .watermark = own->synced,
                           .id = id,
                           .body = once__frame_body(out, since != 0)};

    if (record != NULL) {
        frame.kind = ONCE__FRAME_RECORD;
        frame.state = record->head.state;
        frame.len =
            once__pack((uint8_t *)(uintptr_t)frame.body, record, own->dictionary, &frame.flags);
        if (record->head.state == ONCE_STATE_COMPLETED) {
            once__samples_offer(&log->samples, record);
        }
    }
    return once__frame_write(out, own->word, own->tail, &frame);
}

/* Before the frame counts: the range of versions may be wider than its frames', never narrower. */
static void note_version(once__segment_t *segment, uint64_t version)
{
    uint64_t first = once__load(&segment->first_version);

    if (first == 0 || version < first) {
        once__store(&segment->first_version, version);
    }
    if (version > once__load(&segment->last_version)) {
        once__store(&segment->last_version, version);
    }
}

int once__log_append(once__log_t *log, const uint8_t *id, const once__record_t *record,
                     uint64_t version, uint64_t since, once__place_t *place, uint32_t *size)
{
    once__own_t *own = &log->own;
    uint64_t bound = bound_of(record, since), from;

    *size = (uint32_t)bound;
    if (!has_room(log, bound)) {
        return ONCE__E_ROOM;
    }
    from = once__load(&own->buffer->from);
    *size = make_frame(log, own->buffer->bytes + (own->tail - from), id, record, version, since);
    assert(*size <= bound);
    note_version(segment_of(log), version);
    once__store(&own->buffer->staged, own->tail + *size);
    *place = (once__place_t){own->slot, own->tail};
    own->last = own->tail;
    own->tail += *size;
    once__store(&segment_of(log)->tail, own->tail);
    return ONCE_OK;
}

int once__log_fits(const once__log_t *log, const once__record_t *record)
{
    return fits_segment(&log->own, bound_of(record, 1));
}

/* ---------------------------------------------------------------------------------------------------------- closing */

/* Without unlocking: in a child of fork() the lock is the parent's. */
void once__log_abandon(once__log_t *log)
{
    if (log == NULL) {
        return;
    }
    if (log->own.fd >= 0) {
        (void)close(log->own.fd);
        once__dictionary_close(log->own.dictionary);
    }
    free(log);
}

/* Also finishes what killed writers left: at a clean end everything is sealed. */
int once__log_close(once__log_t *log)
{
    int code;

    if (log == NULL) {
        return ONCE_OK;
    }
    code = once__log_retire(log);
    if (code == ONCE_OK) {
        once__segments_take_over(&log->config, UINT32_MAX);
    }
    once__log_abandon(log);
    return code;
}
