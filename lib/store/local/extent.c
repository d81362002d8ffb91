#include "store/local/extent.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "store/local/crc32c.h"
#include "store/local/log.h"

#define NAME   "extent"
#define SLOT   512u /* a sector: two of them, written in turn, so that a torn one leaves the other */
#define SUMMED 24u

static const uint8_t magic[8] = {'O', 'N', 'C', 'E', 'E', 'X', 'T', '1'};

/* Its sequence number; 0: it cannot be believed. */
static uint64_t read_slot(const uint8_t *slot, once__extent_t *extent)
{
    if (memcmp(slot, magic, sizeof(magic)) != 0 ||
        once__get32(slot + SUMMED) != once__crc32c(0, slot, SUMMED)) {
        return 0;
    }
    extent->first = once__get32(slot + 16);
    extent->last = once__get32(slot + 20);
    if (extent->first == 0 || extent->last > ONCE__SEGMENT_MAX ||
        (extent->first <= extent->last && extent->last - extent->first >= ONCE__RING)) {
        return 0;
    }
    return once__get64(slot + 8);
}

/* Of the slot that counts; 0: none does. */
static uint64_t read_slots(int fd, once__extent_t *extent)
{
    uint8_t bytes[2 * SLOT] = {0};
    once__extent_t both[2];
    uint64_t sequence[2];
    int newest;

    if (pread(fd, bytes, sizeof(bytes), 0) < 0) {
        return 0;
    }
    sequence[0] = read_slot(bytes, &both[0]);
    sequence[1] = read_slot(bytes + SLOT, &both[1]);
    newest = sequence[1] > sequence[0];
    *extent = both[newest];
    return sequence[newest];
}

int once__extent_read(int segments_fd, once__extent_t *extent)
{
    int fd = openat(segments_fd, NAME, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    int known = fd >= 0 && read_slots(fd, extent) != 0;

    if (fd >= 0) {
        (void)close(fd);
    }
    return known;
}

int once__extent_make(int segments_fd)
{
    int fd = openat(segments_fd, NAME, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

    if (fd >= 0) {
        (void)close(fd);
    }
    return fd >= 0 ? 0 : -1;
}

static int write_slot(const once__disk_t *disk, int fd, const uint8_t *slot, uint64_t offset)
{
    uint64_t done = 0;

    while (done < SLOT) {
        ssize_t n = disk->write != NULL
                        ? disk->write(disk->data, fd, slot + done, SLOT - done, offset + done)
                        : pwrite(fd, slot + done, SLOT - done, (off_t)(offset + done));
        if (n < 0 && errno != EINTR) {
            return -1;
        }
        done += n > 0 ? (uint64_t)n : 0;
    }
    return 0;
}

int once__extent_write(const once__disk_t *disk, int segments_fd, const once__extent_t *extent)
{
    uint8_t slot[SLOT] = {0};
    once__extent_t before;
    uint64_t sequence;
    int fd = openat(segments_fd, NAME, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

    if (fd < 0) {
        return -1;
    }
    sequence = read_slots(fd, &before) + 1;
    memcpy(slot, magic, sizeof(magic));
    once__put64(slot + 8, sequence);
    once__put32(slot + 16, extent->first);
    once__put32(slot + 20, extent->last);
    once__put32(slot + SUMMED, once__crc32c(0, slot, SUMMED));
    if (write_slot(disk, fd, slot, sequence % 2 * SLOT) != 0) {
        int saved = errno;
        (void)close(fd);
        errno = saved;
        return -1;
    }
    return fd;
}
