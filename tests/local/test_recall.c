/*
 * once_recall: finds what is completed with the same fingerprint, and nothing else.
 */
#include "place.h"

#include "support/testing.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <once/experimental.h>

#include "base/bytes.h"

#define MANY    150
#define LOOKERS 6 /* more than can look without waiting for each other */
#define WRITES  40

static once_ask_t about(const char *key, const char *body)
{
    once_ask_t ask = ONCE_ASK_INIT;

    ask.scope = once__slice("tenant", 6);
    ask.method = once__slice("POST", 4);
    ask.key = once__slice(key, strlen(key));
    ask.bytes = once__slice(body, strlen(body));
    return ask;
}

static int is_found(once_t *once, const char *key, const char *body)
{
    once_ask_t ask = about(key, body);
    unsigned char found = 9;

    assert_int_equal(once_recall(once, &ask, NULL, 1, &found), ONCE_OK);
    return found;
}

static void take(once_t *once, once_answer_t *answer, void *data)
{
    assert_int_equal(once_answer_outcome(answer), ONCE_OUTCOME_RUN);
    *(once_claim_t **)data = once_answer_take_claim(answer);
}

static once_claim_t *claim_as(once_t *once, const once_ask_t *ask, const uint8_t *digest)
{
    once_claim_t *taken = NULL;

    if (digest != NULL) {
        assert_int_equal(once_begin_digested(once, ask, digest, take, &taken), ONCE_OK);
    } else {
        assert_int_equal(once_begin(once, ask, take, &taken), ONCE_OK);
    }
    while (taken == NULL) {
        assert_true(once_wait(once, -1) >= 0);
    }
    return taken;
}

static once_claim_t *claim(once_t *once, const char *key, const char *body)
{
    once_ask_t ask = about(key, body);

    return claim_as(once, &ask, NULL);
}

static void finish(once_claim_t *taken, uint64_t retain_ms)
{
    once_response_t response = ONCE_RESPONSE_INIT;

    response.body = once__slice("done", 4);
    response.retain_ms = retain_ms;
    assert_int_equal(once_claim_complete_sync(taken, &response, NULL), ONCE_OK);
}

static void purge(once_t *once, const char *key)
{
    char token[ONCE_TOKEN_SIZE];
    uint8_t id[ONCE_ID_SIZE];
    once_answer_t *answer;

    assert_int_equal(
        once_record_id_of(once, once__slice("tenant", 6), once__slice(key, strlen(key)), id),
        ONCE_OK);
    assert_int_equal(once_record_get_sync(once, id, &answer), ONCE_OK);
    once_record_token(once_answer_record(answer), token);
    once_answer_free(answer);
    assert_int_equal(once_record_purge_sync(once, token, 0, NULL), ONCE_OK);
}

static void only_what_is_completed_is_found(void **state)
{
    char base[PLACE_SIZE], path[PLACE_SIZE];
    once_t *once, *other;
    once_claim_t *taken;

    place_make(base);
    place_join(path, base, "store");
    once = place_open(path, NULL, NULL);
    assert_false(is_found(once, "k", "body")); /* the secrets are not there yet */
    taken = claim(once, "k", "body");
    assert_false(is_found(once, "k", "body"));
    assert_int_equal(once_claim_release_sync(taken, 500, once__slice("", 0), NULL), ONCE_OK);
    assert_false(is_found(once, "k", "body"));
    taken = claim(once, "k", "body");
    assert_int_equal(once_claim_doubt_sync(taken, once__slice("timeout", 7), NULL), ONCE_OK);
    assert_false(is_found(once, "k", "body"));
    finish(claim(once, "l", "body"), 0);
    assert_true(is_found(once, "l", "body"));
    assert_false(is_found(once, "l", "another body"));
    assert_false(is_found(once, "m", "body"));
    other = place_open(path, NULL, NULL);
    once_claim_drop(claim(other, "n", "body"));
    assert_true(is_found(other, "l", "body"));
    purge(other, "l");
    assert_false(is_found(once, "l", "body"));
    assert_int_equal(once_close(other, 0), ONCE_OK);
    assert_int_equal(once_close(once, 0), ONCE_OK);
    place_remove(base);
}

static void what_has_expired_is_not_found(void **state)
{
    char base[PLACE_SIZE], path[PLACE_SIZE];
    once_t *once;
    uint8_t id[ONCE_ID_SIZE];
    once_answer_t *answer;

    place_make(base);
    place_join(path, base, "store");
    once = place_open(path, NULL, NULL);
    finish(claim(once, "k", "body"), 300);
    assert_int_equal(once_record_id_of(once, once__slice("tenant", 6), once__slice("k", 1), id),
                     ONCE_OK);
    while (once_record_get_sync(once, id, &answer) == ONCE_OK) {
        once_answer_free(answer);
    }
    assert_false(is_found(once, "k", "body"));
    assert_int_equal(once_close(once, 0), ONCE_OK);
    place_remove(base);
}

/* More than are looked at together; every third one is there, of which some are asked about with their digest. */
static void many_are_looked_at_together(void **state)
{
    static char keys[MANY][16];
    uint8_t digests[1][ONCE_DIGEST_SIZE];
    once_slice_t body = once__slice("body", 4);
    unsigned char found[MANY];
    once_ask_t asks[MANY];
    const uint8_t *known[MANY] = {NULL};
    char base[PLACE_SIZE], path[PLACE_SIZE];
    once_t *once;

    place_make(base);
    place_join(path, base, "store");
    once = place_open(path, NULL, NULL);
    once_digest(&body, 1, digests);
    for (size_t i = 0; i < MANY; i++) {
        snprintf(keys[i], sizeof(keys[i]), "key-%zu", i);
        if (i % 3 == 0) {
            finish(claim(once, keys[i], "body"), 0);
        }
        asks[i] = about(keys[i], "body");
        if (i % 6 == 0) {
            asks[i].bytes.len = 0;
            known[i] = digests[0];
        }
    }
    assert_int_equal(once_recall(once, asks, known, MANY, found), ONCE_OK);
    for (size_t i = 0; i < MANY; i++) {
        assert_int_equal(found[i], i % 3 == 0);
    }
    assert_int_equal(once_close(once, 0), ONCE_OK);
    place_remove(base);
}

#define KINDS 80

/* With and without a body, scopes, methods and targets of several lengths, keys around those at which a hash has a block more. */
static once_ask_t ask_of_kind(size_t i, const once_body_t *body)
{
    static const size_t lengths[] = {2, 55, 56, 63, 64, 65, 119, 120, 200, 255};
    static char keys[KINDS][256], long_scope[230], long_target[300];
    const once_slice_t scopes[] = {once__slice("tenant", 6), once__slice("", 0),
                                   once__slice(long_scope, sizeof(long_scope))};
    const once_slice_t targets[] = {once__slice("/a", 2), once__slice("", 0),
                                    once__slice(long_target, sizeof(long_target))};
    once_ask_t ask = ONCE_ASK_INIT;

    memset(keys[i], 'k', sizeof(keys[i]));
    memset(long_scope, 's', sizeof(long_scope));
    memset(long_target, 't', sizeof(long_target));
    keys[i][1] = (char)('!' + i);
    ask.key = once__slice(keys[i], lengths[i % 10]);
    ask.scope = scopes[i / 5 % 3];
    ask.method = i / 7 % 2 ? once__slice("POST", 4) : once__slice("PATCH", 5);
    ask.target = targets[i / 2 % 3];
    if (i % 4 == 1) {
        ask.bytes = once__slice("body", 4);
    }
    ask.body = i % 4 == 3 ? body : NULL;
    return ask;
}

/* None of them is found by what differs in one part from what was asked. */
static void assert_only_the_same(once_t *once, const once_ask_t *asks, const uint8_t *const *known)
{
    uint8_t digest[ONCE_DIGEST_SIZE] = {1};
    const uint8_t *digests[KINDS];
    once_ask_t others[KINDS];
    unsigned char found[KINDS];

    for (int part = 0; part < 4; part++) {
        for (size_t i = 0; i < KINDS; i++) {
            others[i] = asks[i];
            digests[i] = known[i];
            if (part == 3) {
                others[i].bytes.len = 0;
                others[i].body = NULL;
                digests[i] = digest;
            } else {
                *(part == 0   ? &others[i].scope
                  : part == 1 ? &others[i].method
                              : &others[i].target) = once__slice("/other", 6);
            }
        }
        assert_int_equal(once_recall(once, others, digests, KINDS, found), ONCE_OK);
        for (size_t i = 0; i < KINDS; i++) {
            assert_int_equal(found[i], 0);
        }
    }
}

/* In one look: as each would be answered alone. Half of them were completed, under two secrets. */
static void asks_of_all_kinds_are_looked_at_together(void **state)
{
    char base[PLACE_SIZE], path[PLACE_SIZE];
    once_body_t *body = once_body_new(ONCE_BODY_MODE_JSON, once__slice("", 0));
    once_slice_t bytes = once__slice("digested", 8);
    uint8_t digests[1][ONCE_DIGEST_SIZE];
    const uint8_t *known[KINDS];
    once_ask_t asks[KINDS];
    unsigned char found[KINDS];
    once_t *once;

    place_make(base);
    place_join(path, base, "store");
    once = place_open(path, NULL, NULL);
    assert_int_equal(once_body_add(body, "{\"a\": 1}", 8), ONCE_OK);
    once_digest(&bytes, 1, digests);
    for (size_t i = 0; i < KINDS; i++) {
        asks[i] = ask_of_kind(i, body);
        known[i] = i % 4 == 2 ? digests[0] : NULL;
        if (i % 5 % 2 == 0) {
            finish(claim_as(once, &asks[i], known[i]), 0);
        }
        if (i == KINDS / 2) {
            assert_int_equal(once_secret_rotate_sync(once, 3600000, NULL), ONCE_OK);
        }
    }
    assert_int_equal(once_recall(once, asks, known, KINDS, found), ONCE_OK);
    for (size_t i = 0; i < KINDS; i++) {
        assert_int_equal(found[i], i % 5 % 2 == 0);
    }
    assert_only_the_same(once, asks, known);
    once_body_free(body);
    assert_int_equal(once_close(once, 0), ONCE_OK);
    place_remove(base);
}

typedef struct looker {
    pthread_t thread;
    once_t *once;
    _Atomic int *stop;
    _Atomic size_t *begun, *finished; /* how many of new-0, new-1, ... */
    size_t found, bad;
} looker_t;

static void *look_all_the_time(void *data)
{
    looker_t *looker = data;
    static const char *const fixed[] = {"old", "held", "never"};
    char keys[WRITES][16];
    once_ask_t asks[3 + WRITES];
    unsigned char found[3 + WRITES];

    for (size_t i = 0; i < 3; i++) {
        asks[i] = about(fixed[i], "body");
    }
    for (size_t i = 0; i < WRITES; i++) {
        snprintf(keys[i], sizeof(keys[i]), "new-%zu", i);
        asks[3 + i] = about(keys[i], "body");
    }
    do {
        size_t finished = atomic_load(looker->finished);
        looker->bad += once_recall(looker->once, asks, NULL, 3 + WRITES, found) != ONCE_OK;
        looker->bad += found[1] || found[2];
        looker->found += found[0];
        for (size_t i = 0; i < finished; i++) {
            looker->found += found[3 + i];
        }
        for (size_t i = atomic_load(looker->begun); i < WRITES; i++) {
            looker->bad += found[3 + i];
        }
    } while (!atomic_load(looker->stop) || looker->found == 0);
    return NULL;
}

/*
 * The handle belongs to this thread, which goes on writing, and changes the secrets meanwhile. What others look at in the same
 * moment may not be found; what is not there never is.
 */
static void other_threads_look_meanwhile(void **state)
{
    char base[PLACE_SIZE], path[PLACE_SIZE], key[16];
    _Atomic int stop = 0;
    _Atomic size_t begun = 0, finished = 0;
    looker_t lookers[LOOKERS];
    once_claim_t *held;
    once_t *once;

    place_make(base);
    place_join(path, base, "store");
    once = place_open(path, NULL, NULL);
    finish(claim(once, "old", "body"), 0);
    held = claim(once, "held", "body");
    for (size_t i = 0; i < LOOKERS; i++) {
        lookers[i] =
            (looker_t){.once = once, .stop = &stop, .begun = &begun, .finished = &finished};
        assert_int_equal(pthread_create(&lookers[i].thread, NULL, look_all_the_time, &lookers[i]),
                         0);
    }
    for (size_t i = 0; i < WRITES; i++) {
        snprintf(key, sizeof(key), "new-%zu", i);
        atomic_fetch_add(&begun, 1);
        finish(claim(once, key, "body"), 0);
        atomic_fetch_add(&finished, 1);
        if (i == WRITES / 2) {
            assert_int_equal(once_secret_rotate_sync(once, 3600000, NULL), ONCE_OK);
        }
    }
    atomic_store(&stop, 1);
    for (size_t i = 0; i < LOOKERS; i++) {
        assert_int_equal(pthread_join(lookers[i].thread, NULL), 0);
        assert_true(lookers[i].found > 0);
        assert_int_equal(lookers[i].bad, 0);
    }
    assert_true(is_found(once, "old", "body"));
    for (size_t i = 0; i < WRITES; i++) {
        snprintf(key, sizeof(key), "new-%zu", i);
        assert_true(is_found(once, key, "body"));
    }
    once_claim_drop(held);
    assert_int_equal(once_close(once, 0), ONCE_OK);
    place_remove(base);
}

static void never(once_t *once, once_answer_t *answer, void *data)
{
    fail();
}

static void wrong_asks_are_refused(void **state)
{
    once_t *once;
    const uint8_t *digest = (const uint8_t *)"0123456789abcdef0123456789abcdef";
    once_ask_t asks[2] = {about("k", "body"), about("", "body")};
    unsigned char found[2];

    assert_int_equal(once_open("memory:", NULL, &once, NULL), ONCE_OK);
    assert_int_equal(once_recall(once, asks, NULL, 2, found), ONCE_E_KEY);
    assert_int_equal(once_recall(once, NULL, NULL, 1, found), ONCE_E_INVALID);
    assert_int_equal(once_recall(once, asks, NULL, 1, NULL), ONCE_E_INVALID);
    assert_int_equal(once_recall(once, asks, &digest, 1, found), ONCE_E_INVALID);
    assert_int_equal(once_begin_digested(once, asks, digest, never, NULL), ONCE_E_INVALID);
    asks[0].bytes.len = 0;
    assert_int_equal(once_begin_digested(once, asks, NULL, never, NULL), ONCE_E_INVALID);
    assert_int_equal(once_recall(once, asks, &digest, 1, found), ONCE_OK);
    assert_int_equal(once_recall(once, asks, NULL, 0, found), ONCE_OK);
    assert_int_equal(once_close(once, 0), ONCE_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_what_is_completed_is_found),
        cmocka_unit_test(what_has_expired_is_not_found),
        cmocka_unit_test(many_are_looked_at_together),
        cmocka_unit_test(asks_of_all_kinds_are_looked_at_together),
        cmocka_unit_test(other_threads_look_meanwhile),
        cmocka_unit_test(wrong_asks_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
