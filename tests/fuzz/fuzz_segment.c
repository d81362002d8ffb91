/*
 * Any bytes as segments: a store made of them is opened, which builds its index from them, or is refused. What it then has can be
 * read and decoded, or reported as damaged, and opening never takes long.
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
#include "store/local/crc32c.h"
#include "store/local/directory.h"
#include "store/local/log.h"

#define SIZE_MAX_TRIED 65536u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char base[64], store[128];

static void check(int holds)
{
    if (!holds) {
        abort();
    }
}

static const char *join(const char *name)
{
    static char path[256];

    (void)snprintf(path, sizeof(path), "%s/%s", store, name);
    return path;
}

static void write_file(const char *name, const void *bytes, size_t size)
{
    int fd = open(join(name), O_WRONLY | O_CREAT | O_TRUNC, 0600);

    check(fd >= 0 && write(fd, bytes, size) == (ssize_t)size);
    (void)close(fd);
}

static void clean(void)
{
    char command[256];

    (void)snprintf(command, sizeof(command), "rm -rf %s", base);
    check(system(command) == 0);
}

static void prepare(void)
{
    if (base[0] == '\0') {
        (void)snprintf(base, sizeof(base), "%s/once-fuzz-XXXXXX",
                       access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
        check(mkdtemp(base) != NULL);
        (void)snprintf(store, sizeof(store), "%s/store", base);
        check(mkdir(store, 0700) == 0 && mkdir(join("segments"), 0700) == 0);
        write_file("format", "once-local 1\n", 13);
        (void)atexit(clean);
    }
    (void)unlink(join("index"));
    (void)unlink(join("lock"));
}

/* ---------------------------------------------------------------------------------------------------- making it right */

static void fix_header(uint8_t *bytes, uint32_t number, size_t size)
{
    once__segment_header_t header = {.number = number, .size = size};

    memcpy(header.boot_id, bytes + 32, sizeof(header.boot_id));
    header.created = once__get64(bytes + 24) % ((uint64_t)1 << 42);
    once__segment_header_write(&header, bytes);
}

/* Takes the bytes for frames, one behind the other, and gives them sums that fit. A length of 0 leaves a gap. */
static void fix_frames(uint8_t *bytes, uint32_t number, size_t size)
{
    uint64_t at = ONCE__SEGMENT_HEADER;

    while (at + ONCE__FRAME_HEADER <= size) {
        size_t len = once__get16(bytes + at) % 1024;
        uint8_t where[12];
        if (len < ONCE__FRAME_HEADER || at + len > size) {
            at += 8;
            continue;
        }
        once__put32(bytes + at, (uint32_t)len);
        bytes[at + 9] = bytes[at + 10] = bytes[at + 11] = 0;
        once__put32(where, number);
        once__put64(where + 4, at);
        once__put32(bytes + at + 4,
                    once__crc32c(once__crc32c(0, where, sizeof(where)), bytes + at + 8, len - 8));
        at += (len + 7) / 8 * 8;
    }
}

static void write_segment(uint32_t number, const uint8_t *data, size_t len, uint8_t mode)
{
    size_t size = (len + 7) / 8 * 8;
    uint8_t *bytes;
    char name[64];

    size = size < ONCE__SEGMENT_HEADER ? ONCE__SEGMENT_HEADER : size;
    bytes = calloc(1, size);
    check(bytes != NULL);
    memcpy(bytes, data, len);
    if (mode >= 2) {
        fix_frames(bytes, number, size);
    }
    if (mode >= 1) {
        fix_header(bytes, number, size);
    }
    (void)snprintf(name, sizeof(name), "segments/%08x.log", number);
    write_file(name, bytes, mode == 0 ? len : size);
    free(bytes);
}

/* ------------------------------------------------------------------------------------------------------------ looking */

static void check_served(once__directory_t *directory)
{
    once__log_config_t config = {.directory_fd = directory->segments_fd,
                                 .index = directory->index,
                                 .disk = &once__real_disk,
                                 .segment_size = 65536};
    once__log_t *log = once__log_open(&config);

    check(log != NULL);
    for (uint32_t shard = 0; shard < ONCE__SHARDS; shard++) {
        once__shard_entry_t *entries;
        size_t count;
        check(once__index_shard(directory->index, shard, &entries, &count) == ONCE_OK);
        for (size_t i = 0; i < count; i++) {
            once__frame_t frame;
            once__record_t record;
            int code;
            code = once__log_read(log, entries[i].entry.place, &frame);
            if (code == ONCE_OK) {
                check(frame.kind == ONCE__FRAME_RECORD);
                code = once__record_decode(&record, frame.bytes, frame.len);
            }
            if (code == ONCE_E_CORRUPT) {
                continue; /* it, or what it refers to, is damaged: it is neither served nor taken for unused */
            }
            check(code == ONCE_OK || code == ONCE_E_NEWER);
            check(record.head.state == entries[i].entry.state);
        }
        free(entries);
    }
    once__log_abandon(log);
}

static double seconds(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
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
    start = seconds();
    code = once__directory_open(&directory, store, &err);
    check(seconds() - start < 10);
    check(code == ONCE_OK || code == ONCE_E_CORRUPT || code == ONCE_E_NEWER || code == ONCE_E_IO);
    if (code == ONCE_OK) {
        check_served(&directory);
        once__directory_close(&directory);
    }
    return 0;
}
