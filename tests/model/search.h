/*
 * Visits every state of a scenario, breadth first, so that the first violation found has the shortest trace.
 */
#ifndef TESTS_MODEL_SEARCH_H
#define TESTS_MODEL_SEARCH_H

#include <stdio.h>

#include "model.h"
#include "support/mutants.h"

typedef struct search_result {
    size_t states;
    unsigned depth; /* moves from the start to the farthest state */
    double seconds;
    int truncated;       /* more states than `limit` */
    const char *broken;  /* the invariant; NULL: all hold */
    size_t steps;        /* of the trace */
    model_move_t *trace; /* free it with search_free */
    model_world_t last;  /* the state that the trace ends in */
} search_result_t;

typedef struct search_options {
    const once__rules_t *rules;
    unsigned behaviour;
    int harm_only;
    uint8_t *fired; /* as in model_t */
    int liveness;   /* also look for states from which nothing good can be reached (I5) */
    size_t limit;   /* of states; 0: none */
} search_options_t;

/* -1 when out of memory. */
int search_run(const model_scenario_t *scenario, const search_options_t *options,
               search_result_t *result);
void search_free(search_result_t *result);

/* Prints the steps, numbered, and the state at the end. */
void search_print(FILE *out, const search_result_t *result);

#endif
