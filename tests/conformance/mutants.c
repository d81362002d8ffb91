/*
 * The suite on trial: each mutant of the rules and each faulty store must be caught by at least one of its tests, and a store
 * that keeps the rules by none.
 *
 *   mutants [NAME...]   all, or those named; tells which test caught which
 */
#include <stdio.h>
#include <string.h>

#include "conformance/broken.h"
#include "conformance/conformance.h"
#include "support/mutants.h"

typedef struct faulty {
    const char *name;
    broken_fault_t fault;
    const char *filter; /* tests that must catch it */
} faulty_t;

static const faulty_t faulty[] = {
    {"check-then-put", BROKEN_CHECK_THEN_PUT, "race-*,bug-*"},
    {"forgets-writes", BROKEN_FORGETS_WRITES, "complete-*,bug-13*"},
    {"other-bytes", BROKEN_OTHER_BYTES, "replay-*"},
    {"shows-twice", BROKEN_SHOWS_TWICE, "scan-*"},
    {"hides-last", BROKEN_HIDES_LAST, "scan-*"},
    {"reaps-over-the-limit", BROKEN_REAPS_LIMIT, "reap-*"},
    {"never-reaps", BROKEN_NEVER_REAPS, "reap-*"},
    {"one-scope", BROKEN_ONE_SCOPE, "scope-*,bug-16*"},
};

/* Races play with the clock in many threads; what a wrong rule does, the others show step by step. */
static const char steps_only[] = "!race-*";

typedef struct verdict {
    char test[128];
    char reason[400];
} verdict_t;

static void note_failure(const once_conformance_test_t *test, once_conformance_result_t result,
                         const char *reason, verdict_t *verdict)
{
    if (result == ONCE_CONFORMANCE_FAILED && verdict->test[0] == '\0') {
        (void)snprintf(verdict->test, sizeof(verdict->test), "%s", test->name);
        (void)snprintf(verdict->reason, sizeof(verdict->reason), "%s", reason);
    }
}

typedef struct trial {
    broken_t *broken;
    verdict_t verdict;
} trial_t;

static void each(const once_conformance_test_t *test, once_conformance_result_t result,
                 const char *reason, uint64_t took_ms, void *data)
{
    note_failure(test, result, reason, &((trial_t *)data)->verdict);
}

static int open_door(const char *url, const once_options_t *options, once_t **handle,
                     once_error_t *err, void *data)
{
    return broken_open(url, options, handle, err, ((trial_t *)data)->broken);
}

static void wait_here(uint64_t ms, void *data)
{
    broken_wait(ms, ((trial_t *)data)->broken);
}

/* Whether the suite found a failure: 1, 0, or -1 when it could not run. */
static int try_suite(const once__rules_t *rules, broken_fault_t fault, const char *filter,
                     trial_t *trial)
{
    once_conformance_options_t options = ONCE_CONFORMANCE_INIT;
    int result;

    memset(trial, 0, sizeof(*trial));
    trial->broken = broken_new(rules, fault);
    if (trial->broken == NULL) {
        return -1;
    }
    options.filter = filter;
    options.stop = 1;
    options.exclusive = 1;
    options.each = each;
    options.open = open_door;
    options.wait = wait_here;
    options.data = trial;
    result = once_conformance_run("broken:", &options);
    broken_free(trial->broken);
    return result == 0 || result == 1 ? result : -1;
}

static int tell(const char *name, int caught, int want, const trial_t *trial)
{
    const char *word = caught == want ? "ok" : "FAILED";

    if (caught == 1) {
        printf("%-7s %-32s caught by %s: %s\n", word, name, trial->verdict.test,
               trial->verdict.reason);
    } else {
        printf("%-7s %-32s %s\n", word, name, caught == 0 ? "not caught" : "could not be tried");
    }
    (void)fflush(stdout);
    return caught != want;
}

static int is_chosen(int argc, char **argv, const char *name)
{
    int chosen = argc < 2;

    for (int i = 1; i < argc; i++) {
        chosen |= strcmp(argv[i], name) == 0;
    }
    return chosen;
}

int main(int argc, char **argv)
{
    int failures = 0, tried = 0;
    trial_t trial;

    if (is_chosen(argc, argv, "sound")) {
        failures += tell("sound", try_suite(&once__rules, BROKEN_NOTHING, NULL, &trial), 0, &trial);
        tried++;
    }
    for (size_t i = 0; i < mutant_count; i++) {
        once__rule_t rows[MUTANT_ROWS_MAX];
        once__rules_t rules;
        /* The others break rules of the users of the table: there is nothing in a store to be found. */
        if (mutants[i].behaviour != 0 || !is_chosen(argc, argv, mutants[i].name)) {
            continue;
        }
        rules = mutant_rules(&mutants[i], &once__rules, rows);
        failures +=
            tell(mutants[i].name, try_suite(&rules, BROKEN_NOTHING, steps_only, &trial), 1, &trial);
        tried++;
    }
    for (size_t i = 0; i < sizeof(faulty) / sizeof(faulty[0]); i++) {
        if (is_chosen(argc, argv, faulty[i].name)) {
            failures +=
                tell(faulty[i].name,
                     try_suite(&once__rules, faulty[i].fault, faulty[i].filter, &trial), 1, &trial);
            tried++;
        }
    }
    printf("%d passed, %d failed\n", tried - failures, failures);
    return failures > 0 || tried == 0;
}
