/*
 * Repairs the log of a store that no program uses. Each damaged segment is written anew under its own number: ranges that cannot be
 * read are covered by fillers, so that every sound frame stays where it is. What is taken out goes to quarantine/ first. The
 * manifest comes last: until then a repair that ends early can be repeated.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "store/local/fsck.h"
#include "store/local/walk.h"

typedef struct repair {
    once__directory_t *directory;
    int quarantine_fd; /* -1: not needed so far */
    once__image_t image;
    uint64_t *live; /* what the new manifest has */
    size_t live_count;
    uint64_t next;
    once_error_t *err;
} repair_t;

static int fail(const repair_t *repair, const char *what)
{
    int code = once__disk_code();

    return once__fail(repair->err, code, "local store: repair: %s: %s", what, strerror(errno));
}

/* Writes a file with all that `data` has, durably; its name becomes durable with the directory. */
static int write_file(const repair_t *repair, int directory_fd, const char *name,
                      const uint8_t *data, uint64_t len)
{
    const once__disk_t *disk = repair->directory->disk;
    int fd =
        openat(directory_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    int ok =
        fd >= 0 && once__disk_write(disk, fd, data, len, 0) == 0 && disk->sync(disk->data, fd) == 0;
    int code = ok ? ONCE_OK : fail(repair, name);

    if (fd >= 0) {
        (void)close(fd);
    }
    return code;
}

/* --------------------------------------------------------------------------------------------------------- quarantine */

static int open_quarantine(repair_t *repair)
{
    int fd = repair->directory->fd;

    if (repair->quarantine_fd >= 0) {
        return ONCE_OK;
    }
    if (mkdirat(fd, "quarantine", 0700) != 0 && errno != EEXIST) {
        return fail(repair, "quarantine");
    }
    repair->quarantine_fd =
        openat(fd, "quarantine", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    return repair->quarantine_fd >= 0 && fsync(fd) == 0 ? ONCE_OK : fail(repair, "quarantine");
}

/* Bytes of the segment, as they were found. */
static int keep(repair_t *repair, uint64_t number, uint64_t offset, uint64_t end)
{
    char name[64];
    int code = end > offset ? open_quarantine(repair) : ONCE_OK;

    if (end == offset || code != ONCE_OK) {
        return code;
    }
    (void)snprintf(name, sizeof(name), "%016llx-%llu", (unsigned long long)number,
                   (unsigned long long)offset);
    code =
        write_file(repair, repair->quarantine_fd, name, repair->image.data + offset, end - offset);
    return code == ONCE_OK && fsync(repair->quarantine_fd) != 0 ? fail(repair, name) : code;
}

/* ----------------------------------------------------------------------------------------------------------- segments */

/* Covers what cannot be read. *end: where the frames end. *changed: it must be written anew. */
static int cover(repair_t *repair, uint64_t number, uint64_t *end, int *changed)
{
    once__image_t *image = &repair->image;
    once__walk_t walk;
    int code = ONCE_OK;

    *changed = 0;
    *end = once__segment_start(image->header.dictionary_len);
    once__walk_begin(&walk, image, 0);
    while (code == ONCE_OK && once__walk_next(&walk)) {
        once__head_t head;
        int is_bad = walk.kind == ONCE__WALK_LOST || walk.kind == ONCE__WALK_DAMAGED;
        if (walk.kind == ONCE__WALK_FRAME && walk.frame.kind == ONCE__FRAME_RECORD) {
            int head_code = once__unpack_head(&head, &walk.frame);
            is_bad = head_code != ONCE_OK && head_code != ONCE_E_NEWER;
        }
        if (is_bad) {
            uint64_t len = walk.end - walk.offset;
            *changed = 1;
            code = keep(repair, number, walk.offset, walk.end);
            if (code == ONCE_OK && len >= ONCE__SEAL_ROOM) {
                once__frame_write_filler(image->data + walk.offset, image->header.word, walk.offset,
                                         len / 8 * 8, UINT64_MAX);
                *end = walk.offset + len / 8 * 8;
            }
        } else if (walk.kind == ONCE__WALK_FRAME) {
            *end = walk.end;
        }
    }
    return code;
}

/* With the frame that seals behind the last one. */
static int write_segment(repair_t *repair, uint64_t number, uint64_t end)
{
    int segments_fd = repair->directory->segments_fd;
    once__image_t *image = &repair->image;
    once__frame_t seal = {.kind = ONCE__FRAME_SEALED, .watermark = end};
    char name[ONCE__SEGMENT_NAME], temp[ONCE__SEGMENT_NAME + 8];
    uint8_t *data = realloc(image->data, end + ONCE__SEAL_ROOM);
    int code;

    if (data == NULL) {
        return once__fail(repair->err, ONCE_E_NOMEM, "%s", once_error_text(ONCE_E_NOMEM));
    }
    image->data = data;
    image->room = end + ONCE__SEAL_ROOM;
    end += once__frame_write(data + end, image->header.word, end, &seal);
    once__segment_name(name, number);
    (void)snprintf(temp, sizeof(temp), "%s.new", name);
    code = write_file(repair, segments_fd, temp, data, end);
    if (code == ONCE_OK && renameat(segments_fd, temp, segments_fd, name) != 0) {
        code = fail(repair, name);
    }
    return code;
}

/* Nothing of it can be used: all of it goes to quarantine/. */
static int set_aside(repair_t *repair, uint64_t number)
{
    char name[ONCE__SEGMENT_NAME], to[64];
    int code = open_quarantine(repair);

    once__segment_name(name, number);
    (void)snprintf(to, sizeof(to), "%016llx-0", (unsigned long long)number);
    if (code == ONCE_OK &&
        (renameat(repair->directory->segments_fd, name, repair->quarantine_fd, to) != 0 ||
         fsync(repair->quarantine_fd) != 0)) {
        code = fail(repair, name);
    }
    return code;
}

static int repair_segment(repair_t *repair, uint64_t number)
{
    const once__directory_t *directory = repair->directory;
    int code = once__image_read(&repair->image, directory->segments_fd, directory->disk, number,
                                directory->store_id);
    uint64_t end;
    int changed;

    if (code == ONCE_E_IO) { /* what can be read is kept */
        repair->image.salvage = 1;
        code = once__image_read(&repair->image, directory->segments_fd, directory->disk, number,
                                directory->store_id);
        repair->image.salvage = 0;
    }
    switch (code) {
    case ONCE_OK:
        code = cover(repair, number, &end, &changed);
        code = code == ONCE_OK && changed ? write_segment(repair, number, end) : code;
        break;
    case ONCE_E_NOT_FOUND:
        return ONCE_OK;
    case ONCE_E_CORRUPT:
    case ONCE_E_IO:
        return set_aside(repair, number);
    default:
        return once__fail(repair->err, code, "local store: repair: segment %016llx: %s",
                          (unsigned long long)number, once_error_text(code));
    }
    repair->live[repair->live_count++] = number;
    return code;
}

int once__local_repair(once__directory_t *directory, const once__manifest_t *manifest,
                       const uint64_t *numbers, size_t count, once_error_t *err)
{
    repair_t repair = {
        .directory = directory, .quarantine_fd = -1, .next = manifest->next, .err = err};
    int code = ONCE_OK;

    /* Before anything else: an index that is left would be older than the log. */
    once__directory_forget_index(directory);
    repair.live = malloc((count + 1) * sizeof(uint64_t));
    if (repair.live == NULL) {
        code = once__fail(err, ONCE_E_NOMEM, "%s", once_error_text(ONCE_E_NOMEM));
    }
    for (size_t i = 0; i < count && code == ONCE_OK; i++) {
        if (manifest->found && once__manifest_is_dropped(manifest, numbers[i])) {
            char name[ONCE__SEGMENT_NAME];
            once__segment_name(name, numbers[i]);
            (void)unlinkat(directory->segments_fd, name, 0);
            continue;
        }
        repair.next = numbers[i] >= repair.next ? numbers[i] + 1 : repair.next;
        code = repair_segment(&repair, numbers[i]);
    }
    if (code == ONCE_OK) {
        code = once__manifest_write(directory->segments_fd, directory->disk, directory->store_id,
                                    repair.live, repair.live_count, repair.next);
        code = code == ONCE_OK ? code : fail(&repair, "manifest");
    }
    once__image_free(&repair.image);
    free(repair.live);
    if (repair.quarantine_fd >= 0) {
        (void)close(repair.quarantine_fd);
    }
    return code;
}
