/*
 * A script: a schedule written by hand, in which only what it says goes wrong. Used for the schedules that broke earlier
 * versions of the rules (named.c): each must hold now, and must be noticed when the defect that it found is put back.
 *
 * There is one key, body 0 unless said otherwise, and two gateways. Times are milliseconds. Unless a script says otherwise: a
 * lease is 1000, a reply counts as lost after 200, a callback runs after 500, an upstream has 600, records live for hours.
 * A request takes 1 to its gateway, and a message to the store and back takes 5 each way.
 */
#ifndef SIMULATION_SCRIPT_H
#define SIMULATION_SCRIPT_H

#include "world.h"

enum { SCRIPT_STEPS = 10, SCRIPT_FATES = 4, SCRIPT_COURSES = 4, SCRIPT_CATCHES = 4 };
enum { SCRIPT_OPERATOR = 9 }; /* a process that is no gateway */

typedef enum script_act {
    SCRIPT_END,
    SCRIPT_ASK,   /* a client asks gateway `who`; `value`: with this body */
    SCRIPT_CRASH, /* gateway `who` */
    SCRIPT_PAUSE, /* gateway `who`, for `value` */
    SCRIPT_LOOK, /* the operator looks at the record and settles it if it can tell; `value`: by force */
    SCRIPT_LOOK_AGAIN /* the operator repeats its last settle */
} script_act_t;

typedef struct script_step {
    uint64_t at;
    script_act_t act;
    unsigned who;
    uint64_t value;
} script_step_t;

typedef enum script_fate_kind {
    FATE_NONE,
    FATE_LOSE_REQUEST,
    FATE_LOSE_REPLY,
    FATE_DELAY
} script_fate_kind_t;

/* What happens to the messages of a process that carry an event. */
typedef struct script_fate {
    script_fate_kind_t kind;
    unsigned who;
    once__event_kind_t event;
    unsigned first, last; /* which of them, counted from 1 */
    uint64_t ms;          /* FATE_DELAY */
} script_fate_t;

#define SCRIPT_NEVER UINT64_MAX

/* What becomes of the requests, in the order in which they get their run. Times are counted from the first byte. */
typedef struct script_course {
    int refused;                   /* no connection: nothing is sent */
    uint64_t connect_ms;           /* the connection takes so long */
    uint64_t effect_at, answer_at; /* SCRIPT_NEVER */
    int status;
    uint64_t again_at; /* transactional: the transaction runs again; 0: it does not */
} script_course_t;

typedef struct script {
    const char *name, *what;
    once_recover_t recover;
    uint64_t ttl, store_timeout, reap; /* 0: as above; no reaping */
    uint64_t horizon;
    script_step_t steps[SCRIPT_STEPS];
    script_fate_t fates[SCRIPT_FATES];
    script_course_t courses[SCRIPT_COURSES];
    unsigned effects;                    /* that there must have been at the horizon */
    once_state_t state;                  /* of the record then */
    const char *catches[SCRIPT_CATCHES]; /* mutants and broken actors that it must notice */
} script_t;

/* Draws nothing: the plan that the script wants. */
void script_plan(const script_t *script, plan_t *plan);

/* Starts the steps. */
void script_start(world_t *world);

/* The fate of a message: NULL, or one of the script's. Counts it. */
const script_fate_t *script_fate(world_t *world, unsigned who, once__event_kind_t event);

/* The course of the next request. */
const script_course_t *script_next_course(world_t *world);

/* At the horizon: what must be so is so. */
void script_check(world_t *world);

#endif
