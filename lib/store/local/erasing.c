/*
 * Erasing: what a record said before it was erased goes from the files, too.
 *
 * The file `erasing` beside the segments has a note for everything that is being erased: from which version on its texts were
 * written. It is there before the first of them is replaced, and goes when no segment is left that was written since then and begun
 * before the clearing away. A process that has noted something keeps a shared flock() until that is done: without it, others might
 * take the note away too early.
 *
 * From the time `erased_until` on no writer appends those texts, and none makes a dictionary from samples that are older. So a
 * segment that was begun later has nothing of them.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "store/crc32c.h"
#include "store/local/directory.h"

#define NAME    "../erasing"
#define NOTE    16 /* bytes: CRC-32C of the rest (4), what (4), a version (8) */
#define WHAT    1  /* texts that were written since are erased */
#define MANY    256
#define WAIT_MS 1000

/* ------------------------------------------------------------------------------------------------------------ notes */

/* ONCE_E_NOT_FOUND: there is no file, and none is to be made. */
static int open_file(once__erasing_t *erasing, const once__log_config_t *log, int flags)
{
    int code;

    if (erasing->fd >= 0) {
        return ONCE_OK;
    }
    erasing->fd =
        openat(log->segments_fd, NAME, O_RDWR | O_APPEND | O_CLOEXEC | O_NOFOLLOW | flags, 0600);
    if (erasing->fd < 0) {
        return errno == ENOENT ? ONCE_E_NOT_FOUND : once__disk_code();
    }
    code = once__disk_lock(erasing->fd, LOCK_SH, WAIT_MS);
    if (code == ONCE_OK && flags != 0) {
        int directory = openat(log->segments_fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        code = directory >= 0 && once__format_keep(directory) == 0 ? ONCE_OK : ONCE_E_IO;
        once__close(directory);
    }
    if (code != ONCE_OK) {
        once__erasing_close(erasing);
    }
    return code;
}

static int add_note(const once__erasing_t *erasing, const once__log_config_t *log, uint64_t from)
{
    uint8_t note[NOTE];

    once__put32(note + 4, WHAT);
    once__put64(note + 8, from);
    once__put32(note, once__crc32c(0, note + 4, NOTE - 4));
    if (once__disk_write(log->disk, erasing->fd, note, NOTE, 0) != 0) { /* behind the last one */
        return once__disk_code();
    }
    return log->disk->sync(log->disk->data, erasing->fd) == 0 ? ONCE_OK : ONCE_E_IO;
}

/* *from UINT64_MAX: nothing is noted. A note that cannot be read may have been about anything. *size: of all notes. */
static int read_notes(const once__erasing_t *erasing, const once__log_config_t *log, uint64_t *from,
                      uint64_t *size)
{
    uint8_t notes[MANY * NOTE];
    ssize_t len;

    *from = UINT64_MAX;
    *size = 0;
    while ((len = once__disk_read(log->disk, erasing->fd, notes, sizeof(notes), *size)) > 0) {
        for (ssize_t at = 0; at < len; at += NOTE) {
            const uint8_t *note = notes + at;
            int is_whole = len - at >= NOTE && once__get32(note + 4) == WHAT &&
                           once__get32(note) == once__crc32c(0, note + 4, NOTE - 4);
            uint64_t value = is_whole ? once__get64(note + 8) : 0;
            *from = value < *from ? value : *from;
        }
        *size += (uint64_t)len;
    }
    return len == 0 ? ONCE_OK : ONCE_E_IO;
}

int once__erasing_note(once__erasing_t *erasing, const once__log_config_t *log, uint64_t from)
{
    int code = open_file(erasing, log, O_CREAT);

    code = code == ONCE_OK ? add_note(erasing, log, from) : code;
    if (code == ONCE_OK) {
        erasing->from = from;
    }
    return code;
}

void once__erasing_close(once__erasing_t *erasing)
{
    once__close(erasing->fd);
    *erasing = ONCE__ERASING_NONE;
}

/* ---------------------------------------------------------------------------------------------------- clearing away */

int once__erasing_concerns(const once__index_t *index, const once__segment_t *segment)
{
    uint64_t until = atomic_load(&index->map->erased_until);
    uint64_t from = atomic_load(&index->map->erased_from);

    return until != 0 && atomic_load(&segment->state) >= ONCE__SEGMENT_ACTIVE &&
           segment->created <= until &&
           (atomic_load(&segment->last_version) >= from ||
            (segment->dictionary_len != 0 && segment->created >= from >> 20));
}

uint64_t once__erasing_left(const once__index_t *index, uint64_t *damaged)
{
    uint64_t left = 0;

    *damaged = 0;
    for (uint32_t slot = 0; slot < once__index_slot_end(index); slot++) {
        const once__segment_t *segment = once__index_segment(index, slot);
        if (atomic_load(&segment->number) != 0 &&
            (atomic_load(&segment->state) == ONCE__SEGMENT_PREPARING ||
             once__erasing_concerns(index, segment))) {
            left++;
            *damaged += atomic_load(&segment->damaged) != 0;
        }
    }
    return left;
}

/* Is no other process erasing? The lock is exclusive then. Else there is none. */
static int is_alone(const once__erasing_t *erasing)
{
    return flock(erasing->fd, LOCK_EX | LOCK_NB) == 0;
}

/*
 * A process that has noted something erases without a new note what that one covers, even if compaction has copied the text to a
 * segment begun after `until` meanwhile. So the notes stay if there is such a process now. One that comes later adds a note, which
 * the size shows.
 */
static int begin(once__erasing_t *erasing, const once__log_config_t *log, uint64_t size)
{
    int code;

    erasing->size = is_alone(erasing) ? size : UINT64_MAX;
    erasing->from = UINT64_MAX;
    erasing->until = once__index_now(log->index);
    code = once__disk_lock(erasing->fd, LOCK_SH, WAIT_MS);
    if (code != ONCE_OK) {
        once__erasing_close(erasing);
    }
    return code;
}

/* All processes see it: writers let go of their segments and samples, compaction takes segments for it. */
static void publish(const once__erasing_t *erasing, const once__index_t *index, uint64_t from)
{
    once__index_header_t *map = index->map;

    atomic_store(&map->erased_from, from);
    if (atomic_load(&map->erased_until) < erasing->until) {
        atomic_store(&map->erased_until, erasing->until);
    }
    while (once__index_now(index) <= erasing->until) {
        (void)sched_yield(); /* for a millisecond at most */
    }
}

/* Notes that others have added meanwhile stay, and so do all if another process had noted something then, or has now. */
static int finish(once__erasing_t *erasing, const once__log_config_t *log)
{
    uint64_t from, size;
    int code = ONCE_OK;

    if (is_alone(erasing)) {
        code = read_notes(erasing, log, &from, &size);
        if (code == ONCE_OK && size == erasing->size &&
            (ftruncate(erasing->fd, 0) != 0 ||
             log->disk->sync(log->disk->data, erasing->fd) != 0)) {
            code = ONCE_E_IO;
        }
    }
    once__erasing_close(erasing);
    return code;
}

int once__erasing_begin(once__erasing_t *erasing, const once__log_config_t *log, int *is_over)
{
    uint64_t from = UINT64_MAX, size = 0, damaged;
    int code = open_file(erasing, log, 0);

    *is_over = 0;
    if (code == ONCE_OK) {
        code = read_notes(erasing, log, &from, &size);
    }
    if (code == ONCE_E_NOT_FOUND || (code == ONCE_OK && from == UINT64_MAX)) {
        once__erasing_close(erasing);
        *is_over = 1;
        return ONCE_OK;
    }
    if (code == ONCE_OK && (erasing->from != UINT64_MAX || erasing->until == 0)) {
        code = begin(erasing, log, size);
    }
    if (code == ONCE_OK) {
        publish(erasing, log->index, from);
        if (once__erasing_left(log->index, &damaged) == 0) {
            code = finish(erasing, log);
            *is_over = code == ONCE_OK;
        }
    }
    return code;
}
