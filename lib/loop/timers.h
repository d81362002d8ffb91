/*
 * All timers of a loop: a binary heap of pointers.
 * Invariants: heap[i] is due no later than its children; heap[i]->slot == i; room >= reserved >= count.
 */
#ifndef ONCE_LOOP_TIMERS_H
#define ONCE_LOOP_TIMERS_H

#include "loop/loop.h"

typedef struct once__timers {
    once__timer_t **heap; /* heap[1] is the first due; heap[0] is not used */
    size_t count;
    size_t reserved;
    size_t room;
    uint64_t next_order;
} once__timers_t;

int once__timers_grow(once__timers_t *timers); /* reserves one more; 0 or -1 */
void once__timers_put(once__timers_t *timers, once__timer_t *timer);
void once__timers_take(once__timers_t *timers, once__timer_t *timer);

static inline once__timer_t *once__timers_first(const once__timers_t *timers)
{
    return timers->count > 0 ? timers->heap[1] : NULL;
}

#endif
