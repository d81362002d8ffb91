#include "store/local/rebuild.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/bytes.h"
#include "core/units.h"
#include "store/local/extent.h"
#include "store/local/log.h"
#include "store/local/look.h"
#include "store/local/newest.h"
#include "store/local/quarantine.h"
#include "store/local/remains.h"
#include "store/local/summary.h"

#define HUGE_PAGE ((uint64_t)2 << 20)

typedef struct rebuild {
    once__directory_t *directory;
    once__index_t *index;
    once__log_t *reader; /* to compare ids */
    uint8_t *room;
    uint64_t room_size;
    const uint8_t *data; /* the segment that is read frame by frame; NULL: none */
    uint64_t size;
    uint32_t number;
    uint64_t
        open_end; /* where its frames end without a seal; 0: they do not, or it cannot be told */
    once__whole_t whole;
    once__rebuilt_t *rebuilt;
    uint64_t latest; /* time that any frame or header knows of */
    once_error_t *err;
} rebuild_t;

/* ------------------------------------------------------------------------------------------------------- one segment */

/*
 * 1 or 0; negative: it cannot be told, and then the index would have the record twice. A frame that is damaged is taken
 * for the same record's: 74 bits of the ids are equal.
 */
static int same_record(rebuild_t *rebuild, const once__entry_t *entry, const uint8_t *id)
{
    once__frame_t frame;
    int code;

    /* Nearly always: a claim, which was found valid a moment ago. */
    if (rebuild->data != NULL && entry->place.segment == rebuild->number) {
        uint64_t offset = entry->place.offset;
        return memcmp(rebuild->data + offset + 16, id, ONCE_ID_SIZE) == 0 ||
               !once__frame_read(&frame, entry->place, rebuild->data + offset,
                                 rebuild->size - offset);
    }
    code = once__log_read(rebuild->reader, entry->place, &frame);
    if (code == ONCE_E_CORRUPT) {
        return 1;
    }
    if (code != ONCE_OK) {
        return once__fail(rebuild->err, code == ONCE_E_NOMEM ? code : ONCE_E_IO,
                          "local store: cannot read segment %08x again: %s", entry->place.segment,
                          strerror(errno));
    }
    return memcmp(frame.id, id, ONCE_ID_SIZE) == 0;
}

/* `whole`: the id is all of it; otherwise only the part that the index has, and the frame tells the rest when it matters. */
static int enter(rebuild_t *rebuild, const uint8_t *id, int whole, const once__entry_t *entry)
{
    uint8_t all[ONCE_ID_SIZE];
    once__entry_t old;
    uint64_t cursor = 0;
    int found = 0;

    memcpy(all, id, sizeof(all));
    while (found == 0 && once__index_find(rebuild->index, id, &cursor, &old)) {
        once__frame_t frame;
        if (!whole && once__log_read(rebuild->reader, entry->place, &frame) != ONCE_OK) {
            found = 1; /* it cannot be read, which who asks for the record will be told */
            break;
        }
        if (!whole) {
            memcpy(all, frame.id, sizeof(all));
            whole = 1;
        }
        found = same_record(rebuild, &old, all);
    }
    if (found < 0) {
        return found;
    }
    if (!found && entry->state == ONCE_STATE_NONE) {
        return ONCE_OK;
    }
    if (!found && once__index_make_room(rebuild->index, id) != ONCE_OK) {
        return ONCE_E_FULL;
    }
    once__index_set(rebuild->index, id, cursor, found, entry);
    return ONCE_OK;
}

/*
 * Enters the frame. ONCE_E_CORRUPT: what it refers to is damaged. It is entered all the same: its record cannot be
 * served, but it must not be taken for unused either.
 */
static int enter_frame(rebuild_t *rebuild, once__place_t place, const once__frame_t *frame,
                       int code)
{
    once__entry_t entry = {place, ONCE_STATE_NONE};
    int record = once__frame_has_record(frame), entered;
    once__head_t head;

    if (once__frame_is_lost(frame)) {
        entry.state = frame->bytes[0];
        once__index_note_frame(rebuild->index, place.segment, NULL);
        return enter(rebuild, frame->id, 1, &entry);
    }
    if (record && once__frame_head(frame, &head) == ONCE_E_CORRUPT) {
        entry.state = ONCE_STATE_COMPLETED; /* as with remains */
        record = 0;
        code = ONCE_E_CORRUPT;
    } else if (record) {
        entry.state = head.state;
        rebuild->latest = head.changed > rebuild->latest ? head.changed : rebuild->latest;
    }
    once__index_note_frame(rebuild->index, place.segment, record ? &head : NULL);
    entered = enter(rebuild, frame->id, 1, &entry);
    return entered == ONCE_OK ? code : entered;
}

/* Keeps a damaged range aside, so that nothing is lost that somebody could still make sense of. */
static int quarantine(rebuild_t *rebuild, uint32_t number, uint64_t offset, const uint8_t *data,
                      uint64_t len)
{
    once__place_t place = {number, offset};
    int code = once__quarantine_keep(rebuild->directory->fd, place, data, len);

    if (code != ONCE_OK) {
        return once__fail(rebuild->err, code, "local store: cannot write to quarantine/: %s",
                          strerror(errno));
    }
    rebuild->rebuilt->damaged++;
    once__index_count_damage(rebuild->index);
    return ONCE_OK;
}

/* ------------------------------------------------------------------------------------------------------------ damage */

static int is_known(const rebuild_t *rebuild, const uint8_t *id)
{
    once__entry_t entry;
    uint64_t cursor = 0;

    return once__index_find(rebuild->index, id, &cursor, &entry);
}

/* Which keys must not be granted again? Nobody knows: then none may be, until somebody has decided. */
static int cannot_tell(const rebuild_t *rebuild, once__place_t place, uint64_t end)
{
    return once__fail(
        rebuild->err, ONCE_E_CORRUPT,
        "local store: segment %08x is damaged at %llu (%llu bytes), and whose records "
        "those were cannot be told; restore it from a backup, or accept the loss with "
        "once fsck --repair",
        place.segment, (unsigned long long)place.offset, (unsigned long long)(end - place.offset));
}

/*
 * Enters the records that had frames in a damaged range: whoever asks for one is told that it is damaged, unless a later frame
 * tells more. Without that the frame before would count: a completed record would be pending again, or never have been.
 * As completed: nobody can carry it to another segment, so it is not to be counted among those that must be.
 */
static int enter_remains(rebuild_t *rebuild, once__place_t place, const uint8_t *data, uint64_t end)
{
    once__place_t begin = place;
    once__remains_t remains;

    for (; place.offset < end; place.offset += remains.size) {
        once__entry_t entry = {place, ONCE_STATE_COMPLETED};
        int code = ONCE_OK;
        if (!once__frame_remains(&remains, data, place, end, place.offset == begin.offset) ||
            (!remains.certain && !is_known(rebuild, remains.id))) {
            return cannot_tell(rebuild, begin, end);
        }
        if (!remains.nobodys) {
            once__index_note_frame(rebuild->index, place.segment,
                                   remains.has_head ? &remains.head : NULL);
            code = enter(rebuild, remains.id, 1, &entry);
        }
        if (code != ONCE_OK) {
            return code;
        }
    }
    return ONCE_OK;
}

/* What stands where no valid frame begins. Goes on at *next; 0: nowhere. */
static int read_gap(rebuild_t *rebuild, once__search_t *search, once__place_t place,
                    const uint8_t *data, uint64_t size, uint64_t *next)
{
    once__gap_t gap = once__frame_search(search, data, size, place, next);
    int code = ONCE_OK;

    if (gap == ONCE__GAP_END || gap == ONCE__GAP_TORN) {
        rebuild->rebuilt->torn += gap == ONCE__GAP_TORN;
        rebuild->open_end = *next == 0 ? place.offset : 0;
        *next = 0;
        return ONCE_OK;
    }
    /* Bytes of an earlier use that look like frames are no reason not to open. */
    if (gap == ONCE__GAP_DAMAGE) {
        code = enter_remains(rebuild, place, data, *next);
    }
    return code == ONCE_OK ? quarantine(rebuild, place.segment, place.offset, data + place.offset,
                                        *next - place.offset)
                           : code;
}

/* A frame that says that it is the last one is believed, unless something before it was damaged. Goes on at *next; 0: nowhere. */
static int read_seal(rebuild_t *rebuild, once__search_t *search, once__place_t place,
                     const uint8_t *data, uint64_t size, uint64_t *next)
{
    int code;

    if (!search->used || !once__frame_is_no_end(search, data, size, place, next)) {
        *next = 0;
        return ONCE_OK;
    }
    code = enter_remains(rebuild, place, data, *next);
    return code == ONCE_OK ? quarantine(rebuild, place.segment, place.offset, data + place.offset,
                                        *next - place.offset)
                           : code;
}

/* ------------------------------------------------------------------------------------------------------------ frames */

/*
 * Where the index will be looked at some frames from now: it fetches many places at a time, where we would wait for
 * each. Only a hint: whatever is there is taken for a frame. Returns where the next one begins.
 */
#define AHEAD 4096u /* bytes: some twenty frames */

static uint64_t expect(const rebuild_t *rebuild, const uint8_t *data, uint64_t size,
                       uint64_t offset)
{
    uint32_t len;

    if (offset + ONCE__FRAME_HEADER > size) {
        return size;
    }
    len = once__get32(data + offset);
    once__index_expect(rebuild->index, data + offset + 16);
    return len < ONCE__FRAME_HEADER || len > size - offset ? size : (offset + len + 7) / 8 * 8;
}

static int read_frame(rebuild_t *rebuild, once__place_t place, const uint8_t *data, uint64_t size,
                      const once__frame_t *frame)
{
    once__frame_t whole = *frame;
    int code = once__frame_complete(&rebuild->whole, data, size, place, &whole);

    code = code == ONCE_E_NOMEM ? code : enter_frame(rebuild, place, frame, code);
    rebuild->rebuilt->frames++;
    return code == ONCE_E_CORRUPT
               ? quarantine(rebuild, place.segment, place.offset, data + place.offset, frame->size)
               : code;
}

static int read_frames(rebuild_t *rebuild, uint32_t number, const uint8_t *data, uint64_t size)
{
    once__place_t place = {number, ONCE__SEGMENT_HEADER};
    once__search_t search = {0};
    uint64_t ahead = ONCE__SEGMENT_HEADER;

    while (place.offset + ONCE__FRAME_HEADER <= size) {
        once__frame_t frame;
        uint64_t next;
        int code;

        while (ahead < size && ahead < place.offset + AHEAD) {
            ahead = expect(rebuild, data, size, ahead);
        }
        if (!once__frame_read(&frame, place, data + place.offset, size - place.offset)) {
            code = read_gap(rebuild, &search, place, data, size, &next);
        } else if (frame.kind == ONCE__FRAME_SEALED) {
            code = read_seal(rebuild, &search, place, data, size, &next);
        } else {
            next = place.offset + frame.size;
            code = read_frame(rebuild, place, data, size, &frame);
        }
        if (code != ONCE_OK || next == 0) {
            return code;
        }
        place.offset = next;
    }
    return ONCE_OK;
}

static int read_header(rebuild_t *rebuild, uint32_t number, const uint8_t *data, uint64_t size)
{
    once__segment_header_t header;
    int code = once__segment_header_read(&header, data);
    int other_boot;

    if (code == ONCE_OK && (header.number != number || header.size != size)) {
        code = ONCE_E_CORRUPT;
    }
    if (code == ONCE_E_NEWER) {
        return once__fail(rebuild->err, code,
                          "local store: segment %08x was written by a newer version of once; "
                          "upgrade this program",
                          number);
    }
    if (code != ONCE_OK) {
        return once__fail(
            rebuild->err, code,
            "local store: the header of segment %08x cannot be read (%s); restore the file "
            "from a backup, or run once fsck --repair",
            number, once_error_text(code));
    }
    other_boot = memcmp(header.boot_id, rebuild->directory->boot_id, ONCE__BOOT_ID_SIZE) != 0;
    rebuild->latest = header.created > rebuild->latest ? header.created : rebuild->latest;
    once__index_add_segment(rebuild->index, number, ONCE__SEGMENT_SEALED, size, other_boot);
    return ONCE_OK;
}

/* ONCE_E_NOT_FOUND: it has no summary, or none that can be believed. */
static int read_summary(rebuild_t *rebuild, uint32_t number, const uint8_t *header, uint64_t size)
{
    once__segment_info_t *info = once__index_segment(rebuild->index, number);
    once__summary_t summary;
    int code = once__summary_read(&summary, rebuild->directory->segments_fd, number);

    if (code != ONCE_OK) {
        return ONCE_E_NOT_FOUND;
    }
    code = read_header(rebuild, number, header, size);
    for (uint32_t i = 0; code == ONCE_OK && i < summary.count; i++) {
        once__summary_entry_t from;
        once__entry_t entry;
        uint8_t id[ONCE_ID_SIZE];
        once__summary_entry(&summary, i, &from);
        once__newest_id(id, from.shard, from.key);
        entry.place.segment = number;
        entry.place.offset = from.offset;
        entry.state = from.state;
        code = enter(rebuild, id, 0, &entry);
    }
    if (code == ONCE_OK) {
        atomic_store(&info->frames, summary.frames);
        atomic_store(&info->last_expiry, summary.last_expiry);
        rebuild->latest = summary.latest > rebuild->latest ? summary.latest : rebuild->latest;
        rebuild->rebuilt->frames += summary.frames;
        rebuild->rebuilt->summaries++;
    }
    once__summary_free(&summary);
    return code;
}

/*
 * Everything up to its end is durable now, and nobody will append: the seal says so, or later damage to the last batch
 * would be taken for a torn tail. As with a writer's own, nobody waits for it.
 */
static void seal(const rebuild_t *rebuild, int fd)
{
    once__place_t place = {rebuild->number, rebuild->open_end};
    uint8_t last[ONCE__FRAME_HEADER];

    if (rebuild->open_end != 0 && rebuild->open_end + sizeof(last) <= rebuild->size) {
        once__frame_write(last, place, place.offset, NULL, NULL);
        (void)!pwrite(fd, last, sizeof(last), (off_t)place.offset);
    }
}

static int read_whole(const once__disk_t *disk, int fd, uint8_t *data, uint64_t size)
{
    ssize_t n = once__disk_read(disk, fd, data, size, 0);

    if (n >= 0 && (uint64_t)n < size) {
        errno = EIO; /* it was cut short just now */
    }
    return n == (ssize_t)size ? 0 : -1;
}

/*
 * Memory for a whole segment, kept from one to the next. Read and not mapped: a disk that cannot read is an error then, and not a
 * signal, and in large pages there is less to look up. NULL: there is none.
 */
static uint8_t *make_room(rebuild_t *rebuild, uint64_t size)
{
    void *room = rebuild->room;

    if (rebuild->room_size < size) {
        free(rebuild->room);
        rebuild->room_size = (size + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
        room = aligned_alloc(HUGE_PAGE, rebuild->room_size);
        rebuild->room = room;
        rebuild->room_size = room != NULL ? rebuild->room_size : 0;
        if (room != NULL) {
            (void)madvise(room, rebuild->room_size, MADV_HUGEPAGE);
        }
    }
    return room;
}

/*
 * What is read now will count from now on: it must not vanish with the next crash. One with a summary was synced before
 * that.
 */
static int read_frames_of(rebuild_t *rebuild, uint32_t number, int fd, uint64_t size)
{
    const once__disk_t *disk = rebuild->directory->disk;
    uint8_t *data = make_room(rebuild, size);
    int code = data != NULL ? ONCE_OK : ONCE_E_NOMEM;

    if (code == ONCE_OK &&
        (disk->sync(disk->data, fd) != 0 || read_whole(disk, fd, data, size) != 0)) {
        code = ONCE_E_IO;
    }
    code = code == ONCE_OK ? read_header(rebuild, number, data, size) : code;
    rebuild->data = data;
    rebuild->size = size;
    rebuild->number = number;
    rebuild->open_end = 0;
    code = code == ONCE_OK ? read_frames(rebuild, number, data, size) : code;
    if (code == ONCE_OK) {
        seal(rebuild, fd);
    }
    rebuild->data = NULL;
    return code;
}

static int read_segment(rebuild_t *rebuild, uint32_t number)
{
    char name[ONCE__SEGMENT_NAME];
    uint8_t header[ONCE__SEGMENT_HEADER];
    struct stat st;
    int code = ONCE_E_IO, fd;

    once__segment_name(name, number, "log");
    fd = openat(rebuild->directory->segments_fd, name, O_RDWR | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &st) == 0 && st.st_uid != geteuid()) {
        code = once__segment_foreign(number, rebuild->err);
    } else if (fd >= 0 && fstat(fd, &st) == 0 &&
               pread(fd, header, sizeof(header), 0) == (ssize_t)sizeof(header)) {
        code = read_summary(rebuild, number, header, (uint64_t)st.st_size);
        if (code == ONCE_E_NOT_FOUND) {
            code = read_frames_of(rebuild, number, fd, (uint64_t)st.st_size);
        }
    }
    if (code == ONCE_E_IO && (rebuild->err == NULL || rebuild->err->code == ONCE_OK)) {
        code = once__fail(rebuild->err, ONCE_E_IO,
                          "local store: cannot read segment %08x: %s; see once fsck", number,
                          strerror(errno));
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return code;
}

/* ------------------------------------------------------------------------------------------------------ all segments */

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
    uint32_t
        highest; /* that was ever seen, also on a spare: its bytes must not become valid again */
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

static int is_missing(const rebuild_t *rebuild, uint32_t number)
{
    return once__fail(rebuild->err, ONCE_E_CORRUPT,
                      "local store: segment %08x is missing; restore it from a backup, or accept "
                      "the loss with once fsck --repair",
                      number);
}

/* The first and the last one: no gap between files tells of those. */
static int check_extent(const rebuild_t *rebuild, numbers_t *numbers)
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

static int read_all(rebuild_t *rebuild, const uint32_t *numbers, size_t count)
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
        code = read_segment(rebuild, numbers[i]);
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
    rebuild_t rebuild = {
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
