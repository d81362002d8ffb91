/*
 * The end of segments: the oldest goes when its time has come, and its file waits for another use.
 */
#include "store/local/log_inside.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "store/local/summary.h"

#define SPARES_MIN                                                                                 \
    4 /* kept at least; and one for so many live segments: many go at a time, and are needed again soon */
#define SPARES_OF 8

static unsigned count_spares(const once__log_t *log)
{
    unsigned count = 0;
    int copy = dup(log->config.directory_fd);
    DIR *directory = copy >= 0 ? fdopendir(copy) : NULL;
    const struct dirent *entry;

    if (directory == NULL) {
        if (copy >= 0) {
            (void)close(copy);
        }
        return UINT_MAX;
    }
    rewinddir(directory);
    while ((entry = readdir(directory)) != NULL) {
        const char *dot = strrchr(entry->d_name, '.');
        count += dot != NULL && strcmp(dot, ".spare") == 0;
    }
    (void)closedir(directory);
    return count;
}

static unsigned spares_wanted(const once__log_t *log)
{
    const once__index_t *index = log->config.index;
    uint32_t live = once__index_end_segment(index) - once__index_first_segment(index);

    return live / SPARES_OF > SPARES_MIN ? live / SPARES_OF : SPARES_MIN;
}

static void remove_file(const once__log_t *log, uint32_t number, uint64_t size)
{
    char name[ONCE__SEGMENT_NAME], spare[ONCE__SEGMENT_NAME];

    once__summary_remove(log->config.directory_fd, number);
    once__segment_name(name, number, "log");
    once__segment_name(spare, number, "spare");
    if (size == log->config.segment_size && count_spares(log) < spares_wanted(log)) {
        (void)renameat(log->config.directory_fd, name, log->config.directory_fd, spare);
    } else {
        (void)unlinkat(log->config.directory_fd, name, 0);
    }
}

/*
 * The sync makes the files go in order on the disk, too: a gap between them would be a missing segment. And a file that
 * could come back under its old name must not be used again before.
 */
static int forget_segment(once__log_t *log, uint32_t number)
{
    once__index_t *index = log->config.index;
    once__segment_info_t *info = once__index_segment(index, number);
    int code = ONCE_OK;

    once__log_lock_segments(log);
    if (once__index_first_segment(index) == number) {
        code = once__log_set_extent(log, number + 1, once__index_end_segment(index) - 1);
    }
    if (code == ONCE_OK && once__index_first_segment(index) == number) {
        once__index_set_first_segment(index, number + 1);
        atomic_store(&info->state, ONCE__SEGMENT_NONE);
        remove_file(log, number, info->size);
        code = once__log_sync_directory(log);
    }
    once__index_unlock_segments(index);
    return code;
}

/* ------------------------------------------------------------------------------------------- what took its place */

/* Where the segment ends by now: UINT64_MAX when only its seal tells. */
static uint64_t end_of(const once__index_t *index, uint32_t number)
{
    const once__window_t *window = once__window_of(index, number);

    return window != NULL && atomic_load(&window->segment) == number ? atomic_load(&window->staged)
                                                                     : UINT64_MAX;
}

static int is_reached(once__log_t *log, const once__mark_t *mark)
{
    const once__index_t *index = log->config.index;
    const once__segment_info_t *info = once__index_segment(index, mark->number);

    return mark->number < once__index_first_segment(index) ||
           atomic_load(&info->synced) >= mark->end || once__log_seal_dead(log, mark->number);
}

/* Notes how far others have written. 0: they are too many. */
static int set_marks(once__log_t *log, uint32_t number)
{
    const once__index_t *index = log->config.index;
    uint32_t end = once__index_end_segment(index);

    log->mark_count = 0;
    log->dropping = 0;
    for (uint32_t n = number + 1; n < end; n++) {
        once__mark_t mark = {n, 0};
        if (atomic_load(&once__index_segment(index, n)->state) != ONCE__SEGMENT_ACTIVE ||
            n == log->active.number) {
            continue;
        }
        mark.end = end_of(index, n);
        if (atomic_load(&once__index_segment(index, n)->synced) >= mark.end) {
            continue;
        }
        if (log->mark_count == ONCE__MARKS) {
            return 0;
        }
        log->marks[log->mark_count++] = mark;
    }
    log->dropping = number;
    return 1;
}

/*
 * A newer frame of a record may not be durable yet, in a segment of ours or of others: then the one in the segment that
 * is to go is all that a crash would leave. So the newer ones come first. We do not wait for others: the next attempt
 * will find their marks reached.
 */
static int is_replaced(once__log_t *log, uint32_t number)
{
    if (once__log_sync(log) != ONCE_OK || (log->dropping != number && !set_marks(log, number))) {
        return 0;
    }
    for (unsigned i = 0; i < log->mark_count; i++) {
        if (!is_reached(log, &log->marks[i])) {
            return 0;
        }
    }
    log->dropping = 0;
    return 1;
}

/*
 * Can it go? When everything in it has expired; or when so little in it still counts that carrying it on costs less
 * than keeping the rest: one answer that is kept for a month must not keep a month of others. The few records of a
 * finished segment are carried in any case (short-lived processes leave many of those), but not those of our own: they
 * would move for ever.
 */
#define SPARSE 16
#define FEW    64

static int may_go(const once__segment_info_t *info, uint64_t now, int own, int *expired)
{
    uint64_t current = (uint64_t)atomic_load(&info->current);
    uint64_t frames = atomic_load(&info->frames);
    uint64_t last = atomic_load(&info->last_expiry);

    *expired = last != 0 && now >= last;
    return *expired || current * SPARSE <= frames || (!own && current <= FEW);
}

int once__log_drop(once__log_t *log, uint64_t now, once__carry_t carry, void *data, uint64_t *count)
{
    once__index_t *index = log->config.index;
    uint32_t number = once__index_first_segment(index);
    once__segment_info_t *info = once__index_segment(index, number);
    uint64_t gone;
    int own = number == log->active.number, expired, code;

    once__log_forget_readers(log);
    if (log->failed || number >= once__index_end_segment(index) ||
        !may_go(info, now, own, &expired) ||
        (!expired && number == log->kept && atomic_load(&info->current) == log->kept_records) ||
        once__index_mark_used(index) != ONCE_OK) {
        return ONCE_E_NOT_FOUND;
    }
    /* Our own, also an empty one: it would stand in the way of all that are behind it. */
    if (own && once__log_retire(log) != ONCE_OK) {
        return ONCE_E_IO;
    }
    if (atomic_load(&info->state) == ONCE__SEGMENT_ACTIVE && !once__log_seal_dead(log, number)) {
        return ONCE_E_NOT_FOUND;
    }
    /* Once more, now that nobody adds to it: its writer may have done so until this moment, and what he wrote has not expired. */
    if (!may_go(info, now, own, &expired)) {
        return ONCE_E_NOT_FOUND;
    }
    gone = expired ? (uint64_t)(atomic_load(&info->current) - atomic_load(&info->held)) : 0;
    if (atomic_load(&info->held) > 0 || (!expired && atomic_load(&info->current) > 0)) {
        code = carry(data, number, !expired);
        if (code == ONCE_E_NOT_FOUND) {
            log->kept = number;
            log->kept_records = atomic_load(&info->current);
        }
        if (code != ONCE_OK) {
            return code;
        }
    }
    if (!is_replaced(log, number)) {
        return log->failed ? ONCE_E_IO : ONCE_E_NOT_FOUND;
    }
    *count += gone;
    return forget_segment(log, number);
}
