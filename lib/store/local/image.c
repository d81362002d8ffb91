#include "store/local/image.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/local/log.h"

#define CHUNK ((uint64_t)1 << 20)
#define PAGE  ((uint64_t)4096)

/* ---------------------------------------------------------------------------------------------------------- reading */

/* As much as there is; -1 and errno when the disk fails. */
static ssize_t read_at(int fd, uint8_t *out, uint64_t len, uint64_t offset)
{
    uint64_t done = 0;

    while (done < len) {
        ssize_t n = pread(fd, out + done, len - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return -1;
        }
        if (n == 0) {
            break;
        }
        done += (uint64_t)n;
    }
    return (ssize_t)done;
}

/* What a disk does not give is left out page by page. Anything but EIO is an error. */
static int read_all(once__image_t *image, int fd)
{
    for (uint64_t at = 0; at < image->size; at += CHUNK) {
        uint64_t len = image->size - at < CHUNK ? image->size - at : CHUNK;
        if (read_at(fd, image->data + at, len, at) == (ssize_t)len) {
            continue;
        }
        for (uint64_t page = at; page < at + len; page += PAGE) {
            uint64_t part = at + len - page < PAGE ? at + len - page : PAGE;
            ssize_t n = read_at(fd, image->data + page, part, page);
            if (n < 0 && errno != EIO) {
                return ONCE_E_IO;
            }
            if (n != (ssize_t)part) {
                memset(image->data + page, 0, part);
                image->unreadable += part;
            }
        }
    }
    return ONCE_OK;
}

/* The writer of a segment holds its lock. Ours is gone before anybody can miss it. */
static int has_writer(int fd)
{
    if (flock(fd, LOCK_SH | LOCK_NB) != 0) {
        return errno == EWOULDBLOCK;
    }
    (void)flock(fd, LOCK_UN);
    return 0;
}

static int still_named(int fd, int segments_fd, const char *name)
{
    struct stat here, there;

    return fstat(fd, &here) == 0 && fstatat(segments_fd, name, &there, 0) == 0 &&
           here.st_ino == there.st_ino;
}

static int read_file(once__image_t *image, int fd, int segments_fd, const char *name)
{
    struct stat st;
    int code;

    if (fstat(fd, &st) != 0) {
        return ONCE_E_IO;
    }
    image->size = (uint64_t)st.st_size;
    image->data = malloc(image->size + 1);
    if (image->data == NULL) {
        return ONCE_E_NOMEM;
    }
    /* Before reading: whoever is gone by now has written all that there will be. */
    image->writing = has_writer(fd);
    code = read_all(image, fd);
    /* A dropped segment's file may be a segment again, with another number. */
    return code == ONCE_OK && !still_named(fd, segments_fd, name) ? ONCE_E_NOT_FOUND : code;
}

int once__image_read(once__image_t *image, int segments_fd, uint32_t number)
{
    char name[ONCE__SEGMENT_NAME];
    int fd, code;

    memset(image, 0, sizeof(*image));
    image->number = number;
    once__segment_name(name, number, "log");
    fd = openat(segments_fd, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return errno == ENOENT ? ONCE_E_NOT_FOUND : ONCE_E_IO;
    }
    code = read_file(image, fd, segments_fd, name);
    if (code != ONCE_OK) {
        int saved = errno;
        once__image_free(image);
        errno = saved;
    }
    (void)close(fd);
    return code;
}

void once__image_free(once__image_t *image)
{
    free(image->data);
    free(image->whole.bytes);
    image->data = NULL;
    memset(&image->whole, 0, sizeof(image->whole));
}

/* ----------------------------------------------------------------------------------------------------------- pieces */

int once__image_header(const once__image_t *image, once__segment_header_t *header)
{
    int code = ONCE_E_CORRUPT;

    memset(header, 0, sizeof(*header));
    if (image->size >= ONCE__SEGMENT_HEADER) {
        code = once__segment_header_read(header, image->data);
    }
    if (code == ONCE_OK && (header->number != image->number || header->size != image->size)) {
        code = ONCE_E_CORRUPT;
    }
    return code;
}

static void decode(once__image_t *image, once__place_t place, once__piece_t *piece)
{
    int code = once__frame_complete(&image->whole, image->data, image->size, place, &piece->frame);

    if (code == ONCE_OK) {
        code = once__record_decode(&piece->record, piece->frame.bytes, piece->frame.len);
    } else if (code == ONCE_E_NOMEM) {
        code = once__frame_head(&piece->frame, &piece->record.head); /* which is no damage */
    }
    piece->newer = code == ONCE_E_NEWER;
    if (code != ONCE_OK && code != ONCE_E_NEWER) {
        piece->kind = ONCE__PIECE_DAMAGE;
    }
    memcpy(piece->record.id, piece->frame.id, ONCE_ID_SIZE);
}

void once__image_piece(once__image_t *image, uint64_t offset, once__piece_t *piece)
{
    once__place_t place = {image->number, offset};
    once__search_t search = {0};
    uint64_t next;

    memset(piece, 0, sizeof(*piece));
    piece->offset = offset;
    piece->kind = ONCE__PIECE_END;
    if (offset + ONCE__FRAME_HEADER > image->size) {
        return;
    }
    if (once__frame_read(&piece->frame, place, image->data + offset, image->size - offset)) {
        piece->length = piece->frame.size;
        piece->kind =
            piece->frame.kind == ONCE__FRAME_SEALED ? ONCE__PIECE_SEALED : ONCE__PIECE_FRAME;
        if (piece->kind == ONCE__PIECE_SEALED &&
            once__frame_is_no_end(&search, image->data, image->size, place, &next)) {
            piece->kind = ONCE__PIECE_DAMAGE;
            piece->length = next - offset;
        } else if (once__frame_has_record(&piece->frame)) {
            decode(image, place, piece);
        }
        return;
    }
    switch (once__frame_gap(image->data, image->size, place, &next)) {
    case ONCE__GAP_DAMAGE:
    case ONCE__GAP_UNKNOWN:
        piece->kind = ONCE__PIECE_DAMAGE;
        piece->length = next - offset;
        break;
    case ONCE__GAP_TORN:
        piece->kind = ONCE__PIECE_TORN;
        break;
    case ONCE__GAP_END:
        break;
    }
}

/* ----------------------------------------------------------------------------------------------------------- making */

static int write_all(int fd, const uint8_t *data, uint64_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, data, len);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return -1;
        }
        data += n;
        len -= (uint64_t)n;
    }
    return 0;
}

/* Whole pages, because segments are mapped; and no holes, because the file may become a spare and be written to again. */
static int write_parts(const once__disk_t *disk, int fd, once__segment_header_t *header,
                       const uint8_t *data, uint64_t end)
{
    uint8_t head[ONCE__SEGMENT_HEADER], tail[2 * PAGE] = {0};
    once__place_t seal = {header->number, end};
    /* an empty segment has no data */
    const uint8_t *frames = end > sizeof(head) ? data + sizeof(head) : head;

    header->size = (end + ONCE__FRAME_HEADER + PAGE - 1) / PAGE * PAGE;
    once__segment_header_write(header, head);
    once__frame_write(tail, seal, end, NULL, NULL);
    return write_all(fd, head, sizeof(head)) == 0 &&
                   write_all(fd, frames, end - sizeof(head)) == 0 &&
                   write_all(fd, tail, header->size - end) == 0
               ? disk->sync(disk->data, fd)
               : -1;
}

int once__image_write(const once__disk_t *disk, int segments_fd, const char *name,
                      once__segment_header_t *header, const uint8_t *data, uint64_t end)
{
    int fd = openat(segments_fd, name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int code = fd >= 0 ? write_parts(disk, fd, header, data, end) : -1;
    int saved = errno;

    if (fd >= 0) {
        (void)close(fd);
    }
    if (code == 0) {
        return ONCE_OK;
    }
    (void)unlinkat(segments_fd, name, 0);
    errno = saved;
    return saved == ENOSPC || saved == EDQUOT ? ONCE_E_FULL : ONCE_E_IO;
}

/* ----------------------------------------------------------------------------------------------------------- listing */

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

/* The number in a segment's name; 0: it is none. */
static uint32_t number_of(const char *name)
{
    char again[ONCE__SEGMENT_NAME];
    uint32_t number = (uint32_t)strtoul(name, NULL, 16);

    once__segment_name(again, number, "log");
    return strcmp(again, name) == 0 ? number : 0;
}

static int add_number(uint32_t **numbers, size_t *count, uint32_t number)
{
    if (*count % 64 == 0) {
        uint32_t *more = realloc(*numbers, (*count + 64) * sizeof(uint32_t));
        if (more == NULL) {
            return ONCE_E_NOMEM;
        }
        *numbers = more;
    }
    (*numbers)[(*count)++] = number;
    return ONCE_OK;
}

int once__image_list(int segments_fd, uint32_t **numbers, size_t *count, uint64_t *unfinished)
{
    int fd = openat(segments_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), code = ONCE_OK;
    DIR *stream = fd >= 0 ? fdopendir(fd) : NULL;
    const struct dirent *entry;

    *numbers = NULL;
    *count = 0;
    *unfinished = 0;
    if (stream == NULL) {
        if (fd >= 0) {
            (void)close(fd);
        }
        return ONCE_E_IO;
    }
    while (code == ONCE_OK && (entry = readdir(stream)) != NULL) {
        const char *dot = strrchr(entry->d_name, '.');
        uint32_t number = number_of(entry->d_name);
        *unfinished += dot != NULL && strcmp(dot, ".new") == 0;
        code = number != 0 ? add_number(numbers, count, number) : ONCE_OK;
    }
    (void)closedir(stream);
    if (code != ONCE_OK) {
        free(*numbers);
        *numbers = NULL;
    } else if (*count > 0) {
        qsort(*numbers, *count, sizeof(uint32_t), by_number);
    }
    return code;
}
