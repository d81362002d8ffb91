/*
 * The world of one schedule: true time, the queue of what will happen, chance, memory, the trace, and the first property that
 * was violated.
 *
 * True time is the simulation's own and is seen by no actor: processes have monotonic clocks of their own (process.h), the
 * store has a wall clock that can jump. Events happen in the order of (time, sequence number), one at a time; nothing depends
 * on addresses, so the same seed gives the same trace.
 *
 * Everything that actors allocate lives until the schedule is over: no actor has to know whether a late event still refers to
 * it. What the library allocates is the library's, and the sanitizers watch that.
 */
#ifndef SIMULATION_WORLD_H
#define SIMULATION_WORLD_H

#include <stdio.h>

#include "broken.h"
#include "counters.h"
#include "plan.h"

#include "store/memory/table.h"

typedef struct world world_t;
struct script;
typedef struct event event_t;
typedef struct block block_t;

typedef void (*event_fn)(void *data);

/* A response of a backend. Bodies are unique: equal bodies come from the same run. */
typedef struct response {
    int status;
    once_verdict_t said;
    uint64_t retain_ms;
    char body[64];
} response_t;

struct world {
    uint64_t seed;
    prng_t prng;
    plan_t plan;
    const broken_t *broken;      /* what is deliberately wrong; broken_nothing otherwise */
    const struct script *script; /* NULL: the seed decides everything */
    unsigned script_sent[PLAN_GATEWAYS_MAX + 1][ONCE__EVENT_COUNT], script_courses;
    counters_t *counters;

    uint64_t now;          /* true time, milliseconds */
    int64_t clock_offset;  /* of the store's clock */
    int64_t clock_highest; /* that it ever had */
    uint64_t outage_until;
    int quiet;     /* nothing goes wrong any more */
    int harm_only; /* single answers of the table are not checked, only what becomes of them */

    event_t *heap;
    size_t heap_count, heap_room;
    uint64_t sequence;
    unsigned turns; /* without time going on */
    block_t *blocks;

    once__table_t *table;
    struct machine *machine; /* with a local store; NULL: the store is a table behind a network */
    struct ledger *ledger;
    struct gateway *gateways;
    struct client *clients;
    struct operator_ *operator_;
    struct process *processes; /* all that ever lived, newest first */
    once_policy_t *policies[3];

    FILE *out; /* NULL: the trace is not printed */
    int tracing;
    uint64_t trace_hash;
    char property[64]; /* empty: all hold */
    char violation[400];
    int violated_key;
};

world_t *world_new(uint64_t seed, const broken_t *broken, counters_t *counters);
void world_free(world_t *world);

/* Zeroed memory that lives as long as the world. */
void *world_alloc(world_t *world, size_t size);

/* `fire` will be called with `data` in that many milliseconds. */
void world_after(world_t *world, uint64_t ms, event_fn fire, void *data);

/* When the next event is; UINT64_MAX: there is none. */
uint64_t world_next(const world_t *world);
void world_fire_next(world_t *world);

/* The store's clock. */
uint64_t world_store_clock(const world_t *world);

/* One line of the trace. `key` is a key's number, or -1. */
void world_say(world_t *world, int key, const char *format, ...) ONCE_PRINTF(3, 4);

/* A property does not hold. The first one counts and ends the schedule. */
void world_violate(world_t *world, int key, const char *property, const char *format, ...)
    ONCE_PRINTF(4, 5);

static inline void world_count(world_t *world, enum counter counter)
{
    world->counters->at[counter]++;
}

static inline int world_chance(world_t *world, unsigned per_mille)
{
    return prng_chance(&world->prng, world->quiet ? 0 : per_mille);
}

static inline int world_is_broken(const world_t *world, unsigned behaviour)
{
    return (world->broken->behaviour & behaviour) != 0;
}

#endif
