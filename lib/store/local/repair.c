#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "store/local/check.h"
#include "store/local/format.h"
#include "store/local/log.h"
#include "store/local/summary.h"

static int fail(const once__check_t *check, const char *what, uint32_t segment)
{
    char name[ONCE__SEGMENT_NAME];

    once__segment_name(name, segment, "log");
    return once__local_errno(check->err, what, name);
}

/* ------------------------------------------------------------------------------------------------------- quarantine */

static int write_file(int directory_fd, const char *name, const uint8_t *data, uint64_t len)
{
    int fd = openat(directory_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int ok = fd >= 0;

    while (ok && len > 0) {
        ssize_t n = write(fd, data, len);
        ok = n > 0 || (n < 0 && errno == EINTR);
        data += n > 0 ? n : 0;
        len -= n > 0 ? (uint64_t)n : 0;
    }
    ok = ok && fsync(fd) == 0;
    if (fd >= 0) {
        int saved = errno;
        (void)close(fd);
        errno = saved;
    }
    return ok ? 0 : -1;
}

/* Keeps what is taken out, so that nothing is lost that somebody could still make sense of. */
static int keep(const once__check_t *check, const once__image_t *image, uint64_t offset,
                uint64_t len)
{
    char name[64];

    (void)snprintf(name, sizeof(name), "quarantine/%08x-%llu", image->number,
                   (unsigned long long)offset);
    if (len > 0 && write_file(check->directory->fd, name, image->data + offset, len) != 0) {
        return fail(check, "cannot keep a copy of what is damaged in", image->number);
    }
    return ONCE_OK;
}

static int make_quarantine(const once__check_t *check)
{
    int fd = -1, ok;

    ok = (mkdirat(check->directory->fd, "quarantine", 0700) == 0 || errno == EEXIST) &&
         fsync(check->directory->fd) == 0;
    if (ok) {
        fd = openat(check->directory->fd, "quarantine", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        ok = fd >= 0 && fsync(fd) == 0;
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return ok ? ONCE_OK : once__local_errno(check->err, "cannot make", "quarantine");
}

/* ---------------------------------------------------------------------------------------------------------- segments */

/* The file gets its name when it is complete: whoever is killed before that has changed nothing. */
static int put_in_place(const once__check_t *check, once__segment_header_t *header,
                        const uint8_t *data, uint64_t end)
{
    int fd = check->directory->segments_fd;
    char temp[ONCE__SEGMENT_NAME], name[ONCE__SEGMENT_NAME];

    once__segment_name(temp, header->number, "new");
    once__segment_name(name, header->number, "log");
    if (once__image_write(check->directory->disk, fd, temp, header, data, end) != ONCE_OK ||
        renameat(fd, temp, fd, name) != 0) {
        return fail(check, "cannot write", header->number);
    }
    return ONCE_OK;
}

static uint64_t without_zeros(const once__image_t *image, uint64_t offset)
{
    uint64_t end = image->size;

    while (end > offset && image->data[end - 1] == 0) {
        end--;
    }
    return end - offset;
}

/*
 * Copies one piece to its place in `out`. What is not a frame goes to quarantine, and a frame that says nothing covers
 * its place: others refer to frames by where they are.
 */
static int copy_piece(const once__check_t *check, const once__image_t *image,
                      const once__piece_t *piece, uint8_t *out)
{
    once__place_t place = {image->number, piece->offset};

    switch (piece->kind) {
    case ONCE__PIECE_FRAME:
        memcpy(out + piece->offset, image->data + piece->offset, piece->length);
        once__frame_set_watermark(out + piece->offset, place, piece->offset);
        return ONCE_OK;
    case ONCE__PIECE_DAMAGE:
        once__frame_write_filler(out + piece->offset, place, piece->length);
        return keep(check, image, piece->offset, piece->length);
    case ONCE__PIECE_TORN:
        return keep(check, image, piece->offset, without_zeros(image, piece->offset));
    case ONCE__PIECE_SEALED:
    case ONCE__PIECE_END:
        break;
    }
    return ONCE_OK;
}

/* The last frame of a record, though an earlier one is newer: whatever wrote it there, it must not count. */
static int is_misplaced(const once__check_t *check, uint32_t number, const once__piece_t *piece)
{
    const uint8_t *id = piece->frame.id;
    const once__newest_entry_t *entry =
        piece->kind == ONCE__PIECE_FRAME
            ? once__newest_find(&check->newest, once__newest_shard(id), once__newest_key(id))
            : NULL;

    return entry != NULL && entry->misplaced && entry->segment == number &&
           (uint64_t)entry->offset * 8 == piece->offset;
}

static void mark_misplaced(const once__check_t *check)
{
    for (size_t i = 0; i < check->newest.size; i++) {
        const once__newest_entry_t *entry = &check->newest.entries[i];
        once__checked_t *segment = entry->segment != 0 && entry->misplaced
                                       ? once__check_segment(check, entry->segment)
                                       : NULL;
        if (segment != NULL) {
            segment->broken = 1;
        }
    }
}

/* No frame is short enough to cover these: what follows goes with them. */
static void widen(once__image_t *image, once__piece_t *piece)
{
    while (piece->kind == ONCE__PIECE_DAMAGE && piece->length < ONCE__FRAME_HEADER) {
        once__piece_t behind;
        once__image_piece(image, piece->offset + piece->length, &behind);
        if (behind.length == 0) {
            piece->kind = ONCE__PIECE_TORN;
        }
        piece->length += behind.length;
    }
}

static int copy_pieces(const once__check_t *check, once__image_t *image, uint8_t *out,
                       uint64_t *end)
{
    once__piece_t piece;
    int code;

    *end = ONCE__SEGMENT_HEADER;
    for (;;) {
        once__image_piece(image, *end, &piece);
        if (is_misplaced(check, image->number, &piece)) {
            piece.kind = ONCE__PIECE_DAMAGE;
        }
        widen(image, &piece);
        code = copy_piece(check, image, &piece, out);
        if (code != ONCE_OK ||
            (piece.kind != ONCE__PIECE_FRAME && piece.kind != ONCE__PIECE_DAMAGE)) {
            return code;
        }
        *end += piece.length;
    }
}

/* Without its header nobody knows of which boot a segment is: of none, then its leases are over. */
static int rewrite(const once__check_t *check, const once__checked_t *segment)
{
    once__segment_header_t header;
    once__image_t image;
    uint8_t *out;
    uint64_t end;
    int code = once__image_read(&image, check->directory->segments_fd, segment->number);

    if (code != ONCE_OK) {
        return fail(check, "cannot read", segment->number);
    }
    out = calloc(1, image.size + ONCE__SEGMENT_HEADER);
    if (out == NULL) {
        code = once__fail(check->err, ONCE_E_NOMEM, "%s", once_error_text(ONCE_E_NOMEM));
    } else {
        if (once__image_header(&image, &header) != ONCE_OK) {
            memset(&header, 0, sizeof(header));
            code = keep(check, &image, 0,
                        image.size < ONCE__SEGMENT_HEADER ? image.size : ONCE__SEGMENT_HEADER);
        }
        header.number = segment->number;
        code = code == ONCE_OK ? copy_pieces(check, &image, out, &end) : code;
        code = code == ONCE_OK ? put_in_place(check, &header, out, end) : code;
    }
    free(out);
    once__image_free(&image);
    return code;
}

/* An empty segment in the place of a missing one: numbers must follow one another, so that a loss is always noticed. */
static int fill_gap(const once__check_t *check, uint32_t begin, uint32_t end, uint64_t created)
{
    for (uint32_t n = begin; n < end; n++) {
        once__segment_header_t header = {.number = n, .created = created};
        int code = put_in_place(check, &header, NULL, ONCE__SEGMENT_HEADER);
        if (code != ONCE_OK) {
            return code;
        }
    }
    return ONCE_OK;
}

/* The same before the first one that there is, and behind the last. */
static int fill_ends(const once__check_t *check)
{
    const once__checked_t *last = check->count > 0 ? &check->segments[check->count - 1] : NULL;
    once__extent_t extent;
    int code;

    if (!once__extent_read(check->directory->segments_fd, &extent)) {
        return ONCE_OK;
    }
    if (last == NULL) {
        return fill_gap(check, extent.first, extent.last + 1, 0);
    }
    code = fill_gap(check, extent.first, check->segments[0].number, check->segments[0].created);
    return code == ONCE_OK ? fill_gap(check, last->number + 1, extent.last + 1, last->created)
                           : code;
}

static int sync_segments(const once__check_t *check)
{
    const once__disk_t *disk = check->directory->disk;

    return disk->sync_directory(disk->data, check->directory->segments_fd) == 0
               ? ONCE_OK
               : once__local_errno(check->err, "cannot write to", "segments");
}

/* Before the segments change: a summary must not be of a segment that is another one by now. */
static int remove_summaries(const once__check_t *check)
{
    for (size_t i = 0; i < check->count; i++) {
        if (check->segments[i].broken || check->segments[i].misled) {
            once__summary_remove(check->directory->segments_fd, check->segments[i].number);
        }
    }
    return sync_segments(check);
}

int once__check_repair(once__check_t *check)
{
    int code = make_quarantine(check);

    mark_misplaced(check);
    /* First of all: frames will be at other places, and an index that is not there is made anew. */
    if (code == ONCE_OK && unlinkat(check->directory->fd, "index", 0) != 0 && errno != ENOENT) {
        code = once__local_errno(check->err, "cannot remove", "index");
    }
    if (code == ONCE_OK && fsync(check->directory->fd) != 0) {
        code = once__local_errno(check->err, "cannot write to", "the directory");
    }
    code = code == ONCE_OK ? remove_summaries(check) : code;
    for (size_t i = 0; code == ONCE_OK && i < check->count; i++) {
        const once__checked_t *segment = &check->segments[i];
        if (segment->broken) {
            code = rewrite(check, segment);
        }
        if (code == ONCE_OK && segment->gap) {
            code = fill_gap(check, segment[-1].number + 1, segment->number, segment[-1].created);
        }
    }
    code = code == ONCE_OK ? fill_ends(check) : code;
    code = code == ONCE_OK ? sync_segments(check) : code;
    return code == ONCE_OK ? make_quarantine(check) : code;
}
