/*
 * Rotation of the fingerprint secret. It concerns every record of the store, so it is tried only where there are no others.
 */
#include "conformance/suite.h"

#include <stdatomic.h>
#include <stdio.h>

#define KEEP_MS 86400000

/* One rotation; another may be under way, and then it is tried again. ONCE_OK or the error. */
static int rotate_keeping(once__peer_t *peer, uint64_t keep_ms, uint64_t *id)
{
    once__asked_t ask = {.key = "warm"};
    once_answer_t *answer = NULL;
    int code = ONCE_E_CONFLICT;

    (void)once__peer_get(peer, &ask); /* the secrets are there when it has answered */
    for (int i = 0; i < 100 && code == ONCE_E_CONFLICT; i++) {
        code = once_secret_rotate_sync(peer->once, keep_ms, &answer);
        if (code == ONCE_E_CONFLICT) {
            (void)once_wait(peer->once, 100);
        }
    }
    if (code == ONCE_OK) {
        *id = once_answer_count(answer);
        once_answer_free(answer);
    }
    return code;
}

static uint64_t rotate(once__test_t *t, once__peer_t *peer)
{
    uint64_t id = 0;

    EXPECT(ONCE_OK, rotate_keeping(peer, KEEP_MS, &id));
    return id;
}

/*
 * A record whose secret is forgotten answers mismatch, so this is only for a store that is empty. Then the secrets of earlier
 * tests are forgotten: two are left, and there is room for two more.
 */
static void take_the_store(once__test_t *t, once__peer_t *peer)
{
    once_answer_t *answer = NULL;
    const once_stats_t *stats;
    uint64_t id, records;
    int code = ONCE_E_FULL;

    if (!once__test_exclusive(t)) {
        once__test_not_applicable(t, "others use the store: its secrets are not ours to rotate");
    }
    EXPECT(ONCE_OK, once_store_stats_sync(peer->once, &answer));
    stats = once_answer_stats(answer);
    records = stats->pending + stats->completed + stats->failed + stats->unknown;
    once_answer_free(answer);
    if (records > 0) {
        once__test_not_applicable(t, "the store has records: they need its secrets");
    }
    /* What was replaced in this very millisecond is not yet "longer ago". */
    for (int i = 0; i < 1000 && code == ONCE_E_FULL; i++) {
        (void)once_wait(peer->once, 2);
        code = rotate_keeping(peer, 0, &id);
    }
    EXPECT(ONCE_OK, code);
}

static void check_both(once__test_t *t, once__peer_t *peer, const char *key)
{
    once__asked_t ask = {.key = key}, other = {.key = key, .bytes = {"other", 5}};

    EXPECT(ONCE_OUTCOME_MISMATCH, once__peer_begin(peer, &other));
    EXPECT(ONCE_OUTCOME_REPLAY, once__peer_begin(peer, &ask));
    EXPECT(ONCE_OUTCOME_MISMATCH, once__peer_begin(peer, &other));
}

static void complete_key(once__test_t *t, once__peer_t *peer, const char *key)
{
    once__asked_t ask = {.key = key};

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(peer, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(peer, NULL));
}

static void old_records(once__test_t *t)
{
    once__peer_t *a = once__peer_open(t, ""), *b;
    uint64_t first, second;

    take_the_store(t, a);
    complete_key(t, a, "before");
    first = rotate(t, a);
    check_both(t, a, "before");
    complete_key(t, a, "between");
    second = rotate(t, a);
    CHECK_EQ(first + 1, second);
    complete_key(t, a, "after");
    b = once__peer_open(t, "");
    check_both(t, a, "before");
    check_both(t, b, "before");
    check_both(t, a, "between");
    check_both(t, b, "between");
    check_both(t, a, "after");
    check_both(t, b, "after");
}

/* A handle that has been open since before the rotation learns of it by itself. */
static void second_handle(once__test_t *t)
{
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    take_the_store(t, a);
    complete_key(t, a, "old, by a");
    complete_key(t, b, "old, by b");
    (void)rotate(t, a);
    complete_key(t, a, "new, by a");
    check_both(t, b, "new, by a");
    complete_key(t, b, "new, by b");
    check_both(t, a, "new, by b");
    check_both(t, b, "old, by a");
    check_both(t, a, "old, by b");
}

/* The first thing that an old handle sees of a new secret may be another request: that is a mismatch, not an error. */
static void second_handle_mismatch(once__test_t *t)
{
    once__asked_t ask = {.key = "new"}, other = {.key = "new", .bytes = {"other", 5}};
    once__asked_t pending = {.key = "pending"};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    take_the_store(t, a);
    complete_key(t, b, "warm");
    (void)rotate(t, a);
    complete_key(t, a, "new");
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &pending));
    EXPECT(ONCE_OUTCOME_MISMATCH, once__peer_begin(b, &other));
    EXPECT(ONCE_OUTCOME_REPLAY, once__peer_begin(b, &ask));
    EXPECT(ONCE_OUTCOME_BUSY, once__peer_begin(b, &pending));
}

/* What an old handle makes under the old secret is understood by handles that have the new one. */
static void old_handle_makes_new_records(once__test_t *t)
{
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");
    once__asked_t ask = {.key = "released"};

    take_the_store(t, a);
    complete_key(t, b, "warm");
    (void)rotate(t, a);
    complete_key(t, b, "made by the old");
    check_both(t, a, "made by the old");
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(b, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_release(b, 0, ""));
    (void)rotate(t, a);
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    CHECK_EQ(2, once__peer_epoch(a));
}

/* Four secrets can be kept. A fifth would make the records of the first unreadable before their time: refused. */
static void refuses_to_forget(once__test_t *t)
{
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");
    uint64_t id = 0;

    take_the_store(t, a);
    complete_key(t, a, "under the second");
    (void)rotate(t, a);
    complete_key(t, a, "under the third");
    (void)rotate(t, a);
    EXPECT(ONCE_E_FULL, rotate_keeping(a, KEEP_MS, &id));
    check_both(t, a, "under the second");
    check_both(t, b, "under the second");
    check_both(t, b, "under the third");
}

/* ------------------------------------------------------------------------------------------- rotation under traffic */

enum { ROTATIONS = 2, KEYS = 40 };

typedef struct traffic {
    atomic_int rotating;
    atomic_uint completed;
} traffic_t;

static void ask_or_rotate(once__test_t *t, unsigned number, void *data)
{
    traffic_t *traffic = data;
    once__peer_t *peer = once__peer_open(t, "");
    unsigned round = 0;

    if (number == 0) {
        for (int i = 0; i < ROTATIONS; i++) {
            (void)rotate(t, peer);
            once__test_wait(t, 20);
        }
        atomic_store(&traffic->rotating, 0);
        return;
    }
    do {
        char key[32];
        once__asked_t ask = {.key = key};
        int outcome;
        (void)snprintf(key, sizeof(key), "%u", round % KEYS);
        outcome = once__peer_begin(peer, &ask);
        if (outcome == ONCE_OUTCOME_RUN) {
            EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(peer, NULL));
            atomic_fetch_add(&traffic->completed, 1);
        } else if (outcome != ONCE_OUTCOME_BUSY && outcome != ONCE_OUTCOME_REPLAY) {
            EXPECT(ONCE_OUTCOME_REPLAY, outcome);
        }
        round++;
    } while (atomic_load(&traffic->rotating) || round < KEYS);
}

static void under_traffic(once__test_t *t)
{
    traffic_t traffic = {1, 0};

    take_the_store(t, once__peer_open(t, ""));
    once__test_run_threads(t, 4, ask_or_rotate, &traffic);
    CHECK_EQ(KEYS, atomic_load(&traffic.completed));
}

const once__case_t once__secret_cases[] = {
    {"rotate-keeps-old-records", "they replay and mismatch as before", old_records},
    {"rotate-reaches-open-handles", "a handle opened before understands new records",
     second_handle},
    {"rotate-mismatch-first", "also when the first it sees is a mismatch or busy",
     second_handle_mismatch},
    {"rotate-old-handle-goes-on", "what it makes is understood by the others",
     old_handle_makes_new_records},
    {"rotate-refuses-to-forget", "four secrets are the most; none is forgotten before its time",
     refuses_to_forget},
    {"rotate-under-traffic", "no wrong mismatch, nothing runs twice", under_traffic},
    {0},
};
