#include "conformance/test.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char default_policy[] = LONG;
static const char default_body[] = "{\"amount\":10}";

/* Something that no test is about went wrong: the machine or the store's connection, said in words. */
#define MUST(t, code, what)                                                                        \
    do {                                                                                           \
        int code_ = (code);                                                                        \
        if (code_ != ONCE_OK) {                                                                    \
            once__test_fail(t, __FILE__, __LINE__, "%s: %s", what, once_error_name(code_));        \
        }                                                                                          \
    } while (0)

/* ---------------------------------------------------------------------------------------------- opening and closing */

static int set_options(once_options_t *options, const char *text, once_error_t *err)
{
    char copy[400];
    char *rest = copy;
    int code = ONCE_OK;

    (void)snprintf(copy, sizeof(copy), "renew=off reap=off store_timeout=60s %s", text);
    for (char *word = strtok_r(copy, " ", &rest); word != NULL && code == ONCE_OK;
         word = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(word, '=');
        if (value == NULL) {
            return ONCE_E_INVALID;
        }
        *value = '\0';
        code = once_options_set(options, word, value + 1, err);
    }
    return code;
}

int once__run_open(const once__run_t *run, const char *text, once_t **handle, once_error_t *err)
{
    once_options_t *options = once_options_new();
    int code;

    if (options == NULL) {
        return ONCE_E_NOMEM;
    }
    code = set_options(options, text, err);
    if (code == ONCE_OK) {
        code = run->options.open != NULL
                   ? run->options.open(run->url, options, handle, err, run->options.data)
                   : once_open(run->url, options, handle, err);
    }
    once_options_free(options);
    return code;
}

/* The newest comes first and is closed first: those that share a handle before the one that has it. */
static void add_peer(once__test_t *t, once__peer_t *peer)
{
    peer->test = t;
    (void)pthread_mutex_lock(&t->lock);
    peer->next = t->peers;
    t->peers = peer;
    (void)pthread_mutex_unlock(&t->lock);
}

once__peer_t *once__peer_open(once__test_t *t, const char *options)
{
    once__peer_t *peer = calloc(1, sizeof(*peer));
    once_error_t err = {ONCE_OK, ""};
    int code = ONCE_E_NOMEM;

    if (peer != NULL) {
        code = once__run_open(t->run, options, &peer->once, &err);
    }
    if (code != ONCE_OK) {
        free(peer);
        FAIL("opening with \"%s\": %s %s", options, once_error_name(code), err.text);
    }
    add_peer(t, peer);
    return peer;
}

once__peer_t *once__peer_share(once__peer_t *peer)
{
    once__test_t *t = peer->test;
    once__peer_t *other = calloc(1, sizeof(*other));

    CHECK(other != NULL);
    other->once = peer->once;
    other->shares = 1;
    add_peer(t, other);
    return other;
}

static void forget_answer(once__peer_t *peer)
{
    if (peer->answer != NULL) {
        once_answer_free(peer->answer);
    }
    peer->answer = NULL;
    peer->record = NULL;
}

void once__peer_close(once__peer_t *peer)
{
    once__test_t *t = peer->test;
    once__peer_t **place = &t->peers;

    (void)pthread_mutex_lock(&t->lock);
    while (*place != peer) {
        place = &(*place)->next;
    }
    *place = peer->next;
    (void)pthread_mutex_unlock(&t->lock);
    forget_answer(peer);
    if (peer->shares) {
        once__peer_drop(peer);
    } else {
        (void)once_close(peer->once, 1000);
    }
    free(peer);
}

/* ---------------------------------------------------------------------------------------------------------- asking */

void once__peer_scope(const once__test_t *t, const once__asked_t *asked, char out[ONCE__SCOPE_SIZE])
{
    (void)snprintf(out, ONCE__SCOPE_SIZE, "%s%s%s", t->scope, asked->scope != NULL ? "/" : "",
                   asked->scope != NULL ? asked->scope : "");
}

/* Takes over what a call answered and gives it as one number. */
static int outcome_of(once__peer_t *peer, int code, once_answer_t *answer)
{
    forget_answer(peer);
    if (code != ONCE_OK) {
        return code;
    }
    peer->answer = answer;
    peer->record = once_answer_record(answer);
    return (int)once_answer_outcome(answer);
}

static void take_claim(once__peer_t *peer)
{
    peer->claim = once_answer_take_claim(peer->answer);
    if (peer->claim == NULL) {
        once__test_fail(peer->test, __FILE__, __LINE__, "run came without a claim");
    }
    once_claim_token(peer->claim, peer->token);
    if (peer->record != NULL) {
        once__test_made(peer->test, once_record_id(peer->record));
    }
}

/* Another thread of the test has failed: there is nothing left to find out, and what this one waits for may never come. */
static void leave_if_over(once__test_t *t)
{
    if (once__test_is_over(t)) {
        once__test_leave();
    }
}

static uint64_t now_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* A grant that arrives after half its lease is released and claimed again: on a busy machine that is correct. */
static void note_time(once__test_t *t, uint64_t took_ms)
{
    if (took_ms >= SHORT_MS / 2 - 25) {
        (void)pthread_mutex_lock(&t->lock);
        t->late = 1;
        (void)pthread_mutex_unlock(&t->lock);
    }
}

int once__peer_begin(once__peer_t *peer, const once__asked_t *asked)
{
    once__test_t *t = peer->test;
    once_ask_t ask = ONCE_ASK_INIT;
    once_policy_t *policy;
    once_answer_t *answer = NULL;
    char scope[ONCE__SCOPE_SIZE];
    int code = ONCE_E_NOMEM;

    leave_if_over(t);
    policy = once_policy_new();
    once__peer_scope(t, asked, scope);
    ask.scope = once__text(scope);
    ask.key = once__text(asked->key);
    ask.method = once__text(asked->method != NULL ? asked->method : "POST");
    ask.target = once__text(asked->target != NULL ? asked->target : "/payments");
    ask.body = asked->body;
    ask.bytes = asked->bytes;
    if (asked->body == NULL && asked->bytes.data == NULL) {
        ask.bytes = once__text(default_body);
    }
    ask.policy = policy;
    ask.claim_id = asked->claim_id;
    ask.description = once__text(asked->description != NULL ? asked->description : "");
    ask.subject = once__text(asked->subject != NULL ? asked->subject : "");
    if (policy != NULL) {
        code =
            once_policy_parse(policy, asked->policy != NULL ? asked->policy : default_policy, NULL);
    }
    if (code == ONCE_OK) {
        uint64_t started = now_ms();
        code = once_begin_sync(peer->once, &ask, &answer);
        note_time(t, now_ms() - started);
        code = outcome_of(peer, code, answer);
    }
    once_policy_free(policy);
    if (code == ONCE_OUTCOME_RUN) {
        take_claim(peer);
    }
    return code;
}

/* A new handle may not have the secrets yet: they come with the first answer. */
static int record_id(once__peer_t *peer, const once__asked_t *asked, uint8_t id[ONCE_ID_SIZE])
{
    char scope[ONCE__SCOPE_SIZE];
    int code = ONCE_E_UNAVAILABLE;

    once__peer_scope(peer->test, asked, scope);
    for (int i = 0; i < 1000 && code == ONCE_E_UNAVAILABLE; i++) {
        code = once_record_id_of(peer->once, once__text(scope), once__text(asked->key), id);
        if (code == ONCE_E_UNAVAILABLE) {
            (void)once_wait(peer->once, 100);
        }
    }
    return code;
}

int once__peer_get(once__peer_t *peer, const once__asked_t *asked)
{
    uint8_t id[ONCE_ID_SIZE];
    once_answer_t *answer = NULL;
    int code;

    leave_if_over(peer->test);
    code = record_id(peer, asked, id);
    MUST(peer->test, code, "once_record_id_of");
    code = once_record_get_sync(peer->once, id, &answer);
    code = outcome_of(peer, code, answer);
    return code < 0 ? code : ONCE_OK;
}

/* ----------------------------------------------------------------------------------------------------------- writing */

/* The claim to act with; the peer no longer has it. */
static once_claim_t *give_claim(once__peer_t *peer)
{
    once_claim_t *claim = peer->claim;

    peer->claim = NULL;
    if (claim == NULL) {
        MUST(peer->test, once_claim_adopt(peer->once, peer->token, 600000, &claim),
             "once_claim_adopt");
    }
    return claim;
}

int once__peer_complete(once__peer_t *peer, const once_response_t *response)
{
    once_response_t done = once__response(201, "done");
    once_answer_t *answer = NULL;
    int code =
        once_claim_complete_sync(give_claim(peer), response != NULL ? response : &done, &answer);

    return outcome_of(peer, code, answer);
}

int once__peer_release(once__peer_t *peer, int status, const char *note)
{
    once_answer_t *answer = NULL;
    int code = once_claim_release_sync(give_claim(peer), status, once__text(note), &answer);

    return outcome_of(peer, code, answer);
}

int once__peer_release_early(once__peer_t *peer)
{
    once_answer_t *answer = NULL;
    int code =
        once_claim_release_early_sync(give_claim(peer), 401, once__text("who are you"), &answer);

    return outcome_of(peer, code, answer);
}

int once__peer_doubt(once__peer_t *peer)
{
    once_answer_t *answer = NULL;
    int code = once_claim_doubt_sync(give_claim(peer), once__text("timeout"), &answer);

    return outcome_of(peer, code, answer);
}

int once__peer_renew(once__peer_t *peer)
{
    once_answer_t *answer = NULL;
    int code;

    peer->claim = give_claim(peer);
    code = once_claim_renew_sync(peer->claim, &answer);
    return outcome_of(peer, code, answer);
}

void once__peer_drop(once__peer_t *peer)
{
    once_claim_drop(peer->claim);
    peer->claim = NULL;
}

once__peer_t *once__peer_as(once__peer_t *peer, const char *token)
{
    char copy[ONCE_TOKEN_SIZE];

    (void)snprintf(copy, sizeof(copy), "%s", token);
    once__peer_drop(peer);
    memcpy(peer->token, copy, sizeof(copy));
    return peer;
}

int once__peer_settle(once__peer_t *peer, const char *token, const once_response_t *response,
                      int force)
{
    once_settle_t settle = ONCE_SETTLE_INIT;
    once_answer_t *answer = NULL;
    int code;

    settle.token = token != NULL ? token : peer->token;
    settle.response = response;
    settle.note = once__text("settled by the test");
    settle.force = force;
    code = once_record_settle_sync(peer->once, &settle, &answer);

    return outcome_of(peer, code, answer);
}

int once__peer_purge(once__peer_t *peer, const char *token, int force)
{
    once_answer_t *answer = NULL;
    int code =
        once_record_purge_sync(peer->once, token != NULL ? token : peer->token, force, &answer);

    return outcome_of(peer, code, answer);
}

int once__peer_erase(once__peer_t *peer, const char *token)
{
    once_answer_t *answer = NULL;
    int code = once_record_erase_sync(peer->once, token != NULL ? token : peer->token, &answer);

    return outcome_of(peer, code, answer);
}

/* ---------------------------------------------------------------------------------------------------------- looking */

const once_record_t *once__peer_record(const once__peer_t *peer)
{
    if (peer->record == NULL) {
        once__test_fail(peer->test, __FILE__, __LINE__, "the answer came without a record");
    }
    return peer->record;
}

once_state_t once__peer_state(const once__peer_t *peer)
{
    return once_record_state(once__peer_record(peer));
}

uint32_t once__peer_epoch(const once__peer_t *peer)
{
    return once_record_epoch(once__peer_record(peer));
}

void once__peer_wait_lease(once__peer_t *peer, const once__asked_t *asked)
{
    once__test_t *t = peer->test;

    for (;;) {
        int code = once__peer_get(peer, asked);
        if (code != ONCE_OK) {
            FAIL("waiting for the lease of \"%s\": %s", asked->key, once_error_name(code));
        }
        if (once_record_lease_ms(once__peer_record(peer)) == 0) {
            return;
        }
        once__test_wait(t, once_record_lease_ms(peer->record));
    }
}

void once__peer_wait_gone(once__peer_t *peer, const once__asked_t *asked)
{
    once__test_t *t = peer->test;
    int code;

    while ((code = once__peer_get(peer, asked)) == ONCE_OK) {
        if (once_record_expires_ms(once__peer_record(peer)) == 0) {
            FAIL("\"%s\" never expires", asked->key);
        }
        once__test_wait(t, once_record_expires_ms(peer->record));
    }
    EXPECT(ONCE_E_NOT_FOUND, code);
}
