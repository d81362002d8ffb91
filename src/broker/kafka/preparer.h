/*
 * A thread that prepares things while its owner does something else: he gives them, and takes them in the same order when they
 * are prepared. Everything but the preparing itself is for one thread, the owner's.
 */
#ifndef ONCE_BROKER_KAFKA_PREPARER_H
#define ONCE_BROKER_KAFKA_PREPARER_H

#include <stddef.h>

#define ONCE__KAFKA_PREPARER_ROOM 2048 /* a power of two */

typedef struct once__kafka_preparer once__kafka_preparer_t;

typedef void once__kafka_prepare_cb(void *data, void *const *things, size_t count);

/* `wake_fd`: an eventfd that is written to when something is prepared. NULL: out of memory or of threads. */
once__kafka_preparer_t *once__kafka_preparer_new(once__kafka_prepare_cb *prepare, void *data,
                                                 int wake_fd);

/* What was not taken is the owner's again, prepared or not: take it after once__kafka_preparer_stop. NULL is fine for both. */
void once__kafka_preparer_stop(once__kafka_preparer_t *preparer);
void once__kafka_preparer_free(once__kafka_preparer_t *preparer);

/* How many were given and not taken: ONCE__KAFKA_PREPARER_ROOM at most. */
size_t once__kafka_preparer_open(const once__kafka_preparer_t *preparer);

void once__kafka_preparer_give(once__kafka_preparer_t *preparer, void *const *things, size_t count);

/* The owner has nothing else to do: he prepares the next of those that the thread has not begun. Returns how many. */
size_t once__kafka_preparer_help(once__kafka_preparer_t *preparer);

/* Those that are prepared by now, at most `most`; after the stop: all. Returns how many. */
size_t once__kafka_preparer_take(once__kafka_preparer_t *preparer, void **things, size_t most);

#endif
