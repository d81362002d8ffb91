/*
 * The file of an index with anything in it. Attaching refuses it, or everything that is looked at lies inside the file. Locks are
 * left as they are: only the owner of the store can write to the file.
 *
 * The input is a list of changes: where (3 bytes, in units of 8), how many bytes, and the bytes. The upper bit of the length:
 * zeros, 512 at a time; none of those: the file is cut there.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "store/local/index.h"

#define ENTRIES 3000u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char base[64], path[128];
static once__index_config_t config;
static int fd;
static uint8_t *sound, *file; /* what the file has at first, and its mapping */
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

static void clean(void)
{
    (void)unlink(path);
    (void)rmdir(base);
}

static void fill(once__index_t *index)
{
    once__weight_t weight = {8, UINT64_MAX};
    uint64_t number;
    uint32_t slot;

    check(once__index_take_slot(index, &slot, &number) == ONCE_OK);
    once__index_segment(index, slot)->buffer =
        (uint64_t)64 << 32 | once__index_take_pages(index, 64, ONCE__INDEX_WAIT_MS);
    for (uint32_t n = 0; n < ENTRIES; n++) {
        once__entry_t entry = {{slot, 128 + 8 * (uint64_t)n}, (uint8_t)(1 + n % 4)};
        uint8_t id[ONCE_ID_SIZE];
        make_id(n, id);
        check(once__index_make_room(index, id) == ONCE_OK);
        once__index_set(index, id, &entry, weight, NULL, weight);
    }
}

static void prepare(void)
{
    once__index_t *index;
    struct stat st;

    (void)snprintf(base, sizeof(base), "%s/once-fuzz-XXXXXX", once__index_default_directory());
    check(mkdtemp(base) != NULL);
    config.directory = config.store = base;
    config.store_fd = -1;
    config.owner = geteuid();
    check(once__index_create(&index, &config, NULL) == ONCE_OK);
    fill(index);
    check(once__index_publish(index, NULL) == ONCE_OK);
    (void)snprintf(path, sizeof(path), "%s/%s", base, index->name);
    (void)atexit(clean);
    once__index_close(index);
    fd = open(path, O_RDWR);
    check(fd >= 0 && fstat(fd, &st) == 0);
    sound_size = (size_t)st.st_size;
    sound = malloc(sound_size);
    check(sound != NULL && read(fd, sound, sound_size) == (ssize_t)sound_size);
    file = mmap(NULL, sound_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    check(file != MAP_FAILED);
}

static void restore(size_t at, size_t len)
{
    memcpy(file + at, sound + at, len);
}

static void restore_locks(void)
{
    restore(offsetof(once__index_header_t, slot_lock), 3 * sizeof(pthread_mutex_t));
    for (uint32_t i = 0; i < ONCE__SHARDS; i++) {
        restore(offsetof(once__index_header_t, shards) + i * sizeof(once__shard_t),
                sizeof(pthread_mutex_t));
    }
}

/* Changes what the input says, or changes that back. Returns the size of the file. */
static size_t change(const uint8_t *data, size_t size, int back)
{
    size_t end = sound_size;

    while (size >= 4) {
        size_t at = (data[0] | (size_t)data[1] << 8 | (size_t)data[2] << 16) * 8 % sound_size;
        size_t len = data[3] & 0x7f, room = sound_size - at;
        int zeros = data[3] & 0x80;
        data += 4;
        size -= 4;
        if (zeros && len == 0) {
            end = at;
            continue;
        }
        len = zeros ? len * 512 : len > size ? size : len;
        room = len < room ? len : room;
        if (back) {
            restore(at, room);
        } else if (zeros) {
            memset(file + at, 0, room);
        } else {
            memcpy(file + at, data, room);
        }
        data += zeros ? 0 : len;
        size -= zeros ? 0 : len;
    }
    return end;
}

static void look(once__index_t *index)
{
    uint64_t records, bytes;
    once__entry_t entry;

    once__index_usage(index, &records, &bytes);
    (void)once__index_bytes(index);
    check(once__index_is_named(index));
    for (uint32_t slot = 0; slot < once__index_slot_end(index); slot++) {
        const once__segment_t *segment = once__index_segment(index, slot);
        uint64_t buffer = atomic_load(&segment->buffer);
        (void)once__segment_live(segment, 1);
        if (buffer != 0) {
            (void)*(volatile const char *)once__index_page(index, (uint32_t)buffer +
                                                                      (uint32_t)(buffer >> 32) - 1);
        }
    }
    for (uint32_t shard = 0; shard < ONCE__SHARDS; shard += 31) {
        once__shard_entry_t *entries;
        size_t count;
        check(once__index_shard(index, shard, &entries, &count) == ONCE_OK);
        free(entries);
    }
    for (uint32_t n = 0; n < ENTRIES; n += 7) {
        uint8_t id[ONCE_ID_SIZE];
        make_id(n, id);
        (void)once__index_find(index, id, &entry);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    once__index_t *index;
    size_t end;
    int code;

    if (sound == NULL) {
        prepare();
    }
    end = change(data, size, 0);
    restore_locks();
    check(ftruncate(fd, (off_t)end) == 0);
    code = once__index_attach(&index, &config, NULL);
    check(code == ONCE_OK || code == ONCE_E_NOT_FOUND);
    check(code != ONCE_OK || end == sound_size);
    if (code == ONCE_OK) {
        look(index);
        once__index_close(index);
    }
    check(ftruncate(fd, (off_t)sound_size) == 0);
    (void)change(data, size, 1);
    restore(end, sound_size - end);
    return 0;
}
