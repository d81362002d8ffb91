/*
 * A run: the checks in order, within what --requests and --deadline allow.
 */
#include "judge/judge.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/text.h"
#include "judge/internal.h"

#define CHECKS_MAX 64
#define SHOWN_BODY 200

int (*once__judge_chooses)(const char *filter, const char *name);

static const once__judge_check_t *const tables[] = {
    once__judge_checks_key,     once__judge_checks_replay, once__judge_checks_race,
    once__judge_checks_failure, once__judge_checks_body,
};

/* The first checks of the first table are always run: they tell whether executions can be seen. */
#define ALWAYS 2

static uint64_t clock_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

uint64_t once__judge_clock(const once__judge_t *judge)
{
    return clock_ms() - judge->began_ms;
}

void once__judge_wait(const once__judge_t *judge, uint64_t ms)
{
    uint64_t now = once__judge_clock(judge);
    uint64_t left = judge->deadline_ms > now ? judge->deadline_ms - now : 0;
    struct timespec pause;

    ms = ms < left ? ms : left;
    pause.tv_sec = (time_t)(ms / 1000);
    pause.tv_nsec = (long)(ms % 1000) * 1000000;
    nanosleep(&pause, NULL);
}

once__judge_verdict_t once__judge_say(once__judge_t *judge, once__judge_verdict_t verdict,
                                      const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(judge->now->why, sizeof(judge->now->why), format, arguments);
    va_end(arguments);
    return verdict;
}

void once__judge_new_bare_key(once__judge_t *judge, char key[ONCE__JUDGE_KEY_SIZE])
{
    snprintf(key, ONCE__JUDGE_KEY_SIZE, "%s-%u", judge->prefix, ++judge->keys);
}

void once__judge_new_key(once__judge_t *judge, char key[ONCE__JUDGE_KEY_SIZE])
{
    const char *quote = judge->profile->quoted ? "\"" : "";

    snprintf(key, ONCE__JUDGE_KEY_SIZE, "%s%s-%u%s", quote, judge->prefix, ++judge->keys, quote);
}

once__judge_request_t once__judge_order(const once__judge_t *judge, const char *key)
{
    once__judge_request_t request = {.key = key};

    request.body.data = judge->body.data;
    request.body.len = judge->body.len;
    return request;
}

/* -------------------------------------------------------------------------------------------------------- choosing */

static unsigned most_requests(const once__judge_t *judge, const once__judge_check_t *check)
{
    return check->requests + check->raced * judge->at_once;
}

const char *once__judge_lacks(const once__judge_t *judge, const once__judge_check_t *check)
{
    const struct {
        unsigned need;
        int there;
        const char *text;
    } needs[] = {
        {ONCE__JUDGE_NEEDS_BODY, judge->body.len > 1, "needs a body: --body"},
        {ONCE__JUDGE_NEEDS_CALLER, judge->other_lines != NULL,
         "needs a second credential: --other-header"},
        {ONCE__JUDGE_NEEDS_OTHER_BODY, judge->other_body.data != NULL,
         "needs another body: --other-body"},
        {ONCE__JUDGE_NEEDS_REFUSED_BODY, judge->refused_body.data != NULL,
         "needs a body that is refused: --refused-body"},
        {ONCE__JUDGE_NEEDS_FAILING_BODY, judge->failing_body.data != NULL,
         "needs a body that fails: --failing-body"},
        {ONCE__JUDGE_NEEDS_LARGE_BODY, judge->large_body.data != NULL,
         "needs a body that is a JSON object or a form, and --large"},
        {ONCE__JUDGE_NEEDS_BINARY, judge->options->binary, "is sent only with --binary"},
    };

    for (size_t i = 0; i < sizeof(needs) / sizeof(needs[0]); i++) {
        if ((check->needs & needs[i].need) != 0 && !needs[i].there) {
            return needs[i].text;
        }
    }
    return NULL;
}

/* The chosen checks in order. */
static size_t choose(const once__judge_options_t *options, const once__judge_check_t **chosen)
{
    size_t count = 0, matched = 0;

    for (size_t t = 0; t < sizeof(tables) / sizeof(tables[0]); t++) {
        for (const once__judge_check_t *check = tables[t]; check->name != NULL; check++) {
            int matches = once__judge_chooses(options->filter, check->name);
            int always = t == 0 && check - tables[t] < ALWAYS && !options->list;
            matched += (size_t)matches;
            if ((matches || always) && count < CHECKS_MAX) {
                chosen[count++] = check;
            }
        }
    }
    return matched > 0 ? count : 0;
}

static int list(const once__judge_check_t *const *checks, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        printf("%s\n    %s%s%s: %s\n", checks[i]->name, checks[i]->level,
               checks[i]->section[0] != '\0' ? " " : "", checks[i]->section, checks[i]->what);
    }
    return ONCE__CLI_OK;
}

/* ------------------------------------------------------------------------------------------------------------ plan */

static void plan_body(const once__judge_t *judge, const char *what,
                      const once__judge_bytes_t *bytes)
{
    char *shown;

    if (bytes->data != NULL && bytes->len > 0) {
        shown = once__judge_shown(judge, (once_slice_t){bytes->data, bytes->len}, SHOWN_BODY);
        printf("  %-14s %zu bytes: %s\n", what, bytes->len, shown != NULL ? shown : "");
        free(shown);
    }
}

static int plan(const once__judge_t *judge, const once__judge_check_t *const *checks, size_t count)
{
    unsigned requests = 0;

    printf("%s %s by %s, keys %s-N in %s\n", judge->method, judge->shown_url, judge->profile->name,
           judge->prefix, judge->key_header);
    plan_body(judge, "body", &judge->body);
    plan_body(judge, "other body", &judge->other_body);
    plan_body(judge, "refused body", &judge->refused_body);
    plan_body(judge, "failing body", &judge->failing_body);
    plan_body(judge, "slow body", &judge->slow_body);
    plan_body(judge, "large body", &judge->large_body);
    if (judge->effect_url != NULL) {
        printf("GET --effect-url before and after each check%s\n",
               judge->effect_is_foreign ? ", without the headers: it is another server" : "");
    }
    for (size_t i = 0; i < count; i++) {
        const char *lack = once__judge_lacks(judge, checks[i]);
        unsigned most = lack == NULL ? most_requests(judge, checks[i]) : 0;
        requests += most;
        printf("%-16s %3u  %s\n", checks[i]->name, most, lack != NULL ? lack : checks[i]->sends);
    }
    printf("at most %u requests, never more than %llu; a repetition that is answered is not sent "
           "again. "
           "Nothing has been sent.\n",
           requests, (unsigned long long)judge->requests_max);
    return ONCE__CLI_OK;
}

/* ------------------------------------------------------------------------------------------------------------- run */

static void run_check(once__judge_t *judge, const once__judge_check_t *check,
                      once__judge_result_t *result)
{
    const char *lack = once__judge_lacks(judge, check);
    uint64_t began = once__judge_clock(judge);
    char why[200];

    judge->now = result;
    result->check = check;
    result->effects = -1;
    result->verdict = ONCE__JUDGE_NOT_JUDGED;
    result->exchanges = lack == NULL ? calloc(ONCE__JUDGE_KEEP, sizeof(*result->exchanges)) : NULL;
    if (lack != NULL) {
        (void)once__judge_say(judge, result->verdict, "%s", lack);
    } else if (judge->requests + most_requests(judge, check) > judge->requests_max) {
        (void)once__judge_say(judge, result->verdict,
                              "could need more requests than --requests allows");
    } else if (began > judge->deadline_ms) {
        (void)once__judge_say(judge, result->verdict, "the time of --deadline is over");
    } else if (result->exchanges == NULL) {
        judge->broken = 1;
    } else {
        judge->effects_before = judge->counted ? once__judge_count(judge, why, sizeof(why)) : -1;
        result->verdict = check->run(judge);
    }
    if (once__judge_clock(judge) > judge->deadline_ms && result->verdict == ONCE__JUDGE_FAIL) {
        result->verdict =
            once__judge_say(judge, ONCE__JUDGE_NOT_JUDGED, "the time of --deadline is over");
    }
    result->took_ms = once__judge_clock(judge) - began;
}

static int count_effects(once__judge_t *judge)
{
    char why[200] = "";

    if (judge->effect_url == NULL) {
        return ONCE__CLI_OK;
    }
    judge->effects_first = once__judge_count(judge, why, sizeof(why));
    judge->counted = judge->effects_first >= 0;
    if (!judge->counted) {
        once__cli_say("--effect-url cannot be used: %s", why);
        return ONCE__CLI_STORE;
    }
    return ONCE__CLI_OK;
}

static void print_sum(const once__judge_t *judge, const once__judge_result_t *results, size_t count)
{
    size_t sums[3] = {0}, must = 0;

    for (size_t i = 0; i < count; i++) {
        sums[results[i].verdict]++;
        must += results[i].verdict == ONCE__JUDGE_FAIL && results[i].check->level[0] == 'M';
    }
    printf("%zu passed, %zu failed (%zu of them a MUST), %zu not judged; %llu requests\n",
           sums[ONCE__JUDGE_PASS], sums[ONCE__JUDGE_FAIL], must, sums[ONCE__JUDGE_NOT_JUDGED],
           (unsigned long long)judge->requests);
}

/* Returns how many checks were run. Without a first answer no other check is. */
static size_t run_all(once__judge_t *judge, const once__judge_check_t *const *checks, size_t count,
                      once__judge_result_t *results)
{
    size_t done = 0;

    while (done < count && !judge->broken) {
        once__judge_result_t *result = &results[done];
        run_check(judge, checks[done], result);
        done++;
        if (!judge->options->json) {
            once__judge_print_result(judge, result);
            fflush(stdout);
        }
        if (result->verdict == ONCE__JUDGE_FAIL && (judge->options->stop || done == 1)) {
            break;
        }
    }
    return done;
}

static int verdict_code(const once__judge_result_t *results, size_t count)
{
    if (count > 0 && results[0].verdict == ONCE__JUDGE_FAIL && results[0].exchange_count > 0 &&
        results[0].exchanges[0].answer.status == 0) {
        return ONCE__CLI_STORE; /* the API could not be reached */
    }
    for (size_t i = 0; i < count; i++) {
        if (results[i].verdict == ONCE__JUDGE_FAIL) {
            return ONCE__CLI_NO;
        }
    }
    return ONCE__CLI_OK;
}

static int judge_all(once__judge_t *judge, const once__judge_check_t *const *checks, size_t count,
                     once__judge_result_t *results)
{
    const once__judge_options_t *options = judge->options;
    size_t done;
    int code = count_effects(judge);

    if (code != ONCE__CLI_OK) {
        return code;
    }
    if (!options->json) {
        printf("%s %s by %s, keys %s-N\n", judge->method, judge->shown_url, judge->profile->name,
               judge->prefix);
    }
    done = run_all(judge, checks, count, results);
    if (judge->broken) {
        once__cli_say("out of memory");
        return ONCE__CLI_STORE;
    }
    code = verdict_code(results, done);
    if (options->json) {
        code = once__judge_print_json(judge, results, done) == 0 ? code : ONCE__CLI_STORE;
    } else {
        print_sum(judge, results, done);
    }
    if (options->junit != NULL &&
        once__judge_write_junit(judge, results, done, options->junit) != 0) {
        return ONCE__CLI_STORE;
    }
    return code;
}

static void free_results(once__judge_result_t *results)
{
    for (size_t i = 0; results != NULL && i < CHECKS_MAX; i++) {
        for (size_t e = 0; e < results[i].exchange_count; e++) {
            once__buf_free(&results[i].exchanges[e].answer.head);
            once__buf_free(&results[i].exchanges[e].answer.body);
        }
        free(results[i].exchanges);
    }
    free(results);
}

static int with_curl(once__judge_t *judge, const once__judge_check_t *const *checks, size_t count)
{
    once__judge_result_t *results = calloc(CHECKS_MAX, sizeof(*results));
    int code = ONCE__CLI_STORE;

    judge->multi = curl_multi_init();
    judge->began_ms = clock_ms();
    if (results == NULL || judge->multi == NULL) {
        once__cli_say("out of memory");
    } else {
        code = judge_all(judge, checks, count, results);
    }
    curl_multi_cleanup(judge->multi);
    free_results(results);
    return code;
}

int once__judge_run(const once__cli_command_t *command, const char *url,
                    const once__judge_options_t *options)
{
    const once__judge_check_t *checks[CHECKS_MAX];
    size_t count = choose(options, checks);
    once__judge_t judge = {0};
    int code;

    if (count == 0) {
        once__cli_say("no check matches --filter");
        return ONCE__CLI_NO;
    }
    if (options->list) {
        return list(checks, count);
    }
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
        once__cli_say("libcurl cannot be used");
        return ONCE__CLI_STORE;
    }
    code = once__judge_set_up(&judge, command, url, options);
    if (code == ONCE__CLI_OK) {
        code = options->plan ? plan(&judge, checks, count) : with_curl(&judge, checks, count);
    }
    once__judge_free(&judge);
    curl_global_cleanup();
    return code;
}
