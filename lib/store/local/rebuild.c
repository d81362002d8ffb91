#include "store/local/rebuild_inside.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "store/local/extent.h"
#include "store/local/summary.h"

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

/* The number in a name that we would have given, 0: another name. */
static uint32_t number_of(const char *name, const char *suffix)
{
    char again[ONCE__SEGMENT_NAME];
    uint32_t number = (uint32_t)strtoul(name, NULL, 16);

    once__segment_name(again, number, suffix);
    return number <= ONCE__SEGMENT_MAX && strcmp(name, again) == 0 ? number : 0;
}

typedef struct numbers {
    uint32_t *list; /* of the segments, sorted */
    size_t count, room;
    /* that was ever seen, also on a spare: its bytes must not become valid again */
    uint32_t highest;
} numbers_t;

static int add_number(numbers_t *numbers, uint32_t number)
{
    if (numbers->count == numbers->room) {
        size_t room = numbers->room * 2 + 64;
        uint32_t *more = realloc(numbers->list, room * sizeof(uint32_t));
        if (more == NULL) {
            return ONCE_E_NOMEM;
        }
        numbers->list = more;
        numbers->room = room;
    }
    numbers->list[numbers->count++] = number;
    return ONCE_OK;
}

/* A summary whose segment is gone: somebody made it just then, and was killed. */
static void remove_orphan(const once__directory_t *directory, const char *name)
{
    uint32_t number = number_of(name, "sum");
    char segment[ONCE__SEGMENT_NAME];
    struct stat st;

    once__segment_name(segment, number, "log");
    if (number != 0 && fstatat(directory->segments_fd, segment, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        once__summary_remove(directory->segments_fd, number);
    }
}

/* Also removes what a killed process left half made. */
static int list_segments(const once__directory_t *directory, numbers_t *numbers)
{
    int copy = dup(directory->segments_fd), code = ONCE_OK;
    DIR *stream = copy >= 0 ? fdopendir(copy) : NULL;
    const struct dirent *entry;

    if (stream == NULL) {
        if (copy >= 0) {
            (void)close(copy);
        }
        return ONCE_E_IO;
    }
    rewinddir(stream);
    while (code == ONCE_OK && (entry = readdir(stream)) != NULL) {
        uint32_t segment = number_of(entry->d_name, "log");
        uint32_t spare = number_of(entry->d_name, "spare");
        uint32_t number = segment > spare ? segment : spare;
        const char *dot = strrchr(entry->d_name, '.');
        if (dot != NULL && strcmp(dot, ".new") == 0) {
            (void)unlinkat(directory->segments_fd, entry->d_name, 0);
        }
        remove_orphan(directory, entry->d_name);
        numbers->highest = number > numbers->highest ? number : numbers->highest;
        code = segment != 0 ? add_number(numbers, segment) : ONCE_OK;
    }
    (void)closedir(stream);
    if (numbers->count > 0) {
        qsort(numbers->list, numbers->count, sizeof(uint32_t), by_number);
    }
    return code;
}

static int is_missing(const once__rebuild_t *rebuild, uint32_t number)
{
    return once__fail(rebuild->err, ONCE_E_CORRUPT,
                      "local store: segment %08x is missing; restore it from a backup, or accept "
                      "the loss with once fsck --repair",
                      number);
}

/* The first and the last one: no gap between files tells of those. */
static int check_extent(const once__rebuild_t *rebuild, numbers_t *numbers)
{
    once__extent_t extent;

    if (!once__extent_read(rebuild->directory->segments_fd, &extent)) {
        return ONCE_OK;
    }
    numbers->highest = extent.last > numbers->highest ? extent.last : numbers->highest;
    if (extent.first > extent.last) {
        return ONCE_OK;
    }
    if (numbers->count == 0 || numbers->list[0] > extent.first) {
        return is_missing(rebuild, extent.first);
    }
    return numbers->list[numbers->count - 1] < extent.last
               ? is_missing(rebuild, numbers->list[numbers->count - 1] + 1)
               : ONCE_OK;
}

static int read_all(once__rebuild_t *rebuild, const uint32_t *numbers, size_t count)
{
    if (count > ONCE__RING) {
        return once__fail(rebuild->err, ONCE_E_CORRUPT,
                          "local store: %zu segments are more than the %u that there can be", count,
                          ONCE__RING);
    }
    for (size_t i = 0; i < count; i++) {
        int code;
        if (i > 0 && numbers[i] != numbers[i - 1] + 1) {
            return is_missing(rebuild, numbers[i - 1] + 1);
        }
        if (i == 0) {
            once__index_set_first_segment(rebuild->index, numbers[0]);
        }
        code = once__rebuild_segment(rebuild, numbers[i]);
        if (code != ONCE_OK) {
            return code;
        }
        rebuild->rebuilt->segments++;
    }
    return ONCE_OK;
}

int once__rebuild(once__directory_t *directory, once__rebuilt_t *rebuilt, once_error_t *err)
{
    once__log_config_t config = {.directory_fd = directory->segments_fd,
                                 .index = directory->index,
                                 .disk = directory->disk,
                                 .segment_size = 1};
    once__rebuild_t rebuild = {
        .directory = directory, .index = directory->index, .rebuilt = rebuilt, .err = err};
    numbers_t numbers = {0};
    int code;

    memset(rebuilt, 0, sizeof(*rebuilt));
    rebuild.reader = once__log_open(&config);
    code = rebuild.reader != NULL ? list_segments(directory, &numbers) : ONCE_E_NOMEM;
    if (code == ONCE_OK) {
        code = check_extent(&rebuild, &numbers);
        code = code == ONCE_OK ? read_all(&rebuild, numbers.list, numbers.count) : code;
    } else {
        (void)once__fail(err, code, "local store: cannot list the segments: %s",
                         once_error_text(code));
    }
    if (code == ONCE_OK) {
        once__index_start_segments(directory->index, numbers.highest + 1);
        once__index_start_clock(directory->index, rebuild.latest + 1);
    }
    free(numbers.list);
    free(rebuild.whole.bytes);
    free(rebuild.room);
    once__log_abandon(rebuild.reader);
    return code;
}
