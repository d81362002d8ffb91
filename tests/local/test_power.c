/*
 * The power fails at any moment, between any two changes of files: while a store is made, while its secrets are replaced, while
 * it is copied. What was acknowledged is there afterwards, and what is there can be used.
 */
#include "place.h"
#include "volume.h"

#include "support/testing.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <fcntl.h>
#include <unistd.h>

#include <once/local.h>

#define QUERY "segment=64k&renew=off&reap=off&store_timeout=20s"

static struct {
    char base[PLACE_SIZE];
    char root[PLACE_SIZE];  /* of the volume */
    char store[PLACE_SIZE]; /* on it */
    char below[PLACE_SIZE]; /* what failures leave */
} the;

static int start(void **state)
{
    place_make(the.base);
    place_join(the.root, the.base, "volume");
    place_join(the.below, the.base, "left");
    place_join(the.store, the.root, "store");
    assert_int_equal(mkdir(the.root, 0700), 0);
    assert_int_equal(mkdir(the.below, 0700), 0);
    return 0;
}

static int end(void **state)
{
    volume_end();
    place_remove(the.base);
    return 0;
}

/* Opens what is left of NAME on the volume. A store that does not open, or that does not know its keys, is lost. */
static once_t *open_left(const volume_remains_t *remains, const char *name)
{
    char path[PLACE_SIZE];
    once_error_t err = {0};
    once_t *once;

    place_join(path, remains->path, name);
    if (place_try(path, QUERY, NULL, &once, &err) != ONCE_OK) {
        fail_msg("%s: %s", path, err.text);
    }
    return once;
}

static void close_left(const volume_remains_t *remains, once_t *once)
{
    assert_int_equal(once_close(once, 5000), ONCE_OK);
    place_remove(remains->path);
}

/* ---------------------------------------------------------------------------------------------------------- a store */

enum { CLAIMED = 1, COMPLETED = 2 };

static void test_while_a_store_is_made(void **state)
{
    once_t *once;
    told_t told;

    volume_start(the.root, the.below);
    once = place_open(the.store, QUERY, NULL);
    told = ask(once, "k", "ttl=1h");
    assert_int_equal(told.outcome, ONCE_OUTCOME_RUN);
    volume_promise(CLAIMED);
    assert_int_equal(complete(told.claim, 201, "done", 4).outcome, ONCE_OUTCOME_DONE);
    volume_promise(COMPLETED);
    assert_int_equal(once_close(once, 5000), ONCE_OK);
    volume_end();
    assert_true(volume_remains_count > 60); /* the calls do go through the volume */
    for (unsigned i = 0; i < volume_remains_count; i++) {
        const volume_remains_t *remains = &volume_remains[i];
        once = open_left(remains, "store");
        told = get(once, "k");
        if (remains->promised == COMPLETED || told.state == ONCE_STATE_COMPLETED) {
            assert_int_equal(told.status, 201);
            assert_int_equal(told.body_len, 4);
        } else if (remains->promised == CLAIMED) {
            assert_int_equal(told.state, ONCE_STATE_PENDING);
        }
        close_left(remains, once);
    }
}

/* After another process could not sync a name: every process that uses it must have synced it itself. */
static void go_on_and_check(once_t *once)
{
    do_with_body(once, "k", 201, 4);
    volume_promise(COMPLETED);
    assert_int_equal(once_close(once, 5000), ONCE_OK);
    volume_end();
    for (unsigned i = 0; i < volume_remains_count; i++) {
        const volume_remains_t *remains = &volume_remains[i];
        once = open_left(remains, "store");
        if (remains->promised == COMPLETED) {
            assert_int_equal(get(once, "k").status, 201);
        }
        close_left(remains, once);
    }
}

static void test_a_directory_that_another_could_not_sync(void **state)
{
    once_error_t err = {0};
    once_t *once;

    volume_start(the.root, the.below);
    volume_fail_sync(the.root);
    assert_int_equal(place_try(the.store, QUERY, NULL, &once, &err), ONCE_E_IO);
    go_on_and_check(place_open(the.store, QUERY, NULL));
}

static void test_secrets_that_another_could_not_sync(void **state)
{
    once_t *once = place_open(the.store, QUERY, NULL), *other = place_open(the.store, QUERY, NULL);

    volume_start(the.root, the.below);
    volume_fail_sync(the.store);
    assert_int_not_equal(ask(once, "unlucky", NULL).error, ONCE_OK);
    (void)once_close(once, 0);
    go_on_and_check(other);
}

/* ---------------------------------------------------------------------------------------------------------- secrets */

enum { ROTATED = 1, USED = 2 };

static void read_secrets(const char *store, char text[2048])
{
    char path[PLACE_SIZE];
    ssize_t len;
    int fd;

    place_join(path, store, "secrets");
    fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    len = read(fd, text, 2047);
    assert_true(len > 0);
    text[len] = '\0';
    (void)close(fd);
}

static void check_rotated(const volume_remains_t *remains, const char *before, const char *after)
{
    char path[PLACE_SIZE], text[2048];
    once_t *once = open_left(remains, "store");

    place_join(path, remains->path, "store");
    read_secrets(path, text);
    if (remains->promised < ROTATED && strcmp(text, before) == 0) {
        after = before;
    }
    assert_string_equal(text, after);
    assert_int_equal(ask(once, "before", NULL).outcome, ONCE_OUTCOME_REPLAY);
    if (remains->promised == USED) {
        assert_int_equal(ask(once, "after", NULL).outcome, ONCE_OUTCOME_REPLAY);
    }
    close_left(remains, once);
}

static void test_while_secrets_are_replaced(void **state)
{
    char before[2048], after[2048];
    once_t *once = place_open(the.store, QUERY, NULL);

    do_with_body(once, "before", 201, 4);
    read_secrets(the.store, before);
    volume_start(the.root, the.below);
    assert_int_equal(once_secret_rotate_sync(once, 60 * 60 * 1000, NULL), ONCE_OK);
    volume_promise(ROTATED);
    do_with_body(once, "after", 201, 4);
    volume_promise(USED);
    assert_int_equal(once_close(once, 5000), ONCE_OK);
    volume_end();
    read_secrets(the.store, after);
    assert_string_not_equal(before, after);
    for (unsigned i = 0; i < volume_remains_count; i++) {
        check_rotated(&volume_remains[i], before, after);
    }
}

/* ----------------------------------------------------------------------------------------------------------- copies */

enum { COPIED = 1, RECORDS = 12 };

/* A directory that has nothing of the store yet is as good as none. */
static int has_anything(const char *copy)
{
    static const char *const parts[] = {"secrets", "format"};
    int found = place_count(copy, "segments", ".log") > 0;

    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        char path[PLACE_SIZE];
        place_join(path, copy, parts[i]);
        found = found || access(path, F_OK) == 0;
    }
    return found;
}

/* A copy is whole, or no store: nobody can take half of one for all that there was. */
static void check_copy(const volume_remains_t *remains, const char *query)
{
    char path[PLACE_SIZE], key[16];
    once_error_t err = {0};
    once_t *once;
    int code;

    place_join(path, remains->path, "copy");
    if (!has_anything(path)) {
        assert_int_not_equal(remains->promised, COPIED);
        place_remove(remains->path);
        return;
    }
    code = place_try(path, query, NULL, &once, &err);
    if (code == ONCE_E_CONFIG && remains->promised != COPIED) {
        place_remove(remains->path);
        return;
    }
    assert_int_equal(code, ONCE_OK);
    for (unsigned i = 0; i < RECORDS; i++) {
        (void)snprintf(key, sizeof(key), "key-%u", i);
        assert_int_equal(get(once, key).status, 201);
    }
    close_left(remains, once);
}

static void copy_and_check(const char *query)
{
    once_local_backup_report_t backup = ONCE_LOCAL_BACKUP_REPORT_INIT;
    char url[2 * PLACE_SIZE], copy[PLACE_SIZE], key[16];
    once_error_t err = {0};
    once_t *once = place_open(the.store, query, NULL);

    for (unsigned i = 0; i < RECORDS; i++) {
        (void)snprintf(key, sizeof(key), "key-%u", i);
        do_with_body(once, key, 201, 15000);
    }
    assert_int_equal(once_close(once, 5000), ONCE_OK);
    place_join(copy, the.root, "copy");
    (void)snprintf(url, sizeof(url), "local:%s", the.store);
    volume_start(the.root, the.below);
    assert_int_equal(once_local_backup(url, copy, NULL, &backup, &err), ONCE_OK);
    volume_promise(COPIED);
    volume_end();
    assert_true(backup.segments >= 3);
    for (unsigned i = 0; i < volume_remains_count; i++) {
        check_copy(&volume_remains[i], query);
    }
}

static void test_while_a_store_is_copied(void **state)
{
    copy_and_check(QUERY);
}

/* Then nothing but the segments and the format is copied. */
static void test_while_a_store_without_secrets_is_copied(void **state)
{
    char query[2 * PLACE_SIZE];

    (void)snprintf(query, sizeof(query), QUERY "&secrets=file:%s/secrets", the.base);
    copy_and_check(query);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_while_a_store_is_made),
        TEST(test_a_directory_that_another_could_not_sync),
        TEST(test_secrets_that_another_could_not_sync),
        TEST(test_while_secrets_are_replaced),
        TEST(test_while_a_store_is_copied),
        TEST(test_while_a_store_without_secrets_is_copied),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
