/*
 * What is erased is gone from every byte of the store and of its index: frames, dictionaries, write buffers; also if the process
 * that erases is killed, and while another one writes.
 */
#include "place.h"

#include "support/testing.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <once/audit.h>
#include <once/local.h>

#include "base/bytes.h"

#define SECRETS    40 /* records that are to be erased */
#define OTHERS     400
#define PATIENCE_S 60

static const char *const canaries[] = {"CANARYkey",  "CANARYtext", "CANARYhead",
                                       "CANARYbody", "CANARYwho",  "CANARYscope"};
#define WRITTEN 4 /* the first ones are stored as they are; subject and scope only as hashes */

typedef struct test {
    char base[PLACE_SIZE], store[PLACE_SIZE], index[PLACE_SIZE], query[2 * PLACE_SIZE];
    once_t *one, *two;
} test_t;

static test_t the;

static once_t *open_one(const char *more)
{
    char query[3 * PLACE_SIZE];

    snprintf(query, sizeof(query), "%s%s", the.query, more);
    return place_open(the.store, query, NULL);
}

static int start(void **state)
{
    memset(&the, 0, sizeof(the));
    place_make(the.base);
    place_join(the.store, the.base, "store");
    place_join(the.index, the.base, "index"); /* so that it is searched, too */
    assert_int_equal(mkdir(the.index, 0700), 0);
    snprintf(the.query, sizeof(the.query), "segment=64k&renew=off&index=%s", the.index);
    return 0;
}

static void close_all(void)
{
    if (the.one != NULL) {
        assert_int_equal(once_close(the.one, 30000), ONCE_OK);
    }
    if (the.two != NULL) {
        assert_int_equal(once_close(the.two, 30000), ONCE_OK);
    }
    the.one = the.two = NULL;
}

static int end(void **state)
{
    close_all();
    place_remove(the.base);
    return 0;
}

/* --------------------------------------------------------------------------------------------------------- searching */

/* Bits of the canaries that the file has. */
static unsigned search_file(int directory, const char *name)
{
    int fd = openat(directory, name, O_RDONLY | O_CLOEXEC);
    struct stat st;
    uint8_t *bytes;
    ssize_t len;
    unsigned found = 0;

    if (fd < 0) {
        return 0; /* a segment that has just been dropped */
    }
    assert_int_equal(fstat(fd, &st), 0);
    bytes = malloc((size_t)st.st_size + 1);
    assert_non_null(bytes);
    len = read(fd, bytes, (size_t)st.st_size);
    assert_true(len >= 0);
    for (unsigned i = 0; i < sizeof(canaries) / sizeof(canaries[0]); i++) {
        if (memmem(bytes, (size_t)len, canaries[i], strlen(canaries[i])) != NULL) {
            found |= 1u << i;
        }
    }
    free(bytes);
    (void)close(fd);
    return found;
}

static unsigned search(const char *path)
{
    DIR *list = opendir(path);
    unsigned found = 0;
    struct dirent *item;

    assert_non_null(list);
    while ((item = readdir(list)) != NULL) {
        char below[2 * PLACE_SIZE];
        struct stat st;
        if (item->d_name[0] == '.' || fstatat(dirfd(list), item->d_name, &st, 0) != 0) {
            continue;
        }
        snprintf(below, sizeof(below), "%s/%s", path, item->d_name);
        found |= S_ISDIR(st.st_mode) ? search(below) : search_file(dirfd(list), item->d_name);
    }
    (void)closedir(list);
    return found;
}

static void assert_gone(void)
{
    assert_int_equal(search(the.base), 0);
}

/* ------------------------------------------------------------------------------------------------------------ records */

typedef struct names {
    char key[64], body[512];
} names_t;

static names_t names_of(int is_secret, unsigned number)
{
    names_t names;

    snprintf(names.key, sizeof(names.key), "%s-%u", is_secret ? canaries[0] : "neighbour", number);
    snprintf(names.body, sizeof(names.body),
             "{\"id\":\"%08x\",\"name\":\"%s\",\"currency\":\"EUR\",\"status\":\"accepted\","
             "\"links\":{\"self\":\"/v1/payments/%08x\"},\"amount\":%u}",
             number * 2654435761u, is_secret ? canaries[3] : "somebody", number * 40503u, number);
    return names;
}

static once_answer_t *begin(once_t *once, int is_secret, unsigned number, once_outcome_t outcome)
{
    names_t names = names_of(is_secret, number);
    once_ask_t asked = ONCE_ASK_INIT;
    once_answer_t *answer;

    asked.scope = once__slice_of(is_secret ? canaries[5] : "scope");
    asked.key = once__slice_of(names.key);
    asked.method = once__slice_of("POST");
    asked.target = once__slice_of("/payments");
    asked.description = once__slice_of(is_secret ? canaries[1] : "POST /payments");
    asked.subject = once__slice_of(is_secret ? canaries[4] : "");
    assert_int_equal(once_begin_sync(once, &asked, &answer), ONCE_OK);
    assert_int_equal(once_answer_outcome(answer), outcome);
    return answer;
}

static void make(once_t *once, int is_secret, unsigned number)
{
    names_t names = names_of(is_secret, number);
    once_header_t header = {once__slice_of("X-Name"),
                            once__slice_of(is_secret ? canaries[2] : "somebody")};
    once_response_t response = ONCE_RESPONSE_INIT;
    once_answer_t *answer = begin(once, is_secret, number, ONCE_OUTCOME_RUN);

    response.status = 202;
    response.headers = &header;
    response.header_count = 1;
    response.body = once__slice_of(names.body);
    assert_int_equal(once_claim_complete_sync(once_answer_take_claim(answer), &response, NULL),
                     ONCE_OK);
    once_answer_free(answer);
}

/* Those to be erased are among others, so that some of them are in dictionaries. */
static void make_some(once_t *once, unsigned from, unsigned count, unsigned secrets)
{
    for (unsigned i = 0; i < count; i++) {
        make(once, 0, from + i);
        if (secrets > 0 && i % (count / secrets) == 0 && i / (count / secrets) < secrets) {
            make(once, 1, from + i);
        }
    }
}

static void check_replay(once_t *once, int is_secret, unsigned number)
{
    names_t names = names_of(is_secret, number);
    once_answer_t *answer = begin(once, is_secret, number, ONCE_OUTCOME_REPLAY);
    once_response_t response = ONCE_RESPONSE_INIT;

    assert_int_equal(once_record_response(once_answer_record(answer), &response), ONCE_OK);
    assert_int_equal(response.status, 202);
    assert_int_equal(response.body_omitted, is_secret ? ONCE_BODY_ERASED : 0);
    assert_int_equal(response.body.len, is_secret ? 0 : strlen(names.body));
    if (!is_secret) {
        assert_memory_equal(response.body.data, names.body, strlen(names.body));
    }
    once_answer_free(answer);
}

typedef struct found {
    char tokens[2 * SECRETS][ONCE_TOKEN_SIZE];
    unsigned count;
} found_t;

static int note(once_t *once, const once_record_t *record, void *data)
{
    found_t *found = data;

    assert_true(found->count < 2 * SECRETS);
    once_record_token(record, found->tokens[found->count++]);
    return 0;
}

/* Erases the records of the subject, at most `most`. */
static void erase(once_t *once, unsigned most, unsigned expected)
{
    once_filter_t filter = ONCE_FILTER_INIT;
    uint8_t subject[ONCE_SUBJECT_SIZE];
    found_t found = {.count = 0};

    assert_int_equal(get(once, "none").error, ONCE_E_NOT_FOUND); /* it has the secrets now */
    assert_int_equal(once_subject_hash_of(once, once__slice_of(canaries[4]), subject), ONCE_OK);
    assert_int_equal(once_audit_as(once, once__slice_of("test"), once__slice_of("asked for")),
                     ONCE_OK);
    filter.subject_hash = subject;
    assert_int_equal(once_record_scan_sync(once, &filter, note, &found, NULL), ONCE_OK);
    assert_int_equal(found.count, expected);
    for (unsigned i = 0; i < found.count && i < most; i++) {
        assert_int_equal(once_record_erase_sync(once, found.tokens[i], NULL), ONCE_OK);
    }
}

static void erase_one(once_t *once, unsigned number)
{
    once_answer_t *answer = begin(once, 1, number, ONCE_OUTCOME_REPLAY);
    char token[ONCE_TOKEN_SIZE];

    once_record_token(once_answer_record(answer), token);
    once_answer_free(answer);
    assert_int_equal(once_record_erase_sync(once, token, NULL), ONCE_OK);
}

static uint64_t scrub(once_t *once)
{
    once_answer_t *answer = NULL;
    uint64_t left;

    assert_int_equal(once_store_scrub_sync(once, &answer), ONCE_OK);
    left = once_answer_count(answer);
    once_answer_free(answer);
    return left;
}

/* `other` reaps now and then, as its timer would have it. */
static void scrub_all(once_t *once, once_t *other)
{
    time_t until = time(NULL) + PATIENCE_S;

    while (scrub(once) > 0) {
        assert_true(time(NULL) < until);
        if (other != NULL) {
            assert_int_equal(once_store_reap_sync(other, 0, NULL), ONCE_OK);
        }
    }
}

static void check_all(once_t *once, unsigned secrets)
{
    for (unsigned i = 0; i < OTHERS; i++) {
        check_replay(once, 0, i);
        if (i % (OTHERS / secrets) == 0) {
            check_replay(once, 1, i);
        }
    }
}

static void check_store(void)
{
    once_local_fsck_options_t how = ONCE_LOCAL_FSCK_OPTIONS_INIT;
    once_local_fsck_report_t report = ONCE_LOCAL_FSCK_REPORT_INIT;
    char url[PLACE_SIZE + 8];
    once_error_t err;

    snprintf(url, sizeof(url), "local:%s", the.store);
    assert_int_equal(once_local_fsck(url, &how, &report, &err), ONCE_OK);
    assert_int_equal(report.problems, 0);
}

/* -------------------------------------------------------------------------------------------------------------- tests */

/* Completes it with some bytes. 0: the store is full. */
static int ask_is_granted(once_t *once, unsigned number)
{
    char key[32];
    told_t told;

    snprintf(key, sizeof(key), "more-%u", number);
    told = ask(once, key, NULL);
    if (told.error == ONCE_E_FULL) {
        return 0;
    }
    assert_int_equal(told.outcome, ONCE_OUTCOME_RUN);
    assert_int_equal(complete(told.claim, 200, key, strlen(key)).outcome, ONCE_OUTCOME_DONE);
    return 1;
}

static void test_nothing_is_left(void **state)
{
    const unsigned written = (1u << WRITTEN) - 1;

    the.one = open_one("&reap=off");
    the.two = open_one("&reap=off");
    make_some(the.one, 0, OTHERS, SECRETS);
    make_some(the.two, OTHERS, OTHERS, 0);
    assert_int_equal(search(the.base), written);
    erase(the.two, SECRETS, SECRETS);
    assert_int_equal(search(the.base), written); /* in frames of before */
    scrub_all(the.two, the.one);
    assert_gone();
    check_all(the.one, SECRETS);
    make_some(the.one, 2 * OTHERS, OTHERS, 0); /* more dictionaries, from what it saw before */
    assert_gone();
    assert_int_equal(scrub(the.one), 0);
    close_all(); /* the index goes with the last handle */
    assert_gone();
    the.one = open_one("&reap=off");
    check_all(the.one, SECRETS);
    close_all();
    check_store();
}

/* A store that is full by its bound takes what is erased, and what has to be copied for that. */
static void test_store_at_its_bound(void **state)
{
    unsigned made = 0;

    the.one = open_one("&reap=off&max_bytes=200k&store_timeout=100ms");
    make_some(the.one, 0, 40, 4);
    while (ask_is_granted(the.one, made)) {
        made++;
    }
    erase(the.one, 4, 4);
    scrub_all(the.one, NULL);
    assert_gone();
    check_replay(the.one, 1, 0);
    check_replay(the.one, 0, 39);
    close_all();
    check_store();
}

/* In the child: erases some, takes some steps, and dies. */
static void erase_and_die(unsigned some, unsigned steps)
{
    pid_t pid = fork();
    int status;

    assert_true(pid >= 0);
    if (pid == 0) {
        once_t *once = open_one("&reap=off");
        erase(once, some, SECRETS);
        for (unsigned i = 0; i < steps; i++) {
            (void)scrub(once);
        }
        (void)kill(getpid(), SIGKILL);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* What the next one finds to do is what was noted before the first text was taken away. */
static void test_killed(void **state)
{
    for (unsigned steps = 0; steps < 2; steps++) {
        for (int machine = 0; machine < 2; machine++) { /* the machine stopped as well: no index */
            the.one = open_one("&reap=off");
            make_some(the.one, 0, OTHERS, SECRETS);
            close_all();
            erase_and_die(SECRETS, steps);
            if (machine) {
                place_remove(the.index);
                assert_int_equal(mkdir(the.index, 0700), 0);
            }
            the.one = open_one("&reap=off");
            scrub_all(the.one, NULL);
            assert_gone();
            check_all(the.one, SECRETS);
            close_all();
            check_store();
            (void)end(NULL);
            (void)start(NULL);
        }
    }
}

/* It was killed before all of them were erased: the rest is found as ever. */
static void test_killed_between_records(void **state)
{
    the.one = open_one("&reap=off");
    make_some(the.one, 0, OTHERS, SECRETS);
    close_all();
    erase_and_die(SECRETS / 2, 0);
    the.one = open_one("&reap=off");
    erase(the.one, SECRETS, SECRETS - SECRETS / 2);
    scrub_all(the.one, NULL);
    assert_gone();
    check_all(the.one, SECRETS);
}

/* A copy of a store that is being erased from goes on with it. */
static void test_copied(void **state)
{
    char copy[PLACE_SIZE], url[4 * PLACE_SIZE];

    the.one = open_one("&reap=off");
    make_some(the.one, 0, OTHERS, SECRETS);
    close_all();
    erase_and_die(SECRETS, 0);
    place_join(copy, the.base, "copy");
    snprintf(url, sizeof(url), "local:%s?%s", the.store, the.query);
    assert_int_equal(once_local_backup(url, copy, NULL, NULL, NULL), ONCE_OK);
    place_remove(the.store);
    memcpy(the.store, copy, sizeof(copy));
    the.one = open_one("&reap=off");
    scrub_all(the.one, NULL);
    assert_gone();
    check_all(the.one, SECRETS);
}

/* In the child: has written the texts, and goes on writing others. */
static void write_on(int from, int to)
{
    once_t *once = open_one("&reap=200ms");
    unsigned number = OTHERS;
    char byte = 0;

    make_some(once, 0, OTHERS, SECRETS);
    (void)fcntl(from, F_SETFL, O_NONBLOCK);
    must(write(to, &byte, 1) == 1, "the parent knows");
    while (read(from, &byte, 1) != 1) {
        make_some(once, number, 20, 0);
        number += 20;
    }
    must(once_close(once, 30000) == ONCE_OK, "it is closed");
    _exit(0);
}

static void test_while_another_process_writes(void **state)
{
    int up[2], down[2], status;
    char byte = 0;
    pid_t pid;

    assert_int_equal(pipe(up) | pipe(down), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        write_on(down[0], up[1]);
    }
    assert_int_equal(read(up[0], &byte, 1), 1);
    the.one = open_one("&reap=off");
    assert_int_equal(search(the.base), (1u << WRITTEN) - 1);
    erase(the.one, SECRETS, SECRETS);
    scrub_all(the.one, NULL);
    assert_gone();
    check_all(the.one, SECRETS);
    assert_int_equal(write(down[1], &byte, 1), 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_gone();
    close_all();
    assert_gone();
    check_store();
    for (int i = 0; i < 2; i++) {
        (void)close(up[i]);
        (void)close(down[i]);
    }
}

static off_t size_of_notes(void)
{
    char path[PLACE_SIZE];
    struct stat st;

    place_join(path, the.store, "erasing");
    assert_int_equal(stat(path, &st), 0);
    return st.st_size;
}

/*
 * One handle clears away while another one erases records that its first note covers: their texts may have been copied to segments
 * that are not searched this time. The note stays for the next time.
 */
static void test_erased_while_another_clears_away(void **state)
{
    time_t until = time(NULL) + PATIENCE_S;
    off_t noted;

    the.one = open_one("&reap=off");
    the.two = open_one("&reap=off");
    make_some(the.one, 0, 4, 2);
    erase_one(the.two, 0);
    noted = size_of_notes();
    assert_true(noted > 0);
    while (scrub(the.one) > 1) { /* the segment of the other is left, which is still written to */
        assert_true(time(NULL) < until);
    }
    erase_one(the.two, 2);
    assert_int_equal(size_of_notes(), noted);
    assert_int_equal(once_close(the.two, 30000), ONCE_OK);
    the.two = NULL;
    scrub_all(the.one, NULL);
    assert_int_equal(search(the.base), (1u << WRITTEN) - 1);
    assert_int_equal(size_of_notes(), noted);
    scrub_all(the.one, NULL);
    assert_gone();
    assert_int_equal(size_of_notes(), 0);
    check_replay(the.one, 1, 0);
    check_replay(the.one, 1, 2);
    close_all();
    check_store();
}

static void pick_frame(void *data, uint64_t offset, const once__frame_t *frame)
{
    uint64_t *picked = data;

    if (frame->kind == ONCE__FRAME_RECORD && *picked == 0) {
        *picked = offset + frame->size / 2;
    }
}

/* A segment with damage is not written anew. It is counted, so that a person hears of it. */
static void test_damaged(void **state)
{
    time_t until = time(NULL) + PATIENCE_S;
    uint64_t offset = 0, left, damaged;

    the.one = open_one("&reap=off");
    make_some(the.one, 0, OTHERS, SECRETS);
    close_all();
    assert_true(place_frames(the.store, 1, pick_frame, &offset) > 0);
    place_flip(the.store, 1, offset * 8);
    the.one = open_one("&reap=off");
    erase_one(the.one, 0);
    do {
        once_answer_t *answer = NULL;
        assert_true(time(NULL) < until);
        assert_int_equal(once_store_scrub_sync(the.one, &answer), ONCE_OK);
        left = once_answer_count(answer);
        damaged = once_answer_damaged(answer);
        once_answer_free(answer);
    } while (left > damaged);
    assert_int_equal(damaged, 1);
    assert_int_equal(search(the.base), (1u << WRITTEN) - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_nothing_is_left, start, end),
        cmocka_unit_test_setup_teardown(test_store_at_its_bound, start, end),
        cmocka_unit_test_setup_teardown(test_killed, start, end),
        cmocka_unit_test_setup_teardown(test_killed_between_records, start, end),
        cmocka_unit_test_setup_teardown(test_copied, start, end),
        cmocka_unit_test_setup_teardown(test_while_another_process_writes, start, end),
        cmocka_unit_test_setup_teardown(test_erased_while_another_clears_away, start, end),
        cmocka_unit_test_setup_teardown(test_damaged, start, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
