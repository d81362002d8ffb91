#include "store/local/walk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/local/log.h"

#define PAGE ((uint64_t)4096)

/* --------------------------------------------------------------------------------------------------------- reading */

static int is_foreign(const struct stat *st, int segments_fd)
{
    struct stat directory;

    return fstat(segments_fd, &directory) != 0 || !S_ISREG(st->st_mode) ||
           st->st_uid != directory.st_uid;
}

static int make_room(once__image_t *image, uint64_t size)
{
    uint8_t *data;

    if (image->data != NULL && size <= image->room) {
        return ONCE_OK;
    }
    free(image->data); /* not realloc: nothing of it is needed any more */
    data = malloc(size > 0 ? size : 1);
    image->data = data;
    image->room = data != NULL ? size : 0;
    return data != NULL ? ONCE_OK : ONCE_E_NOMEM;
}

static int read_header(once__image_t *image, uint64_t number, const uint8_t *store_id)
{
    once__segment_header_t *header = &image->header;
    int code = once__segment_header_read(header, image->data, image->size);

    if (code == ONCE_OK && (header->number != number || image->size > header->size ||
                            image->size < once__segment_start(header->dictionary_len) ||
                            memcmp(header->store_id, store_id, ONCE__STORE_ID_SIZE) != 0)) {
        code = ONCE_E_CORRUPT;
    }
    if (code == ONCE_OK) {
        image->dictionary = once__segment_dictionary(image->data, image->size);
    }
    return code;
}

static void read_pages(once__image_t *image, int fd, uint64_t size, const once__disk_t *disk)
{
    for (uint64_t at = 0; at < size; at += PAGE) {
        uint64_t len = size - at < PAGE ? size - at : PAGE;
        if (once__disk_read(disk, fd, image->data + at, len, at) != (ssize_t)len) {
            memset(image->data + at, 0, len);
        }
    }
}

static int read_file(once__image_t *image, int fd, int segments_fd, const once__disk_t *disk)
{
    struct stat st;
    ssize_t len;
    int code;

    if (fstat(fd, &st) != 0) {
        return ONCE_E_IO;
    }
    if (is_foreign(&st, segments_fd)) {
        return ONCE_E_CONFIG;
    }
    code = make_room(image, (uint64_t)st.st_size);
    if (code != ONCE_OK) {
        return code;
    }
    len = once__disk_read(disk, fd, image->data, (uint64_t)st.st_size, 0);
    if (len < 0 && !image->salvage) {
        return ONCE_E_IO;
    }
    if (len < 0) {
        len = (ssize_t)st.st_size;
        read_pages(image, fd, (uint64_t)len, disk);
    }
    image->size = image->end = (uint64_t)len;
    return ONCE_OK;
}

int once__image_read(once__image_t *image, int segments_fd, const once__disk_t *disk,
                     uint64_t number, const uint8_t store_id[ONCE__STORE_ID_SIZE])
{
    char name[ONCE__SEGMENT_NAME];
    int fd, code;

    image->size = image->end = 0;
    image->dictionary = NULL;
    memset(&image->header, 0, sizeof(image->header));
    once__segment_name(name, number);
    fd = openat(segments_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        return errno == ENOENT ? ONCE_E_NOT_FOUND : errno == ELOOP ? ONCE_E_CONFIG : ONCE_E_IO;
    }
    code = read_file(image, fd, segments_fd, disk);
    (void)close(fd);
    return code == ONCE_OK ? read_header(image, number, store_id) : code;
}

void once__image_free(once__image_t *image)
{
    free(image->data);
    memset(image, 0, sizeof(*image));
}

/* --------------------------------------------------------------------------------------------------------- walking */

void once__walk_begin(once__walk_t *walk, const once__image_t *image, uint64_t synced)
{
    memset(walk, 0, sizeof(*walk));
    walk->image = image;
    walk->offset = walk->end = once__segment_start(image->header.dictionary_len);
    /* A file is cut when it is sealed, and the frame that seals it was synced before. */
    walk->synced = image->size < image->header.size ? UINT64_MAX : synced;
}

/* What the frames from here on say of what was synced. Their heads are enough for that. */
static void search(once__walk_t *walk)
{
    const once__image_t *image = walk->image;
    once__frame_t frame;
    uint64_t at = walk->offset;

    while ((at = once__frame_find(&frame, image->header.word, at, image->data, image->end)) <
           image->end) {
        uint64_t synced = frame.kind == ONCE__FRAME_SEALED ? at : frame.watermark;
        walk->synced = synced > walk->synced ? synced : walk->synced;
        at += 8;
    }
}

static int was_synced(once__walk_t *walk)
{
    if (walk->offset >= walk->synced) {
        search(walk); /* all of the rest: twice at most, because the walk ends if it says nothing */
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
        return 1;
    }
    look_into_gap(walk);
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
