#include "store/local/rebuild_inside.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "store/local/look.h"
#include "store/local/newest.h"
#include "store/local/summary.h"

#define HUGE_PAGE ((uint64_t)2 << 20)

static int read_header(once__rebuild_t *rebuild, uint32_t number, const uint8_t *data,
                       uint64_t size)
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
static int read_summary(once__rebuild_t *rebuild, uint32_t number, const uint8_t *header,
                        uint64_t size)
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
        code = once__rebuild_enter(rebuild, id, 0, &entry);
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
static void seal(const once__rebuild_t *rebuild, int fd)
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
static uint8_t *make_room(once__rebuild_t *rebuild, uint64_t size)
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
static int read_frames_of(once__rebuild_t *rebuild, uint32_t number, int fd, uint64_t size)
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
    code = code == ONCE_OK ? once__rebuild_frames(rebuild, number, data, size) : code;
    if (code == ONCE_OK) {
        seal(rebuild, fd);
    }
    rebuild->data = NULL;
    return code;
}

int once__rebuild_segment(once__rebuild_t *rebuild, uint32_t number)
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
