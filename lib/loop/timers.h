/*
 * All timers of a loop: a binary heap of pointers. What holds between calls (assert_timers_state in timers.c):
 *   I-1  count <= reserved <= room: a timer whose owner has reserved room can always be set
 *   I-2  heap[i]->slot == i for 1 <= i <= count; the slot of a timer that is not set is 0
 *   I-3  no timer is due before its parent, heap[i / 2]; of two that are due at the same time the one set first is above
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

int once__timers_grow(once__timers_t *timers); /* reserves one more; 0, or -1 if out of memory */
void once__timers_put(once__timers_t *timers, once__timer_t *timer);
void once__timers_take(once__timers_t *timers, once__timer_t *timer);

static inline once__timer_t *once__timers_first(const once__timers_t *timers)
{
    return timers->count > 0 ? timers->heap[1] : NULL;
}

#endif
