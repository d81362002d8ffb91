/*
 * Whether an index that was found says what the log says.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/local/directory.h"
#include "store/local/manifest.h"

/* Up to where the file of a segment that was being written has whole frames. */
static uint64_t written_end(const once__log_config_t *config, uint32_t slot)
{
    const once__segment_t *segment = once__index_segment(config->index, slot);
    const once__buffer_t *buffer = once__buffer_of(config->index, slot);

    return buffer != NULL ? atomic_load(&buffer->written) : atomic_load(&segment->tail);
}

/*
 * Are there valid frames from `from` on that end exactly at `end` (0: is there one)? An index that is newer than the log fails
 * here: what it calls written is not there.
 */
static int has_frames(const once__log_config_t *config, int fd, const once__segment_t *segment,
                      uint64_t from, uint64_t end)
{
    uint8_t head[ONCE__FRAME_HEADER];
    once__frame_t frame;
    uint8_t *data;
    uint64_t len;
    int ok;

    if (end == from) {
        return 1;
    }
    if (once__disk_read(config->disk, fd, head, sizeof(head), from) != (ssize_t)sizeof(head) ||
        !once__frame_read_head(&frame, segment->word, from, head) || (end != 0 && end < from)) {
        return 0;
    }
    len = end != 0 ? end - from : frame.size;
    data = malloc(len);
    ok = data != NULL && once__disk_read(config->disk, fd, data, len, from) == (ssize_t)len;
    for (uint64_t at = 0; ok && at < len; at += frame.size) {
        ok = once__frame_read(&frame, segment->word, from + at, data + at, len - at) ==
             ONCE__FRAME_OK;
    }
    free(data);
    return ok;
}

/* What the file of a segment says about the index: ONCE_OK, or as once__verify. */
static int compare(const once__log_config_t *config, uint32_t slot)
{
    const once__segment_t *segment = once__index_segment(config->index, slot);
    int active = atomic_load(&segment->state) == ONCE__SEGMENT_ACTIVE, code = ONCE_OK;
    uint64_t last = atomic_load(&segment->last);
    uint64_t start = once__segment_start(segment->dictionary_len);
    uint8_t bytes[ONCE__SEGMENT_HEADER + ONCE__DICTIONARY_MAX + 8];
    once__segment_header_t header;
    char name[ONCE__SEGMENT_NAME];
    struct stat st;
    int fd;

    once__segment_name(name, atomic_load(&segment->number));
    fd = openat(config->segments_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        return ONCE_E_NOT_FOUND;
    }
    if (fstat(fd, &st) != 0 || st.st_uid != geteuid() || start > sizeof(bytes) ||
        once__disk_read(config->disk, fd, bytes, start, 0) != (ssize_t)start ||
        once__segment_header_read(&header, bytes, start) != ONCE_OK ||
        header.word != segment->word || header.number != atomic_load(&segment->number) ||
        (!active && last == 0)) {
        code = ONCE_E_NOT_FOUND;
    }
    if (code == ONCE_OK && last != 0 && !has_frames(config, fd, segment, last, 0)) {
        code = ONCE_E_CORRUPT;
    }
    if (code == ONCE_OK && active &&
        !has_frames(config, fd, segment, last != 0 ? last : start, written_end(config, slot))) {
        code = ONCE_E_NOT_FOUND;
    }
    (void)close(fd);
    return code;
}

int once__verify(const once__log_config_t *config, const once__manifest_t *manifest,
                 uint64_t *behind)
{
    uint32_t end = once__index_slot_end(config->index);
    size_t known = 0;
    int differs = 0;

    for (uint32_t slot = 0; slot < end; slot++) {
        const once__segment_t *segment = once__index_segment(config->index, slot);
        uint64_t number = atomic_load(&segment->number);
        uint32_t state = atomic_load(&segment->state);
        int live = number != 0 && once__manifest_is_live(manifest, number);
        if (state == ONCE__SEGMENT_ACTIVE || state == ONCE__SEGMENT_SEALED) {
            int code = live ? compare(config, slot) : ONCE_E_NOT_FOUND;
            if (code == ONCE_E_CORRUPT || number >= manifest->next) {
                *behind = number;
                return ONCE_E_CORRUPT;
            }
            differs |= code != ONCE_OK;
            known++;
        } else {
            known += live && state == ONCE__SEGMENT_PREPARING; /* it has no frames yet */
        }
    }
    if (differs || known != manifest->live_count) {
        return ONCE_E_NOT_FOUND;
    }
    /* What cannot be taken over now (the disk is full, or fails) stays as it is: its durable frames are served. */
    for (uint32_t slot = 0; slot < end; slot++) {
        uint32_t state = atomic_load(&once__index_segment(config->index, slot)->state);
        if (state == ONCE__SEGMENT_ACTIVE || state == ONCE__SEGMENT_PREPARING) {
            (void)once__segment_take_over(config, slot);
        }
    }
    return ONCE_OK;
}
