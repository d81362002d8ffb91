/*
 * Any bytes as segments: a walk goes through all of them once, and a store made of them is opened, which makes its index, or is
 * refused. What it then has can be read and unpacked, or is said to be damaged, and opening never takes long.
 *
 * The first byte says how much of the rest is made right: nothing; the headers; or everything but what is in the frames, so that
 * the search gets past the checksums. A second one says where the first segment ends and the second begins.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/bytes.h"
#include "store/local/directory.h"
#include "store/local/log.h"

#define SIZE_MAX_TRIED 65536u
#define WORD           0x5eedu
#define SEGMENTS       2u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint8_t store_id[ONCE__STORE_ID_SIZE] = {1, 2, 3};
static char base[64], store[128];
static once__log_config_t where = {
    .segments_fd = -1, .disk = &once__real_disk, .store_id = {1, 2, 3}};

static void check(int holds)
{
    if (!holds) {
        abort();
    }
}

static void clean(void)
{
    char command[256];

    (void)snprintf(command, sizeof(command), "rm -rf %s", base);
    check(system(command) == 0);
}

static void prepare(void)
{
    static const uint64_t live[SEGMENTS] = {1, 2};
    int fd;

    if (base[0] == '\0') {
        (void)snprintf(base, sizeof(base), "%s/once-fuzz-XXXXXX",
                       access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
        check(mkdtemp(base) != NULL);
        (void)atexit(clean);
        (void)snprintf(store, sizeof(store), "%s/store", base);
        check(mkdir(store, 0700) == 0);
        fd = open(store, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        check(fd >= 0 && mkdirat(fd, "segments", 0700) == 0 &&
              once__format_write(fd, store_id) == 0);
        where.segments_fd = openat(fd, "segments", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        check(where.segments_fd >= 0);
        (void)close(fd);
    }
    check(once__manifest_write(&where, live, SEGMENTS, SEGMENTS + 1) == ONCE_OK);
}

/* --------------------------------------------------------------------------------------------------- making it right */

static uint32_t fix_header(uint8_t *bytes, uint64_t number, size_t size)
{
    once__segment_header_t header = {.number = number, .word = WORD, .size = size};
    uint8_t dictionary[64];

    header.dictionary_len = bytes[12] % sizeof(dictionary);
    if (once__segment_start(header.dictionary_len) > size) {
        header.dictionary_len = 0;
    }
    header.size += bytes[32] & 1 ? 4096 : 0; /* as if it was cut */
    header.created = once__get64(bytes + 40) % ((uint64_t)1 << 42);
    header.clock_offset = (int64_t)(once__get64(bytes + 48) % ((uint64_t)1 << 42));
    memcpy(header.boot_id, bytes + 56, sizeof(header.boot_id));
    memcpy(header.store_id, store_id, sizeof(store_id));
    memcpy(dictionary, bytes + ONCE__SEGMENT_HEADER, header.dictionary_len);
    once__segment_header_write(&header, dictionary, bytes);
    return header.dictionary_len;
}

/* Takes the bytes for frames, one behind the other, and gives them sums that fit. A length of 0 leaves a gap. */
static void fix_frames(uint8_t *bytes, uint64_t at, size_t size)
{
    while (at + ONCE__FRAME_HEADER + 8 <= size) {
        size_t len = once__get16(bytes + at) % 1024;
        uint8_t *data = bytes + at, id[ONCE_ID_SIZE], damage = data[15];
        once__frame_t frame = {
            .kind = data[12] % 8, .state = data[13], .flags = data[14] & 3, .id = id};
        int has_since = frame.flags & ONCE__FRAME_SINCE;
        if (len < ONCE__FRAME_HEADER || at + len > size) {
            at += 8;
            continue;
        }
        memcpy(id, data + 28, sizeof(id));
        frame.version = once__get64(data + 16);
        frame.since = has_since ? once__get64(data + ONCE__FRAME_HEADER) : 0;
        frame.watermark = (uint64_t)once__get32(data + 24) % (at / 8 + 1) * 8;
        frame.body = once__frame_body(data, frame.since != 0);
        if (frame.kind == ONCE__FRAME_RECORD || frame.kind == ONCE__FRAME_FILLER) {
            frame.len = len > (size_t)(frame.body - data) ? len - (size_t)(frame.body - data) : 0;
        }
        if (frame.kind == ONCE__FRAME_SEALED || frame.kind == ONCE__FRAME_FILLER) {
            frame.id = NULL;
        }
        at += once__frame_write(data, WORD, at, &frame);
        if (damage != 0 && frame.len > 0) {
            data[ONCE__FRAME_HEADER + damage % frame.len] ^= 1;
        }
    }
}

static void write_segment(uint64_t number, const uint8_t *data, size_t len, uint8_t mode)
{
    size_t size = (len + 7) / 8 * 8;
    char name[ONCE__SEGMENT_NAME];
    uint32_t dictionary_len;
    uint8_t *bytes;
    int fd;

    size = size < ONCE__SEGMENT_HEADER ? ONCE__SEGMENT_HEADER : size;
    bytes = calloc(1, size + 8);
    check(bytes != NULL);
    memcpy(bytes, data, len);
    if (mode >= 1) {
        dictionary_len = fix_header(bytes, number, size);
        if (mode >= 2) {
            fix_frames(bytes, once__segment_start(dictionary_len), size);
        }
    }
    once__segment_name(name, number);
    fd = openat(where.segments_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    size = mode == 0 ? len : size;
    check(fd >= 0 && write(fd, bytes, size) == (ssize_t)size);
    (void)close(fd);
    free(bytes);
}

/* ------------------------------------------------------------------------------------------------------------ looking */

static void check_walk(uint64_t number)
{
    once__image_t image = {0};
    once__scratch_t scratch = {0};
    once__walk_t walk = {0};
    uint64_t behind;
    int code = once__image_read(&image, &where, number);

    check(code == ONCE_OK || code == ONCE_E_CORRUPT || code == ONCE_E_NEWER);
    if (code == ONCE_OK) {
        once__walk_begin(&walk, &image, 0);
        behind = walk.end;
        while (once__walk_next(&walk)) {
            once__record_t record;
            check(walk.offset == behind && walk.end <= image.size);
            check(walk.end > walk.offset || walk.kind == ONCE__WALK_END ||
                  walk.kind == ONCE__WALK_LOST);
            behind = walk.end;
            if (walk.kind == ONCE__WALK_FRAME && walk.frame.kind == ONCE__FRAME_RECORD) {
                (void)once__unpack(&record, &walk.frame, NULL, &scratch);
            }
        }
        check(walk.kind == ONCE__WALK_SEALED || walk.end == image.size);
    }
    free(scratch.bytes);
    once__image_free(&image);
}

static void check_entry(once__reader_t *reader, const once__entry_t *entry)
{
    once__record_t record;
    once__frame_t frame;
    int code = once__reader_read(reader, entry->place, 0, &frame);

    if (code == ONCE_OK && frame.kind == ONCE__FRAME_RECORD) {
        code = once__reader_record(reader, entry->place, &frame, &record);
    }
    /* What is damaged is neither served nor taken for unused. */
    check(code == ONCE_OK || code == ONCE_E_NEWER || code == ONCE_E_CORRUPT);
    if (code != ONCE_E_CORRUPT && frame.kind == ONCE__FRAME_RECORD) {
        check(record.head.state == entry->state);
    } else if (code == ONCE_OK) {
        check(frame.kind == ONCE__FRAME_REMOVED && entry->state == ONCE_STATE_NONE);
    }
}

static void check_served(once__directory_t *directory)
{
    once__reader_t *reader = once__reader_open(&directory->log);

    check(reader != NULL);
    for (uint32_t shard = 0; shard < ONCE__SHARDS; shard++) {
        once__shard_entry_t *entries;
        size_t count;
        check(once__index_shard(directory->log.index, shard, &entries, &count) == ONCE_OK);
        for (size_t i = 0; i < count; i++) {
            check_entry(reader, &entries[i].entry);
        }
        free(entries);
    }
    once__reader_close(reader);
}

static double seconds(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    once__directory_config_t config = {.path = store,
                                       .disk = &once__real_disk,
                                       .index_directory = base,
                                       .any_filesystem = 1,
                                       .timeout_ms = 1000};
    once__directory_t directory;
    once_error_t err;
    double start;
    size_t cut;
    int code;

    if (size < 2 || size > SIZE_MAX_TRIED) {
        return 0;
    }
    prepare();
    cut = data[1] == 0 ? size - 2 : (size - 2) * data[1] / 256;
    write_segment(1, data + 2, cut, data[0] % 3);
    write_segment(2, data + 2 + cut, size - 2 - cut, data[0] % 3);
    check_walk(1);
    check_walk(2);
    start = seconds();
    code = once__directory_open(&directory, &config, &err);
    check(seconds() - start < 10);
    check(code == ONCE_OK || code == ONCE_E_CORRUPT || code == ONCE_E_NEWER);
    if (code == ONCE_OK) {
        check_served(&directory);
        once__directory_close(&directory);
    }
    return 0;
}
