/*
 * A held record that cannot be read any more: its segment stays, and its key is not taken for unused, until somebody decides.
 */
#include "place.h"

#include "support/testing.h"

#include <stdio.h>
#include <unistd.h>

#include <once/local.h>

#define QUERY "segment=64k&renew=off&reap=off"

static char base[PLACE_SIZE], path[PLACE_SIZE];

static int start(void **state)
{
    place_make(base);
    place_join(path, base, "store");
    return 0;
}

static int end(void **state)
{
    place_remove(base);
    return 0;
}

/* Two records that hold keeps, and many that have expired, in a segment that is finished. */
static void make_held(void)
{
    once_t *once = place_open(path, QUERY, NULL);

    for (int i = 0; i < 2; i++) {
        told_t told = ask(once, i == 0 ? "damaged" : "sound", "recover=hold lease=1h");
        assert_int_equal(told.outcome, ONCE_OUTCOME_RUN);
        once_claim_drop(told.claim);
    }
    for (int i = 0; i < 20; i++) {
        char key[16];
        told_t told;
        (void)snprintf(key, sizeof(key), "over %d", i);
        told = ask(once, key, "ttl=1s");
        assert_int_equal(complete(told.claim, 200, "", 0).outcome, ONCE_OUTCOME_DONE);
    }
    assert_int_equal(once_close(once, 5000), ONCE_OK);
}

/* Neither granted nor served; the other one is as it was. */
static void check_keys(once_t *once)
{
    assert_int_equal(ask(once, "damaged", "recover=hold").error, ONCE_E_CORRUPT);
    assert_int_equal(get(once, "damaged").error, ONCE_E_CORRUPT);
    assert_int_equal(get(once, "sound").state, ONCE_STATE_PENDING);
}

static void test_a_damaged_record(void **state)
{
    once_local_fsck_report_t report = ONCE_LOCAL_FSCK_REPORT_INIT;
    once_local_fsck_options_t how = ONCE_LOCAL_FSCK_OPTIONS_INIT;
    char url[PLACE_SIZE + 8], file[PLACE_SIZE];
    once_t *once;

    make_held();
    place_flip(path, 1, (ONCE__SEGMENT_HEADER + ONCE__FRAME_HEADER + 30) * 8);
    for (int i = 0; i < 3; i++) { /* each with an index that is made anew */
        peek_t peek;
        once = place_open(path, QUERY, NULL);
        check_keys(once);
        peek_open(&peek, path);
        peek_set_now(&peek, once__index_now(peek.index) + (uint64_t)30 * 24 * 3600 * 1000);
        peek_close(&peek);
        assert_int_equal(reap(once, NULL), ONCE_OK);
        check_keys(once);
        assert_int_equal(once_close(once, 5000), ONCE_OK);
        place_segment(file, path, 1);
        assert_int_equal(access(file, F_OK), 0);
    }
    (void)snprintf(url, sizeof(url), "local:%s", path);
    assert_int_equal(once_local_fsck(url, &how, &report, NULL), ONCE_OK);
    assert_int_equal(report.damaged, 1);
    how.repair = 1; /* somebody decides: the loss is accepted */
    assert_int_equal(once_local_fsck(url, &how, &report, NULL), ONCE_OK);
    once = place_open(path, QUERY, NULL);
    assert_int_equal(get(once, "damaged").error, ONCE_E_NOT_FOUND);
    assert_int_equal(get(once, "sound").state, ONCE_STATE_PENDING);
    assert_int_equal(once_close(once, 5000), ONCE_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_damaged_record, start, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
