/*
 * The log of one store in several hands: what is appended can be read, what is synced is never lost, and what a killed writer
 * left is taken over, on a disk that fails when a test wants it to.
 */
#include "store/local/log.h"

#include "support/testing.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/bytes.h"

#define SEGMENT ((uint64_t)4 << 20)
#define KEYS    64u
#define BUSY    1

/* -------------------------------------------------------------------------------------------------------------- disk */

/* Each call is a step; the one with the number `fail_at` (from 1), or each from there on, fails with `fail_with`. */
static struct {
    _Atomic unsigned step, fail_at;
    _Atomic int fail_with, stays;
    _Atomic size_t room; /* bytes that writes take before the disk is full; SIZE_MAX: any number */
    _Atomic uint64_t lowest; /* offset of a write */
} faults;

/* How far each file was written, and how far when it was synced. */
static struct {
    ino_t inode;
    uint64_t written, synced;
} extents[256];
static _Atomic int watches;
static unsigned unprepared; /* frames in blocks that were not durable before, if only as zeros */

static void watch(int fd, uint64_t from, uint64_t to, int is_frame)
{
    struct stat st;
    unsigned i = 0;

    (void)fstat(fd, &st);
    while (i < 255 && extents[i].inode != 0 && extents[i].inode != st.st_ino) {
        i++;
    }
    extents[i].inode = st.st_ino;
    unprepared += is_frame && to > extents[i].synced;
    extents[i].written = to > extents[i].written ? to : extents[i].written;
    if (from == to) {
        extents[i].synced = extents[i].written;
    }
}

static int fails(void)
{
    faults.step++;
    if (faults.fail_at != 0 &&
        (faults.step == faults.fail_at || (faults.stays && faults.step > faults.fail_at))) {
        errno = faults.fail_with;
        return 1;
    }
    return 0;
}

static int hook_sync(void *data, int fd)
{
    if (watches) {
        watch(fd, 0, 0, 0);
    }
    return fails() ? -1 : fdatasync(fd);
}

static int hook_sync_directory(void *data, int fd)
{
    return fails() ? -1 : fsync(fd);
}

static int hook_allocate(void *data, int fd, uint64_t size)
{
    return fails() ? -1 : once__real_disk.allocate(NULL, fd, size);
}

static ssize_t hook_write(void *data, int fd, const void *bytes, size_t len, uint64_t offset)
{
    size_t take = len < faults.room ? len : faults.room;

    if (fails()) {
        return -1;
    }
    if (take == 0) {
        errno = ENOSPC;
        return -1;
    }
    if (watches) { /* neither zeros nor a header nor an entry of the manifest */
        watch(fd, offset, offset + len,
              ((const uint8_t *)bytes)[0] != 0 && offset > 0 && len != ONCE__MANIFEST_ENTRY);
    }
    faults.room -= faults.room == SIZE_MAX ? 0 : take;
    faults.lowest = offset < faults.lowest ? offset : faults.lowest;
    return pwrite(fd, bytes, take, (off_t)offset);
}

static const once__disk_t disk = {.sync = hook_sync,
                                  .sync_directory = hook_sync_directory,
                                  .allocate = hook_allocate,
                                  .write = hook_write};

static void heal(void)
{
    faults.step = faults.fail_at = 0;
    faults.stays = 0;
    watches = 0;
    faults.room = SIZE_MAX;
    faults.lowest = UINT64_MAX;
}

/* -------------------------------------------------------------------------------------------------------------- store */

static struct {
    char folder[64];
    once__log_config_t config;
    once__index_t *index;
    once__log_t *log;
    once__reader_t *reader;
} the;

static int start(void **state)
{
    once__index_config_t config = {.directory = once__index_default_directory(), .owner = getuid()};
    once_error_t err;

    heal();
    memset(&the, 0, sizeof(the));
    (void)snprintf(the.folder, sizeof(the.folder), "/tmp/once-log-XXXXXX");
    assert_non_null(mkdtemp(the.folder));
    the.config = (once__log_config_t){.segments_fd = open(the.folder, O_RDONLY | O_DIRECTORY),
                                      .disk = &disk,
                                      .segment_size = SEGMENT};
    assert_true(the.config.segments_fd >= 0);
    memcpy(the.config.store_id, the.folder + strlen(the.folder) - 6, 6);
    the.config.boot_id[0] = 1;
    config.store = the.folder;
    config.store_fd = the.config.segments_fd;
    memcpy(config.store_id, the.config.store_id, ONCE__STORE_ID_SIZE);
    memcpy(config.boot_id, the.config.boot_id, ONCE__BOOT_ID_SIZE);
    assert_int_equal(once__index_create(&the.index, &config, &err), ONCE_OK);
    assert_int_equal(once__index_publish(the.index, &err), ONCE_OK);
    the.config.index = the.index;
    the.log = once__log_open(&the.config);
    the.reader = once__reader_open(&the.config);
    return 0;
}

static void remove_folder(void)
{
    DIR *directory = opendir(the.folder);
    const struct dirent *entry;

    while ((entry = readdir(directory)) != NULL) {
        (void)unlinkat(dirfd(directory), entry->d_name, 0);
    }
    (void)closedir(directory);
    assert_int_equal(rmdir(the.folder), 0);
}

static int end(void **state)
{
    heal();
    once__log_abandon(the.log);
    once__reader_close(the.reader);
    once__index_remove(the.index);
    once__index_close(the.index);
    (void)close(the.config.segments_fd);
    remove_folder();
    return 0;
}

/* Files whose names end like that. */
static unsigned count_files(const char *suffix)
{
    DIR *directory = opendir(the.folder);
    const struct dirent *entry;
    unsigned count = 0;

    while ((entry = readdir(directory)) != NULL) {
        size_t len = strlen(entry->d_name), wanted = strlen(suffix);
        count += len >= wanted && strcmp(entry->d_name + len - wanted, suffix) == 0;
    }
    (void)closedir(directory);
    return count;
}

static unsigned count_slots(once__segment_state_t state)
{
    unsigned count = 0;

    for (uint32_t slot = 0; slot < once__index_slot_end(the.index); slot++) {
        count += atomic_load(&once__index_segment(the.index, slot)->state) == (uint32_t)state;
    }
    return count;
}

/* ------------------------------------------------------------------------------------------------------------ records */

static const uint8_t *id_of(unsigned n)
{
    static uint8_t id[ONCE_ID_SIZE];

    memset(id, 0, sizeof(id));
    once__put64(id, (uint64_t)(n + 1) * 0x9e3779b97f4a7c15u);
    once__put64(id + 8, (uint64_t)(n + 1) * 0xc2b2ae3d27d4eb4fu);
    return id;
}

/* A response like the others, with the number of the record and its generation in it. */
static size_t respond(uint8_t *out, size_t len, unsigned n, uint32_t generation)
{
    once__put32(out, n);
    once__put32(out + 4, generation);
    for (size_t i = 8; i < len; i++) {
        out[i] = (uint8_t) "a response that is like many others, "[i % 37];
    }
    return len;
}

static once__record_t make_record(unsigned n, uint8_t *response, size_t len, uint32_t generation)
{
    once__record_t record = {.head = {.schema = ONCE__SCHEMA,
                                      .state = ONCE_STATE_COMPLETED,
                                      .claim = {.epoch = 1},
                                      .lease_until = 2000,
                                      .lease_ms = 1000,
                                      .changed = 1000,
                                      .expires = UINT64_MAX / 4,
                                      .ttl_ms = 5000,
                                      .created = 1000},
                             .key = "key",
                             .key_len = 3};

    memcpy(record.id, id_of(n), ONCE_ID_SIZE);
    record.payload = (once__payload_t){ONCE__PAYLOAD_RESPONSE, 200, response,
                                       respond(response, len, n, generation)};
    return record;
}

/* The generation of a record in the index; 0: it has none. Locked. */
static uint32_t look(once__reader_t *reader, unsigned n, once__entry_t *entry,
                     once__weight_t *weight)
{
    once__frame_t frame;
    once__record_t record;

    if (!once__index_find(the.index, id_of(n), entry)) {
        return 0;
    }
    if (once__reader_read(reader, entry->place, 0, &frame) != ONCE_OK ||
        memcmp(frame.id, id_of(n), ONCE_ID_SIZE) != 0 ||
        once__reader_record(reader, entry->place, &frame, &record) != ONCE_OK ||
        record.payload.len < 8 || once__get32(record.payload.data) != n) {
        return UINT32_MAX;
    }
    *weight = once__frame_weight(&frame, entry->state);
    return once__get32(record.payload.data + 4);
}

static uint32_t generation_of(unsigned n)
{
    once__entry_t entry;
    once__weight_t weight;
    uint32_t generation;

    assert_int_equal(once__index_lock(the.index, id_of(n), 1000), ONCE_OK);
    generation = look(the.reader, n, &entry, &weight);
    once__index_unlock(the.index, id_of(n));
    assert_int_not_equal(generation, UINT32_MAX);
    return generation;
}

static once__buffer_t *buffer_of(uint32_t slot)
{
    uint64_t room;

    return once__buffer_of(the.index, slot, &room);
}

/* What `writer` is doing, so that a test can stop in the middle. */
typedef struct writer {
    once__log_t *log;
    once__reader_t *reader;
    int enters; /* 0: the frame is staged, and then nothing */
} writer_t;

/* The next generation of a record. ONCE_OK, BUSY (what it has is not durable), or why not. */
static int put_by(const writer_t *writer, unsigned n, size_t len, uint32_t *generation)
{
    static uint8_t response[8 << 20];
    once__entry_t old, entry = {.state = ONCE_STATE_COMPLETED};
    once__weight_t old_weight, weight = {0, UINT64_MAX / 4};
    once__record_t record = make_record(n, response, len, 0);
    int code = once__log_reserve(writer->log, len > 2048 ? len + 2048 : 4096);

    if (code != ONCE_OK) {
        return code;
    }
    code = once__index_lock(the.index, id_of(n), 1000);
    if (code != ONCE_OK) {
        return BUSY;
    }
    *generation = look(writer->reader, n, &old, &old_weight) + 1;
    if (*generation == 0) {
        code = ONCE_E_CORRUPT;
    } else if (*generation > 1 && !once__log_is_durable(the.index, old.place) &&
               old.place.slot != once__log_slot(writer->log)) {
        once__index_unlock(the.index, id_of(n));
        (void)once__segment_take_over(&the.config, old.place.slot);
        return BUSY;
    } else if (*generation == 1) {
        code = once__index_make_room(the.index, id_of(n));
    }
    (void)respond(response, len, n, *generation);
    if (code == ONCE_OK) {
        code = once__log_append(writer->log, record.id, &record,
                                once__index_next_version(the.index, id_of(n), 5000), 0,
                                &entry.place, &weight.size);
    }
    if (code == ONCE_OK && writer->enters) {
        once__index_set(the.index, id_of(n), &entry, weight, *generation > 1 ? &old : NULL,
                        old_weight);
    }
    once__index_unlock(the.index, id_of(n));
    return code;
}

static int put(unsigned n, size_t len)
{
    const writer_t writer = {the.log, the.reader, 1};
    uint32_t generation;

    return put_by(&writer, n, len, &generation);
}

static void put_all(unsigned from, unsigned to, size_t len)
{
    for (unsigned n = from; n < to; n++) {
        assert_int_equal(put(n, len), ONCE_OK);
    }
}

static void expect_all(unsigned from, unsigned to, uint32_t generation)
{
    for (unsigned n = from; n < to; n++) {
        assert_int_equal(generation_of(n), generation);
    }
}

/* -------------------------------------------------------------------------------------------------------------- files */

typedef struct seen {
    uint64_t versions[1024]; /* the highest of each record */
    once__place_t places[1024];
    unsigned frames, fillers, removed;
} seen_t;

static void walk_segment(uint32_t slot, seen_t *seen)
{
    const once__segment_t *segment = once__index_segment(the.index, slot);
    once__image_t image = {0};
    once__walk_t walk;

    assert_int_equal(once__image_read(&image, &the.config, atomic_load(&segment->number)), ONCE_OK);
    assert_int_equal(image.header.word, segment->word);
    once__walk_begin(&walk, &image, 0);
    while (once__walk_next(&walk)) {
        unsigned n = 0;
        if (walk.kind == ONCE__WALK_SEALED) {
            assert_int_equal(walk.end, image.size);
            assert_int_equal(walk.end, atomic_load(&segment->tail));
            assert_int_equal(walk.offset, atomic_load(&segment->last));
            break;
        }
        assert_int_equal(walk.kind, ONCE__WALK_FRAME);
        seen->frames++;
        if (walk.frame.kind == ONCE__FRAME_FILLER) {
            seen->fillers++;
            continue;
        }
        assert_true(walk.frame.version >= atomic_load(&segment->first_version) &&
                    walk.frame.version <= atomic_load(&segment->last_version));
        while (n < 1024 && memcmp(id_of(n), walk.frame.id, ONCE_ID_SIZE) != 0) {
            n++;
        }
        assert_true(n < 1024);
        if (walk.frame.version > seen->versions[n]) {
            seen->versions[n] = walk.frame.version;
            seen->places[n] = (once__place_t){slot, walk.offset};
        }
    }
    assert_int_equal(walk.kind, ONCE__WALK_SEALED);
    once__image_free(&image);
}

/* All segments are sealed; the manifest has them; the newest frame of each record is the one in the index. */
static void check_files(seen_t *seen)
{
    once__manifest_t manifest;
    unsigned segments = 0;

    memset(seen, 0, sizeof(*seen));
    assert_int_equal(once__manifest_read(&manifest, &the.config), ONCE_OK);
    for (uint32_t slot = 0; slot < once__index_slot_end(the.index); slot++) {
        const once__segment_t *segment = once__index_segment(the.index, slot);
        if (atomic_load(&segment->state) == ONCE__SEGMENT_FREE) {
            continue;
        }
        assert_int_equal(atomic_load(&segment->state), ONCE__SEGMENT_SEALED);
        assert_int_equal(atomic_load(&segment->buffer), 0);
        assert_true(once__manifest_is_live(&manifest, atomic_load(&segment->number)));
        walk_segment(slot, seen);
        segments++;
    }
    assert_int_equal(manifest.live_count, segments);
    assert_int_equal(count_files(".log"), segments);
    assert_int_equal(count_files(".new"), 0);
    for (unsigned n = 0; n < 1024; n++) {
        once__entry_t entry;
        int found = once__index_find(the.index, id_of(n), &entry);
        assert_int_equal(found, seen->versions[n] != 0);
        if (found) {
            assert_int_equal(entry.place.slot, seen->places[n].slot);
            assert_int_equal(entry.place.offset, seen->places[n].offset);
        }
    }
    once__manifest_free(&manifest);
}

static void close_log(void)
{
    assert_int_equal(once__log_close(the.log), ONCE_OK);
    the.log = NULL;
}

/* ---------------------------------------------------------------------------------------------------- ordinary course */

static void appends_syncs_and_reads(void **state)
{
    once__reader_t *fresh = once__reader_open(&the.config);
    once__entry_t entry;
    once__frame_t frame;
    unsigned steps;
    seen_t seen;

    put_all(0, 100, 400);
    expect_all(0, 100, 1); /* from the buffer */
    assert_true(once__index_find(the.index, id_of(5), &entry));
    assert_false(once__log_is_durable(the.index, entry.place));
    assert_int_equal(once__log_slot(the.log), entry.place.slot);
    assert_int_equal(once__log_sync(the.log), ONCE_OK);
    assert_true(once__log_is_durable(the.index, entry.place));
    put_all(0, 50, 400);
    assert_int_equal(once__log_sync(the.log), ONCE_OK);
    steps = faults.step;
    assert_int_equal(once__log_sync(the.log), ONCE_OK);
    assert_int_equal(faults.step, steps); /* there was nothing */
    expect_all(0, 50, 2);
    expect_all(50, 100, 1);
    close_log();
    assert_int_equal(once__reader_read(fresh, entry.place, 1, &frame), ONCE_OK); /* from the file */
    assert_int_equal(frame.state, ONCE_STATE_COMPLETED);
    once__reader_close(fresh);
    check_files(&seen);
    assert_int_equal(seen.frames, 150);
}

static unsigned reads;

static ssize_t hook_read(void *data, int fd, void *bytes, size_t len, uint64_t offset)
{
    reads++;
    return pread(fd, bytes, len, (off_t)offset);
}

/* Most claims are completed soon: their frames are still in the buffer, also when it was full meanwhile. */
static void recent_frames_are_in_memory(void **state)
{
    once__disk_t counting = disk;
    once__log_config_t config = the.config;
    once__reader_t *reader;
    once__entry_t entry;
    once__frame_t frame;

    counting.read = hook_read;
    config.disk = &counting;
    reader = once__reader_open(&config);
    reads = 0;
    for (unsigned n = 0; n < 1000; n++) { /* two and a half buffers */
        assert_int_equal(put(n, 400), ONCE_OK);
        assert_true(once__index_find(the.index, id_of(n < 150 ? 0 : n - 150), &entry));
        assert_int_equal(once__reader_read(reader, entry.place, 1, &frame), ONCE_OK);
    }
    assert_int_equal(reads, 0);
    assert_true(once__index_find(the.index, id_of(0), &entry));
    assert_int_equal(once__reader_read(reader, entry.place, 1, &frame), ONCE_OK);
    assert_int_equal(reads, 1);
    once__reader_close(reader);
}

/* Of writers that wait for work none keeps a large buffer: a tmpfs may have little room. */
static void large_buffer_goes_with_the_sync(void **state)
{
    uint64_t usual, room;

    put_all(0, 1, 100);
    assert_int_equal(once__log_sync(the.log), ONCE_OK);
    (void)once__buffer_of(the.index, once__log_slot(the.log), &usual);
    for (uint32_t round = 1; round <= 3; round++) {
        put_all(1, 3, 3000000);
        (void)once__buffer_of(the.index, once__log_slot(the.log), &room);
        assert_in_range(room, 3000000, 3200000);
        assert_int_equal(once__log_sync(the.log), ONCE_OK);
        assert_non_null(once__buffer_of(the.index, once__log_slot(the.log), &room));
        assert_int_equal(room, usual);
        put_all(0, 1, 100);
        expect_all(0, 1, round + 1);
        expect_all(1, 3, round);
    }
}

static void frames_of_all_sizes(void **state)
{
    static const size_t sizes[] = {8,      900,    4000,   5000,    70000,          200000,
                                   262000, 262100, 262200, 3000000, (size_t)8 << 20};
    const unsigned count = sizeof(sizes) / sizeof(sizes[0]);
    seen_t seen;

    for (unsigned round = 1; round <= 3; round++) {
        for (unsigned i = 0; i < count; i++) {
            int code;
            do {
                code = put(i, sizes[i]);
                if (code == ONCE__E_ROOM) {
                    assert_int_equal(once__log_reserve(the.log, sizes[i] + 2048), ONCE_OK);
                }
            } while (code == ONCE__E_ROOM);
            assert_int_equal(code, ONCE_OK);
            assert_int_equal(put(500 + i, 100), ONCE_OK);
            assert_int_equal(generation_of(i), round);
        }
        assert_int_equal(once__log_sync(the.log), ONCE_OK);
    }
    expect_all(0, count, 3);
    assert_int_equal(once__log_reserve(the.log, ONCE__FRAME_MAX + 9), ONCE_E_TOO_BIG);
    close_log();
    check_files(&seen);
    expect_all(0, count, 3);
}

static void sync_some(unsigned puts)
{
    for (unsigned i = 0; i < puts; i++) {
        assert_int_equal(put(i % 1000, 600), ONCE_OK);
        if (i % 100 == 99) {
            assert_int_equal(once__log_sync(the.log), ONCE_OK);
        }
    }
    assert_int_equal(once__log_sync(the.log), ONCE_OK);
}

static void rolls_and_grows(void **state)
{
    seen_t seen;
    uint64_t last = 0;
    unsigned packed = 0;

    the.config.segment_size = SEGMENT;
    sync_some(10000);
    for (uint32_t slot = 0; slot < once__index_slot_end(the.index); slot++) {
        const once__segment_t *segment = once__index_segment(the.index, slot);
        assert_true(segment->size >= last && segment->size <= SEGMENT);
        last = segment->size;
        packed += segment->dictionary_len > 0;
    }
    assert_int_equal(once__index_segment(the.index, 0)->size, 1 << 20);
    assert_true(last >= (uint64_t)2 << 20);
    assert_true(packed > 0);
    expect_all(0, 1000, 10);
    close_log();
    check_files(&seen);
    assert_int_equal(seen.frames, 10000);
    expect_all(0, 1000, 10);
}

/* Frames overwrite blocks that are durable already. */
static void zeros_go_ahead(void **state)
{
    watches = 1;
    sync_some(6000);
    put_all(0, 1000, 1200); /* more than the zeros that are there, in one batch */
    assert_int_equal(put(0, 300000), ONCE_OK);
    assert_int_equal(put(1, 3000000), ONCE_OK);
    close_log();
    watches = 0;
    assert_int_equal(unprepared, 0);
}

static void limit_makes_segments_small(void **state)
{
    once__log_abandon(the.log);
    the.config.max_bytes = (uint64_t)3 << 20;
    the.log = once__log_open(&the.config);
    sync_some(8000);
    for (uint32_t slot = 0; slot < once__index_slot_end(the.index); slot++) {
        assert_true(once__index_segment(the.index, slot)->size <= (uint64_t)2 << 20);
    }
}

static void retires_and_goes_on(void **state)
{
    seen_t seen;

    put_all(0, 10, 100);
    assert_int_equal(once__log_retire(the.log), ONCE_OK);
    assert_int_equal(once__log_slot(the.log), UINT32_MAX);
    check_files(&seen);
    put_all(0, 10, 100);
    assert_int_equal(once__log_sync(the.log), ONCE_OK);
    expect_all(0, 10, 2);
    /* A segment without frames is not left behind. */
    assert_int_equal(once__log_retire(the.log), ONCE_OK);
    assert_int_equal(once__log_reserve(the.log, 100), ONCE_OK);
    assert_int_equal(count_files(".log"), 3);
    assert_int_equal(once__log_retire(the.log), ONCE_OK);
    assert_int_equal(count_files(".log"), 2);
    check_files(&seen);
}

static void dropped_segment_is_gone(void **state)
{
    const once__place_t place = {0, once__segment_start(0)};
    once__frame_t frame;
    once__entry_t entry;
    once__weight_t weight;

    put_all(0, 1, 100);
    assert_int_equal(once__log_retire(the.log), ONCE_OK);
    (void)look(the.reader, 0, &entry, &weight);
    once__index_forget(the.index, id_of(0), &entry, weight);
    assert_int_equal(once__segment_drop(&the.config, 0, 1), ONCE_OK);
    assert_int_equal(count_files(".log"), 0);
    assert_int_equal(once__reader_read(the.reader, place, 0, &frame), ONCE_E_NOT_FOUND);
    once__reader_forget(the.reader);
    put_all(1, 2, 100); /* the slot is used again */
    assert_int_equal(once__log_slot(the.log), 0);
    assert_int_equal(generation_of(1), 1);
    assert_int_equal(once__index_segment(the.index, 0)->number, 2);
}

/* ------------------------------------------------------------------------------------------------------------- reading */

static void poke(uint64_t number, uint64_t offset)
{
    int fd = once__segment_open(&the.config, number, O_RDWR);
    uint8_t byte;

    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, (off_t)offset), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)offset), 1);
    (void)close(fd);
}

static void damage_is_told(void **state)
{
    const once__place_t place = {0, once__segment_start(0)};
    once__frame_t frame;

    put_all(0, 2, 300);
    close_log();
    assert_int_equal(once__reader_read(the.reader, place, 0, &frame), ONCE_OK);
    poke(1, place.offset + 100); /* in the body */
    assert_int_equal(once__reader_read(the.reader, place, 0, &frame), ONCE_E_CORRUPT);
    assert_int_equal(frame.kind, ONCE__FRAME_RECORD);
    assert_memory_equal(frame.id, id_of(0), ONCE_ID_SIZE);
    assert_int_equal(once__frame_weight(&frame, frame.state).until, UINT64_MAX);
    poke(1, place.offset + 20); /* in the head */
    assert_int_equal(once__reader_read(the.reader, place, 0, &frame), ONCE_E_CORRUPT);
    assert_int_equal(frame.kind, 0);
    assert_int_equal(unlinkat(the.config.segments_fd, "0000000000000001.log", 0), 0);
    once__reader_close(the.reader);
    the.reader = once__reader_open(&the.config);
    assert_int_equal(once__reader_read(the.reader, place, 0, &frame), ONCE_E_CORRUPT);
}

static void leases_of_another_boot_are_over(void **state)
{
    once__record_t record;
    once__entry_t entry;
    once__frame_t frame;

    put_all(0, 1, 300);
    assert_true(once__index_find(the.index, id_of(0), &entry));
    assert_int_equal(once__reader_read(the.reader, entry.place, 1, &frame), ONCE_OK);
    assert_int_equal(once__reader_record(the.reader, entry.place, &frame, &record), ONCE_OK);
    assert_int_equal(record.head.lease_until, 2000);
    once__index_segment(the.index, entry.place.slot)->other_boot = 1;
    assert_int_equal(once__reader_record(the.reader, entry.place, &frame, &record), ONCE_OK);
    assert_int_equal(record.head.lease_until, 1000);
}

static void names_of_segments(void **state)
{
    char name[ONCE__SEGMENT_NAME];
    uint64_t number;

    once__segment_name(name, 0xabc0000000000012u);
    assert_string_equal(name, "abc0000000000012.log");
    assert_true(once__segment_number(name, &number) && number == 0xabc0000000000012u);
    assert_false(once__segment_number("ABC0000000000012.log", &number));
    assert_false(once__segment_number("abc0000000000012.new", &number));
    assert_false(once__segment_number("abc000000000012.log", &number));
    assert_false(once__segment_number("abc00000000000123.log", &number));
    assert_false(once__segment_number("0000000000000000.log", &number));
    assert_false(once__segment_number("", &number));
}

/* -------------------------------------------------------------------------------------------------------------- faults */

/* A segment that cannot be made: at each step, for each reason. Nothing is left that is in the way. */
static void making_fails_at_every_step(void **state)
{
    static const int reasons[] = {EIO, ENOSPC};
    unsigned steps;

    once__own_t own;
    assert_int_equal(once__segment_make(&the.config, 1 << 20, NULL, 0, 0, &own), ONCE_OK);
    steps = faults.step;
    assert_int_equal(once__segment_drop(&the.config, own.slot, own.number), ONCE_OK);
    once__own_release(&own);
    for (unsigned r = 0; r < 2; r++) {
        for (unsigned at = 1; at <= steps; at++) {
            uint64_t bytes = once__index_bytes(the.index);
            int code;
            heal();
            faults.fail_at = at;
            faults.fail_with = reasons[r];
            code = once__segment_make(&the.config, 1 << 20, NULL, 0, 0, &own);
            heal();
            if (code == ONCE_OK) { /* a step that only the first one has */
                assert_int_equal(once__segment_drop(&the.config, own.slot, own.number), ONCE_OK);
                once__own_release(&own);
                continue;
            }
            assert_true(code == ONCE_E_IO || code == ONCE_E_FULL);
            assert_int_equal(own.fd, -1);
            assert_int_equal(count_slots(ONCE__SEGMENT_FREE), once__index_slot_end(the.index));
            assert_int_equal(count_files(".new"), 0);
            assert_int_equal(once__index_bytes(the.index), bytes);
        }
    }
}

static void size_limit_is_no_signal(void **state)
{
    struct rlimit limit = {1 << 19, 1 << 19};
    int status;
    pid_t child = fork();

    if (child == 0) {
        once__own_t own;
        (void)setrlimit(RLIMIT_FSIZE, &limit);
        _exit(once__segment_make(&the.config, 1 << 20, NULL, 0, 0, &own) != ONCE_E_FULL);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(count_files(".log"), 0);
}

/* A segment with this number is there: the index is older than the log. It is not replaced. */
static void existing_segment_is_not_replaced(void **state)
{
    int fd = openat(the.config.segments_fd, "0000000000000001.log", O_RDWR | O_CREAT, 0600);
    once__own_t own;
    struct stat st;

    assert_int_equal(write(fd, "old", 3), 3);
    assert_int_equal(once__segment_make(&the.config, 1 << 20, NULL, 0, 0, &own), ONCE_E_CORRUPT);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_size, 3);
    assert_int_equal(st.st_nlink, 1);
    (void)close(fd);
}

/* The disk is full after each number of bytes of a batch. Everything is there when it has room again. */
static void full_disk_then_room(void **state)
{
    uint32_t generation = 1;
    seen_t seen;

    put_all(0, 4, 100);
    assert_int_equal(once__log_sync(the.log), ONCE_OK);
    for (size_t room = 0; room < 1200; room += 7, generation++) {
        once__entry_t entry;
        put_all(0, 4, 100);
        faults.room = room;
        if (once__log_sync(the.log) == ONCE_E_FULL) {
            assert_false(once__log_failed(the.log));
            assert_true(once__index_find(the.index, id_of(3), &entry));
            assert_false(once__log_is_durable(the.index, entry.place));
            assert_int_equal(once__log_reserve(the.log, 100), ONCE_E_FULL);
            expect_all(0, 4, generation + 1);
        }
        faults.room = SIZE_MAX;
        assert_int_equal(once__log_sync(the.log), ONCE_OK);
        expect_all(0, 4, generation + 1);
    }
    close_log();
    check_files(&seen);
    expect_all(0, 4, generation);
}

static void no_room_for_a_segment(void **state)
{
    faults.fail_with = ENOSPC;
    faults.fail_at = 1;
    faults.stays = 1;
    assert_int_equal(put(0, 100), ONCE_E_FULL);
    assert_int_equal(once__log_failed(the.log), 0);
    heal();
    assert_int_equal(put(0, 100), ONCE_OK);
    assert_int_equal(once__log_sync(the.log), ONCE_OK);
}

static void full_disk_cannot_be_closed(void **state)
{
    seen_t seen;

    put_all(0, 4, 100);
    faults.room = 0;
    assert_int_equal(once__log_close(the.log), ONCE_E_FULL);
    the.log = NULL;
    faults.room = SIZE_MAX;
    assert_int_equal(once__segment_take_over(&the.config, 0), 1);
    check_files(&seen);
    expect_all(0, 4, 1);
}

/* A failed sync is final for the writer; the next process writes again what may not be on the disk. */
static void failed_sync(void **state)
{
    uint64_t synced;
    seen_t seen;

    put_all(0, 10, 100);
    assert_int_equal(once__log_sync(the.log), ONCE_OK);
    synced = atomic_load(&once__index_segment(the.index, 0)->synced);
    put_all(0, 10, 100);
    faults.step = 0;
    faults.fail_at = 2; /* behind the write */
    faults.fail_with = EIO;
    faults.stays = 1;
    assert_int_equal(once__log_sync(the.log), ONCE_E_IO);
    assert_true(once__log_failed(the.log));
    assert_int_equal(once__log_reserve(the.log, 100), ONCE_E_IO);
    assert_int_equal(once__log_sync(the.log), ONCE_E_IO);
    assert_int_equal(atomic_load(&once__index_segment(the.index, 0)->synced), synced);
    expect_all(0, 10, 2);
    assert_int_equal(once__segment_take_over(&the.config, 0), 0);
    heal();
    assert_int_equal(once__segment_take_over(&the.config, 0), 1);
    assert_int_equal(faults.lowest, synced);
    assert_int_equal(once__segment_take_over(&the.config, 0), 1); /* it is sealed */
    check_files(&seen);
    expect_all(0, 10, 2);
}

/* The same when the buffer has moved on since the last good sync. */
static void failed_sync_behind_the_buffer(void **state)
{
    uint64_t synced;
    seen_t seen;

    put_all(0, 10, 100);
    assert_int_equal(once__log_sync(the.log), ONCE_OK);
    synced = atomic_load(&once__index_segment(the.index, 0)->synced);
    put_all(0, 400, 1200); /* more than the buffer holds */
    assert_true(atomic_load(&buffer_of(0)->from) > synced);
    faults.step = 0;
    faults.fail_at = 2;
    faults.fail_with = EIO;
    assert_int_equal(once__log_sync(the.log), ONCE_E_IO);
    heal();
    assert_int_equal(once__segment_take_over(&the.config, 0), 1);
    assert_int_equal(faults.lowest, synced);
    check_files(&seen);
    expect_all(0, 10, 2);
    expect_all(10, 400, 1);
}

/*
 * A process is killed between a write and its sync. If that sync failed, the kernel takes the pages for written that are not: they
 * are written once more.
 */
static void killed_behind_a_write(void **state)
{
    uint64_t synced;
    seen_t seen;

    put_all(0, 10, 100);
    assert_int_equal(once__log_sync(the.log), ONCE_OK);
    synced = atomic_load(&once__index_segment(the.index, 0)->synced);
    put_all(0, 400, 1200); /* more than the buffer holds */
    assert_true(atomic_load(&buffer_of(0)->written) > synced);
    once__log_abandon(the.log);
    the.log = once__log_open(&the.config);
    heal();
    assert_int_equal(once__segment_take_over(&the.config, 0), 1);
    assert_int_equal(faults.lowest, synced);
    check_files(&seen);
    expect_all(0, 10, 2);
    expect_all(10, 400, 1);
}

/* The disk fails at each step of closing and of taking over: the next attempt ends it. */
static void taking_over_fails_at_every_step(void **state)
{
    for (unsigned at = 1; at < 8; at++) {
        seen_t seen;
        put_all(0, 20, 200);
        assert_int_equal(once__log_sync(the.log), ONCE_OK);
        put_all(0, 20, 200);
        once__log_abandon(the.log);
        the.log = NULL;
        faults.step = 0;
        faults.fail_at = at;
        faults.fail_with = EIO;
        for (uint32_t slot = 0; slot < once__index_slot_end(the.index); slot++) {
            (void)once__segment_take_over(&the.config, slot);
        }
        expect_all(0, 20, 2 * at);
        heal();
        for (uint32_t slot = 0; slot < once__index_slot_end(the.index); slot++) {
            assert_int_equal(once__segment_take_over(&the.config, slot), 1);
        }
        check_files(&seen);
        expect_all(0, 20, 2 * at);
        the.log = once__log_open(&the.config);
    }
}

/* ------------------------------------------------------------------------------------------------------ killed writers */

/* Killed between the frame and its entry. */
static void unentered_frame_is_entered(void **state)
{
    const writer_t dying = {the.log, the.reader, 0};
    uint32_t generation;
    seen_t seen;

    put_all(0, 2, 100);
    assert_int_equal(put_by(&dying, 1, 100, &generation), ONCE_OK);
    assert_int_equal(put_by(&dying, 2, 100, &generation), ONCE_OK);
    assert_int_equal(generation_of(1), 1);
    once__log_abandon(the.log);
    the.log = NULL;
    assert_int_equal(once__segment_take_over(&the.config, 0), 1);
    check_files(&seen);
    assert_int_equal(generation_of(1), 2);
    assert_int_equal(generation_of(2), 1);
}

/* Somebody went on without the frame that a killed writer did not enter: it must never count again. */
static void superseded_frame_is_covered(void **state)
{
    once__log_t *other = once__log_open(&the.config);
    const writer_t dying = {the.log, the.reader, 0}, living = {other, the.reader, 1};
    uint32_t generation;
    seen_t seen;

    assert_int_equal(put_by(&living, 1, 100, &generation), ONCE_OK);
    assert_int_equal(once__log_sync(other), ONCE_OK);
    assert_int_equal(put_by(&dying, 1, 100, &generation), ONCE_OK);
    assert_int_equal(put_by(&living, 1, 200, &generation), ONCE_OK);
    assert_int_equal(once__log_sync(other), ONCE_OK);
    once__log_abandon(the.log);
    the.log = NULL;
    assert_int_equal(once__log_close(other), ONCE_OK); /* takes over, too */
    check_files(&seen);
    assert_int_equal(seen.fillers, 1);
    assert_int_equal(generation_of(1), 2);
}

/* Killed behind each step that seals. */
static void sealing_is_interrupted(void **state)
{
    for (unsigned step = 0; step < 2; step++) {
        uint32_t slot;
        once__segment_t *segment;
        uint64_t last;
        seen_t seen;
        put_all(0, 5, 100);
        slot = once__log_slot(the.log);
        segment = once__index_segment(the.index, slot);
        assert_int_equal(once__log_retire(the.log), ONCE_OK);
        last = atomic_load(&segment->last);
        if (step == 1) {
            atomic_store(&segment->tail, last);
        }
        atomic_store(&segment->state, ONCE__SEGMENT_ACTIVE);
        assert_int_equal(once__segment_take_over(&the.config, slot), 1);
        assert_int_equal(atomic_load(&segment->last), last);
        check_files(&seen);
        expect_all(0, 5, step + 1);
    }
}

static void unfinished_segment_is_discarded(void **state)
{
    static const char *const suffixes[] = {"new", "log"};

    for (unsigned i = 0; i < 2; i++) {
        char name[40];
        uint32_t slot;
        uint64_t number;
        int fd;
        assert_int_equal(once__index_take_slot(the.index, &slot, &number), ONCE_OK);
        (void)snprintf(name, sizeof(name), "%016llx.%s", (unsigned long long)number, suffixes[i]);
        fd = openat(the.config.segments_fd, name, O_RDWR | O_CREAT, 0600);
        assert_int_equal(flock(fd, LOCK_EX), 0);
        assert_int_equal(once__segment_take_over(&the.config, slot), 0); /* it is being made */
        (void)close(fd);
        assert_int_equal(once__segment_take_over(&the.config, slot), 1);
        assert_int_equal(count_files(suffixes[i]), 0);
        assert_int_equal(atomic_load(&once__index_segment(the.index, slot)->state),
                         ONCE__SEGMENT_FREE);
    }
}

/* Killed before there is a file. A maker that only was slow notices, and begins anew. */
static void unfinished_slot_is_discarded(void **state)
{
    uint32_t slot;
    uint64_t number;

    assert_int_equal(once__index_take_slot(the.index, &slot, &number), ONCE_OK);
    assert_int_equal(once__segment_take_over(&the.config, slot), 1);
    assert_int_equal(atomic_load(&once__index_segment(the.index, slot)->state), ONCE__SEGMENT_FREE);
    assert_int_equal(count_files(".new"), 0);
}

/* Killed while it dropped a segment without frames: the file is gone, the slot is not free yet. */
static void half_dropped_segment_is_freed(void **state)
{
    once__segment_t *segment;
    char name[ONCE__SEGMENT_NAME];
    uint64_t number;
    uint32_t slot;

    assert_int_equal(once__log_reserve(the.log, 1000), ONCE_OK);
    slot = once__log_slot(the.log);
    segment = once__index_segment(the.index, slot);
    number = atomic_load(&segment->number);
    once__log_abandon(the.log);
    once__segment_name(name, number);
    assert_int_equal(unlinkat(the.config.segments_fd, name, 0), 0);
    assert_int_equal(once__segment_take_over(&the.config, slot), 0); /* lost, as far as is known */
    assert_int_equal(once__manifest_drop(&the.config, number), ONCE_OK);
    assert_int_equal(once__segment_take_over(&the.config, slot), 1);
    assert_int_equal(atomic_load(&segment->state), ONCE__SEGMENT_FREE);
    assert_int_equal(atomic_load(&segment->buffer), 0);
    the.log = once__log_open(&the.config);
}

static void *discard_all(void *stop)
{
    while (!atomic_load((_Atomic int *)stop)) {
        for (uint32_t slot = 0; slot < once__index_slot_end(the.index); slot++) {
            if (atomic_load(&once__index_segment(the.index, slot)->state) ==
                ONCE__SEGMENT_PREPARING) {
                (void)once__segment_take_over(&the.config, slot);
            }
        }
    }
    return NULL;
}

/* However often somebody takes a slot for a left one, the segments that are made are whole. */
static void makers_survive_being_discarded(void **state)
{
    _Atomic int stop = 0;
    pthread_t thread;
    unsigned made = 0;
    once__own_t own[100];

    assert_int_equal(pthread_create(&thread, NULL, discard_all, &stop), 0);
    while (made < 100) {
        int code = once__segment_make(&the.config, 1 << 16, NULL, 0, 0, &own[made]);
        assert_true(code == ONCE_OK || code == ONCE_E_NOREPLY);
        made += code == ONCE_OK;
    }
    atomic_store(&stop, 1);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(count_slots(ONCE__SEGMENT_ACTIVE), 100);
    assert_int_equal(count_files(".log"), 100);
    assert_int_equal(count_files(".new"), 0);
    for (unsigned i = 0; i < 100; i++) {
        const once__segment_t *segment = once__index_segment(the.index, own[i].slot);
        assert_int_equal(atomic_load(&segment->number), own[i].number);
        assert_ptr_equal(buffer_of(own[i].slot), own[i].buffer);
        once__own_release(&own[i]);
    }
}

static void living_writer_is_left_alone(void **state)
{
    put_all(0, 5, 100);
    assert_int_equal(once__segment_take_over(&the.config, 0), 0);
    put_all(0, 5, 100);
    assert_int_equal(once__log_sync(the.log), ONCE_OK);
    expect_all(0, 5, 2);
}

/* What the children tell: the generation of each record that was durable. */
static _Atomic uint32_t *told;

static void work(unsigned seed)
{
    writer_t writer = {once__log_open(&the.config), once__reader_open(&the.config), 1};
    static const size_t lens[] = {20, 300, 900, 3000, 300000};
    struct {
        unsigned n;
        uint32_t generation;
    } batch[16];

    for (;;) {
        unsigned count = 0;
        for (unsigned i = 0; i < 1 + seed % 16; i++) {
            unsigned n = (seed >> 8) % KEYS;
            size_t len = lens[(seed >> 4) % 64 == 0 ? 4 : (seed >> 16) % 4];
            int code;
            seed = seed * 1103515245 + 12345;
            code = put_by(&writer, n, len, &batch[count].generation);
            if (code == ONCE_OK) {
                batch[count++].n = n;
            } else if (code != BUSY) {
                _exit(1);
            }
        }
        if (once__log_sync(writer.log) != ONCE_OK) {
            _exit(2);
        }
        for (unsigned i = 0; i < count; i++) {
            uint32_t before = atomic_load(&told[batch[i].n]);
            while (before < batch[i].generation &&
                   !atomic_compare_exchange_weak(&told[batch[i].n], &before, batch[i].generation)) {
            }
        }
        if (seed % 50 == 0 && once__log_retire(writer.log) != ONCE_OK) {
            _exit(3);
        }
    }
}

/* Two processes share the keys; each is killed at some point, in turn, and another one comes. */
static void writers_are_killed(void **state)
{
    pid_t children[2] = {0, 0};
    unsigned seed = (unsigned)time(NULL);
    seen_t seen;
    void *map =
        mmap(NULL, KEYS * sizeof(*told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_ptr_not_equal(map, MAP_FAILED);
    told = map;
    print_message("seed %u\n", seed);
    for (unsigned round = 0; round < 60; round++) {
        unsigned i = round % 2;
        int status;
        seed = seed * 1103515245 + 12345;
        if (children[i] != 0) {
            assert_int_equal(waitpid(children[i], &status, WNOHANG), 0); /* it did not give up */
            assert_int_equal(kill(children[i], SIGKILL), 0);
            assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        }
        children[i] = fork();
        if (children[i] == 0) {
            once__log_abandon(the.log);
            work(seed >> 4);
        }
        (void)usleep(seed >> 8 & 0x7fff);
    }
    for (unsigned i = 0; i < 2; i++) {
        int status;
        assert_int_equal(kill(children[i], SIGKILL), 0);
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
    }
    for (uint32_t slot = 0; slot < once__index_slot_end(the.index); slot++) {
        (void)once__segment_take_over(&the.config, slot);
    }
    for (unsigned n = 0; n < KEYS; n++) {
        assert_true(generation_of(n) >= atomic_load(&told[n]));
    }
    assert_true(count_slots(ONCE__SEGMENT_ACTIVE) == 0);
    print_message("generation of the first key: %u\n", generation_of(0));
    check_files(&seen);
    (void)munmap(map, KEYS * sizeof(*told));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(appends_syncs_and_reads, start, end),
        cmocka_unit_test_setup_teardown(recent_frames_are_in_memory, start, end),
        cmocka_unit_test_setup_teardown(large_buffer_goes_with_the_sync, start, end),
        cmocka_unit_test_setup_teardown(frames_of_all_sizes, start, end),
        cmocka_unit_test_setup_teardown(rolls_and_grows, start, end),
        cmocka_unit_test_setup_teardown(zeros_go_ahead, start, end),
        cmocka_unit_test_setup_teardown(limit_makes_segments_small, start, end),
        cmocka_unit_test_setup_teardown(retires_and_goes_on, start, end),
        cmocka_unit_test_setup_teardown(dropped_segment_is_gone, start, end),
        cmocka_unit_test_setup_teardown(damage_is_told, start, end),
        cmocka_unit_test_setup_teardown(leases_of_another_boot_are_over, start, end),
        cmocka_unit_test_setup_teardown(names_of_segments, start, end),
        cmocka_unit_test_setup_teardown(making_fails_at_every_step, start, end),
        cmocka_unit_test_setup_teardown(size_limit_is_no_signal, start, end),
        cmocka_unit_test_setup_teardown(existing_segment_is_not_replaced, start, end),
        cmocka_unit_test_setup_teardown(full_disk_then_room, start, end),
        cmocka_unit_test_setup_teardown(no_room_for_a_segment, start, end),
        cmocka_unit_test_setup_teardown(full_disk_cannot_be_closed, start, end),
        cmocka_unit_test_setup_teardown(failed_sync, start, end),
        cmocka_unit_test_setup_teardown(failed_sync_behind_the_buffer, start, end),
        cmocka_unit_test_setup_teardown(killed_behind_a_write, start, end),
        cmocka_unit_test_setup_teardown(taking_over_fails_at_every_step, start, end),
        cmocka_unit_test_setup_teardown(unentered_frame_is_entered, start, end),
        cmocka_unit_test_setup_teardown(superseded_frame_is_covered, start, end),
        cmocka_unit_test_setup_teardown(sealing_is_interrupted, start, end),
        cmocka_unit_test_setup_teardown(unfinished_segment_is_discarded, start, end),
        cmocka_unit_test_setup_teardown(unfinished_slot_is_discarded, start, end),
        cmocka_unit_test_setup_teardown(half_dropped_segment_is_freed, start, end),
        cmocka_unit_test_setup_teardown(makers_survive_being_discarded, start, end),
        cmocka_unit_test_setup_teardown(living_writer_is_left_alone, start, end),
        cmocka_unit_test_setup_teardown(writers_are_killed, start, end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
