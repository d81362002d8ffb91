/*
 * An index that was damaged: whoever checks the store says so and lives, whatever the damage is; and so does who opens it.
 */
#include "content.h"
#include "place.h"

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
#include "store/local/index_file.h"

#define KEYS    60
#define QUERY   "segment=64k&reap=off&renew=off"
#define SECONDS 20 /* after which somebody hangs */

typedef struct store {
    char base[PLACE_SIZE], path[PLACE_SIZE], index[PLACE_SIZE];
} store_t;

static void make_store(store_t *store)
{
    once_t *once;

    place_make(store->base);
    place_join(store->path, store->base, "store");
    place_join(store->index, store->path, "index");
    once = place_open(store->path, QUERY, NULL);
    for (int key = 0; key < KEYS; key++) {
        char name[32];
        told_t told;
        (void)snprintf(name, sizeof(name), "key-%d", key);
        told = ask(once, name, NULL);
        assert_int_equal(complete(told.claim, 200, name, strlen(name)).outcome, ONCE_OUTCOME_DONE);
    }
    assert_int_equal(once_close(once, 5000), ONCE_OK);
}

static int fsck(const store_t *store, int repair, once_local_fsck_report_t *report)
{
    once_local_fsck_options_t how = ONCE_LOCAL_FSCK_OPTIONS_INIT;
    char url[PLACE_SIZE + 8];

    (void)snprintf(url, sizeof(url), "local:%s", store->path);
    how.repair = repair;
    return once_local_fsck(url, &how, report, NULL);
}

/* In a process of its own: a signal or a hang is told. Returns its exit code. */
static int in_child(const store_t *store, int (*act)(const store_t *store))
{
    pid_t child = fork();
    int status = 0;

    assert_true(child >= 0);
    if (child == 0) {
        (void)alarm(SECONDS);
        _exit(act(store));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status)) {
        fail_msg("ended by signal %d", WTERMSIG(status));
    }
    return WEXITSTATUS(status);
}

/* 0: in order, 1: problems were found, 2: it could not be checked. */
static int check(const store_t *store)
{
    once_local_fsck_report_t report = ONCE_LOCAL_FSCK_REPORT_INIT;

    if (fsck(store, 0, &report) != ONCE_OK) {
        return 2;
    }
    return report.problems > 0 || report.index != ONCE_LOCAL_INDEX_OK;
}

typedef struct count {
    int told, completed;
} count_t;

static void count_answer(once_t *once, once_answer_t *answer, void *data)
{
    count_t *count = data;
    told_t told;

    told_from(&told, answer);
    count->told++;
    count->completed += told.state == ONCE_STATE_COMPLETED;
}

/* 0: all records are there; 1: some are not, and that is told; 2: it does not open. */
static int open_and_ask(const store_t *store)
{
    once_error_t err = {0};
    count_t count = {0};
    once_t *once;

    if (place_try(store->path, QUERY, NULL, &once, &err) != ONCE_OK) {
        return 2;
    }
    (void)get(once, "nothing"); /* until the secrets are there */
    for (int key = 0; key < KEYS; key++) {
        uint8_t id[ONCE_ID_SIZE];
        char name[32];
        (void)snprintf(name, sizeof(name), "key-%d", key);
        assert_int_equal(
            once_record_id_of(once, once__slice("", 0), once__slice(name, strlen(name)), id),
            ONCE_OK);
        assert_int_equal(once_record_get(once, id, count_answer, &count), ONCE_OK);
    }
    while (count.told < KEYS) {
        assert_true(once_wait(once, 10000) >= 0);
    }
    (void)once_close(once, 5000);
    return count.completed != KEYS;
}

/* ---------------------------------------------------------------------------------------------------------- damaging */

static void write_at(const store_t *store, off_t offset, const void *bytes, size_t len)
{
    int fd = open(store->index, O_RDWR);

    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, len, offset), (ssize_t)len);
    (void)close(fd);
}

static void read_at(const store_t *store, off_t offset, void *bytes, size_t len)
{
    int fd = open(store->index, O_RDONLY);

    assert_true(fd >= 0);
    assert_int_equal(pread(fd, bytes, len, offset), (ssize_t)len);
    (void)close(fd);
}

/* The word of a shard that says where its table is. */
static void test_table_words(void **state)
{
    static const uint64_t words[] = {
        0, 1, UINT64_MAX, (uint64_t)1 << 24 | 1, 0xffffff, (uint64_t)0xffffffffff << 24 | 48};
    store_t store;

    make_store(&store);
    assert_int_equal(in_child(&store, check), 0);
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        uint32_t shard = (uint32_t)(i * 37 % ONCE__SHARDS);
        off_t at = (off_t)(offsetof(once__index_header_t, shards) + shard * sizeof(once__shard_t) +
                           offsetof(once__shard_t, table));
        uint64_t sound;
        read_at(&store, at, &sound, sizeof(sound));
        write_at(&store, at, &words[i], sizeof(words[i]));
        assert_int_equal(in_child(&store, check), 1);
        write_at(&store, at, &sound, sizeof(sound));
    }
    assert_int_equal(in_child(&store, check), 0);
    place_remove(store.base);
}

/*
 * Eight bytes anywhere in what counts; locks, too. fsck neither hangs nor crashes. Whatever the next program makes of the index
 * after a clean end, it has every record then, and time has not moved: or all of them would have expired.
 */
static void test_anywhere(void **state)
{
    const char *soak = getenv("ONCE_SOAK_SECONDS");
    int times = soak != NULL ? 3000 : 200;
    dice_t dice = {5};
    store_t store;

    make_store(&store);
    for (int i = 0; i < times; i++) {
        uint64_t size = offsetof(once__index_header_t, pages_used) / 8;
        uint64_t ring = offsetof(once__index_header_t, ring) / 8;
        off_t at = (off_t)(8 * dice_roll(&dice, i % 3 == 0 ? ring : size));
        uint64_t word = i % 4 == 0 ? 0 : i % 4 == 1 ? UINT64_MAX : dice_roll(&dice, 0) ^ dice.state;
        write_at(&store, at, &word, sizeof(word));
        (void)in_child(&store, check);
        assert_int_equal(in_child(&store, open_and_ask), 0);
    }
    assert_int_equal(in_child(&store, check), 0);
    place_remove(store.base);
}

/* After a clean end a lock that says it is held, by a process that lives, is held by nobody. */
static void test_locks_that_nobody_holds(void **state)
{
    static const uint32_t init = 1;
    store_t store;

    make_store(&store);
    write_at(&store, offsetof(once__index_header_t, grow_lock), &init, sizeof(init));
    write_at(&store, offsetof(once__index_header_t, segment_lock), &init, sizeof(init));
    for (size_t i = 0; i < ONCE__SHARDS; i++) {
        write_at(&store,
                 (off_t)(offsetof(once__index_header_t, shards) + i * sizeof(once__shard_t) +
                         offsetof(once__shard_t, lock)),
                 &init, sizeof(init));
    }
    assert_int_equal(in_child(&store, open_and_ask), 0);
    assert_int_equal(in_child(&store, check), 0);
    place_remove(store.base);
}

/* After a clean end no bit of what counts can change without being noticed: it is made anew, and no record is missing. */
static void test_a_changed_index_is_made_anew(void **state)
{
    static const size_t parts[][2] = {
        {offsetof(once__index_header_t, first_tables),
         sizeof(((once__index_header_t *)0)->first_tables)},
        {offsetof(once__index_header_t, ring) + sizeof(once__segment_info_t),
         sizeof(once__segment_info_t)},
        {offsetof(once__index_header_t, next_segment), 8},
    };
    dice_t dice = {9};
    store_t store;

    make_store(&store);
    for (int i = 0; i < 90; i++) {
        off_t at = (off_t)(parts[i % 3][0] + dice_roll(&dice, parts[i % 3][1]));
        uint8_t byte = 0;
        for (int tries = 0; i % 3 == 0 && byte == 0 && tries < 100000; tries++) {
            at = (off_t)(parts[0][0] + dice_roll(&dice, parts[0][1]));
            read_at(&store, at, &byte, 1); /* of an entry that there is */
        }
        read_at(&store, at, &byte, 1);
        byte ^= (uint8_t)(1 << dice_roll(&dice, 8));
        write_at(&store, at, &byte, 1);
        assert_int_equal(in_child(&store, open_and_ask), 0);
        assert_int_equal(in_child(&store, check), 0);
    }
    place_remove(store.base);
}

/* Nobody needs an index: without it, or with one that cannot be used, it is made anew. */
static void test_cut_short(void **state)
{
    store_t store;

    make_store(&store);
    for (off_t size = 0; size < 3 << 20; size += 400000) {
        assert_int_equal(truncate(store.index, size), 0);
        assert_int_equal(in_child(&store, check), 1);
        assert_int_equal(in_child(&store, open_and_ask), 0);
        assert_int_equal(in_child(&store, check), 0);
    }
    place_remove(store.base);
}

/* Somebody cuts it short while it is used. Whoever asks then is told that the store is away, and lives. */
static int cut_while_open(const store_t *store)
{
    once_t *once = place_open(store->path, QUERY "&store_timeout=200ms", NULL);
    told_t told = get(once, "key-1");
    int away;

    if (told.state != ONCE_STATE_COMPLETED || truncate(store->index, 4096) != 0) {
        return 1;
    }
    told = get(once, "key-1");
    away = told.error == ONCE_E_UNAVAILABLE || told.error == ONCE_E_NOREPLY;
    told = ask(once, "another", NULL);
    away = away && (told.error == ONCE_E_UNAVAILABLE || told.error == ONCE_E_NOREPLY);
    (void)once_close(once, 1000);
    return away ? 0 : 2;
}

static void test_cut_short_while_it_is_used(void **state)
{
    store_t store;

    make_store(&store);
    assert_int_equal(in_child(&store, cut_while_open), 0);
    assert_int_equal(in_child(&store, open_and_ask), 0);
    place_remove(store.base);
}

/* ------------------------------------------------------------------------------------- an index older than the log */

#define LATE 6 /* keys */

static void fill(once_t *once, unsigned from, unsigned to, size_t body_len)
{
    static uint8_t body[40000];
    dice_t dice = {from};

    for (; from < to; from++) {
        char name[32];
        told_t told;
        (void)snprintf(name, sizeof(name), "late-%u", from);
        dice_fill(&dice, body, sizeof(body)); /* so that it cannot be compressed */
        told = ask(once, name, "recover=hold");
        must(told.outcome == ONCE_OUTCOME_RUN, "run");
        must(complete(told.claim, 201, body, body_len).outcome == ONCE_OUTCOME_DONE, "done");
    }
}

static uint8_t *read_file(const char *path, size_t *size)
{
    int fd = open(path, O_RDONLY);
    uint8_t *bytes;

    must(fd >= 0, "open");
    bytes = content_read(fd, size);
    (void)close(fd);
    return bytes;
}

/* Writes, and leaves the index as it was after the first key: as when the filesystem came back without its last pages. */
static void write_and_forget(const store_t *store, size_t body_len)
{
    char copy[PLACE_SIZE];
    size_t size;
    uint8_t *bytes;
    pid_t child;
    int status;

    place_join(copy, store->base, "index-before");
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        once_t *once = place_open(store->path, QUERY, NULL);
        fill(once, 0, 1, body_len);
        bytes = read_file(store->index, &size);
        content_write(copy, bytes, size);
        fill(once, 1, LATE, body_len);
        (void)kill(getpid(), SIGKILL);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    bytes = read_file(copy, &size);
    content_write(store->index, bytes, size); /* the same file */
    free(bytes);
}

static void check_late(once_t *once)
{
    for (unsigned key = 0; key < LATE; key++) {
        char name[32];
        told_t told;
        (void)snprintf(name, sizeof(name), "late-%u", key);
        told = ask(once, name, "recover=hold");
        assert_int_equal(told.outcome, ONCE_OUTCOME_REPLAY);
        assert_int_equal(told.status, 201);
    }
}

static void check_older(size_t body_len)
{
    store_t store;
    once_t *once;
    unsigned segments;

    make_store(&store);
    write_and_forget(&store, body_len);
    segments = place_count(store.path, "segments", ".log");
    assert_true(body_len < 1000 || segments >= LATE);
    once = place_open(store.path, QUERY, NULL);
    check_late(once);
    fill(once, LATE, LATE + 1, body_len);
    check_late(once);
    assert_int_equal(place_count(store.path, "segments", ".log"), segments + 1);
    assert_int_equal(once_close(once, 5000), ONCE_OK);
    assert_int_equal(in_child(&store, check), 0);
    place_remove(store.base);
}

static void test_older_than_the_log(void **state)
{
    check_older(40000); /* each key takes more than half a segment */
}

/* The same when all of it is in the segment that was being written. */
static void test_older_than_a_segment(void **state)
{
    check_older(10);
}

/* A segment of which the index does not know appears while the store is used: none is put over it. */
static void test_a_segment_is_never_replaced(void **state)
{
    char first[PLACE_SIZE], last[PLACE_SIZE], trouble[200] = "", name[40];
    uint8_t *before, *after;
    size_t size, again;
    store_t store;
    once_t *once;

    make_store(&store);
    once = place_open(store.path, QUERY, NULL);
    assert_int_equal(get(once, "key-1").state, ONCE_STATE_COMPLETED);
    place_join(first, store.path, "segments/00000001.log");
    (void)snprintf(name, sizeof(name), "segments/%08x.log",
                   place_count(store.path, "segments", ".log") + 1);
    place_join(last, store.path, name);
    before = read_file(first, &size);
    content_write(last, before, size);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ask(once, "new", NULL).error, ONCE_E_CORRUPT);
    }
    assert_true(once_store_trouble(once, trouble, sizeof(trouble)) > 0);
    assert_non_null(strstr(trouble, "older than the log"));
    assert_int_equal(ask(once, "key-1", NULL).outcome, ONCE_OUTCOME_REPLAY);
    after = read_file(last, &again);
    assert_int_equal(again, size);
    assert_memory_equal(after, before, size);
    free(before);
    free(after);
    (void)once_close(once, 5000);
    place_remove(store.base);
}

/* One without frames is what a process left that could not sync its name. */
static void test_an_empty_segment_is_replaced(void **state)
{
    char first[PLACE_SIZE], last[PLACE_SIZE], name[40];
    uint8_t *bytes;
    store_t store;
    size_t size;
    once_t *once;
    told_t told;

    make_store(&store);
    once = place_open(store.path, QUERY, NULL);
    assert_int_equal(get(once, "key-1").state, ONCE_STATE_COMPLETED);
    place_join(first, store.path, "segments/00000001.log");
    (void)snprintf(name, sizeof(name), "segments/%08x.log",
                   place_count(store.path, "segments", ".log") + 1);
    place_join(last, store.path, name);
    bytes = read_file(first, &size);
    memset(bytes + ONCE__SEGMENT_HEADER, 0, size - ONCE__SEGMENT_HEADER);
    content_write(last, bytes, size);
    free(bytes);
    told = ask(once, "new", NULL);
    assert_int_equal(told.outcome, ONCE_OUTCOME_RUN);
    once_claim_drop(told.claim);
    assert_int_equal(once_close(once, 5000), ONCE_OK);
    assert_int_equal(in_child(&store, check), 0);
    place_remove(store.base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table_words),
        cmocka_unit_test(test_anywhere),
        cmocka_unit_test(test_locks_that_nobody_holds),
        cmocka_unit_test(test_a_changed_index_is_made_anew),
        cmocka_unit_test(test_cut_short),
        cmocka_unit_test(test_cut_short_while_it_is_used),
        cmocka_unit_test(test_older_than_the_log),
        cmocka_unit_test(test_older_than_a_segment),
        cmocka_unit_test(test_a_segment_is_never_replaced),
        cmocka_unit_test(test_an_empty_segment_is_replaced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
