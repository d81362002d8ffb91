/*
 * The smallest user of an installed libonce, valid as C and as C++: the first ask runs, the second is a replay.
 */
#include <stdio.h>
#include <string.h>

#include <once/once.h>

static once_slice_t text(const char *string)
{
    once_slice_t slice = {string, strlen(string)};
    return slice;
}

static int ask(once_t *once, once_outcome_t expected)
{
    once_ask_t request = ONCE_ASK_INIT;
    once_response_t response = ONCE_RESPONSE_INIT;
    once_answer_t *answer = NULL;
    int code;

    request.scope = text("tenant");
    request.key = text("order-1");
    request.method = text("POST");
    request.target = text("/orders");
    request.bytes = text("{\"amount\": 1}");
    code = once_begin_sync(once, &request, &answer);
    if (code != ONCE_OK || once_answer_outcome(answer) != expected) {
        fprintf(stderr, "expected %s, got %s\n", once_outcome_name(expected),
                code != ONCE_OK ? once_error_text(code)
                                : once_outcome_name(once_answer_outcome(answer)));
        once_answer_free(answer);
        return -1;
    }
    if (expected == ONCE_OUTCOME_RUN) {
        response.status = 201;
        code = once_claim_complete_sync(once_answer_take_claim(answer), &response, NULL);
    }
    once_answer_free(answer);
    return code;
}

int main(void)
{
    once_error_t error;
    once_t *once = NULL;
    int failed;

    if (strcmp(once_version(), ONCE_VERSION) != 0) {
        fprintf(stderr, "headers %s, library %s\n", ONCE_VERSION, once_version());
        return 1;
    }
    if (once_open("memory:", NULL, &once, &error) != ONCE_OK) {
        fprintf(stderr, "open: %s\n", error.text);
        return 1;
    }
    failed = ask(once, ONCE_OUTCOME_RUN) != 0 || ask(once, ONCE_OUTCOME_REPLAY) != 0;
    return once_close(once, -1) != ONCE_OK || failed;
}
