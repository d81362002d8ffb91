/*
 * Races between threads: with handles of their own, and through one handle that they share.
 *
 * What is counted: grants by (key, epoch), which must each happen once; and effects, which are what a holder does whose
 * completion was done. A holder that dies or is slow is a part of the game.
 */
#include "conformance/suite.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define KEYS   48
#define EPOCHS 2048

typedef struct race {
    once__peer_t *shared; /* NULL: every thread has a handle of its own */
    const char *policy;
    atomic_uint effects[KEYS];
    atomic_uint dropped[KEYS];
    atomic_ullong total;
    atomic_uint grants[KEYS][EPOCHS];
} race_t;

static race_t *new_race(once__test_t *t, const char *policy)
{
    race_t *race = once__test_alloc(t, sizeof(*race));

    race->policy = policy;
    return race;
}

static once__peer_t *join_race(once__test_t *t, const race_t *race)
{
    return race->shared != NULL ? once__peer_share(race->shared) : once__peer_open(t, "");
}

static const char *key_name(char out[16], unsigned key)
{
    (void)snprintf(out, 16, "key %u", key);
    return out;
}

static void count_grant(once__test_t *t, race_t *race, unsigned key, uint32_t epoch)
{
    CHECK(epoch >= 1 && epoch < EPOCHS);
    if (atomic_fetch_add(&race->grants[key][epoch], 1) != 0) {
        FAIL("epoch %u of key %u was granted twice", epoch, key);
    }
}

static unsigned grants_of(race_t *race, unsigned key)
{
    unsigned sum = 0;

    for (unsigned epoch = 1; epoch < EPOCHS; epoch++) {
        sum += atomic_load(&race->grants[key][epoch]);
    }
    return sum;
}

static void count_effect(race_t *race, unsigned key)
{
    atomic_fetch_add(&race->effects[key], 1);
    atomic_fetch_add(&race->total, key + 1);
}

/* ------------------------------------------------------------------------------------------------ one run per key */

static void run_every_key(once__test_t *t, unsigned number, void *data)
{
    race_t *race = data;
    once__peer_t *peer = join_race(t, race);
    uint64_t random = once__test_seed(t, number);
    unsigned start = (unsigned)once__test_random(&random) % KEYS;

    for (unsigned i = 0; i < 2 * KEYS; i++) {
        unsigned key = (start + i) % KEYS;
        char name[16];
        once__asked_t ask = {.key = key_name(name, key), .policy = race->policy};
        int outcome = once__peer_begin(peer, &ask);

        if (outcome == ONCE_OUTCOME_RUN) {
            once_response_t response = once__response(200, name);
            count_grant(t, race, key, once__peer_epoch(peer));
            EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(peer, &response));
            count_effect(race, key);
        } else if (outcome != ONCE_OUTCOME_BUSY) {
            once_response_t response = once__response(200, name);
            EXPECT(ONCE_OUTCOME_REPLAY, outcome);
            SAME_RESPONSE(&response, peer);
        }
    }
}

static void check_one_run(once__test_t *t, race_t *race)
{
    for (unsigned key = 0; key < KEYS; key++) {
        CHECK_EQ(1, atomic_load(&race->grants[key][1]));
        CHECK_EQ(1, grants_of(race, key));
        CHECK_EQ(1, atomic_load(&race->effects[key]));
    }
    CHECK_EQ(KEYS * (KEYS + 1) / 2, atomic_load(&race->total));
}

static void own_handles(once__test_t *t)
{
    race_t *race = new_race(t, LONG "recover=hold");

    once__test_run_threads(t, once__test_threads(t), run_every_key, race);
    check_one_run(t, race);
}

static void one_handle(once__test_t *t)
{
    race_t *race = new_race(t, LONG "recover=retry");

    race->shared = once__peer_open(t, "thread=on");
    once__test_run_threads(t, once__test_threads(t), run_every_key, race);
    check_one_run(t, race);
}

/* ------------------------------------------------------------------------------------------------------- releases */

enum { RELEASED_KEYS = 6, RELEASED_ROUNDS = 60 };

static void run_and_release(once__test_t *t, unsigned number, void *data)
{
    race_t *race = data;
    once__peer_t *peer = join_race(t, race);
    uint64_t random = once__test_seed(t, number);

    for (unsigned i = 0; i < RELEASED_ROUNDS; i++) {
        unsigned key = (unsigned)once__test_random(&random) % RELEASED_KEYS;
        char name[16];
        once__asked_t ask = {.key = key_name(name, key)};
        int outcome = once__peer_begin(peer, &ask);

        if (outcome == ONCE_OUTCOME_RUN) {
            count_grant(t, race, key, once__peer_epoch(peer));
            EXPECT(ONCE_OUTCOME_DONE, once__peer_release(peer, 0, ""));
        } else {
            EXPECT(ONCE_OUTCOME_BUSY, outcome);
        }
    }
}

static void releases(once__test_t *t)
{
    race_t *race = new_race(t, NULL);
    once__peer_t *a;

    once__test_run_threads(t, once__test_threads(t), run_and_release, race);
    a = once__peer_open(t, "");
    for (unsigned key = 0; key < RELEASED_KEYS; key++) {
        char name[16];
        once__asked_t ask = {.key = key_name(name, key)};
        EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
        CHECK_EQ(grants_of(race, key) + 1, once__peer_epoch(a));
    }
}

/* --------------------------------------------------------------------------------------- holders that die or are slow */

enum { MORTAL_KEYS = 8 };

static void act(once__test_t *t, race_t *race, once__peer_t *peer, unsigned key, uint64_t *random)
{
    int outcome;

    switch (once__test_random(random) % 4) {
    case 0:
        once__peer_drop(peer);
        atomic_fetch_add(&race->dropped[key], 1);
        return;
    case 1:
        once__test_wait(t, 70); /* longer than its lease */
        break;
    default:
        break;
    }
    outcome = once__peer_complete(peer, NULL);
    if (outcome == ONCE_OUTCOME_DONE) {
        count_effect(race, key);
    } else {
        EXPECT(ONCE_OUTCOME_LOST, outcome);
    }
}

static void run_mortally(once__test_t *t, unsigned number, void *data)
{
    race_t *race = data;
    once__peer_t *peer = join_race(t, race);
    uint64_t random = once__test_seed(t, number);

    for (unsigned key = 0; key < MORTAL_KEYS;) {
        char name[16];
        once__asked_t ask = {.key = key_name(name, key), .policy = race->policy};
        int outcome = once__peer_begin(peer, &ask);

        if (outcome == ONCE_OUTCOME_RUN) {
            count_grant(t, race, key, once__peer_epoch(peer));
            act(t, race, peer, key, &random);
        } else if (outcome == ONCE_OUTCOME_BUSY) {
            once__test_wait(t, 10);
        } else {
            EXPECT(strstr(race->policy, "hold") != NULL && outcome == ONCE_OUTCOME_UNKNOWN
                       ? ONCE_OUTCOME_UNKNOWN
                       : ONCE_OUTCOME_REPLAY,
                   outcome);
            key++;
        }
    }
}

static void mortal_retry(once__test_t *t)
{
    race_t *race = new_race(t, SHORT "recover=retry");
    once__peer_t *a;

    once__test_run_threads(t, once__test_threads(t), run_mortally, race);
    a = once__peer_open(t, "");
    for (unsigned key = 0; key < MORTAL_KEYS; key++) {
        char name[16];
        once__asked_t ask = {.key = key_name(name, key)};
        CHECK_EQ(1, atomic_load(&race->effects[key]));
        EXPECT(ONCE_OK, once__peer_get(a, &ask));
        CHECK_STATE(ONCE_STATE_COMPLETED, a);
        CHECK_EQ(grants_of(race, key), once__peer_epoch(a));
    }
    CHECK_EQ(MORTAL_KEYS * (MORTAL_KEYS + 1) / 2, atomic_load(&race->total));
}

static void mortal_hold(once__test_t *t)
{
    race_t *race = new_race(t, SHORT "recover=hold");
    once__peer_t *a;

    once__test_run_threads(t, once__test_threads(t), run_mortally, race);
    a = once__peer_open(t, "");
    for (unsigned key = 0; key < MORTAL_KEYS; key++) {
        char name[16];
        once__asked_t ask = {.key = key_name(name, key)};
        CHECK_EQ(1, grants_of(race, key));
        CHECK_EQ(1, atomic_load(&race->effects[key]) + atomic_load(&race->dropped[key]));
        EXPECT(ONCE_OK, once__peer_get(a, &ask));
        CHECK_STATE(atomic_load(&race->effects[key]) ? ONCE_STATE_COMPLETED : ONCE_STATE_UNKNOWN,
                    a);
    }
}

/* ---------------------------------------------------------------------------------------------------- the same claim */

static void repeat_claim(once__test_t *t, unsigned number, void *data)
{
    static const uint8_t id[ONCE_CLAIM_ID_SIZE] = "one for them al";
    const char *token = data;
    once__peer_t *peer = once__peer_open(t, "");

    for (unsigned i = 0; i < 20; i++) {
        once__asked_t ask = {.key = "k", .claim_id = (i + number) % 2 == 0 ? id : NULL};
        if (ask.claim_id != NULL) {
            EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(peer, &ask));
            CHECK(*token == '\0' || strcmp(token, peer->token) == 0);
        } else {
            EXPECT(ONCE_OUTCOME_BUSY, once__peer_begin(peer, &ask));
        }
    }
}

static void same_claim(once__test_t *t)
{
    char token[ONCE_TOKEN_SIZE] = "";
    once__peer_t *a = once__peer_open(t, "");
    once__asked_t ask = {.key = "k", .claim_id = (const uint8_t *)"one for them al"};

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    memcpy(token, a->token, sizeof(token));
    once__test_run_threads(t, once__test_threads(t), repeat_claim, token);
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(a, NULL));
}

const once__case_t once__race_cases[] = {
    {"race-own-handles", "each key runs once, all others replay it", own_handles},
    {"race-one-handle", "the same through one handle with a thread of its own", one_handle},
    {"race-releases", "each epoch is granted once, none is skipped", releases},
    {"race-mortal-holders", "retry: one effect per key, totals add up", mortal_retry},
    {"race-mortal-holders-under-hold", "hold: one grant per key, dropped ones end unknown",
     mortal_hold},
    {"race-same-claim", "a repeated claim id is one claim", same_claim},
    {0},
};
