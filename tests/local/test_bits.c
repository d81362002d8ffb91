/*
 * A disk that gives back other bits than it was given.
 */
#include "faulty.h"

#include "support/testing.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <once/local.h>

#include "base/bytes.h"

#define KEYS   30
#define ROUNDS 5 /* nothing, pending, failed, pending, completed */

/* Everything that was ever true of each key. */
static told_t history[KEYS][ROUNDS];

static int same(const told_t *a, const told_t *b)
{
    return a->error == b->error && a->state == b->state && a->status == b->status &&
           a->epoch == b->epoch && a->body_len == b->body_len && a->body_sum == b->body_sum;
}

static const char *name_of(unsigned key, char out[32])
{
    (void)snprintf(out, 32, "key-%u", key);
    return out;
}

/* Brings the key into its next state. */
static void advance(unsigned key, unsigned round, dice_t *dice, once_claim_t **claim)
{
    uint8_t body[2000];
    char name[32];
    told_t told;

    switch (round) {
    case 1:
    case 3:
        told = ask(the.once, name_of(key, name), NULL);
        assert_int_equal(told.outcome, ONCE_OUTCOME_RUN);
        *claim = told.claim;
        break;
    case 2:
        assert_int_equal(once_claim_release_sync(*claim, 0, once__slice("no", 2), NULL), ONCE_OK);
        break;
    case 4:
        dice_fill(key % 3 == 0 ? &(dice_t){5} : dice, body, sizeof(body)); /* some are alike */
        told = complete(*claim, 200 + (int)key, body, key % 3 == 0 ? 1500 : dice_roll(dice, 2000));
        assert_int_equal(told.outcome, ONCE_OUTCOME_DONE);
        break;
    default:
        break;
    }
}

static void make_history(void)
{
    once_claim_t *claims[KEYS];
    dice_t dice = {7};

    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned key = 0; key < KEYS; key++) {
            char name[32];
            advance(key, round, &dice, &claims[key]);
            history[key][round] = get(the.once, name_of(key, name));
        }
    }
}

typedef struct frame_at {
    uint64_t offset, end;
    uint64_t claim, template; /* that it refers to; 0: to none */
    uint8_t kind;
} frame_at_t;

/* Frames of a whole segment. */
static size_t list_frames(const uint8_t *data, size_t size, frame_at_t *frames, size_t max)
{
    once__segment_header_t header;
    once__place_t place = {0, ONCE__SEGMENT_HEADER};
    once__frame_t frame;
    size_t count = 0;

    assert_int_equal(once__segment_header_read(&header, data), ONCE_OK);
    place.segment = header.number;
    while (once__frame_read(&frame, place, data + place.offset, size - place.offset)) {
        once__completion_t completion = {0};
        assert_true(count < max);
        (void)once__completion_read(&completion, &frame, place.offset);
        frames[count].claim = completion.claim;
        frames[count].template = completion.template;
        frames[count].offset = place.offset;
        frames[count].end = place.offset + once__get32(data + place.offset);
        frames[count++].kind = frame.kind;
        place.offset += frame.size;
        if (frame.kind == ONCE__FRAME_SEALED) {
            break;
        }
    }
    return count;
}

static void flip(const char *store, unsigned segment, uint64_t bit)
{
    char path[PLACE_SIZE], name[40];
    uint8_t byte;
    int fd;

    (void)snprintf(name, sizeof(name), "segments/%08x.log", segment);
    place_join(path, store, name);
    fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, (off_t)(bit / 8)), 1);
    byte ^= (uint8_t)(1 << bit % 8);
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)(bit / 8)), 1);
    (void)close(fd);
}

static uint8_t *read_segment(unsigned segment, size_t *size)
{
    char path[PLACE_SIZE], name[40];
    struct stat st;
    uint8_t *data;
    int fd;

    (void)snprintf(name, sizeof(name), "segments/%08x.log", segment);
    place_join(path, the.store, name);
    fd = open(path, O_RDONLY);
    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    *size = (size_t)st.st_size;
    data = malloc(*size);
    assert_non_null(data);
    assert_int_equal(pread(fd, data, *size, 0), *size);
    (void)close(fd);
    return data;
}

/*
 * Opens the copy and compares: each key is as it was last, or is told to be damaged, which at most `changed` are. Nothing older:
 * who is granted a key that was completed would do it twice.
 */
static void check_copy(const char *copy, unsigned damaged, unsigned changed)
{
    once_t *once = place_open(copy, QUERY, NULL);
    once__index_stats_t stats;
    char trouble[200];
    unsigned old = 0;
    peek_t peek;

    assert_int_equal(once_store_trouble(once, trouble, sizeof(trouble)) > 0, damaged > 0);
    peek_open(&peek, copy);
    once__index_stats(peek.index, &stats);
    assert_int_equal(stats.damaged, damaged);
    assert_int_equal(place_count(copy, "quarantine", ""), damaged);
    for (unsigned key = 0; key < KEYS; key++) {
        char name[32];
        told_t told = get(once, name_of(key, name));
        int last = same(&told, &history[key][ROUNDS - 1]);
        assert_true(last || told.error == ONCE_E_CORRUPT);
        if (!last) {
            assert_int_equal(ask(once, name, NULL).error, ONCE_E_CORRUPT);
        }
        old += !last;
    }
    assert_true(old <= changed);
    peek_close(&peek);
    assert_int_equal(once_close(once, 5000), ONCE_OK);
}

static void copy_without_index(const char *copy)
{
    char path[PLACE_SIZE];

    place_copy(the.store, copy);
    place_join(path, copy, "index");
    (void)unlink(path);
}

/* What is damaged along with a frame. */
static unsigned count_references(const frame_at_t *frames, size_t count, uint64_t offset)
{
    unsigned references = 0;

    for (size_t i = 0; i < count; i++) {
        references += frames[i].claim == offset || frames[i].template == offset;
    }
    return references;
}

static const frame_at_t *most_needed(const frame_at_t *frames, size_t count)
{
    const frame_at_t *most = frames;

    for (size_t i = 0; i < count; i++) {
        if (count_references(frames, count, frames[i].offset) >
            count_references(frames, count, most->offset)) {
            most = &frames[i];
        }
    }
    return most;
}

static void test_changed_bits_are_found(void **state)
{
    static frame_at_t frames[2000];
    unsigned segments, most = 0;
    dice_t dice = {3};

    make_history();
    assert_int_equal(once_close(the.once, 5000), ONCE_OK);
    segments = place_count(the.store, "segments", ".log");
    assert_true(segments >= 1);
    for (unsigned trial = 0; trial < 150; trial++) {
        unsigned segment = trial < segments ? trial + 1 : 1 + (unsigned)dice_roll(&dice, segments);
        char copy[PLACE_SIZE];
        size_t size, count;
        uint8_t *data = read_segment(segment, &size);
        const frame_at_t *hit;
        unsigned lost;
        count = list_frames(data, size, frames, 2000);
        free(data);
        assert_true(count > 1 && frames[count - 1].kind == ONCE__FRAME_SEALED);
        hit = trial < segments ? most_needed(frames, count) : &frames[dice_roll(&dice, count - 1)];
        place_join(copy, the.base, "copy");
        copy_without_index(copy);
        flip(copy, segment, hit->offset * 8 + dice_roll(&dice, (hit->end - hit->offset) * 8));
        lost = 1 + count_references(frames, count, hit->offset);
        most = lost > most ? lost : most;
        check_copy(copy, lost, lost);
        place_remove(copy);
    }
    assert_true(most > 2); /* a template was hit, too */
    the.once = place_open(the.store, QUERY, &the.disk.hooks);
}

/* A range in which nobody can tell whose records it had: then the store does not open until somebody has decided. */
static void test_damage_to_nobody_knows_whom(void **state)
{
    static frame_at_t frames[2000];
    once_local_fsck_options_t how = ONCE_LOCAL_FSCK_OPTIONS_INIT;
    once_local_fsck_report_t report = ONCE_LOCAL_FSCK_REPORT_INIT;
    char path[PLACE_SIZE], url[PLACE_SIZE + 8];
    uint8_t zeros[2000] = {0};
    once_error_t err = {0};
    size_t size, count;
    uint8_t *data;
    once_t *once;
    int fd;

    make_history();
    assert_int_equal(once_close(the.once, 5000), ONCE_OK);
    data = read_segment(1, &size);
    count = list_frames(data, size, frames, 2000);
    free(data);
    assert_true(count > 20);
    place_join(path, the.store, "index");
    assert_int_equal(unlink(path), 0);
    place_join(path, the.store, "segments/00000001.log");
    fd = open(path, O_RDWR);
    assert_int_equal(pwrite(fd, zeros, sizeof(zeros), (off_t)frames[3].offset + 60), sizeof(zeros));
    (void)close(fd);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(place_try(the.store, QUERY, NULL, &once, &err), ONCE_E_CORRUPT);
        assert_non_null(strstr(err.text, "segment 00000001"));
        assert_non_null(strstr(err.text, "once fsck --repair"));
    }
    (void)snprintf(url, sizeof(url), "local:%s", the.store);
    how.repair = 1;
    assert_int_equal(once_local_fsck(url, &how, &report, NULL), ONCE_OK);
    assert_int_equal(report.damaged, 1);
    the.once = place_open(the.store, QUERY, &the.disk.hooks);
}

/* A response that looks like the beginnings of long frames, with `pad` bytes before the first. Too short to be compressed. */
static size_t imitate_frames(uint8_t body[1000], size_t pad)
{
    size_t at = pad;

    memset(body, 0, 1000);
    memset(body, 'x', pad);
    for (; at + ONCE__FRAME_HEADER <= 1000; at += ONCE__FRAME_HEADER) {
        once__put32(body + at, 60000);
        memset(body + at + 4, 'x', 4); /* in place of a checksum */
        body[at + 8] = ONCE__FRAME_REMOVED;
    }
    return at;
}

/* A store whose third frame has that response. Its beginning is lost; many records stand behind it. What the search makes of it. */
static once__gap_t make_imitation(const char *store, size_t pad)
{
    static frame_at_t frames[2000];
    static const uint8_t zeros[ONCE__FRAME_HEADER];
    once_t *once = place_open(store, QUERY, NULL);
    once__place_t place = {1, 0};
    char path[PLACE_SIZE];
    size_t size, count;
    uint64_t next;
    uint8_t body[1000], *data;
    once__gap_t gap;
    told_t told;
    int fd;

    told = ask(once, "imitation", "recover=hold");
    assert_int_equal(complete(told.claim, 200, body, imitate_frames(body, pad)).outcome,
                     ONCE_OUTCOME_DONE);
    for (unsigned key = 0; key < KEYS; key++) {
        char name[32];
        do_with_body(once, name_of(key, name), 201, 10);
    }
    assert_int_equal(once_close(once, 5000), ONCE_OK);
    place_join(path, store, "segments/00000001.log");
    fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    data = content_read(fd, &size);
    count = list_frames(data, size, frames, 2000);
    assert_true(count > KEYS);
    place.offset = frames[1].offset;
    memset(data + place.offset, 0, sizeof(zeros));
    assert_int_equal(pwrite(fd, zeros, sizeof(zeros), (off_t)place.offset), sizeof(zeros));
    gap = once__frame_gap(data, size, place, &next);
    free(data);
    (void)close(fd);
    place_join(path, store, "index");
    assert_int_equal(unlink(path), 0);
    return gap;
}

/* Bytes of a client that keep the search from finding what stands behind the damage: the store does not open either. */
static void test_damage_among_imitated_frames(void **state)
{
    once_local_fsck_options_t how = ONCE_LOCAL_FSCK_OPTIONS_INIT;
    once_local_fsck_report_t report = ONCE_LOCAL_FSCK_REPORT_INIT;
    unsigned unknown = 0;

    for (size_t pad = 0; pad < 8; pad++) { /* one of them has the frames where frames begin */
        char store[PLACE_SIZE], url[PLACE_SIZE + 8];
        once_error_t err = {0};
        once_t *once = NULL;
        place_join(store, the.base, "imitation");
        unknown += make_imitation(store, pad) == ONCE__GAP_UNKNOWN;
        for (int i = 0; i < 2; i++) {
            assert_int_equal(place_try(store, QUERY, NULL, &once, &err), ONCE_E_CORRUPT);
            assert_non_null(strstr(err.text, "segment 00000001"));
            assert_non_null(strstr(err.text, "once fsck --repair"));
        }
        (void)snprintf(url, sizeof(url), "local:%s", store);
        how.repair = 1;
        assert_int_equal(once_local_fsck(url, &how, &report, NULL), ONCE_OK);
        assert_int_equal(once_close(place_open(store, QUERY, NULL), 5000), ONCE_OK);
        place_remove(store);
    }
    assert_int_equal(unknown, 1);
}

/* Where nothing was written, and in the frame that seals, a bit changes nothing that anybody could miss. */
static void test_changed_bits_that_do_not_matter(void **state)
{
    static frame_at_t frames[2000];
    dice_t dice = {4};

    make_history();
    assert_int_equal(once_close(the.once, 5000), ONCE_OK);
    for (unsigned trial = 0; trial < 30; trial++) {
        char copy[PLACE_SIZE];
        size_t size, count;
        uint8_t *data = read_segment(1, &size);
        uint64_t from;
        count = list_frames(data, size, frames, 2000);
        free(data);
        from = trial % 2 ? frames[count - 1].offset : frames[count - 1].end;
        place_join(copy, the.base, "copy");
        copy_without_index(copy);
        flip(copy, 1, from * 8 + dice_roll(&dice, (trial % 2 ? 48 : size - from) * 8));
        check_copy(copy, 0, 0);
        place_remove(copy);
    }
    the.once = place_open(the.store, QUERY, &the.disk.hooks);
}

static void remove_index(void)
{
    char path[PLACE_SIZE];

    place_join(path, the.store, "index");
    assert_int_equal(unlink(path), 0);
}

/* Two records by a program that is killed, each in a batch of its own. */
static void write_and_die(void)
{
    pid_t child;
    int status;

    assert_int_equal(once_close(the.once, 5000), ONCE_OK);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        once_t *once = place_open(the.store, QUERY, NULL);
        do_with_body(once, "first", 201, 10);
        do_with_body(once, "last", 202, 10);
        (void)kill(getpid(), SIGKILL);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
}

/*
 * Damage to the last batch of a writer that was killed. It was acknowledged, and whoever took over what was left has synced
 * it: so it is not a torn tail, however much of it is gone.
 */
static void check_last_batch(void)
{
    static frame_at_t frames[10];
    char path[PLACE_SIZE];
    uint8_t *data, wrong[40];
    size_t size, count;
    int fd;

    assert_int_equal(once_close(place_open(the.store, QUERY, NULL), 5000), ONCE_OK);
    remove_index();
    data = read_segment(1, &size);
    count = list_frames(data, size, frames, 10);
    free(data);
    assert_int_equal(count, 5);
    assert_int_equal(frames[4].kind, ONCE__FRAME_SEALED);
    place_join(path, the.store, "segments/00000001.log");
    fd = open(path, O_RDWR);
    memset(wrong, 0x55, sizeof(wrong));
    assert_int_equal(pwrite(fd, wrong, sizeof(wrong), (off_t)frames[3].offset + 60), sizeof(wrong));
    (void)close(fd);
    the.once = place_open(the.store, QUERY, &the.disk.hooks);
    assert_int_equal(ask(the.once, "last", NULL).error, ONCE_E_CORRUPT);
    assert_int_equal(ask(the.once, "first", NULL).status, 201);
}

static void test_changed_bits_of_a_killed_writer(void **state)
{
    write_and_die();
    check_last_batch();
}

static void test_changed_bits_after_a_crash(void **state)
{
    write_and_die();
    remove_index(); /* as when the machine had stopped */
    check_last_batch();
}

static void test_a_changed_header_is_told(void **state)
{
    dice_t dice = {5};

    do_with_body(the.once, "key", 200, 10);
    assert_int_equal(once_close(the.once, 5000), ONCE_OK);
    for (unsigned trial = 0; trial < 20; trial++) {
        char copy[PLACE_SIZE];
        once_error_t err = {0};
        once_t *once;
        place_join(copy, the.base, "copy");
        copy_without_index(copy);
        flip(copy, 1, dice_roll(&dice, ONCE__SEGMENT_HEADER * 8));
        assert_int_equal(place_try(copy, QUERY, NULL, &once, &err), ONCE_E_CORRUPT);
        assert_non_null(strstr(err.text, "segment 00000001"));
        place_remove(copy);
    }
    the.once = place_open(the.store, QUERY, &the.disk.hooks);
}

/* While the store is in use, too: the record is neither served nor taken for unused. */
static void test_bits_that_change_meanwhile(void **state)
{
    static frame_at_t frames[10];
    /* the handle that wrote it has it in memory for a while */
    once_t *other = place_open(the.store, QUERY, NULL);
    size_t size, count;
    uint8_t *data;
    told_t told;

    do_with_body(the.once, "key", 200, 10);
    do_with_body(the.once, "sound", 201, 10);
    data = read_segment(1, &size);
    count = list_frames(data, size, frames, 10);
    free(data);
    assert_int_equal(count, 4);
    flip(the.store, 1, frames[1].offset * 8 + 800);
    told = get(other, "key");
    assert_int_equal(told.error, ONCE_E_CORRUPT);
    told = ask(other, "key", NULL);
    assert_int_equal(told.error, ONCE_E_CORRUPT);
    assert_int_equal(get(other, "sound").status, 201);
    assert_int_equal(once_close(other, 5000), ONCE_OK);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, faulty_start, faulty_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_changed_bits_are_found),          TEST(test_damage_to_nobody_knows_whom),
        TEST(test_damage_among_imitated_frames),    TEST(test_changed_bits_that_do_not_matter),
        TEST(test_changed_bits_of_a_killed_writer), TEST(test_changed_bits_after_a_crash),
        TEST(test_a_changed_header_is_told),        TEST(test_bits_that_change_meanwhile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
