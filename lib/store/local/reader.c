/*
 * Reads the log: whole segments, to walk through their frames; and single frames, from write buffers, else from files.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/bytes.h"
#include "store/local/log.h"

/* --------------------------------------------------------------------------------------------------- whole segments */

#define PAGE      ((uint64_t)4096)
#define BEGINNING ((uint64_t)ONCE__SEGMENT_HEADER + ONCE__DICTIONARY_MAX)

/* A page that the disk cannot read is zeros. */
static void salvage_pages(const once__log_config_t *log, int fd, uint8_t *data, uint64_t size)
{
    for (uint64_t at = 0; at < size; at += PAGE) {
        uint64_t len = size - at < PAGE ? size - at : PAGE;
        if (once__disk_read(log->disk, fd, data + at, len, at) != (ssize_t)len) {
            memset(data + at, 0, len);
        }
    }
}

/* The beginning, and what is from `from` to `to`. */
static int read_data(once__image_t *image, const once__log_config_t *log, int fd, uint64_t from,
                     uint64_t to)
{
    uint64_t first = from > 0 && BEGINNING < to ? BEGINNING : to;
    ssize_t len;

    if (image->data == NULL || image->room < to) {
        free(image->data); /* not realloc: nothing of it is needed any more */
        image->data = malloc(to + 1);
        image->room = image->data != NULL ? to : 0;
    }
    if (image->data == NULL) {
        return ONCE_E_NOMEM;
    }
    len = once__disk_read(log->disk, fd, image->data, first, 0);
    if (len == (ssize_t)first && first < to && from < to) {
        len = once__disk_read(log->disk, fd, image->data + from, to - from, from);
        len = len < 0 ? len : (ssize_t)from + len;
    }
    if (len < 0 && image->salvage) {
        salvage_pages(log, fd, image->data, to);
        len = (ssize_t)to;
    }
    image->end = len < 0 ? 0 : (uint64_t)len;
    return len < 0 ? ONCE_E_IO : ONCE_OK;
}

static int check_header(once__image_t *image, const once__log_config_t *log, uint64_t number)
{
    once__segment_header_t *header = &image->header;
    int code = once__segment_header_read(header, image->data, image->end);

    if (code == ONCE_OK && (header->number != number || image->size > header->size ||
                            image->end < once__segment_start(header->dictionary_len) ||
                            memcmp(header->store_id, log->store_id, ONCE__STORE_ID_SIZE) != 0)) {
        code = ONCE_E_CORRUPT;
    }
    image->dictionary = code == ONCE_OK ? once__segment_dictionary(image->data, image->end) : NULL;
    return code;
}

int once__image_read_part(once__image_t *image, const once__log_config_t *log, uint64_t number,
                          uint64_t from, uint64_t to)
{
    int fd = once__segment_open(log, number, O_RDONLY | O_NONBLOCK), code = ONCE_E_IO;
    struct stat st, directory;

    image->size = image->end = 0;
    image->dictionary = NULL;
    memset(&image->header, 0, sizeof(image->header));
    if (fd < 0) {
        return errno == ENOENT ? ONCE_E_NOT_FOUND : errno == ELOOP ? ONCE_E_CONFIG : ONCE_E_IO;
    }
    if (fstat(fd, &st) == 0 && fstat(log->segments_fd, &directory) == 0) {
        uint64_t size = (uint64_t)st.st_size;
        code = !S_ISREG(st.st_mode) || st.st_uid != directory.st_uid
                   ? ONCE_E_CONFIG
                   : read_data(image, log, fd, from, to < size ? to : size);
        /* Of a whole file as much as was read: it may have been cut meanwhile. */
        image->size = to < size ? size : image->end;
    }
    (void)close(fd);
    return code == ONCE_OK ? check_header(image, log, number) : code;
}

int once__image_read(once__image_t *image, const once__log_config_t *log, uint64_t number)
{
    return once__image_read_part(image, log, number, 0, UINT64_MAX);
}

void once__image_free(once__image_t *image)
{
    free(image->data);
    memset(image, 0, sizeof(*image));
}

/* ---------------------------------------------------------------------------------------------------------- walking */

void once__walk_begin(once__walk_t *walk, const once__image_t *image, uint64_t synced)
{
    memset(walk, 0, sizeof(*walk));
    walk->image = image;
    walk->offset = walk->end = once__segment_start(image->header.dictionary_len);
    /* A file is cut when it is sealed, and the frame that seals it was synced before. */
    walk->synced = image->size < image->header.size ? UINT64_MAX : synced;
}

/* Was the place synced? If need be, all frames from there on are asked; their heads are enough for that. */
static int was_synced(once__walk_t *walk)
{
    const once__image_t *image = walk->image;
    once__frame_t frame;

    if (walk->offset >= walk->synced) { /* twice at most: the walk ends if they say nothing */
        uint64_t at = walk->offset;
        while ((at = once__frame_find(&frame, image->header.word, at, image->data, image->end)) <
               image->end) {
            uint64_t synced = frame.kind == ONCE__FRAME_SEALED ? at : frame.watermark;
            walk->synced = synced > walk->synced ? synced : walk->synced;
            at += 8;
        }
    }
    return walk->offset < walk->synced;
}

static int is_zero(const uint8_t *data, uint64_t len)
{
    return len == 0 || (data[0] == 0 && memcmp(data, data + 1, len - 1) == 0);
}

/* There is no valid frame at walk->offset. */
static void look_into_gap(once__walk_t *walk)
{
    const once__image_t *image = walk->image;
    uint64_t offset = walk->offset, end = image->end > offset ? image->end : offset;
    once__frame_t frame;

    walk->end = end;
    walk->is_over = 1;
    if ((offset < image->end || image->end == image->size) && was_synced(walk)) {
        walk->kind = ONCE__WALK_LOST;
        walk->end = once__frame_find(&frame, image->header.word, offset + 8, image->data, end);
        if (walk->end >= end && walk->synced < end) {
            walk->end = walk->synced; /* what was not synced is not lost */
        }
        walk->is_over = walk->end >= end;
    } else {
        walk->kind = is_zero(image->data + offset, end - offset) ? ONCE__WALK_END : ONCE__WALK_TORN;
    }
}

int once__walk_next(once__walk_t *walk)
{
    const once__image_t *image = walk->image;
    once__frame_code_t code = ONCE__FRAME_NONE;

    if (walk->is_over) {
        return 0;
    }
    walk->offset = walk->end;
    if (walk->offset < image->end) {
        code = once__frame_read(&walk->frame, image->header.word, walk->offset,
                                image->data + walk->offset, image->end - walk->offset);
    }
    if (code == ONCE__FRAME_OK || (code == ONCE__FRAME_DAMAGED && was_synced(walk))) {
        int is_blind = (walk->frame.flags & ONCE__FRAME_COMPRESSED) && image->dictionary == NULL;
        walk->kind = code == ONCE__FRAME_DAMAGED || is_blind  ? ONCE__WALK_DAMAGED
                     : walk->frame.kind == ONCE__FRAME_SEALED ? ONCE__WALK_SEALED
                                                              : ONCE__WALK_FRAME;
        walk->end = walk->offset + walk->frame.size;
        walk->end = walk->end < image->end ? walk->end : image->end;
        walk->is_over = walk->kind == ONCE__WALK_SEALED;
    } else {
        look_into_gap(walk);
    }
    return 1;
}

int once__walk_code(const once__walk_t *walk)
{
    once__head_t head;

    if (walk->kind == ONCE__WALK_FRAME && walk->frame.kind == ONCE__FRAME_RECORD) {
        return once__unpack_head(&head, &walk->frame);
    }
    return walk->kind == ONCE__WALK_DAMAGED || walk->kind == ONCE__WALK_LOST ? ONCE_E_CORRUPT
                                                                             : ONCE_OK;
}

int once__segment_is_empty(const once__log_config_t *log, uint64_t number)
{
    once__image_t image = {0};
    once__walk_t walk;
    int code = once__image_read(&image, log, number);

    if (code == ONCE_OK) {
        once__walk_begin(&walk, &image, 0);
        (void)once__walk_next(&walk);
        code = walk.kind == ONCE__WALK_END || walk.kind == ONCE__WALK_SEALED ? ONCE_OK
                                                                             : ONCE_E_CORRUPT;
    }
    once__image_free(&image);
    return code;
}

/* ---------------------------------------------------------------------------------------------------- single frames */

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
    once__buf_t bytes;   /* of the last frame */
    once__scratch_t scratch;
};

once__reader_t *once__reader_open(const once__log_config_t *config)
{
    once__reader_t *reader = calloc(1, sizeof(*reader));

    if (reader != NULL) {
        reader->config = *config;
        reader->bytes.max = ONCE__SEGMENT_MAX;
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
    once__buf_free(&reader->bytes);
    free(reader->scratch.bytes);
    free(reader);
}

void once__reader_forget(once__reader_t *reader)
{
    const once__index_t *index = reader->config.index;

    for (unsigned i = 0; i < FILES; i++) {
        file_t *file = &reader->files[i];
        if (file->slot >= once__index_slot_end(index) ||
            atomic_load(&once__index_segment(index, file->slot)->number) != file->number) {
            close_file(file);
        }
    }
}

/* Room for a frame. NULL: out of memory. */
static uint8_t *make_room(once__reader_t *reader, uint64_t size)
{
    once__buf_reset(&reader->bytes, size > KEEP ? SIZE_MAX : KEEP);
    return (uint8_t *)once__buf_reserve(&reader->bytes, (size_t)size);
}

/* `now`: without waiting for the disk, if the kernel can do that: ONCE_E_UNAVAILABLE if name and inode are not in memory. */
static int find_file(once__reader_t *reader, uint32_t slot, uint64_t number, int now, file_t **out)
{
    file_t *file = &reader->files[slot % FILES];
    int fd = -1;

    *out = file;
    if (file->number == number) {
        return ONCE_OK;
    }
#ifdef RESOLVE_CACHED
    if (now) {
        struct open_how how = {.flags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW,
                               .resolve = RESOLVE_CACHED};
        char name[ONCE__SEGMENT_NAME];
        once__segment_name(name, number);
        fd = (int)syscall(SYS_openat2, reader->config.segments_fd, name, &how, sizeof(how));
        if (fd < 0 && errno == EAGAIN) {
            return ONCE_E_UNAVAILABLE;
        }
    }
#endif
    fd = fd >= 0 ? fd : once__segment_open(&reader->config, number, O_RDONLY);
    if (fd < 0) {
        return errno == ENOENT ? ONCE_E_CORRUPT : ONCE_E_IO;
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
    once__frame_code_t code = once__frame_read(frame, word, offset, bytes, len);
    int has_head = code != ONCE__FRAME_NONE ||
                   (len >= ONCE__FRAME_HEADER && once__frame_read_head(frame, word, offset, bytes));

    /* An entry leads to a frame of a record. */
    if (!has_head || (frame->kind != ONCE__FRAME_RECORD && frame->kind != ONCE__FRAME_REMOVED)) {
        frame->kind = 0;
    }
    return code == ONCE__FRAME_OK && frame->kind != 0 ? ONCE_OK : ONCE_E_CORRUPT;
}

static int read_from_file(once__reader_t *reader, once__place_t place, uint64_t number,
                          uint64_t word, int now, once__frame_t *frame)
{
    file_t *file;
    int code = find_file(reader, place.slot, number, now, &file);

    for (uint64_t want = FIRST; code == ONCE_OK; want = frame->size) {
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
        code = ONCE_OK; /* all of it */
    }
    return code;
}

/*
 * Copies first and checks the copy, as the writer may use the bytes again at any time. It does so only when the file has them: a
 * frame that is not valid here is read from the file. 1 or 0.
 */
static int read_from_buffer(once__reader_t *reader, once__place_t place, uint64_t number,
                            uint64_t word, once__frame_t *frame)
{
    uint64_t at, len, room;
    const once__buffer_t *buffer = once__buffer_of(reader->config.index, place.slot, &room);
    uint8_t *bytes;

    if (buffer == NULL || atomic_load(&buffer->number) != number) {
        return 0;
    }
    at = place.offset - atomic_load(&buffer->from); /* huge, if it is before that */
    if (at > room - ONCE__FRAME_HEADER || place.offset >= atomic_load(&buffer->staged)) {
        return 0;
    }
    len = once__get32(buffer->bytes + at);
    bytes = len <= room - at ? make_room(reader, len) : NULL;
    if (bytes == NULL) {
        return 0;
    }
    memcpy(bytes, buffer->bytes + at, (size_t)len);
    return check(frame, word, place.offset, bytes, (size_t)len) == ONCE_OK;
}

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
    if (once__segment_header_read(&header, bytes, got) != ONCE_OK || header.number != number ||
        (dictionary = once__segment_dictionary(bytes, got)) == NULL) {
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
    if (code == ONCE_OK && (frame->flags & (ONCE__FRAME_COMPRESSED | ONCE__FRAME_SHORT_ABOUT))) {
        code = load_dictionary(reader, place.slot, number, now);
        /* What a record says about itself is not worth an error. */
        code =
            code == ONCE_E_CORRUPT && (frame->flags & ONCE__FRAME_COMPRESSED) == 0 ? ONCE_OK : code;
    }
    /* Without the shard's lock, the segment may have been dropped, and its slot used again. */
    return code != ONCE_OK && atomic_load(&segment->number) != number ? ONCE_E_NOT_FOUND : code;
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
