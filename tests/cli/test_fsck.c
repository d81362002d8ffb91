/*
 * once fsck on stores that are in order, also while they are in use; and on an index that is not.
 */
#include "checking.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <sys/stat.h>
#include <unistd.h>

#include "records.h"
#include "terminal.h"

/* ---------------------------------------------------------------------------------------------------------- in order */

static void counts(void **state)
{
    place_t place;
    once_t *once;
    json_t *report;
    run_t r;

    place_make(&place, "");
    once = open_store(place.url);
    make_pending(once, "s", "p1");
    make_pending(once, "s", "p2");
    make_completed(once, "s", "c", "x");
    make_failed(once, "s", "f", "why");
    make_unknown(once, "s", "u", "hold");
    report = fsck_json(&place, ONCE__CLI_OK);
    assert_int_equal(json_number_of(report, "pending"), 2);
    assert_int_equal(json_number_of(report, "completed"), 1);
    assert_int_equal(json_number_of(report, "failed"), 1);
    assert_int_equal(json_number_of(report, "unknown"), 1);
    /* More on a slow machine: a claim whose reply is late is released and repeated. */
    assert_true(json_number_of(report, "frames") >= 8);
    assert_int_equal(json_number_of(report, "segments"), 1);
    assert_int_equal(json_number_of(report, "writing"), 1);
    assert_int_equal(json_number_of(report, "problems"), 0);
    assert_string_equal(json_text_of(report, "index"), "ok");
    json_decref(report);
    r = fsck(&place);
    assert_has(r.out, "agrees with the log");
    run_free(&r);

    once_close(once, -1); /* with the last program goes the index */
    report = fsck_json(&place, ONCE__CLI_OK);
    assert_int_equal(json_number_of(report, "writing"), 0);
    assert_int_equal(json_number_of(report, "completed"), 1);
    assert_string_equal(json_text_of(report, "index"), "none");
    assert_true(json_is_null(json_object_get(report, "lost")));
    json_decref(report);
    assert_int_equal(access(inside(&place, "index"), F_OK), -1); /* looking makes nothing */
    place_remove(&place);
}

static void usage(void **state)
{
    place_t place;
    run_t r;

    place_make(&place, "");
    r = fsck(&place);
    assert_run(r, ONCE__CLI_STORE);
    assert_has(r.err, "there is no");
    run_free(&r);
    assert_int_equal(count_names(place.top), 0);
    assert_int_equal(mkdir(place.store, 0700), 0);
    r = fsck(&place);
    assert_run(r, ONCE__CLI_STORE);
    assert_has(r.err, "there is no store in");
    run_free(&r);
    assert_int_equal(count_names(place.store), 0);
    write_text(inside(&place, "x"), "x");
    r = run("fsck", place.url, "--repair", NULL);
    assert_run(r, ONCE__CLI_USAGE);
    assert_has(r.err, "not a once directory");
    run_free(&r);
    r = run("fsck", "memory:", NULL);
    assert_run(r, ONCE__CLI_USAGE);
    assert_has(r.err, "local stores only");
    run_free(&r);
    place_remove(&place);
}

/* --------------------------------------------------------------------------------------------------------- while in use */

static void others_may_use_it(void **state)
{
    companion_t companion;
    place_t place;
    json_t *report;
    run_t r;
    bytes_t before, after;

    make_many(&place);
    companion_start(&companion, hold, &place);
    report = fsck_json(&place, ONCE__CLI_OK);
    assert_int_equal(json_number_of(report, "writing"), 1);
    assert_int_equal(json_number_of(report, "completed"), MANY + 1);
    json_decref(report);
    r = fsck(&place);
    assert_has(r.out, "1 being written");
    run_free(&r);

    before = read_bytes(segment(&place, 2));
    spoil(segment(&place, 2), 200, 1);
    r = run("fsck", place.url, "--repair", NULL); /* but not repair it */
    assert_run(r, ONCE__CLI_REFUSED);
    assert_has(r.err, "other programs use");
    assert_has(r.err, "stop them");
    run_free(&r);
    spoil(segment(&place, 2), 200, 1);
    after = read_bytes(segment(&place, 2));
    assert_int_equal(before.len, after.len);
    assert_memory_equal(before.data, after.data, after.len);
    free(before.data);
    free(after.data);
    companion_stop(&companion);
    assert_in_order(&place);
    place_remove(&place);
}

/* Writes, expires, drops and carries until it is stopped. */
static int work(int ready, int until, void *data)
{
    const place_t *place = data;
    once_t *once = open_store(place->url);
    char byte;

    if (fcntl(until, F_SETFL, O_NONBLOCK) != 0 || write(ready, "", 1) != 1) {
        return 1;
    }
    for (int i = 0; read(until, &byte, 1) < 0; i++) {
        char key[48], policy[32];
        once_response_t response = ONCE_RESPONSE_INIT;
        once_claim_t *held;
        snprintf(key, sizeof(key), "%d-%d", (int)getpid(), i);
        snprintf(policy, sizeof(policy), "%s", i % 8 == 0 ? "ttl=1h" : "ttl=1s");
        held = claim(once, "s", key, policy);
        response.status = 200;
        if (i % 64 == 1) {
            once_claim_drop(held);
        } else if (once_claim_complete_sync(held, &response, NULL) != ONCE_OK) {
            return 2;
        }
        if (i % 50 == 0 && once_store_reap_sync(once, 0, NULL) != ONCE_OK) {
            return 3;
        }
    }
    once_close(once, -1);
    return 0;
}

static void under_load(void **state)
{
    companion_t companions[2];
    place_t place;

    place_make(&place, "?segment=64k");
    once_close(open_store(place.url), -1);
    companion_start(&companions[0], work, &place);
    companion_start(&companions[1], work, &place);
    for (int i = 0; i < 40; i++) {
        json_t *report = fsck_json(&place, ONCE__CLI_OK);
        assert_string_equal(json_text_of(report, "index"), "ok");
        json_decref(report);
    }
    companion_stop(&companions[0]);
    companion_stop(&companions[1]);
    assert_in_order(&place);
    place_remove(&place);
}

static void after_kill(void **state)
{
    companion_t companion;
    place_t place;
    int status;

    place_make(&place, "?segment=64k");
    once_close(open_store(place.url), -1);
    for (int i = 0; i < 5; i++) {
        companion_start(&companion, work, &place);
        assert_int_equal(kill(companion.pid, SIGKILL), 0);
        assert_int_equal(waitpid(companion.pid, &status, 0), companion.pid);
        close(companion.until);
        assert_in_order(&place);
    }
    place_remove(&place);
}

/* ---------------------------------------------------------------------------------------------------------------- index */

/* The one index in a directory of its own. */
static const char *index_in(const char *directory)
{
    static char path[400];
    DIR *stream = opendir(directory);
    const struct dirent *entry;

    while ((entry = readdir(stream)) != NULL) {
        if (strncmp(entry->d_name, "once-", 5) == 0) {
            snprintf(path, sizeof(path), "%s/%s", directory, entry->d_name);
        }
    }
    closedir(stream);
    return path;
}

static void an_index_that_knows_too_little(void **state)
{
    char tmpfs[] = "/dev/shm/once-test-XXXXXX", options[128];
    companion_t companion;
    place_t place;
    bytes_t old;
    json_t *report;
    once_t *once;

    assert_non_null(mkdtemp(tmpfs));
    snprintf(options, sizeof(options), "?segment=64k&compress=off&index=%s", tmpfs);
    place_make(&place, options);
    once = open_store(place.url);
    complete_many(once, "k", MANY);
    once_close(once, -1);
    companion_start(&companion, hold, &place);
    old = read_bytes(index_in(tmpfs));
    once = open_store(place.url);
    complete_many(once, "later", 20);
    once_close(once, -1);
    write_bytes(index_in(tmpfs), &old); /* the program that has it open does nothing meanwhile */
    free(old.data);
    report = fsck_json(&place, ONCE__CLI_NO);
    assert_string_equal(json_text_of(report, "index"), "differs");
    assert_int_equal(json_number_of(report, "problems"), 20);
    assert_int_equal(json_number_of(report, "completed"), MANY + 1 + 20);
    json_decref(report);
    assert_int_equal(kill(companion.pid, SIGKILL), 0);
    assert_int_equal(waitpid(companion.pid, NULL, 0), companion.pid);
    close(companion.until);
    /* The next program that opens it is not deceived. */
    assert_int_equal(count_completed(&place, "later", 20), 20);
    assert_in_order(&place);
    assert_int_equal(rmdir(tmpfs), 0);
    place_remove(&place);
}

/* ---------------------------------------------------------------------------------------------------------------- people */

static void progress(void **state)
{
    terminal_run_t r;
    place_t place;

    make_many(&place);
    {
        const char *const arguments[] = {"fsck", place.url, NULL};
        run_on_terminal(&r, NULL, NULL, NULL, arguments);
    }
    assert_int_equal(r.code, ONCE__CLI_OK);
    assert_has(r.text, "100 %");
    assert_has(r.text, "the next program that opens the store makes it");
    place_remove(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts),
        cmocka_unit_test(usage),
        cmocka_unit_test(others_may_use_it),
        cmocka_unit_test(under_load),
        cmocka_unit_test(after_kill),
        cmocka_unit_test(an_index_that_knows_too_little),
        cmocka_unit_test(progress),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
