/*
 * model_check: searches the state space of the record's rules for a schedule that breaks a promise.
 *
 *   model_check                       every scenario
 *   model_check NAME...               these
 *   model_check --list                what there is
 *   model_check --mutants [NAME...]   every mutant must be caught; prints by what
 *   model_check --mutant NAME ...     scenarios with that mutant, and the trace that catches it
 *   model_check --edits               every other single edit of every row must be caught, too
 *   model_check --table               the rules, as in docs/record.md; --table FILE: is every line of it in there?
 * Options: --deep (greater bounds), --harm (only what the world suffers), --limit STATES.
 */
#include <stdlib.h>
#include <string.h>

#include "run.h"

static int usage(void)
{
    fputs("usage: model_check [--deep] [--harm] [--limit STATES] [--mutant NAME] [SCENARIO...]\n"
          "       model_check --list | --mutants [NAME...] | --edits | --table [FILE]\n",
          stderr);
    return 2;
}

static int list(void)
{
    for (size_t i = 0; i < model_scenario_count; i++) {
        printf("%-20s %s\n", model_scenarios[i].name, model_scenarios[i].what);
    }
    puts("\nmutants:");
    for (size_t i = 0; i < mutant_count; i++) {
        printf("%-30s %s\n", mutants[i].name, mutants[i].what);
    }
    return 0;
}

static int read_options(int argc, char **argv, run_options_t *options)
{
    int i = 1;

    for (; i < argc && argv[i][0] == '-'; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(argv[i], "--deep") == 0) {
            options->deep = 1;
        } else if (strcmp(argv[i], "--harm") == 0) {
            options->harm_only = 1;
        } else if (strcmp(argv[i], "--limit") == 0 && value != NULL) {
            options->limit = (size_t)strtoull(value, NULL, 10);
            i++;
        } else if (strcmp(argv[i], "--mutant") == 0 && value != NULL) {
            options->mutant = mutant_find(value);
            if (options->mutant == NULL) {
                fprintf(stderr, "model_check: no mutant %s; see --list\n", value);
                return -1;
            }
            i++;
        } else if (strcmp(argv[i], "--list") == 0 || strcmp(argv[i], "--mutants") == 0 ||
                   strcmp(argv[i], "--edits") == 0 || strcmp(argv[i], "--table") == 0) {
            options->mode = argv[i] + 2;
        } else {
            return -1;
        }
    }
    options->names = argv + i;
    options->name_count = argc - i;
    return 0;
}

int main(int argc, char **argv)
{
    run_options_t options = {.mode = "check"};

    if (read_options(argc, argv, &options) != 0) {
        return usage();
    }
    if (strcmp(options.mode, "list") == 0) {
        return list();
    }
    if (strcmp(options.mode, "mutants") == 0) {
        return run_mutants(&options);
    }
    if (strcmp(options.mode, "edits") == 0) {
        return run_edits(&options);
    }
    if (strcmp(options.mode, "table") == 0) {
        return run_table(&options);
    }
    return run_scenarios(&options);
}
