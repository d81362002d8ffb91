/* The decisions of once_quota (nginx/ngx_http_once_bucket.h). */
#include "support/testing.h"

#include <string.h>

#include "../../nginx/ngx_http_once_bucket.h"

#define PERIOD 3600000000u
#define COUNT  10u
#define STEP   (PERIOD / COUNT)
#define START  7000000000u

static uint64_t take(ngx_http_once_bucket_t *set, uint64_t tag, uint64_t now)
{
    return ngx_http_once_bucket_take(set, tag, now, PERIOD, STEP);
}

static void empty(ngx_http_once_bucket_t *set, uint64_t tag, uint64_t now)
{
    for (unsigned i = 0; i < COUNT; i++) {
        assert_int_equal(take(set, tag, now), 0);
    }
    assert_true(take(set, tag, now) > 0);
}

static void a_bucket_empties_and_fills(void **state)
{
    ngx_http_once_bucket_t set[NGX_HTTP_ONCE_WAYS];
    (void)state;

    memset(set, 0, sizeof(set));
    empty(set, 1, START);
    assert_int_equal(take(set, 1, START), STEP);
    assert_int_equal(take(set, 1, START + STEP - 1), 1);
    assert_int_equal(take(set, 1, START + STEP), 0);
    assert_int_equal(take(set, 1, START + STEP), STEP);
    ngx_http_once_bucket_give(set, 1, STEP);
    assert_int_equal(take(set, 1, START + STEP), 0);
    empty(set, 1, START + 2 * (uint64_t)PERIOD);
    ngx_http_once_bucket_give(set, 2, STEP); /* of no caller */
}

static void scopes_do_not_share_while_there_is_room(void **state)
{
    ngx_http_once_bucket_t set[NGX_HTTP_ONCE_WAYS];
    (void)state;

    memset(set, 0, sizeof(set));
    for (uint64_t tag = 1; tag <= NGX_HTTP_ONCE_WAYS; tag++) {
        empty(set, tag, START);
    }
}

/* A caller that makes up scopes must not get more for any of them, nor for the one that it used up. */
static void many_scopes_reset_nothing(void **state)
{
    ngx_http_once_bucket_t set[NGX_HTTP_ONCE_WAYS];
    unsigned granted = 0;
    (void)state;

    memset(set, 0, sizeof(set));
    empty(set, 1, START);
    for (uint64_t tag = 2; tag < 1000; tag++) {
        granted += take(set, tag, START) == 0;
        assert_true(take(set, 1, START) > 0);
    }
    assert_int_equal(granted, (NGX_HTTP_ONCE_WAYS - 1) * COUNT);
    assert_true(take(set, 1, START + STEP - 1) > 0);
}

/* What a long period left behind does not lock out those of a short one for longer than theirs. */
static void a_long_period_is_cut_to_a_short_one(void **state)
{
    ngx_http_once_bucket_t set[NGX_HTTP_ONCE_WAYS];
    (void)state;

    memset(set, 0, sizeof(set));
    for (uint64_t tag = 1; tag <= NGX_HTTP_ONCE_WAYS; tag++) {
        empty(set, tag, START);
    }
    assert_int_equal(ngx_http_once_bucket_take(set, 99, START, 1000, 100), 100);
    assert_int_equal(ngx_http_once_bucket_take(set, 99, START + 100, 1000, 100), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bucket_empties_and_fills),
        cmocka_unit_test(scopes_do_not_share_while_there_is_room),
        cmocka_unit_test(many_scopes_reset_nothing),
        cmocka_unit_test(a_long_period_is_cut_to_a_short_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
