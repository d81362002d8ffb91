/*
 * Charging a card once, whatever the caller does: ask, work, complete; ask again and get the same answer.
 *
 *     cc charge.c $(pkg-config --cflags --libs once) && ./a.out
 */
#include <stdio.h>
#include <string.h>

#include <once/once.h>

static once_slice_t text(const char *s)
{
    once_slice_t slice = {s, strlen(s)};
    return slice;
}

/* The effect that must not happen twice. */
static int charged_cents;

static void charge_card(int cents)
{
    charged_cents += cents;
}

/* One request as a service would handle it. Returns the HTTP status; the body goes to `out`. */
static int handle_request(once_t *once, const char *key, const char *body, char *out, size_t size)
{
    once_ask_t ask = ONCE_ASK_INIT;
    once_response_t response = ONCE_RESPONSE_INIT;
    once_answer_t *answer, *done;
    once_claim_t *claim;
    int code;

    ask.scope = text("customer-7");
    ask.key = text(key);
    ask.method = text("POST");
    ask.target = text("/charges");
    ask.bytes = text(body);
    code = once_begin_sync(once, &ask, &answer);
    if (code != ONCE_OK) {
        (void)snprintf(out, size, "%s", once_error_text(code));
        return 503;
    }
    switch (once_answer_outcome(answer)) {
    case ONCE_OUTCOME_RUN:
        claim = once_answer_take_claim(answer);
        charge_card(1999);
        response.status = 201;
        response.body = text("{\"charge\":\"ch_1\",\"amount\":\"19.99\"}");
        code = once_claim_complete_sync(claim, &response, &done);
        if (code == ONCE_OK && once_answer_outcome(done) == ONCE_OUTCOME_DONE) {
            (void)snprintf(out, size, "%.*s", (int)response.body.len,
                           (const char *)response.body.data);
        } else {
            if (code == ONCE_E_NOMEM) {
                once_claim_drop(claim); /* it was not taken: it runs out by its lease */
            }
            response.status = 503; /* never our own copy: the record says what holds */
            (void)snprintf(out, size, "not recorded; ask again with the same key");
        }
        once_answer_free(done);
        break;
    case ONCE_OUTCOME_REPLAY:
        code = once_record_response(once_answer_record(answer), &response);
        (void)snprintf(out, size, "%.*s (replayed)", (int)response.body.len,
                       (const char *)response.body.data);
        break;
    case ONCE_OUTCOME_MISMATCH:
        response.status = 422;
        (void)snprintf(out, size, "this key was used for another request");
        break;
    default: /* busy, or unknown under the policy hold */
        response.status = 409;
        (void)snprintf(out, size, "in progress");
        break;
    }
    once_answer_free(answer);
    return response.status;
}

int main(void)
{
    static const char *const bodies[] = {"{\"amount\":\"19.99\"}", "{\"amount\":\"19.99\"}",
                                         "{\"amount\":\"99.99\"}"};
    once_error_t err;
    once_t *once;
    char out[200];

    if (once_open("memory:?lease=10s", NULL, &once, &err) != ONCE_OK) {
        (void)fprintf(stderr, "charge: %s\n", err.text);
        return 1;
    }
    for (int i = 0; i < 3; i++) {
        int status = handle_request(once, "order-1042", bodies[i], out, sizeof(out));
        (void)printf("POST /charges %-19s -> %d %s\n", bodies[i], status, out);
    }
    (void)printf("charged in all: %d.%02d\n", charged_cents / 100, charged_cents % 100);
    return once_close(once, 1000) == ONCE_OK && charged_cents == 1999 ? 0 : 1;
}
