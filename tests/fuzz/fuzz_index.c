/*
 * An index file that was damaged: cut short, zeroed in places, overwritten. It is refused, or it can be used without harm to the
 * process; what its entries say is checked by the frames that they lead to. Locks are left as they are: the file is the user's own,
 * and damage would not hit the locks alone.
 *
 * The input is a list of changes: where (3 bytes, in units that reach the whole file), how many bytes, and the bytes.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "store/local/index_file.h"

#define ENTRIES 3000u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint8_t boot[ONCE__BOOT_ID_SIZE] = "boot";
static char base[64];
static int directory_fd = -1;
static uint8_t *sound, *bytes; /* a sound index, and the damaged one */
static size_t sound_size;

static void check(int holds)
{
    if (!holds) {
        abort();
    }
}

static void make_id(uint32_t n, uint8_t id[ONCE_ID_SIZE])
{
    uint64_t state = n;

    for (size_t i = 0; i < ONCE_ID_SIZE; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        id[i] = (uint8_t)(state >> 56);
    }
}

static void use(once__index_t *index, uint32_t n, uint8_t state)
{
    once__entry_t old, entry = {{1, 64 + 8 * (uint64_t)n}, state};
    uint8_t id[ONCE_ID_SIZE];
    uint64_t cursor = 0;
    int found;

    make_id(n, id);
    once__index_lock(index, id);
    (void)once__index_floor(index, id);
    found = once__index_find(index, id, &cursor, &old);
    if (found || (state != ONCE_STATE_NONE && once__index_make_room(index, id) == ONCE_OK)) {
        once__index_set(index, id, cursor, found, &entry);
    }
    once__index_unlock(index, id);
}

static void clean(void)
{
    (void)unlinkat(directory_fd, "index", 0);
    (void)rmdir(base);
}

static void read_back(void)
{
    struct stat st;
    int fd = openat(directory_fd, "index", O_RDONLY);

    check(fd >= 0 && fstat(fd, &st) == 0);
    sound_size = (size_t)st.st_size;
    sound = malloc(sound_size);
    bytes = malloc(sound_size);
    check(sound != NULL && bytes != NULL && read(fd, sound, sound_size) == (ssize_t)sound_size);
    (void)close(fd);
}

static void prepare(void)
{
    once__index_t *index;

    if (sound != NULL) {
        return;
    }
    (void)snprintf(base, sizeof(base), "%s/once-fuzz-XXXXXX",
                   access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    check(mkdtemp(base) != NULL);
    directory_fd = open(base, O_RDONLY | O_DIRECTORY);
    check(directory_fd >= 0);
    (void)atexit(clean);
    check(once__index_open(&index, directory_fd, boot, 1, NULL) == ONCE_OK);
    once__index_add_segment(index, 1, ONCE__SEGMENT_SEALED, 65536, 0);
    once__index_add_segment(index, 2, ONCE__SEGMENT_ACTIVE, 65536, 0);
    for (uint32_t n = 0; n < ENTRIES; n++) {
        use(index, n, (uint8_t)(1 + n % 4));
    }
    check(once__index_mark_used(index) == ONCE_OK);
    once__index_close(index);
    read_back();
}

static void restore(size_t at, size_t len)
{
    memcpy(bytes + at, sound + at, len);
}

/* Changes what the input says. Returns the size of the damaged file. */
static size_t damage(const uint8_t *data, size_t size)
{
    size_t end = sound_size;

    memcpy(bytes, sound, sound_size);
    while (size >= 4) {
        size_t at = (data[0] | (size_t)data[1] << 8 | (size_t)data[2] << 16) * 8 % sound_size;
        size_t len = data[3] & 0x7f;
        int zeros = data[3] & 0x80;
        data += 4;
        size -= 4;
        len = len > size ? size : len;
        if (zeros && len == 0) {
            end = at; /* cut */
        } else if (zeros) {
            size_t many = len * 512 < sound_size - at ? len * 512 : sound_size - at;
            memset(bytes + at, 0, many);
        } else {
            memcpy(bytes + at, data, len < sound_size - at ? len : sound_size - at);
            data += len;
            size -= len;
        }
    }
    restore(offsetof(once__index_header_t, grow_lock), sizeof(pthread_mutex_t));
    restore(offsetof(once__index_header_t, segment_lock), sizeof(pthread_mutex_t));
    for (uint32_t i = 0; i < ONCE__SHARDS; i++) {
        restore(offsetof(once__index_header_t, shards) + i * sizeof(once__shard_t) +
                    offsetof(once__shard_t, lock),
                sizeof(pthread_mutex_t));
    }
    return end;
}

static void try_all(once__index_t *index)
{
    for (uint32_t shard = 0; shard < ONCE__SHARDS; shard++) {
        once__shard_entry_t *entries;
        size_t count;
        check(once__index_shard(index, shard, &entries, &count) == ONCE_OK);
        free(entries);
    }
    for (uint32_t n = 0; n < 2 * ENTRIES; n++) {
        use(index, n, (uint8_t)(n % 5));
    }
    (void)once__index_lock_segments(index);
    if (once__index_next_segment(index) != 0) {
        once__index_add_segment(index, once__index_next_segment(index), ONCE__SEGMENT_ACTIVE, 65536,
                                0);
    }
    once__index_unlock_segments(index);
    (void)once__index_mark_clean(index);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    once__index_t *index;
    size_t end;
    int fd, code;

    prepare();
    end = damage(data, size);
    fd = openat(directory_fd, "index", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    check(fd >= 0 && write(fd, bytes, end) == (ssize_t)end);
    (void)close(fd);
    code = once__index_open(&index, directory_fd, boot, 0, NULL);
    check(code == ONCE_OK || code == ONCE_E_CORRUPT);
    if (code == ONCE_OK) {
        try_all(index);
        once__index_close(index);
    }
    return 0;
}
