/*
 * The loop of `once consume`: descriptors and timers, one thread.
 */
#ifndef ONCE_CONSUME_POLLER_H
#define ONCE_CONSUME_POLLER_H

#include <stddef.h>
#include <stdint.h>

typedef struct once__consume_poller once__consume_poller_t;

/* A descriptor that is watched. Owned by the caller, who keeps it in place while it is watched. */
typedef struct once__consume_watch {
    void (*ready)(void *data, uint32_t events); /* of epoll */
    void *data;
    int fd;
    uint32_t events; /* 0: not watched */
} once__consume_watch_t;

/* Something that is due later. Owned by the caller, zeroed before its first use. */
typedef struct once__consume_due {
    void (*fire)(void *data);
    void *data;
    uint64_t due;
    size_t place; /* in the heap, from 1; 0: not set */
} once__consume_due_t;

once__consume_poller_t *once__consume_poller_new(void); /* NULL: not possible, errno says why */
void once__consume_poller_free(once__consume_poller_t *poller);

/* Watches for other events than before; 0: for none. 0 or -1. */
int once__consume_poller_watch(once__consume_poller_t *poller, once__consume_watch_t *watch,
                               uint32_t events);

/* Sets or moves a timer. 0, or -1: out of memory. */
int once__consume_poller_set(once__consume_poller_t *poller, once__consume_due_t *timer,
                             uint64_t in_ms);
void once__consume_poller_unset(once__consume_poller_t *poller, once__consume_due_t *timer);

/* Waits, at most until the next timer and not at all with `hurry`, and calls what is ready and what is due. */
void once__consume_poller_turn(once__consume_poller_t *poller, int hurry);

/* Milliseconds of a clock that only goes forward. */
uint64_t once__consume_poller_now(void);

#endif
