#include "mutation.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "schedule.h"
#include "support/mutants.h"

enum { SEEDS_MAX = 40000, SEEDS_MAX_LOCAL = 3000 };

/* What the simulation cannot notice, and why. */
static const struct {
    const char *name, *why;
} unseen[] = {
    {"", ""},
};

static const char *why_unseen(const char *name)
{
    for (size_t i = 0; i < sizeof(unseen) / sizeof(unseen[0]); i++) {
        if (strcmp(unseen[i].name, name) == 0) {
            return unseen[i].why;
        }
    }
    return NULL;
}

static unsigned behaviour_of(const mutant_t *mutant)
{
    return (mutant->behaviour & MUTANT_IDEMPOTENT_SQL ? BROKEN_SQL_IDEMPOTENT : 0u) |
           (mutant->behaviour & MUTANT_OWN_ANSWER ? BROKEN_OWN_ANSWER : 0u) |
           (mutant->behaviour & MUTANT_ALWAYS_EARLY ? BROKEN_ALWAYS_EARLY : 0u) |
           (mutant->behaviour & MUTANT_FAILED_WRITE_RELEASES ? BROKEN_ERROR_RELEASES : 0u);
}

/* A broken copy of the rules; one at a time. */
static const broken_t *break_rules(const mutant_t *mutant)
{
    static once__rule_t rows[MUTANT_ROWS_MAX];
    static once__rules_t rules;
    static broken_t broken;

    rules = mutant_rules(mutant, &once__rules, rows);
    broken.name = mutant->name;
    broken.what = mutant->what;
    broken.rules = &rules;
    broken.behaviour = behaviour_of(mutant);
    return &broken;
}

const broken_t *mutation_find(const char *name)
{
    const mutant_t *mutant = mutant_find(name);

    for (size_t i = 0; i < broken_store_count; i++) {
        if (strcmp(broken_stores[i].name, name) == 0) {
            return &broken_stores[i];
        }
    }
    for (size_t i = 0; i < broken_actor_count; i++) {
        if (strcmp(broken_actors[i].name, name) == 0) {
            return &broken_actors[i];
        }
    }
    return mutant != NULL ? break_rules(mutant) : NULL;
}

/* Runs seeds until it is noticed. Returns 1 when it was. */
static int is_noticed(const broken_t *broken, int harm_only, int local)
{
    for (uint64_t seed = 1; seed <= (local ? SEEDS_MAX_LOCAL : SEEDS_MAX); seed++) {
        counters_t counters = {{0}};
        schedule_t schedule = {.seed = seed, .broken = broken, .counters = &counters};
        verdict_t verdict;
        schedule.harm_only = harm_only;
        schedule.local = local;
        verdict = schedule_run(&schedule);
        if (verdict.property[0] != '\0') {
            printf("  noticed  %-32s seed %-5" PRIu64 " %s\n", broken->name, seed,
                   verdict.property);
            return 1;
        }
    }
    return 0;
}

static int run_broken(const broken_t *broken, int harm_only, int local)
{
    const char *why = why_unseen(broken->name);

    if (why != NULL) {
        printf("  unseen   %-32s %s\n", broken->name, why);
        return 0;
    }
    if (is_noticed(broken, harm_only, local)) {
        return 0;
    }
    printf("  MISSED   %-32s %s; %d seeds\n", broken->name, broken->what,
           local ? SEEDS_MAX_LOCAL : SEEDS_MAX);
    return 1;
}

/* The rest does not depend on the kind of store. */
static int run_stores(int harm_only)
{
    int missed = 0;

    for (size_t i = 0; i < broken_store_count; i++) {
        missed += run_broken(&broken_stores[i], harm_only, 1);
    }
    printf("%zu broken on purpose, %d not noticed\n", broken_store_count, missed);
    return missed > 0;
}

int mutation_run(const char *name, int harm_only, int local)
{
    int missed = 0;

    if (name != NULL) {
        const broken_t *broken = mutation_find(name);
        return broken == NULL ? 2 : run_broken(broken, harm_only, local);
    }
    if (local) {
        return run_stores(harm_only);
    }
    for (size_t i = 0; i < broken_actor_count; i++) {
        missed += run_broken(&broken_actors[i], harm_only, 0);
    }
    for (size_t i = 0; i < mutant_count; i++) {
        missed += run_broken(break_rules(&mutants[i]), harm_only, 0);
    }
    printf("%zu broken on purpose, %d not noticed\n", broken_actor_count + mutant_count, missed);
    return missed > 0;
}
