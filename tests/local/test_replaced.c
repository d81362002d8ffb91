/*
 * The secrets or the whole directory are replaced while a program uses the store: another one must not decide beside it.
 */
#include "place.h"

#include "support/testing.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define QUERY "segment=64k&renew=off&reap=off&store_timeout=100ms"

static char base[PLACE_SIZE], path[PLACE_SIZE];
static once_t *first;

static int start(void **state)
{
    place_make(base);
    place_join(path, base, "store");
    first = place_open(path, QUERY, NULL);
    (void)get(first, "nothing");
    return 0;
}

static int end(void **state)
{
    (void)once_close(first, 1000);
    place_remove(base);
    return 0;
}

static void do_all(once_t *once, const char *key)
{
    told_t told = ask(once, key, "ttl=1h");

    assert_int_equal(told.outcome, ONCE_OUTCOME_RUN);
    assert_int_equal(complete(told.claim, 201, "x", 1).outcome, ONCE_OUTCOME_DONE);
}

static void assert_refused(once_t *once, const char *key)
{
    char trouble[200] = "";

    assert_int_equal(ask(once, key, NULL).error, ONCE_E_SECRET);
    (void)once_store_trouble(once, trouble, sizeof(trouble));
    assert_non_null(strstr(trouble, "has other secrets than this program"));
}

static void move(const char *from, const char *to)
{
    assert_int_equal(rename(from, to), 0);
}

/* With the same secrets, and with others. */
static void test_another_directory_in_its_place(void **state)
{
    char aside[PLACE_SIZE], copy[PLACE_SIZE];
    once_t *second;

    place_join(aside, base, "aside");
    place_join(copy, base, "copy");
    do_all(first, "before");
    place_copy(path, copy);
    move(path, aside);
    do_all(first, "nobody else is there");
    second = place_open(path, QUERY, NULL);
    do_all(second, "new");
    assert_refused(first, "new");
    assert_int_equal(once_close(second, 1000), ONCE_OK);
    place_remove(path);
    move(copy, path);
    second = place_open(path, QUERY, NULL);
    assert_int_equal(ask(second, "before", NULL).status, 201);
    do_all(second, "newer");
    assert_refused(first, "newer");
    assert_int_equal(once_close(second, 1000), ONCE_OK);
    place_remove(path);
    move(aside, path);
    assert_int_equal(ask(first, "before", NULL).status, 201);
    do_all(first, "newest");
}

static void test_other_secrets(void **state)
{
    char secrets[PLACE_SIZE], aside[PLACE_SIZE], other[PLACE_SIZE], others[PLACE_SIZE];
    once_t *second;

    place_join(secrets, path, "secrets");
    place_join(aside, base, "secrets");
    place_join(other, base, "other");
    do_all(first, "before");
    second = place_open(other, QUERY, NULL);
    do_all(second, "anything");
    assert_int_equal(once_close(second, 1000), ONCE_OK);
    place_join(others, other, "secrets");
    move(secrets, aside);
    move(others, secrets);
    second = place_open(path, QUERY, NULL);
    do_all(second, "new");
    assert_refused(first, "new");
    assert_int_equal(once_close(second, 1000), ONCE_OK);
    move(aside, secrets);
    do_all(first, "new");
}

/* Nobody could have made others meanwhile. */
static void test_secrets_that_were_removed_come_back(void **state)
{
    char secrets[PLACE_SIZE];
    once_t *second = NULL;

    place_join(secrets, path, "secrets");
    do_all(first, "before");
    assert_int_equal(unlink(secrets), 0);
    do_all(first, "after");
    second = place_open(path, QUERY, NULL);
    assert_int_equal(ask(second, "before", NULL).status, 201);
    assert_int_equal(ask(second, "after", NULL).status, 201);
    assert_int_equal(once_close(second, 1000), ONCE_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_another_directory_in_its_place, start, end),
        cmocka_unit_test_setup_teardown(test_other_secrets, start, end),
        cmocka_unit_test_setup_teardown(test_secrets_that_were_removed_come_back, start, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
