/*
 * What a writer left that was killed, or that gave up because its disk failed.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "store/local/log.h"

#define LOCK_WAIT_MS                                                                               \
    100 /* the thread that decides may be waiting, with all that is asked of this process */

typedef struct takeover {
    const once__log_config_t *config;
    once__segment_t *segment;
    once__own_t own;
    uint8_t *bytes; /* what is behind `own.synced`, up to `own.tail` */
    once__reader_t *reader;
} takeover_t;

/* ---------------------------------------------------------------------------------------------------------- gathering */

/* Copies the valid frames of the buffer that are behind `synced`. Its bounds are those of a process that was killed. */
static void gather_buffer(takeover_t *takeover, const once__buffer_t *buffer, uint64_t room)
{
    once__own_t *own = &takeover->own;
    uint64_t from = atomic_load(&buffer->from), staged = atomic_load(&buffer->staged);
    uint64_t at = own->synced > from ? own->synced : from;
    once__frame_t frame;

    while (at < staged && at - from < room &&
           once__frame_read(&frame, own->word, at, buffer->bytes + (at - from),
                            (size_t)(room - (at - from))) == ONCE__FRAME_OK &&
           at + frame.size <= own->size - ONCE__SEAL_ROOM) {
        memcpy(takeover->bytes + (at - own->synced), buffer->bytes + (at - from), frame.size);
        at += frame.size;
    }
    own->tail = at > own->tail ? at : own->tail;
}

/* All frames behind the last good sync: those of the file, and those that only the buffer has. ONCE_OK, or -1. */
static int gather(takeover_t *takeover)
{
    once__own_t *own = &takeover->own;
    uint64_t room;
    const once__buffer_t *buffer = once__buffer_of(takeover->config->index, own->slot, &room);

    if (own->synced == UINT64_MAX) { /* killed while it sealed: `last` is the frame that seals */
        own->tail = own->synced = own->last;
        return ONCE_OK;
    }
    own->tail = atomic_load(buffer != NULL ? &buffer->written : &takeover->segment->tail);
    if (own->synced > own->tail || own->tail > own->size) {
        return -1;
    }
    takeover->bytes = malloc((size_t)(own->size - own->synced));
    if (takeover->bytes == NULL ||
        once__disk_read(takeover->config->disk, own->fd, takeover->bytes, own->tail - own->synced,
                        own->synced) != (ssize_t)(own->tail - own->synced)) {
        return -1;
    }
    if (buffer != NULL) {
        gather_buffer(takeover, buffer, room);
    }
    return ONCE_OK;
}

/* ------------------------------------------------------------------------------------------------------ roll forward */

/* The frame that the index has of the record. ONCE_E_UNAVAILABLE: `now`, and its bytes have to be read without the shard's lock. */
static int read_current(const takeover_t *takeover, const once__entry_t *entry, int now,
                        once__frame_t *frame)
{
    int code = once__reader_read(takeover->reader, entry->place, now, frame);

    return code == ONCE_E_CORRUPT && frame->kind != 0 ? ONCE_OK : code;
}

/* Its shard is locked. ONCE_OK; ONCE_E_CONFLICT: a newer one is elsewhere; ONCE_E_UNAVAILABLE as above. */
static int enter_locked(const takeover_t *takeover, const once__frame_t *frame, uint64_t offset,
                        once__entry_t *old)
{
    once__index_t *index = takeover->config->index;
    once__entry_t entry = {{takeover->own.slot, offset}, frame->state};
    int found = once__index_find(index, frame->id, old), code;
    once__weight_t old_weight = {0, 0};
    once__frame_t current;

    once__index_raise_version(index, frame->id, frame->version);
    if (found && old->place.slot == entry.place.slot && old->place.offset >= offset) {
        return ONCE_OK;
    }
    if (found) {
        code = read_current(takeover, old, 1, &current);
        if (code != ONCE_OK) {
            return code;
        }
        /* A `since` that reaches the frame keeps it from counting again, and covers what is before it only while it is there. */
        if (current.version >= frame->version) {
            return old->place.slot == entry.place.slot ||
                           (current.since != 0 && current.since <= frame->version)
                       ? ONCE_OK
                       : ONCE_E_CONFLICT;
        }
        old_weight = once__frame_weight(&current, old->state);
    } else {
        code = once__index_make_room(index, frame->id);
        if (code != ONCE_OK) {
            return code;
        }
    }
    once__index_set(index, frame->id, &entry, once__frame_weight(frame, entry.state),
                    found ? old : NULL, old_weight);
    return ONCE_OK;
}

static int enter(const takeover_t *takeover, const once__frame_t *frame, uint64_t offset)
{
    once__index_t *index = takeover->config->index;
    once__frame_t current;
    once__entry_t old;
    int code;

    do {
        code = once__index_lock(index, frame->id, LOCK_WAIT_MS);
        if (code != ONCE_OK) {
            return code;
        }
        code = enter_locked(takeover, frame, offset, &old);
        once__index_unlock(index, frame->id);
        if (code == ONCE_E_UNAVAILABLE) {
            int read = read_current(takeover, &old, 0, &current);
            code = read == ONCE_OK || read == ONCE_E_NOT_FOUND ? code : read;
        }
    } while (code == ONCE_E_UNAVAILABLE);
    return code;
}

/*
 * Enters what the writer did not. A frame that is older than what the index has by now (another process went on without it) was
 * never acknowledged, and nothing leads to it, so nothing would keep it from counting again when the newer ones are gone: it is
 * covered.
 */
static int roll_forward(takeover_t *takeover)
{
    once__own_t *own = &takeover->own;
    once__frame_t frame;
    int code = ONCE_OK;

    for (uint64_t at = own->synced; code == ONCE_OK && at < own->tail; at += frame.size) {
        uint8_t *bytes = takeover->bytes + (at - own->synced);
        if (once__frame_read(&frame, own->word, at, bytes, (size_t)(own->tail - at)) !=
            ONCE__FRAME_OK) {
            return ONCE_E_CORRUPT;
        }
        if (frame.kind == ONCE__FRAME_RECORD || frame.kind == ONCE__FRAME_REMOVED) {
            code = enter(takeover, &frame, at);
        }
        if (code == ONCE_E_CONFLICT) {
            once__frame_write_filler(bytes, own->word, at, frame.size, own->synced);
            code = ONCE_OK;
        }
        own->last = at;
    }
    return code;
}

/* ----------------------------------------------------------------------------------------------------------- all of it */

/*
 * The flock() of the file is held. Whatever is done here can be done again, by the next process that tries. All that is behind the
 * last good sync is written once more: the killed process may have been waiting for a sync that failed, and then the kernel
 * takes pages for written that are not.
 */
static void finish(takeover_t *takeover)
{
    once__own_t *own = &takeover->own;
    once__segment_t *segment = takeover->segment;
    const once__disk_t *disk = takeover->config->disk;
    uint64_t room;
    once__buffer_t *buffer = once__buffer_of(takeover->config->index, own->slot, &room);

    if (gather(takeover) != ONCE_OK || roll_forward(takeover) != ONCE_OK ||
        once__disk_write(disk, own->fd, takeover->bytes, own->tail - own->synced, own->synced) !=
            0 ||
        disk->sync(disk->data, own->fd) != 0) {
        return;
    }
    if (buffer != NULL) {
        atomic_store(&buffer->written, own->tail);
    }
    atomic_store(&segment->last, own->last);
    if (atomic_load(&segment->synced) != UINT64_MAX) {
        atomic_store(&segment->synced, own->tail);
    }
    once__segment_seal(takeover->config, own);
}

int once__segment_take_over(const once__log_config_t *config, uint32_t slot)
{
    once__segment_t *segment = once__index_segment(config->index, slot);
    uint64_t number = atomic_load(&segment->number);
    takeover_t takeover = {.config = config, .segment = segment};

    if (atomic_load(&segment->state) == ONCE__SEGMENT_PREPARING) {
        once__segment_discard_unfinished(config, slot);
    } else if (atomic_load(&segment->state) == ONCE__SEGMENT_ACTIVE) {
        once__own_t *own = &takeover.own;
        *own = (once__own_t){.slot = slot,
                             .fd = once__segment_open(config, number, O_RDWR),
                             .number = number,
                             .word = segment->word,
                             .size = segment->size};
        if (own->fd < 0 && errno == ENOENT) {
            once__segment_finish_drop(config, slot, number);
        } else if (own->fd >= 0 && flock(own->fd, LOCK_EX | LOCK_NB) == 0 &&
                   atomic_load(&segment->number) == number &&
                   atomic_load(&segment->state) == ONCE__SEGMENT_ACTIVE) {
            /* Read behind the lock: until then the writer may go on, and seal. */
            own->synced = atomic_load(&segment->synced);
            own->last = atomic_load(&segment->last);
            takeover.reader = once__reader_open(config);
            if (takeover.reader != NULL) {
                finish(&takeover);
            }
            once__reader_close(takeover.reader);
            free(takeover.bytes);
        }
        once__own_release(own);
    }
    return atomic_load(&segment->number) != number ||
           atomic_load(&segment->state) == ONCE__SEGMENT_SEALED ||
           atomic_load(&segment->state) == ONCE__SEGMENT_FREE;
}

void once__segments_take_over(const once__log_config_t *config, uint32_t own)
{
    for (uint32_t slot = 0; slot < once__index_slot_end(config->index); slot++) {
        if (slot != own) {
            (void)once__segment_take_over(config, slot);
        }
    }
}
