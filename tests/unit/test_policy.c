#include "support/testing.h"

#include <string.h>

#include "core/policy.h"

static int set(once_policy_t *policy, const char *name, const char *value)
{
    return once_policy_set(policy, name, value, NULL);
}

static void the_defaults_are_as_documented(void **state)
{
    once_policy_t *policy = once_policy_new();

    assert_int_equal(once_policy_ttl_ms(policy), 24 * 3600 * 1000);
    assert_int_equal(once_policy_lease_ms(policy), 30 * 1000);
    assert_int_equal(once_policy_recover(policy), ONCE_RECOVER_RETRY);
    assert_int_equal(once_policy_release_ttl_ms(policy), 60 * 1000);
    assert_int_equal(set(policy, "lease", "5s"), ONCE_OK);
    assert_int_equal(once_policy_release_ttl_ms(policy), 10 * 1000);
    assert_int_equal(set(policy, "release_ttl", "5m"), ONCE_OK);
    assert_int_equal(once_policy_release_ttl_ms(policy), 300 * 1000);
    once_policy_free(policy);
}

static void the_defaults_can_be_written_out(void **state)
{
    once_policy_t defaults, written;

    once__policy_init(&defaults);
    once__policy_init(&written);
    memset(&written.record, 0xff, sizeof(written.record));
    memset(&written.release, 0xff, sizeof(written.release));
    written.ttl_ms = written.lease_ms = 1;
    written.recover = ONCE_RECOVER_HOLD;
    assert_int_equal(once_policy_parse(&written,
                                       "ttl=24h lease=30s recover=retry record=2xx,3xx,4xx "
                                       "release=401,403,407,421,425,429",
                                       NULL),
                     ONCE_OK);
    assert_memory_equal(&written, &defaults, sizeof(defaults));
}

static void copies_are_independent(void **state)
{
    once_policy_t *policy = once_policy_new(), *copy;

    assert_int_equal(set(policy, "ttl", "1h"), ONCE_OK);
    copy = once_policy_copy(policy);
    assert_int_equal(set(policy, "ttl", "2h"), ONCE_OK);
    assert_int_equal(once_policy_ttl_ms(copy), 3600 * 1000);
    once_policy_free(policy);
    once_policy_free(copy);
    once_policy_free(NULL);
}

static void durations_have_ranges(void **state)
{
    static const struct {
        const char *name, *value;
        int ok;
    } cases[] = {
        {"release_ttl", "999ms", 0},
        {"release_ttl", "1s", 1},
        {"release_ttl", "3650d", 1},
        {"release_ttl", "3651d", 0},
        {"ttl", "1s", 1},
        {"ttl", "1", 1},
        {"ttl", "999ms", 0},
        {"ttl", "0", 0},
        {"ttl", "3650d", 1},
        {"ttl", "3651d", 0},
        {"lease", "10ms", 1},
        {"lease", "9ms", 0},
        {"lease", "1d", 1},
        {"lease", "24h", 1},
        {"lease", "86401s", 0},
        {"lease", "25h", 0},
        {"ttl", "315360000001ms", 0},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        once_policy_t policy;
        once__policy_init(&policy);
        assert_int_equal(set(&policy, cases[i].name, cases[i].value),
                         cases[i].ok ? ONCE_OK : ONCE_E_CONFIG);
    }
}

static void recover_has_three_names(void **state)
{
    once_policy_t policy;

    once__policy_init(&policy);
    assert_int_equal(set(&policy, "recover", "hold"), ONCE_OK);
    assert_int_equal(policy.recover, ONCE_RECOVER_HOLD);
    assert_int_equal(set(&policy, "recover", "transactional"), ONCE_OK);
    assert_int_equal(policy.recover, ONCE_RECOVER_TRANSACTIONAL);
    assert_int_equal(set(&policy, "recover", "retry"), ONCE_OK);
    assert_int_equal(policy.recover, ONCE_RECOVER_RETRY);
    assert_string_equal(once_recover_name(ONCE_RECOVER_RETRY), "retry");
    assert_string_equal(once_recover_name(ONCE_RECOVER_HOLD), "hold");
    assert_string_equal(once_recover_name(ONCE_RECOVER_TRANSACTIONAL), "transactional");
    assert_non_null(once_recover_name((once_recover_t)77));
}

static void the_stricter_is_the_greater(void **state)
{
    assert_true(ONCE_RECOVER_RETRY < ONCE_RECOVER_TRANSACTIONAL &&
                ONCE_RECOVER_TRANSACTIONAL < ONCE_RECOVER_HOLD);
}

/* The statuses of `all` that are in the set, counted. */
static int count(const once__statuses_t *set_of)
{
    int n = 0;

    for (int status = ONCE__STATUS_MIN; status <= ONCE__STATUS_MAX; status++) {
        n += once__statuses_has(set_of, status);
    }
    return n;
}

static void lists_of_statuses(void **state)
{
    static const struct {
        const char *text;
        int size;
        int in, out; /* one that is in, one that is not; 0: none */
    } cases[] = {
        {"200", 1, 200, 201},           {"200,201", 2, 201, 202},
        {"200-204", 5, 204, 205},       {"200-200", 1, 200, 199},
        {"2xx", 100, 299, 300},         {"9xx", 100, 999, 899},
        {"4xx", 99, 409, 408},          {"408,4xx", 100, 408, 399},
        {"4xx,408", 100, 408, 500},     {"400-499", 100, 408, 500},
        {"5xx", 100, 503, 499},         {"all", 900, 503, 0},
        {"all,!5xx", 800, 408, 503},    {"4xx,!404", 98, 405, 404},
        {"4xx,!404,404", 99, 404, 408}, {"5xx,!502-504", 97, 505, 503},
        {"all,!all,200", 1, 200, 408},  {"408,4xx,!408", 99, 400, 408},
        {"2xx,2xx", 100, 200, 300},     {"400-499,!4xx,200", 1, 200, 408},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        once_policy_t policy;
        once__policy_init(&policy);
        assert_int_equal(set(&policy, "record", cases[i].text), ONCE_OK);
        assert_int_equal(count(&policy.record), cases[i].size);
        assert_true(once__statuses_has(&policy.record, cases[i].in));
        assert_false(once__statuses_has(&policy.record, cases[i].out));
    }
}

static void release_lists_are_meant_as_they_stand(void **state)
{
    once_policy_t policy;

    once__policy_init(&policy);
    assert_int_equal(set(&policy, "release", "4xx"), ONCE_OK);
    assert_int_equal(count(&policy.release), 100);
    assert_true(once__statuses_has(&policy.release, 408));
    assert_int_equal(set(&policy, "release", "503"), ONCE_OK);
    assert_int_equal(count(&policy.release), 1);
    assert_int_equal(set(&policy, "release", "none"), ONCE_OK);
    assert_int_equal(count(&policy.release), 0);
}

static void no_set_has_what_is_no_status(void **state)
{
    once_policy_t policy;

    once__policy_init(&policy);
    assert_int_equal(set(&policy, "record", "all"), ONCE_OK);
    assert_false(once__statuses_has(&policy.record, 99));
    assert_false(once__statuses_has(&policy.record, 1000));
    assert_false(once__statuses_has(&policy.record, -1));
    assert_false(once__statuses_has(&policy.record, 0));
}

static void errors_name_the_part_and_the_remedy(void **state)
{
    static const struct {
        const char *name, *value, *says;
    } cases[] = {
        {"ttl", "24x", "ttl: \"24x\" is not a duration; use 500ms, 30s, 5m, 24h or 7d"},
        {"ttl", "", "ttl: \"\" is not a duration; use 500ms, 30s, 5m, 24h or 7d"},
        {"ttl", "9999d", "ttl: \"9999d\" is out of range; use 1s to 3650d"},
        {"lease", "1ms", "lease: \"1ms\" is out of range; use 10ms to 1d"},
        {"recover", "Hold", "recover: \"Hold\" is not one of retry, hold, transactional"},
        {"record", "", "record: \"\" is not a status; use NNN, NNN-NNN, Nxx or all"},
        {"record", "2xx,", "record: \"\" is not a status; use NNN, NNN-NNN, Nxx or all"},
        {"record", "2xx, 3xx", "record: \" 3xx\" is not a status; use NNN, NNN-NNN, Nxx or all"},
        {"record", "2xx,!", "record: \"!\" is not a status; use NNN, NNN-NNN, Nxx or all"},
        {"record", "2xx,!!204", "record: \"!!204\" is not a status; use NNN, NNN-NNN, Nxx or all"},
        {"record", "!404",
         "record: \"!404\" takes out of nothing; begin with what is in: 4xx,!404"},
        {"record", "none", "record: \"none\" is not a status; use NNN, NNN-NNN, Nxx or all"},
        {"release", "all", "release: \"all\" is not a status; use NNN, NNN-NNN, Nxx or none"},
        {"release", "401,none", "release: \"none\" is not a status; use NNN, NNN-NNN, Nxx or none"},
        {"retain", "1h",
         "\"retain\" is not a part of a policy; use ttl, lease, recover, record, release "
         "or release_ttl"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        once_policy_t policy, before;
        once_error_t err = {0};
        once__policy_init(&policy);
        before = policy;
        assert_int_equal(once_policy_set(&policy, cases[i].name, cases[i].value, &err),
                         ONCE_E_CONFIG);
        assert_int_equal(err.code, ONCE_E_CONFIG);
        assert_string_equal(err.text, cases[i].says);
        assert_memory_equal(&policy, &before, sizeof(policy));
    }
}

static void what_is_no_status_is_refused(void **state)
{
    static const char *const items[] = {
        "99",   "099",  "1000", "2x",   "2XX",     "0xx",     "xxx",      "20",
        "2000", "-200", "+20",  "200-", "200-29",  "299-200", "200-2xx",  "200--299",
        "200 ", "a00",  "20x",  "2.0",  "200;201", "099-200", "200-1000",
    };

    for (size_t i = 0; i < sizeof(items) / sizeof(items[0]); i++) {
        once_policy_t policy;
        once__policy_init(&policy);
        assert_int_equal(set(&policy, "record", items[i]), ONCE_E_CONFIG);
        assert_int_equal(set(&policy, "release", items[i]), ONCE_E_CONFIG);
    }
}

static void several_parts_are_set_together(void **state)
{
    once_policy_t policy;

    once__policy_init(&policy);
    assert_int_equal(
        once_policy_parse(&policy, "  ttl=48h  recover=hold record=all,!500 lease=10 ", NULL),
        ONCE_OK);
    assert_int_equal(policy.ttl_ms, 48 * 3600 * 1000);
    assert_int_equal(policy.lease_ms, 10 * 1000);
    assert_int_equal(policy.recover, ONCE_RECOVER_HOLD);
    assert_int_equal(count(&policy.record), 899);
    assert_int_equal(once_policy_parse(&policy, "", NULL), ONCE_OK);
    assert_int_equal(once_policy_parse(&policy, "   ", NULL), ONCE_OK);
}

static void or_none_of_them(void **state)
{
    char too_long[700] = "record=200";
    const char *const texts[] = {
        "ttl=48h recover=maybe",
        "ttl=48h colour=red",
        "ttl=48h lease",
        "ttl=48h lease=",
        "ttl=48h =1",
        "ttl=48h ttl=49h",
        "ttl=48h\tlease=1s",
        too_long,
    };

    while (strlen(too_long) < sizeof(too_long) - 5) {
        strcat(too_long, ",200");
    }
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        once_policy_t policy, before;
        once_error_t err = {0};
        once__policy_init(&policy);
        before = policy;
        assert_int_equal(once_policy_parse(&policy, texts[i], &err), ONCE_E_CONFIG);
        assert_true(strlen(err.text) > 0);
        assert_memory_equal(&policy, &before, sizeof(policy));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_defaults_are_as_documented),
        cmocka_unit_test(the_defaults_can_be_written_out),
        cmocka_unit_test(copies_are_independent),
        cmocka_unit_test(durations_have_ranges),
        cmocka_unit_test(recover_has_three_names),
        cmocka_unit_test(the_stricter_is_the_greater),
        cmocka_unit_test(lists_of_statuses),
        cmocka_unit_test(release_lists_are_meant_as_they_stand),
        cmocka_unit_test(no_set_has_what_is_no_status),
        cmocka_unit_test(errors_name_the_part_and_the_remedy),
        cmocka_unit_test(what_is_no_status_is_refused),
        cmocka_unit_test(several_parts_are_set_together),
        cmocka_unit_test(or_none_of_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
