/* What an answer means for an intent: docs/call.md#what-is-sent-again. */
#include "support/testing.h"

#include "client/judge.h"

static once__client_verdict_t judge(int status, const char *problem)
{
    once__client_reply_t reply = {status, 0, 0, problem};

    return once__client_judge(&reply);
}

static void statuses(void **state)
{
    for (int status = 200; status < 600; status++) {
        once__client_verdict_t expected = status < 500 ? ONCE__CLIENT_FINAL : ONCE__CLIENT_AGAIN;
        once__client_reply_t replayed = {status, 1, 1, ""};
        if (status >= 300 && status < 400 && status != 303) {
            expected = ONCE__CLIENT_REDIRECTED;
        } else if (status == 408 || status == 421 || status == 425 || status == 429) {
            expected = ONCE__CLIENT_AGAIN;
        } else if (status == 401 || status == 403 || status == 407) {
            expected = ONCE__CLIENT_DENIED;
        }
        assert_int_equal(judge(status, ""), expected);
        assert_int_equal(once__client_judge(&replayed), ONCE__CLIENT_FINAL);
    }
}

static void conflicts(void **state)
{
    once__client_reply_t later = {409, 0, 1, ""};

    assert_int_equal(judge(409, "in-flight"), ONCE__CLIENT_AGAIN);
    assert_int_equal(judge(409, "in-doubt"), ONCE__CLIENT_AGAIN);
    assert_int_equal(judge(409, "outcome-unknown"), ONCE__CLIENT_UNKNOWN);
    assert_int_equal(judge(409, "something"), ONCE__CLIENT_FINAL);
    assert_int_equal(judge(422, "key-reused"), ONCE__CLIENT_FINAL);
    assert_int_equal(once__client_judge(&later), ONCE__CLIENT_AGAIN);
    later.problem = "outcome-unknown";
    assert_int_equal(once__client_judge(&later), ONCE__CLIENT_UNKNOWN);
}

static void problems(void **state)
{
    static const struct {
        const char *body, *problem;
    } cases[] = {
        {"", ""},
        {"{}", ""},
        {"{\"type\": \"about:blank\"}", ""},
        {"{\"type\":\"urn:once:problem:in-flight\",\"status\":409}", "in-flight"},
        {"{\"type\": \"urn:once:problem:outcome-unknown\"", "outcome-unknown"},
        {"urn:once:problem:", ""},
        {"urn:once:problem:a-name-that-is-longer-than-there-is-room", "a-name-"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char out[16];
        size_t room = i + 1 < sizeof(cases) / sizeof(cases[0]) ? sizeof(out) : 8;
        once__client_problem(out, room, cases[i].body, strlen(cases[i].body));
        assert_string_equal(out, cases[i].problem);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statuses),
        cmocka_unit_test(conflicts),
        cmocka_unit_test(problems),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
