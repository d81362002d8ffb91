#include "support/testing.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/bytes.h"
#include "store/local/log_inside.h"

#define SEGMENT ((uint64_t)64 << 10)
#define FOREVER (UINT64_MAX / 2)

/* A store without records: an index, and logs over a disk that counts and fails when told to. */
typedef struct store {
    char path[64];
    int fd, segments_fd;
    once__index_t *index;
    once__disk_t disk;
    unsigned syncs, directory_syncs, allocations;
    unsigned fail_sync, fail_directory_sync, fail_allocate,
        fail_write; /* the n-th from now on, and all after it */
    int write_errno;
    size_t short_write; /* at most as many bytes; 0: all */
    uint64_t bytes;     /* written */
    int sealed_early;   /* a sync of a segment that had its seal already */
    once__log_t *logs[2];
} store_t;

static const uint8_t boot[ONCE__BOOT_ID_SIZE] = "boot";
static const uint8_t id[ONCE_ID_SIZE] = {42};

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

static once__log_t *open_log(store_t *store, uint64_t segment_size)
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

static int setup(void **state)
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
    store->logs[0] = open_log(store, SEGMENT);
    store->logs[1] = open_log(store, SEGMENT);
    *state = store;
    return 0;
}

static int teardown(void **state)
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

/* A completed record with `len` bytes of response, kept until `expires`. */
static int append(once__log_t *log, size_t len, uint64_t expires, uint32_t not_before,
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
    return once__log_append(log, id, &record, not_before, place);
}

static void check_read(once__log_t *log, once__place_t place, size_t len)
{
    once__frame_t frame;
    once__record_t record;

    assert_int_equal(once__log_read(log, place, &frame), ONCE_OK);
    assert_int_equal(once__record_decode(&record, frame.bytes, frame.len), ONCE_OK);
    assert_int_equal(record.payload.len, len);
    assert_true(len == 0 || record.payload.data[len - 1] == len % 251);
}

static int open_segment(const store_t *store, uint32_t number)
{
    char name[ONCE__SEGMENT_NAME];

    once__segment_name(name, number, "log");
    return openat(store->segments_fd, name, O_RDONLY);
}

static unsigned frames_of(const store_t *store, uint32_t number, int *sealed)
{
    int fd = open_segment(store, number);
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

static int drop(once__log_t *log, uint64_t now)
{
    uint64_t count = 0;

    return once__log_drop(log, now, carry_nothing, NULL, &count);
}

/* -------------------------------------------------------------------------------------------------------- appending */

static void test_a_batch_is_one_sync(void **state)
{
    store_t *store = *state;
    once__place_t places[100];
    unsigned before;

    assert_int_equal(append(store->logs[0], 0, FOREVER, 0, &places[0]), ONCE_OK);
    assert_int_equal(once__log_sync(store->logs[0]), ONCE_OK);
    before = store->syncs;
    for (size_t i = 0; i < 100; i++) {
        assert_int_equal(append(store->logs[0], i, FOREVER, 0, &places[i]), ONCE_OK);
        assert_int_equal(once__log_is_durable(store->logs[0], places[i]), 0);
        check_read(store->logs[0], places[i], i);
    }
    assert_int_equal(store->syncs, before);
    assert_int_equal(once__log_sync(store->logs[0]), ONCE_OK);
    assert_int_equal(once__log_sync(store->logs[0]), ONCE_OK);
    assert_int_equal(store->syncs, before + 1);
    for (size_t i = 0; i < 100; i++) {
        assert_int_equal(once__log_is_durable(store->logs[0], places[i]), 1);
        assert_int_equal(once__log_is_durable(store->logs[1], places[i]), 1);
        check_read(store->logs[1], places[i], i);
    }
}

/* Others see a frame before it is durable, and are told so as long as its writer lives. */
static void test_unsynced_frames_of_others(void **state)
{
    store_t *store = *state;
    once__place_t place;
    int sealed;

    assert_int_equal(append(store->logs[0], 5, FOREVER, 0, &place), ONCE_OK);
    check_read(store->logs[1], place, 5);
    assert_int_equal(once__log_is_durable(store->logs[1], place), 0);
    assert_int_equal(frames_of(store, 1, &sealed), 0); /* only in the window */
    assert_int_equal(once__window_has(store->index, id), 1);
    once__log_abandon(store->logs[0]); /* killed */
    store->logs[0] = NULL;
    check_read(store->logs[1], place, 5);
    assert_int_equal(once__log_is_durable(store->logs[1], place), 1);
    assert_int_equal(once__window_has(store->index, id), 0);
    assert_null(once__window_of(store->index, 1));
    assert_int_equal(frames_of(store, 1, &sealed), 1);
    check_read(store->logs[1], place, 5);
}

/* Everything is found while the window moves on, by its writer and by others, and after its writer is gone. */
static void test_more_than_a_window(void **state)
{
    store_t *store = *state;
    once__log_t *log = open_log(store, 4 * ONCE__WINDOW_SIZE);
    once__place_t places[600];

    for (size_t i = 0; i < 600; i++) {
        assert_int_equal(append(log, i * 7 % 3000, FOREVER, 0, &places[i]), ONCE_OK);
        for (size_t j = i % 5; j <= i; j += 37) {
            check_read(log, places[j], j * 7 % 3000);
            check_read(store->logs[1], places[j], j * 7 % 3000);
        }
    }
    once__log_abandon(log);
    assert_int_equal(once__log_is_durable(store->logs[1], places[599]), 1);
    for (size_t j = 0; j < 600; j++) {
        check_read(store->logs[1], places[j], j * 7 % 3000);
    }
}

/* Windows are given back: by those who end, and by those who find somebody dead. */
static void test_windows_are_used_again(void **state)
{
    store_t *store = *state;
    once__place_t place;
    uint32_t page = 0;

    for (unsigned i = 0; i < 20; i++) {
        once__log_t *log = open_log(store, SEGMENT);
        assert_int_equal(append(log, 5, FOREVER, 0, &place), ONCE_OK);
        if (page == 0) {
            page = atomic_load(&once__index_segment(store->index, place.segment)->window);
        }
        assert_int_equal(atomic_load(&once__index_segment(store->index, place.segment)->window),
                         page);
        if (i % 2) {
            assert_int_equal(once__log_close(log), ONCE_OK);
        } else {
            once__log_abandon(log);
            assert_int_equal(once__log_is_durable(store->logs[1], place), 1);
        }
    }
}

/* What a killed writer left is sealed by whoever takes it over: the segment that it was writing, and one that was full. */
static void test_what_a_killed_writer_left_is_sealed(void **state)
{
    store_t *store = *state;
    once__place_t place = {0, 0}, first = {1, ONCE__SEGMENT_HEADER};
    unsigned count = 0;
    int sealed = 0;

    while (place.segment < 2) {
        assert_int_equal(append(store->logs[0], 500, FOREVER, 0, &place), ONCE_OK);
        count++;
    }
    once__log_abandon(store->logs[0]);
    store->logs[0] = NULL;
    assert_int_equal(once__log_is_durable(store->logs[1], first), 1);
    assert_int_equal(frames_of(store, 1, &sealed), count - 1);
    assert_true(sealed);
    assert_int_equal(once__log_is_durable(store->logs[1], place), 1);
    assert_int_equal(frames_of(store, 2, &sealed), 1);
    assert_true(sealed);
}

/* A window is only believed what its checksums say: nothing else of it gets into a file. */
static void test_a_damaged_window(void **state)
{
    store_t *store = *state;
    once__place_t places[3];
    once__frame_t frame;
    once__window_t *window;
    int sealed;

    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(append(store->logs[0], 5, FOREVER, 0, &places[i]), ONCE_OK);
    }
    window = once__window_of(store->index, 1);
    window->bytes[places[1].offset - atomic_load(&window->from) + 60] ^= 1;
    atomic_store(&window->staged, UINT64_MAX);
    once__log_abandon(store->logs[0]);
    store->logs[0] = NULL;
    assert_int_equal(once__log_is_durable(store->logs[1], places[0]), 1);
    assert_int_equal(frames_of(store, 1, &sealed), 1);
    check_read(store->logs[1], places[0], 5);
    assert_int_equal(once__log_read(store->logs[1], places[1], &frame), ONCE_E_CORRUPT);
}

static void test_many_segments(void **state)
{
    store_t *store = *state;
    once__place_t places[500];
    int sealed;

    for (size_t i = 0; i < 500; i++) {
        assert_int_equal(append(store->logs[0], i * 4, FOREVER, 0, &places[i]), ONCE_OK);
        if (i % 7 == 0) {
            assert_int_equal(once__log_sync(store->logs[0]), ONCE_OK);
        }
    }
    assert_int_equal(once__log_close(store->logs[0]), ONCE_OK);
    store->logs[0] = NULL;
    assert_true(once__index_end_segment(store->index) > 8);
    assert_false(store->sealed_early);
    for (uint32_t n = 1; n < once__index_end_segment(store->index); n++) {
        const once__segment_info_t *info = once__index_segment(store->index, n);
        assert_int_equal(frames_of(store, n, &sealed), atomic_load(&info->frames));
        assert_true(sealed);
        assert_int_equal(atomic_load(&info->state), ONCE__SEGMENT_SEALED);
    }
    for (size_t i = 0; i < 500; i++) {
        check_read(store->logs[1], places[i], i * 4);
    }
}

static void test_a_frame_larger_than_a_segment(void **state)
{
    store_t *store = *state;
    once__place_t places[3];

    assert_int_equal(append(store->logs[0], 10, FOREVER, 0, &places[0]), ONCE_OK);
    assert_int_equal(append(store->logs[0], 1 << 20, FOREVER, 0, &places[1]), ONCE_OK);
    assert_int_equal(append(store->logs[0], 11, FOREVER, 0, &places[2]), ONCE_OK);
    assert_int_equal(once__log_sync(store->logs[0]), ONCE_OK);
    check_read(store->logs[1], places[0], 10);
    check_read(store->logs[1], places[1], 1 << 20);
    check_read(store->logs[1], places[2], 11);
}

/* Segments begin small and grow, but not beyond what was asked for, also when that is not a power of two. */
static void test_sizes(void **state)
{
    store_t *store = *state;
    uint64_t limit = (uint64_t)3 << 20;
    once__log_t *log = open_log(store, limit);
    once__place_t place = {0, 0};

    while (place.segment < 5) {
        assert_int_equal(append(log, 200000, FOREVER, 0, &place), ONCE_OK);
    }
    assert_int_equal(once__index_segment(store->index, 1)->size, 1 << 20);
    assert_int_equal(once__index_segment(store->index, 2)->size, 2 << 20);
    for (uint32_t n = 3; n <= 5; n++) {
        assert_int_equal(once__index_segment(store->index, n)->size, limit);
    }
    once__log_abandon(log);
}

static void test_not_before(void **state)
{
    store_t *store = *state;
    once__place_t place;

    assert_int_equal(append(store->logs[0], 1, FOREVER, 0, &place), ONCE_OK);
    assert_int_equal(append(store->logs[1], 1, FOREVER, 0, &place), ONCE_OK);
    assert_int_equal(place.segment, 2);
    assert_int_equal(append(store->logs[0], 1, FOREVER, 1, &place), ONCE_OK);
    assert_int_equal(place.segment, 1);
    assert_int_equal(append(store->logs[0], 1, FOREVER, 2, &place), ONCE_OK);
    assert_int_equal(place.segment, 3);
}

/* ------------------------------------------------------------------------------------------------------- completions */

#define BODY 400u

/* The claim of the n-th record, and its completion: responses that differ in a few bytes. */
static once__record_t numbered(unsigned n, once_state_t state)
{
    static uint8_t bytes[BODY];
    static char key[32];
    once__record_t record = {.head = {.schema = ONCE__SCHEMA,
                                      .state = (uint8_t)state,
                                      .claim = {.epoch = 1},
                                      .expires = FOREVER},
                             .key = key};

    record.key_len = (size_t)snprintf(key, sizeof(key), "key-%u", n);
    once__put32(record.id, n * 2654435761u);
    once__put32(record.id + 4, n);
    if (state == ONCE_STATE_COMPLETED) {
        for (unsigned i = 0; i < BODY; i++) {
            bytes[i] = (uint8_t)(i * i % 251);
        }
        (void)snprintf((char *)bytes + 50, 20, "number %08u", n);
        bytes[0] = 0; /* neither compressed nor sealed */
        record.payload = (once__payload_t){ONCE__PAYLOAD_RESPONSE, 200, bytes, BODY};
    }
    return record;
}

static void append_claim(once__log_t *log, unsigned n, once__place_t *place)
{
    once__record_t record = numbered(n, ONCE_STATE_PENDING);

    assert_int_equal(once__log_append(log, record.id, &record, 0, place), ONCE_OK);
}

static void append_completion(once__log_t *log, unsigned n, once__place_t claim,
                              once__place_t *place)
{
    once__record_t record = numbered(n, ONCE_STATE_COMPLETED);

    assert_int_equal(once__log_complete(log, &record, claim, claim.segment, place), ONCE_OK);
}

static void check_completion(once__log_t *log, unsigned n, once__place_t place)
{
    once__record_t record = numbered(n, ONCE_STATE_COMPLETED), is;
    once__frame_t frame;

    assert_int_equal(once__log_read(log, place, &frame), ONCE_OK);
    assert_int_equal(once__record_decode(&is, frame.bytes, frame.len), ONCE_OK);
    assert_memory_equal(frame.id, record.id, ONCE_ID_SIZE);
    assert_int_equal(is.key_len, record.key_len);
    assert_memory_equal(is.key, record.key, is.key_len);
    assert_int_equal(is.payload.len, BODY);
    assert_memory_equal(is.payload.data, record.payload.data, BODY);
}

/* By its writer, by others, from the window and from the file; over several segments, and when the templates change. */
static void test_completions(void **state)
{
    enum { MANY = 12000 };
    static once__place_t claims[MANY], places[MANY];
    store_t *store = *state;
    once__log_t *log = open_log(store, (uint64_t)4 << 20);
    uint64_t bytes = 0;

    for (unsigned n = 0; n < MANY; n++) {
        append_claim(log, n, &claims[n]);
        if (n >= 10) { /* some time later */
            uint64_t before = log->active.tail;
            append_completion(log, n - 10, claims[n - 10], &places[n - 10]);
            check_completion(log, n - 10, places[n - 10]);
            check_completion(store->logs[1], n - 10, places[n - 10]);
            bytes += log->active.tail > before ? log->active.tail - before : 0;
        }
        if (n % 97 == 0) {
            assert_int_equal(once__log_sync(log), ONCE_OK);
        }
    }
    assert_true(log->active.number > 2);
    assert_true(bytes / MANY < 170);
    once__log_abandon(log);
    (void)once__log_is_durable(store->logs[1], places[MANY - 11]);
    for (unsigned n = 0; n < MANY - 10; n++) {
        check_completion(store->logs[1], n, places[n]);
    }
}

/* What is not in the same segment is not referred to. */
static void test_completions_that_are_whole(void **state)
{
    store_t *store = *state;
    once__place_t claim, place, large;
    once__frame_t frame;
    once__record_t record = numbered(7, ONCE_STATE_COMPLETED);
    uint8_t raw[ONCE__FRAME_HEADER];
    int fd;

    append_claim(store->logs[0], 7, &claim);
    assert_int_equal(once__log_sync(store->logs[0]), ONCE_OK);
    append_completion(store->logs[1], 7, claim, &place);
    assert_int_equal(place.segment, 2);
    assert_int_equal(once__log_complete(store->logs[0], &record, claim, 3, &place), ONCE_OK);
    assert_int_equal(place.segment, 3);
    append_claim(store->logs[0], 7, &claim);
    assert_int_equal(append(store->logs[0], SEGMENT - 1500, FOREVER, 0, &large), ONCE_OK);
    append_completion(store->logs[0], 7, claim, &place);
    assert_int_not_equal(place.segment, claim.segment);
    assert_int_equal(once__log_sync(store->logs[0]), ONCE_OK);
    assert_int_equal(once__log_sync(store->logs[1]), ONCE_OK);
    for (uint32_t n = 2; n <= place.segment; n++) {
        once__place_t first = {n, ONCE__SEGMENT_HEADER};
        assert_int_equal(once__log_read(store->logs[1], first, &frame), ONCE_OK);
        fd = open_segment(store, n);
        assert_int_equal(pread(fd, raw, sizeof(raw), (off_t)first.offset), sizeof(raw));
        assert_int_equal(raw[8], ONCE__FRAME_RECORD);
        (void)close(fd);
    }
    check_completion(store->logs[1], 7, place);
}

/* ------------------------------------------------------------------------------------------------------------ faults */

static void test_a_failed_sync_is_final(void **state)
{
    store_t *store = *state;
    once__place_t first, second;
    unsigned syncs;
    int sealed;

    assert_int_equal(append(store->logs[0], 1, FOREVER, 0, &first), ONCE_OK);
    assert_int_equal(once__log_sync(store->logs[0]), ONCE_OK);
    assert_int_equal(append(store->logs[0], 2, FOREVER, 0, &second), ONCE_OK);
    store->fail_sync = 1;
    assert_int_equal(once__log_sync(store->logs[0]), ONCE_E_IO);
    assert_int_equal(once__log_failed(store->logs[0]), 1);
    store->fail_sync = 0;
    syncs = store->syncs;
    assert_int_equal(once__log_sync(store->logs[0]), ONCE_E_IO);
    assert_int_equal(append(store->logs[0], 3, FOREVER, 0, &second), ONCE_E_IO);
    assert_int_equal(once__log_close(store->logs[0]), ONCE_E_IO);
    store->logs[0] = NULL;
    assert_int_equal(store->syncs, syncs);
    assert_int_equal(frames_of(store, 1, &sealed), 2);
    assert_false(sealed); /* a seal would say that all of it was synced */
}

/* Who fails does not keep its records from others: they write again what may be missing on the disk, and sync that. */
static void test_others_go_on_after_a_failed_sync(void **state)
{
    store_t *store = *state;
    once__place_t place;
    const once__segment_info_t *info = once__index_segment(store->index, 1);

    assert_int_equal(append(store->logs[0], 1, FOREVER, 0, &place), ONCE_OK);
    store->fail_sync = 1;
    assert_int_equal(once__log_sync(store->logs[0]), ONCE_E_IO);
    assert_int_equal(atomic_load(&info->suspect), 1);
    assert_int_equal(once__log_is_durable(store->logs[1], place), 0);
    assert_int_equal(atomic_load(&info->suspect), 1);
    store->fail_sync = 0;
    assert_int_equal(once__log_is_durable(store->logs[1], place), 1);
    assert_int_equal(atomic_load(&info->state), ONCE__SEGMENT_SEALED);
    check_read(store->logs[1], place, 1);
}

static void test_a_failed_sync_of_the_directory_is_final(void **state)
{
    store_t *store = *state;
    once__place_t place;

    store->fail_directory_sync = 1;
    assert_int_equal(append(store->logs[0], 1, FOREVER, 0, &place), ONCE_E_IO);
    store->fail_directory_sync = 0;
    assert_int_equal(once__log_failed(store->logs[0]), 1);
    assert_int_equal(append(store->logs[0], 1, FOREVER, 0, &place), ONCE_E_IO);
    assert_int_equal(append(store->logs[1], 1, FOREVER, 0, &place), ONCE_OK);
    check_read(store->logs[1], place, 1);
}

static void test_short_writes(void **state)
{
    store_t *store = *state;
    once__place_t places[2];
    int sealed;

    store->short_write = 13;
    assert_int_equal(append(store->logs[0], 1000, FOREVER, 0, &places[0]), ONCE_OK);
    assert_int_equal(append(store->logs[0], ONCE__WINDOW_SIZE, FOREVER, 0, &places[1]), ONCE_OK);
    assert_int_equal(once__log_sync(store->logs[0]), ONCE_OK);
    assert_int_equal(frames_of(store, places[1].segment, &sealed), 1);
    check_read(store->logs[1], places[0], 1000);
    check_read(store->logs[1], places[1], ONCE__WINDOW_SIZE);
}

/* A write that fails leaves the window as it is: whoever takes over has all of it. */
static void test_a_failed_write_is_final(void **state)
{
    store_t *store = *state;
    once__place_t place;
    int sealed;

    assert_int_equal(append(store->logs[0], 1, FOREVER, 0, &place), ONCE_OK);
    store->write_errno = EIO;
    store->fail_write = 1;
    assert_int_equal(once__log_sync(store->logs[0]), ONCE_E_IO);
    assert_int_equal(once__log_failed(store->logs[0]), 1);
    assert_int_equal(once__log_is_durable(store->logs[1], place), 0);
    store->fail_write = 0;
    assert_int_equal(append(store->logs[0], 1, FOREVER, 0, &place), ONCE_E_IO);
    assert_int_equal(once__log_is_durable(store->logs[1], place), 1);
    assert_int_equal(frames_of(store, 1, &sealed), 1);
    check_read(store->logs[1], place, 1);
}

/* After a failed sync, all that is behind the synced mark is written once more, whether the file had it or not. */
static void test_what_a_failed_sync_left_is_written_again(void **state)
{
    store_t *store = *state;
    once__log_t *log = open_log(store, 4 * ONCE__WINDOW_SIZE);
    once__place_t place, first;
    uint64_t end;

    assert_int_equal(append(log, 1, FOREVER, 0, &first), ONCE_OK);
    assert_int_equal(once__log_sync(log), ONCE_OK);
    for (unsigned i = 0; i < 300; i++) {
        assert_int_equal(append(log, 1000, FOREVER, 0, &place), ONCE_OK);
    }
    end = log->active.tail;
    assert_true(end > ONCE__WINDOW_SIZE);
    store->fail_sync = 1;
    assert_int_equal(once__log_sync(log), ONCE_E_IO);
    store->fail_sync = 0;
    store->bytes = 0;
    assert_int_equal(once__log_is_durable(store->logs[1], place), 1);
    assert_int_equal(store->bytes, end - log->active.synced + ONCE__FRAME_HEADER); /* the seal */
    once__log_abandon(log);
}

static void test_no_room_to_write(void **state)
{
    store_t *store = *state;
    once__place_t place, last;
    int sealed;

    assert_int_equal(append(store->logs[0], 1, FOREVER, 0, &place), ONCE_OK);
    assert_int_equal(once__log_sync(store->logs[0]), ONCE_OK);
    assert_int_equal(append(store->logs[0], 500, FOREVER, 0, &last), ONCE_OK);
    store->write_errno = ENOSPC;
    store->short_write = 100;
    store->fail_write = 3; /* in the middle of the frame */
    assert_int_equal(once__log_sync(store->logs[0]), ONCE_E_FULL);
    assert_int_equal(once__log_failed(store->logs[0]), 0);
    assert_int_equal(once__log_is_durable(store->logs[1], last), 0);
    check_read(store->logs[1], last, 500);
    assert_int_equal(append(store->logs[0], 1, FOREVER, 0, &place), ONCE_E_FULL);
    assert_int_equal(append(store->logs[0], 2 * SEGMENT, FOREVER, 0, &place), ONCE_E_FULL);
    store->fail_write = 0;
    assert_int_equal(once__log_sync(store->logs[0]), ONCE_OK);
    assert_int_equal(append(store->logs[0], 1, FOREVER, 0, &place), ONCE_OK);
    assert_int_equal(once__log_close(store->logs[0]), ONCE_OK);
    store->logs[0] = NULL;
    assert_int_equal(frames_of(store, 1, &sealed), 3);
    check_read(store->logs[1], last, 500);
}

/* A frame that does not go through a window fails alone. */
static void test_no_room_to_write_a_large_frame(void **state)
{
    store_t *store = *state;
    once__place_t place;

    assert_int_equal(append(store->logs[0], 1, FOREVER, 0, &place), ONCE_OK);
    assert_int_equal(append(store->logs[0], ONCE__WINDOW_SIZE, FOREVER, 0, &place), ONCE_OK);
    store->write_errno = ENOSPC;
    store->fail_write = 1;
    assert_int_equal(append(store->logs[0], ONCE__WINDOW_SIZE, FOREVER, 0, &place), ONCE_E_FULL);
    store->fail_write = 0;
    assert_int_equal(append(store->logs[0], 7, FOREVER, 0, &place), ONCE_OK);
    assert_int_equal(once__log_sync(store->logs[0]), ONCE_OK);
    check_read(store->logs[1], place, 7);
}

static void test_a_full_disk_heals(void **state)
{
    store_t *store = *state;
    once__place_t place = {0, 0}, last = {0, 0};
    int code = ONCE_OK;

    assert_int_equal(append(store->logs[0], 1000, FOREVER, 0, &place), ONCE_OK);
    store->fail_allocate = 1;
    while (code == ONCE_OK) {
        last = place;
        code = append(store->logs[0], 1000, FOREVER, 0, &place);
    }
    assert_int_equal(code, ONCE_E_FULL);
    assert_int_equal(once__log_sync(store->logs[0]), ONCE_OK);
    check_read(store->logs[0], last, 1000);
    assert_int_equal(append(store->logs[0], 1000, FOREVER, 0, &place), ONCE_E_FULL);
    store->fail_allocate = 0;
    assert_int_equal(append(store->logs[0], 1000, FOREVER, 0, &place), ONCE_OK);
    assert_int_equal(place.segment, 2);
    assert_int_equal(once__log_sync(store->logs[0]), ONCE_OK);
}

/* ---------------------------------------------------------------------------------------------------------- dropping */

static void test_dropped_and_used_again(void **state)
{
    store_t *store = *state;
    once__place_t place;
    struct stat before, after;
    int sealed;

    for (unsigned i = 0; i < 100; i++) {
        assert_int_equal(append(store->logs[0], 300, 1000, 0, &place), ONCE_OK);
    }
    assert_int_equal(once__log_sync(store->logs[0]), ONCE_OK);
    assert_int_equal(fstatat(store->segments_fd, "00000001.log", &before, 0), 0);
    assert_int_equal(drop(store->logs[0], 999), ONCE_OK); /* nothing in the index points to it */
    assert_int_equal(drop(store->logs[0], 999), ONCE_E_NOT_FOUND);
    assert_int_equal(once__index_first_segment(store->index), 2);
    assert_int_equal(append(store->logs[1], 1, FOREVER, 0, &place), ONCE_OK);
    assert_int_equal(once__log_sync(store->logs[1]), ONCE_OK);
    assert_int_equal(fstatat(store->segments_fd, "00000002.log", &after, 0), 0);
    assert_int_equal(after.st_ino, before.st_ino);
    assert_int_equal(place.segment, 2);
    assert_int_equal(frames_of(store, 2, &sealed), 1); /* and what was in it is not */
}

/* A spare that was copied has holes where zeros were: it is of no use without the room for them. */
static void test_a_spare_with_holes(void **state)
{
    store_t *store = *state;
    int fd = openat(store->segments_fd, "00000001.spare", O_RDWR | O_CREAT, 0600);
    once__place_t place;
    struct stat st;

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, SEGMENT), 0);
    store->fail_allocate = 1;
    assert_int_equal(append(store->logs[0], 1, FOREVER, 0, &place), ONCE_E_FULL);
    store->fail_allocate = 0;
    assert_int_equal(ftruncate(fd, 0), 0);
    (void)close(fd);
    fd = openat(store->segments_fd, "00000001.spare", O_RDWR | O_CREAT, 0600);
    assert_int_equal(ftruncate(fd, SEGMENT), 0);
    assert_int_equal(append(store->logs[0], 1, FOREVER, 0, &place), ONCE_OK);
    assert_int_equal(fstat(fd, &st), 0);
    assert_true((uint64_t)st.st_blocks * 512 >= SEGMENT);
    (void)close(fd);
}

/* Zeros go ahead of the frames into a new file, and not into one that was used before; and not into what is there. */
static void test_blocks_are_written_ahead(void **state)
{
    store_t *store = *state;
    uint64_t size = (uint64_t)4 << 20, bytes;
    once__log_t *log = open_log(store, size);
    once__place_t place = {0, 0}, places[3000];
    unsigned count = 0;

    while (place.segment < 3) {
        assert_int_equal(append(log, 3000, 1000, 0, &place), ONCE_OK);
        assert_int_equal(once__log_sync(log), ONCE_OK);
        places[count++] = place;
    }
    bytes = store->bytes;
    assert_true(bytes > 2 * (uint64_t)count * 3000 - (1 << 20));
    for (unsigned i = 0; i < count; i++) {
        check_read(store->logs[1], places[i], 3000);
    }
    while (place.segment < 4) {
        assert_int_equal(append(log, 3000, 1000, 0, &place), ONCE_OK);
    }
    assert_int_equal(once__log_sync(log), ONCE_OK);
    while (drop(log, 1000) == ONCE_OK) {
    }
    assert_int_equal(append(log, 3000, 1000, 0, &place), ONCE_OK); /* in a used file */
    bytes = store->bytes;
    assert_int_equal(once__log_sync(log), ONCE_OK);
    assert_true(store->bytes - bytes < 4000);
    once__log_abandon(log);
}

/* A process that does nothing any more must not keep the segments of the others. */
static void test_an_idle_writer_is_not_in_the_way(void **state)
{
    store_t *store = *state;
    once__place_t place;

    assert_int_equal(append(store->logs[0], 1, 1000, 0, &place), ONCE_OK);
    assert_int_equal(once__log_sync(store->logs[0]), ONCE_OK);
    for (unsigned round = 0; round < 5; round++) {
        assert_int_equal(append(store->logs[1], 1, 1000, 0, &place), ONCE_OK);
        assert_int_equal(once__log_sync(store->logs[1]), ONCE_OK);
        while (drop(store->logs[0], 1000) == ONCE_OK || drop(store->logs[1], 1000) == ONCE_OK) {
        }
        assert_int_equal(once__index_first_segment(store->index),
                         once__index_end_segment(store->index));
    }
}

/* The writer is alive and may still append: its segment stays, whatever is in it. */
static void test_the_segment_of_another_stays(void **state)
{
    store_t *store = *state;
    once__place_t place;

    assert_int_equal(append(store->logs[0], 1, 1000, 0, &place), ONCE_OK);
    assert_int_equal(drop(store->logs[1], FOREVER), ONCE_E_NOT_FOUND);
    once__log_abandon(store->logs[0]);
    store->logs[0] = NULL;
    assert_int_equal(drop(store->logs[1], FOREVER), ONCE_OK);
}

/* A lock that a forked child holds, because it has a copy of the descriptor, must not spoil the file for ever. */
static void test_a_spare_that_is_locked(void **state)
{
    store_t *store = *state;
    once__place_t place;
    int fd;

    assert_int_equal(append(store->logs[0], 1, 1000, 0, &place), ONCE_OK);
    fd = dup(store->logs[0]->active.fd); /* as a child has it */
    assert_true(fd >= 0);
    assert_int_equal(drop(store->logs[0], 1000), ONCE_OK);
    assert_int_equal(append(store->logs[1], 1, 1000, 0, &place), ONCE_OK);
    assert_int_equal(once__log_retire(store->logs[1]), ONCE_OK);
    (void)close(fd);
    fd = open_segment(store, 2);
    assert_true(fd >= 0);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    assert_int_equal(drop(store->logs[1], 1000), ONCE_OK); /* a spare now, and locked */
    assert_int_equal(append(store->logs[1], 1, 1000, 0, &place), ONCE_OK);
    (void)close(fd);
}

static unsigned count_deleted_mappings(const store_t *store)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    unsigned count = 0;

    assert_non_null(maps);
    while (fgets(line, sizeof(line), maps) != NULL) {
        count += strstr(line, store->path) != NULL && strstr(line, "(deleted)") != NULL;
    }
    (void)fclose(maps);
    return count;
}

/* A file that is mapped takes room after it was removed. */
static void test_mappings_of_dropped_segments_go(void **state)
{
    store_t *store = *state;
    once__log_t *other = open_log(store, SEGMENT * 2); /* so that no file becomes a spare */
    once__place_t place;

    assert_int_equal(append(store->logs[0], 1, 1000, 0, &place), ONCE_OK);
    assert_int_equal(once__log_close(store->logs[0]), ONCE_OK);
    store->logs[0] = NULL;
    check_read(store->logs[1], place, 1);
    check_read(other, place, 1);
    assert_int_equal(drop(other, 1000), ONCE_OK);
    (void)drop(other, 1000);
    assert_int_equal(count_deleted_mappings(store), 1);
    (void)drop(store->logs[1], 1000);
    assert_int_equal(count_deleted_mappings(store), 0);
    once__log_abandon(other);
}

/* ----------------------------------------------------------------------------------------------------------- killing */

static void kill_in(store_t *store, void (*what)(store_t *store))
{
    pid_t child = fork();
    int status;

    assert_true(child >= 0);
    if (child == 0) {
        (void)once__index_lock_segments(store->index);
        what(store);
        (void)kill(getpid(), SIGKILL);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
}

static void drop_half(store_t *store)
{
    once__index_set_first_segment(store->index, 2);
}

/* Its file would make a gap when later ones are gone, and a gap is a missing segment. */
static void test_killed_while_dropping(void **state)
{
    store_t *store = *state;
    once__place_t place;
    int fd;

    assert_int_equal(append(store->logs[0], 1, 1000, 0, &place), ONCE_OK);
    assert_int_equal(once__log_retire(store->logs[0]), ONCE_OK);
    assert_int_equal(append(store->logs[0], 1, 1000, 0, &place), ONCE_OK);
    kill_in(store, drop_half);
    fd = open_segment(store, 1);
    assert_true(fd >= 0);
    (void)close(fd);
    assert_int_equal(drop(store->logs[0], 1000), ONCE_OK);
    assert_int_equal(open_segment(store, 1), -1);
    assert_int_equal(open_segment(store, 2), -1);
}

static void name_half(store_t *store)
{
    once__segment_header_t header = {.number = 2, .size = SEGMENT};
    uint8_t bytes[ONCE__SEGMENT_HEADER];
    int fd = openat(store->segments_fd, "00000002.log", O_RDWR | O_CREAT, 0600);

    once__segment_header_write(&header, bytes);
    if (ftruncate(fd, SEGMENT) != 0 || pwrite(fd, bytes, sizeof(bytes), 0) != sizeof(bytes)) {
        _exit(1);
    }
}

static void test_killed_while_starting(void **state)
{
    store_t *store = *state;
    once__place_t place;

    assert_int_equal(append(store->logs[0], 1, FOREVER, 0, &place), ONCE_OK);
    kill_in(store, name_half);
    assert_int_equal(append(store->logs[1], 1, FOREVER, 0, &place), ONCE_OK);
    assert_int_equal(place.segment, 3);
    assert_int_equal(once__index_end_segment(store->index), 4);
    assert_int_equal(atomic_load(&once__index_segment(store->index, 2)->state),
                     ONCE__SEGMENT_SEALED);
}

static int make_half(const store_t *store, const char *name)
{
    int fd = openat(store->segments_fd, name, O_RDWR | O_CREAT, 0600);

    assert_true(fd >= 0);
    return fd;
}

/* What was left half made takes room: it goes, unless somebody is at it. */
static void test_files_that_nobody_finished(void **state)
{
    store_t *store = *state;
    int fds[] = {make_half(store, "1.new"), make_half(store, "2.new")};
    once__place_t place;

    assert_int_equal(flock(fds[1], LOCK_EX), 0);
    assert_int_equal(append(store->logs[0], 1, FOREVER, 0, &place), ONCE_OK);
    assert_int_equal(faccessat(store->segments_fd, "1.new", F_OK, 0), -1);
    assert_int_equal(faccessat(store->segments_fd, "2.new", F_OK, 0), 0);
    for (size_t i = 0; i < 2; i++) {
        (void)close(fds[i]);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_a_batch_is_one_sync),
        TEST(test_unsynced_frames_of_others),
        TEST(test_more_than_a_window),
        TEST(test_windows_are_used_again),
        TEST(test_what_a_killed_writer_left_is_sealed),
        TEST(test_a_damaged_window),
        TEST(test_many_segments),
        TEST(test_a_frame_larger_than_a_segment),
        TEST(test_sizes),
        TEST(test_not_before),
        TEST(test_completions),
        TEST(test_completions_that_are_whole),
        TEST(test_a_failed_sync_is_final),
        TEST(test_others_go_on_after_a_failed_sync),
        TEST(test_a_failed_sync_of_the_directory_is_final),
        TEST(test_short_writes),
        TEST(test_a_failed_write_is_final),
        TEST(test_what_a_failed_sync_left_is_written_again),
        TEST(test_no_room_to_write),
        TEST(test_no_room_to_write_a_large_frame),
        TEST(test_a_full_disk_heals),
        TEST(test_dropped_and_used_again),
        TEST(test_a_spare_with_holes),
        TEST(test_blocks_are_written_ahead),
        TEST(test_an_idle_writer_is_not_in_the_way),
        TEST(test_the_segment_of_another_stays),
        TEST(test_a_spare_that_is_locked),
        TEST(test_mappings_of_dropped_segments_go),
        TEST(test_killed_while_dropping),
        TEST(test_killed_while_starting),
        TEST(test_files_that_nobody_finished),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
