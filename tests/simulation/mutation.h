/*
 * The simulation must be able to fail: everything in the catalogue of broken rules (support/mutants.h) and of broken actors
 * (broken.h) has to be noticed within a bounded number of seeds.
 */
#ifndef SIMULATION_MUTATION_H
#define SIMULATION_MUTATION_H

#include "broken.h"

/* By name; NULL: there is none. */
const broken_t *mutation_find(const char *name);

/*
 * Runs all, or the one named. 0 when each was noticed, or cannot be for the reason given. `harm_only`: by its consequences
 * alone, not by a single wrong answer of the table.
 */
int mutation_run(const char *name, int harm_only, int local);

#endif
