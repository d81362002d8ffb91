/*
 * The index that is made from a log: which frame of a record counts, what damage does, what becomes of the ends.
 */
#include "support/testing.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/bytes.h"
#include "store/local/frame.h"
#include "store/local/directory.h"
#include "store/local/log.h"

#define SIZE ((uint64_t)64 << 10)

static const uint8_t store_id[ONCE__STORE_ID_SIZE] = "store";
static const uint8_t boot_id[ONCE__BOOT_ID_SIZE] = "boot";
static const uint8_t other_boot[ONCE__BOOT_ID_SIZE] = "before";

typedef struct place {
    char path[64];
    int fd;
    uint64_t live[16];
    size_t count;
    once__index_t *index;
    once__rebuilt_t rebuilt;
    uint64_t damaged, lost, torn; /* by what the rebuild found */
    once_error_t err;
} place_t;

/* A segment that a test writes. */
typedef struct file {
    uint8_t bytes[SIZE];
    once__segment_header_t header;
    uint64_t at;
    uint64_t last; /* frame */
} file_t;

static uint8_t *id_of(unsigned n)
{
    static uint8_t id[ONCE_ID_SIZE];

    memset(id, 0, sizeof(id));
    once__put64(id, (uint64_t)(n + 1) * 0x9e3779b97f4a7c15u);
    once__put64(id + 8, (uint64_t)(n + 1) * 0xc2b2ae3d27d4eb4fu);
    return id;
}

static once__record_t make_record(unsigned n, once_state_t state)
{
    once__record_t record = {.head = {.schema = ONCE__SCHEMA,
                                      .state = (uint8_t)state,
                                      .claim = {.epoch = 1},
                                      .lease_until = 2000,
                                      .lease_ms = 1000,
                                      .changed = 1000,
                                      .ttl_ms = 5000,
                                      .created = 1000},
                             .key = "key",
                             .key_len = 3};

    memcpy(record.id, id_of(n), ONCE_ID_SIZE);
    if (state == ONCE_STATE_COMPLETED) {
        record.head.expires = 6000;
        record.payload =
            (once__payload_t){ONCE__PAYLOAD_RESPONSE, 200, (const uint8_t *)"response", 8};
    }
    return record;
}

static void begin(file_t *file, uint64_t number, const uint8_t *boot)
{
    memset(file, 0, sizeof(*file));
    file->header = (once__segment_header_t){
        .number = number, .word = number * 77, .size = SIZE, .created = 500, .clock_offset = 12345};
    memcpy(file->header.boot_id, boot, ONCE__BOOT_ID_SIZE);
    memcpy(file->header.store_id, store_id, ONCE__STORE_ID_SIZE);
    once__segment_header_write(&file->header, NULL, file->bytes);
    file->at = once__segment_start(0);
}

static void add(file_t *file, uint8_t kind, unsigned n, once_state_t state, uint64_t version,
                uint64_t watermark)
{
    uint8_t body[2048];
    once__record_t record = make_record(n, state);
    once__frame_t frame = {.kind = kind,
                           .state = (uint8_t)state,
                           .version = version,
                           .watermark = watermark,
                           .body = body};

    if (kind == ONCE__FRAME_RECORD) {
        frame.len = once__pack(body, &record, NULL, &frame.flags);
    }
    if (kind != ONCE__FRAME_SEALED) {
        frame.id = id_of(n);
    }
    file->last = file->at;
    file->at += once__frame_write(file->bytes + file->at, file->header.word, file->at, &frame);
}

static void pending(file_t *file, unsigned n, uint64_t version)
{
    add(file, ONCE__FRAME_RECORD, n, ONCE_STATE_PENDING, version, 0);
}

static void completed(file_t *file, unsigned n, uint64_t version)
{
    add(file, ONCE__FRAME_RECORD, n, ONCE_STATE_COMPLETED, version, 0);
}

static void removed(file_t *file, unsigned n, uint64_t version)
{
    add(file, ONCE__FRAME_REMOVED, n, ONCE_STATE_NONE, version, 0);
}

static void save(place_t *place, file_t *file, int sealed)
{
    char name[ONCE__SEGMENT_NAME];
    uint64_t len = SIZE;
    int fd;

    if (sealed) {
        add(file, ONCE__FRAME_SEALED, 0, ONCE_STATE_NONE, 0, file->at);
        len = file->at;
    }
    once__segment_name(name, file->header.number);
    fd = openat(place->fd, name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, file->bytes, len), len);
    close(fd);
    for (size_t i = 0; i < place->count; i++) {
        if (place->live[i] == file->header.number) {
            return;
        }
    }
    place->live[place->count++] = file->header.number;
}

static void make_place(place_t *place)
{
    memset(place, 0, sizeof(*place));
    strcpy(place->path, "/tmp/once-rebuild-XXXXXX");
    assert_non_null(mkdtemp(place->path));
    place->fd = open(place->path, O_RDONLY | O_DIRECTORY);
    assert_true(place->fd >= 0);
}

static void remove_place(place_t *place)
{
    char command[128];

    once__index_close(place->index);
    close(place->fd);
    snprintf(command, sizeof(command), "rm -r %s", place->path);
    assert_int_equal(system(command), 0);
}

enum { LOOKS_ONLY = 1, ACCEPT_LOST = 2 };

static void count_found(void *data, uint64_t number, const once__walk_t *walk, int code)
{
    place_t *place = data;

    if (walk == NULL || walk->kind == ONCE__WALK_LOST) {
        place->lost++;
    } else if (walk->kind == ONCE__WALK_TORN) {
        place->torn++;
    } else {
        place->damaged++;
    }
}

static int rebuild(place_t *place, int how)
{
    once__manifest_t manifest = {.live = place->live, .live_count = place->count, .next = 1000};
    once__index_config_t where = {.store_fd = place->fd};
    once__log_config_t log = {.segments_fd = place->fd, .disk = &once__real_disk};
    once__rebuild_config_t config = {.log = &log,
                                     .threads = 2,
                                     .looks_only = how & LOOKS_ONLY,
                                     .accept_lost = (how & ACCEPT_LOST) != 0,
                                     .found = count_found,
                                     .data = place,
                                     .manifest = &manifest};

    memcpy(log.store_id, store_id, sizeof(store_id));
    memcpy(log.boot_id, boot_id, sizeof(boot_id));
    once__index_close(place->index);
    place->index = NULL;
    place->damaged = place->lost = place->torn = 0;
    memset(&place->err, 0, sizeof(place->err));
    assert_int_equal(once__index_create(&place->index, &where, NULL), ONCE_OK);
    log.index = place->index;
    return once__rebuild(&config, &place->rebuilt, &place->err);
}

/* What the index says of record n: number of the segment and state; 0: no entry. */
static uint64_t where_is(const place_t *place, unsigned n, once_state_t *state, uint64_t *offset)
{
    once__entry_t entry;

    if (!once__index_find(place->index, id_of(n), &entry)) {
        return 0;
    }
    *state = entry.state;
    *offset = entry.place.offset;
    return atomic_load(&once__index_segment(place->index, entry.place.slot)->number);
}

static void assert_is(const place_t *place, unsigned n, uint64_t number, once_state_t state)
{
    once_state_t is = ONCE_STATE_NONE;
    uint64_t offset = 0;

    assert_int_equal(where_is(place, n, &is, &offset), number);
    assert_int_equal(is, state);
}

static const once__segment_t *segment_of(const place_t *place, uint64_t number)
{
    for (uint32_t slot = 0; slot < once__index_slot_end(place->index); slot++) {
        const once__segment_t *segment = once__index_segment(place->index, slot);
        if (atomic_load(&segment->number) == number) {
            return segment;
        }
    }
    return NULL;
}

static off_t size_of(const place_t *place, uint64_t number)
{
    char name[ONCE__SEGMENT_NAME];
    struct stat st;

    once__segment_name(name, number);
    assert_int_equal(fstatat(place->fd, name, &st, 0), 0);
    return st.st_size;
}

/* ---------------------------------------------------------------------------------------------------------- which frame */

static file_t file; /* large */

static void the_highest_version_counts(void **state)
{
    place_t place;

    make_place(&place);
    begin(&file, 7, boot_id);
    pending(&file, 1, 10);
    completed(&file, 1, 30);
    pending(&file, 2, 99);
    removed(&file, 3, 50);
    pending(&file, 4, 40);
    save(&place, &file, 1);
    begin(&file, 9, boot_id);
    pending(&file, 1, 20); /* later in the log, earlier by its version */
    completed(&file, 2, 100);
    pending(&file, 3, 49);
    removed(&file, 4, 41);
    pending(&file, 5, 1);
    save(&place, &file, 1);

    assert_int_equal(rebuild(&place, 0), ONCE_OK);
    assert_is(&place, 1, 7, ONCE_STATE_COMPLETED);
    assert_is(&place, 2, 9, ONCE_STATE_COMPLETED);
    assert_is(&place, 3, 7, ONCE_STATE_NONE);
    assert_is(&place, 4, 9, ONCE_STATE_NONE);
    assert_is(&place, 5, 9, ONCE_STATE_PENDING);
    assert_is(&place, 6, 0, ONCE_STATE_NONE);
    assert_int_equal(once__index_entries(place.index), 3);
    assert_int_equal(place.rebuilt.frames, 10);
    assert_int_equal(once__index_entries(place.index), 3);
    assert_int_equal(place.rebuilt.segments, 2);
    remove_place(&place);
}

/* A removal takes the place of the frame that it says dead, with the same version. */
static void a_removal_counts_among_equals(void **state)
{
    for (int first = 0; first < 2; first++) {
        place_t place;

        make_place(&place);
        begin(&file, 1, boot_id);
        first ? removed(&file, 1, 10) : completed(&file, 1, 10);
        save(&place, &file, 1);
        begin(&file, 2, boot_id);
        first ? completed(&file, 1, 10) : removed(&file, 1, 10);
        save(&place, &file, 1);
        assert_int_equal(rebuild(&place, 0), ONCE_OK);
        assert_is(&place, 1, first ? 1 : 2, ONCE_STATE_NONE);
        remove_place(&place);
    }
}

/* The index has 91 bits of an id: what has those in common is one record. */
static void ids_are_compared_as_far_as_the_index_has_them(void **state)
{
    place_t place;
    uint8_t *id = id_of(1);

    make_place(&place);
    begin(&file, 1, boot_id);
    removed(&file, 1, 10);
    id[11] ^= 0x80;
    file.last = file.at;
    {
        once__frame_t frame = {.kind = ONCE__FRAME_REMOVED, .version = 11, .id = id};
        file.at += once__frame_write(file.bytes + file.at, file.header.word, file.at, &frame);
    }
    save(&place, &file, 1);
    assert_int_equal(rebuild(&place, 0), ONCE_OK);
    assert_is(&place, 1, 1, ONCE_STATE_NONE);
    remove_place(&place);
}

static void many_records_in_many_segments(void **state)
{
    place_t place;

    make_place(&place);
    for (unsigned segment = 1; segment <= 8; segment++) {
        begin(&file, segment, boot_id);
        for (unsigned n = 0; n < 200; n++) {
            unsigned record = n * segment % 211 + (segment % 2) * 1000;
            pending(&file, record, segment);
        }
        save(&place, &file, segment % 3 != 0);
    }
    assert_int_equal(rebuild(&place, 0), ONCE_OK);
    for (unsigned record = 0; record < 1211; record++) {
        uint64_t expected = 0;
        for (unsigned segment = 1; segment <= 8; segment++) {
            for (unsigned n = 0; n < 200; n++) {
                expected = n * segment % 211 + (segment % 2) * 1000 == record ? segment : expected;
            }
        }
        assert_is(&place, record, expected, expected != 0 ? ONCE_STATE_PENDING : ONCE_STATE_NONE);
    }
    remove_place(&place);
}

static void what_is_known_of_a_segment(void **state)
{
    const once__segment_t *segment;
    place_t place;
    uint64_t dead;

    make_place(&place);
    begin(&file, 3, other_boot);
    pending(&file, 1, 15);
    dead = file.at;
    completed(&file, 1, 20);
    completed(&file, 2, 10);
    save(&place, &file, 1);
    begin(&file, 4, boot_id);
    save(&place, &file, 0);
    assert_int_equal(rebuild(&place, 0), ONCE_OK);

    segment = segment_of(&place, 3);
    assert_int_equal(atomic_load(&segment->state), ONCE__SEGMENT_SEALED);
    assert_int_equal(segment->word, 3 * 77);
    assert_int_equal(segment->size, SIZE);
    assert_int_equal(segment->created, 500);
    assert_int_equal(segment->other_boot, 1);
    assert_int_equal(atomic_load(&segment->first_version), 10);
    assert_int_equal(atomic_load(&segment->last_version), 20);
    assert_int_equal(atomic_load(&segment->entries), 2);
    assert_true(atomic_load(&segment->synced) == UINT64_MAX);
    assert_int_equal(atomic_load(&segment->last), size_of(&place, 3) - ONCE__SEAL_ROOM);
    assert_int_equal(once__segment_live(segment, 5999), atomic_load(&segment->last) - dead);
    assert_int_equal(once__segment_live(segment, 6000), 0);

    segment = segment_of(&place, 4);
    assert_int_equal(segment->other_boot, 0);
    assert_int_equal(atomic_load(&segment->state), ONCE__SEGMENT_SEALED);
    assert_int_equal(atomic_load(&segment->last), once__segment_start(0));
    assert_int_equal(size_of(&place, 4), once__segment_start(0) + ONCE__SEAL_ROOM);

    assert_true(once__index_next_version(place.index, id_of(1), 0) > 20);
    {
        uint32_t slot;
        uint64_t number;
        assert_int_equal(once__index_take_slot(place.index, &slot, &number), ONCE_OK);
        assert_true(number >= 1000);
    }
    remove_place(&place);
}

/* --------------------------------------------------------------------------------------------------------------- damage */

static void a_damaged_body_keeps_its_key(void **state)
{
    place_t place;
    uint64_t damaged;

    make_place(&place);
    begin(&file, 1, boot_id);
    pending(&file, 1, 10);
    completed(&file, 1, 20);
    damaged = file.last;
    file.bytes[damaged + 100] ^= 1;
    completed(&file, 2, 20);
    file.bytes[file.last + 100] ^= 1;
    save(&place, &file, 1);
    begin(&file, 2, boot_id);
    completed(&file, 2, 30);
    save(&place, &file, 1);

    assert_int_equal(rebuild(&place, 0), ONCE_OK);
    assert_int_equal(place.damaged, 2);
    assert_is(&place, 1, 1, ONCE_STATE_COMPLETED);
    assert_is(&place, 2, 2, ONCE_STATE_COMPLETED);
    assert_int_equal(atomic_load(&segment_of(&place, 1)->damaged), 1);
    assert_int_equal(atomic_load(&segment_of(&place, 2)->damaged), 0);
    assert_true(once__segment_live(segment_of(&place, 1), UINT64_MAX - 1) > 0);
    remove_place(&place);
}

static void a_lost_range_is_refused(void **state)
{
    place_t place;

    make_place(&place);
    begin(&file, 0x2a, boot_id);
    pending(&file, 1, 10);
    completed(&file, 2, 20);
    file.bytes[file.last + 20] ^= 1;
    completed(&file, 3, 30);
    save(&place, &file, 1);
    assert_int_equal(rebuild(&place, 0), ONCE_E_CORRUPT);
    assert_non_null(strstr(place.err.text, "segment 000000000000002a is damaged at "));
    assert_non_null(strstr(place.err.text, "once fsck --repair"));
    assert_int_equal(rebuild(&place, LOOKS_ONLY | ACCEPT_LOST), ONCE_OK);
    assert_int_equal(place.lost, 1);
    assert_is(&place, 1, 0x2a, ONCE_STATE_PENDING);
    assert_is(&place, 2, 0, ONCE_STATE_NONE);
    assert_is(&place, 3, 0x2a, ONCE_STATE_COMPLETED);
    assert_int_equal(atomic_load(&segment_of(&place, 0x2a)->damaged), 1);
    remove_place(&place);
}

static _Atomic int told_missing;

static void on_found(void *data, uint64_t number, const once__walk_t *walk, int code)
{
    atomic_fetch_add(&told_missing, code == ONCE_E_NOT_FOUND);
}

/* Gives the bytes of a segment when the thread that has the next one knows that it is missing. */
static ssize_t late_read(void *data, int fd, void *bytes, size_t len, uint64_t offset)
{
    for (int i = 0; i < 5000 && atomic_load(&told_missing) == 0; i++) {
        (void)usleep(1000);
    }
    return pread(fd, bytes, len, (off_t)offset);
}

/* Of several segments that fail, the error names the first, whichever thread is faster. */
static void the_lowest_failure_is_named(void **state)
{
    once__disk_t disk = once__real_disk;
    place_t place;

    make_place(&place);
    begin(&file, 1, boot_id);
    completed(&file, 1, 10);
    file.bytes[file.last + 20] ^= 1;
    for (unsigned i = 2; i < 200; i++) {
        completed(&file, i, i * 10);
    }
    save(&place, &file, 1);
    place.live[place.count++] = 2;
    disk.read = late_read;
    for (int round = 0; round < 10; round++) {
        once__manifest_t manifest = {.live = place.live, .live_count = 2, .next = 3};
        once__index_config_t where = {.store_fd = place.fd};
        once__log_config_t log = {.segments_fd = place.fd, .disk = &disk};
        once__rebuild_config_t config = {
            .log = &log, .threads = 2, .found = on_found, .manifest = &manifest};
        memcpy(log.store_id, store_id, sizeof(store_id));
        atomic_store(&told_missing, 0);
        assert_int_equal(once__index_create(&log.index, &where, NULL), ONCE_OK);
        assert_int_equal(once__rebuild(&config, &place.rebuilt, &place.err), ONCE_E_CORRUPT);
        assert_non_null(strstr(place.err.text, "segment 0000000000000001 is damaged at "));
        once__index_close(log.index);
    }
    remove_place(&place);
}

static void missing_and_damaged_files(void **state)
{
    place_t place;

    make_place(&place);
    begin(&file, 1, boot_id);
    pending(&file, 1, 10);
    save(&place, &file, 1);
    place.live[place.count++] = 2;
    assert_int_equal(rebuild(&place, 0), ONCE_E_CORRUPT);
    assert_non_null(strstr(place.err.text, "segment 0000000000000002 is missing; restore it"));
    assert_int_equal(rebuild(&place, LOOKS_ONLY | ACCEPT_LOST), ONCE_OK);
    assert_int_equal(place.lost, 1);
    assert_is(&place, 1, 1, ONCE_STATE_PENDING);
    assert_null(segment_of(&place, 2));

    begin(&file, 2, boot_id);
    file.bytes[20] ^= 1;
    save(&place, &file, 1);
    assert_int_equal(rebuild(&place, 0), ONCE_E_CORRUPT);
    assert_non_null(
        strstr(place.err.text, "segment 0000000000000002 has a damaged header; restore"));

    begin(&file, 2, boot_id);
    file.bytes[7] = '9';
    save(&place, &file, 1);
    assert_int_equal(rebuild(&place, ACCEPT_LOST), ONCE_E_NEWER);
    assert_non_null(strstr(place.err.text, "written by a newer version of once; upgrade"));
    remove_place(&place);
}

/* ----------------------------------------------------------------------------------------------------------------- ends */

static void a_torn_end_is_cut_and_sealed(void **state)
{
    place_t place;
    once__image_t image = {0};
    once__log_config_t log = {.disk = &once__real_disk};
    once__walk_t walk;
    uint64_t end;
    int steps = 0;

    make_place(&place);
    begin(&file, 1, boot_id);
    pending(&file, 1, 10);
    end = file.at;
    pending(&file, 2, 11);
    file.bytes[file.last + 70] ^= 1;
    pending(&file, 3, 12);
    save(&place, &file, 0);

    assert_int_equal(rebuild(&place, LOOKS_ONLY), ONCE_OK);
    assert_int_equal(size_of(&place, 1), SIZE);
    assert_int_equal(rebuild(&place, 0), ONCE_OK);
    assert_int_equal(place.torn, 1);
    assert_is(&place, 1, 1, ONCE_STATE_PENDING);
    assert_is(&place, 2, 0, ONCE_STATE_NONE);
    assert_is(&place, 3, 0, ONCE_STATE_NONE);
    assert_int_equal(size_of(&place, 1), end + ONCE__SEAL_ROOM);
    assert_int_equal(atomic_load(&segment_of(&place, 1)->tail), end + ONCE__SEAL_ROOM);
    assert_int_equal(atomic_load(&segment_of(&place, 1)->last), end);

    memcpy(log.store_id, store_id, sizeof(store_id));
    log.segments_fd = place.fd;
    assert_int_equal(once__image_read(&image, &log, 1), ONCE_OK);
    once__walk_begin(&walk, &image, 0);
    while (once__walk_next(&walk)) {
        steps++;
    }
    assert_int_equal(steps, 2);
    assert_int_equal(walk.kind, ONCE__WALK_SEALED);
    once__image_free(&image);
    assert_int_equal(rebuild(&place, 0), ONCE_OK);
    assert_int_equal(place.torn, 0);
    remove_place(&place);
}

/* After a failed sync the kernel may take pages for written that are not: what is not covered by a watermark is written again. */
static uint64_t written_from, written_to, writes_before_sync;
static ssize_t note_write(void *data, int fd, const void *bytes, size_t len, uint64_t offset)
{
    written_from = writes_before_sync == 0 ? offset : written_from;
    written_to = writes_before_sync == 0 ? offset + len : written_to;
    writes_before_sync++;
    return pwrite(fd, bytes, len, (off_t)offset);
}

static ssize_t no_write(void *data, int fd, const void *bytes, size_t len, uint64_t offset)
{
    errno = ENOSPC;
    return -1;
}

/* Rebuilds a segment with three frames, of which the first is known to be durable, with this function for writing. */
static void rebuild_open_segment(place_t *place, once__disk_t *disk, uint64_t *second,
                                 uint64_t *end)
{
    once__manifest_t manifest = {.next = 10};
    once__index_config_t where = {.store_fd = -1};
    once__log_config_t log = {.disk = disk};
    once__rebuild_config_t config = {.log = &log, .threads = 1, .manifest = &manifest};

    make_place(place);
    begin(&file, 1, boot_id);
    pending(&file, 1, 10);
    *second = file.at;
    add(&file, ONCE__FRAME_RECORD, 2, ONCE_STATE_PENDING, 11, *second);
    pending(&file, 3, 12);
    *end = file.at;
    save(place, &file, 0);
    log.segments_fd = place->fd;
    manifest.live = place->live;
    manifest.live_count = place->count;
    memcpy(log.store_id, store_id, sizeof(store_id));
    assert_int_equal(once__index_create(&place->index, &where, NULL), ONCE_OK);
    log.index = place->index;
    assert_int_equal(once__rebuild(&config, &place->rebuilt, NULL), ONCE_OK);
}

static void the_end_is_written_again(void **state)
{
    once__disk_t disk = once__real_disk;
    place_t place;
    uint64_t second, end;

    disk.write = note_write;
    writes_before_sync = 0;
    rebuild_open_segment(&place, &disk, &second, &end);
    assert_int_equal(written_from, second);
    assert_int_equal(written_to, end);
    assert_int_equal(writes_before_sync, 2);
    remove_place(&place);
}

/* What is durable is served while the disk is full; the rest waits until a process can take the segment over. */
static void a_full_disk_leaves_the_segment_open(void **state)
{
    once__disk_t disk = once__real_disk;
    once__log_config_t log = {.disk = &once__real_disk};
    const once__segment_t *segment;
    place_t place;
    uint64_t second, end;

    disk.write = no_write;
    rebuild_open_segment(&place, &disk, &second, &end);
    assert_is(&place, 3, 1, ONCE_STATE_PENDING);
    segment = segment_of(&place, 1);
    assert_int_equal(atomic_load(&segment->state), ONCE__SEGMENT_ACTIVE);
    assert_int_equal(atomic_load(&segment->synced), second);
    assert_int_equal(atomic_load(&segment->last), once__segment_start(0));
    assert_int_equal(atomic_load(&segment->tail), end);
    log.segments_fd = place.fd;
    log.index = place.index;
    assert_int_equal(once__segment_take_over(&log, 0), 1);
    assert_int_equal(atomic_load(&segment->state), ONCE__SEGMENT_SEALED);
    assert_int_equal(size_of(&place, 1), end + ONCE__SEAL_ROOM);
    assert_int_equal(rebuild(&place, 0), ONCE_OK);
    assert_is(&place, 3, 1, ONCE_STATE_PENDING);
    remove_place(&place);
}

/* ----------------------------------------------------------------------------------------------------------------- time */

static int64_t clock_ms(clockid_t id)
{
    struct timespec now;

    clock_gettime(id, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void the_clock(void **state)
{
    int64_t before = clock_ms(CLOCK_REALTIME), ahead = before + 3600000;
    place_t place;

    make_place(&place);
    begin(&file, 3, other_boot);
    pending(&file, 1, 10);
    save(&place, &file, 1);
    assert_int_equal(rebuild(&place, 0), ONCE_OK); /* a new boot: the time of day */
    assert_true((int64_t)once__index_now(place.index) >= before);
    assert_true((int64_t)once__index_now(place.index) <= clock_ms(CLOCK_REALTIME) + 1000);

    begin(&file, 3, other_boot);
    pending(&file, 1, (uint64_t)ahead << 20);
    save(&place, &file, 1);
    assert_int_equal(rebuild(&place, 0), ONCE_OK); /* the log is ahead of that */
    assert_true((int64_t)once__index_now(place.index) > ahead);

    begin(&file, 4, boot_id);
    file.header.clock_offset = 111;
    once__segment_header_write(&file.header, NULL, file.bytes);
    save(&place, &file, 1);
    begin(&file, 6, boot_id);
    file.header.clock_offset = 222;
    once__segment_header_write(&file.header, NULL, file.bytes);
    save(&place, &file, 1);
    assert_int_equal(rebuild(&place, 0), ONCE_OK); /* this boot has a clock */
    assert_int_equal(once__index_clock(place.index), 222);
    remove_place(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_highest_version_counts),
        cmocka_unit_test(a_removal_counts_among_equals),
        cmocka_unit_test(ids_are_compared_as_far_as_the_index_has_them),
        cmocka_unit_test(many_records_in_many_segments),
        cmocka_unit_test(what_is_known_of_a_segment),
        cmocka_unit_test(a_damaged_body_keeps_its_key),
        cmocka_unit_test(a_lost_range_is_refused),
        cmocka_unit_test(the_lowest_failure_is_named),
        cmocka_unit_test(missing_and_damaged_files),
        cmocka_unit_test(a_torn_end_is_cut_and_sealed),
        cmocka_unit_test(the_end_is_written_again),
        cmocka_unit_test(a_full_disk_leaves_the_segment_open),
        cmocka_unit_test(the_clock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
