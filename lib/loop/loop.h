/*
 * One descriptor for everything: an epoll set that holds the stores' descriptors, one timerfd for all timers, and an eventfd
 * for work that is queued in memory. A host watches once__loop_fd() for reading and then calls once__loop_run().
 *
 * Used by one thread at a time, like the handle that owns it.
 */
#ifndef ONCE_LOOP_LOOP_H
#define ONCE_LOOP_LOOP_H

#include "loop/env.h"

typedef struct once__loop once__loop_t;

/* Creates a loop. On failure NULL, and `*code` is ONCE_E_NOMEM or ONCE_E_IO. */
once__loop_t *once__loop_new(const once__env_t *env, int *code);
/* Stop timers and sources first. Does not touch what the descriptors share with a parent process. */
void once__loop_free(once__loop_t *loop);

int once__loop_fd(const once__loop_t *loop);
const once__env_t *once__loop_env(const once__loop_t *loop);

/* Monotonic milliseconds. */
uint64_t once__loop_now(const once__loop_t *loop);

/* Announces queued work: the descriptor becomes readable and stays so until once__loop_run. */
void once__loop_wake(once__loop_t *loop);

/* Fires what is due: ready descriptors and timers. Never waits. Returns whether there was a wake-up or an event. */
int once__loop_run(once__loop_t *loop);

/* Wakes the loop, but ends the dispatch that is running: the host gets its turn, and the next dispatch goes on. */
void once__loop_pause(once__loop_t *loop);
int once__loop_paused(const once__loop_t *loop); /* since it was entered */

/* Between these two a wake-up costs no system call; leaving makes the descriptor readable if there was one. */
void once__loop_enter(once__loop_t *loop);
void once__loop_leave(once__loop_t *loop);

/* Waits until the descriptor is readable, at most timeout_ms (-1: no limit). Returns 0, or -1 on an error. */
int once__loop_wait(const once__loop_t *loop, int timeout_ms);

/*
 * For a thread that has no other loop: waits until a descriptor is ready or a timer is due, at most timeout_ms (-1: no limit), and
 * fires what is due. A loop that is entered once and then only turned needs no system call for its timers.
 */
void once__loop_turn(once__loop_t *loop, int timeout_ms);

/* When something is due: 0 now, UINT64_MAX never. For the simulation. */
uint64_t once__loop_due(const once__loop_t *loop);

/* A timer: embed it, zeroed, with `fire` set. `fire` may set it again or free what it is embedded in. */
typedef struct once__timer once__timer_t;
struct once__timer {
    void (*fire)(once__timer_t *timer);
    uint64_t due;
    uint64_t order; /* among timers due at the same time: first set, first fired */
    size_t slot;    /* place in the heap, counted from 1; 0: not set */
};

/* Reserves room for one timer. Every owner of a timer reserves once and releases once, so that setting it cannot fail. */
int once__timers_reserve(once__loop_t *loop); /* 0, or -1 if out of memory */
void once__timers_release(once__loop_t *loop);

void once__timer_set(once__loop_t *loop, once__timer_t *timer, uint64_t due_ms);
void once__timer_stop(once__loop_t *loop, once__timer_t *timer);

/* A descriptor to wait for: embed it with `ready` set. */
typedef struct once__source once__source_t;
struct once__source {
    void (*ready)(once__source_t *source, uint32_t events);
    int fd;
};

/* Adds or changes it; `events` are epoll's, and 0 removes it. Returns 0, or -1 with errno set. */
int once__source_set(once__loop_t *loop, once__source_t *source, int fd, uint32_t events);

#endif
