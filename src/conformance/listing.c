/*
 * Looking at records: get, scan and statistics.
 */
#include "conformance/suite.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <once/experimental.h>

#define SEEN_MAX 4096

/* What a scan showed. */
typedef struct seen {
    once__test_t *test;
    unsigned count;
    unsigned stop_at; /* 0: never */
    char keys[SEEN_MAX][40];
    once_state_t states[SEEN_MAX];
} seen_t;

static int note_record(once_t *once, const once_record_t *record, void *data)
{
    seen_t *seen = data;
    once_slice_t key = once_record_key(record);

    if (seen->count < SEEN_MAX) {
        (void)snprintf(seen->keys[seen->count], sizeof(seen->keys[0]), "%.*s", (int)key.len,
                       (const char *)key.data);
        seen->states[seen->count] = once_record_state(record);
    }
    seen->count++;
    return seen->stop_at != 0 && seen->count >= seen->stop_at;
}

static void scope_hash(once__test_t *t, once__peer_t *peer, const char *scope,
                       uint8_t hash[ONCE_SCOPE_HASH_SIZE])
{
    once__asked_t asked = {.scope = scope, .key = "k"};
    char text[ONCE__SCOPE_SIZE];

    (void)once__peer_get(peer, &asked); /* the secrets are there when it has answered */
    once__peer_scope(t, &asked, text);
    EXPECT(ONCE_OK, once_scope_hash_of(peer->once, once__text(text), hash));
}

static seen_t *new_seen(once__test_t *t)
{
    seen_t *seen = once__test_alloc(t, sizeof(*seen));

    seen->test = t;
    return seen;
}

static unsigned scan(once__test_t *t, once__peer_t *peer, const once_filter_t *filter, seen_t *seen)
{
    once_answer_t *answer = NULL;

    seen->count = 0;
    EXPECT(ONCE_OK, once_record_scan_sync(peer->once, filter, note_record, seen, &answer));
    CHECK_EQ(seen->count, once_answer_count(answer));
    once_answer_free(answer);
    CHECK(seen->count <= SEEN_MAX);
    return seen->count;
}

static int has_key(const seen_t *seen, const char *key)
{
    int times = 0;

    for (unsigned i = 0; i < seen->count; i++) {
        times += strcmp(seen->keys[i], key) == 0;
    }
    return times;
}

/* One record in each state, and one pending with its lease over. */
static void make_one_of_each(once__test_t *t, once__peer_t *peer)
{
    once__asked_t pending = {.key = "pending"}, completed = {.key = "completed"};
    once__asked_t failed = {.key = "failed"}, unknown = {.key = "unknown"};
    once__asked_t stuck = {.key = "stuck", .policy = SHORT "recover=hold"};

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(peer, &completed));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(peer, NULL));
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(peer, &failed));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_release(peer, 0, ""));
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(peer, &unknown));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_doubt(peer));
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(peer, &stuck));
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(peer, &pending));
    once__peer_wait_lease(peer, &stuck);
}

static void get(once__test_t *t)
{
    once__asked_t ask = {.key = "k", .policy = LONG "recover=hold"}, none = {.key = "none"};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");
    uint8_t id[ONCE_ID_SIZE], hash[ONCE_SCOPE_HASH_SIZE];
    char scope[ONCE__SCOPE_SIZE];

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    once__test_wait(t, 5);
    EXPECT(ONCE_OK, once__peer_get(b, &ask));
    once__peer_scope(t, &ask, scope);
    EXPECT(ONCE_OK, once_record_id_of(b->once, once__text(scope), once__text("k"), id));
    scope_hash(t, a, NULL, hash);
    EXPECT(ONCE_OK, once__peer_get(b, &ask));
    CHECK(memcmp(id, once_record_id(b->record), sizeof(id)) == 0);
    CHECK(memcmp(hash, once_record_scope_hash(b->record), sizeof(hash)) == 0);
    CHECK_EQ(ONCE_RECOVER_HOLD, once_record_recover(b->record));
    CHECK(once_record_age_ms(b->record) >= 3);
    CHECK(once_record_idle_ms(b->record) <= once_record_age_ms(b->record));
    CHECK(once_record_bytes(b->record) >= 1);
    EXPECT(ONCE_E_NOT_FOUND, once__peer_get(b, &none));
}

static void scan_scope(once__test_t *t)
{
    once__asked_t other = {.scope = "other", .key = "not ours"};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");
    once_filter_t filter = ONCE_FILTER_INIT;
    uint8_t hash[ONCE_SCOPE_HASH_SIZE], nobody[ONCE_SCOPE_HASH_SIZE];
    seen_t *seen = new_seen(t);

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &other));
    make_one_of_each(t, a);
    scope_hash(t, b, NULL, hash);
    scope_hash(t, b, "nobody's", nobody);
    filter.scope_hash = hash;
    filter.scope_hash_len = sizeof(hash);
    CHECK_EQ(5, scan(t, b, &filter, seen));
    CHECK_EQ(1, has_key(seen, "pending"));
    CHECK_EQ(1, has_key(seen, "stuck"));
    CHECK_EQ(1, has_key(seen, "completed"));
    CHECK_EQ(1, has_key(seen, "failed"));
    CHECK_EQ(1, has_key(seen, "unknown"));
    /* A few bytes of the hash, as an operator types them: at least ours. */
    filter.scope_hash_len = 4;
    CHECK(scan(t, b, &filter, seen) >= 5);
    CHECK_EQ(1, has_key(seen, "pending"));
    filter.scope_hash = nobody;
    filter.scope_hash_len = sizeof(nobody);
    CHECK_EQ(0, scan(t, b, &filter, seen));
}

static void scan_states(once__test_t *t)
{
    static const once_state_t states[] = {ONCE_STATE_COMPLETED, ONCE_STATE_FAILED,
                                          ONCE_STATE_UNKNOWN, ONCE_STATE_PENDING};
    once__peer_t *a = once__peer_open(t, "");
    once_filter_t filter = ONCE_FILTER_INIT;
    uint8_t hash[ONCE_SCOPE_HASH_SIZE];
    seen_t *seen = new_seen(t);

    make_one_of_each(t, a);
    scope_hash(t, a, NULL, hash);
    filter.scope_hash = hash;
    filter.scope_hash_len = sizeof(hash);
    for (unsigned i = 0; i < 4; i++) {
        filter.states = 1u << states[i];
        CHECK_EQ(states[i] == ONCE_STATE_PENDING ? 2 : 1, scan(t, a, &filter, seen));
        CHECK_EQ(states[i], seen->states[0]);
        CHECK_EQ(1, has_key(seen, once_state_name(states[i])));
    }
    filter.states = 1u << ONCE_STATE_COMPLETED | 1u << ONCE_STATE_FAILED;
    CHECK_EQ(2, scan(t, a, &filter, seen));
    filter.states = 0;
    filter.stuck = 1;
    CHECK_EQ(2, scan(t, a, &filter, seen));
    CHECK_EQ(1, has_key(seen, "stuck"));
    CHECK_EQ(1, has_key(seen, "unknown"));
}

static void scan_age(once__test_t *t)
{
    once__asked_t old = {.key = "old"}, young = {.key = "young"};
    once__peer_t *a = once__peer_open(t, "");
    once_filter_t filter = ONCE_FILTER_INIT;
    uint8_t hash[ONCE_SCOPE_HASH_SIZE];
    uint64_t old_age, young_age;
    seen_t *seen = new_seen(t);

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &old));
    once__test_wait(t, 20);
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &young));
    scope_hash(t, a, NULL, hash);
    filter.scope_hash = hash;
    filter.scope_hash_len = sizeof(hash);
    EXPECT(ONCE_OK, once__peer_get(a, &old));
    old_age = once_record_age_ms(a->record);
    CHECK(old_age >= 18);
    filter.older_than_ms = old_age; /* by the time of the scan it is at least that old */
    (void)scan(t, a, &filter, seen);
    CHECK_EQ(1, has_key(seen, "old"));
    filter.older_than_ms = 3600000;
    CHECK_EQ(0, scan(t, a, &filter, seen));
    filter.older_than_ms = 0;
    filter.younger_than_ms = 3600000;
    CHECK_EQ(2, scan(t, a, &filter, seen));
    EXPECT(ONCE_OK, once__peer_get(a, &young));
    young_age = once_record_age_ms(a->record);
    filter.younger_than_ms = young_age + 18; /* the other is at least that much older */
    (void)scan(t, a, &filter, seen);
    CHECK_EQ(0, has_key(seen, "old"));
}

static void scan_ends(once__test_t *t)
{
    once__peer_t *a = once__peer_open(t, "");
    once_filter_t filter = ONCE_FILTER_INIT;
    uint8_t hash[ONCE_SCOPE_HASH_SIZE];
    seen_t *seen = new_seen(t);

    for (unsigned i = 0; i < 300; i++) {
        char key[16];
        once__asked_t ask = {.key = key};
        (void)snprintf(key, sizeof(key), "%u", i);
        EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    }
    scope_hash(t, a, NULL, hash);
    filter.scope_hash = hash;
    filter.scope_hash_len = sizeof(hash);
    CHECK_EQ(300, scan(t, a, &filter, seen));
    filter.limit = 7;
    CHECK_EQ(7, scan(t, a, &filter, seen));
    filter.limit = 299;
    CHECK_EQ(299, scan(t, a, &filter, seen));
    filter.limit = 1000;
    CHECK_EQ(300, scan(t, a, &filter, seen));
    filter.limit = 0;
    seen->stop_at = 150;
    CHECK_EQ(150, scan(t, a, &filter, seen));
}

/* Steps of a few looks each show what one scan does: all of it, and nothing twice. */
static void scan_in_steps(once__test_t *t)
{
    once__peer_t *a = once__peer_open(t, "");
    once_filter_t filter = ONCE_FILTER_INIT;
    once_page_t page = {.filter = &filter, .looks = 7}, *none = NULL;
    uint8_t hash[ONCE_SCOPE_HASH_SIZE];
    seen_t *seen = new_seen(t);
    unsigned steps = 0;

    for (unsigned i = 0; i < 100; i++) {
        char key[16];
        once__asked_t ask = {.key = key};
        (void)snprintf(key, sizeof(key), "%u", i);
        EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    }
    scope_hash(t, a, NULL, hash);
    filter.scope_hash = hash;
    filter.scope_hash_len = sizeof(hash);
    filter.limit = 1; /* does not count */
    EXPECT(ONCE_E_INVALID, once_record_page_sync(a->once, none, note_record, seen, NULL));
    page.looks = 0;
    EXPECT(ONCE_E_INVALID, once_record_page_sync(a->once, &page, note_record, seen, NULL));
    for (page.looks = 7; !page.end; steps++) {
        EXPECT(ONCE_OK, once_record_page_sync(a->once, &page, note_record, seen, NULL));
    }
    CHECK(steps > 1);
    CHECK_EQ(100, seen->count);
    /* A step ends, though nothing passes. */
    memset(page.cursor, 0, sizeof(page.cursor));
    filter.states = 1u << ONCE_STATE_COMPLETED;
    EXPECT(ONCE_OK, once_record_page_sync(a->once, &page, note_record, seen, NULL));
    CHECK_EQ(100, seen->count);
    CHECK(!page.end);
    for (unsigned i = 0; i < 100; i++) {
        CHECK_EQ(1, has_key(seen, seen->keys[i]));
    }
}

static void scan_expired(once__test_t *t)
{
    once__asked_t ask = {.key = "gone"};
    once_response_t response = once__response(200, "");
    once__peer_t *a = once__peer_open(t, "");
    once_filter_t filter = ONCE_FILTER_INIT;
    uint8_t hash[ONCE_SCOPE_HASH_SIZE];
    seen_t *seen = new_seen(t);

    response.retain_ms = 40;
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(a, &response));
    once__peer_wait_gone(a, &ask);
    scope_hash(t, a, NULL, hash);
    filter.scope_hash = hash;
    filter.scope_hash_len = sizeof(hash);
    CHECK_EQ(0, scan(t, a, &filter, seen));
}

/* ------------------------------------------------------------------------------------- scanning while others write */

enum { STAYING = 300, COMING = 400 };

typedef struct bustle {
    atomic_int writers;
} bustle_t;

static void write_or_scan(once__test_t *t, unsigned number, void *data)
{
    bustle_t *bustle = data;
    once__peer_t *peer = once__peer_open(t, "");
    once_filter_t filter = ONCE_FILTER_INIT;
    uint8_t hash[ONCE_SCOPE_HASH_SIZE];
    seen_t *seen;

    if (number != 0) {
        /* Comes, is completed, and every second one goes again; no key is used twice. */
        for (unsigned i = 0; i < COMING; i++) {
            char key[32];
            once__asked_t ask = {.key = key};
            (void)snprintf(key, sizeof(key), "coming %u.%u", number, i);
            EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(peer, &ask));
            EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(peer, NULL));
            if (i % 2 == 0) {
                EXPECT(ONCE_OUTCOME_DONE, once__peer_purge(peer, NULL, 0));
            }
        }
        atomic_fetch_sub(&bustle->writers, 1);
        return;
    }
    seen = new_seen(t);
    scope_hash(t, peer, NULL, hash);
    filter.scope_hash = hash;
    filter.scope_hash_len = sizeof(hash);
    do {
        unsigned stayed = 0;
        (void)scan(t, peer, &filter, seen);
        for (unsigned i = 0; i < seen->count; i++) {
            stayed += strncmp(seen->keys[i], "staying", 7) == 0;
            for (unsigned j = 0; j < i; j++) {
                if (strcmp(seen->keys[i], seen->keys[j]) == 0) {
                    FAIL("\"%s\" was shown twice", seen->keys[i]);
                }
            }
        }
        CHECK_EQ(STAYING, stayed);
    } while (atomic_load(&bustle->writers) > 0);
}

static void scan_while_writing(once__test_t *t)
{
    once__peer_t *a = once__peer_open(t, "");
    bustle_t bustle = {2};

    for (unsigned i = 0; i < STAYING; i++) {
        char key[32];
        once__asked_t ask = {.key = key};
        (void)snprintf(key, sizeof(key), "staying %u", i);
        EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
        EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(a, NULL));
    }
    once__test_run_threads(t, 3, write_or_scan, &bustle);
}

/* -------------------------------------------------------------------------------------------------------- statistics */

static once_stats_t stats_of(once__test_t *t, once__peer_t *peer)
{
    once_answer_t *answer = NULL;
    once_stats_t stats;

    EXPECT(ONCE_OK, once_store_stats_sync(peer->once, &answer));
    CHECK(once_answer_stats(answer) != NULL);
    stats = *once_answer_stats(answer);
    once_answer_free(answer);
    return stats;
}

static void stats(once__test_t *t)
{
    once__asked_t oldest = {.key = "completed"}, gone = {.key = "gone"};
    once_response_t response = once__response(200, "");
    once__peer_t *a = once__peer_open(t, "");
    once_stats_t before = stats_of(t, a), after;

    make_one_of_each(t, a);
    response.retain_ms = 40;
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &gone));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(a, &response));
    once__peer_wait_gone(a, &gone);
    EXPECT(ONCE_OK, once__peer_get(a, &oldest));
    after = stats_of(t, a);
    /* Ours are there, whatever else is. */
    CHECK(after.pending >= 2);
    CHECK(after.completed >= 1);
    CHECK(after.failed >= 1);
    CHECK(after.unknown >= 1);
    CHECK(after.stuck >= 2);
    CHECK(after.oldest_ms >= once_record_age_ms(a->record));
    CHECK(after.bytes > 0);
    if (once__test_exclusive(t)) {
        CHECK_EQ(before.pending + 2, after.pending);
        CHECK_EQ(before.completed + 1, after.completed);
        CHECK_EQ(before.failed + 1, after.failed);
        CHECK_EQ(before.unknown + 1, after.unknown);
        CHECK_EQ(before.stuck + 2, after.stuck);
        CHECK(!once__test_counts_expired(t) || after.expired == before.expired + 1);
        CHECK(after.bytes > before.bytes);
    }
}

const once__case_t once__listing_cases[] = {
    {"get-shows-the-record", "id, scope, key, policy, age; not found when there is none", get},
    {"scan-by-scope", "the whole hash or a part of it", scan_scope},
    {"scan-by-state", "each state, several, stuck", scan_states},
    {"scan-by-age", "older and younger", scan_age},
    {"scan-ends", "at the limit, or when the caller says so", scan_ends},
    {"scan-in-steps", "each looks at a few, together they show all", scan_in_steps},
    {"scan-hides-expired", "what is forgotten is not shown", scan_expired},
    {"scan-while-others-write", "what stays is shown once, nothing twice", scan_while_writing},
    {"stats-count", "each state, stuck, expired, the oldest, bytes", stats},
    {0},
};
