#include "support/testing.h"

#include <string.h>

#include "core/policy.h"

#define RECORD  ONCE_JUDGEMENT_RECORD
#define RELEASE ONCE_JUDGEMENT_RELEASE
#define EARLY   ONCE_JUDGEMENT_EARLY
#define DOUBT   ONCE_JUDGEMENT_DOUBT

typedef struct expected {
    int status;
    once_judgement_t retry, transactional, hold;
} expected_t;

/* Judges each status under the three policies, with these parts set. */
static void assert_judged(const char *parts, const expected_t *rows, size_t count)
{
    static const char *const recover[] = {"retry", "transactional", "hold"};

    for (size_t i = 0; i < count; i++) {
        once_judgement_t expected[] = {rows[i].retry, rows[i].transactional, rows[i].hold};
        for (int j = 0; j < 3; j++) {
            once_policy_t policy;
            once__policy_init(&policy);
            assert_int_equal(once_policy_parse(&policy, parts, NULL), ONCE_OK);
            assert_int_equal(once_policy_set(&policy, "recover", recover[j], NULL), ONCE_OK);
            assert_int_equal(once_policy_judge(&policy, rows[i].status, ONCE_VERDICT_NONE),
                             expected[j]);
        }
    }
}

#define ASSERT_JUDGED(parts, rows) assert_judged(parts, rows, sizeof(rows) / sizeof((rows)[0]))

static void by_default(void **state)
{
    static const expected_t rows[] = {
        {100, RELEASE, RELEASE, DOUBT}, {101, RELEASE, RELEASE, DOUBT},
        {199, RELEASE, RELEASE, DOUBT}, {200, RECORD, RECORD, RECORD},
        {201, RECORD, RECORD, RECORD},  {204, RECORD, RECORD, RECORD},
        {299, RECORD, RECORD, RECORD},  {302, RECORD, RECORD, RECORD},
        {400, RECORD, RECORD, RECORD},  {401, EARLY, EARLY, EARLY},
        {402, RECORD, RECORD, RECORD},  {403, EARLY, EARLY, EARLY},
        {404, RECORD, RECORD, RECORD},  {407, EARLY, EARLY, EARLY},
        {408, DOUBT, DOUBT, DOUBT},     {409, RECORD, RECORD, RECORD},
        {421, EARLY, EARLY, EARLY},     {422, RECORD, RECORD, RECORD},
        {425, EARLY, EARLY, EARLY},     {429, EARLY, EARLY, EARLY},
        {499, RECORD, RECORD, RECORD},  {500, RELEASE, RELEASE, DOUBT},
        {501, RELEASE, RELEASE, DOUBT}, {502, DOUBT, DOUBT, DOUBT},
        {503, DOUBT, DOUBT, DOUBT},     {504, DOUBT, DOUBT, DOUBT},
        {505, RELEASE, RELEASE, DOUBT}, {599, RELEASE, RELEASE, DOUBT},
        {600, RELEASE, RELEASE, DOUBT}, {999, RELEASE, RELEASE, DOUBT},
    };
    ASSERT_JUDGED("", rows);
}

static void what_is_no_status_is_doubt(void **state)
{
    static const expected_t rows[] = {
        {0, DOUBT, DOUBT, DOUBT},
        {-1, DOUBT, DOUBT, DOUBT},
        {99, DOUBT, DOUBT, DOUBT},
        {1000, DOUBT, DOUBT, DOUBT},
    };
    ASSERT_JUDGED("record=all release=1xx", rows);
}

/* A client cannot be given them. */
static void what_is_no_answer_is_not_recorded(void **state)
{
    static const expected_t rows[] = {
        {199, DOUBT, DOUBT, DOUBT},
        {200, RECORD, RECORD, RECORD},
        {599, RECORD, RECORD, RECORD},
        {600, DOUBT, DOUBT, DOUBT},
    };
    ASSERT_JUDGED("record=all", rows);
}

static void release_goes_before_record(void **state)
{
    static const expected_t rows[] = {
        {409, EARLY, EARLY, EARLY},
        {503, EARLY, EARLY, EARLY},
        {401, RECORD, RECORD, RECORD}, /* the list was replaced */
    };
    ASSERT_JUDGED("release=409,503 record=4xx,409,503", rows);
}

static void an_empty_release_list_records_all_4xx(void **state)
{
    static const expected_t rows[] = {
        {401, RECORD, RECORD, RECORD},
        {429, RECORD, RECORD, RECORD},
        {408, DOUBT, DOUBT, DOUBT},
    };
    ASSERT_JUDGED("release=none", rows);
}

static void doubtful_statuses_are_recorded_when_meant(void **state)
{
    static const expected_t all[] = {
        {408, RECORD, RECORD, RECORD}, {500, RECORD, RECORD, RECORD}, {502, RECORD, RECORD, RECORD},
        {503, RECORD, RECORD, RECORD}, {504, RECORD, RECORD, RECORD}, {599, RECORD, RECORD, RECORD},
        {401, EARLY, EARLY, EARLY},
    };
    static const expected_t some[] = {
        {408, RECORD, RECORD, RECORD},
        {503, RECORD, RECORD, RECORD},
        {504, DOUBT, DOUBT, DOUBT},
    };
    static const expected_t taken_out[] = {
        {502, RECORD, RECORD, RECORD},
        {503, DOUBT, DOUBT, DOUBT},
        {408, DOUBT, DOUBT, DOUBT},
    };
    ASSERT_JUDGED("record=all", all);
    ASSERT_JUDGED("record=2xx,400-410,503", some);
    ASSERT_JUDGED("record=4xx,5xx,!503", taken_out);
}

static void what_is_taken_out_of_record_may_run_again(void **state)
{
    static const expected_t rows[] = {
        {404, RELEASE, RELEASE, DOUBT},
        {302, RELEASE, RELEASE, DOUBT},
        {405, RECORD, RECORD, RECORD},
    };
    ASSERT_JUDGED("record=2xx,4xx,!404", rows);
}

static void the_backend_has_the_last_word(void **state)
{
    static const int statuses[] = {0, 100, 200, 401, 408, 500, 503, 999};

    for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++) {
        for (int recover = ONCE_RECOVER_RETRY; recover <= ONCE_RECOVER_HOLD; recover++) {
            once_policy_t policy;
            once__policy_init(&policy);
            policy.recover = (once_recover_t)recover;
            int is_answer = statuses[i] >= 200 && statuses[i] <= 599;
            assert_int_equal(once_policy_judge(&policy, statuses[i], ONCE_VERDICT_FINAL),
                             is_answer ? RECORD : DOUBT);
            assert_int_equal(once_policy_judge(&policy, statuses[i], ONCE_VERDICT_RETRY), RELEASE);
            assert_int_equal(once_policy_judge(&policy, statuses[i], ONCE_VERDICT_UNKNOWN), DOUBT);
        }
    }
}

static void verdicts_are_words(void **state)
{
    static const struct {
        const char *text;
        once_verdict_t verdict;
    } cases[] = {
        {"final", ONCE_VERDICT_FINAL},
        {"FINAL", ONCE_VERDICT_FINAL},
        {" \tFinal ", ONCE_VERDICT_FINAL},
        {"retry", ONCE_VERDICT_RETRY},
        {"Retry", ONCE_VERDICT_RETRY},
        {"unknown", ONCE_VERDICT_UNKNOWN},
        {"UnKnOwN\t", ONCE_VERDICT_UNKNOWN},
        {"", ONCE_VERDICT_NONE},
        {"   ", ONCE_VERDICT_NONE},
        {"fina", ONCE_VERDICT_NONE},
        {"finally", ONCE_VERDICT_NONE},
        {"final;q=1", ONCE_VERDICT_NONE},
        {"final, retry", ONCE_VERDICT_NONE},
        {"\"final\"", ONCE_VERDICT_NONE},
        {"f\xc4\xb1nal", ONCE_VERDICT_NONE},
        {"FI\x0e"
         "AL",
         ONCE_VERDICT_NONE},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(once_verdict_parse(cases[i].text, strlen(cases[i].text)),
                         cases[i].verdict);
    }
    assert_int_equal(once_verdict_parse("finality", 5),
                     ONCE_VERDICT_FINAL); /* no further than its length */
    assert_int_equal(once_verdict_parse("final\0", 6), ONCE_VERDICT_NONE);
    assert_int_equal(once_verdict_parse(NULL, 0), ONCE_VERDICT_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_default),
        cmocka_unit_test(what_is_no_status_is_doubt),
        cmocka_unit_test(what_is_no_answer_is_not_recorded),
        cmocka_unit_test(release_goes_before_record),
        cmocka_unit_test(an_empty_release_list_records_all_4xx),
        cmocka_unit_test(doubtful_statuses_are_recorded_when_meant),
        cmocka_unit_test(what_is_taken_out_of_record_may_run_again),
        cmocka_unit_test(the_backend_has_the_last_word),
        cmocka_unit_test(verdicts_are_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
