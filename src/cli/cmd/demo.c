/*
 * once demo: what once does, as a script that checks itself.
 *
 * The script is a table of steps; each prints what is done and what came of it, and compares that with what the script expects. The
 * text has no times in it, so that it is the same at every run.
 */
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "cli/commands.h"
#include "cli/store.h"
#include "cli/text.h"

#define LEASE "1s" /* the script waits for two of them */

typedef struct request {
    const char *key, *target, *body;
    int hold; /* under the policy hold */
} request_t;

static const request_t charge = {"order-1", "/charges", "{\"amount\":4200}", 0};
static const request_t changed = {"order-1", "/charges", "{\"amount\":9900}", 0};
static const request_t booking = {"order-2", "/bookings", "{\"seat\":\"12A\"}", 0};
static const request_t transfer = {"transfer-1", "/transfers", "{\"amount\":50000}", 1};

typedef enum deed {
    CHAPTER,
    ASK,      /* and, if it is to run, keep the claim */
    COMPLETE, /* the claim, with a body */
    DOUBT,    /* the outcome of the claim */
    FORGET,   /* the claim: its holder falls silent */
    RETURN,   /* the silent holder wakes up, and has its claim again */
    WAIT,     /* until the lease is over */
    SETTLE,   /* the record, with a body */
} deed_t;

typedef struct step {
    deed_t deed;
    const char *text; /* the title of a chapter, or what the outcome means */
    const request_t *request;
    once_outcome_t expected;
    uint32_t epoch;   /* of the claim that is expected */
    const char *body; /* of the completion, or of the replay that is expected */
} step_t;

#define FRESH     "nobody has done this before: the claim is yours"
#define REPLAYED  "it was done before; this was the response"
#define CHARGED   "{\"charge\":\"ch_1\"}"
#define LATE      "{\"booking\":\"bk_1\"}"
#define BOOKED    "{\"booking\":\"bk_2\"}"
#define PAID      "{\"transfer\":\"tr_1\"}"
#define OUTCOME_X ONCE_OUTCOME_NONE /* a step without an answer */

/* clang-format off */
static const step_t script[] = {
    {CHAPTER, "1. A shop charges a card. The order's key goes with the request.", NULL, OUTCOME_X, 0, NULL},
    {ASK, FRESH, &charge, ONCE_OUTCOME_RUN, 1, NULL},
    {COMPLETE, "recorded", NULL, ONCE_OUTCOME_DONE, 0, CHARGED},
    {CHAPTER, "2. The response was lost on the way. The client sends the same request again.", NULL, OUTCOME_X, 0, NULL},
    {ASK, REPLAYED, &charge, ONCE_OUTCOME_REPLAY, 0, CHARGED},
    {CHAPTER, "3. A bug uses the key of that order for another amount.", NULL, OUTCOME_X, 0, NULL},
    {ASK, "this key belongs to another request", &changed, ONCE_OUTCOME_MISMATCH, 0, NULL},
    {CHAPTER, "4. A double click: a seat is being booked when the same request arrives again.", NULL, OUTCOME_X, 0, NULL},
    {ASK, FRESH, &booking, ONCE_OUTCOME_RUN, 1, NULL},
    {ASK, "it is being done; ask again later", &booking, ONCE_OUTCOME_BUSY, 0, NULL},
    {CHAPTER, "5. The first worker goes silent before its transaction ends. Nobody renews its lease.", NULL, OUTCOME_X, 0, NULL},
    {FORGET, NULL, NULL, OUTCOME_X, 0, NULL},
    {WAIT, NULL, &booking, OUTCOME_X, 0, NULL},
    {ASK, "its holder is gone: the claim is yours, epoch 2", &booking, ONCE_OUTCOME_RUN, 2, NULL},
    {COMPLETE, "recorded", NULL, ONCE_OUTCOME_DONE, 0, BOOKED},
    {CHAPTER, "6. It was not dead, only slow. Now it wants to commit its booking.", NULL, OUTCOME_X, 0, NULL},
    {RETURN, NULL, NULL, OUTCOME_X, 0, NULL},
    {COMPLETE, "epoch 1 is over, so its transaction is rolled back", NULL, ONCE_OUTCOME_LOST, 0, LATE},
    {ASK, REPLAYED, &booking, ONCE_OUTCOME_REPLAY, 0, BOOKED},
    {CHAPTER, "7. A transfer that must never be made twice: its policy is hold.", NULL, OUTCOME_X, 0, NULL},
    {ASK, FRESH, &transfer, ONCE_OUTCOME_RUN, 1, NULL},
    {DOUBT, "from now on the outcome is unknown", NULL, ONCE_OUTCOME_DONE, 0, NULL},
    {ASK, "it may have been done, so it is not done again", &transfer, ONCE_OUTCOME_UNKNOWN, 0, NULL},
    {CHAPTER, "8. Someone asks the bank and settles the record: the transfer was made.", NULL, OUTCOME_X, 0, NULL},
    {WAIT, NULL, &transfer, OUTCOME_X, 0, NULL},
    {SETTLE, "recorded", &transfer, ONCE_OUTCOME_DONE, 0, PAID},
    {ASK, REPLAYED, &transfer, ONCE_OUTCOME_REPLAY, 0, PAID},
};
/* clang-format on */

typedef struct demo {
    once_t *once;
    once_policy_t *hold;
    char scope[ONCE_UUID_SIZE]; /* of this run: it can run on any store, any number of times */
    once_claim_t *claim;
    char silent[ONCE_TOKEN_SIZE]; /* the claim whose holder fell silent */
    unsigned asked;
    int wrong; /* answers that differ from the script */
} demo_t;

static void line(const char *who, const char *what, const char *more)
{
    printf("  %-9s %s%s\n", who, what, more);
}

static void wrong(demo_t *demo, const char *expected)
{
    line("WRONG", "expected: ", expected);
    demo->wrong++;
}

static int begin(demo_t *demo, const request_t *request, once_answer_t **answer)
{
    once_ask_t ask = ONCE_ASK_INIT;

    ask.scope = once__slice_of(demo->scope);
    ask.key = once__slice_of(request->key);
    ask.method = once__slice_of("POST");
    ask.target = once__slice_of(request->target);
    ask.description = once__slice_of(request->target);
    ask.bytes = once__slice_of(request->body);
    ask.policy = request->hold ? demo->hold : NULL;
    printf("  %-9s POST %s %s with key %s\n", "request", request->target, request->body,
           request->key);
    demo->asked++;
    return once_begin_sync(demo->once, &ask, answer);
}

static int read_record(demo_t *demo, const request_t *request, once_answer_t **answer)
{
    uint8_t id[ONCE_ID_SIZE];
    int error = once_record_id_of(demo->once, once__slice_of(demo->scope),
                                  once__slice_of(request->key), id);

    return error == ONCE_OK ? once_record_get_sync(demo->once, id, answer) : error;
}

static int wait_for_lease(demo_t *demo, const request_t *request)
{
    uint64_t left = 1;
    int error = ONCE_OK;

    line("", "(the lease runs out)", "");
    while (error >= 0 && left > 0) {
        once_answer_t *answer = NULL;
        error = read_record(demo, request, &answer);
        left = answer != NULL ? once_record_lease_ms(once_answer_record(answer)) : 0;
        if (error == ONCE_OK && left > 0) {
            error = once_wait(demo->once, (int)left);
        }
        once_answer_free(answer);
    }
    return error < 0 ? error : ONCE_OK;
}

static int settle(demo_t *demo, const request_t *request, const once_response_t *response,
                  once_answer_t **answer)
{
    once_settle_t settlement = ONCE_SETTLE_INIT;
    once_answer_t *read = NULL;
    char token[ONCE_TOKEN_SIZE];
    int error = read_record(demo, request, &read);

    if (error == ONCE_OK) {
        line("settle", "it took effect, with 201 ", PAID);
        once_record_token(once_answer_record(read), token);
        settlement.token = token;
        settlement.response = response;
        error = once_record_settle_sync(demo->once, &settlement, answer);
    }
    once_answer_free(read);
    return error;
}

/* Returns an error of the store. Without a claim, because a store did not grant it, there is nothing to end. */
static int perform(demo_t *demo, const step_t *step, once_answer_t **answer)
{
    once_response_t response = ONCE_RESPONSE_INIT;
    once_claim_t *claim = demo->claim;

    response.status = 201;
    response.body = once__slice_of(step->body != NULL ? step->body : "");
    switch (step->deed) {
    case CHAPTER:
        printf("\n%s\n", step->text);
        return ONCE_OK;
    case ASK:
        return begin(demo, step->request, answer);
    case WAIT:
        return wait_for_lease(demo, step->request);
    case SETTLE:
        return settle(demo, step->request, &response, answer);
    case RETURN:
        if (once_claim_adopt(demo->once, demo->silent, 0, &demo->claim) != ONCE_OK) {
            wrong(demo, "a claim");
        }
        return ONCE_OK;
    default:
        break;
    }
    demo->claim = NULL;
    if (claim == NULL) {
        return ONCE_OK;
    }
    if (step->deed == FORGET) {
        once_claim_token(claim, demo->silent);
        once_claim_drop(claim);
        return ONCE_OK;
    }
    if (step->deed == DOUBT) {
        line("doubt", "the bank did not answer in time", "");
        return once_claim_doubt_sync(claim, once__slice_of("timeout"), answer);
    }
    line("complete", "with 201 ", step->body);
    return once_claim_complete_sync(claim, &response, answer);
}

static void check_replay(demo_t *demo, const step_t *step, const once_answer_t *answer)
{
    once_response_t response = ONCE_RESPONSE_INIT;
    const once_record_t *record = once_answer_record(answer);
    char text[64] = "";

    if (record != NULL && once_record_response(record, &response) == ONCE_OK) {
        once__cli_escape(text, sizeof(text), response.body);
        printf("  %-9s %d %s\n", "", response.status, text);
    }
    if (response.status != 201 || strcmp(text, step->body) != 0) {
        wrong(demo, step->body);
    }
}

static void check(demo_t *demo, const step_t *step, once_answer_t *answer)
{
    once_outcome_t outcome = once_answer_outcome(answer);

    printf("  %-9s %s", "answer", once_outcome_name(outcome));
    if (outcome != step->expected) {
        puts("");
        wrong(demo, once_outcome_name(step->expected));
        return;
    }
    printf(": %s\n", step->text);
    if (outcome == ONCE_OUTCOME_REPLAY) {
        check_replay(demo, step, answer);
    } else if (outcome == ONCE_OUTCOME_RUN) {
        demo->claim = once_answer_take_claim(answer);
        if (once_claim_epoch(demo->claim) != step->epoch) {
            wrong(demo, "another epoch");
        }
    }
}

static int play(demo_t *demo)
{
    int error = once_key_uuid4(demo->scope);

    demo->hold = once_policy_new();
    if (error == ONCE_OK) {
        error = demo->hold != NULL
                    ? once_policy_parse(demo->hold, "recover=hold lease=" LEASE, NULL)
                    : ONCE_E_NOMEM;
    }
    for (size_t i = 0; error == ONCE_OK && i < sizeof(script) / sizeof(script[0]); i++) {
        once_answer_t *answer = NULL;
        error = perform(demo, &script[i], &answer);
        if (answer != NULL && error == ONCE_OK) {
            check(demo, &script[i], answer);
        }
        once_answer_free(answer);
    }
    once_claim_drop(demo->claim);
    once_policy_free(demo->hold);
    if (error != ONCE_OK) {
        return once__cli_store_failed("continue the demo", error);
    }
    if (demo->wrong > 0) {
        once__cli_say("%d answers differed from the script", demo->wrong);
        return ONCE__CLI_NO;
    }
    printf("\n%u requests for 3 operations: each took effect exactly once.\n", demo->asked);
    return ONCE__CLI_OK;
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
        code = play(&demo);
    }
    once__cli_close(demo.once);
    return code;
}

const once__cli_command_t once__cli_demo = {
    .name = "demo",
    .operands = "[URL]",
    .summary = "show in a few seconds what once does, on a store in memory",
    .details = "Every answer is compared with the script; exits with 1 if one differs. With a URL "
               "it runs\n"
               "on that store, under a scope of its own.\n",
    .store = ONCE__CLI_MAY_STORE,
    .run = run_demo,
};
