/*
 * Makes the summaries of finished segments aside, in a thread that lives as long as there are some to make.
 *
 * Used by one thread, the writer. Zero at first, except what it works on.
 */
#ifndef ONCE_STORE_LOCAL_SUMMARISER_H
#define ONCE_STORE_LOCAL_SUMMARISER_H

#include <pthread.h>

#include "store/local/summary.h"

typedef struct once__summariser {
    int segments_fd;
    const once__index_t *index;
    int threadless; /* it is done at once, by whoever asks */

    pthread_t thread;
    int started;
    uint32_t from; /* it need not look before this segment */
    _Atomic int stop, done;
} once__summariser_t;

/* Sees to it that all finished segments get their summaries, some time. */
void once__summariser_go(once__summariser_t *summariser);

/* Waits for the summary that is being made. */
void once__summariser_stop(once__summariser_t *summariser);

#endif
