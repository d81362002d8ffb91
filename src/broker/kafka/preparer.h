/*
 * A thread that prepares items while its owner does something else. The owner gives items and takes them back in the same order
 * once they are prepared. All functions are for the owner's thread; only the callback runs in either.
 */
#ifndef ONCE_BROKER_KAFKA_PREPARER_H
#define ONCE_BROKER_KAFKA_PREPARER_H

#include <stddef.h>

#define ONCE__KAFKA_PREPARER_ROOM 2048 /* a power of two */

typedef struct once__kafka_preparer once__kafka_preparer_t;

typedef void once__kafka_prepare_cb(void *data, void *const *things, size_t count);

/* `wake_fd` is an eventfd that is written to when items are prepared. Returns NULL if memory or threads are short. */
once__kafka_preparer_t *once__kafka_preparer_new(once__kafka_prepare_cb *prepare, void *data,
                                                 int wake_fd);

/* After once__kafka_preparer_stop all items can be taken, prepared or not. NULL is fine for both. */
void once__kafka_preparer_stop(once__kafka_preparer_t *preparer);
void once__kafka_preparer_free(once__kafka_preparer_t *preparer);

/* The number of items that were given and not taken: at most ONCE__KAFKA_PREPARER_ROOM. */
size_t once__kafka_preparer_open(const once__kafka_preparer_t *preparer);

void once__kafka_preparer_give(once__kafka_preparer_t *preparer, void *const *things, size_t count);

/* For an owner with nothing else to do: prepares the next items that the thread has not started. Returns their number. */
size_t once__kafka_preparer_help(once__kafka_preparer_t *preparer);

/* Takes up to `most` items that are prepared; after the stop, any. Returns their number. */
size_t once__kafka_preparer_take(once__kafka_preparer_t *preparer, void **things, size_t most);

#endif
