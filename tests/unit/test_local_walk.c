#include "support/testing.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "store/local/log.h"

#define NUMBER 0xabcu
#define SIZE   ((uint64_t)64 << 10)
#define WORD   0x0123456789abcdefu
#define START  ONCE__SEGMENT_HEADER
#define LEN    100u /* of a body */
#define STEP   160u /* of a frame with that */

static char directory[] = "/tmp/once-walk-XXXXXX";
static int segments_fd = -1;
static const uint8_t store_id[ONCE__STORE_ID_SIZE] = {7, 7, 7};
static once__log_config_t config = {.disk = &once__real_disk, .store_id = {7, 7, 7}};

/* A segment that is being made. */
typedef struct draft {
    uint8_t *data;
    uint64_t size;
    uint64_t tail;
} draft_t;

static draft_t begin(uint64_t size)
{
    once__segment_header_t header = {.number = NUMBER, .word = WORD, .size = size};
    draft_t draft = {calloc(1, size), size, START};

    assert_non_null(draft.data);
    memcpy(header.store_id, store_id, sizeof(store_id));
    once__segment_header_write(&header, NULL, draft.data);
    return draft;
}

static uint64_t add(draft_t *draft, uint64_t watermark)
{
    uint8_t id[ONCE_ID_SIZE], body[LEN];
    once__frame_t frame = {.kind = ONCE__FRAME_RECORD,
                           .state = ONCE_STATE_PENDING,
                           .version = draft->tail,
                           .watermark = watermark,
                           .id = id,
                           .body = body,
                           .len = LEN};
    uint64_t offset = draft->tail;

    memset(id, (int)(offset / STEP), sizeof(id));
    memset(body, 'x', sizeof(body));
    draft->tail += once__frame_write(draft->data + offset, WORD, offset, &frame);
    return offset;
}

static void seal(draft_t *draft, int cut)
{
    once__frame_t frame = {.kind = ONCE__FRAME_SEALED, .watermark = draft->tail};

    draft->tail += once__frame_write(draft->data + draft->tail, WORD, draft->tail, &frame);
    draft->size = cut ? draft->tail : draft->size;
}

static void save(const draft_t *draft)
{
    char name[ONCE__SEGMENT_NAME];
    int fd;

    once__segment_name(name, NUMBER);
    fd = openat(segments_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, draft->data, draft->size), draft->size);
    (void)close(fd);
}

static once__image_t image;

/* Saves the draft, reads it, and walks: `expected` has a letter for each step. */
static once__walk_t walk_draft(const draft_t *draft, uint64_t synced, const char *expected)
{
    static const char letters[] = "FDLTSE";
    char found[512] = "";
    once__walk_t walk;
    size_t steps = 0;

    save(draft);
    assert_int_equal(once__image_read(&image, &config, NUMBER), ONCE_OK);
    once__walk_begin(&walk, &image, synced);
    while (once__walk_next(&walk)) {
        assert_true(steps + 1 < sizeof(found));
        assert_true(walk.end <= image.size && walk.offset <= walk.end);
        found[steps++] = letters[walk.kind];
        if (walk.kind == ONCE__WALK_FRAME || walk.kind == ONCE__WALK_DAMAGED) {
            assert_int_equal(walk.frame.version, walk.offset);
        }
    }
    assert_string_equal(found, expected);
    return walk;
}

/* The whole life of a draft. */
static once__walk_t check(draft_t *draft, uint64_t synced, const char *expected)
{
    once__walk_t walk = walk_draft(draft, synced, expected);

    free(draft->data);
    return walk;
}

static void damage(draft_t *draft, uint64_t offset)
{
    draft->data[offset] ^= 0x10;
}

#define HEAD(offset) ((offset) + 20)
#define BODY(offset) ((offset) + ONCE__FRAME_HEADER + 20)

/* ---------------------------------------------------------------------------------------------------------- reading */

static int read_again(void)
{
    return once__image_read(&image, &config, NUMBER);
}

static void test_images(void **state)
{
    draft_t draft = begin(SIZE);
    once__log_config_t other = config;
    char name[ONCE__SEGMENT_NAME], path[128];
    const uint8_t *data;

    other.store_id[0] = 8;
    save(&draft);
    assert_int_equal(read_again(), ONCE_OK);
    assert_true(image.size == SIZE && image.end == SIZE && image.header.word == WORD);
    data = image.data;
    assert_int_equal(read_again(), ONCE_OK);
    assert_ptr_equal(image.data, data); /* the same memory */
    assert_int_equal(once__image_read(&image, &other, NUMBER), ONCE_E_CORRUPT);
    assert_int_equal(once__image_read(&image, &config, NUMBER + 1), ONCE_E_NOT_FOUND);
    once__segment_name(name, NUMBER + 1);
    (void)snprintf(path, sizeof(path), "%s/%s", directory, name);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(once__image_read(&image, &config, NUMBER + 1), ONCE_E_CONFIG);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(symlinkat("/dev/zero", segments_fd, name), 0);
    assert_int_equal(once__image_read(&image, &config, NUMBER + 1), ONCE_E_CONFIG);
    assert_int_equal(unlink(path), 0);
    draft.data[7]++;
    save(&draft);
    assert_int_equal(read_again(), ONCE_E_NEWER);
    draft.data[7]--;
    draft.data[50] ^= 1;
    save(&draft);
    assert_int_equal(read_again(), ONCE_E_CORRUPT);
    assert_int_equal(image.size, SIZE);
    draft.data[50] ^= 1;
    for (draft.size = 0; draft.size < ONCE__SEGMENT_HEADER; draft.size += 61) {
        save(&draft);
        assert_int_equal(read_again(), ONCE_E_CORRUPT);
    }
    draft.data = realloc(draft.data, SIZE + 8);
    assert_non_null(draft.data);
    memset(draft.data + SIZE, 0, 8);
    draft.size = SIZE + 8;
    save(&draft);
    assert_int_equal(read_again(), ONCE_E_CORRUPT);
    free(draft.data);
}

static ssize_t failing_read(void *data, int fd, void *bytes, size_t len, uint64_t offset)
{
    if (offset >= 4096) {
        errno = EIO;
        return -1;
    }
    return pread(fd, bytes, len < 4096 - offset ? len : 4096 - offset, (off_t)offset);
}

static void test_disk_fails(void **state)
{
    once__disk_t disk = once__real_disk;
    once__log_config_t failing = config;
    draft_t draft = begin(SIZE);

    failing.disk = &disk;
    disk.read = failing_read;
    save(&draft);
    assert_int_equal(once__image_read(&image, &failing, NUMBER), ONCE_E_IO);
    free(draft.data);
}

/* Bytes of a file that was just written are in memory; reads end with the file. */
static void test_reading_without_waiting(void **state)
{
    draft_t draft = begin(SIZE);
    uint8_t *bytes = malloc(SIZE);
    char name[ONCE__SEGMENT_NAME];
    once__disk_t disk = once__real_disk;
    int fd;

    assert_non_null(bytes);
    save(&draft);
    once__segment_name(name, NUMBER);
    fd = openat(segments_fd, name, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(once__disk_read_now(&disk, fd, bytes, SIZE, 0), SIZE);
    assert_memory_equal(bytes, draft.data, SIZE);
    assert_int_equal(once__disk_read_now(&disk, fd, bytes, SIZE, SIZE - 100), 100);
    assert_int_equal(once__disk_read_now(&disk, fd, bytes, SIZE, SIZE), 0);
    assert_int_equal(once__disk_read_now(&disk, -1, bytes, SIZE, 0), -1);
    assert_int_equal(errno, EBADF);
    disk.read = failing_read;
    assert_int_equal(once__disk_read_now(&disk, fd, bytes, 4096, 0), 4096);
    assert_int_equal(once__disk_read_now(&disk, fd, bytes, 4097, 0), -1);
    assert_int_equal(errno, EIO);
    (void)close(fd);
    free(bytes);
    free(draft.data);
}

/* ---------------------------------------------------------------------------------------------------------- walking */

static void test_sound_segments(void **state)
{
    draft_t draft = begin(SIZE);
    once__walk_t walk = check(&draft, 0, "E");

    assert_int_equal(walk.offset, START);
    draft = begin(SIZE);
    (void)add(&draft, 0);
    (void)add(&draft, 0);
    walk = check(&draft, 0, "FFE");
    assert_int_equal(walk.offset, START + 2 * STEP);
    draft = begin(SIZE);
    (void)add(&draft, 0);
    seal(&draft, 0);
    (void)add(&draft, 0); /* is not looked at */
    walk = check(&draft, 0, "FS");
    assert_int_equal(walk.offset, START + STEP);
    assert_int_equal(walk.end, START + STEP + ONCE__SEAL_ROOM);
    draft = begin(SIZE);
    (void)add(&draft, 0);
    seal(&draft, 1);
    (void)check(&draft, UINT64_MAX, "FS");
    draft = begin(START + 3 * STEP);
    (void)add(&draft, 0);
    (void)add(&draft, 0);
    (void)add(&draft, 0);
    walk = check(&draft, 0, "FFFE"); /* full, and not sealed */
    assert_int_equal(walk.offset, START + 3 * STEP);
}

/* Not synced, as far as anything behind it says: it is cut, whatever follows. */
static void test_torn_ends(void **state)
{
    draft_t draft = begin(SIZE);
    uint64_t first = add(&draft, 0), second = add(&draft, START), third = add(&draft, START);
    once__walk_t walk;

    damage(&draft, HEAD(third));
    walk = walk_draft(&draft, 0, "FFT");
    assert_int_equal(walk.offset, third);
    damage(&draft, HEAD(third));
    damage(&draft, BODY(third));
    walk = walk_draft(&draft, 0, "FFT");
    damage(&draft, BODY(third));
    damage(&draft, HEAD(second));
    walk = walk_draft(&draft, 0, "FT");
    damage(&draft, HEAD(second));
    damage(&draft, BODY(second));
    walk = walk_draft(&draft, second, "FT");
    assert_int_equal(walk.offset, second);
    damage(&draft, BODY(second));
    memset(draft.data + first, 0, 2 * STEP); /* the last of three sectors alone was written */
    walk = walk_draft(&draft, 0, "T");
    memset(draft.data + third, 0, STEP);
    draft.data[SIZE - 1] = 1;
    walk = check(&draft, 0, "T");
    assert_int_equal(walk.offset, first);
}

/* A later frame says that it was synced. */
static void test_damage(void **state)
{
    draft_t draft = begin(SIZE);
    uint64_t at[6];
    once__walk_t walk;

    for (size_t i = 0; i < 6; i++) {
        at[i] = add(&draft, i < 5 ? START : at[4]);
    }
    damage(&draft, HEAD(at[1]));
    (void)walk_draft(&draft, 0, "FLFFFFE");
    damage(&draft, BODY(at[2])); /* whose it is is known */
    (void)walk_draft(&draft, 0, "FLDFFFE");
    damage(&draft, HEAD(at[3]));
    (void)walk_draft(&draft, 0, "FLDLFFE");
    damage(&draft, HEAD(at[4])); /* what is lost ends with the next frame, be that synced or not */
    (void)walk_draft(&draft, 0, "FLDLFE");
    (void)walk_draft(&draft, at[5], "FLDLFE");
    damage(&draft, HEAD(at[5])); /* nothing says that anything was synced */
    walk = walk_draft(&draft, 0, "FT");
    assert_int_equal(walk.offset, at[1]);
    walk = walk_draft(&draft, at[5], "FLDLT");
    assert_int_equal(walk.offset, at[5]);
    (void)walk_draft(&draft, UINT64_MAX, "FLDL");
    free(draft.data);
}

/* What is lost behind the last valid frame ends where the segment was synced. */
static void test_lost_end(void **state)
{
    draft_t draft = begin(SIZE);
    uint64_t first = add(&draft, 0), second = add(&draft, 0);
    once__walk_t walk;

    memset(draft.data + second, 0, STEP);
    (void)walk_draft(&draft, 0, "FE");
    walk = walk_draft(&draft, draft.tail, "FLE");
    assert_int_equal(walk.offset, second + STEP);
    memset(draft.data + first, 0, STEP);
    (void)check(&draft, draft.tail, "LE");
}

/* The frame that seals says that everything before it was synced, whatever its watermark. */
static void test_damage_before_the_seal(void **state)
{
    draft_t draft = begin(SIZE);
    uint64_t first = add(&draft, 0), second = add(&draft, 0);
    once__frame_t frame = {.kind = ONCE__FRAME_SEALED};

    (void)once__frame_write(draft.data + draft.tail, WORD, draft.tail, &frame);
    damage(&draft, HEAD(first));
    damage(&draft, BODY(second));
    (void)walk_draft(&draft, 0, "LDS");
    memset(draft.data + START, 0, 2 * STEP);
    (void)check(&draft, 0, "LS");
}

/* Only what is compressed with it is damaged. */
static void test_damaged_dictionary(void **state)
{
    once__segment_header_t header = {
        .number = NUMBER, .word = WORD, .size = SIZE, .dictionary_len = 8};
    once__frame_t frame = {.kind = ONCE__FRAME_RECORD,
                           .state = ONCE_STATE_COMPLETED,
                           .flags = ONCE__FRAME_COMPRESSED,
                           .body = store_id,
                           .len = 8};
    draft_t draft = begin(SIZE);

    memcpy(header.store_id, store_id, sizeof(store_id));
    once__segment_header_write(&header, (const uint8_t *)"12345678", draft.data);
    draft.tail = START + 8;
    (void)add(&draft, 0);
    frame.version = draft.tail;
    draft.tail += once__frame_write(draft.data + draft.tail, WORD, draft.tail, &frame);
    (void)add(&draft, 0);
    (void)walk_draft(&draft, 0, "FFFE");
    damage(&draft, START + 3);
    (void)check(&draft, 0, "FDFE");
}

/* A file is cut when it is sealed, and by nothing else. */
static void test_cut_files(void **state)
{
    draft_t draft = begin(SIZE);
    uint64_t second, sealed;
    once__walk_t walk;

    (void)add(&draft, 0);
    second = add(&draft, 0);
    sealed = draft.tail;
    seal(&draft, 1);
    (void)walk_draft(&draft, 0, "FFS");
    damage(&draft, BODY(second));
    (void)walk_draft(&draft, 0, "FDS");
    damage(&draft, BODY(second));
    memset(draft.data + sealed, 0, ONCE__SEAL_ROOM);
    walk = walk_draft(&draft, 0, "FFL");
    assert_int_equal(walk.offset, sealed);
    for (draft.size = second; draft.size < sealed; draft.size += 8) {
        walk = walk_draft(&draft, 0, "FL");
        assert_int_equal(walk.offset, second);
        assert_int_equal(walk.end, draft.size);
    }
    draft.size = sealed;
    walk = walk_draft(&draft, 0, "FFL");
    assert_int_equal(walk.offset, sealed);
    draft.size = START;
    (void)check(&draft, 0, "L");
}

/* Of a segment that is being written only what was durable before is looked at. */
static void test_end_of_what_is_looked_at(void **state)
{
    draft_t draft = begin(SIZE);
    uint64_t second;
    once__walk_t walk;

    (void)add(&draft, 0);
    second = add(&draft, 0);
    (void)add(&draft, second);
    memset(draft.data + second, 0, STEP);
    save(&draft);
    assert_int_equal(read_again(), ONCE_OK);
    for (int sealed = 0; sealed < 2; sealed++) { /* it may be sealed meanwhile */
        image.end = second;
        image.size -= sealed != 0 ? 4096 : 0;
        once__walk_begin(&walk, &image, sealed != 0 ? UINT64_MAX : second);
        assert_true(once__walk_next(&walk));
        assert_int_equal(walk.kind, ONCE__WALK_FRAME);
        assert_true(once__walk_next(&walk));
        assert_int_equal(walk.kind, ONCE__WALK_END);
        assert_int_equal(walk.offset, second);
        assert_false(once__walk_next(&walk));
    }
    image.end = 0;
    once__walk_begin(&walk, &image, 0);
    assert_true(once__walk_next(&walk));
    assert_int_equal(walk.kind, ONCE__WALK_END);
    free(draft.data);
}

/* Every second frame is damaged, and only the last one says that they were synced: each search must not begin anew. */
static void test_many_gaps_take_no_longer(void **state)
{
    draft_t draft = begin((uint64_t)16 << 20);
    clock_t start;
    once__walk_t walk;
    size_t steps = 0;

    while (draft.tail + 2 * STEP <= draft.size) {
        uint64_t offset = add(&draft, 0);
        if (offset / STEP % 2 == 0) {
            damage(&draft, HEAD(offset));
        }
    }
    (void)add(&draft, draft.tail);
    save(&draft);
    assert_int_equal(read_again(), ONCE_OK);
    start = clock();
    once__walk_begin(&walk, &image, 0);
    while (once__walk_next(&walk)) {
        steps++;
    }
    assert_int_equal(steps, (draft.tail - START) / STEP + 1);
    assert_true((double)(clock() - start) / CLOCKS_PER_SEC < 20);
    free(draft.data);
}

static int make_directory(void **state)
{
    segments_fd = mkdtemp(directory) != NULL ? open(directory, O_RDONLY | O_DIRECTORY) : -1;
    config.segments_fd = segments_fd;
    return segments_fd >= 0 ? 0 : -1;
}

static int remove_directory(void **state)
{
    char name[ONCE__SEGMENT_NAME];

    once__image_free(&image);
    once__segment_name(name, NUMBER);
    (void)unlinkat(segments_fd, name, 0);
    (void)close(segments_fd);
    return rmdir(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_images),
        cmocka_unit_test(test_disk_fails),
        cmocka_unit_test(test_reading_without_waiting),
        cmocka_unit_test(test_sound_segments),
        cmocka_unit_test(test_torn_ends),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_lost_end),
        cmocka_unit_test(test_damage_before_the_seal),
        cmocka_unit_test(test_damaged_dictionary),
        cmocka_unit_test(test_cut_files),
        cmocka_unit_test(test_end_of_what_is_looked_at),
        cmocka_unit_test(test_many_gaps_take_no_longer),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
