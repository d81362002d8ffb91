#include "asking.h"

#include <stdio.h>
#include <string.h>

static void ask_next(asking_t *asking);

static void completed(once_t *once, once_answer_t *answer, void *data)
{
    asking_t *asking = data;

    asking->failed += once_answer_outcome(answer) != ONCE_OUTCOME_DONE;
    asking->finished++;
    if (asking->started < asking->pairs) {
        ask_next(asking);
    }
}

static void answered(once_t *once, once_answer_t *answer, void *data)
{
    asking_t *asking = data;

    if (once_answer_outcome(answer) != ONCE_OUTCOME_RUN ||
        once_claim_complete(once_answer_take_claim(answer), &asking->response, completed, asking) !=
            ONCE_OK) {
        asking->failed++;
        asking->finished++;
    }
}

static void ask_next(asking_t *asking)
{
    once_ask_t ask = ONCE_ASK_INIT;
    char key[40];

    ask.key.data = key;
    ask.key.len = (size_t)snprintf(key, sizeof(key), "key-%08u-8e03978e", asking->keys++);
    ask.scope.data = "tenant-17";
    ask.scope.len = 9;
    ask.method.data = "POST";
    ask.method.len = 4;
    ask.target.data = "/v1/payments";
    ask.target.len = 12;
    ask.bytes.data = asking->body;
    ask.bytes.len = strlen(asking->body);
    asking->started++;
    if (once_begin(asking->once, &ask, answered, asking) != ONCE_OK) {
        asking->failed++;
        asking->finished++;
    }
}

void asking_run(asking_t *asking)
{
    asking->started = asking->finished = 0;
    for (unsigned i = 0; i < asking->in_flight; i++) {
        ask_next(asking);
    }
    while (asking->finished < asking->pairs) {
        (void)once_wait(asking->once, -1);
    }
}

void asking_fill(char *body, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        body[i] = (char)(33 + i * 7919 % 90);
    }
}
