/*
 * simulate: runs schedules.
 *
 *   simulate [--count N] [--start S]   seeds S, S+1, ... (10000 from 1)
 *   simulate --minutes M [--start S]   as many seeds as fit
 *   simulate --seed N [--trace]        one seed; --trace shows everything that happens
 *   simulate --replay N                N seeds, each twice: the traces must be equal
 *   simulate --mutants [NAME]          everything deliberately broken must be noticed
 *   simulate --named                   the schedules that broke earlier versions, and the defects they must notice
 *   simulate --script NAME [--trace]   one of them
 *   --broken NAME                      with the others: run with this one broken
 *   --local                            with the others: one machine with a local store, its real code over a disk that fails
 *   --harm                             with the others: look at consequences only, not at single answers of the table
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "mutation.h"
#include "named.h"
#include "schedule.h"

typedef struct arguments {
    uint64_t count, start, seed, minutes, replay;
    int one, trace, mutants, named, harm_only, local;
    const char *mutant;
    const script_t *script;
    const broken_t *broken;
} arguments_t;

static void show_violation(uint64_t seed, const verdict_t *verdict)
{
    printf("seed %" PRIu64 " violates: %s\n  ", seed, verdict->property);
    if (verdict->key >= 0) {
        printf("key %d: ", verdict->key);
    }
    printf("%s\n", verdict->violation);
}

static schedule_t start(const arguments_t *arguments, uint64_t seed, counters_t *counters)
{
    schedule_t schedule = {.seed = seed, .broken = arguments->broken, .counters = counters};

    schedule.script = arguments->script;
    schedule.harm_only = arguments->harm_only;
    schedule.local = arguments->local;
    return schedule;
}

/* The lines of the trace that are about the key, or about no key: at most the last TAIL_LINES of them. */
static void show_tail(char *trace, int key)
{
    enum { TAIL_LINES = 40 };
    const char *lines[TAIL_LINES];
    char wanted[16];
    unsigned count = 0;

    (void)snprintf(wanted, sizeof(wanted), " key %d ", key);
    for (char *line = strtok(trace, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        if (key < 0 || strstr(line, wanted) != NULL || strstr(line, " key ") == NULL) {
            lines[count++ % TAIL_LINES] = line;
        }
    }
    for (unsigned i = count > TAIL_LINES ? count - TAIL_LINES : 0; i < count; i++) {
        printf("%s\n", lines[i % TAIL_LINES]);
    }
}

/* Runs a seed that failed once more, to show how. */
static void show_how(const arguments_t *arguments, uint64_t seed)
{
    counters_t counters = {{0}};
    schedule_t schedule = start(arguments, seed, &counters);
    char *trace = NULL;
    size_t size = 0;
    verdict_t verdict;

    schedule.tracing = 1;
    schedule.out = open_memstream(&trace, &size);
    if (schedule.out == NULL) {
        return;
    }
    verdict = schedule_run(&schedule);
    (void)fclose(schedule.out);
    show_tail(trace, verdict.key);
    free(trace);
}

static int run_one(const arguments_t *arguments)
{
    counters_t counters = {{0}};
    schedule_t schedule = start(arguments, arguments->seed, &counters);
    verdict_t verdict;

    schedule.tracing = 1;
    schedule.out = arguments->trace ? stdout : NULL;
    verdict = schedule_run(&schedule);

    if (verdict.property[0] != '\0') {
        show_violation(arguments->seed, &verdict);
        return 1;
    }
    printf("seed %" PRIu64 ": all properties hold, trace %016" PRIx64 "\n", arguments->seed,
           verdict.trace_hash);
    return 0;
}

/* `must`: which counters must not be zero; 0: they may all be. */
static int show_counters(const counters_t *counters, int must)
{
    static const struct {
        const char *text;
        int must;
    } about[] = {
#define COUNTERS_TEXT(name, must, text) {text, must},
        COUNTERS(COUNTERS_TEXT)
#undef COUNTERS_TEXT
    };
    int missing = 0;

    for (unsigned i = 0; i < COUNTER_COUNT; i++) {
        int bad = (about[i].must & must) != 0 && counters->at[i] == 0;
        printf("%12" PRIu64 "  %s%s\n", counters->at[i], about[i].text,
               bad ? "  <-- never happened" : "");
        missing += bad;
    }
    return missing;
}

static int run_many(const arguments_t *arguments)
{
    counters_t counters = {{0}};
    time_t end = time(NULL) + (time_t)(60 * arguments->minutes);
    uint64_t seed = arguments->start;
    int missing;

    while (arguments->minutes > 0 ? time(NULL) < end : seed - arguments->start < arguments->count) {
        schedule_t schedule = start(arguments, seed, &counters);
        verdict_t verdict = schedule_run(&schedule);
        if (verdict.property[0] != '\0') {
            show_how(arguments, seed);
            show_violation(seed, &verdict);
            printf("the whole trace: simulate%s --seed %" PRIu64 " --trace%s%s\n",
                   arguments->local ? " --local" : "", seed,
                   arguments->broken != NULL ? " --broken " : "",
                   arguments->broken != NULL ? arguments->broken->name : "");
            return 1;
        }
        seed++;
    }
    missing = show_counters(&counters, arguments->local ? (seed - arguments->start >= 300 ? 2 : 0)
                                                        : seed - arguments->start >= 10000);
    printf("%" PRIu64 " schedules from seed %" PRIu64 ": all properties hold%s\n",
           seed - arguments->start, arguments->start,
           missing > 0 ? ", but something was never reached" : "");
    return missing > 0;
}

static int run_replay(const arguments_t *arguments)
{
    for (uint64_t seed = arguments->start; seed < arguments->start + arguments->replay; seed++) {
        counters_t counters = {{0}};
        schedule_t schedule = start(arguments, seed, &counters);
        verdict_t first, second;
        schedule.tracing = 1;
        first = schedule_run(&schedule);
        second = schedule_run(&schedule);
        if (first.trace_hash != second.trace_hash) {
            printf("seed %" PRIu64 ": two runs differ\n", seed);
            return 1;
        }
    }
    printf("%" PRIu64 " seeds, each run twice: equal traces\n", arguments->replay);
    return 0;
}

static uint64_t number(const char *text)
{
    char *end;
    uint64_t value = strtoull(text, &end, 0);

    if (*text == '\0' || *end != '\0') {
        fprintf(stderr, "simulate: \"%s\" is not a number\n", text);
        exit(2);
    }
    return value;
}

static const broken_t *find_broken(const char *name)
{
    const broken_t *broken = mutation_find(name);

    if (broken == NULL) {
        fprintf(stderr, "simulate: nothing is called \"%s\"\n", name);
        exit(2);
    }
    return broken;
}

static const script_t *find_script(const char *name)
{
    const script_t *script = named_find(name);

    if (script == NULL) {
        fprintf(stderr, "simulate: no schedule is called \"%s\"\n", name);
        exit(2);
    }
    return script;
}

static int take_option(arguments_t *arguments, const char *name, const char *value)
{
    if (strcmp(name, "--count") == 0) {
        arguments->count = number(value);
    } else if (strcmp(name, "--start") == 0) {
        arguments->start = number(value);
    } else if (strcmp(name, "--minutes") == 0) {
        arguments->minutes = number(value);
    } else if (strcmp(name, "--replay") == 0) {
        arguments->replay = number(value);
    } else if (strcmp(name, "--broken") == 0) {
        arguments->broken = find_broken(value);
    } else if (strcmp(name, "--script") == 0) {
        arguments->one = 1;
        arguments->script = find_script(value);
    } else if (strcmp(name, "--seed") == 0) {
        arguments->one = 1;
        arguments->seed = number(value);
    } else {
        return 0;
    }
    return 1;
}

static void parse(arguments_t *arguments, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--trace") == 0) {
            arguments->trace = 1;
        } else if (strcmp(argv[i], "--harm") == 0) {
            arguments->harm_only = 1;
        } else if (strcmp(argv[i], "--local") == 0) {
            arguments->local = 1;
        } else if (strcmp(argv[i], "--named") == 0) {
            arguments->named = 1;
        } else if (strcmp(argv[i], "--mutants") == 0) {
            arguments->mutants = 1;
            if (i + 1 < argc && argv[i + 1][0] != '-') {
                arguments->mutant = argv[++i];
            }
        } else if (i + 1 < argc && take_option(arguments, argv[i], argv[i + 1])) {
            i++;
        } else {
            fprintf(stderr, "simulate: what is \"%s\"? see the beginning of main.c\n", argv[i]);
            exit(2);
        }
    }
}

int main(int argc, char **argv)
{
    arguments_t arguments = {.count = 10000, .start = 1, .broken = &broken_nothing};

    parse(&arguments, argc, argv);
    if (arguments.mutants) {
        return mutation_run(arguments.mutant, arguments.harm_only, arguments.local);
    }
    if (arguments.named) {
        return named_run();
    }
    if (arguments.one) {
        return run_one(&arguments);
    }
    return arguments.replay > 0 ? run_replay(&arguments) : run_many(&arguments);
}
