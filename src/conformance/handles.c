/*
 * What a handle promises on top of its store: renewal, claims that are never taken, closing, many calls at once, fork.
 */
#include "conformance/suite.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* -------------------------------------------------------------------------------------------------------- renewal */

static void needs_real_time(once__test_t *t)
{
    if (!once__test_real_time(t)) {
        once__test_not_applicable(t, "time does not pass by itself");
    }
}

/* Slow is not dead. */
static void renewed_while_held(once__test_t *t)
{
    once__asked_t ask = {.key = "k", .policy = "lease=900ms recover=retry"};
    once__peer_t *a, *b;

    needs_real_time(t);
    a = once__peer_open(t, "thread=on renew=on");
    b = once__peer_open(t, "");
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    for (int i = 0; i < 3; i++) {
        once__test_wait(t, 500);
        EXPECT(ONCE_OUTCOME_BUSY, once__peer_begin(b, &ask));
        CHECK_EQ(1, once__peer_epoch(b));
    }
    CHECK(once_claim_alive(a->claim));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(a, NULL));
}

/* Dead is noticed: a dropped claim is not renewed. */
static void dropped_runs_out(once__test_t *t)
{
    once__asked_t ask = {.key = "k", .policy = SHORT};
    once__peer_t *a, *b;

    needs_real_time(t);
    a = once__peer_open(t, "thread=on renew=on");
    b = once__peer_open(t, "");
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    once__peer_drop(a);
    once__peer_wait_lease(b, &ask);
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(b, &ask));
    CHECK_EQ(2, once__peer_epoch(b));
}

/* A holder that lost its claim learns it from its next renewal. */
static void loss_is_noticed(once__test_t *t)
{
    once__asked_t ask = {.key = "k", .policy = "lease=300ms"};
    once__peer_t *a, *b;

    needs_real_time(t);
    a = once__peer_open(t, "thread=on renew=on");
    b = once__peer_open(t, "");
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_settle(b, a->token, NULL, 1));
    for (int i = 0; i < 600 && once_claim_alive(a->claim); i++) {
        once__test_wait(t, 100);
    }
    CHECK(!once_claim_alive(a->claim));
}

/* ------------------------------------------------------------------------------------ claims that are never taken */

static once_ask_t make_ask(const char *scope, const char *key)
{
    once_ask_t ask = ONCE_ASK_INIT;

    ask.scope = once__text(scope);
    ask.key = once__text(key);
    ask.method = once__text("POST");
    ask.target = once__text("/payments");
    ask.bytes = once__text("{\"amount\":10}");
    return ask;
}

typedef struct heard {
    unsigned calls;
    unsigned outcomes[16];
    int error;
    once_claim_t *claim; /* taken when `take` is set */
    int take;
} heard_t;

static void hear(once_t *once, once_answer_t *answer, void *data)
{
    heard_t *heard = data;

    heard->calls++;
    heard->error = once_answer_error(answer);
    heard->outcomes[once_answer_outcome(answer) & 15]++;
    if (heard->take && once_answer_outcome(answer) == ONCE_OUTCOME_RUN) {
        heard->claim = once_answer_take_claim(answer);
    }
}

static void wait_until(once__test_t *t, once__peer_t *peer, const unsigned *calls, unsigned want)
{
    for (int i = 0; i < 6000 && *calls < want; i++) {
        int code = once_wait(peer->once, 10);
        if (code < 0) {
            EXPECT(ONCE_OK, code);
        }
    }
    CHECK_EQ(want, *calls);
}

static void untaken_is_released(once__test_t *t)
{
    once__asked_t asked = {.key = "k"};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");
    char scope[ONCE__SCOPE_SIZE];
    heard_t heard = {0};
    once_ask_t ask;

    once__peer_scope(t, &asked, scope);
    ask = make_ask(scope, "k");
    EXPECT(ONCE_OK, once_begin(a->once, &ask, hear, &heard));
    wait_until(t, a, &heard.calls, 1);
    CHECK_EQ(1, heard.outcomes[ONCE_OUTCOME_RUN]);
    once__peer_close(a); /* what was submitted is done before it is gone */
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(b, &asked));
    CHECK_EQ(2, once__peer_epoch(b));
}

static void closing_finishes_writes(once__test_t *t)
{
    once__asked_t asked = {.key = "k"};
    once_response_t response = once__response(200, "written while closing");
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");
    heard_t heard = {0};

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &asked));
    EXPECT(ONCE_OK, once_claim_complete(a->claim, &response, hear, &heard));
    a->claim = NULL;
    once__peer_close(a);
    CHECK_EQ(1, heard.calls);
    CHECK_EQ(1, heard.outcomes[ONCE_OUTCOME_DONE]);
    EXPECT(ONCE_OUTCOME_REPLAY, once__peer_begin(b, &asked));
    SAME_RESPONSE(&response, b);
}

/* Closing without a word is dying: the claim is neither released nor doubted. */
static void closing_keeps_claims(once__test_t *t)
{
    once__asked_t asked = {.key = "k"};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &asked));
    once__peer_close(a);
    EXPECT(ONCE_OUTCOME_BUSY, once__peer_begin(b, &asked));
    CHECK_STATE(ONCE_STATE_PENDING, b);
}

/* -------------------------------------------------------------------------------------------------- many at once */

/* Calls that are submitted in one turn travel together: each is answered once, and the same key runs once. */
static void one_turn(once__test_t *t)
{
    enum { KEYS = 200, ASKS = 5 };
    once__asked_t asked = {.key = "k"};
    once__peer_t *a = once__peer_open(t, "");
    heard_t *heard = once__test_alloc(t, KEYS * sizeof(*heard));
    char scope[ONCE__SCOPE_SIZE], key[16], token[ONCE_TOKEN_SIZE];
    once_response_t response = once__response(200, "");
    heard_t ended = {0};

    once__peer_scope(t, &asked, scope);
    for (unsigned i = 0; i < KEYS * ASKS; i++) {
        once_ask_t ask = make_ask(scope, key);
        (void)snprintf(key, sizeof(key), "%u", i % KEYS);
        ask.key = once__text(key);
        heard[i % KEYS].take = 1;
        EXPECT(ONCE_OK, once_begin(a->once, &ask, hear, &heard[i % KEYS]));
    }
    for (unsigned i = 0; i < KEYS; i++) {
        wait_until(t, a, &heard[i].calls, ASKS);
        CHECK_EQ(1, heard[i].outcomes[ONCE_OUTCOME_RUN]);
        CHECK_EQ(ASKS - 1, heard[i].outcomes[ONCE_OUTCOME_BUSY]);
        EXPECT(ONCE_OK, once_claim_complete(heard[i].claim, &response, hear, &ended));
    }
    wait_until(t, a, &ended.calls, KEYS);
    CHECK_EQ(KEYS, ended.outcomes[ONCE_OUTCOME_DONE]);
    for (unsigned i = 0; i < KEYS; i++) {
        (void)snprintf(key, sizeof(key), "%u", i);
        asked.key = key;
        EXPECT(ONCE_OUTCOME_REPLAY, once__peer_begin(a, &asked));
        once_record_token(a->record, token);
        EXPECT(ONCE_OUTCOME_DONE, once__peer_purge(a, token, 0));
    }
}

/* ------------------------------------------------------------------------------------------------------------- fork */

/* A child must not use its parent's handle: its calls fail, and the parent goes on. */
static void forked(once__test_t *t)
{
    once__asked_t asked = {.key = "k"};
    once__peer_t *a = once__peer_open(t, "");
    char scope[ONCE__SCOPE_SIZE];
    once_ask_t ask;
    int pid, status = 0;

    once__peer_scope(t, &asked, scope);
    ask = make_ask(scope, "in the child");
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &asked));
    pid = (int)fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        once_response_t response = once__response(200, "by the child");
        once_answer_t *answer = NULL;
        int wrong = once_begin_sync(a->once, &ask, &answer) != ONCE_E_FORKED ||
                    once_claim_complete_sync(a->claim, &response, NULL) != ONCE_E_FORKED ||
                    once_wait(a->once, 0) != ONCE_E_FORKED;
        _exit(wrong);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(a, NULL));
    EXPECT(ONCE_OUTCOME_REPLAY, once__peer_begin(a, &asked));
}

const once__case_t once__handle_cases[] = {
    {"handle-renews-while-held", "a slow holder keeps its claim", renewed_while_held},
    {"handle-drops-what-is-dropped", "a dropped claim runs out", dropped_runs_out},
    {"handle-notices-a-loss", "a renewal reports that the claim is lost", loss_is_noticed},
    {"handle-releases-untaken-claims", "a claim that the callback did not take",
     untaken_is_released},
    {"handle-closing-finishes-writes", "a submitted completion is in the store when it is closed",
     closing_finishes_writes},
    {"handle-closing-keeps-claims", "a claim still held is left to its lease",
     closing_keeps_claims},
    {"handle-many-in-one-turn", "1000 asks for 200 keys: each answered once, each key runs once",
     one_turn},
    {"handle-is-not-for-children", "after fork every call is refused, the parent goes on", forked},
    {0},
};
