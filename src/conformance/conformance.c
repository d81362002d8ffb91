#include "conformance/test.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TESTS_MAX 256
#define TRIES     8 /* a test may claim hundreds of short leases, on a busy machine */

/* ---------------------------------------------------------------------------------------------------------- the list */

static const once__case_t *const lists[] = {
    once__claim_cases,   once__end_cases,         once__stale_cases,   once__matrix_cases,
    once__settle_cases,  once__fingerprint_cases, once__replay_cases,  once__expiry_cases,
    once__listing_cases, once__secret_cases,      once__handle_cases,  once__schedule_cases,
    once__race_cases,    once__duel_cases,        once__process_cases, once__bug_cases,
    once__about_cases,   once__audit_cases,       once__erase_cases,
};

static const once__case_t *cases[TESTS_MAX];
static once_conformance_test_t tests[TESTS_MAX];
static size_t test_count;
static pthread_once_t listed = PTHREAD_ONCE_INIT;

static void make_list(void)
{
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        for (const once__case_t *c = lists[i]; c->name != NULL && test_count < TESTS_MAX; c++) {
            cases[test_count] = c;
            tests[test_count].name = c->name;
            tests[test_count].what = c->what;
            test_count++;
        }
    }
}

const once_conformance_test_t *once_conformance_tests(size_t *count)
{
    (void)pthread_once(&listed, make_list);
    *count = test_count;
    return tests;
}

static int item_fits(const char *item, const char *name)
{
    return strpbrk(item, "*?[") != NULL ? fnmatch(item, name, 0) == 0 : strstr(name, item) != NULL;
}

int once_conformance_chooses(const char *filter, const char *name)
{
    int chosen = filter == NULL || *filter == '\0' || *filter == '!';

    while (filter != NULL && *filter != '\0') {
        size_t len = strcspn(filter, ",");
        int take_out = *filter == '!';
        char item[128];

        (void)snprintf(item, sizeof(item), "%.*s", (int)len - take_out, filter + take_out);
        if (*item != '\0' && item_fits(item, name)) {
            chosen = !take_out;
        }
        filter += len + (filter[len] == ',');
    }
    return chosen;
}

/* ----------------------------------------------------------------------------------------------------------- running */

static unsigned bounded(unsigned value, unsigned otherwise, unsigned max)
{
    if (value == 0) {
        return otherwise;
    }
    return value < max ? value : max;
}

static uint64_t random_seed(void)
{
    char text[ONCE_UUID_SIZE] = "";
    uint64_t seed = 0;

    if (once_key_uuid4(text) == ONCE_OK) {
        seed = strtoull(text, NULL, 16);
    }
    return seed != 0 ? seed : 1;
}

/* A table that one handle alone can see is no use here: the run gives it a name of its own. */
static int take_url(once__run_t *run, const char *url)
{
    const char *rest = url;
    char name[ONCE_UUID_SIZE] = "";
    int len;

    run->is_memory = strncmp(url, "memory:", 7) == 0;
    run->expires_by_itself = strncmp(url, "redis", 5) == 0;
    if (run->is_memory && (url[7] == '\0' || url[7] == '?')) {
        if (once_key_uuid4(name) != ONCE_OK) {
            return ONCE_E_IO;
        }
        rest = url + 7;
        len = snprintf(run->url, sizeof(run->url), "memory:%s%s", name, rest);
    } else {
        len = snprintf(run->url, sizeof(run->url), "%s", url);
    }
    return len < (int)sizeof(run->url) ? ONCE_OK : ONCE_E_TOO_BIG;
}

static int start_run(once__run_t *run, const char *url, const once_conformance_options_t *options)
{
    int code;

    memset(run, 0, sizeof(*run));
    if (options != NULL) {
        if (options->size != sizeof(*options)) {
            return ONCE_E_INVALID;
        }
        run->options = *options;
    } else {
        run->options.out = stdout;
    }
    run->options.threads = bounded(run->options.threads, 8, ONCE__THREADS_MAX);
    run->options.processes = bounded(run->options.processes, 4, ONCE__PROCESSES_MAX);
    run->seed = run->options.seed != 0 ? run->options.seed : random_seed();
    code = take_url(run, url);
    run->options.exclusive |= run->is_memory;
    return code;
}

static uint64_t now_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void count_result(once__run_t *run, once_conformance_result_t result)
{
    run->counts.passed += result == ONCE_CONFORMANCE_PASSED;
    run->counts.failed += result == ONCE_CONFORMANCE_FAILED;
    run->counts.not_applicable += result == ONCE_CONFORMANCE_NOT_APPLICABLE;
}

static void tell_result(const once__run_t *run, size_t number, once_conformance_result_t result,
                        const char *reason, uint64_t took_ms)
{
    static const char *const words[] = {"ok", "FAILED", "not applicable"};
    const once_conformance_options_t *options = &run->options;

    if (options->out != NULL) {
        (void)fprintf(options->out, "%-15s %s", words[result], tests[number].name);
        if (result == ONCE_CONFORMANCE_PASSED) {
            (void)fprintf(options->out, " (%llu ms)\n", (unsigned long long)took_ms);
        } else {
            (void)fprintf(options->out, ": %s\n", reason);
        }
        (void)fflush(options->out);
    }
    if (options->each != NULL) {
        options->each(&tests[number], result, reason, took_ms, options->data);
    }
}

/* A test that failed while the machine was late is run again; a store that is wrong is wrong then, too. */
static void run_test(once__run_t *run, size_t number)
{
    once_conformance_result_t result = ONCE_CONFORMANCE_FAILED;
    char reason[ONCE__REASON_SIZE] = "";
    uint64_t started = now_ms();
    int late = 1;

    for (unsigned tries = 0; result == ONCE_CONFORMANCE_FAILED && late && tries < TRIES; tries++) {
        int code = once__test_run(run, cases[number], &result, reason, &late);
        if (code != ONCE_OK) {
            (void)snprintf(reason, sizeof(reason), "%s", once_error_text(code));
            late = 0;
        }
    }
    count_result(run, result);
    tell_result(run, number, result, reason, now_ms() - started);
}

static void run_chosen(once__run_t *run)
{
    unsigned parts = run->options.parts != 0 ? run->options.parts : 1;
    unsigned chosen = 0;

    for (size_t i = 0; i < test_count; i++) {
        if (once_conformance_chooses(run->options.filter, tests[i].name) &&
            chosen++ % parts == run->options.part) {
            run_test(run, i);
            if (run->options.stop && run->counts.failed > 0) {
                return;
            }
        }
    }
}

static void tell_counts(const once__run_t *run)
{
    const once_conformance_counts_t *counts = &run->counts;

    if (run->options.counts != NULL) {
        *run->options.counts = *counts;
    }
    if (run->options.out == NULL) {
        return;
    }
    (void)fprintf(run->options.out, "%u passed, %u failed", counts->passed, counts->failed);
    if (counts->not_applicable > 0) {
        (void)fprintf(run->options.out, ", %u not applicable", counts->not_applicable);
    }
    (void)fprintf(run->options.out, "\n");
    (void)fflush(run->options.out);
}

/* Does the store answer? The handle stays open for the whole run: a memory store lives as long as its handles. */
static int open_keeper(const once__run_t *run, once_t **keeper)
{
    static const uint8_t nobody[ONCE_ID_SIZE] = {0};
    once_error_t err = {ONCE_OK, ""};
    once_answer_t *answer = NULL;
    int code = once__run_open(run, "store_timeout=5s", keeper, &err);

    if (code == ONCE_OK) {
        code = once_record_get_sync(*keeper, nobody, &answer);
        if (code == ONCE_OK) {
            once_answer_free(answer);
        }
        if (code == ONCE_E_NOT_FOUND) {
            return ONCE_OK;
        }
        (void)once_close(*keeper, 0);
    }
    if (run->options.out != NULL) {
        (void)fprintf(run->options.out, "the store cannot be tested: %s\n",
                      err.text[0] != '\0' ? err.text : once_error_text(code));
    }
    return code != ONCE_OK ? code : ONCE_E_CORRUPT;
}

int once_conformance_run(const char *url, const once_conformance_options_t *options)
{
    once__run_t run;
    once_t *keeper = NULL;
    size_t count;
    int code = start_run(&run, url, options);

    (void)once_conformance_tests(&count);
    if (code == ONCE_OK) {
        code = open_keeper(&run, &keeper);
    }
    if (code != ONCE_OK) {
        return code;
    }
    if (run.options.out != NULL) {
        (void)fprintf(run.options.out, "conformance of %.*s: seed %llu\n",
                      (int)strcspn(run.url, ":"), run.url, (unsigned long long)run.seed);
    }
    run_chosen(&run);
    (void)once_close(keeper, 1000);
    tell_counts(&run);
    return run.counts.failed > 0 || run.counts.passed + run.counts.not_applicable == 0;
}
