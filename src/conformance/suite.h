/*
 * What the tests of the suite are written with.
 *
 * A test is a function that is given a once__test_t, named `t` everywhere: the macros below rely on it. The first check that
 * does not hold ends the test, from any depth and in any thread of it. Handles, claims and answers belong to the test and are
 * cleaned up at its end, so a test simply stops where it stops.
 */
#ifndef ONCE_CONFORMANCE_SUITE_H
#define ONCE_CONFORMANCE_SUITE_H

#include <stdint.h>

#include <once/once.h>

typedef struct once__test once__test_t; /* a test under way */

typedef struct once__case {
    const char *name;
    const char *what;
    void (*body)(once__test_t *t);
} once__case_t;

/* The tests, file by file; each list ends with an empty name. */
extern const once__case_t once__claim_cases[], once__end_cases[], once__stale_cases[],
    once__matrix_cases[], once__settle_cases[], once__fingerprint_cases[], once__replay_cases[],
    once__expiry_cases[], once__listing_cases[], once__secret_cases[], once__schedule_cases[],
    once__handle_cases[], once__race_cases[], once__duel_cases[], once__process_cases[],
    once__bug_cases[], once__about_cases[], once__audit_cases[], once__erase_cases[];

/* ----------------------------------------------------------------------------------------------------------- checks */

/* Ends the test. */
void once__test_fail(once__test_t *t, const char *file, int line, const char *format, ...)
    __attribute__((noreturn)) ONCE_PRINTF(4, 5);
void once__test_not_applicable(once__test_t *t, const char *format, ...) __attribute__((noreturn))
ONCE_PRINTF(2, 3);

/* Answers are outcomes (positive), ONCE_OK, or errors (negative): one number, one name. */
void once__test_expect(once__test_t *t, const char *file, int line, const char *call, int want,
                       int got);

#define FAIL(...) once__test_fail(t, __FILE__, __LINE__, __VA_ARGS__)
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            FAIL("not so: %s", #condition);                                                        \
        }                                                                                          \
    } while (0)
#define EXPECT(want, call) once__test_expect(t, __FILE__, __LINE__, #call, (want), (call))
#define CHECK_STATE(want, peer)                                                                    \
    do {                                                                                           \
        once_state_t seen_ = once__peer_state(peer);                                               \
        if (seen_ != (want)) {                                                                     \
            FAIL("the record is %s, not %s", once_state_name(seen_), once_state_name(want));       \
        }                                                                                          \
    } while (0)
#define CHECK_EQ(want, got)                                                                        \
    do {                                                                                           \
        unsigned long long want_ = (unsigned long long)(want), got_ = (unsigned long long)(got);   \
        if (want_ != got_) {                                                                       \
            FAIL("%s is %llu, not %llu", #got, got_, want_);                                       \
        }                                                                                          \
    } while (0)

/* ------------------------------------------------------------------------------------------------------- the test */

unsigned once__test_threads(const once__test_t *t);   /* how many a race has */
unsigned once__test_processes(const once__test_t *t); /* the same */
int once__test_exclusive(const once__test_t *t);      /* no other program uses the store */
int once__test_counts_expired(const once__test_t *t); /* and only we remove what expired */
int once__test_real_time(const once__test_t *t);
/* Zeroed memory that lives as long as the test. */
void *once__test_alloc(once__test_t *t, size_t size);

/* Lets time pass: the store's clock moves on by at least this much. */
void once__test_wait(once__test_t *t, uint64_t ms);

/* The next number of a sequence that the seed and the test's name determine; `state` is the thread's own, from seed(). */
uint64_t once__test_seed(const once__test_t *t, unsigned number);
uint64_t once__test_random(uint64_t *state);

/* ------------------------------------------------------------------------------------------------------------ peers */

/* A handle, and the last answer that it got. */
typedef struct once__peer {
    once__test_t *test;
    once_t *once;
    once_answer_t *answer;       /* of the last call; NULL after an error */
    const once_record_t *record; /* of that answer; may be NULL */
    once_claim_t *claim;         /* the last one that it was granted and has not ended */
    char token[ONCE_TOKEN_SIZE]; /* of the claim that it acts with; empty: none */
    int shares;                  /* the handle is another peer's */
    struct once__peer *next;
} once__peer_t;

/* What is asked. What is left out is the same for all asks of a test. */
typedef struct once__asked {
    const char *scope; /* within the test's own scope; NULL: that one itself */
    const char *key;
    const char *method;      /* NULL: POST */
    const char *target;      /* NULL: /payments */
    once_slice_t bytes;      /* no data: {"amount":10} */
    const once_body_t *body; /* instead of bytes */
    const char *policy; /* as once_policy_parse takes it; NULL: the defaults with a long lease */
    const uint8_t *claim_id;
    const char *description; /* NULL: none, like the subject */
    const char *subject;
} once__asked_t;

/* Leases: one that does not run out while a test looks, and one that is waited for. */
#define LONG "lease=10m "
/* A grant that is heard of after half of its lease is given back: not too short for a loaded machine. */
#define SHORT    "lease=250ms "
#define SHORT_MS 250

/* A handle of its own. `options` as "name=value name=value"; renew and reap are off unless it says otherwise. */
once__peer_t *once__peer_open(once__test_t *t, const char *options);
/* Another peer of the same handle, which must have been opened with thread=on: one for each thread that uses it. */
once__peer_t *once__peer_share(once__peer_t *peer);
void once__peer_close(once__peer_t *peer);

/* The bytes of the asked scope, in the store's terms. `out` is terminated. */
#define ONCE__SCOPE_SIZE 96
void once__peer_scope(const once__test_t *t, const once__asked_t *asked,
                      char out[ONCE__SCOPE_SIZE]);

/* Calls. Each gives the outcome, or the error. With run, the claim and its token are the peer's from then on. */
int once__peer_begin(once__peer_t *peer, const once__asked_t *asked);
int once__peer_get(once__peer_t *peer,
                   const once__asked_t *asked); /* ONCE_OK or ONCE_E_NOT_FOUND */

/* These use the peer's claim, or adopt it again from the peer's token when it was ended or dropped. */
int once__peer_complete(once__peer_t *peer, const once_response_t *response); /* NULL: 201 "done" */
int once__peer_release(once__peer_t *peer, int status, const char *note);
int once__peer_release_early(once__peer_t *peer);
int once__peer_doubt(once__peer_t *peer);
int once__peer_renew(once__peer_t *peer);

/* Acts with this claim from now on; what the peer held before is dropped. Gives the peer. */
once__peer_t *once__peer_as(once__peer_t *peer, const char *token);

/* As if the holder had died: the claim is forgotten, the token stays. */
void once__peer_drop(once__peer_t *peer);

/* `token` NULL: the peer's own. `response` NULL: settled as failed. */
int once__peer_settle(once__peer_t *peer, const char *token, const once_response_t *response,
                      int force);
int once__peer_purge(once__peer_t *peer, const char *token, int force);
int once__peer_erase(once__peer_t *peer, const char *token);

/* Of the record that the last call gave; the test fails when there was none. */
once_state_t once__peer_state(const once__peer_t *peer);
uint32_t once__peer_epoch(const once__peer_t *peer);
const once_record_t *once__peer_record(const once__peer_t *peer);

/* Waits until the record's lease is over; until the record is gone. The record is asked, not the clock. */
void once__peer_wait_lease(once__peer_t *peer, const once__asked_t *asked);
void once__peer_wait_gone(once__peer_t *peer, const once__asked_t *asked);

/* ------------------------------------------------------------------------------------------------------------ facts */

/* Everything that can be seen of a record. State NONE: there is no record. */
typedef struct once__facts {
    once_state_t state;
    once_recover_t recover;
    uint32_t epoch;
    char token[ONCE_TOKEN_SIZE];
    int status;
    uint64_t note, response; /* hashes */
    uint64_t lease_ms, expires_ms, idle_ms, age_ms;
} once__facts_t;

once__facts_t once__peer_facts(once__peer_t *peer, const once__asked_t *asked);

/* Expects an outcome, and that nothing changed, not even the time of the last change. `watcher` looks before and after. */
#define STAYS(want, call, watcher, asked)                                                          \
    do {                                                                                           \
        once__facts_t before_ = once__peer_facts(watcher, asked);                                  \
        EXPECT(want, call);                                                                        \
        once__test_unchanged(t, __FILE__, __LINE__, #call, &before_, watcher, asked);              \
    } while (0)
void once__test_unchanged(once__test_t *t, const char *file, int line, const char *call,
                          const once__facts_t *before, once__peer_t *peer,
                          const once__asked_t *asked);

/* ------------------------------------------------------------------------------------------------------- responses */

once_slice_t once__text(const char *text);

/* A response with this body and nothing else. */
once_response_t once__response(int status, const char *body);

/* The record of the last call holds exactly this response: status, headers in order, body, omitted or not. */
#define SAME_RESPONSE(want, peer) once__test_same_response(t, __FILE__, __LINE__, (want), (peer))
void once__test_same_response(once__test_t *t, const char *file, int line,
                              const once_response_t *want, const once__peer_t *peer);

/* --------------------------------------------------------------------------------------------- threads and processes */

/* Runs `body` in `count` threads that start together, and waits for all. A check that fails in one ends the test. */
void once__test_run_threads(once__test_t *t, unsigned count,
                            void (*body)(once__test_t *t, unsigned number, void *data), void *data);

#define ONCE__REPORTED 8

/* A process of the test. It reports numbers at its end, and may be killed before. */
typedef struct once__process {
    int pid;
    int from; /* its report; closed at its end */
    int to;   /* it waits here: see pause */
    uint64_t reported[ONCE__REPORTED];
} once__process_t;

#endif
