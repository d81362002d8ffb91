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
    uint64_t offset;
    uint32_t len; /* of the body */
    uint8_t kind;
} frame_at_t;

typedef struct frames {
    frame_at_t at[2000];
    size_t count;
} frames_t;

static frames_t frames;

static void note_frame(void *data, uint64_t offset, const once__frame_t *frame)
{
    assert_true(frames.count < 2000);
    frames.at[frames.count++] = (frame_at_t){offset, (uint32_t)frame->len, frame->kind};
}

static void list_frames(uint64_t segment)
{
    frames.count = 0;
    (void)place_frames(the.store, segment, note_frame, NULL);
}

/* The segments of the store, from the oldest on. */
static unsigned list_segments(uint64_t *numbers, unsigned max)
{
    unsigned count = 0;

    for (uint64_t number = 1; number < 100 && count < max; number++) {
        char path[PLACE_SIZE];
        place_segment(path, the.store, number);
        if (access(path, F_OK) == 0) {
            numbers[count++] = number;
        }
    }
    return count;
}

/*
 * Opens the copy and compares: each key is as it was last, or is reported as damaged, which at most one is. Nothing older: who is
 * granted a key that was completed would do it twice.
 */
static void check_copy(const char *copy)
{
    once_t *once = place_open(copy, QUERY, NULL);
    char trouble[200];
    unsigned other = 0;
    peek_t peek;

    assert_true(once_store_trouble(once, trouble, sizeof(trouble)) > 0);
    peek_open(&peek, copy);
    assert_int_equal(peek_damaged(&peek), 1);
    peek_close(&peek);
    for (unsigned key = 0; key < KEYS; key++) {
        char name[32];
        told_t told = get(once, name_of(key, name));
        int last = same(&told, &history[key][ROUNDS - 1]);
        assert_true(last || told.error == ONCE_E_CORRUPT);
        if (!last) {
            assert_int_equal(ask(once, name, NULL).error, ONCE_E_CORRUPT);
        }
        other += !last;
    }
    assert_true(other <= 1);
    assert_int_equal(once_close(once, 5000), ONCE_OK);
}

/* It does not open, and says which segment it is and what to do; as often as it is tried. */
static void check_refused(const char *store, uint64_t number)
{
    once_error_t err = {0};
    char name[24];
    once_t *once;

    (void)snprintf(name, sizeof(name), "%016llx", (unsigned long long)number);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(place_try(store, QUERY, NULL, &once, &err), ONCE_E_CORRUPT);
        assert_non_null(strstr(err.text, name));
        assert_non_null(strstr(err.text, "once fsck --repair"));
    }
}

/*
 * Any bit of a frame. In the body: its key answers with an error, if the frame is the newest of it. In the head, or in the frame
 * that seals: nobody can tell whose it was.
 */
static void test_changed_bits_are_found(void **state)
{
    uint64_t numbers[32];
    unsigned segments, told = 0, refused = 0;
    dice_t dice = {3};

    make_history();
    assert_int_equal(once_close(the.once, 5000), ONCE_OK);
    segments = list_segments(numbers, 32);
    assert_true(segments >= 1);
    for (unsigned trial = 0; trial < 150; trial++) {
        uint64_t number = numbers[dice_roll(&dice, segments)], bit;
        const frame_at_t *hit;
        char copy[PLACE_SIZE];
        list_frames(number);
        assert_true(frames.count > 1 && frames.at[frames.count - 1].kind == ONCE__FRAME_SEALED);
        hit = &frames.at[dice_roll(&dice, frames.count)];
        bit = hit->len > 0 && trial % 2 ? ONCE__FRAME_HEADER * 8 + dice_roll(&dice, hit->len * 8)
                                        : dice_roll(&dice, ONCE__FRAME_HEADER * 8);
        place_join(copy, the.base, "copy");
        place_copy(the.store, copy);
        place_flip(copy, number, hit->offset * 8 + bit);
        if (bit >= ONCE__FRAME_HEADER * 8) {
            check_copy(copy);
            told++;
        } else {
            check_refused(copy, number);
            refused++;
        }
        place_remove(copy);
    }
    assert_true(told > 20 && refused > 20);
    the.once = place_open(the.store, QUERY, &the.disk.hooks);
}

static void repair(const char *store)
{
    once_local_fsck_options_t how = ONCE_LOCAL_FSCK_OPTIONS_INIT;
    once_local_fsck_report_t report = ONCE_LOCAL_FSCK_REPORT_INIT;
    char url[PLACE_SIZE + 8];

    (void)snprintf(url, sizeof(url), "local:%s", store);
    how.repair = 1;
    assert_int_equal(once_local_fsck(url, &how, &report, NULL), ONCE_OK);
    assert_true(report.damaged >= 1);
}

static void overwrite(const char *store, uint64_t number, uint64_t offset, const void *bytes,
                      size_t len)
{
    char path[PLACE_SIZE];
    int fd;

    place_segment(path, store, number);
    fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, len, (off_t)offset), (ssize_t)len);
    (void)close(fd);
}

/* A range in which nobody can tell whose records it had: then the store does not open until somebody has decided. */
static void test_damage_to_nobody_knows_whom(void **state)
{
    static const uint8_t zeros[2000];

    make_history();
    assert_int_equal(once_close(the.once, 5000), ONCE_OK);
    list_frames(1);
    assert_true(frames.count > 20);
    overwrite(the.store, 1, frames.at[3].offset + 60, zeros, sizeof(zeros));
    check_refused(the.store, 1);
    repair(the.store);
    the.once = place_open(the.store, QUERY, &the.disk.hooks);
}

/* A response that looks like the beginnings of long frames, with `pad` bytes before the first. */
static size_t imitate_frames(uint8_t body[1000], size_t pad)
{
    size_t at = pad;

    memset(body, 0, 1000);
    memset(body, 'x', pad);
    for (; at + ONCE__FRAME_HEADER <= 1000; at += ONCE__FRAME_HEADER) {
        once__put32(body + at, 60000);
        memset(body + at + 4, 'x', 8); /* in place of checksums */
        body[at + 12] = ONCE__FRAME_REMOVED;
    }
    return at;
}

/* Bytes of a client that are to keep a search from finding what stands behind the damage. */
static void test_damage_among_imitated_frames(void **state)
{
    static const uint8_t zeros[ONCE__FRAME_HEADER];

    for (size_t pad = 0; pad < 8; pad++) { /* one of them has the frames where frames begin */
        char store[PLACE_SIZE];
        uint8_t body[1000];
        once_t *once;
        told_t told;
        place_join(store, the.base, "imitation");
        once = place_open(store, QUERY, NULL);
        told = ask(once, "imitation", "recover=hold");
        assert_int_equal(complete(told.claim, 200, body, imitate_frames(body, pad)).outcome,
                         ONCE_OUTCOME_DONE);
        for (unsigned key = 0; key < KEYS; key++) {
            char name[32];
            do_with_body(once, name_of(key, name), 201, 10);
        }
        assert_int_equal(once_close(once, 5000), ONCE_OK);
        frames.count = 0;
        assert_true(place_frames(store, 1, note_frame, NULL) > KEYS);
        overwrite(store, 1, frames.at[1].offset, zeros, sizeof(zeros));
        check_refused(store, 1);
        repair(store);
        assert_int_equal(once_close(place_open(store, QUERY, NULL), 5000), ONCE_OK);
        place_remove(store);
    }
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
 * Damage to the last batch of a writer that was killed. It was acknowledged, and the process that took over has synced it:
 * so it is not a torn tail, however much of it is gone.
 */
static void check_last_batch(void)
{
    uint8_t wrong[40];

    assert_int_equal(once_close(place_open(the.store, QUERY, NULL), 5000), ONCE_OK);
    list_frames(1);
    assert_int_equal(frames.count, 5);
    assert_int_equal(frames.at[4].kind, ONCE__FRAME_SEALED);
    memset(wrong, 0x55, sizeof(wrong));
    overwrite(the.store, 1, frames.at[3].offset + ONCE__FRAME_HEADER, wrong, sizeof(wrong));
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
    place_forget_index(the.store); /* as when the machine had stopped */
    check_last_batch();
}

static void test_a_changed_header_is_told(void **state)
{
    dice_t dice = {5};

    do_with_body(the.once, "key", 200, 10);
    assert_int_equal(once_close(the.once, 5000), ONCE_OK);
    for (unsigned trial = 0; trial < 40; trial++) {
        char copy[PLACE_SIZE];
        once_error_t err = {0};
        once_t *once;
        int code;
        place_join(copy, the.base, "copy");
        place_copy(the.store, copy);
        place_flip(copy, 1, dice_roll(&dice, ONCE__SEGMENT_HEADER * 8));
        code = place_try(copy, QUERY, NULL, &once, &err);
        assert_true(code == ONCE_E_CORRUPT || code == ONCE_E_NEWER);
        assert_non_null(strstr(err.text, "0000000000000001"));
        place_remove(copy);
    }
    the.once = place_open(the.store, QUERY, &the.disk.hooks);
}

/* While the store is in use, too: the record is neither served nor taken for unused. */
static void test_bits_that_change_meanwhile(void **state)
{
    once_t *other = place_open(the.store, QUERY, NULL);
    told_t told;

    do_with_body(the.once, "key", 200, 10);
    do_with_body(the.once, "sound", 201, 10);
    assert_int_equal(once_close(the.once, 5000), ONCE_OK); /* no buffer has it any more */
    list_frames(1);
    assert_int_equal(frames.count, 5);
    place_flip(the.store, 1, frames.at[1].offset * 8 + 800);
    told = get(other, "key");
    assert_int_equal(told.error, ONCE_E_CORRUPT);
    told = ask(other, "key", NULL);
    assert_int_equal(told.error, ONCE_E_CORRUPT);
    assert_int_equal(get(other, "sound").status, 201);
    assert_int_equal(once_close(other, 5000), ONCE_OK);
    the.once = place_open(the.store, QUERY, &the.disk.hooks);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, faulty_start, faulty_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_changed_bits_are_found),       TEST(test_damage_to_nobody_knows_whom),
        TEST(test_damage_among_imitated_frames), TEST(test_changed_bits_of_a_killed_writer),
        TEST(test_changed_bits_after_a_crash),   TEST(test_a_changed_header_is_told),
        TEST(test_bits_that_change_meanwhile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
