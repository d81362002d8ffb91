/*
 * Shortened ids: among enough records some share their first eight digits.
 */
#include "harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "records.h"

#define URL   "memory:prefix"
#define NAMES 400000 /* no two ids with the same first 32 bits: once in a hundred million runs */

typedef struct named {
    uint8_t id[ONCE_ID_SIZE];
    unsigned name;
} named_t;

static int compare(const void *a, const void *b)
{
    return memcmp(a, b, ONCE_ID_SIZE);
}

/* Two keys whose ids share their first eight digits. */
static void find_pair(once_t *once, char keys[2][16], char digits[9])
{
    named_t *list = calloc(NAMES, sizeof(*list));
    size_t at = 1;

    assert_non_null(list);
    for (unsigned i = 0; i < NAMES; i++) {
        char key[16];
        snprintf(key, sizeof(key), "%u", i);
        list[i].name = i;
        assert_int_equal(once_record_id_of(once, slice("s"), slice(key), list[i].id), ONCE_OK);
    }
    qsort(list, NAMES, sizeof(*list), compare);
    while (at < NAMES && memcmp(list[at - 1].id, list[at].id, 4) != 0) {
        at++;
    }
    assert_true(at < NAMES);
    snprintf(keys[0], 16, "%u", list[at - 1].name);
    snprintf(keys[1], 16, "%u", list[at].name);
    for (size_t i = 0; i < 4; i++) {
        snprintf(digits + 2 * i, 3, "%02x", list[at].id[i]);
    }
    free(list);
}

static void shared_beginnings(void **state)
{
    once_t *once = open_store(URL);
    char keys[2][16];
    char digits[9];
    const char *first, *second;
    size_t width;
    run_t r;

    find_pair(once, keys, digits);
    make_pending(once, "s", keys[0]);
    r = run("keys", "show", URL, digits, NULL); /* one record only: eight digits are enough */
    assert_run(r, ONCE__CLI_OK);
    run_free(&r);
    make_pending(once, "s", keys[1]);
    r = run("keys", "show", URL, digits, NULL);
    assert_run(r, ONCE__CLI_USAGE);
    assert_has(r.err, "several ids begin with");
    run_free(&r);
    r = run("keys", "release", URL, digits, "--force", "--yes", NULL);
    assert_run(r, ONCE__CLI_USAGE);
    run_free(&r);
    assert_int_equal(state_of(once, "s", keys[0]), ONCE_STATE_PENDING);

    r = run("keys", "list", URL, NULL); /* as many digits as it takes */
    assert_run(r, ONCE__CLI_OK);
    first = strstr(r.out, digits);
    assert_non_null(first);
    second = strstr(first + 8, digits);
    assert_non_null(second);
    width = strcspn(first, " ");
    assert_true(width > 8);
    assert_int_equal(strcspn(second, " "), width);
    assert_int_not_equal(strncmp(first, second, width), 0);
    assert_int_equal(strncmp(first, second, width - 1), 0);
    run_free(&r);
    once_close(once, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shared_beginnings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
