/*
 * once demo: what once does, told as a short story that checks itself.
 *
 * Every answer is compared with what the story says. The text has no times in it, so that it is the same at every run.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "cli/commands.h"
#include "cli/store.h"
#include "cli/text.h"

#define LEASE "1s" /* the story waits for two of them */

typedef struct demo {
    once_t *once;
    once_policy_t *hold;
    char scope
        [ONCE_UUID_SIZE]; /* of this run: the story can be told on any store, any number of times */
    unsigned asked;
    int wrong; /* answers that were not as told */
    int error; /* of the store: the story ends */
} demo_t;

/* What the story asks for. */
typedef struct request {
    const char *key;
    const char *target;
    const char *body;
} request_t;

static const request_t order_1 = {"order-1", "/charges", "{\"amount\":4200}"};
static const request_t order_1_changed = {"order-1", "/charges", "{\"amount\":9900}"};
static const request_t booking = {"order-2", "/bookings", "{\"seat\":\"12A\"}"};
static const request_t transfer_1 = {"transfer-1", "/transfers", "{\"amount\":50000}"};

static const char charge_1[] = "{\"charge\":\"ch_1\"}";
static const char booking_late[] = "{\"booking\":\"bk_1\"}";
static const char booking_done[] = "{\"booking\":\"bk_2\"}";
static const char transfer_done[] = "{\"transfer\":\"tr_1\"}";

static void chapter(const demo_t *demo, const char *title)
{
    if (demo->error == ONCE_OK) {
        printf("\n%s\n", title);
    }
}

static void line(const demo_t *demo, const char *who, const char *what)
{
    if (demo->error == ONCE_OK) {
        printf("  %-9s %s\n", who, what);
    }
}

static void wrong(demo_t *demo, const char *expected)
{
    printf("  WRONG     expected: %s\n", expected);
    demo->wrong++;
}

/* Asks, and prints what was asked. NULL after an error of the store. */
static once_answer_t *ask(demo_t *demo, const request_t *request, const once_policy_t *policy)
{
    once_ask_t ask = ONCE_ASK_INIT;
    once_answer_t *answer = NULL;

    ask.scope = once__slice_of(demo->scope);
    ask.key = once__slice_of(request->key);
    ask.method = once__slice_of("POST");
    ask.target = once__slice_of(request->target);
    ask.bytes = once__slice_of(request->body);
    ask.policy = policy;
    if (demo->error == ONCE_OK) {
        printf("  %-9s POST %s %s with key %s\n", "asked", request->target, request->body,
               request->key);
        demo->asked++;
        demo->error = once_begin_sync(demo->once, &ask, &answer);
    }
    return answer;
}

static void check_outcome(demo_t *demo, const once_answer_t *answer, once_outcome_t expected,
                          const char *meaning)
{
    once_outcome_t outcome = answer != NULL ? once_answer_outcome(answer) : ONCE_OUTCOME_NONE;

    if (demo->error != ONCE_OK) {
        return;
    }
    if (outcome == expected) {
        printf("  %-9s %s: %s\n", "answered", once_outcome_name(outcome), meaning);
    } else {
        line(demo, "answered", once_outcome_name(outcome));
        wrong(demo, once_outcome_name(expected));
    }
}

/* Asks and expects to run; returns the claim, NULL when it was not granted. */
static once_claim_t *ask_to_run(demo_t *demo, const request_t *request, const once_policy_t *policy,
                                uint32_t epoch, const char *meaning)
{
    once_answer_t *answer = ask(demo, request, policy);
    once_claim_t *claim = NULL;

    check_outcome(demo, answer, ONCE_OUTCOME_RUN, meaning);
    if (answer != NULL) {
        claim = once_answer_take_claim(answer);
    }
    if (claim != NULL && once_claim_epoch(claim) != epoch) {
        wrong(demo, "another epoch");
    }
    once_answer_free(answer);
    return claim;
}

static void ask_and_expect(demo_t *demo, const request_t *request, const once_policy_t *policy,
                           once_outcome_t expected, const char *meaning)
{
    once_answer_t *answer = ask(demo, request, policy);

    check_outcome(demo, answer, expected, meaning);
    once_answer_free(answer);
}

static void expect_replay(demo_t *demo, const request_t *request, const once_policy_t *policy,
                          const char *body)
{
    once_response_t response = ONCE_RESPONSE_INIT;
    once_answer_t *answer = ask(demo, request, policy);
    const once_record_t *record = answer != NULL ? once_answer_record(answer) : NULL;
    int same = 0;

    check_outcome(demo, answer, ONCE_OUTCOME_REPLAY,
                  "it was done before, this is what was answered then");
    if (record != NULL && once_record_response(record, &response) == ONCE_OK) {
        char text[64];
        once__cli_escape(text, sizeof(text), response.body);
        printf("  %-9s %d %s\n", "", response.status, text);
        same = response.status == 201 && strcmp(text, body) == 0;
    }
    if (demo->error == ONCE_OK && !same) {
        wrong(demo, body);
    }
    once_answer_free(answer);
}

static once_response_t response_201(const char *body)
{
    once_response_t response = ONCE_RESPONSE_INIT;

    response.status = 201;
    response.body = once__slice_of(body);
    return response;
}

/* The work is done; the claim is completed with this body. */
static void complete(demo_t *demo, once_claim_t *claim, const char *body, once_outcome_t expected,
                     const char *meaning)
{
    once_response_t response = response_201(body);
    once_answer_t *answer = NULL;

    if (claim == NULL || demo->error != ONCE_OK) {
        once_claim_drop(claim);
        return;
    }
    printf("  %-9s complete with 201 %s\n", "told", body);
    demo->error = once_claim_complete_sync(claim, &response, &answer);
    check_outcome(demo, answer, expected, meaning);
    once_answer_free(answer);
}

/* The record of a request as it is now. NULL after an error. */
static once_answer_t *read_record(demo_t *demo, const request_t *request)
{
    uint8_t id[ONCE_ID_SIZE];
    once_answer_t *answer = NULL;

    if (demo->error == ONCE_OK) {
        demo->error = once_record_id_of(demo->once, once__slice_of(demo->scope),
                                        once__slice_of(request->key), id);
    }
    if (demo->error == ONCE_OK) {
        demo->error = once_record_get_sync(demo->once, id, &answer);
    }
    return answer;
}

/* Waits until the store says that the lease is over. */
static void wait_for_lease(demo_t *demo, const request_t *request)
{
    uint64_t left = 1;

    line(demo, "", "(the lease runs out)");
    while (demo->error == ONCE_OK && left > 0) {
        once_answer_t *answer = read_record(demo, request);
        int waited = 0;
        if (answer != NULL) {
            left = once_record_lease_ms(once_answer_record(answer));
            waited = left > 0 ? once_wait(demo->once, (int)left) : 0;
        }
        if (waited < 0) {
            demo->error = waited;
        }
        once_answer_free(answer);
    }
}

static void tell_retries(demo_t *demo)
{
    once_claim_t *claim;

    chapter(demo, "1. A shop charges a card. The order's key goes with the request.");
    claim = ask_to_run(demo, &order_1, NULL, 1, "nobody did this before, the claim is yours");
    complete(demo, claim, charge_1, ONCE_OUTCOME_DONE, "recorded");

    chapter(demo, "2. The answer got lost on its way. The client sends the same request again.");
    expect_replay(demo, &order_1, NULL, charge_1);

    chapter(demo, "3. A bug uses the key of that order for another amount.");
    ask_and_expect(demo, &order_1_changed, NULL, ONCE_OUTCOME_MISMATCH,
                   "this key belongs to something else");
}

static void tell_takeover(demo_t *demo)
{
    char token[ONCE_TOKEN_SIZE] = "";
    once_claim_t *slow = NULL;
    once_claim_t *claim;

    chapter(demo, "4. A double click: a seat is being booked when the same request comes again.");
    claim = ask_to_run(demo, &booking, NULL, 1, "nobody did this before, the claim is yours");
    ask_and_expect(demo, &booking, NULL, ONCE_OUTCOME_BUSY,
                   "somebody is doing it, ask again later");

    chapter(
        demo,
        "5. The first worker falls silent before its transaction ends. Nobody renews its lease.");
    if (claim != NULL) {
        once_claim_token(claim, token);
        once_claim_drop(claim);
    }
    wait_for_lease(demo, &booking);
    claim = ask_to_run(demo, &booking, NULL, 2, "its holder is gone, the claim is yours, epoch 2");
    complete(demo, claim, booking_done, ONCE_OUTCOME_DONE, "recorded");

    chapter(demo,
            "6. It was not dead, only slow. Now it wants to commit, and its booking with it.");
    if (demo->error == ONCE_OK && once_claim_adopt(demo->once, token, 0, &slow) != ONCE_OK) {
        wrong(demo, "a claim");
    }
    complete(demo, slow, booking_late, ONCE_OUTCOME_LOST,
             "epoch 1 is over, so its transaction is rolled back");
    expect_replay(demo, &booking, NULL, booking_done);
}

static void doubt(demo_t *demo, once_claim_t *claim)
{
    once_answer_t *answer = NULL;

    if (claim == NULL || demo->error != ONCE_OK) {
        once_claim_drop(claim);
        return;
    }
    line(demo, "told", "doubt: the bank did not answer in time");
    demo->error = once_claim_doubt_sync(claim, &answer);
    check_outcome(demo, answer, ONCE_OUTCOME_DONE, "from now on nobody knows");
    once_answer_free(answer);
}

static void settle(demo_t *demo)
{
    once_response_t response = response_201(transfer_done);
    once_answer_t *read = read_record(demo, &transfer_1);
    once_settle_t settlement = ONCE_SETTLE_INIT;
    once_answer_t *answer = NULL;
    char token[ONCE_TOKEN_SIZE];

    if (read != NULL) {
        printf("  %-9s settle: it took effect, with 201 %s\n", "told", transfer_done);
        once_record_token(once_answer_record(read), token);
        settlement.token = token;
        settlement.response = &response;
        demo->error = once_record_settle_sync(demo->once, &settlement, &answer);
        check_outcome(demo, answer, ONCE_OUTCOME_DONE, "recorded");
    }
    once_answer_free(answer);
    once_answer_free(read);
}

static void tell_unknown(demo_t *demo)
{
    once_claim_t *claim;

    chapter(demo, "7. A transfer that must never be made twice: its policy is hold.");
    claim =
        ask_to_run(demo, &transfer_1, demo->hold, 1, "nobody did this before, the claim is yours");
    doubt(demo, claim);
    ask_and_expect(demo, &transfer_1, demo->hold, ONCE_OUTCOME_UNKNOWN,
                   "it may have been done, so it is not done again");

    chapter(demo, "8. A person asks the bank and settles the record: the transfer was made.");
    wait_for_lease(demo, &transfer_1);
    settle(demo);
    expect_replay(demo, &transfer_1, demo->hold, transfer_done);
}

static int tell_end(const demo_t *demo)
{
    if (demo->error != ONCE_OK) {
        return once__cli_store_failed("go on with the story", demo->error);
    }
    if (demo->wrong > 0) {
        once__cli_say("%d answers differed from the script", demo->wrong);
        return ONCE__CLI_NO;
    }
    printf("\n%u requests for 3 operations: each took effect exactly once.\n", demo->asked);
    return ONCE__CLI_OK;
}

static int prepare(demo_t *demo)
{
    int error = once_key_uuid4(demo->scope);

    demo->hold = once_policy_new();
    if (error == ONCE_OK && demo->hold == NULL) {
        error = ONCE_E_NOMEM;
    }
    if (error == ONCE_OK) {
        error = once_policy_parse(demo->hold, "recover=hold lease=" LEASE, NULL);
    }
    return error;
}

static int run_demo(const once__cli_call_t *call)
{
    static const char *const settings[] = {"lease", LEASE, "recover", "transactional", NULL};
    demo_t demo = {0};
    const char *url = call->url != NULL ? call->url : "memory:";
    int code = once__cli_reach(url);

    if (code == ONCE__CLI_OK) {
        code = once__cli_open_url(url, settings, &demo.once);
    }
    if (code == ONCE__CLI_OK) {
        demo.error = prepare(&demo);
        tell_retries(&demo);
        tell_takeover(&demo);
        tell_unknown(&demo);
        code = tell_end(&demo);
    }
    once_policy_free(demo.hold);
    once__cli_close(demo.once);
    return code;
}

const once__cli_command_t once__cli_demo = {
    .name = "demo",
    .operands = "[URL]",
    .summary = "tells in a few seconds what once does, on a store in memory",
    .details =
        "Every answer is compared with what the story says; exits with 1 when one differs. With a\n"
        "URL the story is told on that store, under a scope of its own.\n",
    .store = ONCE__CLI_MAY_STORE,
    .run = run_demo,
};
