/*
 * once backup: the copy is a store that has everything that was acknowledged before the command began, whatever programs do
 * meanwhile.
 */
#include "harness.h"

#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <once/local.h>

#include "local.h"
#include "records.h"
#include "store/local/frame.h"

#define WORKERS 3
#define OPTIONS "?segment=64k&compress=off"

typedef struct copy {
    char path[96];
    char url[128];
} copy_t;

static void name_copy(copy_t *copy, const place_t *place, const char *name)
{
    snprintf(copy->path, sizeof(copy->path), "%s/%s", place->top, name);
    snprintf(copy->url, sizeof(copy->url), "local:%s", copy->path);
}

static void assert_mode(const char *directory, const char *name, mode_t mode)
{
    char path[256];
    struct stat st;

    snprintf(path, sizeof(path), "%s/%s", directory, name);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, mode);
}

/* Nothing in it is torn or damaged, and nothing of it has to be explained. */
static void assert_flawless(const char *url)
{
    run_t r = run("fsck", url, "--json", NULL);
    json_t *report;

    assert_run(r, ONCE__CLI_OK);
    report = json_line(r.out, 0);
    assert_int_equal(json_number_of(report, "problems"), 0);
    assert_int_equal(json_number_of(report, "torn"), 0);
    assert_int_equal(json_array_size(json_object_get(report, "findings")), 0);
    json_decref(report);
    run_free(&r);
}

static run_t backup(const place_t *place, const copy_t *copy)
{
    return run("backup", place->url, copy->path, NULL);
}

/* --------------------------------------------------------------------------------------------------------- at rest */

static void the_copy_is_a_store(void **state)
{
    place_t place;
    copy_t copy;
    once_t *once;
    run_t r;

    place_make(&place, OPTIONS);
    name_copy(&copy, &place, "copy");
    once = open_store(place.url);
    make_completed(once, "s", "c", "body");
    make_failed(once, "s", "f", "note");
    make_unknown(once, "s", "u", "hold");
    make_pending(once, "s", "p");
    r = backup(&place, &copy); /* while this process uses it */
    assert_run(r, ONCE__CLI_OK);
    assert_has(r.out, "copied 1 segments, ");
    assert_has(r.err, "the copy holds the secrets and the stored responses");
    run_free(&r);
    once_close(once, -1);

    assert_int_equal(count_names(copy.path), 3);
    assert_mode(copy.path, "", 0700);
    assert_mode(copy.path, "segments", 0700);
    assert_mode(copy.path, "secrets", 0600);
    assert_mode(copy.path, "format", 0600);
    assert_mode(copy.path, "segments/0000000000000001.log", 0600);
    assert_flawless(copy.url);
    once = open_store(copy.url);
    assert_int_equal(state_of(once, "s", "c"), ONCE_STATE_COMPLETED);
    assert_int_equal(state_of(once, "s", "f"), ONCE_STATE_FAILED);
    assert_int_equal(state_of(once, "s", "u"), ONCE_STATE_UNKNOWN);
    assert_int_equal(state_of(once, "s", "p"), ONCE_STATE_PENDING);
    make_completed(once, "s", "new", "x");
    once_close(once, -1);
    assert_flawless(copy.url);
    place_remove(&place);
}

/* Everything stopped, the directory moved away, the copy moved to its place. */
static void going_back(void **state)
{
    place_t place;
    copy_t copy, away;
    once_answer_t *answer = NULL;
    once_ask_t ask = ONCE_ASK_INIT;
    once_t *once;
    run_t r;

    place_make(&place, "");
    name_copy(&copy, &place, "copy");
    name_copy(&away, &place, "away");
    once = open_store(place.url);
    make_completed(once, "s", "before", "body");
    r = backup(&place, &copy);
    assert_run(r, ONCE__CLI_OK);
    run_free(&r);
    make_completed(once, "s", "after", "body");
    once_close(once, -1);
    assert_int_equal(rename(place.store, away.path), 0);
    assert_int_equal(rename(copy.path, place.store), 0);
    once = open_store(place.url);
    assert_int_equal(state_of(once, "s", "after"), ONCE_STATE_NONE);
    ask.scope = slice("s");
    ask.key = slice("before");
    ask.method = slice("POST");
    ask.target = slice("/orders");
    assert_int_equal(once_begin_sync(once, &ask, &answer), ONCE_OK);
    assert_int_equal(once_answer_outcome(answer),
                     ONCE_OUTCOME_REPLAY); /* with the secrets of then */
    once_answer_free(answer);
    once_close(once, -1);
    place_remove(&place);
}

static void secrets_elsewhere(void **state)
{
    place_t place;
    copy_t copy;
    char options[128];
    run_t r;

    place_make(&place, "");
    snprintf(options, sizeof(options), "?secrets=file:%s/apart", place.top);
    snprintf(place.url, sizeof(place.url), "local:%s%s", place.store, options);
    name_copy(&copy, &place, "copy");
    once_close(open_store(place.url), -1);
    r = backup(&place, &copy);
    assert_run(r, ONCE__CLI_OK);
    assert_has(r.err, "not the secrets: copy their file as well");
    run_free(&r);
    assert_int_equal(count_names(copy.path), 2);
    place_remove(&place);
}

static void damage_is_not_hidden(void **state)
{
    place_t place;
    copy_t copy;
    once_t *once;
    run_t r;

    place_make(&place, OPTIONS);
    name_copy(&copy, &place, "copy");
    once = open_store(place.url);
    for (int i = 0; i < 10; i++) {
        char key[8], body[200];
        snprintf(key, sizeof(key), "k%d", i);
        make_unlike(body, sizeof(body), (unsigned)i);
        make_completed(once, "s", key, body);
    }
    spoil(inside(&place, "segments/0000000000000001.log"), 300, 1);
    r = backup(&place, &copy);
    assert_run(r, ONCE__CLI_OK);
    assert_has(r.err, "damaged ranges in the store, and so in the copy: 1");
    run_free(&r);
    once_close(once, -1);
    r = run("fsck", copy.url, NULL);
    assert_run(r, ONCE__CLI_NO);
    assert_has(r.out, "is damaged");
    run_free(&r);
    place_remove(&place);
}

/* -------------------------------------------------------------------------------------------------------------- refused */

static void assert_refused(const place_t *place, const copy_t *copy, int code, const char *text)
{
    run_t r = backup(place, copy);

    assert_run(r, code);
    assert_has(r.err, text);
    assert_string_equal(r.out, "");
    run_free(&r);
}

static void destinations(void **state)
{
    char path[128];
    place_t place;
    copy_t copy;
    run_t r;

    place_make(&place, "");
    name_copy(&copy, &place, "copy");
    assert_refused(&place, &copy, ONCE__CLI_STORE, "there is no");
    assert_int_equal(count_names(place.top), 0);
    once_close(open_store(place.url), -1);

    assert_int_equal(mkdir(copy.path, 0755), 0);
    assert_refused(&place, &copy, ONCE__CLI_USAGE, "is open to others; chmod 700 it");
    assert_int_equal(chmod(copy.path, 0700), 0);
    snprintf(path, sizeof(path), "%s/mine", copy.path);
    write_text(path, "x");
    assert_refused(&place, &copy, ONCE__CLI_USAGE, "not empty; name another place");
    assert_int_equal(count_names(copy.path), 1);
    assert_int_equal(unlink(path), 0);
    r = backup(&place, &copy);
    assert_run(r, ONCE__CLI_OK);
    run_free(&r);
    assert_refused(&place, &copy, ONCE__CLI_USAGE, "is not empty");
    assert_flawless(copy.url);

    name_copy(&copy, &place, "a/b");
    assert_refused(&place, &copy, ONCE__CLI_USAGE, "the directory above it does not exist");
    name_copy(&copy, &place, "file");
    write_text(copy.path, "x");
    assert_refused(&place, &copy, ONCE__CLI_USAGE, "Not a directory");
    r = run("backup", "memory:", copy.path, NULL);
    assert_run(r, ONCE__CLI_USAGE);
    run_free(&r);
    r = run("backup", place.url, NULL);
    assert_run(r, ONCE__CLI_USAGE);
    run_free(&r);
    place_remove(&place);
}

/* A copy that could not be finished is not left behind for one. */
static void nothing_is_left_of_a_failure(void **state)
{
    place_t place;
    copy_t copy;
    once_t *once;

    place_make(&place, OPTIONS);
    name_copy(&copy, &place, "copy");
    once = open_store(place.url);
    make_completed(once, "s", "k", "x");
    spoil(inside(&place, "segments/0000000000000001.log"), 20, 1); /* its header */
    assert_refused(&place, &copy, ONCE__CLI_STORE, "segment 0000000000000001");
    once_close(once, -1);
    assert_int_equal(access(copy.path, F_OK), -1);
    assert_int_equal(mkdir(copy.path, 0700), 0);
    assert_refused(&place, &copy, ONCE__CLI_STORE, "segment 0000000000000001");
    assert_int_equal(count_names(copy.path), 0);
    place_remove(&place);
}

/* ------------------------------------------------------------------------------------------------------ while it is copied */

/* Another program wants to drop what expired: it has to wait until the copy is made. */
static void reap_meanwhile(uint64_t done, uint64_t total, void *data)
{
    once_t **once = data;

    while (state_of(*once, "s", "k119") != ONCE_STATE_NONE) {
        assert_true(once_wait(*once, 50) >= 0);
    }
    assert_int_equal(once_store_reap_sync(*once, 0, NULL), ONCE_E_UNAVAILABLE);
}

/* Segments full of records that expire soon, and a few that are held. */
static void fill(const place_t *place)
{
    once_t *once = open_store(place->url);
    char body[1000];

    for (int i = 0; i < 120; i++) {
        once_response_t response = ONCE_RESPONSE_INIT;
        char key[16];
        snprintf(key, sizeof(key), "k%d", i);
        make_unlike(body, sizeof(body), (unsigned)i);
        if (i % 20 == 0) {
            make_stuck(once, "s", key, "hold");
            continue;
        }
        response.body = slice(body);
        assert_int_equal(once_claim_complete_sync(claim(once, "s", key, "ttl=1s"), &response, NULL),
                         ONCE_OK);
    }
    once_close(once, -1);
}

static void segments_stay_while_they_are_copied(void **state)
{
    once_local_backup_options_t how = ONCE_LOCAL_BACKUP_OPTIONS_INIT;
    once_local_backup_report_t report = ONCE_LOCAL_BACKUP_REPORT_INIT;
    char path[320];
    place_t place;
    copy_t copy;
    once_t *once;

    place_make(&place, OPTIONS);
    name_copy(&copy, &place, "copy");
    fill(&place);
    assert_int_equal(count_names(inside(&place, "segments")), 3 + 1);  /* and the manifest */
    snprintf(path, sizeof(path), "%s&store_timeout=300ms", place.url); /* for the reap to end */
    once = open_store(path);
    how.progress = reap_meanwhile;
    how.data = &once;
    assert_int_equal(once_local_backup(place.url, copy.path, &how, &report, NULL), ONCE_OK);
    assert_int_equal(once_store_reap_sync(once, 0, NULL), ONCE_OK);
    assert_int_equal(access(inside(&place, "segments/0000000000000003.log"), F_OK), -1); /* now */
    once_close(once, -1);

    snprintf(path, sizeof(path), "%s/segments", copy.path);
    assert_int_equal(count_names(path), report.segments + 1);
    assert_flawless(copy.url);
    once = open_store(copy.url);
    for (int i = 0; i < 120; i += 20) {
        char key[16];
        snprintf(key, sizeof(key), "k%d", i);
        assert_int_equal(state_of(once, "s", key), ONCE_STATE_PENDING);
    }
    once_close(once, -1);
    place_remove(&place);
}

/* Bytes that a writer is just writing: read at two moments, they can look like anything. */
static void what_is_not_durable_is_left_out(void **state)
{
    once__frame_t frame = {.kind = ONCE__FRAME_REMOVED, .version = 1, .watermark = 4096};
    once__segment_header_t header;
    uint8_t bytes[ONCE__SEGMENT_HEADER], id[ONCE_ID_SIZE] = {1};
    place_t place;
    copy_t copy;
    once_t *once;
    run_t r;
    int fd;

    place_make(&place, OPTIONS);
    name_copy(&copy, &place, "copy");
    once = open_store(place.url);
    make_completed(once, "s", "k", "x");
    fd = open(inside(&place, "segments/0000000000000001.log"), O_RDWR);
    assert_int_equal(pread(fd, bytes, sizeof(bytes), 0), sizeof(bytes));
    assert_int_equal(once__segment_header_read(&header, bytes, sizeof(bytes)), ONCE_OK);
    frame.id = id;
    once__frame_write(bytes, header.word, 4096, &frame);
    assert_int_equal(pwrite(fd, bytes, 64, 4096), 64);
    close(fd);
    r = backup(&place, &copy);
    assert_run(r, ONCE__CLI_OK);
    assert_lacks(r.err, "damaged");
    run_free(&r);
    assert_flawless(copy.url);
    once_close(once, -1);
    place_remove(&place);
}

/* ------------------------------------------------------------------------------------------------------------ under load */

typedef struct shared {
    place_t place;
    _Atomic uint32_t acknowledged[WORKERS]; /* operations of each worker, in order */
    _Atomic uint32_t started;
} shared_t;

typedef enum fate { KEPT, SHORT, HELD } fate_t;

/* One in four is kept, one in sixteen is held by a claim that does not end, the rest expires soon. */
static fate_t fate_of(uint32_t n)
{
    return n % 16 == 3 ? HELD : n % 4 == 0 ? KEPT : SHORT;
}

static void key_of(char key[32], uint32_t worker, uint32_t n)
{
    snprintf(key, 32, "w%u-%u", worker, n);
}

static int work(int ready, int until, void *data)
{
    static const char *const policies[] = {"ttl=1h", "ttl=1s", "ttl=1s recover=hold"};
    shared_t *shared = data;
    uint32_t worker = atomic_fetch_add(&shared->started, 1);
    once_t *once = open_store(shared->place.url);
    char body[700], byte;

    memset(body, 'x', sizeof(body) - 1);
    body[sizeof(body) - 1] = '\0';
    if (fcntl(until, F_SETFL, O_NONBLOCK) != 0 || write(ready, "", 1) != 1) {
        return 1;
    }
    for (uint32_t n = 0; read(until, &byte, 1) < 0; n++) {
        once_response_t response = ONCE_RESPONSE_INIT;
        once_claim_t *held;
        char key[32];
        key_of(key, worker, n);
        held = claim(once, "s", key, policies[fate_of(n)]);
        response.body = slice(body);
        if (fate_of(n) == HELD) {
            once_claim_drop(held);
        } else if (once_claim_complete_sync(held, &response, NULL) != ONCE_OK) {
            return 2;
        }
        atomic_store(&shared->acknowledged[worker], n + 1);
        if (n % 30 == 0 && once_store_reap_sync(once, 0, NULL) != ONCE_OK) {
            return 3;
        }
    }
    once_close(once, -1);
    return 0;
}

static void check_copy(const copy_t *copy, const uint32_t *acknowledged)
{
    once_t *once = open_store(copy->url);

    for (uint32_t worker = 0; worker < WORKERS; worker++) {
        for (uint32_t n = 0; n < acknowledged[worker]; n++) {
            once_state_t expected = fate_of(n) == KEPT ? ONCE_STATE_COMPLETED : ONCE_STATE_PENDING;
            char key[32];
            key_of(key, worker, n);
            if (fate_of(n) != SHORT && state_of(once, "s", key) != expected) {
                print_error("%s of %u: %d\n", key, acknowledged[worker],
                            (int)state_of(once, "s", key));
            }
            assert_true(fate_of(n) == SHORT || state_of(once, "s", key) == expected);
        }
    }
    once_close(once, -1);
}

static void under_load(void **state)
{
    shared_t *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    companion_t companions[WORKERS];

    assert_true(shared != MAP_FAILED);
    place_make(&shared->place, OPTIONS);
    once_close(open_store(shared->place.url), -1);
    for (int i = 0; i < WORKERS; i++) {
        companion_start(&companions[i], work, shared);
    }
    for (int round = 0; round < 8; round++) {
        uint32_t acknowledged[WORKERS];
        char name[16];
        copy_t copy;
        run_t r;
        /* Each round has something new. */
        for (int i = 0; i < WORKERS; i++) {
            uint32_t before = round == 0 ? 50 : atomic_load(&shared->acknowledged[i]) + 100;
            while (atomic_load(&shared->acknowledged[i]) < before) {
                sched_yield();
            }
        }
        for (int i = 0; i < WORKERS; i++) {
            acknowledged[i] = atomic_load(&shared->acknowledged[i]);
        }
        snprintf(name, sizeof(name), "copy%d", round);
        name_copy(&copy, &shared->place, name);
        r = backup(&shared->place, &copy);
        assert_run(r, ONCE__CLI_OK);
        run_free(&r);
        assert_flawless(copy.url);
        check_copy(&copy, acknowledged);
    }
    for (int i = 0; i < WORKERS; i++) {
        companion_stop(&companions[i]);
    }
    place_remove(&shared->place);
    munmap(shared, sizeof(*shared));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_copy_is_a_store),
        cmocka_unit_test(going_back),
        cmocka_unit_test(secrets_elsewhere),
        cmocka_unit_test(damage_is_not_hidden),
        cmocka_unit_test(destinations),
        cmocka_unit_test(nothing_is_left_of_a_failure),
        cmocka_unit_test(segments_stay_while_they_are_copied),
        cmocka_unit_test(what_is_not_durable_is_left_out),
        cmocka_unit_test(under_load),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
