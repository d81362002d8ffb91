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

typedef struct repair {
    once__directory_t *directory;
    int quarantine_fd; /* -1: not needed so far */
    once__image_t image;
    once_error_t *err;
} repair_t;

static int fail(const repair_t *repair, const char *what)
{
    int code = once__disk_code();

    return once__fail(repair->err, code, "local store: repair: %s: %s", what, strerror(errno));
}

/* Opens quarantine/ and names what is to go there. */
static int open_quarantine(repair_t *repair, char name[64], uint64_t number, uint64_t offset)
{
    int fd = repair->directory->fd;

    (void)snprintf(name, 64, "%016llx-%llu", (unsigned long long)number,
                   (unsigned long long)offset);
    if (repair->quarantine_fd < 0) {
        (void)mkdirat(fd, "quarantine", 0700); /* or it is there */
        repair->quarantine_fd =
            openat(fd, "quarantine", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (repair->quarantine_fd < 0 || fsync(fd) != 0) {
            return fail(repair, "quarantine");
        }
    }
    return ONCE_OK;
}

/* Bytes of the segment, as they were found. */
static int keep(repair_t *repair, const once__walk_t *walk)
{
    const once__disk_t *disk = repair->directory->log.disk;
    uint64_t len = walk->end - walk->offset;
    char name[64];
    int code = open_quarantine(repair, name, walk->image->header.number, walk->offset);

    if (code != ONCE_OK) {
        return code;
    }
    return once__disk_put(disk, repair->quarantine_fd, name, walk->image->data + walk->offset,
                          len) == 0 &&
                   fsync(repair->quarantine_fd) == 0
               ? ONCE_OK
               : fail(repair, name);
}

/* Covers what cannot be read. *end: where the frames end. *changed: it must be written anew. */
static int cover(repair_t *repair, uint64_t *end, int *changed)
{
    once__image_t *image = &repair->image;
    once__walk_t walk;
    int code = ONCE_OK;

    *changed = 0;
    *end = once__segment_start(image->header.dictionary_len);
    once__walk_begin(&walk, image, 0);
    while (code == ONCE_OK && once__walk_next(&walk)) {
        uint64_t len = (walk.end - walk.offset) / 8 * 8;
        if (once__walk_code(&walk) == ONCE_E_CORRUPT) {
            *changed = 1;
            code = walk.end > walk.offset ? keep(repair, &walk) : ONCE_OK;
            if (code == ONCE_OK && len >= ONCE__SEAL_ROOM) {
                once__frame_write_filler(image->data + walk.offset, image->header.word, walk.offset,
                                         len, UINT64_MAX);
                *end = walk.offset + len;
            }
        } else if (walk.kind == ONCE__WALK_FRAME) {
            *end = walk.end;
        }
    }
    return code;
}

static int write_anew(repair_t *repair, const char *name, uint64_t end)
{
    const once__directory_t *directory = repair->directory;
    char temp[ONCE__SEGMENT_NAME + 8];

    (void)snprintf(temp, sizeof(temp), "%s.new", name);
    return once__local_write_segment(directory->log.disk, directory->log.segments_fd, temp,
                                     &repair->image, end) >= 0 &&
                   renameat(directory->log.segments_fd, temp, directory->log.segments_fd, name) == 0
               ? ONCE_OK
               : fail(repair, name);
}

/* Nothing of it can be used: all of it goes to quarantine/. */
static int set_aside(repair_t *repair, uint64_t number, const char *name)
{
    char to[64];
    int code = open_quarantine(repair, to, number, 0);

    if (code == ONCE_OK &&
        (renameat(repair->directory->log.segments_fd, name, repair->quarantine_fd, to) != 0 ||
         fsync(repair->quarantine_fd) != 0)) {
        code = fail(repair, name);
    }
    return code;
}

/* *live: the new manifest has it. */
static int repair_segment(repair_t *repair, uint64_t number, int *live)
{
    const once__directory_t *directory = repair->directory;
    char name[ONCE__SEGMENT_NAME];
    uint64_t end;
    int code, changed;

    once__segment_name(name, number);
    repair->image.salvage = 0;
    do {
        code = once__image_read(&repair->image, &directory->log, number);
    } while (code == ONCE_E_IO && repair->image.salvage++ == 0); /* what can be read is kept */
    *live = code == ONCE_OK;
    if (code == ONCE_OK) {
        code = cover(repair, &end, &changed);
        return code == ONCE_OK && changed ? write_anew(repair, name, end) : code;
    }
    if (code == ONCE_E_CORRUPT || code == ONCE_E_IO) {
        return set_aside(repair, number, name);
    }
    return code == ONCE_E_NOT_FOUND
               ? ONCE_OK
               : once__fail(repair->err, code, "local store: repair: segment %016llx: %s",
                            (unsigned long long)number, once_error_text(code));
}

int once__local_repair(once__directory_t *directory, const once__manifest_t *manifest,
                       const uint64_t *numbers, size_t count, once_error_t *err)
{
    repair_t repair = {.directory = directory, .quarantine_fd = -1, .err = err};
    uint64_t *live = malloc((count + 1) * sizeof(uint64_t)), next = manifest->next;
    size_t live_count = 0;
    int code = ONCE_OK;

    if (live == NULL) {
        return once__fail(err, ONCE_E_NOMEM, "%s", once_error_text(ONCE_E_NOMEM));
    }
    /* Before anything else: an index that is left would be older than the log. */
    once__directory_forget_index(directory);
    for (size_t i = 0; i < count && code == ONCE_OK; i++) {
        char name[ONCE__SEGMENT_NAME];
        int is_live = 0;
        once__segment_name(name, numbers[i]);
        if (manifest->found && once__manifest_is_dropped(manifest, numbers[i])) {
            (void)unlinkat(directory->log.segments_fd, name, 0);
            continue;
        }
        next = numbers[i] >= next ? numbers[i] + 1 : next;
        code = repair_segment(&repair, numbers[i], &is_live);
        live[live_count] = numbers[i];
        live_count += (size_t)is_live;
    }
    if (code == ONCE_OK &&
        once__manifest_write(&directory->log, live, live_count, next) != ONCE_OK) {
        code = fail(&repair, "manifest");
    }
    once__image_free(&repair.image);
    free(live);
    once__close(repair.quarantine_fd);
    return code;
}
