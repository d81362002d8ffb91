/*
 * The conformance suite: what every store must do, tried on a real one through the public API alone.
 *
 * Each test makes records of its own under a random scope and removes them at its end where it can, so the suite can run on
 * a store that is in use. It waits only for leases and retentions to end, and asserts no upper bound on time.
 * The URL should not set renew, reap, thread or store_timeout: options of a URL win over those that a test asks for.
 */
#ifndef ONCE_CONFORMANCE_CONFORMANCE_H
#define ONCE_CONFORMANCE_CONFORMANCE_H

#include <stdio.h>

#include <once/once.h>

typedef enum once_conformance_result {
    ONCE_CONFORMANCE_PASSED = 0,
    ONCE_CONFORMANCE_FAILED = 1,
    /* this store, or this run, has no such thing; the reason is printed */
    ONCE_CONFORMANCE_NOT_APPLICABLE = 2,
} once_conformance_result_t;

typedef struct once_conformance_test {
    const char *name; /* "claim-busy-while-the-lease-is-live" */
    const char *what; /* one line: the rule that it tries */
} once_conformance_test_t;

/* All tests, in the order in which they run. Static. */
const once_conformance_test_t *once_conformance_tests(size_t *count);

/*
 * Does the filter choose this name? NULL and "" choose all. Else a list separated by commas of which one must fit: a glob
 * where it has * ? or [, else a part of the name. "!" before an item takes names out again: "bug-*,!bug-07*".
 */
int once_conformance_chooses(const char *filter, const char *name);

typedef struct once_conformance_counts {
    unsigned passed;
    unsigned failed;
    unsigned not_applicable;
} once_conformance_counts_t;

typedef struct once_conformance_options {
    size_t size;        /* sizeof(once_conformance_options_t): set by ONCE_CONFORMANCE_INIT */
    const char *filter; /* which tests: see once_conformance_chooses */
    /* of these, every `parts`-th from number `part` (counted from 0) on; parts 0: all. For runs side by side on several stores */
    unsigned part, parts;
    unsigned threads;   /* of a race; 0: 8, at most 64 */
    unsigned processes; /* of a race; 0: 4, at most 32 */
    /* of everything random but claim ids and keys; 0: a random one, which is printed */
    uint64_t seed;
    int exclusive; /* no other program uses the store: totals can be compared exactly. Always true of `memory:` */
    int stop;  /* at the first failure */
    FILE *out; /* one line per test as it ends, then the counts; NULL: nothing is written */

    /* Called as each test ends, in the thread of the caller. `reason` is empty when it passed. NULL: not called. */
    void (*each)(const once_conformance_test_t *test, once_conformance_result_t result,
                 const char *reason, uint64_t took_ms, void *data);

    once_conformance_counts_t *counts; /* filled in at the end; may be NULL */

    /*
     * How handles are opened: NULL means once_open. Tests of the suite itself give handles over a broken store here. Tests
     * with several processes are then not applicable.
     */
    int (*open)(const char *url, const once_options_t *options, once_t **handle, once_error_t *err,
                void *data);

    /*
     * How time passes. NULL: the suite sleeps. A program with its own clock moves it here. Tests of
     * renewal by timer are then not applicable.
     */
    void (*wait)(uint64_t ms, void *data);

    void *data; /* given to the three functions above */
} once_conformance_options_t;

#define ONCE_CONFORMANCE_INIT                                                                      \
    {                                                                                              \
        sizeof(once_conformance_options_t), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0               \
    }

/*
 * Runs the chosen tests one after the other. `options` may be NULL: all tests, written to standard output. The caller must
 * have no other threads running in handles of its own while tests with several processes run (they fork).
 * 0: all passed or were not applicable. 1: at least one failed, or none was chosen. ONCE_E_*: the store could not be opened
 * or did not answer (`out` says which), and nothing was run.
 */
int once_conformance_run(const char *url, const once_conformance_options_t *options);

#endif
