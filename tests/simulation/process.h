/*
 * A process that uses libonce: one life of a gateway or of the operator's program, from start to exit or crash.
 *
 * It has a real handle over a simulated loop, a monotonic clock with a beginning and a speed of its own, and a connection to
 * the store (network.h). It can stand still: then it is not dispatched and sees nothing, while its clock and its leases run
 * on. When it crashes, nothing it says reaches the store any more, except what was already on its way.
 */
#ifndef SIMULATION_PROCESS_H
#define SIMULATION_PROCESS_H

#include "world.h"

typedef struct process process_t;
typedef struct call call_t;
typedef void (*call_fn)(once_answer_t *answer, void *data);

struct process {
    process_t *next; /* in world->processes */
    world_t *world;
    char name[24];
    unsigned number; /* of the gateway; SCRIPT_OPERATOR: none */
    once_t *handle;  /* NULL: over */
    struct link *link;
    int alive, crashed;
    uint64_t born, clock_start;     /* true time; what the monotonic clock showed then */
    unsigned clock_rate;            /* per thousand of true time */
    uint64_t paused_until;          /* or when it last went on */
    unsigned asking[PLAN_KEYS_MAX]; /* requests per key that may yet be told run and forward */
    call_t *calls;
    void (*gone)(void *data); /* called when it crashed and is buried */
    void *data;
};

/* Starts one. It has a handle and is dispatched from now on. */
process_t *process_start(world_t *world, const char *name, unsigned number,
                         void (*gone)(void *data), void *data);

/* Its own clock. */
uint64_t process_clock(const process_t *process);

/* When it wants to be dispatched, in true time; UINT64_MAX: never. */
uint64_t process_due(const process_t *process);
void process_dispatch(process_t *process);

void process_pause(process_t *process, uint64_t ms);

/* Can it act now? If not and it merely stands still, `fire` is put off until it goes on. */
int process_acts(process_t *process, event_fn fire, void *data);

/* It is gone from this very moment; the handle is thrown away in the next event. */
void process_crash(process_t *process);

/* Ends it in good order. Returns once_close's. Not from a callback. */
int process_exit(process_t *process);

/* What it has been waiting for longer than that: an accepted call that was not called back yet, or NULL. */
const char *process_waits(const process_t *process, uint64_t ms);

/* The schedule is over: throws the handle away. */
void process_discard(process_t *process);

/*
 * A call on the handle: give call_back and the call to the library, and say whether it was accepted. It must be called back
 * exactly once if so, and never if not.
 */
call_t *call_new(process_t *process, const char *what, call_fn fn, void *data);
void call_back(once_t *once, once_answer_t *answer, void *call);
int call_accepted(call_t *call, int code);

#endif
