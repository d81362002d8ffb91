/* What model_check can be asked to do. Each returns the exit status of the program: 0 when all is as it should be. */
#ifndef TESTS_MODEL_RUN_H
#define TESTS_MODEL_RUN_H

#include "search.h"

typedef struct run_options {
    const char *mode;
    const mutant_t *mutant;
    int deep, harm_only;
    size_t limit;
    char **names;
    int name_count;
} run_options_t;

int run_scenarios(const run_options_t *options);
int run_mutants(const run_options_t *options);
/* every single edit of every row, not only the catalogue's */
int run_edits(const run_options_t *options);
int run_table(const run_options_t *options);

/* Names given: only those. */
int run_is_named(const run_options_t *options, const char *name);

/*
 * Looks for a scenario that catches these rules: small limits first, all scenarios at each. 1: caught, `result` has the
 * trace; 0: not, as far as `limit` states each; -1: out of memory.
 */
int run_catch(const once__rules_t *rules, unsigned behaviour, int harm_only, size_t limit,
              search_result_t *result, const model_scenario_t **by);

#endif
