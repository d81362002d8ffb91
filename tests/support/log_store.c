#include "support/log_store.h"

#include "support/testing.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const uint8_t boot[ONCE__BOOT_ID_SIZE] = "boot";
const uint8_t store_id[ONCE_ID_SIZE] = {42};

/* ---------------------------------------------------------------------------------------------------------- the disk */

static int fails(unsigned *countdown)
{
    if (*countdown == 0 || --*countdown > 0) {
        return 0;
    }
    *countdown = 1;
    return 1;
}

/* Frames of a segment's file; `*sealed` whether the last is a seal. */
static unsigned count_frames(int fd, int *sealed)
{
    struct stat st;
    uint8_t *data;
    once__segment_header_t header;
    unsigned count = 0;

    assert_int_equal(fstat(fd, &st), 0);
    data = malloc((size_t)st.st_size);
    assert_non_null(data);
    assert_int_equal(pread(fd, data, (size_t)st.st_size, 0), st.st_size);
    *sealed = 0;
    if (once__segment_header_read(&header, data) == ONCE_OK) {
        once__place_t place = {header.number, ONCE__SEGMENT_HEADER};
        once__frame_t frame;
        while (!*sealed && once__frame_read(&frame, place, data + place.offset,
                                            (size_t)st.st_size - place.offset)) {
            *sealed = frame.kind == ONCE__FRAME_SEALED;
            count += !*sealed;
            place.offset += frame.size;
        }
    }
    free(data);
    return count;
}

static int count_sync(void *data, int fd)
{
    store_t *store = data;
    int sealed;

    store->syncs++;
    if (fails(&store->fail_sync)) {
        errno = EIO;
        return -1;
    }
    (void)count_frames(fd, &sealed);
    store->sealed_early |= sealed;
    return fdatasync(fd);
}

static int count_directory_sync(void *data, int fd)
{
    store_t *store = data;

    store->directory_syncs++;
    if (fails(&store->fail_directory_sync)) {
        errno = EIO;
        return -1;
    }
    return fsync(fd);
}

static int count_allocate(void *data, int fd, uint64_t size)
{
    store_t *store = data;

    store->allocations++;
    if (fails(&store->fail_allocate)) {
        errno = ENOSPC;
        return -1;
    }
    return once__real_disk.allocate(NULL, fd, size);
}

static ssize_t count_write(void *data, int fd, const void *bytes, size_t len, uint64_t offset)
{
    store_t *store = data;
    size_t most = store->short_write != 0 && store->short_write < len ? store->short_write : len;

    if (fails(&store->fail_write)) {
        errno = store->write_errno;
        return -1;
    }
    store->bytes += most;
    return pwrite(fd, bytes, most, (off_t)offset);
}

once__log_t *store_open_log(store_t *store, uint64_t segment_size)
{
    once__log_config_t config = {.directory_fd = store->segments_fd,
                                 .index = store->index,
                                 .disk = &store->disk,
                                 .segment_size = segment_size};
    once__log_t *log;

    memcpy(config.boot_id, boot, sizeof(boot));
    log = once__log_open(&config);
    assert_non_null(log);
    return log;
}

int store_setup(void **state)
{
    store_t *store = calloc(1, sizeof(*store));

    assert_non_null(store);
    (void)snprintf(store->path, sizeof(store->path), "%s/once-log-XXXXXX",
                   access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    assert_non_null(mkdtemp(store->path));
    store->fd = open(store->path, O_RDONLY | O_DIRECTORY);
    assert_true(store->fd >= 0);
    assert_int_equal(mkdirat(store->fd, "segments", 0700), 0);
    store->segments_fd = openat(store->fd, "segments", O_RDONLY | O_DIRECTORY);
    assert_true(store->segments_fd >= 0);
    assert_int_equal(once__index_open(&store->index, store->fd, boot, 1, NULL), ONCE_OK);
    assert_int_equal(once__index_mark_used(store->index), ONCE_OK);
    once__index_start_clock(store->index, 0);
    store->disk.sync = count_sync;
    store->disk.sync_directory = count_directory_sync;
    store->disk.allocate = count_allocate;
    store->disk.write = count_write;
    store->disk.data = store;
    store->logs[0] = store_open_log(store, SEGMENT);
    store->logs[1] = store_open_log(store, SEGMENT);
    *state = store;
    return 0;
}

int store_teardown(void **state)
{
    store_t *store = *state;
    DIR *directory;
    const struct dirent *entry;

    once__log_abandon(store->logs[0]);
    once__log_abandon(store->logs[1]);
    once__index_close(store->index);
    directory = fdopendir(store->segments_fd);
    assert_non_null(directory);
    rewinddir(directory);
    while ((entry = readdir(directory)) != NULL) {
        (void)unlinkat(dirfd(directory), entry->d_name, 0);
    }
    (void)closedir(directory);
    (void)unlinkat(store->fd, "index", 0);
    (void)unlinkat(store->fd, "segments", AT_REMOVEDIR);
    (void)close(store->fd);
    (void)rmdir(store->path);
    free(store);
    return 0;
}

/* ----------------------------------------------------------------------------------------------------------- helpers */

int store_append(once__log_t *log, size_t len, uint64_t expires, uint32_t not_before,
                 once__place_t *place)
{
    static uint8_t bytes[1 << 20];
    once__record_t record = {.head = {.schema = ONCE__SCHEMA,
                                      .state = ONCE_STATE_COMPLETED,
                                      .claim = {.epoch = 1},
                                      .expires = expires},
                             .key = "key",
                             .key_len = 3,
                             .payload = {ONCE__PAYLOAD_RESPONSE, 200, bytes, len}};

    assert_true(len <= sizeof(bytes));
    memset(bytes, (int)(len % 251), len);
    return once__log_append(log, store_id, &record, not_before, place);
}

void store_check_read(once__log_t *log, once__place_t place, size_t len)
{
    once__frame_t frame;
    once__record_t record;

    assert_int_equal(once__log_read(log, place, &frame), ONCE_OK);
    assert_int_equal(once__record_decode(&record, frame.bytes, frame.len), ONCE_OK);
    assert_int_equal(record.payload.len, len);
    assert_true(len == 0 || record.payload.data[len - 1] == len % 251);
}

int store_open_segment(const store_t *store, uint32_t number)
{
    char name[ONCE__SEGMENT_NAME];

    once__segment_name(name, number, "log");
    return openat(store->segments_fd, name, O_RDONLY);
}

unsigned store_frames(const store_t *store, uint32_t number, int *sealed)
{
    int fd = store_open_segment(store, number);
    unsigned count;

    assert_true(fd >= 0);
    count = count_frames(fd, sealed);
    (void)close(fd);
    return count;
}

static int carry_nothing(void *data, uint32_t segment, int everything)
{
    return ONCE_OK;
}

int store_drop(once__log_t *log, uint64_t now)
{
    uint64_t count = 0;

    return once__log_drop(log, now, carry_nothing, NULL, &count);
}
