/*
 * The file `lock` is removed while a program uses the store: another one cannot see it, and must not decide beside it.
 */
#include "place.h"

#include "support/testing.h"

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

    assert_int_equal(told.outcome, ONCE_RUN);
    assert_int_equal(complete(told.claim, 201, "x", 1).outcome, ONCE_DONE);
}

static void remove_lock(void)
{
    char file[PLACE_SIZE];

    place_join(file, path, "lock");
    assert_int_equal(unlink(file), 0);
}

static void test_a_writer_keeps_others_out(void **state)
{
    once_error_t err = {0};
    once_t *second = NULL;

    do_all(first, "before");
    remove_lock();
    assert_int_equal(place_try(path, QUERY, NULL, &second, &err), ONCE_E_CONFLICT);
    do_all(first, "after");
    assert_int_equal(ask(first, "before", NULL).status, 201);
    assert_int_equal(once_close(first, 1000), ONCE_OK);
    first = place_open(path, QUERY, NULL);
    assert_int_equal(ask(first, "after", NULL).status, 201);
}

static void test_who_did_not_write_is_out(void **state)
{
    told_t told;
    once_t *second;

    do_all(first, "before");
    assert_int_equal(once_close(first, 1000), ONCE_OK);
    first = place_open(path, QUERY, NULL);
    assert_int_equal(ask(first, "before", NULL).status, 201);
    remove_lock();
    second = place_open(path, QUERY, NULL);
    do_all(second, "key");
    told = ask(first, "key", NULL);
    assert_int_equal(told.error, ONCE_E_UNAVAILABLE);
    assert_int_equal(ask(first, "before", NULL).error, ONCE_E_UNAVAILABLE);
    assert_int_equal(ask(second, "before", NULL).status, 201);
    assert_int_equal(once_close(second, 1000), ONCE_OK);
    assert_int_equal(once_close(first, 1000), ONCE_OK);
    first = place_open(path, QUERY, NULL);
    assert_int_equal(ask(first, "key", NULL).status, 201);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_writer_keeps_others_out, start, end),
        cmocka_unit_test_setup_teardown(test_who_did_not_write_is_out, start, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
