#include "content.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECTOR 512u

uint8_t *content_read(int fd, size_t *size)
{
    struct stat st;
    uint8_t *bytes;

    must(fstat(fd, &st) == 0, "fstat");
    *size = (size_t)st.st_size;
    bytes = malloc(*size + 1);
    must(bytes != NULL && pread(fd, bytes, *size, 0) == (ssize_t)*size, "read");
    return bytes;
}

void content_write(const char *path, const void *bytes, size_t size)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    must(fd >= 0 && write(fd, bytes, size) == (ssize_t)size, "write");
    (void)close(fd);
}

void content_blend(uint8_t *now, size_t size, once_slice_t synced, survival_t survival,
                   dice_t *dice)
{
    for (size_t at = 0; at < size && survival != SURVIVES_EVERYTHING; at += SECTOR) {
        uint8_t old[SECTOR] = {0};
        size_t len = size - at < SECTOR ? size - at : SECTOR;
        size_t had = synced.len > at ? synced.len - at : 0;
        if (had > 0) {
            memcpy(old, (const uint8_t *)synced.data + at, had < len ? had : len);
        }
        if (memcmp(now + at, old, len) == 0) {
            continue;
        }
        switch (survival == SURVIVES_NOTHING ? 0 : dice_roll(dice, 3)) {
        case 0:
            memcpy(now + at, old, len);
            break;
        case 1: {
            size_t kept = dice_roll(dice, len); /* the beginning of it was written */
            memcpy(now + at + kept, old + kept, len - kept);
            break;
        }
        default:
            break;
        }
    }
}
