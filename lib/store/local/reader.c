/*
 * Reads frames of all segments: from write buffers, else from files.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/bytes.h"
#include "store/local/log.h"

#define FILES 64u
#define FIRST ((uint64_t)1024)    /* read at once: most frames are shorter */
#define KEEP  ((uint64_t)1 << 20) /* memory beyond this is given back after a large frame */

typedef struct file {
    uint64_t number; /* 0: none */
    uint32_t slot;
    int fd;
    once__dictionary_t *dictionary; /* NULL: not needed so far */
} file_t;

struct once__reader {
    once__log_config_t config;
    file_t files[FILES]; /* by slot */
    uint8_t *bytes;
    uint64_t size;
    once__scratch_t scratch;
};

once__reader_t *once__reader_open(const once__log_config_t *config)
{
    once__reader_t *reader = calloc(1, sizeof(*reader));

    if (reader != NULL) {
        reader->config = *config;
    }
    return reader;
}

static void close_file(file_t *file)
{
    if (file->number != 0) {
        (void)close(file->fd);
        once__dictionary_close(file->dictionary);
    }
    *file = (file_t){0};
}

void once__reader_close(once__reader_t *reader)
{
    if (reader == NULL) {
        return;
    }
    for (unsigned i = 0; i < FILES; i++) {
        close_file(&reader->files[i]);
    }
    free(reader->bytes);
    free(reader->scratch.bytes);
    free(reader);
}

void once__reader_forget(once__reader_t *reader)
{
    uint32_t end = once__index_slot_end(reader->config.index);

    for (unsigned i = 0; i < FILES; i++) {
        file_t *file = &reader->files[i];
        uint32_t slot = file->slot;
        if (file->number != 0 &&
            (slot >= end || atomic_load(&once__index_segment(reader->config.index, slot)->number) !=
                                file->number)) {
            close_file(file);
        }
    }
}

/* Room for a frame. NULL: out of memory. */
static uint8_t *make_room(once__reader_t *reader, uint64_t size)
{
    uint64_t want = size > FIRST ? size : FIRST;

    if (reader->size < want || (reader->size > KEEP && want <= KEEP)) {
        uint8_t *bytes = realloc(reader->bytes, (size_t)want);
        if (bytes == NULL) {
            return NULL;
        }
        reader->bytes = bytes;
        reader->size = want;
    }
    return reader->bytes;
}

/* ------------------------------------------------------------------------------------------------------------ files */

/* `now`: without waiting for the disk, if the kernel can do that; EAGAIN if its name and inode are not in memory. */
static int open_file(const once__reader_t *reader, uint64_t number, int now)
{
#ifdef RESOLVE_CACHED
    struct open_how how = {.flags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW, .resolve = RESOLVE_CACHED};
    char name[ONCE__SEGMENT_NAME];
    long fd = -1;

    once__segment_name(name, number);
    if (now) {
        fd = syscall(SYS_openat2, reader->config.segments_fd, name, &how, sizeof(how));
    }
    if (now && (fd >= 0 || errno == EAGAIN)) {
        return (int)fd;
    }
#endif
    return once__segment_open(&reader->config, number, O_RDONLY);
}

static int find_file(once__reader_t *reader, uint32_t slot, uint64_t number, int now, file_t **out)
{
    file_t *file = &reader->files[slot % FILES];
    int fd;

    *out = file;
    if (file->number == number) {
        return ONCE_OK;
    }
    fd = open_file(reader, number, now);
    if (fd < 0) {
        return errno == EAGAIN ? ONCE_E_UNAVAILABLE : errno == ENOENT ? ONCE_E_CORRUPT : ONCE_E_IO;
    }
    close_file(file);
    *file = (file_t){.slot = slot, .number = number, .fd = fd};
    return ONCE_OK;
}

/* Bytes of a file, fewer than `len` at its end. */
static int read_bytes(const once__reader_t *reader, const file_t *file, int now, uint8_t *out,
                      uint64_t len, uint64_t offset, size_t *got)
{
    ssize_t n = (now ? once__disk_read_now : once__disk_read)(reader->config.disk, file->fd, out,
                                                              len, offset);

    *got = n > 0 ? (size_t)n : 0;
    return n >= 0 ? ONCE_OK : now && errno == EAGAIN ? ONCE_E_UNAVAILABLE : ONCE_E_IO;
}

/* ONCE_E_CORRUPT with a kind: the head is right, and the body is damaged or longer than `len`. */
static int check(once__frame_t *frame, uint64_t word, uint64_t offset, const uint8_t *bytes,
                 size_t len)
{
    switch (once__frame_read(frame, word, offset, bytes, len)) {
    case ONCE__FRAME_OK:
        if (frame->kind == ONCE__FRAME_RECORD || frame->kind == ONCE__FRAME_REMOVED) {
            return ONCE_OK;
        }
        frame->kind = 0; /* an entry leads to a frame of no record */
        break;
    case ONCE__FRAME_NONE:
        if (len < ONCE__FRAME_HEADER || !once__frame_read_head(frame, word, offset, bytes)) {
            frame->kind = 0;
        }
        break;
    case ONCE__FRAME_DAMAGED:
        break;
    }
    return ONCE_E_CORRUPT;
}

static int read_from_file(once__reader_t *reader, once__place_t place, uint64_t number,
                          uint64_t word, int now, once__frame_t *frame)
{
    uint64_t want = FIRST;
    file_t *file;
    int code = find_file(reader, place.slot, number, now, &file);

    while (code == ONCE_OK) {
        uint8_t *bytes = make_room(reader, want);
        size_t got;
        if (bytes == NULL) {
            return ONCE_E_NOMEM;
        }
        code = read_bytes(reader, file, now, bytes, want, place.offset, &got);
        code = code == ONCE_OK ? check(frame, word, place.offset, bytes, got) : code;
        if (code != ONCE_E_CORRUPT || frame->kind == 0 || frame->size <= want) {
            return code;
        }
        want = frame->size; /* all of it */
        code = ONCE_OK;
    }
    return code;
}

/* ---------------------------------------------------------------------------------------------------------- buffers */

/*
 * Copies first and checks the copy, as the writer may use the bytes again at any time. It does so only when the file has them: a
 * frame that is not valid here is read from the file. 1 or 0.
 */
static int read_from_buffer(once__reader_t *reader, once__place_t place, uint64_t number,
                            uint64_t word, once__frame_t *frame)
{
    const once__buffer_t *buffer = once__buffer_of(reader->config.index, place.slot);
    uint64_t at, len;
    uint8_t *bytes;

    if (buffer == NULL || atomic_load(&buffer->number) != number) {
        return 0;
    }
    at = place.offset - atomic_load(&buffer->from); /* huge, if it is before that */
    if (at > ONCE__BUFFER_ROOM - ONCE__FRAME_HEADER ||
        place.offset >= atomic_load(&buffer->staged)) {
        return 0;
    }
    len = once__get32(buffer->bytes + at);
    bytes = len <= ONCE__BUFFER_ROOM - at ? make_room(reader, len) : NULL;
    if (bytes == NULL) {
        return 0;
    }
    memcpy(bytes, buffer->bytes + at, (size_t)len);
    return check(frame, word, place.offset, bytes, (size_t)len) == ONCE_OK;
}

/* ---------------------------------------------------------------------------------------------------------- records */

/* Its record will need the dictionary of the segment: it is read here, where the caller says whether that may take time. */
static int load_dictionary(once__reader_t *reader, uint32_t slot, uint64_t number, int now)
{
    uint8_t bytes[ONCE__SEGMENT_HEADER + ONCE__DICTIONARY_MAX];
    once__segment_header_t header;
    const uint8_t *dictionary;
    file_t *file;
    size_t got;
    int code = find_file(reader, slot, number, now, &file);

    if (code != ONCE_OK || file->dictionary != NULL) {
        return code;
    }
    code = read_bytes(reader, file, now, bytes, sizeof(bytes), 0, &got);
    if (code != ONCE_OK) {
        return code;
    }
    if (once__segment_header_read(&header, bytes, got) != ONCE_OK || header.number != number) {
        return ONCE_E_CORRUPT;
    }
    dictionary = once__segment_dictionary(bytes, got);
    if (dictionary == NULL) {
        return ONCE_E_CORRUPT;
    }
    file->dictionary = once__dictionary_open(dictionary, header.dictionary_len, 0);
    return file->dictionary != NULL ? ONCE_OK : ONCE_E_NOMEM;
}

int once__reader_read(once__reader_t *reader, once__place_t place, int now, once__frame_t *frame)
{
    const once__segment_t *segment = once__index_segment(reader->config.index, place.slot);
    uint64_t number = atomic_load(&segment->number), word = segment->word;
    int code = ONCE_OK;

    frame->kind = 0;
    if (number == 0) {
        return ONCE_E_NOT_FOUND;
    }
    if (!read_from_buffer(reader, place, number, word, frame)) {
        code = read_from_file(reader, place, number, word, now, frame);
    }
    if (code == ONCE_OK && frame->kind == ONCE__FRAME_RECORD &&
        (frame->flags & (ONCE__FRAME_COMPRESSED | ONCE__FRAME_SHORT_ABOUT))) {
        code = load_dictionary(reader, place.slot, number, now);
        /* What a record says about itself is not worth an error. */
        code =
            code == ONCE_E_CORRUPT && (frame->flags & ONCE__FRAME_COMPRESSED) == 0 ? ONCE_OK : code;
    }
    /* Without the shard's lock, the segment may have been dropped, and its slot used again. */
    if (code != ONCE_OK && atomic_load(&segment->number) != number) {
        return ONCE_E_NOT_FOUND;
    }
    return code;
}

int once__reader_record(once__reader_t *reader, once__place_t place, const once__frame_t *frame,
                        once__record_t *record)
{
    const file_t *file = &reader->files[place.slot % FILES];
    once__head_t *head = &record->head;
    int code = once__unpack(record, frame, file->slot == place.slot ? file->dictionary : NULL,
                            &reader->scratch);

    if (once__index_segment(reader->config.index, place.slot)->other_boot &&
        head->lease_until > head->changed) {
        head->lease_until = head->changed;
    }
    return code;
}

once__weight_t once__frame_weight(const once__frame_t *frame, uint8_t state)
{
    once__weight_t weight = {frame->size, UINT64_MAX};
    once__head_t head;

    if (state == ONCE_STATE_NONE) {
        weight.until = 0;
    } else if (frame->body != NULL && once__unpack_head(&head, frame) != ONCE_E_CORRUPT) {
        weight.until = once__index_kept_until(&head);
    }
    return weight;
}
