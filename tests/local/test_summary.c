/*
 * Summaries of finished segments: an index that is made from them is the index that the segments would have given, and one that
 * cannot be believed is not.
 */
#include "place.h"

#include "support/testing.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <once/local.h>

#include "base/bytes.h"
#include "store/local/crc32c.h"
#include "store/local/summary.h"

#define KEYS  150
#define QUERY "segment=64k&reap=off&renew=off"

typedef struct store {
    char base[PLACE_SIZE], path[PLACE_SIZE], segments[PLACE_SIZE];
    told_t told[KEYS];
} store_t;

static const char *name_of(int key, char out[32])
{
    (void)snprintf(out, 32, "key-%d", key);
    return out;
}

static int open_segments(const store_t *store)
{
    int fd = open(store->segments, O_RDONLY | O_DIRECTORY);

    assert_true(fd >= 0);
    return fd;
}

/* Records in every state, over several segments; some are removed again. */
static void fill(once_t *once)
{
    uint8_t body[1500];
    dice_t dice = {7};

    for (int key = 0; key < KEYS; key++) {
        char name[32];
        told_t told = ask(once, name_of(key, name), key % 5 == 1 ? "recover=hold" : "ttl=1h");
        assert_int_equal(told.outcome, ONCE_OUTCOME_RUN);
        dice_fill(&dice, body, sizeof(body));
        switch (key % 5) {
        case 0:
        case 1:
            once_claim_drop(told.claim);
            break;
        case 2:
            assert_int_equal(once_claim_release_sync(told.claim, 503, once__slice("no", 2), NULL),
                             ONCE_OK);
            break;
        default:
            assert_int_equal(complete(told.claim, 200, body, sizeof(body)).outcome,
                             ONCE_OUTCOME_DONE);
            break;
        }
        if (key % 10 == 4) {
            told = get(once, name);
            assert_int_equal(once_record_purge_sync(once, told.token, 1, NULL), ONCE_OK);
        }
    }
}

static void look_at_all(once_t *once, told_t out[KEYS])
{
    for (int key = 0; key < KEYS; key++) {
        char name[32];
        out[key] = get(once, name_of(key, name));
    }
}

static void make_summaries(const store_t *store)
{
    int fd = open_segments(store);

    for (uint32_t n = 1; n <= place_count(store->path, "segments", ".log"); n++) {
        assert_int_equal(once__summary_make(fd, n), ONCE_OK);
    }
    (void)close(fd);
}

static void make_store(store_t *store)
{
    once_t *once;

    place_make(store->base);
    place_join(store->path, store->base, "store");
    place_join(store->segments, store->path, "segments");
    once = place_open(store->path, QUERY, NULL);
    fill(once);
    look_at_all(once, store->told);
    assert_int_equal(once_close(once, 5000), ONCE_OK);
    assert_true(place_count(store->path, "segments", ".log") >= 3);
}

static void remove_index(const store_t *store)
{
    char index[PLACE_SIZE];

    place_join(index, store->path, "index");
    assert_int_equal(unlink(index), 0);
}

/* Opens it without an index: everything must be as it was. Returns how many damaged ranges were seen. */
static uint64_t check_rebuilt(const store_t *store)
{
    once__index_stats_t stats;
    told_t told[KEYS];
    once_t *once;
    peek_t peek;

    remove_index(store);
    once = place_open(store->path, QUERY, NULL);
    peek_open(&peek, store->path);
    once__index_stats(peek.index, &stats);
    peek_close(&peek);
    look_at_all(once, told);
    for (int key = 0; key < KEYS; key++) {
        const told_t *is = &told[key], *was = &store->told[key];
        assert_int_equal(is->error, was->error);
        assert_int_equal(is->state, was->state);
        assert_int_equal(is->epoch, was->epoch);
        assert_memory_equal(is->claim_id, was->claim_id, ONCE_CLAIM_ID_SIZE);
        assert_true(is->status == was->status && is->body_len == was->body_len &&
                    is->body_sum == was->body_sum);
    }
    assert_int_equal(once_close(once, 5000), ONCE_OK);
    return stats.damaged;
}

static void spoil(const store_t *store, const char *name, off_t offset)
{
    char path[PLACE_SIZE];
    uint8_t byte = 0;
    int fd;

    place_join(path, store->segments, name);
    fd = open(path, O_RDWR);
    assert_true(fd >= 0 && pread(fd, &byte, 1, offset) == 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, offset), 1);
    (void)close(fd);
}

/* ------------------------------------------------------------------------------------------------------------ rebuilding */

/* Where the claim of key-2 is, which was released: the first frame of a record that has another one, and is not completed. */
static off_t released_claim(const store_t *store)
{
    static uint8_t data[65536];
    once__place_t place = {1, ONCE__SEGMENT_HEADER};
    once__frame_t frame, next;
    char path[PLACE_SIZE];
    int fd;

    place_join(path, store->segments, "00000001.log");
    fd = open(path, O_RDONLY);
    assert_true(fd >= 0 && read(fd, data, sizeof(data)) > 0);
    (void)close(fd);
    while (once__frame_read(&frame, place, data + place.offset, sizeof(data) - place.offset)) {
        once__place_t behind = {1, place.offset + frame.size};
        if (once__frame_read(&next, behind, data + behind.offset, sizeof(data) - behind.offset) &&
            memcmp(frame.id, next.id, ONCE_ID_SIZE) == 0 && next.kind == ONCE__FRAME_RECORD) {
            return (off_t)place.offset;
        }
        place = behind;
    }
    fail_msg("no claim was released");
    return 0;
}

/* Damage in a frame that no longer counts is seen by whoever reads the segment, and only by him. */
static void test_segments_are_not_read(void **state)
{
    store_t store;

    make_store(&store);
    assert_int_equal(check_rebuilt(&store), 0);
    make_summaries(&store);
    assert_int_equal(check_rebuilt(&store), 0);
    spoil(&store, "00000001.log", released_claim(&store) + 20);
    assert_int_equal(check_rebuilt(&store), 0);
    assert_int_equal(unlink(strcat(store.segments, "/00000001.sum")), 0);
    remove_index(&store);
    assert_int_equal(once_close(place_open(store.path, QUERY, NULL), 5000), ONCE_OK);
    assert_true(place_count(store.path, "quarantine", "") > 0);
    place_remove(store.base);
}

static void test_spoilt_summaries_are_ignored(void **state)
{
    dice_t dice = {11};
    store_t store;

    make_store(&store);
    make_summaries(&store);
    for (int i = 0; i < 120; i++) {
        char path[PLACE_SIZE];
        off_t at;
        struct stat st;
        place_join(path, store.segments, i % 2 == 0 ? "00000001.sum" : "00000002.sum");
        assert_int_equal(stat(path, &st), 0);
        at = i < ONCE__SUMMARY_HEADER ? i : (off_t)dice_roll(&dice, (uint64_t)st.st_size);
        if (i == 100) {
            assert_int_equal(truncate(path, st.st_size / 2), 0);
            (void)check_rebuilt(&store);
            break;
        }
        spoil(&store, i % 2 == 0 ? "00000001.sum" : "00000002.sum", at);
        assert_int_equal(check_rebuilt(&store), 0);
        spoil(&store, i % 2 == 0 ? "00000001.sum" : "00000002.sum", at);
    }
    place_remove(store.base);
}

/* Made too early: the segment has more frames by now. */
static void test_old_summaries_are_ignored(void **state)
{
    store_t store;
    once_t *once;
    int fd;

    place_make(store.base);
    place_join(store.path, store.base, "store");
    place_join(store.segments, store.path, "segments");
    once = place_open(store.path, "reap=off&renew=off", NULL);
    assert_int_equal(ask(once, "early", NULL).outcome, ONCE_OUTCOME_RUN);
    fd = open_segments(&store);
    assert_int_equal(once__summary_make(fd, 1), ONCE_OK);
    (void)close(fd);
    fill(once);
    look_at_all(once, store.told);
    (void)once_close(once, 0);
    assert_int_equal(check_rebuilt(&store), 0);
    place_remove(store.base);
}

/* Of another segment that has the same number: as after a backup was put back. */
static void test_foreign_summaries_are_ignored(void **state)
{
    char from[PLACE_SIZE], to[PLACE_SIZE];
    store_t store, other;

    make_store(&store);
    make_store(&other);
    make_summaries(&other);
    place_join(from, other.segments, "00000001.sum");
    place_join(to, store.segments, "00000001.sum");
    assert_int_equal(rename(from, to), 0);
    assert_int_equal(check_rebuilt(&store), 0);
    place_remove(store.base);
    place_remove(other.base);
}

/* Who was killed while he made one leaves a file that nobody wants; so does who made one of a segment that went meanwhile. */
static void test_leftovers_go(void **state)
{
    char path[PLACE_SIZE];
    store_t store;

    make_store(&store);
    make_summaries(&store);
    place_join(path, store.segments, "00000002-sum.new");
    (void)close(open(path, O_CREAT | O_WRONLY, 0600));
    place_join(path, store.segments, "00000777.sum");
    (void)close(open(path, O_CREAT | O_WRONLY, 0600));
    assert_int_equal(check_rebuilt(&store), 0);
    assert_int_equal(place_count(store.path, "segments", ".new"), 0);
    assert_int_equal(place_count(store.path, "segments", ".sum"),
                     place_count(store.path, "segments", ".log"));
    place_remove(store.base);
}

/* ------------------------------------------------------------------------------------------------- from birth to death */

static void test_reaping_makes_and_removes_them(void **state)
{
    store_t store;
    once_t *once;
    peek_t peek;

    make_store(&store);
    once = place_open(store.path, QUERY, NULL);
    assert_int_equal(reap(once, NULL), ONCE_OK);
    while (place_count(store.path, "segments", ".sum") < 2) { /* made aside, some time after that */
        assert_true(once_wait(once, 5) >= 0);
    }
    assert_int_equal(once_close(once, 5000), ONCE_OK);

    once = place_open(store.path, QUERY, NULL);
    peek_open(&peek, store.path);
    once__index_start_clock(peek.index, once__index_now(peek.index) + 48u * 3600 * 1000);
    assert_int_equal(reap(once, NULL), ONCE_OK);
    assert_int_equal(reap(once, NULL), ONCE_OK);
    peek_close(&peek);
    assert_int_equal(once_close(once, 5000), ONCE_OK);
    assert_true(place_count(store.path, "segments", ".sum") <=
                place_count(store.path, "segments", ".log"));
    assert_true(place_count(store.path, "segments", ".log") <= 2);
    place_remove(store.base);
}

static void test_a_damaged_segment_gets_none(void **state)
{
    store_t store;
    int fd;

    make_store(&store);
    spoil(&store, "00000001.log", 1000);
    fd = open_segments(&store);
    assert_int_equal(once__summary_make(fd, 1), ONCE_E_CORRUPT);
    (void)close(fd);
    assert_int_equal(place_count(store.path, "segments", ".sum"), 0);
    assert_int_equal(place_count(store.path, "segments", ".new"), 0);
    place_remove(store.base);
}

/* ---------------------------------------------------------------------------------------------------------------- fsck */

typedef struct findings {
    unsigned summaries, harmful;
} findings_t;

static void found(const once_local_finding_t *finding, void *data)
{
    findings_t *findings = data;

    findings->summaries += strcmp(finding->kind, "summary") == 0;
    findings->harmful += !finding->harmless;
}

static findings_t fsck(const store_t *store, int repair)
{
    once_local_fsck_options_t how = ONCE_LOCAL_FSCK_OPTIONS_INIT;
    once_local_fsck_report_t report = ONCE_LOCAL_FSCK_REPORT_INIT;
    findings_t findings = {0, 0};
    char url[PLACE_SIZE + 8];

    (void)snprintf(url, sizeof(url), "local:%s", store->path);
    how.found = found;
    how.data = &findings;
    how.repair = repair;
    assert_int_equal(once_local_fsck(url, &how, &report, NULL), ONCE_OK);
    assert_true(!repair || report.left == 0);
    return findings;
}

/* The last entry is missing, and the sum is right: nothing but the segment itself shows it. */
static void forget_one(const store_t *store, const char *name)
{
    char path[PLACE_SIZE];
    uint8_t bytes[65536];
    ssize_t size;
    int fd;

    place_join(path, store->segments, name);
    fd = open(path, O_RDWR);
    size = read(fd, bytes, sizeof(bytes)) - ONCE__SUMMARY_ENTRY;
    assert_true(fd >= 0 && size > ONCE__SUMMARY_HEADER);
    once__put32(bytes + 20, once__get32(bytes + 20) - 1);
    once__put32(bytes + 12, 0);
    once__put32(bytes + 12, once__crc32c(0, bytes, (size_t)size));
    assert_int_equal(pwrite(fd, bytes, (size_t)size, 0), size);
    assert_int_equal(ftruncate(fd, size), 0);
    (void)close(fd);
}

static void test_fsck(void **state)
{
    findings_t findings;
    store_t store;

    make_store(&store);
    make_summaries(&store);
    findings = fsck(&store, 0);
    assert_true(findings.summaries == 0 && findings.harmful == 0);

    spoil(&store, "00000002.sum", 70);
    findings = fsck(&store, 0);
    assert_true(findings.summaries == 1 && findings.harmful == 0);
    spoil(&store, "00000002.sum", 70);

    forget_one(&store, "00000001.sum");
    findings = fsck(&store, 0);
    assert_true(findings.summaries == 1 && findings.harmful == 1);
    findings = fsck(&store, 1);
    assert_true(findings.summaries == 1 && findings.harmful == 1);
    findings = fsck(&store, 0);
    assert_true(findings.summaries == 0 && findings.harmful == 0);
    assert_int_equal(check_rebuilt(&store), 0);
    place_remove(store.base);
}

/* ------------------------------------------------------------------------------------------------------------- parsing */

static void test_anything_can_be_parsed(void **state)
{
    dice_t dice = {3};
    uint8_t bytes[ONCE__SUMMARY_HEADER + 5 * ONCE__SUMMARY_ENTRY];

    for (unsigned i = 0; i < 20000; i++) {
        once__summary_t summary = {.bytes = bytes, .size = dice_roll(&dice, sizeof(bytes) + 1)};
        dice_fill(&dice, bytes, sizeof(bytes));
        memcpy(bytes, "ONCESUM1", 8);
        once__put32(bytes + 8, 1);
        once__put32(bytes + 20, (uint32_t)dice_roll(&dice, 7));
        once__put64(bytes + 24, dice_roll(&dice, 1 << 20));
        if (summary.size >= ONCE__SUMMARY_HEADER) {
            once__put32(bytes + 12, 0);
            once__put32(bytes + 12, once__crc32c(0, bytes, summary.size));
        }
        if (once__summary_parse(&summary, 1)) {
            assert_int_equal(summary.size,
                             ONCE__SUMMARY_HEADER + (size_t)summary.count * ONCE__SUMMARY_ENTRY);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_segments_are_not_read),
        cmocka_unit_test(test_spoilt_summaries_are_ignored),
        cmocka_unit_test(test_old_summaries_are_ignored),
        cmocka_unit_test(test_foreign_summaries_are_ignored),
        cmocka_unit_test(test_leftovers_go),
        cmocka_unit_test(test_reaping_makes_and_removes_them),
        cmocka_unit_test(test_a_damaged_segment_gets_none),
        cmocka_unit_test(test_fsck),
        cmocka_unit_test(test_anything_can_be_parsed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
