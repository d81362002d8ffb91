#include "consume/poller.h"

#include <stdlib.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#define EVENTS 64

struct once__consume_poller {
    int epoll;
    once__consume_due_t **heap; /* from 1; the parent of i is i / 2 */
    size_t count, room;
};

uint64_t once__consume_poller_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

once__consume_poller_t *once__consume_poller_new(void)
{
    once__consume_poller_t *poller = calloc(1, sizeof(*poller));

    if (poller != NULL) {
        poller->epoll = epoll_create1(EPOLL_CLOEXEC);
        if (poller->epoll < 0) {
            free(poller);
            return NULL;
        }
    }
    return poller;
}

void once__consume_poller_free(once__consume_poller_t *poller)
{
    if (poller != NULL) {
        close(poller->epoll);
        free(poller->heap);
        free(poller);
    }
}

int once__consume_poller_watch(once__consume_poller_t *poller, once__consume_watch_t *watch,
                               uint32_t events)
{
    struct epoll_event event = {.events = events, .data = {.ptr = watch}};
    int how = watch->events == 0 ? EPOLL_CTL_ADD : events == 0 ? EPOLL_CTL_DEL : EPOLL_CTL_MOD;

    if (watch->events == events) {
        return 0;
    }
    watch->events = events;
    return epoll_ctl(poller->epoll, how, watch->fd, &event);
}

/* ------------------------------------------------------------------------------------------------------------ timers */

static void put(once__consume_poller_t *poller, size_t place, once__consume_due_t *timer)
{
    poller->heap[place] = timer;
    timer->place = place;
}

static void rise(once__consume_poller_t *poller, size_t place, once__consume_due_t *timer)
{
    while (place > 1 && poller->heap[place / 2]->due > timer->due) {
        put(poller, place, poller->heap[place / 2]);
        place /= 2;
    }
    put(poller, place, timer);
}

static void sink(once__consume_poller_t *poller, size_t place, once__consume_due_t *timer)
{
    for (;;) {
        size_t child = 2 * place;
        if (child < poller->count && poller->heap[child + 1]->due < poller->heap[child]->due) {
            child++;
        }
        if (child > poller->count || poller->heap[child]->due >= timer->due) {
            break;
        }
        put(poller, place, poller->heap[child]);
        place = child;
    }
    put(poller, place, timer);
}

int once__consume_poller_set(once__consume_poller_t *poller, once__consume_due_t *timer,
                             uint64_t in_ms)
{
    once__consume_poller_unset(poller, timer);
    if (poller->count + 2 > poller->room) {
        size_t room = poller->room != 0 ? 2 * poller->room : 64;
        once__consume_due_t **heap = realloc(poller->heap, room * sizeof(once__consume_due_t *));
        if (heap == NULL) {
            return -1;
        }
        poller->heap = heap;
        poller->room = room;
    }
    timer->due = once__consume_poller_now() + in_ms;
    poller->count++;
    rise(poller, poller->count, timer);
    return 0;
}

void once__consume_poller_unset(once__consume_poller_t *poller, once__consume_due_t *timer)
{
    size_t place = timer->place;
    once__consume_due_t *last;

    if (place == 0) {
        return;
    }
    timer->place = 0;
    last = poller->heap[poller->count--];
    if (last != timer) {
        if (place > 1 && poller->heap[place / 2]->due > last->due) {
            rise(poller, place, last);
        } else {
            sink(poller, place, last);
        }
    }
}

static int patience(const once__consume_poller_t *poller, int hurry)
{
    uint64_t now, left;

    if (hurry) {
        return 0;
    }
    if (poller->count == 0) {
        return -1;
    }
    now = once__consume_poller_now();
    left = poller->heap[1]->due > now ? poller->heap[1]->due - now : 0;
    return left < 60000 ? (int)left : 60000;
}

static void fire_due(once__consume_poller_t *poller)
{
    uint64_t now = poller->count > 0 ? once__consume_poller_now() : 0;

    while (poller->count > 0 && poller->heap[1]->due <= now) {
        once__consume_due_t *timer = poller->heap[1];
        once__consume_poller_unset(poller, timer);
        timer->fire(timer->data);
    }
}

/* A watch that an earlier one of the same turn ended says so by its events: it stays in memory until the turn is over. */
void once__consume_poller_turn(once__consume_poller_t *poller, int hurry)
{
    struct epoll_event events[EVENTS];
    int count = epoll_wait(poller->epoll, events, EVENTS, patience(poller, hurry));

    for (int i = 0; i < count; i++) {
        once__consume_watch_t *watch = events[i].data.ptr;
        if (watch->events != 0) {
            watch->ready(watch->data, events[i].events);
        }
    }
    fire_due(poller);
}
