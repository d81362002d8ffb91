#include "run.h"

#include <string.h>

#define DEEP_LIMIT 20000000

int run_is_named(const run_options_t *options, const char *name)
{
    for (int i = 0; i < options->name_count; i++) {
        if (strcmp(options->names[i], name) == 0) {
            return 1;
        }
    }
    return options->name_count == 0;
}

static int has_name(const char *invariant, const char *start)
{
    return strncmp(invariant, start, strlen(start)) == 0;
}

/* One line; the trace of what should not be. 0: as it should be. */
static int report(const model_scenario_t *scenario, const search_result_t *result)
{
    int expected = result->broken == NULL
                       ? scenario->breaks == NULL
                       : scenario->breaks != NULL && has_name(result->broken, scenario->breaks);

    printf("%-20s %9zu states  depth %2u  %5.1f s  ", scenario->name, result->states, result->depth,
           result->seconds);
    if (result->broken == NULL) {
        printf("%s%s\n", scenario->breaks != NULL ? "HOLDS, but should not" : "holds",
               result->truncated ? " as far as it went (TRUNCATED)" : "");
    } else if (expected) {
        printf("breaks %s in %zu steps, as it must\n", result->broken, result->steps);
    } else {
        putchar('\n');
        search_print(stdout, result);
    }
    fflush(stdout);
    return !expected;
}

/* Rows that never decided anything were not searched. Only those for newer versions are left out on purpose. */
static int report_idle_rows(const uint8_t *fired)
{
    int idle = 0;

    for (size_t i = 0; i < once__rules.count; i++) {
        if (!fired[i] && !(once__rules.rows[i].need & ONCE__G_NEWER)) {
            printf("row \"%s\" never decided\n", once__rules.rows[i].name);
            idle++;
        }
    }
    return idle;
}

static model_scenario_t deepened(const model_scenario_t *scenario, int deep)
{
    model_scenario_t copy = *scenario;

    if (deep && copy.breaks == NULL) {
        copy.ids = copy.deep_ids != 0 ? copy.deep_ids : (uint8_t)(copy.ids + 1);
        copy.can |= copy.deep_can;
    }
    return copy;
}

int run_scenarios(const run_options_t *options)
{
    once__rule_t rows[MUTANT_ROWS_MAX];
    once__rules_t rules = once__rules;
    search_options_t how = {
        .harm_only = options->harm_only, .liveness = 1, .limit = options->limit};
    size_t states = 0;
    double seconds = 0;
    uint8_t fired[MUTANT_ROWS_MAX] = {0};
    int wrong = 0;

    if (options->mutant != NULL) {
        rules = mutant_rules(options->mutant, &once__rules, rows);
        how.behaviour = options->mutant->behaviour;
    }
    if (options->deep && how.limit == 0) {
        how.limit = DEEP_LIMIT;
    }
    how.rules = &rules;
    how.fired = fired;
    for (size_t i = 0; i < model_scenario_count; i++) {
        model_scenario_t scenario = deepened(&model_scenarios[i], options->deep);
        search_result_t result;
        if (!run_is_named(options, scenario.name)) {
            continue;
        }
        if (search_run(&scenario, &how, &result) != 0) {
            fputs("model_check: out of memory\n", stderr);
            return 2;
        }
        wrong += report(&scenario, &result);
        states += result.states;
        seconds += result.seconds;
        search_free(&result);
    }
    if (options->name_count == 0 && options->mutant == NULL) {
        wrong += report_idle_rows(fired);
    }
    printf("%zu states in %.1f s, %s\n", states, seconds,
           wrong ? "NOT as it should be" : "all as it should be");
    return wrong != 0 || states == 0;
}

int run_catch(const once__rules_t *rules, unsigned behaviour, int harm_only, size_t limit,
              search_result_t *result, const model_scenario_t **by)
{
    search_options_t how = {
        .rules = rules, .behaviour = behaviour, .harm_only = harm_only, .liveness = 1};

    for (how.limit = 2000; how.limit <= limit; how.limit *= 8) {
        for (size_t i = 0; i < model_scenario_count; i++) {
            if (model_scenarios[i].breaks != NULL) {
                continue;
            }
            if (search_run(&model_scenarios[i], &how, result) != 0) {
                return -1;
            }
            if (result->broken != NULL) {
                *by = &model_scenarios[i];
                return 1;
            }
            search_free(result);
        }
    }
    return 0;
}

/* What a mutant is caught by: the first sign, and the harm it does if there is any. */
static int report_mutant(const mutant_t *mutant, const once__rules_t *rules, size_t limit,
                         int with_harm)
{
    search_result_t sign, harm;
    const model_scenario_t *by = NULL, *harmed = NULL;
    int caught = run_catch(rules, mutant->behaviour, 0, limit, &sign, &by);

    if (caught <= 0) {
        printf("%-30s NOT CAUGHT: %s\n", mutant->name, mutant->what);
        return 1;
    }
    printf("%-30s %-34s %2zu steps  %5.2f s  %-18s", mutant->name, sign.broken, sign.steps,
           sign.seconds, by->name);
    search_free(&sign);
    if (!with_harm) {
        putchar('\n');
    } else if (run_catch(rules, mutant->behaviour, 1, limit, &harm, &harmed) > 0) {
        printf("  harm: %s in %zu steps (%s)\n", harm.broken, harm.steps, harmed->name);
        search_free(&harm);
    } else {
        puts("  harm: none found");
    }
    fflush(stdout);
    return 0;
}

int run_mutants(const run_options_t *options)
{
    once__rule_t rows[MUTANT_ROWS_MAX];
    int missed = 0, run = 0;

    for (size_t i = 0; i < mutant_count; i++) {
        once__rules_t rules = mutant_rules(&mutants[i], &once__rules, rows);
        if (run_is_named(options, mutants[i].name)) {
            missed +=
                report_mutant(&mutants[i], &rules, options->limit != 0 ? options->limit : 130000,
                              options->harm_only);
            run++;
        }
    }
    printf("%d mutants, %d not caught\n", run, missed);
    return missed != 0 || run == 0;
}
