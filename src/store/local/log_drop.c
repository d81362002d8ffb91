/*
 * The end of segments: the oldest goes when its time has come, and its file waits for another use.
 */
#include "store/local/log_inside.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SPARES_MAX 4

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
        return SPARES_MAX;
    }
    rewinddir(directory);
    while ((entry = readdir(directory)) != NULL) {
        const char *dot = strrchr(entry->d_name, '.');
        count += dot != NULL && strcmp(dot, ".spare") == 0;
    }
    (void)closedir(directory);
    return count;
}

static void remove_file(const once__log_t *log, uint32_t number, uint64_t size)
{
    char name[ONCE__SEGMENT_NAME], spare[ONCE__SEGMENT_NAME];

    once__segment_name(name, number, "log");
    once__segment_name(spare, number, "spare");
    if (size == log->config.segment_size && count_spares(log) < SPARES_MAX) {
        (void)renameat(log->config.directory_fd, name, log->config.directory_fd, spare);
    } else {
        (void)unlinkat(log->config.directory_fd, name, 0);
    }
}

/*
 * The sync makes the files go in order on the disk, too: a gap between them would be a missing segment. And a file that could
 * come back under its old name must not be used again before.
 */
static int forget_segment(once__log_t *log, uint32_t number)
{
    once__index_t *index = log->config.index;
    once__segment_info_t *info = once__index_segment(index, number);
    int code = ONCE_OK;

    once__log_lock_segments(log);
    if (once__index_first_segment(index) == number) {
        once__index_set_first_segment(index, number + 1);
        atomic_store(&info->state, ONCE__SEGMENT_NONE);
        remove_file(log, number, info->size);
        code = once__log_sync_directory(log);
    }
    once__index_unlock_segments(index);
    return code;
}

/*
 * Can it go? When everything in it has expired; or when so little in it still counts that carrying it on costs less than keeping
 * the rest: one answer that is kept for a month must not keep a month of others. The few records of a finished segment are
 * carried in any case (short-lived processes leave many of those), but not those of our own: they would move for ever.
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
    int expired, code;

    once__log_forget_readers(log);
    if (log->failed || number >= once__index_end_segment(index) ||
        !may_go(info, now, number == log->active.number, &expired) ||
        once__index_mark_used(index) != ONCE_OK) {
        return ONCE_E_NOT_FOUND;
    }
    /* Our own, also an empty one: it would stand in the way of all that are behind it. */
    if (number == log->active.number && once__log_retire(log) != ONCE_OK) {
        return ONCE_E_IO;
    }
    if (atomic_load(&info->state) == ONCE__SEGMENT_ACTIVE && !once__log_seal_dead(log, number)) {
        return ONCE_E_NOT_FOUND;
    }
    *count += expired ? (uint64_t)(atomic_load(&info->current) - atomic_load(&info->held)) : 0;
    if (atomic_load(&info->held) > 0 || (!expired && atomic_load(&info->current) > 0)) {
        code = carry(data, number, !expired);
        if (code != ONCE_OK) {
            return code;
        }
    }
    return forget_segment(log, number);
}
