#include "loop/timers.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/buf.h"

static int is_before(const once__timer_t *a, const once__timer_t *b)
{
    return a->due != b->due ? a->due < b->due : a->order < b->order;
}

/* The heap is checked around one slot: that is where a call has changed it. */
static void assert_timers_state(const once__timers_t *timers, size_t slot)
{
    assert(timers->count <= timers->reserved && timers->reserved <= timers->room); /* I-1 */
    if (slot == 0 || slot > timers->count) {
        return;
    }
    assert(timers->heap[slot]->slot == slot);                                    /* I-2 */
    assert(slot == 1 || !is_before(timers->heap[slot], timers->heap[slot / 2])); /* I-3 */
    assert(2 * slot > timers->count || !is_before(timers->heap[2 * slot], timers->heap[slot]));
}

int once__timers_grow(once__timers_t *timers)
{
    once__timer_t **heap = once__grow(timers->heap, &timers->room, timers->reserved + 2,
                                      sizeof(once__timer_t *), SIZE_MAX / sizeof(once__timer_t *));

    if (heap == NULL) {
        return -1;
    }
    timers->heap = heap;
    timers->reserved++;
    assert_timers_state(timers, 0);
    return 0;
}

static void place(once__timers_t *timers, once__timer_t *timer, size_t slot)
{
    timers->heap[slot] = timer;
    timer->slot = slot;
}

static void rise(once__timers_t *timers, once__timer_t *timer, size_t slot)
{
    while (slot > 1 && is_before(timer, timers->heap[slot / 2])) {
        place(timers, timers->heap[slot / 2], slot);
        slot /= 2;
    }
    place(timers, timer, slot);
}

static void sink(once__timers_t *timers, once__timer_t *timer, size_t slot)
{
    for (;;) {
        size_t child = 2 * slot;
        if (child > timers->count) {
            break;
        }
        if (child < timers->count && is_before(timers->heap[child + 1], timers->heap[child])) {
            child++;
        }
        if (!is_before(timers->heap[child], timer)) {
            break;
        }
        place(timers, timers->heap[child], slot);
        slot = child;
    }
    place(timers, timer, slot);
}

void once__timers_put(once__timers_t *timers, once__timer_t *timer)
{
    assert(timer->slot == 0);
    assert(timers->count < timers->reserved);
    timer->order = timers->next_order++;
    timers->count++;
    rise(timers, timer, timers->count);
    assert_timers_state(timers, timer->slot);
}

void once__timers_take(once__timers_t *timers, once__timer_t *timer)
{
    size_t slot = timer->slot;
    once__timer_t *last = timers->heap[timers->count];

    assert(slot > 0 && timers->heap[slot] == timer);
    assert_timers_state(timers, slot);
    timers->count--;
    timer->slot = 0;
    if (last == timer) {
        return;
    }
    if (slot > 1 && is_before(last, timers->heap[slot / 2])) {
        rise(timers, last, slot);
    } else {
        sink(timers, last, slot);
    }
    assert_timers_state(timers, last->slot);
}
